//! Attention of whole prompts of 8 bits.

use crate::families::frame::{Library, Row, tensor};
use crate::families::serving::attend;
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::attention::{self, Attention, ForwardConfig, Fp8Scales};
use tilewright_kernels::{Tensor, TensorViewMut};

const D: usize = 128;

pub fn attention_fp8(stage: &mut Stage) -> Result<(), Failure> {
    let [tokens, short] = [stage.either(16_384, 200), stage.either(4096, 100)];
    for (batch, tokens, causal) in [(1, tokens, false), (1, tokens, true), (4, short, false), (4, short, true)] {
        attention(stage, batch, tokens, causal)?;
    }
    Ok(())
}

fn attention(stage: &mut Stage, batch: usize, tokens: usize, causal: bool) -> Result<(), Failure> {
    let (device, heads) = (stage.device(), stage.either(16, 2));
    let (shape, len) = ([batch, heads, tokens, D], batch * heads * tokens * D);
    let input = |seed| Input::<F8E4M3>::normal(&device, seed, len, 0);
    let (q, k, v) = (input(1)?, input(2)?, input(3)?);
    let mut expected = Vec::new();
    let fewest = if causal { tokens / 3 + 1 } else { tokens };
    for (head, row) in [(0, tokens - 1), (batch * heads - 1, tokens / 3)] {
        let at = (head * tokens + row) * D;
        let seen = if causal { row + 1 } else { tokens };
        let rows = |x: &Input<F8E4M3>| -> Result<Vec<Vec<f64>>, Failure> {
            Ok(x.read(head * tokens * D, seen * D)?.chunks(D).map(<[f64]>::to_vec).collect())
        };
        let values = attend(&q.read(at, D)?, &rows(&k)?, (D as f64).sqrt().recip(), &rows(&v)?);
        expected.push(Segment { at, values });
    }
    // Weights have 3 bits of fraction. Their roundings are of either sign and on the average 0.026 of a weight, of which those of
    // normal scores are `e / keys` in the mean of squares: five deviations of their sum with values.
    let error = 5.0 * 0.026 * (2.72 / fewest as f64).sqrt();
    let out = Output::<f16>::new(&device, len, 0, Tolerance::of::<f16>(error, 1.0), expected)?;
    // A query that sees few keys has their roundings, which are others where blocks of keys are: weights are relative to the
    // largest score so far.
    let few = if causal {
        Tolerance { relative: 0.0, absolute: 2.0 * 0.0625 * 4.0 }
    } else {
        Tolerance::of::<f16>(2.0 * error, 1.0)
    };
    let out = out.agreeing(few);
    let library = Library::new(stage, |cx| {
        let mut out = out.lock();
        let mut lse = Tensor::<f32, 3>::zeros(cx.device(), [batch, heads, tokens])?;
        let options = if causal { Attention::default().causal() } else { Attention::default() };
        let to = TensorViewMut::new(out.view()?, shape)?;
        let (q, k, v) = (tensor(&q, shape)?, tensor(&k, shape)?, tensor(&v, shape)?);
        Ok(attention::forward_fp8_into(cx, q, k, v, Fp8Scales::default(), &options, to, Some(lse.view_mut()))?)
    })
    .tried(F8E4M3::ELEMENT, &[D, tokens, tokens], &{
        let tried =
            [(128, 128, 8, 2, 0), (128, 128, 8, 2, 1), (128, 128, 8, 3, 1), (64, 128, 4, 2, 0), (64, 128, 4, 3, 0)];
        let tried = if stage.is_timed() { tried } else { [(32, 32, 4, 2, 0); 5] };
        tried.map(|(block_q, block_k, num_warps, num_stages, programs)| ForwardConfig {
            block_q,
            block_k,
            num_warps,
            num_stages,
            programs,
        })
    });
    let bytes = 3 * len + len * size_of::<f16>();
    let flops = 4.0 * (batch * heads * tokens * tokens * D) as f64 * if causal { 0.5 } else { 1.0 };
    let name = format!("{batch}x{heads}x{tokens}x{D}{}", if causal { " causal" } else { "" });
    Row::moving("attention_fp8", name, F8E4M3::NAME, bytes).computing(flops).hold(
        stage,
        vec![&out],
        Vec::new(),
        library,
    )
}
