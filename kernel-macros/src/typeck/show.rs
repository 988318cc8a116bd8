//! Types and shapes as messages show them.

use std::fmt::Write;

use kernel_core::ir::{Atom, Dim, Dt, ParamId, ParamKind};

use super::{Checker, Operand};
use crate::types::{Class, DtRef, VElem, VTy, dt_name};

impl Checker<'_> {
    /// `f32`, `an integer`, `a float`.
    pub(super) fn show_dt(&self, dt: DtRef) -> String {
        match self.types.resolve(dt) {
            DtRef::Fixed(dt) => self.show_fixed(dt),
            DtRef::Var(_) => match self.types.class(dt) {
                Some(Class::Int) => "an integer".to_string(),
                Some(Class::Float) => "a float".to_string(),
                Some(Class::Any) | None => "a value whose dtype is not known yet".to_string(),
            },
        }
    }

    pub(super) fn show_fixed(&self, dt: Dt) -> String {
        format!("`{}`", dt_name(&self.func, dt))
    }

    pub(super) fn show_pointer(&self, param: ParamId) -> String {
        match self.func.param(param).kind {
            ParamKind::Ptr { dt, mutable } => {
                let name = if mutable { "PtrMut" } else { "Ptr" };
                format!("`{name}<{}>`", dt_name(&self.func, dt))
            }
            ParamKind::Desc { .. }
            | ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => "a pointer".to_string(),
        }
    }

    /// The whole type: `` `f32` `` or `` a tile of `f32` with shape `[M, N]` ``.
    pub(super) fn show_ty(&self, ty: &VTy) -> String {
        let (one, many) = match ty.elem {
            VElem::Ptr(param) => (self.show_pointer(param), self.show_pointer(param)),
            VElem::Data(dt) => {
                let many = match self.types.class(dt) {
                    None => self.show_dt(dt),
                    Some(Class::Int) => "integers".to_string(),
                    Some(Class::Float) => "floats".to_string(),
                    Some(Class::Any) => "values".to_string(),
                };
                (self.show_dt(dt), many)
            }
        };
        if ty.is_scalar() { one } else { format!("a tile of {many} with shape {}", self.show_shape(&ty.shape)) }
    }

    pub(super) fn show(&self, operand: Operand) -> String {
        self.show_ty(self.ty(operand))
    }

    /// `` `[M, K]` ``
    pub(super) fn show_shape(&self, shape: &[Dim]) -> String {
        format!("`{}`", self.shape_source(shape))
    }

    /// A shape as source.
    pub(super) fn shape_source(&self, shape: &[Dim]) -> String {
        let dims: Vec<String> = shape.iter().map(|d| self.dim_source(d)).collect();
        format!("[{}]", dims.join(", "))
    }

    /// A dimension as source.
    pub(super) fn dim_source(&self, dim: &Dim) -> String {
        let terms = dim.terms();
        if terms.is_empty() {
            return "0".to_string();
        }
        let mut out = String::new();
        let (constant, rest): (Vec<_>, Vec<_>) = terms.iter().partition(|t| t.0.is_empty());
        for (i, (atoms, coefficient)) in rest.into_iter().chain(constant).enumerate() {
            out.push_str(match (i, *coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            });
            let magnitude = coefficient.unsigned_abs();
            let mut factors: Vec<String> = Vec::new();
            if magnitude != 1 || atoms.is_empty() {
                factors.push(magnitude.to_string());
            }
            let alone = atoms.len() == 1 && factors.is_empty();
            factors.extend(atoms.iter().map(|a| self.atom_source(a, alone)));
            let _ = write!(out, "{}", factors.join(" * "));
        }
        out
    }

    fn atom_source(&self, atom: &Atom, alone: bool) -> String {
        let binary = |a: &Dim, op: &str, b: &Dim| {
            let text = format!("{} {op} {}", self.factor_source(a), self.factor_source(b));
            if alone { text } else { format!("({text})") }
        };
        match atom {
            Atom::Const(id) => self.func.const_params[id.index()].name.clone(),
            Atom::Div(a, b) => binary(a, "/", b),
            Atom::Rem(a, b) => binary(a, "%", b),
            Atom::Min(a, b) => format!("minimum({}, {})", self.dim_source(a), self.dim_source(b)),
            Atom::Max(a, b) => format!("maximum({}, {})", self.dim_source(a), self.dim_source(b)),
            Atom::Power(exponent) if alone => format!("1 << {}", self.factor_source(exponent)),
            Atom::Power(exponent) => format!("(1 << {})", self.factor_source(exponent)),
        }
    }

    fn factor_source(&self, dim: &Dim) -> String {
        let text = self.dim_source(dim);
        if text.contains(' ') { format!("({text})") } else { text }
    }
}
