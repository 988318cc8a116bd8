//! Ops over candle's tensors: what is called, and what candle differentiates.

use crate::call::{self, Held, refused};
use crate::device;
use crate::lock::{Named, in_order, with_inputs, with_targets};
use crate::memory::Memory;
use crate::tensor::{Spec, TensorMut, TensorRef};
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape, Storage, Tensor};
use std::sync::OnceLock;

/// Runs kernels on candle's tensors, without gradients: `inputs` are borrowed, `outputs` says what is made of them, and `run`
/// launches what makes it. [`candle_op!`](crate::candle_op) writes such calls.
///
/// ```
/// use tilewright_candle::prelude::*;
///
/// /// out[i] = x[i] + y[i]
/// #[kernel]
/// fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
///     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
///     let mask = offsets < n;
///     store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
/// }
///
/// # fn main() -> candle_core::Result<()> {
/// let device = candle_core::Device::Cpu;
/// let (x, y) = (Tensor::new(&[1f32, 2.0], &device)?, Tensor::new(&[3f32, 4.0], &device)?);
/// let [sum] = tilewright_candle::call("add", [("x", &x), ("y", &y)], |[x, _]| Ok([like(x)]), |[x, y], [out]| {
///     let n = x.len();
///     add::<f32, 256>(x.flat()?, y.flat()?, out.flat_mut()?, n as i64).grid(n.div_ceil(256)).launch(x.device())
/// })?;
/// assert_eq!(sum.to_vec1::<f32>()?, [4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those that `outputs` and `run` give, with the op's name; if tensors are on different devices; if one requires a gradient,
/// which such an op does not have; an error of an earlier launch on this stream that nobody has been told.
pub fn call<const IN: usize, const OUT: usize>(
    op: &'static str,
    inputs: [Named<'_>; IN],
    outputs: impl FnOnce([TensorRef<'_>; IN]) -> tilewright::Result<[Spec; OUT]>,
    run: impl FnOnce([TensorRef<'_>; IN], [TensorMut<'_>; OUT]) -> tilewright::Result<()>,
) -> Result<[Tensor; OUT]> {
    call_with(op, inputs.map(Some), |refs| outputs(all(refs)), |refs, out| run(all(refs), out))
}

/// [`call`] with inputs that may be missing.
///
/// # Errors
///
/// As [`call`].
pub fn call_with<const IN: usize, const OUT: usize>(
    op: &'static str,
    inputs: [Option<Named<'_>>; IN],
    outputs: impl FnOnce([Option<TensorRef<'_>>; IN]) -> tilewright::Result<[Spec; OUT]>,
    run: impl FnOnce([Option<TensorRef<'_>>; IN], [TensorMut<'_>; OUT]) -> tilewright::Result<()>,
) -> Result<[Tensor; OUT]> {
    untracked(op, &inputs)?;
    detached(op, inputs, outputs, run)
}

/// Changes `target` in place, by kernels that read `inputs`; what they make besides is given.
///
/// # Errors
///
/// As [`call`], and if `target` has elements that share memory, or an input shares memory with it.
pub fn call_in_place<const IN: usize, const OUT: usize>(
    op: &'static str,
    target: Named<'_>,
    inputs: [Named<'_>; IN],
    outputs: impl FnOnce([TensorRef<'_>; IN]) -> tilewright::Result<[Spec; OUT]>,
    run: impl FnOnce(TensorMut<'_>, [TensorRef<'_>; IN], [TensorMut<'_>; OUT]) -> tilewright::Result<()>,
) -> Result<[Tensor; OUT]> {
    let inputs = inputs.map(Some);
    untracked(op, &inputs)?;
    check_written(op, target)?;
    let made = with_targets(op, &[target], &inputs, |held, inputs| {
        let run = |targets: Vec<TensorMut<'_>>, refs: [Option<TensorRef<'_>>; IN], out: [TensorMut<'_>; OUT]| {
            targets.into_iter().next().map_or(Ok(()), |target| run(target, all(refs), out))
        };
        call::execute(op, held, inputs, |_, refs| outputs(all(refs)), run)
    })?;
    Ok(made.map(tensor))
}

/// Checks that a tensor may be changed: a variable is by whoever trains it; what was computed from variables has a past that would
/// be wrong.
pub(crate) fn check_written(op: &'static str, (name, target): Named<'_>) -> Result<()> {
    if requires_gradient(target) && !target.is_variable() { Err(tracked(op, name)) } else { Ok(()) }
}

/// Inputs of which none is missing.
fn all<const N: usize>(refs: [Option<TensorRef<'_>>; N]) -> [TensorRef<'_>; N] {
    refs.map(|one| one.expect("every input was given"))
}

/// [`call_with`], of tensors that may require a gradient, for results that do not.
pub(crate) fn detached<const IN: usize, const OUT: usize>(
    op: &'static str,
    inputs: [Option<Named<'_>>; IN],
    outputs: impl FnOnce([Option<TensorRef<'_>>; IN]) -> tilewright::Result<[Spec; OUT]>,
    run: impl FnOnce([Option<TensorRef<'_>>; IN], [TensorMut<'_>; OUT]) -> tilewright::Result<()>,
) -> Result<[Tensor; OUT]> {
    let made = with_inputs(op, &inputs, |held| {
        call::execute(op, Vec::new(), held, |_, refs| outputs(refs), |_, refs, out| run(refs, out))
    })?;
    Ok(made.map(tensor))
}

/// What the second body of [`candle_op!`](crate::candle_op) becomes.
#[doc(hidden)]
pub fn gradients<const IN: usize, const OUT: usize>(
    op: &'static str,
    inputs: [Named<'_>; IN],
    outputs: impl FnOnce([TensorRef<'_>; IN]) -> tilewright::Result<[Spec; OUT]>,
    run: impl FnOnce([TensorRef<'_>; IN], [TensorMut<'_>; OUT]) -> tilewright::Result<()>,
) -> Result<[Tensor; OUT]> {
    detached(op, inputs.map(Some), |refs| outputs(all(refs)), |refs, out| run(all(refs), out))
}

pub(crate) fn tensor((storage, shape): (Storage, Shape)) -> Tensor {
    Tensor::from_storage(storage, shape, BackpropOp::none(), false)
}

/// Whether candle wants a gradient of a tensor, which it does of floats alone.
pub(crate) fn requires_gradient(tensor: &Tensor) -> bool {
    tensor.track_op() && tensor.dtype().is_float()
}

/// Checks that no input requires a gradient.
fn untracked<const N: usize>(op: &'static str, inputs: &[Option<Named<'_>>; N]) -> Result<()> {
    match inputs.iter().flatten().find(|(_, tensor)| requires_gradient(tensor)) {
        Some((name, _)) => Err(tracked(op, name)),
        None => Ok(()),
    }
}

pub(crate) fn tracked(op: &'static str, name: &str) -> candle_core::Error {
    refused(op, format!("`{name}` requires a gradient, which this op does not have; `detach` it where none is needed"))
}

/// An op that candle differentiates: of `IN` tensors it makes `OUT`, of which the first is the result and the others are kept
/// for the gradient.
///
/// [`candle_op!`](crate::candle_op) writes this; [`apply`] calls it.
pub trait Op<const IN: usize, const OUT: usize>: Send + Sync + 'static {
    /// The op's name, for messages.
    const NAME: &'static str;
    /// What it calls its inputs.
    const INPUTS: [&'static str; IN];

    /// What it makes of its inputs.
    ///
    /// # Errors
    ///
    /// If the inputs do not fit.
    fn outputs(&self, inputs: [TensorRef<'_>; IN]) -> tilewright::Result<[Spec; OUT]>;

    /// Makes it.
    ///
    /// # Errors
    ///
    /// If the inputs do not fit; those of launches.
    fn forward(&self, inputs: [TensorRef<'_>; IN], outputs: [TensorMut<'_>; OUT]) -> tilewright::Result<()>;

    /// The gradients of the inputs that have one, by that of the result, which is contiguous. Each has the dtype, the shape and the
    /// device of its input: others are refused.
    ///
    /// # Errors
    ///
    /// Those of launches.
    fn backward(
        &self,
        inputs: [&Tensor; IN],
        outputs: [&Tensor; OUT],
        gradient: &Tensor,
    ) -> Result<[Option<Tensor>; IN]>;
}

/// Applies an op. Where no input requires a gradient, nothing is kept.
///
/// # Errors
///
/// Those of the op, with its name; if tensors are on different devices; an error of an earlier launch on this stream that
/// nobody has been told.
pub fn apply<'a, O, const IN: usize, const OUT: usize>(op: O, inputs: [&'a Tensor; IN]) -> Result<Tensor>
where
    O: Op<IN, OUT>,
    [&'a Tensor; IN]: Inputs<O, OUT>,
{
    let mut names = O::INPUTS.into_iter();
    let named = inputs.map(|tensor| names.next().map(|name| (name, tensor)));
    if inputs.iter().any(|input| requires_gradient(input)) {
        together(O::NAME, named.into_iter().flatten())?;
        return in_order(O::NAME, &named, || inputs.apply(op));
    }
    let made = detached(O::NAME, named, |refs| op.outputs(all(refs)), |refs, outputs| op.forward(all(refs), outputs))?;
    let mut made = made.into_iter();
    made.next().ok_or_else(|| refused(O::NAME, "makes nothing"))
}

/// Checks that all tensors are on one device. candle would compare them before the op does, with words that name neither its
/// tensors nor what is accepted.
pub(crate) fn together<'a>(op: &'static str, tensors: impl Iterator<Item = Named<'a>>) -> Result<()> {
    let mut places = tensors.map(|(name, tensor)| (name, tensor.device().location()));
    let Some(first) = places.next() else { return Ok(()) };
    match places.find(|(_, there)| *there != first.1) {
        Some(other) => Err(call::apart(op, first, other)),
        None => Ok(()),
    }
}

/// Tensors that candle differentiates ops of: one, two or three.
#[diagnostic::on_unimplemented(
    message = "candle differentiates ops of one, two or three tensors",
    label = "too many, or none",
    note = "an op without `backward` may have more; tensors without a gradient can be attributes of the op"
)]
pub trait Inputs<O, const OUT: usize> {
    /// Applies the op as one of candle's graph.
    ///
    /// # Errors
    ///
    /// Those of [`apply`].
    fn apply(self, op: O) -> Result<Tensor>;
}

/// What candle differentiates, of `IN` tensors.
pub(crate) trait Differentiable<const IN: usize>: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// What the op calls the tensors.
    fn names(&self) -> [&'static str; IN];

    fn forward(&self, inputs: [(Memory<'_>, &Layout); IN]) -> Result<(Storage, Shape)>;

    fn gradients(&self, inputs: [&Tensor; IN], result: &Tensor, gradient: &Tensor) -> Result<[Option<Tensor>; IN]>;
}

/// An op whose outputs are known by its type.
struct Kept<O, const OUT: usize> {
    op: O,
    /// What was made beside the result.
    kept: OnceLock<Vec<Tensor>>,
}

impl<O: Op<IN, OUT>, const IN: usize, const OUT: usize> Differentiable<IN> for Kept<O, OUT> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn names(&self) -> [&'static str; IN] {
        O::INPUTS
    }

    fn forward(&self, inputs: [(Memory<'_>, &Layout); IN]) -> Result<(Storage, Shape)> {
        let mut names = O::INPUTS.into_iter();
        let held = inputs.map(|(memory, layout)| names.next().map(|name| Held { name, memory, layout }));
        let made = call::execute(
            O::NAME,
            Vec::new(),
            held,
            |_, refs| self.op.outputs(all(refs)),
            |_, refs, outputs| self.op.forward(all(refs), outputs),
        )?;
        let mut made = made.into_iter();
        let result = made.next().ok_or_else(|| refused(O::NAME, "makes nothing"))?;
        // An op is applied once: what is there already is of the same inputs.
        self.kept.get_or_init(|| made.map(tensor).collect());
        Ok(result)
    }

    fn gradients(&self, inputs: [&Tensor; IN], result: &Tensor, gradient: &Tensor) -> Result<[Option<Tensor>; IN]> {
        let kept = self.kept.get().map_or(&[][..], Vec::as_slice);
        let mut outputs = std::iter::once(result).chain(kept);
        let outputs = [(); OUT].map(|()| outputs.next());
        if outputs.iter().any(Option::is_none) {
            return Err(too_early(O::NAME));
        }
        self.op.backward(inputs, outputs.map(|output| output.expect("none is missing")), &gradient.contiguous()?)
    }
}

pub(crate) fn too_early(op: &'static str) -> candle_core::Error {
    refused(op, "its gradient is asked for before its result")
}

/// What candle differentiates, as it knows it.
pub(crate) struct Custom<D>(pub(crate) D);

impl<D> Custom<D> {
    fn cpu<const IN: usize>(&self, inputs: [(&CpuStorage, &Layout); IN]) -> Result<(CpuStorage, Shape)>
    where
        D: Differentiable<IN>,
    {
        match self.0.forward(inputs.map(|(storage, layout)| (Memory::Cpu(storage), layout)))? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => Err(refused(self.0.name(), "its result is not on the CPU")),
        }
    }

    fn cuda<const IN: usize>(&self, inputs: [(&CudaStorage, &Layout); IN]) -> Result<(CudaStorage, Shape)>
    where
        D: Differentiable<IN>,
    {
        match self.0.forward(inputs.map(|(storage, layout)| (Memory::Cuda(storage), layout)))? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => Err(refused(self.0.name(), "its result is not on a GPU")),
        }
    }
}

/// Gradients as candle wants them: each is added to those that the tensor has already, and a tensor that was computed of variables
/// must have one.
fn populated<const IN: usize>(
    op: &'static str,
    names: [&'static str; IN],
    inputs: [&Tensor; IN],
    mut made: [Option<Tensor>; IN],
) -> Result<[Option<Tensor>; IN]> {
    for ((name, input), made) in names.into_iter().zip(inputs).zip(&mut made) {
        match made {
            Some(gradient) => check_gradient(op, (name, input), gradient)?,
            None if requires_gradient(input) && !input.is_variable() => *made = Some(input.zeros_like()?),
            None => (),
        }
    }
    Ok(made)
}

/// Checks that a gradient can be added to others of its tensor. candle would find out too, with words that name neither the op nor
/// the tensor.
fn check_gradient(op: &'static str, (name, input): Named<'_>, gradient: &Tensor) -> Result<()> {
    let is = |problem: String, accepted: String| refused(op, format!("the gradient of `{name}` {problem}; {accepted}"));
    let (here, there) = (input.device().location(), gradient.device().location());
    if here != there {
        let accepted = format!("the device that is accepted is that of `{name}`, {}", device::name(here));
        return Err(is(format!("is on {}", device::name(there)), accepted));
    }
    if gradient.dtype() != input.dtype() {
        let accepted = format!("the dtype that is accepted is that of `{name}`, {}", input.dtype().as_str());
        return Err(is(format!("is of {}", gradient.dtype().as_str()), accepted));
    }
    if gradient.dims() != input.dims() {
        let accepted = format!("the shape that is accepted is that of `{name}`, {:?}", input.dims());
        return Err(is(format!("has the shape {:?}", gradient.dims()), accepted));
    }
    Ok(())
}

/// `CustomOp1` to `CustomOp3` for what is differentiated by as many tensors.
macro_rules! custom {
    ($trait:ident, $count:literal, $gradients:ty, $($storage:ident $layout:ident $input:ident),+) => {
        impl<D: Differentiable<$count>> $trait for Custom<D> {
            fn name(&self) -> &'static str {
                self.0.name()
            }

            fn cpu_fwd(&self, $($storage: &CpuStorage, $layout: &Layout),+) -> Result<(CpuStorage, Shape)> {
                self.cpu([$(($storage, $layout)),+])
            }

            fn cuda_fwd(&self, $($storage: &CudaStorage, $layout: &Layout),+) -> Result<(CudaStorage, Shape)> {
                self.cuda([$(($storage, $layout)),+])
            }

            fn bwd(&self, $($input: &Tensor,)+ result: &Tensor, gradient: &Tensor) -> Result<$gradients> {
                let made = self.0.gradients([$($input),+], result, gradient)?;
                let [$($input),+] = populated(self.0.name(), self.0.names(), [$($input),+], made)?;
                Ok(($($input),+))
            }
        }
    };
}

type Gradient = Option<Tensor>;

custom!(CustomOp1, 1, Gradient, s1 l1 x1);
custom!(CustomOp2, 2, (Gradient, Gradient), s1 l1 x1, s2 l2 x2);
custom!(CustomOp3, 3, (Gradient, Gradient, Gradient), s1 l1 x1, s2 l2 x2, s3 l3 x3);

fn kept<O, const OUT: usize>(op: O) -> Custom<Kept<O, OUT>> {
    Custom(Kept { op, kept: OnceLock::new() })
}

impl<O: Op<1, OUT>, const OUT: usize> Inputs<O, OUT> for [&Tensor; 1] {
    fn apply(self, op: O) -> Result<Tensor> {
        let [x] = self;
        x.apply_op1(kept(op))
    }
}

impl<O: Op<2, OUT>, const OUT: usize> Inputs<O, OUT> for [&Tensor; 2] {
    fn apply(self, op: O) -> Result<Tensor> {
        let [x, y] = self;
        x.apply_op2(y, kept(op))
    }
}

impl<O: Op<3, OUT>, const OUT: usize> Inputs<O, OUT> for [&Tensor; 3] {
    fn apply(self, op: O) -> Result<Tensor> {
        let [x, y, z] = self;
        x.apply_op3(y, z, kept(op))
    }
}
