//! Unrolls loops that ask for it (`#[unroll]`): the body is repeated for each value of the counter.
//!
//! Before, with `%0`, `%1` and `%2` the constants 0, 2 and 1:
//! ```text
//! %5: f32 = for %0, %1, %2, %4 {unroll = full} (%i: i32, %acc: f32) {
//!   %6: f32 = cast %i
//!   %7: f32 = add %acc, %6
//!   yield %7
//! }
//! ```
//! After:
//! ```text
//! %5: i32 = const 0
//! %6: f32 = cast %5
//! %7: f32 = add %4, %6
//! %8: i32 = const 1
//! %9: f32 = cast %8
//! %10: f32 = add %7, %9
//! ```
//!
//! Bounds and step must be constants, if need be after loops around it are unrolled; otherwise the user is told.
//! Outer loops come first, and constants are folded between rounds, so that inner bounds may depend on outer counters.

use std::collections::{BTreeSet, HashMap};

use crate::diag::Diagnostic;
use crate::edit::{Action, Cursor, Result as Edit, Rewriter, clone_op, count_ops, ops_in_order};
use crate::ir::known::{constant, known_trip_count};
use crate::ir::{ControlOp, DType, Func, Level, Literal, Op, OpId, Operation, RegionId, Span, Unroll, ValueId};
use crate::passes::{fold, told};

const PASS: &str = "unroll";

/// The most operations that unrolling may add to a kernel: far beyond what is useful, far below what takes long.
const MAX_ADDED: u128 = 1 << 15;

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If a loop asks to be unrolled, and its trip count is not known or too large.
pub fn run(func: &mut Func) -> Result<bool, Vec<Diagnostic>> {
    if func.level == Level::Placed {
        return Ok(false);
    }
    let mut budget = MAX_ADDED;
    let mut too_large = None;
    let mut changed = false;
    while too_large.is_none() {
        let round = Rewriter::run(func, PASS, &mut |rewriter, id| {
            // The loop that exceeds the limit is told once: those around it have made many copies of it.
            let whole = if too_large.is_none() { Whole::of(rewriter.func, id) } else { None };
            match whole {
                Some(whole) if whole.added > budget => {
                    too_large = Some((id, whole.iterations));
                    Ok(Action::Keep)
                }
                Some(whole) => {
                    budget -= whole.added;
                    whole.unroll(rewriter, id)
                }
                None => Ok(Action::Keep),
            }
        });
        if !told(round)? {
            break;
        }
        changed = true;
        told(fold::run(func))?;
    }
    let mut errors: Vec<Diagnostic> =
        too_large.into_iter().map(|(id, iterations)| too_many(func, id, iterations)).collect();
    if errors.is_empty() {
        let mut told = BTreeSet::new();
        let stuck = ops_in_order(func).into_iter().filter(|&id| wants_unrolling(func.op(id)));
        // Copies of one loop have its span.
        let first = |id: &OpId| {
            let span = func.op(*id).span;
            span == Span::UNKNOWN || told.insert((span.file, span.line, span.column))
        };
        errors.extend(stuck.filter(first).map(|id| unknown(func, id)));
    }
    if errors.is_empty() { Ok(changed) } else { Err(errors) }
}

fn wants_unrolling(operation: &Operation) -> bool {
    matches!(operation.op, Op::Control(ControlOp::For { unroll: Unroll::Full, .. }))
}

/// A loop to be unrolled whose iterations are known.
struct Whole {
    iterations: u128,
    /// The operations that its iterations have together.
    added: u128,
    lo: i128,
    step: i128,
    dtype: DType,
    reverse: bool,
    body: RegionId,
}

impl Whole {
    fn of(func: &Func, id: OpId) -> Option<Whole> {
        let operation = func.op(id);
        let Op::Control(ControlOp::For { reverse, unroll: Unroll::Full, .. }) = operation.op else { return None };
        let iterations = known_trip_count(func, operation)?;
        let body = *operation.regions.first()?;
        let [lo, _, step] = [0, 1, 2].map(|i| constant(func, operation.operands[i]));
        let (Some(Literal::Int(lo)), Some(Literal::Int(step))) = (lo, step) else { return None };
        let dtype = func.ty(operation.operands[0]).dtype()?;
        let added = iterations.saturating_mul(count_ops(func, body) as u128);
        Some(Whole { iterations, added, lo, step, dtype, reverse, body })
    }

    /// Writes the body once per iteration.
    fn unroll(self, rewriter: &mut Rewriter<'_>, id: OpId) -> Edit<Action> {
        let Operation { operands, results, span, .. } = rewriter.func.op(id).clone();
        let args = rewriter.func.region(self.body).args.clone();
        let yields = rewriter.func.yielded(self.body).to_vec();
        let mut body = rewriter.func.region(self.body).ops.clone();
        body.pop();
        let mut carried = operands[3..].to_vec();
        let mut out = Vec::new();
        // The trip count is within the budget, so it fits.
        for iteration in 0..self.iterations as i128 {
            let iteration = if self.reverse { self.iterations as i128 - 1 - iteration } else { iteration };
            let counter = Literal::Int(self.lo + iteration * self.step);
            let counter = Cursor::new(rewriter.func, &mut out, PASS).at(span).constant(counter, self.dtype)?;
            let values = [counter].into_iter().chain(carried.iter().copied());
            let mut map: HashMap<ValueId, ValueId> = args.iter().copied().zip(values).collect();
            for &op in &body {
                out.push(clone_op(rewriter.func, op, &mut map));
            }
            carried = yields.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
        }
        for (&result, value) in results.iter().zip(carried) {
            rewriter.replace(result, value);
        }
        Ok(Action::Splice(out))
    }
}

fn diagnostic(func: &Func, id: OpId, message: String, help: String) -> Diagnostic {
    Diagnostic::at(&func.files, func.op(id).span, message).help(help)
}

fn too_many(func: &Func, id: OpId, iterations: u128) -> Diagnostic {
    let message = format!("unrolling this loop {iterations} times makes the kernel too large");
    diagnostic(func, id, message, "remove `#[unroll]`, or unroll by hand a few iterations at a time".to_string())
}

fn unknown(func: &Func, id: OpId) -> Diagnostic {
    let message = "`#[unroll]` needs to know how often the loop runs, but that depends on the launch".to_string();
    diagnostic(func, id, message, "make bounds and step constexprs, or remove `#[unroll]`".to_string())
}
