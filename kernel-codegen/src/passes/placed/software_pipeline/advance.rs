//! Pointers that go on from iteration to iteration instead of being computed anew.
//!
//! ```text
//! before:  for i { %k = add %rows, %i; %o = mul %k, %n; .. async_copy .., (add_ptr %b, %o) }
//! after:   %by = mul %step, %n
//!          for i, %p { .. async_copy .., %p; %q = add_ptr %p, %by; yield %q }
//! ```
//!
//! What an iteration adds to the offsets of a copy is the same number in all lanes and iterations wherever they are
//! made of the loop's counter, of values that the loop carries, and of what does not change, by sums and by products
//! with scalars that do not change. A pointer that is advanced by that number takes two additions and a register pair
//! per copy; one that is computed anew takes a product and two shifted additions, and those of rows with a common
//! stride (`IMAD.WIDE`) take 6 % of the time of a product whose accumulators fill the registers.
//!
//! # Why it is exact
//!
//! Offsets of 32 bits wrap, pointers do not. But a lane whose mask holds accesses its buffer, so that its offset is
//! from zero to the buffer's length: two such offsets of consecutive iterations differ by less than half of what 32
//! bits hold, and so by exactly what is added. Where narrow numbers are converted on the way, the loop must say that
//! these do not wrap either (`no_wrap`, which `passes/bound/no_wrap.rs` demands of the launch); else such pointers
//! are computed.
//!
//! That says nothing of lanes whose masks do not hold, and so no mask may come to hold: it must be the same in all
//! iterations, or compare numbers that rise, without wrapping, with a bound ([`Emit::only_ends`]). Offsets that are
//! of 64 bits all the way wrap as pointers do, and need no such thing.

use std::collections::{HashMap, HashSet};

use kernel_core::edit::Result;
use kernel_core::ir::known::constant;
use kernel_core::ir::{
    BinaryOp, CmpOp, CreateOp, DType, Def, ElementwiseOp, Literal, MemoryOp, Op, OpId, Operation, RegionId, ShapeOp,
    ValueId, view,
};

use super::emit::{Bounds, Emit};

/// What an iteration adds to every element of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rate {
    Nothing,
    /// A scalar of the value's dtype, made before the loop.
    By(ValueId),
}

/// Which way a value goes that does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Course {
    Stays,
    Rises,
    Falls,
}

/// What a loop's body is made of, and the rates that are known.
struct Loop<'b> {
    body: RegionId,
    own: HashSet<OpId>,
    bounds: &'b Bounds,
    /// Of each value that was asked for, and whether numbers of fewer bits have gone into it.
    known: HashMap<(ValueId, DType), (Option<Rate>, bool)>,
    /// Whether numbers of fewer bits than the offsets have gone into those of the copy that is looked at.
    narrow: bool,
}

