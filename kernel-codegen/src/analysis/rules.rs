//! The rules of axis analysis, one function per kind of operation.

use kernel_core::ir::{BinaryOp, CmpOp, DType, Dim, Func, HintKind, Literal, ValueId};

use super::info::{AxisInfo, DimInfo, MAX_DIVISOR, gcd, pow2_divisor};

/// The constant of a literal. Truth values are 0 and 1; floats are not followed.
pub(super) fn constant(value: &Literal) -> AxisInfo {
    match value {
        Literal::Bool(value) => AxisInfo::number(i64::from(*value)),
        Literal::Int(value) => i64::try_from(*value).map_or_else(|_| AxisInfo::unknown(0), AxisInfo::number),
        Literal::Float(_) => AxisInfo::unknown(0),
    }
}

/// The integers `lo..hi`.
pub(super) fn arange(lo: &Dim, hi: &Dim) -> AxisInfo {
    let (Some(lo), Some(hi)) = (lo.as_const(), hi.as_const()) else { return AxisInfo::unknown(1) };
    let dim = DimInfo {
        contiguity: hi.saturating_sub(lo).max(1).unsigned_abs(),
        divisibility: pow2_divisor(lo.unsigned_abs()),
        constancy: 1,
    };
    AxisInfo { dims: vec![dim], constant: None, range: Some((lo, hi.saturating_sub(1).max(lo))) }
}

fn size(dim: &Dim) -> u64 {
    dim.as_const().map_or(1, |size| size.max(1).unsigned_abs())
}

/// A scalar repeated over a tile.
pub(super) fn splat(scalar: &AxisInfo, shape: &[Dim]) -> AxisInfo {
    let divisibility = scalar.divisor_of_all();
    let dims = shape.iter().map(|dim| DimInfo { contiguity: 1, divisibility, constancy: size(dim) });
    AxisInfo { dims: dims.collect(), ..scalar.clone() }
}

/// Any function of the operands' elements: equal operands give equal results.
pub(super) fn pure(operands: &[AxisInfo]) -> AxisInfo {
    let rank = operands.first().map_or(1, |info| info.dims.len());
    let constancy = |d: usize| operands.iter().map(|info| info.dims[d].constancy).fold(0, gcd).max(1);
    let dims = (0..rank).map(|d| DimInfo { constancy: constancy(d), ..DimInfo::UNKNOWN });
    AxisInfo { dims: dims.collect(), constant: None, range: None }
}

/// Any function of the operands' elements, each of which what `divisor` gives of the operands' divisors divides.
fn multiples(a: &AxisInfo, b: &AxisInfo, divisor: impl Fn(u64, u64) -> u64) -> AxisInfo {
    let mut info = pure(&[a.clone(), b.clone()]);
    for (dim, (a, b)) in info.dims.iter_mut().zip(a.dims.iter().zip(&b.dims)) {
        dim.divisibility = divisor(a.divisibility_at(1), b.divisibility_at(1));
    }
    info
}

fn zip(a: &AxisInfo, b: &AxisInfo, f: impl Fn(&DimInfo, &DimInfo) -> DimInfo) -> Vec<DimInfo> {
    a.dims.iter().zip(&b.dims).map(|(a, b)| f(a, b)).collect()
}

/// The range of a result, if it fits the dtype, so that nothing wraps.
fn fitting(dtype: DType, lo: Option<i64>, hi: Option<i64>) -> Option<(i64, i64)> {
    let (lo, hi) = (lo?, hi?);
    let fits = i128::from(lo) >= dtype.int_min() && i128::from(hi) <= dtype.int_max();
    fits.then_some((lo, hi))
}

/// What a known constant gives for itself, in dimensions like those of `like`.
fn folded(value: i64, like: &AxisInfo) -> AxisInfo {
    let divisibility = pow2_divisor(value.unsigned_abs());
    let dims = like.dims.iter().map(|dim| DimInfo { contiguity: 1, divisibility, constancy: dim.constancy });
    AxisInfo { dims: dims.collect(), constant: Some(value), range: Some((value, value)) }
}

