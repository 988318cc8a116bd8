//! The model against itself: gradients against differences of losses, pages against whole sequences.

use tilewright::Result;
use tilewright::prelude::*;
use tilewright_kernels::training::Pack;
use tilewright_kernels::{Context, Tensor};

use crate::arguments::{Arguments, Size};
use crate::generate::Cache;
use crate::model::Model;
use crate::parameters::{Matrix, Parameters, Real, Scale, Shape};
use crate::plot;
use crate::random::Random;
use crate::tokens::{Batch, STORIES, Text};
use crate::train::{self, Optimiser, Plan, Progress, vector};

const SHAPE: Shape = Shape { vocabulary: 7, width: 8, heads: 2, layers: 2, hidden: 6, context: 5 };
const SEQUENCES: usize = 2;

fn model<T: Real>(shape: Shape) -> Result<Model<T>> {
    Model::new(&Context::new(&Device::cpu()), shape, 3)
}

fn batch(shape: &Shape) -> Batch {
    let mut random = Random::new(5);
    let tokens: Vec<i32> = (0..50).map(|_| random.below(shape.vocabulary) as i32).collect();
    Batch::random(&tokens, SEQUENCES, shape.context, &mut random)
}

/// The mean loss in f64, from logits in f64: the library's losses are f32.
fn loss(model: &Model<f64>, batch: &Batch) -> Result<f64> {
    let ids = vector(&model.cx, &batch.inputs)?;
    let logits = model.predict(&ids, SEQUENCES)?.to_vec()?;
    let rows = logits.chunks(model.shape.vocabulary).zip(&batch.targets);
    let losses = rows.map(|(row, &target)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[target as usize]);
    Ok(losses.sum::<f64>() / batch.targets.len() as f64)
}

/// An element of each tensor of the parameters, by its place in the buffer. All tensors are shorter than a pack aligns.
fn one_of_each(parameters: &Parameters<f64>) -> Result<Vec<(String, usize)>> {
    let mut all = vec![("embedding".to_string(), 0, parameters.embedding()?.len())];
    for layer in 0..parameters.shape.layers {
        for matrix in Matrix::ALL {
            let at = parameters.shape.place(layer, matrix);
            all.push((format!("{matrix:?} {layer}"), at, parameters.matrix(layer, matrix)?.len()));
        }
        for scale in [Scale::Attention(layer), Scale::Hidden(layer)] {
            all.push((format!("{scale:?}"), parameters.shape.scale_place(scale), parameters.scale(scale)?.len()));
        }
    }
    all.push(("last".into(), parameters.shape.scale_place(Scale::Last), parameters.scale(Scale::Last)?.len()));
    let mut random = Random::new(9);
    let tensors = all.into_iter();
    Ok(tensors.map(|(name, at, len)| (name, at * Pack::ALIGNMENT + random.below(len))).collect())
}

/// Central differences of step `h` err by `h^2` times a third derivative, here of the size of the gradient and less than
/// 100, and by `2^-52 loss / h`: 1e-6 of the loss's own size covers both for `h = 1e-5`. Kept logarithms of sums are f32,
/// which gives attention's gradients errors of 2^-24 of weights.
#[test]
fn gradients_are_those_of_the_loss() -> Result<()> {
    const STEP: f64 = 1e-5;
    let mut model = model::<f64>(SHAPE)?;
    let batch = batch(&SHAPE);
    let mut optimiser = Optimiser::new(&model, 3)?;
    let given = optimiser.differentiate(&model, &batch)?.to_vec()?[0];
    assert!((f64::from(given) - loss(&model, &batch)?).abs() < 1e-6);

    let gradients = optimiser.gradients().packed.all()?.to_vec()?;
    for (name, at) in one_of_each(&model.parameters)? {
        let mut change = |by: f64| -> Result<f64> {
            let part = model.parameters.packed.all_mut()?.narrow(0, at..at + 1)?;
            let before = part.as_view().to_vec()?[0];
            part.elements().copy_from_slice(&[before + by])?;
            let loss = loss(&model, &batch)?;
            model.parameters.packed.all_mut()?.narrow(0, at..at + 1)?.elements().copy_from_slice(&[before])?;
            Ok(loss)
        };
        let difference = (change(STEP)? - change(-STEP)?) / (2.0 * STEP);
        let gradient = gradients[at];
        assert!((gradient - difference).abs() < 1e-6, "{name}, {at}: {gradient}, the loss says {difference}");
    }
    Ok(())
}

