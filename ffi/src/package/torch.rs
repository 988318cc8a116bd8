//! The module `torch` of a package.

use super::python::{self, Shapes};
use crate::backward::{Gradient, Source};
use crate::op::{Kind, Library, Op, Param};
use std::fmt::Write;

/// Sizes may be symbols while PyTorch traces.
const SHAPES: Shapes = Shapes { min: "torch.sym_min", max: "torch.sym_max", size: None };

/// The functions of a library.
pub fn functions(library: &Library) -> String {
    library.ops.iter().map(|op| function(library, op)).collect()
}

/// The function of an operator. One that takes a string is there in every PyTorch, and says what is missing in those that have
/// no such operators.
fn function(library: &Library, op: &Op) -> String {
    let text = section(library, op);
    if !op.takes_string() {
        return text;
    }
    let (library, op) = (&library.name, &op.name);
    format!(
        "\n\nif hasattr(torch.ops.{library}, \"{op}\"):\n{}\nelse:\n\n    def {op}(*_arguments, **_named):\n        \
         raise RuntimeError(\"{op}: takes a string, for which PyTorch 2.10 or later is needed\")\n",
        indent(text.trim_start(), 4)
    )
}

fn section(library: &Library, op: &Op) -> String {
    let has_outputs = op.outputs().next().is_some();
    let gradient = Gradient::of(op, &library.ops);
    let mut text = format!("\n\n_op__{0} = torch.ops.{1}.{0}.default\n", op.name, library.name);
    if has_outputs {
        let _ = writeln!(text, "_out__{0} = torch.ops.{1}.{0}.out", op.name, library.name);
    }
    text += &fakes(library, op);
    if let Some(gradient) = &gradient {
        text += &autograd(op, gradient);
    }
    let out = if has_outputs { ", *, out=None" } else { "" };
    let _ = writeln!(text, "\n\ndef {}({}{out}):", op.name, python::parameters(op, None));
    text += &python::docstring(op);
    text += &body(library, op, gradient.as_ref(), has_outputs);
    text
}

/// What an operator gives while PyTorch traces, without running it.
fn fakes(library: &Library, op: &Op) -> String {
    let made = op.outputs().map(|(_, output)| {
        let dtype = python::dtype(op, output, |dtype| format!("torch.{}", crate::torch::dtype_name(dtype)));
        let made = format!("{}.new_empty({}, dtype={dtype})", python::leading(op), SHAPES.shape(op, output));
        match python::condition(op, output) {
            Some(condition) => {
                format!("{made} if {condition} else {}.new_empty(0, dtype=torch.float32)", python::leading(op))
            }
            None => made,
        }
    });
    let made: Vec<String> = made.collect();
    let mut text = format!(
        "\n\n@torch.library.register_fake(\"{}::{}\")\ndef _({}):\n    return {}\n",
        library.name,
        op.name,
        python::parameters(op, None),
        python::returned(&made)
    );
    if !made.is_empty() {
        let _ = write!(
            text,
            "\n\n@torch.library.register_fake(\"{}::{}.out\")\ndef _({}, *, {}):\n    return None\n",
            library.name,
            op.name,
            python::parameters(op, None),
            python::names(op.outputs().map(|(param, _)| param))
        );
    }
    text
}

fn class_name(op: &Op) -> String {
    format!("_Gradient__{}", op.name)
}