impl Emit<'_> {
    /// What each iteration adds to the pointers of each copy, in the type of its offsets, where that is one number.
    pub(super) fn advances(&mut self, body: RegionId, bounds: &Bounds) -> Result<Vec<Option<ValueId>>> {
        let own = self.func.region(body).ops.iter().copied().collect();
        let mut around = Loop { body, own, bounds, known: HashMap::new(), narrow: false };
        let found = self.found;
        let mut advance = |candidate: &super::find::Candidate| {
            if candidate.is_tensor() {
                return Ok(None);
            }
            self.span = self.func.op(candidate.op).span;
            self.advance_of(candidate.address[0], candidate.address.get(1).copied(), &mut around)
        };
        found.candidates.iter().map(&mut advance).collect()
    }

    fn advance_of(
        &mut self,
        pointer: ValueId,
        mask: Option<ValueId>,
        around: &mut Loop<'_>,
    ) -> Result<Option<ValueId>> {
        let is_sum = |operation: &&Operation| operation.op == Op::Memory(MemoryOp::AddPtr);
        let Some(operation) = self.func.def_op(pointer).filter(is_sum) else { return Ok(None) };
        let (base, offset) = (operation.operands[0], operation.operands[1]);
        let ty = self.func.ty(offset).clone();
        let Some(dtype) = ty.dtype().filter(|_| !ty.is_scalar() && self.is_outside(base, around)) else {
            return Ok(None);
        };
        around.narrow = dtype.bits() < 64;
        if around.narrow && !dtype.is_signed_int() {
            return Ok(None);
        }
        let Some(Rate::By(rate)) = self.rate(offset, dtype, around)? else { return Ok(None) };
        if around.narrow && !mask.is_none_or(|mask| self.only_ends(mask, around)) {
            return Ok(None);
        }
        let mut cursor = self.cursor();
        let rate = if dtype.bits() < 64 { cursor.cast(rate, DType::I64)? } else { rate };
        cursor.splat_like(rate, offset).map(Some)
    }

    /// The pointers of the iteration after the one with these.
    pub(super) fn advanced(&mut self, pointer: ValueId, by: ValueId) -> Result<ValueId> {
        self.cursor().like(MemoryOp::AddPtr, &[pointer, by], pointer)
    }

    /// Whether a value is there before the loop.
    fn is_outside(&self, value: ValueId, around: &Loop<'_>) -> bool {
        match self.func.value(value).def {
            Def::Param(_) => true,
            Def::Arg(region, _) => region != around.body,
            Def::Result(op, _) => !around.own.contains(&op),
        }
    }

    /// The rate of a value as a number of that dtype, which is the value's or a wider one that it is converted to.
    fn rate(&mut self, value: ValueId, dtype: DType, around: &mut Loop<'_>) -> Result<Option<Rate>> {
        if let Some(&(known, narrow)) = around.known.get(&(value, dtype)) {
            around.narrow |= narrow;
            return Ok(known);
        }
        let others = std::mem::take(&mut around.narrow);
        let rate = match self.func.value(value).def {
            _ if self.is_outside(value, around) => Some(Rate::Nothing),
            Def::Param(_) | Def::Arg(_, 0) => Some(Rate::By(self.cursor().cast(around.bounds.step, dtype)?)),
            // Nobody has said that what is carried does not wrap.
            Def::Arg(..) if self.func.ty(value).dtype() != Some(dtype) => None,
            Def::Arg(_, index) => self.rate_of_carried(value, self.yields[index as usize - 1], around)?,
            Def::Result(op, _) => {
                let operation = self.func.op(op).clone();
                self.rate_of_result(&operation, dtype, around)?
            }
        };
        around.known.insert((value, dtype), (rate, around.narrow));
        around.narrow |= others;
        Ok(rate)
    }

    /// The rate of a carried value: what each iteration adds to it.
    fn rate_of_carried(&mut self, argument: ValueId, next: ValueId, around: &Loop<'_>) -> Result<Option<Rate>> {
        if next == argument {
            return Ok(Some(Rate::Nothing));
        }
        let is_sum = |operation: &&Operation| operation.op == Op::binary(BinaryOp::Add);
        let Some(operation) = self.func.def_op(next).filter(is_sum) else { return Ok(None) };
        let by = match *operation.operands.as_slice() {
            [a, b] if a == argument => b,
            [a, b] if b == argument => a,
            _ => return Ok(None),
        };
        Ok(self.scalar_outside(by, around)?.map(Rate::By))
    }

    fn rate_of_result(&mut self, operation: &Operation, dtype: DType, around: &mut Loop<'_>) -> Result<Option<Rate>> {
        let mut rates = Vec::new();
        for &operand in &operation.operands {
            let Some(rate) = self.rate(operand, dtype, around)? else { return Ok(None) };
            rates.push(rate);
        }
        if moved(operation).is_some() {
            return Ok(rates.first().copied());
        }
        if rates.iter().all(|&rate| rate == Rate::Nothing) {
            return Ok(Some(Rate::Nothing));
        }
        let Op::Elementwise(op) = &operation.op else { return Ok(None) };
        Ok(match op {
            ElementwiseOp::Cast { .. } => {
                let dtypes = [operation.operands[0], operation.results[0]].map(|value| self.func.ty(value).dtype());
                let [Some(from), Some(to)] = dtypes else { return Ok(None) };
                around.narrow = true;
                let widens = from.is_signed_int() && to.is_signed_int() && from.bits() <= to.bits();
                (widens && self.numbers.no_wrap).then_some(rates[0])
            }
            ElementwiseOp::Binary { op: op @ (BinaryOp::Add | BinaryOp::Sub) } => match (rates[0], rates[1]) {
                (rate, Rate::Nothing) => Some(rate),
                (Rate::Nothing, rate) if *op == BinaryOp::Add => Some(rate),
                (Rate::By(a), Rate::By(b)) => Some(Rate::By(self.cursor().binary(*op, a, b)?)),
                (Rate::Nothing, Rate::By(b)) => {
                    let zero = self.cursor().constant(Literal::Int(0), dtype)?;
                    Some(Rate::By(self.cursor().binary(BinaryOp::Sub, zero, b)?))
                }
            },
            ElementwiseOp::Binary { op: BinaryOp::Mul } => {
                let (by, factor) = match (rates[0], rates[1]) {
                    (Rate::By(by), Rate::Nothing) => (by, operation.operands[1]),
                    (Rate::Nothing, Rate::By(by)) => (by, operation.operands[0]),
                    (Rate::By(_), Rate::By(_)) | (Rate::Nothing, Rate::Nothing) => return Ok(None),
                };
                let Some(factor) = self.scalar_outside(factor, around)? else { return Ok(None) };
                let factor = self.cursor().cast(factor, dtype)?;
                Some(Rate::By(self.cursor().binary(BinaryOp::Mul, by, factor)?))
            }
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Bitcast { .. } => None,
        })
    }

    /// The scalar that every element of a value is, if it is there before the loop.
    fn scalar_outside(&mut self, value: ValueId, around: &Loop<'_>) -> Result<Option<ValueId>> {
        let value = self.scalar_of(value);
        let ty = self.func.ty(value);
        if !ty.is_scalar() {
            return Ok(None);
        }
        if self.is_outside(value, around) {
            return Ok(Some(value));
        }
        // Numbers may stand anywhere.
        let (Some(number), Some(dtype)) = (constant(self.func, value), ty.dtype()) else { return Ok(None) };
        self.cursor().constant(number, dtype).map(Some)
    }

    /// What a value repeats.
    fn scalar_of(&self, mut value: ValueId) -> ValueId {
        while let Some(source) = self.func.def_op(value).and_then(moved) {
            value = source;
        }
        value
    }

    /// Whether a lane for which the mask does not hold in an iteration is one for which it does not hold in later ones.
    fn only_ends(&self, mask: ValueId, around: &Loop<'_>) -> bool {
        if self.is_outside(mask, around) {
            return true;
        }
        let Some(operation) = self.func.def_op(mask) else { return false };
        if let Some(source) = moved(operation) {
            return self.only_ends(source, around);
        }
        // What a check of bounds compares is data, or may have wrapped.
        let Op::Elementwise(op) = &operation.op else { return false };
        let operands = &operation.operands;
        match op {
            ElementwiseOp::Binary { op: BinaryOp::And } => {
                operands.iter().all(|&operand| self.only_ends(operand, around))
            }
            ElementwiseOp::Compare { op } => {
                if !self.func.ty(operands[0]).dtype().is_some_and(DType::is_int) {
                    return false;
                }
                let (Some(a), Some(b)) = (self.course(operands[0], around), self.course(operands[1], around)) else {
                    return false;
                };
                match op {
                    CmpOp::Lt | CmpOp::Le => a != Course::Falls && b != Course::Rises,
                    CmpOp::Gt | CmpOp::Ge => a != Course::Rises && b != Course::Falls,
                    CmpOp::Eq | CmpOp::Ne => (a, b) == (Course::Stays, Course::Stays),
                }
            }
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. }
            | ElementwiseOp::Bitcast { .. } => false,
        }
    }

    /// Which way a value goes from iteration to iteration, if it provably does not wrap in an iteration that exists.
    fn course(&self, value: ValueId, around: &Loop<'_>) -> Option<Course> {
        if self.is_outside(value, around) {
            return Some(Course::Stays);
        }
        let operation = match self.func.value(value).def {
            // The steps of a loop that runs go upwards.
            Def::Arg(_, 0) => return Some(Course::Rises),
            Def::Param(_) | Def::Arg(..) => return None,
            Def::Result(op, _) => self.func.op(op),
        };
        if let Op::Create(CreateOp::Const { .. }) = operation.op {
            return Some(Course::Stays);
        }
        if let Some(source) = moved(operation) {
            return self.course(source, around);
        }
        let Op::Elementwise(op) = &operation.op else { return None };
        let operands = &operation.operands;
        match op {
            ElementwiseOp::Binary { op: BinaryOp::Add } => {
                self.numbers.axis.of(self.func, value).range?;
                match (self.course(operands[0], around)?, self.course(operands[1], around)?) {
                    (Course::Stays, course) | (course, Course::Stays) => Some(course),
                    (a, b) => (a == b).then_some(a),
                }
            }
            // What is left of the loop lies between zero and its end, if it begins at zero or above.
            ElementwiseOp::Binary { op: BinaryOp::Sub } => {
                let counter = self.func.region(around.body).args[0];
                let left = (self.scalar_of(operands[0]), self.scalar_of(operands[1])) == (around.bounds.hi, counter);
                let begins = self.numbers.axis.of(self.func, around.bounds.lo).range;
                (left && begins.is_some_and(|(lo, _)| lo >= 0)).then_some(Course::Falls)
            }
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. }
            | ElementwiseOp::Bitcast { .. } => None,
        }
    }
}

/// The operand that an operation only repeats, or whose elements it gives other places.
fn moved(operation: &Operation) -> Option<ValueId> {
    if let Some(splat) = view::Splat::of(operation) {
        return Some(splat.scalar);
    }
    let Op::Shape(ShapeOp::ExpandDims { .. } | ShapeOp::Broadcast { .. } | ShapeOp::Permute { .. }) = operation.op
    else {
        return None;
    };
    operation.moved_operand()
}
