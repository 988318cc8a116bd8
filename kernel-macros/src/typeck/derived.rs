//! What follows from dtype parameters, `T == f16`, `T::BITS` and `T::Acc`, and from what the kernel is compiled for.
//!
//! In the IR these are constexprs and dtype parameters that no launch gives: binding computes them, so that an `if` on
//! them is decided there, and shapes may be made of them. Where a function is inlined, dtypes may be known here.

use kernel_core::ir::{ConstId, ConstOrigin, ConstParam, ConstTy, Dim, Dt, DtypeId, DtypeParam, Func, IntTy};
use syn::{BinOp, Expr, ExprBinary, Path, Type};

use super::{Checker, Operand};
use crate::error::{Checked, Reported};
use crate::signature::strip;
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Node};
use crate::types::{BOOL, VTy, dt_name};

/// The name of the accumulator of a dtype.
const ACCUMULATOR: &str = "Acc";

/// `T == f16`
pub fn is_dtype(func: &mut Func, id: DtypeId, other: Dt) -> ConstId {
    let name = |func: &Func| format!("{} == {}", dt_name(func, id.into()), dt_name(func, other));
    derived(func, name, ConstTy::Bool, ConstOrigin::IsDtype(id, other))
}

/// The constexpr with that origin, which becomes one of the kernel's where it is used first.
fn derived(func: &mut Func, name: impl FnOnce(&Func) -> String, ty: ConstTy, origin: ConstOrigin) -> ConstId {
    let known = func.const_params.iter().position(|param| param.origin == origin);
    let index = known.unwrap_or_else(|| {
        let name = name(func);
        func.const_params.push(ConstParam { name, ty, origin });
        func.const_params.len() - 1
    });
    ConstId::new(index as u32)
}

impl Checker<'_> {
    /// The constexpr with that origin, which becomes one of the kernel's where it is used first.
    pub(super) fn derived(&mut self, name: impl FnOnce(&Func) -> String, ty: ConstTy, origin: ConstOrigin) -> ConstId {
        derived(&mut self.func, name, ty, origin)
    }

    /// `num_warps()` and its kind, whose name is how it is called.
    pub(super) fn machine(&mut self, name: &str, origin: ConstOrigin, place: SourceRange) -> Operand {
        let dim = Dim::param(self.derived(|_| name.to_string(), ConstTy::Int(IntTy::Usize), origin));
        Operand { node: self.int(dim, place), place }
    }

    /// `T::BITS`
    pub(super) fn width_of(&mut self, dt: Dt, place: SourceRange) -> Operand {
        let dim = match dt {
            Dt::Known(dtype) => Dim::Const(dtype.bits().into()),
            Dt::Param(id) => {
                let name = |func: &Func| format!("{}::BITS", dt_name(func, dt));
                Dim::param(self.derived(name, ConstTy::Int(IntTy::Usize), ConstOrigin::Bits(id)))
            }
        };
        Operand { node: self.int(dim, place), place }
    }

    /// `T::Acc`
    fn accumulator_of(&mut self, dt: Dt) -> Dt {
        let of = match dt {
            Dt::Known(dtype) => return Dt::Known(dtype.accumulator()),
            Dt::Param(of) => of,
        };
        let param = self.func.dtype_params[of.index()].clone();
        if !param.is_given() {
            // Those of accumulators are the accumulators themselves.
            return dt;
        }
        let known = self.func.dtype_params.iter().position(|param| param.accumulator_of == Some(of));
        let index = known.unwrap_or_else(|| {
            let name = format!("{}::{ACCUMULATOR}", param.name);
            let bound = param.bound.of_accumulator();
            self.func.dtype_params.push(DtypeParam { name, bound, accumulator_of: Some(of) });
            self.func.dtype_params.len() - 1
        });
        Dt::Param(DtypeId::new(index as u32))
    }

    /// The dtype that a path names: `f16`, `T` or `T::Acc`.
    pub(super) fn dtype_of_path(&mut self, path: &Path) -> Option<Dt> {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.dtype_of_names(&names)
    }

    /// As [`Checker::dtype_of_path`], of the names of the path.
    pub(super) fn dtype_of_names(&mut self, names: &[String]) -> Option<Dt> {
        match names {
            [name] => self.dtype_by_name(name),
            [of, accumulator] if accumulator == ACCUMULATOR => {
                let dt = self.dtype_by_name(of)?;
                Some(self.accumulator_of(dt))
            }
            _ => None,
        }
    }

    /// What belongs to a dtype, as `T::Acc`; `None` if the type is something else.
    pub(super) fn associated_dtype(&mut self, ty: &Type) -> Option<Checked<Dt>> {
        let Type::Path(path) = strip(ty) else { return None };
        let [of, last] = [path.path.segments.first()?, path.path.segments.iter().nth(1)?];
        let of = of.ident.to_string();
        self.dtype_by_name(&of).filter(|_| path.path.segments.len() == 2)?;
        Some(self.dtype_of_path(&path.path).ok_or_else(|| self.no_such_dtype(&of, &last.ident.to_string(), ty)))
    }

    fn no_such_dtype(&mut self, of: &str, name: &str, ty: &Type) -> Reported {
        let place = SourceRange::of_type(ty);
        let message = format!("`{of}::{name}` is no dtype");
        let help = format!("`{of}::{ACCUMULATOR}` is the dtype in which many `{of}` are summed");
        self.report_help(place, message, help)
    }

    /// `T == f16`; `None` if the left side is no dtype.
    pub(super) fn dtype_comparison(&mut self, binary: &ExprBinary) -> Option<Checked<Operand>> {
        let holds = match binary.op {
            BinOp::Eq(_) => true,
            BinOp::Ne(_) => false,
            _ => return None,
        };
        let Expr::Path(left) = bare(&binary.left) else { return None };
        if left.path.get_ident().is_some_and(|name| self.lookup(&name.to_string()).is_some()) {
            return None;
        }
        let left = self.dtype_of_path(&left.path)?;
        let place = SourceRange::between(SourceRange::of(&binary.left).start, SourceRange::of(&binary.right).end);
        let right = match bare(&binary.right) {
            Expr::Path(path) => self.dtype_of_path(&path.path),
            _ => None,
        };
        let Some(right) = right else {
            let at = SourceRange::of(&binary.right);
            let left = dt_name(&self.func, left);
            let help = "a dtype is compared with a dtype: `T == f16`; its width is a number: `T::BITS == 16`";
            return Some(Err(self.report_help(at, format!("`{left}` is a dtype, and this is none"), help)));
        };
        let is = self.same_dtype(left, right, place);
        Some(if holds { Ok(is) } else { Ok(self.not(is, place)) })
    }

    fn same_dtype(&mut self, left: Dt, right: Dt, place: SourceRange) -> Operand {
        let kind = match (left, right) {
            (left, right) if left == right => Kind::Bool(true),
            (Dt::Known(_), Dt::Known(_)) => Kind::Bool(false),
            (Dt::Param(id), other) | (other, Dt::Param(id)) => Kind::ConstBool(is_dtype(&mut self.func, id, other)),
        };
        let node = Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: true, place };
        Operand { node: self.new_node(node), place }
    }

    /// The value of a condition that is known here, in a function: then only what is reached is checked again.
    pub(super) fn known_in_function(&self, condition: Operand) -> Option<bool> {
        match self.node(condition.node).kind {
            Kind::Bool(value) if self.frame.name.is_some() => Some(value),
            _ => None,
        }
    }
}
