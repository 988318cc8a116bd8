//! `&&` and `||`: the right side is evaluated only if it is needed.
//!
//! What has no effect may run although nobody needs it, which takes no branch. But what constexprs decide is an `if`, of
//! which binding keeps one branch: the other may divide by zero, or have shapes that no tile has.
//!
//! ```text
//! i < n && x > 0                      (i < n) & (x > 0)
//! i < n && load(x + i) > 0            if i < n { load(x + i) > 0 } else { false }
//! N != 0 && M / N > 4                 if N != 0 { M / N > 4 } else { false }
//! N != 0 && i < n && M / N > i        if N != 0 { (i < n) & (M / N > i) } else { false }
//! i < n && N != 0 && M / N > i        the same
//! ok && M / N > 4                     if ok { M / N > 4 } else { false }, where ok is an `if` on constexprs, or a variable
//! ```

use kernel_core::ir::{Atom, BinaryOp, Dim, ElementwiseOp, Op};
use syn::Expr;

use super::{Checker, Context, Operand};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::SourceRange;
use crate::tree::{IfStmt, Kind, Node, NodeId, Stmt, VOp};
use crate::types::{BOOL, VElem, VTy};

/// Decisions of a chain that lie in each other at most. What stands behind more of them is a branch of its own.
const MAX_NESTED: usize = 16;

