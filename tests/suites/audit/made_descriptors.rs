//! Tensor descriptors that kernels make: by the host from arguments alone, by each program through pointers otherwise.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use super::descriptors::{Tensor, moved, numbers, positions};

/// The block at (row, column) moved by (down, right) goes to the same place of `out`.
#[kernel]
fn shifted<T: Float, const NAN: bool>(
    x: Ptr<T>,
    out: PtrMut<T>,
    size: i32,
    columns: i64,
    strides: i32,
    first: i32,
    down: i32,
    right: i32,
) {
    let to = tensor_desc(out, [size, columns], [strides + 1, 1], [16, 32]);
    let (row, column) = (program_id(0) * 16, program_id(1) * 32);
    if NAN {
        let from = tensor_desc(x + first, [size, columns], [strides, 1], [16, 32], padding = nan);
        to.store([row, column], from.load([row + down, column + right]));
    } else {
        let from = tensor_desc(x + first, [size, columns], [strides, 1], [16, 32]);
        to.store([row, column], from.load([row + down, column + right]));
    }
}

fn bits(values: &[f32]) -> Vec<Option<u32>> {
    values.iter().map(|v| (!v.is_nan()).then(|| v.to_bits())).collect()
}

fn check_shifted(
    device: &Device,
    size: [usize; 2],
    stride: usize,
    first: usize,
    by: [i64; 2],
    nan: bool,
) -> Result<(), Error> {
    let data = numbers(first + size[0] * stride + 8);
    let x = Tensor::new(data[first..].to_vec(), &size, &[stride, 1]);
    let guard = -1.25f32;
    let mut want = Tensor::new(vec![guard; size[0] * (stride + 1) + 8], &size, &[stride + 1, 1]);
    let padding = if nan { f32::NAN } else { 0.0 };
    for at in positions(&[size[0].next_multiple_of(16) + 16, size[1].next_multiple_of(32) + 32]) {
        want.set(&at, |_| x.get(&moved(&at, &by), padding));
    }
    let input = device.upload(&data)?;
    let mut output = device.full(want.data.len(), guard)?;
    let grid = (size[0].div_ceil(16) + 1, size[1].div_ceil(32) + 1);
    let consts = ShiftedConsts { NAN: nan };
    let (rows, columns, stride, first) = (size[0] as i32, size[1] as i64, stride as i32, first as i32);
    let call = consts.call(&input, &mut output, rows, columns, stride, first, by[0] as i32, by[1] as i32);
    call.grid(grid).launch(device)?;
    assert_eq!(bits(&output.to_vec()?), bits(&want.data), "{size:?} {stride} {first} {by:?} {nan}");
    Ok(())
}

#[test]
fn blocks_that_begin_or_end_outside() {
    check(|device| {
        for size in [[16usize, 32], [17, 33], [1, 1], [40, 100], [33, 4]] {
            for stride in [size[1], size[1] + 1, size[1].next_multiple_of(16)] {
                for (first, by) in [(0, [0, 0]), (3, [-5, 7]), (16, [3, -40])] {
                    check_shifted(device, size, stride, first, by, false)?;
                    check_shifted(device, size, stride, first, by, true)?;
                }
            }
        }
        Ok(())
    });
}

/// Each program has a matrix of its own, with as many rows as memory says: nothing is known before the launch.
#[kernel]
fn batches<T: Num, const FORM: i32>(x: Ptr<T>, out: PtrMut<T>, rows: Ptr<i32>, apart: i32, n: i64) {
    let batch = program_id(0);
    let m = load(rows + batch);
    let from = tensor_desc(x + batch * apart, [m, n as i32], [n, 1], [8, 16]);
    let to = tensor_desc(out + batch * apart, [m as i64, n], [n, 1], [8, 16]);
    for i in (0..20).step_by(8) {
        for j in (0..40).step_by(16) {
            if FORM == 0 {
                store(to, [i, j], load(from, [i, j]));
            } else if FORM == 1 {
                to.atomic_add([i, j], from.load([i, j]));
            } else {
                to.atomic_max([i - 3, j - 1], from.load([i - 3, j - 1]));
            }
        }
    }
}

