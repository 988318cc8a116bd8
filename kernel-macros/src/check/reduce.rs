//! Reductions: by an operation, to an index, by a closure.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, Bound, CmpOp, CreateOp, DType, Dim, ElementwiseOp, Op, ShapeOp};
use syn::{Expr, ExprClosure, ExprMethodCall, Pat};

use super::args::Args;
use super::{Checker, Context, Operand, Val};
use crate::error::Checked;
use crate::ops::Row;
use crate::place::{Place, bare};
use crate::tree::{NodeId, ReduceStmt, Stmt};
use crate::types::{BOOL, DtRef, VElem, VTy};

/// Along which axis, and what happens to it.
struct Along {
    axis: u8,
    keep: bool,
    /// The rank before a reduction over all axes made it one.
    all: Option<usize>,
}

impl Checker<'_> {
    /// `sum`, `max`, `min`
    pub(super) fn fold(&mut self, args: &Args<'_>, op: BinaryOp) -> Checked<Operand> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(Bound::Num), &what)?;
        let (inputs, along) = self.along(args, &[x], &what)?;
        let place = args.place;
        let results = self.reduction(&inputs, &along, place, |c, a, b| {
            let ty = c.node(a[0]).ty.clone();
            vec![c.op(Op::binary(op), vec![a[0], b[0]], ty, place)]
        });
        self.finish_axis(results[0], &along, place)
    }

    /// `argmax`, `argmin`: of equal values the first; NaN loses against every number.
    pub(super) fn arg_extreme(&mut self, args: &Args<'_>, largest: bool) -> Checked<Operand> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(Bound::Num), &what)?;
        let dt = self.data(x, &what)?;
        let (inputs, along) = self.along(args, &[x], &what)?;
        let place = args.place;
        let tile = inputs[0];
        let shape = self.ty(tile).shape.clone();
        let indices = self.indices(&shape, along.axis, place);
        let indices = Operand { node: indices, place };
        let nan = self.may_be_float(dt);
        let results = self.reduction(&[tile, indices], &along, place, |c, a, b| {
            c.better(largest, nan, [a[0], a[1]], [b[0], b[1]], place)
        });
        self.finish_axis(results[1], &along, place)
    }

    /// The index along an axis of each element of a tile, i32.
    fn indices(&mut self, shape: &[Dim], axis: u8, place: Place) -> NodeId {
        let i32s = |shape: Vec<Dim>| VTy { elem: VElem::Data(DType::I32.into()), shape };
        let len = shape[usize::from(axis)].clone();
        let range = CreateOp::Arange { lo: Dim::Const(0), hi: len.clone() };
        let mut node = self.op(range, Vec::new(), i32s(vec![len.clone()]), place);
        let mut own = vec![len];
        while own.len() < shape.len() - usize::from(axis) {
            own.push(Dim::Const(1));
            let axis = own.len() as u8 - 1;
            node = self.op(ShapeOp::ExpandDims { axis }, vec![node], i32s(own.clone()), place);
        }
        self.expand(node, shape, place)
    }

    /// The better of two (value, index) pairs. The order is total, so the combination is associative and commutative.
    fn better(&mut self, largest: bool, nan: bool, a: [NodeId; 2], b: [NodeId; 2], place: Place) -> Vec<NodeId> {
        let truth = VTy::scalar(BOOL);
        let compare = |c: &mut Self, op, x, y| c.op(Op::compare(op), vec![x, y], VTy::scalar(BOOL), place);
        let wins = compare(self, if largest { CmpOp::Gt } else { CmpOp::Lt }, a[0], b[0]);
        let ties = compare(self, CmpOp::Eq, a[0], b[0]);
        let earlier = compare(self, CmpOp::Lt, a[1], b[1]);
        let first = self.op(Op::binary(BinaryOp::And), vec![ties, earlier], truth.clone(), place);
        let mut left = self.op(Op::binary(BinaryOp::Or), vec![wins, first], truth.clone(), place);
        if nan {
            let b_nan = compare(self, CmpOp::Ne, b[0], b[0]);
            let a_number = compare(self, CmpOp::Eq, a[0], a[0]);
            let kept = self.op(Op::binary(BinaryOp::Or), vec![a_number, earlier], truth.clone(), place);
            let by_nan = self.op(Op::binary(BinaryOp::And), vec![b_nan, kept], truth.clone(), place);
            left = self.op(Op::binary(BinaryOp::Or), vec![left, by_nan], truth, place);
        }
        let select = |c: &mut Self, i: usize| {
            let ty = c.node(a[i]).ty.clone();
            c.op(ElementwiseOp::Select, vec![left, a[i], b[i]], ty, place)
        };
        vec![select(self, 0), select(self, 1)]
    }

    /// `reduce(x, axis = 0, |a, b| a + b)`, `reduce((x, y), axis = 0, |(a, b), (c, d)| ..)`
    pub(super) fn reduce_call(&mut self, args: &Args<'_>) -> Checked<Val> {
        let (inputs, tuple) = match (args.receiver, args.expr(0)) {
            (Some(receiver), _) => (vec![receiver], false),
            (None, Some(expr)) => match self.expr(expr)? {
                Val::Tuple(parts, _) => {
                    let parts: Vec<Checked<Operand>> = parts.into_iter().map(|p| self.one(p)).collect();
                    (parts.into_iter().collect::<Checked<Vec<_>>>()?, true)
                }
                other => (vec![self.one(other)?], false),
            },
            (None, None) => return Err(self.report(args.place, "`reduce` needs a tile")),
        };
        self.reduce_with(args, &inputs, tuple)
    }

    /// `(x, y).reduce(axis = 0, |(a, b), (c, d)| ..)`
    pub(super) fn reduce_method(
        &mut self,
        row: &'static Row,
        inputs: &[Operand],
        at: Place,
        call: &ExprMethodCall,
        place: Place,
    ) -> Checked<Val> {
        let receiver = inputs.first().map_or_else(|| Err(self.report(at, "`reduce` needs a tile")), |o| Ok(*o))?;
        let args = self.args(row, Some(receiver), &call.args, call.turbofish.as_ref(), place)?;
        self.reduce_with(&args, inputs, true)
    }

    fn reduce_with(&mut self, args: &Args<'_>, inputs: &[Operand], tuple: bool) -> Checked<Val> {
        let place = args.place;
        let closure = match args.expr(1).map(bare) {
            Some(Expr::Closure(closure)) => closure,
            other => {
                let at = other.map_or(place, Place::of);
                let help = "write how two elements combine: `|a, b| a + b`";
                return Err(self.report_help(at, "`reduce` needs a closure", help));
            }
        };
        for &input in inputs {
            self.data(input, "`reduce`")?;
        }
        let first = self.ty(inputs[0]).shape.clone();
        for &input in &inputs[1..] {
            let shape = self.ty(input).shape.clone();
            if !self.same_shape(&first, &shape) {
                let (a, b) = (self.show_shape(&first), self.show_shape(&shape));
                let message = format!("`reduce` needs tiles of one shape, found {a} and {b}");
                return Err(self.report_help(input.place, message, "write `broadcast_to(x, shape)`"));
            }
        }
        let (inputs, along) = self.along(args, inputs, "`reduce`")?;
        let mut outcome = Ok(());
        let results = self.reduction(&inputs, &along, place, |c, a, b| match c.closure(closure, &a, &b, tuple) {
            Ok(values) => values,
            Err(reported) => {
                outcome = Err(reported);
                a
            }
        });
        outcome?;
        let results: Vec<Checked<Operand>> =
            results.into_iter().map(|node| self.finish_axis(node, &along, place)).collect();
        let results = results.into_iter().collect::<Checked<Vec<Operand>>>()?;
        Ok(if tuple { Val::Tuple(results.into_iter().map(Val::One).collect(), place) } else { Val::One(results[0]) })
    }

    /// Checks a closure of two elements (or tuples of elements) and gives what it yields.
    fn closure(&mut self, closure: &ExprClosure, a: &[NodeId], b: &[NodeId], tuple: bool) -> Checked<Vec<NodeId>> {
        let pats: Vec<&Pat> = closure.inputs.iter().collect();
        let [left, right] = pats.as_slice() else {
            let place = Place { start: closure.or1_token.span, end: closure.or2_token.span };
            let help = if tuple { "write `|(a, b), (c, d)| ..`" } else { "write `|a, b| ..`" };
            return Err(self.report_help(place, "the closure of `reduce` takes two arguments", help));
        };
        for (pat, nodes) in [(left, a), (right, b)] {
            let place = Place::of_pat(pat);
            let operands = nodes.iter().map(|&node| Val::One(Operand { node, place }));
            let val =
                if tuple { Val::Tuple(operands.collect(), place) } else { Val::One(Operand { node: nodes[0], place }) };
            self.bind_pattern(pat, Ok(val));
        }
        let place = Place::of(&closure.body);
        let val = self.expr(&closure.body)?;
        let values = match (val, tuple) {
            (Val::Tuple(parts, _), true) => parts,
            (val, _) => vec![val],
        };
        if values.len() != a.len() {
            let message = format!("the closure must give {} values, found {}", a.len(), values.len());
            return Err(self.report(place, message));
        }
        let mut out = Vec::new();
        for (val, &arg) in values.into_iter().zip(a) {
            let operand = self.one(val)?;
            if let VElem::Data(dt) = self.node(arg).ty.elem {
                self.expect(operand, dt, "what the closure gives")?;
            }
            out.push(operand.node);
        }
        Ok(out)
    }

    /// A reduction whose combination `combine` writes; returns its result slots.
    fn reduction(
        &mut self,
        inputs: &[Operand],
        along: &Along,
        place: Place,
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
            ty.shape.remove(usize::from(along.axis));
            results.push(self.slot(ty, place));
        }
        let inputs = inputs.iter().map(|o| o.node).collect();
        let stmt = ReduceStmt { axis: along.axis, inputs, args, body, yields, results: results.clone(), place };
        self.stmts.push(Stmt::Reduce(Box::new(stmt)));
        results
    }

    /// The axis of a reduction; without one, the tiles as one row each.
    fn along(&mut self, args: &Args<'_>, inputs: &[Operand], what: &str) -> Checked<(Vec<Operand>, Along)> {
        let keep = self.flag(args, "keep_dims");
        let shape = self.ty(inputs[0]).shape.clone();
        if shape.is_empty() {
            let message = format!("{what} needs a tile, found {}", self.show(inputs[0]));
            return Err(self.report(inputs[0].place, message));
        }
        let rank = shape.len();
        if let Some(expr) = args.named("axis") {
            let axis = self.axis(expr, rank, "the tile")?;
            return Ok((inputs.to_vec(), Along { axis, keep: keep?, all: None }));
        }
        let along = Along { axis: 0, keep: keep?, all: Some(rank) };
        if rank == 1 {
            return Ok((inputs.to_vec(), along));
        }
        let len = self.dim_result(Dim::product(&shape), args.place)?;
        let rows: Vec<Checked<Operand>> =
            inputs.iter().map(|&x| self.reshaped(x, vec![len.clone()], args.place)).collect();
        Ok((rows.into_iter().collect::<Checked<_>>()?, along))
    }

    /// Puts the axis back with size 1 if it is kept.
    fn finish_axis(&mut self, node: NodeId, along: &Along, place: Place) -> Checked<Operand> {
        if !along.keep {
            return Ok(Operand { node, place });
        }
        if let Some(rank) = along.all {
            return Ok(Operand { node: self.expand(node, &vec![Dim::Const(1); rank], place), place });
        }
        let mut ty = self.node(node).ty.clone();
        ty.shape.insert(usize::from(along.axis), Dim::Const(1));
        if ty.shape.len() == 1 {
            return Ok(Operand { node: self.expand(node, &ty.shape, place), place });
        }
        let op = ShapeOp::ExpandDims { axis: along.axis };
        Ok(Operand { node: self.op(op, vec![node], ty, place), place })
    }

    /// The dtype of a node that holds data.
    pub(super) fn node_dt(&self, node: NodeId) -> Option<DtRef> {
        match self.node(node).ty.elem {
            VElem::Data(dt) => Some(dt),
            VElem::Ptr(_) => None,
        }
    }
}
