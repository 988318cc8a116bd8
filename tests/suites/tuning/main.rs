//! Tuning as users meet it: plans for a GPU without one, launches by tables.

mod plans;
mod tables;
mod works;

#[path = "../../../src/guide/matmul/persistent.rs"]
mod products;

use products::{PersistentConsts, PersistentSpace};
use tilewright::prelude::*;

/// `out[row] = exp(x[row]) / sum(exp(x[row]))`
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    static_assert!(BLOCK % 64 == 0);
    let (row, i) = (program_id(0) as i64 * columns as i64, arange(0, BLOCK));
    let values = load(x + (row + i as i64), mask = i < columns, other = T::NEG_INFINITY) as f32;
    let numerator = exp(values - max(values));
    store(out + (row + i as i64), (numerator / sum(numerator)) as T, mask = i < columns);
}