fn check_batches(device: &Device, n: usize, rows: &[i32], form: i32) -> Result<(), Error> {
    let apart = 20 * n;
    let data: Vec<i32> = (0..rows.len() * apart).map(|i| (i * 7919 % 1009) as i32 - 500).collect();
    let mut want = vec![3; data.len()];
    for (batch, &m) in rows.iter().enumerate() {
        for i in (0..m.max(0) as usize * n).map(|i| batch * apart + i) {
            let (row, column) = ((i - batch * apart) / n, (i - batch * apart) % n);
            want[i] = match form {
                0 => data[i],
                1 => 3 + data[i],
                // The blocks end at row 20 and column 46.
                _ if row < 21 && column < 47 => data[i].max(3),
                _ => 3,
            };
        }
    }
    let (x, mut out, rows) = (device.upload(&data)?, device.full(data.len(), 3)?, device.upload(rows)?);
    let call = BatchesConsts { FORM: form }.call(&x, &mut out, &rows, apart as i32, n as i64);
    call.grid(rows.len()).launch(device)?;
    assert_eq!(out.to_vec()?, want, "{n} {form}");
    Ok(())
}

#[test]
fn tensors_that_programs_find_in_memory() {
    check(|device| {
        for n in [1, 16, 40] {
            for form in 0..3 {
                check_batches(device, n, &[20, 0, 7, 1, -4], form)?;
            }
        }
        Ok(())
    });
}

/// Rows by number, through a tensor of which the host knows all (`FORM` 0), or of which it does not.
#[kernel]
fn rows_by_number<const FORM: i32>(x: Ptr<f32>, out: PtrMut<f32>, index: Ptr<i32>, rows: i32, columns: i32) {
    let first = if FORM == 0 { 0 } else { load(index + 16) };
    let from = tensor_desc(x + first, [rows, columns], [columns, 1], [1, 8]);
    let to = tensor_desc(out + first, [rows, columns], [columns, 1], [1, 8]);
    let numbers = load(index + arange(0, 16));
    to.scatter(numbers, 2, from.gather(numbers, 2));
}

#[test]
fn rows_of_tensors_that_kernels_make() {
    check(|device| {
        let (rows, columns) = (20usize, 9usize);
        let data = numbers(rows * columns);
        let index: Vec<i32> = (0..17).map(|i| if i == 16 { 0 } else { i * 3 - 4 }).collect();
        let mut want = vec![0.0; data.len()];
        for &row in index[..16].iter().filter(|row| (0..rows as i32).contains(row)) {
            for column in 2..columns {
                want[row as usize * columns + column] = data[row as usize * columns + column];
            }
        }
        let (x, index) = (device.upload(&data)?, device.upload(&index)?);
        for form in [0, 1] {
            let mut out = device.zeros::<f32>(data.len())?;
            let call = RowsByNumberConsts { FORM: form }.call(&x, &mut out, &index, rows as i32, columns as i32);
            call.grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, want, "{form}");
        }
        Ok(())
    });
}

/// A matrix as its transpose: the innermost stride is an argument, and 1 in few launches.
#[kernel]
fn restrided(x: Ptr<f32>, out: PtrMut<f32>, size: i32, columns: i32, down: i32, right: i32) {
    let from = tensor_desc(x, [size, columns], [down, right], [16, 16]);
    let to = tensor_desc(out, [size, columns], [columns, 1], [16, 16]);
    let (i, j) = (program_id(0) * 16, program_id(1) * 16);
    to.store([i, j], from.load([i, j]));
}

