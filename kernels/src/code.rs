//! What kernels become for a GPU, without one: what the tests of generated code share. `--nocapture` shows it.

use std::collections::BTreeMap;
use tilewright::launch::{CompiledKernel, LaunchVariant};
use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble, assemble_as_loaded, assemble_to, disassemble};

pub(crate) const H100: Target = Target::sm_90a();

/// Registers of a multiprocessor.
const REGISTERS: usize = 65_536;

/// What a kernel became.
pub(crate) struct Code {
    pub(crate) report: String,
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Bytes of registers that were stored to memory.
    pub(crate) spills: u32,
    pub(crate) instructions: usize,
    /// What ptxas said.
    pub(crate) log: String,
    pub(crate) sass: String,
    /// The innermost loops with products.
    pub(crate) loops: Vec<Trip>,
}

/// The instructions of one trip through a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trip {
    pub(crate) instructions: usize,
    pub(crate) wgmma: usize,
    pub(crate) mma: usize,
    /// Stores of registers to shared memory.
    pub(crate) stores: usize,
    /// Accesses to spilled registers.
    pub(crate) local: usize,
}

impl Code {
    /// `None` where ptxas or nvdisasm is missing.
    pub(crate) fn of(compiled: &CompiledKernel, architecture: &str) -> Option<Code> {
        let (assembled, cubin) = assemble_to(compiled.ptx(), architecture)?;
        let sass = disassemble(&cubin)?;
        Some(Code {
            report: compiled.report().to_owned(),
            registers: assembled.registers,
            spills: assembled.spills,
            instructions: assembled.instructions,
            log: assembled.log,
            loops: loops(&sass),
            sass,
        })
    }

    /// How often an instruction is there whose text has all of these parts.
    pub(crate) fn count(&self, parts: &[&str]) -> usize {
        self.sass.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    /// One line about it.
    pub(crate) fn summary(&self) -> String {
        let count = |parts: &[&str]| self.count(parts);
        format!(
            "{} registers, {} bytes spilled, {} instructions, {} HGMMA/QGMMA, {} HMMA/QMMA/DMMA, {} UTMALDG, {} UTMASTG, \
             {} LDGSTS.128 of {}, {} LDG.128 of {}, {} STG.128 of {}, {} C75xx",
            self.registers,
            self.spills,
            self.instructions,
            count(&["GMMA.64x"]),
            count(&["MMA.1"]) + count(&["DMMA"]),
            count(&["UTMALDG"]),
            count(&["UTMASTG"]),
            count(&["LDGSTS", ".128"]),
            count(&["LDGSTS"]),
            count(&["LDG.E", ".128"]),
            count(&["LDG.E"]),
            count(&["STG.E", ".128"]),
            count(&["STG.E"]),
            self.log.matches("C75").count(),
        )
    }

    /// Asserts that nothing is spilled, and that ptxas changes no products (its warnings C75xx).
    #[track_caller]
    pub(crate) fn assert_clean(&self, what: &str) {
        assert_eq!(self.spills, 0, "{what}: {}", self.summary());
        assert!(!self.log.contains("C75"), "{what}: {}", self.log);
    }

    /// Asserts that products are those of warp groups, fed by tensor copies of warps of their own.
    #[track_caller]
    pub(crate) fn assert_fed(&self, what: &str) {
        assert!(self.report.contains("loop fed by warps of their own"), "{what}: {}", self.report);
        assert!(self.loops.iter().all(|trip| trip.wgmma > 0 && trip.mma == 0), "{what}: {:?}", self.loops);
    }
}

/// The innermost loops with products of a program's text.
fn loops(sass: &str) -> Vec<Trip> {
    let lines: Vec<&str> = sass.lines().map(str::trim).collect();
    let labels: BTreeMap<&str, usize> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
    let mut found: Vec<(usize, Trip)> = vec![];
    for (end, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("BRA")) {
        let Some(target) = line.find(".L_").map(|at| &line[at..]) else { continue };
        let target = &target[..target.find([')', '`', ';', ' ']).unwrap_or(target.len())];
        let Some(&begin) = labels.get(target).filter(|begin| **begin < end) else { continue };
        let body = &lines[begin..=end];
        let count = |what: &str| body.iter().filter(|line| line.contains(what)).count();
        let trip = Trip {
            instructions: body.iter().filter(|line| line.contains("/*") && line.contains(';')).count(),
            wgmma: count("HGMMA") + count("QGMMA"),
            mma: count("HMMA.") + count("DMMA"),
            // Not those of `cp.async`.
            stores: count("STS") - count("LDGSTS"),
            local: count("LDL") + count("STL"),
        };
        let inner = found.iter().any(|(other, _)| *other >= begin);
        if trip.wgmma + trip.mma > 0 && count("EXIT") == 0 && !inner {
            found.push((begin, trip));
        }
    }
    found.into_iter().map(|(_, trip)| trip).collect()
}

/// What a report says is not accessed 16 bytes at a time: buffers, and the bytes of their narrowest accesses.
fn narrowest(report: &str) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    for (place, rest) in report.lines().filter_map(|line| line.split_once("` is accessed by ")) {
        let buffer = place.rsplit('`').next().unwrap_or_default();
        let bytes = rest.split(' ').next().and_then(|bytes| bytes.parse().ok());
        let bytes: usize = bytes.unwrap_or_else(|| panic!("no number of bytes: {rest}"));
        found.entry(buffer).and_modify(|known: &mut usize| *known = bytes.min(*known)).or_insert(bytes);
    }
    found
}

