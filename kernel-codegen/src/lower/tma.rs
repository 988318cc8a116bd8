//! Tensor copies between global and shared memory (TMA).
//!
//! One thread asks for them, box by box; the copies run beside the threads. What a copy needs to know of the tensor
//! is in its tensor map, a parameter of the kernel that the host has encoded.

use kernel_core::ir::{DType, Func, GpuOp, Op, OpId, Operation, ParamId, StoreMode, ValueId};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::IntValue;

use super::{Lower, Result, Value};
use crate::analysis::control::for_each_op;
use crate::boxes::{Boxes, boxes_of};
use crate::check::AccessKind;
use crate::compiled::TensorMap;
use crate::error::CodegenError;
use crate::report::{AccessReport, Mover};

/// The map that the copies of a tensor use; `None` if none copies it.
pub(super) fn map_of(func: &Func, param: ParamId) -> Option<TensorMap> {
    let mut view = None;
    for_each_op(func, func.body, &mut |id| {
        if let Some((tensor, place)) = copied(func, id)
            && tensor == param
        {
            view.get_or_insert(place);
        }
    });
    let boxes = view_boxes(func, view?)?;
    let side: Vec<i64> = boxes.side.iter().map(|&side| i64::from(side)).collect();
    TensorMap::new(param, &side, boxes.swizzle)
}

/// The tensor and the view of a copy.
fn copied(func: &Func, id: OpId) -> Option<(ParamId, ValueId)> {
    let operation = func.op(id);
    match &operation.op {
        Op::Gpu(GpuOp::TmaLoad | GpuOp::TmaStore { .. }) => {
            let tensor = func.ty(*operation.operands.first()?).descriptor()?;
            Some((tensor, *operation.operands.get(1)?))
        }
        _ => None,
    }
}

/// The boxes of a view.
pub(super) fn view_boxes(func: &Func, view: ValueId) -> Option<Boxes> {
    let layout = &func.layouts[func.value(view).layout?.index()];
    let bits = func.ty(view).dtype().map_or(8, DType::bytes) * 8;
    boxes_of(layout, bits)
}

impl<'ctx> Lower<'_, 'ctx> {
    /// The first thread asks for the boxes of a block; their bytes count on a barrier.
    pub(super) fn tma_load(&mut self, operation: &Operation) -> Result<()> {
        let &[tensor, view, barriers, slot, ref coordinates @ ..] = operation.operands.as_slice() else {
            return Ok(());
        };
        let boxes = self.boxes(operation, view)?;
        self.report_copies(operation, AccessKind::Load, &boxes);
        let barrier = self.phase_barrier(barriers, slot);
        let places = place_list(coordinates.len(), 2);
        let assembly = format!(
            "@${} cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {places}], [${}];",
            coordinates.len() + 3,
            coordinates.len(),
            coordinates.len() + 2,
        );
        let constraints = format!("r,l{},r,b", ",r".repeat(coordinates.len()));
        let (map, first) = (self.scalar(tensor), self.first_thread());
        for (number, start) in (0u32..).zip(&boxes.starts) {
            let mut arguments = vec![self.box_address(view, number * boxes.bytes).into(), map];
            arguments.extend(self.box_coordinates(coordinates, start));
            arguments.extend([Value::from(barrier), first.into()]);
            self.ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::Memory);
            self.jitter();
        }
        Ok(())
    }

    /// The first thread asks for the boxes of a block to be written, as one group.
    pub(super) fn tma_store(&mut self, operation: &Operation, mode: StoreMode) -> Result<()> {
        let &[tensor, view, ref coordinates @ ..] = operation.operands.as_slice() else { return Ok(()) };
        let boxes = self.boxes(operation, view)?;
        let kind = if mode == StoreMode::Store { AccessKind::Store } else { AccessKind::Atomic };
        self.report_copies(operation, kind, &boxes);
        let (rank, places) = (coordinates.len(), place_list(coordinates.len(), 2));
        let instruction = match mode {
            StoreMode::Store => format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"),
            StoreMode::Add | StoreMode::Min | StoreMode::Max | StoreMode::And | StoreMode::Or | StoreMode::Xor => {
                format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{}.tile.bulk_group", mode.name())
            }
        };
        let assembly = format!("@${} {instruction} [$1, {places}], [$0];", rank + 2);
        let constraints = format!("r,l{},b", ",r".repeat(rank));
        let (map, first) = (self.scalar(tensor), self.first_thread());
        for (number, start) in (0u32..).zip(&boxes.starts) {
            let mut arguments = vec![self.box_address(view, number * boxes.bytes).into(), map];
            arguments.extend(self.box_coordinates(coordinates, start));
            arguments.push(first.into());
            self.ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::Memory);
            self.jitter();
        }
        self.ir.asm(&[], "@$0 cp.async.bulk.commit_group;", "b", &[first.into()], AsmEffects::Memory);
        Ok(())
    }

    /// Waits until shared memory is no longer read by all but so many groups. Only the thread that asked has groups; the
    /// others learn of it at the next barrier.
    pub(super) fn tma_store_wait(&mut self, pending: u8) {
        let assembly = format!("cp.async.bulk.wait_group.read {pending};");
        self.ir.asm(&[], &assembly, "", &[], AsmEffects::Memory);
    }

    fn boxes(&self, operation: &Operation, view: ValueId) -> Result<Boxes> {
        view_boxes(self.func, view).ok_or_else(|| {
            let what = "a tensor copy of shared memory that is not made of boxes";
            CodegenError::refuse(self.func, operation.span, what)
        })
    }

    fn box_address(&self, view: ValueId, distance: u32) -> IntValue<'ctx> {
        let start = self.shared_int(self.view(view));
        if distance == 0 { start } else { self.ir.add(start, self.ir.i32(distance as i32)) }
    }

    /// Where a box begins in the tensor, innermost dimension first.
    fn box_coordinates(&self, block: &[ValueId], start: &[u32]) -> Vec<Value<'ctx>> {
        let along = |(&coordinate, &distance): (&ValueId, &u32)| -> Value<'ctx> {
            let coordinate = self.ir.int(self.scalar(coordinate));
            match distance {
                0 => coordinate.into(),
                _ => self.ir.add(coordinate, self.ir.i32(distance as i32)).into(),
            }
        };
        block.iter().zip(start).rev().map(along).collect()
    }

    fn report_copies(&mut self, operation: &Operation, kind: AccessKind, boxes: &Boxes) {
        let Some(param) = operation.operands.first().and_then(|&tensor| self.func.ty(tensor).descriptor()) else {
            return;
        };
        self.report.accesses.push(AccessReport {
            span: operation.span,
            kind,
            param,
            class: None,
            mover: Mover::TensorCopy,
            vector: boxes.side.iter().product(),
            bytes: boxes.bytes,
            instructions: boxes.starts.len() as u32,
            masked: false,
            layout: None,
        });
    }
}

/// `{$2, $3}`: operands from `first` on.
fn place_list(count: usize, first: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    format!("{{{}}}", names.join(", "))
}
