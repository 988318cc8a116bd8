//! Operators of `tilewright-ffi`, which PyTorch, JAX and others call, as functions on candle's tensors.

use crate::call::{self, Held, refused};
use crate::lock::{Named, with_inputs, with_targets};
use crate::memory::Memory;
use crate::op::{Custom, Differentiable, check_written, requires_gradient, tensor, together, too_early, tracked};
use crate::tensor::{Spec, TensorMut, TensorRef};
use candle_core::{DType, Layout, Result, Shape, Storage, Tensor};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use tilewright_ffi::backward::{Gradient, Source};
use tilewright_ffi::native::{self, Argument, Given, Operator};
use tilewright_ffi::op::{Kind, Op, Value};
use tilewright_ffi::{ElementType, Exported};

/// As many tensors as an operator may read here.
const MOST_INPUTS: usize = 16;
/// As many as it may make.
const MOST_OUTPUTS: usize = 6;

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
/// asked for and a tensor requires one. Tensors of which the operator computes no gradient must not require one.
///
/// An operator reads 16 tensors and makes 6 at most, and so does the one of its gradient.
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
    let mut made = run(operator, &inputs, R::COUNT)?;
    made.truncate(R::COUNT);
    let names = op.outputs().map(|(param, _)| &*param.name);
    let made: Vec<Tensor> = names
        .zip(made)
        .map(|(name, made)| made.ok_or_else(|| refused(&op.name, format!("`{name}` is not made of these tensors"))))
        .collect::<Result<_>>()?;
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

/// What an operator makes, of which the first `wanted` are asked for.
fn run(operator: &'static Operator, inputs: &[Input<'_>], wanted: usize) -> Result<Vec<Option<Tensor>>> {
    let op = operator.op();
    let mut by = Vec::new();
    for (at, (param, input)) in op.params.iter().zip(inputs).enumerate() {
        match (&param.kind, input) {
            (Kind::InPlace, Input::Tensor(tensor)) => check_written(&op.name, (&param.name, tensor))?,
            (Kind::Input { .. }, Input::Tensor(tensor)) if requires_gradient(tensor) => by.push(at),
            _ => (),
        }
    }
    if by.is_empty() {
        return execute(operator, inputs);
    }
    let gradient = operator.backward().map(|backward| Gradient::new(op, backward.op()));
    let has_gradient = |at: &usize| gradient.as_ref().is_some_and(|one| one.of_input(&op.params[*at].name).is_some());
    if let Some(at) = by.iter().find(|at| !has_gradient(at)) {
        return Err(tracked(&op.name, &op.params[*at].name));
    }
    let mut others = op.outputs().take(wanted).skip(1).map(|(param, _)| &*param.name);
    if let Some(name) = others.find(|name| gradient.as_ref().is_some_and(|gradient| gradient.takes(name))) {
        let problem = format!("`{name}` has a gradient, and candle differentiates by one result of an op");
        return Err(refused(&op.name, format!("{problem}; `detach` the tensors, or ask for the first result alone")));
    }
    differentiate(operator, inputs, by)
}

/// Runs an operator on tensors that are not differentiated.
fn execute(operator: &'static Operator, inputs: &[Input<'_>]) -> Result<Vec<Option<Tensor>>> {
    let op = operator.op();
    let mut targets: Vec<Named<'_>> = Vec::new();
    for (param, input) in op.params.iter().zip(inputs) {
        if let (Kind::InPlace, Input::Tensor(tensor)) = (&param.kind, input) {
            targets.push((&param.name, tensor));
        }
    }
    let named = named(op, inputs)?;
    let outputs = Outputs::of(operator, inputs, &[]);
    let made = with_targets(&op.name, &targets, &named, |targets, held| outputs.run(targets, held))?;
    Ok(made.into_iter().map(|made| made.map(tensor)).collect())
}

/// The tensors that are read, in the order of the parameters.
fn named<'a>(op: &'static Op, inputs: &[Input<'a>]) -> Result<[Option<Named<'a>>; MOST_INPUTS]> {
    let mut named = [None; MOST_INPUTS];
    let read = op.params.iter().enumerate().filter(|(_, param)| matches!(param.kind, Kind::Input { .. }));
    for (own, (at, param)) in read.enumerate() {
        if let Input::Tensor(tensor) = inputs[at] {
            let Some(place) = named.get_mut(own) else {
                return Err(too_many(op));
            };
            *place = Some((&*param.name, tensor));
        }
    }
    Ok(named)
}

