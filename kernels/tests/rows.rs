use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::rows::{self, SoftmaxConfig};
use tilewright_kernels::{Context, Table, Tensor, TensorView, TensorViewMut};

/// Rows that are shorter than a block, as long, and longer than what is kept in registers.
const COLUMNS: [usize; 5] = [1, 3, 128, 1000, 20_000];

fn softmax(row: &[f64]) -> Vec<f64> {
    let peak = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|x| (x - peak).exp()).collect();
    let total: f64 = exps.iter().sum();
    exps.iter().map(|x| x / total).collect()
}

/// The relative error of `exp(x - peak) / sum`: `exp` is within 2 units of the last place of an argument that is off by
/// its own rounding (|x - peak| < 16 for normal elements), the sum of `columns` terms errs by one rounding a level and
/// one per element that a lane adds up, the division by 2.
fn bound<T: Real>(columns: usize) -> f64 {
    let additions = 16.0 + columns as f64 / 32.0;
    T::STEP * (2.0 * (2.0 + 16.0) + additions + 4.0) * 2.0
}

fn check_softmax<T: Real>(cx: &Context) -> Result<(), Error> {
    for columns in COLUMNS {
        let mut random = Random::new(columns as u64);
        let (x, reals) = random.tensor::<T, 3>(cx, [2, 2, columns]);
        let want: Vec<f64> = reals.chunks(columns).flat_map(softmax).collect();
        let y = rows::softmax(cx, &x)?;
        assert_close("softmax", &y.to_vec()?, &want, |_, want| want * bound::<T>(columns));

        // The gradient of what was rounded.
        let y_reals: Vec<f64> = y.to_vec()?.iter().map(|y| y.real()).collect();
        let (dy, dy_reals) = random.tensor::<T, 3>(cx, [2, 2, columns]);
        let (mut want, mut scale) = (Vec::new(), Vec::new());
        for (y, dy) in y_reals.chunks(columns).zip(dy_reals.chunks(columns)) {
            let total: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            let size: f64 = y.iter().zip(dy).map(|(y, dy)| (y * dy).abs()).sum();
            want.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - total)));
            scale.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy.abs() + size)));
        }
        let dx = rows::softmax_backward(cx, &y, &dy)?;
        assert_close("softmax backward", &dx.to_vec()?, &want, |at, _| scale[at] * bound::<T>(columns));
    }
    Ok(())
}

#[test]
fn softmax_in_every_dtype() {
    on_every_device(|cx| {
        check_softmax::<f16>(cx)?;
        check_softmax::<bf16>(cx)?;
        check_softmax::<f32>(cx)?;
        check_softmax::<f64>(cx)
    });
}

/// Rows of a wider matrix, into rows of another.
#[test]
fn softmax_of_strided_rows() {
    on_every_device(|cx| {
        let (x, reals) = Random::new(7).tensor::<f32, 2>(cx, [4, 100]);
        let mut out = cx.device().full(4 * 64, 7.0f32)?;
        let part = x.view().narrow(1, 10..47)?;
        rows::softmax_into(cx, part, TensorViewMut::with_strides(&mut out, [4, 37], [64, 1])?)?;
        let out = out.to_vec()?;
        for row in 0..4 {
            let want = softmax(&reals[row * 100 + 10..row * 100 + 47]);
            assert_close("row", &out[row * 64..row * 64 + 37], &want, |_, want| want * bound::<f32>(37));
            assert_eq!(out[row * 64 + 37..row * 64 + 64], [7.0; 27]);
        }
        Ok(())
    });
}

#[test]
fn a_table_says_how_softmax_runs() {
    on_every_device(|cx| {
        let (x, reals) = Random::new(8).tensor::<f32, 2>(cx, [4, 1000]);
        let want: Vec<f64> = reals.chunks(1000).flat_map(softmax).collect();
        let mut table = Table::new();
        table.insert(cx.device().name(), f32::ELEMENT, &[4, 1000], SoftmaxConfig { block: 256, num_warps: 2 });
        let y = rows::softmax(&cx.clone().with_table(table.clone()), &x)?;
        assert_close("in pieces", &y.to_vec()?, &want, |_, want| want * bound::<f32>(1000));
        table.insert(cx.device().name(), f32::ELEMENT, &[4, 1000], SoftmaxConfig { block: 100, num_warps: 2 });
        let refused = message(rows::softmax(&cx.clone().with_table(table), &x));
        assert!(refused.contains("power of two"), "{refused}");
        Ok(())
    });
}

#[test]
fn softmax_refuses_what_it_cannot_read() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [4, 6])?;
        assert_eq!(
            message(rows::softmax(cx, x.view().permute([1, 0])?)),
            "`x` has the shape [6, 4] and strides [1, 6]: its last dimension is not contiguous; \
             copy it with `general::contiguous` first"
        );
        let empty = TensorView::new(x.buffer(), [0, 6])?;
        assert_eq!(rows::softmax(cx, empty)?.len(), 0);
        Ok(())
    });
}
