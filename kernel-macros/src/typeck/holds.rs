//! Whether the type of a constexpr holds what a call says for it: `f::<300>(x)` where `f` declares `const H: u8`.
//!
//! A number is checked at once. What is made of constexprs is checked when the kernel is compiled, unless their types tell.

use kernel_core::ir::{Atom, CmpOp, ConstId, ConstTy, ControlOp, Dim, IntTy, Op};

use super::binary::Operator;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::SourceRange;
use crate::tree::Stmt;

/// Numbers from the first to the second.
type Numbers = (i128, i128);

impl Checker<'_> {
    /// Refuses what the type of a constexpr does not hold; of what binding decides a static assertion.
    pub(super) fn holds(&mut self, name: &str, ty: IntTy, dim: &Dim, place: SourceRange) -> Checked<()> {
        let (least, greatest) = numbers_of(ty);
        let (from, to) = numbers(dim, &|id| self.numbers_of_constexpr(id));
        if least <= from && to <= greatest {
            return Ok(());
        }
        let shown = shown(ty);
        if let Some(number) = dim.as_const() {
            let message = format!("`{name}` is `{shown}`, which does not hold {number}");
            return Err(self.report_help(place, message, format!("it holds {least} to {greatest}")));
        }
        let message = format!("`{name}` is `{shown}`, which holds {least} to {greatest}");
        // Dimensions have 64 bits: other ends cannot be passed.
        let end = |missed: bool, end: i128| i64::try_from(end).ok().filter(|_| missed).map(Dim::Const);
        let (above, below) = (end(from < least, least), end(greatest < to, greatest));
        let orders = [(above, Some(dim.clone())), (Some(dim.clone()), below)];
        let mut orders = orders.into_iter().filter_map(|(a, b)| Some((a?, b?)));
        orders.try_for_each(|(a, b)| self.assert_ordered(a, b, &message, place))
    }

    /// Lets binding see that `a <= b`.
    fn assert_ordered(&mut self, a: Dim, b: Dim, message: &str, place: SourceRange) -> Checked<()> {
        let [a, b] = [a, b].map(|dim| Operand { node: self.int(dim, place), place });
        let holds = self.binary(Operator::Compare(CmpOp::Le, "`<=`"), a, b, place, place)?;
        let op = Op::from(ControlOp::StaticAssert { message: message.to_string() });
        self.stmts.push(Stmt::Effect(op, vec![holds.node], place));
        Ok(())
    }

    fn numbers_of_constexpr(&self, id: ConstId) -> Numbers {
        match self.func.const_params[id.index()].ty {
            ConstTy::Int(ty) => numbers_of(ty),
            ConstTy::Bool => (0, 1),
        }
    }
}

/// The type as it is written.
fn shown(ty: IntTy) -> &'static str {
    match ty {
        IntTy::Usize => "usize",
        IntTy::Isize => "isize",
        IntTy::Fixed(dtype) => dtype.name(),
    }
}

/// What a type holds; those that depend on the host have 64 bits.
fn numbers_of(ty: IntTy) -> Numbers {
    match ty {
        IntTy::Usize => (0, u64::MAX.into()),
        IntTy::Isize => (i64::MIN.into(), i64::MAX.into()),
        IntTy::Fixed(dtype) => (dtype.int_min(), dtype.int_max()),
    }
}

/// Between which numbers a dimension lies, in terms of those of its constexprs. A dimension has 64 bits.
fn numbers(dim: &Dim, of: &dyn Fn(ConstId) -> Numbers) -> Numbers {
    dim.terms().iter().fold((0, 0), |sum, (atoms, coefficient)| {
        let number = i128::from(*coefficient);
        let product = atoms.iter().fold((number, number), |product, atom| times(product, numbers_of_atom(atom, of)));
        (sum.0.saturating_add(product.0), sum.1.saturating_add(product.1))
    })
}

fn times(a: Numbers, b: Numbers) -> Numbers {
    let corners = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)].map(|(a, b)| a.saturating_mul(b));
    corners.into_iter().fold((corners[0], corners[0]), |(least, most), corner| (least.min(corner), most.max(corner)))
}

fn numbers_of_atom(atom: &Atom, of: &dyn Fn(ConstId) -> Numbers) -> Numbers {
    let inner = |dim: &Dim| numbers(dim, of);
    match atom {
        Atom::Const(id) => of(*id),
        // No quotient is farther from zero than the dividend, and a divisor that may be negative turns its sign.
        Atom::Div(a, b) => {
            let (dividend, divisor) = (inner(a), inner(b));
            let (down, up) = (dividend.0.min(0), dividend.1.max(0));
            if divisor.0 < 0 { (down.min(-up), up.max(down.saturating_neg())) } else { (down, up) }
        }
        // A remainder has the sign of the dividend, and is nearer to zero than the divisor.
        Atom::Rem(a, b) => {
            let (dividend, divisor) = (inner(a), inner(b));
            let most = divisor.1.max(divisor.0.saturating_neg()).saturating_sub(1).max(0);
            (dividend.0.min(0).max(-most), dividend.1.max(0).min(most))
        }
        Atom::Min(a, b) => {
            let (a, b) = (inner(a), inner(b));
            (a.0.min(b.0), a.1.min(b.1))
        }
        Atom::Max(a, b) => {
            let (a, b) = (inner(a), inner(b));
            (a.0.max(b.0), a.1.max(b.1))
        }
        Atom::Power(_) => (1, 1 << 62),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_core::ir::DType;

    #[test]
    fn types_tell_between_which_numbers_a_constexpr_lies() {
        let of = |id: ConstId| numbers_of([IntTy::Fixed(DType::U8), IntTy::Fixed(DType::I8), IntTy::Usize][id.index()]);
        let [byte, signed, size] = [0, 1, 2].map(|index| Dim::param(ConstId::new(index)));
        let two = Dim::Const(2);
        let cases = [
            (Ok(Dim::Const(7)), (7, 7)),
            (byte.mul(&two), (0, 510)),
            (byte.sub(&Dim::Const(1)), (-1, 254)),
            (byte.mul(&signed), (-128 * 255, 127 * 255)),
            (byte.div(&size), (0, 255)),
            (byte.div(&signed), (-255, 255)),
            (byte.rem(&signed), (0, 127)),
            (signed.rem(&byte), (-128, 127)),
            (signed.rem(&Dim::Const(16)), (-15, 15)),
            (byte.min_with(&signed), (-128, 127)),
            (byte.max_with(&signed), (0, 255)),
            (Dim::Const(1).shl(&byte), (1, 1 << 62)),
            (size.add(&byte), (0, i128::from(u64::MAX) + 255)),
        ];
        for (dim, wanted) in cases {
            let dim = dim.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(numbers(&dim, &of), wanted, "{dim:?}");
        }
    }
}
