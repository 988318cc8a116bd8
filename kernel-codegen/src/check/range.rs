//! Intervals of integer values as small programs that the host runs at launch.
//!
//! A [`Node`] describes the interval of a value over all programs, lanes and loop trips of a launch, in terms of
//! the launch's scalar arguments, buffer lengths and grid. Evaluation is interval arithmetic in 128 bits: wherever
//! a value might leave its dtype it counts as any value of the dtype, so a wrapped offset is never taken for a
//! small one. Masks, loop bounds and branch conditions come in as [`Node::Clip`]: the same value, known to be smaller
//! (or larger) than another where the access takes place.
//!
//! Example: for `off = program_id(0) * 1024 + arange(0, 1024)` under the mask `off < n`, a launch of 3 programs
//! with `n = 3000` gives `[0, 3071]`, clipped to `[0, 2999]`: inside every buffer of at least 3000 elements.

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

/// A set of consecutive integers; `None` in its place means that no value occurs at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Smallest value.
    pub lo: i128,
    /// Largest value.
    pub hi: i128,
}

/// What an evaluation knows of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Nothing: it may have wrapped, or an operand may have.
    Nothing,
    /// No value occurs: the code is not reached.
    Never,
    /// Values in an interval.
    In(Interval),
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

/// One inequality: every value of the node is a valid index into the parameter's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The offsets.
    pub offset: NodeId,
    /// The buffer.
    pub buffer: ParamId,
}

/// Inequalities over a launch's scalars, lengths and grid under which a kernel needs no bounds checks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchConditions {
    nodes: Vec<Node>,
    conditions: Vec<Condition>,
}

/// Programs of up to this many nodes are evaluated without an allocation.
const INLINE_NODES: usize = 96;

impl LaunchConditions {
    /// Adds a node, or finds an equal one.
    pub fn node(&mut self, node: Node) -> NodeId {
        // Programs are short (some tens of nodes), so a scan is quicker than a table.
        let found = self.nodes.iter().position(|n| *n == node);
        let index = found.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        NodeId(index as u32)
    }

    /// Demands that the offsets stay inside the buffer.
    pub fn require(&mut self, condition: Condition) {
        if !self.conditions.contains(&condition) {
            self.conditions.push(condition);
        }
    }

    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// The inequalities.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether every access of that launch provably stays inside its buffer.
    pub fn hold(&self, env: &LaunchEnv<'_>) -> bool {
        if self.conditions.is_empty() || env.grid.contains(&0) {
            return true;
        }
        let mut inline = [Known::Nothing; INLINE_NODES];
        let mut heap = Vec::new();
        let values: &mut [Known] = match self.nodes.len() {
            n if n <= INLINE_NODES => &mut inline[..n],
            n => {
                heap.resize(n, Known::Nothing);
                &mut heap
            }
        };
        for (index, node) in self.nodes.iter().enumerate() {
            let value = evaluate(node, values, env);
            values[index] = value;
        }
        self.conditions.iter().all(|c| match values[c.offset.index()] {
            Known::Nothing => false,
            Known::Never => true,
            Known::In(i) => {
                let len = env.lengths.get(c.buffer.index()).copied().unwrap_or(0);
                i.lo >= 0 && i.hi < i128::from(len)
            }
        })
    }
}

fn interval(lo: i128, hi: i128) -> Known {
    if lo > hi { Known::Never } else { Known::In(Interval { lo, hi }) }
}