fn too_many(op: &'static Op) -> candle_core::Error {
    refused(&op.name, format!("reads more than {MOST_INPUTS} tensors"))
}

type Made = Vec<Option<(Storage, Shape)>>;

/// A call whose number of results is known.
struct Outputs<'c, 'i> {
    operator: &'static Operator,
    inputs: &'c [Input<'i>],
    /// Which are made.
    made: Vec<bool>,
}

impl<'c, 'i> Outputs<'c, 'i> {
    /// `by` are given beside the inputs.
    fn of(operator: &'static Operator, inputs: &'c [Input<'i>], by: &[usize]) -> Self {
        let is_given = |at: usize| by.contains(&at) || !matches!(inputs[at], Input::None);
        let is_made = |with: Option<usize>| with.is_none_or(is_given);
        let made = operator.op().outputs().map(|(_, output)| is_made(output.with)).collect();
        Outputs { operator, inputs, made }
    }
}

impl Outputs<'_, '_> {
    fn run(self, targets: Vec<call::HeldMut<'_>>, held: [Option<Held<'_>>; MOST_INPUTS]) -> Result<Made> {
        match self.made.iter().filter(|made| **made).count() {
            0 => self.counted::<0>(targets, held),
            1 => self.counted::<1>(targets, held),
            2 => self.counted::<2>(targets, held),
            3 => self.counted::<3>(targets, held),
            4 => self.counted::<4>(targets, held),
            5 => self.counted::<5>(targets, held),
            6 => self.counted::<6>(targets, held),
            many => Err(refused(&self.operator.op().name, format!("makes {many} tensors, not {MOST_OUTPUTS} at most"))),
        }
    }

