//! Interval arithmetic on [`Node`]s for one launch, in 64 bits or, where a number does not fit, in 128.

use super::divisors::{divisor, gcd};
use super::{LaunchValues, Node, NodeId};

/// A set of consecutive integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval<T> {
    /// Smallest value.
    pub(super) lo: T,
    /// Largest value.
    pub(super) hi: T,
}

impl<T: Copy + PartialEq> Interval<T> {
    /// The value, if there is but one.
    fn single(self) -> Option<T> {
        (self.lo == self.hi).then_some(self.lo)
    }
}

/// What an evaluation knows of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known<T> {
    /// Nothing: it may have wrapped, or an operand may have.
    Nothing,
    /// No value occurs: the code is not reached.
    Never,
    /// Values in an interval.
    In(Interval<T>),
}

/// A number needs more bits than the evaluation has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooNarrow;

/// The integers of an evaluation. Operations that give `None` do not fit.
pub(super) trait Number: Copy + Ord {
    fn of(value: i128) -> Result<Self, TooNarrow>;
    fn wide(self) -> i128;
    /// What it means that a result does not fit: a wider evaluation must say, or it is not known.
    fn settle(result: Option<Self>) -> Result<Option<Self>, TooNarrow>;
    fn add(self, other: Self) -> Option<Self>;
    fn sub(self, other: Self) -> Option<Self>;
    fn mul(self, other: Self) -> Option<Self>;
    fn div(self, other: Self) -> Option<Self>;
    /// The remainder, of a divisor other than zero.
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn shr(self, bits: u8) -> Self;
}

macro_rules! numbers {
    ($($int:ty, $settle:expr;)*) => {$(
        impl Number for $int {
            #[inline]
            fn of(value: i128) -> Result<Self, TooNarrow> {
                Self::try_from(value).map_err(|_| TooNarrow)
            }
            #[inline]
            fn wide(self) -> i128 {
                self.into()
            }
            #[inline]
            fn settle(result: Option<Self>) -> Result<Option<Self>, TooNarrow> {
                $settle(result)
            }
            #[inline]
            fn add(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }
            #[inline]
            fn sub(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }
            #[inline]
            fn mul(self, other: Self) -> Option<Self> {
                self.checked_mul(other)
            }
            #[inline]
            fn div(self, other: Self) -> Option<Self> {
                self.checked_div(other)
            }
            #[inline]
            fn rem(self, other: Self) -> Self {
                self.wrapping_rem(other)
            }
            #[inline]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline]
            fn shr(self, bits: u8) -> Self {
                self >> u32::from(bits).min(Self::BITS - 1)
            }
        }
    )*};
}

numbers! {
    i64, |result: Option<i64>| result.map(Some).ok_or(TooNarrow);
    i128, Ok;
}

pub(super) type Evaluated<T> = Result<Known<T>, TooNarrow>;

pub(super) fn interval<T: Ord>(lo: T, hi: T) -> Known<T> {
    if lo > hi { Known::Never } else { Known::In(Interval { lo, hi }) }
}

/// The interval between two results; nothing if one does not fit.
fn between<T: Number>(lo: Option<T>, hi: Option<T>) -> Evaluated<T> {
    match (T::settle(lo)?, T::settle(hi)?) {
        (Some(lo), Some(hi)) => Ok(interval(lo, hi)),
        (None, _) | (_, None) => Ok(Known::Nothing),
    }
}

/// The hull of what `f` gives on the corners of two intervals; nothing if a corner does not fit.
fn corners<T: Number>(a: Interval<T>, b: Interval<T>, f: impl Fn(T, T) -> Option<T>) -> Evaluated<T> {
    let mut hull: Option<Interval<T>> = None;
    for (x, y) in [(a.lo, b.lo), (a.lo, b.hi), (a.hi, b.lo), (a.hi, b.hi)] {
        let Some(v) = T::settle(f(x, y))? else { return Ok(Known::Nothing) };
        hull = Some(include(hull, v));
    }
    Ok(hull.map_or(Known::Never, Known::In))
}

/// The smallest interval with another value in it.
fn include<T: Ord + Copy>(hull: Option<Interval<T>>, v: T) -> Interval<T> {
    hull.map_or(Interval { lo: v, hi: v }, |h| Interval { lo: h.lo.min(v), hi: h.hi.max(v) })
}

/// Applies `f` to two known intervals.
fn both<T: Number>(a: Known<T>, b: Known<T>, f: impl FnOnce(Interval<T>, Interval<T>) -> Evaluated<T>) -> Evaluated<T> {
    match (a, b) {
        (Known::Never, _) | (_, Known::Never) => Ok(Known::Never),
        (Known::In(a), Known::In(b)) => f(a, b),
        (Known::Nothing, Known::Nothing | Known::In(_)) | (Known::In(_), Known::Nothing) => Ok(Known::Nothing),
    }
}

