//! Offsets that a loop computes, and that do not wrap.
//!
//! ```text
//! for i {..} { %k = add %rows, %i; %o = mul %k, %n; %w = cast %o; .. load (add_ptr %b, (add %w, %columns)) .. }
//! ```
//! becomes
//! ```text
//! for i {.., no_wrap = true} { .. }
//! ```
//! An offset of 32 bits that wraps on the way is, nearly always, one that leaves its buffer: where an access is
//! decided at launch, its interval holds every number then, and the launch takes the other variant. The launch
//! conditions say so of every sum, difference and product in the body of a loop that the offsets of such an access
//! are made of, so that software pipelines may rely on it ([`crate::passes::placed::software_pipeline`]): in lanes
//! whose masks hold, these are what they would be in numbers of any size.
//!
//! A loop that `clean_up` is going to dissolve counts as part of the one around it.
//!
//! Runs behind `bounds`, which says what accesses the host decides about.

use std::collections::BTreeSet;

use kernel_core::backend::conditions::{Condition, Node, NodeId};
use kernel_core::ir::known::known_trip_count;
use kernel_core::ir::{BinaryOp, Bound, ControlOp, DType, Def, ElementwiseOp, Func, Op, OpId, RegionId};

use super::bounds::decided_offset;
use crate::analysis::intervals::Describer;
use crate::analysis::lanes::{Lanes, MAX_DEPTH, strip};
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Marks loops in which offsets do not wrap, in a kernel whose launches the host decides about.
///
/// # Errors
/// None.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> Result<(), CodegenError> {
    let func = kernel.func_mut();
    if !unit.decides_at_launch(func) || !func.ops.iter().any(|operation| is_loop(&operation.op)) {
        return Ok(());
    }
    let mut loops = BTreeSet::new();
    Describer::new(func, &mut unit.plan.conditions).visit(&mut |describer, id| {
        if let Some(offset) = decided_offset(describer.func, id)
            && let Some(around) = loop_around(describer, id)
        {
            let (func, offset) = (describer.func, Lanes::of(describer.func, offset));
            describer.under_mask(func.op(id), |describer| require(describer, func.op(around).regions[0], offset));
            loops.insert(around);
        }
    });
    for id in loops {
        if let Op::Control(ControlOp::For { no_wrap, .. }) = &mut func.ops[id.index()].op {
            *no_wrap = true;
        }
    }
    Ok(())
}

fn is_loop(op: &Op) -> bool {
    matches!(op, Op::Control(ControlOp::For { .. }))
}

/// Whether a loop's body is going to be part of what is around it.
fn dissolves(func: &Func, id: OpId) -> bool {
    let operation = func.op(id);
    match operation.op {
        Op::Control(ControlOp::For { .. }) => {
            known_trip_count(func, operation).is_some_and(|iterations| iterations <= 1)
        }
        _ => false,
    }
}

/// The innermost loop around an operation that stays one.
fn loop_around(describer: &Describer<'_>, id: OpId) -> Option<OpId> {
    let func = describer.func;
    describer.structure.around(id).find(|&id| is_loop(&func.op(id).op) && !dissolves(func, id))
}

/// Whether an operation stands in a region, or in a loop there that dissolves.
fn stands_in(describer: &Describer<'_>, id: OpId, body: RegionId) -> bool {
    let home = |id: OpId| describer.structure.region_of(id);
    let outwards =
        |&region: &RegionId| home(describer.structure.owner(region).filter(|&owner| dissolves(describer.func, owner))?);
    std::iter::successors(home(id), outwards).any(|region| region == body)
}

/// Demands of the launch that what `offset` is made of in a loop's `body` does not wrap, under the describer's
/// hypotheses.
fn require(describer: &mut Describer<'_>, body: RegionId, offset: Lanes) {
    let func = describer.func;
    let mut work = vec![(offset, 0)];
    while let Some((lanes, depth)) = work.pop() {
        let lanes = strip(func, lanes);
        let Def::Result(id, _) = func.value(lanes.value).def else { continue };
        let is_int = func.ty(lanes.value).dtype().filter(|dtype| dtype.is_int());
        let Some(dtype) = is_int.filter(|_| depth < MAX_DEPTH && stands_in(describer, id, body)) else { continue };
        // What is made otherwise does not go on from iteration to iteration.
        let operation = func.op(id);
        if let Op::Elementwise(ElementwiseOp::Binary { op }) = &operation.op {
            let Some(exact) = exact_node(*op) else { continue };
            let [a, b] = [0, 1].map(|i| lanes.operand(operation.operands[i]));
            if narrow(dtype) {
                let (x, y) = (describer.describe(a.clone()), describer.describe(b.clone()));
                let node = describer.node(exact(x.node, y.node));
                describer.require(Condition::Exact(node, dtype));
            }
            work.extend([(a, depth + 1), (b, depth + 1)]);
        } else if let Op::Elementwise(ElementwiseOp::Cast { .. }) = &operation.op {
            work.push((lanes.operand(operation.operands[0]), depth + 1));
        }
    }
}

/// The interval of a sum, a difference or a product; `None` for what offsets are not followed through.
fn exact_node(op: BinaryOp) -> Option<fn(NodeId, NodeId) -> Node> {
    match op {
        BinaryOp::Add => Some(Node::Add),
        BinaryOp::Sub => Some(Node::Sub),
        BinaryOp::Mul => Some(Node::Mul),
        BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    }
}

/// Whether sums of numbers of that dtype may wrap at all.
fn narrow(dtype: DType) -> bool {
    dtype.bits() < 64
}
