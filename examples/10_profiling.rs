//! Profiling: which kernels took how long, as a table, as CSV and as a trace; what the hardware did meanwhile; and lines of
//! the source, here and in NVIDIA's tools.
//!
//! ```text
//! cargo run --release --example 10_profiling                # a table; target/profile has the trace and the CSV
//! cargo run --release --example 10_profiling -- counters    # bytes, and how busy what was; `-- counters NAME NAME` counts others
//! cargo run --release --example 10_profiling -- lines       # on which lines programs were, and what they waited for
//! cargo run --release --example 10_profiling -- wrong       # a store that is out of bounds, for compute-sanitizer:
//!
//! cargo build --release --example 10_profiling
//! TILEWRIGHT_LINE_INFO=1 compute-sanitizer target/release/examples/10_profiling wrong
//! TILEWRIGHT_LINE_INFO=1 ncu --set source target/release/examples/10_profiling
//! nsys profile target/release/examples/10_profiling         # shows the ranges
//! ```

use std::path::PathBuf;

use tilewright::bench::Bench;
use tilewright::prelude::*;
use tilewright::profile;

/// x * Phi(x), by the approximation with tanh.
#[device]
fn gelu<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
    let inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + tanh(inner))
}

/// out[i] = gelu(x[i] + bias[i % columns])
#[kernel]
pub fn bias_gelu<const BLOCK: usize>(x: Ptr<f32>, bias: Ptr<f32>, out: PtrMut<f32>, columns: i32, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let sum = load(x + i, mask = i < n) + load(bias + i % columns, mask = i < n);
    store(out + i, gelu(sum), mask = i < n);
}

/// Softmax of each row of a row-major matrix.
#[kernel]
pub fn softmax<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let start = program_id(0) as i64 * columns as i64;
    let row = load(x + start + column, mask = column < columns, other = f32::NEG_INFINITY);
    let numerator = exp(row - max(row, axis = 0));
    store(out + start + column, numerator / sum(numerator, axis = 0), mask = column < columns);
}

/// out[offset + i] = value, and nothing sees to it that this is inside.
///
/// # Safety
///
/// The buffer has `offset + BLOCK` elements.
#[kernel]
pub unsafe fn fill_at<const BLOCK: usize>(out: PtrMut<f32>, value: f32, offset: i64) {
    let i = offset + arange(0, BLOCK) as i64;
    store(out + i, value);
}

/// What a layer takes and gives.
struct Layer {
    rows: usize,
    columns: usize,
    x: Buffer<f32>,
    bias: Buffer<f32>,
    y: Buffer<f32>,
    out: Buffer<f32>,
    line_info: bool,
}

impl Layer {
    fn new(device: &Device, line_info: bool) -> Result<Layer, Error> {
        let (rows, columns) = if device.is_cuda() { (8192, 4096) } else { (8, 1000) };
        let n = rows * columns;
        let x = device.upload(&(0..n).map(|i| (i % 997) as f32 / 100.0 - 5.0).collect::<Vec<_>>())?;
        let (bias, y, out) = (device.full(columns, 0.25f32)?, device.zeros(n)?, device.zeros(n)?);
        Ok(Layer { rows, columns, x, bias, y, out, line_info })
    }

    fn run(&mut self, device: &Device) -> Result<(), Error> {
        let (rows, columns) = (self.rows, self.columns);
        let n = rows * columns;
        bias_gelu::<1024>(&self.x, &self.bias, &mut self.y, columns as i32, n as i32)
            .grid(n.div_ceil(1024))
            .line_info(self.line_info)
            .launch(device)?;
        SoftmaxConsts { BLOCK: columns.next_power_of_two() }
            .call(&self.y, &mut self.out, columns as i32)
            .grid(rows)
            .line_info(self.line_info)
            .launch(device)
    }
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match arguments.first().map(String::as_str) {
        None => times(&device),
        Some("counters") => counters(&device, if names.is_empty() { profile::COUNTERS } else { &names }),
        Some("lines") => lines(&device),
        Some("wrong") => wrong(&device),
        Some(other) => {
            eprintln!("{other}: there are counters, lines and wrong");
            std::process::exit(2);
        }
    }
}

/// Which kernels took how long.
fn times(device: &Device) -> Result<(), Error> {
    let mut layer = Layer::new(device, false)?;
    // Kernels are compiled by their first launch, which would be part of the profile.
    layer.run(device)?;

    let ((), profile) = profile(device, || {
        for step in 0..5 {
            let _range = profile::range(&format!("step {step}"));
            layer.run(device)?;
        }
        Ok(())
    })?;
    println!("{profile}");
    for row in profile.rows() {
        assert_eq!((row.times_ns.len(), row.place.map(|place| place.file)), (5, Some(file!())));
    }

    let folder = PathBuf::from("target/profile");
    std::fs::create_dir_all(&folder).map_err(|why| Error::Unsupported {
        what: format!("making {}", folder.display()).into(),
        reason: why.to_string().into(),
    })?;
    profile.save_trace(folder.join("trace.json"))?;
    profile.save_csv(folder.join("kernels.csv"))?;
    println!("{} has a trace for https://ui.perfetto.dev, and the runs as CSV", folder.display());

    let kernels: u64 = profile.rows().iter().map(|row| row.median_ns()).sum();
    let layer = Bench::new(device)?.warm().run("the layer", || layer.run(device))?;
    println!("its kernels: {:.4} ms; all of {layer}", kernels as f64 / 1e6);
    Ok(())
}

/// What the hardware did.
fn counters(device: &Device, names: &[&str]) -> Result<(), Error> {
    let mut layer = Layer::new(device, false)?;
    layer.run(device)?;
    let ((), profile) = profile::counters(device, names, || (0..3).try_for_each(|_| layer.run(device)))?;
    println!("{profile}");
    Ok(())
}

/// Where programs were.
fn lines(device: &Device) -> Result<(), Error> {
    let mut layer = Layer::new(device, true)?;
    layer.run(device)?;
    let ((), profile) = profile::samples(device, || (0..100).try_for_each(|_| layer.run(device)))?;
    println!("{profile}");
    Ok(())
}

/// Stores far behind a buffer. `compute-sanitizer` says which line of which kernel does.
fn wrong(device: &Device) -> Result<(), Error> {
    let mut out = device.zeros::<f32>(1024)?;
    // SAFETY: on a GPU this is as wrong as it looks, which is what it is for; the CPU checks all accesses.
    unsafe { fill_at::<128>(&mut out, 1.0, 1 << 34).grid(1).launch(device)? };
    println!("{:?}", out.to_vec());
    Ok(())
}
