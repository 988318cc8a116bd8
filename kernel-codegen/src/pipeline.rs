//! The way of a kernel through the code generator.

use std::collections::HashMap;
use std::time::Instant;

use kernel_core::diag::Diagnostic;
use kernel_core::ir::{BoundFunc, DType, ElementwiseOp, Func, GpuOp, Op, Placed, Safety, Span, ValueId};
use kernel_core::passes::{PassOptions, optimise as run_passes};
use kernel_core::verify::verify;
use kernel_llvm::{Pairs, emit_ptx, kept_machine, load, new_context, optimise};

use crate::analysis::axis::AxisAnalysis;
use crate::check::{self, CheckPlan, LaunchConditions};
use crate::compiled::{Compiled, LlvmIr, Timings};
use crate::error::CodegenError;
use crate::options::{MAX_WARPS, Options};
use crate::passes::warp_specialize::Division;
use crate::passes::{
    choose_products, descriptors, dots, hoist_loads, membar, pipeline, tensor_copies, warp_specialize, whole_trips,
};
use crate::report::LoopReport;
use crate::target::Target;
use crate::{dot, lower, negations, place};

/// The names of this crate's optimisation passes that [`Options::disabled_passes`] may leave out, beside those of
/// [`kernel_core::passes::PASSES`]: each can be switched off without changing what a kernel computes.
pub const PASSES: [&str; 5] = ["hoist_loads", "whole_trips", "warp_specialize", "pipeline", "llvm"];

/// Compiles a bound kernel for a target.
///
/// # Errors
/// If the options make no sense, the kernel asks for more than the target or the code generator has, or there is
/// no usable LLVM.
pub fn compile(kernel: &BoundFunc, target: &Target, options: &Options) -> Result<Compiled, CodegenError> {
    compile_watched(kernel, target, options, &mut |_, _, _| {})
}

/// As [`compile`], and shows the kernel to `watcher` after every pass, by the pass's name, with the plan of its checks
/// as far as that is made. Tests run what they are shown. A kernel that has no room as a whole and is divided instead is
/// shown both ways, one after the other, from `warp_specialize` on.
///
/// # Errors
/// As [`compile`].
pub fn compile_watched(
    kernel: &BoundFunc,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
) -> Result<Compiled, CodegenError> {
    run_to_placed(kernel, target, options, watcher, |placed, loops, plan, timings| {
        let mut compiled = generate(placed, target, options, plan, timings)?;
        compiled.report.loops = loops;
        Ok(compiled)
    })
}

/// The passes of [`compile_watched`] alone: the placed kernel that code would be generated from, with the conditions
/// under which it may be launched. Needs no LLVM, and does not notice a kernel that has no room.
///
/// # Errors
/// As [`compile`].
pub fn place_watched(
    kernel: &BoundFunc,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
) -> Result<(Placed, LaunchConditions), CodegenError> {
    run_to_placed(kernel, target, options, watcher, |placed, _, plan, _| Ok((placed, plan.conditions)))
}

