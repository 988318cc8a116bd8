//! Kernels as the passes that plan their checks leave them.

use kernel_codegen::checks::{CheckPlan, Checks, Class, LaunchEnv};
use kernel_codegen::{Options, Stage, Target, pass_names, run_named};
use kernel_core::ir::Func;
use kernel_core::text;
use std::sync::LazyLock;

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

/// A launch: scalar arguments and buffer lengths by parameter, and the grid's first axis.
pub struct Launch<'a> {
    /// By parameter.
    pub scalars: &'a [Option<i128>],
    /// By parameter.
    pub lengths: &'a [u64],
    /// Programs along the first axis.
    pub grid: u32,
}

/// What is said of each access.
pub fn classes(source: &str) -> Vec<Class> {
    prepare(source, Checks::AtLaunch).1.accesses.iter().map(|a| a.class).collect()
}

/// Whether a launch meets the conditions, by which all accesses are decided.
pub fn holds(source: &str, launch: &Launch<'_>) -> bool {
    let (_, plan) = prepare(source, Checks::AtLaunch);
    assert!(plan.accesses.iter().all(|a| a.class == Class::LaunchCondition), "{:?}", plan.accesses);
    plan.conditions.hold(&LaunchEnv { scalars: launch.scalars, lengths: launch.lengths, grid: [launch.grid, 2, 1] })
}

/// A safe kernel of blocks of `len` numbers: `%0` is read, `%1` is written, `%8` are the places of a program's block, `%9` is
/// `n` in each of its lanes.
pub fn blocks(name: &str, len: usize, body: &str) -> String {
    format!(
        r#"kernel {name} "k.rs" safe bound {{
  param %0 x: ptr f32
  param %1 out: ptr_mut f32
  param %2 n: i32
  %3: i32 = program_id {{axis = 0}}
  %4: i32 = const {len}
  %5: i32 = mul %3, %4
  %6: i32[{len}] = splat %5
  %7: i32[{len}] = arange {{lo = 0, hi = {len}}}
  %8: i32[{len}] = add %6, %7
  %9: i32[{len}] = splat %2
{body}
  return
}}
"#
    )
}

/// A copy of blocks of 64 under a mask.
pub static MASKED: LazyLock<String> = LazyLock::new(|| {
    blocks(
        "copy",
        64,
        "  %10: bool[64] = cmp.lt %8, %9
  %11: *x[64] = splat %0
  %12: *x[64] = add_ptr %11, %8
  %13: f32[64] = load %12, %10
  %14: *out[64] = splat %1
  %15: *out[64] = add_ptr %14, %8
  store %15, %13, %10",
    )
});

/// A safe kernel that copies elements of `%x` to the same places of `%out`. `body` makes the places, a tile of this shape, and
/// the mask, if there is one, of the parameter `%n`.
pub fn copy(shape: &str, body: &str, places: &str, mask: Option<&str>) -> String {
    let mask = mask.map_or_else(String::new, |mask| format!(", {mask}"));
    format!(
        r#"kernel copy "k.rs" safe bound {{
  param %x x: ptr f32
  param %out out: ptr_mut f32
  param %n n: i32
{body}
  %xs: *x{shape} = splat %x
  %xp: *x{shape} = add_ptr %xs, {places}
  %v: f32{shape} = load %xp{mask}
  %os: *out{shape} = splat %out
  %op: *out{shape} = add_ptr %os, {places}
  store %op, %v{mask}
  return
}}
"#
    )
}
