//! The door to JAX: handlers of XLA's foreign function interface.
//!
//! `tilewright_xla_silu` is one handler for the CPU and for CUDA. Operands are the tensors that are given, in order; results
//! are the outputs and then the tensors that are written in place, which the caller aliases with their operands. Attributes
//! have the names of parameters; an attribute says which optional tensors are among the operands.
//!
//! Behind the results of an operator that takes scratch memory comes a buffer of bytes for it. How many there are is what
//! `tilewright_scratch` has said when the call was traced (`measure.rs`); where that is not known, there are none, and the call is to
//! `tilewright_xla_silu.unrecorded`, which XLA does not record into command buffers.

mod api;
mod arguments;
mod measure;
mod memory;

pub use api::{CallFrame, XlaError};
#[cfg(feature = "package")]
pub(crate) use arguments::GIVEN;
pub use measure::{Measured, scratch};

use crate::call::{self, Arg, CallFn, Exported};
use crate::device::{self, Lives};
use crate::error::{Error, Result};
use crate::memory::RuntimeMemory;
use crate::op::{AttributeType, DTYPES, Op};
use crate::scratch::Memory;
use crate::tensor::{Place, RawTensor};
use api::{Api, Buffer};
use arguments::Given;
use memory::{Pieces, Room, XlaMemory};
use std::ptr;
use tilewright::{Device, ElementType};

/// Whether XLA may record calls into command buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// It may: all memory of the call is XLA's to lay out.
    Allowed,
    /// It may not: the call asks for memory when it is made.
    Refused,
}

/// Calls an operator.
///
/// # Safety
///
/// `frame` is a call of XLA.
pub unsafe fn call<O: Exported>(recording: Recording, frame: *mut CallFrame) -> *mut XlaError {
    // SAFETY: the caller's promise.
    unsafe { enter(O::OP, O::call, recording, &*frame) }
}

unsafe fn enter(op: &'static Op, function: CallFn, recording: Recording, frame: &CallFrame) -> *mut XlaError {
    // SAFETY: an extension begins with its kind, which tells its type.
    if let Some(extension) = unsafe { frame.extension.as_ref() }
        && extension.kind == api::METADATA
    {
        // SAFETY: as above; XLA reads what is written there.
        unsafe { describe(&mut *(*frame.extension.cast::<api::MetadataExtension>()).metadata, recording) };
        return ptr::null_mut();
    }
    if frame.stage != api::EXECUTE {
        return ptr::null_mut();
    }
    // SAFETY: the frame is a call that lasts until this returns.
    let done = call::guarded(|| unsafe { run(op, function, frame) });
    match done {
        Ok(()) => ptr::null_mut(),
        Err(error) => {
            let code = if error.is_of_an_argument() { api::INVALID_ARGUMENT } else { api::INTERNAL };
            let text = call::message(&op.name, &error);
            // SAFETY: the text ends with a zero byte, and is copied.
            unsafe { ((*frame.api).create_error)(&mut api::CreateError::new(text.as_ptr(), code)) }
        }
    }
}

fn describe(metadata: &mut api::Metadata, recording: Recording) {
    (metadata.version.major, metadata.version.minor) = api::VERSION;
    metadata.traits = match recording {
        Recording::Allowed => api::COMMAND_BUFFER_COMPATIBLE,
        Recording::Refused => 0,
    };
}

unsafe fn run(op: &'static Op, function: CallFn, frame: &CallFrame) -> Result<()> {
    // SAFETY: XLA's table of functions.
    let api = unsafe { &*frame.api };
    // SAFETY: the context is that of the call.
    let stream = unsafe { stream(api, frame) };
    let place = match stream {
        None => Place::Cpu,
        // SAFETY: as above.
        Some(_) => Place::Cuda(unsafe { ordinal(api, frame) }?),
    };
    // SAFETY: the buffers are those of the call.
    let mut given = unsafe { Frame::new(frame, place) };
    let args = arguments::read(op, &mut given)?;
    call::check_outputs(op, &args)?;
    // SAFETY: the stream is the one that XLA runs this call on.
    let device = unsafe { device::of(place, stream.unwrap_or(0), || Lives::Long) }?;
    let room = match given.results.next().filter(|_| op.scratch) {
        Some(room) => tensor("scratch", Some(room), place).map(|room| (room.address, room.len * room.dtype.size()))?,
        None => (0, 0),
    };
    match place {
        Place::Cuda(_) => call::run(op, function, &args, &device, &in_room(room, &device, XlaMemory { api, frame })),
        Place::Cpu => call::run(op, function, &args, &device, &in_room(room, &device, RuntimeMemory::new(&device))),
    }
}

/// Scratch memory of so many bytes at an address, and of an allocator.
fn in_room<M: Memory>((address, bytes): (u64, usize), device: &Device, beyond: M) -> Room<'_, M> {
    Room { address, bytes, pieces: Pieces::default(), beyond, device }
}

/// The stream of the call on a GPU, `None` on the CPU, where XLA has none to give.
unsafe fn stream(api: &Api, frame: &CallFrame) -> Option<u64> {
    let mut arguments = api::GetStream::new(frame.context, ptr::null_mut());
    // SAFETY: the caller's promise.
    let error = unsafe { (api.stream)(&mut arguments) };
    if error.is_null() {
        return Some(arguments.stream as u64);
    }
    // SAFETY: the error is owned.
    unsafe { (api.destroy_error)(&mut api::DestroyError::new(error)) };
    None
}

