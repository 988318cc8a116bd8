//! In what terms the lanes of a bounds check are compared.
//!
//! The offsets of `x + row * stride + arange(0, 1024)` are 64 bits wide, and comparing them takes two instructions per
//! vector, remembering a failure three more. But they are one scalar plus numbers of 31 bits, so what the buffer
//! leaves on either side of the scalar is computed once, and a lane compares its distance from there, in 32 bits:
//!
//! ```text
//! 0 <= scalar + lane < length    as    lane - low < count        (unsigned)
//!                                      low   = max(-scalar, 0)
//!                                      count = min(length - scalar, lanes) - low, at least 0
//! ```
//!
//! Where the mask is `arange(0, 1024) < n` on just those lanes, `n` is another limit of the count. Then one comparison
//! serves for both; some lane fails if the count is not `n`, and the first one does if `low` is not 0, else the one
//! that the count names.

use kernel_core::ir::{BinaryOp, CmpOp, CreateOp, DType, ElementwiseOp, Op, ValueId};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::Lower;
use super::intrinsics::Intrinsic;
use crate::analysis::lanes::{Along, Lanes, strip};

/// Sums of more terms than this are not taken apart.
const MAX_TERMS: usize = 16;

/// From this many comparisons on, the limits of a mask and a buffer together are worth their dozen instructions.
const FEW_UNDER_A_MASK: usize = 3;

/// The same where lanes fail one by one, which takes more of each.
const FEW: usize = 4;

/// Offsets as a scalar plus 31-bit numbers.
pub(super) struct Distances<'ctx> {
    /// The scalar, in 64 bits.
    base: IntValue<'ctx>,
    /// The first distance from it that is inside the buffer, at most 2^31.
    low: IntValue<'ctx>,
    /// How many are inside from there on, below the limit.
    count: IntValue<'ctx>,
    /// The limit of distances that the mask is, if it is one.
    admitted: Option<IntValue<'ctx>>,
}

/// What limits alone say about a check.
pub(super) struct Decided<'ctx> {
    /// Whether a lane that the mask admits is outside of the buffer.
    pub(super) failed: IntValue<'ctx>,
    /// The offset of the first one.
    pub(super) at: IntValue<'ctx>,
}

