//! Unrolling of loops that ask for it (`#[unroll]`): the body is bound once for each value of the counter.
//!
//! Before:
//! ```text
//! %5: f32 = for %0, %1, %2, %4 {unroll = full, counter = i} (%n: i32, %acc: f32) {
//!   %6: f32[2 * i + 2] = full ..
//!   ..
//! }
//! ```
//! With bounds 0 and 2 and step 1, that binds the body twice: with `i = 0` to tiles of 2 elements, and with `i = 1` to
//! tiles of 4. Bounds and step must be known by then, if need be from the counters of loops around it.

use super::Binder;
use crate::ir::known::{constant, trip_count};
use crate::ir::{ConstId, ControlOp, DType, Func, Literal, Op, OpId, Operation, RegionId, Span, Unroll, ValueId};

/// The most operations that unrolling may add to a kernel: far beyond what is useful, far below what takes long.
pub(super) const MAX_ADDED: u128 = 1 << 15;

/// The operations of a body, with those that loops in it which join iterations will have more.
pub(super) fn copied_ops(func: &Func, body: RegionId) -> u128 {
    let mut count = 0u128;
    for (_, operation) in func.region_ops(body) {
        let copies = match operation.op {
            Op::Control(ControlOp::For { unroll: Unroll::By(factor), .. }) => u128::from(factor) + 1,
            _ => 1,
        };
        let inner = operation.regions.iter().map(|&region| copied_ops(func, region)).fold(0, u128::saturating_add);
        count = count.saturating_add(inner.saturating_mul(copies)).saturating_add(1);
    }
    count
}

impl Binder<'_> {
    /// Binds a loop's body once per iteration, to the end of a region of the bound kernel.
    pub(super) fn unrolled(&mut self, id: OpId, reverse: bool, counter: Option<ConstId>, to: RegionId) {
        let source = self.source;
        let operation = source.op(id);
        let Some(operands) = operation.operands.iter().map(|&v| self.mapped(v)).collect::<Option<Vec<_>>>() else {
            return;
        };
        let (&[lo, hi, step, ref carried @ ..], Some(&body)) = (operands.as_slice(), operation.regions.first()) else {
            return;
        };
        let number = |value: ValueId| match constant(&self.func, value) {
            Some(Literal::Int(number)) => Some(number),
            Some(Literal::Bool(_) | Literal::Float(_)) | None => None,
        };
        let (Some(first), Some(end), Some(by)) = (number(lo), number(hi), number(step)) else {
            let message = "`#[unroll]` needs to know how often the loop runs, but that depends on the launch";
            let help = "make bounds and step constexprs, or remove `#[unroll]`";
            return self.error(operation.span, message.to_string(), Some(help.to_string()));
        };
        let iterations = trip_count(first, end, by);
        if !self.affords(operation.span, iterations, copied_ops(source, body)) {
            return;
        }
        let Some(dtype) = self.func.ty(lo).dtype() else { return };
        let mut carried = carried.to_vec();
        // The trip count is within the budget, so it fits.
        for iteration in 0..iterations as i128 {
            let iteration = if reverse { iterations as i128 - 1 - iteration } else { iteration };
            let value = first + iteration * by;
            match self.iteration(operation, body, (value, dtype), counter, &carried, to) {
                Some(values) => carried = values,
                // What is wrong with one iteration is wrong with most.
                None => return,
            }
        }
        if let Some(counter) = counter {
            self.consts[counter.index()] = None;
        }
        for (&result, value) in operation.results.iter().zip(carried) {
            self.map[result.index()] = Some(value);
        }
    }

    /// Takes copies of a loop's body from the budget; too many are reported.
    pub(super) fn affords(&mut self, span: Span, copies: u128, body: u128) -> bool {
        let added = copies.saturating_mul(body);
        if added > self.budget {
            // Told once: the loops around it have made many copies of it.
            self.budget = 0;
            let message = format!("unrolling this loop {copies} times makes the kernel too large");
            let help = "remove `#[unroll]`, or say how many iterations to join: `#[unroll(4)]`";
            self.error(span, message, Some(help.to_string()));
            return false;
        }
        self.budget -= added;
        true
    }

    /// Binds one iteration, and gives what it carries on; nothing after a mistake.
    fn iteration(
        &mut self,
        operation: &Operation,
        body: RegionId,
        (value, dtype): (i128, DType),
        counter: Option<ConstId>,
        carried: &[ValueId],
        to: RegionId,
    ) -> Option<Vec<ValueId>> {
        let source = self.source;
        if let Some(counter) = counter {
            self.consts[counter.index()] = Some(self.counted(value, operation.span)?);
        }
        let (&index, args) = source.region(body).args.split_first()?;
        self.map[index.index()] = Some(self.constant_in(Literal::Int(value), dtype, operation.span, to)?);
        for (&arg, &value) in args.iter().zip(carried) {
            self.map[arg.index()] = Some(value);
        }
        let errors = self.errors.len();
        let (&last, ops) = source.region(body).ops.split_last()?;
        for &op in ops {
            self.operation(op, to);
        }
        let yields = source.op(last).operands.iter().map(|&v| self.mapped(v)).collect::<Option<Vec<_>>>();
        yields.filter(|_| self.errors.len() == errors)
    }

    /// A counter as the value of a constexpr.
    fn counted(&mut self, value: i128, span: Span) -> Option<i64> {
        let number = i64::try_from(value).ok();
        if number.is_none() {
            let message = format!("the counter of this loop is {value}, which is more than a constexpr can be");
            self.error(span, message, Some(format!("the limit is {}", i64::MAX)));
        }
        number
    }
}
