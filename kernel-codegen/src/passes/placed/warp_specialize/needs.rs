//! What the producer has to compute: coordinates of blocks, bounds of loops, conditions, and nothing else.

use std::collections::BTreeSet;

use kernel_core::edit::Structure;
use kernel_core::ir::{ControlOp, Def, Func, MemoryOp, Op, OpId, ParamKind, Regions, Span, ValueId};

use super::find::{FedLoop, NotFed};
use super::held::{self, Held};
use crate::analysis::control::operands_before_carried;

/// The operations and values of a kernel that its loads depend on.
#[derive(Default, Debug)]
pub(super) struct Needs {
    pub(super) ops: BTreeSet<OpId>,
    /// Arguments and results of control flow among them.
    pub(super) values: BTreeSet<ValueId>,
}

impl Needs {
    /// What the loads of some loops need.
    ///
    /// # Errors
    /// If that is more than scalars that any thread can compute.
    pub(super) fn of(
        func: &Func,
        structure: &Structure,
        fed_loops: &[FedLoop],
        held: &[Held],
    ) -> Result<Needs, NotFed> {
        let mut search = Search { func, structure, needs: Needs::default(), work: Vec::new() };
        for fed in fed_loops {
            search.operation(fed.owner);
            for copy in &fed.copies {
                search.work.extend(func.op(copy.load).operands.iter().skip(1));
            }
        }
        for load in held::loads(held) {
            search.work.extend(func.op(load).operands.iter().skip(1));
        }
        while let Some(value) = search.work.pop() {
            search.value(value)?;
        }
        Ok(search.needs)
    }
}

struct Search<'f> {
    func: &'f Func,
    structure: &'f Structure,
    needs: Needs,
    /// Values that are needed and have not been looked at.
    work: Vec<ValueId>,
}

impl Search<'_> {
    /// Notes that an operation is needed, and so are those around it; control flow needs what decides its way.
    fn operation(&mut self, id: OpId) {
        for id in [id].into_iter().chain(self.structure.around(id)) {
            if !self.needs.ops.insert(id) {
                continue;
            }
            let operation = self.func.op(id);
            self.work.extend(operation.deciding());
            if let Some(condition) = operation.condition_region() {
                self.work.extend(self.func.yielded(condition));
            }
        }
    }

    fn value(&mut self, value: ValueId) -> Result<(), NotFed> {
        if !self.needs.values.insert(value) {
            return Ok(());
        }
        match self.func.value(value).def {
            Def::Param(_) => {}
            Def::Arg(region, index) => {
                let Some(owner) = self.structure.owner(region) else { return Ok(()) };
                self.operation(owner);
                let first = usize::from(matches!(self.func.op(owner).op, Op::Control(ControlOp::For { .. })));
                if let Some(carried) = (index as usize).checked_sub(first) {
                    self.carried(owner, carried)?;
                }
            }
            Def::Result(id, index) => {
                self.operation(id);
                match self.func.op(id).op.regions() {
                    Regions::Loop(_) => self.carried(id, index as usize)?,
                    Regions::Branch(_) => {
                        for &region in &self.func.op(id).regions {
                            self.work.extend(self.func.yielded(region).get(index as usize));
                        }
                    }
                    Regions::Straight | Regions::Combine(_) | Regions::Apply(_) | Regions::Concurrent => {
                        self.is_scalar_work(id)?;
                        self.work.extend(&self.func.op(id).operands);
                    }
                }
            }
        }
        Ok(())
    }

    /// A value that a loop carries: what it begins with, what follows it, and its names in and after the loop.
    fn carried(&mut self, owner: OpId, index: usize) -> Result<(), NotFed> {
        let operation = self.func.op(owner);
        let Op::Control(op) = &operation.op else { return Ok(()) };
        let (before, first) = (operands_before_carried(op), usize::from(matches!(op, ControlOp::For { .. })));
        self.work.extend(operation.operands.get(before + index));
        self.work.extend(operation.results.get(index));
        for &region in &operation.regions {
            self.work.extend(self.func.region(region).args.get(first + index));
        }
        if let Some(&body) = operation.regions.last() {
            self.work.extend(self.func.yielded(body).get(index));
        }
        let tile = operation.operands.get(before + index).is_some_and(|&value| !self.func.ty(value).is_scalar());
        if tile { Err(unknown(operation.span, "a tile that a loop carries")) } else { Ok(()) }
    }

    /// Whether one thread can do the operation for itself.
    fn is_scalar_work(&self, id: OpId) -> Result<(), NotFed> {
        let operation = self.func.op(id);
        let scalars = operation.operands.iter().chain(&operation.results).all(|&v| self.func.ty(v).is_scalar());
        let op = &operation.op;
        let is_load = matches!(op, Op::Memory(MemoryOp::Load { .. }));
        if is_load {
            let param = self.func.ty(operation.operands[0]).pointee();
            let kind = param.map(|param| &self.func.param(param).kind);
            if matches!(kind, Some(ParamKind::Ptr { mutable: true, .. })) {
                return Err(unknown(operation.span, "memory that the kernel may write"));
            }
        } else if matches!(op, Op::Memory(_)) && op.touches_memory() {
            return Err(unknown(operation.span, "an atomic, which must happen once"));
        }
        let is_check = matches!(op, Op::Memory(MemoryOp::CheckBounds { .. }));
        let fine = scalars && (is_load || is_check || op.is_local());
        if fine { Ok(()) } else { Err(unknown(operation.span, "a tile, which all threads compute together")) }
    }
}

fn unknown(span: Span, source: &str) -> NotFed {
    NotFed::new(span, format!("where its blocks lie depends on {source}"))
}
