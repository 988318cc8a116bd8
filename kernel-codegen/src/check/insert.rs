//! Decides, for every access, how it is kept inside its buffer, and inserts the checks that remain.

use std::collections::BTreeSet;

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{
    ControlOp, CreateOp, DType, Def, Dim, ElementwiseOp, Func, HintKind, Literal, MemoryOp, Op, OpId, Operation,
    ParamId, ParamKind, RegionId, Safety, ShapeOp, Span, ValueId, view,
};

use super::decide;
use super::describe::Describer;
use super::hints::{self, HintChecks, Kept, Promise};
use super::lanes::Lanes;
use super::no_wrap;
use super::nonzero_trip;
use super::pointers;
use super::unsigned_division::{Divisions, unsigned};
use kernel_core::backend::Checks;
use kernel_core::backend::conditions::{Condition, LaunchConditions, Node};

const PASS: &str = "bounds_checks";

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An atomic.
    Atomic,
}

/// How an access is kept inside its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Not at all: the kernel is an `unsafe fn`.
    Unchecked,
    /// By an inequality that the host evaluates at launch.
    LaunchCondition,
    /// By a check that joins its mask.
    Residual,
    /// By its tensor descriptor: the host has proved that the tensor lies in the buffer, and nothing else is accessed.
    Described,
}

impl Class {
    /// The word for the report.
    pub fn name(self) -> &'static str {
        match self {
            Class::Unchecked => "unchecked",
            Class::LaunchCondition => "decided at launch",
            Class::Residual => "checked per lane",
            Class::Described => "inside its tensor",
        }
    }
}

/// An access of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// Where it is.
    pub span: Span,
    /// What it does.
    pub kind: AccessKind,
    /// The buffer.
    pub param: ParamId,
    /// How it is checked.
    pub class: Class,
}

/// What [`insert`] found and decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckPlan {
    /// What a launch must meet to run this variant.
    pub conditions: LaunchConditions,
    /// Every access, in program order.
    pub accesses: Vec<Access>,
    /// Every hint and assertion.
    pub promises: Vec<Promise>,
    /// Whether offsets of accesses that are decided at launch do not wrap on the way, where loops compute them.
    pub no_wrap: bool,
}

/// Brings addresses to canonical form, classifies every access and inserts the checks of the variant.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub fn insert(func: &mut Func, checks: Checks) -> Result<CheckPlan> {
    let mut plan = CheckPlan::default();
    let hints = hints::check(func, &mut plan.promises)?;
    pointers::canonicalise(func)?;
    let mut classified = vec![None; func.ops.len()];
    let mut divisions = Divisions::default();
    let (decided, running) = {
        let (mut describer, found) = (Describer::new(func), &mut classified);
        let (describer, divisions, decided, running) = (&mut describer, &mut divisions, Vec::new(), Vec::new());
        let plan = &mut plan;
        let mut walk =
            Classify { func, checks, hints, describer, plan, found, divisions, decided, running, inner: None };
        walk.region(func.body);
        (walk.decided, walk.running)
    };
    plan.promises.sort_by_key(|promise| (promise.span.file, promise.span.line, promise.span.column));
    plan.no_wrap = (func.safety, checks) == (Safety::Safe, Checks::AtLaunch);
    let without_signs = divisions.require(func, &mut plan.conditions);
    let mut inserter = Inserter { func, classified, without_signs, lengths: Vec::new() };
    inserter.region(inserter.func.body)?;
    decided.into_iter().for_each(|assertion| believe(func, assertion));
    running.into_iter().for_each(|id| nonzero_trip::mark(func, id));
    Ok(plan)
}

/// Makes a hint of an assertion that holds: what it says remains known.
fn believe(func: &mut Func, assertion: OpId) {
    let one = Dim::Const(1);
    let hint = ShapeOp::Hint { kind: HintKind::Holds, n: one.clone(), multiple: one, axis: 0, believed: true };
    let condition = func.op(assertion).operands[0];
    let result = func.new_value(func.ty(condition).clone(), Def::Result(assertion, 0));
    let operation = &mut func.ops[assertion.index()];
    operation.op = hint.into();
    operation.results = vec![result];
}

