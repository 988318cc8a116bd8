//! Writes products that no instruction computes as they are in terms of products that matrix instructions compute.
//!
//! ```text
//! %d = dot %a, %b, %acc {precision = bf16x3}                       f32 times f32
//! %e = dot_scaled %x, %y, %acc, %s {scaled = left}                 f8e4m3 with scales, times bf16
//! ```
//! becomes
//! ```text
//! %a0 = cast %a {to = bf16}; %r = sub %a, %a0 as f32; %a1 = cast %r {to = bf16}; ..      the same for %b
//! %p = dot %a1, %b0, 0; %q = dot %a0, %b1, %p; %z = select %q == %q, %q, 0
//! %t = dot %a0, %b0, %z; %d = add %t, %acc
//!
//! %f = e8m0 %s, repeated 32 times along K; %w = %x as f32 * %f; %v = cast %w {to = bf16}; %e = dot %v, %y, %acc
//! ```
//!
//! What is multiplied with what, and in which order, is said in [`kernel_core::ir::scaled`]. A target that multiplies scaled
//! factors as they are would keep `dot_scaled` here.
//!
//! The numbers of e2m1 are decoded by three instructions and a multiplication each: the bits of exponent and fraction are
//! moved to where f32 has the lowest bits of its exponent and the highest of its fraction. Read there they are the number
//! times 2^-126, subnormal numbers included.
//!
//! The pass runs on the bound kernel, before the instruction of each product is chosen.

use kernel_core::edit::{Action, Cursor, Result, Rewriter};
use kernel_core::ir::scaled::{SCALE_BLOCK, Split, scaled_dtype};
use kernel_core::ir::{
    BinaryOp, CmpOp, DType, Dim, DotOp, DotPrecision, FactorFormat, Func, Literal, Op, OpId, ShapeOp, ValueId,
};

/// Where f32 has its sign, and the bits of exponent and fraction that e2m1 has.
const E2M1_BITS: i128 = 0x81c0_0000_u32 as i32 as i128;
/// From the highest bits of a word to those.
const E2M1_SHIFT: i128 = 6;
/// By how much the exponents of f32 are larger than those of e2m1, as a power of two.
const E2M1_EXPONENTS: i32 = 126;
/// NaN, and 2^-127, as bits of f32.
const NAN_BITS: i128 = 0x7fc0_0000;
const SMALLEST_SCALE_BITS: i128 = 1 << 22;
/// Bits of the fraction of f32.
const FRACTION_BITS: i128 = 23;

/// Runs the pass on a bound kernel.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    Rewriter::run(func, "split_products", &mut |rewriter, id| {
        let Some(product) = Product::of(rewriter.func, id) else { return Ok(Action::Keep) };
        let operation = rewriter.func.op(id);
        let (span, results) = (operation.span, operation.results.clone());
        let mut writer = Writer { cursor: rewriter.before(span) };
        let value = match product {
            Product::Split { factors, acc, split } => writer.split(factors, acc, split)?,
            Product::Scaled { factors, acc, to } => {
                let [a, b] = factors;
                let (a, b) = (writer.scaled(a, Side::Left, to)?, writer.scaled(b, Side::Right, to)?);
                writer.dot(a, b, acc)?
            }
        };
        results.into_iter().for_each(|result| rewriter.replace(result, value));
        Ok(Action::Remove)
    })
    .map(|_changed| ())
}

/// What is written in other terms.
enum Product {
    /// Of f32, by terms that are bf16.
    Split { factors: [ValueId; 2], acc: ValueId, split: Split },
    /// Of factors with scales, in a dtype.
    Scaled { factors: [Factor; 2], acc: ValueId, to: DType },
}

/// A factor with its scale.
#[derive(Clone, Copy)]
struct Factor {
    value: ValueId,
    format: FactorFormat,
    scale: Option<ValueId>,
}

