//! Control flow: loops, branches, warp groups.

use crate::ir::{ControlOp, Func, OpId, Operation, ParamKind, RegionId, Resource, ValueId, format};

use super::super::instructions::{ForBounds, Inst};
use super::super::print::Print;
use super::super::registers::{LoopId, Pc, RegId};
use super::{Compiler, Result, Yields, unsupported};

impl Compiler<'_> {
    pub(super) fn control(&mut self, op: &ControlOp, id: OpId, operation: &Operation) -> Result<()> {
        match op {
            ControlOp::For { reverse, .. } => self.for_loop(operation, *reverse),
            ControlOp::While => self.while_loop(id, operation),
            ControlOp::If if self.lanes.is_some() => self.select_branches(operation),
            ControlOp::If => self.branch(operation),
            ControlOp::Reduce { axis } => self.reduce(operation, usize::from(*axis)),
            ControlOp::Scan { axis, reverse } => self.scan(operation, usize::from(*axis), *reverse),
            // What the PTX of an operation computes, its region says.
            ControlOp::Map { ptx: _ } => self.map(operation),
            ControlOp::Assert { message } => {
                let condition = self.operand(operation, 0)?;
                self.emit(Inst::Assert { condition, message: message.as_str().into() });
                Ok(())
            }
            ControlOp::Print { text } => self.print(operation, text),
            ControlOp::StaticAssert { .. } => {
                unsupported("`static_assert` remains: the kernel is not bound", self.span)
            }
            // Terminators are the business of who owns the region.
            ControlOp::Yield | ControlOp::Return => {
                unsupported(format!("operation {} ends a region in its middle", id.index()), self.span)
            }
        }
    }

    fn print(&mut self, operation: &Operation, text: &str) -> Result<()> {
        let Ok(pieces) = format::pieces(text) else { return unsupported("a text that is none", self.span) };
        let values = (0..operation.operands.len()).map(|index| self.operand(operation, index));
        let values = values.map(|reg| reg.and_then(|reg| Ok((reg, self.dtype(reg)?)))).collect::<Result<_>>()?;
        self.emit(Inst::Print(Box::new(Print { pieces, values })));
        Ok(())
    }

    pub(super) fn sub_region(&self, operation: &Operation, index: usize) -> Result<RegionId> {
        match operation.regions.get(index) {
            Some(&region) => Ok(region),
            None => unsupported(format!("`{}` lacks a region", operation.op.mnemonic()), self.span),
        }
    }

    /// Copies registers as if all at once, then gives back what is dead.
    fn move_all(&mut self, from: Yields, to: &[RegId]) {
        let mut temporaries = Vec::new();
        let mut sources = from.regs;
        for (i, source) in sources.iter_mut().enumerate() {
            // Another move would overwrite it before it is read.
            if to.get(i) != Some(source) && to.contains(source) {
                let temporary = self.twin(*source);
                self.emit(Inst::Move { a: *source, out: temporary });
                temporaries.push(temporary);
                *source = temporary;
            }
        }
        for (&a, &out) in sources.iter().zip(to) {
            if a != out {
                self.emit(Inst::Move { a, out });
            }
        }
        for reg in temporaries.into_iter().chain(from.dying) {
            self.free(reg);
        }
    }

    /// New registers for carried values, which hold the loop's results afterwards.
    fn carry(&mut self, initial: &[ValueId], results: &[ValueId]) -> Result<Vec<RegId>> {
        let sources = self.regs(initial)?;
        let mut carried = Vec::with_capacity(results.len());
        for &result in results {
            carried.push(self.define(result)?);
        }
        self.move_all(Yields { regs: sources, dying: Vec::new() }, &carried);
        Ok(carried)
    }

    fn name_args(&mut self, args: &[ValueId], regs: &[RegId]) {
        for (arg, &reg) in args.iter().zip(regs) {
            self.reg_of[arg.index()] = Some(reg);
        }
    }

    fn for_loop(&mut self, operation: &Operation, reverse: bool) -> Result<()> {
        let func = self.func;
        let body = self.sub_region(operation, 0)?;
        let bounds = ForBounds {
            lo: self.operand(operation, 0)?,
            hi: self.operand(operation, 1)?,
            step: self.operand(operation, 2)?,
            reverse,
        };
        let Some((&index_value, args)) = func.region(body).args.split_first() else {
            return unsupported("the body of a loop lacks its index", self.span);
        };
        let carried = self.carry(&operation.operands[3..], &operation.results)?;
        let index = self.define(index_value)?;
        self.name_args(args, &carried);
        let state = LoopId(self.loops);
        self.loops += 1;
        let begin = self.emit(Inst::ForBegin { state, bounds: Box::new(bounds), index, exit: Pc::UNPATCHED });
        let start = self.here();
        let yields = self.region(body)?;
        self.move_all(yields, &carried);
        self.span = operation.span;
        self.emit(Inst::ForNext { state, index, body: start });
        self.land(begin);
        self.free(index);
        Ok(())
    }

    fn while_loop(&mut self, id: OpId, operation: &Operation) -> Result<()> {
        let func = self.func;
        let (condition, body) = (self.sub_region(operation, 0)?, self.sub_region(operation, 1)?);
        let carried = self.carry(&operation.operands, &operation.results)?;
        self.name_args(&func.region(condition).args, &carried);
        self.name_args(&func.region(body).args, &carried);
        let start = self.here();
        let test = self.region(condition)?;
        let Some(&truth) = test.regs.first() else {
            return unsupported("the condition of a loop yields nothing", self.span);
        };
        let branch = self.emit(Inst::BranchUnless { condition: truth, to: Pc::UNPATCHED });
        test.dying.into_iter().for_each(|reg| self.free(reg));
        let yields = self.region(body)?;
        self.move_all(yields, &carried);
        let waits = may_wait(func, id);
        self.waits |= waits;
        // What ends in the loop, ends at the `while`.
        self.span = operation.span;
        self.emit(Inst::Again { to: start, waits });
        self.land(branch);
        Ok(())
    }

    fn branch(&mut self, operation: &Operation) -> Result<()> {
        let (then, otherwise) = (self.sub_region(operation, 0)?, self.sub_region(operation, 1)?);
        let condition = self.operand(operation, 0)?;
        let mut results = Vec::with_capacity(operation.results.len());
        for &result in &operation.results {
            results.push(self.define(result)?);
        }
        let branch = self.emit(Inst::BranchUnless { condition, to: Pc::UNPATCHED });
        let yields = self.region(then)?;
        self.move_all(yields, &results);
        let jump = self.emit(Inst::Jump { to: Pc::UNPATCHED });
        self.land(branch);
        let yields = self.region(otherwise)?;
        self.move_all(yields, &results);
        self.land(jump);
        Ok(())
    }

    /// A branch on tiles of elements: both sides are computed (they are pure), then selected from.
    fn select_branches(&mut self, operation: &Operation) -> Result<()> {
        let (then, otherwise) = (self.sub_region(operation, 0)?, self.sub_region(operation, 1)?);
        let condition = self.operand(operation, 0)?;
        let (a, b) = (self.region(then)?, self.region(otherwise)?);
        for (&result, (a, b)) in operation.results.iter().zip(a.regs.into_iter().zip(b.regs)) {
            let out = self.define(result)?;
            let f = super::super::elementwise::select(self.info(out).lane.bytes());
            self.emit(Inst::Select { f, condition, a, b, out });
        }
        Ok(())
    }

    pub(super) fn warp_groups(&mut self, operation: &Operation) -> Result<()> {
        let groups = self.emit(Inst::WarpGroups { entries: Box::default(), exit: Pc::UNPATCHED });
        let mut starts = Vec::with_capacity(operation.regions.len());
        // The groups run in turns, so none may take the places of another.
        self.storage.hold();
        for &region in &operation.regions {
            starts.push(self.here());
            self.region(region)?;
            self.emit(Inst::RegionEnd);
        }
        self.storage.release();
        if let Inst::WarpGroups { entries, .. } = &mut self.insts[groups.index()] {
            *entries = starts.into();
        }
        self.land(groups);
        Ok(())
    }
}

/// Whether what a loop does may depend on other programs: an operation in it learns what is in memory that they may
/// write, by a read or as the result of an atomic.
fn may_wait(func: &Func, id: OpId) -> bool {
    let is_written = |resource| match resource {
        Resource::Buffer(param) => match &func.param(param).kind {
            ParamKind::Ptr { mutable, .. } | ParamKind::Desc { mutable, .. } => *mutable,
            ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => false,
        },
        Resource::Shared | Resource::Barriers | Resource::Control => false,
    };
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        let operation = func.op(id);
        let learns = |writes: bool| !writes || !operation.results.is_empty();
        if func.own_effects(id).iter().any(|effect| is_written(effect.resource) && learns(effect.writes)) {
            return true;
        }
        pending.extend(operation.regions.iter().flat_map(|&region| &func.region(region).ops));
    }
    false
}
