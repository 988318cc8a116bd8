//! Common subexpression elimination: an operation that was computed before is not computed again.
//!
//! Before:
//! ```text
//! %3: i32[64] = arange {lo = 0, hi = 64}
//! %4: i32[64] = arange {lo = 0, hi = 64}
//! %5: i32[64] = add %3, %4
//! ```
//! After:
//! ```text
//! %3: i32[64] = arange {lo = 0, hi = 64}
//! %5: i32[64] = add %3, %3
//! ```
//!
//! Operations without effects and regions take part, and loads through `Ptr`, whose memory does not change during a
//! launch. A value is found in its own region and in those inside it. Operands that commute are put in order first.
//! It pays because each `offsets`, mask and broadcast is written once per load in a kernel's source.

use std::collections::HashMap;

use crate::edit::{Action, Result, Rewriter, Structure};
use crate::ir::{
    BinaryOp, Does, ElementwiseOp, FloatFlags, Func, GpuOp, LayoutId, Op, OpId, ParamKind, RegionId, Touched, Ty,
    ValueId,
};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// None that a verified kernel can cause.
pub fn run(func: &mut Func) -> Result<bool> {
    let structure = Structure::new(func);
    let mut scopes: Vec<Scope> = Vec::new();
    Rewriter::run(func, "cse", &mut |rewriter, id| {
        let Some(home) = Home::of(rewriter.func, &structure, id) else { return Ok(Action::Keep) };
        // The walk is in program order: regions that are over are those that are not on the way to this one.
        scopes.truncate(home.depth + 1);
        if scopes.last().is_none_or(|scope| scope.home.region != home.region) {
            scopes.truncate(home.depth);
            scopes.push(Scope { home, known: HashMap::new() });
        }
        let Some(key) = key(rewriter.func, id) else { return Ok(Action::Keep) };
        let Some(&result) = rewriter.func.op(id).results.first() else { return Ok(Action::Keep) };
        if let Some(known) = find(&scopes, &key) {
            rewriter.replace(result, known);
            return Ok(Action::Remove);
        }
        if let Some(scope) = scopes.last_mut() {
            scope.known.insert(key, result);
        }
        Ok(Action::Keep)
    })
}

/// Where an operation stands.
#[derive(Clone, Copy)]
struct Home {
    region: RegionId,
    /// How many regions are around that one.
    depth: usize,
    /// Whether values from outside mean something else inside: layouts in a warp group count its own warps.
    closed: bool,
}

impl Home {
    fn of(func: &Func, structure: &Structure, id: OpId) -> Option<Home> {
        let region = structure.region_of(id)?;
        let owner = structure.owner(region).map(|owner| &func.op(owner).op);
        let closed = matches!(owner, Some(Op::Gpu(GpuOp::WarpGroups { .. })));
        Some(Home { region, depth: structure.depth(region), closed })
    }
}

/// What is known in a region that is being walked.
struct Scope {
    home: Home,
    /// Only looked up, never iterated over.
    known: HashMap<Key, ValueId>,
}

fn find(scopes: &[Scope], key: &Key) -> Option<ValueId> {
    for scope in scopes.iter().rev() {
        if let Some(&value) = scope.known.get(key) {
            return Some(value);
        }
        if scope.home.closed {
            break;
        }
    }
    None
}

/// What makes two operations equal.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    operands: Vec<ValueId>,
    flags: FloatFlags,
    ty: Ty,
    layout: Option<LayoutId>,
}

/// The key of an operation that takes part.
fn key(func: &Func, id: OpId) -> Option<Key> {
    let operation = func.op(id);
    // The same promise about the same values is made twice for nothing.
    let takes_part = operation.op.is_function() || reads_constant_memory(func, id);
    let (&[result], true) = (operation.results.as_slice(), takes_part) else { return None };
    let mut operands = operation.operands.clone();
    if let Op::Elementwise(ElementwiseOp::Binary { op }) = &operation.op
        && commutes(*op, func, operands[0])
    {
        operands.sort_unstable();
    }
    let value = func.value(result);
    let (ty, layout) = (value.ty.clone(), value.layout);
    Some(Key { op: operation.op.clone(), operands, flags: operation.flags, ty, layout })
}

/// Whether an operation does nothing but read a buffer that nobody writes during a launch.
pub(super) fn reads_constant_memory(func: &Func, id: OpId) -> bool {
    let operation = func.op(id);
    let &[Does::Reads(Touched::Buffer(from))] = operation.op.does() else { return false };
    let place = operation.operands.get(usize::from(from)).map(|&v| func.ty(v));
    let param = place.and_then(|ty| ty.pointee().or(ty.descriptor()));
    param.is_some_and(|param| match func.param(param).kind {
        ParamKind::Ptr { mutable, .. } | ParamKind::Desc { mutable, .. } => !mutable,
        ParamKind::Scalar(_)
        | ParamKind::ConstScalar(_)
        | ParamKind::ReportSlot
        | ParamKind::Length(_)
        | ParamKind::DescShape { .. }
        | ParamKind::DescStride { .. } => false,
    })
}

/// Whether the operands may be exchanged, for NaNs and zeros too.
fn commutes(op: BinaryOp, func: &Func, operand: ValueId) -> bool {
    let float = func.ty(operand).dtype().is_some_and(|d| d.is_float());
    match op {
        BinaryOp::Add | BinaryOp::Mul => true,
        // Which zero or NaN comes out may depend on the order.
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan => !float,
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingMul => true,
        BinaryOp::Sub
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingSub
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => false,
    }
}