    fn counted<const OUT: usize>(
        self,
        targets: Vec<call::HeldMut<'_>>,
        held: [Option<Held<'_>>; MOST_INPUTS],
    ) -> Result<Made> {
        let op = self.operator.op();
        let specs = |targets: &[TensorMut<'_>],
                     refs: [Option<TensorRef<'_>>; MOST_INPUTS]|
         -> tilewright_ffi::Result<[Spec; OUT]> {
            let arguments = self.arguments(&refs, targets, &[])?;
            let made = self.operator.outputs(&arguments)?;
            let named = op.outputs().map(|(param, _)| &*param.name).zip(made);
            let specs = named.filter_map(|(name, made)| made.map(|made| spec(name, made)));
            let specs: Vec<Spec> = specs.collect::<tilewright_ffi::Result<_>>()?;
            specs.try_into().map_err(|_| tilewright_ffi::Error::from("makes something else than it says"))
        };
        let body =
            |targets: Vec<TensorMut<'_>>, refs: [Option<TensorRef<'_>>; MOST_INPUTS], out: [TensorMut<'_>; OUT]| {
                let arguments = self.arguments(&refs, &targets, &out)?;
                let device =
                    refs.iter().flatten().map(TensorRef::device).chain(targets.iter().map(TensorMut::device)).next();
                device.map_or(Ok(()), |device| self.operator.call(device, &arguments))
            };
        let made = call::execute(&op.name, targets, held, specs, body)?;
        let mut made = made.into_iter();
        Ok(self.made.iter().map(|is_made| if *is_made { made.next() } else { None }).collect())
    }

    /// An argument for each parameter.
    fn arguments<'a>(
        &'a self,
        refs: &[Option<TensorRef<'a>>; MOST_INPUTS],
        targets: &[TensorMut<'a>],
        out: &[TensorMut<'a>],
    ) -> tilewright::Result<Vec<Argument<'a>>> {
        let (mut refs, mut targets, mut out) = (refs.iter(), targets.iter(), out.iter());
        let mut is_made = self.made.iter();
        let params = self.operator.op().params.iter().zip(self.inputs);
        params
            .map(|(param, input)| {
                Ok(match (&param.kind, *input) {
                    (Kind::Input { .. }, _) => argument(refs.next().and_then(Option::as_ref).map(TensorRef::argument))?,
                    (Kind::InPlace, _) => argument(targets.next().map(TensorMut::argument))?,
                    (Kind::Output(_), _) if is_made.next() == Some(&true) => {
                        argument(out.next().map(TensorMut::argument))?
                    }
                    (Kind::Output(_), _) => Argument::None,
                    (_, Input::Int(value)) => Argument::Int(value),
                    (_, Input::Float(value)) => Argument::Float(value),
                    (_, Input::Bool(value)) => Argument::Bool(value),
                    (_, Input::Str(value)) => Argument::Str(value),
                    (_, Input::Tensor(_) | Input::None) => Argument::None,
                })
            })
            .collect()
    }
}

fn argument(tensor: Option<tilewright::Result<native::Tensor<'_>>>) -> tilewright::Result<Argument<'_>> {
    Ok(tensor.transpose()?.map_or(Argument::None, Argument::Tensor))
}

fn spec(name: &str, made: native::Made) -> tilewright_ffi::Result<Spec> {
    let dtype = match made.dtype {
        ElementType::U8 => DType::U8,
        ElementType::U32 => DType::U32,
        ElementType::I16 => DType::I16,
        ElementType::I32 => DType::I32,
        ElementType::I64 => DType::I64,
        ElementType::F8E4M3 => DType::F8E4M3,
        ElementType::F16 => DType::F16,
        ElementType::BF16 => DType::BF16,
        ElementType::F32 => DType::F32,
        ElementType::F64 => DType::F64,
        other @ (ElementType::Bool | ElementType::I8 | ElementType::U16 | ElementType::U64 | ElementType::F8E5M2) => {
            return Err(tilewright_ffi::Error::argument(
                name,
                format_args!("is of {other}"),
                "a dtype that candle has",
            ));
        }
    };
    if made.shape.iter().try_fold(made.dtype.size(), |bytes, size| bytes.checked_mul(*size)).is_none() {
        return Err(tilewright_ffi::Error::argument(name, format_args!("would have shape {:?}", made.shape), "less"));
    }
    Ok(Spec::new(dtype, made.shape))
}

/// What an attribute was, as long as a gradient may be asked for.
enum Attribute {
    Tensor(Tensor),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(Box<str>),
    None,
}

impl Attribute {
    fn of(input: &Input<'_>) -> Attribute {
        match *input {
            Input::Tensor(tensor) => Attribute::Tensor(tensor.clone()),
            Input::Int(value) => Attribute::Int(value),
            Input::Float(value) => Attribute::Float(value),
            Input::Bool(value) => Attribute::Bool(value),
            Input::Str(value) => Attribute::Str(value.into()),
            Input::None => Attribute::None,
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Attribute::Tensor(tensor) => Input::Tensor(tensor),
            Attribute::Int(value) => Input::Int(*value),
            Attribute::Float(value) => Input::Float(*value),
            Attribute::Bool(value) => Input::Bool(*value),
            Attribute::Str(value) => Input::Str(value),
            Attribute::None => Input::None,
        }
    }
}

/// What is made beside the first result.
type Others = Arc<OnceLock<Vec<Option<Tensor>>>>;

/// An operator that is differentiated by some of its inputs. The others are kept here.
struct Differentiated {
    operator: &'static Operator,
    /// One per parameter; those of `by` stand for candle's.
    inputs: Vec<Attribute>,
    by: Vec<usize>,
    others: Others,
}

/// Runs an operator that candle differentiates by the inputs `by`.
fn differentiate(operator: &'static Operator, inputs: &[Input<'_>], by: Vec<usize>) -> Result<Vec<Option<Tensor>>> {
    let op = operator.op();
    let named = op.params.iter().zip(inputs).filter_map(|(param, input)| match input {
        Input::Tensor(tensor) => Some((&*param.name, *tensor)),
        _ => None,
    });
    together(&op.name, named)?;
    let mut tensors = Vec::with_capacity(by.len());
    for at in &by {
        if let Input::Tensor(tensor) = inputs[*at] {
            tensors.push(tensor);
        }
    }
    let others = Others::default();
    let kept = inputs.iter().enumerate();
    let kept = kept.map(|(at, input)| if by.contains(&at) { Attribute::None } else { Attribute::of(input) }).collect();
    let custom = Custom(Differentiated { operator, inputs: kept, by, others: others.clone() });
    let first = match tensors[..] {
        [x] => x.apply_op1(custom)?,
        [x, y] => x.apply_op2(y, custom)?,
        [x, y, z] => x.apply_op3(y, z, custom)?,
        _ => {
            let problem = format!("{} tensors require a gradient, and candle differentiates by three", tensors.len());
            return Err(refused(&op.name, format!("{problem}; `detach` those that need none")));
        }
    };
    let others = others.get().ok_or_else(|| too_early(&op.name))?;
    Ok(std::iter::once(Some(first)).chain(others.iter().cloned()).collect())
}

impl Differentiated {
    /// The inputs with candle's tensors in their places.
    fn inputs<'a>(&'a self, by: &[&'a Tensor]) -> Vec<Input<'a>> {
        let mut inputs: Vec<Input<'a>> = self.inputs.iter().map(Attribute::input).collect();
        for (at, tensor) in self.by.iter().zip(by) {
            inputs[*at] = Input::Tensor(tensor);
        }
        inputs
    }
}

impl<const IN: usize> Differentiable<IN> for Differentiated {
    fn name(&self) -> &'static str {
        &self.operator.op().name
    }

    fn forward(&self, tensors: [(Memory<'_>, &Layout); IN]) -> Result<(Storage, Shape)> {
        let op = self.operator.op();
        let inputs: Vec<Input<'_>> = self.inputs.iter().map(Attribute::input).collect();
        let constants = named(op, &inputs)?;
        let of_op = || op.params.iter().enumerate().filter(|(_, param)| matches!(param.kind, Kind::Input { .. }));
        let made = with_inputs(&op.name, &constants, |held: [Option<Held<'_>>; MOST_INPUTS]| {
            let mut held: [Option<Held<'_>>; MOST_INPUTS] = held;
            for (at, (memory, layout)) in self.by.iter().zip(tensors) {
                let own = of_op().position(|(place, _)| place == *at);
                let place = own.and_then(|own| held.get_mut(own)).ok_or_else(|| too_many(op))?;
                *place = Some(Held { name: &op.params[*at].name, memory, layout });
            }
            Outputs::of(self.operator, &inputs, &self.by).run(Vec::new(), held)
        })?;
        let mut made = made.into_iter();
        let first = made.next().flatten().ok_or_else(|| refused(&op.name, "its first result is not made"))?;
        // An op is applied once: what is there already is of the same inputs.
        self.others.get_or_init(|| made.map(|made| made.map(tensor)).collect());
        Ok(first)
    }

    fn gradients(&self, tensors: [&Tensor; IN], result: &Tensor, gradient: &Tensor) -> Result<[Option<Tensor>; IN]> {
        let op = self.operator.op();
        let Some(backward) = self.operator.backward() else { return Err(refused(&op.name, "has no gradient")) };
        let others = self.others.get().ok_or_else(|| too_early(&op.name))?;
        let outputs: Vec<Option<&Tensor>> =
            std::iter::once(Some(result)).chain(others.iter().map(Option::as_ref)).collect();
        let place = |name: &str| op.outputs().position(|(param, _)| param.name == *name);
        let (own, names) = (self.inputs(&tensors), Gradient::new(op, backward.op()));
        let (gradient, mut zeros) = (gradient.contiguous()?, Vec::new());
        // Nothing depends on the other results.
        for source in names.sources() {
            if let Source::Incoming(name) = source
                && let Some(at) = place(name).filter(|at| *at > 0)
                && let (Some(output), false) = (outputs[at], names.may_lack(name))
            {
                zeros.push((at, output.zeros_like()?));
            }
        }
        let mut sources = names.sources().into_iter();
        let mut inputs = Vec::with_capacity(backward.op().params.len());
        for param in backward.op().params.iter() {
            let source = if param.kind.is_output() { None } else { sources.next() };
            inputs.push(match source {
                None => Input::None,
                Some(Source::Incoming(name)) => match place(name) {
                    Some(0) => Input::Tensor(&gradient),
                    at => {
                        let zeros = zeros.iter().find(|(of, _)| Some(*of) == at);
                        zeros.map_or(Input::None, |(_, zeros)| Input::Tensor(zeros))
                    }
                },
                Some(Source::Saved(name) | Source::Attribute(name)) => {
                    match (op.params.iter().position(|own| own.name == *name), place(name)) {
                        (_, Some(at)) => outputs[at].map_or(Input::None, Input::Tensor),
                        (Some(at), None) => own[at],
                        (None, None) => Input::None,
                    }
                }
            });
        }
        let made = execute(backward, &inputs)?;
        let made_names: Vec<&str> = backward.op().outputs().map(|(param, _)| &*param.name).collect();
        let mut by = self.by.iter();
        Ok(tensors.map(|_| {
            let name = names.of_input(&op.params[*by.next()?].name)?;
            made[made_names.iter().position(|made| *made == name)?].clone()
        }))
    }
}
