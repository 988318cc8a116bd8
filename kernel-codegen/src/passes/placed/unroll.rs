//! Repeats the body of loops that ask for it (`#[unroll(4)]`).
//!
//! ```text
//! before:  for i in lo..hi { body(i) }                                       {unroll = 4}
//! after:   middle = where the last iterations begin, fewer than four
//!          for i in (lo..middle).step_by(4) { body(i) body(i + 1) body(i + 2) body(i + 3) }
//!          for i in middle..hi { body(i) }
//! ```
//!
//! Loads of joined iterations are issued together, and what they have in common is computed once. LLVM can repeat bodies
//! too, but not those in which threads meet.
//!
//! The pass runs on placed kernels, so that all copies have the layouts of the one body, and before products are
//! pipelined, so that a pipeline sees the joined iterations as one. The loop over the last iterations is not pipelined.

use std::collections::HashMap;

use kernel_core::edit::{Action, Cursor, Result, Rewriter, clone_op};
use kernel_core::ir::known::{constant, known_trip_count};
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, Func, Literal, Op, OpId, Operation, RegionId, Unroll, ValueId,
};

use crate::analysis::axis::AxisAnalysis;
use crate::passes::bound::unsigned_division::unsigned;

const PASS: &str = "unroll";

/// Runs the pass on a placed kernel.
///
/// # Errors
/// None that a verified kernel can cause.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    let axis = AxisAnalysis::new(func);
    Rewriter::run(func, PASS, &mut |rewriter, id| {
        let Some(joined) = Joined::of(rewriter.func, &axis, id) else { return Ok(Action::Keep) };
        joined.apply(rewriter, id)
    })
    .map(|_| ())
}

/// A loop whose iterations are to be joined.
struct Joined {
    factor: i128,
    dtype: DType,
    unsigned: DType,
    reverse: bool,
    /// What the step is, if that is known.
    step: Option<i128>,
    /// How often the loop runs, if that is known.
    trips: Option<u128>,
}

/// The ends of the two loops, and the step of the first.
struct Parts {
    middle: ValueId,
    stride: ValueId,
}

impl Joined {
    fn of(func: &Func, axis: &AxisAnalysis, id: OpId) -> Option<Joined> {
        let operation = func.op(id);
        let Op::Control(ControlOp::For { unroll: Unroll::By(factor), reverse, .. }) = operation.op else { return None };
        let dtype = func.ty(operation.operands[0]).dtype().filter(|dtype| dtype.is_int())?;
        Some(Joined {
            factor: factor.into(),
            dtype,
            unsigned: unsigned(dtype).unwrap_or(dtype),
            reverse,
            step: axis.of(func, operation.operands[2]).constant.map(i128::from),
            trips: known_trip_count(func, operation),
        })
    }

    /// The largest step of which as many as are joined do not go beyond the dtype.
    fn largest_step(&self) -> i128 {
        self.dtype.int_max() / self.factor
    }

    fn apply(&self, rewriter: &mut Rewriter<'_>, id: OpId) -> Result<Action> {
        let too_far = self.step.is_some_and(|step| step <= 0 || step > self.largest_step());
        let too_few = self.trips.is_some_and(|trips| trips < self.factor as u128);
        if self.factor < 2 || too_far || too_few {
            set_attributes(rewriter.func, id, false);
            return Ok(Action::Keep);
        }
        let old = rewriter.func.op(id).clone();
        let Parts { middle, stride } = match self.known_parts(rewriter, &old)? {
            Some(parts) => parts,
            None => self.parts(rewriter, &old)?,
        };
        let whole = self.whole(rewriter, &old, middle, stride)?;
        let results = rewriter.func.op(whole).results.clone();
        for (&result, &like) in results.iter().zip(&old.results) {
            rewriter.func.values[result.index()].layout = rewriter.func.value(like).layout;
        }
        if self.trips.is_some_and(|trips| trips.is_multiple_of(self.factor as u128)) {
            old.results.iter().zip(results).for_each(|(&result, new)| rewriter.replace(result, new));
            return Ok(Action::Splice(vec![whole]));
        }
        let last = &mut rewriter.func.ops[id.index()];
        last.operands.splice(3.., results);
        last.operands[usize::from(self.reverse)] = middle;
        set_attributes(rewriter.func, id, true);
        Ok(Action::Splice(vec![whole, id]))
    }

