//! Jumps become structure: `return`, `break` and `continue`, and `loop`.
//!
//! The IR has none, so what follows a block that is left moves to where it is not:
//!
//! ```text
//! if n < 0 { return; }           if n < 0 { } else {
//! store(..);              =>         store(..);
//!                                }
//! ```
//!
//! Where a branch is left on some of its own paths only, a variable remembers it:
//!
//! ```text
//! if a { if b { return; } f(); }          left = false;
//! g();                            =>      if a { if b { left = true; } else { f(); } }
//!                                         if left { } else { g(); }
//! ```
//!
//! If such an `if` gives a value, a variable carries it, which is zero where the branch has been left.
//!
//! The body of a loop is left by the same means, and each iteration begins with `left = false`. A second variable says
//! whether the loop still runs, and is part of its condition:
//!
//! ```text
//! while c(i) {                            runs = true;
//!     if a(i) { continue; }       =>      while if runs { c(i) } else { false } {
//!     if b(i) { break; }                      if a(i) { } else {
//!     f(i);                                       if b(i) { runs = false; } else { f(i); }
//! }                                           }
//!                                         }
//! ```
//!
//! A jump out of several loops sets the variables of each. `ranges` has the loops over ranges. Loops that no jump leaves
//! stay as they are.
//!
//! `return` in an inlined function leaves the statements of the function only, by the same means, and assigns what the
//! function gives to variables, which are read behind them.

mod flow;
mod ranges;

use kernel_core::ir::{CreateOp, DType};

use crate::error::Errors;
use crate::source_range::SourceRange;
use crate::tree::{BodyStmt, ForStmt, IfStmt, Jump, Kind, LoopId, Node, NodeId, Stmt, VOp, VarId, WhileStmt};
use crate::types::{BOOL, Types, VElem, VTy};
use flow::{Flow, body_flow, first_beyond, first_jump, flow_of, forget, while_flow};

/// Early exits one after the other: what follows each nests one level deeper.
const MAX_JUMPS: usize = 100;

/// The body of the kernel, of a loop or of an inlined function.
#[derive(Default)]
struct Frame {
    /// The loop or function.
    id: Option<LoopId>,
    /// The variable that remembers that the body has been left, once one is needed.
    left: Option<(VarId, SourceRange)>,
    /// Whether something reads it.
    read: bool,
    /// The variable that says whether the loop still runs, once something leaves it.
    runs: Option<VarId>,
}

struct Pass<'a> {
    nodes: &'a mut Vec<Node>,
    variables: &'a mut usize,
    types: &'a Types,
    errors: &'a mut Errors,
    /// The bodies around the place; that of the kernel comes first.
    frames: Vec<Frame>,
    /// Early exits before this place, each of which it is nested in.
    depth: usize,
    /// The jump that is one too many.
    excess: Option<(Jump, SourceRange)>,
}

/// Removes every [`Stmt::Jump`], and every `for` that the IR has not. Refuses more early exits in a row than it can nest.
pub fn eliminate(
    stmts: Vec<Stmt>,
    nodes: &mut Vec<Node>,
    variables: &mut usize,
    types: &Types,
    errors: &mut Errors,
) -> Vec<Stmt> {
    let frames = Vec::new();
    let mut pass = Pass { nodes, variables, types, errors, frames, depth: 0, excess: None };
    let (stmts, _) = pass.frame(None, stmts);
    if let Some((jump, place)) = pass.excess {
        let (what, help) = match jump {
            Jump::Return => {
                ("a kernel may return early", "join conditions: `if a || b { return; }`, or mask what follows")
            }
            Jump::End(_) => ("a function may return early", "join conditions: `if a || b { return c; }`"),
            Jump::Break(_) => ("a loop may `break`", "join conditions: `if a || b { break; }`"),
            Jump::Continue(_) => ("a loop may `continue`", "join conditions: `if a || b { continue; }`"),
        };
        let message = format!("{what} {MAX_JUMPS} times in a row, and this is once more");
        pass.errors.report_help(place, message, help);
    }
    stmts
}

