//! Kernels that are limited by memory, against Triton's and the driver's copy.
//!
//! ```text
//! python3 benches/peers/compile.py benches/peers/cubins        # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench bandwidth            # on a machine with a GPU
//! cargo bench -p tilewright-bench --bench bandwidth -- --only softmax,add --shapes +1,x1000
//! ```
//! Without the cubins, only Tilewright and the copy run. `--out DIR` and `--cubins DIR` name other folders.
//! Without `--bench`, which `cargo bench` adds, each kernel is only checked, at small sizes, on whatever device there
//! is. `--look DIR` writes the PTX of every configuration at full size instead, which needs no GPU.

mod kernels;

use tilewright::prelude::*;
use tilewright_bench::look::Look;
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, Stage, report};

fn main() -> Result<(), Failure> {
    let look = report::argument("--look");
    let device = if look.is_some() { Device::cpu() } else { Device::best()? };
    let time = std::env::args().any(|a| a == "--bench");
    let mode = match look {
        Some(folder) => Mode::Look(Look::into_folder(folder.into())?),
        None if time && device.is_cuda() => Mode::Time,
        None => Mode::Check,
    };
    if time && mode == Mode::Check {
        println!("no CUDA device: nothing is timed, kernels are checked at small sizes");
    }
    let list = |name: &str| -> Vec<String> {
        report::argument(name).map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default()
    };
    let mut stage = Stage::new(&device, mode.clone(), list("--only"), list("--shapes"))?;
    kernels::all(&mut stage)?;
    if mode == Mode::Time {
        stage.finish()?;
    }
    match stage.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}
