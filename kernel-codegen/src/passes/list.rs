//! The passes of the code generator, in the order in which they run.

use std::rc::Rc;

use kernel_core::diag::Diagnostic;
use kernel_core::ir::{Bound, Func, Placed, Span};
use kernel_core::passes::{PASSES as CLEAN_UP, PassOptions, optimise};
use kernel_core::verify::verify;

use super::bound::{
    assertions, bounds, choose_products, descriptors, hoist_loads, no_wrap, nonzero_trip, pointers, promises,
    split_products, unsigned_division,
};
use super::pass::{Pass, Unit, broken};
use super::placed::late_waits::Room;
use super::placed::warp_specialize::{Shared, Specialize};
use super::placed::{
    accumulator_banks, delays, dependent_launch, dot_operands, exchanges, late_waits, membar, own_parts,
    peel_masked_tail, residency, software_pipeline, tensor_copies, turns, unroll, warp_specialize,
};
use crate::analysis::axis::AxisAnalysis;
use crate::checks::CheckPlan;
use crate::error::CodegenError;
use crate::place;
use crate::report::LoopReport;
use kernel_core::backend::nvidia::Options;
use kernel_core::target::Target;

/// Passes over bound kernels.
pub(crate) const BOUND: &[Pass<Bound>] = &[
    Pass::needed("promises", promises::run),
    Pass::needed("pointers", pointers::run),
    Pass::optional("assertions", assertions::run),
    Pass::optional("nonzero_trip", nonzero_trip::run),
    Pass::needed("bounds", bounds::run),
    Pass::optional("no_wrap", no_wrap::run),
    Pass::optional("unsigned_division", unsigned_division::run),
    Pass::needed("descriptors", |kernel, unit| {
        let chosen = tensor_copies::choose(kernel.func(), unit.target, unit.options.tensor_copies, unit.room);
        (unit.copied, unit.spares) = (chosen.copied, chosen.spares);
        tensor_copies::load_late(kernel.func_mut(), &unit.copied);
        unit.plan.accesses.extend(descriptors::expand(kernel.func_mut(), &unit.copied)?);
        Ok(())
    }),
    Pass::needed("split_products", |kernel, _| Ok(split_products::run(kernel.func_mut())?)),
    Pass::needed("choose_products", |kernel, unit| {
        unit.waits.extend(choose_products::run(kernel.func_mut(), unit.target, unit.options.num_warps)?);
        Ok(())
    }),
    Pass::needed("clean_up", |kernel, unit| {
        let options = PassOptions { disabled: unit.options.disabled_passes.clone(), ..PassOptions::default() };
        optimise(kernel, &options).map_err(|problems| refused(kernel.func(), &problems))
    }),
    Pass::optional("hoist_loads", |kernel, unit| {
        hoist_loads::run(kernel.func_mut(), unit.options.num_warps);
        Ok(())
    }),
];

/// What gives tiles their layouts, between the two levels.
pub(crate) const PLACE: &str = "place";

/// Passes over placed kernels.
pub(crate) const PLACED: &[Pass<Placed>] = &[
    Pass::optional("peel_masked_tail", |kernel, _| Ok(peel_masked_tail::run(kernel.func_mut())?)),
    Pass::optional("unroll", |kernel, _| Ok(unroll::run(kernel.func_mut())?)),
    Pass::needed("dot_operands", |kernel, _| dot_operands::run(kernel.func_mut())),
    Pass::optional("indirection", |kernel, unit| {
        software_pipeline::indirection::run(kernel.func_mut(), unit.target, &unit.options)
    }),
    Pass::optional(WARP_SPECIALIZE, |kernel, unit| {
        let (shares, told) = share(kernel, unit)?;
        if shares {
            return Ok(());
        }
        let (target, pays) = (unit.target, Specialize::IfProfitable);
        (unit.divided, unit.loops) = warp_specialize::run(kernel.func_mut(), target, &unit.options, pays)?;
        if !unit.divided
            && warp_specialize::might_divide(kernel.func(), target)
            && !has_room(kernel, unit)
            && let Some((other, divided)) = divided_anyway(kernel, unit)?
            && has_room(&other, &divided)
        {
            (*kernel, *unit) = (other, divided);
        }
        unit.loops.extend(told);
        Ok(())
    }),
    Pass::optional("software_pipeline", |kernel, unit| {
        if !unit.divided {
            let told = software_pipeline::run(kernel.func_mut(), unit.target, &unit.options)?;
            unit.loops.extend(told.loops);
            unit.stays.extend(told.stays);
            unit.waits.extend(told.waits);
        }
        Ok(())
    }),
    Pass::needed("tensor_copies", |kernel, unit| Ok(tensor_copies::run(kernel.func_mut(), unit.room)?)),
    Pass::optional("late_waits", |kernel, unit| {
        Ok(late_waits::run(kernel.func_mut(), Room::Programs(unit.target, unit.options.num_warps))?)
    }),
    Pass::optional("own_parts", |kernel, _| Ok(own_parts::run(kernel.func_mut())?)),
    Pass::needed("membar", |kernel, _| {
        membar::run(kernel.func_mut())?;
        Ok(())
    }),
    Pass::needed(EXCHANGES, |kernel, unit| {
        let axis = Rc::new(AxisAnalysis::new(kernel.func()));
        unit.axis = Some(Rc::clone(&axis));
        exchanges::run(kernel.func_mut(), &axis, unit.target, unit.options.num_warps)
    }),
    Pass::optional("turns", |kernel, unit| {
        let turned = turns::run(kernel.func_mut())?;
        let told = unit.loops.iter_mut().filter(|told| turned.contains(&told.span));
        told.for_each(|told| told.what.push_str(", two warp groups take turns at products"));
        Ok(())
    }),
    Pass::needed("accumulator_banks", |kernel, _| accumulator_banks::run(kernel.func_mut())),
    Pass::needed("residency", |kernel, unit| {
        // ptxas takes one or the other.
        if unit.options.max_registers.is_none() {
            unit.need = residency::run(kernel.func_mut(), unit.target, unit.options.num_warps);
        }
        Ok(())
    }),
    Pass::asked(
        "dependent_launch",
        |options| options.dependent_launch,
        |kernel, unit| match unit.target.has_dependent_launches() {
            true => Ok(dependent_launch::run(kernel.func_mut())?),
            false => Ok(()),
        },
    ),
    // The last, so that no decision depends on it.
    Pass::asked(
        "delays",
        |options| options.delays.is_some(),
        |kernel, unit| Ok(delays::run(kernel.func_mut(), unit.options.delays.unwrap_or_default())?),
    ),
];

