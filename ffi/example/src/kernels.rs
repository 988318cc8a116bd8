//! The kernels of the operators.

use tilewright::prelude::*;

/// `y[i] = x[i] * sigmoid(x[i])`
#[kernel]
pub fn silu<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask);
    store(y + offsets, value * sigmoid(value), mask = mask);
}

/// `d_x[i] = d_y[i] * s * (1 + x[i] * (1 - s))` with `s = sigmoid(x[i])`
#[kernel]
pub fn silu_backward<T: Float, const BLOCK: usize>(d_y: Ptr<T>, x: Ptr<T>, d_x: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let value = load(x + offsets, mask = mask);
    let s = sigmoid(value);
    store(d_x + offsets, load(d_y + offsets, mask = mask) * s * (1.0 + value * (1.0 - s)), mask = mask);
}

/// `y[i] = factor * x[i] * weight[i % columns]`
#[kernel]
pub fn scaled<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Option<Ptr<T>>,
    y: PtrMut<T>,
    factor: f64,
    columns: i64,
    n: i64,
) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let mut value = load(x + offsets, mask = mask) * factor as T;
    if let Some(weight) = weight {
        value = value * load(weight + offsets % columns, mask = mask);
    }
    store(y + offsets, value, mask = mask);
}

/// `y` = `factor * x`, or 0 where there is no `x`.
#[kernel]
pub fn times<T: Float, const BLOCK: usize>(x: Option<Ptr<T>>, y: PtrMut<T>, factor: f64, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let mut value = full::<T>([BLOCK], 0.0);
    if let Some(x) = x {
        value = load(x + offsets, mask = mask) * factor as T;
    }
    store(y + offsets, value, mask = mask);
}

/// `out[j]` = `factor` times the sum of `a[i, j] * b[i, j]` over rows.
#[kernel]
pub fn column_products<T: Float, const BLOCK: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    out: PtrMut<T>,
    factor: f64,
    rows: i64,
    columns: i64,
) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < columns;
    let mut sum = zeros::<T>([BLOCK]);
    for row in 0..rows {
        let at = row * columns + offsets;
        sum = sum + load(a + at, mask = mask) * load(b + at, mask = mask);
    }
    store(out + offsets, sum * factor as T, mask = mask);
}

/// The sum of a row per program.
#[kernel]
pub fn row_sum<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<f32>, columns: i64) {
    let row = program_id(0) as i64;
    let mut sums = zeros::<f32>([BLOCK]);
    for start in (0..columns).step_by(BLOCK) {
        let at = start + arange(0, BLOCK) as i64;
        sums = sums + load(x + row * columns + at, mask = at < columns) as f32;
    }
    store(out + row, sum(sums));
}

/// The first `wanted` pairs of columns of each row.
#[kernel]
pub fn pairs<T: Num, const BLOCK: usize>(x: Ptr<T>, even: PtrMut<T>, odd: PtrMut<T>, columns: i64, wanted: i64) {
    let row = program_id(1) as i64;
    let at = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = at < wanted;
    store(even + row * wanted + at, load(x + row * columns + 2 * at, mask = mask), mask = mask);
    store(odd + row * wanted + at, load(x + row * columns + 2 * at + 1, mask = mask), mask = mask);
}

/// `x[i] += alpha * y[i]`
#[kernel]
pub fn add_assign<T: Float, const BLOCK: usize>(x: PtrMut<T>, y: Ptr<T>, alpha: f64, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + alpha as T * load(y + offsets, mask = mask);
    store(x + offsets, sum, mask = mask);
}

/// `y[i] = x[n - 1 - i]`
#[kernel]
pub fn reversed<T: DType, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(y + offsets, load(x + (n - 1 - offsets), mask = mask), mask = mask);
}

/// `y[i] = x[i]`
#[kernel]
pub fn copied<T: DType, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
    let mask = offsets < n;
    store(y + offsets, load(x + offsets, mask = mask), mask = mask);
}

/// Reads behind the last element: the access is suppressed, and the launch has an error.
#[kernel]
pub fn out_of_bounds<const BLOCK: usize>(x: Ptr<f32>, y: PtrMut<f32>, n: i64) {
    let offsets = arange(0, BLOCK) as i64;
    let value = load(x + n + offsets);
    store(y + offsets, value, mask = offsets < n);
}
