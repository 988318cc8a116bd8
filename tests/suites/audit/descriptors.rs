//! Tensor descriptors: blocks that begin or end outside their tensor, of every rank, padding, atomics, rows by number.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// A tensor as plain Rust sees it.
#[derive(Clone, Debug)]
pub(super) struct Tensor<T> {
    pub(super) data: Vec<T>,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl<T: Copy> Tensor<T> {
    pub(super) fn new(data: Vec<T>, shape: &[usize], strides: &[usize]) -> Self {
        Tensor { data, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    /// Where an element is; `None` outside.
    fn place(&self, at: &[i64]) -> Option<usize> {
        let inside = at.iter().zip(&self.shape).all(|(&i, &size)| (0..size as i64).contains(&i));
        inside.then(|| at.iter().zip(&self.strides).map(|(&i, &stride)| i as usize * stride).sum())
    }

    pub(super) fn get(&self, at: &[i64], padding: T) -> T {
        self.place(at).map_or(padding, |place| self.data[place])
    }

    pub(super) fn set(&mut self, at: &[i64], f: impl FnOnce(T) -> T) {
        if let Some(place) = self.place(at) {
            self.data[place] = f(self.data[place]);
        }
    }
}

/// Every position of a block, outermost dimension first.
pub(super) fn positions(block: &[usize]) -> Vec<Vec<i64>> {
    block.iter().fold(vec![Vec::new()], |all, &size| {
        let longer = |at: Vec<i64>| (0..size as i64).map(move |i| [at.as_slice(), &[i]].concat());
        all.into_iter().flat_map(longer).collect()
    })
}

pub(super) fn moved(at: &[i64], by: &[i64]) -> Vec<i64> {
    at.iter().zip(by).map(|(a, b)| a + b).collect()
}

pub(super) fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.7).sin() * 100.0).collect()
}

/// The block at (row, column) moved by (down, right) goes to the same place of `out`.
#[kernel]
fn shifted<T: DType, const M: usize, const N: usize>(
    x: TensorDesc<T, { [M, N] }>,
    out: TensorDescMut<T, { [M, N] }>,
    down: i32,
    right: i32,
) {
    let row = program_id(0) * M;
    let column = program_id(1) * N;
    out.store([row, column], x.load([row + down, column + right]));
}

/// What `shifted` does to matrices of these strides, for every block that touches the output, and some that do not.
fn check_shifted(device: &Device, size: [usize; 2], strides: [usize; 2], by: [i64; 2], nan: bool) -> Result<(), Error> {
    const BLOCK: [usize; 2] = [16, 32];
    let x = Tensor::new(numbers(size[0] * strides[0] + 8), &size, &[strides[0], 1]);
    let guard = -1.25f32;
    let mut want = Tensor::new(vec![guard; size[0] * strides[1] + 8], &size, &[strides[1], 1]);
    let padding = if nan { f32::NAN } else { 0.0 };
    for at in positions(&[size[0].next_multiple_of(BLOCK[0]) + 16, size[1].next_multiple_of(BLOCK[1]) + 32]) {
        want.set(&at, |_| x.get(&moved(&at, &by), padding));
    }
    let input = device.upload(&x.data)?;
    let mut output = device.full(want.data.len(), guard)?;
    let from = TensorDesc::with_strides(&input, size, [strides[0], 1])?;
    let from = if nan { from.with_nan_padding() } else { from };
    let mut to = TensorDescMut::with_strides(&mut output, size, [strides[1], 1])?;
    let grid = (size[0].div_ceil(BLOCK[0]) + 1, size[1].div_ceil(BLOCK[1]) + 1);
    shifted::<f32, 16, 32>(&from, &mut to, by[0] as i32, by[1] as i32).grid(grid).launch(device)?;
    let bits =
        |values: &[f32]| -> Vec<Option<u32>> { values.iter().map(|v| (!v.is_nan()).then(|| v.to_bits())).collect() };
    assert_eq!(bits(&output.to_vec()?), bits(&want.data), "{size:?} {strides:?} {by:?} {nan}");
    Ok(())
}

#[test]
fn blocks_that_end_outside() {
    check(|device| {
        for size in [[16, 32], [17, 33], [1, 1], [40, 100], [15, 64], [33, 4]] {
            let column: usize = size[1];
            for strides in [[column; 2], [column + 1, column + 3], [column.next_multiple_of(16); 2]] {
                check_shifted(device, size, strides, [0, 0], false)?;
            }
        }
        Ok(())
    });
}

