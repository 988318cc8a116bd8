//! Running combinations along an axis.
//!
//! The coordinate along the axis has bits, each held by registers, lanes or warps. From the lowest bit up, blocks of
//! elements double: an element in the upper half of a block combines the total of the lower half with its own
//! prefix, and the total of the block is that of both halves. Totals cross lanes by butterfly shuffles and warps
//! through shared memory. `reverse` exchanges upper and lower.
//!
//! Where several hold a bit, threads have copies of each other's elements. The innermost does the exchange, and an
//! element is in the upper half if an odd number of them is set.
//!
//! ```text
//! bit of the coordinate   prefix of the upper half        total
//! 0                       total(lower) ∘ prefix           total(lower) ∘ total(upper)
//! ```

use kernel_core::ir::{Operation, RegionId};
use kernel_core::layout::{LayoutDim, WARP_SIZE};
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::reduce::Tuple;
use super::{Lower, Result};
use crate::analysis::exchange::{Holders, holders, slots_of};
use crate::error::CodegenError;

/// The prefixes and block totals of a thread, per register.
struct State<'ctx> {
    prefix: Vec<Tuple<'ctx>>,
    /// Equal for registers of one block; the block's first register has it.
    total: Vec<Tuple<'ctx>>,
    /// The register bits that run inside a block.
    inside: u32,
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn scan(&mut self, operation: &Operation, axis: u8, reverse: bool) -> Result<()> {
        let Some(layout) = self.layout(operation.operands[0]) else { return Err(self.malformed(operation)) };
        let Some(holders) = holders(layout, axis) else {
            let what = format!("a scan in the layout {layout}, which mixes axis {axis} with others");
            return Err(CodegenError::refuse(self.func, operation.span, what));
        };
        let operands: Vec<_> = operation.operands.iter().map(|&v| self.registers(v)).collect();
        let count = layout.in_size(LayoutDim::Register) as usize;
        let elements: Vec<Tuple> =
            (0..count).map(|register| operands.iter().map(|values| values[register]).collect()).collect();
        let mut state = State { total: elements.clone(), prefix: elements, inside: 0 };
        let region = operation.regions[0];
        for holders in holders {
            self.scan_bit(region, &mut state, holders, reverse)?;
        }
        for (index, &value) in operation.results.iter().enumerate() {
            self.set(value, state.prefix.iter().map(|tuple| tuple[index]).collect());
        }
        Ok(())
    }

    /// Joins the halves that a bit of the coordinate tells apart.
    fn scan_bit(&mut self, region: RegionId, state: &mut State<'ctx>, holders: Holders, reverse: bool) -> Result<()> {
        let first = |mask: u32| 1 << mask.trailing_zeros();
        let register = if holders.registers != 0 { first(holders.registers) } else { 0 };
        if holders.are_registers() {
            self.scan_registers(region, state, register, holders, reverse)?;
        } else {
            let upper = self.is_odd(holders.lanes, holders.warps);
            let others = if register != 0 {
                let totals = state.total.clone();
                self.first_of_blocks(state, |_, own, index, _| totals[own ^ register as usize][index])
            } else if holders.lanes != 0 {
                let which = self.ir.i32(first(holders.lanes) as i32);
                self.first_of_blocks(state, |this, _, _, value| this.shuffle(Intrinsic::ShuffleButterfly, value, which))
            } else {
                self.exchange_warps(state, first(holders.warps))
            };
            self.scan_threads(region, state, &others, (holders, upper), reverse)?;
        }
        state.inside |= register;
        Ok(())
    }

    fn scan_registers(
        &mut self,
        region: RegionId,
        state: &mut State<'ctx>,
        bit: u32,
        holders: Holders,
        reverse: bool,
    ) -> Result<()> {
        let old = state.total.clone();
        for register in 0..old.len() {
            let own = register & !(state.inside as usize);
            let other = own ^ bit as usize;
            let is_later = holders.has_upper(register) != reverse;
            let (first, second) = if is_later { (other, own) } else { (own, other) };
            if is_later {
                state.prefix[register] = self.combine(region, &old[first], &state.prefix[register].clone())?;
            }
            if register == own && own < other {
                state.total[own] = self.combine(region, &old[first], &old[second])?;
            }
        }
        Ok(())
    }

    /// What `f` makes of the total of every block, at the block's first register; others stay empty. It is given the
    /// register, and the values of the tuple by their index.
    fn first_of_blocks(
        &mut self,
        state: &State<'ctx>,
        f: impl Fn(&Self, usize, usize, Value<'ctx>) -> Value<'ctx>,
    ) -> Vec<Tuple<'ctx>> {
        let first = |register: usize| register & state.inside as usize == 0;
        let total = |(register, tuple): (usize, &Tuple<'ctx>)| match first(register) {
            true => (0..).zip(tuple).map(|(index, &value)| f(self, register, index, value)).collect(),
            false => Vec::new(),
        };
        state.total.iter().enumerate().map(total).collect()
    }

    /// Joins each block with another one, of which only the thread knows which is the upper half.
    fn scan_threads(
        &mut self,
        region: RegionId,
        state: &mut State<'ctx>,
        others: &[Tuple<'ctx>],
        (holders, upper): (Holders, IntValue<'ctx>),
        reverse: bool,
    ) -> Result<()> {
        let is_turned = |register: usize| holders.has_upper(register) != reverse;
        let turned = (0..others.len()).any(is_turned).then(|| self.ir.not(upper));
        let later = |register: usize| turned.filter(|_| is_turned(register)).unwrap_or(upper);
        for register in 0..state.prefix.len() {
            let other = &others[register & !(state.inside as usize)];
            let joined = self.combine(region, other, &state.prefix[register].clone())?;
            state.prefix[register] = self.pick(later(register), &joined, &state.prefix[register]);
        }
        for register in (0..others.len()).filter(|&register| !others[register].is_empty()) {
            let first = self.pick(later(register), &others[register], &state.total[register]);
            let second = self.pick(later(register), &state.total[register], &others[register]);
            state.total[register] = self.combine(region, &first, &second)?;
        }
        Ok(())
    }

    /// The totals of the thread with the same lane in warp `own ^ which`.
    fn exchange_warps(&mut self, state: &State<'ctx>, which: u32) -> Vec<Tuple<'ctx>> {
        let blocks = self.first_of_blocks(state, |_, _, _, value| value);
        let sizes: Vec<u32> = blocks.iter().flatten().map(|&value| self.bytes_of(value)).collect();
        let (slots, bytes) = slots_of(sizes, self.num_warps);
        let start = self.take_scratch(bytes);
        let partner = self.ir.xor(self.ids.thread, self.ir.i32((WARP_SIZE * which) as i32));
        for (&value, &slot) in blocks.iter().flatten().zip(&slots) {
            let bits = self.ir.to_bits(value);
            let size = self.bytes_of(value);
            let address = self.slot_address(self.ids.thread, size, start + slot);
            self.ir.store(address, bits.into(), size);
        }
        self.barrier();
        let mut next = slots.iter();
        let mut others = Vec::with_capacity(blocks.len());
        for tuple in &blocks {
            let mut loaded = Vec::with_capacity(tuple.len());
            for (&value, &slot) in tuple.iter().zip(next.by_ref()) {
                let size = self.bytes_of(value);
                let address = self.slot_address(partner, size, start + slot);
                let bits = self.ir.load(self.ir.int_type(size * 8), address, size);
                loaded.push(self.ir.value_of_bits(self.ir.int(bits), value.get_type()));
            }
            others.push(loaded);
        }
        others
    }

    fn bytes_of(&self, value: Value<'ctx>) -> u32 {
        self.ir.to_bits(value).get_type().get_bit_width() / 8
    }

    fn slot_address(
        &self,
        thread: IntValue<'ctx>,
        size: u32,
        start: u32,
    ) -> kernel_llvm::inkwell::values::PointerValue<'ctx> {
        let offset = self.ir.mul(thread, self.ir.i32(size as i32));
        let base = self.shared_address(offset);
        self.ir.offset(self.ir.int_type(8), base, self.ir.i32(start as i32))
    }
}
