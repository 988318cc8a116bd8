//! Operators of `tilewright-ffi`, which PyTorch, JAX and others call, as functions on candle's tensors.

mod gradient;
mod run;

use crate::call::refused;
use candle_core::{Result, Tensor};
use run::{MOST_INPUTS, MOST_OUTPUTS, run};
use std::borrow::Cow;
use tilewright_ffi::Exported;
use tilewright_ffi::native::{self, Given};
use tilewright_ffi::op::{Kind, Op, Value};

/// Makes a function on candle's tensors of an operator, which is a function with `#[op]` of
/// [`tilewright_ffi`]: the same source is an operator of PyTorch, a primitive of JAX and an op of candle.
///
/// ```
/// use tilewright_candle::prelude::*;
///
/// mod my_ops {
///     use tilewright::prelude::*;
///     use tilewright_ffi::prelude::*;
///
///     /// y = factor * x
///     #[kernel]
///     fn times<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, factor: f64, n: i64) {
///         let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
///         let mask = offsets < n;
///         store(y + offsets, (load(x + offsets, mask = mask) as T::Acc * factor as T::Acc) as T, mask = mask);
///     }
///
///     #[op(out(y: like(x)), backward = scaled_backward)]
///     pub fn scaled(x: TensorRef<'_>, y: TensorMut<'_>, #[default(2.0)] factor: f64) -> Result<()> {
///         let n = x.len();
///         dispatch!(x.dtype() => T in [f32, f16, bf16] {
///             times::<T, 1024>(x.flat::<T>()?, y.flat_mut::<T>()?, factor, n as i64)
///                 .grid(n.div_ceil(1024))
///                 .launch(x.device())?;
///             Ok(())
///         })
///     }
///
///     #[op(out(d_x: like(d_y)))]
///     pub fn scaled_backward(d_y: TensorRef<'_>, d_x: TensorMut<'_>, factor: f64) -> Result<()> {
///         scaled(d_y, d_x, factor)
///     }
/// }
///
/// from_op! {
///     /// `factor * x`.
///     pub fn scaled(x: &Tensor, factor: f64) -> Tensor = my_ops::scaled;
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let x = candle_core::Var::new(&[1f32, 2.0], &candle_core::Device::Cpu)?;
/// let y = scaled(&x, 3.0)?;
/// assert_eq!(y.to_vec1::<f32>()?, [3.0, 6.0]);
/// let gradients = y.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&x).expect("x is a variable").to_vec1::<f32>()?, [3.0, 3.0]);
/// # Ok(())
/// # }
/// ```
///
/// # The signature
///
/// Parameters have the operator's names and order; whether they fit is checked when the crate compiles.
///
/// | parameter of the operator | here |
/// |---|---|
/// | `TensorRef`, and `TensorMut` that is written where it is | `&Tensor` |
/// | `Option<TensorRef>` | `Option<&Tensor>`, or `&Tensor` |
/// | `i64`, `f64`, `bool`, `&str` | the same |
/// | `Option<i64>`, `Option<f64>` | the same, or `i64` and `f64` |
/// | outputs, `&Scratch` | not named |
///
/// What is optional or has a default may be left out. The result is `Tensor`, the first of what the operator makes, or
/// `[Tensor; N]`, the first `N`; nothing is written if there is none.
///
/// # Gradients
///
/// An operator with `backward` is an op with a gradient. candle differentiates by three tensors at most, so no more of those that are
/// given may require a gradient, and only by the first result: where others have a gradient too, the operator is refused if they are
/// asked for and a tensor requires one. Tensors of which the operator computes no gradient must not require one. A gradient has the
/// dtype and the shape of its tensor: others are refused when candle asks for them. Gradients are not differentiated again.
///
/// An operator reads 16 tensors and makes 6 at most, and so does the one of its gradient.
///
/// # Threads
///
/// An operator that writes several tensors in place locks all of them until it is launched. Ops of this crate take locks in one
/// order on all threads. candle's own take them in the order of their parameters: one that reads two of those tensors on another
/// thread at that moment can deadlock with the operator, so call both on one thread.
///
/// # Errors
///
/// Functions give those of the operator, with its name, and those of [`call`](crate::call()).
#[macro_export]
macro_rules! from_op {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($param:ident: $kind:ty),* $(,)?) $(-> $result:ty)? = $op:ty;
    )+) => {$(
        $(#[$meta])*
        $vis fn $name($($param: $kind),*) -> $crate::candle_core::Result<$crate::from_op!(@result $($result)?)> {
            const PLACES: [usize; [$(stringify!($param)),*].len()] = $crate::operators::places::<
                $op,
                $crate::from_op!(@result $($result)?),
                { [$(stringify!($param)),*].len() },
            >(
                [$(stringify!($param)),*],
                [$(<$kind as $crate::operators::Parameter<'_>>::GIVEN),*],
            );
            $crate::operators::call::<$op, _, { [$(stringify!($param)),*].len() }>(
                PLACES,
                [$($crate::operators::Parameter::given($param)),*],
            )
        }
    )+};
    (@result) => { () };
    (@result $result:ty) => { $result };
}

/// What a caller gives for a parameter.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum Input<'a> {
    Tensor(&'a Tensor),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(&'a str),
    None,
}

/// A type of a parameter.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an operator has no parameter of type `{Self}`",
    label = "not a type of a parameter",
    note = "types are `&Tensor`, `Option<&Tensor>`, `i64`, `f64`, `bool`, `&str`, `Option<i64>` and `Option<f64>`"
)]
pub trait Parameter<'a> {
    const GIVEN: Given;

    fn given(self) -> Input<'a>;
}

