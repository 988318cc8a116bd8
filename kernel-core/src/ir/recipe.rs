//! How the host makes a tensor that the kernel describes itself, from the other arguments of a launch.
//!
//! A kernel's `tensor_desc(a + first, [m, k], [k, 1], [64, 32])` is computed from its arguments alone, so each program
//! would find the same tensor. Binding makes it a parameter, whose argument the host finds at each launch by a
//! *recipe*: a list of steps in the arithmetic of the kernel, in which each step names earlier ones.

use super::dtype::DType;
use super::ids::ParamId;
use super::infer_dot::MAX_TENSOR_RANK;
use super::names::{BinaryOp, CmpOp, UnaryOp};
use crate::num::{binary, cast, compare, from_bits, to_bits, unary, wrap};

use super::names::Literal;

/// The most steps of a recipe. The host keeps their values on its stack.
pub const MAX_STEPS: usize = 256;

/// The tensor of a parameter, in terms of other arguments. Numbers name steps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recipe {
    /// Its number among the tensors that the kernel makes.
    pub slot: u16,
    /// The pointer parameter in whose buffer the tensor lies.
    pub base: ParamId,
    /// What the pointer is moved by, in elements: the sum of these.
    pub offsets: Vec<u16>,
    /// The size of each dimension, outermost first.
    pub sizes: Vec<u16>,
    /// The stride of each dimension, in elements.
    pub strides: Vec<u16>,
    /// What is computed, in order.
    pub steps: Vec<Step>,
}

/// A scalar of a recipe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Step {
    /// An integer dtype, or `bool`.
    pub dtype: DType,
    /// Where it comes from.
    pub from: Source,
}

/// Where a scalar of a recipe comes from. Numbers name earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// Itself; `bool`s are 0 or 1.
    Const(i128),
    /// The argument of a scalar parameter.
    Arg(ParamId),
    /// One operand.
    Unary(UnaryOp, u16),
    /// Two operands of its dtype.
    Binary(BinaryOp, u16, u16),
    /// Two operands of one dtype.
    Compare(CmpOp, u16, u16),
    /// The second where the first holds, else the third.
    Select(u16, u16, u16),
    /// A conversion.
    Cast(u16),
}

impl Source {
    /// The steps that it names.
    pub fn operands(&self) -> impl Iterator<Item = u16> {
        let (all, count) = match *self {
            Source::Const(_) | Source::Arg(_) => ([0; 3], 0),
            Source::Unary(_, a) | Source::Cast(a) => ([a, 0, 0], 1),
            Source::Binary(_, a, b) | Source::Compare(_, a, b) => ([a, b, 0], 2),
            Source::Select(a, b, c) => ([a, b, c], 3),
        };
        all.into_iter().take(count)
    }
}

/// Where a tensor lies in its buffer, as a kernel says it: nothing of it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extents {
    /// The first element, in elements from the start of the buffer.
    pub offset: i64,
    /// The number of dimensions.
    pub rank: usize,
    /// Sizes, outermost first; of those that are not there 1.
    pub sizes: [i64; MAX_TENSOR_RANK],
    /// Strides in elements; of those that are not there 0.
    pub strides: [i64; MAX_TENSOR_RANK],
}

impl Extents {
    /// Sizes and strides as numbers that memory can have, or what keeps one from it.
    ///
    /// # Errors
    /// A problem, as the end of a sentence about the tensor, if a number is negative.
    pub fn lists(&self) -> Result<([usize; MAX_TENSOR_RANK], [usize; MAX_TENSOR_RANK]), String> {
        let (mut sizes, mut strides) = ([1; MAX_TENSOR_RANK], [0; MAX_TENSOR_RANK]);
        for axis in 0..self.rank.min(MAX_TENSOR_RANK) {
            let (size, stride) = (self.sizes[axis], self.strides[axis]);
            sizes[axis] = usize::try_from(size).map_err(|_| format!("has {size} elements along dimension {axis}"))?;
            // Where there is one element or none, no stride matters.
            strides[axis] = match usize::try_from(stride) {
                Ok(stride) => stride,
                Err(_) if size <= 1 => 1,
                Err(_) => return Err(format!("has a stride of {stride} along dimension {axis}")),
            };
        }
        Ok((sizes, strides))
    }
}

