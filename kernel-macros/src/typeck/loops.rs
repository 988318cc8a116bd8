//! `for`, `while` and `loop`.

use std::collections::BTreeSet;

use kernel_core::ir::{
    BinaryOp, CmpOp, ConstId, ConstOrigin, ConstParam, ConstTy, CreateOp, Dim, Dt, ElementwiseOp, IntTy, MemoryOp, Op,
    ParamKind, Unroll,
};
use syn::{Expr, ExprForLoop, ExprLoop, ExprRange, ExprWhile, Label, RangeLimits};

use super::block::Flow;
use super::jump::LoopScope;
use super::macros::bool_scalar;
use super::{Binding, Checker, Constexpr, Context, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::source_range::SourceRange;
use crate::tree::{ForStmt, Kind, LoopId, Node, NodeId, Stmt, VOp, WhileStmt};
use crate::types::{BOOL, DtRef, VElem, VTy, distance_of, unsigned_of};

/// A range with its adapters.
struct Range<'e> {
    range: &'e ExprRange,
    step: Option<&'e Expr>,
    reverse: bool,
    /// `.rev().step_by(s)`: starts at the last number instead of ending at the first.
    from_end: bool,
}

impl Range<'_> {
    /// `lo..=hi`
    fn inclusive(&self) -> bool {
        matches!(self.range.limits, RangeLimits::Closed(_))
    }
}

/// What the head of a `for` says.
struct Counter {
    /// lo, hi and step as they are written.
    written: [Operand; 3],
    /// Those of the loop.
    bounds: [NodeId; 3],
    /// The slot of the loop's counter.
    slot: NodeId,
    /// The constexpr that counts, if the loop is unrolled, and what the loop variable is in it.
    constexpr: Option<(ConstId, Dim)>,
}

