//! Variables that begin with an integer and become floats.
//!
//! A conversion inside of the loop, there and back, would cut off the fraction in every iteration:
//!
//! ```text
//! let mut acc = 0;                    begin with a float: `let mut acc = 0.0;`
//! acc = acc + load(x + i);            not `(acc as f32 + load(x + i)) as i32`
//! ```
//!
//! Only an assignment to the variable says that it becomes a float: a counter is converted where floats need it.

use kernel_core::ir::{DType, DTypeBound, Dim, Dt, LimitKind};
use syn::{Expr, LitInt};

use super::{Binding, Checker, Operand};
use crate::help::Help;
use crate::source_range::SourceRange;
use crate::tree::{Kind, NodeId, VOp, VarId};
use crate::types::{Class, VElem, admits};

impl Checker<'_> {
    /// The variables that an expression names, as far as it may be assigned to.
    pub(super) fn assigned_variables(&self, target: &Expr) -> Vec<VarId> {
        match target {
            Expr::Path(path) => {
                let binding = path.path.get_ident().and_then(|name| self.lookup(&name.to_string()));
                binding.map(|(binding, _)| variables_of(&binding)).unwrap_or_default()
            }
            Expr::Tuple(targets) => targets.elems.iter().flat_map(|target| self.assigned_variables(target)).collect(),
            Expr::Paren(paren) => self.assigned_variables(&paren.expr),
            Expr::Group(group) => self.assigned_variables(&group.expr),
            Expr::Field(field) => self.assigned_variables(&field.base),
            _ => Vec::new(),
        }
    }

    /// What to write where one of two operands is read from the variable to which the result is assigned, which began with
    /// an integer, and the other one is a float.
    pub(super) fn begun_with_integer(&self, a: Operand, b: Operand) -> Option<Help> {
        [(a, b), (b, a)].into_iter().find_map(|(read, other)| {
            let var = self.reads.get(&read.node.0).filter(|var| self.assigned.contains(var))?;
            self.begin_with_float(*var, other)
        })
    }

    /// What to write where a variable that began with an integer becomes this float.
    pub(super) fn begin_with_float(&self, var: VarId, value: Operand) -> Option<Help> {
        let VElem::Data(dt) = self.ty(value).elem else { return None };
        let to = match self.types.known(dt) {
            Some(to) => Some(to).filter(|&to| admits(&self.func, to, DTypeBound::Float))?,
            None => Some(Dt::Known(DType::F32)).filter(|_| self.types.class(dt) == Some(Class::Float))?,
        };
        let variable = &self.variables[var.0];
        // The fields of structs are what the struct says, other than the parts of tuples.
        if variable.name.rsplit_once('.').is_some_and(|(_, part)| part.parse::<usize>().is_err()) {
            return None;
        }
        let (place, integer, float) = self.float_for(variable.begin, to)?;
        if variable.annotated {
            let dtype = self.show_fixed(to);
            return Some(format!("declare `{}` as {dtype} and begin with `{float}`", variable.name).into());
        }
        let help = Help::write(place, float.clone());
        let declared = self.source.text(self.node(variable.begin).place)?;
        let text = match declared.split_once(&integer) {
            Some((before, after)) if !variable.name.contains('.') => {
                format!("begin with a float: `let mut {} = {before}{float}{after};`", variable.name)
            }
            _ => format!("`{}` begins with an integer: begin with `{float}`", variable.name),
        };
        Some(help.said(text))
    }

    /// The integer with which a variable begins, and the float that is written in its place.
    fn float_for(&self, begin: NodeId, to: Dt) -> Option<(SourceRange, String, String)> {
        let node = self.node(begin);
        let text = || self.source.text(node.place);
        match &node.kind {
            Kind::Int(Dim::Const(_)) => {
                let integer = text()?;
                let literal: LitInt = syn::parse_str(integer.trim_start_matches('-')).ok()?;
                let sign = if integer.starts_with('-') { "-" } else { "" };
                let float = format!("{sign}{}.0", literal.base10_digits());
                Some((node.place, integer, float))
            }
            Kind::Op(VOp::Limit(kind @ (LimitKind::Min | LimitKind::Max)), _) => {
                let limit = if *kind == LimitKind::Min { "NEG_INFINITY" } else { "INFINITY" };
                Some((node.place, text()?, format!("{}::{limit}", self.show_fixed(to).replace('`', ""))))
            }
            Kind::Op(_, operands) if operands.len() == 1 => self.float_for(operands[0], to),
            _ => None,
        }
    }
}

/// The variables that a name stands for.
fn variables_of(binding: &Binding) -> Vec<VarId> {
    match binding {
        Binding::Var(var) => vec![*var],
        Binding::Tuple(parts, _) => parts.iter().flat_map(variables_of).collect(),
        _ => Vec::new(),
    }
}
