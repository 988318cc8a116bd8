//! Order along an axis, as [`kernel_core::layout::sort()`] plans it.
//!
//! Elements are compared as unsigned numbers in the order of the elements ([`kernel_core::num::order`]). Where indices
//! are wanted they stand behind the key, so that equal elements keep their order; [`KeyWords`] says in how many words.
//! Descending order is the ascending order of inverted keys.

use kernel_core::ir::{DType, Operation};
use kernel_core::layout::{LayoutDim, SortStep, WARP_SIZE};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::types::BasicTypeEnum;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::{Lower, Result};
use crate::analysis::exchange::{KeyWords, sort_plan};

/// What is compared, in words: the first, and where they are equal the second.
type Key<'ctx> = Vec<IntValue<'ctx>>;

/// The most bytes that one instruction writes to shared memory.
const WIDEST: u32 = 16;

/// How elements pass through shared memory between warps.
struct Passage {
    start: u32,
    words: KeyWords,
    /// How often they have.
    times: u32,
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn sort(&mut self, operation: &Operation, axis: u8, descending: bool, indices: bool) -> Result<()> {
        let (tile, result) = (operation.operands[0], operation.results[0]);
        let Some(layout) = self.layout(tile) else { return Err(self.malformed(operation)) };
        let plan = sort_plan(self.func, operation, axis).map_err(|error| self.layout_error(&error))?;
        let (dtype, places) = (self.dtype(tile), layout.out_bits(LayoutDim::Axis(axis)));
        let words = KeyWords::new(dtype.bytes() * 8, places, indices);
        let positions = if indices { self.coordinates(layout, axis) } else { Vec::new() };
        let registers = self.registers(tile);
        let key = |(register, &value)| self.key_of(value, dtype, descending, words, positions.get(register).copied());
        let mut keys: Vec<Key> = registers.iter().enumerate().map(key).collect();
        let crosses = |step: &&SortStep| matches!(step, SortStep::Swap { warp, .. } if *warp != 0);
        let mut passage = Passage { start: 0, words, times: 0 };
        if plan.steps.iter().any(|step| crosses(&step)) {
            passage.start = self.take_scratch(0);
        }
        for step in &plan.steps {
            self.sort_step(*step, &mut keys, &mut passage);
        }
        let element = |key: &Key<'ctx>| self.element_of(key, dtype, descending, words, indices.then_some(places));
        let elements = keys.iter().map(element).collect();
        self.set(result, elements);
        Ok(())
    }

