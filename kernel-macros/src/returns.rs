//! Early `return` becomes structure.
//!
//! The IR has no jumps, so what follows a block that returns moves to where it does not:
//!
//! ```text
//! if n < 0 { return; }           if n < 0 { } else {
//! store(..);              =>         store(..);
//!                                }
//! ```
//!
//! Where a branch returns on some of its own paths only, a variable remembers it:
//!
//! ```text
//! if a { if b { return; } f(); }          returned = false;
//! g();                            =>      if a { if b { returned = true; } else { f(); } }
//!                                         if returned { } else { g(); }
//! ```
//!
//! If such an `if` gives a value, a variable carries it, which is zero where the branch has returned.

use kernel_core::ir::CreateOp;

use crate::error::Errors;
use crate::source_range::SourceRange;
use crate::tree::{IfStmt, Kind, Node, NodeId, Stmt, VOp, VarId};
use crate::types::{BOOL, VElem, VTy};

/// Early returns one after the other: what follows each nests one level deeper.
const MAX_RETURNS: usize = 100;

/// Whether control reaches the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Falls,
    Maybe,
    Returns,
}

struct Pass<'a> {
    nodes: &'a mut Vec<Node>,
    variables: &'a mut usize,
    /// The variable that remembers a return, once one is needed.
    flag: Option<(VarId, SourceRange)>,
    /// Whether something reads it.
    read: bool,
    /// Early returns before this place, each of which it is nested in.
    depth: usize,
    /// The `return` that is one too many.
    excess: Option<SourceRange>,
}

/// Removes every [`Stmt::Return`]; refuses more of them in a row than the IR can nest.
pub fn eliminate(stmts: Vec<Stmt>, nodes: &mut Vec<Node>, variables: &mut usize, errors: &mut Errors) -> Vec<Stmt> {
    let mut pass = Pass { nodes, variables, flag: None, read: false, depth: 0, excess: None };
    let (mut stmts, _) = pass.block(stmts);
    if let Some(place) = pass.excess {
        let message = format!("a kernel may return early {MAX_RETURNS} times in a row, and this is once more");
        let help = "join conditions: `if a || b { return; }`, or mask what follows";
        errors.report_help(place, message, help);
    }
    match (pass.flag, pass.read) {
        (Some((flag, place)), true) => {
            let no = pass.bool(false, place);
            stmts.insert(0, Stmt::Assign(flag, no));
        }
        (Some((flag, _)), false) => forget(&mut stmts, flag),
        (None, _) => {}
    }
    stmts
}

/// Removes assignments to a variable that nothing reads.
fn forget(stmts: &mut Vec<Stmt>, flag: VarId) {
    stmts.retain_mut(|stmt| match stmt {
        Stmt::Assign(var, _) => *var != flag,
        Stmt::If(stmt) => {
            forget(&mut stmt.then, flag);
            forget(&mut stmt.otherwise, flag);
            true
        }
        // A `return` inside a loop or closure has been refused.
        Stmt::Eval(_)
        | Stmt::Effect(..)
        | Stmt::Read(..)
        | Stmt::Alias(..)
        | Stmt::For(_)
        | Stmt::While(_)
        | Stmt::Reduce(_)
        | Stmt::Return(_) => true,
    });
}

fn flow_of(stmts: &[Stmt]) -> Flow {
    let mut flow = Flow::Falls;
    for stmt in stmts {
        match stmt {
            Stmt::Return(_) => return Flow::Returns,
            Stmt::If(stmt) => match (flow_of(&stmt.then), flow_of(&stmt.otherwise)) {
                (Flow::Falls, Flow::Falls) => {}
                (Flow::Returns, Flow::Returns) => return Flow::Returns,
                (Flow::Maybe | Flow::Returns, _) | (_, Flow::Maybe | Flow::Returns) => flow = Flow::Maybe,
            },
            Stmt::Eval(_)
            | Stmt::Effect(..)
            | Stmt::Read(..)
            | Stmt::Assign(..)
            | Stmt::Alias(..)
            | Stmt::For(_)
            | Stmt::While(_)
            | Stmt::Reduce(_) => {}
        }
    }
    flow
}

/// The first `return` among statements, those in nested blocks included.
fn first_return(stmts: &[Stmt]) -> Option<SourceRange> {
    stmts.iter().find_map(|stmt| match stmt {
        Stmt::Return(place) => Some(*place),
        Stmt::If(stmt) => first_return(&stmt.then).or_else(|| first_return(&stmt.otherwise)),
        Stmt::Eval(_)
        | Stmt::Effect(..)
        | Stmt::Read(..)
        | Stmt::Assign(..)
        | Stmt::Alias(..)
        | Stmt::For(_)
        | Stmt::While(_)
        | Stmt::Reduce(_) => None,
    })
}