/// The values of a node, one of `nodes`, of which those before it have `values`.
pub(super) fn evaluate<T: Number>(
    node: &Node,
    nodes: &[Node],
    values: &[Known<T>],
    env: &impl LaunchValues,
) -> Evaluated<T> {
    let at = |id: &NodeId| values[id.index()];
    let fixed = |lo: i128, hi: i128| Ok(interval(T::of(lo)?, T::of(hi)?));
    Ok(match node {
        Node::Fixed(lo, hi) => fixed(*lo, *hi)?,
        Node::Argument(p) => match env.scalar(*p) {
            Some(v) => fixed(v, v)?,
            None => Known::Nothing,
        },
        Node::ProgramId(axis) => fixed(0, i128::from(env.grid()[usize::from(*axis)]) - 1)?,
        Node::NumPrograms(axis) => {
            let n = i128::from(env.grid()[usize::from(*axis)]);
            fixed(n, n)?
        }
        Node::Add(a, b) => both(at(a), at(b), |a, b| between(a.lo.add(b.lo), a.hi.add(b.hi)))?,
        Node::Sub(a, b) => both(at(a), at(b), |a, b| between(a.lo.sub(b.hi), a.hi.sub(b.lo)))?,
        Node::Mul(a, b) => both(at(a), at(b), |a, b| corners(a, b, T::mul))?,
        Node::Div(a, b) => both(at(a), at(b), divide)?,
        Node::Rem(a, b) => both(at(a), at(b), remainder)?,
        Node::Min(a, b) => both(at(a), at(b), |a, b| Ok(interval(a.lo.min(b.lo), a.hi.min(b.hi))))?,
        Node::Max(a, b) => both(at(a), at(b), |a, b| Ok(interval(a.lo.max(b.lo), a.hi.max(b.hi))))?,
        Node::And(a, b) => both(at(a), at(b), bitwise_and)?,
        Node::Either(a, b) => match (at(a), at(b)) {
            (Known::Nothing, _) | (_, Known::Nothing) => Known::Nothing,
            (Known::Never, other) | (other, Known::Never) => other,
            (Known::In(a), Known::In(b)) => interval(a.lo.min(b.lo), a.hi.max(b.hi)),
        },
        Node::Counter(first, hi, step) => match at(step) {
            Known::In(s) if s.lo >= T::of(1)? => {
                both(at(first), at(hi), |lo, hi| counter(lo, hi, s, || divisor(nodes, values, *first)))?
            }
            Known::In(_) | Known::Never | Known::Nothing => Known::Nothing,
        },
        Node::Induction { start, bounds, increment, after } => {
            induction(at(start), bounds.map(|n| at(&n)), at(increment), *after)?
        }
        Node::ClipAbove(a, limit, plus) => match (at(a), at(limit)) {
            // A limit that does not fit limits nothing.
            (Known::In(a), Known::In(l)) => match T::settle(l.hi.add(T::of(i128::from(*plus))?))? {
                Some(limit) => interval(a.lo, a.hi.min(limit)),
                None => Known::In(a),
            },
            (a, Known::Nothing | Known::In(_)) => a,
            (_, Known::Never) => Known::Never,
        },
        Node::ClipBelow(a, limit, plus) => match (at(a), at(limit)) {
            (Known::In(a), Known::In(l)) => match T::settle(l.lo.add(T::of(i128::from(*plus))?))? {
                Some(limit) => interval(a.lo.max(limit), a.hi),
                None => Known::In(a),
            },
            (a, Known::Nothing | Known::In(_)) => a,
            (_, Known::Never) => Known::Never,
        },
        Node::Shr(a, bits) => match at(a) {
            Known::In(i) => interval(i.lo.shr(*bits), i.hi.shr(*bits)),
            other => other,
        },
        Node::Fits(a, dtype) => match at(a) {
            Known::In(i) if i.lo.wide() >= dtype.int_min() && i.hi.wide() <= dtype.int_max() => Known::In(i),
            Known::In(_) | Known::Nothing => fixed(dtype.int_min(), dtype.int_max())?,
            Known::Never => Known::Never,
        },
    })
}

