//! Values from nothing: program ids, ranges, constant tiles; and shapes.

use std::collections::BTreeSet;

use kernel_core::ir::{BinaryOp, CounterKind, CreateOp, DType, Dim, ElementwiseOp, Op};
use syn::visit::Visit;
use syn::{BinOp, Expr, ExprLit, Lit};

use super::args::Args;
use super::block::Named;
use super::{Binding, Checker, Context, Operand};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::source_range::{SourceRange, bare};
use crate::spellings::without_parentheses;
use crate::tree::{Kind, NodeId, VOp};
use crate::types::{BOOL, Class, DtRef, VElem, VTy};

/// The largest number of elements of a tile.
const MAX_ELEMENTS: i64 = 1 << 20;

impl Checker<'_> {
    pub(super) fn program_id(&mut self, args: &Args<'_>, id: bool) -> Checked<Operand> {
        let place = args.place;
        let Some(expr) = args.expr(0) else { return Err(Reported::earlier()) };
        let axis = self.literal_int(expr, "the axis of the grid")?;
        let Some(axis) = u8::try_from(axis).ok().filter(|a| *a < 3) else {
            return Err(self.report(SourceRange::of(expr), "a grid has the axes 0, 1 and 2"));
        };
        let op = if id { CreateOp::ProgramId { axis } } else { CreateOp::NumPrograms { axis } };
        Ok(Operand { node: self.op(op, Vec::new(), VTy::scalar(DType::I32), place), place })
    }

    /// `clock()`, `globaltimer()`, `smid()`
    pub(super) fn counter(&mut self, args: &Args<'_>, which: CounterKind) -> Checked<Operand> {
        let [] = self.arg_values(args)?;
        let (op, ty) = (CreateOp::Counter { which }, VTy::scalar(which.dtype()));
        Ok(Operand { node: self.op(op, Vec::new(), ty, args.place), place: args.place })
    }

    pub(super) fn arange(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let place = args.place;
        if let Some(help) = self.shifted_range(args) {
            let message = "the ends of `arange` are made of constexprs and literals; these are known only at launch";
            return Err(self.report_help(place, message, help));
        }
        let [Some(lo), Some(hi)] = [args.expr(0), args.expr(1)] else { return Err(Reported::earlier()) };
        let (lo, hi) = (self.dim(lo)?, self.dim(hi)?);
        let len = self.dim_result(hi.sub(&lo), place)?;
        if len.as_const().is_some_and(|n| n <= 0) {
            let help = "write `arange(lo, hi)` with `lo < hi`";
            return Err(self.report_help(place, "this range has no elements", help));
        }
        self.check_shape(std::slice::from_ref(&len), place)?;
        let fits = |d: Option<i64>| d.is_none_or(|v| i32::try_from(v).is_ok());
        // The end is no number of the range: it may be the one behind the greatest `i32`.
        if !fits(lo.as_const()) || !fits(hi.as_const().map(|end| end.saturating_sub(1))) {
            return Err(self.report(place, "the numbers of `arange` are i32, and these do not fit"));
        }
        let ty = VTy { elem: VElem::Data(DType::I32.into()), shape: vec![len] };
        Ok(Operand { node: self.op(CreateOp::Arange { lo, hi }, Vec::new(), ty, place), place })
    }

    /// `arange(row, row + BLOCK)` is `row + arange(0, BLOCK)`.
    fn shifted_range(&mut self, args: &Args<'_>) -> Option<Help> {
        let (lo, hi) = (args.expr(0)?, args.expr(1)?);
        let Expr::Binary(sum) = bare(hi) else { return None };
        let start = self.source.text(SourceRange::of(lo))?;
        let others = [(&sum.left, &sum.right), (&sum.right, &sum.left)];
        let is_start = |c: &Self, e: &Expr| c.source.text(SourceRange::of(e)).is_some_and(|text| text == start);
        let (_, count) = others.into_iter().find(|(own, _)| matches!(sum.op, BinOp::Add(_)) && is_start(self, own))?;
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(lo));
        if self.node(operand.ok()?.node).dim.is_some() {
            return None;
        }
        let (start, count) = (self.source.operand(SourceRange::of(lo)), self.source.text(SourceRange::of(count))?);
        let code = format!("{start} + arange(0, {count})");
        Some(Help::write(args.place, if self.source.is_operand(args.place) { format!("({code})") } else { code }))
    }

    pub(super) fn full(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let shape = self.shape_of(args, 0);
        let value = self.arg(args, 1);
        let (shape, value) = (shape?, value?);
        if let Some(dt) = args.dtype {
            self.expect(value, DtRef::Fixed(dt), "the value of `full`")?;
        }
        if !self.ty(value).is_scalar() {
            let message = format!("`full` repeats a scalar, found {}", self.show(value));
            return Err(self.report_help(value.place, message, "for a tile write `broadcast_to(x, shape)`"));
        }
        Ok(Operand { node: self.expand(value.node, &shape, args.place), place: args.place })
    }

    pub(super) fn zeros(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let shape = self.shape_of(args, 0)?;
        let dt = match args.dtype {
            Some(dt) => DtRef::Fixed(dt),
            None => self.types.fresh(Class::Any),
        };
        let scalar = self.eval(VOp::Zero, Vec::new(), VTy::scalar(dt), args.place);
        Ok(Operand { node: self.expand(scalar, &shape, args.place), place: args.place })
    }

    // Shapes

    /// A positional argument that is a shape.
    pub(super) fn shape_of(&mut self, args: &Args<'_>, index: usize) -> Checked<Vec<Dim>> {
        match args.expr(index) {
            Some(expr) => self.shape_arg(expr),
            // The number of arguments has been checked.
            None => Err(Reported::earlier()),
        }
    }

    /// `[M, N]`
    pub(super) fn shape_arg(&mut self, expr: &Expr) -> Checked<Vec<Dim>> {
        let place = SourceRange::of(expr);
        let elems = match expr {
            Expr::Array(array) => &array.elems,
            Expr::Group(group) => return self.shape_arg(&group.expr),
            Expr::Reference(reference) => {
                return Err(self.report_help(
                    place,
                    "a shape is written without `&`",
                    self::array_help(&reference.expr),
                ));
            }
            other => {
                let help = self.shape_of_named(other).or_else(|| self.shape_of_one(other));
                let help = help.unwrap_or_else(|| array_help(other).into());
                return Err(self.report_help(place, "this is not a shape", help));
            }
        };
        let dims: Vec<Checked<Dim>> = elems.iter().map(|e| self.dim(e)).collect();
        let dims = dims.into_iter().collect::<Checked<Vec<Dim>>>()?;
        for (dim, expr) in dims.iter().zip(elems) {
            self.check_dim(dim, SourceRange::of(expr))?;
        }
        self.check_size(&dims, place)?;
        Ok(dims)
    }

    /// `M * N`, the only dimension of a shape.
    fn shape_of_one(&self, expr: &Expr) -> Option<Help> {
        let mut inner = bare(expr);
        while let Expr::Paren(paren) = inner {
            inner = bare(&paren.expr);
        }
        let text = self.source.text(SourceRange::of(expr)).filter(|_| matches!(inner, Expr::Binary(_)))?;
        Some(Help::write(SourceRange::of(expr), format!("[{}]", without_parentheses(&text))))
    }

    /// The shape of a tile that stands where a shape is due.
    fn shape_of_named(&self, expr: &Expr) -> Option<Help> {
        let Expr::Path(path) = bare(expr) else { return None };
        let shape = match self.lookup(&path.path.get_ident()?.to_string())?.0 {
            Binding::Value(node) => &self.node(node).ty.shape,
            Binding::Var(var) => &self.variables[var.0].ty.shape,
            _ => return None,
        };
        (!shape.is_empty()).then(|| Help::write(SourceRange::of(expr), self.shape_source(shape)))
    }

    /// An expression over constexprs and literals.
    pub(super) fn dim(&mut self, expr: &Expr) -> Checked<Dim> {
        let place = SourceRange::of(expr);
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(expr));
        let operand = operand?;
        match &self.node(operand.node).dim {
            Some(dim) => Ok(dim.clone()),
            None => {
                let (message, help) = self.no_dim(operand, Some(expr), "a shape");
                Err(self.report_help(place, message, help))
            }
        }
    }

    /// What to say of a value where an integer of constexprs is due.
    pub(super) fn no_dim(&self, operand: Operand, expr: Option<&Expr>, what: &str) -> (String, Help) {
        let node = self.node(operand.node);
        if let Some(name) = expr.and_then(|expr| self.mutable_constexpr(expr)) {
            let message = format!("{what} is made of constexprs and literals, and `{name}` is `mut`");
            let help = "what a `let` without `mut` names is a constexpr, and so is the counter of an `#[unroll]` loop";
            return (message, help.into());
        }
        if !node.constexpr || matches!(node.kind, Kind::Param(_)) || self.ty(operand).elem == VElem::Data(BOOL) {
            let message = format!("{what} is made of constexprs and literals; this is known only at launch");
            return (message, "make it a const generic: `const N: usize`".into());
        }
        let message = format!(
            "{what} is made of constexprs and literals by `+`, `-`, `*`, `/`, `%`, `minimum`, `maximum` and `1 << n`"
        );
        let help = expr.and_then(|expr| self.without_shift(expr)).or_else(|| self.declared_by_shift(operand.node));
        (message, help.unwrap_or_else(|| "make it a const generic of its own: `const N: usize`".into()))
    }

    /// The first name in an expression that is a variable whose first value is made of constexprs.
    fn mutable_constexpr(&self, expr: &Expr) -> Option<String> {
        let mut names = Named(Vec::new());
        names.visit_expr(expr);
        let begins = |name: &String| match self.lookup(name) {
            Some((Binding::Var(var), _)) => self.node(self.variables[var.0].begin).dim.is_some(),
            _ => false,
        };
        names.0.into_iter().find(begins)
    }

    /// `N / 2` for `N >> 1`, and `N / (1 << S)` for `N >> S`.
    fn without_shift(&self, expr: &Expr) -> Option<Help> {
        let binary = match bare(expr) {
            Expr::Paren(paren) => return self.without_shift(&paren.expr),
            Expr::Binary(binary) => binary,
            _ => return None,
        };
        let sign = match binary.op {
            BinOp::Shr(_) => "/",
            BinOp::Shl(_) => "*",
            _ => return self.without_shift(&binary.left).or_else(|| self.without_shift(&binary.right)),
        };
        let power = match bare(&binary.right) {
            Expr::Lit(ExprLit { lit: Lit::Int(count), .. }) => power_of_two(count.base10_parse().ok()?)?.to_string(),
            count => format!("(1 << {})", self.source.operand(SourceRange::of(count))),
        };
        let number = self.source.operand(SourceRange::of(&binary.left));
        Some(Help::write(SourceRange::of(bare(expr)), format!("{number} {sign} {power}")))
    }

    /// The same where the shift stands in the `let` of a name: what to write there.
    fn declared_by_shift(&self, node: NodeId) -> Option<Help> {
        let (mut stack, mut seen) = (vec![node], BTreeSet::new());
        while let Some(id) = stack.pop() {
            // A constexpr whose type is given is in no shape.
            if self.annotated.contains(&id) {
                return None;
            }
            let Kind::Op(VOp::Ready(op), args) = &self.node(id).kind else { continue };
            // What is shifted comes first: it may be a shift itself.
            stack.extend(args.iter().filter(|arg| self.node(**arg).dim.is_none() && seen.insert(arg.0)));
            let sign = match op {
                Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Shr }) => "/",
                Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Shl }) => "*",
                _ => continue,
            };
            let [number, count] = args.as_slice() else { continue };
            let (Some(_), Some(by)) = (&self.node(*number).dim, &self.node(*count).dim) else { continue };
            let power = match by.as_const() {
                Some(count) => power_of_two(count)?.to_string(),
                None => format!("(1 << {})", self.source.whole(self.node(*count).place)?),
            };
            let (place, number) = (self.node(id).place, self.source.whole(self.node(*number).place)?);
            let (written, code) = (self.source.text(place)?, format!("{number} {sign} {power}"));
            let text = format!("for `{written}` write `{code}`");
            return Some(Help::write(place, code).said(text));
        }
        None
    }

    /// Refuses literal shapes that no tile can have.
    pub(super) fn check_shape(&mut self, shape: &[Dim], place: SourceRange) -> Checked<()> {
        for dim in shape {
            self.check_dim(dim, place)?;
        }
        self.check_size(shape, place)
    }

    fn check_dim(&mut self, dim: &Dim, place: SourceRange) -> Checked<()> {
        match dim.as_const() {
            None => Ok(()),
            Some(n) if n > 0 && n & (n - 1) == 0 => Ok(()),
            Some(n) if n <= 0 => {
                let message = format!("a dimension is a power of two, found {n}");
                Err(self.report(place, message))
            }
            Some(n) => {
                let next = u64::try_from(n).map_or(1, |n| n.checked_next_power_of_two().unwrap_or(1));
                let message = format!("a dimension is a power of two, found {n}");
                Err(self.report_help(place, message, format!("take {next} and mask what lies beyond {n}")))
            }
        }
    }

    fn check_size(&mut self, shape: &[Dim], place: SourceRange) -> Checked<()> {
        let known = shape.iter().filter_map(Dim::as_const).try_fold(1i64, |n, d| n.checked_mul(d));
        match known {
            Some(n) if n <= MAX_ELEMENTS => Ok(()),
            Some(_) | None => {
                let message = format!("a tile has at most {MAX_ELEMENTS} elements; this has more");
                Err(self.report_help(place, message, "take smaller tiles, and more programs or a loop"))
            }
        }
    }
}

/// What a shift by that many bits multiplies or divides by.
fn power_of_two(count: i64) -> Option<i64> {
    1i64.checked_shl(u32::try_from(count).ok()?).filter(|power| *power > 0)
}

fn array_help(expr: &Expr) -> String {
    match expr {
        Expr::Tuple(_) => "write it in brackets: `[M, N]`".to_string(),
        Expr::Path(path) => match path.path.get_ident() {
            Some(name) => format!("write `[{name}]`"),
            None => "write `[M, N]`".to_string(),
        },
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => format!("write `[{n}]`"),
        _ => "write `[M, N]`".to_string(),
    }
}
