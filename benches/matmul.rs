//! Matrix products against Triton's, in all its forms, and the vendor's libraries.
//!
//! ```text
//! python3 benches/peers/compile_matmul.py benches/peers/cubins/matmul    # once, anywhere: needs triton, no GPU
//! cargo bench -p tilewright-bench --bench matmul                         # on a machine with a GPU
//! cargo bench -p tilewright-bench --bench matmul -- --only skinny,8192x8192x8192 --quick
//! ```
//! Without the cubins or cuBLAS, the others run. `--only` takes parts of `DTYPE GROUP MxNxK`, `--skip` parts of
//! `CONTENDER CONFIGURATION` to leave out, `--quick` takes fewer rounds and tries, `--seed N` repeats the data of a
//! run, `--out DIR`, `--cubins DIR` and `--cublas DIR` name other folders. `--python python3` compares cold
//! compilations with Triton's in that Python, which needs PyTorch. `--tiles 64x128x64x4x4,128x128x64x5x8/2` tries
//! other configurations of ours: BM x BN x BK x stages x warps, and `/` how many programs share a tile. `--ladder`
//! measures the kernels of `tilewright::guide::matmul` instead; `--search` how good the tuner is at them
//! (`kernels/matmul/search`).
//!
//! Without `--bench`, which `cargo bench` adds, our kernels are only checked, at small sizes, on whatever device there
//! is. `--look DIR` writes the PTX of every configuration at full size instead, which needs no GPU.

#[path = "kernels/matmul/mod.rs"]
mod kernels;

use tilewright::prelude::*;
use tilewright_bench::look::Look;
use tilewright_bench::product::bench::{Bench, Page};
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, report};

fn main() -> Result<(), Failure> {
    if std::env::args().any(|a| a == kernels::cold::ONCE) {
        return kernels::cold::once(&Device::best()?);
    }
    if let Some(what) = report::argument("--search") {
        return kernels::search::begin(&what, &Device::best()?);
    }
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
    let only = report::argument("--only").map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default();
    let page = if std::env::args().any(|a| a == "--ladder") { Page::Ladder } else { Page::Products };
    let mut bench = Bench::new(&device, mode.clone(), only, page)?;
    let held = match page {
        // A check is of everything.
        Page::Products if mode == Mode::Check => {
            kernels::all(&mut bench).and_then(|()| kernels::ladder::hold(&mut bench))
        }
        Page::Products => kernels::all(&mut bench),
        Page::Ladder => kernels::ladder::hold(&mut bench),
    };
    if mode == Mode::Time {
        bench.finish()?;
        if let Some(python) = report::argument("--python") {
            kernels::cold::compare(&python)?;
        }
    }
    held?;
    match bench.failures() {
        [] => Ok(()),
        failures => Err(format!("{} configurations failed:\n{}", failures.len(), failures.join("\n")).into()),
    }
}
