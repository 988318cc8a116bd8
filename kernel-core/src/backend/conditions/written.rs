//! Conditions as lists, to be written down and read again.

use std::collections::HashMap;

use super::{Condition, LaunchConditions, Node, NodeId};
use crate::ir::Span;

impl LaunchConditions {
    /// The intervals that the conditions speak of, operands before their users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The conditions of such lists, as [`LaunchConditions::nodes`] and [`LaunchConditions::conditions`] give them. Where
    /// the kernel asks for them is not known any more. `None` if they name nodes that are not there, or not before.
    pub fn from_lists(nodes: Vec<Node>, conditions: Vec<Condition>) -> Option<LaunchConditions> {
        let in_order = nodes.iter().enumerate().all(|(index, node)| {
            let operands = operands(node);
            let axis = match node {
                Node::ProgramId(axis) | Node::NumPrograms(axis) => *axis,
                _ => 0,
            };
            operands.into_iter().flatten().all(|operand| operand.index() < index) && axis < 3
        });
        let known = |condition: &Condition| named(condition).into_iter().flatten().all(|id| id.index() < nodes.len());
        if !in_order || !conditions.iter().all(known) {
            return None;
        }
        let spans = vec![Span::UNKNOWN; conditions.len()];
        let known: HashMap<Node, NodeId> =
            nodes.iter().enumerate().map(|(index, node)| (node.clone(), NodeId(index as u32))).collect();
        Some(LaunchConditions { nodes, known, conditions, spans })
    }
}

/// The nodes that a node is made from.
fn operands(node: &Node) -> [Option<NodeId>; 5] {
    let some = |ids: &[NodeId]| std::array::from_fn(|index| ids.get(index).copied());
    match *node {
        Node::Fixed(..) | Node::Argument(_) | Node::ProgramId(_) | Node::NumPrograms(_) => some(&[]),
        Node::Shr(a, _) | Node::Fits(a, _) => some(&[a]),
        Node::Add(a, b)
        | Node::Sub(a, b)
        | Node::Mul(a, b)
        | Node::Div(a, b)
        | Node::Rem(a, b)
        | Node::Min(a, b)
        | Node::Max(a, b)
        | Node::And(a, b)
        | Node::Either(a, b)
        | Node::ClipAbove(a, b, _)
        | Node::ClipBelow(a, b, _) => some(&[a, b]),
        Node::Counter(a, b, c) => some(&[a, b, c]),
        Node::Induction { start, bounds: [lo, hi, step], increment, .. } => some(&[start, lo, hi, step, increment]),
    }
}

/// The nodes that a condition is about.
fn named(condition: &Condition) -> [Option<NodeId>; 2] {
    match *condition {
        Condition::Inside { offset: node, .. }
        | Condition::NotNegative(node)
        | Condition::Exact(node, _)
        | Condition::Multiple(node, _) => [Some(node), None],
        Condition::AtMost(a, b, _) | Condition::Apart(a, b) => [Some(a), Some(b)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ParamId;

    #[test]
    fn lists_are_conditions_again_if_they_are_in_order() {
        let mut made = LaunchConditions::default();
        let n = made.node(Node::Argument(ParamId::new(1)));
        let one = made.node(Node::Fixed(1, 1));
        let last = made.node(Node::Sub(n, one));
        made.require(Condition::Inside { offset: last, buffer: ParamId::new(0) });
        let (nodes, conditions) = (made.nodes().to_vec(), made.conditions().to_vec());
        assert_eq!(LaunchConditions::from_lists(nodes.clone(), conditions.clone()), Some(made));
        let swapped = vec![nodes[0].clone(), nodes[2].clone(), nodes[1].clone()];
        assert_eq!(LaunchConditions::from_lists(swapped, conditions.clone()), None, "an operand behind its user");
        assert_eq!(LaunchConditions::from_lists(nodes[..2].to_vec(), conditions), None, "a node that is not there");
        assert_eq!(LaunchConditions::from_lists(vec![Node::ProgramId(3)], Vec::new()), None, "an axis of no grid");
    }
}
