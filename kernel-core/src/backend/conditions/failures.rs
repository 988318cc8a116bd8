//! Which conditions a launch does not meet, and why: for a person to read, never on the way of a launch.

use super::evaluate::{Known, evaluate};
use super::{Condition, LaunchConditions, LaunchValues, NodeId};
use crate::ir::Span;

/// A condition that a launch does not provably meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What does not hold.
    pub condition: Condition,
    /// Where the kernel asks for it.
    pub span: Span,
    /// Between which numbers the value lies that the condition is about, the first of two; `None` if nothing bounds it.
    pub found: Option<[i128; 2]>,
    /// As `found`, of the value that it is compared with.
    pub compared: Option<[i128; 2]>,
}

impl LaunchConditions {
    /// The conditions that a launch does not provably meet; none if [`LaunchConditions::hold`] says so.
    pub fn failures(&self, env: &impl LaunchValues) -> Vec<Failure> {
        if env.grid().contains(&0) {
            return Vec::new();
        }
        let mut values = vec![Known::<i128>::Nothing; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            values[index] = evaluate(node, &self.nodes, &values, env).unwrap_or(Known::Nothing);
        }
        let interval = |id: NodeId| match values[id.index()] {
            Known::In(interval) => Some([interval.lo, interval.hi]),
            Known::Nothing | Known::Never => None,
        };
        let failed = |(&condition, &span): (&Condition, &Span)| {
            let (found, compared) = match condition {
                Condition::Inside { offset: node, .. }
                | Condition::NotNegative(node)
                | Condition::Exact(node, _)
                | Condition::Multiple(node, _) => (interval(node), None),
                Condition::AtMost(a, b, _) | Condition::Apart(a, b) => (interval(a), interval(b)),
            };
            (!self.holds(condition, &values, env)).then_some(Failure { condition, span, found, compared })
        };
        self.conditions.iter().zip(&self.spans).filter_map(failed).collect()
    }
}