/// Sums of the columns of `w` from `column` on, by a product.
#[kernel]
fn column_sums<const N: usize>(
    ones: TensorDesc<f16, { [16, 64] }>,
    w: TensorDesc<f16, { [64, N] }>,
    out: PtrMut<f32>,
    column: i32,
    k: i32,
) {
    let mut acc = zeros::<f32>([16, N]);
    for t in (0..k).step_by(64) {
        acc = dot(ones.load([0, t]), w.load([t, column]), acc = acc);
    }
    store(out + (arange(0, 16)[(.., None)] * N + arange(0, N)), acc);
}

/// The hardware copies no blocks that begin within 16 bytes of a row.
#[test]
fn factors_begin_at_any_column() {
    check(|device| {
        const N: usize = 32;
        for (k, n) in [(1, 2), (64, 40), (100, 41), (130, 64)] {
            let stride = n + 8 - n % 8;
            let w: Vec<f16> = (0..k * stride).map(|i| f16::from_f32((i % 7) as f32 - 3.0)).collect();
            let (ones, from) = (device.full(16 * 256, f16::ONE)?, device.upload(&w)?);
            let (ones, w_desc) = (
                TensorDesc::with_strides(&ones, [16, k], [256, 1])?,
                TensorDesc::with_strides(&from, [k, n], [stride, 1])?,
            );
            for column in [0usize, 1, 4, 8, 9, 39] {
                let mut out = device.full(16 * N, f32::NAN)?;
                column_sums::<N>(&ones, &w_desc, &mut out, column as i32, k as i32).grid(1).launch(device)?;
                let sum = |j: usize| (0..k).map(|t| w[t * stride + j].to_f32()).sum::<f32>();
                let row: Vec<f32> = (column..column + N).map(|j| if j < n { sum(j) } else { 0.0 }).collect();
                assert_eq!(out.to_vec()?, row.repeat(16), "{k} x {n} from {column}");
            }
        }
        Ok(())
    });
}

#[test]
fn blocks_that_begin_outside() {
    check(|device| {
        for by in [[-1, 0], [0, -1], [-5, -7], [3, 9], [-16, -32], [-17, 40], [100, 0], [0, 1000], [-1000, -1000]] {
            check_shifted(device, [40, 100], [100, 104], by, false)?;
        }
        Ok(())
    });
}

#[test]
fn coordinates_at_the_ends_of_their_dtype() {
    check(|device| {
        let ends = [i64::from(i32::MIN), i64::from(i32::MAX) - 64];
        for down in ends {
            for right in ends {
                check_shifted(device, [20, 40], [40, 40], [down, right], false)?;
            }
        }
        Ok(())
    });
}

#[test]
fn padding_with_nan() {
    check(|device| {
        check_shifted(device, [40, 100], [100, 104], [-5, 7], true)?;
        check_shifted(device, [33, 64], [64, 64], [1, 0], true)
    });
}

#[kernel]
fn line<T: DType, const B: usize>(x: TensorDesc<T, { [B] }>, out: TensorDescMut<T, { [B] }>, by: i32) {
    let i = program_id(0) * B;
    store(out, [i], load(x, [i + by]));
}

fn check_line<T: DType>(device: &Device, values: &[T], zero: T) -> Result<(), Error> {
    let x = device.upload(values)?;
    for (from, by) in [(0, 0), (0, 3), (1, -2), (3, 0)] {
        let view = x.slice(from..)?;
        let len = view.len();
        let mut out = device.zeros::<T>(len)?;
        let tensor = TensorDesc::new(view, [len])?;
        line::<T, 64>(&tensor, &mut TensorDescMut::new(&mut out, [len])?, by).grid(len.div_ceil(64)).launch(device)?;
        let plain = Tensor::new(values[from..].to_vec(), &[len], &[1]);
        let want: Vec<T> = (0..len as i64).map(|i| plain.get(&[i + i64::from(by)], zero)).collect();
        assert_eq!(out.to_vec()?, want, "{:?} from {from} by {by}", T::ELEMENT);
    }
    Ok(())
}

