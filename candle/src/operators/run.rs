//! One call of an operator on candle's tensors.

use super::Input;
use super::gradient::differentiate;
use crate::call::{self, Held, refused};
use crate::element;
use crate::lock::{Named, with_targets};
use crate::op::{check_written, requires_gradient, tensor, tracked};
use crate::tensor::{Spec, TensorMut, TensorRef};
use candle_core::{Result, Shape, Storage, Tensor};
use tilewright_ffi::backward::Gradient;
use tilewright_ffi::native::{self, Argument, Operator};
use tilewright_ffi::op::{Kind, Op};

/// As many tensors as an operator may read here.
pub(super) const MOST_INPUTS: usize = 16;
/// As many as it may make.
pub(super) const MOST_OUTPUTS: usize = 6;

/// What an operator makes, of which the first `wanted` are asked for.
pub(super) fn run(operator: &'static Operator, inputs: &[Input<'_>], wanted: usize) -> Result<Vec<Option<Tensor>>> {
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
pub(super) fn execute(operator: &'static Operator, inputs: &[Input<'_>]) -> Result<Vec<Option<Tensor>>> {
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
pub(super) fn named<'a>(op: &'static Op, inputs: &[Input<'a>]) -> Result<[Option<Named<'a>>; MOST_INPUTS]> {
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

pub(super) fn too_many(op: &'static Op) -> candle_core::Error {
    refused(&op.name, format!("reads more than {MOST_INPUTS} tensors"))
}

pub(super) type Made = Vec<Option<(Storage, Shape)>>;

/// A call whose number of results is known.
pub(super) struct Outputs<'c, 'i> {
    operator: &'static Operator,
    inputs: &'c [Input<'i>],
    /// Which are made.
    made: Vec<bool>,
}

impl<'c, 'i> Outputs<'c, 'i> {
    /// `by` are given beside the inputs.
    pub(super) fn of(operator: &'static Operator, inputs: &'c [Input<'i>], by: &[usize]) -> Self {
        let is_given = |at: usize| by.contains(&at) || !matches!(inputs[at], Input::None);
        let is_made = |with: Option<usize>| with.is_none_or(is_given);
        let made = operator.op().outputs().map(|(_, output)| is_made(output.with)).collect();
        Outputs { operator, inputs, made }
    }
}

impl Outputs<'_, '_> {
    pub(super) fn run(self, targets: Vec<call::HeldMut<'_>>, held: [Option<Held<'_>>; MOST_INPUTS]) -> Result<Made> {
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
    let Some(dtype) = element::of_candle(made.dtype) else {
        return Err(tilewright_ffi::Error::argument(
            name,
            format_args!("is of {}", made.dtype),
            "a dtype that candle has",
        ));
    };
    if made.shape.iter().try_fold(made.dtype.size(), |bytes, size| bytes.checked_mul(*size)).is_none() {
        return Err(tilewright_ffi::Error::argument(name, format_args!("would have shape {:?}", made.shape), "less"));
    }
    Ok(Spec::new(dtype, made.shape))
}
