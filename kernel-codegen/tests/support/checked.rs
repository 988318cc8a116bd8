//! Kernels as the passes that plan their checks leave them.

use kernel_codegen::checks::{CheckPlan, Checks};
use kernel_codegen::{Options, Stage, Target, pass_names, run_named};
use kernel_core::ir::Func;
use kernel_core::text;

/// The last of those passes.
const LAST: &str = "unsigned_division";

/// A kernel with its checks, and their plan.
pub fn checked(func: Func, checks: Checks) -> (Func, CheckPlan) {
    let source = text::print(&func);
    let names = pass_names();
    let last = names.iter().position(|name| *name == LAST).expect("the pass is there");
    let kernel = Stage::new(func).unwrap_or_else(|_| panic!("the kernel is generic:\n{source}"));
    let options = Options { checks, ..Options::default() };
    let (kernel, plan) = run_named(kernel, &names[..=last], &Target::sm_90a(), &options)
        .unwrap_or_else(|error| panic!("{error}\n{source}"));
    (kernel.func().clone(), plan)
}

/// The same of a kernel's text.
pub fn prepare(source: &str, checks: Checks) -> (Func, CheckPlan) {
    checked(text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}")), checks)
}
