//! Between which numbers integer values lie in a launch.
//!
//! ```text
//! %off = add (mul %pid, 64), (arange 0..64)        [0, 64 * grid - 1]
//! load (add_ptr %x, %off), %off < %n               [0, min(64 * grid, n) - 1], in the lanes that read
//! ```
//! An interval is a small program over the launch's scalars, lengths and grid ([`Node`]), which the host evaluates at
//! each launch, without wrapping. Masks, `if` conditions and assertions are hypotheses: they narrow what is under
//! them. Loops give their counters, and what they carry, intervals over all of their iterations.
//!
//! A [`Describer`] belongs to one pass over one kernel, and adds to that kernel's [`LaunchConditions`]. Equal nodes
//! are one, whichever pass asks for them.

mod arithmetic;

use std::collections::HashMap;

use kernel_core::edit::Structure;
use kernel_core::ir::{
    BinaryOp, ControlOp, CreateOp, DType, Def, Elements, ElementwiseOp, Func, HintKind, Literal, Op, OpId, Operation,
    RegionId, ShapeOp, Span, ValueId,
};

use super::lanes::{Hypothesis, Lanes, MAX_DEPTH, hypotheses, strip};
use crate::checks::Lacks;
use kernel_core::backend::conditions::{Condition, LaunchConditions, Node, NodeId};

/// What a value is made from, and thereby what may differ between its occurrences in one launch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// Constants, arguments and the size of the grid: it is one number, which the host knows.
    Launch,
    /// Indices of programs, lanes and iterations too: the host knows between which numbers it lies.
    Programs,
    /// What memory holds, or operations that are not followed.
    Data,
}

/// What is known of a value's interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Described {
    /// Its interval.
    pub(crate) node: NodeId,
    /// Whether arguments and grid bound it from below (data read from memory alone does not).
    pub(crate) bounded_below: bool,
    /// Whether they bound it from above.
    pub(crate) bounded_above: bool,
    /// Whether memory decides its sign, within those bounds: `x % n` of loaded numbers lies between `1 - n` and `n - 1`.
    pub(crate) signed_by_data: bool,
    /// What it is made from.
    pub(crate) source: Source,
}

impl Described {
    /// Whether the interval is worth evaluating at launch.
    pub(crate) fn is_bounded(self) -> bool {
        self.bounded_below && self.bounded_above
    }

    /// Which bounds are missing, of something that is not bounded.
    pub(crate) fn lacks(self) -> Lacks {
        match (self.bounded_below, self.bounded_above) {
            (false, true) => Lacks::Below,
            (true, false) => Lacks::Above,
            (false, false) | (true, true) => Lacks::Both,
        }
    }

    /// The same, bounded where another one is: it grows with that, and never leaves its dtype.
    fn bounded_as(self, other: Described) -> Described {
        Described { bounded_below: other.bounded_below, bounded_above: other.bounded_above, ..self }
    }

    /// The same, made from that too.
    fn among(self, source: Source) -> Described {
        Described { source: self.source.max(source), ..self }
    }
}

/// Describes values under a set of hypotheses.
pub(crate) struct Describer<'f> {
    pub(crate) func: &'f Func,
    pub(crate) structure: Structure,
    conditions: &'f mut LaunchConditions,
    /// Where the operation is that is visited.
    at: Span,
    hypotheses: Vec<Hypothesis>,
    memo: HashMap<Lanes, Described>,
    depth: usize,
    /// How many selections deep the value is whose branches are told apart.
    selections: usize,
}

/// Deeper than that, both branches of a selection are described alike: what is known in one is not in the other, so that
/// each takes a description of its own.
const MAX_SELECTIONS: usize = 4;

