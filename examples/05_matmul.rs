//! A matrix product with a bias and an activation: `dot` in a loop, programs in an order that the cache likes, and
//! an epilogue that costs no pass over memory of its own.
//!
//! ```text
//! cargo run --release --example 05_matmul
//! ```

use tilewright::prelude::*;

/// `c = leaky_relu(a @ b + bias)`, all row-major; one `BM` x `BN` tile of `c` per program.
///
/// Programs go down `GROUP` rows of tiles before they go on to the next column, so that those that run at the same
/// time share what they read.
#[kernel]
pub fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    bias: Ptr<f32>,
    c: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
    slope: Const<f32>,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
    let first = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - first, GROUP);
    let i = (first + tile % wide % height) * BM + arange(0, BM);
    let j = tile % wide / height * BN + arange(0, BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    acc += load(bias + j, mask = j < n);
    let activated = select(acc > 0.0, acc, slope * acc);
    store(c + i[(.., None)] * n + j, activated as T, mask = (i < m)[(.., None)] & (j < n));
}

/// The slope of the activation for negative numbers.
const SLOPE: f32 = 0.01;

/// Numbers that look random, between -1 and 1.
fn numbers(len: usize, seed: usize) -> Vec<f16> {
    (0..len).map(|i| f16::from_f32(((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0)).collect()
}

/// Sizes that nothing divides, against plain Rust.
fn check<const BM: usize, const BN: usize, const BK: usize>(
    device: &Device,
    (m, n, k): (usize, usize, usize),
    warps: u32,
) -> Result<(), Error> {
    let (xs, ys) = (numbers(m * k, 1), numbers(k * n, 2));
    let biases: Vec<f32> = (0..n).map(|j| j as f32 / 50.0 - 1.0).collect();
    let (a, b, bias) = (device.upload(&xs)?, device.upload(&ys)?, device.upload(&biases)?);
    let mut c = device.full(m * n, f16::NAN)?;
    matmul::<_, BM, BN, BK, 8>(&a, &b, &bias, &mut c, m as i32, n as i32, k as i32, SLOPE)
        .grid(m.div_ceil(BM) * n.div_ceil(BN))
        .num_warps(warps)
        .launch(device)?;
    // What tensor cores may lose in k additions, relative to the sum of absolute values.
    let lost = k as f64 * 2.0 / f64::from(1 << 24);
    let mut worst = 0.0f64;
    for (at, got) in c.to_vec()?.into_iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let terms = (0..k).map(|t| xs[i * k + t].to_f64() * ys[t * n + j].to_f64());
        let size = terms.clone().map(f64::abs).sum::<f64>() + f64::from(biases[j]).abs();
        let sum = terms.sum::<f64>() + f64::from(biases[j]);
        let want = if sum > 0.0 { sum } else { sum * f64::from(SLOPE) };
        // Half a unit in the last place of f16 on top, and of its smallest numbers.
        let bound = 1.01 * lost * size + want.abs() / 2048.0 + 3e-8;
        worst = worst.max((got.to_f64() - want).abs() / bound);
        assert!((got.to_f64() - want).abs() <= bound, "c[{i}, {j}] is {got}, expected {want}");
    }
    println!("{m} x {n} x {k}: largest error {worst:.2} of what is allowed");
    Ok(())
}

/// A product that is worth timing.
fn time(device: &Device) -> Result<(), Error> {
    let size = 4096usize;
    let (a, b) = (device.upload(&numbers(size * size, 3))?, device.upload(&numbers(size * size, 4))?);
    let (bias, mut c) = (device.zeros::<f32>(size)?, device.zeros::<f16>(size * size)?);
    let (stream, mut best) = (device.default_stream(), f64::INFINITY);
    for _ in 0..20 {
        let start = stream.record()?;
        matmul::<_, 128, 256, 64, 8>(&a, &b, &bias, &mut c, size as i32, size as i32, size as i32, SLOPE)
            .grid(size.div_ceil(128) * size.div_ceil(256))
            .num_warps(8)
            .num_stages(3)
            .launch(device)?;
        let end = stream.record()?;
        end.synchronize()?;
        best = best.min(start.elapsed_ms(&end)?);
    }
    println!("{size} x {size} x {size}: {best:.3} ms, {:.0} TFLOP/s", 2.0 * (size as f64).powi(3) / best / 1e9);
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());
    check::<32, 64, 32>(&device, (75, 107, 91), 4)?;
    check::<128, 256, 64>(&device, (131, 269, 157), 8)?;
    if device.is_cuda() { time(&device) } else { Ok(()) }
}
