//! Operations on whole tiles: sorting, elements by index, counts, halves.

use kernel_core::ir::{BinaryOp, DType, Dim, ShapeOp, TileOp, ValueId};

use super::features::Feature;
use super::shape::along;
use super::writer::Writer;

/// One random operation.
pub fn step(w: &mut Writer) -> Option<ValueId> {
    let a = w.some_tile();
    let value = match w.random.below(8) {
        0..3 => sort(w, a),
        3 | 4 => gather(w, a),
        5 => scatter(w, a),
        6 => histogram(w, a),
        _ => half(w, a),
    }?;
    w.has(Feature::Tile);
    Some(w.keep(value))
}

fn axis_of(w: &mut Writer, a: ValueId) -> usize {
    let rank = w.shape(a).len();
    w.random.below(rank)
}

fn sort(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let axis = axis_of(w, a);
    let keep = (w.shape(a)[axis] >> w.random.below(4)).max(1);
    let (descending, indices) = (w.random.chance(50), w.random.chance(40));
    w.emit(TileOp::Sort { axis: axis as u8, descending, keep: Dim::Const(keep), indices }, &[a])
}

/// Any integers: an index wraps.
fn gather(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let (axis, mut shape) = (axis_of(w, a), w.shape(a));
    if shape.iter().product::<i64>() * 2 <= w.room && w.random.chance(30) {
        shape[axis] *= 2;
    }
    let dtype = w.random.pick(&[DType::I32, DType::I64, DType::U8, DType::I8, DType::I16]);
    let index = w.like(dtype, &shape);
    w.emit(TileOp::Gather { axis: axis as u8 }, &[a, index])
}

/// To places that are all different: each other one, turned around.
fn scatter(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let (axis, shape) = (axis_of(w, a), w.shape(a));
    let turn = w.random.below(shape[axis] as usize);
    let place = along(w, axis, &shape);
    let turn = w.filled(turn as f64, DType::I32, &shape);
    let index = w.binary(BinaryOp::Xor, place, turn)?;
    let value = w.like(w.dtype(a), &shape);
    w.emit(TileOp::Scatter { axis: axis as u8 }, &[a, index, value])
}

fn histogram(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let shape = w.shape(a);
    let a = if w.dtype(a).is_int() { a } else { w.like(DType::I32, &shape) };
    let bins = 1 << w.random.below(9);
    let mut operands = vec![a];
    if w.random.chance(50) {
        operands.push(w.like(DType::Bool, &shape));
    }
    w.emit(TileOp::Histogram { bins: Dim::Const(bins) }, &operands)
}

fn half(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let mut shape = w.shape(a);
    let numel = shape.iter().product::<i64>();
    if numel < 2 {
        return None;
    }
    if shape.last() != Some(&2) || shape.len() < 2 {
        shape = vec![numel / 2, 2];
    }
    let pairs = w.reshaped(a, &shape)?;
    let upper = w.random.chance(50);
    w.emit(ShapeOp::Half { upper }, &[pairs])
}
