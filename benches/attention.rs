//! Attention, forward and backward, against Triton's.
//!
//! ```text
//! python3 benches/peers/compile_attention.py benches/peers/cubins/attention   # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench attention                           # on a machine with a GPU
//! cargo bench -p tilewright-bench --bench attention -- --beside "python3 benches/peers/attention_peers.py"
//! cargo bench -p tilewright-bench --bench attention -- --only attention,attention_causal --shapes x128
//! ```
//! Rates are in TFLOP/s, of `4 * heads * length^2 * d` operations forward and 2.5 times as many backward, half of them
//! under a causal mask. `--beside` starts a process that takes its turns in the same rounds: cuDNN, through PyTorch. Without
//! the cubins, Triton does not run. `--out DIR` and `--cubins DIR` name other folders.
//! `--ladder` measures the kernels of `tilewright::guide::attention` instead; with `--look DIR` it writes their PTX for
//! Hopper, which needs no GPU.
//!
//! Without `--bench`, which `cargo bench` adds, results are only checked, at a small size, on whatever device there is.

#[path = "kernels/attention/mod.rs"]
mod kernels;

use tilewright::prelude::*;
use tilewright_bench::companion::Companion;
use tilewright_bench::look::Look;
use tilewright_bench::stage::{Effort, Mode, Page};
use tilewright_bench::{Failure, Stage, attention_ladder, attention_page, report};

const PAGE: Page = Page {
    results: attention_page::RESULTS,
    attempts: "attention_attempts.csv",
    unit: "TFLOP/s",
    cubins: "attention",
    effort: Effort::FULL,
    records: false,
};

const LADDER: Page = Page {
    results: attention_ladder::RESULTS,
    attempts: "attention_ladder_attempts.csv",
    unit: "TFLOP/s",
    cubins: "attention",
    effort: Effort::FULL,
    records: false,
};

fn main() -> Result<(), Failure> {
    let look = report::argument("--look");
    let device = if look.is_some() { Device::cpu() } else { Device::best()? };
    let (time, ladder) = (given("--bench"), given("--ladder") || look.is_some());
    let mode = match look {
        Some(folder) => Mode::Look(Look::into_folder(folder.into())?),
        None if time && device.is_cuda() => Mode::Time,
        None => Mode::Check,
    };
    if time && mode == Mode::Check {
        println!("no CUDA device: nothing is timed, results are checked at a small size");
    }
    let list = |name: &str| -> Vec<String> {
        report::argument(name).map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default()
    };
    let page = if ladder { LADDER } else { PAGE };
    let beside = report::argument("--beside").filter(|_| mode == Mode::Time);
    let beside = beside.map(|command| Companion::start(&command)).transpose()?;
    let mut stage = Stage::of(page, &device, mode.clone(), list("--only"), list("--shapes"))?.beside(beside);
    // A check is of everything.
    if !ladder || mode == Mode::Check {
        kernels::all(&mut stage, mode == Mode::Time)?;
    }
    if ladder || mode == Mode::Check {
        kernels::ladder::hold(&mut stage, &mode)?;
    }
    if mode == Mode::Time {
        stage.finish()?;
        if ladder {
            print!("{}", attention_ladder::page(&report::folder())?);
        }
    }
    match stage.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}

fn given(argument: &str) -> bool {
    std::env::args().any(|a| a == argument)
}
