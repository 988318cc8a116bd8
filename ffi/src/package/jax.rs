//! The module `jax` of a package.

use super::python::{self, Shapes};
use crate::backward::{Gradient, Source};
use crate::op::{AttributeType, Kind, Library, Op, Param};
use std::fmt::Write;

const SHAPES: Shapes = Shapes { min: "_min", max: "_max", size: Some("_size") };

/// The functions of a library.
pub fn functions(library: &Library) -> String {
    library.ops.iter().map(|op| function(library, op)).collect()
}

fn is_optional(param: &Param) -> bool {
    param.kind == Kind::Input { optional: true }
}

fn tensors(op: &Op) -> Vec<&Param> {
    op.inputs().filter(|param| param.kind.is_tensor()).collect()
}

fn attributes(op: &Op) -> Vec<&Param> {
    op.inputs().filter(|param| !param.kind.is_tensor()).collect()
}

/// The tensors and then the attributes, as functions with gradients take them.
fn inner_arguments(op: &Op) -> String {
    python::names(tensors(op).into_iter().chain(attributes(op)))
}

fn function(library: &Library, op: &Op) -> String {
    let unrecorded = if op.scratch { format!(", \"{}.unrecorded\"", op.name) } else { String::new() };
    let mut text = format!("\n\n_register(\"{}\"{unrecorded})\n", op.name);
    text += &call(op);
    text += &gradient(library, op);
    let _ = writeln!(text, "\n\ndef {}({}):", op.name, python::parameters(op, None));
    text += &python::docstring(op);
    for param in tensors(op) {
        let _ = writeln!(text, "    {0} = _array({0})", param.name);
    }
    if let Some(gradient) = Gradient::of(op, &library.ops) {
        for param in tensors(op).into_iter().filter(|param| gradient.of_input(&param.name).is_none()) {
            let _ = writeln!(text, "    {0} = _constant(\"{1}.{2}\", \"{0}\", {0})", param.name, library.name, op.name);
        }
    }
    for param in attributes(op) {
        let _ = writeln!(text, "    {} = {}", param.name, plain(param));
    }
    let _ = writeln!(text, "    return _op__{}({})", op.name, inner_arguments(op));
    text
}

/// An attribute as a number or string of Python, which can be hashed.
fn plain(param: &Param) -> String {
    let name = &param.name;
    let of = |of: &AttributeType| match of {
        AttributeType::Int => "int",
        AttributeType::Float => "float",
        AttributeType::Bool => "bool",
        AttributeType::Str => "str",
    };
    match &param.kind {
        Kind::OptionalAttribute { of: ty } => format!("None if {name} is None else {}({name})", of(ty)),
        Kind::Attribute { of: ty, .. } => format!("{}({name})", of(ty)),
        _ => name.to_string(),
    }
}

/// The call without a gradient.
fn call(op: &Op) -> String {
    let made = op.outputs().map(|(_, output)| {
        let dtype = python::dtype(op, output, |dtype| match crate::torch::dtype_name(dtype) {
            "bool" => "jnp.bool_".into(),
            name => format!("jnp.{name}"),
        });
        let made = format!("jax.ShapeDtypeStruct({}, {dtype})", SHAPES.shape(op, output));
        match python::condition(op, output) {
            Some(condition) => format!("{made} if {condition} else None"),
            None => made,
        }
    });
    let written = op.in_place().map(|param| format!("jax.ShapeDtypeStruct({0}.shape, {0}.dtype)", param.name));
    let results: Vec<String> = made.chain(written).collect();
    let mut given: Vec<String> = attributes(op).into_iter().map(attribute).collect();
    let optional = tensors(op).into_iter().filter(|param| is_optional(param)).enumerate();
    let bits: Vec<String> = optional.map(|(at, param)| format!("(({} is not None) << {at})", param.name)).collect();
    if !bits.is_empty() {
        given.push(format!("\"{}\": np.int64({})", crate::xla::GIVEN, bits.join(" | ")));
    }
    let aliases: Vec<String> = op.in_place().enumerate().map(|(at, param)| alias(op, param, at)).collect();
    let list = |items: &[String], ends: [&str; 2]| match items {
        [] => ends.concat(),
        _ => format!("{}\n            {},\n        {}", ends[0], items.join(",\n            "), ends[1]),
    };
    format!(
        "\n\ndef _call__{0}({1}):\n    return _call(\n        \"{0}\",\n        \"{2}\",\n        {3},\n        [{4}],\n        \
         {5},\n        {{{6}}},\n{7}    )\n",
        op.name,
        inner_arguments(op),
        op.vmap.name(),
        list(&results, ["[", "]"]),
        python::names(tensors(op).into_iter()),
        list(&given, ["{", "}"]),
        aliases.join(", "),
        if op.scratch { "        _called_with_scratch,\n" } else { "" },
    )
}

