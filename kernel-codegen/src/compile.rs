//! The way of a kernel through the code generator.

use std::time::Instant;

use kernel_core::backend::nvidia::Ptx;
use kernel_core::backend::{Artifact, Backend, CompileError, Timings};
use kernel_core::ir::{Bound, DType, ElementwiseOp, Func, Op, Placed, Span, Subnormals, ValueId};
use kernel_llvm::{SlpVectorize, emit_ptx, kept_machine, load, new_context, optimise, stay};

use crate::analysis::axis::AxisAnalysis;
use crate::analysis::vectors::adds_vectors;
use crate::checks::LaunchConditions;
use crate::compiled::{Compiled, LlvmIr};
use crate::error::CodegenError;
use crate::passes::list::{self, Watcher};
use crate::passes::pass::{Pass, Unit};
use crate::passes::placed::tensor_copies::SharedRoom;
use crate::report::Notes;
use crate::{dot, flush, lines, lower, negations, unread, upper_halves};
use kernel_core::backend::nvidia::Options;
use kernel_core::target::{MAX_WARPS, Target};

/// The backend for NVIDIA GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvptx;

impl Backend for Nvptx {
    type Target = Target;
    type Options = Options;
    type Code = Ptx;

    fn compile(&self, kernel: &Bound, target: Target, options: &Options) -> Result<Artifact<Ptx>, CompileError> {
        Ok(compile(kernel, &target, options)?.into())
    }
}

/// Compiles a bound kernel for a target.
///
/// # Errors
/// If the options make no sense, the kernel asks for more than the target or the code generator has, or there is
/// no usable LLVM.
pub fn compile(kernel: &Bound, target: &Target, options: &Options) -> Result<Compiled, CodegenError> {
    compile_watched(kernel, target, options, &mut |_, _, _| {})
}

/// As [`compile`], and shows the kernel to `watcher` after every pass, by the pass's name, with the plan of its checks
/// as far as that is made. Tests run what they are shown. Where blocks that the hardware copies leave no room in shared memory,
/// passes begin again with fewer of them.
///
/// # Errors
/// As [`compile`].
pub fn compile_watched(
    kernel: &Bound,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
) -> Result<Compiled, CodegenError> {
    run_to_placed(kernel, target, options, watcher, generate)
}

/// The passes of [`compile_watched`] alone: the placed kernel that code would be generated from, with the conditions
/// under which it may be launched. Needs no LLVM.
///
/// # Errors
/// As [`compile`].
pub fn place_watched(
    kernel: &Bound,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
) -> Result<(Placed, LaunchConditions), CodegenError> {
    run_to_placed(kernel, target, options, watcher, |placed, unit, _| Ok((placed, unit.plan.conditions)))
}

/// Runs all passes, then `finish` on what comes out.
fn run_to_placed<T>(
    kernel: &Bound,
    target: &Target,
    options: &Options,
    watcher: &mut Watcher<'_>,
    finish: impl FnOnce(Placed, Unit, Timings) -> Result<T, CodegenError>,
) -> Result<T, CodegenError> {
    check_options(kernel.func(), options)?;
    let mut timings = Timings::default();
    let mut unit = Unit::new(*target, options);
    let placed = match to_placed(kernel, &mut unit, watcher, &mut timings) {
        // Copies that could do with less shared memory have taken it from what cannot.
        Err(error) if error.exceeds_a_limit() && unit.spares => {
            (unit, timings) = (Unit::new(*target, options), Timings::default());
            unit.room = SharedRoom::Little;
            to_placed(kernel, &mut unit, watcher, &mut timings)
        }
        ended => ended,
    }?;
    finish(placed, unit, timings)
}

/// Runs all passes.
fn to_placed(
    kernel: &Bound,
    unit: &mut Unit,
    watcher: &mut Watcher<'_>,
    timings: &mut Timings,
) -> Result<Placed, CodegenError> {
    let start = Instant::now();
    let mut bound = kernel.clone();
    run_all(list::BOUND, &mut bound, unit, watcher, Bound::func)?;
    timings.push("analyse", start.elapsed());

    let start = Instant::now();
    let mut placed = list::placed(bound, unit)?;
    list::passed(list::PLACE, placed.func(), &unit.plan, watcher)?;
    run_all(list::PLACED, &mut placed, unit, watcher, Placed::func)?;
    timings.push("place", start.elapsed());
    Ok(placed)
}

