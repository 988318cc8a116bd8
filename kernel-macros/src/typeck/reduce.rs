//! Reductions by an operation and to an index, and the axis of a reduction.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, CmpOp, CreateOp, DType, DTypeBound, Dim, ElementwiseOp, Op, ShapeOp, UnaryOp};
use kernel_core::math::MathFn;
use syn::Expr;

use super::args::Args;
use super::choice::Axis;
use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::source_range::{SourceRange, bare};
use crate::tree::{Fold, NodeId};
use crate::types::{BOOL, DtRef, VElem, VTy};

/// Along which axis, and what happens to it.
pub(super) struct Along {
    /// The axis.
    pub axis: u8,
    pub keep: bool,
    /// The rank before a reduction over all axes made it one.
    pub all: Option<usize>,
}

impl Checker<'_> {
    /// `sum`, `max`, `all` and their kind.
    pub(super) fn fold(&mut self, args: &Args<'_>, op: BinaryOp) -> Checked<Val> {
        let what = format!("`{}`", args.row.name);
        if self.flag(args, "return_indices")? {
            let ([values, indices], along) = self.extreme_pair(args, op == BinaryOp::Max)?;
            let values = self.finish_axis(values, &along, args.place)?;
            let indices = self.finish_axis(indices, &along, args.place)?;
            return Ok(Val::Tuple(vec![Val::One(values), Val::One(indices)].into(), args.place));
        }
        let [x] = self.arg_values(args)?;
        match op {
            BinaryOp::And | BinaryOp::Or => self.truths(x, args.row.name)?,
            BinaryOp::Xor => self.need(x, Needs::Bits, &what)?,
            _ => self.need(x, Needs::Bound(DTypeBound::Num), &what)?,
        }
        if let Some(axes) = self.several_axes(args, x)? {
            return self.fold_all(args, op, x, axes).map(Val::One);
        }
        let (inputs, along) = self.along(args, &[x], &what)?;
        let result = self.fold_along(inputs[0], op, along.axis, args.place);
        self.finish_axis(result, &along, args.place).map(Val::One)
    }

    /// All elements along an axis combined by one operation; the axis is gone.
    pub(super) fn fold_along(&mut self, x: Operand, op: BinaryOp, axis: u8, place: SourceRange) -> NodeId {
        let results = self.combination(&[x], Fold::Reduce, axis, place, |c, a, b| {
            let ty = c.node(a[0]).ty.clone();
            vec![c.op(Op::binary(op), vec![a[0], b[0]], ty, place)]
        });
        results[0]
    }

    /// The axes of `axis = [0, 2]`, in order, if there is a list.
    pub(super) fn several_axes(&mut self, args: &Args<'_>, x: Operand) -> Checked<Option<Vec<u8>>> {
        let list: Vec<&Expr> = match args.named("axis").map(bare) {
            Some(Expr::Array(array)) => array.elems.iter().collect(),
            Some(Expr::Tuple(tuple)) => tuple.elems.iter().collect(),
            _ => return Ok(None),
        };
        let place = args.named("axis").map_or(args.place, SourceRange::of);
        if list.is_empty() {
            return Err(self.report_help(place, "no axis is named", "without `axis` all are reduced"));
        }
        let rank = self.ty(x).shape.len();
        let mut axes = Vec::new();
        for expr in list {
            let axis = self.axis(expr, rank, "the tile")?;
            if axes.contains(&axis) {
                return Err(self.report(SourceRange::of(expr), format!("axis {axis} is named twice")));
            }
            axes.push(axis);
        }
        axes.sort_unstable();
        Ok(Some(axes))
    }

    /// A reduction along several axes, the last first.
    fn fold_all(&mut self, args: &Args<'_>, op: BinaryOp, x: Operand, axes: Vec<u8>) -> Checked<Operand> {
        let (keep, place) = (self.flag(args, "keep_dims")?, args.place);
        let mut node = x.node;
        for &axis in axes.iter().rev() {
            node = self.fold_along(Operand { node, place }, op, axis, place);
        }
        for &axis in axes.iter().filter(|_| keep) {
            node = self.finish_axis(node, &Along { axis, keep, all: None }, place)?.node;
        }
        Ok(Operand { node, place })
    }

    /// Refuses what is no tile of truth values.
    fn truths(&mut self, x: Operand, name: &str) -> Checked<()> {
        let dt = self.data(x, &format!("`{name}`"))?;
        if self.types.resolve(dt) == BOOL {
            return Ok(());
        }
        let message = format!("`{name}` needs truth values, found {}", self.show(x));
        let zero = if self.may_be_float(dt) { "0.0" } else { "0" };
        Err(self.report_help(x.place, message, format!("compare them: `{name}({} != {zero})`", self.source(x))))
    }

    /// `softmax(x, axis = 1)`: `exp(x - max(x)) / sum(exp(x - max(x)))` along the axis, the last one if none is named.
    pub(super) fn softmax(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Float), &what)?;
        let (rank, place) = (self.ty(x).shape.len(), args.place);
        let axis = match args.named("axis") {
            _ if rank == 0 => {
                let message = format!("{what} needs a tile, found {}", self.show(x));
                return Err(self.report_help(x.place, message, "the softmax of one number is 1.0"));
            }
            Some(expr) => self.axis_choice(expr, rank)?,
            None => Axis::Known(rank as u8 - 1),
        };
        let val = self.for_axis(axis, rank, place, &mut |c, axis| c.softmax_along(x, axis, place).map(Val::One))?;
        self.one(val)
    }

    fn softmax_along(&mut self, x: Operand, axis: u8, place: SourceRange) -> Checked<Operand> {
        let ty = self.ty(x).clone();
        let kept = Along { axis, keep: true, all: None };
        let row = |c: &mut Self, of: NodeId, op| {
            let result = c.fold_along(Operand { node: of, place }, op, axis, place);
            let result = c.finish_axis(result, &kept, place)?.node;
            Ok(c.expand(result, &ty.shape, place))
        };
        let largest = row(self, x.node, BinaryOp::Max)?;
        let below = self.op(Op::binary(BinaryOp::Sub), vec![x.node, largest], ty.clone(), place);
        let exp = Op::unary(UnaryOp::Math(MathFn::Exp));
        let powers = self.op(exp, vec![below], ty.clone(), place);
        let sum = row(self, powers, BinaryOp::Add)?;
        let node = self.op(Op::binary(BinaryOp::Div), vec![powers, sum], ty.clone(), place);
        Ok(Operand { node, place })
    }

    /// `argmax`, `argmin`.
    pub(super) fn arg_extreme(&mut self, args: &Args<'_>, largest: bool) -> Checked<Operand> {
        let ([_, index], along) = self.extreme_pair(args, largest)?;
        self.finish_axis(index, &along, args.place)
    }

    /// The extremes along an axis and their indices: of equal values the first; NaN loses against every number.
    fn extreme_pair(&mut self, args: &Args<'_>, largest: bool) -> Checked<([NodeId; 2], Along)> {
        let what = format!("`{}`", args.row.name);
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Num), &what)?;
        let dt = self.data(x, &what)?;
        let (inputs, along) = self.along(args, &[x], &what)?;
        let place = args.place;
        let tile = inputs[0];
        let shape = self.ty(tile).shape.clone();
        let indices = self.indices(&shape, along.axis, place);
        let indices = Operand { node: indices, place };
        let nan = self.may_be_float(dt);
        let results = self.combination(&[tile, indices], Fold::Reduce, along.axis, place, |c, a, b| {
            c.better(largest, nan, [a[0], a[1]], [b[0], b[1]], place)
        });
        Ok(([results[0], results[1]], along))
    }

    /// The index along an axis of each element of a tile, i32.
    pub(super) fn indices(&mut self, shape: &[Dim], axis: u8, place: SourceRange) -> NodeId {
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
    fn better(&mut self, largest: bool, nan: bool, a: [NodeId; 2], b: [NodeId; 2], place: SourceRange) -> Vec<NodeId> {
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

    /// The axis of a reduction; without one, the tiles as one row each.
    pub(super) fn along(&mut self, args: &Args<'_>, inputs: &[Operand], what: &str) -> Checked<(Vec<Operand>, Along)> {
        let keep = self.flag(args, "keep_dims");
        let shape = self.ty(inputs[0]).shape.clone();
        if shape.is_empty() {
            return Err(self.needs_tile(inputs[0], what));
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
    pub(super) fn finish_axis(&mut self, node: NodeId, along: &Along, place: SourceRange) -> Checked<Operand> {
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

    /// Says that an operation along an axis has no axis.
    pub(super) fn needs_tile(&mut self, operand: Operand, what: &str) -> Reported {
        let message = format!("{what} needs a tile, found {}", self.show(operand));
        self.report_help(operand.place, message, "a scalar has no axis: leave the call out")
    }

    /// The dtype of a node that holds data.
    pub(super) fn node_dt(&self, node: NodeId) -> Option<DtRef> {
        match self.node(node).ty.elem {
            VElem::Data(dt) => Some(dt),
            VElem::Ptr(_) => None,
        }
    }
}