#[test]
fn lines_of_every_width_wherever_they_begin() {
    check(|device| {
        let count = 200;
        check_line(device, &(0..count).map(|i| i as i8).collect::<Vec<_>>(), 0)?;
        check_line(device, &(0..count).map(|i| i as u8).collect::<Vec<_>>(), 0)?;
        check_line(device, &(0..count).map(|i| i % 3 == 0).collect::<Vec<_>>(), false)?;
        check_line(device, &(0..count).map(|i| f16::from_f32(i as f32)).collect::<Vec<_>>(), f16::ZERO)?;
        check_line(device, &(0..count).map(|i| bf16::from_f32(i as f32)).collect::<Vec<_>>(), bf16::ZERO)?;
        check_line(device, &(0..count).map(|i| i - 100).collect::<Vec<i32>>(), 0)?;
        check_line(device, &(0..count).map(|i| f64::from(i) * 0.5).collect::<Vec<_>>(), 0.0)?;
        check_line(device, &(0..count).map(|i| i as u64 * 3).collect::<Vec<_>>(), 0)
    });
}

#[kernel]
fn cube(x: TensorDesc<i32, { [2, 4, 8] }>, out: TensorDescMut<i32, { [2, 4, 8] }>, i: i32, j: i32, k: i32) {
    out.store([0, 0, 0], x.load([i, j, k]) * 2);
}

#[kernel]
fn rank_four(x: TensorDesc<i32, { [1, 2, 4, 8] }>, out: TensorDescMut<i32, { [1, 2, 4, 8] }>, i: i32, j: i32, k: i32) {
    out.store([0, 0, 0, 0], x.load([i, j, k, 1]) * 2);
}

#[kernel]
fn rank_five(x: TensorDesc<i32, { [2, 1, 2, 4, 8] }>, out: TensorDescMut<i32, { [2, 1, 2, 4, 8] }>, i: i32, k: i32) {
    out.store([0, 0, 0, 0, 0], x.load([i, 1, i, k, -1]) * 2);
}

/// A tensor with gaps between its rows, and what twice the block at `at` is.
fn doubled(shape: &[usize], block: &[usize], at: &[i64]) -> (Tensor<i32>, Vec<i32>) {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len() - 1).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1] + 1;
    }
    let len = strides[0] * shape[0];
    let x = Tensor::new((0..len as i32).map(|i| i * 7 - 50).collect(), shape, &strides);
    let want = positions(block).iter().map(|position| 2 * x.get(&moved(position, at), 0)).collect();
    (x, want)
}

fn array<const RANK: usize>(values: &[usize]) -> [usize; RANK] {
    std::array::from_fn(|axis| values[axis])
}

#[test]
fn tensors_of_three_to_five_dimensions() {
    check(|device| {
        for (i, j, k) in [(0, 0, 0), (1, 2, 3), (-1, 3, -2), (2, 0, 100)] {
            let (at, block) = ([i, j, k], [2, 4, 8]);
            let (x, want) = doubled(&[3, 5, 11], &block, &at.map(i64::from));
            let (input, mut out) = (device.upload(&x.data)?, device.zeros::<i32>(64)?);
            let tensor = TensorDesc::with_strides(&input, [3, 5, 11], array(&x.strides))?;
            cube(&tensor, &mut TensorDescMut::new(&mut out, block)?, i, j, k).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, want, "{at:?}");

            let (at, block) = ([i, j, k, 1], [1, 2, 4, 8]);
            let (x, want) = doubled(&[3, 5, 6, 11], &block, &at.map(i64::from));
            let (input, mut out) = (device.upload(&x.data)?, device.zeros::<i32>(64)?);
            let tensor = TensorDesc::with_strides(&input, [3, 5, 6, 11], array(&x.strides))?;
            rank_four(&tensor, &mut TensorDescMut::new(&mut out, block)?, i, j, k).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, want, "{at:?}");

            let (at, block) = ([i, 1, i, k, -1], [2, 1, 2, 4, 8]);
            let (x, want) = doubled(&[3, 2, 3, 6, 11], &block, &at.map(i64::from));
            let (input, mut out) = (device.upload(&x.data)?, device.zeros::<i32>(128)?);
            let tensor = TensorDesc::with_strides(&input, [3, 2, 3, 6, 11], array(&x.strides))?;
            rank_five(&tensor, &mut TensorDescMut::new(&mut out, block)?, i, k).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, want, "{at:?}");
        }
        Ok(())
    });
}