/// An attribute as XLA has it.
fn attribute(param: &Param) -> String {
    let name = &param.name;
    let wrapped = |of: AttributeType| match of {
        AttributeType::Int => format!("np.int64({name})"),
        AttributeType::Float => format!("np.float64({name})"),
        AttributeType::Bool => format!("np.bool_({name})"),
        AttributeType::Str => name.to_string(),
    };
    match &param.kind {
        Kind::OptionalAttribute { of } => format!("\"{name}\": None if {name} is None else {}", wrapped(*of)),
        Kind::Attribute { of, .. } => format!("\"{name}\": {}", wrapped(*of)),
        _ => name.to_string(),
    }
}

/// The operand and the result of a tensor that is written in place.
fn alias(op: &Op, written: &Param, at: usize) -> String {
    let before = |params: Vec<String>| if params.is_empty() { "0".to_string() } else { params.join(" + ") };
    let operands = tensors(op).into_iter().take_while(|param| param.name != written.name);
    let operands = operands.map(|param| match is_optional(param) {
        true => format!("({} is not None)", param.name),
        false => "1".to_string(),
    });
    let outputs = op.outputs().map(|(_, output)| match python::condition(op, output) {
        Some(condition) => format!("({condition})"),
        None => "1".to_string(),
    });
    let results = outputs.chain((0..at).map(|_| "1".to_string()));
    format!("{}: {}", before(operands.collect()), before(results.collect()))
}

/// The call with a gradient, or one that says that it has none.
fn gradient(library: &Library, op: &Op) -> String {
    let (first, count) = (tensors(op).len(), attributes(op).len());
    let constant: Vec<String> = (first..first + count).map(|at| at.to_string()).collect();
    let decorator = format!("functools.partial(jax.custom_vjp, nondiff_argnums={})", python::tuple(&constant));
    let mut text = format!("\n\n_op__{0} = {decorator}(_call__{0})\n", op.name);
    let Some(gradient) = Gradient::of(op, &library.ops) else {
        let _ = writeln!(text, "_op__{0}.defvjp(*_refuse_gradient(\"{1}.{0}\"))", op.name, library.name);
        return text;
    };
    let outputs: Vec<String> = op.outputs().map(|(param, _)| param.name.to_string()).collect();
    let saved: Vec<String> = gradient.saved().iter().map(|name| (*name).to_string()).collect();
    let _ = write!(
        text,
        "\n\ndef _forward__{0}({1}):\n    {2} = _call__{0}({1})\n    return ({2}), {3}\n",
        op.name,
        inner_arguments(op),
        outputs.join(", "),
        python::tuple(&saved),
    );
    let constants: Vec<String> = attributes(op).iter().map(|param| param.name.to_string()).collect();
    let arguments = constants.iter().cloned().chain(["_saved".into(), "_incoming".into()]).collect::<Vec<_>>();
    let _ = writeln!(text, "\n\ndef _gradient__{}({}):", op.name, arguments.join(", "));
    if !saved.is_empty() {
        let _ = writeln!(text, "    {} = _saved", python::tuple(&saved));
    }
    let incoming: Vec<String> = outputs.iter().map(|output| format!("d_{output}")).collect();
    let _ = writeln!(text, "    {} = _incoming", incoming.join(", "));
    let arguments: Vec<String> = gradient
        .sources()
        .into_iter()
        .map(|source| match source {
            Source::Incoming(output) => format!("d_{output}"),
            Source::Saved(name) | Source::Attribute(name) => name.to_string(),
        })
        .collect();
    let gradients: Vec<&str> = gradient.backward.outputs().map(|(param, _)| param.name.as_ref()).collect();
    let _ = writeln!(text, "    {} = {}({})", gradients.join(", "), gradient.backward.name, arguments.join(", "));
    let results = tensors(op).into_iter().map(|param| gradient.of_input(&param.name).unwrap_or("None").to_string());
    let _ = writeln!(text, "    return {}", python::tuple(&results.collect::<Vec<_>>()));
    let _ = writeln!(text, "\n\n_op__{0}.defvjp(_forward__{0}, _gradient__{0})", op.name);
    text
}
