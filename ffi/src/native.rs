//! The door for frameworks that are written in Rust: they call operators on memory that they have.
//!
//! ```
//! use tilewright::Device;
//! use tilewright_ffi::native::{Argument, Operator, Tensor};
//! use tilewright_ffi::{ElementType, Exported, prelude::*};
//!
//! /// `factor * x`
//! #[op(out(y: like(x)))]
//! fn scaled(x: TensorRef<'_>, y: TensorMut<'_>, factor: f64) -> Result<()> {
//!     for (y, x) in y.slice_mut::<f32>()?.iter_mut().zip(x.slice::<f32>()?) {
//!         *y = (f64::from(*x) * factor) as f32;
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<()> {
//! const SCALED: Operator = scaled::OPERATOR;
//! let (device, x, mut y) = (Device::cpu(), [1f32, 2.0, 3.0], [0f32; 3]);
//! // SAFETY: as many elements are there, in row-major order.
//! let x = unsafe { Tensor::new(&device, x.as_ptr() as u64, ElementType::F32, &[3], &[1]) };
//! let mut arguments = [Argument::Tensor(x), Argument::None, Argument::Float(2.0)];
//! let made = SCALED.outputs(&arguments)?;
//! assert_eq!(made[0].as_ref().map(|made| (made.dtype, &*made.shape)), Some((ElementType::F32, &[3][..])));
//! // SAFETY: as above, and nobody else uses them.
//! arguments[1] = Argument::Tensor(unsafe { Tensor::new(&device, y.as_mut_ptr() as u64, ElementType::F32, &[3], &[1]) });
//! SCALED.call(&device, &arguments)?;
//! assert_eq!(y, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```

use crate::backward::{fail, params, same, text};
use crate::call::{self, Arg, ArgList, CallFn};
use crate::error::{Error, Result};
use crate::memory::RuntimeMemory;
use crate::op::{AttributeType, Kind, Op, Param};
use crate::shape::wanted;
use crate::tensor::{Place, RawTensor};
use tilewright::{Device, ElementType};

/// An operator, and the one that computes its gradient.
#[derive(Debug, Clone, Copy)]
pub struct Operator {
    op: &'static Op,
    call: CallFn,
    backward: Option<&'static Operator>,
}

/// A tensor of a framework, for one call.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a>(RawTensor<'a>);

/// An argument of a call.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// Of an input, a tensor that is written where it is, or an output.
    Tensor(Tensor<'a>),
    /// Of type `i64`.
    Int(i64),
    /// Of type `f64`.
    Float(f64),
    /// Of type `bool`.
    Bool(bool),
    /// Of type `&str`.
    Str(&'a str),
    /// What is optional and not given; an attribute that is to have its default; an output that is still to be made.
    None,
}

/// An output that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The dtype of its elements.
    pub dtype: ElementType,
    /// Its sizes. It lies in row-major order without gaps.
    pub shape: Vec<usize>,
}

impl<'a> Tensor<'a> {
    /// The tensor at `address`, with sizes and strides in elements.
    ///
    /// # Safety
    ///
    /// As for [`Device::borrow`] and, of a tensor that is written, [`Device::borrow_mut`], of all elements that sizes and strides
    /// reach from the first; there are as many strides as sizes, and none is larger than `i64::MAX`.
    pub unsafe fn new(
        device: &Device,
        address: u64,
        dtype: ElementType,
        shape: &'a [usize],
        strides: &'a [usize],
    ) -> Tensor<'a> {
        let place = match device.cuda_context() {
            None => Place::Cpu,
            Some(context) => Place::Cuda(context.ordinal() as u32),
        };
        // SAFETY: `i64` has the size and alignment of `usize`, and the caller says that each is one.
        let strides = unsafe { std::slice::from_raw_parts(strides.as_ptr().cast::<i64>(), strides.len()) };
        let len = shape.iter().product();
        Tensor(RawTensor { address, dtype, place, shape, strides: Some(strides), len })
    }
}