    /// The ends and the step of loops whose bounds are known, so that they stay known.
    fn known_parts(&self, rewriter: &mut Rewriter<'_>, old: &Operation) -> Result<Option<Parts>> {
        let lo = match constant(rewriter.func, old.operands[0]) {
            Some(Literal::Int(lo)) => lo,
            Some(Literal::Bool(_) | Literal::Float(_)) | None => return Ok(None),
        };
        let (Some(trips), Some(step)) = (self.trips, self.step) else { return Ok(None) };
        let rest = (trips % self.factor as u128) as i128;
        let before = if self.reverse { rest } else { trips as i128 - rest };
        let mut cursor = rewriter.before(old.span);
        let stride = cursor.constant(Literal::Int(step * self.factor), self.dtype)?;
        let middle = match (rest, self.reverse) {
            (0, false) => old.operands[1],
            (0, true) => old.operands[0],
            _ => cursor.constant(Literal::Int(lo + before * step), self.dtype)?,
        };
        Ok(Some(Parts { middle, stride }))
    }

    /// Computes where the first loop ends and the second begins. Numbers of iterations fit the unsigned dtype, and no
    /// number that a loop compares with has wrapped: an end that is not reached is `hi`.
    fn parts(&self, rewriter: &mut Rewriter<'_>, old: &Operation) -> Result<Parts> {
        let (lo, hi, step) = (old.operands[0], old.operands[1], old.operands[2]);
        let (dtype, unsigned) = (self.dtype, self.unsigned);
        let mut cursor = rewriter.before(old.span);
        let (zero, one) = (cursor.constant(Literal::Int(0), unsigned)?, cursor.constant(Literal::Int(1), unsigned)?);
        let factor = cursor.constant(Literal::Int(self.factor), unsigned)?;
        let by = cursor.bitcast(step, unsigned)?;
        let (mut runs, mut divisor) = (cursor.compare(CmpOp::Lt, lo, hi)?, by);
        if self.step.is_none() {
            let none = cursor.constant(Literal::Int(0), dtype)?;
            let forward = cursor.compare(CmpOp::Gt, step, none)?;
            runs = cursor.binary(BinaryOp::And, runs, forward)?;
            divisor = cursor.select(forward, by, one)?;
        }
        let (low, high) = (cursor.bitcast(lo, unsigned)?, cursor.bitcast(hi, unsigned)?);
        let distance = cursor.binary(BinaryOp::Sub, high, low)?;
        let distance = cursor.binary(BinaryOp::Sub, distance, one)?;
        let count = cursor.binary(BinaryOp::Div, distance, divisor)?;
        let count = cursor.binary(BinaryOp::Add, count, one)?;
        let count = cursor.select(runs, count, zero)?;

        let groups = cursor.binary(BinaryOp::Div, count, factor)?;
        let mut whole = cursor.binary(BinaryOp::Mul, groups, factor)?;
        let stride = match self.step {
            Some(step) => cursor.constant(Literal::Int(step * self.factor), dtype)?,
            None => {
                let largest = cursor.constant(Literal::Int(self.largest_step()), dtype)?;
                let fits = cursor.compare(CmpOp::Le, step, largest)?;
                whole = cursor.select(fits, whole, zero)?;
                let stride = cursor.binary(BinaryOp::Mul, by, factor)?;
                let stride = cursor.bitcast(stride, dtype)?;
                // Where it wraps, the loop over whole groups is empty.
                cursor.select(runs, stride, step)?
            }
        };
        let rest = cursor.binary(BinaryOp::Sub, count, whole)?;
        let (before, behind) = if self.reverse { (rest, whole) } else { (whole, rest) };
        let to_middle = cursor.binary(BinaryOp::Mul, before, by)?;
        let middle = cursor.binary(BinaryOp::Add, low, to_middle)?;
        let middle = cursor.bitcast(middle, dtype)?;
        let there = cursor.compare(CmpOp::Gt, behind, zero)?;
        let middle = cursor.select(there, middle, hi)?;
        Ok(Parts { middle, stride })
    }

