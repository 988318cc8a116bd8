//! From values of the IR to [`Node`]s: what interval a value lies in at one access.

use std::collections::HashMap;

use kernel_core::edit::Structure;
use kernel_core::ir::{
    BinaryOp, ControlOp, CreateOp, DType, Def, Elements, ElementwiseOp, Func, Literal, Op, Operation, RegionId,
    UnaryOp, ValueId,
};

use super::lanes::{Hypothesis, Lanes, MAX_DEPTH, constant, hypotheses, strip};
use kernel_core::backend::conditions::{LaunchConditions, Node, NodeId};

/// What a value is made from, and thereby what may differ between its occurrences in one launch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Constants, arguments and the size of the grid: it is one number, which the host knows.
    Launch,
    /// Indices of programs, lanes and trips too: the host knows between which numbers it lies.
    Programs,
    /// What memory holds, or operations that are not followed.
    Data,
}

/// What is known of a value's interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its interval.
    pub node: NodeId,
    /// Whether arguments and grid bound it from below (data read from memory alone does not).
    pub bounded_below: bool,
    /// Whether they bound it from above.
    pub bounded_above: bool,
    /// What it is made from.
    pub source: Source,
}

impl Described {
    /// Whether the interval is worth evaluating at launch.
    pub fn is_bounded(self) -> bool {
        self.bounded_below && self.bounded_above
    }

    /// The same, made from that too.
    fn among(self, source: Source) -> Described {
        Described { source: self.source.max(source), ..self }
    }
}

/// Describes values under a set of hypotheses.
pub struct Describer<'f> {
    func: &'f Func,
    structure: Structure,
    hypotheses: Vec<Hypothesis>,
    memo: HashMap<Lanes, Described>,
    depth: usize,
}

