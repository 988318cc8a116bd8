//! One call of an op: candle's storages are borrowed, memory for results is allocated, kernels are launched.
//!
//! Nothing is copied, and on a GPU nothing is waited for: launches go to candle's stream, in order with candle's own.

use crate::device;
use crate::lock::{Named, with_inputs};
use crate::memory::{Elements, Home, Memory, MemoryMut};
use crate::tensor::{Place, RowMajor, Spec, TensorMut, TensorRef};
use candle_core::{DeviceLocation, Error, Layout, Result, Shape, Storage};
use std::fmt;
use tilewright::Device;
use tilewright_kernels::Context;

/// A tensor's storage under candle's lock, and where the tensor is in it.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) name: &'static str,
    pub(crate) memory: Memory<'a>,
    pub(crate) layout: &'a Layout,
}

/// The same of a tensor that is changed.
pub(crate) struct HeldMut<'a> {
    pub(crate) name: &'static str,
    pub(crate) memory: MemoryMut<'a>,
    pub(crate) layout: &'a Layout,
}

/// An error with the op that gives it.
struct OpError {
    op: &'static str,
    error: Box<str>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.error)
    }
}

/// An error of this op.
pub(crate) fn refused(op: &'static str, error: impl fmt::Display) -> Error {
    Error::wrap(OpError { op, error: error.to_string().into() })
}

/// An error of what an op does.
pub(crate) trait Failure: fmt::Display + From<tilewright::Error> {
    /// The error without what candle has not.
    fn in_candles_words(self) -> Self;
}

impl Failure for tilewright::Error {
    /// The library names its own functions where candle has others.
    fn in_candles_words(self) -> Self {
        match self {
            tilewright::Error::InvalidTensor { tensor, problem, hint } if hint.contains("`general::contiguous`") => {
                tilewright::Error::InvalidTensor { tensor, problem, hint: "call `contiguous` first".into() }
            }
            other => other,
        }
    }
}

impl Failure for tilewright_ffi::Error {
    fn in_candles_words(self) -> Self {
        match self {
            tilewright_ffi::Error::Runtime(error) => error.in_candles_words().into(),
            other => other,
        }
    }
}

/// `f` of each item, or the first error.
fn try_map<T, U, const N: usize>(items: [T; N], mut f: impl FnMut(T) -> Result<U>) -> Result<[U; N]> {
    let mut failed = None;
    let made = items.map(|item| match f(item) {
        Ok(made) => Some(made),
        Err(error) => {
            failed.get_or_insert(error);
            None
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(made.map(|made| made.expect("nothing has failed"))),
    }
}

/// Where an op runs: candle's device and stream, and the context of the library's functions there.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) home: &'a Home<'a>,
    pub(crate) cx: &'a Context,
}

/// A tensor whose memory is known.
fn place<'a>(
    here: Here<'a>,
    (name, layout): (&'static str, &'a Layout),
    elements: &Elements<'_>,
) -> tilewright::Result<Place<'a>> {
    let (dims, strides) = (layout.dims(), layout.stride());
    let is_empty = dims.contains(&0);
    // A part without elements begins wherever it was cut.
    let start = if is_empty { 0 } else { layout.start_offset() };
    let span = if is_empty {
        Some(0)
    } else {
        let mut reach = dims.iter().zip(strides);
        reach.try_fold(1usize, |span, (size, stride)| span.checked_add((size - 1).checked_mul(*stride)?))
    };
    let Some(span) = span.filter(|span| start.checked_add(*span).is_some_and(|end| end <= elements.len)) else {
        let problem = format!("reaches beyond the {} elements of its memory: {layout:?}", elements.len);
        return Err(crate::tensor::invalid(name, problem, "its storage was changed"));
    };
    let address = elements.address + (start * elements.dtype.size_in_bytes()) as u64;
    Ok(Place { name, here, dtype: elements.dtype, dims, strides, address, span })
}

/// Checks that all tensors are on one device, and says where that is.
fn home<'a, const IN: usize>(
    op: &'static str,
    targets: &[HeldMut<'_>],
    inputs: &[Option<Held<'a>>; IN],
) -> Result<Home<'a>> {
    let written = targets.iter().map(|target| (target.name, target.memory.as_memory().location()));
    let mut all = written.chain(inputs.iter().flatten().map(|held| (held.name, held.memory.location())));
    let Some(first) = all.next() else {
        return Err(refused(op, "needs one tensor at least, which says where it runs"));
    };
    if let Some(other) = all.find(|(_, there)| *there != first.1) {
        return Err(apart(op, first, other));
    }
    match (targets, inputs.iter().flatten().next()) {
        ([target, ..], _) => Ok(target.memory.home()),
        ([], Some(held)) => Ok(held.memory.home()),
        ([], None) => Ok(Home::Cpu),
    }
}

/// The error of tensors on two devices.
pub(crate) fn apart(
    op: &'static str,
    (first, here): (&str, DeviceLocation),
    (name, there): (&str, DeviceLocation),
) -> Error {
    let (here, there) = (device::name(here), device::name(there));
    refused(op, format!("`{name}` is on {there}, `{first}` on {here}; one device is accepted: use `to_device`"))
}