impl Recipe {
    /// Evaluates it: integers wrap as in the kernel, and nothing is allocated. `arg` gives the bits of scalar arguments.
    pub fn evaluate(&self, arg: impl Fn(ParamId) -> u64) -> Extents {
        let mut values = [0u64; MAX_STEPS];
        for (index, step) in self.steps.iter().enumerate().take(MAX_STEPS) {
            values[index] = self.step(step, &values, &arg);
        }
        let value = |&step: &u16| match self.literal(step, &values) {
            Literal::Int(value) => wrap(value, DType::I64) as i64,
            Literal::Bool(_) | Literal::Float(_) => 0,
        };
        let offset = self.offsets.iter().map(value).fold(0, i64::wrapping_add);
        let rank = self.sizes.len().min(MAX_TENSOR_RANK);
        let mut extents = Extents { offset, rank, sizes: [1; MAX_TENSOR_RANK], strides: [0; MAX_TENSOR_RANK] };
        extents.sizes.iter_mut().zip(&self.sizes).for_each(|(to, step)| *to = value(step));
        extents.strides.iter_mut().zip(&self.strides).for_each(|(to, step)| *to = value(step));
        extents
    }

    fn literal(&self, step: u16, values: &[u64; MAX_STEPS]) -> Literal {
        let index = usize::from(step);
        let dtype = self.steps.get(index).map_or(DType::I64, |step| step.dtype);
        from_bits(values.get(index).copied().unwrap_or(0), dtype)
    }

    fn step(&self, step: &Step, values: &[u64; MAX_STEPS], arg: &impl Fn(ParamId) -> u64) -> u64 {
        let at = |index: u16| self.literal(index, values);
        let result = match step.from {
            Source::Arg(param) => return arg(param),
            Source::Const(value) => match step.dtype {
                DType::Bool => Some(Literal::Bool(value != 0)),
                _ => Some(Literal::Int(value)),
            },
            Source::Unary(op, a) => unary(op, step.dtype, at(a)),
            Source::Binary(op, a, b) => binary(op, step.dtype, at(a), at(b)),
            Source::Compare(op, a, b) => compare(op, at(a), at(b)).map(Literal::Bool),
            Source::Select(condition, a, b) => crate::num::select(at(condition), at(a), at(b)),
            Source::Cast(a) => Some(cast(at(a), step.dtype)),
        };
        // Of what a recipe may have, everything has a result: see `is_total`.
        result.and_then(|value| to_bits(value, step.dtype)).unwrap_or(0)
    }

    /// A power of two that divides the value of a step; `known` says what is known of arguments.
    pub fn divisor(&self, step: u16, known: &impl Fn(ParamId) -> u32) -> u32 {
        /// More is of no use to any access.
        const MOST: u32 = 16;
        let mut divisors = [1u32; MAX_STEPS];
        for (index, step) in self.steps.iter().enumerate().take(MAX_STEPS) {
            let at = |index: u16| divisors.get(usize::from(index)).copied().unwrap_or(1);
            let divisor = match step.from {
                Source::Const(value) => 1 << value.trailing_zeros().min(MOST.trailing_zeros()),
                Source::Arg(param) => known(param).max(1),
                Source::Cast(a) => at(a),
                Source::Binary(BinaryOp::Mul, a, b) => at(a).saturating_mul(at(b)),
                Source::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max, a, b)
                | Source::Select(_, a, b) => at(a).min(at(b)),
                Source::Binary(..) | Source::Unary(..) | Source::Compare(..) => 1,
            };
            divisors[index] = if step.dtype.is_int() { divisor.min(MOST) } else { 1 };
        }
        divisors.get(usize::from(step)).copied().unwrap_or(1)
    }
}