/// The index of the GPU.
unsafe fn ordinal(api: &Api, frame: &CallFrame) -> Result<u32> {
    if api.size < size_of::<Api>() {
        return Err("jaxlib is too old to say which GPU a call is for".into());
    }
    let mut arguments = api::GetDevice::new(frame.context, 0);
    // SAFETY: the caller's promise; the table has the function.
    let error = unsafe { (api.device_ordinal)(&mut arguments) };
    if error.is_null() {
        return Ok(arguments.ordinal as u32);
    }
    // SAFETY: the error is owned.
    unsafe { (api.destroy_error)(&mut api::DestroyError::new(error)) };
    Err("XLA does not say which GPU the call is for".into())
}

/// What a call has, in XLA's structures.
struct Frame<'a> {
    frame: &'a CallFrame,
    place: Place,
    operands: std::slice::Iter<'a, &'a Buffer>,
    results: std::slice::Iter<'a, &'a Buffer>,
}

impl<'a> Frame<'a> {
    /// # Safety
    ///
    /// The frame is a call that lasts for `'a`.
    unsafe fn new(frame: &'a CallFrame, place: Place) -> Self {
        // SAFETY: the lists are those of the call.
        let (operands, results) = unsafe { (frame.args.get(), frame.results.get()) };
        Frame { frame, place, operands: operands.iter(), results: results.iter() }
    }
}

impl<'a> Given<'a> for Frame<'a> {
    fn operand(&mut self, name: &str) -> Result<RawTensor<'a>> {
        tensor(name, self.operands.next(), self.place)
    }

    fn result(&mut self, name: &str) -> Result<RawTensor<'a>> {
        tensor(name, self.results.next(), self.place)
    }

    fn written(&mut self, name: &str, operand: &RawTensor<'a>) -> Result<()> {
        if self.result(name)?.address == operand.address || operand.len == 0 {
            return Ok(());
        }
        let accepted = "an operand that `input_output_aliases` gives the result's memory";
        Err(Error::argument(name, "is written, but its result is elsewhere", accepted))
    }

    fn attribute(&self, name: &str, of: AttributeType) -> Option<Arg<'a>> {
        // SAFETY: the frame is a call that lasts for `'a`.
        unsafe { attribute(self.frame, name, of) }
    }
}

fn tensor<'a>(name: &str, buffer: Option<&&'a Buffer>, place: Place) -> Result<RawTensor<'a>> {
    let Some(buffer) = buffer else { return Err(Error::argument(name, "is missing", "a buffer for each tensor")) };
    let Some(dtype) = dtype(buffer.dtype) else {
        let known: Vec<&str> = DTYPES.iter().map(|dtype| dtype.name()).collect();
        let given = format!("has XLA's dtype {}, which no kernel computes with", buffer.dtype);
        return Err(Error::argument(name, given, known.join(", ")));
    };
    let sizes = match buffer.rank {
        // SAFETY: a buffer has as many sizes as dimensions.
        rank @ 1.. => unsafe { std::slice::from_raw_parts(buffer.sizes, rank as usize) },
        _ => &[],
    };
    let Some((shape, len)) = RawTensor::sizes(sizes) else {
        return Err(Error::argument(name, format_args!("has shape {sizes:?}"), "sizes that can be"));
    };
    Ok(RawTensor { address: buffer.data as u64, dtype, place, shape, strides: None, len })
}

/// The attribute of this name, if it is there and of this type.
unsafe fn attribute<'a>(frame: &'a CallFrame, name: &str, of: AttributeType) -> Option<Arg<'a>> {
    let attributes = &frame.attributes;
    for at in 0..usize::try_from(attributes.len).unwrap_or(0) {
        // SAFETY: there are as many names, types and values; the type says what the value is.
        unsafe {
            if (**attributes.names.add(at)).get() != name.as_bytes() {
                continue;
            }
            let value = *attributes.items.add(at);
            if *attributes.types.add(at) == api::STRING {
                let text = (*value.cast::<api::Bytes>()).get();
                return (of == AttributeType::Str).then(|| std::str::from_utf8(text).ok().map(Arg::Str)).flatten();
            }
            if *attributes.types.add(at) != api::SCALAR {
                return None;
            }
            let scalar = &*value.cast::<api::Scalar>();
            return match (of, dtype(scalar.dtype)?) {
                (AttributeType::Int, ElementType::I64) => Some(Arg::Int(*scalar.value.cast::<i64>())),
                (AttributeType::Float, ElementType::F64) => Some(Arg::Float(*scalar.value.cast::<f64>())),
                (AttributeType::Bool, ElementType::Bool) => Some(Arg::Bool(*scalar.value.cast::<u8>() != 0)),
                _ => None,
            };
        }
    }
    None
}

/// The dtype of `xla_data.proto`'s number.
fn dtype(number: i32) -> Option<ElementType> {
    DTYPES.into_iter().find(|dtype| number_of(*dtype) == number)
}

fn number_of(dtype: ElementType) -> i32 {
    match dtype {
        ElementType::Bool => 1,
        ElementType::I8 => 2,
        ElementType::I16 => 3,
        ElementType::I32 => 4,
        ElementType::I64 => 5,
        ElementType::U8 => 6,
        ElementType::U16 => 7,
        ElementType::U32 => 8,
        ElementType::U64 => 9,
        ElementType::F16 => 10,
        ElementType::F32 => 11,
        ElementType::F64 => 12,
        ElementType::BF16 => 16,
        ElementType::F8E5M2 => 19,
        ElementType::F8E4M3 => 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_its_own_number() {
        for of in DTYPES {
            assert_eq!(dtype(number_of(of)), Some(of));
        }
        assert_eq!(dtype(0), None);
        assert_eq!(dtype(15), None, "complex numbers");
    }
}
