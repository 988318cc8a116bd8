//! Operations on whole tiles: order, elements at indices, counts, and tiles side by side.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, DType, DTypeBound, Dim, ElementwiseOp, Op, ShapeOp, TileOp};

use super::args::Args;
use super::binary::Operator;
use super::choice::Axis;
use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::ops::TileCall;
use crate::source_range::SourceRange;
use crate::tree::{NodeId, Stmt};
use crate::types::{VElem, VTy};

impl Checker<'_> {
    pub(super) fn tile_call(&mut self, args: &Args<'_>, op: TileCall) -> Checked<Val> {
        let one = match op {
            TileCall::Split => return self.split(args),
            TileCall::TopK => return self.topk(args),
            TileCall::Cat => self.cat(args),
            TileCall::Interleave => self.interleave(args),
            TileCall::Flip => self.flip(args),
            TileCall::Gather => self.gather_tile(args),
            TileCall::Scatter => self.scatter_tile(args),
            TileCall::Histogram => self.histogram(args),
            TileCall::Sort => self.sort(args, false),
            TileCall::Argsort => self.sort(args, true),
        };
        one.map(Val::One)
    }

    /// The axis that a call names, else the last one.
    fn axis_or_last(&mut self, args: &Args<'_>, x: Operand) -> Checked<u8> {
        let rank = self.ty(x).shape.len();
        match args.named("axis") {
            _ if rank == 0 => Err(self.needs_tile(x, &format!("`{}`", args.row.name))),
            Some(expr) => self.axis(expr, rank, "the tile"),
            None => Ok(rank as u8 - 1),
        }
    }

    /// As [`Checker::axis_or_last`], of an operation whose result has one shape whatever the axis is.
    fn any_axis(&mut self, args: &Args<'_>, x: Operand) -> Checked<Axis> {
        let rank = self.ty(x).shape.len();
        match args.named("axis").filter(|_| rank > 0) {
            Some(expr) => self.axis_choice(expr, rank),
            None => self.axis_or_last(args, x).map(Axis::Known),
        }
    }

    /// The inverse of `join`.
    fn split(&mut self, args: &Args<'_>) -> Checked<Val> {
        let [x] = self.arg_values(args)?;
        let place = args.place;
        let shape = self.ty(x).shape.clone();
        let Some((last, rest)) = shape.split_last().filter(|(last, _)| self.same_dim(last, &Dim::Const(2))) else {
            let message = format!("`split` takes a tile whose last axis has 2 elements, found {}", self.show(x));
            return Err(self.report_help(x.place, message, "bring it to that shape: `reshape(x, [N / 2, 2])`"));
        };
        // The halves of `[2]` are scalars; meanwhile they are tiles of one element.
        let pairs = match rest {
            [] => self.reshaped(x, vec![Dim::Const(1), last.clone()], place)?,
            [..] => x,
        };
        let mut halves = Vec::new();
        for upper in [false, true] {
            let ty = self.ty(pairs).with_shape(self.ty(pairs).shape[..rest.len().max(1)].to_vec());
            let half = Operand { node: self.op(ShapeOp::Half { upper }, vec![pairs.node], ty, place), place };
            halves.push(Val::One(if rest.is_empty() { self.reshaped(half, Vec::new(), place)? } else { half }));
        }
        Ok(Val::Tuple(halves.into(), place))
    }

    /// Two tiles of one shape, one behind the other along an axis.
    fn cat(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [a, b] = self.arg_values(args)?;
        let axis = self.axis_or_last(args, a)?;
        let (joined, place) = (self.joined(a, b, "`cat`", args.place)?, args.place);
        let rank = self.ty(joined).shape.len() as u8;
        let perm = (0..axis).chain([rank - 1]).chain(axis..rank - 1).collect();
        let apart = self.permuted(joined, perm, place)?;
        self.merged(apart, usize::from(axis), place)
    }

    /// The elements of two tiles in turn, along the last axis.
    fn interleave(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [a, b] = self.arg_values(args)?;
        let joined = self.joined(a, b, "`interleave`", args.place)?;
        match self.ty(joined).shape.len() {
            1 => Ok(joined),
            rank => self.merged(joined, rank - 2, args.place),
        }
    }

    /// The tile with an axis and the next one as one.
    fn merged(&mut self, x: Operand, axis: usize, place: SourceRange) -> Checked<Operand> {
        let mut shape = self.ty(x).shape.clone();
        let next = shape.remove(axis + 1);
        shape[axis] = self.dim_result(shape[axis].mul(&next), place)?;
        self.reshaped(x, shape, place)
    }

    /// `gather(x, (n - 1) - index)`
    fn flip(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        self.data(x, "`flip`")?;
        let (axis, place) = (self.any_axis(args, x)?, args.place);
        let rank = self.ty(x).shape.len();
        let val = self.for_axis(axis, rank, place, &mut |c, axis| c.flipped(x, axis, place).map(Val::One))?;
        self.one(val)
    }

    fn flipped(&mut self, x: Operand, axis: u8, place: SourceRange) -> Checked<Operand> {
        let shape = self.ty(x).shape.clone();
        let indices = Operand { node: self.indices(&shape, axis, place), place };
        let last = self.dim_result(shape[usize::from(axis)].sub(&Dim::Const(1)), place)?;
        let last = Operand { node: self.int(last, place), place };
        let from = self.arith(BinaryOp::Sub, "`flip`", last, indices, place, place)?;
        let ty = self.ty(x).clone();
        Ok(Operand { node: self.op(TileOp::Gather { axis }, vec![x.node, from.node], ty, place), place })
    }

    /// `gather(x, index, axis = 0)`
    fn gather_tile(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x, index] = self.arg_values(args)?;
        let dt = self.data(x, "`gather`")?;
        let axis = self.axis_or_last(args, x)?;
        let index = self.index_of(args, x, index, axis)?;
        let ty = VTy { elem: VElem::Data(dt), shape: self.ty(index).shape.clone() };
        let node = self.op(TileOp::Gather { axis }, vec![x.node, index.node], ty, args.place);
        Ok(Operand { node, place: args.place })
    }

    /// `scatter(x, index, value, axis = 0)`
    fn scatter_tile(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x, index, value] = self.arg_values(args)?;
        let dt = self.unify(x, value, "`scatter`", args.place)?;
        let axis = self.axis_or_last(args, x)?;
        let shape = self.common_shape(&[index, value], "`scatter`", args.place)?;
        let [index_node, value] = [index, value].map(|operand| self.expand(operand.node, &shape, args.place));
        let index = self.index_of(args, x, Operand { node: index_node, ..index }, axis)?;
        let ty = VTy { elem: VElem::Data(dt), shape: self.ty(x).shape.clone() };
        let node = self.op(TileOp::Scatter { axis }, vec![x.node, index.node, value], ty, args.place);
        Ok(Operand { node, place: args.place })
    }

    /// An index that fits the tile: where it does not lie within the axis, the program ends.
    fn index_of(&mut self, args: &Args<'_>, x: Operand, index: Operand, axis: u8) -> Checked<Operand> {
        let (what, place) = (format!("`{}`", args.row.name), index.place);
        self.need(index, Needs::Bound(DTypeBound::Int), &format!("the index of {what}"))?;
        let (tile, own) = (self.ty(x).shape.clone(), self.ty(index).shape.clone());
        let alike = |(at, (a, b)): (usize, (&Dim, &Dim))| at == usize::from(axis) || self.same_dim(a, b);
        if tile.len() != own.len() || !tile.iter().zip(&own).enumerate().all(alike) {
            let (tile, own) = (self.show_shape(&tile), self.show_shape(&own));
            let message =
                format!("the index of {what} has the tile's shape along all axes but {axis}: {own} and {tile}");
            return Err(self.report_help(place, message, "repeat it along the others: `broadcast_to(index, shape)`"));
        }
        // Negative numbers are large ones.
        let wide = self.ty(index).with_dt(DType::U64);
        let cast = ElementwiseOp::Cast { to: DType::U64.into() };
        let number = Operand { node: self.op(cast, vec![index.node], wide, place), place };
        let size = Operand { node: self.int(tile[usize::from(axis)].clone(), place), place };
        let inside = self.binary(Operator::Compare(CmpOp::Lt, "`gather`"), number, size, place, place)?;
        let message = format!("an index of {what} lies outside the tile");
        self.stmts.push(Stmt::Effect(ControlOp::Assert { message }.into(), vec![inside.node], place));
        Ok(index)
    }

    /// `histogram(x, bins, mask = ..)`
    fn histogram(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.arg(args, 0);
        let Some(expr) = args.expr(1) else { return Err(Reported::earlier()) };
        let bins = self.dim(expr);
        let mask = self.named_value(args, "mask");
        let (x, bins, mask) = (x?, bins?, mask?);
        self.need(x, Needs::Bound(DTypeBound::Int), "`histogram`")?;
        let shape = self.ty(x).shape.clone();
        if shape.is_empty() {
            return Err(self.needs_tile(x, "`histogram`"));
        }
        if bins.as_const().is_some_and(|bins| bins < 1) {
            return Err(self.report(SourceRange::of(expr), "a histogram has at least one bin"));
        }
        self.check_shape(std::slice::from_ref(&bins), SourceRange::of(expr))?;
        let mut operands = vec![x.node];
        if let Some(mask) = mask {
            operands.push(self.mask(mask, &shape, "histogram")?);
        }
        let ty = VTy { elem: VElem::Data(DType::I32.into()), shape: vec![bins.clone()] };
        Ok(Operand { node: self.op(TileOp::Histogram { bins }, operands, ty, args.place), place: args.place })
    }

    /// `sort(x, axis = 0, descending = true)`, or the indices that sort.
    fn sort(&mut self, args: &Args<'_>, indices: bool) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        let descending = self.choice(args, "descending");
        self.need(x, Needs::Bound(DTypeBound::Num), &format!("`{}`", args.row.name))?;
        let (axis, descending, place) = (self.any_axis(args, x)?, descending?, args.place);
        let rank = self.ty(x).shape.len();
        let val = self.for_axis(axis, rank, place, &mut |c, axis| {
            c.either(descending, place, &mut |c, descending| {
                let keep = c.ty(x).shape[usize::from(axis)].clone();
                let node = c.sorted(x, TileOp::Sort { axis, descending, keep, indices }, place);
                Ok(Val::One(Operand { node, place }))
            })
        })?;
        self.one(val)
    }

    /// The axis along which a tile of numbers is sorted.
    fn sortable(&mut self, args: &Args<'_>, x: Operand) -> Checked<u8> {
        self.need(x, Needs::Bound(DTypeBound::Num), &format!("`{}`", args.row.name))?;
        self.axis_or_last(args, x)
    }

    fn sorted(&mut self, x: Operand, sort: TileOp, place: SourceRange) -> NodeId {
        let mut ty = self.ty(x).clone();
        if let TileOp::Sort { axis, keep, indices, descending: _ } = &sort {
            ty.shape[usize::from(*axis)] = keep.clone();
            ty = if *indices { ty.with_dt(DType::I32) } else { ty };
        }
        self.op(sort, vec![x.node], ty, place)
    }

    /// `topk(x, k)`: the largest elements in descending order, or with `smallest` the smallest in ascending order.
    fn topk(&mut self, args: &Args<'_>) -> Checked<Val> {
        let x = self.arg(args, 0);
        let Some(expr) = args.expr(1) else { return Err(Reported::earlier()) };
        let keep = self.dim(expr);
        let (smallest, indices) = (self.choice(args, "smallest"), self.flag(args, "return_indices"));
        let (x, keep, place) = (x?, keep?, args.place);
        let axis = self.sortable(args, x)?;
        let size = self.ty(x).shape[usize::from(axis)].clone();
        self.keeps_some(&keep, &size, SourceRange::of(expr))?;
        let indices = indices?;
        self.either(smallest?, place, &mut |c, smallest| {
            let sort = TileOp::Sort { axis, descending: !smallest, keep: keep.clone(), indices };
            let node = c.sorted(x, sort, place);
            let first = Operand { node, place };
            if !indices {
                return Ok(Val::One(first));
            }
            let ty = VTy { elem: c.ty(x).elem, shape: c.ty(first).shape.clone() };
            let values = c.op(TileOp::Gather { axis }, vec![x.node, node], ty, place);
            Ok(Val::Tuple(vec![Val::One(Operand { node: values, place }), Val::One(first)].into(), place))
        })
    }

    /// Whether `1 <= keep <= size`; of what binding decides a static assertion.
    fn keeps_some(&mut self, keep: &Dim, size: &Dim, place: SourceRange) -> Checked<()> {
        let known = keep.as_const().map(|keep| (keep, size.as_const()));
        if known.is_some_and(|(keep, size)| keep < 1 || size.is_some_and(|size| keep > size)) {
            let message = format!("`topk` takes 1 to {} elements", self.dim_source(size));
            return Err(self.report(place, message));
        }
        self.check_shape(std::slice::from_ref(keep), place)?;
        if known.is_some_and(|(_, size)| size.is_some()) || keep == size {
            return Ok(());
        }
        let [one, keep, size] =
            [&Dim::Const(1), keep, size].map(|dim| Operand { node: self.int(dim.clone(), place), place });
        for (least, most) in [(one, keep), (keep, size)] {
            let holds = self.binary(Operator::Compare(CmpOp::Le, "`topk`"), least, most, place, place)?;
            let message = "`topk` takes at least one element and at most all".to_string();
            self.stmts.push(Stmt::Effect(Op::from(ControlOp::StaticAssert { message }), vec![holds.node], place));
        }
        Ok(())
    }
}
