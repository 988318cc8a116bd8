//! Shared memory for passing values between threads: where it is, and that nobody overwrites what another still reads.
//!
//! Every use writes, meets the other threads at a barrier, and reads. Before the *next* write to the same bytes all
//! reads must be over, which takes a second barrier, unless the next use takes other bytes: then the barrier
//! between its own writes and reads does for the one after it. So uses take turns between regions while
//! the memory for that is cheap, and barriers are as few as the uses.
//!
//! In a loop, what the trip before still reads is not known when its first uses are placed. They are placed all the
//! same, and the places kept free of later uses; only if something is read there at the end of the trip, a barrier
//! closes it.

use std::ops::Range;

use kernel_core::layout::{LinearLayout, SharedAccess};
use kernel_core::target::SWIZZLE_ALIGNMENT;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};
use kernel_llvm::{dynamic_shared_memory, inkwell::types::BasicTypeEnum};

use super::ir::Value;
use super::words::{Words, memory_bits};
use super::{Lower, Result};

/// The symbol of the memory.
pub(super) const SHARED_MEMORY: &str = "shared_memory";
/// The alignment of what is put there: that of the widest access.
const ALIGNMENT: u32 = 16;
/// Up to this many bytes, taking other memory is better than a barrier: four programs of that size fit every target.
const CHEAP_BYTES: u32 = 16 * 1024;

/// Where something in shared memory begins.
#[derive(Clone, Copy)]
pub(super) struct Place<'ctx> {
    /// Bytes that are known when the kernel runs.
    pub(super) moved: Option<IntValue<'ctx>>,
    /// Bytes that are known now.
    pub(super) fixed: u32,
}

impl<'ctx> Place<'ctx> {
    /// At a known byte.
    pub(super) fn at(fixed: u32) -> Place<'ctx> {
        Place { moved: None, fixed }
    }

    /// At a byte that is known when the kernel runs.
    pub(super) fn moved(by: IntValue<'ctx>) -> Place<'ctx> {
        Place { moved: Some(by), fixed: 0 }
    }
}

/// Which parts of the memory are still read.
#[derive(Clone, Default, Debug)]
pub(super) struct Scratch {
    /// Bytes below, which are allocations of the kernel's own that are live, up to where any access may begin.
    base: u32,
    reads: Vec<Range<u32>>,
    /// Reads of an earlier iteration may be anywhere but in `early`.
    unknown_reads: bool,
    /// What uses have taken before the first barrier of the innermost loop's body; `None` if no use may do so, because
    /// reads of loops around it are not known either.
    early: Option<Vec<Range<u32>>>,
    /// What uses have accessed that tensor copies do not know of, and whether their threads have passed a fence since.
    unfenced: Vec<(Range<u32>, bool)>,
    uses: u32,
    high_water: u32,
}

impl Scratch {
    /// Memory for the lowering beside `bytes` that the kernel itself allocates.
    pub(super) fn beside(bytes: u32) -> Scratch {
        Scratch { high_water: bytes, ..Scratch::default() }
    }

    /// From here on the kernel's live allocations end at `base`. Those that are dead now may still be read.
    pub(super) fn rebase(&mut self, base: u32) {
        if base < self.base {
            self.reads.push(base..self.base);
        }
        // Allocations may end anywhere: an odd number of barriers of 8 bytes, say.
        self.base = base.next_multiple_of(ALIGNMENT);
    }

    /// Whether anybody may still read what was passed through these bytes.
    pub(super) fn is_read(&self, bytes: &Range<u32>) -> bool {
        self.reads.iter().any(|read| read.start < bytes.end && bytes.start < read.end)
    }

    /// The most bytes ever in use.
    pub(super) fn high_water(&self) -> u32 {
        self.high_water
    }

    /// Bytes above what is live that the program has in any case.
    pub(super) fn spare(&self) -> u32 {
        self.high_water - self.base.min(self.high_water)
    }

    /// The number of uses so far.
    pub(super) fn uses(&self) -> u32 {
        self.uses
    }

