//! Runs those iterations of a loop whose masks hold everywhere without masks, and a last one with them.
//!
//! ```text
//! before:  for k in (0..n).step_by(512) { mask = k + arange(0, 512) < n; .. load p, mask .. store q, mask .. }
//! after:   end = n / 512 * 512
//!          for k in (0..end).step_by(512) { .. load p .. store q .. }
//!          for k in (end..n).step_by(512) { mask = k + arange(0, 512) < n; .. load p, mask .. store q, mask .. }
//! ```
//!
//! A mask costs a comparison per access and holds a predicate from the load to the store. A thread has seven, and
//! when they are out, ptxas issues loads one by one, each when the store before it has its predicate back: of sixteen
//! loads that could be in flight, four are.
//!
//! The pass runs on placed kernels, so that layouts are those that suit the masked accesses too.

use std::collections::{BTreeSet, HashMap};

use kernel_core::edit::{Action, Cursor, Result, Rewriter, clone_region};
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, CreateOp, DType, Def, ElementwiseOp, Func, Literal, MemoryOp, Op, OpId, Operation,
    RegionId, ShapeOp, Unroll, ValueId,
};

use crate::analysis::axis::AxisAnalysis;

const PASS: &str = "peel_masked_tail";

/// The most operations of a body that is worth having twice.
const MAX_OPS: usize = 200;

/// The most terms of a sum that are looked at.
const MAX_TERMS: usize = 16;

/// Runs the pass on a placed kernel.
///
/// # Errors
/// None that a verified kernel can cause.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    let axis = AxisAnalysis::new(func);
    let mut done: BTreeSet<OpId> = BTreeSet::new();
    Rewriter::run(func, PASS, &mut |rewriter, id| {
        let split = Split::of(rewriter.func, &axis, id).filter(|_| done.insert(id));
        let Some(split) = split else { return Ok(Action::Keep) };
        let whole = split.apply(rewriter, id)?;
        done.insert(whole);
        Ok(Action::Splice(vec![whole, id]))
    })
    .map(|_| ())
}

/// A loop that is worth splitting.
struct Split {
    body: RegionId,
    /// The comparisons that hold everywhere in iterations that end before the loop does.
    masks: Vec<ValueId>,
}

impl Split {
    fn of(func: &Func, axis: &AxisAnalysis, id: OpId) -> Option<Split> {
        let operation = func.op(id);
        let Op::Control(ControlOp::For { reverse: false, .. }) = operation.op else { return None };
        let (lo, hi, step) = (operation.operands[0], operation.operands[1], operation.operands[2]);
        let dtype = func.ty(lo).dtype().filter(|dtype| dtype.is_int())?;
        let step = axis.of(func, step).constant.filter(|step| *step > 1)?;
        // So that the distance to the end does not overflow.
        let from_zero = !dtype.is_signed_int() || axis.of(func, lo).range.is_some_and(|(least, _)| least >= 0);
        let body = operation.regions[0];
        let ops = &func.region(body).ops;
        let is_simple = ops.len() <= MAX_OPS && ops.iter().all(|&op| is_simple(func.op(op)));
        let accesses =
            |&op: &OpId| matches!(func.op(op).op, Op::Memory(MemoryOp::Load { .. } | MemoryOp::Store { .. }));
        if !from_zero || !is_simple || !ops.iter().any(accesses) {
            return None;
        }
        let counter = func.region(body).args[0];
        let holds = |operation: &Operation| {
            let Op::Elementwise(ElementwiseOp::Compare { op }) = &operation.op else { return None };
            let (smaller, larger) = match op {
                CmpOp::Lt => (operation.operands[0], operation.operands[1]),
                CmpOp::Gt => (operation.operands[1], operation.operands[0]),
                CmpOp::Eq | CmpOp::Ne | CmpOp::Le | CmpOp::Ge => return None,
            };
            let (least, most) = beside(func, axis, smaller, counter, dtype)?;
            (least >= 0 && most < step && same_number(func, larger) == hi).then_some(operation.results[0])
        };
        let masks: Vec<ValueId> = ops.iter().filter_map(|&op| holds(func.op(op))).collect();
        (!masks.is_empty()).then_some(Split { body, masks })
    }