#[kernel]
fn accumulate<const M: usize, const N: usize>(x: TensorDesc<f32, { [M, N] }>, out: TensorDescMut<f32, { [1, N] }>) {
    let rows = program_id(0) * M;
    let column = program_id(1) * N;
    out.atomic_add([0, column], sum(x.load([rows, column]), axis = 0, keep_dims = true));
}

#[test]
fn programs_add_to_one_row() {
    check(|device| {
        let (rows, columns) = (50, 45);
        let x: Vec<f32> = (0..rows * columns).map(|i| (i % 17) as f32).collect();
        let want: Vec<f32> = (0..columns).map(|j| (0..rows).map(|i| x[i * columns + j]).sum()).collect();
        let x = device.upload(&x)?;
        let mut out = device.zeros::<f32>(64)?;
        let mut row = TensorDescMut::new(&mut out, [1, columns])?;
        accumulate::<16, 32>(&TensorDesc::new(&x, [rows, columns])?, &mut row).grid((4, 2)).launch(device)?;
        let got = out.to_vec()?;
        assert_eq!(got[..columns], want);
        assert_eq!(got[columns..], [0.0; 19], "what lies outside is not touched");
        Ok(())
    });
}

#[kernel]
fn combine(
    x: TensorDesc<i32, { [8, 8] }>,
    low: TensorDescMut<i32, { [8, 8] }>,
    high: TensorDescMut<i32, { [8, 8] }>,
    all: TensorDescMut<i32, { [8, 8] }>,
    any: TensorDescMut<i32, { [8, 8] }>,
    odd: TensorDescMut<i32, { [8, 8] }>,
    i: i32,
    j: i32,
) {
    let v = x.load([0, 0]);
    low.atomic_min([i, j], v);
    high.atomic_max([i, j], v);
    all.atomic_and([i, j], v);
    any.atomic_or([i, j], v);
    odd.atomic_xor([i, j], v);
}

#[test]
fn atomics_of_every_kind_drop_what_lies_outside() {
    check(|device| {
        let block: Vec<i32> = (0..64).map(|i| i * 37 - 1000).collect();
        let before: Vec<i32> = (0..100).map(|i| i * -53 + 2000).collect();
        let x = device.upload(&block)?;
        type Combine = fn(i32, i32) -> i32;
        let kinds: [Combine; 5] = [i32::min, i32::max, |a, b| a & b, |a, b| a | b, |a, b| a ^ b];
        for (i, j) in [(0, 0), (-3, 5), (7, -6), (50, 0)] {
            let mut buffers = (0..5).map(|_| device.upload(&before)).collect::<Result<Vec<_>, _>>()?;
            let [a, b, c, d, e] = buffers.as_mut_slice() else { unreachable!() };
            let view = |buffer| TensorDescMut::with_strides(buffer, [9, 9], [11, 1]);
            let (mut a, mut b, mut c) = (view(a)?, view(b)?, view(c)?);
            let (mut d, mut e) = (view(d)?, view(e)?);
            let tensor = TensorDesc::new(&x, [8, 8])?;
            combine(&tensor, &mut a, &mut b, &mut c, &mut d, &mut e, i, j).grid(1).launch(device)?;
            for (buffer, f) in buffers.iter().zip(kinds) {
                let mut want = Tensor::new(before.clone(), &[9, 9], &[11, 1]);
                for (position, &v) in positions(&[8, 8]).iter().zip(&block) {
                    want.set(&moved(position, &[i.into(), j.into()]), |old| f(old, v));
                }
                assert_eq!(buffer.to_vec()?, want.data, "at ({i}, {j})");
            }
        }
        Ok(())
    });
}

#[kernel]
fn pick<const R: usize, const N: usize>(
    rows: Ptr<i32>,
    x: TensorDesc<f32, { [1, N] }>,
    out: TensorDescMut<f32, { [1, N] }>,
    from: i32,
    to: i32,
) {
    let numbers = load(rows + arange(0, R));
    out.scatter(numbers + 1, to, x.gather(numbers, from));
}

