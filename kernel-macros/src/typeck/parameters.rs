//! The parameters of a kernel, and those that may be without an argument.

use kernel_core::ir::{ConstId, ConstOrigin, ConstTy, Dim, Dt, Func, ParamId, ParamKind, Passing};
use syn::{BinOp, Expr, ExprBinary, ExprIf, ExprLet, ExprMethodCall, Ident, Pat};

use super::block::Flow;
use super::tensor_desc::Descriptor;
use super::{Binding, Checker, Constexpr, Operand};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::signature::{self, KernelParam, ParamTy};
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Node, NodeId};
use crate::types::{BOOL, DtRef, VElem, VTy};

/// Whether there is an argument for an optional parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// The launch says so, of a parameter of the kernel.
    Param(ParamId),
    /// The call of a function says so.
    Known(bool),
}

/// An optional parameter where it is named.
pub(super) struct Optional {
    /// Its name.
    pub name: String,
    /// Whether there is an argument.
    pub given: Given,
    /// What it holds.
    pub held: Binding,
}

impl Checker<'_> {
    /// Binds constexprs and parameters.
    pub(super) fn bind_signature(&mut self) {
        self.bind_constexprs();
        self.bind_parameters();
    }

    pub(super) fn bind_constexprs(&mut self) {
        for (index, param) in (0u32..).zip(self.func.const_params.clone()) {
            let id = ConstId::new(index);
            let binding = match param.ty {
                _ if self.signature.broken.contains(&param.name) => Binding::Poison,
                ConstTy::Int(ty) => Binding::Dim(Constexpr::new(Dim::param(id), ty)),
                ConstTy::Bool => Binding::ConstBool(id),
            };
            self.bind(&param.name, binding);
        }
    }

    fn bind_parameters(&mut self) {
        let signature = self.signature;
        for param in &signature.params {
            let (name, before) = (param.ident.to_string(), self.func.params.len());
            let binding = self.parameter(param, &name);
            // After a mistake in its type there is none.
            let id = (self.func.params.len() > before).then(|| ParamId::new(before as u32));
            let binding = match (id, &param.passing) {
                (Some(id), signature::Passing::Optional) if !matches!(binding, Binding::Poison) => {
                    self.func.params[id.index()].passing = Passing::Optional;
                    Binding::Option(Given::Param(id), Box::new(binding))
                }
                _ => binding,
            };
            self.bind(&name, binding);
        }
        self.bind_in_place();
    }

    /// Says which parameters may be read from the buffers of others. What is wrong about that was reported.
    fn bind_in_place(&mut self) {
        for param in &self.signature.params {
            let signature::Passing::InPlace(of) = &param.passing else { continue };
            let id = |ident: &Ident| self.func.params.iter().position(|param| *ident == param.name);
            if let (Some(own), Some(of)) = (id(&param.ident), id(of)) {
                self.func.params[own].passing = Passing::InPlace(ParamId::new(of as u32));
            }
        }
    }

    /// What the name of a parameter stands for.
    fn parameter(&mut self, param: &KernelParam, name: &str) -> Binding {
        let signature = self.signature;
        let place = SourceRange::at(param.ident.span());
        let broken = |dt: Dt| match dt {
            Dt::Known(_) => false,
            Dt::Param(p) => signature.dtype_ident(p).is_some_and(|ident| signature.broken.contains(&ident.to_string())),
        };
        let Some(ty) = param.ty else { return Binding::Poison };
        let (kind, dt) = match ty {
            ParamTy::Desc(dt, _) | ParamTy::DescMut(dt, _) => {
                let mutable = matches!(ty, ParamTy::DescMut(..));
                return match self.descriptor_param(param, dt, mutable, place) {
                    Ok(id) if !broken(dt) => Binding::Desc(Descriptor::Param(id)),
                    Ok(_) | Err(_) => Binding::Poison,
                };
            }
            ParamTy::Ptr(dt) => (ParamKind::Ptr { dt, mutable: false }, dt),
            ParamTy::PtrMut(dt) => (ParamKind::Ptr { dt, mutable: true }, dt),
            ParamTy::Scalar(dt) => (ParamKind::Scalar(dt), dt),
            ParamTy::Const(dt) => (ParamKind::ConstScalar(dt), dt),
        };
        let id = self.func.add_param(name, kind.clone(), place.ir_span());
        if broken(dt) {
            return Binding::Poison;
        }
        let node = self.param_node(id, &kind, place);
        match (param.mutable, &param.passing) {
            (Some(_), signature::Passing::Always | signature::Passing::InPlace(_)) => {
                let ty = self.node(node).ty.clone();
                Binding::Var(self.new_variable(name, ty, node))
            }
            _ => Binding::Value(node),
        }
    }

    pub(super) fn param_node(&mut self, id: ParamId, kind: &ParamKind, place: SourceRange) -> NodeId {
        let ty = match kind {
            ParamKind::Scalar(dt) | ParamKind::ConstScalar(dt) => VTy::scalar(DtRef::Fixed(*dt)),
            ParamKind::Ptr { .. }
            | ParamKind::Desc { .. }
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => VTy { elem: VElem::Ptr(id), shape: Vec::new() },
        };
        let constexpr = matches!(kind, ParamKind::ConstScalar(_));
        self.new_node(Node { kind: Kind::Param(id), ty, dim: None, constexpr, place })
    }

    /// The optional parameter that an expression names.
    pub(super) fn option(&self, expr: &Expr) -> Option<Optional> {
        let Expr::Path(path) = bare(expr) else { return None };
        let name = path.path.get_ident()?.to_string();
        match self.lookup(&name)? {
            (Binding::Option(given, held), _) => Some(Optional { name, given, held: *held }),
            _ => None,
        }
    }

    /// `x == None`, which is no comparison here.
    pub(super) fn option_comparison(&mut self, binary: &ExprBinary) -> Option<Checked<Operand>> {
        let asks = match binary.op {
            BinOp::Eq(_) => "is_none",
            BinOp::Ne(_) => "is_some",
            _ => return None,
        };
        let none = |expr: &Expr| matches!(bare(expr), Expr::Path(path) if path.path.is_ident("None"));
        let Optional { name, .. } = self.option(&binary.left).filter(|_| none(&binary.right))?;
        let place = SourceRange::between(SourceRange::of(&binary.left).start, SourceRange::of(&binary.right).end);
        let message = format!("an optional parameter is not compared: ask whether there is an argument for `{name}`");
        Some(Err(self.report_help(place, message, Help::write(place, format!("{name}.{asks}()")))))
    }

    /// Whether an expression is a name whose declaration was wrong.
    fn is_poison(&self, expr: &Expr) -> bool {
        let Expr::Path(path) = bare(expr) else { return false };
        let name = path.path.get_ident().map(ToString::to_string);
        name.is_some_and(|name| matches!(self.lookup(&name), Some((Binding::Poison, _))))
    }

    /// The type of a parameter that holds `ty`, as the signature has it.
    pub(super) fn optional(&self, param: ParamId, ty: String) -> String {
        match self.func.param(param).passing {
            Passing::Optional => format!("Option<{ty}>"),
            Passing::Always | Passing::InPlace(_) => ty,
        }
    }

    /// Whether there is an argument for a parameter: a constexpr.
    fn given(&mut self, given: Given, place: SourceRange) -> Operand {
        let kind = match given {
            Given::Param(param) => {
                let name = |func: &Func| format!("{}.is_some()", func.param(param).name);
                Kind::ConstBool(self.derived(name, ConstTy::Bool, ConstOrigin::Given(param)))
            }
            Given::Known(given) => Kind::Bool(given),
        };
        let node = Node { kind, ty: VTy::scalar(BOOL), dim: None, constexpr: true, place };
        Operand { node: self.new_node(node), place }
    }

    /// `bias.is_some()` and `bias.is_none()`.
    pub(super) fn option_method(
        &mut self,
        option: &Optional,
        call: &ExprMethodCall,
        place: SourceRange,
    ) -> Checked<Operand> {
        let given = self.given(option.given, place);
        match (call.method.to_string().as_str(), call.args.is_empty()) {
            ("is_some", true) => Ok(given),
            ("is_none", true) => Ok(self.not(given, place)),
            _ => {
                let name = &option.name;
                let message = format!("there may be no argument for `{name}`");
                let help = format!(
                    "take it where it is there, `if let Some({name}) = {name} {{ .. }}`, or ask `{name}.is_some()`"
                );
                Err(self.report_help(SourceRange::at(call.method.span()), message, help))
            }
        }
    }

    /// `if let Some(b) = bias { .. } else { .. }`
    pub(super) fn if_given(&mut self, stmt: &ExprIf, given: &ExprLet, want: bool, place: SourceRange) -> Flow {
        let pat = match &*given.pat {
            Pat::TupleStruct(some) if some.path.is_ident("Some") && some.elems.len() == 1 => some.elems.first(),
            _ => None,
        };
        let found = match (pat, self.option(&given.expr)) {
            (Some(_), Some(found)) => Ok(found),
            (None, Some(_)) => {
                let help = "write `if let Some(name) = ..`; for the opposite `if parameter.is_none()`";
                let at = SourceRange::of_pat(&given.pat);
                Err(self.report_help(at, "an optional parameter is looked at as `Some(name)`", help))
            }
            (_, None) if self.is_poison(&given.expr) => Err(Reported::earlier()),
            (_, None) if let Some(help) = self.nested_options(given) => {
                Err(self.report_help(SourceRange::of(&given.expr), "`if let` takes one optional parameter", help))
            }
            (_, None) => {
                let help =
                    "it asks whether there is an argument for a parameter declared as `Option<Ptr<T>>` or its kind";
                let at = SourceRange::of(&given.expr);
                Err(self.report_help(at, "`if let` takes optional parameters only", help))
            }
        };
        let at = SourceRange::of(&given.expr);
        let given_here = found.as_ref().map(|option| option.given).map_err(|reported| *reported);
        let before = |c: &mut Self| match (found, pat) {
            (Ok(Optional { held: held @ Binding::Desc(_), .. }), Some(pat)) => c.bind_held(pat, held),
            (Ok(option), Some(pat)) => {
                let held = c.held_value(&option.held, &option.name, at);
                c.bind_pattern(pat, held);
            }
            (Err(_), Some(pat)) => c.bind_silent(pat),
            (_, None) => c.bind_silent(&given.pat),
        };
        if let Ok(Given::Known(holds)) = given_here {
            return self.taken(stmt, holds, before, want, place);
        }
        let condition = given_here.map(|given| self.given(given, at));
        self.branches(stmt, condition, before, want, place)
    }

    /// `if let Some(b) = b { .. }` for `let Some(b) = b else { return; };`
    pub(super) fn given_else(&self, pat: &Pat, expr: &Expr) -> Option<String> {
        self.option(expr)?;
        let (pat, expr) = (self.source.text(SourceRange::of_pat(pat))?, self.source.text(SourceRange::of(expr))?);
        Some(format!("write `if let {pat} = {expr} {{ .. }}`, with what follows in its braces"))
    }

    /// `if let Some(b) = b { if let Some(c) = c { .. } }` for `if let (Some(b), Some(c)) = (b, c) { .. }`
    fn nested_options(&self, given: &ExprLet) -> Option<String> {
        let (Pat::Tuple(pats), Expr::Tuple(exprs)) = (&*given.pat, bare(&given.expr)) else { return None };
        if pats.elems.len() != exprs.elems.len() {
            return None;
        }
        let pairs = pats.elems.iter().zip(&exprs.elems).map(|(pat, expr)| {
            self.option(expr).filter(|_| matches!(pat, Pat::TupleStruct(some) if some.path.is_ident("Some")))?;
            let (pat, expr) = (self.source.text(SourceRange::of_pat(pat))?, self.source.text(SourceRange::of(expr))?);
            Some(format!("if let {pat} = {expr} {{ "))
        });
        let pairs = pairs.collect::<Option<Vec<String>>>()?;
        Some(format!("nest them: `{}..{}`", pairs.concat(), " }".repeat(pairs.len())))
    }

    /// Binds the names of a `let` in a condition that cannot have one, which was reported.
    pub(super) fn bind_refused(&mut self, condition: &Expr) {
        match bare(condition) {
            Expr::Let(refused) => self.bind_silent(&refused.pat),
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
                self.bind_refused(&binary.left);
                self.bind_refused(&binary.right);
            }
            _ => {}
        }
    }

    /// Names what is no value: a descriptor.
    fn bind_held(&mut self, pat: &Pat, held: Binding) {
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() && ident.mutability.is_none() => {
                self.bind(&ident.ident.to_string(), held);
            }
            Pat::Wild(_) => {}
            other => {
                let message = "a tensor descriptor is given a name here";
                self.report_help(SourceRange::of_pat(other), message, "write `Some(name)`, without `mut`");
                self.bind_pattern(other, Err(Reported::earlier()));
            }
        }
    }
}
