//! Intervals of integer values as small programs that the host runs at launch.
//!
//! A [`Node`] describes the interval of a value over all programs, lanes and loop trips of a launch, in terms of
//! the launch's scalar arguments, buffer lengths and grid. Evaluation is interval arithmetic in 128 bits: wherever
//! a value might leave its dtype it counts as any value of the dtype, so a wrapped offset is never taken for a
//! small one. Numbers that fit 64 bits, as nearly always, are evaluated in 64 bits, as a launch should not wait for
//! arithmetic; the answer is the same. Masks, loop bounds and branch conditions come in as [`Node::ClipAbove`] and
//! [`Node::ClipBelow`]: the same value, known to be smaller (or larger) than another where the access takes place.
//!
//! Example: for `off = program_id(0) * 1024 + arange(0, 1024)` under the mask `off < n`, a launch of 3 programs
//! with `n = 3000` gives `[0, 3071]`, clipped to `[0, 2999]`: inside every buffer of at least 3000 elements.

use std::collections::HashMap;

use kernel_core::ir::{DType, ParamId};

/// Index of a node in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an interval is made from. Operands precede their users.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// All values between two numbers, both included.
    Fixed(i128, i128),
    /// An integer argument of the launch.
    Argument(ParamId),
    /// The index of a program along a grid axis.
    ProgramId(u8),
    /// The number of programs along a grid axis.
    NumPrograms(u8),
    /// Sum.
    Add(NodeId, NodeId),
    /// Difference.
    Sub(NodeId, NodeId),
    /// Product.
    Mul(NodeId, NodeId),
    /// Quotient that truncates, where x / 0 is 0.
    Div(NodeId, NodeId),
    /// Remainder with the sign of the dividend, where x % 0 is x.
    Rem(NodeId, NodeId),
    /// The smaller of two values.
    Min(NodeId, NodeId),
    /// The larger of two values.
    Max(NodeId, NodeId),
    /// Bitwise and.
    And(NodeId, NodeId),
    /// Arithmetic shift right by a number of bits.
    Shr(NodeId, u8),
    /// One of two values.
    Either(NodeId, NodeId),
    /// The counter of a loop from the first to below the second by the third.
    Counter(NodeId, NodeId, NodeId),
    /// The start, and the increment (last) added up to once less often than the loop (lo, hi, step) runs;
    /// as often as it runs if `after` it.
    Induction {
        /// The value before the loop.
        start: NodeId,
        /// The loop's bounds and step.
        bounds: [NodeId; 3],
        /// What each trip adds.
        increment: NodeId,
        /// Whether the value is read after the loop.
        after: bool,
    },
    /// The first value where it is at most the second plus a number.
    ClipAbove(NodeId, NodeId, i8),
    /// The first value where it is at least the second plus a number.
    ClipBelow(NodeId, NodeId, i8),
    /// The value in that dtype: itself where it provably fits, else any value of the dtype, as it may have wrapped.
    Fits(NodeId, DType),
}

/// A set of consecutive integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interval<T> {
    /// Smallest value.
    lo: T,
    /// Largest value.
    hi: T,
}

/// What an evaluation knows of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known<T> {
    /// Nothing: it may have wrapped, or an operand may have.
    Nothing,
    /// No value occurs: the code is not reached.
    Never,
    /// Values in an interval.
    In(Interval<T>),
}

/// The launch that conditions are evaluated for.
#[derive(Clone, Copy, Debug)]
pub struct LaunchEnv<'a> {
    /// Integer arguments by parameter; `None` for the others.
    pub scalars: &'a [Option<i128>],
    /// Lengths in elements of buffer arguments by parameter; 0 for the others.
    pub lengths: &'a [u64],
    /// Programs along each grid axis.
    pub grid: [u32; 3],
}

/// Where an evaluation finds the launch's arguments.
pub trait LaunchValues {
    /// An argument, if it is an integer.
    fn scalar(&self, param: ParamId) -> Option<i128>;
    /// The length in elements of a buffer; 0 if it is none.
    fn length(&self, param: ParamId) -> u64;
    /// Programs along each grid axis.
    fn grid(&self) -> [u32; 3];
}

