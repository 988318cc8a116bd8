//! The library's functions of rows, as they are called, against Triton's kernels for the same work.
//!
//! ```text
//! python3 benches/peers/compile.py benches/peers/cubins        # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench kernels_rows         # on a machine with a GPU
//! ```
//! `--only`, `--out` and `--cubins` as in `bandwidth`. Each peer has several configurations, the best of which counts; the
//! library runs with the configuration that it chooses. Without `--bench` each function is only checked, at small sizes.

mod rows;

use tilewright::prelude::*;
use tilewright_bench::stage::{Mode, Page};
use tilewright_bench::{Failure, Stage, report};

const PAGE: Page =
    Page { results: "kernels_rows.csv", attempts: "kernels_rows_attempts.csv", unit: "GB/s", cubins: "" };

fn main() -> Result<(), Failure> {
    let device = Device::best()?;
    let time = std::env::args().any(|a| a == "--bench");
    let mode = if time && device.is_cuda() { Mode::Time } else { Mode::Check };
    if time && mode == Mode::Check {
        println!("no CUDA device: nothing is timed, functions are checked at small sizes");
    }
    let only = report::argument("--only").map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default();
    let mut stage = Stage::of(PAGE, &device, mode.clone(), only, Vec::new())?;
    rows::all(&mut stage)?;
    if mode == Mode::Time {
        stage.finish()?;
    }
    match stage.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}
