//! Functions that are expanded into operations here, for want of an operation of their own.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, CmpOp, DType, DTypeBound, Dim, Dt, ElementwiseOp, LimitKind, Op, UnaryOp};

use super::args::Args;
use super::binary::Operator;
use super::{Checker, Operand, Val};
use crate::error::Checked;
use crate::ops::{Composed, Wrapping};
use crate::source_range::SourceRange;
use crate::tree::{NodeId, VOp};
use crate::types::{BOOL, VElem, VTy, unsigned_of};

impl Checker<'_> {
    /// The expansion of a call, all of it at the place of the call.
    pub(super) fn composed(&mut self, args: &Args<'_>, which: Composed) -> Checked<Operand> {
        match which {
            Composed::Clamp => self.clamp(args),
            Composed::Cdiv => self.cdiv(args),
            Composed::Fract => self.fract(args),
            Composed::Fdim => self.fdim(args),
            Composed::IsNan => self.is_nan(args),
            Composed::IsInfinite => self.against_largest(args, CmpOp::Gt, "`is_infinite`"),
            Composed::IsFinite => self.against_largest(args, CmpOp::Le, "`is_finite`"),
        }
    }

    /// `(a + b, a + b != saturating_add(a, b))`, differences alike, and `(a * b, mulhi(a, b) != mulhi(a * b, 1))`: the
    /// upper half of a product that fits is all sign, as that of the lower half times one is.
    pub(super) fn overflowing(&mut self, args: &Args<'_>, op: Wrapping) -> Checked<Val> {
        let (what, place) = (format!("`{}`", args.row.name), args.place);
        let [a, b] = self.arg_values(args)?;
        self.need_both(a, b, Needs::Bound(DTypeBound::Int), &what)?;
        let dt = self.unify(a, b, &what, place)?;
        let shape = self.common_shape(&[a, b], &what, place)?;
        let operands = [a, b].map(|operand| self.expand(operand.node, &shape, place));
        let ty = VTy { elem: VElem::Data(dt), shape };
        let of = |c: &mut Self, op, operands: [NodeId; 2]| c.op(Op::binary(op), operands.to_vec(), ty.clone(), place);
        let (wrapped, [left, right]) = match op {
            Wrapping::Add => {
                let sum = of(self, BinaryOp::Add, operands);
                (sum, [sum, of(self, BinaryOp::SaturatingAdd, operands)])
            }
            Wrapping::Sub => {
                let difference = of(self, BinaryOp::Sub, operands);
                (difference, [difference, of(self, BinaryOp::SaturatingSub, operands)])
            }
            Wrapping::Mul => {
                let product = of(self, BinaryOp::Mul, operands);
                let one = self.int(Dim::Const(1), place);
                let one = Operand { node: one, place };
                self.unify(one, Operand { node: product, place }, &what, place)?;
                let one = self.expand(one.node, &ty.shape, place);
                let upper = of(self, BinaryOp::Mulhi, operands);
                (product, [upper, of(self, BinaryOp::Mulhi, [product, one])])
            }
        };
        let overflows = self.op(Op::compare(CmpOp::Ne), vec![left, right], ty.with_dt(BOOL), place);
        let parts = [wrapped, overflows].map(|node| Val::One(Operand { node, place })).to_vec();
        Ok(Val::Tuple(parts.into(), place))
    }

    /// `minimum(maximum(x, lo), hi)`
    fn clamp(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let propagate = self.choice(args, "propagate_nan");
        let [x, lo, hi] = self.arg_values(args)?;
        let place = args.place;
        let val = self.either(propagate?, place, &mut |c, propagate| {
            let [min, max] =
                if propagate { [BinaryOp::MinNan, BinaryOp::MaxNan] } else { [BinaryOp::Min, BinaryOp::Max] };
            let low = c.arith(max, "`clamp`", x, lo, place, place)?;
            // A message about the upper bound quotes the value.
            let low = Operand { place: x.place, ..low };
            c.arith(min, "`clamp`", low, hi, place, place).map(Val::One)
        })?;
        self.one(val)
    }

    /// `(a + (b - 1)) / b`, whose sum must not wrap: it is computed in a dtype that holds it. Where there is none, or nobody
    /// knows the dtype, it is `a / b` and one more if that leaves something.
    fn cdiv(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [a, b] = self.arg_values(args)?;
        let place = args.place;
        let integers = [a, b].map(|operand| self.need(operand, Needs::Bound(DTypeBound::Int), "`cdiv`"));
        integers.into_iter().collect::<Checked<()>>()?;
        let dt = self.unify(a, b, "`cdiv`", place)?;
        let exact = [a, b].iter().all(|operand| self.node(operand.node).dim.is_some());
        match self.types.known(dt) {
            Some(narrow @ Dt::Known(dtype)) if dtype.bits() < 32 => {
                let [a, b] = [self.cast(a, DType::I32.into(), place)?, self.cast(b, DType::I32.into(), place)?];
                let quotient = self.rounded_up(a, b, place)?;
                self.cast(quotient, narrow, place)
            }
            Some(signed) if unsigned_of(signed) != signed => {
                // Two positive numbers do not wrap if there is no sign. Of negative ones nothing is left.
                let zero = Operand { node: self.int(Dim::Const(0), place), place };
                let a = self.arith(BinaryOp::Max, "`cdiv`", a, zero, place, place)?;
                let unsigned = unsigned_of(signed);
                let [a, b] = [self.cast(a, unsigned, place)?, self.cast(b, unsigned, place)?];
                let quotient = self.rounded_up(a, b, place)?;
                self.cast(quotient, signed, place)
            }
            Some(_) | None if exact => self.rounded_up(a, b, place),
            Some(_) | None => self.quotient_and_rest(a, b, place),
        }
    }

    /// `(a + (b - 1)) / b`
    fn rounded_up(&mut self, a: Operand, b: Operand, place: SourceRange) -> Checked<Operand> {
        let one = Operand { node: self.int(Dim::Const(1), place), place };
        let below = self.arith(BinaryOp::Sub, "`cdiv`", b, one, place, place)?;
        let sum = self.arith(BinaryOp::Add, "`cdiv`", a, below, place, place)?;
        self.arith(BinaryOp::Div, "`cdiv`", sum, b, place, place)
    }

    /// `a / b + minimum(maximum(a - a / b * b, 0), 1)`
    fn quotient_and_rest(&mut self, a: Operand, b: Operand, place: SourceRange) -> Checked<Operand> {
        let mut of = |op, l, r| self.arith(op, "`cdiv`", l, r, place, place);
        let quotient = of(BinaryOp::Div, a, b)?;
        let whole = of(BinaryOp::Mul, quotient, b)?;
        let rest = of(BinaryOp::Sub, a, whole)?;
        let [zero, one] = [0, 1].map(|number| Operand { node: self.int(Dim::Const(number), place), place });
        let mut of = |op, l, r| self.arith(op, "`cdiv`", l, r, place, place);
        let positive = of(BinaryOp::Max, rest, zero)?;
        let more = of(BinaryOp::Min, positive, one)?;
        of(BinaryOp::Add, quotient, more)
    }

    /// `x - trunc(x)`
    fn fract(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.float_argument(args, "`fract`")?;
        let whole = self.of_one(UnaryOp::Trunc, x, args);
        self.arith(BinaryOp::Sub, "`fract`", x, whole, args.place, args.place)
    }

    /// `select(x <= y, 0, x - y)`: NaN is not less or equal, and stays in the difference.
    fn fdim(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x, y] = self.arg_values(args)?;
        self.need_both(x, y, Needs::Bound(DTypeBound::Float), "`fdim`")?;
        let place = args.place;
        let difference = self.arith(BinaryOp::Sub, "`fdim`", x, y, place, place)?;
        let below = self.binary(Operator::Compare(CmpOp::Le, "`fdim`"), x, y, place, place)?;
        let ty = self.ty(difference).clone();
        let zero = self.eval(VOp::Zero, Vec::new(), ty.with_shape(Vec::new()), place);
        let zero = self.expand(zero, &ty.shape, place);
        let node = self.op(ElementwiseOp::Select, vec![below.node, zero, difference.node], ty, place);
        Ok(Operand { node, place })
    }

    /// `x != x`
    fn is_nan(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.float_argument(args, "`is_nan`")?;
        self.binary(Operator::Compare(CmpOp::Ne, "`is_nan`"), x, x, args.place, args.place)
    }

    /// `abs(x) > T::MAX`, or `<=`. The limit is not `T::INFINITY`, which is a number where the dtype has no infinities.
    fn against_largest(&mut self, args: &Args<'_>, op: CmpOp, what: &'static str) -> Checked<Operand> {
        let x = self.float_argument(args, what)?;
        let magnitude = self.of_one(UnaryOp::Abs, x, args);
        let ty = self.ty(x).with_shape(Vec::new());
        let largest = Operand { node: self.eval(VOp::Limit(LimitKind::Max), Vec::new(), ty, args.place), ..magnitude };
        self.binary(Operator::Compare(op, what), magnitude, largest, args.place, args.place)
    }

    fn float_argument(&mut self, args: &Args<'_>, what: &str) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        self.need(x, Needs::Bound(DTypeBound::Float), what)?;
        Ok(x)
    }

    fn of_one(&mut self, op: UnaryOp, x: Operand, args: &Args<'_>) -> Operand {
        let ty = self.ty(x).clone();
        Operand { node: self.op(Op::unary(op), vec![x.node], ty, args.place), place: args.place }
    }
}