impl<'f> Describer<'f> {
    /// A describer without hypotheses.
    pub(crate) fn new(func: &'f Func, conditions: &'f mut LaunchConditions) -> Describer<'f> {
        let structure = Structure::new(func);
        let at = Span::UNKNOWN;
        let (hypotheses, memo) = (Vec::new(), HashMap::new());
        Describer { func, structure, conditions, at, hypotheses, memo, depth: 0, selections: 0 }
    }

    /// Visits every operation of the kernel in program order, each under what holds wherever it is reached.
    pub(crate) fn visit(&mut self, visitor: &mut dyn FnMut(&mut Describer<'f>, OpId)) {
        self.visit_region(self.func.body, visitor);
    }

    fn visit_region(&mut self, region: RegionId, visitor: &mut dyn FnMut(&mut Describer<'f>, OpId)) {
        let func = self.func;
        let mark = self.mark();
        for (id, operation) in func.region_ops(region) {
            self.at = operation.span;
            visitor(self, id);
            for (index, &inner) in operation.regions.iter().enumerate() {
                let mark = self.mark();
                if operation.op == Op::Control(ControlOp::If) {
                    self.assume(operation.operands[0], index == 0);
                }
                self.visit_region(inner, visitor);
                self.forget(mark);
            }
            // Otherwise the program has ended.
            let holds = matches!(
                operation.op,
                Op::Control(ControlOp::Assert { .. }) | Op::Shape(ShapeOp::Hint { kind: HintKind::Holds, .. })
            );
            if holds {
                self.assume_of_all(operation.operands[0]);
            }
        }
        self.forget(mark);
    }

    /// What `ask` says of an access, in the lanes that its mask admits.
    pub(crate) fn under_mask<T>(&mut self, access: &Operation, ask: impl FnOnce(&mut Describer<'f>) -> T) -> T {
        let mark = self.mark();
        if let Some(&mask) = access.op.mask().and_then(|index| access.operands.get(index)) {
            self.assume(mask, true);
        }
        let answer = ask(self);
        self.forget(mark);
        answer
    }

    /// The number of hypotheses, to return to with [`Describer::forget`].
    fn mark(&self) -> usize {
        self.hypotheses.len()
    }

    /// Drops the hypotheses that were added after `mark`.
    fn forget(&mut self, mark: usize) {
        if mark < self.hypotheses.len() {
            self.hypotheses.truncate(mark);
            self.memo.clear();
        }
    }

    /// Adds what follows from a condition that holds (or, if not `holds`, does not) in every lane considered.
    fn assume(&mut self, condition: ValueId, holds: bool) {
        self.assume_in(Lanes::of(self.func, condition), holds);
    }

    /// As [`Describer::assume`], of a condition in other lanes.
    pub(crate) fn assume_in(&mut self, condition: Lanes, holds: bool) {
        let added = hypotheses(self.func, condition, holds);
        if !added.is_empty() {
            self.hypotheses.extend(added);
            self.memo.clear();
        }
    }

    /// Adds what follows from a condition that holds in all of its lanes.
    fn assume_of_all(&mut self, condition: ValueId) {
        let added = hypotheses(self.func, Lanes::of(self.func, condition), true);
        // What compares lanes of two tiles otherwise is of these lanes alone.
        let of_all = |h: &Hypothesis| h.limit.along.is_empty() || h.limit.along == h.subject.along;
        let added: Vec<Hypothesis> =
            added.into_iter().filter(of_all).map(|h| Hypothesis { everywhere: true, ..h }).collect();
        if !added.is_empty() {
            self.hypotheses.extend(added);
            self.memo.clear();
        }
    }

    /// Demands something of the launch, for the operation that is visited.
    pub(crate) fn require(&mut self, condition: Condition) {
        self.conditions.require_at(condition, self.at);
    }

    /// Adds a node, or finds an equal one.
    pub(crate) fn node(&mut self, node: Node) -> NodeId {
        self.conditions.node(node)
    }

    /// What `look` gives, which makes no conditions: nodes that it adds are dropped if it fails.
    pub(crate) fn attempt<T, E>(&mut self, look: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let nodes = self.conditions.nodes().len();
        let outcome = look(self);
        if outcome.is_err() {
            self.conditions.truncate(nodes);
            self.memo.clear();
        }
        outcome
    }

    /// The interval of an integer value, in its own lanes.
    pub(crate) fn describe_value(&mut self, value: ValueId) -> Described {
        self.describe(Lanes::of(self.func, value))
    }

    /// The interval of an integer value in the lanes of the access.
    pub(crate) fn describe(&mut self, lanes: Lanes) -> Described {
        let lanes = strip(self.func, lanes);
        if let Some(known) = self.memo.get(&lanes) {
            return *known;
        }
        self.depth += 1;
        let mut result = match self.depth {
            d if d > MAX_DEPTH => self.unknown(lanes.value),
            _ => self.by_definition(&lanes),
        };
        self.depth -= 1;
        let clips: Vec<Hypothesis> = self.hypotheses.iter().filter_map(|h| h.of(&lanes)).collect();
        for clip in clips {
            // Limits are described without hypotheses, so that `a < b`, which bounds both, comes to an end.
            let (hypotheses, memo) = (std::mem::take(&mut self.hypotheses), std::mem::take(&mut self.memo));
            let limit = self.describe(clip.limit);
            (self.hypotheses, self.memo) = (hypotheses, memo);
            if clip.above {
                result.node = self.node(Node::ClipAbove(result.node, limit.node, clip.plus));
                result.bounded_above |= limit.bounded_above;
            } else {
                result.node = self.node(Node::ClipBelow(result.node, limit.node, clip.plus));
                result.bounded_below |= limit.bounded_below;
                result.signed_by_data &= limit.signed_by_data;
            }
        }
        self.memo.insert(lanes, result);
        result
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.func.ty(value).dtype().unwrap_or(DType::I64)
    }

    /// Any value of the dtype.
    fn unknown(&mut self, value: ValueId) -> Described {
        let dtype = self.dtype(value);
        let (lo, hi) = match dtype.is_float() {
            true => (i128::from(i64::MIN), i128::from(i64::MAX)),
            false => (dtype.int_min(), dtype.int_max()),
        };
        let small = dtype.bits() < 32;
        let node = self.node(Node::Fixed(lo, hi));
        let (bounded_below, bounded_above) = (small || lo == 0, small);
        Described { node, bounded_below, bounded_above, signed_by_data: false, source: Source::Data }
    }

    fn exact(&mut self, node: Node) -> Described {
        self.within(node, Source::Launch)
    }

    fn within(&mut self, node: Node, source: Source) -> Described {
        let node = self.node(node);
        Described { node, bounded_below: true, bounded_above: true, signed_by_data: false, source }
    }

    fn by_definition(&mut self, lanes: &Lanes) -> Described {
        match self.func.value(lanes.value).def {
            Def::Param(param) if self.dtype(lanes.value).is_int() => {
                let argument = self.node(Node::Argument(param));
                self.exact(Node::Fits(argument, self.dtype(lanes.value)))
            }
            Def::Param(_) => self.unknown(lanes.value),
            Def::Arg(region, index) => self.region_argument(lanes, region, index as usize),
            Def::Result(op, index) => {
                let operation = self.func.op(op);
                self.result(lanes, operation, index as usize)
            }
        }
    }

    fn result(&mut self, lanes: &Lanes, operation: &Operation, index: usize) -> Described {
        if operation.op.elements() == Elements::Joined {
            return self.joined(lanes, &operation.operands);
        }
        match &operation.op {
            Op::Create(op) => match op {
                CreateOp::Const { value: Literal::Int(i), .. } => self.exact(Node::Fixed(*i, *i)),
                CreateOp::Const { value: Literal::Bool(b), .. } => {
                    let i = i128::from(*b);
                    self.exact(Node::Fixed(i, i))
                }
                CreateOp::ProgramId { axis } => self.within(Node::ProgramId(*axis), Source::Programs),
                CreateOp::NumPrograms { axis } => self.exact(Node::NumPrograms(*axis)),
                CreateOp::Arange { lo, hi } => match (lo.as_const(), hi.as_const()) {
                    (Some(lo), Some(hi)) => {
                        self.within(Node::Fixed(i128::from(lo), i128::from(hi) - 1), Source::Programs)
                    }
                    _ => self.unknown(lanes.value),
                },
                CreateOp::Const { value: Literal::Float(_), .. }
                | CreateOp::Counter { .. }
                | CreateOp::ConstExpr { .. }
                | CreateOp::Limit { .. }
                | CreateOp::Splat { .. } => self.unknown(lanes.value),
            },
            Op::Elementwise(op) => self.elementwise(lanes, op, &operation.operands),
            Op::Control(op) => self.control_result(lanes, op, operation, index),
            // Nothing is known of what memory holds, and of what is made from several elements.
            Op::Shape(_) | Op::Tile(_) | Op::Memory(_) | Op::Dot(_) | Op::Desc(_) | Op::Gpu(_) => {
                self.unknown(lanes.value)
            }
        }
    }

    /// An element of one of several operands, which lies within the bounds of all of them.
    fn joined(&mut self, lanes: &Lanes, operands: &[ValueId]) -> Described {
        let parts: Option<Vec<Lanes>> = operands.iter().map(|&v| lanes.elsewhere(self.func, v)).collect();
        let (Some(parts), true) = (parts, self.dtype(lanes.value).is_int()) else {
            return self.unknown(lanes.value);
        };
        let parts: Vec<Described> = parts.into_iter().map(|part| self.describe(part)).collect();
        let node = parts.iter().map(|part| part.node).reduce(|a, b| self.node(Node::Either(a, b)));
        let Some(node) = node else { return self.unknown(lanes.value) };
        let bounded_below = parts.iter().all(|part| part.bounded_below);
        let bounded_above = parts.iter().all(|part| part.bounded_above);
        let signed_by_data = parts.iter().any(|part| part.signed_by_data);
        let source = parts.iter().map(|part| part.source).max().unwrap_or(Source::Data);
        Described { node, bounded_below, bounded_above, signed_by_data, source }.among(Source::Programs)
    }

    fn control_result(&mut self, lanes: &Lanes, op: &ControlOp, operation: &Operation, index: usize) -> Described {
        if !self.dtype(lanes.value).is_int() {
            return self.unknown(lanes.value);
        }
        match op {
            ControlOp::If => {
                let given: Vec<ValueId> = operation
                    .regions
                    .iter()
                    .filter_map(|&region| self.func.yielded(region).get(index))
                    .copied()
                    .collect();
                match given.as_slice() {
                    &[a, b] => self.chosen(lanes, operation.operands[0], [a, b]),
                    _ => self.unknown(lanes.value),
                }
            }
            ControlOp::For { .. } => self.carried(lanes, operation, index, true),
            ControlOp::While
            | ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Map { .. }
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => self.unknown(lanes.value),
        }
    }

    fn region_argument(&mut self, lanes: &Lanes, region: RegionId, index: usize) -> Described {
        match self.structure.owner(region).map(|owner| self.func.op(owner)) {
            Some(owner) if matches!(owner.op, Op::Control(ControlOp::For { .. })) => {
                if index > 0 {
                    return self.carried(lanes, owner, index - 1, false);
                }
                let [lo, hi, step] = [0, 1, 2].map(|i| self.describe(lanes.operand(owner.operands[i])));
                let bounded = lo.bounded_below && hi.bounded_above && step.is_bounded();
                let node = self.node(Node::Counter(lo.node, hi.node, step.node));
                let source = lo.source.max(hi.source).max(step.source).max(Source::Programs);
                Described { node, bounded_below: bounded, bounded_above: bounded, signed_by_data: false, source }
            }
            Some(_) | None => self.unknown(lanes.value),
        }
    }

    /// A value that a loop carries: its start if no iteration changes it, an induction if each adds an invariant.
    fn carried(&mut self, lanes: &Lanes, owner: &Operation, index: usize, after: bool) -> Described {
        let body = owner.regions[0];
        let argument = self.func.region(body).args.get(index + 1).copied();
        let (Some(argument), Some(&next)) = (argument, self.func.yielded(body).get(index)) else {
            return self.unknown(lanes.value);
        };
        if !self.dtype(argument).is_int() {
            return self.unknown(lanes.value);
        }
        let start_value = owner.operands[index + 3];
        if next == argument {
            return self.describe(lanes.operand(start_value));
        }
        let Some((increment, sign)) = self.increment(argument, next, body) else {
            return self.unknown(lanes.value);
        };
        let start = self.describe(lanes.operand(start_value));
        let mut by = self.describe(lanes.operand(increment));
        if sign < 0 {
            let zero = self.node(Node::Fixed(0, 0));
            by.node = self.node(Node::Sub(zero, by.node));
        }
        let bounds = [0, 1, 2].map(|i| self.describe_value(owner.operands[i]));
        let parts = [start, by, bounds[0], bounds[1], bounds[2]];
        let node = Node::Induction { start: start.node, bounds: bounds.map(|b| b.node), increment: by.node, after };
        self.combine(lanes, &parts, node).among(Source::Programs)
    }

    /// What `next` adds to `argument` (or subtracts, sign -1), if that does not change in the loop.
    fn increment(&self, argument: ValueId, next: ValueId, body: RegionId) -> Option<(ValueId, i8)> {
        let operation = self.func.def_op(next)?;
        let Op::Elementwise(ElementwiseOp::Binary { op }) = operation.op else { return None };
        let (a, b) = (*operation.operands.first()?, *operation.operands.get(1)?);
        let (by, sign) = match op {
            BinaryOp::Add if a == argument => (b, 1),
            BinaryOp::Add if b == argument => (a, 1),
            BinaryOp::Sub if a == argument => (b, -1),
            _ => return None,
        };
        self.invariant(by, body, 0).then_some((by, sign))
    }

    fn invariant(&self, value: ValueId, body: RegionId, depth: usize) -> bool {
        let home = match self.func.value(value).def {
            Def::Param(_) => return true,
            Def::Arg(region, _) => Some(region),
            Def::Result(op, _) => {
                let operation = self.func.op(op);
                let pure = operation.op.is_arithmetic();
                if pure && depth < MAX_DEPTH && operation.operands.iter().all(|&v| self.invariant(v, body, depth + 1)) {
                    return true;
                }
                self.structure.region_of(op)
            }
        };
        home.is_none_or(|home| !self.structure.encloses(body, home))
    }
}
