//! What the first launch of a kernel costs in a fresh process, stage by stage.
//!
//! ```text
//! cargo bench -p tilewright-bench --bench first_launch             # LLVM loaded before the clock starts
//! cargo bench -p tilewright-bench --bench first_launch -- --cold   # everything
//! ```
//! The driver keeps what it compiled on disk: `CUDA_CACHE_DISABLE=1` shows the cost without that.

use std::time::Instant;

use tilewright::prelude::*;
use tilewright_bench::report;

/// `out = x + y`
#[kernel]
pub fn add<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

/// Softmax of each row.
#[kernel]
pub fn softmax<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = f32::NEG_INFINITY);
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, numerator / sum(numerator, axis = 0), mask = mask);
}

/// Prints the runtime's own account of each stage.
struct Stages;

impl log::Log for Stages {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("    {}", record.args());
    }

    fn flush(&self) {}
}

/// Runs a launch to its end and prints how long that took.
fn timed(what: &str, device: &Device, launch: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    launch()?;
    device.synchronize()?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    println!("{what}: {ms:.2} ms");
    Ok(ms)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let process = Instant::now();
    log::set_logger(&Stages).map_err(|e| e.to_string())?;
    log::set_max_level(log::LevelFilter::Debug);
    let device = Device::best()?;
    println!("{}; device ready after {:.1} ms", report::machine(), process.elapsed().as_secs_f64() * 1e3);
    if !std::env::args().any(|a| a == "--cold") {
        let start = Instant::now();
        kernel_llvm::load()?;
        println!("LLVM loaded in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    }
    let n = 1 << 20;
    let x = device.zeros::<f32>(n)?;
    let mut out = device.zeros::<f32>(n)?;
    timed("first launch of add", &device, || add::<1024>(&x, &x, &mut out, n as i32).grid(n / 1024).launch(&device))?;
    timed("second launch of add", &device, || add::<1024>(&x, &x, &mut out, n as i32).grid(n / 1024).launch(&device))?;
    timed("first launch of softmax", &device, || softmax::<4096>(&x, &mut out, 4096).grid(n / 4096).launch(&device))?;
    Ok(())
}
