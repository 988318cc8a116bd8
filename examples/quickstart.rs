//! The first thing to run: two kernels on the GPU, or on the CPU where there is none.
//!
//! ```text
//! cargo run --release --example quickstart
//! ```

use std::time::Instant;

use tilewright::prelude::*;

/// `out[i] = x[i] + y[i]`
#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// Each row of `x` becomes its softmax; one program per row.
#[kernel]
pub fn softmax<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = f32::NEG_INFINITY);
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, numerator / sum(numerator, axis = 0), mask = mask);
}

/// A pseudo-random number in -1..1 for each index, the same on every machine.
fn noise(index: usize) -> f32 {
    let hash = (index as u32).wrapping_mul(0x9E37_79B9).rotate_left(13).wrapping_mul(0x85EB_CA6B);
    hash as f32 / (u32::MAX / 2) as f32 - 1.0
}

/// The median time of some launches, in milliseconds, by the device's own clock.
fn time(device: &Device, mut launch: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let stream = device.default_stream();
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = stream.record()?;
        launch()?;
        times.push(start.elapsed_ms(&stream.record()?)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("device        {}", device.name());
    let scale = if device.is_cuda() { 1 } else { 16 };

    // Vector add. The length is no multiple of the block: the mask takes care of the tail.
    let n = (1 << 24) / scale + 3;
    let xs: Vec<f32> = (0..n).map(noise).collect();
    let ys: Vec<f32> = (0..n).map(|i| noise(i + n)).collect();
    let (x, y) = (device.upload(&xs)?, device.upload(&ys)?);
    let mut out = device.zeros::<f32>(n)?;

    let first = Instant::now();
    add::<_, 1024>(&x, &y, &mut out, n as i32).grid(n.div_ceil(1024)).launch(&device)?;
    device.synchronize()?;
    println!("first launch  {:.1} ms, compilation included", first.elapsed().as_secs_f64() * 1e3);

    let wrong = (out.to_vec()?.iter()).zip(xs.iter().zip(&ys)).filter(|(o, (x, y))| **o != **x + **y).count();
    let ms = time(&device, || add::<_, 1024>(&x, &y, &mut out, n as i32).grid(n.div_ceil(1024)).launch(&device))?;
    println!("vector add    {n} elements, {wrong} wrong, {ms:.3} ms, {:.1} GB/s", 12.0 * n as f64 / ms / 1e6);

    // Softmax, with the block chosen at run time.
    let (rows, columns) = (4096 / scale, 1000_usize);
    let block = columns.next_power_of_two();
    let xs: Vec<f32> = (0..rows * columns).map(|i| 4.0 * noise(i)).collect();
    let x = device.upload(&xs)?;
    let mut out = device.zeros::<f32>(rows * columns)?;
    let mut run = || SoftmaxConsts { BLOCK: block }.call(&x, &mut out, columns as i32).grid(rows).launch(&device);
    run()?;
    let ms = time(&device, run)?;
    let error = softmax_error(&xs, &out.to_vec()?, columns);
    println!("softmax       {rows} x {columns}, largest error {error:.1e}, {ms:.3} ms");

    // Any kernel can be compiled for any target and looked at, without a GPU.
    match (AddConsts { BLOCK: 1024 }).compile::<f32>(Target::sm_90a()) {
        Ok(kernel) => println!(
            "PTX           {} lines for sm_90a; print `kernel.ptx()` to read them",
            kernel.ptx().lines().count()
        ),
        Err(error) => println!("PTX           {error}"),
    }
    Ok(())
}

/// The largest difference from softmax in f64, by plain Rust.
fn softmax_error(xs: &[f32], out: &[f32], columns: usize) -> f64 {
    let mut largest = 0.0f64;
    for (row, result) in xs.chunks(columns).zip(out.chunks(columns)) {
        let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
        let sum: f64 = row.iter().map(|&v| (f64::from(v) - max).exp()).sum();
        for (&v, &r) in row.iter().zip(result) {
            largest = largest.max(((f64::from(v) - max).exp() / sum - f64::from(r)).abs());
        }
    }
    largest
}