/// Asserts that a launch runs the variant without checks, that nothing is spilled, that a multiprocessor has registers
/// for `warps` warps at once, and that memory is accessed 16 bytes at a time but for the buffers named in `narrow`, whose
/// narrowest access has just so many bytes.
#[track_caller]
pub(crate) fn check_launch(name: &str, kernel: Result<CompiledKernel, Error>, warps: usize, narrow: &[(&str, usize)]) {
    let kernel = kernel.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(matches!(kernel.variant(), LaunchVariant::Fast), "{name}: {}", kernel.variant());
    let expected = BTreeMap::from_iter(narrow.iter().copied());
    assert_eq!(narrowest(kernel.report()), expected, "{name}: what is narrow\n{}", kernel.report());
    let Some(assembled) = assemble(kernel.ptx(), "sm_90a") else { return };
    assert_eq!(assembled.spills, 0, "{name}: {}", assembled.log);
    // Registers are given to a warp by 8 a thread.
    let used = assembled.registers.next_multiple_of(8) as usize * 32 * warps;
    assert!(used <= REGISTERS, "{name}: {} registers a thread, with {warps} warps", assembled.registers);
}

/// Instructions of PTX whose number is shown.
const SHOWN: [&str; 10] = [
    "ld.global",
    "st.global",
    "atom",
    "wgmma.mma",
    "mma.sync",
    "cp.async",
    "bar.sync",
    "shfl",
    "ld.shared",
    "st.shared",
];

/// Asserts that a kernel for Hopper has these instructions of PTX, that it fits into registers, and that ptxas serialises no
/// matrix products (its warnings C75xx). Skipped without ptxas.
#[track_caller]
pub(crate) fn check_instructions(name: &str, compiled: Result<CompiledKernel, Error>, instructions: &[&str]) {
    let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {error}"));
    let ptx = compiled.ptx();
    for instruction in instructions {
        assert!(ptx.contains(instruction), "{name} has no {instruction}:\n{}", compiled.report());
    }
    let Some(assembled) = assemble_as_loaded(ptx, "sm_90a") else { return };
    let mut kinds = BTreeMap::<&str, usize>::new();
    for word in ptx.split_whitespace().filter(|word| SHOWN.iter().any(|shown| word.starts_with(shown))) {
        *kinds.entry(word).or_default() += 1;
    }
    eprintln!("{name}: {} registers, {} instructions, {kinds:?}", assembled.registers, assembled.instructions);
    assert_eq!(assembled.spills, 0, "{name}:\n{}", assembled.log);
    assert!(!assembled.log.contains("C75"), "{name}:\n{}", assembled.log);
}