/// Runs passes of one level, without those that are switched off.
fn run_all<K>(
    passes: &[Pass<K>],
    kernel: &mut K,
    unit: &mut Unit,
    watcher: &mut Watcher<'_>,
    func: fn(&K) -> &Func,
) -> Result<(), CodegenError> {
    for pass in passes {
        if !pass.runs(&unit.options) {
            continue;
        }
        (pass.run)(kernel, unit)?;
        list::passed(pass.name, func(kernel), &unit.plan, watcher)?;
    }
    Ok(())
}

/// Compiles a kernel at the placed level as it stands, for a target: what follows placement in [`compile`].
///
/// # Errors
/// As [`compile`].
pub fn compile_placed(kernel: &Placed, target: &Target, options: &Options) -> Result<Compiled, CodegenError> {
    check_options(kernel.func(), options)?;
    let (mut placed, mut unit) = (kernel.clone(), Unit::new(*target, options));
    let last =
        list::PLACED.iter().position(|pass| pass.name == list::EXCHANGES).map_or(&[][..], |at| &list::PLACED[at..]);
    run_all(last, &mut placed, &mut unit, &mut |_, _, _| {}, Placed::func)?;
    generate(placed, unit, Timings::default())
}

/// From a placed kernel to PTX.
fn generate(placed: Placed, unit: Unit, mut timings: Timings) -> Result<Compiled, CodegenError> {
    let Unit { target, options, plan, loops, stays, waits, need, axis, .. } = unit;
    let start = Instant::now();
    let llvm = load()?;
    let _stay = stay();
    let versions = target.ptx();
    let axis = axis.unwrap_or_else(|| AxisAnalysis::new(placed.func()).into());
    let mut version = if dot::has_f8(placed.func()) { versions.f8 } else { versions.usual };
    if adds_vectors(placed.func(), &axis, target) {
        version = version.max(versions.vector_atomics);
    }
    let machine = kept_machine(llvm, target.name(), &format!("+ptx{version}"))?;
    let context = new_context(llvm);
    let lowered = lower::lower(&context, &machine, placed.func(), &axis, target, &options)?;
    let text = |module: &kernel_llvm::inkwell::module::Module| {
        if options.keep_llvm_ir { module.print_to_string().to_string() } else { String::new() }
    };
    let before = text(&lowered.module);
    timings.push("lower", start.elapsed());

    let start = Instant::now();
    if options.runs(list::LLVM) {
        optimise(&lowered.module, &machine, pairs(placed.func()))?;
    }
    let after = text(&lowered.module);
    timings.push("llvm", start.elapsed());

    let start = Instant::now();
    let ptx = upper_halves::keep(unread::read(negations::keep(emit_ptx(&lowered.module, &machine)?)));
    let ptx = match placed.func().subnormals {
        Subnormals::Kept => ptx,
        Subnormals::Flushed => flush::of_f32_alone(&ptx),
    };
    let ptx = match &options.line_info {
        Some(info) => lines::finish(&ptx, &lowered.origins, &placed.func().files, info),
        None => ptx,
    };
    timings.push("emit", start.elapsed());

    let origins = lowered.origins.iter().map(|origin| origin.parts()).collect();
    let min_programs = placed.func().programs;
    Ok(Compiled {
        entry: lower::symbol(&placed.func().name),
        ptx,
        target,
        placed,
        llvm_ir: options.keep_llvm_ir.then_some(LlvmIr { lowered: before, optimised: after, origins }),
        shared_bytes: lowered.shared_bytes,
        num_warps: lowered.block_warps,
        min_programs,
        abi: lowered.abi,
        sites: lowered.sites,
        conditions: plan.conditions,
        notes: Notes {
            accesses: plan.accesses,
            promises: plan.promises,
            loops,
            stays,
            waits,
            need,
            max_registers: options.max_registers,
            warps_by_tile: options.warps_by_tile,
        },
        layout_warps: options.num_warps,
        timings,
    })
}

/// Whether LLVM shall search for pairs of 16-bit floats: where they are computed with, or moved in a kernel without
/// matrix products. What a product's kernel does with them besides is to round sums, which lowering pairs itself; and
/// it has hundreds of them.
fn pairs(func: &Func) -> SlpVectorize {
    let is_half = |&value: &ValueId| matches!(func.ty(value).dtype(), Some(DType::F16 | DType::BF16));
    let (mut halves, mut computes, mut multiplies) = (false, false, false);
    for operation in func.ops.iter() {
        let half = operation.operands.iter().any(is_half);
        halves |= half;
        computes |= half && matches!(&operation.op, Op::Elementwise(op) if !matches!(op, ElementwiseOp::Cast { .. }));
        multiplies |= operation.op.multiplies();
    }
    if computes || (halves && !multiplies) { SlpVectorize::On } else { SlpVectorize::Off }
}

