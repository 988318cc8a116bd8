//! Rotary position embedding.

use crate::families::frame::{Library, Row, size, tensor, triton};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::TensorViewMut;
use tilewright_kernels::rows::{self, Rotary, RotaryConfig};

const DIM: usize = 128;
const HEADS: usize = 32;

pub fn rotary(stage: &mut Stage) -> Result<(), Failure> {
    let device = stage.device();
    // Sequences and tokens.
    let Matrix { rows: batch, columns: tokens, .. } = stage.either(Matrix::new(4, 4096), Matrix::new(2, 3));
    let len = batch * tokens * HEADS * DIM;
    let half = DIM / 2;
    let x = Input::<bf16>::normal(&device, 1, len, 0)?;
    let angles: Vec<f64> = (0..tokens * half)
        .map(|at| (at / half) as f64 * 10_000f64.powf(-2.0 * (at % half) as f64 / DIM as f64))
        .collect();
    let numbers = |f: fn(f64) -> f64| angles.iter().map(|angle| f(*angle) as f32).collect::<Vec<f32>>();
    let cosines = Input::of(&device, &numbers(f64::cos))?;
    let sines = Input::of(&device, &numbers(f64::sin))?;
    let mut expected = Vec::new();
    for token in sampled(batch * tokens) {
        let at = token * HEADS * DIM;
        let data = x.read(at, HEADS * DIM)?;
        let rotated = |i: usize| {
            let (head, pair) = (i / DIM * DIM, i % half);
            let (sin, cos) = angles[token % tokens * half + pair].sin_cos();
            let (a, b) = (data[head + pair], data[head + pair + half]);
            if i % DIM < half { a * cos - b * sin } else { b * cos + a * sin }
        };
        expected.push(Segment { at, values: (0..HEADS * DIM).map(rotated).collect() });
    }
    let out = Output::<bf16>::new(&device, len, 0, Tolerance::of::<bf16>(1e-6, 4.0), expected)?;
    let shape = [batch, tokens, HEADS, DIM];
    let tried = [(1, 16, 2), (1, 32, 4), (1, 32, 8), (1, 8, 1)];
    let tried = tried.map(|(tokens, heads, num_warps)| RotaryConfig { tokens, heads, num_warps });
    let library = Library::new(stage, |cx| {
        let (cos, sin) = (tensor(&cosines, [tokens, half])?, tensor(&sines, [tokens, half])?);
        let mut y = out.lock();
        let y = TensorViewMut::new(y.view()?, shape)?;
        Ok(rows::rotary_into(cx, tensor(&x, shape)?, cos, sin, &Rotary::default(), y)?)
    })
    .tried(bf16::ELEMENT, &[batch * tokens, HEADS, DIM], &tried);
    let pointers = [x.argument(), cosines.argument(), sines.argument(), out.argument()];
    let arguments = pointers.into_iter().chain([size(tokens), size(HEADS)]).collect();
    let peers = triton(stage, ("rotary", bf16::NAME), arguments, |_| Some([batch * tokens, 1, 1]))?;
    let name = format!("{batch}x{tokens}x{HEADS}x{DIM}");
    Row::moving("rotary", name, bf16::NAME, 4 * len).hold(stage, vec![&out], peers, library)
}
