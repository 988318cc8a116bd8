//! What a condition that holds says about numbers.
//!
//! ```text
//! n % 16 == 0, n & 15 == 0     n is divisible by 16
//! n >= 0, n < 4096             bounds
//! n == 1                       the number itself
//! ```
//! and both parts of `a & b` and `a && b`.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, ElementwiseOp, Func, Op, ValueId};

use super::info::{AxisInfo, DimInfo, MAX_DIVISOR, pow2_divisor};
use super::rules::most_divisor;

/// Conditions nested deeper are not followed.
const MAX_DEPTH: usize = 16;

/// Something that holds of every element of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    /// This power of two divides it.
    Divisible(u64),
    /// It is at least that.
    AtLeast(i64),
    /// It is at most that.
    AtMost(i64),
    /// It is that.
    Equal(i64),
}

/// The facts that follow from a condition; `constant` gives the number that a value is, if it is known.
pub(super) fn facts(
    func: &Func,
    condition: ValueId,
    constant: &dyn Fn(ValueId) -> Option<i64>,
) -> Vec<(ValueId, Fact)> {
    let mut found = Vec::new();
    conjuncts(func, condition, constant, 0, &mut found);
    found
}

fn conjuncts(
    func: &Func,
    condition: ValueId,
    constant: &dyn Fn(ValueId) -> Option<i64>,
    depth: usize,
    found: &mut Vec<(ValueId, Fact)>,
) {
    let Some(operation) = func.def_op(condition).filter(|_| depth < MAX_DEPTH) else { return };
    if operation.op == Op::Control(ControlOp::If) {
        // `a && b` is `if a { b } else { false }`.
        let index = operation.results.iter().position(|&result| result == condition).unwrap_or(0);
        let yielded = |region: usize| func.yielded(operation.regions[region]).get(index).copied();
        if let (Some(b), Some(0)) = (yielded(0), yielded(1).and_then(constant)) {
            conjuncts(func, operation.operands[0], constant, depth + 1, found);
            conjuncts(func, b, constant, depth + 1, found);
        }
        return;
    }
    let &[a, b] = operation.operands.as_slice() else { return };
    // Nothing is learnt from conditions of another form.
    let Op::Elementwise(op) = &operation.op else { return };
    if let ElementwiseOp::Binary { op: BinaryOp::And } = op {
        conjuncts(func, a, constant, depth + 1, found);
        conjuncts(func, b, constant, depth + 1, found);
    } else if let ElementwiseOp::Compare { op } = op
        && func.ty(a).dtype().is_some_and(DType::is_int)
    {
        match (constant(a), constant(b)) {
            (None, Some(number)) => compared(func, a, *op, number, constant, found),
            (Some(number), None) => compared(func, b, mirrored(*op), number, constant, found),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

/// The comparison with its sides exchanged.
fn mirrored(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Ge => CmpOp::Le,
        CmpOp::Eq | CmpOp::Ne => op,
    }
}

fn compared(
    func: &Func,
    value: ValueId,
    op: CmpOp,
    number: i64,
    constant: &dyn Fn(ValueId) -> Option<i64>,
    found: &mut Vec<(ValueId, Fact)>,
) {
    let bounded = |bound: Option<i64>, fact: fn(i64) -> Fact| bound.map(fact);
    let fact = match op {
        CmpOp::Eq => Some(Fact::Equal(number)),
        CmpOp::Ge => Some(Fact::AtLeast(number)),
        CmpOp::Le => Some(Fact::AtMost(number)),
        CmpOp::Gt => bounded(number.checked_add(1), Fact::AtLeast),
        CmpOp::Lt => bounded(number.checked_sub(1), Fact::AtMost),
        CmpOp::Ne => None,
    };
    found.extend(fact.map(|fact| (value, fact)));
    if fact != Some(Fact::Equal(0)) {
        return;
    }
    // A remainder that is zero, of a division or of low bits.
    let Some(operation) = func.def_op(value) else { return };
    let &[dividend, divisor] = operation.operands.as_slice() else { return };
    let Op::Elementwise(ElementwiseOp::Binary { op }) = operation.op else { return };
    let divisor = match (op, constant(divisor)) {
        (BinaryOp::Rem, Some(divisor)) if divisor != 0 => pow2_divisor(divisor.unsigned_abs()),
        // The lowest bits that are not looked at stay unknown.
        (BinaryOp::And, Some(mask)) => 1 << (!mask).trailing_zeros().min(30),
        _ => return,
    };
    found.push((dividend, Fact::Divisible(divisor)));
}

impl Fact {
    /// What is known of a value of which this holds too.
    pub(super) fn applied(self, known: &AxisInfo, dtype: Option<DType>) -> AxisInfo {
        let mut info = known.clone();
        // The largest numbers of u64 are beyond what a range can say.
        let any = match dtype {
            Some(DType::U64) | None => None,
            Some(dtype) => Some((dtype.int_min() as i64, dtype.int_max() as i64)),
        };
        let range = known.range.or(any);
        // One without numbers belongs to code that nothing reaches. One with all says nothing: a run may wrap in it.
        let tells = |range: &(i64, i64)| range.0 <= range.1 && Some(*range) != any;
        match self {
            Fact::Divisible(divisor) => {
                let divisor = divisor.min(dtype.map_or(MAX_DIVISOR, most_divisor));
                for dim in &mut info.dims {
                    dim.divisibility = dim.divisibility.max(divisor);
                }
            }
            Fact::AtLeast(bound) => {
                info.range = range.map(|(lo, hi)| (lo.max(bound), hi)).filter(|range| tells(range));
            }
            Fact::AtMost(bound) => {
                let lowest = range.map(|(lo, _)| lo).or((dtype == Some(DType::U64)).then_some(0));
                let highest = range.map_or(bound, |(_, hi)| hi.min(bound));
                info.range = lowest.map(|lo| (lo, highest)).filter(|range| tells(range));
            }
            Fact::Equal(number) => {
                let divisibility = pow2_divisor(number.unsigned_abs());
                info.constant = Some(number);
                info.range = Some((number, number));
                for dim in &mut info.dims {
                    *dim = DimInfo { contiguity: 1, divisibility, constancy: dim.constancy };
                }
            }
        }
        info
    }
}
