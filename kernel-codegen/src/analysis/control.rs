//! Which values decide where control goes.
//!
//! All threads of a program take the same way through its loops and conditions, because barriers stand in them.
//! So a scalar that a condition or a bound depends on must be the same number in every thread. That is so of
//! everything computed from parameters, program ids and memory that does not change; a value read from memory
//! that other programs may change must be read once, and a scalar taken from a tile that each thread has read for
//! itself must be that of one thread. This analysis finds the values that matter.

use kernel_core::edit::{Structure, walk};
use kernel_core::ir::{
    ControlOp, Def, Effect, Func, MemoryOp, Op, OpId, Operation, ParamId, ParamKind, RegionId, Resource, ValueId,
};

/// Per value, whether a loop, a condition or an `assert` depends on it.
pub(crate) fn steering_values(func: &Func) -> Vec<bool> {
    let mut steering = vec![false; func.values.len()];
    let mut work = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        work.extend_from_slice(operation.deciding());
        if let Some(region) = operation.condition_region() {
            work.extend_from_slice(func.yielded(region));
        }
        if let Op::Control(ControlOp::Assert { .. }) = operation.op {
            work.extend_from_slice(&operation.operands);
        }
    });
    let structure = Structure::new(func);
    while let Some(value) = work.pop() {
        if std::mem::replace(&mut steering[value.index()], true) {
            continue;
        }
        sources(func, &structure, value, &mut work);
    }
    steering
}

/// What a value may be computed from, one step back.
pub(crate) fn sources(func: &Func, structure: &Structure, value: ValueId, work: &mut Vec<ValueId>) {
    match func.value(value).def {
        Def::Param(_) => {}
        Def::Arg(region, index) => sources_of_argument(func, structure, region, index as usize, work),
        Def::Result(op, index) => {
            let operation = func.op(op);
            work.extend_from_slice(&operation.operands);
            if operation.op.is_loop_or_branch() {
                for &region in &operation.regions {
                    work.extend(func.yielded(region).get(index as usize));
                }
            }
        }
    }
}

/// What may become the argument of a region: an initial value or what the region before it yields.
fn sources_of_argument(func: &Func, structure: &Structure, region: RegionId, index: usize, work: &mut Vec<ValueId>) {
    let Some(owner) = structure.owner(region).map(|owner| func.op(owner)) else { return };
    // The first argument of a `for` is its counter.
    let first_carried = usize::from(matches!(owner.op, Op::Control(ControlOp::For { .. })));
    work.extend(&owner.operands);
    if let Some(carried) = index.checked_sub(first_carried) {
        for &region in &owner.regions {
            work.extend(func.yielded(region).get(carried));
        }
    }
}

/// The number of operands of a control operation before its carried values.
pub(crate) fn operands_before_carried(op: &ControlOp) -> usize {
    match op {
        ControlOp::For { .. } => 3,
        ControlOp::If | ControlOp::Assert { .. } | ControlOp::StaticAssert { .. } => 1,
        ControlOp::While
        | ControlOp::Reduce { .. }
        | ControlOp::Scan { .. }
        | ControlOp::Map { .. }
        | ControlOp::Print { .. }
        | ControlOp::Yield
        | ControlOp::Return => 0,
    }
}

/// Whether a load reads a number that decides where control goes, of the `steering` ones. It must be the same in every
/// thread, even if another program changes it meanwhile, so one thread reads it.
pub(crate) fn is_read_once(func: &Func, steering: &[bool], load: &Operation) -> bool {
    let (&[pointer, ..], &[result]) = (load.operands.as_slice(), load.results.as_slice()) else { return false };
    let mutable = func.ty(pointer).pointee().is_some_and(|param| is_mutable(func, param));
    mutable && func.value(result).layout.is_none() && steering[result.index()]
}

/// Per value, whether it is loaded and a loop or a condition may wait for it: what another program writes meanwhile has to
/// arrive. That is a number, a tile of one element, or a tile that is read again and again until it is as it should be.
pub(crate) fn awaited(func: &Func, steering: &[bool]) -> Vec<bool> {
    let structure = Structure::new(func);
    let mut awaited = vec![false; func.values.len()];
    walk(func, &mut |id| {
        let operation = func.op(id);
        let (&[pointer, ..], &[result]) = (operation.operands.as_slice(), operation.results.as_slice()) else { return };
        let loads = matches!(operation.op, Op::Memory(MemoryOp::Load { .. })) && steering[result.index()];
        let mutable = func.ty(pointer).pointee().is_some_and(|param| is_mutable(func, param));
        let again = || structure.around(id).any(|id| matches!(func.op(id).op, Op::Control(ControlOp::While)));
        let one = || func.tile_shape(result).iter().product::<u32>() == 1;
        awaited[result.index()] = loads && mutable && (one() || again());
    });
    awaited
}

/// Whether threads that have computed a steering value for themselves may have different ones, where it should be one:
/// it depends on memory that may change while each of them reads it.
///
/// What they read from shared memory is the same for all, and so is what one of them passes on to the others whenever
/// it steers: the result of an atomic, and what the hardware counts.
pub(crate) fn may_differ(func: &Func, value: ValueId) -> bool {
    let structure = Structure::new(func);
    let (mut seen, mut work) = (vec![false; func.values.len()], vec![value]);
    while let Some(value) = work.pop() {
        if std::mem::replace(&mut seen[value.index()], true) {
            continue;
        }
        if matches!(func.value(value).def, Def::Result(op, _) if reads_what_changes(func, op)) {
            return true;
        }
        sources(func, &structure, value, &mut work);
    }
    false
}

/// Whether an operation reads a buffer that the kernel or another may write meanwhile.
fn reads_what_changes(func: &Func, id: OpId) -> bool {
    let changes = |effect: &Effect| match effect.resource {
        Resource::Buffer(param) => !effect.writes && is_mutable(func, param),
        Resource::Shared | Resource::Barriers | Resource::Control => false,
    };
    func.own_effects(id).iter().any(changes)
}

/// Whether any operation has the value as an operand.
pub(crate) fn is_used(func: &Func, value: ValueId) -> bool {
    let mut used = false;
    walk(func, &mut |id| used |= func.op(id).operands.contains(&value));
    used
}

/// Whether the kernel may write the buffer of a parameter.
pub(crate) fn is_mutable(func: &Func, param: ParamId) -> bool {
    matches!(func.param(param).kind, ParamKind::Ptr { mutable: true, .. })
}

/// Whether the kernel has memory that may change while it runs.
pub(crate) fn writes_memory(func: &Func) -> bool {
    func.params.iter().any(|param| matches!(param.kind, ParamKind::Ptr { mutable: true, .. }))
}