    /// What an element is compared by.
    fn key_of(
        &self,
        value: Value<'ctx>,
        dtype: DType,
        descending: bool,
        words: KeyWords,
        position: Option<IntValue<'ctx>>,
    ) -> Key<'ctx> {
        let (ir, bits) = (&self.ir, dtype.bytes() * 8);
        let (own, word) = (ir.int_type(bits), ir.int_type(words.word));
        let raw = ir.resize(ir.to_bits(value), own, false);
        let sign = own.const_int(1 << (bits - 1), false);
        let key = if dtype.is_float() {
            // All bits of a negative number, the sign of another one.
            let spread = ir.ashr(raw, own.const_int(u64::from(bits - 1), false));
            let key = ir.xor(raw, ir.or(spread, sign));
            let magnitude = ir.and(raw, ir.not(sign));
            let is_nan = ir.icmp(IntPredicate::UGT, magnitude, own.const_int(infinity(dtype), false));
            ir.iselect(is_nan, own.const_all_ones(), key)
        } else if dtype.is_signed_int() {
            ir.xor(raw, sign)
        } else {
            raw
        };
        let key = ir.resize(if descending { ir.not(key) } else { key }, word, false);
        let shifted = if words.shift > 0 { ir.shl(key, word.const_int(u64::from(words.shift), false)) } else { key };
        match position {
            Some(position) if words.apart => vec![shifted, position],
            Some(position) => vec![ir.or(shifted, ir.resize(position, word, false))],
            None => vec![shifted],
        }
    }

    /// The element or, of so many bits, the index that a key stands for.
    fn element_of(
        &self,
        key: &Key<'ctx>,
        dtype: DType,
        descending: bool,
        words: KeyWords,
        index_bits: Option<u32>,
    ) -> Value<'ctx> {
        let ir = &self.ir;
        let first = key.first().copied().unwrap_or_else(|| ir.i32(0));
        if let Some(places) = index_bits {
            let index = ir.resize(key.get(1).copied().unwrap_or(first), ir.int_type(32), false);
            let below = ((1u64 << places) - 1) as i32;
            return if words.apart { index } else { ir.and(index, ir.i32(below)) }.into();
        }
        let bits = dtype.bytes() * 8;
        let own = ir.int_type(bits);
        let key = ir.resize(first, own, false);
        let key = if descending { ir.not(key) } else { key };
        let sign = own.const_int(1 << (bits - 1), false);
        let raw = if dtype.is_float() {
            let spread = ir.ashr(ir.not(key), own.const_int(u64::from(bits - 1), false));
            ir.xor(key, ir.or(spread, sign))
        } else if dtype.is_signed_int() {
            ir.xor(key, sign)
        } else {
            key
        };
        ir.value_of_bits(raw, ir.dtype(dtype))
    }

    fn sort_step(&mut self, step: SortStep, keys: &mut Vec<Key<'ctx>>, passage: &mut Passage) {
        match step {
            SortStep::Turn { registers, lanes, warps } => self.turn(keys, registers, lanes, warps),
            SortStep::Double => keys.extend_from_within(..),
            SortStep::Swap { register, lane, warp } => {
                let upper = self.is_odd(lane, warp);
                let pairs: Vec<usize> = (0..keys.len()).filter(|at| at & register as usize == 0).collect();
                let choose = |at: usize, yes: usize, no: usize| {
                    let words = keys[at | yes].iter().zip(&keys[at | no]);
                    words.map(|(&yes, &no)| self.ir.iselect(upper, yes, no)).collect::<Key>()
                };
                let register = register as usize;
                let kept: Vec<Key> = pairs.iter().map(|&at| choose(at, register, 0)).collect();
                let sent: Vec<Key> = pairs.iter().map(|&at| choose(at, 0, register)).collect();
                let received =
                    if warp == 0 { self.swap_lanes(&sent, lane) } else { self.swap_warps(&sent, warp, passage) };
                // What follows is a comparison of the two, for which their order does not matter.
                for ((at, kept), received) in pairs.into_iter().zip(kept).zip(received) {
                    keys[at] = kept;
                    keys[at | register] = received;
                }
            }
            SortStep::Compare { register } => {
                for at in (0..keys.len()).filter(|at| at & register as usize == 0) {
                    let other = at | register as usize;
                    let [lower, higher] = self.ordered(&keys[at], &keys[other]);
                    (keys[at], keys[other]) = (lower, higher);
                }
            }
            SortStep::Halve { register } => {
                let lower = (0..keys.len()).filter(|at| at & register as usize == 0);
                *keys = lower.map(|at| self.ordered(&keys[at], &keys[at | register as usize])[0].clone()).collect();
            }
        }
    }

    /// The lower and the higher of two keys.
    fn ordered(&self, a: &Key<'ctx>, b: &Key<'ctx>) -> [Key<'ctx>; 2] {
        let ir = &self.ir;
        if let ([a], [b]) = (a.as_slice(), b.as_slice()) {
            return [Intrinsic::UMin, Intrinsic::UMax].map(|which| vec![ir.int_call(which, &[*a, *b])]);
        }
        let less = a.iter().zip(b).rev().fold(ir.bool(false), |less, (&a, &b)| {
            let equal = ir.icmp(IntPredicate::EQ, a, b);
            ir.or(ir.icmp(IntPredicate::ULT, a, b), ir.and(equal, less))
        });
        let pick = |yes: &Key<'ctx>, no: &Key<'ctx>| {
            yes.iter().zip(no).map(|(&yes, &no)| ir.iselect(less, yes, no)).collect::<Key>()
        };
        [pick(a, b), pick(b, a)]
    }

    /// Inverts the keys for which an odd number of these bits is set.
    fn turn(&mut self, keys: &mut [Key<'ctx>], registers: u32, lanes: u32, warps: u32) {
        let turned = (lanes | warps != 0).then(|| self.is_odd(lanes, warps));
        let ir = &self.ir;
        for (at, key) in keys.iter_mut().enumerate() {
            let own = (at as u32 & registers).count_ones() % 2 == 1;
            for word in key {
                *word = match turned {
                    Some(turned) => {
                        let all = ir.resize(turned, word.get_type(), true);
                        ir.xor(*word, if own { ir.not(all) } else { all })
                    }
                    None if own => ir.not(*word),
                    None => *word,
                };
            }
        }
    }

    /// What lane `own ^ lane` sends.
    fn swap_lanes(&self, sent: &[Key<'ctx>], lane: u32) -> Vec<Key<'ctx>> {
        let which = self.ir.i32(lane as i32);
        let word = |&word: &IntValue<'ctx>| self.ir.int(self.shuffle(Intrinsic::ShuffleButterfly, word.into(), which));
        sent.iter().map(|key| key.iter().map(word).collect()).collect()
    }

    /// What the thread with the same lane in warp `own ^ warp` sends: each thread writes vectors beside those of the
    /// next one, without bank conflicts.
    fn swap_warps(&mut self, sent: &[Key<'ctx>], warp: u32, passage: &mut Passage) -> Vec<Key<'ctx>> {
        if passage.times > 0 {
            self.barrier();
        }
        passage.times += 1;
        let partner = self.ir.xor(self.ids.thread, self.ir.i32((WARP_SIZE * warp) as i32));
        let mut received = vec![Vec::new(); sent.len()];
        let mut start = passage.start;
        let count = if passage.words.apart { 2 } else { 1 };
        let mut reads = Vec::new();
        for word in 0..count {
            let ty = self.ir.int_type(if word == 0 { passage.words.word } else { 32 });
            let bytes = ty.get_bit_width() / 8;
            let width = (WIDEST / bytes).min(sent.len() as u32);
            for (chunk, keys) in sent.chunks(width as usize).enumerate() {
                let vector: Vec<Value> = keys.iter().map(|key| key[word].into()).collect();
                self.ir.store(
                    self.place_of(self.ids.thread, start, bytes * width),
                    self.ir.vector(&vector),
                    bytes * width,
                );
                reads.push((chunk * width as usize, start, width, ty));
                start += bytes * width * self.num_warps * WARP_SIZE;
            }
        }
        self.barrier();
        for (first, start, width, ty) in reads {
            let bytes = ty.get_bit_width() / 8 * width;
            let whole: BasicTypeEnum = if width == 1 { ty.into() } else { ty.vec_type(width).into() };
            let loaded = self.ir.load(whole, self.place_of(partner, start, bytes), bytes);
            for (at, element) in self.ir.elements(loaded, width).into_iter().enumerate() {
                received[first + at].push(self.ir.int(element));
            }
        }
        received
    }

    /// Where the bytes of a thread are, if each has so many from `start` on.
    fn place_of(&self, thread: IntValue<'ctx>, start: u32, bytes: u32) -> PointerValue<'ctx> {
        let base = self.shared_address(self.ir.mul(thread, self.ir.i32(bytes as i32)));
        self.ir.offset(self.ir.int_type(8), base, self.ir.i32(start as i32))
    }
}

/// The bits of the largest number that is no NaN.
fn infinity(dtype: DType) -> u64 {
    match dtype {
        DType::F8E4M3 => 0x7e,
        DType::F8E5M2 => 0x7c,
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        DType::F32 => 0x7f80_0000,
        DType::F64 => 0x7ff0_0000_0000_0000,
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => u64::MAX >> 1,
    }
}
