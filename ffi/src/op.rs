//! What an operator is: its parameters, the shapes of its results, its gradient.
//!
//! `#[op]` writes an [`Op`] as a constant, the doors read it on each call, and the library gives it to the generator of
//! Python packages as JSON. Parameters refer to each other by their place in [`Op::params`].

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tilewright::ElementType;

/// A string that is a constant in the library and owned where it was read from JSON.
pub type Text = Cow<'static, str>;

/// A list like [`Text`].
pub type List<T> = Cow<'static, [T]>;

/// The operators that a library exports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Library {
    /// The namespace of its operators, and the name of its Python package.
    pub name: Text,
    /// Its version, that of the crate.
    pub version: Text,
    /// The operators, in the order of `export!`.
    pub ops: Vec<Op>,
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The name of the function.
    pub name: Text,
    /// Its documentation.
    pub docs: Text,
    /// Its parameters without scratch memory, in order.
    pub params: List<Param>,
    /// The name of the operator that computes gradients.
    pub backward: Option<Text>,
    /// What the operator does with more leading dimensions.
    pub vmap: Vmap,
    /// Whether it asks for scratch memory.
    pub scratch: bool,
}

/// A parameter of an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Param {
    /// Its name.
    pub name: Text,
    /// What it is.
    pub kind: Kind,
}

/// What a parameter is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `TensorRef`, or `Option<TensorRef>`.
    Input {
        /// Whether it may be missing.
        optional: bool,
    },
    /// `TensorMut` that `out(..)` does not name: it is written where it is.
    InPlace,
    /// `TensorMut` that `out(..)` names, or `Option<TensorMut>`.
    Output(Output),
    /// `i64`, `f64`, `bool`, `&str`.
    Attribute {
        /// Its type.
        of: AttributeType,
        /// The value where the caller gives none.
        default: Option<Value>,
    },
    /// `Option<i64>`, `Option<f64>`: nothing unless the caller gives one.
    OptionalAttribute {
        /// Its type.
        of: AttributeType,
    },
}

/// The type of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttributeType {
    /// `i64`
    Int,
    /// `f64`
    Float,
    /// `bool`
    Bool,
    /// `&str`
    Str,
}

/// The default of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Of `i64`.
    Int(i64),
    /// Of `f64`. Finite.
    Float(f64),
    /// Of `bool`.
    Bool(bool),
    /// Of `&str`.
    Str(Text),
}

/// What an output is like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The dtype of its elements.
    pub dtype: DTypeOf,
    /// Its shape.
    pub shape: ShapeOf,
    /// The optional input without which there is no such output.
    pub with: Option<usize>,
}

/// Where a dtype comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DTypeOf {
    /// `f32`
    Fixed(#[serde(with = "dtype_name")] ElementType),
    /// `x.dtype`
    Same(usize),
}

/// A shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapeOf {
    /// That of a tensor.
    Like(usize),
    /// One dimension or several after the other.
    Dims(List<Dim>),
}

/// Dimensions of a shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// One, of this size.
    Size(Expr),
    /// Those of a tensor, `..x.shape[from..to]`. Negative bounds count from the end.
    Part {
        /// The tensor.
        tensor: usize,
        /// The first dimension.
        from: Option<i64>,
        /// One past the last.
        to: Option<i64>,
    },
}

/// A size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// A number.
    Int(i64),
    /// An attribute of type `i64`.
    Attribute(usize),
    /// `x.shape[axis]`. A negative axis counts from the end.
    Size {
        /// The tensor.
        tensor: usize,
        /// The dimension.
        axis: i64,
    },
    /// A function of two sizes.
    Apply(Function, List<Expr>),
}

/// A function of two sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, rounded down.
    Div,
    /// `a % b`, with the sign of `b`.
    Rem,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
}

/// What an operator does where `jax.vmap` maps it. The names are those of `jax.ffi.ffi_call`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vmap {
    /// It is called once per element.
    Sequential,
    /// Tensors that are not mapped get a leading dimension of size 1.
    ExpandDims,
    /// All tensors get the leading dimension.
    BroadcastAll,
}

impl Op {
    /// What stands for an operator that has a mistake, until that is mended.
    #[doc(hidden)]
    pub const MISTAKEN: &'static Op = &Op {
        name: Cow::Borrowed(""),
        docs: Cow::Borrowed(""),
        params: Cow::Borrowed(&[]),
        backward: None,
        vmap: Vmap::Sequential,
        scratch: false,
    };

    /// The inputs, tensors that are written in place, and attributes: what a caller gives, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| !param.kind.is_output())
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = (&Param, &Output)> {
        self.params.iter().filter_map(|param| match &param.kind {
            Kind::Output(output) => Some((param, output)),
            _ => None,
        })
    }

    /// The tensors that are written in place.
    pub fn in_place(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.kind == Kind::InPlace)
    }

    /// Whether an attribute is a string.
    pub fn takes_string(&self) -> bool {
        self.params.iter().any(|param| matches!(param.kind, Kind::Attribute { of: AttributeType::Str, .. }))
    }

    /// Whether a caller may leave this input or attribute out. What is optional is left out only where all that follows
    /// may be, as in Python.
    pub fn may_be_left_out(&self, name: &str) -> bool {
        let from = self.inputs().skip_while(|param| param.name != name);
        from.map(|param| &param.kind).all(Kind::has_default)
    }
}

impl Kind {
    /// Whether this is an output.
    pub fn is_output(&self) -> bool {
        matches!(self, Kind::Output(_))
    }

    /// Whether this is a tensor.
    pub fn is_tensor(&self) -> bool {
        match self {
            Kind::Input { .. } | Kind::InPlace | Kind::Output(_) => true,
            Kind::Attribute { .. } | Kind::OptionalAttribute { .. } => false,
        }
    }

    /// Whether a caller may leave it out, where all that follows may be.
    pub(crate) const fn has_default(&self) -> bool {
        match self {
            Kind::Input { optional } => *optional,
            Kind::Attribute { default, .. } => default.is_some(),
            Kind::OptionalAttribute { .. } => true,
            Kind::InPlace | Kind::Output(_) => false,
        }
    }
}

impl Vmap {
    /// The name that `jax.ffi.ffi_call` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Vmap::Sequential => "sequential",
            Vmap::ExpandDims => "expand_dims",
            Vmap::BroadcastAll => "broadcast_all",
        }
    }
}

/// The dtypes of tensors, each once.
pub const DTYPES: [ElementType; 15] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::I16,
    ElementType::I32,
    ElementType::I64,
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::U64,
    ElementType::F8E4M3,
    ElementType::F8E5M2,
    ElementType::F16,
    ElementType::BF16,
    ElementType::F32,
    ElementType::F64,
];

/// A dtype as its name.
mod dtype_name {
    use super::{DTYPES, ElementType};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(dtype: &ElementType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(dtype.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ElementType, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = DTYPES.into_iter().find(|dtype| dtype.name() == name);
        found.ok_or_else(|| de::Error::custom(format!("`{name}` is no dtype")))
    }
}
