//! The module `tvm_ffi` of a package.

use super::python::{self, Shapes};
use crate::op::{Library, Op};
use std::fmt::Write;

const SHAPES: Shapes = Shapes { min: "_min", max: "_max", size: Some("_size") };

/// The functions of a library.
pub fn functions(library: &Library) -> String {
    library.ops.iter().map(function).collect()
}

fn function(op: &Op) -> String {
    let outputs: Vec<String> = op.outputs().map(|(param, _)| param.name.to_string()).collect();
    let out = if outputs.is_empty() { "" } else { ", *, out=None" };
    let mut text =
        format!("\n\n_op__{0} = _module.{0}\n\n\ndef {0}({1}{out}):\n", op.name, python::parameters(op, None));
    text += &python::docstring(op);
    let target = outputs.join(", ");
    if !outputs.is_empty() {
        let made = op.outputs().map(|(_, output)| {
            let dtype = python::dtype(op, output, |dtype| format!("\"{}\"", crate::torch::dtype_name(dtype)));
            let made = format!("_empty({}, {}, {dtype})", python::leading(op), SHAPES.shape(op, output));
            match python::condition(op, output) {
                Some(condition) => format!("{made} if {condition} else None"),
                None => made,
            }
        });
        let made = python::returned(&made.collect::<Vec<_>>());
        let _ = write!(text, "    if out is None:\n        {target} = {made}\n    else:\n        {target} = out\n");
    }
    let _ = writeln!(text, "    _op__{}({})", op.name, python::names(op.params.iter()));
    if !outputs.is_empty() {
        let _ = writeln!(text, "    return {target}");
    }
    text
}