fn autograd(op: &Op, gradient: &Gradient<'_>) -> String {
    let outputs: Vec<&str> = op.outputs().map(|(param, _)| param.name.as_ref()).collect();
    let attributes: Vec<&str> = gradient
        .sources()
        .into_iter()
        .filter_map(|source| match source {
            Source::Attribute(name) => Some(name),
            Source::Incoming(_) | Source::Saved(_) => None,
        })
        .collect();
    let mut text = format!("\n\nclass {}(torch.autograd.Function):\n    @staticmethod\n", class_name(op));
    let _ = writeln!(text, "    def forward(_ctx, {}):", python::arguments(op));
    let _ = writeln!(text, "        {} = _op__{}({})", outputs.join(", "), op.name, python::arguments(op));
    for (param, output) in op.outputs() {
        if let Some(condition) = python::condition(op, output) {
            let _ = writeln!(text, "        {0} = {0} if {condition} else None", param.name);
        }
    }
    let _ = writeln!(text, "        _ctx.save_for_backward({})", gradient.saved().join(", "));
    if !attributes.is_empty() {
        let items: Vec<String> = attributes.iter().map(|name| (*name).to_string()).collect();
        let _ = writeln!(text, "        _ctx.attributes = {}", python::tuple(&items));
    }
    // Zeros that autograd would make for outputs on which nothing depends cost a pass over memory, and reading them another.
    let lacking = outputs.iter().any(|output| gradient.may_lack(output));
    let needed: Vec<&str> =
        outputs.iter().copied().filter(|one| lacking && gradient.takes(one) && !gradient.may_lack(one)).collect();
    if lacking {
        // The compiler knows no such method, and makes zeros itself.
        let _ = writeln!(text, "        if not _is_compiling():\n            _ctx.set_materialize_grads(False)");
        for output in &needed {
            let _ = writeln!(text, "            _ctx.kind_of_{output} = _kind({output})");
        }
    }
    text += &constants(op, gradient);
    let _ = writeln!(text, "        return {}\n\n    @staticmethod", outputs.join(", "));
    let incoming: Vec<String> = outputs.iter().map(|output| format!("d_{output}")).collect();
    let _ = writeln!(text, "    def backward(_ctx, {}):", incoming.join(", "));
    let saved: Vec<String> = gradient.saved().iter().map(|name| (*name).to_string()).collect();
    if !saved.is_empty() {
        let _ = writeln!(text, "        {} = _ctx.saved_tensors", python::tuple(&saved));
    }
    if !attributes.is_empty() {
        let items: Vec<String> = attributes.iter().map(|name| (*name).to_string()).collect();
        let _ = writeln!(text, "        {} = _ctx.attributes", python::tuple(&items));
    }
    for output in needed {
        let _ =
            writeln!(text, "        if d_{output} is None:\n            d_{output} = _zeros(*_ctx.kind_of_{output})");
    }
    let arguments: Vec<String> = gradient
        .sources()
        .into_iter()
        .map(|source| match source {
            // Gradients come in any strides: that of a sum is one element, repeated.
            Source::Incoming(output) if gradient.may_lack(output) => {
                format!("None if d_{output} is None else d_{output}.contiguous()")
            }
            Source::Incoming(output) => format!("d_{output}.contiguous()"),
            Source::Saved(name) | Source::Attribute(name) => name.to_string(),
        })
        .collect();
    let gradients: Vec<&str> = gradient.backward.outputs().map(|(param, _)| param.name.as_ref()).collect();
    let _ = writeln!(text, "        {} = {}({})", gradients.join(", "), gradient.backward.name, arguments.join(", "));
    let results: Vec<String> =
        op.inputs().map(|param| gradient.of_input(&param.name).unwrap_or("None").to_string()).collect();
    let _ = writeln!(text, "        return {}", python::returned(&results));
    text
}

/// Tells autograd which outputs have no gradient. A second call would take the place of the first.
fn constants(op: &Op, gradient: &Gradient<'_>) -> String {
    let all = || op.outputs().filter(|(param, _)| !gradient.takes(&param.name));
    let always: Vec<String> =
        all().filter(|(_, output)| output.with.is_none()).map(|(param, _)| param.name.to_string()).collect();
    let mut added = String::new();
    for (param, output) in all() {
        if let Some(condition) = python::condition(op, output) {
            let _ = writeln!(added, "        if {condition}:\n            _constants += ({},)", param.name);
        }
    }
    if !added.is_empty() {
        let first = python::tuple(&always);
        return format!("        _constants = {first}\n{added}        _ctx.mark_non_differentiable(*_constants)\n");
    }
    match always.is_empty() {
        true => String::new(),
        false => format!("        _ctx.mark_non_differentiable({})\n", always.join(", ")),
    }
}

/// Whether a gradient is asked for, of one of these.
fn requires_grad<'a>(params: impl Iterator<Item = &'a Param>) -> String {
    let one = |param: &Param| {
        let is_optional = match &param.kind {
            Kind::Input { optional } => *optional,
            Kind::Output(output) => output.with.is_some(),
            Kind::InPlace | Kind::Attribute { .. } | Kind::OptionalAttribute { .. } => false,
        };
        match is_optional {
            true => format!("({0} is not None and {0}.requires_grad)", param.name),
            false => format!("{}.requires_grad", param.name),
        }
    };
    let tensors: Vec<String> = params.filter(|param| param.kind.is_tensor()).map(one).collect();
    tensors.join(" or ")
}