#[test]
fn any_innermost_stride() {
    check(|device| {
        let (rows, columns) = (20usize, 24usize);
        let data = numbers(rows * columns);
        let x = device.upload(&data)?;
        for (strides, name) in
            [([columns, 1], "rows"), ([1, rows], "columns"), ([0, 2], "every second"), ([1, 0], "one")]
        {
            let mut out = device.zeros::<f32>(data.len())?;
            let call = restrided(&x, &mut out, rows as i32, columns as i32, strides[0] as i32, strides[1] as i32);
            call.grid((2, 2)).launch(device)?;
            let at = |i: usize| data[i / columns * strides[0] + i % columns * strides[1]];
            assert_eq!(out.to_vec()?, (0..data.len()).map(at).collect::<Vec<f32>>(), "{name}");
        }
        Ok(())
    });
}

/// Descriptors are made in a loop and in a branch; one buffer is read and written through one, another through two.
#[kernel]
fn everywhere(x: PtrMut<f32>, y: PtrMut<f32>, bias: Option<Ptr<f32>>, n: i32, flag: i32) {
    for i in 0..2 {
        let a = tensor_desc(x, [n, 8], [8, 1], [4, 8]);
        if flag > 0 {
            let b = tensor_desc(y, [n, 8], [8, 1], [4, 8]);
            let c = tensor_desc(y + 8 * n, [n, 8], [8, 1], [4, 8]);
            c.store([i * 4, 0], b.load([i * 4, 0]) + a.load([i * 4, 0]));
            b.store([i * 4, 0], c.load([i * 4, 0]));
        }
        if let Some(bias) = bias {
            let more = tensor_desc(bias, [n, 8], [0, 1], [4, 8]);
            a.store([i * 4, 0], a.load([i * 4, 0]) + more.load([i * 4, 0]));
        }
        // Nobody uses these.
        let _wrong = tensor_desc(x, [0 - n, 1 << 30], [n, 1], [4, 8]);
        let _odd = tensor_desc(x, [n, n], [n, 1], [4, 1]);
    }
}

#[test]
fn descriptors_in_loops_and_branches() {
    check(|device| {
        for n in [8usize, 5] {
            for (flag, with) in [(0, true), (1, true), (1, false)] {
                let (a, b, bias) = (numbers(n * 8), numbers(2 * n * 8), numbers(8));
                let (mut x, mut y, z) = (device.upload(&a)?, device.upload(&b)?, device.upload(&bias)?);
                let given = with.then_some(&z);
                everywhere(&mut x, &mut y, given, n as i32, flag).grid(1).launch(device)?;
                let moved: Vec<f32> = (0..n * 8).map(|i| if with { a[i] + bias[i % 8] } else { a[i] }).collect();
                let sum = |i: usize| if flag > 0 { b[i % (n * 8)] + a[i % (n * 8)] } else { b[i] };
                assert_eq!(x.to_vec()?, moved, "{n} {flag} {with}");
                assert_eq!(y.to_vec()?, (0..2 * n * 8).map(sum).collect::<Vec<f32>>(), "{n} {flag} {with}");
            }
        }
        Ok(())
    });
}

/// Sizes in two dtypes, which wrap in each as they do in kernels.
#[kernel]
fn computed(x: Ptr<i32>, out: PtrMut<i32>, n: i32, wide: i64, short: bool) {
    let rows = if n > 100 { n * n * 4 } else { cdiv(n, 3) };
    let least = minimum(select(short, 2, 5), n);
    let from = tensor_desc(x, [rows, wide % 7 + 2], [wide / 4 * 2, 1], [4, 4]);
    let to = tensor_desc(out, [least, wide as i32], [4, 1], [4, 4]);
    to.store([0, 0], from.load([0, 0]));
}