/// The values of a loop's counter: up to the last step below the end. Where it begins is a multiple of `divisor`, if that
/// is not one number.
fn counter<T: Number>(
    lo: Interval<T>,
    hi: Interval<T>,
    step: Interval<T>,
    divisor: impl FnOnce() -> u128,
) -> Evaluated<T> {
    let one = T::of(1)?;
    let Some(below) = T::settle(hi.hi.sub(one))? else { return Ok(Known::Nothing) };
    // All values are as far apart from `origin` as a multiple of `stride`, if that is known.
    let known = match (lo.single(), step.single()) {
        (Some(lo), Some(step)) => Some((lo, step)),
        (None, Some(step)) => Some((T::of(0)?, T::of(common(divisor(), step.wide()))?)),
        (_, None) => None,
    };
    let Some((origin, stride)) = known.filter(|(origin, _)| *origin <= below) else {
        return between(Some(lo.lo), Some(below));
    };
    let last = below.sub(origin).and_then(|distance| distance.sub(distance.rem(stride))?.add(origin));
    between(Some(lo.lo), last)
}

/// What divides both the numbers that `divisor` divides and those that `step`, which is positive, divides.
fn common(divisor: u128, step: i128) -> i128 {
    i128::try_from(gcd(divisor, step.unsigned_abs())).unwrap_or(1)
}

fn bitwise_and<T: Number>(a: Interval<T>, b: Interval<T>) -> Evaluated<T> {
    let zero = T::of(0)?;
    if let (Some(a), Some(b)) = (a.single(), b.single()) {
        return Ok(interval(a.and(b), a.and(b)));
    }
    Ok(match (a.lo >= zero, b.lo >= zero) {
        (true, true) => interval(zero, a.hi.min(b.hi)),
        (true, false) => interval(zero, a.hi),
        (false, true) => interval(zero, b.hi),
        (false, false) => Known::Nothing,
    })
}

fn divide<T: Number>(a: Interval<T>, b: Interval<T>) -> Evaluated<T> {
    // Quotients are largest in magnitude at the divisors nearest to zero; dividing by zero gives zero.
    let (zero, one, minus_one) = (T::of(0)?, T::of(1)?, T::of(-1)?);
    let mut hull = None;
    for (lo, hi) in [(b.lo, b.hi.min(minus_one)), (b.lo.max(one), b.hi)] {
        if lo > hi {
            continue;
        }
        match corners(a, Interval { lo, hi }, T::div)? {
            Known::In(q) => hull = Some(include(Some(include(hull, q.lo)), q.hi)),
            Known::Nothing | Known::Never => return Ok(Known::Nothing),
        }
    }
    if b.lo <= zero && b.hi >= zero {
        hull = Some(include(hull, zero));
    }
    Ok(hull.map_or(Known::Never, Known::In))
}

fn remainder<T: Number>(a: Interval<T>, b: Interval<T>) -> Evaluated<T> {
    let (zero, one) = (T::of(0)?, T::of(1)?);
    if b.lo <= zero && b.hi >= zero {
        // x % 0 is x: the result lies between zero and the dividend.
        return Ok(match b.lo == b.hi {
            true => interval(a.lo, a.hi),
            false => interval(a.lo.min(zero), a.hi.max(zero)),
        });
    }
    if let (Some(a), Some(b)) = (a.single(), b.single()) {
        return Ok(interval(a.rem(b), a.rem(b)));
    }
    // The divisors have one sign; the smallest remainder of a negative one is b.lo + 1, of a positive one 1 - b.hi.
    let least = if b.hi < zero { b.lo.add(one) } else { one.sub(b.hi) };
    let Some(least) = T::settle(least)? else { return Ok(Known::Nothing) };
    let Some(largest) = T::settle(zero.sub(least))? else { return Ok(Known::Nothing) };
    let lo = if a.lo < zero { a.lo.max(least) } else { zero };
    let hi = if a.hi > zero { a.hi.min(largest) } else { zero };
    Ok(interval(lo, hi))
}

pub(super) fn induction<T: Number>(
    start: Known<T>,
    [lo, hi, step]: [Known<T>; 3],
    increment: Known<T>,
    after: bool,
) -> Evaluated<T> {
    let (Known::In(lo), Known::In(hi), Known::In(step)) = (lo, hi, step) else { return Ok(Known::Nothing) };
    let (zero, one) = (T::of(0)?, T::of(1)?);
    if step.lo < one {
        return Ok(Known::Nothing);
    }
    // The number of iterations is the distance over the step, rounded up.
    let iterations = hi.hi.sub(lo.lo).and_then(|distance| {
        let last = distance.sub(one)?;
        if last < zero { Some(zero) } else { last.div(step.lo)?.add(one) }
    });
    let Some(iterations) = T::settle(iterations)? else { return Ok(Known::Nothing) };
    let most = if after || iterations == zero { Some(iterations) } else { iterations.sub(one) };
    let Some(most) = T::settle(most)? else { return Ok(Known::Nothing) };
    both(start, increment, |start, increment| match corners(Interval { lo: zero, hi: most }, increment, T::mul)? {
        Known::In(sum) => between(start.lo.add(sum.lo), start.hi.add(sum.hi)),
        other => Ok(other),
    })
}
