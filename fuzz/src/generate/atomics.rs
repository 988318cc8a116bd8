//! Atomics whose outcome no order of programs or lanes can change.

use kernel_core::ir::{AtomicOp, DType, MemOrder, MemScope, MemoryOp, ValueId};

use super::features::Feature;
use super::memory::{distinct, owned, some_mask, wrapped};
use super::writer::Writer;
use crate::case::Pattern;
use crate::facts::Fact;

const INTEGERS: [DType; 4] = [DType::I32, DType::U32, DType::I64, DType::U64];

fn order(w: &mut Writer) -> (MemOrder, MemScope) {
    let order = w.random.pick(MemOrder::ALL);
    (order, w.random.pick(MemScope::ALL))
}

/// One of the two kinds.
pub fn step(w: &mut Writer) -> Option<()> {
    if w.random.chance(50) { shared(w) } else { alone(w) }
}

/// A mask for a tile, sometimes.
fn masked(w: &mut Writer, shape: &[i64]) -> Option<ValueId> {
    (!shape.is_empty() && w.random.chance(40)).then(|| some_mask(w, shape))
}

/// Everybody combines with a few places, and nobody looks.
fn shared(w: &mut Writer) -> Option<()> {
    w.has(Feature::Atomic);
    let value = w.some_tile();
    let shape = w.shape(value);
    let float = w.random.chance(30);
    let dtype = if float { w.random.pick(&[DType::F32, DType::F64]) } else { w.random.pick(&INTEGERS) };
    let value = w.small(value, dtype);
    let op = match float {
        true => AtomicOp::Add,
        false => {
            w.random.pick(&[AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor])
        }
    };
    let count: i64 = shape.iter().product();
    let times = count as f64 * f64::from(w.grid) * w.trips + 1.0;
    if float && w.fact(value).hull(Fact::exact(-4.0, 4.0, 0)).sum_of(times, dtype).is_none() {
        return None;
    }
    let places = w.random.pick(&[1, 4, 32]);
    let (mut input, _) = w.recipe(dtype, places);
    (input.pattern, input.step, input.range) = (Pattern::Noise, 0, (0, 3));
    let param = w.buffer(dtype, true, input);
    let index = w.like(DType::I32, &shape);
    let at = wrapped(w, index, places);
    let pointers = w.pointers(param, at);
    let mut operands = vec![pointers, value];
    operands.extend(masked(w, &shape));
    // A scope of one program would leave the others out.
    let (order, scope) = order(w);
    let scope = if scope == MemScope::Block && w.grid > 1 { MemScope::Device } else { scope };
    w.raw(MemoryOp::AtomicRmw { op, order, scope }, &operands, &[]).map(drop)
}

/// Each lane has a place of its own, so that what was there is known.
fn alone(w: &mut Writer) -> Option<()> {
    w.has(Feature::AtomicUsed);
    let value = w.some_tile();
    let (shape, dtype) = (w.shape(value), w.random.pick(&INTEGERS));
    let value = w.cast(value, dtype);
    let own = owned(w, dtype, shape.iter().product());
    let at = distinct(w, own, &shape);
    let pointers = w.pointers(own.param, at);
    let mask = masked(w, &shape);
    let (order, scope) = order(w);
    let result = if w.random.chance(30) {
        let expected = w.like(dtype, &shape);
        let mut operands = vec![pointers, expected, value];
        operands.extend(mask);
        w.raw(MemoryOp::AtomicCas { order, scope }, &operands, &[])?
    } else {
        let mut operands = vec![pointers, value];
        operands.extend(mask);
        let op = w.random.pick(AtomicOp::ALL);
        w.raw(MemoryOp::AtomicRmw { op, order, scope }, &operands, &[])?
    };
    w.know(result[0], Fact::any(dtype));
    w.keep(result[0]);
    Some(())
}