    /// The loop over joined iterations.
    fn whole(&self, rewriter: &mut Rewriter<'_>, old: &Operation, middle: ValueId, stride: ValueId) -> Result<OpId> {
        let offsets = self.offsets(rewriter, old)?;
        let body = self.repeated(rewriter.func, old, &offsets)?;
        let mut operands = old.operands.clone();
        operands[usize::from(!self.reverse)] = middle;
        operands[2] = stride;
        let mut out = Vec::new();
        let mut cursor = Cursor::new(rewriter.func, &mut out, PASS).at(old.span).flags(old.flags);
        let whole = cursor.op(old.op.clone(), &operands, &[body])?;
        if let Op::Control(ControlOp::For { unroll, runs, .. }) = &mut rewriter.func.ops[whole.index()].op {
            (*unroll, *runs) = (Unroll::Never, self.trips.is_some());
        }
        Ok(whole)
    }

    /// What the counter of each copy has more than that of the loop. One that runs backwards takes the last first.
    fn offsets(&self, rewriter: &mut Rewriter<'_>, old: &Operation) -> Result<Vec<Option<ValueId>>> {
        let mut cursor = rewriter.before(old.span);
        let mut offsets = Vec::new();
        for copy in 0..self.factor {
            let times = if self.reverse { self.factor - 1 - copy } else { copy };
            offsets.push(match (times, self.step) {
                (0, _) => None,
                (_, Some(step)) => Some(cursor.constant(Literal::Int(step * times), self.dtype)?),
                (1, None) => Some(old.operands[2]),
                (_, None) => {
                    // Where this wraps, the loop does not run.
                    let times = cursor.constant(Literal::Int(times), self.unsigned)?;
                    let step = cursor.bitcast(old.operands[2], self.unsigned)?;
                    let offset = cursor.binary(BinaryOp::Mul, step, times)?;
                    Some(cursor.bitcast(offset, self.dtype)?)
                }
            });
        }
        Ok(offsets)
    }

    /// The body once for each offset: each copy takes what the one before it carries on.
    fn repeated(&self, func: &mut Func, old: &Operation, offsets: &[Option<ValueId>]) -> Result<RegionId> {
        let source = old.regions[0];
        let (args, ops) = (func.region(source).args.clone(), func.region(source).ops.clone());
        let yields = func.yielded(source).to_vec();
        // The arguments of the new body are those of a copy without operations.
        let body = func.new_region([]);
        let mut map = HashMap::new();
        for &arg in &args {
            let ty = func.ty(arg).clone();
            let new = func.add_region_arg(body, ty);
            let from = func.value(arg).clone();
            func.values[new.index()].lie_as(&from);
            map.insert(arg, new);
        }
        let counter = map[&args[0]];
        let mut carried: Vec<ValueId> = args[1..].iter().map(|arg| map[arg]).collect();
        let mut out = Vec::new();
        for offset in offsets {
            let mut copy = HashMap::from_iter(args[1..].iter().copied().zip(carried));
            let index = match offset {
                Some(offset) => {
                    Cursor::new(func, &mut out, PASS).at(old.span).binary(BinaryOp::Add, counter, *offset)?
                }
                None => counter,
            };
            copy.insert(args[0], index);
            for &op in &ops {
                if !func.op(op).op.is_terminator() {
                    let new = clone_op(func, op, &mut copy);
                    out.push(new);
                }
            }
            carried = yields.iter().map(|value| copy.get(value).copied().unwrap_or(*value)).collect();
        }
        Cursor::new(func, &mut out, PASS).at(old.span).op(ControlOp::Yield, &carried, &[])?;
        func.regions[body.index()].ops = out;
        Ok(body)
    }
}

/// What the loop that is left has: one copy of the body, no pipeline of its own behind another loop's, and perhaps no
/// iteration.
fn set_attributes(func: &mut Func, id: OpId, is_rest: bool) {
    let Op::Control(ControlOp::For { unroll, runs, stages, .. }) = &mut func.ops[id.index()].op else { return };
    *unroll = Unroll::Never;
    if is_rest {
        (*runs, *stages) = (false, 1);
    }
}