/// An integer operation on two operands.
pub(super) fn binary(op: BinaryOp, dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    if let (Some(x), Some(y)) = (a.constant, b.constant)
        && let Some(value) = fold(op, dtype, x, y)
    {
        return folded(value, a);
    }
    match op {
        BinaryOp::Add => add(dtype, a, b),
        BinaryOp::Sub => sub(dtype, a, b),
        BinaryOp::Mul => mul(dtype, a, b),
        BinaryOp::Shl => match shift_count(dtype, b) {
            Some(count) => mul(dtype, a, &folded(1i64 << count, b)),
            None => pure(&[a.clone(), b.clone()]),
        },
        BinaryOp::Div => match b.constant {
            Some(divisor) if divisor > 0 && not_negative(dtype, a) => quotient(a, b, divisor),
            None if not_negative(dtype, a) => quotient_by_any(dtype, a, b),
            Some(divisor) if divisor > 0 => exact_quotient(a, b, divisor),
            _ => pure(&[a.clone(), b.clone()]),
        },
        // An arithmetic shift rounds down, so negative numbers are no exception.
        BinaryOp::Shr => match shift_count(dtype, b) {
            Some(count) if count < 31 => quotient(a, b, 1 << count),
            _ => pure(&[a.clone(), b.clone()]),
        },
        BinaryOp::Rem => match b.constant {
            Some(divisor) if divisor > 0 && not_negative(dtype, a) => remainder(a, b, divisor),
            None if not_negative(dtype, a) => remainder_by_any(dtype, a, b),
            _ => pure(&[a.clone(), b.clone()]),
        },
        BinaryOp::And if dtype == DType::Bool => both_or_decided(a, b),
        BinaryOp::And => match (a.constant, b.constant) {
            (_, Some(mask)) => masked(dtype, a, b, mask),
            (Some(mask), None) => masked(dtype, b, a, mask),
            (None, None) => bits_of_both(dtype, a, b),
        },
        BinaryOp::Or | BinaryOp::Xor if dtype != DType::Bool => multiples(a, b, gcd),
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan => extreme(op, a, b),
        BinaryOp::DivRn
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => pure(&[a.clone(), b.clone()]),
    }
}

/// By how many bits a constant shifts: counts are taken modulo the width.
fn shift_count(dtype: DType, count: &AxisInfo) -> Option<i64> {
    count.constant.map(|count| count & i64::from(dtype.bits() - 1))
}

fn fold(op: BinaryOp, dtype: DType, x: i64, y: i64) -> Option<i64> {
    let value = match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::And => Some(x & y),
        BinaryOp::Or => Some(x | y),
        BinaryOp::Xor => Some(x ^ y),
        BinaryOp::Min | BinaryOp::MinNan => Some(x.min(y)),
        BinaryOp::Max | BinaryOp::MaxNan => Some(x.max(y)),
        BinaryOp::Div if y != 0 => x.checked_div(y),
        BinaryOp::Rem if y != 0 => x.checked_rem(y),
        BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    };
    value.filter(|&v| i128::from(v) >= dtype.int_min() && i128::from(v) <= dtype.int_max())
}

fn not_negative(dtype: DType, a: &AxisInfo) -> bool {
    !dtype.is_signed_int() || a.range.is_some_and(|(lo, _)| lo >= 0)
}

fn add(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let dims = zip(a, b, |a, b| {
        let contiguity = gcd(a.contiguity, b.constancy).max(gcd(a.constancy, b.contiguity));
        DimInfo {
            contiguity,
            divisibility: gcd(a.divisibility_at(contiguity), b.divisibility_at(contiguity)),
            constancy: gcd(a.constancy, b.constancy),
        }
    });
    let range = a.range.zip(b.range);
    let range = range.and_then(|(a, b)| fitting(dtype, a.0.checked_add(b.0), a.1.checked_add(b.1)));
    AxisInfo { dims, constant: None, range }
}

fn sub(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let dims = zip(a, b, |a, b| {
        let contiguity = gcd(a.contiguity, b.constancy);
        DimInfo {
            contiguity,
            divisibility: gcd(a.divisibility_at(contiguity), b.divisibility_at(contiguity)),
            constancy: gcd(a.constancy, b.constancy),
        }
    });
    let range = a.range.zip(b.range);
    let range = range.and_then(|(a, b)| fitting(dtype, a.0.checked_sub(b.1), a.1.checked_sub(b.0)));
    AxisInfo { dims, constant: None, range }
}

fn mul(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    if a.constant == Some(1) {
        return b.clone();
    }
    if b.constant == Some(1) {
        return a.clone();
    }
    let dims = zip(a, b, |a, b| DimInfo {
        contiguity: 1,
        divisibility: (a.divisibility_at(1) * b.divisibility_at(1)).min(MAX_DIVISOR),
        constancy: gcd(a.constancy, b.constancy),
    });
    let corners = |f: fn(i64, i64) -> i64| -> Option<i64> {
        let ((al, ah), (bl, bh)) = a.range.zip(b.range)?;
        let products = [al.checked_mul(bl)?, al.checked_mul(bh)?, ah.checked_mul(bl)?, ah.checked_mul(bh)?];
        products.into_iter().reduce(f)
    };
    AxisInfo { dims, constant: None, range: fitting(dtype, corners(i64::min), corners(i64::max)) }
}

