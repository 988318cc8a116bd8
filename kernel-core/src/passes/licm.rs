//! Loop-invariant code motion: what a loop computes anew in every iteration, always the same, moves before it.
//!
//! Before:
//! ```text
//! for %0, %1, %2 (%i: i32) {
//!   %5: i32[64] = arange {lo = 0, hi = 64}
//!   %6: i32[64] = splat %i
//!   %7: i32[64] = add %5, %6
//!   ..
//! ```
//! After:
//! ```text
//! %5: i32[64] = arange {lo = 0, hi = 64}
//! for %0, %1, %2 (%i: i32) {
//!   %6: i32[64] = splat %i
//!   %7: i32[64] = add %5, %6
//!   ..
//! ```
//!
//! Operations without effects move, reductions too; every operation is total, so it does no harm that the loop might
//! not run. A load through `Ptr` moves out of a loop that is known to run and holds no assertion, because a load that
//! the source does not do could leave its buffer. Inner loops come first, so an operation leaves as many as it can.

use crate::edit::walk_region;
use crate::ir::known::known_trip_count;
use crate::ir::{ControlOp, Func, Op, OpId, RegionId, Regions, Resource, ValueId};
use crate::passes::cse::reads_constant_memory;

/// Runs the pass; returns whether anything changed.
pub fn run(func: &mut Func) -> bool {
    let mut licm = Licm { marks: vec![0; func.values.len()], next: 0, changed: false, func };
    licm.region(licm.func.body);
    licm.changed
}

struct Licm<'f> {
    func: &'f mut Func,
    /// Per value, the number of the innermost walk that found it defined inside.
    marks: Vec<u32>,
    next: u32,
    changed: bool,
}

impl Licm<'_> {
    fn region(&mut self, region: RegionId) {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            for inner in self.func.op(op).regions.clone() {
                self.region(inner);
            }
            self.leave_loop(op, &mut out);
            out.push(op);
        }
        self.func.regions[region.index()].ops = out;
    }

    /// Moves what is invariant in a loop to the end of `out`.
    fn leave_loop(&mut self, id: OpId, out: &mut Vec<OpId>) {
        let operation = self.func.op(id);
        let Op::Control(op) = &operation.op else { return };
        let runs = match op {
            ControlOp::For { .. } => known_trip_count(self.func, operation).is_some_and(|iterations| iterations > 0),
            // Its condition runs at least once, its body may not.
            ControlOp::While => false,
            ControlOp::If
            | ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Map { .. }
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => return,
        };
        let regions = operation.regions.clone();
        let asserts = regions.iter().any(|&region| self.may_end(region));
        let loads = runs && !asserts;
        self.next += 1;
        for &region in &regions {
            self.mark(region);
        }
        for region in regions {
            let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
            let mut kept = Vec::with_capacity(ops.len());
            for op in ops {
                if self.movable(op, loads) && self.invariant(op) {
                    for result in &self.func.op(op).results {
                        self.marks[result.index()] = 0;
                    }
                    self.changed = true;
                    out.push(op);
                } else {
                    kept.push(op);
                }
            }
            self.func.regions[region.index()].ops = kept;
        }
    }

    /// Whether the program may end in the region: by an assertion, or by never leaving a `while`.
    fn may_end(&self, region: RegionId) -> bool {
        let ends = |op: &OpId| self.func.effects(*op).iter().any(|e| e.resource == Resource::Control);
        self.func.region(region).ops.iter().any(ends)
    }

    /// Marks everything that is defined in a region.
    fn mark(&mut self, region: RegionId) {
        let mut values: Vec<ValueId> = self.func.region(region).args.clone();
        walk_region(self.func, region, &mut |op| {
            let operation = self.func.op(op);
            values.extend(&operation.results);
            operation.regions.iter().for_each(|&inner| values.extend(&self.func.region(inner).args));
        });
        for value in values {
            self.marks[value.index()] = self.next;
        }
    }

    /// Whether it does no harm to do the operation once, before the loop.
    fn movable(&self, id: OpId, loads: bool) -> bool {
        let operation = self.func.op(id);
        match operation.op.regions() {
            // A promise may be broken where the loop does not run, so what makes one stays.
            Regions::Straight if operation.op.is_pure() => !operation.op.is_terminator(),
            // No block leaves its tensor, so it does no harm to read one that the source does not.
            Regions::Straight => reads_constant_memory(self.func, id) && (loads || matches!(operation.op, Op::Desc(_))),
            Regions::Combine(_) | Regions::Apply(_) => self.func.effects(id).is_empty(),
            Regions::Loop(_) | Regions::Branch(_) | Regions::Concurrent => false,
        }
    }

    /// Whether all that the operation and its regions use is defined outside the loop.
    fn invariant(&mut self, id: OpId) -> bool {
        let mut used = self.func.op(id).operands.clone();
        let mut own: Vec<ValueId> = Vec::new();
        for &region in &self.func.op(id).regions {
            own.extend(&self.func.region(region).args);
            walk_region(self.func, region, &mut |op| {
                let operation = self.func.op(op);
                used.extend(&operation.operands);
                own.extend(&operation.results);
                operation.regions.iter().for_each(|&inner| own.extend(&self.func.region(inner).args));
            });
        }
        own.sort_unstable();
        let outside = |v: &ValueId| self.marks[v.index()] != self.next || own.binary_search(v).is_ok();
        used.iter().all(outside)
    }
}