/// Which factor it is: K is the last axis of the left one, and the one before it of the right one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Product {
    fn of(func: &Func, id: OpId) -> Option<Product> {
        let operation = func.op(id);
        let Op::Dot(op) = &operation.op else { return None };
        let &[a, b, acc, ref scales @ ..] = operation.operands.as_slice() else { return None };
        let (left, right) = (func.ty(a).dtype()?, func.ty(b).dtype()?);
        match *op {
            DotOp::Dot { precision, .. } => {
                let split = precision.split().filter(|_| left == DType::F32)?;
                Some(Product::Split { factors: [a, b], acc, split })
            }
            DotOp::DotScaled { a_format, b_format, scaled } => {
                let [a_scale, b_scale] = scaled.pair(scales);
                let left_factor = Factor { value: a, format: a_format, scale: a_scale };
                let right_factor = Factor { value: b, format: b_format, scale: b_scale };
                Some(Product::Scaled { factors: [left_factor, right_factor], acc, to: scaled_dtype(left, right)? })
            }
        }
    }
}

struct Writer<'e> {
    cursor: Cursor<'e>,
}

impl Writer<'_> {
    fn dot(&mut self, a: ValueId, b: ValueId, acc: ValueId) -> Result<ValueId> {
        self.cursor.value(DotOp::Dot { precision: DotPrecision::Tf32, by: None }, &[a, b, acc])
    }

    /// A number in the shape of a tile.
    fn number(&mut self, value: Literal, like: ValueId, dtype: DType) -> Result<ValueId> {
        let scalar = self.cursor.constant(value, dtype)?;
        self.cursor.splat_like(scalar, like)
    }

    fn split(&mut self, [a, b]: [ValueId; 2], acc: ValueId, split: Split) -> Result<ValueId> {
        let (a, b) = (self.terms(a, split.terms)?, self.terms(b, split.terms)?);
        let zero = self.number(Literal::Float(0.0f64.to_bits()), acc, DType::F32)?;
        let mut sums = zero;
        for &(i, j) in split.small {
            sums = self.dot(a[i], b[j], sums)?;
        }
        let is_number = self.cursor.compare(CmpOp::Eq, sums, sums)?;
        let sums = self.cursor.select(is_number, sums, zero)?;
        let product = self.dot(a[0], b[0], sums)?;
        self.cursor.binary(BinaryOp::Add, product, acc)
    }

    /// The bf16 terms of f32.
    fn terms(&mut self, factor: ValueId, count: usize) -> Result<Vec<ValueId>> {
        let mut terms = Vec::with_capacity(count);
        let mut rest = factor;
        while terms.len() < count {
            let term = self.cursor.cast(rest, DType::BF16)?;
            terms.push(term);
            if terms.len() < count {
                let taken = self.cursor.cast(term, DType::F32)?;
                rest = self.cursor.binary(BinaryOp::Sub, rest, taken)?;
            }
        }
        Ok(terms)
    }

    /// A factor times its scale, rounded to a dtype.
    fn scaled(&mut self, factor: Factor, side: Side, to: DType) -> Result<ValueId> {
        let numbers = match factor.format {
            FactorFormat::Own => factor.value,
            FactorFormat::E2m1 => self.pairs(factor.value, side)?,
        };
        let Some(scale) = factor.scale else { return self.cursor.cast(numbers, to) };
        let scale = self.scale(scale, side)?;
        let numbers = self.cursor.cast(numbers, DType::F32)?;
        let product = self.cursor.binary(BinaryOp::Mul, numbers, scale)?;
        self.cursor.cast(product, to)
    }

    /// The numbers of e2m1 in bytes, as f32.
    fn pairs(&mut self, bytes: ValueId, side: Side) -> Result<ValueId> {
        let words = self.cursor.cast(bytes, DType::I32)?;
        let (low, high) = (self.e2m1(words, 28)?, self.e2m1(words, 24)?);
        let joined = self.cursor.value(ShapeOp::Join, &[low, high])?;
        let mut shape = self.cursor.func.ty(bytes).shape.clone();
        let rank = shape.len();
        let (joined, k) = match side {
            Side::Left => (joined, rank - 1),
            // The pair comes before the columns: neighbours along K.
            Side::Right => {
                let mut perm: Vec<u8> = (0..=rank as u8).collect();
                perm.swap(rank - 1, rank);
                (self.cursor.value(ShapeOp::Permute { perm }, &[joined])?, rank - 2)
            }
        };
        shape[k] = times(&shape[k], FactorFormat::E2m1.pack());
        self.cursor.value(ShapeOp::Reshape { shape }, &[joined])
    }

    /// The number of e2m1 whose bits are the highest of a word after a shift to the left.
    fn e2m1(&mut self, words: ValueId, shift: i128) -> Result<ValueId> {
        let by = self.number(Literal::Int(shift), words, DType::I32)?;
        let high = self.cursor.binary(BinaryOp::Shl, words, by)?;
        let by = self.number(Literal::Int(E2M1_SHIFT), words, DType::I32)?;
        let moved = self.cursor.binary(BinaryOp::Shr, high, by)?;
        let mask = self.number(Literal::Int(E2M1_BITS), words, DType::I32)?;
        let bits = self.cursor.binary(BinaryOp::And, moved, mask)?;
        let small = self.cursor.bitcast(bits, DType::F32)?;
        let factor = Literal::Float(2f64.powi(E2M1_EXPONENTS).to_bits());
        let factor = self.number(factor, words, DType::F32)?;
        self.cursor.binary(BinaryOp::Mul, small, factor)
    }

    /// What the scales of a factor stand for, in its shape.
    fn scale(&mut self, scale: ValueId, side: Side) -> Result<ValueId> {
        let numbers = self.e8m0(scale)?;
        let rank = self.cursor.func.ty(numbers).rank();
        let (numbers, k) = match side {
            Side::Left => (numbers, rank - 1),
            Side::Right => {
                let mut perm: Vec<u8> = (0..rank as u8).collect();
                perm.swap(rank - 2, rank - 1);
                (self.cursor.value(ShapeOp::Permute { perm }, &[numbers])?, rank - 2)
            }
        };
        let mut shape = self.cursor.func.ty(numbers).shape.clone();
        let numbers = self.cursor.value(ShapeOp::ExpandDims { axis: k as u8 + 1 }, &[numbers])?;
        let mut repeated = shape.clone();
        repeated.insert(k + 1, Dim::Const(SCALE_BLOCK));
        let numbers = self.cursor.value(ShapeOp::Broadcast { shape: repeated }, &[numbers])?;
        shape[k] = times(&shape[k], SCALE_BLOCK);
        self.cursor.value(ShapeOp::Reshape { shape }, &[numbers])
    }

    /// What scales stand for: the exponent of f32, but for the first and the last.
    fn e8m0(&mut self, scale: ValueId) -> Result<ValueId> {
        let words = self.cursor.cast(scale, DType::I32)?;
        let number = |writer: &mut Self, value| writer.number(Literal::Int(value), words, DType::I32);
        let by = number(self, FRACTION_BITS)?;
        let (none, all) = (number(self, 0)?, number(self, 255)?);
        let (smallest, nan) = (number(self, SMALLEST_SCALE_BITS)?, number(self, NAN_BITS)?);
        let usual = self.cursor.binary(BinaryOp::Shl, words, by)?;
        let is_smallest = self.cursor.compare(CmpOp::Eq, words, none)?;
        let bits = self.cursor.select(is_smallest, smallest, usual)?;
        let is_nan = self.cursor.compare(CmpOp::Eq, words, all)?;
        let bits = self.cursor.select(is_nan, nan, bits)?;
        self.cursor.bitcast(bits, DType::F32)
    }
}

/// A known dimension times a number.
fn times(dim: &Dim, factor: i64) -> Dim {
    // Of a bound kernel all are numbers, and small.
    dim.mul(&Dim::Const(factor)).unwrap_or_else(|_| dim.clone())
}
