//! Loops over ranges that `for` of the IR does not have: those that are left early, and those that include their end.
//!
//! A loop that is left early becomes a `while`, which counts:
//!
//! ```text
//! for i in lo..hi {                  i = lo; runs = lo < hi;
//!     if c { break; }        =>      while runs {
//!     f(i);                              if c { runs = false; } else { f(i); }
//! }                                      runs = runs & (i + 1 > i) & (i + 1 < hi); i = i + 1;
//!                                    }
//! ```
//!
//! `i + 1 > i` does not hold where the sum wraps, so that the loop ends at the greatest number of its dtype too. Under
//! `#[unroll]` it stays a `for`, each of whose copies asks whether the loop still runs.
//!
//! `lo..=hi` is `lo..hi + 1` wherever `hi + 1` exists, which is known of constants and of wider dtypes:
//!
//! ```text
//! for i in lo..=hi { f(i); }    =>   for c in lo as i64..hi as i64 + 1 { let i = c as i32; f(i); }
//! ```
//!
//! 64-bit numbers have no wider dtype, and of a dtype parameter no width is known. Their distances from `lo` are counted, as
//! `u64`; a range of all 2^64 numbers ends one early, after centuries.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, Dim, Dt, ElementwiseOp, LimitKind, Op, Unroll};

use super::Pass;
use crate::source_range::SourceRange;
use crate::tree::{ForStmt, IfStmt, Kind, Node, NodeId, Stmt, VOp, VarId, WhileStmt};
use crate::types::{BOOL, DtRef, VElem, VTy, distance_of, unsigned_of};

/// Appends operations on scalars to a list of statements.
struct Writer<'p, 'a> {
    pass: &'p mut Pass<'a>,
    out: &'p mut Vec<Stmt>,
    place: SourceRange,
}

impl Writer<'_, '_> {
    fn op(&mut self, op: VOp, args: Vec<NodeId>, dt: impl Into<DtRef>) -> NodeId {
        let (kind, ty) = (Kind::Op(op, args), VTy::scalar(dt));
        let id = self.pass.node(Node { kind, ty, dim: None, constexpr: false, place: self.place });
        self.out.push(Stmt::Eval(id));
        id
    }

    fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId, dt: Dt) -> NodeId {
        self.op(VOp::Ready(Op::binary(op)), vec![a, b], dt)
    }

    fn compare(&mut self, op: CmpOp, a: NodeId, b: NodeId) -> NodeId {
        self.op(VOp::Ready(Op::compare(op)), vec![a, b], BOOL)
    }

    fn and(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.op(VOp::Ready(Op::binary(BinaryOp::And)), vec![a, b], BOOL)
    }

    fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId, dt: Dt) -> NodeId {
        self.op(VOp::Ready(ElementwiseOp::Select.into()), vec![condition, a, b], dt)
    }

    fn int(&mut self, value: i64, dt: Dt) -> NodeId {
        let (kind, ty) = (Kind::Int(Dim::Const(value)), VTy::scalar(dt));
        self.pass.node(Node { kind, ty, dim: None, constexpr: true, place: self.place })
    }

    /// The lower bits in another dtype.
    fn bits(&mut self, node: NodeId, from: Dt, to: Dt) -> NodeId {
        VOp::bits_between(from, to).map_or(node, |op| self.op(op, vec![node], to))
    }

    /// How far `hi` is from `lo`, which is not greater, in the unsigned dtype of distances.
    fn distance(&mut self, hi: NodeId, lo: NodeId, dt: Dt) -> NodeId {
        let counts = distance_of(dt);
        let [hi, lo] = [hi, lo].map(|node| self.bits(node, dt, counts));
        let distance = self.binary(BinaryOp::Sub, hi, lo, counts);
        self.bits(distance, counts, unsigned_of(counts))
    }

    /// Whether the loop has a first iteration.
    fn enters(&mut self, stmt: &ForStmt, dt: Dt) -> NodeId {
        let below = if stmt.inclusive { CmpOp::Le } else { CmpOp::Lt };
        let enters = self.compare(below, stmt.lo, stmt.hi);
        if self.pass.literal(stmt.step).is_some() {
            return enters;
        }
        let zero = self.int(0, dt);
        let positive = self.compare(CmpOp::Gt, stmt.step, zero);
        self.and(enters, positive)
    }

    /// The first number of the loop, if there is one.
    fn first(&mut self, stmt: &ForStmt, dt: Dt) -> NodeId {
        if !stmt.reverse {
            return stmt.lo;
        }
        let one = self.int(1, dt);
        let last = if stmt.inclusive { stmt.hi } else { self.binary(BinaryOp::Sub, stmt.hi, one, dt) };
        if self.pass.literal(stmt.step) == Some(1) {
            return last;
        }
        let unsigned = unsigned_of(distance_of(dt));
        let distance = self.distance(last, stmt.lo, dt);
        let step = self.bits(stmt.step, dt, unsigned);
        let beyond = self.binary(BinaryOp::Rem, distance, step, unsigned);
        let beyond = self.bits(beyond, unsigned, dt);
        self.binary(BinaryOp::Sub, last, beyond, dt)
    }

    /// The number behind `index`, and whether the loop has it.
    fn next(&mut self, index: NodeId, stmt: &ForStmt, dt: Dt) -> (NodeId, NodeId) {
        let (op, grows) = if stmt.reverse { (BinaryOp::Sub, CmpOp::Lt) } else { (BinaryOp::Add, CmpOp::Gt) };
        let next = self.binary(op, index, stmt.step, dt);
        let grown = self.compare(grows, next, index);
        let inside = match (stmt.reverse, stmt.inclusive) {
            (true, _) => self.compare(CmpOp::Ge, next, stmt.lo),
            (false, true) => self.compare(CmpOp::Le, next, stmt.hi),
            (false, false) => self.compare(CmpOp::Lt, next, stmt.hi),
        };
        (next, self.and(grown, inside))
    }
}

