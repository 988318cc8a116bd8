//! Tensor copies between global and shared memory (TMA).
//!
//! One thread asks for them, box by box; the copies run beside the threads. What a copy needs to know of the tensor
//! is in its tensor map, a parameter of the kernel that the host has encoded.

use kernel_core::edit::walk;
use kernel_core::ir::{Func, Operation, ParamId, StoreMode, ValueId};
use kernel_core::layout::{LayoutDim, LinearForm};
use kernel_core::target::GROUP_WARPS;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::IntValue;

use super::{Lower, Result, Value};
use crate::boxes::{Boxes, copied, view_boxes};
use crate::error::CodegenError;
use kernel_core::backend::nvidia::TensorMap;

/// The map that the copies of a tensor use; `None` if none copies it.
pub(super) fn map_of(func: &Func, param: ParamId) -> Option<TensorMap> {
    let mut first = None;
    walk(func, &mut |id| {
        if let Some((tensor, boxes)) = copied(func, func.op(id))
            && tensor == param
        {
            first.get_or_insert(boxes);
        }
    });
    let boxes = first??;
    let side: Vec<i64> = boxes.side.iter().map(|&side| i64::from(side)).collect();
    TensorMap::new(param, &side, boxes.swizzle)
}

/// The part of a block that the four warps copy that run the code.
struct OwnPart<'ctx> {
    /// The shape of a part.
    part: Vec<u32>,
    /// How far it is from the first in shared memory, in bytes, unless it is the first.
    bytes: Option<IntValue<'ctx>>,
    /// How far it is from the first along each dimension.
    distances: Vec<Option<IntValue<'ctx>>>,
}