impl Checker<'_> {
    /// Enters a loop. Its scope ends with [`Checker::leave_loop`].
    fn enter_loop(&mut self, label: Option<&Label>, takes_value: bool, place: SourceRange) -> LoopId {
        if self.contexts.contains(&Context::Closure) {
            self.report(place, "loops in a closure are not supported");
        }
        let id = LoopId(self.loop_count);
        self.loop_count += 1;
        let label = label.map(|label| label.name.ident.to_string());
        self.loops.push(LoopScope { id, label, takes_value, ..LoopScope::default() });
        id
    }

    /// What the loop has been found to do.
    fn leave_loop(&mut self) -> LoopScope {
        self.loops.pop().unwrap_or_default()
    }

    /// `while condition { .. }`
    pub(super) fn while_loop(&mut self, stmt: &ExprWhile) {
        let place = SourceRange::between(stmt.while_token.span, SourceRange::of(&stmt.cond).end);
        let id = self.enter_loop(stmt.label.as_ref(), false, place);
        let around = std::mem::replace(&mut self.active_head, false);
        let (condition, head) = self.nested(Context::Head, |c| {
            let operand = c.operand(&stmt.cond)?;
            c.condition(operand, "the condition of `while`").map(|()| operand.node)
        });
        let active_head = self.active_head;
        self.active_head |= around;
        let end = stmt.body.brace_token.span.close();
        let (_, body) = self.nested(Context::Loop, |c| {
            c.bind_refused(&stmt.cond);
            c.block(&stmt.body.stmts, false, end)
        });
        self.leave_loop();
        let Ok(condition) = condition else { return };
        let (endless, results) = (false, Vec::new());
        self.stmts.push(Stmt::While(Box::new(WhileStmt {
            id,
            head,
            condition,
            endless,
            active_head,
            body,
            results,
            place,
        })));
    }

    /// `loop { .. }`, which is left by jumps, and gives what `break` gives.
    pub(super) fn endless_loop(&mut self, stmt: &ExprLoop) -> Flow {
        let place = SourceRange::at(stmt.loop_token.span);
        let id = self.enter_loop(stmt.label.as_ref(), true, place);
        // What follows may never run.
        self.may_return = true;
        self.active_head |= self.contexts.contains(&Context::Head);
        let end = stmt.body.brace_token.span.close();
        let (_, body) = self.nested(Context::Loop, |c| c.block(&stmt.body.stmts, false, end));
        let LoopScope { breaks, value, results, .. } = self.leave_loop();
        let kind = Kind::Bool(true);
        let condition = self.new_node(Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: true, place });
        let (head, endless, active_head) = (Vec::new(), true, false);
        self.stmts.push(Stmt::While(Box::new(WhileStmt {
            id,
            head,
            condition,
            endless,
            active_head,
            body,
            results,
            place,
        })));
        if breaks { Flow::Value(value.unwrap_or(Ok(Val::Unit(place)))) } else { Flow::Diverges }
    }

    /// `for i in (lo..hi).step_by(s) { .. }`
    pub(super) fn for_loop(&mut self, stmt: &ExprForLoop) {
        let hints = self.loop_hints(&stmt.attrs);
        let place = SourceRange::between(stmt.for_token.span, SourceRange::of(&stmt.expr).end);
        let range = self.range(&stmt.expr).and_then(|range| self.bounds(&range).map(|written| (range, written)));
        let id = self.enter_loop(stmt.label.as_ref(), false, place);
        if let (Ok((_, written)), Unroll::Full) = (&range, hints.unroll) {
            self.unrollable(written);
        }
        let end = stmt.body.brace_token.span.close();
        let counter = match &range {
            Ok((range, written)) => {
                let bounds = if range.from_end {
                    self.count_down(*written, range.inclusive(), place)
                } else {
                    written.map(|bound| bound.node)
                };
                let own = self.node(bounds[0]).ty.clone();
                let slot = self.slot(own, SourceRange::of_pat(&stmt.pat));
                let constexpr = match hints.unroll {
                    Unroll::Full => self.loop_constexpr(range, written, &stmt.pat),
                    Unroll::Auto | Unroll::Never | Unroll::By(_) => None,
                };
                Ok(Counter { written: *written, bounds, slot, constexpr })
            }
            Err(reported) => Err(*reported),
        };
        let ((), body) = self.nested(Context::Loop, |c| {
            let value = match (&counter, &range) {
                (Ok(Counter { constexpr: Some((_, dim)), written, .. }), _) => {
                    Binding::Dim(Constexpr::new(dim.clone(), c.declared(written[0])))
                }
                (Ok(counter), Ok((range, _))) if range.from_end => {
                    Binding::Value(c.index_from_end(counter, range.inclusive(), place))
                }
                (Ok(counter), _) => Binding::Value(counter.slot),
                (Err(_), _) => Binding::Poison,
            };
            c.bind_index(&stmt.pat, value);
            c.block(&stmt.body.stmts, false, end);
        });
        if self.leave_loop().left {
            self.unpipelined(stmt, &hints);
        }
        let (Ok(Counter { bounds: [lo, hi, step], slot: index, constexpr, .. }), Ok((range, _))) = (counter, range)
        else {
            return;
        };
        let (inclusive, reverse, counter) = (range.inclusive(), range.reverse, constexpr.map(|(id, _)| id));
        let stmt = ForStmt { id, index, counter, lo, hi, inclusive, step, body, reverse, hints, place };
        self.stmts.push(Stmt::For(Box::new(stmt)));
    }

    /// The constexpr that the variable of an unrolled loop is. Where the end of the range is not made of constexprs, what
    /// counts may be something else than the variable, which is then a value like any other.
    fn loop_constexpr(&mut self, range: &Range<'_>, written: &[Operand; 3], pat: &syn::Pat) -> Option<(ConstId, Dim)> {
        let hi = self.node(written[1].node).dim.clone();
        let counts_numbers = match (range.inclusive(), range.from_end) {
            (false, false) => true,
            (true, false) => hi.as_ref().is_some_and(|hi| self.counts_to(hi, written[0])),
            (inclusive, true) => hi.is_some() && !(inclusive && self.has_64_bits(written[0])),
        };
        if !counts_numbers {
            return None;
        }
        let name = match pat {
            syn::Pat::Ident(name) => name.ident.to_string(),
            _ => "i".to_string(),
        };
        let name = crate::names::free_name(&self.func, &name);
        let id = ConstId::new(self.func.const_params.len() as u32);
        let dim = match hi {
            Some(hi) if range.from_end => {
                let last = if range.inclusive() { Ok(hi) } else { hi.sub(&Dim::Const(1)) };
                last.and_then(|last| last.sub(&Dim::param(id))).ok()?
            }
            Some(_) | None => Dim::param(id),
        };
        let ty = ConstTy::Int(IntTy::Isize);
        self.func.const_params.push(ConstParam { name, ty, origin: ConstOrigin::Counter });
        Some((id, dim))
    }

    /// Whether a loop that includes a constant end counts its numbers, and not how far it is from its beginning.
    fn counts_to(&self, hi: &Dim, lo: Operand) -> bool {
        let of_parameter = match self.ty(lo).elem {
            VElem::Data(dt) => self.types.settled(dt).known().is_none(),
            VElem::Ptr(_) => false,
        };
        let greatest = if of_parameter { i64::from(i8::MAX) } else { i64::MAX };
        hi.as_const().map_or(!of_parameter, |hi| hi < greatest)
    }

    fn has_64_bits(&self, operand: Operand) -> bool {
        match self.ty(operand).elem {
            VElem::Data(dt) => self.types.settled(dt).known().is_none_or(|dtype| dtype.bits() == 64),
            VElem::Ptr(_) => true,
        }
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
                    let grid = matches!(
                        op,
                        Op::Create(
                            CreateOp::ProgramId { .. } | CreateOp::NumPrograms { .. } | CreateOp::Counter { .. }
                        )
                    );
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

    fn bind_index(&mut self, pat: &syn::Pat, value: Binding) {
        match pat {
            syn::Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() && p.mutability.is_none() => {
                self.bind(&p.ident.to_string(), value);
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

    fn range<'e>(&mut self, expr: &'e Expr) -> Checked<Range<'e>> {
        match expr {
            Expr::Paren(paren) => self.range(&paren.expr),
            Expr::Group(group) => self.range(&group.expr),
            Expr::Range(range) if self.adapters_of_end(range) => Err(Reported::earlier()),
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
                let help = self.range_help(other);
                Err(self.report_help(SourceRange::of(other), "a loop runs over a range of integers", help))
            }
        }
    }

    /// Refuses `0..n.step_by(2)`, which calls a method of `n`.
    fn adapters_of_end(&mut self, range: &ExprRange) -> bool {
        let (mut end, mut first) = (range.end.as_deref(), None);
        while let Some(Expr::MethodCall(call)) = end
            && (call.method == "rev" || call.method == "step_by")
        {
            (end, first) = (Some(&*call.receiver), Some(call));
        }
        let Some(first) = first else { return false };
        let whole = SourceRange::of_tokens(range);
        let inner = SourceRange::between(whole.start, SourceRange::of(&first.receiver).end);
        let adapters = SourceRange::between(first.dot_token.spans[0], whole.end);
        let help = match (self.source.text(inner), self.source.text(adapters)) {
            (Some(range), Some(adapters)) => Help::write(whole, format!("({range}){adapters}")),
            _ => format!("write `(lo..hi).{}(..)`", first.method).into(),
        };
        let message = format!("`{}` is called on the end of the range, not on the range", first.method);
        self.report_help(SourceRange::at(first.method.span()), message, help);
        true
    }

    /// What to write instead of something that is no range; of Python's functions that range.
    fn range_help(&self, expr: &Expr) -> Help {
        if let Expr::Call(call) = expr
            && let Expr::Path(path) = &*call.func
            && let Some(name) = path.path.segments.last().map(|last| last.ident.to_string())
            && matches!(name.as_str(), "range" | "static_range")
        {
            let given = call.args.iter().filter(|arg| !matches!(arg, Expr::Assign(_)));
            let args: Vec<String> = given.map(|arg| self.source.operand(SourceRange::of(arg))).collect();
            let range = match args.as_slice() {
                [hi] => format!("0..{hi}"),
                [lo, hi] => format!("{lo}..{hi}"),
                [lo, hi, step] => format!("({lo}..{hi}).step_by({step})"),
                _ => "(lo..hi).step_by(step)".to_string(),
            };
            let help = Help::write(SourceRange::of(expr), range);
            return match name.as_str() {
                "static_range" => help.and(", and `#[unroll]` in front of the loop: then its variable is a constexpr"),
                _ if args.len() < call.args.len() => {
                    help.and("; options are attributes of the loop: `#[stages(3)]`, `#[unroll(4)]`")
                }
                _ => help,
            };
        }
        "write `for i in lo..hi`, `(lo..hi).step_by(s)` or `(lo..hi).rev()`".into()
    }

    /// lo, hi and step, of one integer dtype.
    fn bounds(&mut self, range: &Range<'_>) -> Checked<[Operand; 3]> {
        let place = SourceRange::of_tokens(range.range);
        let (Some(lo), Some(hi)) = (&range.range.start, &range.range.end) else {
            return Err(self.report_help(place, "a loop needs both ends of its range", "write `lo..hi`"));
        };
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
    fn count_down(&mut self, [lo, hi, step]: [Operand; 3], inclusive: bool, place: SourceRange) -> [NodeId; 3] {
        let VElem::Data(dt) = self.ty(lo).elem else { return [lo.node, hi.node, step.node] };
        let settled = self.types.settled(dt);
        // What is still open is i32 from here on.
        let _ = self.types.unify(dt, DtRef::Fixed(settled), &self.func);
        let counts = distance_of(settled);
        let zero = self.typed_int(0, dt, place);
        let above = if inclusive { CmpOp::Ge } else { CmpOp::Gt };
        let forward = self.op(Op::compare(above), vec![hi.node, lo.node], bool_scalar(), place);
        let positive = self.op(Op::compare(CmpOp::Gt), vec![step.node, zero], bool_scalar(), place);
        let runs = self.op(Op::binary(BinaryOp::And), vec![forward, positive], bool_scalar(), place);
        let [hi, lo] = [hi.node, lo.node].map(|node| self.bits(node, settled, counts, place));
        let zero = if counts == settled { zero } else { self.typed_int(0, DtRef::Fixed(counts), place) };
        let scalar = VTy::scalar(DtRef::Fixed(counts));
        let distance = self.op(Op::binary(BinaryOp::Sub), vec![hi, lo], scalar.clone(), place);
        let last = self.op(ElementwiseOp::Select, vec![runs, distance, zero], scalar, place);
        let unsigned = unsigned_of(counts);
        let mut first = self.typed_int(0, DtRef::Fixed(unsigned), place);
        if inclusive {
            // 1..=0 is empty.
            let one = self.typed_int(1, DtRef::Fixed(unsigned), place);
            let ty = VTy::scalar(DtRef::Fixed(unsigned));
            first = self.op(ElementwiseOp::Select, vec![runs, first, one], ty, place);
        }
        [first, self.bits(last, counts, unsigned, place), self.bits(step.node, settled, unsigned, place)]
    }

    /// The lower bits of a scalar in another dtype.
    fn bits(&mut self, node: NodeId, from: Dt, to: Dt, place: SourceRange) -> NodeId {
        match VOp::bits_between(from, to) {
            Some(op) => self.eval(op, vec![node], VTy::scalar(DtRef::Fixed(to)), place),
            None => node,
        }
    }

    /// The loop variable from its distance to the last number: `hi - 1 - distance`.
    fn index_from_end(&mut self, counter: &Counter, inclusive: bool, place: SourceRange) -> NodeId {
        let (hi, ty) = (counter.written[1].node, self.ty(counter.written[0]).clone());
        let VElem::Data(dt) = ty.elem else { return counter.slot };
        let settled = self.types.settled(dt);
        let distance = self.bits(counter.slot, unsigned_of(distance_of(settled)), settled, place);
        let mut last = hi;
        if !inclusive {
            let one = self.typed_int(1, dt, place);
            last = self.op(Op::binary(BinaryOp::Sub), vec![hi, one], ty.clone(), place);
        }
        self.op(Op::binary(BinaryOp::Sub), vec![last, distance], ty, place)
    }
}
