//! The kernels that one writes first, and a call that does nothing.

use crate::views::same_shape;
use tilewright::prelude::*;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;

/// Elements of a program.
const BLOCK: usize = 1024;

/// Programs that go over more than a block each: a few for each multiprocessor of a large GPU.
const PROGRAMS: usize = 1024;

/// The kernels.
pub mod kernels {
    use tilewright::prelude::*;
    use tilewright::{Result, ViewMut};
    use tilewright_kernels::TensorView;

    /// `out[i] = x[i] + y[i]`
    #[kernel]
    pub fn add<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        store(out + i, load(x + i, mask = mask) + load(y + i, mask = mask), mask = mask);
    }

    /// `y[i] = scale * x[i] * sigmoid(x[i])`
    #[kernel]
    pub fn scaled_silu<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, scale: f32, n: i64) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        let value = load(x + i, mask = mask) as T::Acc;
        store(y + i, (scale as T::Acc * value * sigmoid(value)) as T, mask = mask);
    }

    /// `d_x[i] = scale * d_y[i] * s * (1 + x[i] * (1 - s))` with `s = sigmoid(x[i])`
    #[kernel]
    pub fn scaled_silu_backward<T: Float, const BLOCK: usize>(
        d_y: Ptr<T>,
        x: Ptr<T>,
        d_x: PtrMut<T>,
        scale: f32,
        n: i64,
    ) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        let value = load(x + i, mask = mask) as T::Acc;
        let s = sigmoid(value);
        let slope = s * (1.0 + value * (1.0 - s));
        store(d_x + i, (scale as T::Acc * load(d_y + i, mask = mask) as T::Acc * slope) as T, mask = mask);
    }

    /// `y[i] = x[ids[i]]`, of whatever indices.
    #[kernel]
    pub fn taken<T: Float, const BLOCK: usize>(x: Ptr<T>, ids: Ptr<i64>, y: PtrMut<T>, n: i64) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        let id = load(ids + i, mask = mask);
        store(y + i, load(x + id, mask = mask), mask = mask);
    }

    /// `x[ids[i]] = values[i]`, of whatever indices.
    #[kernel]
    pub fn put<T: Float, const BLOCK: usize>(x: PtrMut<T>, ids: Ptr<i64>, values: Ptr<T>, n: i64) {
        let i = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
        let mask = i < n;
        let id = load(ids + i, mask = mask);
        store(x + id, load(values + i, mask = mask), mask = mask);
    }

    /// `x[i] *= factor`. Where the factor is 1, as that of a loss of its own gradient is, nothing of `x` is touched. Programs are
    /// few, so that this is soon done.
    #[kernel]
    pub fn scaled<T: Float, const BLOCK: usize>(x: PtrMut<T>, factor: Ptr<f32>, n: i64) {
        let factor = load(factor) as T::Acc;
        if factor != 1.0 {
            for first in (program_id(0) as i64 * BLOCK..n).step_by(num_programs(0) as i64 * BLOCK) {
                let i = first + arange(0, BLOCK) as i64;
                let mask = i < n;
                store(x + i, (load(x + i, mask = mask) as T::Acc * factor) as T, mask = mask);
            }
        }
    }

    /// `out[j]` is the sum of `x[i, j]` over all rows.
    #[kernel]
    fn column_sums<T: Float, const M: usize, const N: usize>(
        x: Ptr<T>,
        out: PtrMut<T>,
        stride: i64,
        rows: i64,
        columns: i64,
    ) {
        let column = program_id(0) as i64 * N + arange(0, N) as i64;
        let mut sums = zeros::<T::Acc>([M, N]);
        for first in (0..rows).step_by(M) {
            let row = first + arange(0, M) as i64;
            let mask = (row < rows)[(.., None)] & (column < columns)[(None, ..)];
            let at = row[(.., None)] * stride + column[(None, ..)];
            sums += load(x + at, mask = mask) as T::Acc;
        }
        store(out + column, sum(sums, axis = 0) as T, mask = column < columns);
    }

    /// Adds up rows.
    pub fn add_rows<T: Float>(device: &Device, x: TensorView<'_, T, 2>, out: ViewMut<'_, T>) -> Result<()> {
        let ([rows, columns], [stride, _]) = (x.shape(), x.strides());
        column_sums::<T, 64, 32>(x.elements(), out, stride as i64, rows as i64, columns as i64)
            .grid(columns.div_ceil(32))
            .launch(device)
    }
}

