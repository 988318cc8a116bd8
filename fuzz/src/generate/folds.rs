//! Reductions and scans: of one tile and of several, with combinations that commute and, in scans, some that do not.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, RegionId, ValueId};

use super::features::Feature;
use super::shape::along;
use super::writer::Writer;
use crate::facts::Fact;

/// A random reduction or scan.
pub fn step(w: &mut Writer) -> Option<()> {
    match w.random.below(10) {
        0..5 => simple(w),
        5 | 6 => argmax(w),
        7 => pair(w),
        8 => affine(w),
        _ => last_set(w),
    }
}

/// A region that combines: the first half of its arguments with the second.
fn combine(
    w: &mut Writer,
    values: &[ValueId],
    build: impl FnOnce(&mut Writer, &[ValueId]) -> Vec<ValueId>,
) -> RegionId {
    let scalars: Vec<_> = values.iter().map(|&value| w.func.ty(value).with_shape(Vec::new())).collect();
    let region = w.func.new_region(scalars.iter().chain(&scalars).cloned());
    let args = w.func.region(region).args.clone();
    for (index, &arg) in args.iter().enumerate() {
        let fact = w.fact(values[index % values.len()]);
        w.know(arg, fact);
    }
    w.inside(region, |w| {
        let results = build(w, &args);
        w.yields(&results);
    });
    region
}

/// A reduction along an axis, or a scan.
fn fold(w: &mut Writer, values: &[ValueId], region: RegionId, scan: bool, facts: &[Fact]) -> Option<Vec<ValueId>> {
    let rank = w.shape(values[0]).len();
    let axis = w.random.below(rank) as u8;
    let op = match scan {
        true => {
            w.has(Feature::Scan);
            let reverse = w.random.chance(50);
            if reverse {
                w.has(Feature::ReverseScan);
            }
            ControlOp::Scan { axis, reverse }
        }
        false => {
            w.has(Feature::Reduce);
            ControlOp::Reduce { axis }
        }
    };
    if values.len() > 1 {
        w.has(Feature::Tuple);
    }
    let results = w.raw(op, values, &[region])?;
    for (&result, &fact) in results.iter().zip(facts) {
        w.know(result, fact);
        w.keep(result);
    }
    Some(results)
}

/// The sum, an extreme or a bitwise combination.
fn simple(w: &mut Writer) -> Option<()> {
    let value = w.some_tile();
    let (dtype, fact) = (w.dtype(value), w.fact(value));
    let count: i64 = w.shape(value).iter().product();
    let op = match dtype {
        DType::Bool => w.random.pick(&[BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]),
        _ if dtype.is_float() => w.random.pick(&[BinaryOp::Add, BinaryOp::Add, BinaryOp::Min, BinaryOp::Max]),
        _ => w.random.pick(&[
            BinaryOp::Add,
            BinaryOp::Add,
            BinaryOp::Mul,
            BinaryOp::Min,
            BinaryOp::Max,
            BinaryOp::Xor,
            BinaryOp::Or,
        ]),
    };
    let sums = op == BinaryOp::Add && dtype.is_float();
    let value = if sums && fact.sum_of(count as f64, dtype).is_none() { w.small(value, dtype) } else { value };
    let fact = match op {
        BinaryOp::Add if dtype.is_float() => w.fact(value).sum_of(count as f64, dtype)?,
        BinaryOp::Min | BinaryOp::Max => w.fact(value),
        _ => Fact::any(dtype),
    };
    let region = combine(w, &[value], |w, args| {
        let result = w.binary(op, args[0], args[1]).expect("numbers");
        vec![result]
    });
    let scan = w.random.chance(35);
    fold(w, &[value], region, scan, &[fact]).map(drop)
}

/// The largest or smallest element with its place; of several, the first.
fn argmax(w: &mut Writer) -> Option<()> {
    let value = w.some_tile();
    let (dtype, shape) = (w.dtype(value), w.shape(value));
    if dtype == DType::Bool || w.fact(value).special {
        return None;
    }
    w.has(Feature::Argmax);
    let axis = w.random.below(shape.len());
    let index = along(w, axis, &shape);
    let better = w.random.pick(&[CmpOp::Gt, CmpOp::Lt]);
    let region = combine(w, &[value, index], |w, args| {
        let [a, i, b, j] = [args[0], args[1], args[2], args[3]];
        let wins = w.compare(better, a, b).expect("numbers");
        let same = w.compare(CmpOp::Eq, a, b).expect("numbers");
        let earlier = w.compare(CmpOp::Lt, i, j).expect("integers");
        let first = w.binary(BinaryOp::And, same, earlier).expect("truth values");
        let left = w.binary(BinaryOp::Or, wins, first).expect("truth values");
        vec![w.select(left, a, b).expect("one type"), w.select(left, i, j).expect("one type")]
    });
    let facts = [w.fact(value), w.fact(index)];
    let scan = w.random.chance(20);
    fold(w, &[value, index], region, scan, &facts).map(drop)
}

/// Two reductions in one: the sum of one tile and the largest of another.
fn pair(w: &mut Writer) -> Option<()> {
    let a = w.some_tile();
    let shape = w.shape(a);
    let dtype = w.random.pick(&[DType::I32, DType::I64, DType::U32]);
    let a = w.cast(a, dtype);
    let other = super::some_dtype(&mut w.random);
    let b = w.like(other, &shape);
    if other == DType::Bool {
        return None;
    }
    let region = combine(w, &[a, b], |w, args| {
        let sum = w.binary(BinaryOp::Add, args[0], args[2]).expect("integers");
        vec![sum, w.binary(BinaryOp::Max, args[1], args[3]).expect("numbers")]
    });
    let facts = [Fact::any(dtype), w.fact(b)];
    let scan = w.random.chance(30);
    fold(w, &[a, b], region, scan, &facts).map(drop)
}

/// Integers of two tiles that are the maps `x -> p * x + q`, one after the other: a scan whose order matters.
fn affine(w: &mut Writer) -> Option<()> {
    w.has(Feature::Ordered);
    let a = w.some_tile();
    let shape = w.shape(a);
    let dtype = w.random.pick(&[DType::I32, DType::U32, DType::I64, DType::I16]);
    let p = w.cast(a, dtype);
    let q = w.like(dtype, &shape);
    let region = combine(w, &[p, q], |w, args| {
        let [p, q, r, u] = [args[0], args[1], args[2], args[3]];
        let both = w.binary(BinaryOp::Mul, p, r).expect("integers");
        let moved = w.binary(BinaryOp::Mul, q, r).expect("integers");
        vec![both, w.binary(BinaryOp::Add, moved, u).expect("integers")]
    });
    fold(w, &[p, q], region, true, &[Fact::any(dtype); 2]).map(drop)
}

/// The last element that is not zero so far: a scan whose order matters.
fn last_set(w: &mut Writer) -> Option<()> {
    let value = w.some_tile();
    let dtype = w.dtype(value);
    if dtype == DType::Bool || w.fact(value).special {
        return None;
    }
    w.has(Feature::Ordered);
    let region = combine(w, &[value], |w, args| {
        let zero = w.constant(0.0, dtype);
        let set = w.compare(CmpOp::Ne, args[1], zero).expect("numbers");
        vec![w.select(set, args[1], args[0]).expect("one type")]
    });
    let fact = w.fact(value);
    fold(w, &[value], region, true, &[fact]).map(drop)
}
