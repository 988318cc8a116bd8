//! The kernels of the benchmarks, in all configurations that they try, at full size.

use std::cell::RefCell;
use std::rc::Rc;

use tilewright::Device;
use tilewright_bench::look::Look;
use tilewright_bench::product::bench::{Bench, Page};
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, Stage};

use super::{Code, Collector};

#[allow(dead_code, reason = "the benchmark of compile times is not used here")]
#[path = "../../../../benches/kernels/matmul/mod.rs"]
mod matmul;
#[allow(dead_code, reason = "references and peers are not used here")]
#[path = "../../../../benches/kernels/mod.rs"]
mod memory;

/// The kernels that are limited by memory.
pub(super) fn bandwidth(collector: &mut Collector<'_>) {
    look(collector, |device, mode| {
        let mut stage = Stage::new(device, mode, Vec::new(), Vec::new())?;
        memory::all(&mut stage)?;
        Ok(stage.failures().to_vec())
    });
}

/// The matrix products.
pub(super) fn products(collector: &mut Collector<'_>) {
    look(collector, |device, mode| {
        let mut bench = Bench::new(device, mode, Vec::new(), Page::Products)?;
        matmul::all(&mut bench)?;
        Ok(bench.failures().to_vec())
    });
}

/// The steps of the guide to matrix products.
pub(super) fn guide(collector: &mut Collector<'_>) {
    look(collector, |device, mode| {
        let mut bench = Bench::new(device, mode, Vec::new(), Page::Ladder)?;
        matmul::ladder::hold(&mut bench)?;
        Ok(bench.failures().to_vec())
    });
}

/// Products of one dtype and group whose sizes divide alike give the same code, as does every order of programs: one size
/// of each, and one order.
pub(super) fn is_representative(name: &str) -> bool {
    const SIZES: [&str; 8] = [
        "f16_4096x4096x4096",
        "bf16_4096x4096x4096",
        "f16_1024x1024x1024",
        "f16_3072x3072x3072",
        "bf16_16x8192x8192",
        "bf16_16_2048x2048x2048",
        "f8e4m3_8192x8192x8192",
        "f32_4096x4096x4096",
    ];
    SIZES.iter().any(|size| name.contains(&format!("/{size}_"))) && !name.contains("GROUP=")
}

/// Whether the size in the name of a memory-bound kernel is a multiple of 16, at an aligned address: `add_65536_f32..`, not
/// `add_65536+1_f32..`.
pub(super) fn is_even(name: &str) -> bool {
    let is_size = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit());
    let size = name.split('_').find(is_size).and_then(|size| size.parse::<usize>().ok());
    size.is_some_and(|size| size % 16 == 0)
}

/// Has a benchmark look at its code, and collects that.
fn look(collector: &mut Collector<'_>, hold: impl FnOnce(&Device, Mode) -> Result<Vec<String>, Failure>) {
    let (target, source, wanted) = (collector.target, collector.source.name(), collector.wanted);
    let found = Rc::new(RefCell::new(Vec::new()));
    let kept = found.clone();
    let wants = move |name: &str| wanted(&format!("{source}/{name}"), target);
    let keep = move |name: &str, ptx: &str| {
        kept.borrow_mut().push(Code { name: format!("{source}/{name}"), target, ptx: ptx.to_string() });
        Ok(())
    };
    let failures = hold(&Device::cpu(), Mode::Look(Look::new(target, wants, keep)));
    let failures = failures.unwrap_or_else(|why| panic!("{source} for {}: {why}", target.name()));
    assert!(failures.is_empty(), "{source} for {}:\n{}", target.name(), failures.join("\n"));
    found.take().into_iter().for_each(|code| (collector.keep)(code));
}