/// Groups that lie between multiples of the divisor: aligned runs, no longer than the divisor.
fn group(dim: &DimInfo, divisor: i64) -> u64 {
    dim.aligned_run().min(pow2_divisor(divisor.unsigned_abs()))
}

/// `a / divisor` rounded down, of values that are not negative (or by a shift).
fn quotient(a: &AxisInfo, b: &AxisInfo, divisor: i64) -> AxisInfo {
    if divisor == 1 {
        return a.clone();
    }
    let dims = zip(a, b, |a, _| DimInfo {
        contiguity: 1,
        divisibility: match a.contiguity {
            1 if (divisor as u64).is_power_of_two() => (a.divisibility / divisor.unsigned_abs()).max(1),
            _ => 1,
        },
        constancy: a.constancy.max(group(a, divisor)),
    });
    let range = a.range.map(|(lo, hi)| (lo.div_euclid(divisor), hi.div_euclid(divisor)));
    AxisInfo { dims, constant: None, range }
}

/// `a / divisor` rounded towards zero, which is exact where all of `a` are multiples.
fn exact_quotient(a: &AxisInfo, b: &AxisInfo, divisor: i64) -> AxisInfo {
    let divides = |dim: &DimInfo| dim.divisibility_at(1).is_multiple_of(divisor.unsigned_abs());
    if !a.dims.iter().all(divides) {
        return pure(&[a.clone(), b.clone()]);
    }
    let dims = zip(a, b, |a, _| DimInfo {
        contiguity: 1,
        divisibility: a.divisibility_at(1) / divisor.unsigned_abs(),
        constancy: a.constancy,
    });
    let range = a.range.map(|(lo, hi)| (lo / divisor, hi / divisor));
    AxisInfo { dims, constant: None, range }
}

/// `a % divisor`, not negative.
fn remainder(a: &AxisInfo, b: &AxisInfo, divisor: i64) -> AxisInfo {
    if divisor == 1 {
        return folded(0, a);
    }
    let dims = zip(a, b, |a, _| {
        let contiguity = group(a, divisor);
        let divisibility = a.divisibility_at(contiguity).min(pow2_divisor(divisor.unsigned_abs()));
        DimInfo { contiguity, divisibility, constancy: a.constancy }
    });
    AxisInfo { dims, constant: None, range: Some((0, divisor - 1)) }
}

/// Groups of `a` that lie between multiples of `b`, whatever that is: aligned runs, under one divisor that a multiple of
/// their length divides. Dividing by zero is no exception: `x / 0` is 0 and `x % 0` is `x`, throughout a group.
fn group_by_any(a: &DimInfo, b: &DimInfo) -> u64 {
    a.aligned_run().min(b.divisibility_at(1)).min(pow2_divisor(b.constancy))
}

/// `a / b` of values that are not negative, by a divisor that is not known.
fn quotient_by_any(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let dims = zip(a, b, |a, b| {
        let constancy = gcd(a.constancy, b.constancy).max(group_by_any(a, b));
        DimInfo { constancy, ..DimInfo::UNKNOWN }
    });
    let range = a.range.filter(|_| not_negative(dtype, b)).map(|(_, hi)| (0, hi));
    AxisInfo { dims, constant: None, range }
}

/// `a % b` of values that are not negative, by a divisor that is not known: not negative, and no larger than `a`.
fn remainder_by_any(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let dims = zip(a, b, |a, b| {
        let contiguity = group_by_any(a, b);
        let divisibility = a.divisibility_at(contiguity).min(b.divisibility_at(1));
        DimInfo { contiguity, divisibility, constancy: gcd(a.constancy, b.constancy) }
    });
    let below = b.range.filter(|&(lo, _)| lo > 0 && not_negative(dtype, b)).map_or(i64::MAX, |(_, hi)| hi - 1);
    AxisInfo { dims, constant: None, range: a.range.map(|(_, hi)| (0, hi.min(below))) }
}

/// `a & b` of truth values: constant where one operand alone decides, else as constant as both.
fn both_or_decided(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    for (decides, other) in [(a, b), (b, a)] {
        match decides.constant {
            Some(0) => return decides.clone(),
            Some(_) => return other.clone(),
            None => {}
        }
    }
    pure(&[a.clone(), b.clone()])
}

