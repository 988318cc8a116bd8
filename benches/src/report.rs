//! Results as CSV and as a table to read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// The folder for results: `--out DIR` on the command line, else `results` beside the benchmarks.
pub fn folder() -> PathBuf {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|a| a == "--out").and_then(|i| args.get(i + 1));
    given.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("results"), PathBuf::from)
}

/// The folder with the peers' cubins: `--cubins DIR` on the command line, else `peers/cubins` beside the benchmarks.
pub fn cubins() -> PathBuf {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|a| a == "--cubins").and_then(|i| args.get(i + 1));
    given.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/cubins"), PathBuf::from)
}

/// The GPU, its driver, clocks and reasons for throttling, as `nvidia-smi` tells them.
pub fn machine() -> String {
    let query = "name,driver_version,clocks.sm,clocks.mem,clocks_event_reasons.active,temperature.gpu,power.draw";
    let output = Command::new("nvidia-smi").args([&format!("--query-gpu={query}"), "--format=csv,noheader"]).output();
    match output {
        Ok(o) if o.status.success() => String::from_utf8_lossy(&o.stdout).trim().to_string(),
        Ok(_) | Err(_) => "unknown GPU".to_string(),
    }
}

/// The outcomes as CSV, under a comment line with the machine.
pub fn csv(machine: &str, outcomes: &[Outcome]) -> String {
    let mut out = format!("# {machine}\nwork,shape,dtype,contender,config,ms,GB/s,rate relative to the row's first\n");
    for o in outcomes {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{:.5},{:.1},{:.4}",
            o.work, o.shape, o.dtype, o.contender, o.config, o.ms, o.gbps, o.ratio_to_first
        );
    }
    out
}

/// The outcomes as a table.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let mut last = String::new();
    for o in outcomes {
        let row = format!("{} {} {}", o.work, o.shape, o.dtype);
        let title = if row == last { String::new() } else { row.clone() };
        let _ = writeln!(
            out,
            "{title:<28} {:<12} {:>9.4} ms {:>8.1} GB/s  x{:<7.3} {}",
            o.contender, o.ms, o.gbps, o.ratio_to_first, o.config
        );
        last = row;
    }
    out
}

/// Writes a file of results, making its folder.
///
/// # Errors
/// If the file system refuses.
pub fn write(name: &str, text: &str) -> std::io::Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), text)
}