impl Pass<'_> {
    /// The body of the kernel, of a loop or of a function, and the variable that says whether the loop still runs.
    fn frame(&mut self, id: Option<LoopId>, stmts: Vec<Stmt>) -> (Vec<Stmt>, Option<VarId>) {
        self.frames.push(Frame { id, ..Frame::default() });
        let (mut stmts, _) = self.block(stmts);
        let frame = self.frames.pop().unwrap_or_default();
        match (frame.left, frame.read) {
            (Some((left, place)), true) => {
                let no = self.bool(false, place);
                stmts.insert(0, Stmt::Assign(left, no));
            }
            (Some((left, _)), false) => forget(&mut stmts, left),
            (None, _) => {}
        }
        (stmts, frame.runs)
    }

    /// What follows an early exit, one level deeper. After one too many the rest is left out: it is not compiled.
    fn deeper(&mut self, stmts: Vec<Stmt>, exit: (Jump, SourceRange)) -> (Vec<Stmt>, Flow) {
        if self.depth == MAX_JUMPS {
            self.excess = self.excess.or(Some(exit));
            return (Vec::new(), Flow::Maybe);
        }
        self.depth += 1;
        let result = self.block(stmts);
        self.depth -= 1;
        result
    }

    fn node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    fn bool(&mut self, value: bool, place: SourceRange) -> NodeId {
        self.node(Node { kind: Kind::Bool(value), ty: VTy::scalar(BOOL), dim: None, constexpr: true, place })
    }

    fn variable(&mut self) -> VarId {
        *self.variables += 1;
        VarId(*self.variables - 1)
    }

    /// The value of a variable of dtype `bool`.
    fn read(&mut self, var: VarId, place: SourceRange, out: &mut Vec<Stmt>) -> NodeId {
        let kind = Kind::Slot;
        let slot = self.node(Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: false, place });
        out.push(Stmt::Read(slot, var));
        slot
    }

    /// Zero, or the start of the buffer, of the type that `like` has.
    fn zero(&mut self, like: NodeId, out: &mut Vec<Stmt>) -> NodeId {
        let Node { ty, place, .. } = self.nodes[like.0].clone();
        let mut node = |kind: Kind, ty: VTy, out: &mut Vec<Stmt>| {
            let evaluated = matches!(kind, Kind::Op(..));
            let id = self.node(Node { kind, ty, dim: None, constexpr: false, place });
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

    /// The variable that remembers that a body has been left.
    fn left(&mut self, frame: usize, place: SourceRange) -> VarId {
        if let Some((left, _)) = self.frames[frame].left {
            return left;
        }
        let left = self.variable();
        self.frames[frame].left = Some((left, place));
        left
    }

    /// Leaves the bodies up to the target of a jump, and stops the loops that do not go on.
    fn jump(&mut self, jump: Jump, place: SourceRange, out: &mut Vec<Stmt>) {
        let frame_of = |id: LoopId| self.frames.iter().position(|frame| frame.id == Some(id)).unwrap_or(0);
        let (outermost, stopped) = match jump {
            Jump::Return => (0, 1),
            Jump::Break(id) => (frame_of(id), frame_of(id)),
            Jump::End(id) | Jump::Continue(id) => (frame_of(id), frame_of(id) + 1),
        };
        for frame in outermost..self.frames.len() {
            let (left, yes) = (self.left(frame, place), self.bool(true, place));
            out.push(Stmt::Assign(left, yes));
        }
        for frame in stopped..self.frames.len() {
            let runs = match self.frames[frame].runs {
                Some(runs) => runs,
                None => self.variable(),
            };
            self.frames[frame].runs = Some(runs);
            let no = self.bool(false, place);
            out.push(Stmt::Assign(runs, no));
        }
    }

    /// The block without jumps, and whether control reaches its end.
    fn block(&mut self, stmts: Vec<Stmt>) -> (Vec<Stmt>, Flow) {
        let mut out = Vec::new();
        let mut rest = stmts.into_iter();
        while let Some(stmt) = rest.next() {
            match stmt {
                Stmt::Jump(jump, place) => {
                    self.jump(jump, place, &mut out);
                    return (out, Flow::Leaves);
                }
                Stmt::If(stmt) => match (flow_of(&stmt.then), flow_of(&stmt.otherwise)) {
                    (Flow::Falls, Flow::Falls) => out.push(self.branches(*stmt)),
                    (Flow::Leaves, Flow::Leaves) => {
                        out.push(self.branches(*stmt));
                        return (out, Flow::Leaves);
                    }
                    (Flow::Leaves, _) => {
                        let (stmt, flow) = self.divert(*stmt, true, rest.collect());
                        out.push(stmt);
                        return (out, flow);
                    }
                    (_, Flow::Leaves) => {
                        let (stmt, flow) = self.divert(*stmt, false, rest.collect());
                        out.push(stmt);
                        return (out, flow);
                    }
                    (Flow::Maybe, _) | (_, Flow::Maybe) => {
                        self.remember(*stmt, rest.collect(), &mut out);
                        return (out, Flow::Maybe);
                    }
                },
                Stmt::For(stmt) => {
                    let (place, exit) = (stmt.place, first_beyond(&stmt.body, stmt.id));
                    self.for_loop(*stmt, &mut out);
                    if let Some(exit) = exit {
                        self.resume(rest.collect(), place, exit, &mut out);
                        return (out, Flow::Maybe);
                    }
                }
                Stmt::While(stmt) => {
                    let (place, flow, id) = (stmt.place, while_flow(&stmt), stmt.id);
                    let exit = first_beyond(&stmt.head, id).or_else(|| first_beyond(&stmt.body, id));
                    let mut after: Vec<Stmt> = stmt.results.iter().map(|(slot, var)| Stmt::Read(*slot, *var)).collect();
                    self.while_loop(*stmt, &mut out);
                    match (flow, exit) {
                        (Flow::Leaves, _) => return (out, Flow::Leaves),
                        (Flow::Falls | Flow::Maybe, None) => out.append(&mut after),
                        (Flow::Falls | Flow::Maybe, Some(exit)) => {
                            after.extend(rest);
                            self.resume(after, place, exit, &mut out);
                            return (out, Flow::Maybe);
                        }
                    }
                }
                Stmt::Body(stmt) => {
                    let leaves = body_flow(&stmt) == Flow::Leaves;
                    self.inlined_body(*stmt, &mut out);
                    if leaves {
                        return (out, Flow::Leaves);
                    }
                }
                Stmt::Reduce(mut stmt) => {
                    // Functions that return early are called in closures too; nothing else jumps there.
                    (stmt.body, _) = self.block(std::mem::take(&mut stmt.body));
                    out.push(Stmt::Reduce(stmt));
                }
                // Its jumps stay in it.
                Stmt::Map(mut stmt) => {
                    (stmt.body, _) = self.frame(None, std::mem::take(&mut stmt.body));
                    out.push(Stmt::Map(stmt));
                }
                other @ (Stmt::Eval(_) | Stmt::Effect(..) | Stmt::Read(..) | Stmt::Assign(..) | Stmt::Alias(..)) => {
                    out.push(other);
                }
            }
        }
        (out, Flow::Falls)
    }

    fn branches(&mut self, stmt: IfStmt) -> Stmt {
        let (then, _) = self.block(stmt.then);
        let (otherwise, _) = self.block(stmt.otherwise);
        Stmt::If(Box::new(IfStmt { then, otherwise, ..stmt }))
    }

    /// One branch leaves: the rest moves into the other.
    fn divert(&mut self, stmt: IfStmt, then_leaves: bool, rest: Vec<Stmt>) -> (Stmt, Flow) {
        let IfStmt { condition, then, otherwise, results, place } = stmt;
        let (closed, mut open) = if then_leaves { (then, otherwise) } else { (otherwise, then) };
        for (slot, then, otherwise) in results {
            let value = if then_leaves { otherwise } else { then };
            open.extend(value.map(|value| Stmt::Alias(slot, value)));
        }
        open.extend(rest);
        // A branch that never ends has no jump.
        let exit = first_jump(&closed).unwrap_or((Jump::Return, place));
        let (closed, _) = self.block(closed);
        let (open, flow) = self.deeper(open, exit);
        let (then, otherwise) = if then_leaves { (closed, open) } else { (open, closed) };
        let flow = if flow == Flow::Leaves { Flow::Leaves } else { Flow::Maybe };
        (Stmt::If(Box::new(IfStmt { condition, then, otherwise, results: Vec::new(), place })), flow)
    }

    /// A branch leaves on some paths: the rest runs only if it did not.
    fn remember(&mut self, mut stmt: IfStmt, rest: Vec<Stmt>, out: &mut Vec<Stmt>) {
        let place = stmt.place;
        let mut after = Vec::new();
        for (slot, then, otherwise) in std::mem::take(&mut stmt.results) {
            let var = self.variable();
            let zero = self.zero(slot, out);
            out.push(Stmt::Assign(var, zero));
            stmt.then.extend(then.map(|value| Stmt::Assign(var, value)));
            stmt.otherwise.extend(otherwise.map(|value| Stmt::Assign(var, value)));
            after.push(Stmt::Read(slot, var));
        }
        let exit = first_jump(&stmt.then).or_else(|| first_jump(&stmt.otherwise)).unwrap_or((Jump::Return, place));
        out.push(self.branches(stmt));
        after.extend(rest);
        self.resume(after, place, exit, out);
    }

    /// What follows a statement that may leave the body: it runs only if that did not.
    fn resume(&mut self, rest: Vec<Stmt>, place: SourceRange, exit: (Jump, SourceRange), out: &mut Vec<Stmt>) {
        let (otherwise, _) = self.deeper(rest, exit);
        if otherwise.is_empty() {
            return;
        }
        let innermost = self.frames.len() - 1;
        self.frames[innermost].read = true;
        let left = self.left(innermost, place);
        let condition = self.read(left, place, out);
        let then = Vec::new();
        out.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results: Vec::new(), place })));
    }

    /// The statements of an inlined function, and its value.
    fn inlined_body(&mut self, stmt: BodyStmt, out: &mut Vec<Stmt>) {
        for (slot, var) in &stmt.results {
            let zero = self.zero(*slot, out);
            out.push(Stmt::Assign(*var, zero));
        }
        let (body, _) = self.frame(Some(stmt.id), stmt.body);
        out.extend(body);
        out.extend(stmt.results.iter().map(|(slot, var)| Stmt::Read(*slot, *var)));
    }

    // Loops

    fn for_loop(&mut self, mut stmt: ForStmt, out: &mut Vec<Stmt>) {
        let (body, runs) = self.frame(Some(stmt.id), std::mem::take(&mut stmt.body));
        stmt.body = body;
        self.range(stmt, runs, out);
    }

    fn while_loop(&mut self, mut stmt: WhileStmt, out: &mut Vec<Stmt>) {
        let place = stmt.place;
        for (slot, var) in std::mem::take(&mut stmt.results) {
            let zero = self.zero(slot, out);
            out.push(Stmt::Assign(var, zero));
        }
        if stmt.active_head {
            self.move_head(&mut stmt);
        }
        let (mut head, _) = self.block(std::mem::take(&mut stmt.head));
        let (body, runs) = self.frame(Some(stmt.id), stmt.body);
        let mut condition = stmt.condition;
        if let Some(runs) = runs {
            let yes = self.bool(true, place);
            out.push(Stmt::Assign(runs, yes));
            let mut outer = Vec::new();
            let still = self.read(runs, place, &mut outer);
            if stmt.endless {
                condition = still;
            } else {
                let (no, slot) = (self.bool(false, place), self.slot(DType::Bool.into(), place));
                let results = vec![(slot, Some(condition), Some(no))];
                let otherwise = Vec::new();
                outer.push(Stmt::If(Box::new(IfStmt { condition: still, then: head, otherwise, results, place })));
                condition = slot;
            }
            head = outer;
        }
        out.push(Stmt::While(Box::new(WhileStmt { head, condition, body, results: Vec::new(), ..stmt })));
    }

    /// `while { i += 1; i < n } { body }` as `loop { i += 1; if i < n { body } else { break; } }`
    fn move_head(&mut self, stmt: &mut WhileStmt) {
        let place = stmt.place;
        let yes = self.bool(true, place);
        let condition = std::mem::replace(&mut stmt.condition, yes);
        let then = std::mem::take(&mut stmt.body);
        let otherwise = vec![Stmt::Jump(Jump::Break(stmt.id), place)];
        stmt.body = std::mem::take(&mut stmt.head);
        stmt.body.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results: Vec::new(), place })));
        stmt.endless = true;
    }
}