impl Pass<'_> {
    /// What follows an early return, one level deeper. After one too many the rest is left out: it is not compiled.
    fn deeper(&mut self, stmts: Vec<Stmt>, returns: Option<SourceRange>) -> (Vec<Stmt>, Flow) {
        if self.depth == MAX_RETURNS {
            self.excess = self.excess.or(returns);
            return (Vec::new(), Flow::Maybe);
        }
        self.depth += 1;
        let result = self.block(stmts);
        self.depth -= 1;
        result
    }

    fn bool(&mut self, value: bool, place: SourceRange) -> NodeId {
        self.nodes.push(Node { kind: Kind::Bool(value), ty: VTy::scalar(BOOL), dim: None, constexpr: true, place });
        NodeId(self.nodes.len() - 1)
    }

    /// Zero, or the start of the buffer, of the type that `like` has.
    fn zero(&mut self, like: NodeId, out: &mut Vec<Stmt>) -> NodeId {
        let Node { ty, place, .. } = self.nodes[like.0].clone();
        let mut node = |kind: Kind, ty: VTy, out: &mut Vec<Stmt>| {
            let evaluated = matches!(kind, Kind::Op(..));
            self.nodes.push(Node { kind, ty, dim: None, constexpr: false, place });
            let id = NodeId(self.nodes.len() - 1);
            out.extend(evaluated.then_some(Stmt::Eval(id)));
            id
        };
        let kind = match ty.elem {
            VElem::Data(_) => Kind::Op(VOp::Zero, Vec::new()),
            VElem::Ptr(param) => Kind::Param(param),
        };
        let scalar = node(kind, ty.with_shape(Vec::new()), out);
        if ty.is_scalar() {
            return scalar;
        }
        let splat = CreateOp::Splat { shape: ty.shape.clone() };
        node(Kind::Op(VOp::Ready(splat.into()), vec![scalar]), ty, out)
    }

    fn flag(&mut self, place: SourceRange) -> VarId {
        let variables = &mut *self.variables;
        let (flag, _) = *self.flag.get_or_insert_with(|| {
            *variables += 1;
            (VarId(*variables - 1), place)
        });
        flag
    }

    /// The block without returns, and whether control reaches its end.
    fn block(&mut self, stmts: Vec<Stmt>) -> (Vec<Stmt>, Flow) {
        let mut out = Vec::new();
        let mut rest = stmts.into_iter();
        while let Some(stmt) = rest.next() {
            match stmt {
                Stmt::Return(place) => {
                    let (flag, yes) = (self.flag(place), self.bool(true, place));
                    out.push(Stmt::Assign(flag, yes));
                    return (out, Flow::Returns);
                }
                Stmt::If(stmt) => match (flow_of(&stmt.then), flow_of(&stmt.otherwise)) {
                    (Flow::Falls, Flow::Falls) => out.push(Stmt::If(stmt)),
                    (Flow::Returns, Flow::Returns) => {
                        out.push(self.branches(*stmt));
                        return (out, Flow::Returns);
                    }
                    (Flow::Returns, _) => {
                        let (stmt, flow) = self.divert(*stmt, true, rest.collect());
                        out.push(stmt);
                        return (out, flow);
                    }
                    (_, Flow::Returns) => {
                        let (stmt, flow) = self.divert(*stmt, false, rest.collect());
                        out.push(stmt);
                        return (out, flow);
                    }
                    (Flow::Maybe, _) | (_, Flow::Maybe) => {
                        self.remember(*stmt, rest.collect(), &mut out);
                        return (out, Flow::Maybe);
                    }
                },
                other @ (Stmt::Eval(_)
                | Stmt::Effect(..)
                | Stmt::Read(..)
                | Stmt::Assign(..)
                | Stmt::Alias(..)
                | Stmt::For(_)
                | Stmt::While(_)
                | Stmt::Reduce(_)) => out.push(other),
            }
        }
        (out, Flow::Falls)
    }

    fn branches(&mut self, stmt: IfStmt) -> Stmt {
        let (then, _) = self.block(stmt.then);
        let (otherwise, _) = self.block(stmt.otherwise);
        Stmt::If(Box::new(IfStmt { then, otherwise, ..stmt }))
    }

    /// One branch returns: the rest moves into the other.
    fn divert(&mut self, stmt: IfStmt, then_returns: bool, rest: Vec<Stmt>) -> (Stmt, Flow) {
        let IfStmt { condition, then, otherwise, results, place } = stmt;
        let (closed, mut open) = if then_returns { (then, otherwise) } else { (otherwise, then) };
        for (slot, then, otherwise) in results {
            let value = if then_returns { otherwise } else { then };
            open.extend(value.map(|value| Stmt::Alias(slot, value)));
        }
        open.extend(rest);
        let returns = first_return(&closed);
        let (closed, _) = self.block(closed);
        let (open, flow) = self.deeper(open, returns);
        let (then, otherwise) = if then_returns { (closed, open) } else { (open, closed) };
        let flow = if flow == Flow::Returns { Flow::Returns } else { Flow::Maybe };
        (Stmt::If(Box::new(IfStmt { condition, then, otherwise, results: Vec::new(), place })), flow)
    }

    /// A branch returns on some paths: the rest runs only if it did not.
    fn remember(&mut self, mut stmt: IfStmt, rest: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let place = stmt.place;
        let mut after = Vec::new();
        for (slot, then, otherwise) in std::mem::take(&mut stmt.results) {
            *self.variables += 1;
            let var = VarId(*self.variables - 1);
            let zero = self.zero(slot, out);
            out.push(Stmt::Assign(var, zero));
            stmt.then.extend(then.map(|value| Stmt::Assign(var, value)));
            stmt.otherwise.extend(otherwise.map(|value| Stmt::Assign(var, value)));
            after.push(Stmt::Read(slot, var));
        }
        let returns = first_return(&stmt.then).or_else(|| first_return(&stmt.otherwise));
        out.push(self.branches(stmt));
        after.extend(rest);
        let (otherwise, _) = self.deeper(after, returns);
        if otherwise.is_empty() {
            return;
        }
        self.read = true;
        let flag = self.flag(place);
        self.nodes.push(Node { kind: Kind::Slot, ty: VTy::scalar(BOOL), dim: None, constexpr: false, place });
        let condition = NodeId(self.nodes.len() - 1);
        out.push(Stmt::Read(condition, flag));
        let then = Vec::new();
        out.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results: Vec::new(), place })));
    }
}
