//! Intervals of what is computed element by element.

use kernel_core::backend::conditions::{Node, NodeId};
use kernel_core::ir::{BinaryOp, DType, ElementwiseOp, UnaryOp, ValueId};

use super::{Described, Describer, MAX_SELECTIONS, Source};
use crate::analysis::lanes::{Lanes, constant, hypotheses};

/// A number of so many bits is bounded by these alone, as that of a dtype of 16 bits is.
const SHORT: i128 = 16;

/// How deep in a sum zero is looked for.
const DEPTH: u8 = 8;

impl Describer<'_> {
    pub(super) fn combine(&mut self, lanes: &Lanes, parts: &[Described], node: Node) -> Described {
        let raw = self.node(node);
        let bounded = parts.iter().all(|d| d.is_bounded());
        let source = parts.iter().map(|d| d.source).max().unwrap_or(Source::Launch);
        let signed_by_data = parts.iter().any(|d| d.signed_by_data);
        let node = self.node(Node::Fits(raw, self.dtype(lanes.value)));
        Described { node, bounded_below: bounded, bounded_above: bounded, signed_by_data, source }
    }

    /// Whether zero is in an interval in every launch, as far as that is seen in so many steps.
    fn has_zero(&self, node: NodeId, steps: u8) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        let has = |node| self.has_zero(node, steps);
        match self.conditions.nodes()[node.index()] {
            Node::Fixed(lo, hi) => (lo..=hi).contains(&0),
            Node::ProgramId(_) => true,
            Node::Add(a, b) => has(a) && has(b),
            Node::Mul(a, b) | Node::Either(a, b) => has(a) || has(b),
            Node::Fits(inner, _) => has(inner),
            Node::Argument(_)
            | Node::NumPrograms(_)
            | Node::Sub(..)
            | Node::Div(..)
            | Node::Rem(..)
            | Node::Min(..)
            | Node::Max(..)
            | Node::And(..)
            | Node::Shr(..)
            | Node::Counter(..)
            | Node::Induction { .. }
            | Node::ClipAbove(..)
            | Node::ClipBelow(..) => false,
        }
    }

    /// The smaller or the larger of two values, which is bounded where one of them is.
    fn extreme(&mut self, lanes: &Lanes, [a, b]: [Described; 2], largest: bool) -> Described {
        let node = if largest { Node::Max(a.node, b.node) } else { Node::Min(a.node, b.node) };
        let (below, above) = ([a.bounded_below, b.bounded_below], [a.bounded_above, b.bounded_above]);
        let (one, both) = (|bounds: [bool; 2]| bounds[0] || bounds[1], |bounds: [bool; 2]| bounds[0] && bounds[1]);
        Described {
            bounded_below: if largest { one(below) } else { both(below) },
            bounded_above: if largest { both(above) } else { one(above) },
            signed_by_data: if largest {
                a.signed_by_data && b.signed_by_data
            } else {
                a.signed_by_data || b.signed_by_data
            },
            ..self.combine(lanes, &[a, b], node)
        }
    }

    /// One of two values, each where the condition chooses it.
    pub(super) fn chosen(&mut self, lanes: &Lanes, condition: ValueId, values: [ValueId; 2]) -> Described {
        let scalar = self.func.ty(condition).is_scalar();
        let along = if scalar { Vec::new() } else { lanes.along.clone() };
        let [a, b] = [(values[0], true), (values[1], false)].map(|(value, holds)| {
            let condition = Lanes { value: condition, along: along.clone() };
            self.describe_where(condition, holds, lanes.operand(value))
        });
        let both = Described {
            bounded_below: a.bounded_below && b.bounded_below,
            bounded_above: a.bounded_above && b.bounded_above,
            ..self.combine(lanes, &[a, b], Node::Either(a.node, b.node))
        };
        both.among(Source::Programs)
    }

    /// A value where a condition holds, or does not.
    pub(crate) fn describe_where(&mut self, condition: Lanes, holds: bool, lanes: Lanes) -> Described {
        let added = match self.selections < MAX_SELECTIONS {
            true => hypotheses(self.func, condition, holds),
            false => Vec::new(),
        };
        if added.is_empty() {
            return self.describe(lanes);
        }
        let (memo, mark) = (std::mem::take(&mut self.memo), self.mark());
        self.hypotheses.extend(added);
        self.selections += 1;
        let described = self.describe(lanes);
        self.selections -= 1;
        self.hypotheses.truncate(mark);
        self.memo = memo;
        described
    }

    pub(super) fn elementwise(&mut self, lanes: &Lanes, op: &ElementwiseOp, args: &[ValueId]) -> Described {
        if !self.dtype(lanes.value).is_int() {
            return self.unknown(lanes.value);
        }
        match op {
            ElementwiseOp::Binary { op } => self.binary(lanes, *op, args),
            ElementwiseOp::Unary { op: UnaryOp::Neg } => {
                let x = self.describe(lanes.operand(args[0]));
                let zero = self.node(Node::Fixed(0, 0));
                self.combine(lanes, &[x], Node::Sub(zero, x.node))
            }
            ElementwiseOp::Unary { op: UnaryOp::Abs } => {
                let x = self.describe(lanes.operand(args[0]));
                let zero = self.node(Node::Fixed(0, 0));
                let negated = self.node(Node::Sub(zero, x.node));
                Described { signed_by_data: false, ..self.combine(lanes, &[x], Node::Max(x.node, negated)) }
            }
            ElementwiseOp::Select => self.chosen(lanes, args[0], [args[1], args[2]]),
            ElementwiseOp::Cast { .. } => match self.dtype(args[0]) {
                DType::Bool => self.within(Node::Fixed(0, 1), Source::Data),
                from if from.is_int() => {
                    let (x, to) = (self.describe(lanes.operand(args[0])), self.dtype(lanes.value));
                    let signed = to.is_signed_int();
                    Described {
                        node: self.node(Node::Fits(x.node, to)),
                        bounded_below: x.bounded_below || !signed,
                        signed_by_data: x.signed_by_data && signed,
                        ..x
                    }
                }
                _ => self.unknown(lanes.value),
            },
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Fma
            | ElementwiseOp::Bitcast { .. } => self.unknown(lanes.value),
        }
    }

    fn binary(&mut self, lanes: &Lanes, op: BinaryOp, args: &[ValueId]) -> Described {
        let (a, b) = (self.describe(lanes.operand(args[0])), self.describe(lanes.operand(args[1])));
        let (x, y) = (a.node, b.node);
        match op {
            // A sum with what may have either sign is mostly there to mend that: `(x % n + n) % n`. What begins at zero
            // mends nothing: `x % n * d + arange(0, d)`.
            BinaryOp::Add => {
                let signed_by_data =
                    a.signed_by_data && self.has_zero(y, DEPTH) || b.signed_by_data && self.has_zero(x, DEPTH);
                Described { signed_by_data, ..self.combine(lanes, &[a, b], Node::Add(x, y)) }
            }
            BinaryOp::Sub => Described { signed_by_data: false, ..self.combine(lanes, &[a, b], Node::Sub(x, y)) },
            BinaryOp::Mul => self.combine(lanes, &[a, b], Node::Mul(x, y)),
            BinaryOp::Div => {
                let divided = self.combine(lanes, &[a, b], Node::Div(x, y));
                if constant(self.func, args[1]).is_some_and(|c| c > 0) { divided.bounded_as(a) } else { divided }
            }
            // The remainder is bounded by the divisor whatever the dividend, unless that is zero.
            BinaryOp::Rem => {
                let signed_by_data = a.signed_by_data || !a.bounded_below;
                Described { signed_by_data, ..self.combine(lanes, &[b], Node::Rem(x, y)).among(a.source) }
            }
            BinaryOp::Min => self.extreme(lanes, [a, b], false),
            BinaryOp::Max => self.extreme(lanes, [a, b], true),
            BinaryOp::And if constant(self.func, args[1]).is_some_and(|c| c >= 0) => {
                Described { signed_by_data: false, ..self.combine(lanes, &[b], Node::And(x, y)).among(a.source) }
            }
            BinaryOp::And => self.combine(lanes, &[a, b], Node::And(x, y)),
            BinaryOp::Shl | BinaryOp::Shr => {
                let bits = i128::from(self.dtype(lanes.value).bits());
                match constant(self.func, args[1]).filter(|c| (0..bits).contains(c)) {
                    Some(count) if op == BinaryOp::Shl => {
                        let factor = self.node(Node::Fixed(1 << count, 1 << count));
                        self.combine(lanes, &[a], Node::Mul(x, factor))
                    }
                    Some(count) => {
                        let shifted = self.combine(lanes, &[a], Node::Shr(x, count as u8)).bounded_as(a);
                        // Of an unsigned number that many bits are left, whatever it is. If they are many, no buffer
                        // holds what they reach, and the host would refuse every launch.
                        let bounded = bits - count <= SHORT && !self.dtype(lanes.value).is_signed_int();
                        let (bounded_below, bounded_above) =
                            (shifted.bounded_below || bounded, shifted.bounded_above || bounded);
                        Described { bounded_below, bounded_above, ..shifted }
                    }
                    None => self.unknown(lanes.value),
                }
            }
            BinaryOp::DivRn
            | BinaryOp::MinNan
            | BinaryOp::MaxNan
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
            | BinaryOp::Math(_) => self.unknown(lanes.value),
        }
    }
}