/// The pass after which every operation has its shared memory.
pub(crate) const EXCHANGES: &str = "exchanges";

/// The pass that divides kernels, and asks whether those that it leaves whole have room.
const WARP_SPECIALIZE: &str = "warp_specialize";

/// Divides the kernel between groups that share iterations, if it is such one: whether it did, and else what is to be said of that.
fn share(kernel: &mut Placed, unit: &mut Unit) -> Result<(bool, Option<LoopReport>), CodegenError> {
    let (func, loops) = match warp_specialize::share(kernel.func(), unit.target, &unit.options)? {
        Shared::Divided(func, loops) => (*func, loops),
        Shared::Alone(told) => return Ok((false, told)),
    };
    let span = loops.last().map_or(Span::UNKNOWN, |told| told.span);
    let mut divided = kernel.clone();
    *divided.func_mut() = func;
    let other = Unit { divided: true, loops, ..unit.clone() };
    match run_behind(&divided, &other) {
        Ok(()) => {
            (*kernel, *unit) = (divided, other);
            Ok((true, None))
        }
        Err(CodegenError::Refused(_)) => {
            Ok((false, Some(warp_specialize::not_shared(span, "their code would have no room"))))
        }
        Err(error) => Err(error),
    }
}

/// The kernel divided although that does not pay, if it can be: divided kernels send blocks to memory in pieces, and
/// take as many slots as there is room for.
///
/// # Errors
/// If the pass makes a mistake; a divided kernel that asks for too much is none.
fn divided_anyway(kernel: &Placed, unit: &Unit) -> Result<Option<(Placed, Unit)>, CodegenError> {
    let (mut kernel, mut unit) = (kernel.clone(), unit.clone());
    match warp_specialize::run(kernel.func_mut(), unit.target, &unit.options, Specialize::IfLegal) {
        Ok((divided, loops)) => {
            (unit.divided, unit.loops) = (divided, loops);
            Ok(divided.then_some((kernel, unit)))
        }
        Err(error) if error.exceeds_a_limit() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether what the passes behind `warp_specialize` make of a kernel fits the target's memories. Of other errors, those
/// passes will speak.
fn has_room(kernel: &Placed, unit: &Unit) -> bool {
    run_behind(kernel, unit).err().is_none_or(|error| !error.exceeds_a_limit())
}

/// Runs the passes behind `warp_specialize` on a copy.
fn run_behind(kernel: &Placed, unit: &Unit) -> Result<(), CodegenError> {
    let (mut kernel, mut unit) = (kernel.clone(), unit.clone());
    let mut behind = PLACED.iter().skip_while(|pass| pass.name != WARP_SPECIALIZE).skip(1);
    behind.try_for_each(|pass| if pass.runs(&unit.options) { (pass.run)(&mut kernel, &mut unit) } else { Ok(()) })
}

/// What LLVM does, which may be left out too.
pub(crate) const LLVM: &str = "llvm";

/// The names of the passes that [`Options::disabled_passes`] may leave out: each can be switched off without changing
/// what a kernel computes.
pub fn optional_passes() -> Vec<&'static str> {
    let bound = BOUND.iter().filter(|pass| pass.may_be_disabled()).map(|pass| pass.name);
    let placed = PLACED.iter().filter(|pass| pass.may_be_disabled()).map(|pass| pass.name);
    let clean_up = CLEAN_UP.iter().map(|pass| pass.name);
    clean_up.chain(bound).chain(placed).chain([LLVM]).collect()
}

/// The names of all passes, in the order in which they run, those that only run where the options ask for them
/// included.
pub fn pass_names() -> Vec<&'static str> {
    BOUND.iter().map(|pass| pass.name).chain([PLACE]).chain(PLACED.iter().map(|pass| pass.name)).collect()
}

