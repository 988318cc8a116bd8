//! How long the persistent product takes to compile, from its source to a loaded function, against Triton's.
//!
//! Each of our compilations is in a process of its own, without the driver's cache; what a process does once (loading
//! LLVM and the driver's compiler, which another kernel needed before) is not counted, on either side.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tilewright::prelude::*;
use tilewright_bench::{Failure, account, median, report};

use super::descriptor::PersistentConsts;
use super::reading::ReadConsts;

/// Compilations on each side.
const TIMES: usize = 5;
/// The argument that makes a process compile once and print how long that took.
pub const ONCE: &str = "--compile-once";

/// Triton's side, which must be files for Triton to find its kernels' source.
const SCRIPTS: [(&str, &str); 2] = [
    ("matmul.py", include_str!("../../peers/matmul.py")),
    ("cold_compile.py", include_str!("../../peers/cold_compile.py")),
];

/// Compiles, loads and launches the kernel once, and prints the milliseconds.
pub fn once(device: &Device) -> Result<(), Failure> {
    let size = 1024usize;
    let (x, mut sums) = (device.zeros::<f16>(size * size)?, device.zeros::<f32>(size)?);
    let n = size as i32;
    ReadConsts { BLOCK: size, STEPS: 1 }.call(&x, &mut sums, n * n).grid(size).launch(device)?;
    device.synchronize()?;
    let mut c = device.zeros::<f16>(size * size)?;
    device.synchronize()?;
    account::print()?;
    let start = Instant::now();
    let (a, b) = (TensorDesc::new(&x, [size, size])?, TensorDesc::new(&x, [size, size])?);
    let mut c = TensorDescMut::new(&mut c, [size, size])?;
    let consts = PersistentConsts { BM: 128, BN: 256, BK: 64, GROUP: super::tile::GROUP };
    consts.call(&a, &b, &mut c, n, n, n).grid(32).num_warps(8).num_stages(3).launch(device)?;
    device.synchronize()?;
    println!("{}", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// What a program prints in one compilation: milliseconds, and of ours the parts before and in the driver.
#[derive(Clone, Copy, Debug)]
struct Run {
    total: f64,
    parts: Option<[f64; 2]>,
}

/// The compilations that a program reports: one number per line, behind the account of its parts, if it prints one.
fn runs(command: &mut Command) -> Result<Vec<Run>, Failure> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = why.lines().rev().take(5).collect();
        return Err(format!("{command:?} failed: {}", last.join(" < ")).into());
    }
    let (mut runs, mut parts) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((_, ms)) = account::part(line) {
            parts.push(ms);
        } else if let Ok(total) = line.trim().parse() {
            let own = std::mem::take(&mut parts);
            runs.push(Run { total, parts: <[f64; 2]>::try_from(own).ok() });
        }
    }
    Ok(runs)
}

fn triton(python: &str) -> Result<Vec<Run>, Failure> {
    let folder = std::env::temp_dir().join(format!("tilewright-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (name, text) in SCRIPTS {
        std::fs::write(folder.join(name), text)?;
    }
    let script = folder.join("cold_compile.py");
    let result = runs(Command::new(python).arg(&script).arg(TIMES.to_string()));
    remove(&folder);
    result
}

/// Removes the folder of the scripts. What is left of it in the temporary files harms nobody.
fn remove(folder: &Path) {
    if let Err(why) = std::fs::remove_dir_all(folder) {
        println!("{} is left: {why}", folder.display());
    }
}

/// Measures both sides and writes `matmul_compile.csv`. Who cannot be measured is reported and left out.
pub fn compare(python: &str) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let ours: Result<Vec<Vec<Run>>, Failure> =
        (0..TIMES).map(|_| runs(Command::new(&own).arg(ONCE).env("CUDA_CACHE_DISABLE", "1"))).collect();
    let mut lines = String::from("contender,run,ms,before the driver ms,in the driver ms\n");
    let mut medians = Vec::new();
    for (name, runs) in [("tilewright", ours.map(|all| all.concat())), ("triton", triton(python))] {
        match runs {
            Ok(runs) if !runs.is_empty() => {
                for (number, Run { total, parts }) in runs.iter().enumerate() {
                    let parts = parts.map_or(",".to_string(), |[before, driver]| format!("{before:.1},{driver:.1}"));
                    lines += &format!("{name},{number},{total:.1},{parts}\n");
                }
                let ms = median(&mut runs.iter().map(|run| run.total).collect::<Vec<_>>());
                medians.push(ms);
                println!("cold compile of the persistent kernel, {name}: {ms:.1} ms");
                let part = |which: usize| runs.iter().filter_map(|run| Some(run.parts?[which])).collect::<Vec<_>>();
                let (mut before, mut driver) = (part(0), part(1));
                if !before.is_empty() {
                    println!("  {:.1} ms before the driver, {:.1} ms in it", median(&mut before), median(&mut driver));
                }
            }
            Ok(_) => println!("cold compile, {name}: no figures"),
            Err(why) => println!("cold compile, {name}: {why}"),
        }
    }
    if let [ours, triton] = medians[..] {
        println!("cold compile: {:.2} of Triton's time, target 0.50", ours / triton);
    }
    Ok(report::write("matmul_compile.csv", &lines)?)
}