impl<'ctx> Lower<'_, 'ctx> {
    /// The first thread asks for the boxes of a block; their bytes count on a barrier.
    pub(super) fn tma_load(&mut self, operation: &Operation) -> Result<()> {
        let &[tensor, view, barriers, slot, ref coordinates @ ..] = operation.operands.as_slice() else {
            return Err(self.malformed(operation));
        };
        let boxes = self.boxes(operation, view, &[])?;
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
        }
        Ok(())
    }

    /// The first thread asks for the boxes of a block to be written, as one group; or the first of each four warps for
    /// those of their part.
    pub(super) fn tma_store(&mut self, operation: &Operation, mode: StoreMode, parts: &[u8]) -> Result<()> {
        let &[tensor, view, ref coordinates @ ..] = operation.operands.as_slice() else {
            return Err(self.malformed(operation));
        };
        let boxes = self.boxes(operation, view, parts)?;
        let (rank, places) = (coordinates.len(), place_list(coordinates.len(), 2));
        let instruction = match mode {
            StoreMode::Store => format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"),
            StoreMode::Add | StoreMode::Min | StoreMode::Max | StoreMode::And | StoreMode::Or | StoreMode::Xor => {
                format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{}.tile.bulk_group", mode.name())
            }
        };
        let assembly = format!("@${} {instruction} [$1, {places}], [$0];", rank + 2);
        let constraints = format!("r,l{},b", ",r".repeat(rank));
        let first = if parts.is_empty() { self.first_thread() } else { self.arriving_thread() };
        let (map, own) = (self.scalar(tensor), self.own_part(operation, view, parts, &boxes)?);
        let part: Vec<u32> = own.part.clone();
        let is_first = |start: &[u32]| start.iter().zip(&part).all(|(at, size)| at < size);
        for (number, start) in (0u32..).zip(&boxes.starts).filter(|(_, start)| is_first(start)) {
            let address = self.box_address(view, number * boxes.bytes);
            let mut arguments = vec![self.moved(address, own.bytes).into(), map];
            let places = self.box_coordinates(coordinates, start);
            let distances = own.distances.iter().rev();
            for (at, &by) in places.into_iter().zip(distances) {
                arguments.push(self.moved(self.ir.int(at), by).into());
            }
            arguments.push(first.into());
            self.ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::Memory);
        }
        self.ir.asm(&[], "@$0 cp.async.bulk.commit_group;", "b", &[first.into()], AsmEffects::Memory);
        Ok(())
    }

    /// Waits until shared memory is no longer read by all but so many groups. Only the thread that asked has groups;
    /// the others learn of it at the next barrier.
    pub(super) fn tma_store_wait(&mut self, pending: u8) {
        let assembly = format!("cp.async.bulk.wait_group.read {pending};");
        self.ir.asm(&[], &assembly, "", &[], AsmEffects::Memory);
    }

    fn boxes(&self, operation: &Operation, view: ValueId, parts: &[u8]) -> Result<Boxes> {
        let boxes = view_boxes(self.func, view, parts).ok_or_else(|| {
            let what = "a tensor copy of shared memory that is not made of boxes";
            CodegenError::refuse(self.func, operation.span, what)
        })?;
        // One map says how all blocks of a tensor lie.
        let tensor = operation.operands.first().and_then(|&tensor| self.func.ty(tensor).descriptor());
        let mut torn = false;
        walk(self.func, &mut |id| {
            if let Some((other, found)) = copied(self.func, self.func.op(id)) {
                let same = found.is_some_and(|found| found.side == boxes.side && found.swizzle == boxes.swizzle);
                torn |= Some(other) == tensor && !same;
            }
        });
        match torn {
            false => Ok(boxes),
            true => {
                let what = "blocks of one tensor lie in two ways in shared memory";
                Err(CodegenError::internal(self.func, operation.span, "lowering", what))
            }
        }
    }

    /// Where the part of the four warps that run the code begins, beside the first.
    fn own_part(&mut self, operation: &Operation, view: ValueId, parts: &[u8], boxes: &Boxes) -> Result<OwnPart<'ctx>> {
        let mut part = self.view_layout(operation, view)?.tile_shape();
        let mut own = OwnPart { part: part.clone(), bytes: None, distances: vec![None; part.len()] };
        let groups: u32 = parts.iter().map(|&parts| u32::from(parts)).product();
        let refuse = || {
            let what = "a tensor copy by other warps than the program has";
            CodegenError::refuse(self.func, operation.span, what)
        };
        if groups * GROUP_WARPS != self.num_warps.max(GROUP_WARPS) && !parts.is_empty() {
            return Err(refuse());
        }
        part.iter_mut().zip(parts).for_each(|(size, &parts)| *size /= u32::from(parts));
        // Per bit of the number of the four warps, how far their part is from the first.
        let (mut bytes, mut places) = (Vec::new(), vec![Vec::new(); part.len()]);
        for (axis, &count) in parts.iter().enumerate() {
            for bit in 0..u32::from(count).ilog2() {
                let mut at = vec![0; part.len()];
                at[axis] = part[axis] << bit;
                let number = boxes.starts.iter().position(|start| *start == at).ok_or_else(refuse)?;
                bytes.push(number as u32 * boxes.bytes);
                places.iter_mut().zip(&at).for_each(|(bases, &at)| bases.push(at));
            }
        }
        own.bytes = self.by_group(bytes);
        own.distances = places.into_iter().map(|bases| self.by_group(bases)).collect();
        own.part = part;
        Ok(own)
    }

    /// The sum of what the bits of the number of the four warps stand for; `None` if that is nothing.
    fn by_group(&mut self, bases: Vec<u32>) -> Option<IntValue<'ctx>> {
        let warp = std::iter::repeat_n(0, GROUP_WARPS.ilog2() as usize).chain(bases.iter().copied()).collect();
        let is_nothing = bases.iter().all(|&base| base == 0);
        (!is_nothing).then(|| self.uniform_form(&LinearForm { bases: vec![(LayoutDim::Warp, warp)] }))
    }

    fn moved(&self, start: IntValue<'ctx>, by: Option<IntValue<'ctx>>) -> IntValue<'ctx> {
        by.map_or(start, |by| self.ir.add(start, by))
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
}

/// `{$2, $3}`: operands from `first` on.
fn place_list(count: usize, first: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    format!("{{{}}}", names.join(", "))
}
