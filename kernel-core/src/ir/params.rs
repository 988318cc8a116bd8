//! What a kernel is declared with: its dtype parameters, its constexprs and its parameters.

use super::dim::Dim;
use super::dtype::{DType, DTypeBound};
use super::ids::{DtypeId, ParamId, ValueId};
use super::recipe::Recipe;
use super::span::Span;
use super::types::Dt;

/// A dtype parameter, `T: Num`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DtypeParam {
    /// Its name in the source.
    pub name: String,
    /// What its dtype must satisfy.
    pub bound: DTypeBound,
    /// The dtype parameter before it whose [accumulator](DType::accumulator) it is; `None` if the launch says what it is.
    pub accumulator_of: Option<DtypeId>,
}

impl DtypeParam {
    /// A dtype parameter that the launch gives.
    pub fn given(name: impl Into<String>, bound: DTypeBound) -> DtypeParam {
        DtypeParam { name: name.into(), bound, accumulator_of: None }
    }

    /// Whether the launch says what it is.
    pub fn is_given(&self) -> bool {
        self.accumulator_of.is_none()
    }
}

/// The type of a constexpr.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConstTy {
    /// `const N: usize` or any integer type; the value must fit it.
    Int(IntTy),
    /// `const FLAG: bool`, valued 0 or 1.
    Bool,
}

/// The Rust integer types that a constexpr may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntTy {
    /// `usize`
    Usize,
    /// `isize`
    Isize,
    /// A fixed-width integer dtype.
    Fixed(DType),
}

/// A constexpr (const generic).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConstParam {
    /// Its name in the source.
    pub name: String,
    /// Its type.
    pub ty: ConstTy,
    /// Where its value comes from.
    pub origin: ConstOrigin,
}

/// Where the value of a constexpr comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstOrigin {
    /// The launch gives it.
    Launch,
    /// `T::BITS`: the width of a dtype parameter.
    Bits(DtypeId),
    /// `T == f16`: whether a dtype parameter is that dtype.
    IsDtype(DtypeId, Dt),
    /// `num_warps()`: the warps of a program.
    NumWarps,
    /// `capability()`: what the kernel is compiled for.
    Capability,
    /// Whether the launch passes an argument for a parameter.
    Given(ParamId),
    /// The counter of a loop that binding unrolls: has a value inside that loop, another in each iteration.
    Counter,
}

/// Whether a launch must pass an argument for a parameter (generic level).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Passing {
    /// It must.
    #[default]
    Always,
    /// `Option<Ptr<T>>` and its kind: the kernel looks whether there is one.
    Optional,
    /// `#[in_place(out)]`: without one, the kernel reads that other parameter's buffer instead.
    InPlace(ParamId),
}

impl ConstParam {
    /// A constexpr that the launch gives.
    pub fn given(name: impl Into<String>, ty: ConstTy) -> ConstParam {
        ConstParam { name: name.into(), ty, origin: ConstOrigin::Launch }
    }

    /// Whether the launch gives its value.
    pub fn is_given(&self) -> bool {
        self.origin == ConstOrigin::Launch
    }

    /// Its value as the user wrote it: `true` rather than 1, and numbers of unsigned 64-bit types that do not fit the
    /// signed 64 bits in which values are kept.
    pub fn show(&self, value: i64) -> String {
        match self.ty {
            ConstTy::Bool if value == 0 => format!("{} = false", self.name),
            ConstTy::Bool if value == 1 => format!("{} = true", self.name),
            ConstTy::Int(IntTy::Usize | IntTy::Fixed(DType::U64)) => format!("{} = {}", self.name, value as u64),
            ConstTy::Bool | ConstTy::Int(_) => format!("{} = {value}", self.name),
        }
    }
}

/// What a parameter of the kernel is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// `Ptr<T>` (`mutable: false`) or `PtrMut<T>`: a buffer of `dt`.
    Ptr {
        /// The buffer's dtype.
        dt: Dt,
        /// Whether the kernel may store through it.
        mutable: bool,
    },
    /// `TensorDesc<T, { [BM, BK] }>`: a tensor of 1 to 5 dimensions in global memory, read and written in blocks.
    Desc {
        /// The tensor's dtype.
        dt: Dt,
        /// The shape of the blocks, one dimension per dimension of the tensor.
        block: Vec<Dim>,
        /// Whether the kernel may store through it.
        mutable: bool,
    },
    /// A scalar given at launch.
    Scalar(Dt),
    /// `Const<f32>` and its kind: a scalar that is folded and part of the cache key.
    ConstScalar(Dt),
    /// A parameter that the compiler adds: where a failed check is reported (u64 address).
    ReportSlot,
    /// A parameter that the compiler adds: the length in elements (i64) of a buffer parameter.
    Length(ParamId),
    /// A parameter that the compiler adds where a descriptor became a pointer: the size (i64) of a dimension of the
    /// tensor that is given as the argument of parameter `of`.
    DescShape {
        /// The parameter whose argument is the tensor.
        of: ParamId,
        /// The dimension, from the outermost.
        axis: u8,
    },
    /// As `DescShape`: the distance (i64) of neighbours along a dimension, in elements.
    DescStride {
        /// The parameter whose argument is the tensor.
        of: ParamId,
        /// The dimension, from the outermost.
        axis: u8,
    },
}

impl ParamKind {
    /// Whether the compiler adds it, so that no argument of the launch stands for it.
    pub fn is_hidden(&self) -> bool {
        match self {
            ParamKind::Ptr { .. } | ParamKind::Desc { .. } | ParamKind::Scalar(_) | ParamKind::ConstScalar(_) => false,
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => true,
        }
    }

    /// The dtype of the buffer, tensor or scalar that the argument is; `None` for what the compiler adds.
    pub fn dt(&self) -> Option<Dt> {
        match self {
            ParamKind::Ptr { dt, .. }
            | ParamKind::Desc { dt, .. }
            | ParamKind::Scalar(dt)
            | ParamKind::ConstScalar(dt) => Some(*dt),
            ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => None,
        }
    }
}

/// What is known of an argument when the kernel is compiled. Part of the cache key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Facts {
    /// A power of two that divides it: for a buffer or tensor, its address in bytes; for an integer, its value. 0 or 1: nothing known.
    pub divisible_by: u32,
    /// For an integer: its value, when that is 1.
    pub equals_one: bool,
    /// For a buffer: a power of two that divides its length in elements. 0 or 1: nothing known.
    pub len_divisible_by: u32,
    /// For a tensor: a power of two that divides every stride but the innermost, in elements. 0 or 1: nothing known.
    pub stride_divisible_by: u32,
    /// For a tensor: elements outside read as NaN, not as zero.
    pub pads_with_nan: bool,
    /// No argument is passed: a bound kernel does not use the parameter, and its code does not have it.
    pub omitted: bool,
}

/// A parameter of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name in the source.
    pub name: String,
    /// What it is.
    pub kind: ParamKind,
    /// Whether there is always an argument (generic level).
    pub passing: Passing,
    /// What is known of the argument (bound and placed levels).
    pub facts: Facts,
    /// How the host finds its argument, if the launch passes none: the kernel makes the tensor itself (bound and placed
    /// levels). Such parameters stand behind those that the launch passes arguments for.
    pub recipe: Option<Box<Recipe>>,
    /// The value that stands for it in the body.
    pub value: ValueId,
    /// Where it is declared.
    pub span: Span,
}

/// A tensor that the kernel makes itself, and that binding could not leave to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByPointers {
    /// Its name in the source.
    pub name: String,
    /// Why each program accesses it through pointers.
    pub why: String,
    /// Where it is made.
    pub span: Span,
}
