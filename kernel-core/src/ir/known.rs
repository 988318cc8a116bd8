//! What is known of values without looking further than their definitions: constants, repeated scalars, trip counts.

use super::func::Func;
use super::ids::ValueId;
use super::names::Literal;
use super::ops::{CreateOp, Op, Operation, view};

/// The value of a scalar constant.
pub fn constant(func: &Func, value: ValueId) -> Option<Literal> {
    let Op::Create(CreateOp::Const { value, .. }) = func.def_op(value)?.op else { return None };
    Some(value)
}

/// The scalar that a tile repeats, if the tile is a `splat`.
pub fn splat_source(func: &Func, value: ValueId) -> Option<ValueId> {
    Some(view::Splat::of(func.def_op(value)?)?.scalar)
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