/// Keys and values in pages of 16, whatever their order, give the logits of whole sequences, but for the order of sums.
#[test]
fn pages_give_the_logits_of_whole_sequences() -> Result<()> {
    let shape = Shape { context: 37, ..SHAPE };
    let model = model::<f32>(shape)?;
    let cx = &model.cx;
    let batch = batch(&shape);
    let whole = model.predict(&vector(cx, &batch.inputs)?, SEQUENCES)?.to_vec()?;
    let mut cache = Cache::new(cx, &shape, SEQUENCES, 16)?;
    let part = |from: usize, to: usize| -> Result<Tensor<i32, 1>> {
        let rows = batch.inputs.chunks(shape.context);
        vector(cx, &rows.flat_map(|row| row[from..to].to_vec()).collect::<Vec<_>>())
    };
    let mut compared = 0;
    // A prompt over two pages and more, then token by token over the edge of the third.
    for (from, to) in [(0, 30), (30, 31), (31, 32), (32, 33), (33, 37)] {
        let logits = model.extend(&mut cache, &part(from, to)?)?.to_vec()?;
        let per_sequence = logits.chunks((to - from) * shape.vocabulary).enumerate();
        for (sequence, got) in per_sequence {
            let first = (sequence * shape.context + from) * shape.vocabulary;
            for (got, want) in got.iter().zip(&whole[first..]) {
                // Sums of up to 37 terms in f32, twice, and two layers: logits are of the size of 1.
                assert!((got - want).abs() < 1e-4, "{sequence}, from {from}: {got}, not {want}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, whole.len());
    Ok(())
}

#[test]
fn a_few_steps_lower_the_loss() -> Result<()> {
    let text = Text::new(&STORIES[..2000]);
    let shape = Shape { vocabulary: text.vocabulary(), width: 16, heads: 2, layers: 1, hidden: 32, context: 16 };
    let mut model = model::<f32>(shape)?;
    let plan = Plan { steps: 12, batch: 4, rate: 2e-2, every: 1, seed: 3 };
    let before = train::evaluate(&model, &text, 4)?;
    let curve = train::train(&mut model, &text, &plan, |_| {})?;
    assert_eq!(curve.len(), plan.steps);
    let after = train::evaluate(&model, &text, 4)?;
    assert!(after < before - 0.3, "from {before} to {after}");
    Ok(())
}

/// bf16 parameters follow their f32 copies.
#[test]
fn parameters_of_16_bits_learn_too() -> Result<()> {
    let mut model = model::<bf16>(Shape { layers: 1, ..SHAPE })?;
    let batch = batch(&SHAPE);
    let mut optimiser = Optimiser::new(&model, 3)?;
    let first = optimiser.step(&mut model, &batch, 1e-2)?.to_vec()?[0];
    for _ in 0..6 {
        optimiser.step(&mut model, &batch, 1e-2)?;
    }
    let last = optimiser.step(&mut model, &batch, 1e-2)?.to_vec()?[0];
    assert!(last < first - 0.1, "from {first} to {last}");
    Ok(())
}

#[test]
fn generation_fills_the_context() -> Result<()> {
    let text = Text::new(&STORIES[..2000]);
    let model = model::<f32>(Shape { vocabulary: text.vocabulary(), layers: 1, context: 20, ..SHAPE })?;
    let prompt = text.encode("Ida ");
    let stories = model.generate(&prompt, 2, 0.7, 1)?;
    // The last token needs no place.
    assert_eq!(stories.iter().map(Vec::len).collect::<Vec<_>>(), [17, 17]);
    assert_eq!(stories, model.generate(&prompt, 2, 0.7, 1)?);
    assert_eq!(text.decode(&text.encode("Ida has a key.")), "Ida has a key.");
    Ok(())
}

#[test]
fn arguments_choose_size_steps_and_seed() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let read = |line: &str| Arguments::from(std::iter::once("transformer").chain(line.split(' ')));
    let given = read("--device cpu --size small --steps 7 --seed 9 --plot x.svg")?;
    assert_eq!((given.size, given.plan.steps, given.plan.seed), (Size::Small, 7, 9));
    assert_eq!(given.plot, std::path::Path::new("x.svg"));
    assert_eq!(read("--device cpu")?.size, Size::Tiny);
    for wrong in ["--size huge", "--steps 0", "--device tpu"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    Ok(())
}

#[test]
fn a_curve_is_drawn() -> std::result::Result<(), Box<dyn std::error::Error>> {
    assert_eq!(plot::sparkline(&[4.0, 4.0, 0.5, 0.5], 2), "█▁");
    assert_eq!(plot::sparkline(&[3.0], 10), "▁");
    let at = |step, loss| Progress { step, loss, tokens_per_second: 1.0, elapsed: std::time::Duration::ZERO };
    let file = std::env::temp_dir().join(format!("transformer-loss-{}.svg", std::process::id()));
    plot::draw(&[at(1, 3.0), at(10, 1.0)], &file)?;
    let drawn = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    assert!(drawn.contains("<polyline") && drawn.contains("nats per character"), "{drawn}");
    Ok(())
}
