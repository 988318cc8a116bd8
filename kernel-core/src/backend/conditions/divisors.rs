//! What divides all values of a node, for promises such as `multiple_of(stride, 16)`.
//!
//! Beside its interval each node has a number that divides every one of its values (0 where all of them are 0):
//!
//! ```text
//! stride = argument 2 = 48          48
//! program_id(0) * stride            48: 1 * 48
//! program_id(0) * stride + 32       16: the greatest common divisor
//! ```
//!
//! Where a value may have wrapped, what is left is the part of that number that is a power of two.

use super::evaluate::{Interval, Known, Number};
use super::{INLINE_NODES, Node, NodeId};

/// Whether every value of the node is a multiple of a number. `values` are the intervals of all nodes.
pub(super) fn divides<T: Number>(nodes: &[Node], values: &[Known<T>], node: NodeId, of: u64) -> bool {
    values[node.index()] == Known::Never || divisor(nodes, values, node).is_multiple_of(of.into())
}

/// What divides every value of the node, of which there are some: 0 if all are 0. `values` are the intervals of all nodes
/// up to it.
pub(super) fn divisor<T: Number>(nodes: &[Node], values: &[Known<T>], node: NodeId) -> u128 {
    let count = node.index() + 1;
    let (mut some, mut many) = ([0; INLINE_NODES], Vec::new());
    let divisors = match some.get_mut(..count) {
        Some(divisors) => divisors,
        None => {
            many.resize(count, 0);
            many.as_mut_slice()
        }
    };
    for (index, node) in nodes.iter().take(count).enumerate() {
        divisors[index] = match values[index] {
            Known::In(Interval { lo, hi }) if lo == hi => magnitude(lo),
            Known::In(_) | Known::Nothing | Known::Never => of_node(node, values, divisors),
        };
    }
    divisors[node.index()]
}

fn magnitude<T: Number>(value: T) -> u128 {
    value.wide().unsigned_abs()
}

fn of_node<T: Number>(node: &Node, values: &[Known<T>], divisors: &[u128]) -> u128 {
    let at = |id: &NodeId| divisors[id.index()];
    match node {
        Node::Fixed(..) | Node::Argument(_) | Node::ProgramId(_) | Node::NumPrograms(_) => 1,
        Node::Add(a, b) | Node::Sub(a, b) | Node::Min(a, b) | Node::Max(a, b) | Node::Either(a, b) => gcd(at(a), at(b)),
        // x - (x / y) * y; and x itself where y is 0.
        Node::Rem(a, b) => gcd(at(a), at(b)),
        // Where the product of the divisors is too large, either divides.
        Node::Mul(a, b) => at(a).checked_mul(at(b)).unwrap_or(at(a)),
        Node::Counter(lo, _, step) => gcd(at(lo), at(step)),
        Node::Induction { start, increment, .. } => gcd(at(start), at(increment)),
        Node::ClipAbove(a, ..) | Node::ClipBelow(a, ..) => at(a),
        Node::Fits(a, dtype) => match values[a.index()] {
            Known::Never => at(a),
            Known::In(i) if i.lo.wide() >= dtype.int_min() && i.hi.wide() <= dtype.int_max() => at(a),
            Known::In(_) | Known::Nothing => power_of_two(at(a), dtype.bits()),
        },
        Node::Div(..) | Node::And(..) | Node::Shr(..) => 1,
    }
}

/// What still divides values after they have wrapped to so many bits.
fn power_of_two(divisor: u128, bits: u32) -> u128 {
    match divisor {
        0 => 0,
        some => 1 << some.trailing_zeros().min(bits),
    }
}

/// The greatest common divisor; the other number if one is 0.
pub(super) fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
