//! Agreement of types: dtypes are unified, shapes are compared in normal form.

use std::collections::BTreeSet;

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{Atom, ConstId, ConstOrigin, DTypeBound, Dim, ShapeOp};

use super::convert::default_of;
use super::macros::single;
use super::{Checker, Deferred, Operand};
use crate::error::Checked;
use crate::source_range::SourceRange;
use crate::tree::NodeId;
use crate::types::{BOOL, Class, DtRef, Mismatch, VElem};

impl Checker<'_> {
    /// The dtype of a data value; pointers are refused.
    pub(super) fn data(&mut self, operand: Operand, what: &str) -> Checked<DtRef> {
        match self.ty(operand).elem {
            VElem::Data(dt) => Ok(dt),
            VElem::Ptr(_) => {
                let message = format!("{what} needs a number, found {}", self.show(operand));
                Err(self.report_help(operand.place, message, "read what it points to: `load(pointer)`"))
            }
        }
    }

    /// Makes two dtypes equal, or says on which operand they are not.
    pub(super) fn unify(&mut self, a: Operand, b: Operand, what: &str, place: SourceRange) -> Checked<DtRef> {
        let (x, y) = (self.data(a, what)?, self.data(b, what)?);
        match self.types.unify(x, y, &self.func) {
            Ok(()) => Ok(x),
            Err(mismatch) => Err(self.mismatch(mismatch, a, b, what, place)),
        }
    }

    /// Makes the dtype of a value be `dt`.
    pub(super) fn expect(&mut self, operand: Operand, dt: DtRef, what: &str) -> Checked<()> {
        let VElem::Data(own) = self.ty(operand).elem else {
            let message = format!("{what} must be {}, found {}", self.show_dt(dt), self.show(operand));
            return Err(self.report_help(operand.place, message, "read what it points to: `load(pointer)`"));
        };
        match self.types.unify(own, dt, &self.func) {
            Ok(()) => Ok(()),
            Err(Mismatch::Dtypes(found, wanted)) => {
                let (found_name, wanted_name) = (self.show_fixed(found), self.show_fixed(wanted));
                let message = format!("{what} must be {wanted_name}, found {found_name}");
                let help = self.conversion(operand, wanted);
                Err(self.report_help(operand.place, message, help))
            }
            Err(Mismatch::Classes) => {
                let message = format!("{what} must be {}, found {}", self.show_dt(dt), self.show_dt(own));
                Err(self.report(operand.place, message))
            }
            // The value has its dtype, and what it should be is a number of another kind.
            Err(Mismatch::Literal(class, found)) if self.types.known(own).is_some() => {
                let message = format!("{what} must be {}, found {}", self.show_dt(dt), self.show_fixed(found));
                let help = self.conversion(operand, default_of(class));
                Err(self.report_help(operand.place, message, help))
            }
            Err(other) => Err(self.mismatch(other, operand, operand, what, operand.place)),
        }
    }

    /// Refuses a dtype for which an operation is not defined.
    pub(super) fn need(&mut self, operand: Operand, needs: Needs, what: &str) -> Checked<()> {
        self.need_beside(operand, needs, what, &[])
    }

    /// Refuses a dtype for which an operation on two operands is not defined.
    pub(super) fn need_both(&mut self, a: Operand, b: Operand, needs: Needs, what: &str) -> Checked<()> {
        self.need_beside(a, needs, what, &[b])?;
        self.need_beside(b, needs, what, &[a])
    }

    /// The same where others stand beside it, which help to say what is meant.
    pub(super) fn need_beside(
        &mut self,
        operand: Operand,
        needs: Needs,
        what: &str,
        beside: &[Operand],
    ) -> Checked<()> {
        let dt = self.data(operand, what)?;
        match self.types.resolve(dt) {
            DtRef::Fixed(fixed) if needs.admits(&self.func, fixed) => Ok(()),
            DtRef::Fixed(_) => {
                let reported = self.lacks(dt, needs, what, operand.place, beside.first().copied());
                self.rehelp_beside_floats(operand, needs, beside);
                Err(reported)
            }
            DtRef::Var(_) => {
                let refused = match (self.types.class(dt), needs) {
                    (Some(Class::Int), Needs::Bound(DTypeBound::Float))
                    | (Some(Class::Float), Needs::Bound(DTypeBound::Int) | Needs::Bits) => true,
                    (_, Needs::Bound(_) | Needs::Bits | Needs::Any) => false,
                };
                if refused {
                    let reported = self.lacks(dt, needs, what, operand.place, beside.first().copied());
                    self.rehelp_beside_floats(operand, needs, beside);
                    return Err(reported);
                }
                self.deferred.push(Deferred { dt, needs, place: operand.place, what: what.to_string() });
                Ok(())
            }
        }
    }

    /// A scalar `bool`.
    pub(super) fn condition(&mut self, operand: Operand, what: &str) -> Checked<()> {
        let ty = self.ty(operand).clone();
        if !ty.is_scalar() {
            let message = format!("{what} must be a scalar `bool`, found {}", self.show_ty(&ty));
            let help = "choose per element with `select(condition, a, b)`, or reduce the tile to a scalar";
            return Err(self.report_help(operand.place, message, help));
        }
        self.expect(operand, BOOL, what)
    }

    // Shapes

    /// A dimension with what `static_assert!` has said.
    pub(super) fn norm(&self, dim: &Dim) -> Dim {
        let facts = self.facts.borrow();
        let value = |id| facts.get(&id).cloned().unwrap_or_else(|| Dim::param(id));
        dim.substitute(&value).unwrap_or_else(|_| dim.clone())
    }

    /// Whether two dimensions agree.
    pub(super) fn same_dim(&self, a: &Dim, b: &Dim) -> bool {
        if a == b {
            return true;
        }
        let (a, b) = (self.norm(a), self.norm(b));
        a == b || self.agree_as_namesakes(&a, &b)
    }

    /// Whether two shapes agree.
    pub(super) fn same_shape(&self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same_dim(a, b))
    }

    /// The shape to which all operands broadcast, as NumPy does it.
    pub(super) fn common_shape(&mut self, operands: &[Operand], what: &str, place: SourceRange) -> Checked<Vec<Dim>> {
        let mut shape: Vec<Dim> = Vec::new();
        for &operand in operands {
            let other = self.ty(operand).shape.clone();
            shape = match self.broadcast_shapes(&shape, &other) {
                Ok(shape) => shape,
                Err((a, b)) => {
                    let (left, right) = (self.show_shape(&shape), self.show_shape(&other));
                    let message = format!("{what} cannot combine the shapes {left} and {right}");
                    let (small, own) =
                        if other.len() < shape.len() { (operand, &shape) } else { (operands[0], &other) };
                    let help = self.axis_help(small, own).unwrap_or_else(|| self.shape_help(&a, &b));
                    return Err(self.report_help(place, message, help));
                }
            };
        }
        Ok(shape)
    }

    /// How a tile of fewer axes lines up with the first axes of a shape instead of the last, if it does.
    pub(super) fn axis_help(&self, operand: Operand, shape: &[Dim]) -> Option<String> {
        let own = &self.ty(operand).shape;
        let missing = shape.len().checked_sub(own.len()).filter(|n| *n > 0)?;
        let fits = !own.is_empty() && own.iter().zip(shape).all(|(a, b)| self.same_dim(a, b));
        let kept = vec![".."; own.len()];
        let axes: Vec<&str> = kept.into_iter().chain(vec!["None"; missing]).collect();
        let index = axes.join(", ");
        fits.then(|| format!("to line up with the first axis insert one behind: `{}[({index})]`", self.source(operand)))
    }

    /// Whether a dimension depends on the variable of an unrolled loop.
    pub(super) fn mentions_counter(&self, dim: &Dim) -> bool {
        constexprs(dim).iter().any(|id| self.func.const_params[id.index()].origin == ConstOrigin::Counter)
    }

    /// How to say that two dimensions of different constexprs are equal. What is learnt of an equation is what a single
    /// constexpr stands for.
    pub(super) fn equation_help(&self, a: &Dim, b: &Dim) -> String {
        if self.mentions_counter(a) || self.mentions_counter(b) {
            return "they must be equal in every iteration of the unrolled loop".to_string();
        }
        let (x, y) = (self.dim_source(a), self.dim_source(b));
        if let Some(help) = self.exported_help(a, b) {
            return help;
        }
        if single(a).is_some() || single(b).is_some() {
            return format!("if `{x}` is `{y}`, say so at the top of the kernel: `static_assert!({x} == {y});`");
        }
        let [own, other] = [a, b].map(constexprs);
        let name = |id: &ConstId| self.func.const_params[id.index()].name.clone();
        let name = own.symmetric_difference(&other).next().map(name).unwrap_or_default();
        format!("say at the top of the kernel what `{name}` is: `static_assert!({name} == ..);`")
    }

    /// The division without a remainder after which two dimensions agree: `8 * (K / 8)` is `K` if 8 divides `K`.
    pub(super) fn divides_help(&self, a: &Dim, b: &Dim) -> Option<String> {
        let atoms = [a, b].into_iter().flat_map(Dim::terms).flat_map(|(atoms, _)| atoms);
        atoms.into_iter().find_map(|atom| {
            let Atom::Div(dividend, divisor) = atom else { return None };
            let id = single(&dividend).filter(|_| divisor.as_const().is_none_or(|divisor| divisor > 1))?;
            let whole = dividend.div(&divisor).and_then(|quotient| quotient.mul(&divisor)).ok()?;
            let value = |other| if other == id { whole.clone() } else { Dim::param(other) };
            let [a, b] = [a, b].map(|dim| dim.substitute(&value).ok());
            let name = &self.func.const_params[id.index()].name;
            let source = self.dim_source(&divisor);
            let divisor = if single(&divisor).or(divisor.as_const().map(|_| id)).is_some() {
                source
            } else {
                format!("({source})")
            };
            (a? == b?).then(|| format!("say that it divides: `static_assert!({name} % {divisor} == 0);`"))
        })
    }

    /// What would make two dimensions agree.
    pub(super) fn shape_help(&self, a: &Dim, b: &Dim) -> String {
        if let Some(help) = self.divides_help(a, b) {
            return help;
        }
        let (x, y) = (self.dim_source(a), self.dim_source(b));
        // Of `M` and `M / 2` no value of the constexprs makes one out of two.
        if constexprs(a) == constexprs(b) {
            return format!("dimensions agree if they are equal or one is 1; `{x}` and `{y}` are not");
        }
        self.equation_help(a, b)
    }

    fn broadcast_shapes(&self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, (Dim, Dim)> {
        let rank = a.len().max(b.len());
        let one = Dim::Const(1);
        let at = |shape: &[Dim], i: usize| {
            (i + shape.len()).checked_sub(rank).map_or_else(|| one.clone(), |i| shape[i].clone())
        };
        (0..rank)
            .map(|i| match (at(a, i), at(b, i)) {
                (x, y) if self.same_dim(&x, &y) => Ok(x),
                (x, y) if x.is_one() => Ok(y),
                (x, y) if y.is_one() => Ok(x),
                (x, y) => Err((x, y)),
            })
            .collect()
    }

    /// The value repeated to a shape that it broadcasts to.
    pub(super) fn expand(&mut self, node: NodeId, shape: &[Dim], place: SourceRange) -> NodeId {
        let mut ty = self.node(node).ty.clone();
        if self.same_shape(&ty.shape, shape) {
            return node;
        }
        if ty.is_scalar() {
            let op = kernel_core::ir::CreateOp::Splat { shape: shape.to_vec() };
            return self.op(op, vec![node], ty.with_shape(shape.to_vec()), place);
        }
        let mut node = node;
        while ty.shape.len() < shape.len() {
            ty.shape.insert(0, Dim::Const(1));
            node = self.op(ShapeOp::ExpandDims { axis: 0 }, vec![node], ty.clone(), place);
        }
        if self.same_shape(&ty.shape, shape) {
            return node;
        }
        // Dimensions that already agree keep their own spelling.
        let pairs = ty.shape.iter().zip(shape);
        let target: Vec<Dim> = pairs.map(|(a, b)| if self.same_dim(a, b) { a } else { b }.clone()).collect();
        self.op(ShapeOp::Broadcast { shape: target.clone() }, vec![node], ty.with_shape(target), place)
    }
}

/// The constexprs that a dimension is made of.
pub(super) fn constexprs(dim: &Dim) -> BTreeSet<ConstId> {
    let mut found = BTreeSet::new();
    let mut open = vec![dim.clone()];
    while let Some(dim) = open.pop() {
        for atom in dim.terms().into_iter().flat_map(|(atoms, _)| atoms) {
            match atom {
                Atom::Const(id) => {
                    found.insert(id);
                }
                Atom::Div(a, b) | Atom::Rem(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => open.extend([a, b]),
                Atom::Power(exponent) => open.push(exponent),
            }
        }
    }
    found
}