/// `x + y`, elementwise.
#[op(out(z: like(x)), backward = add_backward, vmap = broadcast_all)]
pub fn add(x: TensorRef<'_>, y: TensorRef<'_>, z: TensorMut<'_>) -> Result<()> {
    same_shape(&y, &x)?;
    let (n, device) = (x.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::add::<T, BLOCK>(x.flat::<T>()?, y.flat::<T>()?, z.flat_mut::<T>()?, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// The gradient of [`add`] for both of its tensors: that of the sum.
#[op(out(d_x_and_y: like(d_z)), vmap = broadcast_all)]
pub fn add_backward(d_z: TensorRef<'_>, d_x_and_y: TensorMut<'_>) -> Result<()> {
    let cx = crate::views::context(&d_z);
    dispatch!(d_z.dtype() => T in [f32, f16, bf16, f64] {
        let d_z = crate::views::rows::<T>(&d_z)?;
        Ok(tilewright_kernels::general::copy_into(&cx, d_z, crate::views::rows_mut::<T>(d_x_and_y)?)?)
    })
}

/// `scale * x * sigmoid(x)`, elementwise, computed in f32 and rounded once.
#[op(out(y: like(x)), backward = scaled_silu_backward, vmap = broadcast_all)]
pub fn scaled_silu(x: TensorRef<'_>, y: TensorMut<'_>, #[default(1.0)] scale: f64) -> Result<()> {
    let (n, device) = (x.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::scaled_silu::<T, BLOCK>(x.flat::<T>()?, y.flat_mut::<T>()?, scale as f32, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// The gradient of [`scaled_silu`].
#[op(out(d_x: like(x)), vmap = broadcast_all)]
pub fn scaled_silu_backward(d_y: TensorRef<'_>, x: TensorRef<'_>, d_x: TensorMut<'_>, scale: f64) -> Result<()> {
    let (n, device) = (x.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::scaled_silu_backward::<T, BLOCK>(d_y.flat::<T>()?, x.flat::<T>()?, d_x.flat_mut::<T>()?, scale as f32, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// The elements of `x` with the indices `ids`, in i64. An index that no element has is an error.
#[op(out(y: x.dtype[..ids.shape]))]
pub fn take(x: TensorRef<'_>, ids: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let (n, device) = (ids.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::taken::<T, BLOCK>(x.flat::<T>()?, ids.flat::<i64>()?, y.flat_mut::<T>()?, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// Writes `values` into the elements of `x` with the indices `ids`, in i64, of the same shape. Of several values for one element
/// one stays, whichever. An index that no element has is an error; nothing is written for it, and all other values are.
#[op]
pub fn put_in_place(x: TensorMut<'_>, ids: TensorRef<'_>, values: TensorRef<'_>) -> Result<()> {
    same_shape(&values, &ids)?;
    let (n, device) = (ids.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::put::<T, BLOCK>(x.flat_mut::<T>()?, ids.flat::<i64>()?, values.flat::<T>()?, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// Multiplies `x` in place by `factor`, a number in f32: gradients that were computed before that of the loss was known.
#[op]
pub fn scale_in_place(x: TensorMut<'_>, factor: TensorRef<'_>) -> Result<()> {
    let (n, device) = (x.len(), x.device());
    if factor.len() != 1 {
        return Err(Error::argument(
            "factor",
            format_args!("has shape {:?}", factor.shape()),
            "a tensor of one element",
        ));
    }
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        kernels::scaled::<T, BLOCK>(x.flat_mut::<T>()?, factor.flat::<f32>()?, n as i64)
            .grid(n.div_ceil(BLOCK).min(PROGRAMS))
            .launch(device)?;
        Ok(())
    })
}

/// Leaves `y` as it is: what remains is the price of the call.
#[op(out(y: like(x)), vmap = broadcast_all)]
pub fn nothing(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}
