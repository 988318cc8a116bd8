//! Shape operations: renaming registers, and conversions between layouts.
//!
//! Placement gave the operand of a shape operation exactly the layout that leaves every element in its thread.
//! So an operation only says, per register of the result, which register of the operand holds the same element:
//! the one at the coordinate that the operation maps it to.

use std::collections::BTreeMap;

use kernel_core::ir::{Operation, ShapeOp, ValueId};
use kernel_core::layout::{LayoutDim, LinearLayout};

use super::{Lower, Result};

impl Lower<'_, '_> {
    pub(super) fn shape(&mut self, operation: &Operation, op: &ShapeOp) -> Result<()> {
        let (source, result) = (operation.operands[0], operation.results[0]);
        let coordinates: Vec<Vec<u32>> = match op {
            ShapeOp::ConvertLayout => return self.convert(operation),
            ShapeOp::Join => return self.join(operation),
            ShapeOp::Half { upper } => self.map(result, |mut at| {
                at.push(u32::from(*upper));
                at
            }),
            // A promise has done its work when the code is laid out.
            ShapeOp::Hint { .. } => {
                let registers = self.registers(source).to_vec();
                self.set(result, registers);
                return Ok(());
            }
            ShapeOp::ExpandDims { axis } => self.map(result, |mut at| {
                at.remove(usize::from(*axis));
                at
            }),
            ShapeOp::Broadcast { .. } => {
                let sizes = self.func.tile_shape(source);
                self.map(result, |at| {
                    at.iter().zip(&sizes).map(|(&at, &size)| if size == 1 { 0 } else { at }).collect()
                })
            }
            ShapeOp::Permute { perm } => self.map(result, |at| {
                let mut from = vec![0; at.len()];
                for (to, &axis) in perm.iter().enumerate() {
                    from[usize::from(axis)] = at[to];
                }
                from
            }),
            ShapeOp::Slice { start, .. } => {
                let number = |at: &kernel_core::ir::Dim| at.as_const().and_then(|at| u32::try_from(at).ok());
                let Some(start) = start.iter().map(number).collect::<Option<Vec<u32>>>() else {
                    return Err(self.malformed(operation));
                };
                self.map(result, |at| at.iter().zip(&start).map(|(at, start)| at + start).collect())
            }
            ShapeOp::Reshape { .. } => {
                let (sizes, shape) = (self.func.tile_shape(source), self.func.tile_shape(result));
                self.map(result, |at| unflatten(flatten(&at, &shape), &sizes))
            }
        };
        let places = self.places(source);
        let registers = self.registers(source);
        let found = coordinates.iter().map(|at| places.get(at).and_then(|&r| registers.get(r)).copied());
        match found.collect::<Option<Vec<_>>>() {
            // It decides where control goes, and threads may have read different elements.
            Some(found) if !operation.shared.is_empty() => {
                let passed = found.into_iter().map(|value| self.broadcast_from_first(value)).collect();
                self.set(result, passed);
            }
            Some(found) => self.set(result, found),
            None => self.ir.bug(format!("`{}` would move data between threads", op.mnemonic())),
        }
        Ok(())
    }

    /// Each thread holds the elements of both halves that its registers of the result are.
    fn join(&mut self, operation: &Operation) -> Result<()> {
        let result = operation.results[0];
        let Some((half, sides)) = self.layout(result).and_then(LinearLayout::split) else {
            return Err(self.malformed(operation));
        };
        let mut joined = Vec::new();
        for (&operand, side) in operation.operands.iter().zip(sides) {
            if self.layout(operand) != Some(&half) {
                return Err(self.malformed(operation));
            }
            joined.extend(side.into_iter().zip(self.registers(operand).iter().copied()));
        }
        joined.sort_unstable_by_key(|&(register, _)| register);
        self.set(result, joined.into_iter().map(|(_, value)| value).collect());
        Ok(())
    }

    /// Per register of a value, what `f` makes of its coordinates.
    fn map(&self, value: ValueId, mut f: impl FnMut(Vec<u32>) -> Vec<u32>) -> Vec<Vec<u32>> {
        register_coordinates(self.layout(value)).into_iter().map(&mut f).collect()
    }

    /// The register that holds each coordinate.
    fn places(&self, value: ValueId) -> BTreeMap<Vec<u32>, usize> {
        let coordinates = register_coordinates(self.layout(value));
        coordinates.into_iter().enumerate().map(|(register, at)| (at, register)).collect()
    }
}

/// The coordinates of the registers of the first thread; those of a scalar are empty.
pub(super) fn register_coordinates(layout: Option<&LinearLayout>) -> Vec<Vec<u32>> {
    let Some(layout) = layout else { return vec![Vec::new()] };
    let rank = layout.tile_shape().len() as u8;
    let at = |register: u32| {
        (0..rank).map(|axis| layout.apply_to(&[(LayoutDim::Register, register)], LayoutDim::Axis(axis))).collect()
    };
    (0..layout.in_size(LayoutDim::Register)).map(at).collect()
}

fn flatten(at: &[u32], shape: &[u32]) -> u32 {
    at.iter().zip(shape).fold(0, |flat, (&at, &size)| flat * size + at)
}

fn unflatten(mut flat: u32, shape: &[u32]) -> Vec<u32> {
    let mut at = vec![0; shape.len()];
    for (place, &size) in at.iter_mut().zip(shape).rev() {
        *place = flat % size.max(1);
        flat /= size.max(1);
    }
    at
}