macro_rules! values {
    ($($type:ty, $given:ident, $value:ident => $input:expr;)+) => {
        $(impl<'a> Parameter<'a> for $type {
            const GIVEN: Given = Given::$given;

            fn given(self) -> Input<'a> {
                let $value = self;
                $input
            }
        })+
    };
}

values! {
    &'a Tensor, Tensor, tensor => Input::Tensor(tensor);
    Option<&'a Tensor>, OptionalTensor, tensor => tensor.map_or(Input::None, Input::Tensor);
    i64, Int, value => Input::Int(value);
    Option<i64>, OptionalInt, value => value.map_or(Input::None, Input::Int);
    f64, Float, value => Input::Float(value);
    Option<f64>, OptionalFloat, value => value.map_or(Input::None, Input::Float);
    bool, Bool, value => Input::Bool(value);
    &'a str, Str, value => Input::Str(value);
}

/// What a function gives: the first of what its operator makes.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an operator does not give `{Self}`",
    label = "not a result",
    note = "results are `Tensor` and `[Tensor; N]`, and none where nothing is written behind the parameters"
)]
pub trait Results: Sized {
    const COUNT: usize;

    fn of(made: Vec<Tensor>) -> Option<Self>;
}

impl Results for () {
    const COUNT: usize = 0;

    fn of(_: Vec<Tensor>) -> Option<()> {
        Some(())
    }
}

impl Results for Tensor {
    const COUNT: usize = 1;

    fn of(made: Vec<Tensor>) -> Option<Tensor> {
        made.into_iter().next()
    }
}

impl<const N: usize> Results for [Tensor; N] {
    const COUNT: usize = N;

    fn of(made: Vec<Tensor>) -> Option<[Tensor; N]> {
        made.try_into().ok()
    }
}

/// Where the parameters of a function are among those of its operator.
#[doc(hidden)]
#[track_caller]
pub const fn places<O: Exported, R: Results, const N: usize>(names: [&str; N], given: [Given; N]) -> [usize; N] {
    check_counts(O::OP);
    if let Some(backward) = O::OPERATOR.backward() {
        check_counts(backward.op());
    }
    native::places(O::OP, names, given, R::COUNT)
}

#[track_caller]
const fn check_counts(op: &Op) {
    let Cow::Borrowed(params) = &op.params else { panic!("a constant owns nothing") };
    let (mut at, mut inputs, mut outputs) = (0, 0, 0);
    while at < params.len() {
        match params[at].kind {
            Kind::Input { .. } => inputs += 1,
            Kind::Output(_) => outputs += 1,
            Kind::InPlace | Kind::Attribute { .. } | Kind::OptionalAttribute { .. } => (),
        }
        at += 1;
    }
    assert!(inputs <= MOST_INPUTS, "an operator, or its gradient, reads more than 16 tensors");
    assert!(outputs <= MOST_OUTPUTS, "an operator, or its gradient, makes more than 6 tensors");
}

/// Calls an operator.
#[doc(hidden)]
pub fn call<O: Exported, R: Results, const N: usize>(places: [usize; N], given: [Input<'_>; N]) -> Result<R> {
    let operator = const { &O::OPERATOR };
    let op = operator.op();
    let mut inputs: Vec<Input<'_>> = op.params.iter().map(|param| default(&param.kind)).collect();
    for (place, given) in places.into_iter().zip(given) {
        inputs[place] = given;
    }
    for (param, output) in op.outputs().take(R::COUNT) {
        if output.with.is_some_and(|at| matches!(inputs[at], Input::None)) {
            return Err(refused(&op.name, format!("`{}` is not made of these tensors", param.name)));
        }
    }
    let made = run(operator, &inputs, R::COUNT)?.into_iter().take(R::COUNT).flatten().collect();
    R::of(made).ok_or_else(|| refused(&op.name, "makes less"))
}

/// What a parameter is that is left out.
fn default(kind: &'static Kind) -> Input<'static> {
    match kind {
        Kind::Attribute { default: Some(value), .. } => match value {
            Value::Int(value) => Input::Int(*value),
            Value::Float(value) => Input::Float(*value),
            Value::Bool(value) => Input::Bool(*value),
            Value::Str(value) => Input::Str(value),
        },
        _ => Input::None,
    }
}
