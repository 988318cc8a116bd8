//! What is known of values without looking further than their definitions: constants, repeated scalars, trip counts.

use super::func::{Func, Operation, ValueId};
use super::names::Literal;
use super::ops::{CreateOp, Op};

/// The value of a scalar constant.
pub fn constant(func: &Func, value: ValueId) -> Option<Literal> {
    match func.def_op(value)?.op {
        Op::Create(CreateOp::Const { value, .. }) => Some(value),
        Op::Create(_)
        | Op::Elementwise(_)
        | Op::Shape(_)
        | Op::Memory(_)
        | Op::Dot(_)
        | Op::Desc(_)
        | Op::Control(_)
        | Op::Gpu(_) => None,
    }
}

/// The scalar that a tile repeats, if the tile is a `splat`.
pub fn splat_source(func: &Func, value: ValueId) -> Option<ValueId> {
    let operation = func.def_op(value)?;
    match operation.op {
        Op::Create(CreateOp::Splat { .. }) => operation.operands.first().copied(),
        Op::Create(_)
        | Op::Elementwise(_)
        | Op::Shape(_)
        | Op::Memory(_)
        | Op::Dot(_)
        | Op::Desc(_)
        | Op::Control(_)
        | Op::Gpu(_) => None,
    }
}

/// The value of a scalar constant, or of the scalar constant that a tile repeats.
pub fn uniform_constant(func: &Func, value: ValueId) -> Option<Literal> {
    constant(func, value).or_else(|| constant(func, splat_source(func, value)?))
}

/// How often a loop with these constants runs: for `i = lo, lo + step, ..` while `i < hi`, never if `step <= 0`.
pub fn trip_count(lo: i128, hi: i128, step: i128) -> u128 {
    // The constants fit 64 bits, so the differences fit 128.
    if step <= 0 || lo >= hi { 0 } else { ((hi - lo + step - 1) / step) as u128 }
}

/// The trip count of a `for` whose bounds and step are constants.
pub fn known_trip_count(func: &Func, operation: &Operation) -> Option<u128> {
    let int = |index: usize| match constant(func, *operation.operands.get(index)?)? {
        Literal::Int(value) => Some(value),
        Literal::Bool(_) | Literal::Float(_) => None,
    };
    Some(trip_count(int(0)?, int(1)?, int(2)?))
}
