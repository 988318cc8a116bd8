//! The library's functions, as they are called, against peers for the same work, with the time that the device needs at least.
//!
//! ```text
//! python3 benches/peers/compile_families.py benches/peers/cubins/families    # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench kernels                            # on a machine with a GPU
//! python3 benches/peers/family_peers.py benches/results/kernels_peers.csv    # right after it: PyTorch's functions
//! cargo run --release -p tilewright-bench --bin families-page                # the page, from both
//! ```
//! `--only WORK,WORK..`, `--shapes PART,PART..`, `--out DIR` and `--cubins DIR` as in `bandwidth`; `--seconds N` begins no work
//! after so many. `--tune` tunes instead of comparing with peers: `families/tuned.rs` says how. The library runs as it chooses (`tilewright`), and in configurations that a table may choose in its place
//! (`tilewright tuned`, the best of them); of a peer's configurations the best counts. Works run in a process of their own: if
//! a kernel faults or never ends, another process goes on behind that work. Without `--bench` each function is only checked, at
//! small sizes, on whatever device there is.

mod families;

use std::time::Duration;
use tilewright::prelude::*;
use tilewright_bench::stage::{Effort, Mode, Page};
use tilewright_bench::{Failure, Stage, report, supervise};

const PAGE: Page = Page {
    results: "kernels.csv",
    attempts: "",
    unit: "GB/s",
    cubins: "families",
    effort: Effort::BRIEF,
    records: true,
};

/// How long a work may say nothing: more than the slowest compilation and reference.
const SILENCE: Duration = Duration::from_secs(45);

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let time = arguments.iter().any(|a| a == "--bench");
    let is_child = arguments.iter().any(|a| a == supervise::CHILD);
    if time && !is_child && Device::best()?.is_cuda() {
        return supervised(&arguments);
    }
    let device = Device::best()?;
    let mode = if time && device.is_cuda() { Mode::Time } else { Mode::Check };
    if time && mode == Mode::Check {
        println!("no CUDA device: nothing is timed, functions are checked at small sizes");
    }
    let list = |name: &str| -> Vec<String> {
        report::argument(name).map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default()
    };
    let only = list(if is_child { "--works" } else { "--only" });
    let mut stage = Stage::of(PAGE, &device, mode.clone(), only, list("--shapes"))?;
    let ran = families::all(&mut stage);
    if mode == Mode::Time {
        if let Err(why) = ran {
            // The device can do nothing more: whoever started this process goes on.
            println!("STOPPED {why}");
            std::process::exit(supervise::STOPPED);
        }
        return stage.finish();
    }
    ran?;
    match stage.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}

/// Has the works done in processes of their own.
fn supervised(arguments: &[String]) -> Result<(), Failure> {
    let only = report::argument("--only");
    let works: Vec<&str> = families::works()
        .filter(|name| only.as_ref().is_none_or(|only| only.split(',').any(|wanted| wanted == *name)))
        .collect();
    if let Some(unknown) = only.iter().flat_map(|only| only.split(',')).find(|name| !works.contains(name)) {
        return Err(format!(
            "there is no work {unknown}; there are {}",
            families::works().collect::<Vec<_>>().join(", ")
        )
        .into());
    }
    let path = report::folder().join(PAGE.results);
    std::fs::create_dir_all(report::folder())?;
    std::fs::write(&path, format!("# {}; arguments: {}\n", report::machine(), report::arguments()))?;
    let seconds = report::argument("--seconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(3600);
    let program = std::env::current_exe()?;
    let lost = supervise::all(&program, &works, arguments, SILENCE, Duration::from_secs(seconds))?;
    if lost.is_empty() { Ok(()) } else { Err(format!("not done: {}", lost.join(", ")).into()) }
}