/// The hull of what `f` gives on the corners of two intervals; nothing if a corner overflows.
fn corners(a: Interval, b: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Known {
    let (mut lo, mut hi) = (i128::MAX, i128::MIN);
    for x in [a.lo, a.hi] {
        for y in [b.lo, b.hi] {
            let Some(v) = f(x, y) else { return Known::Nothing };
            (lo, hi) = (lo.min(v), hi.max(v));
        }
    }
    interval(lo, hi)
}

/// Applies `f` to two known intervals.
fn both(a: Known, b: Known, f: impl Fn(Interval, Interval) -> Known) -> Known {
    match (a, b) {
        (Known::Never, _) | (_, Known::Never) => Known::Never,
        (Known::In(a), Known::In(b)) => f(a, b),
        (Known::Nothing, Known::Nothing | Known::In(_)) | (Known::In(_), Known::Nothing) => Known::Nothing,
    }
}

fn evaluate(node: &Node, values: &[Known], env: &LaunchEnv<'_>) -> Known {
    let at = |id: &NodeId| values[id.index()];
    match node {
        Node::Fixed(lo, hi) => interval(*lo, *hi),
        Node::Argument(p) => match env.scalars.get(p.index()) {
            Some(Some(v)) => interval(*v, *v),
            Some(None) | None => Known::Nothing,
        },
        Node::ProgramId(axis) => interval(0, i128::from(env.grid[usize::from(*axis)]) - 1),
        Node::NumPrograms(axis) => {
            let n = i128::from(env.grid[usize::from(*axis)]);
            interval(n, n)
        }
        Node::Add(a, b) => both(at(a), at(b), |a, b| corners(a, b, i128::checked_add)),
        Node::Sub(a, b) => both(at(a), at(b), |a, b| corners(a, b, i128::checked_sub)),
        Node::Mul(a, b) => both(at(a), at(b), |a, b| corners(a, b, i128::checked_mul)),
        Node::Div(a, b) => both(at(a), at(b), divide),
        Node::Rem(a, b) => both(at(a), at(b), remainder),
        Node::Min(a, b) => both(at(a), at(b), |a, b| interval(a.lo.min(b.lo), a.hi.min(b.hi))),
        Node::Max(a, b) => both(at(a), at(b), |a, b| interval(a.lo.max(b.lo), a.hi.max(b.hi))),
        Node::And(a, b) => both(at(a), at(b), |a, b| match (a.lo >= 0, b.lo >= 0) {
            (true, true) => interval(0, a.hi.min(b.hi)),
            (true, false) => interval(0, a.hi),
            (false, true) => interval(0, b.hi),
            (false, false) => Known::Nothing,
        }),
        Node::Either(a, b) => match (at(a), at(b)) {
            (Known::Nothing, _) | (_, Known::Nothing) => Known::Nothing,
            (Known::Never, other) | (other, Known::Never) => other,
            (Known::In(a), Known::In(b)) => interval(a.lo.min(b.lo), a.hi.max(b.hi)),
        },
        Node::Counter(lo, hi, step) => match at(step) {
            Known::In(s) if s.lo >= 1 => both(at(lo), at(hi), |lo, hi| interval(lo.lo, hi.hi - 1)),
            Known::In(_) | Known::Never | Known::Nothing => Known::Nothing,
        },
        Node::Induction { start, bounds, increment, after } => {
            induction(at(start), bounds.map(|n| at(&n)), at(increment), *after)
        }
        Node::ClipAbove(a, limit, plus) => match (at(a), at(limit)) {
            (Known::In(a), Known::In(l)) => interval(a.lo, a.hi.min(l.hi + i128::from(*plus))),
            (a, Known::Nothing | Known::In(_)) => a,
            (_, Known::Never) => Known::Never,
        },
        Node::ClipBelow(a, limit, plus) => match (at(a), at(limit)) {
            (Known::In(a), Known::In(l)) => interval(a.lo.max(l.lo + i128::from(*plus)), a.hi),
            (a, Known::Nothing | Known::In(_)) => a,
            (_, Known::Never) => Known::Never,
        },
        Node::Shr(a, bits) => match at(a) {
            Known::In(i) => interval(i.lo >> bits, i.hi >> bits),
            other => other,
        },
        Node::Fits(a, dtype) => match at(a) {
            Known::In(i) if i.lo >= dtype.int_min() && i.hi <= dtype.int_max() => Known::In(i),
            Known::In(_) | Known::Nothing => interval(dtype.int_min(), dtype.int_max()),
            Known::Never => Known::Never,
        },
    }
}

fn divide(a: Interval, b: Interval) -> Known {
    // Quotients are largest in magnitude at the divisors nearest to zero; dividing by zero gives zero.
    let mut hull: Option<Interval> = None;
    for (lo, hi) in [(b.lo, b.hi.min(-1)), (b.lo.max(1), b.hi)] {
        if lo > hi {
            continue;
        }
        match corners(a, Interval { lo, hi }, i128::checked_div) {
            Known::In(q) => hull = Some(hull.map_or(q, |h| Interval { lo: h.lo.min(q.lo), hi: h.hi.max(q.hi) })),
            Known::Nothing | Known::Never => return Known::Nothing,
        }
    }
    if b.lo <= 0 && b.hi >= 0 {
        hull = Some(hull.map_or(Interval { lo: 0, hi: 0 }, |h| Interval { lo: h.lo.min(0), hi: h.hi.max(0) }));
    }
    hull.map_or(Known::Never, Known::In)
}

fn remainder(a: Interval, b: Interval) -> Known {
    if b.lo <= 0 && b.hi >= 0 {
        // x % 0 is x: the result lies between zero and the dividend.
        return interval(a.lo.min(0), a.hi.max(0));
    }
    let largest = b.lo.unsigned_abs().max(b.hi.unsigned_abs()) as i128 - 1;
    let lo = if a.lo < 0 { a.lo.max(-largest) } else { 0 };
    let hi = if a.hi > 0 { a.hi.min(largest) } else { 0 };
    interval(lo, hi)
}

fn induction(start: Known, [lo, hi, step]: [Known; 3], increment: Known, after: bool) -> Known {
    let (Known::In(lo), Known::In(hi), Known::In(step)) = (lo, hi, step) else { return Known::Nothing };
    if step.lo < 1 {
        return Known::Nothing;
    }
    let distance = (hi.hi - lo.lo).max(0);
    let trips = (distance + step.lo - 1) / step.lo;
    let most = if after { trips } else { (trips - 1).max(0) };
    both(start, increment, |start, increment| {
        let times = Interval { lo: 0, hi: most };
        match corners(times, increment, i128::checked_mul) {
            Known::In(sum) => corners(start, sum, i128::checked_add),
            other => other,
        }
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
                    let Known::In(got) = evaluate(&node, &values, &env(&[], &[], 1)) else { continue };
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
        let one = |v| interval(v, v);
        let bounds = [one(0), one(10), one(4)];
        assert_eq!(induction(one(5), bounds, one(3), false), interval(5, 11), "three trips");
        assert_eq!(induction(one(5), bounds, one(3), true), interval(5, 14));
        assert_eq!(induction(one(5), [one(3), one(1), one(1)], one(3), true), one(5), "no trip");
    }
}