impl Operator {
    pub(crate) const fn new(op: &'static Op, call: CallFn, backward: Option<&'static Operator>) -> Self {
        Operator { op, call, backward }
    }

    /// What it is.
    pub const fn op(&self) -> &'static Op {
        self.op
    }

    /// The operator that computes its gradient: [`Gradient`](crate::backward::Gradient) says of what.
    pub const fn backward(&self) -> Option<&'static Operator> {
        self.backward
    }

    /// What a call with these arguments makes, one entry per output; none of an optional output that is not made. There is an
    /// argument for each of [`Op::params`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for arguments of another kind than the parameter's, and where they do not fit the shape of an output.
    pub fn outputs(&self, arguments: &[Argument<'_>]) -> Result<Vec<Option<Made>>> {
        let args = self.args(arguments)?;
        let mut made = Vec::new();
        for (param, output) in self.op.outputs() {
            made.push(match call::is_wanted(output, &args) {
                true => {
                    let wanted = wanted(self.op, &param.name, output, &args)?;
                    // Sizes are 0 or more.
                    Some(Made { dtype: wanted.dtype, shape: wanted.sizes.iter().map(|size| *size as usize).collect() })
                }
                false => None,
            });
        }
        Ok(made)
    }

    /// Calls it on a device, with an argument for each of [`Op::params`]. [Scratch memory](crate::Scratch) is the runtime's.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for arguments of another kind than the parameter's, outputs that are missing, do not fit or share memory;
    /// those of the function, also where it panics; on a GPU that of an earlier launch on this stream which nobody has taken.
    pub fn call(&self, device: &Device, arguments: &[Argument<'_>]) -> Result<()> {
        call::guarded(|| {
            let args = self.args(arguments)?;
            call::check_outputs(self.op, &args)?;
            call::run(self.op, self.call, &args, device, &RuntimeMemory::new(device))
        })
    }

    /// Arguments as operators read them, of the kinds of the parameters.
    fn args<'a>(&self, arguments: &[Argument<'a>]) -> Result<ArgList<'a>> {
        let params: &'static [Param] = &self.op.params;
        if params.len() != arguments.len() {
            return Err(format!("takes {} arguments, and {} are given", params.len(), arguments.len()).into());
        }
        params.iter().zip(arguments).map(|(param, argument)| read(param, *argument)).collect()
    }
}

fn read<'a>(param: &'static Param, argument: Argument<'a>) -> Result<Arg<'a>> {
    use AttributeType::{Bool, Float, Int, Str};
    Ok(match (&param.kind, argument) {
        (Kind::Input { .. } | Kind::InPlace | Kind::Output(_), Argument::Tensor(tensor)) => Arg::Tensor(tensor.0),
        (Kind::Attribute { of: Int, .. } | Kind::OptionalAttribute { of: Int }, Argument::Int(value)) => {
            Arg::Int(value)
        }
        (Kind::Attribute { of: Float, .. } | Kind::OptionalAttribute { of: Float }, Argument::Float(value)) => {
            Arg::Float(value)
        }
        (Kind::Attribute { of: Bool, .. }, Argument::Bool(value)) => Arg::Bool(value),
        (Kind::Attribute { of: Str, .. }, Argument::Str(value)) => Arg::Str(value),
        (Kind::Output(_), Argument::None) => Arg::None,
        (kind, Argument::None) => call::default(&param.name, kind)?,
        (kind, other) => return Err(Error::argument(&param.name, other.name(), accepted(kind))),
    })
}

/// The type of a parameter in the signature of a function that calls an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// A tensor.
    Tensor,
    /// A tensor, or none.
    OptionalTensor,
    /// `i64`
    Int,
    /// `Option<i64>`
    OptionalInt,
    /// `f64`
    Float,
    /// `Option<f64>`
    OptionalFloat,
    /// `bool`
    Bool,
    /// `&str`
    Str,
}