fn access_kind(op: &MemoryOp) -> Option<AccessKind> {
    match op {
        MemoryOp::Load { .. } => Some(AccessKind::Load),
        MemoryOp::Store { .. } => Some(AccessKind::Store),
        MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } => Some(AccessKind::Atomic),
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => None,
    }
}

/// The offsets of a canonical address; `None` for the buffer's first element.
fn offset_of(func: &Func, pointer: ValueId) -> Option<ValueId> {
    match func.def_op(pointer) {
        Some(op) if op.op == Op::Memory(MemoryOp::AddPtr) => op.operands.get(1).copied(),
        Some(_) | None => None,
    }
}

struct Classify<'a, 'f> {
    func: &'f Func,
    checks: Checks,
    describer: &'a mut Describer<'f>,
    plan: &'a mut CheckPlan,
    /// By operation: the class of the access.
    found: &'a mut Vec<Option<Class>>,
    /// Which assertions check hints.
    hints: HintChecks,
    /// The assertions that the host decides.
    decided: Vec<OpId>,
    divisions: &'a mut Divisions,
    /// The loops that the launch shows to run.
    running: Vec<OpId>,
    /// The body of the loop that is being looked at.
    inner: Option<RegionId>,
}

impl Classify<'_, '_> {
    fn region(&mut self, region: RegionId) {
        let mark = self.describer.mark();
        for &id in &self.func.region(region).ops {
            self.operation(id);
        }
        self.describer.forget(mark);
    }

    /// Visits a region in which a condition holds, or does not.
    fn region_where(&mut self, region: RegionId, condition: ValueId, holds: bool) {
        let mark = self.describer.mark();
        self.describer.assume(Lanes::of(self.func, condition), holds);
        self.region(region);
        self.describer.forget(mark);
    }

    fn operation(&mut self, id: OpId) {
        let operation = self.func.op(id);
        match &operation.op {
            Op::Memory(op) => {
                if let Some(kind) = access_kind(op) {
                    self.access(id, kind);
                }
            }
            Op::Control(ControlOp::If) => {
                self.region_where(operation.regions[0], operation.operands[0], true);
                self.region_where(operation.regions[1], operation.operands[0], false);
            }
            Op::Control(ControlOp::For { .. }) => {
                if self.checks == Checks::AtLaunch
                    && nonzero_trip::require(self.func, id, self.describer, &mut self.plan.conditions)
                {
                    self.running.push(id);
                }
                let outer = self.inner.replace(operation.regions[0]);
                self.region(operation.regions[0]);
                self.inner = outer;
            }
            Op::Control(ControlOp::Assert { message }) => {
                self.assertion(id, message);
                self.holds(operation.operands[0]);
            }
            // In a safe kernel the host has decided the other hints, or an assertion has come before them.
            Op::Shape(ShapeOp::Hint { kind: HintKind::Holds, .. }) => self.holds(operation.operands[0]),
            // Only accesses to buffers are checked, and what is in regions.
            op => {
                if op.is_elementwise() && (self.func.safety, self.checks) == (Safety::Safe, Checks::AtLaunch) {
                    self.divisions.visit(self.func, id, self.describer, &mut self.plan.conditions);
                }
                for &region in &operation.regions {
                    self.region(region);
                }
            }
        }
    }

    /// What a program asserted, or was promised, holds for the rest of the region: otherwise the program has ended.
    fn holds(&mut self, condition: ValueId) {
        if self.func.ty(condition).is_scalar() {
            self.describer.assume(Lanes::of(self.func, condition), true);
        }
    }

