//! Lanes of tiles, and what a condition says about values in them.
//!
//! A hypothesis such as `rows < m` holds lane by lane, so it may only be used for the same lanes: a value is
//! identified by its SSA name *and* by which axis of the accessed tile each of its dimensions runs along.
//! `rows[:, None] * stride + rows[None, :]` under the mask `(rows < m)[:, None]` bounds the first use of `rows` only.

use kernel_core::ir::{
    BinaryOp, CmpOp, CreateOp, DType, ElementwiseOp, Func, Literal, Op, ShapeOp, UnaryOp, ValueId, view,
};

/// Which axis of the accessed tile a dimension of a value runs along.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Along {
    /// That axis.
    Axis(u8),
    /// All elements of the dimension are one (it is broadcast).
    Any,
    /// A dimension of the operand of an operation that moves elements otherwise, such as a reshape.
    Reshaped {
        /// The result.
        of: ValueId,
        /// The dimension of the operand.
        dim: u8,
        /// Where the dimensions of the result run: the operand's run elsewhere if these do.
        along: Packed,
    },
}

/// Where up to eight dimensions run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Packed(u64);

impl Packed {
    /// `None` of more dimensions, and of those of a reshape, which are not followed through another one.
    fn new(along: &[Along]) -> Option<Packed> {
        let fits = along.len() <= 8;
        let packed = along.iter().filter(|_| fits).try_fold(1, |packed: u64, along| match along {
            Along::Axis(axis @ 0..=126) => Some(packed << 7 | u64::from(axis + 1)),
            Along::Any => Some(packed << 7),
            Along::Axis(_) | Along::Reshaped { .. } => None,
        });
        packed.filter(|_| fits).map(Packed)
    }
}

/// A value and how its lanes map to those of the accessed tile.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lanes {
    /// The value.
    pub value: ValueId,
    /// For each of its dimensions, where it runs.
    pub along: Vec<Along>,
}

impl Lanes {
    /// The value itself, as the accessed tile or as a scalar.
    pub(crate) fn of(func: &Func, value: ValueId) -> Lanes {
        let rank = func.ty(value).rank() as u8;
        Lanes { value, along: (0..rank).map(Along::Axis).collect() }
    }

    /// An operand of an operation of which this is the result, in other lanes, which follow from these. `None` where
    /// these are not followed.
    pub(crate) fn elsewhere(&self, func: &Func, operand: ValueId) -> Option<Lanes> {
        let along = Packed::new(&self.along)?;
        let rank = func.ty(operand).rank() as u8;
        let along = (0..rank).map(|dim| Along::Reshaped { of: self.value, dim, along }).collect();
        Some(Lanes { value: operand, along })
    }

    /// An operand of an operation that works lane by lane, in the same lanes.
    pub(crate) fn operand(&self, value: ValueId) -> Lanes {
        Lanes { value, along: self.along.clone() }
    }
}

/// A fact that holds where the access takes place: `value <= limit + plus` if `above`, else `value >= limit + plus`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hypothesis {
    pub(crate) subject: Lanes,
    pub(crate) limit: Lanes,
    pub(crate) above: bool,
    pub(crate) plus: i8,
    /// Whether it holds in all lanes of the subject, whichever of them are accessed.
    pub(crate) everywhere: bool,
}

impl Hypothesis {
    /// What it says of a value in these lanes.
    pub(crate) fn of(&self, lanes: &Lanes) -> Option<Hypothesis> {
        if self.subject == *lanes {
            return Some(self.clone());
        }
        if !self.everywhere || self.subject.value != lanes.value {
            return None;
        }
        // The limit is a scalar, or a tile in the same lanes.
        let along = if self.limit.along.is_empty() { Vec::new() } else { lanes.along.clone() };
        Some(Hypothesis { subject: lanes.clone(), limit: Lanes { value: self.limit.value, along }, ..self.clone() })
    }
}

/// Chains of operations longer than this are not followed: their value counts as unknown.
pub(crate) const MAX_DEPTH: usize = 256;

/// What follows from a condition that holds (or, if not `holds`, does not) in every lane considered.
pub(crate) fn hypotheses(func: &Func, condition: Lanes, holds: bool) -> Vec<Hypothesis> {
    let mut found = Vec::new();
    conjuncts(func, condition, holds, &mut found, 0);
    found
}