/// Runs all passes, then `finish` on what comes out.
fn run_to_placed<T>(
    kernel: &BoundFunc,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
    finish: impl Fn(Placed, Vec<LoopReport>, CheckPlan, Timings) -> Result<T, CodegenError>,
) -> Result<T, CodegenError> {
    let mut timings = Timings::default();
    check_options(kernel.func(), options)?;

    let start = Instant::now();
    let mut bound = kernel.clone();
    let mut plan = checks(bound.func_mut(), options);
    let mut after = |pass, func: &Func, plan: &CheckPlan| passed(pass, func, plan, watcher);
    after("bounds_checks", bound.func(), &plan)?;
    let copied = tensor_copies::choose(bound.func(), *target, options.tensor_copies);
    plan.accesses.extend(descriptors::expand(bound.func_mut(), &copied));
    after("descriptors", bound.func(), &plan)?;
    choose_products::run(bound.func_mut(), *target, options.num_warps);
    after("choose_products", bound.func(), &plan)?;
    clean_up(&mut bound, options)?;
    after("clean_up", bound.func(), &plan)?;
    if options.runs("hoist_loads") {
        hoist_loads::run(bound.func_mut(), options.num_warps);
        after("hoist_loads", bound.func(), &plan)?;
    }
    let func = bound.into_func();
    let axis = AxisAnalysis::new(&func);
    timings.analyse = start.elapsed();

    let start = Instant::now();
    let mut func = place::place(func, &axis, options.num_warps)?;
    after("place", &func, &plan)?;
    if options.runs("whole_trips") {
        let failed = whole_trips::run(&mut func);
        failed.map_err(|error| CodegenError::internal(&func, Span::UNKNOWN, "whole_trips", error.message))?;
        after("whole_trips", &func, &plan)?;
    }
    dots::run(&mut func)?;
    after("dots", &func, &plan)?;
    timings.place = start.elapsed();
    let other = warp_specialize::might_run(&func, *target, options).then(|| func.clone());
    let mut attempt = |func, division| -> Result<T, CodegenError> {
        let start = Instant::now();
        let mut after = |pass, func: &Func| after(pass, func, &plan);
        let (placed, loops) = overlap(func, *target, options, plan.exact, division, &mut after)?;
        let timings = Timings { place: timings.place + start.elapsed(), ..timings };
        finish(placed, loops, plan.clone(), timings)
    };
    match (attempt(func, Division::WherePays), other) {
        // What pays may have no room: a whole block on its way to memory, say, which a divided kernel sends in pieces.
        (Err(error), Some(func)) if error.exceeds_a_limit() => {
            attempt(func, Division::WherePossible).map_err(|_| error)
        }
        (result, _) => result,
    }
}

/// Overlaps what loops fetch with what they compute, by warps of their own or by a pipeline; says what became of each.
fn overlap(
    mut func: Func,
    target: Target,
    options: &Options,
    exact: bool,
    division: Division,
    after: &mut dyn FnMut(&'static str, &Func) -> Result<(), CodegenError>,
) -> Result<(Placed, Vec<LoopReport>), CodegenError> {
    let (mut divided, mut loops) = (false, Vec::new());
    if options.runs("warp_specialize") {
        (divided, loops) = warp_specialize::run(&mut func, target, options, division)?;
        after("warp_specialize", &func)?;
    }
    if !divided && options.runs("pipeline") {
        loops.extend(pipeline::run(&mut func, target, options, exact)?);
        after("pipeline", &func)?;
    }
    tensor_copies::run(&mut func);
    after("tensor_copies", &func)?;
    membar::run(&mut func);
    after("membar", &func)?;
    Ok((placed(func)?, loops))
}

/// Who sees a kernel after each pass: the pass's name, the kernel, and the plan of its checks.
pub type Watcher<'w> = dyn FnMut(&'static str, &Func, &CheckPlan) + 'w;

/// What follows every pass: in debug and test builds the verifier, always the watcher.
fn passed(pass: &'static str, func: &Func, plan: &CheckPlan, watcher: &mut Watcher<'_>) -> Result<(), CodegenError> {
    if cfg!(debug_assertions)
        && let Err(problems) = verify(func)
    {
        return Err(broken(pass, func, &problems));
    }
    watcher(pass, func, plan);
    Ok(())
}

/// The first rule of the verifier that a pass broke.
fn broken(pass: &str, func: &Func, problems: &[Diagnostic]) -> CodegenError {
    let first = problems.first();
    let span = first.map_or(Span::UNKNOWN, |first| first.span);
    let what = first.map_or("the kernel breaks a rule that has no text", |first| &first.message);
    CodegenError::internal(func, span, pass, what)
}

/// Compiles a kernel at the placed level as it stands, for a target: what follows placement in [`compile`].
///
/// # Errors
/// As [`compile`].
pub fn compile_placed(kernel: &Placed, target: &Target, options: &Options) -> Result<Compiled, CodegenError> {
    check_options(kernel.func(), options)?;
    generate(kernel.clone(), target, options, CheckPlan::default(), Timings::default())
}

