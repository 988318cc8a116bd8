//! Layer normalisation: two reductions, a float constexpr, and several parameters.
//!
//! ```text
//! cargo run --release --example 03_layer_norm
//! ```

use tilewright::prelude::*;

/// `out = (x - mean) / sqrt(variance + eps) * weight + bias` for each row; one program per row.
///
/// Writes the mean and the reciprocal standard deviation of each row too, as a backward pass needs them.
#[kernel]
pub fn layer_norm<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    bias: Ptr<T>,
    out: PtrMut<T>,
    means: PtrMut<f32>,
    rstds: PtrMut<f32>,
    columns: i32,
    eps: Const<f32>,
) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = row * columns + column;
    let values = load(x + offsets, mask = mask) as f32;
    let mean = sum(values, axis = 0) / columns as f32;
    // Masked lanes hold zero, not the mean: they must not count towards the variance.
    let centred = select(mask, values - mean, 0.0);
    let variance = sum(centred * centred, axis = 0) / columns as f32;
    let rstd = rsqrt(variance + eps);
    let scale = load(weight + column, mask = mask) as f32;
    let shift = load(bias + column, mask = mask) as f32;
    store(out + offsets, (centred * rstd * scale + shift) as T, mask = mask);
    store(means + row, mean);
    store(rstds + row, rstd);
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());
    let (rows, columns, eps) = (37usize, 1000usize, 1e-5f32);
    let xs: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 1009) as f32 / 100.0 - 3.0).collect();
    let weights: Vec<f32> = (0..columns).map(|i| 1.0 + i as f32 / 2000.0).collect();
    let biases: Vec<f32> = (0..columns).map(|i| i as f32 / 500.0 - 1.0).collect();

    let (x, weight, bias) = (device.upload(&xs)?, device.upload(&weights)?, device.upload(&biases)?);
    let mut out = device.zeros::<f32>(rows * columns)?;
    let (mut means, mut rstds) = (device.zeros::<f32>(rows)?, device.zeros::<f32>(rows)?);
    LayerNormConsts { BLOCK: columns.next_power_of_two() }
        .call(&x, &weight, &bias, &mut out, &mut means, &mut rstds, columns as i32, eps)
        .grid(rows)
        .launch(&device)?;

    let (result, means, rstds) = (out.to_vec()?, means.to_vec()?, rstds.to_vec()?);
    let mut largest = 0.0f64;
    for (r, row) in xs.chunks(columns).enumerate() {
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / columns as f64;
        let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / columns as f64;
        let rstd = (variance + f64::from(eps)).sqrt().recip();
        assert!((f64::from(means[r]) - mean).abs() < 1e-5 && (f64::from(rstds[r]) / rstd - 1.0).abs() < 1e-5);
        for c in 0..columns {
            let expected = (f64::from(row[c]) - mean) * rstd * f64::from(weights[c]) + f64::from(biases[c]);
            largest = largest.max((expected - f64::from(result[r * columns + c])).abs());
        }
    }
    println!("{rows} rows of {columns}: largest error {largest:.1e}");
    assert!(largest < 2e-5, "layer norm is off");
    Ok(())
}
