//! Offsets that a loop computes, and that do not wrap.
//!
//! ```text
//! for i { %k = add %rows, %i; %o = mul %k, %n; %w = cast %o; .. load (add_ptr %b, (add %w, %columns)) .. }
//! ```
//! An offset of 32 bits that wraps on the way is, nearly always, one that leaves its buffer: where an access is decided
//! at launch, its interval holds every number then, and the launch takes the other variant. The launch conditions say
//! so of every sum and product in the body of a loop that the offsets of such an access are made of, so that passes may
//! rely on it: in lanes whose masks hold, these are what they would be in numbers of any size.

use kernel_core::ir::{BinaryOp, DType, ElementwiseOp, Func, Op, RegionId};

use super::describe::Describer;
use super::lanes::{Lanes, MAX_DEPTH, strip};
use kernel_core::backend::conditions::{Condition, LaunchConditions, Node, NodeId};

/// Demands of the launch that what `offset` is made of in a loop's `body` does not wrap, under the describer's
/// hypotheses.
pub(super) fn require(
    func: &Func,
    body: RegionId,
    offset: Lanes,
    describer: &mut Describer<'_>,
    program: &mut LaunchConditions,
) {
    let mut work = vec![(offset, 0)];
    while let Some((lanes, depth)) = work.pop() {
        let lanes = strip(func, lanes);
        let Some(operation) = func.def_op(lanes.value).filter(|_| depth < MAX_DEPTH) else { continue };
        let own = func.region(body).ops.iter().any(|&id| func.op(id).results.contains(&lanes.value));
        let Some(dtype) = func.ty(lanes.value).dtype().filter(|dtype| own && dtype.is_int()) else { continue };
        // What is made otherwise does not go on from trip to trip.
        if let Op::Elementwise(ElementwiseOp::Binary { op }) = &operation.op {
            let Some(exact) = exact_node(*op) else { continue };
            let [a, b] = [0, 1].map(|i| lanes.operand(operation.operands[i]));
            let (x, y) = (describer.describe(a.clone(), program), describer.describe(b.clone(), program));
            if narrow(dtype) {
                let node = program.node(exact(x.node, y.node));
                program.require(Condition::Exact(node, dtype));
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
        | BinaryOp::Umulhi => None,
    }
}

/// Whether sums of numbers of that dtype may wrap at all.
fn narrow(dtype: DType) -> bool {
    dtype.bits() < 64
}
