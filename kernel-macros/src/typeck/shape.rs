//! Operations that rearrange elements.

use kernel_core::ir::{Atom, Dim, ShapeOp};
use syn::{Expr, ExprIndex, ExprLit, ExprUnary, Lit, UnOp};

use super::args::Args;
use super::macros::single;
use super::ty::constexprs;
use super::{Checker, Operand};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::ops::ShapeCall;
use crate::source_range::{SourceRange, bare};
use crate::types::{VElem, VTy};

impl Checker<'_> {
    pub(super) fn shape_call(&mut self, args: &Args<'_>, op: ShapeCall) -> Checked<Operand> {
        match op {
            ShapeCall::ExpandDims => self.expand_dims(args),
            ShapeCall::BroadcastTo => self.broadcast_to(args),
            ShapeCall::Reshape => self.reshape(args),
            ShapeCall::Trans => self.trans(args),
            ShapeCall::Permute => self.permute(args),
            ShapeCall::Join => self.join(args),
        }
    }

    fn expand_dims(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        let Some(expr) = args.expr(1) else { return Err(Reported::earlier()) };
        let rank = self.ty(x).shape.len();
        let axis = self.axis(expr, rank + 1, "the result")?;
        self.insert_axis(x, axis, args.place)
    }

    fn insert_axis(&mut self, x: Operand, axis: u8, place: SourceRange) -> Checked<Operand> {
        let mut shape = self.ty(x).shape.clone();
        shape.insert(usize::from(axis), Dim::Const(1));
        let node = if shape.len() == 1 {
            self.expand(x.node, &shape, place)
        } else {
            let ty = self.ty(x).with_shape(shape);
            self.op(ShapeOp::ExpandDims { axis }, vec![x.node], ty, place)
        };
        Ok(Operand { node, place })
    }

    /// `x[(.., None)]`
    pub(super) fn index(&mut self, index: &ExprIndex, x: Checked<Operand>, place: SourceRange) -> Checked<Operand> {
        if self.on_an_element() {
            return Err(self.more_than_arithmetic("[..]", place));
        }
        let x = x?;
        let single = [&*index.index];
        let parts: Vec<&Expr> = match bare(&index.index) {
            Expr::Tuple(tuple) => tuple.elems.iter().collect(),
            _ => single.to_vec(),
        };
        let mut kinds = Vec::new();
        for part in parts {
            match bare(part) {
                Expr::Range(range) if range.start.is_none() && range.end.is_none() => kinds.push(false),
                Expr::Path(path) if path.path.is_ident("None") => kinds.push(true),
                other => {
                    let message = "an index of a tile is made of `..` (keep this axis) and `None` (insert an axis)";
                    let help =
                        "tiles have no single elements: read memory with `load(pointer + i)`, or reduce the tile";
                    return Err(self.report_help(SourceRange::of(other), message, help));
                }
            }
        }
        let mut x = x;
        let rank = self.ty(x).shape.len();
        let kept = kinds.iter().filter(|new| !**new).count();
        if kept != rank {
            let axes = if kept == 1 { "axis" } else { "axes" };
            let message = format!("the index keeps {kept} {axes}, but the tile has {rank}");
            let example: Vec<&str> = std::iter::repeat_n("..", rank).chain(["None"]).collect();
            let help = format!("write one `..` for each axis: `[({})]`", example.join(", "));
            return Err(self.report_help(SourceRange::of(&index.index), message, help));
        }
        for (axis, new) in (0u8..).zip(kinds) {
            if new {
                x = self.insert_axis(x, axis, place)?;
            }
        }
        Ok(Operand { place, ..x })
    }

    fn broadcast_to(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.arg(args, 0);
        let shape = self.shape_of(args, 1);
        let (x, shape) = (x?, shape?);
        let own = self.ty(x).shape.clone();
        let pairs = own.iter().rev().zip(shape.iter().rev());
        let misfit =
            pairs.filter(|(a, b)| !a.is_one() && !self.same_dim(a, b)).map(|(a, b)| (a.clone(), b.clone())).next_back();
        match misfit {
            None if own.len() <= shape.len() => {
                Ok(Operand { node: self.expand(x.node, &shape, args.place), place: args.place })
            }
            None => {
                let message =
                    format!("the shape {} has more axes than {}", self.show_shape(&own), self.show_shape(&shape));
                Err(self.report_help(args.place, message, "reduce or reshape it first"))
            }
            Some((a, b)) => {
                let message =
                    format!("the shape {} does not broadcast to {}", self.show_shape(&own), self.show_shape(&shape));
                let help = self.shape_help(&a, &b);
                Err(self.report_help(args.place, message, help))
            }
        }
    }

    fn reshape(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.arg(args, 0);
        if let (Ok(x), Some(shape)) = (&x, args.expr(1)) {
            self.no_open_dim(*x, shape)?;
        }
        let shape = self.shape_of(args, 1);
        let (x, shape) = (x?, shape?);
        self.reshaped(x, shape, args.place)
    }

    /// Refuses `-1`, which stands elsewhere for what the other dimensions leave of the elements.
    fn no_open_dim(&mut self, x: Operand, shape: &Expr) -> Checked<()> {
        let Expr::Array(array) = bare(shape) else { return Ok(()) };
        let (open, others): (Vec<&Expr>, Vec<&Expr>) = array.elems.iter().partition(|dim| is_minus_one(dim));
        let [open] = open.as_slice() else { return Ok(()) };
        let place = SourceRange::of(open);
        let others = others.into_iter().map(|dim| self.dim(dim)).collect::<Checked<Vec<Dim>>>()?;
        self.check_shape(&others, SourceRange::of(shape))?;
        let own = self.ty(x).shape.clone();
        let (before, others) = (Dim::product(&own), Dim::product(&others));
        let (before, others) = (self.dim_result(before, place)?, self.dim_result(others, place)?);
        let left = self.dim_result(before.div(&others), place)?;
        let after = self.dim_result(left.mul(&others), place)?;
        let written = array.elems.iter().map(|dim| match is_minus_one(dim) {
            true => self.dim_source(&left),
            false => self.source.text(SourceRange::of(dim)).unwrap_or_default(),
        });
        let help = format!("write `[{}]`", written.collect::<Vec<_>>().join(", "));
        let help = match self.same_dim(&before, &after) {
            true => Help::write(place, self.dim_source(&left)).said(help),
            false => format!("{help}, and {}", self.reshape_help(&before, &after)).into(),
        };
        Err(self.report_help(place, "a dimension is a power of two, found -1", help))
    }

    /// The same elements in another shape.
    pub(super) fn reshaped(&mut self, x: Operand, shape: Vec<Dim>, place: SourceRange) -> Checked<Operand> {
        let own = self.ty(x).shape.clone();
        let before = self.dim_result(Dim::product(&own), place)?;
        let after = self.dim_result(Dim::product(&shape), place)?;
        let same_here = || !self.facts_here.is_empty() && self.norm_here(&before) == self.norm_here(&after);
        if !self.same_dim(&before, &after) && !self.decided_later(&before, &after) && !same_here() {
            let (from, to) = (self.show_shape(&own), self.show_shape(&shape));
            let (a, b) = (self.dim_source(&before), self.dim_source(&after));
            let message = format!("`reshape` keeps the elements, but {from} has `{a}` and {to} has `{b}`");
            let help = self.reshape_help(&before, &after);
            return Err(self.report_help(place, message, help));
        }
        if own.is_empty() {
            return Ok(Operand { node: self.expand(x.node, &shape, place), place });
        }
        let ty = self.ty(x).with_shape(shape.clone());
        Ok(Operand { node: self.op(ShapeOp::Reshape { shape }, vec![x.node], ty, place), place })
    }

    /// Whether only the values of the constexprs tell if two numbers of elements are equal, which no `static_assert!` says
    /// in a form that is learnt: they are compared when the kernel is bound.
    fn decided_later(&self, before: &Dim, after: &Dim) -> bool {
        let (before, after) = (self.norm(before), self.norm(after));
        let atoms = [&before, &after].into_iter().flat_map(Dim::terms).flat_map(|(atoms, _)| atoms);
        let mut open = atoms.filter(|atom| match atom {
            Atom::Const(_) => false,
            Atom::Div(a, b) | Atom::Rem(a, b) => single(a).is_none() || b.as_const().is_none(),
            Atom::Min(..) | Atom::Max(..) | Atom::Power(_) => true,
        });
        open.next().is_some() && before.may_equal(&after)
    }

    fn reshape_help(&self, before: &Dim, after: &Dim) -> String {
        let a = self.dim_source(before);
        // `N / 2` doubled is N only if N is even.
        for divisor in [2, 4, 8, 16, 32] {
            let half = before.div(&Dim::Const(divisor)).and_then(|half| half.mul(&Dim::Const(divisor)));
            if half.as_ref() == Ok(after) {
                return format!("say that it divides: `static_assert!({a} % {divisor} == 0);`");
            }
        }
        if let Some(help) = self.divides_help(before, after) {
            return help;
        }
        // Of the same constexprs, as `N` and `N / 2`, or of none.
        if constexprs(before) == constexprs(after) {
            return "choose a shape with as many elements".to_string();
        }
        self.equation_help(before, after)
    }

    fn trans(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        let rank = self.ty(x).shape.len();
        if rank < 2 {
            let message = format!("`trans` swaps the last two axes, found {}", self.show(x));
            return Err(self.report_help(x.place, message, "insert an axis: `x[(.., None)]`"));
        }
        let mut perm: Vec<u8> = (0..rank as u8).collect();
        perm.swap(rank - 2, rank - 1);
        self.permuted(x, perm, args.place)
    }

    fn permute(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.arg(args, 0);
        let Some(expr) = args.expr(1) else { return Err(Reported::earlier()) };
        let Expr::Array(array) = bare(expr) else {
            let help = "write the order of axes as `[1, 0, 2]`";
            return Err(self.report_help(SourceRange::of(expr), "this is not an order of axes", help));
        };
        let x = x?;
        let rank = self.ty(x).shape.len();
        let axes: Vec<Checked<u8>> = array.elems.iter().map(|e| self.axis(e, rank, "the tile")).collect();
        let axes = axes.into_iter().collect::<Checked<Vec<u8>>>()?;
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..rank as u8) {
            let message = format!("`permute` names each of the {rank} axes once");
            return Err(self.report(SourceRange::of(expr), message));
        }
        self.permuted(x, axes, args.place)
    }

    pub(super) fn permuted(&mut self, x: Operand, perm: Vec<u8>, place: SourceRange) -> Checked<Operand> {
        let own = self.ty(x).clone();
        let shape = perm.iter().map(|&p| own.shape[usize::from(p)].clone()).collect();
        let ty = own.with_shape(shape);
        Ok(Operand { node: self.op(ShapeOp::Permute { perm }, vec![x.node], ty, place), place })
    }

    /// Two tiles side by side along a new last axis. Scalars are tiles of one element meanwhile.
    fn join(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [a, b] = self.arg_values(args)?;
        self.joined(a, b, "`join`", args.place)
    }

    pub(super) fn joined(&mut self, a: Operand, b: Operand, what: &str, place: SourceRange) -> Checked<Operand> {
        let dt = self.unify(a, b, what, place)?;
        let common = self.common_shape(&[a, b], what, place)?;
        let half = if common.is_empty() { vec![Dim::Const(1)] } else { common.clone() };
        let nodes = [a, b].map(|x| self.expand(x.node, &half, place)).to_vec();
        let pair = |mut shape: Vec<Dim>| {
            shape.push(Dim::Const(2));
            shape
        };
        let ty = VTy { elem: VElem::Data(dt), shape: pair(half) };
        let joined = Operand { node: self.op(ShapeOp::Join, nodes, ty, place), place };
        if common.is_empty() { self.reshaped(joined, pair(common), place) } else { Ok(joined) }
    }
}

fn is_minus_one(expr: &Expr) -> bool {
    let Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) = bare(expr) else { return false };
    matches!(bare(expr), Expr::Lit(ExprLit { lit: Lit::Int(one), .. }) if one.base10_digits() == "1")
}
