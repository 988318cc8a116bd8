//! Embeddings and dropout.

use crate::families::frame::{Library, Row, address, size, tensor, triton, triton_flat};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, Updated, Verify, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::rows::{self, Dropout, DropoutConfig, EmbeddingConfig};
use tilewright_kernels::{Tensor, TensorViewMut};

/// Indices, columns, and entries of the table.
fn sizes(stage: &Stage) -> [usize; 3] {
    stage.either([16_384, 4096, 32_000], [7, 40, 11])
}

/// Indices without an order, of which some are the same.
fn indices(count: usize, entries: usize) -> Vec<i32> {
    (0..count as u64).map(|i| (((i * 2_654_435_761) >> 7) % entries as u64) as i32).collect()
}

fn configs() -> [EmbeddingConfig; 6] {
    let tried = [(1, 4096, 8), (1, 2048, 4), (1, 1024, 4), (1, 512, 4), (1, 2048, 16), (1, 4096, 16)];
    tried.map(|(rows, block, num_warps)| EmbeddingConfig { rows, block, num_warps })
}

pub fn embedding(stage: &mut Stage) -> Result<(), Failure> {
    let (device, [count, columns, entries]) = (stage.device(), sizes(stage));
    let table = Input::<bf16>::normal(&device, 1, entries * columns, 0)?;
    let ids = indices(count, entries);
    let given = Tensor::upload(&device, &ids, [count])?;
    let mut expected = Vec::new();
    for row in sampled(count) {
        let values = table.read(ids[row] as usize * columns, columns)?;
        expected.push(Segment { at: row * columns, values });
    }
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    let out = Output::<bf16>::new(&device, count * columns, 0, exact, expected)?;
    let library = Library::new(stage, |cx| {
        let mut to = out.lock();
        let to = TensorViewMut::new(to.view()?, [count, columns])?;
        Ok(rows::embedding_into(cx, tensor(&table, [entries, columns])?, &given, to)?)
    })
    .tried(bf16::ELEMENT, &[count, columns], &configs());
    let arguments = vec![table.argument(), address(&given), out.argument(), size(columns)];
    let peers =
        triton(stage, ("embedding", bf16::NAME), arguments, |e| Some([count, columns.div_ceil(e.get("BLOCK")?), 1]))?;
    let row = Row::moving("embedding", format!("{count}x{columns}"), bf16::NAME, 4 * count * columns);
    row.hold(stage, vec![&out], peers, library)
}

pub fn embedding_backward(stage: &mut Stage) -> Result<(), Failure> {
    let (device, [count, columns, entries]) = (stage.device(), sizes(stage));
    let dy = Input::<bf16>::normal(&device, 1, count * columns, 0)?;
    let ids = indices(count, entries);
    let given = Tensor::upload(&device, &ids, [count])?;
    let mut expected = Vec::new();
    for row in sampled(count) {
        let mut values = vec![0.0; columns];
        for other in (0..count).filter(|other| ids[*other] == ids[row]) {
            values.iter_mut().zip(dy.read(other * columns, columns)?).for_each(|(sum, dy)| *sum += dy);
        }
        expected.push(Segment { at: ids[row] as usize * columns, values });
    }
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    // A few numbers of about 1, added in any order.
    let tolerance = Tolerance { relative: 0.0, absolute: 1e-4 };
    let zeros = Input::from_buffer(device.zeros::<f32>(entries * columns)?);
    let table = Updated { from: zeros, out: Output::new(&device, entries * columns, 0, tolerance, expected)? };
    let library = Library::new(stage, |cx| {
        let mut to = table.out.lock();
        let to = TensorViewMut::new(to.view()?, [entries, columns])?;
        Ok(rows::embedding_backward(cx, tensor(&dy, [count, columns])?, &given, to)?)
    })
    .tried(bf16::ELEMENT, &[count, columns], &configs());
    let arguments = vec![dy.argument(), address(&given), table.out.argument(), size(columns)];
    let peers = triton(stage, ("embedding_backward", bf16::NAME), arguments, |e| {
        Some([count, columns.div_ceil(e.get("BLOCK")?), 1])
    })?;
    // Gradients are read, and the rows of the table that get some are read and written.
    let bytes = 2 * count * columns + 8 * distinct.len() * columns;
    let row = Row::moving("embedding_backward", format!("{count}x{columns}"), bf16::NAME, bytes);
    row.hold(stage, vec![&table], peers, library)
}

/// Results of dropout: which elements are dropped is each contender's own choice.
struct Dropped {
    x: Input<bf16>,
    out: Output<bf16>,
    p: f64,
}

impl Verify for Dropped {
    fn poison(&self) -> Result<(), Failure> {
        self.out.poison()
    }

    fn verify(&self) -> Result<(), Failure> {
        let count = self.out.len().min(1 << 16);
        let (x, y) = (self.x.read(0, count)?, self.out.read(0, count)?);
        let kept = 1.0 / (1.0 - self.p);
        // NaN is in no range.
        let near = |x: f64, y: f64| (0.0..=2.0 * bf16::HALF_ULP * x.abs()).contains(&(y - x).abs());
        let wrong = |x: f64, y: f64| y != 0.0 && !near(x * kept, y);
        if let Some(at) = x.iter().zip(&y).position(|(x, y)| wrong(*x, *y)) {
            return Err(format!("element {at} is {}, of {}", y[at], x[at]).into());
        }
        let (dropped, wanted) = (y.iter().filter(|y| **y == 0.0).count() as f64, self.p * count as f64);
        // Six deviations, and what was zero before.
        let most = 6.0 * (wanted * (1.0 - self.p)).sqrt() + x.iter().filter(|x| **x == 0.0).count() as f64;
        if (dropped - wanted).abs() > most {
            return Err(format!("{dropped} of {count} elements are dropped, expected {wanted}").into());
        }
        Ok(())
    }
}

pub fn dropout(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), stage.either(Matrix::new(8192, 8192), Matrix::new(8, 512)));
    let x = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let none = Tolerance { relative: 0.0, absolute: 0.0 };
    let work = Dropped { x, out: Output::new(&device, matrix.len(), 0, none, Vec::new())?, p: 0.25 };
    let library = Library::new(stage, |cx| {
        let mut to = work.out.lock();
        let to = TensorViewMut::new(to.view()?, [matrix.len()])?;
        Ok(rows::dropout_into(cx, tensor(&work.x, [matrix.len()])?, Dropout { p: 0.25, seed: 5 }, to)?)
    })
    .tried(bf16::ELEMENT, &[matrix.len()], &{
        let tried = [(512, 2), (2048, 4), (2048, 8), (4096, 8)];
        tried.map(|(block, num_warps)| DropoutConfig { block, num_warps })
    });
    let numbers = [size(matrix.len()), Argument::I32(5), Argument::F32(0.25)];
    let arguments = [work.x.argument(), work.out.argument()].into_iter().chain(numbers).collect();
    let peers = triton_flat(stage, "dropout", matrix.len(), arguments)?;
    Row::moving("dropout", matrix, bf16::NAME, 4 * matrix.len()).hold(stage, vec![&work], peers, library)
}
