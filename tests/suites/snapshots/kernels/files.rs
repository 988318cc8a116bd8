//! The kernels that are written as tile IR.

use std::collections::BTreeMap;

use kernel_codegen::checks::Checks;
use kernel_codegen::{Options, compile};
use kernel_core::ir::Bound;
use tilewright::{Error, Target};
use tilewright_filetests::split_cases;

use super::Collector;

/// Name and text of every `.tile` file test of `kernel-core`, in order.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tile_files.rs"));

/// The same of the code generator's kernels.
static KERNELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/kernel_files.rs"));

/// Compiles every case of the file tests that its stages make a bound kernel, with 4 warps, checked at launch and, for
/// Hopper, with each access checked.
pub(super) fn filetests(to: &mut Collector<'_>) {
    for (file, text) in FILES {
        let mut numbers = BTreeMap::new();
        for case in split_cases(text).iter().filter(|case| case.errors.is_empty()) {
            let func = case.run_stages().unwrap_or_else(|_| panic!("{file}:{}: a stage fails", case.line));
            let Ok(bound) = Bound::new(func) else { continue };
            // Cases may give their kernels one name.
            let number = numbers.entry(bound.func().name.clone()).and_modify(|number| *number += 1).or_insert(1);
            let name = format!("{file}/{} {number}", bound.func().name);
            to.add(&name, |target| ptx(&bound, target, 4, Checks::AtLaunch));
            if to.target == Target::sm_90a() {
                to.add(&format!("{name} checked"), |target| ptx(&bound, target, 4, Checks::EveryAccess));
            }
        }
    }
}

/// Compiles the code generator's kernels with 4 warps, and those whose products fill the registers of 8 with 8.
pub(super) fn kernels(to: &mut Collector<'_>) {
    for (file, text) in KERNELS {
        let func = kernel_core::text::parse(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let bound = Bound::new(func).unwrap_or_else(|_| panic!("{file}: the kernel is not bound"));
        let num_warps = if text.contains("= dot ") { 8 } else { 4 };
        to.add(&format!("{file} warps={num_warps}"), |target| ptx(&bound, target, num_warps, Checks::AtLaunch));
    }
}

fn ptx(kernel: &Bound, target: Target, num_warps: u32, checks: Checks) -> Result<String, Error> {
    let options = Options { num_warps, checks, ..Options::default() };
    let compiled = compile(kernel, &target, &options);
    compiled.map(|compiled| compiled.ptx).map_err(|error| Error::Llvm { message: error.to_string().into() })
}