/// `a & mask`: all bits below one are a remainder, all others of the dtype round down.
fn masked(dtype: DType, a: &AxisInfo, b: &AxisInfo, mask: i64) -> AxisInfo {
    if mask < i64::MAX && (mask as u64).wrapping_add(1).is_power_of_two() {
        return remainder(a, b, mask + 1);
    }
    let mut info = bits_of_both(dtype, a, b);
    let (bits, step) = (u64::MAX >> (64 - dtype.bits()), 1u64 << mask.trailing_zeros());
    if mask as u64 & bits == bits & step.wrapping_neg() {
        for (dim, a) in info.dims.iter_mut().zip(&a.dims) {
            dim.constancy = dim.constancy.max(a.aligned_run().min(step));
        }
    }
    info
}

/// `a & b` of integers: whatever divides one divides the result, and no sign stays that one of them lacks.
fn bits_of_both(dtype: DType, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let mut info = multiples(a, b, u64::max);
    let most = [a, b].into_iter().filter(|info| not_negative(dtype, info)).filter_map(|info| Some(info.range?.1)).min();
    info.range = most.map(|most| (0, most));
    info
}

fn extreme(op: BinaryOp, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let mut info = multiples(a, b, gcd);
    let smaller = matches!(op, BinaryOp::Min | BinaryOp::MinNan);
    info.range = a.range.zip(b.range).map(|(a, b)| {
        let pick = |x: i64, y: i64| if smaller { x.min(y) } else { x.max(y) };
        (pick(a.0, b.0), pick(a.1, b.1))
    });
    info
}

/// A comparison: constant over groups in which a run on one side cannot cross a bound on the other.
pub(super) fn compare(op: CmpOp, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let dims = zip(a, b, |a, b| {
        let equal = gcd(a.constancy, b.constancy);
        // `run < bound` and `run >= bound` change only where the bound is reached, which is at a group's start.
        let (run, bound) = match op {
            CmpOp::Lt | CmpOp::Ge => (a, b),
            CmpOp::Gt | CmpOp::Le => (b, a),
            CmpOp::Eq | CmpOp::Ne => return DimInfo { constancy: equal, ..DimInfo::UNKNOWN },
        };
        let group = run.aligned_run().min(bound.divisibility_at(1)).min(pow2_divisor(bound.constancy));
        DimInfo { constancy: equal.max(group), ..DimInfo::UNKNOWN }
    });
    AxisInfo { dims, constant: None, range: Some((0, 1)) }
}

/// `0 <= offset < length`, and the mask: 0 and the length are reached at a group's start only.
pub(super) fn check_bounds(offset: &AxisInfo, length: &AxisInfo, mask: Option<&AxisInfo>) -> AxisInfo {
    let divisor = length.divisor_of_all();
    let dims = offset.dims.iter().enumerate().map(|(d, dim)| {
        let inside = dim.constancy.max(dim.aligned_run().min(divisor));
        let mask = mask.filter(|mask| mask.constant.is_none());
        let constancy = mask.map_or(inside, |mask| gcd(inside, mask.dims[d].constancy));
        DimInfo { constancy, ..DimInfo::UNKNOWN }
    });
    AxisInfo { dims: dims.collect(), constant: None, range: Some((0, 1)) }
}

/// One or the other.
pub(super) fn select(condition: &AxisInfo, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    match condition.constant {
        Some(0) => return b.clone(),
        Some(_) => return a.clone(),
        None => {}
    }
    let mut met = a.meet(b);
    for (dim, condition) in met.dims.iter_mut().zip(&condition.dims) {
        let contiguity = gcd(dim.contiguity, condition.constancy);
        let divisibility = dim.divisibility_at(contiguity);
        *dim = DimInfo { contiguity, divisibility, constancy: gcd(dim.constancy, condition.constancy) };
    }
    met
}

/// A conversion between integers keeps what it does not cut off.
pub(super) fn cast(from: DType, to: DType, a: &AxisInfo) -> AxisInfo {
    if from.is_float() || to.is_float() || to == DType::Bool {
        return pure(std::slice::from_ref(a));
    }
    let fits = a.range.is_some_and(|(lo, hi)| fitting(to, Some(lo), Some(hi)).is_some());
    let widens = to.bits() > from.bits();
    let dims = a.dims.iter().map(|dim| {
        // A run that meets the narrow type's wrap is no run in the wide one; aligned groups do not meet it. In a signed
        // type it is in the middle of what the bits count.
        let contiguity = if widens && !fits { dim.aligned_run() } else { dim.contiguity };
        let divisibility = dim.divisibility_at(contiguity).min(most_divisor(to));
        DimInfo { contiguity, divisibility, constancy: dim.constancy }
    });
    AxisInfo { dims: dims.collect(), constant: a.constant.filter(|_| fits), range: a.range.filter(|_| fits) }
}

