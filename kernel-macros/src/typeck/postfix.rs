//! What follows an expression: methods, casts, fields and indices.

use quote::ToTokens;
use syn::{Expr, ExprIndex, ExprLit, Lit};

use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::names::is_screaming;
use crate::source_range::{SourceRange, bare};

impl Checker<'_> {
    /// `x.abs().max(y) as f32`: walks down to what the first part follows without recursion, so that long chains do
    /// not overflow the stack.
    pub(super) fn postfix(&mut self, expr: &Expr) -> Checked<Val> {
        let mut spine = Vec::new();
        let mut inner = Some(expr);
        while let Some((part, base)) = inner.and_then(|part| Some((part, base(part)?))) {
            spine.push((part, base));
            inner = Some(base);
        }
        let mut value = None;
        for (part, base) in spine.into_iter().rev() {
            value = Some(self.postfix_part(part, base, value));
        }
        value.unwrap_or_else(|| Err(self.unsupported(expr)))
    }

    /// One part, given the value of what it follows unless that is no such part itself.
    fn postfix_part(&mut self, part: &Expr, base: &Expr, value: Option<Checked<Val>>) -> Checked<Val> {
        let place = SourceRange::of(part);
        if value.is_none()
            && let Some(value) = self.postfix_of_name(part, place)
        {
            return value;
        }
        let value = value.unwrap_or_else(|| self.expr(base));
        match part {
            Expr::MethodCall(call) => self.method(call, value, place),
            Expr::Cast(cast) => {
                let operand = self.one_of(value);
                self.cast_expr(cast, operand, place).map(Val::One)
            }
            Expr::Index(index) => {
                let operand = self.one_of(value);
                self.index(index, operand, place).map(Val::One)
            }
            Expr::Field(field) => self.field(field, value?),
            other => Err(self.unsupported(other)),
        }
    }

    /// A part that follows a name with a meaning of its own: a parameter that may be absent, a descriptor, a constant.
    fn postfix_of_name(&mut self, part: &Expr, place: SourceRange) -> Option<Checked<Val>> {
        match part {
            Expr::MethodCall(call) => self.method_of_parameter(call, place),
            Expr::Cast(cast) => self.cast_of_constant(cast, place).map(|operand| operand.map(Val::One)),
            Expr::Index(index) => self.element_of_constant(index, place).map(Err),
            _ => None,
        }
    }

    /// `TABLE[2]` of a constant of the module.
    fn element_of_constant(&mut self, index: &ExprIndex, place: SourceRange) -> Option<Reported> {
        let Expr::Path(path) = bare(&index.expr) else { return None };
        let name = path.path.segments.last()?.ident.to_string();
        let local = path.path.get_ident().is_some() && self.lookup(&name).is_some();
        if !is_screaming(&name) || local || self.dtype_by_name(&name).is_some() {
            return None;
        }
        let message = "the constants that a kernel uses are scalars";
        let table = self.source.operand(SourceRange::of(&index.expr));
        let help = match (bare(&index.index), self.shape_constants.contains(&path.path.to_token_stream().to_string())) {
            (Expr::Lit(ExprLit { lit: Lit::Int(at), .. }), is_shape) => {
                let (at, ty) = (at.base10_digits(), if is_shape { "usize" } else { "f32" });
                format!("name the element outside the kernel: `const {name}_{at}: {ty} = {table}[{at}];`")
            }
            _ => "pass the numbers in a buffer, `table: Ptr<f32>`, and load them: `load(table + i)`".to_string(),
        };
        Some(self.report_help(place, message, help))
    }

    fn one_of(&mut self, value: Checked<Val>) -> Checked<Operand> {
        self.one(value?)
    }
}

/// What a part follows.
fn base(part: &Expr) -> Option<&Expr> {
    match part {
        Expr::MethodCall(call) => Some(&call.receiver),
        Expr::Cast(cast) => Some(&cast.expr),
        Expr::Index(index) => Some(&index.expr),
        Expr::Field(field) => Some(&field.base),
        _ => None,
    }
}