fn conjuncts(func: &Func, condition: Lanes, holds: bool, out: &mut Vec<Hypothesis>, depth: usize) {
    let condition = strip(func, condition);
    let Some(operation) = func.def_op(condition.value) else { return };
    if depth > MAX_DEPTH {
        return;
    }
    let operand = |i: usize| condition.operand(operation.operands[i]);
    // Other conditions say nothing about numbers.
    let Op::Elementwise(op) = &operation.op else { return };
    match op {
        // A conjunction that holds, or a disjunction that does not, gives both of its parts.
        ElementwiseOp::Binary { op: BinaryOp::And } if holds => {
            conjuncts(func, operand(0), true, out, depth + 1);
            conjuncts(func, operand(1), true, out, depth + 1);
        }
        ElementwiseOp::Binary { op: BinaryOp::Or } if !holds => {
            conjuncts(func, operand(0), false, out, depth + 1);
            conjuncts(func, operand(1), false, out, depth + 1);
        }
        ElementwiseOp::Unary { op: UnaryOp::Not } => {
            conjuncts(func, operand(0), !holds, out, depth + 1);
        }
        ElementwiseOp::Compare { op } => {
            if func.ty(operation.operands[0]).dtype().is_some_and(DType::is_int) {
                comparison(func, *op, holds, operand(0), operand(1), out);
            }
        }
        ElementwiseOp::Unary { .. }
        | ElementwiseOp::Binary { .. }
        | ElementwiseOp::FloatInt { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma
        | ElementwiseOp::Cast { .. }
        | ElementwiseOp::Bitcast { .. } => {}
    }
}

fn comparison(func: &Func, op: CmpOp, holds: bool, a: Lanes, b: Lanes, out: &mut Vec<Hypothesis>) {
    let (a, b) = (strip(func, a), strip(func, b));
    let mut at_most = |x: &Lanes, y: &Lanes, plus: i8| {
        out.push(Hypothesis { subject: x.clone(), limit: y.clone(), above: true, plus, everywhere: false });
        out.push(Hypothesis { subject: y.clone(), limit: x.clone(), above: false, plus: -plus, everywhere: false });
    };
    match (op, holds) {
        (CmpOp::Lt, true) | (CmpOp::Ge, false) => at_most(&a, &b, -1),
        (CmpOp::Le, true) | (CmpOp::Gt, false) => at_most(&a, &b, 0),
        (CmpOp::Gt, true) | (CmpOp::Le, false) => at_most(&b, &a, -1),
        (CmpOp::Ge, true) | (CmpOp::Lt, false) => at_most(&b, &a, 0),
        (CmpOp::Eq, true) | (CmpOp::Ne, false) => {
            at_most(&a, &b, 0);
            at_most(&b, &a, 0);
        }
        (CmpOp::Eq, false) | (CmpOp::Ne, true) => {}
    }
}

/// The number that a value is in all lanes, if it is a constant.
pub(crate) fn constant(func: &Func, value: ValueId) -> Option<i128> {
    let stripped = strip(func, Lanes::of(func, value));
    match func.def_op(stripped.value)?.op {
        Op::Create(CreateOp::Const { value: Literal::Int(i), .. }) => Some(i),
        _ => None,
    }
}

/// Follows a value through operations that only move its elements. What has elements of several operands is followed to
/// none of them.
pub(crate) fn strip(func: &Func, mut lanes: Lanes) -> Lanes {
    while let Some(operation) = func.def_op(lanes.value) {
        lanes = if let Some(splat) = view::Splat::of(operation) {
            Lanes { value: splat.scalar, along: Vec::new() }
        } else if let (Op::Shape(op), Some(source)) = (&operation.op, operation.moved_operand())
            && let Some(moved) = through(func, op, &lanes, source)
        {
            moved
        } else {
            break;
        };
    }
    lanes
}

/// The operand of an operation that moves its elements, in the lanes in which they are before.
fn through(func: &Func, op: &ShapeOp, lanes: &Lanes, source: ValueId) -> Option<Lanes> {
    let mut along = lanes.along.clone();
    if let ShapeOp::ExpandDims { axis } = op {
        along.remove(usize::from(*axis));
    } else if let ShapeOp::Broadcast { shape } = op {
        let from = &func.ty(source).shape;
        for ((entry, from), to) in along.iter_mut().zip(from).zip(shape) {
            if from != to {
                *entry = Along::Any;
            }
        }
    } else if let ShapeOp::Permute { perm } = op {
        for (entry, &p) in lanes.along.iter().zip(perm) {
            along[usize::from(p)] = *entry;
        }
    } else if !matches!(op, ShapeOp::Hint { .. } | ShapeOp::ConvertLayout) {
        return lanes.elsewhere(func, source);
    }
    Some(Lanes { value: source, along })
}