    /// Whether a tensor copy into these bytes may overtake what uses do there.
    pub(super) fn is_unfenced(&self, bytes: &Range<u32>) -> bool {
        self.unfenced.iter().any(|(used, _)| meet(used, bytes))
    }

    /// All threads have passed a proxy fence, which tensor copies behind the next barrier know of.
    pub(super) fn fenced(&mut self) {
        self.unfenced.iter_mut().for_each(|(_, fenced)| *fenced = true);
    }

    /// All threads have met: nobody reads.
    pub(super) fn settled(&mut self) {
        self.reads.clear();
        self.unknown_reads = false;
        self.unfenced.retain(|(_, fenced)| !fenced);
    }

    /// Begins the body of a loop; gives what [`Scratch::leave_body`] is given.
    pub(super) fn enter_loop(&mut self) -> Option<Vec<Range<u32>>> {
        let around = self.early.take();
        self.early = (!self.unknown_reads).then(Vec::new);
        self.unknown_reads = true;
        around
    }

    /// Whether what is read at the end of a trip is in the way of the next one.
    pub(super) fn blocks_next_trip(&self) -> bool {
        let early = self.early.iter().flatten();
        early.into_iter().any(|early| self.reads.iter().any(|read| meet(early, read)))
    }

    /// Ends the body of a loop.
    pub(super) fn leave_body(&mut self, around: Option<Vec<Range<u32>>>) {
        self.early = around;
    }

    /// Back to what was read at `before`; the sizes stay.
    pub(super) fn rewind(&mut self, before: &Scratch) {
        self.base = before.base;
        self.reads.clone_from(&before.reads);
        self.unfenced.clone_from(&before.unfenced);
        self.unknown_reads = before.unknown_reads;
    }

    /// What is read where two ways meet.
    pub(super) fn join(&mut self, other: &Scratch) {
        self.reads.extend(other.reads.iter().cloned());
        self.unfenced.extend(other.unfenced.iter().cloned());
        self.unknown_reads |= other.unknown_reads;
    }

    /// A low place for `bytes` that nobody reads; `None` if a barrier is needed first.
    fn place(&mut self, bytes: u32) -> Option<u32> {
        if self.unknown_reads && self.early.is_none() {
            return None;
        }
        let limit = self.high_water.max(self.base + CHEAP_BYTES);
        let early = self.early.as_deref().unwrap_or_default();
        let free = |start: &u32, taken: &[Range<u32>]| !taken.iter().any(|taken| meet(taken, &(*start..start + bytes)));
        let ends = self.reads.iter().chain(early).map(|taken| taken.end.next_multiple_of(ALIGNMENT));
        // What is read may end below what is live by now.
        let above = ends.filter(|end| *end > self.base).chain([self.base]);
        let mut starts: Vec<u32> = above.filter(|start| free(start, &self.reads)).collect();
        starts.sort_unstable();
        // Places of early uses are left to those of the next trip, if others are cheap.
        let apart = starts.iter().find(|start| free(start, early) && *start + bytes <= limit);
        if self.unknown_reads {
            let start = *apart?;
            self.early.get_or_insert_default().push(start..start + bytes);
            return Some(start);
        }
        let start = *apart.or(starts.first())?;
        (self.reads.is_empty() || start + bytes <= limit).then_some(start)
    }
}