/// From a placed kernel to PTX.
fn generate(
    placed: Placed,
    target: &Target,
    options: &Options,
    plan: CheckPlan,
    mut timings: Timings,
) -> Result<Compiled, CodegenError> {
    let start = Instant::now();
    let llvm = load()?;
    let machine = kept_machine(llvm, target.name(), target.features(dot::has_f8(placed.func())))?;
    let context = new_context(llvm);
    let axis = AxisAnalysis::new(placed.func());
    let lowered = lower::lower(&context, &machine, placed.func(), &axis, *target, options)?;
    let text = |module: &kernel_llvm::inkwell::module::Module| {
        if options.keep_llvm_ir { module.print_to_string().to_string() } else { String::new() }
    };
    let before = text(&lowered.module);
    timings.lower = start.elapsed();

    let start = Instant::now();
    if options.runs("llvm") {
        optimise(&lowered.module, &machine, pairs(placed.func()))?;
    }
    let after = text(&lowered.module);
    timings.optimise = start.elapsed();

    let start = Instant::now();
    let ptx = negations::keep(emit_ptx(&lowered.module, &machine)?);
    timings.emit = start.elapsed();

    let mut report = lowered.report;
    classify(&mut report, &plan);
    report.promises = plan.promises;
    Ok(Compiled {
        entry: lower::symbol(&placed.func().name),
        ptx,
        target: *target,
        placed,
        llvm_ir: options.keep_llvm_ir.then_some(LlvmIr { lowered: before, optimised: after }),
        shared_bytes: lowered.shared_bytes,
        num_warps: lowered.block_warps,
        min_programs: lowered.min_programs,
        abi: lowered.abi,
        sites: lowered.sites,
        conditions: plan.conditions,
        report,
        timings,
    })
}

/// Whether LLVM shall search for pairs of 16-bit floats: where they are computed with, or moved in a kernel without
/// matrix products. What a product's kernel does with them besides is to round sums, which lowering pairs itself; and
/// it has hundreds of them.
fn pairs(func: &Func) -> Pairs {
    let is_half = |&value: &ValueId| matches!(func.ty(value).dtype(), Some(DType::F16 | DType::BF16));
    let (mut halves, mut computes, mut multiplies) = (false, false, false);
    for operation in func.ops.iter() {
        let half = operation.operands.iter().any(is_half);
        halves |= half;
        computes |= half && matches!(&operation.op, Op::Elementwise(op) if !matches!(op, ElementwiseOp::Cast { .. }));
        multiplies |= matches!(operation.op, Op::Dot(_) | Op::Gpu(GpuOp::Wgmma { .. }));
    }
    if computes || (halves && !multiplies) { Pairs::Searched } else { Pairs::AsBuilt }
}

fn check_options(func: &Func, options: &Options) -> Result<(), CodegenError> {
    let warps = options.num_warps;
    if warps.is_power_of_two() && warps <= MAX_WARPS {
        return Ok(());
    }
    let refuse = |what: String| CodegenError::refuse(func, Span::UNKNOWN, what);
    let error = match warps > MAX_WARPS {
        true => refuse("warps".to_string()).amounts(u64::from(warps), u64::from(MAX_WARPS)),
        false => refuse(format!("a program of {warps} warps")),
    };
    Err(error.help("num_warps is a power of two from 1 to 32"))
}

/// Keeps the accesses of a safe kernel inside their buffers.
fn checks(func: &mut Func, options: &Options) -> CheckPlan {
    match func.safety {
        Safety::Safe => check::insert(func, options.checks),
        Safety::Unsafe => {
            check::pointers::canonicalise(func);
            CheckPlan::default()
        }
    }
}

/// Runs the target-independent passes over what the checks left.
fn clean_up(bound: &mut BoundFunc, options: &Options) -> Result<(), CodegenError> {
    let disabled = options.disabled_passes.clone();
    let options = PassOptions { disabled, ..PassOptions::default() };
    run_passes(bound, &options).map_err(|problems| refused(bound.func(), &problems))
}

