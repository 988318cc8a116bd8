//! Operations on each element.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{BinaryOp, DType, DTypeBound, Dt, ElementwiseOp, Op, UnaryOp};

use kernel_core::math::FloatIntFn;

use super::args::Args;
use super::{Checker, Operand, Val};
use crate::error::Checked;
use crate::tree::VOp;
use crate::types::{BOOL, Class, Declared, DtRef, VElem, VTy};

fn called(args: &Args<'_>) -> String {
    format!("`{}`", args.row.name)
}

impl Checker<'_> {
    pub(super) fn unary_op(&mut self, args: &Args<'_>, op: UnaryOp) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        if op == UnaryOp::Neg {
            return self.negate(x, args.place);
        }
        self.need(x, op.needs(), &called(args))?;
        let ty = self.ty(x).clone();
        Ok(Operand { node: self.op(Op::unary(op), vec![x.node], ty, args.place), place: args.place })
    }

    /// A number of bits, as `u32`, whatever the width of the operand.
    pub(super) fn count(&mut self, args: &Args<'_>, op: UnaryOp) -> Checked<Operand> {
        let count = self.unary_op(args, op)?;
        self.cast(count, Dt::Known(DType::U32), args.place)
    }

    pub(super) fn binary_op(&mut self, args: &Args<'_>, op: BinaryOp) -> Checked<Operand> {
        let [a, b] = self.arg_values(args)?;
        self.arith(op, &called(args), a, b, args.place, args.place)
    }

    pub(super) fn float_int(&mut self, args: &Args<'_>, op: FloatIntFn) -> Checked<Operand> {
        let [x, n] = self.arg_values(args)?;
        let what = called(args);
        let float = self.need_beside(x, Needs::Bound(DTypeBound::Float), &what, &[n]);
        self.expect(n, DType::I32.into(), &format!("the second operand of {what}"))?;
        float?;
        let elem = self.ty(x).elem;
        self.elementwise(ElementwiseOp::FloatInt { op }, &[x, n], elem, args)
    }

    pub(super) fn extreme(&mut self, args: &Args<'_>, op: BinaryOp, nan: BinaryOp) -> Checked<Operand> {
        let propagate = self.choice(args, "propagate_nan");
        let [a, b] = self.arg_values(args)?;
        let (what, place) = (called(args), args.place);
        let val = self.either(propagate?, place, &mut |c, propagate| {
            let op = if propagate { nan } else { op };
            c.arith(op, &what, a, b, place, place).map(Val::One)
        })?;
        self.one(val)
    }

    pub(super) fn select(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [condition, a, b] = self.arg_values(args)?;
        let is_bool = |c: &Self, o| matches!(c.ty(o).elem, VElem::Data(dt) if c.types.resolve(dt) == BOOL);
        if !is_bool(self, condition) && is_bool(self, a) {
            let message = format!("the condition of `select` comes first, found {}", self.show(condition));
            return Err(self.report_help(condition.place, message, "write `select(condition, a, b)`"));
        }
        self.expect(condition, BOOL, "the condition of `select`")?;
        let elem = match (self.ty(a).elem, self.ty(b).elem) {
            (VElem::Ptr(p), VElem::Ptr(q)) if p == q => VElem::Ptr(p),
            (VElem::Ptr(_), VElem::Ptr(_)) => {
                let message = "`select` chooses between pointers into one buffer only";
                return Err(self.report_help(b.place, message, "choose between the loaded values"));
            }
            (VElem::Data(_) | VElem::Ptr(_), VElem::Data(_) | VElem::Ptr(_)) => {
                VElem::Data(self.unify(a, b, "`select`", args.place)?)
            }
        };
        self.elementwise(ElementwiseOp::Select, &[condition, a, b], elem, args)
    }

    /// Broadcasts the operands and applies the operation.
    fn elementwise(
        &mut self,
        op: impl Into<Op>,
        operands: &[Operand],
        elem: VElem,
        args: &Args<'_>,
    ) -> Checked<Operand> {
        let place = args.place;
        let shape = self.common_shape(operands, &called(args), place)?;
        let nodes = operands.iter().map(|o| self.expand(o.node, &shape, place)).collect();
        Ok(Operand { node: self.op(op, nodes, VTy { elem, shape }, place), place })
    }

    pub(super) fn fma(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [a, b, c] = self.arg_values(args)?;
        let needs = Needs::Bound(DTypeBound::Float);
        let operands = [(a, [b, c]), (b, [a, c]), (c, [a, b])];
        let floats = operands.map(|(operand, beside)| self.need_beside(operand, needs, "`fma`", &beside));
        floats.into_iter().collect::<Checked<()>>()?;
        let dt = self.unify(a, b, "`fma`", args.place)?;
        self.unify(a, c, "`fma`", args.place)?;
        self.elementwise(ElementwiseOp::Fma, &[a, b, c], VElem::Data(dt), args)
    }

    pub(super) fn to(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        match args.dtype {
            Some(dt) => self.cast(x, dt, args.place),
            None => Ok(x),
        }
    }

    pub(super) fn bitcast(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let [x] = self.arg_values(args)?;
        let place = args.place;
        let dt = self.data(x, "`bitcast`")?;
        let Some(to) = args.dtype else { return Ok(x) };
        if let (Some(class), Dt::Known(to)) = (self.types.class(dt), to)
            && !matches!(self.types.declared(dt), Declared::As(Dt::Known(own)) if own.bits() == to.bits())
            && let Some(same) = same_width(class, to)
        {
            self.expect(x, same.into(), "the operand of `bitcast`")?;
        }
        if let (DtRef::Fixed(Dt::Known(from)), Dt::Known(to)) = (self.types.resolve(dt), to)
            && from.bits() != to.bits()
        {
            let message =
                format!("`bitcast` keeps the width: `{from}` has {} bits, `{to}` has {}", from.bits(), to.bits());
            return Err(self.report_help(place, message, format!("to convert the value write `x as {to}`")));
        }
        let ty = self.ty(x).with_dt(DtRef::Fixed(to));
        Ok(Operand { node: self.eval(VOp::Bitcast, vec![x.node], ty, place), place })
    }
}

/// The dtype of that class that has the width of `to`.
fn same_width(class: Class, to: DType) -> Option<DType> {
    match (class, to.bits()) {
        (Class::Float, 32) => Some(DType::F32),
        (Class::Float, 64) => Some(DType::F64),
        (Class::Int, 8) => Some(DType::I8),
        (Class::Int, 16) => Some(DType::I16),
        (Class::Int, 32) => Some(DType::I32),
        (Class::Int, 64) => Some(DType::I64),
        _ => None,
    }
}