impl<'f> Describer<'f> {
    /// A describer without hypotheses.
    pub fn new(func: &'f Func) -> Describer<'f> {
        Describer { func, structure: Structure::new(func), hypotheses: Vec::new(), memo: HashMap::new(), depth: 0 }
    }

    /// The number of hypotheses, to return to with [`Describer::forget`].
    pub fn mark(&self) -> usize {
        self.hypotheses.len()
    }

    /// Drops the hypotheses that were added after `mark`.
    pub fn forget(&mut self, mark: usize) {
        if mark < self.hypotheses.len() {
            self.hypotheses.truncate(mark);
            self.memo.clear();
        }
    }

    /// Adds what follows from a condition that holds (or, if not `holds`, does not) in every lane considered.
    pub fn assume(&mut self, condition: Lanes, holds: bool) {
        let added = hypotheses(self.func, condition, holds);
        if !added.is_empty() {
            self.hypotheses.extend(added);
            self.memo.clear();
        }
    }

    /// The interval of an integer value in the lanes of the access.
    pub fn describe(&mut self, lanes: Lanes, program: &mut LaunchConditions) -> Described {
        let lanes = strip(self.func, lanes);
        if let Some(known) = self.memo.get(&lanes) {
            return *known;
        }
        self.depth += 1;
        let mut result = match self.depth {
            d if d > MAX_DEPTH => self.unknown(lanes.value, program),
            _ => self.by_definition(&lanes, program),
        };
        self.depth -= 1;
        let clips: Vec<Hypothesis> = self.hypotheses.iter().filter(|h| h.subject == lanes).cloned().collect();
        for clip in clips {
            // Limits are described without hypotheses, so that `a < b`, which bounds both, comes to an end.
            let (hypotheses, memo) = (std::mem::take(&mut self.hypotheses), std::mem::take(&mut self.memo));
            let limit = self.describe(clip.limit, program);
            (self.hypotheses, self.memo) = (hypotheses, memo);
            if clip.above {
                result.node = program.node(Node::ClipAbove(result.node, limit.node, clip.plus));
                result.bounded_above |= limit.bounded_above;
            } else {
                result.node = program.node(Node::ClipBelow(result.node, limit.node, clip.plus));
                result.bounded_below |= limit.bounded_below;
            }
        }
        self.memo.insert(lanes, result);
        result
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.func.ty(value).dtype().unwrap_or(DType::I64)
    }

    /// Any value of the dtype.
    fn unknown(&self, value: ValueId, program: &mut LaunchConditions) -> Described {
        let dtype = self.dtype(value);
        let (lo, hi) = match dtype.is_float() {
            true => (i128::from(i64::MIN), i128::from(i64::MAX)),
            false => (dtype.int_min(), dtype.int_max()),
        };
        let small = dtype.bits() < 32;
        let node = program.node(Node::Fixed(lo, hi));
        Described { node, bounded_below: small || lo == 0, bounded_above: small, source: Source::Data }
    }

    fn exact(program: &mut LaunchConditions, node: Node) -> Described {
        Describer::within(program, node, Source::Launch)
    }

    fn within(program: &mut LaunchConditions, node: Node, source: Source) -> Described {
        Described { node: program.node(node), bounded_below: true, bounded_above: true, source }
    }

    fn by_definition(&mut self, lanes: &Lanes, program: &mut LaunchConditions) -> Described {
        match self.func.value(lanes.value).def {
            Def::Param(param) if self.dtype(lanes.value).is_int() => {
                let argument = program.node(Node::Argument(param));
                Describer::exact(program, Node::Fits(argument, self.dtype(lanes.value)))
            }
            Def::Param(_) => self.unknown(lanes.value, program),
            Def::Arg(region, index) => self.region_argument(lanes, region, index as usize, program),
            Def::Result(op, index) => {
                let operation = self.func.op(op);
                self.result(lanes, operation, index as usize, program)
            }
        }
    }

    fn result(&mut self, lanes: &Lanes, operation: &Operation, index: usize, p: &mut LaunchConditions) -> Described {
        if operation.op.elements() == Elements::Joined {
            return self.joined(lanes, &operation.operands, p);
        }
        match &operation.op {
            Op::Create(op) => match op {
                CreateOp::Const { value: Literal::Int(i), .. } => Describer::exact(p, Node::Fixed(*i, *i)),
                CreateOp::Const { value: Literal::Bool(b), .. } => {
                    let i = i128::from(*b);
                    Describer::exact(p, Node::Fixed(i, i))
                }
                CreateOp::ProgramId { axis } => Describer::within(p, Node::ProgramId(*axis), Source::Programs),
                CreateOp::NumPrograms { axis } => Describer::exact(p, Node::NumPrograms(*axis)),
                CreateOp::Arange { lo, hi } => match (lo.as_const(), hi.as_const()) {
                    (Some(lo), Some(hi)) => {
                        Describer::within(p, Node::Fixed(i128::from(lo), i128::from(hi) - 1), Source::Programs)
                    }
                    _ => self.unknown(lanes.value, p),
                },
                CreateOp::Const { value: Literal::Float(_), .. }
                | CreateOp::ConstExpr { .. }
                | CreateOp::Limit { .. }
                | CreateOp::Splat { .. } => self.unknown(lanes.value, p),
            },
            Op::Elementwise(op) => self.elementwise(lanes, op, &operation.operands, p),
            Op::Control(op) => self.control_result(lanes, op, operation, index, p),
            // Nothing is known of what memory holds, and of what is made from several elements.
            Op::Shape(_) | Op::Memory(_) | Op::Dot(_) | Op::Desc(_) | Op::Gpu(_) => self.unknown(lanes.value, p),
        }
    }

    /// An element of one of several operands, which lies within the bounds of all of them.
    fn joined(&mut self, lanes: &Lanes, operands: &[ValueId], p: &mut LaunchConditions) -> Described {
        let parts: Option<Vec<Lanes>> = operands.iter().map(|&v| lanes.elsewhere(self.func, v)).collect();
        let (Some(parts), true) = (parts, self.dtype(lanes.value).is_int()) else {
            return self.unknown(lanes.value, p);
        };
        let parts: Vec<Described> = parts.into_iter().map(|part| self.describe(part, p)).collect();
        let node = parts.iter().map(|part| part.node).reduce(|a, b| p.node(Node::Either(a, b)));
        let Some(node) = node else { return self.unknown(lanes.value, p) };
        let bounded_below = parts.iter().all(|part| part.bounded_below);
        let bounded_above = parts.iter().all(|part| part.bounded_above);
        let source = parts.iter().map(|part| part.source).max().unwrap_or(Source::Data);
        Described { node, bounded_below, bounded_above, source }.among(Source::Programs)
    }

    fn combine(&self, lanes: &Lanes, parts: &[Described], node: Node, program: &mut LaunchConditions) -> Described {
        let raw = program.node(node);
        let bounded = parts.iter().all(|d| d.is_bounded());
        let source = parts.iter().map(|d| d.source).max().unwrap_or(Source::Launch);
        let node = program.node(Node::Fits(raw, self.dtype(lanes.value)));
        Described { node, bounded_below: bounded, bounded_above: bounded, source }
    }

    fn elementwise(
        &mut self,
        lanes: &Lanes,
        op: &ElementwiseOp,
        args: &[ValueId],
        p: &mut LaunchConditions,
    ) -> Described {
        if !self.dtype(lanes.value).is_int() {
            return self.unknown(lanes.value, p);
        }
        match op {
            ElementwiseOp::Binary { op } => self.binary(lanes, *op, args, p),
            ElementwiseOp::Unary { op: UnaryOp::Neg } => {
                let x = self.describe(lanes.operand(args[0]), p);
                let zero = p.node(Node::Fixed(0, 0));
                self.combine(lanes, &[x], Node::Sub(zero, x.node), p)
            }
            ElementwiseOp::Unary { op: UnaryOp::Abs } => {
                let x = self.describe(lanes.operand(args[0]), p);
                let zero = p.node(Node::Fixed(0, 0));
                let negated = p.node(Node::Sub(zero, x.node));
                self.combine(lanes, &[x], Node::Max(x.node, negated), p)
            }
            ElementwiseOp::Select => {
                let (a, b) = (self.describe(lanes.operand(args[1]), p), self.describe(lanes.operand(args[2]), p));
                self.combine(lanes, &[a, b], Node::Either(a.node, b.node), p).among(Source::Programs)
            }
            ElementwiseOp::Cast { .. } => match self.dtype(args[0]) {
                DType::Bool => Describer::within(p, Node::Fixed(0, 1), Source::Data),
                from if from.is_int() => {
                    let x = self.describe(lanes.operand(args[0]), p);
                    Described { node: p.node(Node::Fits(x.node, self.dtype(lanes.value))), ..x }
                }
                _ => self.unknown(lanes.value, p),
            },
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Fma
            | ElementwiseOp::Bitcast { .. } => self.unknown(lanes.value, p),
        }
    }

    fn binary(&mut self, lanes: &Lanes, op: BinaryOp, args: &[ValueId], p: &mut LaunchConditions) -> Described {
        let (a, b) = (self.describe(lanes.operand(args[0]), p), self.describe(lanes.operand(args[1]), p));
        let (x, y) = (a.node, b.node);
        match op {
            BinaryOp::Add => self.combine(lanes, &[a, b], Node::Add(x, y), p),
            BinaryOp::Sub => self.combine(lanes, &[a, b], Node::Sub(x, y), p),
            BinaryOp::Mul => self.combine(lanes, &[a, b], Node::Mul(x, y), p),
            BinaryOp::Div => self.combine(lanes, &[a, b], Node::Div(x, y), p),
            // The remainder is bounded by the divisor whatever the dividend, unless that is zero.
            BinaryOp::Rem => self.combine(lanes, &[b], Node::Rem(x, y), p).among(a.source),
            BinaryOp::Min => self.combine(lanes, &[a, b], Node::Min(x, y), p),
            BinaryOp::Max => self.combine(lanes, &[a, b], Node::Max(x, y), p),
            BinaryOp::And if constant(self.func, args[1]).is_some_and(|c| c >= 0) => {
                self.combine(lanes, &[b], Node::And(x, y), p).among(a.source)
            }
            BinaryOp::And => self.combine(lanes, &[a, b], Node::And(x, y), p),
            BinaryOp::Shl | BinaryOp::Shr => {
                let bits = i128::from(self.dtype(lanes.value).bits());
                match constant(self.func, args[1]).filter(|c| (0..bits).contains(c)) {
                    Some(count) if op == BinaryOp::Shl => {
                        let factor = p.node(Node::Fixed(1 << count, 1 << count));
                        self.combine(lanes, &[a], Node::Mul(x, factor), p)
                    }
                    Some(count) => self.combine(lanes, &[a], Node::Shr(x, count as u8), p),
                    None => self.unknown(lanes.value, p),
                }
            }
            BinaryOp::DivRn | BinaryOp::MinNan | BinaryOp::MaxNan | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Umulhi => {
                self.unknown(lanes.value, p)
            }
        }
    }

    fn control_result(
        &mut self,
        lanes: &Lanes,
        op: &ControlOp,
        operation: &Operation,
        index: usize,
        p: &mut LaunchConditions,
    ) -> Described {
        if !self.dtype(lanes.value).is_int() {
            return self.unknown(lanes.value, p);
        }
        match op {
            ControlOp::If => {
                let mut parts = [None; 2];
                for (part, &region) in parts.iter_mut().zip(&operation.regions) {
                    let Some(&value) = self.func.yielded(region).get(index) else {
                        return self.unknown(lanes.value, p);
                    };
                    *part = Some(self.describe(lanes.operand(value), p));
                }
                match parts {
                    [Some(a), Some(b)] => {
                        self.combine(lanes, &[a, b], Node::Either(a.node, b.node), p).among(Source::Programs)
                    }
                    _ => self.unknown(lanes.value, p),
                }
            }
            ControlOp::For { .. } => self.carried(lanes, operation, index, true, p),
            ControlOp::While
            | ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::StaticAssert { .. } => self.unknown(lanes.value, p),
        }
    }

    fn region_argument(
        &mut self,
        lanes: &Lanes,
        region: RegionId,
        index: usize,
        p: &mut LaunchConditions,
    ) -> Described {
        match self.structure.owner(region).map(|owner| self.func.op(owner)) {
            Some(owner) if matches!(owner.op, Op::Control(ControlOp::For { .. })) => {
                if index > 0 {
                    return self.carried(lanes, owner, index - 1, false, p);
                }
                let [lo, hi, step] = [0, 1, 2].map(|i| self.describe(lanes.operand(owner.operands[i]), p));
                let bounded = lo.bounded_below && hi.bounded_above && step.is_bounded();
                let node = p.node(Node::Counter(lo.node, hi.node, step.node));
                let source = lo.source.max(hi.source).max(step.source).max(Source::Programs);
                Described { node, bounded_below: bounded, bounded_above: bounded, source }
            }
            Some(_) | None => self.unknown(lanes.value, p),
        }
    }

    /// A value that a loop carries: its start if no trip changes it, an induction if each adds an invariant.
    fn carried(
        &mut self,
        lanes: &Lanes,
        owner: &Operation,
        index: usize,
        after: bool,
        p: &mut LaunchConditions,
    ) -> Described {
        let body = owner.regions[0];
        let argument = self.func.region(body).args.get(index + 1).copied();
        let (Some(argument), Some(&next)) = (argument, self.func.yielded(body).get(index)) else {
            return self.unknown(lanes.value, p);
        };
        if !self.dtype(argument).is_int() {
            return self.unknown(lanes.value, p);
        }
        let start_value = owner.operands[index + 3];
        if next == argument {
            return self.describe(lanes.operand(start_value), p);
        }
        let Some((increment, sign)) = self.increment(argument, next, body) else {
            return self.unknown(lanes.value, p);
        };
        let start = self.describe(lanes.operand(start_value), p);
        let mut by = self.describe(lanes.operand(increment), p);
        if sign < 0 {
            let zero = p.node(Node::Fixed(0, 0));
            by.node = p.node(Node::Sub(zero, by.node));
        }
        let bounds = [0, 1, 2].map(|i| self.describe(Lanes::of(self.func, owner.operands[i]), p));
        let parts = [start, by, bounds[0], bounds[1], bounds[2]];
        let node = Node::Induction { start: start.node, bounds: bounds.map(|b| b.node), increment: by.node, after };
        self.combine(lanes, &parts, node, p).among(Source::Programs)
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