    /// Leaves an assertion to the host, if it can decide it.
    fn assertion(&mut self, id: OpId, message: &str) {
        let operation = self.func.op(id);
        let conditions = match self.checks {
            Checks::AtLaunch => {
                decide::conditions(self.func, operation.operands[0], self.describer, &mut self.plan.conditions)
            }
            Checks::EveryAccess => None,
        };
        let kept = if conditions.is_some() { Kept::AtLaunch } else { Kept::Checked };
        if let Some(conditions) = conditions {
            conditions.into_iter().for_each(|condition| self.plan.conditions.require(condition));
            self.decided.push(id);
        }
        let what = self.hints.remove(&id).unwrap_or_else(|| format!("assertion {message:?}"));
        self.plan.promises.push(Promise { span: operation.span, what, kept });
    }

    fn access(&mut self, id: OpId, kind: AccessKind) {
        let operation = self.func.op(id);
        let Some(param) = self.func.ty(operation.operands[0]).pointee() else { return };
        let class = match (self.func.safety, self.checks) {
            (Safety::Unsafe, Checks::AtLaunch | Checks::EveryAccess) => Class::Unchecked,
            (Safety::Safe, Checks::EveryAccess) => Class::Residual,
            (Safety::Safe, Checks::AtLaunch) => {
                let mask = operation.op.mask().and_then(|i| operation.operands.get(i).copied());
                self.classify(operation.operands[0], mask, param)
            }
        };
        self.plan.accesses.push(Access { span: operation.span, kind, param, class });
        self.found[id.index()] = Some(class);
    }

    fn classify(&mut self, pointer: ValueId, mask: Option<ValueId>, param: ParamId) -> Class {
        let program = &mut self.plan.conditions;
        let Some(offset) = offset_of(self.func, pointer) else {
            // The first element: in bounds unless the buffer is empty.
            let first = program.node(Node::Fixed(0, 0));
            program.require(Condition::Inside { offset: first, buffer: param });
            return Class::LaunchCondition;
        };
        let mark = self.describer.mark();
        if let Some(mask) = mask {
            self.describer.assume(Lanes::of(self.func, mask), true);
        }
        let described = self.describer.describe(Lanes::of(self.func, offset), program);
        if let Some(body) = self.inner.filter(|_| described.is_bounded()) {
            no_wrap::require(self.func, body, Lanes::of(self.func, offset), self.describer, program);
        }
        self.describer.forget(mark);
        if !described.is_bounded() {
            return Class::Residual;
        }
        program.require(Condition::Inside { offset: described.node, buffer: param });
        self.divisions.decided(offset);
        Class::LaunchCondition
    }
}

struct Inserter<'f> {
    func: &'f mut Func,
    /// By operation: the class of the access.
    classified: Vec<Option<Class>>,
    /// Divisions whose operands the launch shows not to be negative.
    without_signs: BTreeSet<OpId>,
    /// The hidden length parameters made so far, by buffer.
    lengths: Vec<(ParamId, ValueId)>,
}

