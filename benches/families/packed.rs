//! Gradients of attention of packed sequences, beside those of the same sequences as a batch. Those of queries are compared.

use crate::families::frame::{Library, Row, tensor};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::{Contender, Failure, How, Stage};
use tilewright_kernels::attention::{self, Attention, Saved, SavedPacked};
use tilewright_kernels::{Context, Tensor, TensorView};

/// Tokens of a sequence, and sequences: of lengths that are no multiple of a block, and of long ones.
const SIZES: [[usize; 2]; 2] = [[1000, 16], [4096, 4]];

pub fn backward(stage: &mut Stage) -> Result<(), Failure> {
    for [each, sequences] in stage.either(SIZES.to_vec(), vec![[21, 3]]) {
        for d in [64, 128] {
            if stage.wants_shape(&name(sequences, stage.either(16, 2), each, d)) {
                contest(stage, each, sequences, d)?;
            }
        }
    }
    Ok(())
}

fn name(sequences: usize, heads: usize, each: usize, d: usize) -> String {
    format!("{sequences}x{heads}x{each}x{d} causal")
}

/// The factors, `[tokens, heads, d]`.
struct Given {
    inputs: [Input<f16>; 4],
    each: usize,
    heads: usize,
    d: usize,
}

impl Given {
    /// A row of one of the factors.
    fn row(&self, which: usize, sequence: usize, head: usize, row: usize) -> Result<Vec<f64>, Failure> {
        Ok(self.inputs[which].read(self.at(sequence, head, row), self.d)?)
    }

    fn at(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((sequence * self.each + row) * self.heads + head) * self.d
    }

    /// The gradient of a query that sees the keys up to its own.
    fn gradient(&self, sequence: usize, head: usize, row: usize) -> Result<Segment, Failure> {
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let rows = |which| -> Result<Vec<Vec<f64>>, Failure> {
            (0..=row).map(|at| self.row(which, sequence, head, at)).collect()
        };
        let (query, keys, values) = (self.row(0, sequence, head, row)?, rows(1)?, rows(2)?);
        let (upstream, scale) = (self.row(3, sequence, head, row)?, (self.d as f64).sqrt().recip());
        let scores: Vec<f64> = keys.iter().map(|key| product(&query, key) * scale).collect();
        let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - peak).exp()).sum();
        let weights: Vec<f64> = scores.iter().map(|score| (score - peak).exp() / total).collect();
        let changes: Vec<f64> = values.iter().map(|value| product(&upstream, value)).collect();
        let delta = product(&weights, &changes);
        let mut gradient = vec![0.0; self.d];
        for ((weight, change), key) in weights.iter().zip(&changes).zip(&keys) {
            gradient.iter_mut().zip(key).for_each(|(sum, k)| *sum += scale * weight * (change - delta) * k);
        }
        Ok(Segment { at: self.at(sequence, head, row), values: gradient })
    }
}

fn contest(stage: &mut Stage, each: usize, sequences: usize, d: usize) -> Result<(), Failure> {
    let (device, heads) = (stage.device(), stage.either(16, 2));
    let (tokens, len) = (sequences * each, sequences * each * heads * d);
    let input = |seed| Input::<f16>::normal(&device, seed, len, 0);
    let given = Given { inputs: [input(1)?, input(2)?, input(3)?, input(4)?], each, heads, d };
    let expected = vec![given.gradient(0, 0, each - 1)?, given.gradient(sequences - 1, heads - 1, each / 3)?];
    // Gradients of scores are rounded. Of normal ones the mean square is `e / keys` times the square of a gradient's: five
    // deviations of their sum with keys.
    let deviation = 0.58 * f16::HALF_ULP * (2.72 / (each / 3 + 1) as f64).sqrt();
    let tolerance = Tolerance { relative: 2.0 * f16::HALF_ULP, absolute: 5.0 * deviation };
    let out = Output::<f16>::new(&device, len, 0, tolerance, expected)?;

    let options = Attention::default().causal();
    let shape = [tokens, heads, d];
    let factor = |which: usize| -> Result<TensorView<'_, f16, 3>, Failure> { Ok(tensor(&given.inputs[which], shape)?) };
    let starts: Vec<i32> = (0..=sequences).map(|sequence| (sequence * each) as i32).collect();
    let starts = Tensor::upload(&device, &starts, [sequences + 1])?;
    let cx = Context::new(&device);
    let (q, k, v) = (factor(0)?, factor(1)?, factor(2)?);
    let (packed, logs) = attention::forward_packed(&cx, q, k, v, &starts, &starts, each, &options)?;
    let library = Library::new(stage, |cx| {
        let saved = SavedPacked {
            q: factor(0)?,
            k: factor(1)?,
            v: factor(2)?,
            out: packed.view(),
            lse: logs.view(),
            dout: factor(3)?,
            q_starts: starts.view(),
            k_starts: starts.view(),
            longest: each,
            longest_keys: each,
        };
        out.give(attention::backward_packed(cx, saved, &options)?.dq.into_buffer());
        Ok(())
    });

    let batch = |which: usize| -> Result<TensorView<'_, f16, 4>, Failure> {
        Ok(tensor(&given.inputs[which], [sequences, each, heads, d])?.permute([0, 2, 1, 3])?)
    };
    let (dense, dense_logs) = attention::forward(&cx, batch(0)?, batch(1)?, batch(2)?, &options)?;
    let mut peer = Contender { name: "a batch", configs: Vec::new() };
    peer.config("as the library chooses".to_string(), |how| match how {
        How::Launch(_) => {
            let saved = Saved {
                q: batch(0)?,
                k: batch(1)?,
                v: batch(2)?,
                bias: None,
                out: dense.view(),
                lse: dense_logs.view(),
                dout: batch(3)?,
                dlse: None,
            };
            let empty = || Tensor::<f16, 4>::empty(&device, [sequences, each, heads, d]);
            let [mut dq, mut dk, mut dv] = [empty()?, empty()?, empty()?];
            let mut workspace = Tensor::empty(&device, attention::backward_workspace(&cx, &saved, &options)?)?;
            let [to_q, to_k, to_v] = [&mut dq, &mut dk, &mut dv].map(|x| x.view_mut().permute([0, 2, 1, 3]));
            attention::backward_into(&cx, saved, &options, &mut workspace, to_q?, to_k?, to_v?)?;
            out.give(dq.into_buffer());
            Ok(())
        }
        How::Compile(..) | How::Inspect(..) => Ok(()),
    });
    let flops = 10.0 * (sequences * heads * d) as f64 * (each * each) as f64 * 0.5;
    Row::moving("attention_packed_backward", name(sequences, heads, each, d), f16::NAME, 2 * 8 * len)
        .computing(flops)
        .hold(stage, vec![&out], vec![peer], library)
}