/// The largest divisor that is said of numbers of a dtype: an aligned run does not meet the wrap.
pub(super) fn most_divisor(dtype: DType) -> u64 {
    (1 << (dtype.bits() - u32::from(dtype.is_signed_int())).min(30)).min(MAX_DIVISOR)
}

/// A pointer moved by an offset of dtype `width`, which is extended to 64 bits.
pub(super) fn add_ptr(pointer: &AxisInfo, offset: &AxisInfo, width: Option<DType>) -> AxisInfo {
    let offset = cast(width.unwrap_or(DType::I64), DType::I64, offset);
    let mut sum = add(DType::I64, pointer, &offset);
    if let (Some(p), Some(o)) = (pointer.constant, offset.constant) {
        sum.constant = p.checked_add(o);
    }
    sum
}

/// A new dimension of size 1.
pub(super) fn expand_dims(a: &AxisInfo, axis: usize, scalar: bool) -> AxisInfo {
    let new = DimInfo { divisibility: a.divisor_of_all(), ..DimInfo::UNKNOWN };
    let mut dims = if scalar { Vec::new() } else { a.dims.clone() };
    dims.insert(axis.min(dims.len()), new);
    AxisInfo { dims, ..a.clone() }
}

/// Dimensions of size 1 repeated.
pub(super) fn broadcast(a: &AxisInfo, func: &Func, source: ValueId, shape: &[Dim]) -> AxisInfo {
    let from = &func.ty(source).shape;
    let dims = a.dims.iter().zip(from.iter().zip(shape)).map(|(dim, (from, to))| {
        if from == to { *dim } else { DimInfo { contiguity: 1, constancy: size(to), ..*dim } }
    });
    AxisInfo { dims: dims.collect(), ..a.clone() }
}

/// Dimension `i` is the operand's `perm[i]`.
pub(super) fn permute(a: &AxisInfo, perm: &[u8]) -> AxisInfo {
    AxisInfo { dims: perm.iter().map(|&axis| a.dims[usize::from(axis)]).collect(), ..a.clone() }
}

/// Only what holds of all elements survives a reshape.
pub(super) fn reshape(a: &AxisInfo, rank: usize) -> AxisInfo {
    let dim = DimInfo { divisibility: a.divisor_of_all(), ..DimInfo::UNKNOWN };
    AxisInfo { dims: vec![dim; rank.max(1)], ..a.clone() }
}

/// A value of which something is promised along an axis.
pub(super) fn hint(
    dtype: Option<DType>,
    a: &AxisInfo,
    kind: HintKind,
    n: &Dim,
    multiple: &Dim,
    axis: usize,
) -> AxisInfo {
    let mut info = a.clone();
    let most = dtype.map_or(MAX_DIVISOR, most_divisor);
    let (n, multiple) = (size(n), pow2_divisor(size(multiple)).min(most));
    let Some(dim) = info.dims.get_mut(axis) else { return info };
    match kind {
        HintKind::Contiguous => {
            // Known groups that consist of promised ones stay, others give way.
            let contiguity = if dim.contiguity.is_multiple_of(n) { dim.contiguity } else { n };
            let divisibility = dim.divisibility_at(contiguity).max(multiple);
            *dim = DimInfo { contiguity, divisibility, constancy: dim.constancy };
        }
        HintKind::Constant => dim.constancy = if dim.constancy.is_multiple_of(n) { dim.constancy } else { n },
        HintKind::Holds => info.constant = Some(1),
    }
    info
}

/// The counter of a loop.
pub(super) fn induction(dtype: DType, lo: &AxisInfo, hi: &AxisInfo, step: &AxisInfo) -> AxisInfo {
    let divisibility = gcd(lo.divisor_of_all(), step.divisor_of_all());
    let dims = vec![DimInfo { divisibility, ..DimInfo::UNKNOWN }];
    // The loop runs for lo <= i < hi only, and where it gets to is divisible too: what is below the largest number of
    // the dtype by less than a step is not reached.
    let largest = i64::try_from(dtype.int_max()).ok();
    let end = match hi.range {
        Some((_, hi)) => Some(largest.map_or(hi, |largest| hi.min(largest))),
        // The largest numbers of u64 are beyond what a range can say.
        None => largest,
    };
    let range = lo.range.zip(end).map(|((lo, _), end)| {
        let last = end.saturating_sub(1);
        let last = last - last.rem_euclid(i64::try_from(divisibility).unwrap_or(1));
        (lo, last.max(lo))
    });
    AxisInfo { dims, constant: None, range }
}
