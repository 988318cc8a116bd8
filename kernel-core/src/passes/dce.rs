//! Dead code elimination: what has no effect and no use goes, loop-carried values and results of `if` included.
//!
//! Before:
//! ```text
//! %5: f32, %6: i32 = for %0, %1, %2, %3, %4 (%i: i32, %acc: f32, %k: i32) {
//!   %9: i32 = add %k, %i
//!   %10: f32 = add %acc, %acc
//!   yield %10, %9
//! }
//! store %out, %5
//! ```
//! After, since `%6` is only used to compute itself:
//! ```text
//! %5: f32 = for %0, %1, %2, %3 (%i: i32, %acc: f32) {
//!   %10: f32 = add %acc, %acc
//!   yield %10
//! }
//! store %out, %5
//! ```
//!
//! Liveness starts at effects (stores, atomics, assertions, `while`, barriers) and goes backwards through operands,
//! and from a carried value to what initialises and what yields it. A load without uses is dead.

use crate::edit::{Structure, walk};
use crate::ir::{ControlOp, Def, Func, Op, OpId, RegionId, ValueId, view};

/// Runs the pass; returns whether anything changed.
pub fn run(func: &mut Func) -> bool {
    let mut liveness = Liveness::new(func);
    walk(func, &mut |op| {
        let roots = func.own_effects(op).iter().any(|effect| effect.writes);
        if roots || func.op(op).op == Op::Control(ControlOp::Return) {
            liveness.mark_op(op);
        }
    });
    liveness.spread();
    let Liveness { ops, values, .. } = liveness;
    let mut changed = false;
    sweep(func, func.body, &ops, &values, &mut changed);
    changed
}

struct Liveness<'f> {
    func: &'f Func,
    ops: Vec<bool>,
    values: Vec<bool>,
    structure: Structure,
    pending: Vec<ValueId>,
}

impl<'f> Liveness<'f> {
    fn new(func: &'f Func) -> Liveness<'f> {
        let (ops, values) = (vec![false; func.ops.len()], vec![false; func.values.len()]);
        Liveness { func, ops, values, structure: Structure::new(func), pending: Vec::new() }
    }

    fn mark_value(&mut self, value: ValueId) {
        if !std::mem::replace(&mut self.values[value.index()], true) {
            self.pending.push(value);
        }
    }

    /// Marks an operation, and those around it, as staying. Carried values and yields stay only if they are used.
    fn mark_op(&mut self, mut id: OpId) {
        loop {
            if std::mem::replace(&mut self.ops[id.index()], true) {
                return;
            }
            let operation = self.func.op(id);
            // What a `for` carries and a `yield` hands on stays only if it is used.
            if let Some(view::For { lo, hi, step, .. }) = view::For::of(operation) {
                [lo, hi, step].into_iter().for_each(|v| self.mark_value(v));
            } else if operation.op != Op::Control(ControlOp::Yield) {
                operation.operands.iter().for_each(|&v| self.mark_value(v));
            }
            for &region in &operation.regions {
                if let Some(&last) = self.func.region(region).ops.last() {
                    self.ops[last.index()] = true;
                }
                // All that these yield is needed; what loops and branches yield only if it is used.
                let partial = matches!(&operation.op, Op::Control(ControlOp::For { .. } | ControlOp::If));
                if !partial {
                    self.func.yielded(region).iter().for_each(|&v| self.mark_value(v));
                }
            }
            let Some(owner) = self.structure.around(id).next() else { return };
            id = owner;
        }
    }

    fn spread(&mut self) {
        while let Some(value) = self.pending.pop() {
            match self.func.value(value).def {
                Def::Param(_) => {}
                Def::Result(op, index) => {
                    self.mark_op(op);
                    self.mark_carried(op, index as usize);
                }
                Def::Arg(region, index) => {
                    let Some(owner) = self.structure.owner(region) else { continue };
                    let is_for = matches!(self.func.op(owner).op, Op::Control(ControlOp::For { .. }));
                    if is_for && index > 0 {
                        self.mark_carried(owner, index as usize - 1);
                    }
                }
            }
        }
    }

    /// Marks what a result of a loop or branch comes from. A loop's argument, yield, initial value and result
    /// live and die together.
    fn mark_carried(&mut self, id: OpId, index: usize) {
        let operation = self.func.op(id);
        if let Op::Control(ControlOp::If) = operation.op {
            for &region in &operation.regions {
                if let Some(&value) = self.func.yielded(region).get(index) {
                    self.mark_value(value);
                }
            }
        } else if let Some(view::For { carried, .. }) = view::For::of(operation) {
            let region = operation.regions[0];
            let parts = [
                operation.results.get(index),
                carried.get(index),
                self.func.region(region).args.get(index + 1),
                self.func.yielded(region).get(index),
            ];
            parts.into_iter().flatten().for_each(|&v| self.mark_value(v));
        }
    }
}

/// Drops what is not marked from a region.
fn sweep(func: &mut Func, region: RegionId, ops: &[bool], values: &[bool], changed: &mut bool) {
    let all = std::mem::take(&mut func.regions[region.index()].ops);
    let before = all.len();
    let kept: Vec<OpId> = all.into_iter().filter(|op| ops[op.index()]).collect();
    *changed |= kept.len() != before;
    for &op in &kept {
        let operation = func.op(op);
        let loops = matches!(&operation.op, Op::Control(ControlOp::For { .. }));
        let branches = matches!(&operation.op, Op::Control(ControlOp::If));
        let dead: Vec<usize> = if loops || branches {
            (0..operation.results.len()).filter(|&i| !values[operation.results[i].index()]).collect()
        } else {
            Vec::new()
        };
        for inner in operation.regions.clone() {
            sweep(func, inner, ops, values, changed);
        }
        if !dead.is_empty() {
            *changed = true;
            drop_results(func, op, &dead, loops);
        }
    }
    func.regions[region.index()].ops = kept;
}

/// Drops results with what yields them, and for a loop their initial values and arguments.
fn drop_results(func: &mut Func, id: OpId, dead: &[usize], loops: bool) {
    let without = |list: &[ValueId], skip: usize| -> Vec<ValueId> {
        let kept = list.iter().enumerate().filter(|(i, _)| *i < skip || !dead.contains(&(i - skip)));
        kept.map(|(_, &v)| v).collect()
    };
    let results = without(&func.op(id).results, 0);
    for (index, result) in (0u32..).zip(&results) {
        func.values[result.index()].def = Def::Result(id, index);
    }
    func.ops[id.index()].results = results;
    if loops {
        func.ops[id.index()].operands = without(&func.op(id).operands, 3);
    }
    for region in func.op(id).regions.clone() {
        if loops {
            let args = without(&func.region(region).args, 1);
            for (index, arg) in (0u32..).zip(&args) {
                func.values[arg.index()].def = Def::Arg(region, index);
            }
            func.regions[region.index()].args = args;
        }
        if let Some(&last) = func.region(region).ops.last() {
            func.ops[last.index()].operands = without(&func.op(last).operands, 0);
        }
    }
}