/// The places in [`Op::params`] of the parameters of a function that calls the operator and gives the first `outputs` of what it
/// makes. Names and order are the operator's; what has a default, or is optional, may be left out.
///
/// Panics if they do not fit: called in a constant, it is a compile error.
#[track_caller]
pub const fn places<const N: usize>(op: &Op, names: [&str; N], given: [Given; N], outputs: usize) -> [usize; N] {
    let (params, mut places) = (params(op), [0; N]);
    let (mut at, mut own, mut made) = (0, 0, 0);
    while at < params.len() {
        let (name, kind) = (text(&params[at].name), &params[at].kind);
        if matches!(kind, Kind::Output(_)) {
            made += 1;
        } else if own < N && same(unraw(names[own]), name) {
            if !fits(kind, given[own]) {
                fail(&["`", name, "` of `", text(&op.name), "` is ", described(kind)]);
            }
            places[own] = at;
            own += 1;
        } else if !kind.has_default() {
            fail(&["`", text(&op.name), "` takes `", name, "` in this place, ", described(kind)]);
        }
        at += 1;
    }
    if own < N {
        fail(&["`", text(&op.name), "` has no parameter `", names[own], "` in this place"]);
    }
    if outputs > made {
        fail(&["`", text(&op.name), "` makes fewer tensors"]);
    }
    places
}

/// The name without what makes it no keyword.
const fn unraw(name: &str) -> &str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

const fn fits(kind: &Kind, given: Given) -> bool {
    use AttributeType as A;
    matches!(
        (kind, given),
        (Kind::Input { .. } | Kind::InPlace, Given::Tensor)
            | (Kind::Input { optional: true }, Given::OptionalTensor)
            | (Kind::Attribute { of: A::Int, .. } | Kind::OptionalAttribute { of: A::Int }, Given::Int)
            | (Kind::OptionalAttribute { of: A::Int }, Given::OptionalInt)
            | (Kind::Attribute { of: A::Float, .. } | Kind::OptionalAttribute { of: A::Float }, Given::Float)
            | (Kind::OptionalAttribute { of: A::Float }, Given::OptionalFloat)
            | (Kind::Attribute { of: A::Bool, .. }, Given::Bool)
            | (Kind::Attribute { of: A::Str, .. }, Given::Str)
    )
}

const fn described(kind: &Kind) -> &'static str {
    match kind {
        Kind::Input { optional: true } => "a tensor or none, `Option<&Tensor>`",
        Kind::Input { optional: false } => "a tensor, `&Tensor`",
        Kind::InPlace => "a tensor that is written, `&Tensor`",
        Kind::Output(_) => "an output",
        Kind::Attribute { of: AttributeType::Int, .. } => "an `i64`",
        Kind::Attribute { of: AttributeType::Float, .. } => "an `f64`",
        Kind::Attribute { of: AttributeType::Bool, .. } => "a `bool`",
        Kind::Attribute { of: AttributeType::Str, .. } => "a `&str`",
        Kind::OptionalAttribute { of: AttributeType::Int } => "an `Option<i64>`",
        Kind::OptionalAttribute { .. } => "an `Option<f64>`",
    }
}

/// What messages call an argument of this kind.
fn accepted(kind: &Kind) -> &'static str {
    match kind {
        Kind::Input { .. } | Kind::InPlace | Kind::Output(_) => "a tensor",
        Kind::Attribute { of, .. } | Kind::OptionalAttribute { of } => match of {
            AttributeType::Int => "an integer",
            AttributeType::Float => "a float",
            AttributeType::Bool => "a truth value",
            AttributeType::Str => "a string",
        },
    }
}

impl Argument<'_> {
    fn name(&self) -> &'static str {
        match self {
            Argument::Tensor(_) => "is a tensor",
            Argument::Int(_) => "is an integer",
            Argument::Float(_) => "is a float",
            Argument::Bool(_) => "is a truth value",
            Argument::Str(_) => "is a string",
            Argument::None => "is missing",
        }
    }
}
