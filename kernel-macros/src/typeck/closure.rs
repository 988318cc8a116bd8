//! Operations that take a closure: `reduce` and `associative_scan`, of one tile or of a tuple of tiles.

use syn::{Expr, ExprClosure, ExprMethodCall, Pat, ReturnType};

use super::annotation::Annotation;
use super::args::Args;
use super::{Checker, Context, Operand, TUPLE, Val};
use crate::error::{Checked, Reported};
use crate::ops::{Call, Row};
use crate::source_range::{SourceRange, bare};
use crate::tree::{Fold, NodeId, ReduceStmt, Stmt};
use crate::types::{VElem, VTy};

impl Checker<'_> {
    /// `reduce(x, axis = 0, |a, b| a + b)`, `reduce((x, y), axis = 0, |(a, b), (c, d)| ..)`; scans alike.
    pub(super) fn closure_call(&mut self, args: &Args<'_>) -> Checked<Val> {
        let (inputs, tuple) = match (args.receiver, args.expr(0)) {
            (Some(receiver), _) => (vec![receiver], false),
            (None, Some(expr)) => match self.expr(expr)? {
                Val::Tuple(parts, _) if parts.record.is_none() => {
                    let parts: Vec<Checked<Operand>> = parts.into_iter().map(|p| self.one(p)).collect();
                    (parts.into_iter().collect::<Checked<Vec<_>>>()?, true)
                }
                other => (vec![self.one(other)?], false),
            },
            // The number of arguments has been checked.
            (None, None) => return Err(Reported::earlier()),
        };
        self.combine_with(args, &inputs, tuple)
    }

    /// `(x, y).reduce(axis = 0, |(a, b), (c, d)| ..)`
    pub(super) fn tuple_method(
        &mut self,
        row: &'static Row,
        inputs: &[Operand],
        call: &ExprMethodCall,
        place: SourceRange,
    ) -> Checked<Val> {
        let Some(&first) = inputs.first() else { return Err(Reported::earlier()) };
        let args = self.args(row, Some(first), &call.args, call.turbofish.as_ref(), place)?;
        self.combine_with(&args, inputs, true)
    }

    fn combine_with(&mut self, args: &Args<'_>, inputs: &[Operand], tuple: bool) -> Checked<Val> {
        let (place, what) = (args.place, format!("`{}`", args.row.name));
        let written = args.expr(1).map(bare);
        let of_name = written.and_then(|expr| self.closure_of_name(expr, 2));
        let closure = match (&of_name, written) {
            (Some(closure), _) | (None, Some(Expr::Closure(closure))) => closure,
            (None, other) => {
                let at = other.map_or(place, SourceRange::of);
                let help = "write how two elements combine: `|a, b| a + b`";
                return Err(self.report_help(at, format!("{what} needs a closure"), help));
            }
        };
        self.one_shape(inputs, &what)?;
        let combined = |c: &mut Self, inputs: &[Operand], fold: Fold, axis: u8| {
            let mut outcome = Ok(());
            let nodes = c.combination(inputs, fold, axis, place, |c, a, b| {
                c.closure(closure, &a, &b, tuple, &what).unwrap_or_else(|reported| {
                    outcome = Err(reported);
                    a
                })
            });
            outcome.map(|()| nodes)
        };
        let all = |results: Vec<Operand>| match tuple {
            true => Val::Tuple(results.into_iter().map(Val::One).collect(), place),
            false => Val::One(results[0]),
        };
        if args.row.call == Call::Scan {
            return self.scanned(args, inputs[0], &mut |c, fold, axis| {
                let nodes = combined(c, inputs, fold, axis)?;
                Ok(all(nodes.into_iter().map(|node| Operand { node, place }).collect()))
            });
        }
        let (inputs, along) = self.along(args, inputs, &what)?;
        let nodes = combined(self, &inputs, Fold::Reduce, along.axis)?;
        let results = nodes.into_iter().map(|node| self.finish_axis(node, &along, place));
        Ok(all(results.collect::<Checked<Vec<Operand>>>()?))
    }

    /// Refuses pointers and tiles of different shapes.
    fn one_shape(&mut self, inputs: &[Operand], what: &str) -> Checked<()> {
        for &input in inputs {
            self.data(input, what)?;
        }
        let first = self.ty(inputs[0]).shape.clone();
        for &input in &inputs[1..] {
            let shape = self.ty(input).shape.clone();
            if !self.same_shape(&first, &shape) {
                let (a, b) = (self.show_shape(&first), self.show_shape(&shape));
                let message = format!("{what} needs tiles of one shape, found {a} and {b}");
                return Err(self.report_help(input.place, message, "write `broadcast_to(x, shape)`"));
            }
        }
        Ok(())
    }

    /// Checks a closure of two elements (or tuples of elements) and gives what it yields.
    fn closure(
        &mut self,
        closure: &ExprClosure,
        a: &[NodeId],
        b: &[NodeId],
        tuple: bool,
        what: &str,
    ) -> Checked<Vec<NodeId>> {
        let pats: Vec<&Pat> = closure.inputs.iter().collect();
        let [left, right] = pats.as_slice() else {
            let place = SourceRange::between(closure.or1_token.span, closure.or2_token.span);
            let help = if tuple { "write `|(a, b), (c, d)| ..`" } else { "write `|a, b| ..`" };
            return Err(self.report_help(place, format!("the closure of {what} takes two arguments"), help));
        };
        if let (false, Pat::Tuple(_), Pat::Tuple(_)) = (tuple, left, right) {
            let place = SourceRange::between(SourceRange::of_pat(left).start, SourceRange::of_pat(right).end);
            let help = "write `|a, b| ..`, or give it a tuple of tiles";
            return Err(self.report_help(place, "of one tile the closure takes two elements", help));
        }
        self.plain_closure(closure);
        self.unique(&pats);
        let before = self.errors.list().len();
        self.typed_parameters([left, right], a, what)?;
        for (pat, nodes) in [(left, a), (right, b)] {
            let place = SourceRange::of_pat(pat);
            let operands = nodes.iter().map(|&node| Val::One(Operand { node, place }));
            let val =
                if tuple { Val::Tuple(operands.collect(), place) } else { Val::One(Operand { node: nodes[0], place }) };
            self.bind_pattern(pat, Ok(val));
        }
        let place = SourceRange::of(&closure.body);
        self.result_type(closure, a, tuple, what)?;
        let val = match self.expr(&closure.body) {
            Ok(val) => val,
            Err(reported) => return Err(self.whole_tuples([left, right], tuple, before, reported)),
        };
        let values = match (val, tuple) {
            (Val::Tuple(parts, _), true) if parts.record.is_none() => parts,
            (val, _) => vec![val].into(),
        };
        if values.len() != a.len() {
            let message = format!("the closure must give {} values, found {}", a.len(), values.len());
            return Err(self.report_help(place, message, "give a tuple with one value for each tile"));
        }
        values.into_iter().zip(a).map(|(val, &arg)| self.yielded(val, arg)).collect()
    }

    /// Refuses a result type that is not that of the elements.
    fn result_type(&mut self, closure: &ExprClosure, a: &[NodeId], tuple: bool, what: &str) -> Checked<()> {
        let ReturnType::Type(_, ty) = &closure.output else { return Ok(()) };
        let annotation = self.annotation(ty)?;
        let parts = match &annotation {
            Annotation::Inferred => return Ok(()),
            Annotation::Tuple(parts, None) if tuple => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let agrees = |part: &Annotation, arg: NodeId| match part {
            Annotation::Inferred => true,
            Annotation::Data(VTy { elem: VElem::Data(says), shape }) => {
                let own = self.node_dt(arg).and_then(|dt| self.types.known(dt));
                shape.is_empty() && own.is_none_or(|own| self.types.known(*says) == Some(own))
            }
            Annotation::Data(_) | Annotation::Pointer(..) | Annotation::Constexpr | Annotation::Tuple(..) => false,
        };
        if parts.len() == a.len() && parts.iter().zip(a).all(|(part, &arg)| agrees(part, arg)) {
            return Ok(());
        }
        let message = format!("the closure of {what} gives elements like those it is given, and says otherwise");
        Err(self.report_help(SourceRange::of_type(ty), message, "leave the result type out: `|a, b| ..`"))
    }

    /// Refuses what may stand in front of a closure and means nothing here.
    pub(super) fn plain_closure(&mut self, closure: &ExprClosure) {
        let words = [
            closure.lifetimes.as_ref().map(SourceRange::of_tokens),
            closure.constness.as_ref().map(SourceRange::of_tokens),
            closure.movability.as_ref().map(SourceRange::of_tokens),
            closure.asyncness.as_ref().map(SourceRange::of_tokens),
        ];
        for place in words.into_iter().flatten() {
            self.report_help(place, "this is not supported in front of a closure", "remove it");
        }
    }

    /// Refuses `|a: i32, b: i32|` over another dtype, once for both.
    fn typed_parameters(&mut self, pats: [&Pat; 2], nodes: &[NodeId], what: &str) -> Checked<()> {
        let Some(Pat::Type(typed)) = pats.into_iter().find(|pat| matches!(pat, Pat::Type(_))) else { return Ok(()) };
        let [node] = nodes else { return Ok(()) };
        let (own, says) = (self.node_dt(*node).and_then(|dt| self.types.known(dt)), self.dtype(&typed.ty)?);
        match own {
            Some(own) if own != says => {
                let (own, says) = (self.show_fixed(own), self.show_fixed(says));
                let message = format!("the closure of {what} is given {own}, and says {says}");
                Err(self.report_help(SourceRange::of_pat(pats[0]), message, "leave the types out: `|a, b| ..`"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Where a closure computes with the names of two tuples, says once that it takes them apart in its parameters.
    fn whole_tuples(&mut self, pats: [&Pat; 2], tuple: bool, before: usize, reported: Reported) -> Reported {
        let names = pats.iter().all(|pat| matches!(pat, Pat::Ident(_)));
        let new = &self.errors.list()[before..];
        if !tuple || !names || new.is_empty() || !new.iter().all(|mistake| mistake.message == TUPLE) {
            return reported;
        }
        self.errors.forget(before);
        let place = SourceRange::between(SourceRange::of_pat(pats[0]).start, SourceRange::of_pat(pats[1]).end);
        let message = "of a tuple of tiles the closure takes two tuples";
        self.report_help(place, message, "take them apart: `|(a, i), (b, j)| ..`")
    }

    /// A value that the closure gives: a scalar of the tile's dtype.
    fn yielded(&mut self, val: Val, arg: NodeId) -> Checked<NodeId> {
        let operand = self.one(val)?;
        if !self.ty(operand).is_scalar() {
            let message = format!("the closure combines two elements into one, but gives {}", self.show(operand));
            return Err(self.report(operand.place, message));
        }
        if let VElem::Data(dt) = self.node(arg).ty.elem {
            self.expect(operand, dt, "what the closure gives")?;
        }
        Ok(operand.node)
    }

    /// A combination along an axis, which `combine` writes for two elements; returns its result slots.
    pub(super) fn combination(
        &mut self,
        inputs: &[Operand],
        fold: Fold,
        axis: u8,
        place: SourceRange,
        combine: impl FnOnce(&mut Self, Vec<NodeId>, Vec<NodeId>) -> Vec<NodeId>,
    ) -> Vec<NodeId> {
        let scalar = |c: &mut Self, o: &Operand| {
            let ty = c.ty(*o).with_shape(Vec::new());
            c.slot(ty, place)
        };
        let left: Vec<NodeId> = inputs.iter().map(|o| scalar(self, o)).collect();
        let right: Vec<NodeId> = inputs.iter().map(|o| scalar(self, o)).collect();
        let args = [left.clone(), right.clone()].concat();
        let (yields, body) = self.nested(Context::Closure, |c| combine(c, left, right));
        let mut results = Vec::new();
        for input in inputs {
            let mut ty = self.ty(*input).clone();
            match fold {
                Fold::Reduce => drop(ty.shape.remove(usize::from(axis))),
                Fold::Scan { .. } => {}
            }
            results.push(self.slot(ty, place));
        }
        let inputs = inputs.iter().map(|o| o.node).collect();
        let stmt = ReduceStmt { fold, axis, inputs, args, body, yields, results: results.clone(), place };
        self.stmts.push(Stmt::Reduce(Box::new(stmt)));
        results
    }
}
