//! `if`, `for` and `while`.

use std::collections::BTreeSet;

use kernel_core::ir::{BinaryOp, CmpOp, CreateOp, DType, Dim, Dt, ElementwiseOp, MemoryOp, Op, ParamKind, Unroll};
use syn::{Expr, ExprForLoop, ExprIf, ExprRange, ExprWhile, RangeLimits};

use super::block::Flow;
use super::macros::bool_scalar;
use super::{Binding, Checker, Context, Operand, Val};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::{SourceRange, bare};
use crate::tree::{ForStmt, IfStmt, Kind, LoopHints, NodeId, Stmt, VOp, WhileStmt};
use crate::types::{DtRef, VElem, VTy};

/// A range with its adapters.
struct Range<'e> {
    range: &'e ExprRange,
    step: Option<&'e Expr>,
    reverse: bool,
    /// `.rev().step_by(s)`: starts at the last number instead of ending at the first.
    from_end: bool,
}

impl Checker<'_> {
    /// An `if`; `want` says whether its value is used.
    pub(super) fn if_expr(&mut self, stmt: &ExprIf, want: bool) -> Flow {
        let mut place = SourceRange::of(&stmt.cond);
        place.start = stmt.if_token.span;
        let condition = match bare(&stmt.cond) {
            Expr::Assign(assign) => {
                let sign = SourceRange::at(assign.eq_token.span);
                Err(self.report_help(sign, "an assignment is no condition", Help::write(sign, "==")))
            }
            condition => self.operand(condition),
        };
        let condition = condition.and_then(|c| self.condition(c, "the condition of `if`").map(|()| c));
        let context = if want { Context::ValueBranch } else { Context::Branch };
        let end = stmt.then_branch.brace_token.span.close();
        let (then_flow, then) = self.nested(context, |c| c.block(&stmt.then_branch.stmts, want, end));
        let (else_flow, otherwise) = match &stmt.else_branch {
            Some((_, branch)) => self.nested(context, |c| c.else_branch(branch, want)),
            None if want => {
                let message = "an `if` without `else` has no value";
                let reported = self.report_help(place, message, "add an `else` branch");
                (Flow::Value(Err(reported)), Vec::new())
            }
            None => (Flow::Value(Ok(Val::Unit(place))), Vec::new()),
        };
        let condition = match condition {
            Ok(condition) => condition,
            Err(reported) => return Flow::Value(Err(reported)),
        };
        let mut results = Vec::new();
        let flow = match (then_flow, else_flow) {
            (Flow::Diverges, Flow::Diverges) => Flow::Diverges,
            (Flow::Value(a), Flow::Value(b)) => Flow::Value(match (a, b) {
                (Ok(a), Ok(b)) => self.merge(Some(&a), Some(&b), &mut results, place),
                (Err(reported), _) | (_, Err(reported)) => Err(reported),
            }),
            (Flow::Value(a), Flow::Diverges) => {
                Flow::Value(a.and_then(|a| self.merge(Some(&a), None, &mut results, place)))
            }
            (Flow::Diverges, Flow::Value(b)) => {
                Flow::Value(b.and_then(|b| self.merge(None, Some(&b), &mut results, place)))
            }
        };
        let condition = condition.node;
        self.stmts.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results, place })));
        flow
    }

    fn else_branch(&mut self, branch: &Expr, want: bool) -> Flow {
        match bare(branch) {
            Expr::If(stmt) => self.if_expr(stmt, want),
            Expr::Block(block) => self.block(&block.block.stmts, want, block.block.brace_token.span.close()),
            other => Flow::Value(self.expr(other)),
        }
    }

    /// The value of an `if` from those of its branches; a branch that ends the kernel has none.
    fn merge(
        &mut self,
        a: Option<&Val>,
        b: Option<&Val>,
        results: &mut Vec<(NodeId, Option<NodeId>, Option<NodeId>)>,
        place: SourceRange,
    ) -> Checked<Val> {
        match (a, b) {
            (Some(Val::Unit(_)), Some(Val::Unit(_)) | None) | (None, Some(Val::Unit(_)) | None) => Ok(Val::Unit(place)),
            (Some(Val::One(x)), Some(Val::One(y))) => {
                let (x, y) = (*x, *y);
                let ty = self.same_type(x, y)?;
                let slot = self.slot(ty, place);
                results.push((slot, Some(x.node), Some(y.node)));
                Ok(Val::One(Operand { node: slot, place }))
            }
            (Some(Val::One(one)), None) | (None, Some(Val::One(one))) => {
                let slot = self.slot(self.ty(*one).clone(), place);
                results.push((slot, a.is_some().then_some(one.node), b.is_some().then_some(one.node)));
                Ok(Val::One(Operand { node: slot, place }))
            }
            (Some(Val::Tuple(xs, _)), Some(Val::Tuple(ys, _))) if xs.len() == ys.len() => {
                let parts: Vec<_> =
                    xs.iter().zip(ys).map(|(x, y)| self.merge(Some(x), Some(y), results, place)).collect();
                Ok(Val::Tuple(parts.into_iter().collect::<Checked<_>>()?, place))
            }
            (Some(Val::Tuple(xs, _)), None) => {
                let parts: Vec<_> = xs.iter().map(|x| self.merge(Some(x), None, results, place)).collect();
                Ok(Val::Tuple(parts.into_iter().collect::<Checked<_>>()?, place))
            }
            (None, Some(Val::Tuple(ys, _))) => {
                let parts: Vec<_> = ys.iter().map(|y| self.merge(None, Some(y), results, place)).collect();
                Ok(Val::Tuple(parts.into_iter().collect::<Checked<_>>()?, place))
            }
            (Some(_), Some(other)) => {
                let message = "the branches give different numbers of values";
                Err(self.report_help(other.place(), message, "both branches must give the same"))
            }
        }
    }

    /// The type that both branches give.
    fn same_type(&mut self, x: Operand, y: Operand) -> Checked<VTy> {
        let (a, b) = (self.ty(x).clone(), self.ty(y).clone());
        let what = "the value of an `if`";
        let agrees = self.same_shape(&a.shape, &b.shape)
            && match (a.elem, b.elem) {
                (VElem::Ptr(p), VElem::Ptr(q)) => p == q,
                (VElem::Data(_), VElem::Data(_)) => true,
                (VElem::Ptr(_), VElem::Data(_)) | (VElem::Data(_), VElem::Ptr(_)) => false,
            };
        if let (VElem::Ptr(p), VElem::Ptr(q)) = (a.elem, b.elem)
            && p != q
        {
            let (p, q) = (self.func.param(p).name.clone(), self.func.param(q).name.clone());
            let message = format!("the branches give pointers into two buffers, `{p}` and `{q}`");
            return Err(self.report_help(y.place, message, "load in the branches, and give the loaded values"));
        }
        if !agrees {
            let message = format!("the branches give {} and {}", self.show_ty(&a), self.show_ty(&b));
            let help = if a.is_scalar() != b.is_scalar() {
                "make both tiles: `full([N], value)`"
            } else {
                "both branches must give one type"
            };
            return Err(self.report_help(y.place, message, help));
        }
        if matches!(a.elem, VElem::Data(_)) {
            self.unify(x, y, what, y.place)?;
        }
        Ok(a)
    }

    /// `while condition { .. }`
    pub(super) fn while_loop(&mut self, stmt: &ExprWhile) {
        let place = SourceRange { start: stmt.while_token.span, end: SourceRange::of(&stmt.cond).end };
        if let Some(label) = &stmt.label {
            self.report_help(SourceRange::of_tokens(label), "loop labels are not supported in kernels", "remove it");
        }
        if self.contexts.contains(&Context::Closure) {
            self.report(place, "loops in a closure are not supported");
        }
        let (condition, head) = self.nested(Context::Head, |c| {
            let operand = c.operand(&stmt.cond)?;
            c.condition(operand, "the condition of `while`").map(|()| operand.node)
        });
        let end = stmt.body.brace_token.span.close();
        let (_, body) = self.nested(Context::Loop, |c| c.block(&stmt.body.stmts, false, end));
        let Ok(condition) = condition else { return };
        self.stmts.push(Stmt::While(Box::new(WhileStmt { head, condition, body, place })));
    }

    /// `for i in (lo..hi).step_by(s) { .. }`
    pub(super) fn for_loop(&mut self, stmt: &ExprForLoop) {
        let hints = self.loop_hints(&stmt.attrs);
        let place = SourceRange { start: stmt.for_token.span, end: SourceRange::of(&stmt.expr).end };
        if let Some(label) = &stmt.label {
            self.report_help(SourceRange::of_tokens(label), "loop labels are not supported in kernels", "remove it");
        }
        if self.contexts.contains(&Context::Closure) {
            self.report(place, "loops in a closure are not supported");
        }
        let range = self.range(&stmt.expr).and_then(|r| self.bounds(&r).map(|b| (b, r.reverse, r.from_end)));
        if let (Ok((bounds, ..)), Unroll::Full) = (&range, hints.unroll) {
            self.unrollable(bounds);
        }
        let end = stmt.body.brace_token.span.close();
        let (bounds, index) = match &range {
            Ok(([lo, hi, step], _, from_end)) => {
                let ty = self.ty(*lo).clone();
                let pat_place = SourceRange::of_pat(&stmt.pat);
                let bounds =
                    if *from_end { self.count_down([*lo, *hi, *step], place) } else { [lo.node, hi.node, step.node] };
                let own = self.node(bounds[0]).ty.clone();
                let slot = self.slot(own, pat_place);
                (Some((bounds, slot, *hi, ty)), Ok(slot))
            }
            Err(reported) => (None, Err(*reported)),
        };
        let ((), body) = self.nested(Context::Loop, |c| {
            let value = match (&bounds, index) {
                (Some((_, slot, hi, ty)), Ok(_)) if matches!(range, Ok((_, _, true))) => {
                    Ok(c.index_from_end(*slot, *hi, ty, place))
                }
                (_, index) => index,
            };
            c.bind_index(&stmt.pat, value);
            c.block(&stmt.body.stmts, false, end);
        });
        let (Some(([lo, hi, step], index, ..)), Ok((_, reverse, _))) = (bounds, range) else { return };
        self.stmts.push(Stmt::For(Box::new(ForStmt { index, lo, hi, step, body, reverse, hints, place })));
    }

    /// Refuses `#[unroll]` over what only the launch knows. Loops inside may depend on counters of unrolled ones.
    fn unrollable(&mut self, bounds: &[Operand; 3]) {
        if let Some(operand) = bounds.iter().find(|o| self.is_launch_value(o.node)) {
            let message = "`#[unroll]` needs to know how often the loop runs, but that depends on the launch";
            self.report_help(operand.place, message, "make bounds and step constexprs, or remove `#[unroll]`");
        }
    }

    /// Whether a value is computed from an argument, the grid or memory, whatever the constexprs are.
    fn is_launch_value(&self, node: NodeId) -> bool {
        let (mut stack, mut seen) = (vec![node], BTreeSet::new());
        while let Some(id) = stack.pop() {
            if !seen.insert(id.0) {
                continue;
            }
            match &self.node(id).kind {
                Kind::Param(param) => {
                    if matches!(self.func.param(*param).kind, ParamKind::Scalar(_)) {
                        return true;
                    }
                }
                Kind::Op(VOp::Cast | VOp::Bitcast, args) => stack.extend(args),
                Kind::Op(VOp::Ready(op), args) => {
                    let grid = matches!(op, Op::Create(CreateOp::ProgramId { .. } | CreateOp::NumPrograms { .. }));
                    if grid || op.buffer_access().is_some() || *op == Op::Memory(MemoryOp::AddPtr) {
                        return true;
                    }
                    // Which of its operands a selection gives, a constexpr may decide.
                    if op.is_elementwise() && *op != Op::Elementwise(ElementwiseOp::Select) {
                        stack.extend(args);
                    }
                }
                Kind::Op(VOp::Limit(_) | VOp::Zero, _) => {}
                // Variables may hold what is known.
                Kind::Slot => {}
                Kind::Int(_)
                | Kind::BigInt(_)
                | Kind::Float(..)
                | Kind::Bool(_)
                | Kind::ConstBool(_)
                | Kind::Constant(_) => {}
            }
        }
        false
    }

    fn bind_index(&mut self, pat: &syn::Pat, value: Checked<NodeId>) {
        match pat {
            syn::Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() && p.mutability.is_none() => {
                let binding = value.map_or(Binding::Poison, Binding::Value);
                self.bind(&p.ident.to_string(), binding);
            }
            syn::Pat::Wild(_) => {}
            other => {
                let help = "write `for i in ..`, and `let mut j = i;` for a copy that changes";
                let reported = self.report_help(SourceRange::of_pat(other), "the variable of a loop is a name", help);
                if matches!(other, syn::Pat::Tuple(_) | syn::Pat::Ident(_)) {
                    self.bind_pattern(other, Err(reported));
                }
            }
        }
    }

    fn loop_hints(&mut self, attrs: &[syn::Attribute]) -> LoopHints {
        let mut hints = LoopHints { unroll: Unroll::Auto, stages: 0, warp_specialize: false };
        for attr in attrs {
            let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
            let place = SourceRange::of_tokens(attr);
            let plain = matches!(attr.meta, syn::Meta::Path(_));
            match (name.as_str(), plain) {
                ("unroll", true) => hints.unroll = Unroll::Full,
                ("warp_specialize", true) => hints.warp_specialize = true,
                ("unroll" | "warp_specialize", false) => {
                    self.report_help(place, format!("`{name}` takes no arguments"), format!("write `#[{name}]`"));
                }
                ("stages", _) => {
                    let stages = attr.parse_args::<syn::LitInt>().ok().and_then(|n| n.base10_parse::<u8>().ok());
                    match stages {
                        Some(n @ 1..=16) => hints.stages = n,
                        Some(_) | None => {
                            self.report_help(place, "`stages` takes a number from 1 to 16", "write `#[stages(3)]`");
                        }
                    }
                }
                // What else may stand on a loop has been checked.
                _ => {}
            }
        }
        hints
    }

    fn range<'e>(&mut self, expr: &'e Expr) -> Checked<Range<'e>> {
        match expr {
            Expr::Paren(paren) => self.range(&paren.expr),
            Expr::Group(group) => self.range(&group.expr),
            Expr::Range(range) => Ok(Range { range, step: None, reverse: false, from_end: false }),
            Expr::MethodCall(call) if call.method == "rev" && call.args.is_empty() => {
                let inner = self.range(&call.receiver)?;
                if inner.from_end {
                    let help = "write `(lo..hi).rev()` or `(lo..hi).step_by(s).rev()`";
                    return Err(self.report_help(
                        SourceRange::of(expr),
                        "this order of adapters is not supported",
                        help,
                    ));
                }
                Ok(Range { reverse: !inner.reverse, ..inner })
            }
            Expr::MethodCall(call) if call.method == "step_by" && call.args.len() == 1 => {
                let inner = self.range(&call.receiver)?;
                if inner.step.is_some() {
                    let place = SourceRange::at(call.method.span());
                    return Err(self.report_help(place, "a range has one step", "multiply the two"));
                }
                Ok(Range { step: call.args.first(), from_end: inner.reverse, reverse: false, ..inner })
            }
            other => {
                let help = "write `for i in lo..hi`, `(lo..hi).step_by(s)` or `(lo..hi).rev()`";
                Err(self.report_help(SourceRange::of(other), "a loop runs over a range of integers", help))
            }
        }
    }

    /// `lo..hi + 1`
    fn exclusive(&self, lo: &Expr, hi: &Expr) -> Help {
        let (lo, hi) = (SourceRange::of(lo), SourceRange::of(hi));
        match (self.source.text(lo), self.source.operand(hi)) {
            (Some(text), last) if last != "(..)" => {
                Help::write(SourceRange { start: lo.start, end: hi.end }, format!("{text}..{last} + 1"))
            }
            _ => "write `lo..hi + 1`".into(),
        }
    }

    /// lo, hi and step, of one integer dtype.
    fn bounds(&mut self, range: &Range<'_>) -> Checked<[Operand; 3]> {
        let place = SourceRange::of_tokens(range.range);
        let (Some(lo), Some(hi)) = (&range.range.start, &range.range.end) else {
            return Err(self.report_help(place, "a loop needs both ends of its range", "write `lo..hi`"));
        };
        if let RangeLimits::Closed(token) = range.range.limits {
            let place = SourceRange { start: token.spans[0], end: token.spans[2] };
            return Err(self.report_help(place, "`..=` is not supported in kernels", self.exclusive(lo, hi)));
        }
        let (lo, hi) = (self.operand(lo), self.operand(hi));
        let step = match range.step {
            Some(step) => self.operand(step),
            None => {
                let node = self.int(Dim::Const(1), place);
                Ok(Operand { node, place })
            }
        };
        let bounds = [lo?, hi?, step?];
        for operand in bounds {
            if !self.ty(operand).is_scalar() {
                let message = format!("the bounds of a loop are integers, found {}", self.show(operand));
                return Err(self.report(operand.place, message));
            }
            let int = kernel_core::ir::infer::Needs::Bound(kernel_core::ir::DTypeBound::Int);
            self.need(operand, int, "the range of a loop")?;
        }
        let step_value = self.node(bounds[2].node).dim.as_ref().and_then(Dim::as_const);
        if step_value.is_some_and(|s| s <= 0) {
            let help = "to count down write `(lo..hi).rev()`";
            return Err(self.report_help(bounds[2].place, "the step of a range is positive", help));
        }
        self.unify(bounds[0], bounds[1], "a range", place)?;
        self.unify(bounds[1], bounds[2], "a range", bounds[2].place)?;
        Ok(bounds)
    }

    /// The bounds of a loop that counts how far it is from the end, in unsigned numbers, which hold every distance.
    fn count_down(&mut self, [lo, hi, step]: [Operand; 3], place: SourceRange) -> [NodeId; 3] {
        let VElem::Data(dt) = self.ty(lo).elem else { return [lo.node, hi.node, step.node] };
        let settled = self.types.settled(dt);
        // What is still open is i32 from here on.
        let _ = self.types.unify(dt, DtRef::Fixed(settled), &self.func);
        let zero = self.typed_int(0, dt, place);
        let scalar = VTy::scalar(dt);
        let forward = self.op(Op::compare(CmpOp::Gt), vec![hi.node, lo.node], bool_scalar(), place);
        let positive = self.op(Op::compare(CmpOp::Gt), vec![step.node, zero], bool_scalar(), place);
        let runs = self.op(Op::binary(BinaryOp::And), vec![forward, positive], bool_scalar(), place);
        let distance = self.op(Op::binary(BinaryOp::Sub), vec![hi.node, lo.node], scalar.clone(), place);
        let count = self.op(ElementwiseOp::Select, vec![runs, distance, zero], scalar, place);
        let unsigned = unsigned_of(settled);
        let zero = self.typed_int(0, DtRef::Fixed(unsigned), place);
        let ty = VTy::scalar(DtRef::Fixed(unsigned));
        let [count, step] = [count, step.node].map(|node| self.bits(node, settled, unsigned, &ty, place));
        [zero, count, step]
    }

    fn bits(&mut self, node: NodeId, from: Dt, to: Dt, ty: &VTy, place: SourceRange) -> NodeId {
        if from == to { node } else { self.eval(VOp::Bitcast, vec![node], ty.clone(), place) }
    }

    /// The loop variable from its distance to the end: `hi - 1 - distance`.
    fn index_from_end(&mut self, distance: NodeId, hi: Operand, ty: &VTy, place: SourceRange) -> NodeId {
        let VElem::Data(dt) = ty.elem else { return distance };
        let settled = self.types.settled(dt);
        let distance = self.bits(distance, unsigned_of(settled), settled, ty, place);
        let one = self.typed_int(1, dt, place);
        let last = self.op(Op::binary(BinaryOp::Sub), vec![hi.node, one], ty.clone(), place);
        self.op(Op::binary(BinaryOp::Sub), vec![last, distance], ty.clone(), place)
    }
}

/// The unsigned dtype of the same width. Of a dtype parameter nothing is known: it stays as it is.
fn unsigned_of(dt: Dt) -> Dt {
    match dt {
        Dt::Known(DType::I8) => Dt::Known(DType::U8),
        Dt::Known(DType::I16) => Dt::Known(DType::U16),
        Dt::Known(DType::I32) => Dt::Known(DType::U32),
        Dt::Known(DType::I64) => Dt::Known(DType::U64),
        other => other,
    }
}
