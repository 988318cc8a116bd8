//! Agreement of types: dtypes are unified, shapes are compared in normal form.

use std::collections::BTreeSet;

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{Atom, Bound, ConstId, DType, Dim, Dt, ShapeOp};

use super::macros::single;
use super::{Checker, Deferred, Operand};
use crate::error::{Checked, Reported};
use crate::place::Place;
use crate::tree::{Kind, NodeId};
use crate::types::{BOOL, Class, DtRef, Mismatch, VElem, admits, may_be};

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
    pub(super) fn unify(&mut self, a: Operand, b: Operand, what: &str, place: Place) -> Checked<DtRef> {
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

    /// How to convert a value.
    pub(super) fn conversion(&self, operand: Operand, to: Dt) -> String {
        let name = self.show_fixed(to).replace('`', "");
        if to == Dt::Known(DType::Bool) {
            let zero =
                if matches!(self.ty(operand).elem, VElem::Data(dt) if self.may_be_float(dt)) { "0.0" } else { "0" };
            return format!("compare: `{} != {zero}`", self.source(operand));
        }
        format!("write `{} as {name}`", self.source(operand))
    }

    /// The source of an expression, as an operand of `as`.
    pub(super) fn source(&self, operand: Operand) -> String {
        self.source.operand(operand.place)
    }

    fn mismatch(&mut self, mismatch: Mismatch, a: Operand, b: Operand, what: &str, place: Place) -> Reported {
        // The operand whose dtype is still open is the literal.
        let open = |c: &Self, o: Operand| matches!(c.ty(o).elem, VElem::Data(dt) if c.types.class(dt).is_some());
        let literal = if open(self, b) || !open(self, a) { b } else { a };
        match mismatch {
            Mismatch::Dtypes(x, y) => {
                let (left, right) = (self.show_fixed(x), self.show_fixed(y));
                let message = format!("{what} needs one dtype, found {left} and {right}");
                let floats = [x, y].map(|dt| admits(&self.func, dt, Bound::Float));
                let help = match (x, y) {
                    (Dt::Known(DType::Bool), other) => self.conversion(a, other),
                    _ if floats[1] && !floats[0] => self.conversion(a, y),
                    _ => self.conversion(b, x),
                };
                self.report_help(place, message, help)
            }
            Mismatch::Literal(class, dt) => {
                let other = if literal.node == a.node { b } else { a };
                if matches!(self.node(literal.node).kind, Kind::Slot | Kind::Op(..)) && a.node != b.node {
                    let (left, right) = (self.show(a), self.show(b));
                    let message = format!("{what} needs one dtype, found {left} and {right}");
                    let help = match class {
                        Class::Int => self.conversion(literal, dt),
                        Class::Float | Class::Any => self.conversion(other, default_of(class)),
                    };
                    return self.report_help(place, message, help);
                }
                self.literal_mismatch(class, dt, literal, other)
            }
            Mismatch::Classes => {
                let message = format!("{what} needs one dtype, found an integer and a float");
                let integer = [a, b]
                    .into_iter()
                    .find(|&o| matches!(self.ty(o).elem, VElem::Data(dt) if self.types.class(dt) == Some(Class::Int)));
                match integer {
                    Some(o) => {
                        let help = self.as_float(o, "f32");
                        self.report_help(o.place, message, help)
                    }
                    None => self.report(place, message),
                }
            }
            Mismatch::Constant(dt) => {
                let name = self.show_fixed(dt).replace('`', "");
                let message = format!("a constant has one dtype, but `{name}` stands for several");
                let help = format!("convert it twice: `{} as f32 as {name}`", self.source(literal));
                self.report_help(literal.place, message, help)
            }
        }
    }

    fn literal_mismatch(&mut self, class: Class, dt: Dt, literal: Operand, other: Operand) -> Reported {
        let wanted = self.show_fixed(dt);
        let name = wanted.replace('`', "");
        let kind = if class == Class::Float { "a float" } else { "an integer" };
        let source = self.source(literal);
        let message = match dt {
            Dt::Param(p) => {
                let bound = self.func.dtype_params[p.index()].bound.name();
                format!("{kind} does not adapt to {wanted}, which `{name}: {bound}` leaves open")
            }
            Dt::Known(_) => format!("expected {wanted}, found {kind}"),
        };
        let help = match (class, dt) {
            (_, Dt::Known(DType::Bool)) => "a `bool` is `true`, `false` or a comparison".to_string(),
            (Class::Int, Dt::Known(d)) if d.is_float() => self.as_float(literal, d.name()),
            // `n + 1.5`: the fraction would be lost.
            (Class::Float, Dt::Known(_)) if other.node != literal.node => {
                format!("write `{} as f32`", self.source(other))
            }
            (Class::Float, Dt::Known(_)) if source.ends_with(".0") => {
                format!("write `{}`", source.trim_end_matches(".0"))
            }
            _ => format!("write `{source} as {name}`"),
        };
        self.report_help(literal.place, message, help)
    }

    fn as_float(&self, operand: Operand, dtype: &str) -> String {
        let source = self.source(operand);
        match self.node(operand.node).kind {
            Kind::Int(Dim::Const(_)) if source.chars().all(|c| c.is_ascii_digit()) => format!("write `{source}.0`"),
            _ => format!("write `{source} as {dtype}`"),
        }
    }

    /// Refuses a dtype for which an operation is not defined.
    pub(super) fn need(&mut self, operand: Operand, needs: Needs, what: &str) -> Checked<()> {
        let dt = self.data(operand, what)?;
        match self.types.resolve(dt) {
            DtRef::Fixed(fixed) if needs.admits(&self.func, fixed) => Ok(()),
            DtRef::Fixed(_) => Err(self.lacks(dt, needs, what, operand.place)),
            DtRef::Var(_) => {
                let refused = match (self.types.class(dt), needs) {
                    (Some(Class::Int), Needs::Bound(Bound::Float))
                    | (Some(Class::Float), Needs::Bound(Bound::Int) | Needs::Bits) => true,
                    (_, Needs::Bound(_) | Needs::Bits | Needs::Any) => false,
                };
                if refused {
                    return Err(self.lacks(dt, needs, what, operand.place));
                }
                self.deferred.push(Deferred { dt, needs, place: operand.place, what: what.to_string() });
                Ok(())
            }
        }
    }

    /// Says that an operation is not defined for a dtype.
    pub(super) fn lacks(&mut self, dt: DtRef, needs: Needs, what: &str, place: Place) -> Reported {
        let wanted = match needs {
            Needs::Bound(Bound::Float) => "a float",
            Needs::Bound(Bound::Int) => "an integer",
            Needs::Bound(Bound::Signed) => "a signed integer or a float",
            Needs::Bound(Bound::Num) => "a number",
            Needs::Bound(Bound::DType) | Needs::Any => "a value",
            Needs::Bits => "an integer or a `bool`",
        };
        let message = format!("{what} needs {wanted}, found {}", self.show_dt(dt));
        let bound = match needs {
            Needs::Bound(bound) => bound,
            Needs::Bits => Bound::Int,
            Needs::Any => Bound::DType,
        };
        let help = match self.types.known(dt) {
            Some(Dt::Param(p)) if may_be(&self.func, Dt::Param(p), bound) => {
                let name = &self.func.dtype_params[p.index()].name;
                format!("bound the dtype: `{name}: {}`", bound.name())
            }
            _ => {
                let to = if bound == Bound::Float { "f32" } else { "i32" };
                match self.source.operand(place) {
                    literal if to == "f32" && literal.chars().all(|c| c.is_ascii_digit()) => {
                        format!("write `{literal}.0`")
                    }
                    source => format!("convert first: `{source} as {to}`"),
                }
            }
        };
        self.report_help(place, message, help)
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
        let value = |id| self.facts.get(&id).cloned().unwrap_or_else(|| Dim::param(id));
        dim.substitute(&value).unwrap_or_else(|_| dim.clone())
    }

    /// Whether two dimensions agree.
    pub(super) fn same_dim(&self, a: &Dim, b: &Dim) -> bool {
        a == b || self.norm(a) == self.norm(b)
    }

    /// Whether two shapes agree.
    pub(super) fn same_shape(&self, a: &[Dim], b: &[Dim]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.same_dim(a, b))
    }

    /// The shape to which all operands broadcast, as NumPy does it.
    pub(super) fn common_shape(&mut self, operands: &[Operand], what: &str, place: Place) -> Checked<Vec<Dim>> {
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

    /// How to say that two dimensions of different constexprs are equal. What is learnt of an equation is what a single
    /// constexpr stands for.
    pub(super) fn equation_help(&self, a: &Dim, b: &Dim) -> String {
        let (x, y) = (self.dim_source(a), self.dim_source(b));
        if single(a).is_some() || single(b).is_some() {
            return format!("if `{x}` is `{y}`, say so at the top of the kernel: `static_assert!({x} == {y});`");
        }
        let [own, other] = [a, b].map(constexprs);
        let name = |id: &ConstId| self.func.const_params[id.index()].name.clone();
        let name = own.symmetric_difference(&other).next().map(name).unwrap_or_default();
        format!("say at the top of the kernel what `{name}` is: `static_assert!({name} == ..);`")
    }

    /// What would make two dimensions agree.
    pub(super) fn shape_help(&self, a: &Dim, b: &Dim) -> String {
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
    pub(super) fn expand(&mut self, node: NodeId, shape: &[Dim], place: Place) -> NodeId {
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

/// The dtype that a value of that class takes if nothing else says so.
fn default_of(class: Class) -> Dt {
    Dt::Known(if class == Class::Float { DType::F32 } else { DType::I32 })
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
            }
        }
    }
    found
}