/// Whether the operation has a result for all integers, or truth values, of that dtype.
pub fn is_total(op: BinaryOp, dtype: DType) -> bool {
    // Which operations have none depends on the dtype alone.
    let one = if dtype == DType::Bool { Literal::Bool(true) } else { Literal::Int(1) };
    !dtype.is_float() && binary(op, dtype, one, one).is_some()
}

/// As [`is_total`], of operations with one operand.
pub fn is_total_unary(op: UnaryOp, dtype: DType) -> bool {
    let one = if dtype == DType::Bool { Literal::Bool(true) } else { Literal::Int(1) };
    !dtype.is_float() && unary(op, dtype, one).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(dtype: DType, from: Source) -> Step {
        Step { dtype, from }
    }

    /// `[n * n, n as i64 * n as i64]` in two dtypes.
    fn squares() -> Recipe {
        Recipe {
            slot: 0,
            base: ParamId::new(0),
            offsets: vec![0, 2],
            sizes: vec![1, 3],
            strides: vec![3, 4],
            steps: vec![
                step(DType::I32, Source::Arg(ParamId::new(1))),
                step(DType::I32, Source::Binary(BinaryOp::Mul, 0, 0)),
                step(DType::I64, Source::Cast(0)),
                step(DType::I64, Source::Binary(BinaryOp::Mul, 2, 2)),
                step(DType::I64, Source::Const(1)),
            ],
        }
    }

    #[test]
    fn integers_wrap_in_their_own_dtypes() {
        let made = |n: i32| squares().evaluate(|_| n as u32 as u64);
        assert_eq!(
            (made(7).sizes[..2].to_vec(), made(7).strides[..2].to_vec(), made(7).offset),
            (vec![49; 2], vec![49, 1], 14)
        );
        let wide = made(100_000);
        assert_eq!(wide.sizes[..2], [i64::from(100_000i32.wrapping_mul(100_000)), 10_000_000_000]);
        assert_eq!(made(-3).offset, -6);
        assert_eq!(made(i32::MIN).sizes[0], 0);
    }

    #[test]
    fn every_operation_that_is_allowed_has_a_result_for_all_numbers() {
        let edges = [0i128, 1, -1, 2, 63, 64, i64::MIN.into(), i64::MAX.into(), u64::MAX.into()];
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
            for op in BinaryOp::ALL.iter().copied().filter(|op| is_total(*op, dtype)) {
                for (a, b) in edges.iter().flat_map(|a| edges.iter().map(move |b| (*a, *b))) {
                    let (a, b) = (Literal::Int(wrap(a, dtype)), Literal::Int(wrap(b, dtype)));
                    assert!(binary(op, dtype, a, b).is_some(), "{op:?} {dtype} {a:?} {b:?}");
                }
            }
        }
        assert!(is_total(BinaryOp::Div, DType::I32) && !is_total(BinaryOp::Div, DType::F32));
        assert!(!is_total(BinaryOp::DivRn, DType::I32));
    }

    #[test]
    fn negative_numbers_are_no_sizes() {
        let extents =
            |size, stride| Extents { offset: 0, rank: 1, sizes: [size, 1, 1, 1, 1], strides: [stride, 0, 0, 0, 0] };
        assert!(extents(-1, 1).lists().is_err_and(|problem| problem.contains("-1 elements")));
        assert!(extents(2, -1).lists().is_err_and(|problem| problem.contains("a stride of -1")));
        assert!(extents(1, -1).lists().is_ok() && extents(0, 3).lists().is_ok());
    }

    #[test]
    fn divisors_are_those_of_all_values() {
        let recipe = squares();
        assert_eq!(recipe.divisor(1, &|_| 8), 16);
        assert_eq!(recipe.divisor(1, &|_| 0), 1);
        assert_eq!(recipe.divisor(4, &|_| 16), 1);
    }
}
