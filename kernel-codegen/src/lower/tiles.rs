//! Elements at indices that are known when the kernel runs, and counts: through shared memory.

use kernel_core::ir::{DType, Operation, TileOp, ValueId};
use kernel_core::layout::{LayoutDim, LinearLayout, SharedAccess, WARP_SIZE, shared_access};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};

use super::ir::Value;
use super::{Lower, Result};
use crate::analysis::exchange::{Counters, row_major_shared};

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn tile(&mut self, operation: &Operation, op: &TileOp) -> Result<()> {
        match op {
            TileOp::Gather { axis } => self.gather(operation, *axis),
            TileOp::Scatter { axis } => self.scatter(operation, *axis),
            TileOp::Histogram { .. } => self.histogram(operation),
            TileOp::Sort { axis, descending, keep: _, indices } => self.sort(operation, *axis, *descending, *indices),
        }
    }

    /// How a tile lies in shared memory row by row, and the bytes that it takes.
    fn row_major_access(&self, layout: &LinearLayout, bits: u32) -> Result<(SharedAccess, u32)> {
        let access = row_major_shared(layout).and_then(|shared| shared_access(layout, &shared, bits));
        let access = access.map_err(|error| self.layout_error(&error))?;
        Ok((access, (1u32 << layout.total_out_bits()) * bits / 8))
    }

    fn gather(&mut self, operation: &Operation, axis: u8) -> Result<()> {
        let (tile, result) = (operation.operands[0], operation.results[0]);
        let Some(layout) = self.layout(tile) else { return Err(self.malformed(operation)) };
        let bits = self.shared_bits(tile);
        let (access, bytes) = self.row_major_access(layout, bits)?;
        let start = self.take_scratch(bytes);
        let registers = self.registers(tile);
        self.write_shared(start, &access, &registers, 0);
        self.barrier();
        let addresses = self.addresses(operation, axis, start)?;
        let (ty, word) = (self.element_type(result), self.ir.int_type(bits));
        let load = |address: PointerValue<'ctx>| {
            let loaded = self.ir.int(self.ir.load(word, address, bits / 8));
            self.ir.value_of_bits(loaded, ty)
        };
        let loaded = addresses.into_iter().map(load).collect();
        self.set(result, loaded);
        Ok(())
    }

    fn scatter(&mut self, operation: &Operation, axis: u8) -> Result<()> {
        let (tile, value, result) = (operation.operands[0], operation.operands[2], operation.results[0]);
        let Some(layout) = self.layout(tile) else { return Err(self.malformed(operation)) };
        let bits = self.shared_bits(tile);
        let (access, bytes) = self.row_major_access(layout, bits)?;
        let start = self.take_scratch(bytes);
        let registers = self.registers(tile);
        self.write_shared(start, &access, &registers, 0);
        self.barrier();
        let addresses = self.addresses(operation, axis, start)?;
        let word = self.ir.int_type(bits);
        for (address, &value) in addresses.into_iter().zip(self.registers(value).iter()) {
            let own = self.ir.resize(self.ir.to_bits(value), word, false);
            self.ir.store(address, own.into(), bits / 8);
        }
        self.barrier();
        let mut loaded = registers.to_vec();
        self.read_shared(start, &access, self.element_type(result), &mut loaded, 0);
        let loaded = access.canonical.apply(&loaded);
        self.barrier();
        self.set(result, loaded);
        Ok(())
    }

    /// For each register of the index (operand 1), the address of the element that it names of the tile (operand 0), which
    /// lies in shared memory row by row. An index beyond the tile's size wraps.
    fn addresses(&mut self, operation: &Operation, axis: u8, start: u32) -> Result<Vec<PointerValue<'ctx>>> {
        let (tile, index) = (operation.operands[0], operation.operands[1]);
        let Some(layout) = self.layout(index) else { return Err(self.malformed(operation)) };
        let shape = self.func.tile_shape(tile);
        let bytes = self.shared_bits(tile) / 8;
        let mut places = vec![self.ir.i32(0); self.register_count(index)];
        let mut stride = bytes;
        let word = self.ir.int_type(32);
        let signed = self.func.ty(index).dtype().is_some_and(DType::is_signed_int);
        for (dim, &size) in shape.iter().enumerate().rev() {
            let scale = self.ir.i32(stride as i32);
            if dim == usize::from(axis) {
                let last = self.ir.i32(size as i32 - 1);
                for (place, &at) in places.iter_mut().zip(self.registers(index).iter()) {
                    // The lowest bits are those of the remainder, whatever the sign.
                    let at = self.ir.and(self.ir.resize(self.ir.int(at), word, signed), last);
                    *place = self.ir.add(*place, self.ir.mul(at, scale));
                }
            } else {
                let coordinates = self.coordinates(layout, dim as u8);
                for (place, at) in places.iter_mut().zip(coordinates) {
                    *place = self.ir.add(*place, self.ir.mul(at, scale));
                }
            }
            stride *= size;
        }
        let address = |place: IntValue<'ctx>| {
            let base = self.shared_address(place);
            self.ir.offset(self.ir.int_type(8), base, self.ir.i32(start as i32))
        };
        Ok(places.into_iter().map(address).collect())
    }

    /// The coordinate along an axis of each register.
    pub(super) fn coordinates(&mut self, layout: &LinearLayout, axis: u8) -> Vec<IntValue<'ctx>> {
        let form = layout.coordinate_form(LayoutDim::Axis(axis));
        let (additive, thread) = (form.is_additive(), self.form(&form.thread));
        let coordinate = |&constant: &u32| {
            let constant = self.ir.i32(constant as i32);
            if additive { self.ir.add(thread, constant) } else { self.ir.xor(thread, constant) }
        };
        form.registers.iter().map(coordinate).collect()
    }

    fn histogram(&mut self, operation: &Operation) -> Result<()> {
        let (tile, result) = (operation.operands[0], operation.results[0]);
        let (Some(layout), Some(counts)) = (self.layout(tile), self.layout(result)) else {
            return Err(self.malformed(operation));
        };
        let counters = Counters::of(self.func, operation, self.num_warps);
        let start = self.take_scratch(counters.bytes());
        let own = self.clear(counters, start);
        let owner = self.owner(Some(layout));
        let admitted = operation.operands.get(1).map(|&mask| self.registers(mask));
        let dtype = self.dtype(tile);
        for (register, &value) in self.registers(tile).iter().enumerate() {
            let mask = admitted.as_ref().map(|masks| self.ir.int(masks[register]));
            let bin = self.bin(value, dtype, counters, [mask, owner]);
            self.count(self.ir.add(own, bin), start);
        }
        self.barrier();
        let (access, _) = self.row_major_access(counts, 32)?;
        let sums = self.sum_counters(counters, start, &access, result);
        if counters.threads != WARP_SIZE {
            self.barrier();
        }
        self.set(result, sums);
        Ok(())
    }

    /// Sets the counters to zero; gives where those of this thread begin.
    fn clear(&mut self, counters: Counters, start: u32) -> IntValue<'ctx> {
        let apart = counters.copies > 1;
        let (own, thread) = if apart {
            (self.ir.mul(self.ids.warp, self.ir.i32(counters.copy_bytes() as i32)), self.ids.lane)
        } else {
            (self.ir.i32(0), self.ids.thread)
        };
        let each = counters.cleared / counters.threads;
        let width = each.min(4);
        let offset = self.ir.add(own, self.ir.mul(thread, self.ir.i32(4 * width as i32)));
        let zeros = self.ir.vector(&vec![self.ir.i32(0).into(); width as usize]);
        for step in 0..each / width {
            let at = start + step * counters.threads * 4 * width;
            let address = self.ir.offset(self.ir.int_type(8), self.shared_address(offset), self.ir.i32(at as i32));
            self.ir.store(address, zeros, 4 * width);
        }
        if counters.threads == WARP_SIZE {
            self.warp_barrier()
        } else {
            self.barrier()
        }
        own
    }

    /// Where the counter of an integer is among those of a copy, if all conditions hold.
    fn bin(
        &self,
        value: Value<'ctx>,
        dtype: DType,
        counters: Counters,
        conditions: [Option<IntValue<'ctx>>; 2],
    ) -> IntValue<'ctx> {
        let (ir, word) = (&self.ir, self.ir.int_type(32));
        let wide = ir.int_type(if dtype.bytes() == 8 { 64 } else { 32 });
        let number = ir.resize(ir.int(value), wide, dtype.is_signed_int());
        // Negative numbers are large ones.
        let inside = ir.icmp(IntPredicate::ULT, number, wide.const_int(u64::from(counters.bins), false));
        let counted = conditions.into_iter().flatten().fold(inside, |all, one| ir.and(all, one));
        let bin = ir.iselect(counted, ir.resize(number, word, false), ir.i32(counters.cleared as i32));
        ir.shl(bin, ir.i32(2))
    }

    /// Adds one to a counter.
    fn count(&self, at: IntValue<'ctx>, start: u32) {
        let address = self.ir.offset(self.ir.int_type(8), self.shared_address(at), self.ir.i32(start as i32));
        let assembly = "{ .reg .b32 %old;\n\tatom.shared.add.u32 %old, [$0], 1; }";
        self.ir.asm(&[], assembly, "r", &[address.into()], AsmEffects::Memory);
    }

    /// The counters of all copies.
    fn sum_counters(
        &mut self,
        counters: Counters,
        start: u32,
        access: &SharedAccess,
        result: ValueId,
    ) -> Vec<Value<'ctx>> {
        let mut sums: Option<Vec<Value<'ctx>>> = None;
        for copy in 0..counters.copies {
            let mut loaded = vec![self.ir.i32(0).into(); self.register_count(result)];
            let ty = self.element_type(result);
            self.read_shared(start + counters.copy_bytes() * copy, access, ty, &mut loaded, 0);
            let loaded = access.canonical.apply(&loaded);
            let add = |(a, b): (&Value<'ctx>, Value<'ctx>)| self.ir.add(self.ir.int(*a), self.ir.int(b)).into();
            sums = Some(match sums {
                Some(sums) => sums.iter().zip(loaded).map(add).collect(),
                None => loaded,
            });
        }
        sums.unwrap_or_default()
    }
}
