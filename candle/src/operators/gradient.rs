//! Operators as ops that candle differentiates.

use super::Input;
use super::run::{MOST_INPUTS, Outputs, execute, named, too_many};
use crate::call::{Held, refused};
use crate::lock::{in_order, with_inputs};
use crate::memory::Memory;
use crate::op::{Custom, Differentiable, tensor, together, too_early};
use candle_core::{Layout, Result, Shape, Storage, Tensor};
use std::sync::{Arc, OnceLock};
use tilewright_ffi::backward::{Gradient, Source};
use tilewright_ffi::native::Operator;
use tilewright_ffi::op::Kind;

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
pub(super) fn differentiate(
    operator: &'static Operator,
    inputs: &[Input<'_>],
    by: Vec<usize>,
) -> Result<Vec<Option<Tensor>>> {
    let op = operator.op();
    let named = named(op, inputs)?;
    together(&op.name, named.into_iter().flatten())?;
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
    let first = in_order(&op.name, &named, || match tensors[..] {
        [x] => x.apply_op1(custom),
        [x, y] => x.apply_op2(y, custom),
        [x, y, z] => x.apply_op3(y, z, custom),
        _ => {
            let problem = format!("{} tensors require a gradient, and candle differentiates by three", tensors.len());
            Err(refused(&op.name, format!("{problem}; `detach` those that need none")))
        }
    })?;
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

    fn names(&self) -> [&'static str; IN] {
        std::array::from_fn(|own| self.by.get(own).map_or("", |at| &*self.operator.op().params[*at].name))
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
