//! Ops of our own that the tests call.

use tilewright_candle::prelude::*;

/// The file that errors name.
pub const FILE: &str = "tests/model/ops.rs";

/// y = x * sigmoid(x)
#[kernel]
fn silu_forward<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let x = load(x + offsets, mask = mask) as f32;
    store(y + offsets, (x * sigmoid(x)) as T, mask = mask);
}

/// dx = dy * sigmoid(x) * (1 + x * (1 - sigmoid(x)))
#[kernel]
fn silu_backward<T: Float, const BLOCK: usize>(x: Ptr<T>, dy: Ptr<T>, dx: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let (x, dy) = (load(x + offsets, mask = mask) as f32, load(dy + offsets, mask = mask) as f32);
    store(dx + offsets, (dy * sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))) as T, mask = mask);
}

candle_op! {
    /// `x * sigmoid(x)` of each element.
    pub fn silu(x) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let n = x.len();
            silu_forward::<T, 64>(x.flat()?, y.flat_mut()?, n as i64).grid(n.div_ceil(64)).launch(x.device())
        })
    }
    backward(dy) -> (x: dx) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let (n, grid) = (x.len(), x.len().div_ceil(64));
            silu_backward::<T, 64>(x.flat()?, dy.flat()?, dx.flat_mut()?, n as i64).grid(grid).launch(x.device())
        })
    }
}

from_op! {
    /// `x * sigmoid(x)` of each element, by an operator that PyTorch and JAX call too.
    pub fn operator_silu(x: &Tensor) -> Tensor = tilewright_ffi_example::silu;
}

/// out[i] = x[index[i]]
#[kernel]
fn gather_kernel<const BLOCK: usize>(x: Ptr<f32>, index: Ptr<i64>, out: PtrMut<f32>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let at = load(index + offsets, mask = mask);
    let value = load(x + at, mask = mask);
    store(out + offsets, value, mask = mask);
}

candle_op! {
    /// The elements of `x` at these places.
    pub fn gather(x, index) -> (out: Spec::new(x.dtype(), index.dims())) {
        let n = index.len();
        gather_kernel::<64>(x.flat()?, index.flat()?, out.flat_mut()?, n as i64).grid(n.div_ceil(64)).launch(x.device())
    }
}

/// out[index[i]] = x[i]
#[kernel]
fn scatter_kernel<const BLOCK: usize>(out: PtrMut<f32>, x: Ptr<f32>, index: Ptr<i64>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let at = load(index + offsets, mask = mask);
    store(out + at, load(x + offsets, mask = mask), mask = mask);
}

candle_op! {
    /// Puts the elements of `x` at these places of `out`.
    pub fn scatter(mut out, x, index) {
        let n = index.len();
        scatter_kernel::<64>(out.flat_mut()?, x.flat()?, index.flat()?, n as i64)
            .grid(n.div_ceil(64))
            .launch(x.device())
    }
}

/// y[i] = x[i]
#[kernel]
fn replace_kernel<T: DType, const BLOCK: usize>(y: PtrMut<T>, x: Ptr<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(y + offsets, load(x + offsets, mask = mask), mask = mask);
}

candle_op! {
    /// Writes the elements of `x` into `y`.
    pub fn replace(mut y, x) {
        dispatch!(x => T in [f32, i64] {
            let n = x.len();
            replace_kernel::<T, 64>(y.flat_mut()?, x.flat()?, n as i64).grid(n.div_ceil(64)).launch(x.device())
        })
    }
}

/// `FILE:LINE`, of the line that begins like this.
pub fn line(begins: &str) -> String {
    let mut lines = include_str!("ops.rs").lines();
    let at = lines.position(|line| line.trim_start().starts_with(begins)).expect("a line of this file");
    format!("{FILE}:{}", at + 1)
}