#[test]
fn sizes_wrap_as_in_the_kernel() {
    check(|device| {
        let data: Vec<i32> = (1..=64).collect();
        let x = device.upload(&data)?;
        // 65,536 squared is zero in i32, so that there are no rows.
        for (n, wide, short, rows, columns) in
            [(12, 4, false, 4, 6), (12, 4, true, 4, 6), (2, 3, false, 1, 5), (65_536, 8, true, 0, 3)]
        {
            let mut out = device.zeros::<i32>(64)?;
            computed(&x, &mut out, n, wide, short).grid(1).launch(device)?;
            let height = n.min(if short { 2 } else { 5 });
            let mut want = vec![0; 64];
            for (i, j) in (0..height.min(4)).flat_map(|i| (0..wide.min(4) as i32).map(move |j| (i, j))) {
                let inside = i < rows && j < columns;
                want[(i * 4 + j) as usize] =
                    if inside { data[(i64::from(i) * (wide / 4 * 2)) as usize + j as usize] } else { 0 };
            }
            assert_eq!(out.to_vec()?, want, "{n} {wide} {short}");
        }
        Ok(())
    });
}

#[kernel]
fn described(x: Ptr<f32>, out: PtrMut<f32>, rows: i32, columns: i32, stride: i32, first: i32) {
    let matrix = tensor_desc(x + first, [rows, columns], [stride, 1], [4, 8]);
    store(out + (arange(0, 4)[(.., None)] * 8 + arange(0, 8)), matrix.load([0, 0]));
}

#[test]
fn tensors_outside_their_buffers_are_errors_of_the_launch() {
    check(|device| {
        let (x, mut out) = (device.zeros::<f32>(100)?, device.full(32, 1.0f32)?);
        for (rows, columns, stride, first, problem) in [
            (10, 11, 10, 0, "needs 101 elements, its buffer has 100"),
            (10, 10, 10, 1, "needs 100 elements, its buffer has 99"),
            (1, 1, 1, 101, "begins at element 101, its buffer has 100"),
            (1, 1, 1, -1, "begins at element -1, its buffer has 100"),
            (-1, 1, 1, 0, "has -1 elements along dimension 0"),
            (2, 1, -1, 0, "has a stride of -1 along dimension 0"),
        ] {
            let error = described(&x, &mut out, rows, columns, stride, first).grid(1).launch(device);
            let text = match error {
                Err(error @ Error::InvalidTensor { .. }) => error.to_string(),
                other => panic!("{other:?}"),
            };
            assert!(text.contains(problem), "{text}");
            assert!(
                text.starts_with("`matrix` of kernel `described` (") && text.contains("made_descriptors.rs:"),
                "{text}"
            );
        }
        assert_eq!(out.to_vec()?, [1.0; 32], "nothing ran");
        // What is empty lies everywhere, and so does the last element.
        for (rows, columns, first) in [(0, 1000, 0), (1000, 0, 100), (1, 1, 99)] {
            described(&x, &mut out, rows, columns, 5, first).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, [0.0; 32]);
        }
        Ok(())
    });
}

/// What programs find themselves is checked as they access it.
#[kernel]
fn unbounded(x: Ptr<f32>, out: PtrMut<f32>, sizes: Ptr<i32>) {
    let matrix = tensor_desc(x, [load(sizes), 8], [8, 1], [4, 8]);
    store(out + (arange(0, 4)[(.., None)] * 8 + arange(0, 8)), matrix.load([4, 0]));
}

#[test]
fn accesses_through_pointers_are_checked() {
    check(|device| {
        let (x, mut out) = (device.full(64, 2.0f32)?, device.zeros::<f32>(32)?);
        let (fits, large) = (device.upload(&[8])?, device.upload(&[9])?);
        unbounded(&x, &mut out, &fits).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2.0; 32]);
        unbounded(&x, &mut out, &large).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2.0; 32], "row 8 is not in the block");
        let small = x.slice(..60)?;
        unbounded(small, &mut out, &fits).grid(1).launch(device)?;
        assert!(matches!(out.to_vec(), Err(Error::OutOfBounds { .. })), "row 7 has four elements");
        Ok(())
    });
}