impl Pass<'_> {
    /// A `for` without its jumps. `runs` is set where something in its body leaves it.
    pub(super) fn range(&mut self, mut stmt: ForStmt, runs: Option<VarId>, out: &mut Vec<Stmt>) {
        match runs {
            Some(runs) if stmt.hints.unroll == Unroll::Full => {
                let yes = self.bool(true, stmt.place);
                out.push(Stmt::Assign(runs, yes));
                stmt.body = self.guarded(std::mem::take(&mut stmt.body), runs, stmt.place);
                self.inclusive(stmt, out);
            }
            Some(runs) => self.counted(stmt, runs, out),
            None => self.inclusive(stmt, out),
        }
    }

    /// `if runs { body }`
    fn guarded(&mut self, then: Vec<Stmt>, runs: VarId, place: SourceRange) -> Vec<Stmt> {
        let mut out = Vec::new();
        let condition = self.read(runs, place, &mut out);
        out.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise: Vec::new(), results: Vec::new(), place })));
        out
    }

    /// A loop over a range that may hold its end.
    fn inclusive(&mut self, mut stmt: ForStmt, out: &mut Vec<Stmt>) {
        if !stmt.inclusive {
            out.push(Stmt::For(Box::new(stmt)));
            return;
        }
        let dt = self.dt_of(stmt.index);
        if let Some(beyond) = self.successor(&stmt, dt, out) {
            (stmt.hi, stmt.inclusive) = (beyond, false);
            out.push(Stmt::For(Box::new(stmt)));
            return;
        }
        match dt {
            Dt::Known(dtype) if dtype.bits() <= 16 => self.widened(stmt, dt, DType::I32.into(), out),
            Dt::Known(dtype) if dtype.bits() <= 32 => self.widened(stmt, dt, DType::I64.into(), out),
            Dt::Known(_) | Dt::Param(_) => self.distances(stmt, dt, out),
        }
    }

    /// The constant behind a constant end, if the dtype certainly has it.
    fn successor(&mut self, stmt: &ForStmt, dt: Dt, out: &mut Vec<Stmt>) -> Option<NodeId> {
        let Node { kind: Kind::Int(dim), ty, place, .. } = self.nodes[stmt.hi.0].clone() else { return None };
        // What an unrolled loop counts is its variable. Its ends are exact in 64 bits when the kernel is compiled.
        if dim.as_const().is_none() && stmt.counter.is_some() && matches!(dt, Dt::Known(dtype) if dtype.bits() == 64) {
            return Some(self.checked_successor(stmt.hi, dt, place, out));
        }
        let beyond = dim.add(&Dim::Const(1)).ok()?;
        let exists = match (beyond.as_const(), dt) {
            (Some(value), Dt::Known(dtype)) => i128::from(value) <= dtype.int_max(),
            (Some(value), Dt::Param(_)) => value <= i64::from(i8::MAX),
            (None, Dt::Known(_) | Dt::Param(_)) => false,
        };
        exists.then(|| self.node(Node { kind: Kind::Int(beyond), ty, dim: None, constexpr: true, place }))
    }

    /// The constexpr behind a constexpr of 64 bits. Binding refuses the greatest one, which has none.
    fn checked_successor(&mut self, end: NodeId, dt: Dt, place: SourceRange, out: &mut Vec<Stmt>) -> NodeId {
        const LAST: i64 = i64::MAX - 1;
        let mut writer = Writer { pass: self, out, place };
        let (last, one) = (writer.int(LAST, dt), writer.int(1, dt));
        let fits = writer.compare(CmpOp::Le, end, last);
        let beyond = writer.binary(BinaryOp::Add, end, one, dt);
        let message = format!("under `#[unroll]` a constexpr that `..=` includes is {LAST} at most");
        out.push(Stmt::Effect(ControlOp::StaticAssert { message }.into(), vec![fits], place));
        beyond
    }

    /// The loop counts in a wider dtype, which holds what is behind the end.
    fn widened(&mut self, mut stmt: ForStmt, dt: Dt, wide: Dt, out: &mut Vec<Stmt>) {
        let place = stmt.place;
        let mut writer = Writer { pass: self, out, place };
        [stmt.lo, stmt.hi, stmt.step] =
            [stmt.lo, stmt.hi, stmt.step].map(|node| writer.op(VOp::Cast, vec![node], wide));
        let one = writer.int(1, wide);
        stmt.hi = writer.binary(BinaryOp::Add, stmt.hi, one, wide);
        let counter = self.slot(wide, place);
        let mut body = Vec::new();
        let index = Writer { pass: self, out: &mut body, place }.op(VOp::Cast, vec![counter], dt);
        self.recounted(stmt, counter, index, body, out);
    }

    /// The loop counts how far it is from its beginning.
    fn distances(&mut self, mut stmt: ForStmt, dt: Dt, out: &mut Vec<Stmt>) {
        let (place, unsigned) = (stmt.place, unsigned_of(distance_of(dt)));
        let mut writer = Writer { pass: self, out, place };
        let enters = writer.enters(&stmt, dt);
        let distance = writer.distance(stmt.hi, stmt.lo, dt);
        let (zero, one) = (writer.int(0, unsigned), writer.int(1, unsigned));
        let greatest = writer.op(VOp::Limit(LimitKind::Max), Vec::new(), unsigned);
        let more = writer.compare(CmpOp::Lt, distance, greatest);
        let beyond = writer.binary(BinaryOp::Add, distance, one, unsigned);
        let count = writer.select(more, beyond, distance, unsigned);
        let (first, step) = (stmt.lo, stmt.step);
        stmt.hi = writer.select(enters, count, zero, unsigned);
        stmt.step = writer.bits(step, dt, unsigned);
        stmt.lo = zero;
        let counter = self.slot(unsigned, place);
        let mut body = Vec::new();
        let mut writer = Writer { pass: self, out: &mut body, place };
        let distance = writer.bits(counter, unsigned, dt);
        let index = writer.binary(BinaryOp::Add, first, distance, dt);
        self.recounted(stmt, counter, index, body, out);
    }

    /// A loop over another counter, from which `body` computes the index.
    fn recounted(
        &mut self,
        mut stmt: ForStmt,
        counter: NodeId,
        index: NodeId,
        mut body: Vec<Stmt>,
        out: &mut Vec<Stmt>,
    ) {
        body.push(Stmt::Alias(stmt.index, index));
        body.append(&mut stmt.body);
        out.push(Stmt::For(Box::new(ForStmt { index: counter, inclusive: false, body, ..stmt })));
    }

    /// The loop as a `while` that counts.
    fn counted(&mut self, mut stmt: ForStmt, runs: VarId, out: &mut Vec<Stmt>) {
        let (place, dt, count) = (stmt.place, self.dt_of(stmt.index), self.variable());
        let mut writer = Writer { pass: self, out, place };
        let enters = writer.enters(&stmt, dt);
        let first = writer.first(&stmt, dt);
        out.extend([Stmt::Assign(count, first), Stmt::Assign(runs, enters)]);
        let mut head = Vec::new();
        let condition = self.read(runs, place, &mut head);
        let mut body = vec![Stmt::Read(stmt.index, count)];
        body.append(&mut stmt.body);
        let still = self.read(runs, place, &mut body);
        let mut writer = Writer { pass: self, out: &mut body, place };
        let (next, more) = writer.next(stmt.index, &stmt, dt);
        let more = writer.and(still, more);
        body.extend([Stmt::Assign(count, next), Stmt::Assign(runs, more)]);
        out.push(Stmt::While(Box::new(WhileStmt {
            id: stmt.id,
            head,
            condition,
            endless: false,
            active_head: false,
            body,
            results: Vec::new(),
            place,
        })));
    }

    fn literal(&self, node: NodeId) -> Option<i64> {
        match self.nodes[node.0].kind {
            Kind::Int(Dim::Const(value)) => Some(value),
            _ => None,
        }
    }

    fn dt_of(&self, node: NodeId) -> Dt {
        match self.nodes[node.0].ty.elem {
            VElem::Data(dt) => self.types.settled(dt),
            // Bounds of loops are integers.
            VElem::Ptr(_) => DType::I64.into(),
        }
    }

    pub(super) fn slot(&mut self, dt: Dt, place: SourceRange) -> NodeId {
        let ty = VTy::scalar(dt);
        self.node(Node { kind: Kind::Slot, ty, dim: None, constexpr: false, place })
    }
}