impl Checker<'_> {
    /// `a && b`: b is evaluated only if a holds. `before` statements stand in front of those that evaluate a.
    pub(super) fn short_circuit(
        &mut self,
        and: bool,
        left: Checked<Operand>,
        before: usize,
        right: &Expr,
        place: SourceRange,
        sign: SourceRange,
    ) -> Checked<Operand> {
        if let Ok(left) = left
            && let Some(holds) = self.known_in_function(left)
        {
            return if holds == and { self.operand(right) } else { Ok(Operand { place, ..left }) };
        }
        let what = if and { "`&&`" } else { "`||`" };
        let nodes = self.nodes.len();
        let (right, stmts) = self.nested(Context::Branch, |c| c.operand(right));
        let (left, right) = (left?, right?);
        for operand in [left, right] {
            if !self.ty(operand).is_scalar() {
                let message = format!("{what} works on scalars, found {}", self.show(operand));
                let (left, right) = (self.source.operand(left.place), self.source.operand(right.place));
                let code = format!("{left} {} {right}", if and { "&" } else { "|" });
                let within = if self.source.is_operand(place) { format!("({code})") } else { code.clone() };
                let help = Help::write(place, within).said(format!("on tiles write `{code}`"));
                return Err(self.report_help(sign, message, help));
            }
            self.expect(operand, BOOL, "an operand of a logical operator")?;
        }
        let asks = self.asked_since(nodes);
        let (left, right) = (Left { node: left.node, before }, Right { node: right.node, stmts, asks });
        Ok(Operand { node: self.logical(and, left, right, place), place })
    }

    /// `left && right`
    fn logical(&mut self, and: bool, left: Left, right: Right, place: SourceRange) -> NodeId {
        if let Some(first) = self.decided_first(and, left) {
            return self.logical_behind(and, first, left.node, right, place);
        }
        let left = left.node;
        let [known, right_known] = [left, right.node].map(|node| self.node(node).constexpr);
        let pure = right.stmts.iter().all(|stmt| self.is_pure(stmt));
        // Branches cost more than what variables leave undecided is worth, unless it divides.
        let guards = match right.asks {
            Asks::Nothing => false,
            Asks::Constexprs | Asks::Arithmetic => self.is_decided(left),
            Asks::Quotients => self.may_be_decided(left),
        };
        let comes_first = right_known && !matches!(self.node(right.node).kind, Kind::Bool(_));
        let mut stmt = IfStmt { condition: left, then: Vec::new(), otherwise: Vec::new(), results: Vec::new(), place };
        let value = if pure && !known && comes_first && !(guards && right.asks >= Asks::Arithmetic) {
            // The left side has been evaluated, and constexprs decide whether anybody needs it.
            self.stmts.extend(right.stmts);
            stmt.condition = right.node;
            left
        } else if !pure || known && !right_known || guards {
            *branch(&mut stmt, and) = right.stmts;
            right.node
        } else {
            self.stmts.extend(right.stmts);
            let op = if and { BinaryOp::And } else { BinaryOp::Or };
            return self.op(Op::binary(op), vec![left, right.node], VTy::scalar(BOOL), place);
        };
        let decided = self.is_decided(stmt.condition) || self.is_decided(value);
        let slot = self.short_value(and, &mut stmt, value, known && right_known);
        self.note(slot, decided, decided);
        self.stmts.push(Stmt::If(Box::new(stmt)));
        slot
    }

    /// `(a && b) && c` as `a && (b && c)`, where the constexprs decide a.
    fn logical_behind(
        &mut self,
        and: bool,
        mut first: Box<IfStmt>,
        left: NodeId,
        right: Right,
        place: SourceRange,
    ) -> NodeId {
        let known = self.node(left).constexpr && self.node(right.node).constexpr;
        let values =
            first.results.iter().find(|(slot, ..)| *slot == left).map(|(_, then, otherwise)| (*then, *otherwise));
        let inner = values.and_then(|(then, otherwise)| if and { then } else { otherwise }).unwrap_or(left);
        let outer = std::mem::replace(&mut self.stmts, std::mem::take(branch(&mut first, and)));
        let both = self.logical(and, Left { node: inner, before: 0 }, right, place);
        *branch(&mut first, and) = std::mem::replace(&mut self.stmts, outer);
        let slot = self.short_value(and, &mut first, both, known);
        self.decided.insert(slot.0);
        self.stmts.push(Stmt::If(first));
        slot
    }

    /// The result of an `if` that gives that value where the left side of `&&` holds, and `false` where it does not.
    fn short_value(&mut self, and: bool, stmt: &mut IfStmt, value: NodeId, constexpr: bool) -> NodeId {
        let (ty, place) = (VTy::scalar(BOOL), stmt.place);
        let fixed = Node { kind: Kind::Bool(!and), ty: ty.clone(), dim: None, constexpr: true, place };
        let fixed = self.new_node(fixed);
        let slot = self.new_node(Node { kind: Kind::Slot, ty, dim: None, constexpr, place });
        let (then, otherwise) = if and { (value, fixed) } else { (fixed, value) };
        stmt.results.push((slot, Some(then), Some(otherwise)));
        slot
    }

    /// The last statement, if it is the `a && b` that gives this value, and constexprs decide a. One in front of the left
    /// side stays: the right side may read what it gives by a name.
    fn decided_first(&mut self, and: bool, left: Left) -> Option<Box<IfStmt>> {
        let Left { node: left, before } = left;
        let own = self.stmts.get(before..)?.last().filter(|_| !self.node(left).constexpr);
        let Some(Stmt::If(stmt)) = own else { return None };
        let (_, then, otherwise) = stmt.results.iter().find(|(slot, ..)| *slot == left)?;
        let (fixed, empty) = if and { (*otherwise, &stmt.otherwise) } else { (*then, &stmt.then) };
        let short = fixed.is_some_and(|fixed| self.node(fixed).kind == Kind::Bool(!and)) && empty.is_empty();
        if !short || !self.is_decided(stmt.condition) || depth(stmt, and) >= MAX_NESTED {
            return None;
        }
        match self.stmts.pop() {
            Some(Stmt::If(stmt)) => Some(stmt),
            _ => None,
        }
    }

    /// Whether constexprs may decide a scalar, although values of the launch may be in it.
    pub(super) fn is_decided(&self, node: NodeId) -> bool {
        self.node(node).constexpr || self.decided.contains(&node.0)
    }

    /// Whether they may if they decide what variables hold.
    pub(super) fn may_be_decided(&self, node: NodeId) -> bool {
        self.is_decided(node) || self.varying.contains(&node.0)
    }

    /// Notes whether constexprs may decide what an operation gives: all operands, or one of `&` and `|`.
    pub(super) fn note_operation(&mut self, node: NodeId) {
        let Kind::Op(op, args) = &self.node(node).kind else { return };
        let one_decides = self.node(node).ty.elem == VElem::Data(BOOL)
            && matches!(op, VOp::Ready(Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::And | BinaryOp::Or })));
        let of = |is: &dyn Fn(NodeId) -> bool| match one_decides {
            true => args.iter().any(|&arg| is(arg)),
            false => args.iter().all(|&arg| is(arg)),
        };
        let (decided, may_be) = (of(&|arg| self.is_decided(arg)), of(&|arg| self.may_be_decided(arg)));
        self.note(node, decided, may_be);
    }

    /// Notes which results of an `if` on that condition constexprs may decide.
    pub(super) fn note_results(&mut self, condition: NodeId, results: &[(NodeId, Option<NodeId>, Option<NodeId>)]) {
        for &(slot, then, otherwise) in results {
            if !self.node(slot).ty.is_scalar() {
                continue;
            }
            let of = |is: &dyn Fn(NodeId) -> bool| is(condition) && [then, otherwise].into_iter().flatten().any(is);
            let (decided, may_be) = (of(&|node| self.is_decided(node)), of(&|node| self.may_be_decided(node)));
            self.note(slot, decided, may_be);
        }
    }

    fn note(&mut self, node: NodeId, decided: bool, may_be: bool) {
        if decided {
            self.decided.insert(node.0);
        } else if may_be {
            self.varying.insert(node.0);
        }
    }

    /// What the values that were made since then ask of constexprs.
    fn asked_since(&self, before: usize) -> Asks {
        let of = |node: &Node| {
            let number = match &node.kind {
                Kind::Int(dim) => asks(dim),
                _ => Asks::Nothing,
            };
            node.ty.shape.iter().map(asks).fold(number, Asks::max)
        };
        self.nodes[before..].iter().map(of).max().unwrap_or(Asks::Nothing)
    }

    /// Whether a statement may run although its value is not needed.
    fn is_pure(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Eval(node) => match &self.node(*node).kind {
                // A promise holds only where it is made, and a clock counts who asks.
                Kind::Op(VOp::Ready(op), _) => op.does().is_empty(),
                Kind::Op(..)
                | Kind::Int(_)
                | Kind::BigInt(_)
                | Kind::Float(..)
                | Kind::Bool(_)
                | Kind::ConstBool(_)
                | Kind::Constant(_)
                | Kind::Param(_)
                | Kind::Slot => true,
            },
            Stmt::Read(..) | Stmt::Alias(..) => true,
            Stmt::Effect(..)
            | Stmt::Assign(..)
            | Stmt::If(_)
            | Stmt::For(_)
            | Stmt::While(_)
            | Stmt::Body(_)
            | Stmt::Reduce(_)
            | Stmt::Map(_)
            | Stmt::Jump(..) => false,
        }
    }
}

