//! Placed kernels as they are written: in the interpreter and in the emulator.

use kernel_codegen::{Compiled, Options, Target, compile_placed};
use kernel_core::interp::{HostBuffer, run_placed};
use kernel_core::ir::Placed;

use super::assemble;
use super::differential::{Agreement, compare, emulate_placed};

/// A kernel with these parameters and layouts, which are numbered.
pub fn placed(params: &[&str], layouts: &[&str], body: &str) -> Placed {
    let params: String = params.iter().map(|param| format!("  param {param}\n")).collect();
    let layouts: String =
        (0..).zip(layouts).map(|(i, layout): (u32, _)| format!("  layout #{i} = {layout}\n")).collect();
    let text = format!("kernel placed \"placed.rs\" unsafe placed {{\n{params}{layouts}{body}\n  return\n}}");
    let func = kernel_core::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    if let Err(problems) = kernel_core::verify::verify(&func) {
        panic!("{problems:?}\n{text}");
    }
    Placed::new(func).unwrap_or_else(|_| panic!("the kernel is not placed"))
}

pub fn compiled(kernel: &Placed, num_warps: u32) -> Compiled {
    let options = Options { num_warps, ..Options::default() };
    let compiled = compile_placed(kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
    assemble(&compiled);
    compiled
}

/// Runs a kernel in the interpreter and in the emulator.
pub fn check(kernel: &Placed, num_warps: u32, buffers: &[HostBuffer]) -> Compiled {
    let compiled = compiled(kernel, num_warps);
    let mut expected = buffers.to_vec();
    run_placed(kernel, &mut expected, &[], [1, 1, 1]).unwrap_or_else(|error| panic!("{error:?}"));
    for seed in 1..3 {
        let found = emulate_placed(kernel.func(), &compiled, buffers, seed);
        for (want, got) in expected.iter().zip(&found) {
            compare(want, got, Agreement::Exact, &compiled.ptx);
        }
    }
    compiled
}
