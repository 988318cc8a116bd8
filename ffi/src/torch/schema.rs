//! The schemas of operators, in PyTorch's notation.

use crate::op::{AttributeType, Kind, Op, Param, Value};

/// The schema of the operator that makes its outputs: `silu(Tensor x) -> Tensor`.
pub(super) fn functional(op: &Op) -> String {
    let outputs = vec!["Tensor"; op.outputs().count()];
    let outputs = if outputs.len() == 1 { outputs.concat() } else { format!("({})", outputs.join(", ")) };
    format!("{}({}) -> {outputs}", op.name, inputs(op).join(", "))
}

/// The schema of the overload that writes outputs that are given: `silu.out(Tensor x, *, Tensor(a!) y) -> ()`.
///
/// It returns nothing, as `torch.compile` takes no operators that return what they were given.
pub(super) fn out(op: &Op) -> String {
    let written = op.in_place().count();
    let outputs = op.outputs().enumerate().map(|(at, (param, output))| {
        let optional = if output.with.is_some() { "?" } else { "" };
        format!("Tensor({}!){optional} {}", alias(written + at), param.name)
    });
    let inputs = inputs(op).into_iter().chain(["*".to_string()]).chain(outputs);
    format!("{}.out({}) -> ()", op.name, inputs.collect::<Vec<_>>().join(", "))
}

fn inputs(op: &Op) -> Vec<String> {
    let mut written = 0;
    let mut one = |param: &Param| {
        let kind = match &param.kind {
            Kind::Input { optional: false } => "Tensor".to_string(),
            Kind::Input { optional: true } => "Tensor?".to_string(),
            Kind::InPlace | Kind::Output(_) => {
                written += 1;
                format!("Tensor({}!)", alias(written - 1))
            }
            Kind::Attribute { of, .. } => attribute(*of).to_string(),
            Kind::OptionalAttribute { of } => format!("{}?", attribute(*of)),
        };
        let default = match &param.kind {
            _ if !op.may_be_left_out(&param.name) => String::new(),
            Kind::Attribute { default: Some(value), .. } => format!("={}", literal(value)),
            _ => "=None".to_string(),
        };
        format!("{kind} {}{default}", param.name)
    };
    op.inputs().map(&mut one).collect()
}

fn attribute(of: AttributeType) -> &'static str {
    match of {
        AttributeType::Int => "int",
        AttributeType::Float => "float",
        AttributeType::Bool => "bool",
        AttributeType::Str => "str",
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Str(text) => format!("\"{}\"", text.escape_default()),
    }
}

/// The name of an alias set: a, b, .., z, aa, ab, ..
fn alias(at: usize) -> String {
    let letter = char::from(b'a' + (at % 26) as u8);
    if at < 26 { letter.to_string() } else { format!("{}{letter}", alias(at / 26 - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{DTypeOf, Output, ShapeOf, Vmap};

    fn op(params: Vec<(&'static str, Kind)>) -> Op {
        let params = params.into_iter().map(|(name, kind)| Param { name: name.into(), kind }).collect::<Vec<_>>();
        let (name, docs) = ("f".into(), "".into());
        Op { name, docs, params: params.into(), backward: None, vmap: Vmap::Sequential, scratch: false }
    }

    fn input(optional: bool) -> Kind {
        Kind::Input { optional }
    }

    fn output(with: Option<usize>) -> Kind {
        Kind::Output(Output { dtype: DTypeOf::Same(0), shape: ShapeOf::Like(0), with })
    }

    fn float(default: Option<f64>) -> Kind {
        Kind::Attribute { of: AttributeType::Float, default: default.map(Value::Float) }
    }

    #[test]
    fn schemas_say_what_is_optional_and_what_is_written() {
        let norm = op(vec![("x", input(false)), ("w", input(true)), ("y", output(None)), ("eps", float(Some(1e-5)))]);
        assert_eq!(functional(&norm), "f(Tensor x, Tensor? w=None, float eps=1e-5) -> Tensor");
        assert_eq!(out(&norm), "f.out(Tensor x, Tensor? w=None, float eps=1e-5, *, Tensor(a!) y) -> ()");
        let gradient = op(vec![
            ("x", input(false)),
            ("w", input(true)),
            ("dx", output(None)),
            ("dw", output(Some(1))),
            ("eps", float(None)),
        ]);
        assert_eq!(functional(&gradient), "f(Tensor x, Tensor? w, float eps) -> (Tensor, Tensor)");
        assert_eq!(out(&gradient), "f.out(Tensor x, Tensor? w, float eps, *, Tensor(a!) dx, Tensor(b!)? dw) -> ()");
        let update = op(vec![
            ("x", Kind::InPlace),
            ("m", Kind::InPlace),
            ("k", Kind::OptionalAttribute { of: AttributeType::Int }),
        ]);
        assert_eq!(functional(&update), "f(Tensor(a!) x, Tensor(b!) m, int? k=None) -> ()");
    }

    #[test]
    fn there_are_names_for_many_aliases() {
        assert_eq!([0, 25, 26, 27, 51, 52].map(alias), ["a", "z", "aa", "ab", "az", "ba"]);
    }
}