impl LaunchValues for LaunchEnv<'_> {
    fn scalar(&self, param: ParamId) -> Option<i128> {
        self.scalars.get(param.index()).copied().flatten()
    }

    fn length(&self, param: ParamId) -> u64 {
        self.lengths.get(param.index()).copied().unwrap_or(0)
    }

    fn grid(&self) -> [u32; 3] {
        self.grid
    }
}

/// One inequality: every value of the node is a valid index into the parameter's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The offsets.
    pub offset: NodeId,
    /// The buffer.
    pub buffer: ParamId,
}

/// Inequalities over a launch's scalars, lengths and grid under which a kernel needs no bounds checks, and no signs in
/// some of its divisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchConditions {
    nodes: Vec<Node>,
    /// Where each node is.
    known: HashMap<Node, NodeId>,
    conditions: Vec<Condition>,
    /// Values that the fast variant takes to be zero at least.
    not_negative: Vec<NodeId>,
}

/// Programs of up to this many nodes, which are most, are evaluated in little memory.
const FEW_NODES: usize = 32;

/// Programs of up to this many nodes are evaluated without an allocation.
const INLINE_NODES: usize = 128;

impl LaunchConditions {
    /// Adds a node, or finds an equal one.
    pub fn node(&mut self, node: Node) -> NodeId {
        let next = NodeId(self.nodes.len() as u32);
        *self.known.entry(node).or_insert_with_key(|node| {
            self.nodes.push(node.clone());
            next
        })
    }

    /// Demands that the offsets stay inside the buffer.
    pub fn require(&mut self, condition: Condition) {
        if !self.conditions.contains(&condition) {
            self.conditions.push(condition);
        }
    }

    /// Demands that a value is not negative.
    pub fn require_not_negative(&mut self, value: NodeId) {
        if !self.not_negative.contains(&value) {
            self.not_negative.push(value);
        }
    }

    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.not_negative.is_empty()
    }

    /// The inequalities.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether every access of that launch provably stays inside its buffer, and what must not be negative is not.
    pub fn hold(&self, env: &impl LaunchValues) -> bool {
        if self.is_empty() || env.grid().contains(&0) {
            return true;
        }
        let narrow = match self.nodes.len() {
            few if few <= FEW_NODES => self.hold_in(&mut [Known::<i64>::Nothing; FEW_NODES], env),
            some if some <= INLINE_NODES => self.hold_in(&mut [Known::<i64>::Nothing; INLINE_NODES], env),
            _ => Err(TooNarrow),
        };
        narrow.unwrap_or_else(|TooNarrow| {
            let mut values = vec![Known::<i128>::Nothing; self.nodes.len()];
            // Nothing is too narrow for 128 bits: what does not fit there is not known.
            self.hold_in(&mut values, env).unwrap_or(false)
        })
    }

    /// Evaluates all nodes into `values`, which has room for them.
    fn hold_in<T: Number>(&self, values: &mut [Known<T>], env: &impl LaunchValues) -> Result<bool, TooNarrow> {
        for (index, node) in self.nodes.iter().enumerate() {
            values[index] = evaluate(node, values, env)?;
        }
        let is_inside = |condition: &Condition| match values[condition.offset.index()] {
            Known::Nothing => false,
            Known::Never => true,
            Known::In(i) => i.lo.wide() >= 0 && i.hi.wide() < i128::from(env.length(condition.buffer)),
        };
        let is_not_negative = |value: &NodeId| match values[value.index()] {
            Known::Nothing => false,
            Known::Never => true,
            Known::In(i) => i.lo.wide() >= 0,
        };
        Ok(self.conditions.iter().all(is_inside) && self.not_negative.iter().all(is_not_negative))
    }
}

/// A number needs more bits than the evaluation has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TooNarrow;

