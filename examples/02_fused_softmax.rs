//! Softmax over rows in one pass over memory: reductions, and one kernel for several dtypes and widths.
//!
//! ```text
//! cargo run --release --example 02_fused_softmax
//! ```

use tilewright::prelude::*;

/// Softmax of each row of a row-major matrix; one program per row, the whole row in registers.
///
/// `BLOCK` is a power of two that is at least `columns`. Accumulates in f32 for every dtype.
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, row_stride: i64, columns: i32) {
    let start = program_id(0) as i64 * row_stride;
    let column = arange(0, BLOCK);
    let mask = column < columns;
    // Lanes beyond the row read -infinity, which neither the maximum nor the sum notices.
    let row = load(x + start + column, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    let result = numerator / sum(numerator, axis = 0);
    store(out + start + column, result as T, mask = mask);
}

fn reference(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

/// Runs the kernel on `rows` rows and returns the largest error relative to the row's largest value.
fn check<T: Float>(
    device: &Device,
    rows: usize,
    columns: usize,
    to: fn(f64) -> T,
    from: fn(T) -> f64,
) -> Result<f64, Error> {
    let xs: Vec<T> = (0..rows * columns).map(|i| to(((i * 7919) % 1000) as f64 / 100.0 - 5.0)).collect();
    let x = device.upload(&xs)?;
    let mut out = device.zeros::<T>(rows * columns)?;
    // The block is chosen at run time: the struct names the constexprs.
    let consts = SoftmaxConsts { BLOCK: columns.next_power_of_two() };
    consts.call(&x, &mut out, columns as i64, columns as i32).grid(rows).launch(device)?;
    let mut largest = 0.0f64;
    for (row, result) in xs.chunks(columns).zip(out.to_vec()?.chunks(columns)) {
        let expected = reference(&row.iter().map(|&v| from(v)).collect::<Vec<_>>());
        let peak = expected.iter().copied().fold(0.0, f64::max);
        for (e, &r) in expected.iter().zip(result) {
            largest = largest.max((e - from(r)).abs() / peak);
        }
    }
    Ok(largest)
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());
    println!("{:>8} {:>8}  {:>10}  {:>10}  {:>10}", "rows", "columns", "f32", "f16", "bf16");
    for (rows, columns) in [(64, 128), (33, 1000), (16, 4096), (3, 12289)] {
        let f32_error = check::<f32>(&device, rows, columns, |v| v as f32, f64::from)?;
        let f16_error = check::<f16>(&device, rows, columns, f16::from_f64, f16::to_f64)?;
        let bf16_error = check::<bf16>(&device, rows, columns, bf16::from_f64, bf16::to_f64)?;
        println!("{rows:>8} {columns:>8}  {f32_error:>10.1e}  {f16_error:>10.1e}  {bf16_error:>10.1e}");
        // Half an ulp of each dtype at the row's largest value, and the f32 arithmetic before it.
        assert!(f32_error < 1e-5 && f16_error < 1e-3 && bf16_error < 8e-3, "softmax is off");
    }
    Ok(())
}