/// Gives the tiles of a kernel their layouts.
pub(crate) fn placed(kernel: Bound, unit: &Unit) -> Result<Placed, CodegenError> {
    let func = kernel.into_func();
    let axis = AxisAnalysis::new(&func);
    let func = place::place(func, &axis, unit.target, unit.options.num_warps)?;
    let not_placed = "the kernel that placement leaves is not placed";
    Placed::new(func).map_err(|func| CodegenError::internal(&func, Span::UNKNOWN, PLACE, not_placed))
}

/// Who sees a kernel after each pass: the pass's name, the kernel, and the plan of its checks.
pub type Watcher<'w> = dyn FnMut(&'static str, &Func, &CheckPlan) + 'w;

/// What follows every pass: in debug and test builds the verifier, always the watcher.
pub(crate) fn passed(
    pass: &'static str,
    func: &Func,
    plan: &CheckPlan,
    watcher: &mut Watcher<'_>,
) -> Result<(), CodegenError> {
    if cfg!(debug_assertions)
        && let Err(problems) = verify(func)
    {
        return Err(broken(pass, func, &problems));
    }
    watcher(pass, func, plan);
    Ok(())
}

/// The first of several problems.
fn refused(func: &Func, problems: &[Diagnostic]) -> CodegenError {
    match problems.first() {
        Some(first) => {
            let error = CodegenError::refuse(func, first.span(&func.files), first.message.clone());
            first.help.iter().fold(error, |error, help| error.help(help.clone()))
        }
        None => CodegenError::refuse(func, Span::UNKNOWN, "a pass failed without a reason"),
    }
}

/// A kernel between passes.
#[derive(Clone, PartialEq, Debug)]
pub enum Stage {
    /// Up to `place`.
    Bound(Bound),
    /// From `place` on.
    Placed(Placed),
}

impl Stage {
    /// A kernel of either level.
    ///
    /// # Errors
    /// The kernel itself, if it is generic.
    pub fn new(func: Func) -> Result<Stage, Box<Func>> {
        Bound::new(func).map(Stage::Bound).or_else(|func| Placed::new(*func).map(Stage::Placed))
    }

    /// The kernel.
    pub fn func(&self) -> &Func {
        match self {
            Stage::Bound(kernel) => kernel.func(),
            Stage::Placed(kernel) => kernel.func(),
        }
    }
}

/// Runs passes one after the other, by name: those of this crate, those of [`kernel_core::passes`] over bound
/// kernels, and `place` between the levels. The verifier runs after each. Returns the kernel, with the plan of its
/// checks as those passes have made it. For tests and tools.
///
/// # Errors
/// If there is no pass of a name, or none for the kernel's level; as the passes themselves.
pub fn run_named(
    mut kernel: Stage,
    names: &[&str],
    target: &Target,
    options: &Options,
) -> Result<(Stage, CheckPlan), CodegenError> {
    let mut unit = Unit::new(*target, options);
    for &name in names {
        kernel = run_one(kernel, name, &mut unit)?;
        if let Err(problems) = verify(kernel.func()) {
            return Err(broken(name, kernel.func(), &problems));
        }
    }
    Ok((kernel, unit.plan))
}

fn run_one(kernel: Stage, name: &str, unit: &mut Unit) -> Result<Stage, CodegenError> {
    match kernel {
        Stage::Bound(kernel) if name == PLACE => placed(kernel, unit).map(Stage::Placed),
        Stage::Bound(mut kernel) => {
            if let Some(pass) = CLEAN_UP.iter().find(|pass| pass.name == name) {
                let done = (pass.run)(kernel.func_mut());
                done.map_err(|problems| refused(kernel.func(), &problems))?;
            } else {
                let Some(pass) = BOUND.iter().find(|pass| pass.name == name) else {
                    let names = CLEAN_UP.iter().map(|pass| pass.name).chain(BOUND.iter().map(|pass| pass.name));
                    return Err(unknown(kernel.func(), "bound", name, names.chain([PLACE]).collect()));
                };
                (pass.run)(&mut kernel, unit)?;
            }
            Ok(Stage::Bound(kernel))
        }
        Stage::Placed(mut kernel) => {
            let Some(pass) = PLACED.iter().find(|pass| pass.name == name) else {
                let names = PLACED.iter().map(|pass| pass.name).collect();
                return Err(unknown(kernel.func(), "placed", name, names));
            };
            (pass.run)(&mut kernel, unit)?;
            Ok(Stage::Placed(kernel))
        }
    }
}

fn unknown(func: &Func, level: &str, name: &str, names: Vec<&str>) -> CodegenError {
    let what = format!("a pass `{name}` over {level} kernels");
    CodegenError::refuse(func, Span::UNKNOWN, what).help(format!("there are {}", names.join(", ")))
}