/// Whether ranges have a byte in common.
fn meet(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Memory that may be written at once; returns its offset.
    pub(super) fn take_scratch(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.max(1);
        let start = match self.scratch.place(bytes) {
            Some(start) => start,
            None => {
                self.barrier();
                self.scratch.base
            }
        };
        debug_assert!(start >= self.scratch.base, "allocations are live there");
        self.scratch.uses += 1;
        self.scratch.unfenced.push((start..start + bytes, false));
        self.scratch.high_water = self.scratch.high_water.max((start + bytes).next_multiple_of(ALIGNMENT));
        start
    }

    /// Notes that the memory is being read until the next barrier.
    pub(super) fn reading(&mut self, start: u32, bytes: u32) {
        self.scratch.reads.push(start..start + bytes.max(1));
    }

    /// The address of a byte of shared memory.
    pub(super) fn shared_address(&self, offset: IntValue<'ctx>) -> PointerValue<'ctx> {
        let memory = dynamic_shared_memory(&self.ir.module, SHARED_MEMORY, self.shared_alignment());
        self.ir.offset(self.ir.int_type(8), memory.as_pointer_value(), offset)
    }

    /// The alignment of the memory: wide only where something needs it.
    fn shared_alignment(&self) -> u32 {
        if self.allocations.is_empty() { ALIGNMENT } else { SWIZZLE_ALIGNMENT }
    }

    /// The offset of the thread for an access, computed once per kernel.
    pub(super) fn thread_offset(&mut self, access: &SharedAccess) -> IntValue<'ctx> {
        self.form(&access.thread)
    }

    pub(super) fn access_address(
        &self,
        thread: IntValue<'ctx>,
        place: Place<'ctx>,
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
        self.write_shared_at(Place::at(start), access, registers, rep);
    }

    /// As [`Lower::write_shared`], at any place.
    pub(super) fn write_shared_at(
        &mut self,
        start: Place<'ctx>,
        access: &SharedAccess,
        registers: &[Value<'ctx>],
        rep: u32,
    ) {
        let thread = self.thread_offset(access);
        for one in access.accesses.iter().filter(|one| one.rep == rep) {
            let address = self.access_address(thread, start, one.xor_bytes, one.add_bytes);
            let bits: Vec<Value> =
                one.registers.iter().map(|&r| self.ir.to_bits(registers[r as usize]).into()).collect();
            let words = Words::new(access.elem_bits, access.width);
            let packed: Vec<Value> =
                self.ir.pack(&bits, words).into_iter().map(|word| self.word(word, words)).collect();
            self.ir.store(address, self.ir.vector(&packed), access.access_bytes().min(ALIGNMENT));
        }
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
        self.read_shared_at(Place::at(start), access, ty, registers, rep);
    }

    /// As [`Lower::read_shared`], from any place.
    pub(super) fn read_shared_at(
        &mut self,
        start: Place<'ctx>,
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
        self.reading(start, words.bits / 8);
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
        let shared = super::reduce::row_major_shared(layout)
            .and_then(|shared| kernel_core::layout::shared_access(layout, &shared, elem_bits));
        let access = shared.map_err(|error| self.layout_error(&error))?;
        let bytes = (1u32 << layout.total_out_bits()) * elem_bits / 8;
        let start = self.take_scratch(bytes);
        let thread = self.thread_offset(&access);
        let words = Words::new(elem_bits, 1);
        let instruction = format!("st.shared{}", words.suffix());
        for one in &access.accesses {
            for (position, &register) in one.registers.iter().enumerate() {
                let add = one.add_bytes + position as u32 * elem_bits / 8;
                let address = self.access_address(thread, Place::at(start), one.xor_bytes, add);
                let element = [self.ir.to_bits(registers[register as usize]).into()];
                self.store_vector(&instruction, "r", address.into(), Some(owner), &element, words);
            }
        }
        self.barrier();
        let mut result = registers.to_vec();
        let ty = registers.first().map_or(self.ir.int_type(32).into(), |value| value.get_type());
        self.read_shared(start, &access, ty, &mut result, 0);
        self.reading(start, bytes);
        Ok(access.canonical.apply(&result))
    }

    /// Bits of an element of a value in shared memory.
    pub(super) fn shared_bits(&self, value: kernel_core::ir::ValueId) -> u32 {
        if self.func.ty(value).pointee().is_some() { 64 } else { memory_bits(self.dtype(value)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocations that are dead may still be read, and end in the middle of what is live later.
    #[test]
    fn what_is_passed_lies_above_what_is_live() {
        for in_loop in [false, true] {
            let mut scratch = Scratch::beside(3072);
            for live in [2048, 8, 3072] {
                scratch.rebase(live);
            }
            if in_loop {
                scratch.enter_loop();
            }
            let start = scratch.place(512);
            assert!(start.is_some_and(|start| start >= 3072), "{start:?}");
        }
    }
}
