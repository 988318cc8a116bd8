//! A small transformer from the first random number to text: forward, backward, AdamW, generation over pages.
//!
//! ```text
//! cargo run --release -p tilewright-kernels --example transformer                     on a GPU, else on the CPU
//! cargo run --release -p tilewright-kernels --example transformer -- --device cpu
//! ```
//! It learns the characters of short stories ([`tokens`]), prints how the loss falls, draws that as `loss.svg`, and tells
//! stories of its own. `--size small` (the default on a GPU) has four layers of 256: its loss falls from 3.5 to 0.10 in 300
//! steps, which take an H100 four seconds, three of them for compilation. `--size tiny` (that on the CPU) has two layers of
//! 64: from 3.6 to about 0.35 in 300 steps, two to three minutes of two cores. `--steps`, `--seed` and `--plot FILE` change
//! the rest. The last tenth of the text is kept from training: its loss says whether a long run has
//! learned how stories go, or these stories by heart.
//!
//! | file | what it shows |
//! |---|---|
//! | `tokens.rs` | text as numbers |
//! | `parameters.rs` | tensors of one `Pack`, which an optimiser takes in one launch |
//! | `model.rs` | functions of the library, forward and backward |
//! | `train.rs` | gradients, their norm, AdamW with f32 copies of 16-bit parameters |
//! | `generate.rs` | a kernel of one's own that fills pages, paged decoding, sampling |
//! | `tests.rs` | gradients against finite differences, pages against whole sequences |

mod arguments;
mod generate;
mod model;
mod parameters;
mod plot;
mod random;
#[cfg(test)]
mod tests;
mod tokens;
mod train;

use std::error::Error;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use tilewright::prelude::*;
use tilewright_kernels::Context;

use arguments::Arguments;
use model::Model;
use parameters::Real;
use tokens::{STORIES, Text};
use train::Progress;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    // bf16 is what tensor cores are fast at; the CPU's f32 needs no second copy of the parameters.
    if arguments.device.is_cuda() { run::<bf16>(&arguments) } else { run::<f32>(&arguments) }
}

fn run<T: Real>(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { device, size, plan, plot } = arguments;
    let text = Text::new(STORIES);
    let shape = size.shape(text.vocabulary());
    let mut model = Model::<T>::new(&Context::new(device), shape, plan.seed)?;
    println!(
        "{}: {} parameters, {} sequences of {} characters a step",
        device.name(),
        model.parameters.packed.pack().len(),
        plan.batch,
        shape.context
    );

    let curve = train::train(&mut model, &text, plan, reporter(plan.steps))?;
    let losses: Vec<f32> = curve.iter().map(|at| at.loss).collect();
    println!("loss {}", plot::sparkline(&losses, 60));
    plot::draw(&curve, plot)?;
    println!("loss of text that was not learned: {:.3}", train::evaluate(&model, &text, plan.batch)?);
    println!("the curve is in {}", plot.display());

    // Three stories side by side.
    let prompt = "Vera and Tom meet at the ";
    for story in model.generate(&text.encode(prompt), 3, 0.5, plan.seed as u32)? {
        println!("\n{prompt}{}", text.decode(&story));
    }
    Ok(())
}

/// Shows how far training is: a bar in a terminal, lines elsewhere.
fn reporter(steps: usize) -> impl FnMut(Progress) {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let terminal = std::io::stderr().is_terminal();
    move |at| {
        let message = format!("loss {:.3}, {:.0} tokens/s", at.loss, at.tokens_per_second);
        if terminal {
            bar.set_position(at.step as u64);
            bar.set_message(message);
        } else {
            let left = at.elapsed.as_secs_f64() / at.step as f64 * (steps - at.step) as f64;
            println!("step {:>5}  {message}, {:.0} s, {left:.0} s left", at.step, at.elapsed.as_secs_f64());
        }
        if at.step == steps {
            bar.finish();
        }
    }
}
