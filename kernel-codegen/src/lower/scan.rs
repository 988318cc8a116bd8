//! Running combinations along an axis.
//!
//! The coordinate along the axis has bits, each held by registers, lanes or warps. From the lowest bit up, blocks of
//! elements double: an element in the upper half of a block combines the total of the lower half with its own
//! prefix, and the total of the block is that of both halves. Totals cross lanes by butterfly shuffles and warps
//! through shared memory. `reverse` exchanges upper and lower.
//!
//! ```text
//! bit of the coordinate   prefix of the upper half        total
//! 0                       total(lower) ∘ prefix           total(lower) ∘ total(upper)
//! ```

use kernel_core::ir::{Operation, RegionId};
use kernel_core::layout::{Dim, LinearLayout, WARP_SIZE};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::reduce::Tuple;
use super::{Lower, Result};
use crate::error::CodegenError;

/// Who holds a bit of the coordinate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Register(u32),
    Lane(u32),
    Warp(u32),
}

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
        let count = layout.in_size(Dim::Register) as usize;
        let elements: Vec<Tuple> =
            (0..count).map(|register| operands.iter().map(|values| values[register]).collect()).collect();
        let mut state = State { total: elements.clone(), prefix: elements, inside: 0 };
        let region = operation.regions[0];
        for holder in holders {
            match holder {
                Holder::Register(bit) => self.scan_registers(region, &mut state, bit, reverse)?,
                Holder::Lane(bit) => {
                    let which = self.ir.i32(1 << bit);
                    let upper = self.is_set(self.lane, bit);
                    let others = self.first_of_blocks(&state, |this, _, value| {
                        this.shuffle(Intrinsic::ShuffleButterfly, value, which)
                    });
                    self.scan_threads(region, &mut state, &others, upper, reverse)?;
                }
                Holder::Warp(bit) => {
                    let upper = self.is_set(self.warp, bit);
                    let others = self.exchange_warps(&state, bit);
                    self.scan_threads(region, &mut state, &others, upper, reverse)?;
                }
            }
        }
        for (index, &value) in operation.results.iter().enumerate() {
            self.set(value, state.prefix.iter().map(|tuple| tuple[index]).collect());
        }
        Ok(())
    }

    fn is_set(&self, number: IntValue<'ctx>, bit: u32) -> IntValue<'ctx> {
        let masked = self.ir.and(number, self.ir.i32(1 << bit));
        self.ir.icmp(IntPredicate::NE, masked, self.ir.i32(0))
    }

    fn scan_registers(&mut self, region: RegionId, state: &mut State<'ctx>, bit: u32, reverse: bool) -> Result<()> {
        let old = state.total.clone();
        for register in 0..old.len() {
            let is_upper = register >> bit & 1 == 1;
            let block = register & !(state.inside as usize);
            let (lower, upper) = (block & !(1 << bit), block | 1 << bit);
            let (first, second) = if reverse { (upper, lower) } else { (lower, upper) };
            if is_upper != reverse {
                state.prefix[register] = self.combine(region, &old[first], &state.prefix[register].clone())?;
            }
            if register == lower {
                state.total[lower] = self.combine(region, &old[first], &old[second])?;
            }
        }
        state.inside |= 1 << bit;
        Ok(())
    }

    /// What `f` makes of the total of every block, at the block's first register; others stay empty.
    fn first_of_blocks(
        &mut self,
        state: &State<'ctx>,
        f: impl Fn(&Self, usize, Value<'ctx>) -> Value<'ctx>,
    ) -> Vec<Tuple<'ctx>> {
        let first = |register: usize| register & state.inside as usize == 0;
        let total = |(register, tuple): (usize, &Tuple<'ctx>)| match first(register) {
            true => tuple.iter().map(|&value| f(self, register, value)).collect(),
            false => Vec::new(),
        };
        state.total.iter().enumerate().map(total).collect()
    }

    /// Joins each block with that of another thread, which holds the upper half if this one does not.
    fn scan_threads(
        &mut self,
        region: RegionId,
        state: &mut State<'ctx>,
        others: &[Tuple<'ctx>],
        upper: IntValue<'ctx>,
        reverse: bool,
    ) -> Result<()> {
        let later = if reverse { self.ir.not(upper) } else { upper };
        for register in 0..state.prefix.len() {
            let other = &others[register & !(state.inside as usize)];
            let joined = self.combine(region, other, &state.prefix[register].clone())?;
            state.prefix[register] = self.pick(later, &joined, &state.prefix[register]);
        }
        for register in (0..others.len()).filter(|&register| !others[register].is_empty()) {
            let first = self.pick(later, &others[register], &state.total[register]);
            let second = self.pick(later, &state.total[register], &others[register]);
            state.total[register] = self.combine(region, &first, &second)?;
        }
        Ok(())
    }

    fn pick(&self, condition: IntValue<'ctx>, yes: &Tuple<'ctx>, no: &Tuple<'ctx>) -> Tuple<'ctx> {
        yes.iter().zip(no).map(|(&yes, &no)| self.ir.select(condition, yes, no)).collect()
    }

    /// The totals of the thread with the same lane in warp `own ^ (1 << bit)`.
    fn exchange_warps(&mut self, state: &State<'ctx>, bit: u32) -> Vec<Tuple<'ctx>> {
        let threads = self.num_warps * WARP_SIZE;
        let mut slots: Vec<u32> = Vec::new();
        let mut bytes = 0;
        self.first_of_blocks(state, |_, _, value| value).iter().flatten().for_each(|&value| {
            slots.push(bytes);
            bytes += self.bytes_of(value) * threads;
            bytes = bytes.next_multiple_of(8);
        });
        let start = self.take_scratch(bytes);
        let partner = self.ir.xor(self.thread, self.ir.i32((WARP_SIZE << bit) as i32));
        let blocks = self.first_of_blocks(state, |_, _, value| value);
        for (&value, &slot) in blocks.iter().flatten().zip(&slots) {
            let bits = self.ir.to_bits(value);
            let size = self.bytes_of(value);
            let address = self.slot_address(self.thread, size, start + slot);
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
        self.reading(start, bytes);
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

/// Who holds each bit of the coordinate along `axis`, lowest first; `None` if a basis mixes bits or axes.
fn holders(layout: &LinearLayout, axis: u8) -> Option<Vec<Holder>> {
    let out = Dim::Axis(axis);
    let mut found = vec![None; layout.out_bits(out) as usize];
    let rank = layout.tile_shape().len() as u8;
    for (dim, holder) in
        [(Dim::Register, Holder::Register as fn(u32) -> Holder), (Dim::Lane, Holder::Lane), (Dim::Warp, Holder::Warp)]
    {
        for (bit, along) in (0u32..).zip(layout.bases_along(dim, out)) {
            if along == 0 {
                continue;
            }
            let elsewhere = (0..rank).filter(|&other| other != axis);
            let mixes = elsewhere.into_iter().any(|other| layout.bases_along(dim, Dim::Axis(other))[bit as usize] != 0);
            if !along.is_power_of_two() || mixes {
                return None;
            }
            // A bit that two dimensions hold is a copy; the inner one counts.
            found[along.trailing_zeros() as usize].get_or_insert(holder(bit));
        }
    }
    found.into_iter().collect()
}
