//! The rule L8: what may be done with the result of an asynchronous product before it is waited for.
//!
//! The registers of such a tile are written by hardware at some time until the wait. It can be the accumulator of a
//! further product, be carried by a loop or yielded by a branch, and be waited for, and only one of these.

use super::Errors;
use crate::ir::{ControlOp, Func, GpuOp, Op, OpId, RegionId, ValueId};

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    let flying = tiles_in_flight(func);
    if flying.iter().any(|&f| f) {
        uses(func, func.body, &flying, errors);
    }
}

/// Per value, whether a product may still be writing it where it is defined.
pub fn tiles_in_flight(func: &Func) -> Vec<bool> {
    let mut flight = Flight { func, flying: vec![false; func.values.len()], changed: false };
    loop {
        flight.changed = false;
        flight.region(func.body);
        if !flight.changed {
            return flight.flying;
        }
    }
}

/// Finds the tiles that may be in flight.
struct Flight<'f> {
    func: &'f Func,
    flying: Vec<bool>,
    changed: bool,
}

impl Flight<'_> {
    fn mark(&mut self, value: ValueId) {
        self.changed |= !std::mem::replace(&mut self.flying[value.index()], true);
    }

    /// Whatever becomes `to` flies if `from` does.
    fn follow(&mut self, from: &[ValueId], to: &[ValueId]) {
        for (from, &to) in from.iter().zip(to) {
            if self.flying[from.index()] {
                self.mark(to);
            }
        }
    }

    fn region(&mut self, region: RegionId) {
        let func = self.func;
        for (id, operation) in func.region_ops(region) {
            for &inner in &operation.regions {
                self.region(inner);
            }
            // Nothing but products puts tiles in flight, and nothing but waits and control flow hands them on (see `uses`).
            if let Op::Gpu(GpuOp::Wgmma { .. }) = &operation.op {
                operation.results.iter().for_each(|&r| self.mark(r));
            } else if let Op::Gpu(GpuOp::WgmmaWait { pending: 1.. }) = &operation.op {
                self.follow(&operation.operands, &operation.results);
            } else if let Op::Control(op) = &operation.op {
                self.control(id, op);
            }
        }
    }

    fn control(&mut self, id: OpId, op: &ControlOp) {
        let func = self.func;
        let operation = func.op(id);
        let (first, index) = match op {
            ControlOp::For { .. } => (3, 1),
            ControlOp::While | ControlOp::If => (0, 0),
            ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Map { .. }
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => return,
        };
        let carries = !matches!(op, ControlOp::If);
        for (number, &inner) in operation.regions.iter().enumerate() {
            let args = func.region(inner).args.get(index..).unwrap_or_default();
            let yields = func.region(inner).ops.last().map_or(&[][..], |&last| &func.op(last).operands);
            // The first region of a `while` yields its condition.
            let yields = if matches!(op, ControlOp::While) && number == 0 { &[][..] } else { yields };
            if carries {
                self.follow(operation.operands.get(first..).unwrap_or_default(), args);
                self.follow(yields, args);
                self.follow(args, &operation.results);
            }
            self.follow(yields, &operation.results);
        }
    }
}

/// Checks the uses of tiles in flight.
fn uses<'f>(func: &'f Func, region: RegionId, flying: &[bool], errors: &mut Errors<'f>) {
    let mut used: Vec<ValueId> = Vec::new();
    for (_, operation) in func.region_ops(region) {
        for &inner in &operation.regions {
            uses(func, inner, flying, errors);
        }
        let name = operation.op.name();
        for (index, &operand) in operation.operands.iter().enumerate() {
            if !flying[operand.index()] {
                continue;
            }
            if !operation.op.takes_in_flight(index) {
                let message = format!("`{name}` uses the result of an asynchronous product before `wgmma_wait`");
                errors.push(operation.span, message);
                break;
            } else if used.contains(&operand) {
                errors.push(operation.span, format!("`{name}`: a tile in flight is used twice"));
            }
            used.push(operand);
        }
    }
}
