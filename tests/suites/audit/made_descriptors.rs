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
