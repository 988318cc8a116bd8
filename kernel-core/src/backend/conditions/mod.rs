//! Intervals of integer values as small programs that the host runs at launch.
//!
//! A [`Node`] describes the interval of a value over all programs, lanes and loop iterations of a launch, in terms of
//! the launch's scalar arguments, buffer lengths and grid. Evaluation is interval arithmetic in 128 bits: wherever
//! a value might leave its dtype it counts as any value of the dtype, so a wrapped offset is never taken for a
//! small one. Numbers that fit 64 bits, as nearly always, are evaluated in 64 bits, as a launch should not wait for
//! arithmetic; the answer is the same. Masks, loop bounds and branch conditions come in as [`Node::ClipAbove`] and
//! [`Node::ClipBelow`]: the same value, known to be smaller (or larger) than another where the access takes place.
//!
//! Example: for `off = program_id(0) * 1024 + arange(0, 1024)` under the mask `off < n`, a launch of 3 programs
//! with `n = 3000` gives `[0, 3071]`, clipped to `[0, 2999]`: inside every buffer of at least 3000 elements.

use std::collections::HashMap;

use crate::ir::{DType, ParamId, Span};

use divisors::divides;
use evaluate::{Known, Number, TooNarrow, evaluate};
pub use failures::Failure;

mod divisors;
mod evaluate;
mod failures;
#[cfg(test)]
mod tests;
mod written;

/// Index of a node in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(u32);

impl NodeId {
    /// Its place among [`LaunchConditions::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an interval is made from. Operands precede their users.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// The counter of a loop from the first to below the second by the third: it ends at the last step, so that loops
    /// over whole blocks access whole blocks.
    Counter(NodeId, NodeId, NodeId),
    /// The start, and the increment (last) added up to once less often than the loop (lo, hi, step) runs;
    /// as often as it runs if `after` it.
    Induction {
        /// The value before the loop.
        start: NodeId,
        /// The loop's bounds and step.
        bounds: [NodeId; 3],
        /// What each iteration adds.
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

/// What a launch must meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Condition {
    /// Every value of the node is a valid index into the parameter's buffer.
    Inside {
        /// The offsets.
        offset: NodeId,
        /// The buffer.
        buffer: ParamId,
    },
    /// No value of the node is negative: divisions are done without signs.
    NotNegative(NodeId),
    /// Every value of the node, before it wraps, fits the dtype.
    Exact(NodeId, DType),
    /// No value of the first node is larger than any of the second plus a number.
    AtMost(NodeId, NodeId, i8),
    /// The nodes have no value in common.
    Apart(NodeId, NodeId),
    /// Every value of the node is a multiple of a number.
    Multiple(NodeId, u64),
}

/// Conditions on a launch's scalars, lengths and grid under which a kernel needs no checks, and no signs in
/// some of its divisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchConditions {
    nodes: Vec<Node>,
    /// Where each node is.
    known: HashMap<Node, NodeId>,
    conditions: Vec<Condition>,
    /// Where the kernel asks for each first.
    spans: Vec<Span>,
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

    /// Drops the nodes behind the first so many, of which no condition is made: each costs every launch its evaluation.
    pub fn truncate(&mut self, nodes: usize) {
        self.nodes.truncate(nodes);
        self.known.retain(|_, id| id.index() < nodes);
    }

    /// Adds a condition that something at `span` asks for.
    pub fn require_at(&mut self, condition: Condition, span: Span) {
        if !self.conditions.contains(&condition) {
            self.conditions.push(condition);
            self.spans.push(span);
        }
    }

    /// Adds a condition.
    pub fn require(&mut self, condition: Condition) {
        self.require_at(condition, Span::UNKNOWN);
    }

    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// What must hold.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether that launch provably meets all conditions.
    pub fn hold(&self, env: &impl LaunchValues) -> bool {
        if self.conditions.is_empty() || env.grid().contains(&0) {
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
            values[index] = evaluate(node, &self.nodes, values, env)?;
        }
        Ok(self.conditions.iter().all(|condition| self.holds(*condition, values, env)))
    }

    fn holds<T: Number>(&self, condition: Condition, values: &[Known<T>], env: &impl LaunchValues) -> bool {
        let at = |id: NodeId| values[id.index()];
        let compared = |a: NodeId, b: NodeId, holds: &dyn Fn([i128; 2], [i128; 2]) -> bool| match (at(a), at(b)) {
            (Known::Never, _) | (_, Known::Never) => true,
            (Known::Nothing, _) | (_, Known::Nothing) => false,
            (Known::In(a), Known::In(b)) => holds([a.lo.wide(), a.hi.wide()], [b.lo.wide(), b.hi.wide()]),
        };
        match condition {
            Condition::Inside { offset, buffer } => match at(offset) {
                Known::Nothing => false,
                Known::Never => true,
                Known::In(i) => i.lo.wide() >= 0 && i.hi.wide() < i128::from(env.length(buffer)),
            },
            Condition::NotNegative(value) => match at(value) {
                Known::Nothing => false,
                Known::Never => true,
                Known::In(i) => i.lo.wide() >= 0,
            },
            Condition::Exact(value, dtype) => match at(value) {
                Known::Nothing => false,
                Known::Never => true,
                Known::In(i) => i.lo.wide() >= dtype.int_min() && i.hi.wide() <= dtype.int_max(),
            },
            Condition::AtMost(a, b, plus) => {
                compared(a, b, &|[_, largest], [smallest, _]| largest <= smallest.saturating_add(plus.into()))
            }
            Condition::Apart(a, b) => compared(a, b, &|a, b| a[1] < b[0] || b[1] < a[0]),
            Condition::Multiple(node, of) => divides(&self.nodes, values, node, of),
        }
    }
}