/// The integers of an evaluation. Operations that give `None` do not fit.
trait Number: Copy + Ord {
    fn of(value: i128) -> Result<Self, TooNarrow>;
    fn wide(self) -> i128;
    /// What it means that a result does not fit: a wider evaluation must say, or it is not known.
    fn settle(result: Option<Self>) -> Result<Option<Self>, TooNarrow>;
    fn add(self, other: Self) -> Option<Self>;
    fn sub(self, other: Self) -> Option<Self>;
    fn mul(self, other: Self) -> Option<Self>;
    fn div(self, other: Self) -> Option<Self>;
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

type Evaluated<T> = Result<Known<T>, TooNarrow>;

fn interval<T: Ord>(lo: T, hi: T) -> Known<T> {
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

fn evaluate<T: Number>(node: &Node, values: &[Known<T>], env: &impl LaunchValues) -> Evaluated<T> {
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
        Node::Counter(lo, hi, step) => match at(step) {
            Known::In(s) if s.lo >= T::of(1)? => {
                let one = T::of(1)?;
                both(at(lo), at(hi), |lo, hi| between(Some(lo.lo), hi.hi.sub(one)))?
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

fn bitwise_and<T: Number>(a: Interval<T>, b: Interval<T>) -> Evaluated<T> {
    let zero = T::of(0)?;
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
        return Ok(interval(a.lo.min(zero), a.hi.max(zero)));
    }
    // The divisors have one sign; the smallest remainder of a negative one is b.lo + 1, of a positive one 1 - b.hi.
    let least = if b.hi < zero { b.lo.add(one) } else { one.sub(b.hi) };
    let Some(least) = T::settle(least)? else { return Ok(Known::Nothing) };
    let Some(largest) = T::settle(zero.sub(least))? else { return Ok(Known::Nothing) };
    let lo = if a.lo < zero { a.lo.max(least) } else { zero };
    let hi = if a.hi > zero { a.hi.min(largest) } else { zero };
    Ok(interval(lo, hi))
}

fn induction<T: Number>(
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
    // The number of trips is the distance over the step, rounded up.
    let trips = hi.hi.sub(lo.lo).and_then(|distance| {
        let last = distance.sub(one)?;
        if last < zero { Some(zero) } else { last.div(step.lo)?.add(one) }
    });
    let Some(trips) = T::settle(trips)? else { return Ok(Known::Nothing) };
    let most = if after || trips == zero { Some(trips) } else { trips.sub(one) };
    let Some(most) = T::settle(most)? else { return Ok(Known::Nothing) };
    both(start, increment, |start, increment| match corners(Interval { lo: zero, hi: most }, increment, T::mul)? {
        Known::In(sum) => between(start.lo.add(sum.lo), start.hi.add(sum.hi)),
        other => Ok(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(scalars: &'a [Option<i128>], lengths: &'a [u64], grid: u32) -> LaunchEnv<'a> {
        LaunchEnv { scalars, lengths, grid: [grid, 1, 1] }
    }

    /// `program_id(0) * 1024 + arange(0, 1024)` under the mask `off < n`, into buffer 0, with n = argument 1.
    fn masked_add() -> LaunchConditions {
        let mut c = LaunchConditions::default();
        let pid = c.node(Node::ProgramId(0));
        let block = c.node(Node::Fixed(1024, 1024));
        let start = c.node(Node::Mul(pid, block));
        let start = c.node(Node::Fits(start, DType::I32));
        let lane = c.node(Node::Fixed(0, 1023));
        let off = c.node(Node::Add(start, lane));
        let off = c.node(Node::Fits(off, DType::I32));
        let n = c.node(Node::Argument(ParamId::new(1)));
        let off = c.node(Node::ClipAbove(off, n, -1));
        c.require(Condition { offset: off, buffer: ParamId::new(0) });
        c
    }

    #[test]
    fn a_mask_bounds_the_offsets() {
        let c = masked_add();
        assert!(c.hold(&env(&[None, Some(3000)], &[3000], 3)));
        assert!(!c.hold(&env(&[None, Some(3001)], &[3000], 3)));
        assert!(c.hold(&env(&[None, Some(0)], &[0], 3)), "no lane is active");
        assert!(c.hold(&env(&[None, Some(i128::from(i32::MIN))], &[0], 3)));
    }

    #[test]
    fn an_offset_that_may_wrap_is_not_trusted() {
        let c = masked_add();
        let programs = (i32::MAX as u32) / 1024 + 1;
        assert!(c.hold(&env(&[None, Some(3000)], &[3000], programs)), "the last offset is i32::MAX");
        assert!(!c.hold(&env(&[None, Some(3000)], &[3000], programs + 1)), "a wrapped offset would pass the mask");
    }

    #[test]
    fn an_empty_grid_needs_nothing() {
        assert!(masked_add().hold(&env(&[None, Some(3001)], &[0], 0)));
    }

    /// Interval evaluation against enumeration of all values, for every binary node on small intervals.
    #[test]
    fn evaluation_contains_every_value() {
        let apply = |kind: usize, x: i128, y: i128| match kind {
            0 => x + y,
            1 => x - y,
            2 => x * y,
            3 => {
                if y == 0 {
                    0
                } else {
                    x / y
                }
            }
            4 => {
                if y == 0 {
                    x
                } else {
                    x % y
                }
            }
            5 => x.min(y),
            6 => x.max(y),
            _ => x & y,
        };
        for kind in 0..8 {
            for (alo, ahi) in [(-5, 7), (0, 6), (-9, -2), (3, 3)] {
                for (blo, bhi) in [(-3, 4), (1, 5), (0, 0), (-6, -1), (0, 3)] {
                    let mut c = LaunchConditions::default();
                    let (a, b) = (c.node(Node::Fixed(alo, ahi)), c.node(Node::Fixed(blo, bhi)));
                    let node = [Node::Add, Node::Sub, Node::Mul, Node::Div, Node::Rem, Node::Min, Node::Max, Node::And]
                        [kind](a, b);
                    let values = [interval(alo, ahi), interval(blo, bhi)];
                    let known = evaluate::<i128>(&node, &values, &env(&[], &[], 1));
                    let narrow = |i: i128| i as i64;
                    let values = [(alo, ahi), (blo, bhi)].map(|(lo, hi)| interval(narrow(lo), narrow(hi)));
                    match (known, evaluate::<i64>(&node, &values, &env(&[], &[], 1))) {
                        (Ok(Known::In(wide)), Ok(Known::In(narrow))) => {
                            assert_eq!((wide.lo, wide.hi), (narrow.lo.into(), narrow.hi.into()), "{node:?}");
                        }
                        (Ok(Known::Nothing), Ok(Known::Nothing)) | (Ok(Known::Never), Ok(Known::Never)) => {}
                        (wide, narrow) => panic!("{node:?}: {wide:?} in 128 bits, {narrow:?} in 64"),
                    }
                    let Ok(Known::In(got)) = known else { continue };
                    for x in alo..=ahi {
                        for y in blo..=bhi {
                            let v = apply(kind, x, y);
                            assert!(got.lo <= v && v <= got.hi, "{node:?} of {x} and {y} is {v}, not in {got:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn inductions_count_trips() {
        let one = |v: i64| interval(v, v);
        let bounds = [one(0), one(10), one(4)];
        assert_eq!(induction(one(5), bounds, one(3), false), Ok(interval(5, 11)), "three trips");
        assert_eq!(induction(one(5), bounds, one(3), true), Ok(interval(5, 14)));
        assert_eq!(induction(one(5), [one(3), one(1), one(1)], one(3), true), Ok(one(5)), "no trip");
        assert_eq!(induction(one(5), [one(3), one(1), one(1)], one(3), false), Ok(one(5)));
        assert_eq!(induction(one(5), bounds, one(i64::MAX), true), Err(TooNarrow));
        let wide = |v: i128| interval(v, v);
        let bounds = [wide(0), wide(10), wide(4)];
        assert_eq!(induction(wide(0), bounds, wide(i128::MAX), true), Ok(Known::Nothing), "it may have wrapped");
    }

    /// Numbers beyond 64 bits are answered by the wider evaluation.
    #[test]
    fn wide_numbers_are_compared_exactly() {
        let mut c = LaunchConditions::default();
        let n = c.node(Node::Argument(ParamId::new(1)));
        let square = c.node(Node::Mul(n, n));
        let reduced = c.node(Node::Div(square, n));
        c.require(Condition { offset: reduced, buffer: ParamId::new(0) });
        let holds = |n: i128, len: u64| c.hold(&env(&[None, Some(n)], &[len], 1));
        for n in [5, i128::from(i64::MAX), i128::from(i64::MAX) + 10] {
            assert!(holds(n, n as u64 + 1), "{n}");
            assert!(!holds(n, n as u64), "{n}");
        }
        assert!(!holds(i128::from(u64::MAX), u64::MAX), "the square does not fit 128 bits");
        assert!(!holds(i128::MIN, u64::MAX));
    }
}
