//! The types of a package's functions, for editors and type checkers.

use super::python;
use crate::op::{Library, Op, Param};

/// Of the module `torch`.
pub fn torch(library: &Library) -> String {
    stub(library, "import torch\n", "torch.Tensor", Results::Outputs)
}

/// Of the module `jax`.
pub fn jax(library: &Library) -> String {
    stub(library, "import jax\n", "jax.Array", Results::All)
}

/// Of the module `tvm_ffi`, which takes everything that speaks DLPack.
pub fn tvm_ffi(library: &Library) -> String {
    stub(library, "from typing import Any\n", "Any", Results::Outputs)
}

/// What functions return.
#[derive(Clone, Copy, PartialEq)]
enum Results {
    /// The outputs, which may be given.
    Outputs,
    /// What is written in place, too.
    All,
}

fn stub(library: &Library, imports: &str, tensor: &str, results: Results) -> String {
    let functions = library.ops.iter().map(|op| function(op, tensor, results));
    format!("{imports}\n{}", functions.collect::<Vec<_>>().join("\n"))
}

fn function(op: &Op, tensor: &str, results: Results) -> String {
    let types = |param: &Param| python::type_of(param, tensor);
    let mut returned: Vec<String> = op.outputs().map(|(param, _)| types(param)).collect();
    let is_given = results == Results::Outputs && !returned.is_empty();
    if results == Results::All {
        returned.extend(op.in_place().map(types));
    }
    let returned = match returned.as_slice() {
        [] => "None".to_string(),
        [one] => one.clone(),
        several => format!("tuple[{}]", several.join(", ")),
    };
    let out = if is_given { format!(", *, out: {returned} | None = None") } else { String::new() };
    let docs = python::docstring(op);
    let (end, docs) = if docs.is_empty() { (" ...", String::new()) } else { ("", docs) };
    format!("def {}({}{out}) -> {returned}:{end}\n{docs}", op.name, python::parameters(op, Some(&types)))
}
