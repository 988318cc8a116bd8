//! What the first launch of a kernel costs in a fresh process, stage by stage.
//!
//! ```text
//! cargo bench -p tilewright-bench --bench first_launch             # LLVM loaded before the clock starts
//! cargo bench -p tilewright-bench --bench first_launch -- --cold   # everything
//! cargo bench -p tilewright-bench --bench first_launch -- --compare python3   # cold compilations against Triton's
//! cargo bench -p tilewright-bench --bench first_launch -- --warm WITH WITHOUT # caches and archives, in new processes
//! ```
//! The driver keeps what it compiled on disk: `CUDA_CACHE_DISABLE=1` shows the cost without that.
//!
//! `--warm` takes two builds of the example `09_shipping`, one with the feature `jit` and one without, lets each run in new
//! processes that find their kernels in a warm cache, in a cold one, nowhere, or in an archive, and writes `warm.csv`.
//!
//! The comparison also says where our time goes: before the driver, in the driver's compiler, and how much of the latter
//! an empty kernel takes, which is what the driver's compiler costs at the least.

#[path = "first_launch/warm.rs"]
mod warm;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use cudarc::driver::sys;
use tilewright::prelude::*;
use tilewright_bench::{Failure, account, median, report};

/// Compilations of each kernel on each side.
const TIMES: usize = 5;

/// Triton's side, which must be files for Triton to find its kernels' source.
const SCRIPTS: [(&str, &str); 2] =
    [("kernels.py", include_str!("peers/kernels.py")), ("cold_kernels.py", include_str!("peers/cold_kernels.py"))];

/// A kernel that does nothing.
const EMPTY: &std::ffi::CStr = c".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry empty() { ret; }\n";

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

/// Layer norm of each row.
#[kernel]
pub fn layer_norm<const BLOCK: usize>(
    x: Ptr<f32>,
    weight: Ptr<f32>,
    bias: Ptr<f32>,
    out: PtrMut<f32>,
    means: PtrMut<f32>,
    rstds: PtrMut<f32>,
    columns: i32,
    eps: f32,
) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = row * columns + column;
    let values = load(x + offsets, mask = mask, other = 0.0);
    let mean = sum(values, axis = 0) / columns as f32;
    let centered = select(mask, values - mean, 0.0);
    let rstd = 1.0 / sqrt(sum(centered * centered, axis = 0) / columns as f32 + eps);
    store(means + row, mean);
    store(rstds + row, rstd);
    let scaled = centered * rstd * load(weight + column, mask = mask) + load(bias + column, mask = mask);
    store(out + offsets, scaled, mask = mask);
}

/// Compiles, loads and launches each kernel once, after another that initialised LLVM and the driver's compiler, and
/// prints a line of its name and the milliseconds, and one for each of its two parts. The line of `empty` is what the
/// driver takes to compile and load a kernel that does nothing.
fn once(device: &Device) -> Result<(), Failure> {
    let n = 1 << 16;
    let x = device.zeros::<f32>(n)?;
    let (mut out, mut means, mut rstds) = (device.zeros::<f32>(n)?, device.zeros::<f32>(16)?, device.zeros::<f32>(16)?);
    add::<256>(&x, &x, &mut out, n as i32).grid(n / 256).launch(device)?;
    device.synchronize()?;
    account::print()?;
    let rows = n / 4096;
    timed("add", device, || add::<1024>(&x, &x, &mut out, n as i32).grid(n / 1024).launch(device))?;
    timed("softmax", device, || softmax::<4096>(&x, &mut out, 4096).grid(rows).num_warps(8).launch(device))?;
    let call = layer_norm::<4096>(&x, &x, &x, &mut out, &mut means, &mut rstds, 4096, 1e-5);
    timed("layer_norm", device, || call.grid(rows).num_warps(8).launch(device))?;
    let mut empty = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends in zero, and the launches have made a context current.
        unsafe { sys::cuModuleLoadData(&mut module, EMPTY.as_ptr().cast()) }.result()?;
        empty.push(start.elapsed().as_secs_f64() * 1e3);
    }
    println!("empty: {:.2} ms", median(&mut empty));
    Ok(())
}

/// The lines `name: milliseconds ms` or `name milliseconds` that a program prints, by name, and those of our parts.
fn figures(command: &mut Command, into: &mut BTreeMap<String, Vec<f64>>) -> Result<(), Failure> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((name, ms)) = account::part(line) {
            into.entry(name).or_default().push(ms);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, ms, ..] = words[..]
            && let Ok(ms) = ms.parse::<f64>()
        {
            into.entry(name.trim_end_matches(':').to_string()).or_default().push(ms);
        }
    }
    Ok(())
}

/// Cold compilations to a loaded function on both sides, the driver's compiler initialised and its cache off;
/// writes `compile.csv`.
fn compare(python: &str) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let mut ours = BTreeMap::new();
    for _ in 0..TIMES {
        figures(Command::new(&own).arg("--once").env("CUDA_CACHE_DISABLE", "1"), &mut ours)?;
    }
    let folder = std::env::temp_dir().join(format!("tilewright-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (name, text) in SCRIPTS {
        std::fs::write(folder.join(name), text)?;
    }
    let mut triton = BTreeMap::new();
    let measured =
        figures(Command::new(python).arg(folder.join("cold_kernels.py")).arg(TIMES.to_string()), &mut triton);
    std::fs::remove_dir_all(&folder)?;
    measured?;
    let mut all = |name: &str| {
        let times = ours.get_mut(name).ok_or_else(|| format!("no time of {name}"))?;
        Ok::<f64, String>(median(times))
    };
    let mut csv = format!(
        "# {}\n# the driver compiles and loads an empty kernel in {:.1} ms\n\
         kernel,tilewright ms,before the driver ms,in the driver ms,triton ms,time relative to triton\n",
        report::machine(),
        all("empty")?
    );
    for (name, peer) in &mut triton {
        let (ours, peer) = (all(name)?, median(peer));
        let [before, driver] = [all(&format!("{name} before the driver"))?, all(&format!("{name} in the driver"))?];
        csv += &format!("{name},{ours:.1},{before:.1},{driver:.1},{peer:.1},{:.3}\n", ours / peer);
    }
    print!("{csv}");
    Ok(report::write("compile.csv", &csv)?)
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

fn main() -> Result<(), Failure> {
    let process = Instant::now();
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--compare") {
        return compare(arguments.get(at + 1).map_or("python3", String::as_str));
    }
    if let Some(at) = arguments.iter().position(|a| a == "--warm") {
        let program =
            |number: usize| arguments.get(at + number).ok_or("--warm takes two builds of the example 09_shipping");
        return warm::measure(program(1)?.as_ref(), program(2)?.as_ref());
    }
    if arguments.iter().any(|a| a == "--once") {
        return once(&Device::best()?);
    }
    account::print()?;
    let device = Device::best()?;
    println!("{}; device ready after {:.1} ms", report::machine(), process.elapsed().as_secs_f64() * 1e3);
    if !arguments.iter().any(|a| a == "--cold") {
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