    /// Makes the loop over whole iterations, and the old loop begin where it ends. Gives the new one.
    fn apply(&self, rewriter: &mut Rewriter<'_>, id: OpId) -> Result<OpId> {
        let old = rewriter.func.op(id).clone();
        let (lo, hi, step) = (old.operands[0], old.operands[1], old.operands[2]);
        let mut cursor = rewriter.before(old.span);
        let end = cursor.binary(BinaryOp::Max, hi, lo)?;
        let distance = cursor.binary(BinaryOp::Sub, end, lo)?;
        let iterations = cursor.binary(BinaryOp::Div, distance, step)?;
        let distance = cursor.binary(BinaryOp::Mul, iterations, step)?;
        let middle = cursor.binary(BinaryOp::Add, lo, distance)?;

        let mut map = HashMap::new();
        let body = clone_region(rewriter.func, self.body, &mut map);
        for mask in &self.masks {
            let mut cursor = rewriter.before(old.span);
            let yes = cursor.constant(Literal::Bool(true), DType::Bool)?;
            let all = cursor.splat_like(yes, *mask)?;
            let mask = map.get(mask).copied().unwrap_or(*mask);
            let ops = rewriter.func.region(body).ops.clone();
            for &op in &ops {
                for operand in &mut rewriter.func.ops[op.index()].operands {
                    *operand = if *operand == mask { all } else { *operand };
                }
            }
            rewriter.func.regions[body.index()].ops.retain(|op| !rewriter.func.ops[op.index()].results.contains(&mask));
        }
        let mut operands = old.operands.clone();
        operands[1] = middle;
        let mut out = Vec::new();
        let mut cursor = Cursor::new(rewriter.func, &mut out, PASS).at(old.span).flags(old.flags);
        let whole = cursor.op(old.op.clone(), &operands, &[body])?;
        let results = rewriter.func.op(whole).results.clone();
        for (&result, &like) in results.iter().zip(&old.results) {
            rewriter.func.values[result.index()].layout = rewriter.func.value(like).layout;
        }
        let last = &mut rewriter.func.ops[id.index()];
        last.operands.splice(3.., results);
        last.operands[0] = middle;
        if let Op::Control(ControlOp::For { unroll, .. }) = &mut last.op {
            *unroll = Unroll::Never;
        }
        Ok(whole)
    }
}

/// Whether an operation may be in a loop that is split. Loops that multiply matrices are pipelined instead, and
/// reductions in a loop wait for more than loads.
fn is_simple(operation: &Operation) -> bool {
    operation.regions.is_empty()
        && !(operation.op.is_together() && operation.op.touches_memory())
        && !operation.op.multiplies()
}

/// The bounds of what is added to the counter in a sum that has it once; `None` if it is no such sum.
fn beside(func: &Func, axis: &AxisAnalysis, sum: ValueId, counter: ValueId, dtype: DType) -> Option<(i64, i64)> {
    let mut terms = vec![sum];
    let (mut counters, mut least, mut most) = (0, 0i64, 0i64);
    let mut seen = 0;
    while let Some(term) = terms.pop() {
        seen += 1;
        if seen > MAX_TERMS || func.ty(term).dtype() != Some(dtype) {
            return None;
        }
        let term = same_number(func, term);
        if term == counter {
            counters += 1;
            continue;
        }
        match func.def_op(term) {
            Some(Operation { op: Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Add }), operands, .. }) => {
                terms.extend(operands);
            }
            Some(_) | None => {
                let (lo, hi) = axis.of(func, term).range?;
                (least, most) = (least.checked_add(lo)?, most.checked_add(hi)?);
            }
        }
    }
    (counters == 1).then_some((least, most))
}

/// The value that a tile repeats or rearranges.
fn same_number(func: &Func, mut value: ValueId) -> ValueId {
    while let Def::Result(op, _) = func.value(value).def {
        let operation = func.op(op);
        let keeps = matches!(
            operation.op,
            Op::Create(CreateOp::Splat { .. })
                | Op::Shape(ShapeOp::ConvertLayout | ShapeOp::ExpandDims { .. } | ShapeOp::Broadcast { .. })
        );
        match operation.element_sources() {
            &[source] if keeps => value = source,
            _ => return value,
        }
    }
    value
}
