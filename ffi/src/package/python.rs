//! What all modules of a package have in common: names, shapes and signatures in Python.

use crate::op::{AttributeType, DTypeOf, Dim, Expr, Function, Kind, Op, Output, Param, ShapeOf, Value};
use tilewright::ElementType;

/// Text inside triple quotes.
pub fn doc_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"")
}

/// The documentation of an operator, as a docstring that is indented once.
pub fn docstring(op: &Op) -> String {
    if op.docs.is_empty() {
        return String::new();
    }
    let text = doc_text(&op.docs).replace('\n', "\n    ").replace("\n    \n", "\n\n");
    let end = if text.ends_with('"') || text.contains('\n') { "\n    " } else { "" };
    format!("    \"\"\"{text}{end}\"\"\"\n")
}

/// The first line of the documentation.
pub fn summary(op: &Op) -> &str {
    op.docs.lines().next().unwrap_or_default()
}

/// A default, or nothing.
fn default(op: &Op, param: &Param) -> Option<String> {
    if !op.may_be_left_out(&param.name) {
        return None;
    }
    match &param.kind {
        Kind::Attribute { default, .. } => default.as_ref().map(value),
        _ => Some("None".into()),
    }
}

/// A value.
pub fn value(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        // Rust's escapes but `\u{..}` are Python's, and JSON's are all.
        Value::Str(text) => serde_json::Value::from(text.as_ref()).to_string(),
    }
}

/// The parameters of a function in a signature. `of` gives a parameter's type, for stubs.
pub fn parameters(op: &Op, of: Option<&dyn Fn(&Param) -> String>) -> String {
    let one = |param: &Param| {
        let (equals, ty) = match of {
            Some(of) => (" = ", format!(": {}", of(param))),
            None => ("=", String::new()),
        };
        let default = default(op, param).map(|value| format!("{equals}{value}")).unwrap_or_default();
        format!("{}{ty}{default}", param.name)
    };
    op.inputs().map(one).collect::<Vec<_>>().join(", ")
}

/// The type of a parameter, where tensors have type `tensor`.
pub fn type_of(param: &Param, tensor: &str) -> String {
    let attribute = |of: &AttributeType| match of {
        AttributeType::Int => "int",
        AttributeType::Float => "float",
        AttributeType::Bool => "bool",
        AttributeType::Str => "str",
    };
    match &param.kind {
        Kind::Input { optional: true } => format!("{tensor} | None"),
        Kind::Input { optional: false } | Kind::InPlace => tensor.into(),
        Kind::Output(output) if output.with.is_some() => format!("{tensor} | None"),
        Kind::Output(_) => tensor.into(),
        Kind::Attribute { of, .. } => attribute(of).into(),
        Kind::OptionalAttribute { of } => format!("{} | None", attribute(of)),
    }
}

/// The names of the inputs and attributes, in order.
pub fn arguments(op: &Op) -> String {
    names(op.inputs())
}

/// Names behind each other.
pub fn names<'a>(params: impl Iterator<Item = &'a Param>) -> String {
    params.map(|param| param.name.as_ref()).collect::<Vec<_>>().join(", ")
}

/// A tuple of expressions; of one, with the comma that makes it one.
pub fn tuple(items: &[String]) -> String {
    if items.len() == 1 { format!("({},)", items[0]) } else { format!("({})", items.join(", ")) }
}

/// Items as a function returns them: one alone, several as a tuple.
pub fn returned(items: &[String]) -> String {
    match items {
        [] => "None".into(),
        [one] => one.clone(),
        _ => items.join(", "),
    }
}

/// The condition under which an output is there, if there is one.
pub fn condition(op: &Op, output: &Output) -> Option<String> {
    output.with.map(|with| format!("{} is not None", op.params[with].name))
}

/// How a framework writes what shapes consist of.
pub struct Shapes {
    /// The smaller and the larger of two sizes.
    pub min: &'static str,
    pub max: &'static str,
    /// The function that gives a size of a tensor, or says that it has too few dimensions; without one Python says it.
    pub size: Option<&'static str>,
}

impl Shapes {
    /// The shape of an output, as an expression over the arguments.
    pub fn shape(&self, op: &Op, output: &Output) -> String {
        match &output.shape {
            ShapeOf::Like(tensor) => format!("{}.shape", op.params[*tensor].name),
            ShapeOf::Dims(dims) => tuple(&dims.iter().map(|dim| self.dim(op, dim)).collect::<Vec<_>>()),
        }
    }

    fn dim(&self, op: &Op, dim: &Dim) -> String {
        match dim {
            Dim::Size(expr) => self.size(op, expr),
            Dim::Part { tensor, from, to } => {
                let bound = |at: &Option<i64>| at.map(|at| at.to_string()).unwrap_or_default();
                format!("*{}.shape[{}:{}]", op.params[*tensor].name, bound(from), bound(to))
            }
        }
    }

    fn size(&self, op: &Op, expr: &Expr) -> String {
        match expr {
            Expr::Int(value) if *value < 0 => format!("({value})"),
            Expr::Int(value) => value.to_string(),
            Expr::Attribute(at) => op.params[*at].name.to_string(),
            Expr::Size { tensor, axis } => {
                let name = &op.params[*tensor].name;
                match self.size {
                    Some(size) => format!("{size}(\"{}\", \"{name}\", {name}, {axis})", op.name),
                    None => format!("{name}.shape[{axis}]"),
                }
            }
            Expr::Apply(function, of) => {
                let (a, b) = (self.size(op, &of[0]), self.size(op, &of[1]));
                match function {
                    Function::Add => format!("({a} + {b})"),
                    Function::Sub => format!("({a} - {b})"),
                    Function::Mul => format!("({a} * {b})"),
                    Function::Div => format!("({a} // {b})"),
                    Function::Rem => format!("({a} % {b})"),
                    Function::Min => format!("{}({a}, {b})", self.min),
                    Function::Max => format!("{}({a}, {b})", self.max),
                }
            }
        }
    }
}

/// The dtype of an output: that of a tensor, or what `fixed` makes of a dtype.
pub fn dtype(op: &Op, output: &Output, fixed: impl Fn(ElementType) -> String) -> String {
    match &output.dtype {
        DTypeOf::Fixed(dtype) => fixed(*dtype),
        DTypeOf::Same(tensor) => format!("{}.dtype", op.params[*tensor].name),
    }
}

/// The tensor that is always given, from which results have their device.
pub fn leading(op: &Op) -> &str {
    let is_given = |param: &&Param| matches!(param.kind, Kind::Input { optional: false } | Kind::InPlace);
    op.params.iter().find(is_given).map_or("", |param| &param.name)
}
