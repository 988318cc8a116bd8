//! First launches in new processes: where the kernels come from, and what that takes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_bench::{Failure, median, report};

/// Processes of each kind.
const TIMES: usize = 9;

/// The kernels of the example, in its order.
const KERNELS: [&str; 3] = ["add", "softmax", "matmul"];

/// A folder that is gone afterwards.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where a process finds its kernels.
struct Kind {
    name: &'static str,
    /// Whether it can compile.
    has_compiler: bool,
    archive: Option<&'static str>,
    cache: Cache,
    /// Whether the driver may keep what it compiles.
    driver_keeps: bool,
}

/// The cache on disk.
#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Off,
    /// A new folder for each process.
    Cold,
    /// That of all processes before.
    Warm,
}

/// Everything that is measured. Cold kinds come in pairs, of which the second is held against the first.
const KINDS: [Kind; 8] = [
    kind("compiled, no cache", true, None, Cache::Off, false),
    kind("compiled, cold cache", true, None, Cache::Cold, false),
    kind("warm cache", true, None, Cache::Warm, true),
    kind("warm cache, driver's cache off", true, None, Cache::Warm, false),
    kind("archive with machine code", false, Some("code.twa"), Cache::Off, true),
    kind("archive with machine code, driver's cache off", false, Some("code.twa"), Cache::Off, false),
    kind("archive of PTX", false, Some("ptx.twa"), Cache::Off, true),
    kind("archive of PTX and warm cache, driver's cache off", false, Some("ptx.twa"), Cache::Warm, false),
];

const fn kind(
    name: &'static str,
    has_compiler: bool,
    archive: Option<&'static str>,
    cache: Cache,
    driver_keeps: bool,
) -> Kind {
    Kind { name, has_compiler, archive, cache, driver_keeps }
}

/// Measures both builds, and writes a table. Kinds take turns.
///
/// # Errors
///
/// If a build does not run, or the results cannot be written.
pub fn measure(with: &Path, without: &Path) -> Result<(), Failure> {
    let folder = Folder(std::env::temp_dir().join(format!("tilewright-warm-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0)?;
    let at = |name: &str| folder.0.join(name);
    let has_code = write(with, &at("code.twa"), None)?;
    write(with, &at("ptx.twa"), Some("off"))?;
    let mut times = BTreeMap::<(usize, String), Vec<f64>>::new();
    // The first round fills the caches.
    for round in 0..=TIMES {
        for (index, kind) in KINDS.iter().enumerate() {
            let mut command = Command::new(if kind.has_compiler { with } else { without });
            if let Some(archive) = kind.archive {
                command.arg("run").arg(at(archive));
            }
            match kind.cache {
                Cache::Off => command.env("TILEWRIGHT_CACHE", "off"),
                Cache::Warm => command.env("TILEWRIGHT_CACHE", at("warm")),
                Cache::Cold => command.env("TILEWRIGHT_CACHE", at(&format!("cold-{round}"))),
            };
            command.env("CUDA_CACHE_PATH", at("driver"));
            command.env("CUDA_CACHE_DISABLE", if kind.driver_keeps { "0" } else { "1" });
            let mut one = BTreeMap::new();
            super::figures(&mut command, &mut one)?;
            let kept = one.into_iter().filter(|_| round > 0);
            kept.for_each(|(name, ms)| times.entry((index, name)).or_default().extend(ms));
        }
    }
    let csv = table(&mut times, has_code);
    print!("{csv}");
    Ok(report::write("warm.csv", &csv)?)
}

/// Has the build write an archive; gives whether there is machine code in it.
fn write(with: &Path, archive: &Path, ptxas: Option<&str>) -> Result<bool, Failure> {
    let mut command = Command::new(with);
    command.arg("write").arg(archive).env("TILEWRIGHT_CACHE", "off");
    if let Some(value) = ptxas {
        command.env("TILEWRIGHT_PTXAS", value);
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(!String::from_utf8_lossy(&output.stdout).contains("without machine code"))
}

/// The medians, and what a cold cache takes relative to none.
fn table(times: &mut BTreeMap<(usize, String), Vec<f64>>, has_code: bool) -> String {
    let mut csv = format!("# {}\n", report::machine());
    if !has_code {
        csv.push_str("# no ptxas was found: no archive has machine code\n");
    }
    csv.push_str("kernels come from,opening the archive ms,add ms,softmax ms,matmul ms\n");
    let mut all = Vec::new();
    for (index, kind) in KINDS.iter().enumerate() {
        let mut of = |name: &str| times.get_mut(&(index, name.to_string())).map_or(f64::NAN, |times| median(times));
        let opened = kind.archive.map_or_else(String::new, |_| format!("{:.3}", of("archive")));
        let medians = KERNELS.map(&mut of);
        let _ = writeln!(csv, "{},{opened},{:.3},{:.3},{:.3}", kind.name, medians[0], medians[1], medians[2]);
        all.push(medians);
    }
    let ratios: Vec<String> = all[1].iter().zip(&all[0]).map(|(cold, none)| format!("{:.3}", cold / none)).collect();
    let _ = writeln!(csv, "cold cache relative to none,,{}", ratios.join(","));
    csv
}