/// Runs `body` on storages that are under lock, with memory for what it makes.
pub(crate) fn execute<E: Failure, const IN: usize, const OUT: usize>(
    op: &'static str,
    targets: Vec<HeldMut<'_>>,
    inputs: [Option<Held<'_>>; IN],
    outputs: impl FnOnce(&[TensorMut<'_>], [Option<TensorRef<'_>>; IN]) -> std::result::Result<[Spec; OUT], E>,
    body: impl FnOnce(Vec<TensorMut<'_>>, [Option<TensorRef<'_>>; IN], [TensorMut<'_>; OUT]) -> std::result::Result<(), E>,
) -> Result<[(Storage, Shape); OUT]> {
    let fail = |error: tilewright::Error| refused(op, error.in_candles_words());
    let fail_itself = |error: E| refused(op, error.in_candles_words());
    let home = home(op, &targets, &inputs)?;
    home.check_capture().map_err(|error| refused(op, error))?;
    let cx = home.context()?;
    let (here, device) = (Here { home: &home, cx: &cx }, cx.device());
    if let Some(error) = device.poll_error() {
        return Err(refused(op, format!("an earlier launch on this stream has failed: {error}")));
    }
    // Guards that say that the memory is in use live until the end, when all launches are with the driver.
    let read = try_map(inputs, |held| {
        held.map(|held| home.read(held.memory)).transpose().map_err(|error| refused(op, error))
    })?;
    let refs = references(here, &inputs, &read).map_err(fail)?;
    let mut written = Vec::with_capacity(targets.len());
    for held in targets {
        written.push((held.name, held.layout, home.write(held.memory).map_err(|error| refused(op, error))?));
    }
    let mut targets = Vec::with_capacity(written.len());
    for (name, layout, elements) in &written {
        targets.push(TensorMut::new(place(here, (*name, *layout), elements).map_err(fail)?));
    }
    let specs = outputs(&targets, refs).map_err(fail_itself)?;
    let mut storages =
        try_map(specs, |spec| Ok((home.allocate(&spec).map_err(|error| refused(op, error))?, spec.shape)))?;
    {
        let made = try_map(storages.each_mut(), |(storage, shape)| {
            Ok((home.write(MemoryMut::try_from(storage)?)?, shape.dims(), RowMajor::of(shape.dims())))
        })?;
        // Its memory is made for it.
        let results = made.each_ref().map(|(elements, dims, strides)| {
            let (strides, address) = (strides.strides(), elements.address);
            Place { name: "a result", here, dtype: elements.dtype, dims, strides, address, span: elements.len }
        });
        let done = body(targets, refs, results.map(TensorMut::new));
        // What the CPU was given is done. A GPU's errors come with the next op.
        let failed = if device.is_cuda() { None } else { all_errors(device) };
        done.map_err(fail_itself)?;
        if let Some(error) = failed {
            return Err(refused(op, error));
        }
    }
    Ok(storages)
}

/// The first error of the launches of an op on the CPU, which has been told all of them then: none is left for the next op.
fn all_errors(device: &Device) -> Option<tilewright::Error> {
    let first = device.poll_error();
    while device.poll_error().is_some() {}
    first
}

/// Borrows more tensors in the body of an op on `x`: those that have no gradient, and so are no inputs. The op's stream waits for
/// what writes them, wherever that is.
pub(crate) fn also<R, const N: usize>(
    op: &'static str,
    x: TensorRef<'_>,
    tensors: [Option<Named<'_>>; N],
    f: impl FnOnce([Option<TensorRef<'_>>; N]) -> tilewright::Result<R>,
) -> tilewright::Result<R> {
    let here = x.here();
    let failed =
        |error: Error| crate::tensor::invalid("the weights", format!("cannot be read: {error}"), "give others");
    let run = |held: [Option<Held<'_>>; N]| {
        let is_apart = |held: &&Held<'_>| held.memory.location() != here.home.location();
        if let Some(other) = held.iter().flatten().find(is_apart) {
            let problem = format!("is on another device than `{}`", x.name());
            return Ok(Err(crate::tensor::invalid(other.name, problem, "use `to_device`")));
        }
        let read = try_map(held, |held| held.map(|held| here.home.read(held.memory)).transpose())?;
        Ok(references(here, &held, &read).and_then(f))
    };
    with_inputs(op, &tensors, run).unwrap_or_else(|error| Err(failed(error)))
}

/// Tensors whose memory is known.
fn references<'a, const N: usize>(
    here: Here<'a>,
    held: &[Option<Held<'a>>; N],
    read: &[Option<Elements<'_>>; N],
) -> tilewright::Result<[Option<TensorRef<'a>>; N]> {
    let mut refs = [None; N];
    for ((to, held), elements) in refs.iter_mut().zip(held).zip(read) {
        if let (Some(held), Some(elements)) = (held, elements) {
            *to = Some(TensorRef::new(place(here, (held.name, held.layout), elements)?));
        }
    }
    Ok(refs)
}
