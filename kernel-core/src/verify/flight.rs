//! The rule L8: what may be done with the result of an asynchronous product before it is waited for.
//!
//! The registers of such a tile are written by hardware at some time until the wait. It can be the accumulator of a
//! further product, be carried by a loop or yielded by a branch, and be waited for, and only one of these.

use super::Errors;
use crate::ir::{ControlOp, Func, GpuOp, GroupPart, Op, OpId, RegionId, ValueId};

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    let flying = tiles_in_flight(func);
    if flying.iter().any(|&f| f) {
        uses(func, func.body, &flying, errors);
    }
}

/// Per value, whether a product may still be writing it where it is defined.
///
/// Products end in the order in which they began. So a wait that leaves `pending` products in flight is one for all tiles
/// since whose product so many others have begun, on every way to the wait.
pub fn tiles_in_flight(func: &Func) -> Vec<bool> {
    let count = func.values.len();
    let mut flight = Flight { func, flying: vec![None; count], defined: vec![0; count], begun: 0, changed: false };
    loop {
        flight.changed = false;
        flight.begun = 0;
        flight.region(func.body);
        if !flight.changed {
            return flight.flying.into_iter().map(|age| age.is_some()).collect();
        }
    }
}

/// Finds the tiles that may be in flight.
struct Flight<'f> {
    func: &'f Func,
    /// Per value in flight, how many products have begun since its own where it is defined, at least.
    flying: Vec<Option<u32>>,
    /// Per value in flight, how many had begun in the walk where it is defined.
    defined: Vec<u32>,
    /// How many products have begun in the walk, on the way with the fewest.
    begun: u32,
    changed: bool,
}

impl Flight<'_> {
    /// Notes that a value flies which is defined where so many products have begun.
    fn mark(&mut self, value: ValueId, age: u32, begun: u32) {
        self.defined[value.index()] = begun;
        let known = &mut self.flying[value.index()];
        if known.is_none_or(|known| age < known) {
            *known = Some(age);
            self.changed = true;
        }
    }

    /// How many products have begun since that of a value, if it is in flight.
    fn age(&self, value: ValueId) -> Option<u32> {
        let age = self.flying[value.index()]?;
        Some(age + self.begun.saturating_sub(self.defined[value.index()]))
    }

    fn ages(&self, values: &[ValueId]) -> Vec<Option<u32>> {
        values.iter().map(|&value| self.age(value)).collect()
    }

    /// Whatever becomes `to` flies if what it comes from does.
    fn follow(&mut self, ages: &[Option<u32>], to: &[ValueId], begun: u32) {
        for (age, &to) in ages.iter().zip(to) {
            if let Some(age) = *age {
                self.mark(to, age, begun);
            }
        }
    }

    fn region(&mut self, region: RegionId) {
        let func = self.func;
        for (id, operation) in func.region_ops(region) {
            if let Op::Control(op) = &operation.op {
                self.control(id, op);
                continue;
            }
            let before = self.begun;
            for &inner in &operation.regions {
                self.region(inner);
                self.begun = before;
            }
            // Nothing but products puts tiles in flight, and nothing but waits and control flow hands them on (see `uses`).
            if let Op::Gpu(GpuOp::Wgmma { part, .. }) = &operation.op {
                // A product of own parts is in the group of the one that goes on with it.
                let group = self.begun + 1;
                self.begun = if *part == GroupPart::Own { self.begun } else { group };
                operation.results.iter().for_each(|&result| self.mark(result, 0, group));
            } else if let Op::Gpu(GpuOp::WgmmaWait { pending }) = &operation.op {
                let over = |age: &u32| *age < u32::from(*pending);
                let ages: Vec<Option<u32>> =
                    self.ages(&operation.operands).into_iter().map(|age| age.filter(over)).collect();
                self.follow(&ages, &operation.results, self.begun);
            }
        }
    }

    fn control(&mut self, id: OpId, op: &ControlOp) {
        let func = self.func;
        let operation = func.op(id);
        let before = self.begun;
        match op {
            ControlOp::For { .. } => {
                let (inits, body) = (self.ages(operation.operands.get(3..).unwrap_or_default()), operation.regions[0]);
                let args = func.region(body).args.get(1..).unwrap_or_default();
                self.follow(&inits, args, before);
                self.region(body);
                let yields = self.ages(func.yielded(body));
                self.follow(&yields, args, before);
                // The loop may not run.
                self.begun = before;
                self.follow(&inits, &operation.results, before);
                self.follow(&yields, &operation.results, before);
            }
            ControlOp::If => {
                let (mut fewest, mut yields) = (u32::MAX, Vec::new());
                for &inner in &operation.regions {
                    self.begun = before;
                    self.region(inner);
                    fewest = fewest.min(self.begun);
                    yields.push(self.ages(func.yielded(inner)));
                }
                self.begun = if fewest == u32::MAX { before } else { fewest };
                yields.iter().for_each(|ages| self.follow(ages, &operation.results, self.begun));
            }
            ControlOp::While => self.while_loop(id),
            ControlOp::Reduce { .. } | ControlOp::Scan { .. } | ControlOp::Map { .. } => {
                operation.regions.iter().for_each(|&inner| self.region(inner));
                self.begun = before;
            }
            ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => {}
        }
    }

    /// Nothing is counted through a loop of two regions.
    fn while_loop(&mut self, id: OpId) {
        let func = self.func;
        let (operation, before) = (func.op(id), self.begun);
        let just_begun =
            |ages: Vec<Option<u32>>| -> Vec<Option<u32>> { ages.into_iter().map(|age| age.map(|_| 0)).collect() };
        let inits = just_begun(self.ages(&operation.operands));
        let all_args = || operation.regions.iter().map(|&region| func.region(region).args.as_slice());
        all_args().for_each(|args| self.follow(&inits, args, before));
        for &region in &operation.regions {
            self.begun = before;
            self.region(region);
        }
        // The first region yields its condition.
        let yields = operation.regions.get(1).map_or(Vec::new(), |&body| just_begun(self.ages(func.yielded(body))));
        self.begun = before;
        all_args().for_each(|args| self.follow(&yields, args, before));
        self.follow(&inits, &operation.results, before);
        self.follow(&yields, &operation.results, before);
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
