//! Elements in other places: transposing, reshaping, repeating, joining.

use kernel_core::ir::{CmpOp, CreateOp, DType, ShapeOp, ValueId};

use super::features::Feature;
use super::writer::{Writer, dims};

/// One random operation.
pub fn step(w: &mut Writer) -> Option<ValueId> {
    let a = w.some_tile();
    let value = match w.random.below(8) {
        0 | 1 => permute(w, a),
        2 | 3 => reshape(w, a),
        4 => {
            let rank = w.shape(a).len();
            let axis = w.random.below(rank + 1) as u8;
            if rank < 4 { w.emit(ShapeOp::ExpandDims { axis }, &[a]) } else { None }
        }
        5 | 6 => broadcast(w, a),
        _ => join(w, a),
    }?;
    w.has(Feature::Shape);
    Some(w.keep(value))
}

fn permute(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let mut perm: Vec<u8> = (0..w.shape(a).len() as u8).collect();
    for i in (1..perm.len()).rev() {
        let j = w.random.below(i + 1);
        perm.swap(i, j);
    }
    w.emit(ShapeOp::Permute { perm }, &[a])
}

fn reshape(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let mut left: i64 = w.shape(a).iter().product();
    // Mostly to a shape that other tiles have.
    let known: Vec<Vec<i64>> = w.shapes.iter().filter(|shape| shape.iter().product::<i64>() == left).cloned().collect();
    if !known.is_empty() && w.random.chance(50) {
        let at = w.random.below(known.len());
        return w.reshaped(a, &known[at]);
    }
    let mut shape = Vec::new();
    while left > 1 && shape.len() < 2 {
        let part = 1 << w.random.below(left.ilog2() as usize + 1);
        shape.push(part);
        left /= part;
    }
    shape.push(left);
    w.reshaped(a, &shape)
}

/// Repeats along dimensions of size 1, of which it makes one where there is none.
pub fn broadcast(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let mut a = a;
    if !w.shape(a).contains(&1) {
        let rank = w.shape(a).len();
        if rank >= 3 {
            return None;
        }
        let axis = w.random.below(rank + 1) as u8;
        a = w.emit(ShapeOp::ExpandDims { axis }, &[a])?;
    }
    let mut room = w.room / w.shape(a).iter().product::<i64>().max(1);
    let mut shape = w.shape(a);
    for size in shape.iter_mut().filter(|size| **size == 1) {
        let factor = 1 << w.random.below(5);
        if factor <= room {
            *size = factor;
            room /= factor;
        }
    }
    w.emit(ShapeOp::Broadcast { shape: dims(&shape) }, &[a])
}

/// A new innermost dimension of two, by `join` or by a selection.
fn join(w: &mut Writer, a: ValueId) -> Option<ValueId> {
    let mut shape = w.shape(a);
    let axis = shape.len() as u8;
    if shape.iter().product::<i64>() * 2 > w.room || shape.len() > 3 {
        return None;
    }
    let b = w.like(w.dtype(a), &shape.clone());
    if w.random.chance(50) {
        return w.emit(ShapeOp::Join, &[a, b]);
    }
    shape.push(2);
    let wide = |w: &mut Writer, value| {
        let narrow = w.emit(ShapeOp::ExpandDims { axis }, &[value])?;
        w.emit(ShapeOp::Broadcast { shape: dims(&shape) }, &[narrow])
    };
    let (a, b) = (wide(w, a)?, wide(w, b)?);
    let index = along(w, axis.into(), &shape);
    let zero = w.filled(0.0, DType::I32, &shape);
    let first = w.compare(CmpOp::Eq, index, zero)?;
    w.select(first, a, b)
}

/// The index of each element along an axis, as an i32 tile of that shape.
pub fn along(w: &mut Writer, axis: usize, shape: &[i64]) -> ValueId {
    let size = shape[axis];
    let mut value = w.emit(CreateOp::Arange { lo: 0.into(), hi: size.into() }, &[]).expect("a range");
    for other in 0..shape.len() {
        if other != axis {
            value = w.emit(ShapeOp::ExpandDims { axis: other as u8 }, &[value]).expect("a new dimension");
        }
    }
    match shape.len() {
        1 => value,
        _ => w.emit(ShapeOp::Broadcast { shape: dims(shape) }, &[value]).expect("dimensions of one"),
    }
}

/// A tile of rank one as a row or a column of a matrix.
pub fn spread(w: &mut Writer, line: ValueId, axis: u8, shape: &[i64]) -> Option<ValueId> {
    let narrow = w.emit(ShapeOp::ExpandDims { axis }, &[line])?;
    w.emit(ShapeOp::Broadcast { shape: dims(shape) }, &[narrow])
}