/// The left side.
#[derive(Clone, Copy)]
struct Left {
    node: NodeId,
    /// How many statements stand in front of those that evaluate it.
    before: usize,
}

/// The right side.
struct Right {
    node: NodeId,
    /// What evaluates it.
    stmts: Vec<Stmt>,
    /// What it asks of constexprs, whose values may make it a mistake.
    asks: Asks,
}

/// What a side asks of constexprs: the more, the more of their values are mistakes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asks {
    Nothing,
    /// Their values.
    Constexprs,
    /// Sums, products and the like, which may not fit.
    Arithmetic,
    /// Quotients or remainders by constexprs, which may be zero.
    Quotients,
}

/// What a dimension asks of constexprs.
fn asks(dim: &Dim) -> Asks {
    let terms = dim.terms();
    match terms.as_slice() {
        [] => return Asks::Nothing,
        [(atoms, _)] if atoms.is_empty() => return Asks::Nothing,
        [(atoms, 1)] if matches!(atoms.as_slice(), [Atom::Const(_)]) => return Asks::Constexprs,
        _ => {}
    }
    let inner = |atom: &Atom| match atom {
        Atom::Const(_) => Asks::Constexprs,
        Atom::Div(_, by) | Atom::Rem(_, by) if by.as_const().is_none() => Asks::Quotients,
        Atom::Div(a, b) | Atom::Rem(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => asks(a).max(asks(b)),
        Atom::Power(exponent) => asks(exponent),
    };
    terms.iter().flat_map(|(atoms, _)| atoms).map(inner).fold(Asks::Arithmetic, Asks::max)
}

/// How many decisions of a chain lie in each other, the last inside.
fn depth(mut stmt: &IfStmt, and: bool) -> usize {
    let mut depth = 1;
    while let Some(Stmt::If(inner)) = (if and { &stmt.then } else { &stmt.otherwise }).last() {
        (stmt, depth) = (inner, depth + 1);
    }
    depth
}

/// Where the right side is evaluated.
fn branch(stmt: &mut IfStmt, and: bool) -> &mut Vec<Stmt> {
    if and { &mut stmt.then } else { &mut stmt.otherwise }
}