/// The same of a call, for which gradients may be disabled.
fn asks<'a>(params: impl Iterator<Item = &'a Param>) -> String {
    let any = requires_grad(params);
    if any.contains(" or ") {
        format!("({any}) and _is_grad_enabled()")
    } else {
        format!("{any} and _is_grad_enabled()")
    }
}

/// Tensors by their names, as a function takes them that says which of them is wrong.
fn named<'a>(params: impl Iterator<Item = &'a Param>) -> String {
    let tensors = params.filter(|param| param.kind.is_tensor());
    tensors.map(|param| format!("{0}={0}", param.name)).collect::<Vec<_>>().join(", ")
}

fn body(library: &Library, op: &Op, gradient: Option<&Gradient<'_>>, has_outputs: bool) -> String {
    let (asked, arguments) = (asks(op.inputs()), python::arguments(op));
    let operator = format!("\"{}.{}\"", library.name, op.name);
    let refuse = format!("_refuse_gradient({operator}, {})\n", named(op.inputs()));
    let tangents =
        format!("if _forward_ad._current_level >= 0:\n    _refuse_tangent({operator}, {})\n", named(op.inputs()));
    let written: Vec<String> = op.in_place().map(|param| param.name.to_string()).collect();
    let wrote = if written.is_empty() { String::new() } else { noted(&python::tuple(&written)) };
    let plain = format!("_op__{}({arguments})", op.name);
    if !has_outputs {
        return indent(&format!("{tangents}if {asked}:\n    {refuse}{plain}\n{wrote}"), 4);
    }
    let with_gradient = match gradient {
        Some(gradient) => {
            // What has no gradient must not seem to have one of zero.
            let without: Vec<&Param> = op
                .inputs()
                .filter(|param| param.kind.is_tensor() && gradient.of_input(&param.name).is_none())
                .collect();
            let refuse = match without.is_empty() {
                true => String::new(),
                false => format!(
                    "if {}:\n    _refuse_gradient({operator}, {})\n",
                    requires_grad(without.iter().copied()),
                    named(without.iter().copied())
                ),
            };
            refuse + &given(op, &format!("{}.apply({arguments})", class_name(op)), &wrote)
        }
        None => refuse,
    };
    let made = format!("if {asked}:\n{}{}", indent(&with_gradient, 4), given(op, &plain, &wrote));
    indent(&format!("{tangents}if out is None:\n{}{}", indent(&made, 4), into_given(library, op)), 4)
}

/// The call that writes outputs which are given.
fn into_given(library: &Library, op: &Op) -> String {
    let outputs: Vec<&str> = op.outputs().map(|(param, _)| param.name.as_ref()).collect();
    let asked = asks(op.inputs().chain(op.outputs().map(|(param, _)| param)));
    let mut written: Vec<String> = op.in_place().map(|param| param.name.to_string()).collect();
    written.extend(outputs.iter().map(|output| (*output).to_string()));
    let written = match op.outputs().any(|(_, output)| output.with.is_some()) {
        true => format!("[_t for _t in {} if _t is not None]", python::tuple(&written)),
        false => python::tuple(&written),
    };
    let passed: Vec<String> = outputs.iter().map(|output| format!("{output}={output}")).collect();
    let mut text =
        format!("{} = out\nif {asked}:\n    _refuse_out(\"{}.{}\")\n", outputs.join(", "), library.name, op.name);
    let _ = writeln!(text, "_out__{}({}, {})", op.name, python::arguments(op), passed.join(", "));
    text + &noted(&written) + "return out\n"
}

/// Tells autograd that tensors were written.
fn noted(tensors: &str) -> String {
    format!("if not _is_compiling():\n    _note_writes({tensors})\n")
}

/// Returns what a call gives. Outputs that are not there are `None`.
fn given(op: &Op, call: &str, wrote: &str) -> String {
    let is_plain = wrote.is_empty() && op.outputs().all(|(_, output)| output.with.is_none());
    if is_plain {
        return format!("return {call}\n");
    }
    let names: Vec<&str> = op.outputs().map(|(param, _)| param.name.as_ref()).collect();
    let results = op.outputs().map(|(param, output)| match python::condition(op, output) {
        Some(condition) => format!("{} if {condition} else None", param.name),
        None => param.name.to_string(),
    });
    let results: Vec<String> = results.collect();
    format!("{} = {call}\n{wrote}return {}\n", names.join(", "), python::returned(&results))
}

fn indent(text: &str, by: usize) -> String {
    let one = |line: &str| if line.is_empty() { "\n".to_string() } else { format!("{:by$}{line}\n", "") };
    text.lines().map(one).collect()
}