/// The first of several problems.
fn refused(func: &Func, problems: &[Diagnostic]) -> CodegenError {
    match problems.first() {
        Some(first) => {
            let error = CodegenError::refuse(func, first.span, first.message.clone());
            first.help.iter().fold(error, |error, help| error.help(help.clone()))
        }
        None => CodegenError::refuse(func, Span::UNKNOWN, "a pass failed without a reason"),
    }
}

/// What the passes leave is at the placed level.
fn placed(func: Func) -> Result<Placed, CodegenError> {
    let not_placed = "the kernel that is to be lowered is not placed";
    Placed::new(func).map_err(|func| CodegenError::internal(&func, Span::UNKNOWN, "place", not_placed))
}

/// Tells the report how each access is checked.
fn classify(report: &mut crate::report::Report, plan: &CheckPlan) {
    let mut classes = HashMap::new();
    for known in &plan.accesses {
        classes.entry((known.span, known.kind, known.param)).or_insert(known.class);
    }
    for access in &mut report.accesses {
        access.class = classes.get(&(access.span, access.kind, access.param)).copied();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::text::parse;

    const FILL: &str = r#"kernel fill "fill.rs" unsafe bound {
  param %p p: ptr_mut f32 {div = 16}
  %r: i32[64] = arange {lo = 0, hi = 64}
  %at: *p[64] = splat %p
  %to: *p[64] = add_ptr %at, %r
  %one: f32 = const 1.0
  %v: f32[64] = splat %one
  store %to, %v
  return
}
"#;

    fn fill() -> BoundFunc {
        BoundFunc::new(parse(FILL).unwrap_or_else(|error| panic!("{error}"))).unwrap()
    }

    #[test]
    fn a_pass_that_breaks_a_rule_is_named() {
        let mut func = fill().into_func();
        let store = func.region(func.body).ops[5];
        func.ops[store.index()].operands.swap(0, 1);
        let Err(CodegenError::Internal(error)) = passed("place", &func, &CheckPlan::default(), &mut |_, _, _| {})
        else {
            panic!("a store through a number is accepted");
        };
        assert_eq!((error.step.as_str(), error.kernel.as_str()), ("place", "fill"));
        let text = error.to_string();
        assert!(text.starts_with("internal error in step `place` of compiling kernel `fill`"), "{text}");
        assert!(text.contains("please report it"), "{text}");
    }

    #[test]
    fn every_pass_shows_the_kernel_that_it_leaves() {
        let mut seen = Vec::new();
        let mut watch = |pass, func: &Func, _: &CheckPlan| seen.push((pass, func.level));
        compile_watched(&fill(), &Target::sm_90a(), &Options::default(), &mut watch).unwrap();
        let names: Vec<&str> = seen.iter().map(|&(pass, _)| pass).collect();
        let expected = "bounds_checks descriptors choose_products clean_up hoist_loads place whole_trips dots \
                        warp_specialize pipeline tensor_copies membar";
        assert_eq!(names.join(" "), expected);
        use kernel_core::ir::Level;
        assert!(seen[..5].iter().all(|&(_, level)| level == Level::Bound), "{seen:?}");
        assert!(seen[5..].iter().all(|&(_, level)| level == Level::Placed), "{seen:?}");
    }

    /// What the verifier sees to is not taken for granted by lowering either: nothing stands in for what is missing.
    #[test]
    fn lowering_refuses_what_it_does_not_know() {
        let compiled = compile(&fill(), &Target::sm_90a(), &Options::default()).unwrap();
        let mut func = compiled.placed.func().clone();
        let tile = func.values.iter_mut().find(|value| value.layout.is_some()).unwrap();
        tile.layout = None;
        let placed = Placed::new(func).unwrap();
        match compile_placed(&placed, &Target::sm_90a(), &Options::default()) {
            Err(CodegenError::Internal(error)) => assert_eq!(error.step, "lowering", "{error}"),
            other => panic!("{:?}", other.map(|compiled| compiled.ptx)),
        }
    }
}