#[test]
fn rows_by_number() {
    check(|device| {
        const ROWS: usize = 16;
        let (size, stride) = ([20, 40], 43);
        let x = Tensor::new(numbers(20 * stride), &size, &[stride, 1]);
        // No two are the same, and some are no rows.
        let rows: Vec<i32> = (0..ROWS as i32).map(|i| (i * 7 + 3) % 29 - 5).chain([]).collect();
        for (from, to) in [(0, 0), (-3, 5), (20, 8), (100, 0), (0, -31)] {
            let mut want = Tensor::new(vec![-1.0; 20 * stride], &size, &[stride, 1]);
            for &row in &rows {
                for j in 0..32 {
                    let value = x.get(&[row.into(), from + j], 0.0);
                    want.set(&[i64::from(row) + 1, to + j], |_| value);
                }
            }
            let (input, picked) = (device.upload(&x.data)?, device.upload(&rows)?);
            let mut out = device.full(want.data.len(), -1.0f32)?;
            let tensor = TensorDesc::with_strides(&input, size, [stride, 1])?;
            let mut target = TensorDescMut::with_strides(&mut out, size, [stride, 1])?;
            pick::<ROWS, 32>(&picked, &tensor, &mut target, from as i32, to as i32).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, want.data, "from {from} to {to}");
        }
        Ok(())
    });
}

#[kernel]
fn running_sum<const N: usize>(c: TensorDescMut<i32, { [1, N] }>, rows: i32) {
    for i in 1..rows {
        let above = c.load([i - 1, 0]);
        c.store([i, 0], c.load([i, 0]) + above);
    }
}

#[test]
fn what_a_program_stores_it_loads() {
    check(|device| {
        let (rows, columns) = (30, 50);
        let mut data: Vec<i32> = (0..rows * columns).map(|i| i as i32 % 11).collect();
        let mut buffer = device.upload(&data)?;
        let mut tensor = TensorDescMut::new(&mut buffer, [rows, columns])?;
        running_sum::<64>(&mut tensor, rows as i32).grid(1).launch(device)?;
        for i in columns..rows * columns {
            data[i] += data[i - columns];
        }
        assert_eq!(buffer.to_vec()?, data);
        Ok(())
    });
}

#[test]
fn empty_tensors_are_all_padding() {
    check(|device| {
        let (input, mut output) = (device.zeros::<f32>(0)?, device.full(1000, 3.0f32)?);
        let from = TensorDesc::new(&input, [0, 32])?;
        let mut to = TensorDescMut::new(&mut output, [10, 32])?;
        shifted::<f32, 16, 32>(&from, &mut to, 0, 0).grid((1, 1)).launch(device)?;
        let got = output.to_vec()?;
        assert_eq!(got[..320], [0.0; 320]);
        assert_eq!(got[320..], [3.0; 680]);
        let mut nothing = TensorDescMut::new(&mut output, [10, 0])?;
        shifted::<f32, 16, 32>(&from, &mut nothing, 0, 0).grid((1, 1)).launch(device)?;
        assert_eq!(output.to_vec()?, got);
        Ok(())
    });
}

#[test]
fn a_tensor_that_may_be_written_may_be_read_only() {
    check(|device| {
        let mut a = device.upload(&numbers(64))?;
        let mut out = device.zeros::<f32>(64)?;
        let a = TensorDescMut::new(&mut a, [2, 32])?;
        shifted::<f32, 16, 32>(&a, &mut TensorDescMut::new(&mut out, [2, 32])?, 0, 0).grid((1, 1)).launch(device)?;
        assert_eq!(out.to_vec()?, numbers(64));
        Ok(())
    });
}

#[test]
fn a_descriptor_is_launched_again() {
    check(|device| {
        let x = device.upload(&numbers(1024))?;
        let tensor = TensorDesc::new(&x, [32, 32])?;
        let mut out = device.zeros::<f32>(1024)?;
        for by in [1, 2, 3] {
            let mut to = TensorDescMut::new(&mut out, [32, 32])?;
            shifted::<f32, 16, 32>(&tensor, &mut to, by, 0).grid((2, 1)).launch(device)?;
            shifted::<f32, 32, 32>(&tensor, &mut to, by, 0).grid((1, 1)).launch(device)?;
            shifted::<f32, 16, 16>(&tensor, &mut to, by, 0).grid((2, 2)).launch(device)?;
        }
        assert_eq!(out.to_vec()?[..928], numbers(1024)[96..]);
        Ok(())
    });
}
