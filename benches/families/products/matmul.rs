//! Plain products, of sizes that layers of language models have.

use crate::families::frame::{Library, Row, tensor};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Segment, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::sums::RunningSum;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::products;

/// Rows, columns, and the length of sums: squares; few rows by the weights of a layer of Llama 2 70B and Llama 3 8B, as in
/// serving; a product of gradients, with long sums.
const SIZES: [[usize; 3]; 12] = [
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [16, 8192, 8192],
    [64, 8192, 8192],
    [128, 14_336, 4096],
    [256, 4096, 4096],
    [512, 8192, 8192],
    [2048, 14_336, 4096],
    [2048, 4096, 14_336],
    [1024, 1024, 32_768],
];

pub fn matmul(stage: &mut Stage) -> Result<(), Failure> {
    for sizes in stage.either(SIZES.to_vec(), vec![[48, 64, 32]]) {
        one(stage, sizes)?;
    }
    Ok(())
}

fn one(stage: &mut Stage, sizes: [usize; 3]) -> Result<(), Failure> {
    let (device, [m, n, k]) = (stage.device(), sizes);
    if !stage.wants_shape(&format!("{m}x{n}x{k}")) {
        return Ok(());
    }
    let (a, b) = (Input::<f16>::normal(&device, 1, m * k, 0)?, Input::<f16>::normal(&device, 2, k * n, 0)?);
    // The first columns of some rows.
    let width = n.min(16);
    let mut columns = Vec::with_capacity(k);
    for row in 0..k {
        columns.push(b.read(row * n, width)?);
    }
    let (mut expected, mut all) = (Vec::new(), Vec::new());
    for row in sampled(m) {
        let mut sums = vec![RunningSum::default(); width];
        for (a, b) in a.read(row * k, k)?.iter().zip(&columns) {
            sums.iter_mut().zip(b).for_each(|(sum, b)| sum.add(a * b));
        }
        expected.push(Segment { at: row * n, values: sums.iter().map(RunningSum::value).collect() });
        all.extend(sums);
    }
    let tolerance = RunningSum::tolerance::<f16>(&all);
    let out = Output::<f16>::new(&device, m * n, 0, tolerance, expected)?;
    let library = Library::new(stage, |cx| {
        out.give(products::matmul(cx, tensor(&a, [m, k])?, tensor(&b, [k, n])?)?.into_buffer());
        Ok(())
    });
    let flops = 2.0 * m as f64 * n as f64 * k as f64;
    let row = Row::moving("matmul", format!("{m}x{n}x{k}"), f16::NAME, 2 * (m * k + k * n + m * n)).computing(flops);
    row.hold(stage, vec![&out], Vec::new(), library)
}
