//! Access to shared memory: addresses, vectors, and what one thread tells all others.

use kernel_core::layout::{LayoutDim, LinearForm, LinearLayout, SharedAccess, VectorAccess};
use kernel_core::target::SWIZZLE_ALIGNMENT;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};
use kernel_llvm::{dynamic_shared_memory, inkwell::types::BasicTypeEnum};

use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::{Lower, Result};
use crate::analysis::exchange::{ALIGNMENT, row_major_shared};

/// The symbol of the memory.
pub(super) const SHARED_MEMORY: &str = "shared_memory";

/// Where something in shared memory begins.
#[derive(Clone, Copy)]
pub(super) struct SharedOffset<'ctx> {
    /// Bytes that are known when the kernel runs.
    pub(super) moved: Option<IntValue<'ctx>>,
    /// Bytes that are known now.
    pub(super) fixed: u32,
}

impl<'ctx> SharedOffset<'ctx> {
    /// At a known byte.
    pub(super) fn at(fixed: u32) -> SharedOffset<'ctx> {
        SharedOffset { moved: None, fixed }
    }

    /// At a byte that is known when the kernel runs.
    pub(super) fn moved(by: IntValue<'ctx>) -> SharedOffset<'ctx> {
        SharedOffset { moved: Some(by), fixed: 0 }
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    /// The bytes of the operation's next exchange; all threads meet first if they are still read.
    pub(super) fn take_scratch(&mut self, bytes: u32) -> u32 {
        let Some(range) = self.exchanges.next() else {
            self.ir.bug("an exchange that has no place in shared memory");
            return 0;
        };
        if range.bytes() < bytes {
            self.ir.bug(format!("an exchange of {bytes} bytes has a place of {}", range.bytes()));
        }
        if range.meets {
            self.barrier();
        }
        range.start
    }

    /// The address of a byte of shared memory.
    pub(super) fn shared_address(&self, offset: IntValue<'ctx>) -> PointerValue<'ctx> {
        let memory = dynamic_shared_memory(&self.ir.module, SHARED_MEMORY, self.shared_alignment());
        self.ir.offset(self.ir.int_type(8), memory.as_pointer_value(), offset)
    }

    /// The alignment of the memory: wide only where something needs it.
    fn shared_alignment(&self) -> u32 {
        if self.allocates { SWIZZLE_ALIGNMENT } else { ALIGNMENT }
    }

    /// The offset of the thread for an access, computed once per kernel.
    pub(super) fn thread_offset(&mut self, access: &SharedAccess) -> IntValue<'ctx> {
        self.form(&access.thread)
    }

    pub(super) fn access_address(
        &self,
        thread: IntValue<'ctx>,
        place: SharedOffset<'ctx>,
        xor: u32,
        add: u32,
    ) -> PointerValue<'ctx> {
        let ir = &self.ir;
        let own = if xor == 0 { thread } else { ir.xor(thread, ir.i32(xor as i32)) };
        let own = place.moved.map_or(own, |moved| ir.add(moved, own));
        // Two steps, so that the constant becomes part of the instruction.
        let base = self.shared_address(own);
        ir.offset(ir.int_type(8), base, ir.i32((place.fixed + add) as i32))
    }

    /// Writes the registers of one pass.
    pub(super) fn write_shared(&mut self, start: u32, access: &SharedAccess, registers: &[Value<'ctx>], rep: u32) {
        self.write_shared_at(SharedOffset::at(start), access, registers, rep);
    }

    /// As [`Lower::write_shared`], at any place. Lanes that would meet in a bank take turns: they write the same vectors in
    /// another order.
    pub(super) fn write_shared_at(
        &mut self,
        start: SharedOffset<'ctx>,
        access: &SharedAccess,
        registers: &[Value<'ctx>],
        rep: u32,
    ) {
        let turned = access.turned();
        let thread = self.form(turned.as_ref().map_or(&access.thread, |turned| &turned.thread));
        let is_turned = turned.as_ref().map(|turned| {
            let bits = (0..=turned.lane_bit).map(|bit| u32::from(bit == turned.lane_bit)).collect();
            let bit = self.form(&LinearForm { bases: vec![(LayoutDim::Lane, bits)] });
            self.ir.icmp(IntPredicate::NE, bit, self.ir.i32(0))
        });
        for (index, one) in access.accesses.iter().enumerate().filter(|(_, one)| one.rep == rep) {
            let address = self.access_address(thread, start, one.xor_bytes, one.add_bytes);
            let mut words = self.packed_words(access, one, registers);
            if let (Some(turned), Some(is_turned)) = (&turned, is_turned) {
                let partner = &access.accesses[turned.partners[index] as usize];
                let others = self.packed_words(access, partner, registers);
                words =
                    words.into_iter().zip(others).map(|(own, other)| self.ir.select(is_turned, other, own)).collect();
            }
            self.ir.store(address, self.ir.vector(&words), access.access_bytes().min(ALIGNMENT));
        }
    }

    /// The words that an access writes.
    fn packed_words(&self, access: &SharedAccess, one: &VectorAccess, registers: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        let bits: Vec<Value> = one.registers.iter().map(|&r| self.ir.to_bits(registers[r as usize]).into()).collect();
        let words = Words::new(access.elem_bits, access.width);
        self.ir.pack(&bits, words).into_iter().map(|word| self.word(word, words)).collect()
    }

    /// A packed word in its own width.
    fn word(&self, register: IntValue<'ctx>, words: Words) -> Value<'ctx> {
        self.ir.resize(register, self.ir.int_type(words.bits), false).into()
    }

    /// Reads the registers of one pass into `registers`; those that hold copies are left out.
    pub(super) fn read_shared(
        &mut self,
        start: u32,
        access: &SharedAccess,
        ty: BasicTypeEnum<'ctx>,
        registers: &mut [Value<'ctx>],
        rep: u32,
    ) {
        self.read_shared_at(SharedOffset::at(start), access, ty, registers, rep);
    }

    /// As [`Lower::read_shared`], from any place.
    pub(super) fn read_shared_at(
        &mut self,
        start: SharedOffset<'ctx>,
        access: &SharedAccess,
        ty: BasicTypeEnum<'ctx>,
        registers: &mut [Value<'ctx>],
        rep: u32,
    ) {
        let thread = self.thread_offset(access);
        let words = Words::new(access.elem_bits, access.width);
        let word = self.ir.int_type(words.bits);
        let whole: BasicTypeEnum = if words.count == 1 { word.into() } else { word.vec_type(words.count).into() };
        for one in access.accesses.iter().filter(|one| one.rep == rep) {
            let address = self.access_address(thread, start, one.xor_bytes, one.add_bytes);
            let loaded = self.ir.load(whole, address, access.access_bytes().min(ALIGNMENT));
            let loaded = self.ir.elements(loaded, words.count);
            for (&register, value) in one.registers.iter().zip(self.ir.unpack(&loaded, words, ty, access.elem_bits)) {
                registers[register as usize] = value;
            }
        }
    }

    /// The value that the first thread of the program has.
    pub(super) fn broadcast_from_first(&mut self, value: Value<'ctx>) -> Value<'ctx> {
        let ty = value.get_type();
        let bits = self.ir.to_bits(value);
        let words = Words::new(bits.get_type().get_bit_width(), 1);
        let start = self.take_scratch(words.bits / 8);
        let address = self.shared_address(self.ir.i32(start as i32));
        let owner = self.owner(None);
        let instruction = format!("st.shared{}", words.suffix());
        self.store_vector(&instruction, "r", address.into(), owner, &[bits.into()], words);
        self.barrier();
        let loaded = self.ir.load(bits.get_type(), address, words.bits / 8);
        self.ir.value_of_bits(self.ir.int(loaded), ty)
    }

    /// The values that the owners of the elements have, for all threads: where copies of an element are held, only
    /// one thread's value is right.
    pub(super) fn broadcast_from_owners(
        &mut self,
        layout: &LinearLayout,
        registers: &[Value<'ctx>],
        elem_bits: u32,
    ) -> Result<Vec<Value<'ctx>>> {
        let Some(owner) = self.owner(Some(layout)) else { return Ok(registers.to_vec()) };
        let shared =
            row_major_shared(layout).and_then(|shared| kernel_core::layout::shared_access(layout, &shared, elem_bits));
        let access = shared.map_err(|error| self.layout_error(&error))?;
        let bytes = (1u32 << layout.total_out_bits()) * elem_bits / 8;
        let start = self.take_scratch(bytes);
        let thread = self.thread_offset(&access);
        let words = Words::new(elem_bits, 1);
        let instruction = format!("st.shared{}", words.suffix());
        for one in &access.accesses {
            for (position, &register) in one.registers.iter().enumerate() {
                let add = one.add_bytes + position as u32 * elem_bits / 8;
                let address = self.access_address(thread, SharedOffset::at(start), one.xor_bytes, add);
                let element = [self.ir.to_bits(registers[register as usize]).into()];
                self.store_vector(&instruction, "r", address.into(), Some(owner), &element, words);
            }
        }
        self.barrier();
        let mut result = registers.to_vec();
        let ty = registers.first().map_or(self.ir.int_type(32).into(), |value| value.get_type());
        self.read_shared(start, &access, ty, &mut result, 0);
        Ok(access.canonical.apply(&result))
    }

    /// Bits of an element of a value in shared memory.
    pub(super) fn shared_bits(&self, value: kernel_core::ir::ValueId) -> u32 {
        if self.func.ty(value).pointee().is_some() { 64 } else { memory_bits(self.dtype(value)) }
    }
}
