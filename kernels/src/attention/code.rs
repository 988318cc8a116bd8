//! What the kernels become for a GPU, without one.

use super::forward::AttentionConsts;
use tilewright::launch::{CompiledKernel, Target};
use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble_to, disassemble};

/// What a kernel became.
pub(super) struct Code {
    pub(super) report: String,
    /// Bytes of registers that were stored to memory.
    pub(super) spills: u32,
    /// What ptxas said.
    pub(super) log: String,
    /// Instructions of the innermost loops with products.
    pub(super) loops: Vec<Trip>,
}

/// One trip through a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trip {
    pub(super) instructions: usize,
    pub(super) wgmma: usize,
    pub(super) mma: usize,
    /// Stores of registers to shared memory.
    pub(super) stores: usize,
}

/// The innermost loops with products of a program's text.
fn loops(sass: &str) -> Vec<Trip> {
    let lines: Vec<&str> = sass.lines().map(str::trim).collect();
    let label = |name: &str| lines.iter().position(|line| line.strip_suffix(':') == Some(name));
    let mut found: Vec<(usize, Trip)> = vec![];
    for (end, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("BRA")) {
        let Some(target) = line.find(".L_").map(|at| &line[at..]) else { continue };
        let target = &target[..target.find([')', '`', ';', ' ']).unwrap_or(target.len())];
        let Some(begin) = label(target).filter(|begin| *begin < end) else { continue };
        let body = &lines[begin..=end];
        let count = |what: &str| body.iter().filter(|line| line.contains(what)).count();
        let trip = Trip {
            instructions: body.iter().filter(|line| line.contains("/*") && line.contains(';')).count(),
            wgmma: count("HGMMA"),
            mma: count("HMMA.") + count("DMMA"),
            stores: count("STS"),
        };
        let inner = found.iter().any(|(other, _)| *other >= begin);
        if trip.wgmma + trip.mma > 0 && count("EXIT") == 0 && !inner {
            found.push((begin, trip));
        }
    }
    found.into_iter().map(|(_, trip)| trip).collect()
}

/// `None` where ptxas or nvdisasm is missing.
pub(super) fn code(name: &str, compiled: Result<CompiledKernel, Error>, architecture: &str) -> Option<Code> {
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let (assembled, cubin) = assemble_to(compiled.ptx(), architecture)?;
    let loops = loops(&disassemble(&cubin)?);
    let report = compiled.report().to_owned();
    let notes: Vec<&str> = assembled.log.lines().filter(|line| line.contains("C75")).collect();
    println!("{name} {architecture}: {} registers, {} bytes spilled, {loops:?} {notes:?}", assembled.registers, assembled.spills);
    for line in report.lines().filter(|line| line.contains("shared memory,") || line.contains(": loop ")) {
        println!("  {}", line.trim());
    }
    Some(Code { report, spills: assembled.spills, log: assembled.log, loops })
}

impl Code {
    /// Asserts that nothing is spilled, and that ptxas changes no products.
    #[track_caller]
    pub(super) fn assert_clean(&self, name: &str) {
        assert_eq!(self.spills, 0, "{name}");
        assert!(!self.log.contains("C75"), "{name}: {}", self.log);
    }

    /// Asserts that products are those of warp groups, fed by tensor copies of warps of their own.
    #[track_caller]
    pub(super) fn assert_fed(&self, name: &str) {
        assert!(self.report.contains("loop fed by warps of their own"), "{name}: {}", self.report);
        assert!(self.loops.iter().all(|trip| trip.wgmma > 0 && trip.mma == 0), "{name}: {:?}", self.loops);
    }
}

#[test]
fn forward_look() {
    fn one<T: Float>(d: usize, dv: usize, packed: bool, cap: bool, bias: bool, target: Target, arch: &str) {
        let cc = match arch { "sm_80" => (8, 0), _ => (9, 0) };
        let c = super::forward::ForwardConfig::rule(Some(cc), 8 * size_of::<T>(), d.max(dv), !cap && !bias);
        let compiled = AttentionConsts { BM: c.block_q, BN: c.block_k, D: d, DV: dv }
            .request::<T>(bias, packed, packed, cap).num_warps(c.num_warps as u32).num_stages(c.num_stages as u32).compile(target);
        let name = format!("{} d{d} {dv} packed {packed} cap {cap} bias {bias}", T::ELEMENT);
        match &compiled { Err(e) => println!("{name} {arch}: {e}"), Ok(_) => { code(&name, compiled, arch); } }
    }
    for (t, a) in [(Target::sm_80 as fn() -> Target, "sm_80"), (Target::sm_90a, "sm_90a")] {
        for (d, dv) in [(32, 32), (64, 64), (128, 128), (256, 128), (256, 256)] {
            one::<f16>(d, dv, false, false, false, t(), a);
            one::<f32>(d, dv, false, false, false, t(), a);
            one::<f64>(d, dv, false, false, false, t(), a);
        }
        one::<f16>(128, 128, true, false, false, t(), a);
        one::<f16>(128, 128, false, true, false, t(), a);
        one::<f16>(128, 128, false, false, true, t(), a);
    }
}
