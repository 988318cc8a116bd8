//! Attention, forward and backward, against Triton's.
//!
//! ```text
//! python3 benches/peers/compile_attention.py benches/peers/cubins/attention   # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench attention                           # on a machine with a GPU
//! python3 benches/peers/attention_peers.py benches/results/attention_peers.csv   # cuDNN's, through PyTorch
//! cargo bench -p tilewright-bench --bench attention -- --only attention,attention_causal --shapes x128
//! ```
//! Rates are in TFLOP/s, of `4 * heads * length^2 * d` operations forward and 2.5 times as many backward, half of them
//! under a causal mask. Without the cubins, only Tilewright runs. `--out DIR` and `--cubins DIR` name other folders.
//! Without `--bench`, which `cargo bench` adds, results are only checked, at a small size, on whatever device there is.

#[path = "kernels/attention/mod.rs"]
mod kernels;

use tilewright::prelude::*;
use tilewright_bench::stage::{Effort, Mode, Page};
use tilewright_bench::{Failure, Stage, report};

const PAGE: Page = Page {
    results: "attention.csv",
    attempts: "attention_attempts.csv",
    unit: "TFLOP/s",
    cubins: "attention",
    effort: Effort::FULL,
    records: false,
};

fn main() -> Result<(), Failure> {
    let device = Device::best()?;
    let time = std::env::args().any(|a| a == "--bench");
    let mode = if time && device.is_cuda() { Mode::Time } else { Mode::Check };
    if time && mode == Mode::Check {
        println!("no CUDA device: nothing is timed, results are checked at a small size");
    }
    let list = |name: &str| -> Vec<String> {
        report::argument(name).map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default()
    };
    let mut stage = Stage::of(PAGE, &device, mode.clone(), list("--only"), list("--shapes"))?;
    kernels::all(&mut stage, mode == Mode::Time)?;
    if mode == Mode::Time {
        stage.finish()?;
    }
    match stage.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}