/// A sum of scalars and one tile.
struct Sum {
    scalars: Vec<ValueId>,
    tile: Lanes,
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Takes 64-bit offsets apart, if they are a scalar plus distances of 31 bits and there are enough comparisons.
    pub(super) fn distances(
        &self,
        offsets: ValueId,
        length: IntValue<'ctx>,
        mask: Option<ValueId>,
        comparisons: usize,
    ) -> Option<Distances<'ctx>> {
        if self.dtype(offsets) != DType::I64 || comparisons < FEW_UNDER_A_MASK {
            return None;
        }
        let Sum { scalars, tile } = self.sum(offsets)?;
        let (smallest, largest) = self.axis.of(self.func, tile.value).range?;
        let end = i32::try_from(largest.checked_add(1)?).ok().filter(|_| smallest >= 0)?;
        let admitted = mask.and_then(|mask| self.admitted(mask, &tile));
        if admitted.is_none() && comparisons < FEW {
            return None;
        }
        let ir = &self.ir;
        let base = scalars.iter().fold(ir.i64(0), |sum, &scalar| ir.add(sum, ir.int(self.scalar(scalar))));
        let limit = admitted.unwrap_or(ir.i32(end));
        let (low, count) = match scalars[..] {
            [scalar] if self.is_narrow(scalar) => self.narrow_limits(base, length, limit),
            _ => self.wide_limits(base, length, limit),
        };
        Some(Distances { base, low, count, admitted })
    }

    /// Whether a 64-bit scalar has a value of 32 bits.
    fn is_narrow(&self, scalar: ValueId) -> bool {
        self.func.def_op(scalar).is_some_and(|op| {
            matches!(op.op, Op::Elementwise(ElementwiseOp::Cast { .. })) && self.dtype(op.operands[0]) == DType::I32
        })
    }

    /// The first distance inside and how many are, below a limit, for a base of 32 bits.
    fn narrow_limits(
        &self,
        base: IntValue<'ctx>,
        length: IntValue<'ctx>,
        limit: IntValue<'ctx>,
    ) -> (IntValue<'ctx>, IntValue<'ctx>) {
        let ir = &self.ir;
        let (short, long) = (ir.int_type(32), ir.int_type(64));
        let end = ir.add(base, ir.resize(limit, long, false));
        let all_begin = ir.icmp(IntPredicate::SLE, end, length);
        // Where they do not, the length is below 2^32 and the difference has 32 bits and a sign.
        let left = ir.resize(ir.sub(length, base), short, false);
        let high = ir.iselect(all_begin, limit, left);
        let negative = ir.int_call(Intrinsic::SMin, &[ir.resize(base, short, false), ir.i32(0)]);
        let count = ir.int_call(Intrinsic::SMax, &[ir.add(high, negative), ir.i32(0)]);
        (ir.sub(ir.i32(0), negative), count)
    }

    /// The same for any base.
    fn wide_limits(
        &self,
        base: IntValue<'ctx>,
        length: IntValue<'ctx>,
        limit: IntValue<'ctx>,
    ) -> (IntValue<'ctx>, IntValue<'ctx>) {
        let ir = &self.ir;
        let (short, long) = (ir.int_type(32), ir.int_type(64));
        let zero = ir.i64(0);
        // Both are right as unsigned numbers: a length is below 2^63, so the difference stays below 2^64.
        let below = ir.iselect(ir.icmp(IntPredicate::SLT, base, zero), ir.sub(zero, base), zero);
        let left = ir.iselect(ir.icmp(IntPredicate::SLT, base, length), ir.sub(length, base), zero);
        let at_most = |value, limit| ir.resize(ir.int_call(Intrinsic::UMin, &[value, limit]), short, false);
        let (low, high) = (at_most(below, ir.i64(1 << 31)), at_most(left, ir.resize(limit, long, false)));
        (low, ir.sub(ir.int_call(Intrinsic::UMax, &[high, low]), low))
    }

    /// A tile as a sum of scalars and one other tile.
    fn sum(&self, offsets: ValueId) -> Option<Sum> {
        let (mut scalars, mut tile) = (Vec::new(), None);
        let mut terms = vec![Lanes::of(self.func, offsets)];
        for _ in 0..MAX_TERMS {
            let Some(term) = terms.pop() else { break };
            let term = strip(self.func, term);
            if self.func.ty(term.value).is_scalar() {
                scalars.push(term.value);
                continue;
            }
            match self.func.def_op(term.value) {
                Some(op) if op.op == Op::binary(BinaryOp::Add) => {
                    terms.extend(op.operands.iter().map(|&operand| term.operand(operand)));
                }
                Some(_) | None if tile.is_none() => tile = Some(term),
                Some(_) | None => return None,
            }
        }
        (terms.is_empty() && !scalars.is_empty()).then_some(Sum { scalars, tile: tile? })
    }

    /// How many lanes a mask `lanes < n` admits, the distances being the lanes 0, 1, .. themselves.
    fn admitted(&self, mask: ValueId, distances: &Lanes) -> Option<IntValue<'ctx>> {
        let (lanes, size) = self.counting(distances.clone())?;
        let mask = strip(self.func, Lanes::of(self.func, mask));
        let compare = self.func.def_op(mask.value)?;
        let (run, limit) = if compare.op == Op::compare(CmpOp::Lt) {
            (compare.operands[0], compare.operands[1])
        } else if compare.op == Op::compare(CmpOp::Gt) {
            (compare.operands[1], compare.operands[0])
        } else {
            return None;
        };
        let limit = strip(self.func, mask.operand(limit)).value;
        let is_number = self.func.ty(limit).is_scalar() && self.dtype(limit) == DType::I32;
        if !is_number || self.counting(mask.operand(run))? != (lanes, size) {
            return None;
        }
        let ir = &self.ir;
        let limit = ir.int_call(Intrinsic::SMax, &[ir.int(self.scalar(limit)), ir.i32(0)]);
        Some(ir.int_call(Intrinsic::SMin, &[limit, ir.i32(size)]))
    }

    /// Along what a tile counts from 0 in steps of 1, and how far.
    fn counting(&self, lanes: Lanes) -> Option<(Vec<Along>, i32)> {
        let mut lanes = strip(self.func, lanes);
        if let Some(op) = self.func.def_op(lanes.value)
            && matches!(op.op, Op::Elementwise(ElementwiseOp::Cast { .. }))
        {
            // The numbers of a tile are small enough for every type that pointers are moved by.
            let is_wide =
                [lanes.value, op.operands[0]].iter().all(|&v| matches!(self.dtype(v), DType::I32 | DType::I64));
            lanes = is_wide.then(|| strip(self.func, lanes.operand(op.operands[0])))?;
        }
        let Op::Create(CreateOp::Arange { lo, hi }) = &self.func.def_op(lanes.value)?.op else { return None };
        let size = i32::try_from(hi.as_const()?).ok()?;
        (lo.as_const() == Some(0)).then_some((lanes.along, size))
    }
}

impl<'ctx> Distances<'ctx> {
    /// What a lane compares: its distance from the first one inside.
    pub(super) fn lane(&self, lower: &Lower<'_, 'ctx>, offset: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = &lower.ir;
        // LLVM sees that this is the 32-bit number that the scalar was added to.
        let distance = ir.resize(ir.sub(offset, self.base), ir.int_type(32), false);
        ir.sub(distance, self.low)
    }

    /// The limit of [`Distances::lane`], as unsigned numbers.
    pub(super) fn limit(&self) -> IntValue<'ctx> {
        self.count
    }

    /// The offset that [`Distances::lane`] was made of.
    pub(super) fn offset(&self, lower: &Lower<'_, 'ctx>, lane: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = &lower.ir;
        let distance = ir.add(lane, self.low);
        ir.add(self.base, ir.resize(distance, ir.int_type(64), false))
    }

    /// The outcome for all lanes, if the mask is one of the limits.
    pub(super) fn decided(&self, lower: &Lower<'_, 'ctx>) -> Option<Decided<'ctx>> {
        let ir = &lower.ir;
        let admitted = self.admitted?;
        let begins_late = ir.icmp(IntPredicate::NE, self.low, ir.i32(0));
        let first = ir.iselect(begins_late, ir.i32(0), self.count);
        Some(Decided {
            failed: ir.icmp(IntPredicate::NE, self.count, admitted),
            at: ir.add(self.base, ir.resize(first, ir.int_type(64), false)),
        })
    }
}