fn check_options(func: &Func, options: &Options) -> Result<(), CodegenError> {
    let warps = options.num_warps;
    if let Some(unknown) = options.disabled_passes.iter().find(|name| !list::optional_passes().contains(&name.as_str()))
    {
        let error = CodegenError::refuse(func, Span::UNKNOWN, format!("leaving out a pass `{unknown}`"));
        return Err(error.help(format!("those that may be left out are {}", list::optional_passes().join(", "))));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CheckPlan;
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

    fn fill() -> Bound {
        Bound::new(parse(FILL).unwrap_or_else(|error| panic!("{error}"))).unwrap()
    }

    #[test]
    fn a_pass_that_breaks_a_rule_is_named() {
        let mut func = fill().into_func();
        let store = func.region(func.body).ops[5];
        func.ops[store.index()].operands.swap(0, 1);
        let Err(CodegenError::Internal(error)) = list::passed("place", &func, &CheckPlan::default(), &mut |_, _, _| {})
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
        let seen = |options: &Options| {
            let mut seen = Vec::new();
            let mut watch = |pass, func: &Func, _: &CheckPlan| seen.push((pass, func.level));
            compile_watched(&fill(), &Target::sm_90a(), options, &mut watch).unwrap();
            seen
        };
        let delayed = seen(&Options { delays: Some(1), ..Options::default() });
        let seen = seen(&Options::default());
        let names: Vec<&str> = seen.iter().map(|&(pass, _)| pass).collect();
        let expected = "promises pointers assertions nonzero_trip bounds no_wrap unsigned_division descriptors \
                        split_products choose_products clean_up hoist_loads place peel_masked_tail unroll dot_operands indirection warp_specialize software_pipeline \
                        tensor_copies late_waits own_parts membar exchanges turns accumulator_banks residency";
        assert_eq!(names.join(" "), expected);
        use kernel_core::ir::Level;
        assert!(seen[..12].iter().all(|&(_, level)| level == Level::Bound), "{seen:?}");
        assert!(seen[12..].iter().all(|&(_, level)| level == Level::Placed), "{seen:?}");
        assert_eq!(delayed, [seen, vec![("delays", Level::Placed)]].concat());
    }

    /// What the verifier sees to is not taken for granted by lowering either: nothing stands in for what is missing.
    #[test]
    fn lowering_refuses_what_it_does_not_know() {
        let compiled = compile(&fill(), &Target::sm_90a(), &Options::default()).unwrap();
        let mut func = compiled.placed.func().clone();
        let tile = func.values.iter_mut().find(|value| value.layout.is_some()).unwrap();
        tile.layout = None;
        let placed = Placed::new(func).unwrap();
        let unit = Unit::new(Target::sm_90a(), &Options::default());
        match generate(placed, unit, Timings::default()) {
            Err(CodegenError::Internal(error)) => assert_eq!(error.step, "lowering", "{error}"),
            other => panic!("{:?}", other.map(|compiled| compiled.ptx)),
        }
    }

    /// Exchanges get their memory from the pass for that, and nowhere else.
    #[test]
    fn lowering_takes_no_shared_memory_of_its_own() {
        let text = r#"kernel sum "sum.rs" unsafe bound {
  param %p p: ptr f32 {div = 16}
  param %o o: ptr_mut f32 {div = 16}
  %r: i32[1024] = arange {lo = 0, hi = 1024}
  %ps: *p[1024] = splat %p
  %at: *p[1024] = add_ptr %ps, %r
  %v: f32[1024] = load %at
  %sum: f32 = reduce %v {axis = 0} (%a: f32, %b: f32) {
    %s: f32 = add %a, %b
    yield %s
  }
  store %o, %sum
  return
}
"#;
        let kernel = Bound::new(parse(text).unwrap_or_else(|error| panic!("{error}"))).unwrap();
        let compiled = compile(&kernel, &Target::sm_90a(), &Options::default()).unwrap();
        let mut func = compiled.placed.func().clone();
        assert!(kernel_core::text::print(&func).contains("in shared [0..16]"), "{}", kernel_core::text::print(&func));
        assert_eq!((compiled.shared_bytes, compiled.report().barriers), (16, 1));
        func.ops.iter_mut().for_each(|operation| operation.shared.clear());
        let unit = Unit::new(Target::sm_90a(), &Options::default());
        match generate(Placed::new(func).unwrap(), unit, Timings::default()) {
            Err(CodegenError::Internal(error)) => assert!(error.what.contains("no place in shared memory"), "{error}"),
            other => panic!("{:?}", other.map(|compiled| compiled.ptx)),
        }
    }
}
