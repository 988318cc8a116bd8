//! Products with what follows them in the same pass, beside the same in two launches of the library.

use crate::families::frame::{Library, Row, tensor};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::{Contender, Failure, How, Stage};
use tilewright_kernels::products::{GatedMatmul, Matmul};
use tilewright_kernels::{Context, Tensor, general, rows};

/// Rows, and the columns and the length of sums of a feed-forward layer: of training, of a long prompt, of decoding.
const GATED: [[usize; 3]; 4] = [[16_384, 5632, 2048], [512, 5632, 2048], [64, 5632, 2048], [16, 5632, 2048]];

/// The same of the product behind it, whose result is added to a residual.
const RESIDUAL: [[usize; 3]; 2] = [[16_384, 2048, 5632], [512, 2048, 5632]];

/// Columns of a row that are compared.
const COMPARED: usize = 8;

/// A peer that does the same in other ways of the library.
fn apart<'a>(
    stage: &Stage,
    how: &str,
    call: impl Fn(&Context) -> Result<(), Failure> + 'a,
) -> Result<Vec<Contender<'a>>, Failure> {
    let cx = Context::new(&stage.device());
    let mut peer = Contender { name: "apart", configs: Vec::new() };
    peer.config(how.to_string(), move |how| match how {
        How::Launch(_) => call(&cx),
        How::Compile(..) | How::Inspect(..) => Ok(()),
    });
    Ok(vec![peer])
}

/// The factors of a product by `[outputs, inputs]`, and sums of some of its elements.
struct Factors {
    x: Input<bf16>,
    weight: Input<bf16>,
    k: usize,
}

impl Factors {
    fn new(stage: &Stage, m: usize, outputs: usize, k: usize) -> Result<Factors, Failure> {
        let device = stage.device();
        let (x, weight) = (Input::normal(&device, 1, m * k, 0)?, Input::normal(&device, 2, outputs * k, 0)?);
        Ok(Factors { x, weight, k })
    }

    fn sum(&self, row: usize, output: usize) -> Result<f64, Failure> {
        let (x, w) = (self.x.read(row * self.k, self.k)?, self.weight.read(output * self.k, self.k)?);
        Ok(x.iter().zip(&w).map(|(x, w)| x * w).sum())
    }

    /// Some elements of a result of `n` columns.
    fn expected(
        &self,
        m: usize,
        n: usize,
        value: impl Fn(usize, usize) -> Result<f64, Failure>,
    ) -> Result<Vec<Segment>, Failure> {
        let segment = |row: usize| -> Result<Segment, Failure> {
            let values = (0..COMPARED.min(n)).map(|column| value(row, column)).collect::<Result<_, _>>()?;
            Ok(Segment { at: row * n, values })
        };
        sampled(m).into_iter().map(segment).collect()
    }
}

pub fn gated(stage: &mut Stage) -> Result<(), Failure> {
    for [m, n, k] in stage.either(GATED.to_vec(), vec![[24, 40, 32]]) {
        if !stage.wants_shape(&format!("{m}x{n}x{k}")) {
            continue;
        }
        let device = stage.device();
        let factors = Factors::new(stage, m, 2 * n, k)?;
        let expected = factors.expected(m, n, |row, column| {
            let (gate, up) = (factors.sum(row, column)?, factors.sum(row, n + column)?);
            Ok(gate / (1.0 + (-gate).exp()) * up)
        })?;
        // Apart, both products are rounded, which are about the root of their length, and the gate has its slope.
        let size = (k as f64).sqrt();
        let tolerance = Tolerance { relative: 8.0 * bf16::HALF_ULP, absolute: 4.0 * bf16::HALF_ULP * size * size };
        let out = Output::<bf16>::new(&device, m * n, 0, tolerance, expected)?;
        let weights = || -> Result<_, Failure> { Ok(tensor(&factors.weight, [2 * n, k])?.transpose(0, 1)?) };
        let library = Library::new(stage, |cx| {
            let y = GatedMatmul::default().run(cx, tensor(&factors.x, [m, k])?, weights()?)?;
            out.give(y.into_buffer());
            Ok(())
        });
        let peers = apart(stage, "matmul; swiglu", |cx| {
            let products: Tensor<bf16, 2> = Matmul::default().run(cx, tensor(&factors.x, [m, k])?, weights()?)?;
            let [gate, up] = [0, n].map(|at| products.view().narrow(1, at..at + n));
            out.give(rows::swiglu(cx, gate?, up?)?.into_buffer());
            Ok(())
        })?;
        let shape = format!("{m}x{n}x{k}");
        let row = Row::moving("gated_matmul", shape, bf16::NAME, 2 * (m * k + 2 * n * k + m * n));
        row.computing(4.0 * m as f64 * n as f64 * k as f64).hold(stage, vec![&out], peers, library)?;
    }
    Ok(())
}

pub fn residual(stage: &mut Stage) -> Result<(), Failure> {
    for [m, n, k] in stage.either(RESIDUAL.to_vec(), vec![[24, 40, 32]]) {
        if !stage.wants_shape(&format!("{m}x{n}x{k}")) {
            continue;
        }
        let device = stage.device();
        let factors = Factors::new(stage, m, n, k)?;
        let rest = Input::<bf16>::normal(&device, 3, m * n, 0)?;
        let expected = factors.expected(m, n, |row, column| {
            Ok(factors.sum(row, column)? + rest.read(row * n + column, 1)?.first().copied().unwrap_or(f64::NAN))
        })?;
        let size = (k as f64).sqrt();
        let tolerance = Tolerance { relative: 4.0 * bf16::HALF_ULP, absolute: 2.0 * bf16::HALF_ULP * size };
        let out = Output::<bf16>::new(&device, m * n, 0, tolerance, expected)?;
        let weight = || -> Result<_, Failure> { Ok(tensor(&factors.weight, [n, k])?.transpose(0, 1)?) };
        let library = Library::new(stage, |cx| {
            let product = Matmul::default().residual(tensor(&rest, [m, n])?)?;
            out.give(product.run(cx, tensor(&factors.x, [m, k])?, weight()?)?.into_buffer());
            Ok(())
        });
        let peers = apart(stage, "matmul; add", |cx| {
            let product: Tensor<bf16, 2> = Matmul::default().run(cx, tensor(&factors.x, [m, k])?, weight()?)?;
            out.give(general::add(cx, &product, tensor(&rest, [m, n])?)?.into_buffer());
            Ok(())
        })?;
        let shape = format!("{m}x{n}x{k}");
        let row = Row::moving("matmul_residual", shape, bf16::NAME, 2 * (m * k + n * k + 2 * m * n));
        row.computing(2.0 * m as f64 * n as f64 * k as f64).hold(stage, vec![&out], peers, library)?;
    }
    Ok(())
}