impl Inserter<'_> {
    fn region(&mut self, region: RegionId) -> Result<()> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            for inner in self.func.op(id).regions.clone() {
                self.region(inner)?;
            }
            if self.classified.get(id.index()) == Some(&Some(Class::Residual)) {
                self.check(id, &mut out)?;
            }
            match self.without_signs.contains(&id) {
                true => self.drop_signs(id, &mut out)?,
                false => out.push(id),
            }
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    /// Appends operations for the line of another.
    fn cursor<'e>(&'e mut self, of: OpId, out: &'e mut Vec<OpId>) -> Cursor<'e> {
        let span = self.func.op(of).span;
        Cursor::new(self.func, out, PASS).at(span)
    }

    fn length(&mut self, buffer: ParamId) -> ValueId {
        if let Some((_, value)) = self.lengths.iter().find(|(param, _)| *param == buffer) {
            return *value;
        }
        let name = format!("{}_len", self.func.param(buffer).name);
        let id = self.func.add_param(&name, ParamKind::Length(buffer), Span::UNKNOWN);
        let divisible = self.func.param(buffer).facts.len_divisible_by;
        self.func.params[id.index()].facts.divisible_by = divisible;
        let value = self.func.param(id).value;
        self.lengths.push((buffer, value));
        value
    }

    /// Joins a bounds check to the mask of an access.
    fn check(&mut self, id: OpId, out: &mut Vec<OpId>) -> Result<()> {
        let operation = self.func.op(id).clone();
        let (Op::Memory(op), Some(param)) = (&operation.op, self.func.ty(operation.operands[0]).pointee()) else {
            return Ok(());
        };
        let Some(index) = operation.op.mask() else { return Ok(()) };
        let length = self.length(param);
        let offset = match offset_of(self.func, operation.operands[0]) {
            Some(offset) => offset,
            None => zeros(&mut self.cursor(id, out), operation.operands[0], DType::I32)?,
        };
        let mut operands = vec![offset, length];
        operands.extend(operation.operands.get(index));
        let store = !matches!(op, MemoryOp::Load { .. });
        let check = MemoryOp::CheckBounds { param: param.index() as u32, store };
        let mask = self.cursor(id, out).value(check, &operands)?;
        if matches!(op, MemoryOp::Load { .. }) {
            self.zero_refused(id, out)?;
        }
        let access = &mut self.func.ops[id.index()].operands;
        match access.get_mut(index) {
            Some(slot) => *slot = mask,
            None => access.push(mask),
        }
        Ok(())
    }

    /// Divides without signs. The operation itself becomes the way back, so that its result keeps its name.
    fn drop_signs(&mut self, id: OpId, out: &mut Vec<OpId>) -> Result<()> {
        let Operation { op, operands, results, .. } = self.func.op(id).clone();
        let Some((dtype, without)) = self.func.ty(results[0]).dtype().and_then(|d| Some((d, unsigned(d)?))) else {
            out.push(id);
            return Ok(());
        };
        let mut cursor = self.cursor(id, out);
        let operands: Vec<ValueId> = operands.iter().map(|&v| cursor.bitcast(v, without)).collect::<Result<_>>()?;
        let result = cursor.value(op, &operands)?;
        cursor.turn(id, ElementwiseOp::Bitcast { to: dtype.into() }, &[result])
    }

    /// A lane that the bounds refuse reads zero, not `other`: that is for lanes that the kernel itself masks. The
    /// checked mask admits neither, so `other` becomes what each of the two reads.
    fn zero_refused(&mut self, load: OpId, out: &mut Vec<OpId>) -> Result<()> {
        let operation = self.func.op(load);
        let &[pointer, mask, other] = operation.operands.as_slice() else { return Ok(()) };
        let Some(dtype) = self.func.ty(operation.results[0]).dtype() else { return Ok(()) };
        if self.is_zero(other) {
            return Ok(());
        }
        let mut cursor = self.cursor(load, out);
        let zeros = zeros(&mut cursor, pointer, dtype)?;
        let other = cursor.select(mask, zeros, other)?;
        self.func.ops[load.index()].operands[2] = other;
        Ok(())
    }

    /// Whether all bits of all elements are known to be zero.
    fn is_zero(&self, value: ValueId) -> bool {
        let Some(op) = self.func.def_op(value) else { return false };
        if let Op::Create(CreateOp::Const { value, dtype }) = &op.op {
            return dtype.known().is_some_and(|dtype| *value == zero(dtype));
        }
        view::Splat::of(op).is_some_and(|splat| self.is_zero(splat.scalar))
    }
}

/// Zeros in the shape of `like`.
fn zeros(cursor: &mut Cursor<'_>, like: ValueId, dtype: DType) -> Result<ValueId> {
    let zero = cursor.constant(zero(dtype), dtype)?;
    cursor.splat_like(zero, like)
}

/// The value whose bits are zero.
fn zero(dtype: DType) -> Literal {
    if dtype == DType::Bool {
        Literal::Bool(false)
    } else if dtype.is_float() {
        Literal::float(0.0)
    } else {
        Literal::Int(0)
    }
}
