//! Variables that begin with an integer and become floats, or numbers of a dtype parameter.
//!
//! A conversion inside of the loop, there and back, would cut off the fraction in every iteration:
//!
//! ```text
//! let mut acc = 0;                    begin with a float: `let mut acc = 0.0;`
//! acc = acc + load(x + i);            not `(acc as f32 + load(x + i)) as i32`
//!
//! let mut best = 0;                   begin as `T`: `let mut best = 0 as T;`
//! best = load(t + i);                 not `load(t + i) as i32`
//! ```
//!
//! Only an assignment to the variable says what it becomes: a counter is converted where others need it.

use kernel_core::ir::{DType, DTypeBound, Dim, Dt, LimitKind};
use syn::{Expr, LitInt};

use super::{Binding, Checker, Operand};
use crate::help::Help;
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
            self.begin_with_number(*var, other)
        })
    }

    /// What to write where a variable that began with an integer becomes this float, or number of a dtype parameter.
    pub(super) fn begin_with_number(&self, var: VarId, value: Operand) -> Option<Help> {
        let VElem::Data(dt) = self.ty(value).elem else { return None };
        let to = match self.types.known(dt) {
            Some(to @ Dt::Param(_)) => to,
            Some(to) => Some(to).filter(|&to| admits(&self.func, to, DTypeBound::Float))?,
            None => Some(Dt::Known(DType::F32)).filter(|_| self.types.class(dt) == Some(Class::Float))?,
        };
        let variable = &self.variables[var.0];
        // The fields of structs are what the struct says, other than the parts of tuples.
        if variable.name.rsplit_once('.').is_some_and(|(_, part)| part.parse::<usize>().is_err()) {
            return None;
        }
        let (begin, number) = self.number_for(variable.begin, to)?;
        let dtype = self.show_fixed(to);
        if variable.annotated {
            return Some(format!("declare `{}` as {dtype} and begin with `{number}`", variable.name).into());
        }
        let place = self.node(begin).place;
        let help = Help::write(place, number.clone());
        let kind = match admits(&self.func, to, DTypeBound::Float) {
            true => "with a float".to_string(),
            false => format!("as {dtype}"),
        };
        let wraps = if self.is_held(Operand { node: begin, place }, to) { "" } else { ", which may wrap" };
        let declared = self.source.replaced(self.node(variable.begin).place, place, &number);
        let text = match declared {
            Some(declared) if !variable.name.contains('.') => {
                format!("begin {kind}: `let mut {} = {declared};`{wraps}", variable.name)
            }
            _ => format!("`{}` begins with an integer: begin with `{number}`{wraps}", variable.name),
        };
        Some(help.said(text))
    }

    /// The integer with which a variable begins, and what is written in its place.
    fn number_for(&self, begin: NodeId, to: Dt) -> Option<(NodeId, String)> {
        let (node, float) = (self.node(begin), admits(&self.func, to, DTypeBound::Float));
        let (text, dtype) = (self.source.text(node.place), self.bare_name(to));
        match &node.kind {
            Kind::Int(Dim::Const(_)) => {
                let integer = text?;
                let literal: LitInt = syn::parse_str(integer.trim_start_matches('-')).ok()?;
                let sign = if integer.starts_with('-') { "-" } else { "" };
                let digits = format!("{sign}{}", literal.base10_digits());
                let number = if float { format!("{digits}.0") } else { format!("{digits} as {dtype}") };
                Some((begin, number))
            }
            Kind::Op(VOp::Limit(kind @ (LimitKind::Min | LimitKind::Max)), _) => {
                let limit = match (kind, float) {
                    (LimitKind::Min, true) => "NEG_INFINITY",
                    (_, true) => "INFINITY",
                    (LimitKind::Min, false) => "MIN",
                    (_, false) => "MAX",
                };
                let has = text.is_some() && admits(&self.func, to, DTypeBound::Num);
                has.then(|| (begin, format!("{dtype}::{limit}")))
            }
            Kind::Op(_, operands) if operands.len() == 1 => self.number_for(operands[0], to),
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
