//! What the tests of generated code share.

use tilewright::launch::{CompiledKernel, LaunchVariant};
use tilewright::prelude::*;
use tilewright_tests::assembler::assemble;

pub(crate) const H100: Target = Target::sm_90a();

/// Registers of a multiprocessor.
const REGISTERS: usize = 65_536;

/// Asserts that a launch runs the variant without checks, that nothing is spilled, that a multiprocessor has registers
/// for `warps` warps at once, and that memory is accessed 16 bytes at a time but for the buffers named in `narrow`.
#[track_caller]
pub(crate) fn check(name: &str, kernel: Result<CompiledKernel, Error>, warps: usize, narrow: &[&str]) {
    let kernel = match kernel {
        Ok(kernel) => kernel,
        Err(error) => panic!("{name}: {error}"),
    };
    assert!(matches!(kernel.variant(), LaunchVariant::Fast), "{name}: {}", kernel.variant());
    for line in kernel.report().lines().filter(|line| line.contains("is accessed by")) {
        assert!(narrow.iter().any(|buffer| line.contains(&format!("`{buffer}`"))), "{name}: {line}");
    }
    let Some(assembled) = assemble(kernel.ptx(), "sm_90a") else { return };
    assert_eq!(assembled.spills, 0, "{name}: {}", assembled.log);
    // Registers are given to a warp by 8 a thread.
    let used = assembled.registers.next_multiple_of(8) as usize * 32 * warps;
    assert!(used <= REGISTERS, "{name}: {} registers a thread, with {warps} warps", assembled.registers);
}
