//! The door to JAX: handlers of XLA's foreign function interface.
//!
//! `tilewright_xla_silu` is one handler for the CPU and for CUDA. Operands are the tensors that are given, in order; results
//! are the outputs and then the tensors that are written in place, which the caller aliases with their operands. Attributes
//! have the names of parameters; an attribute says which optional tensors are among the operands.

mod api;

pub use api::{CallFrame, XlaError};

use crate::call::{self, Arg, ArgList, CallFn, Exported};
use crate::device;
use crate::error::{Error, Result};
use crate::memory::RuntimeMemory;
use crate::op::{AttributeType, DTYPES, Kind, Op};
use crate::scratch::{Block, Memory};
use crate::tensor::{Place, RawTensor};
use api::{Api, Buffer};
use std::ptr;
use tilewright::{Device, ElementType};

/// The attribute that has a bit for each optional tensor, in order: whether it is given.
pub(crate) const GIVEN: &str = "tilewright_given";

/// Calls an operator.
///
/// # Safety
///
/// `frame` is a call of XLA.
pub unsafe fn call<O: Exported>(frame: *mut CallFrame) -> *mut XlaError {
    // SAFETY: the caller's promise.
    unsafe { enter(O::OP, O::call, &*frame) }
}

unsafe fn enter(op: &'static Op, function: CallFn, frame: &CallFrame) -> *mut XlaError {
    // SAFETY: an extension begins with its kind, which tells its type.
    if let Some(extension) = unsafe { frame.extension.as_ref() }
        && extension.kind == api::METADATA
    {
        // SAFETY: as above; XLA reads what is written there.
        unsafe { describe(&mut *(*frame.extension.cast::<api::MetadataExtension>()).metadata) };
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

fn describe(metadata: &mut api::Metadata) {
    (metadata.version.major, metadata.version.minor) = api::VERSION;
    metadata.traits = api::COMMAND_BUFFER_COMPATIBLE;
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
    let mut args = unsafe { read(op, frame, place) }?;
    call::check_outputs(op, &mut args)?;
    // SAFETY: the stream is the one that XLA runs this call on.
    let device = unsafe { device::of(place, stream.unwrap_or(0)) }?;
    match place {
        Place::Cuda(_) if op.scratch => {
            call::run(op, function, &args, &device, &XlaMemory { api, frame, device: &device })
        }
        _ => call::run(op, function, &args, &device, &RuntimeMemory::new(&device)),
    }
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

/// The arguments, one per parameter.
unsafe fn read<'a>(op: &Op, frame: &'a CallFrame, place: Place) -> Result<ArgList<'a>> {
    // SAFETY: the lists are those of the call.
    let (operands, results) = unsafe { (frame.args.get(), frame.results.get()) };
    let (mut operands, mut outputs) = (operands.iter(), results.iter());
    // SAFETY: as above.
    let given = match unsafe { attribute(frame, GIVEN, AttributeType::Int) } {
        Some(Arg::Int(given)) => given,
        _ => i64::MAX,
    };
    let mut optional = 0;
    let mut args = ArgList::new();
    for param in op.params.iter() {
        let name = &param.name;
        args.push(match &param.kind {
            Kind::Input { optional: true } => {
                optional += 1;
                if given >> (optional - 1) & 1 == 0 { Arg::None } else { tensor(name, operands.next(), place)? }
            }
            Kind::Input { optional: false } | Kind::InPlace => tensor(name, operands.next(), place)?,
            // After all inputs: whether there is one depends on them.
            Kind::Output(_) => Arg::None,
            Kind::Attribute { of, .. } | Kind::OptionalAttribute { of } => {
                let is_optional = matches!(param.kind, Kind::OptionalAttribute { .. });
                // SAFETY: as above.
                match unsafe { attribute(frame, name, *of) } {
                    Some(value) => value,
                    None if is_optional => Arg::None,
                    None => return Err(Error::argument(name, "is missing", "an attribute of its type")),
                }
            }
        });
    }
    for (at, param) in op.params.iter().enumerate() {
        if let Kind::Output(output) = &param.kind
            && call::is_wanted(output, &args)
        {
            args[at] = tensor(&param.name, outputs.next(), place)?;
        }
    }
    for (at, param) in op.params.iter().enumerate() {
        if let (Kind::InPlace, Arg::Tensor(operand)) = (&param.kind, args[at]) {
            let Arg::Tensor(result) = tensor(&param.name, outputs.next(), place)? else { continue };
            if result.address != operand.address && operand.len != 0 {
                let accepted = "an operand that `input_output_aliases` gives the result's memory";
                return Err(Error::argument(&param.name, "is written, but its result is elsewhere", accepted));
            }
        }
    }
    Ok(args)
}

fn tensor<'a>(name: &str, buffer: Option<&&'a Buffer>, place: Place) -> Result<Arg<'a>> {
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
    Ok(Arg::Tensor(RawTensor { address: buffer.data as u64, dtype, place, shape, strides: None, len }))
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

/// The largest alignment that XLA lets one ask for. What it allocates on GPUs has a larger one.
const ALIGNMENT: usize = 16;

/// The handle of a block that a graph keeps. Those of XLA's allocator have their size, which is not zero.
const OF_GRAPH: u64 = 0;

/// Memory of XLA's allocator.
struct XlaMemory<'a> {
    api: &'a Api,
    frame: &'a CallFrame,
    device: &'a Device,
}

impl Memory for XlaMemory<'_> {
    fn take(&self, bytes: usize) -> Result<Block> {
        // What XLA's allocator takes back is free for others, but a command buffer uses it again at each replay.
        if let Some(address) = self.device.captured_scratch(bytes)? {
            return Ok(Block { address, handle: OF_GRAPH });
        }
        let mut arguments = api::Allocate::new(self.frame.context, bytes, ALIGNMENT, ptr::null_mut());
        // SAFETY: the context is that of the call.
        let error = unsafe { (self.api.allocate)(&mut arguments) };
        if error.is_null() {
            return Ok(Block { address: arguments.data as u64, handle: bytes as u64 });
        }
        // SAFETY: the error is owned.
        unsafe { (self.api.destroy_error)(&mut api::DestroyError::new(error)) };
        Err(format!("XLA could not allocate {bytes} bytes of scratch memory").into())
    }

    fn give_back(&self, block: Block) {
        if block.handle == OF_GRAPH {
            return;
        }
        let bytes = block.handle as usize;
        let mut arguments = api::Free::new(self.frame.context, bytes, block.address as *mut _);
        // SAFETY: the memory is of this context, and given back once.
        let error = unsafe { (self.api.free)(&mut arguments) };
        if !error.is_null() {
            // SAFETY: the error is owned.
            unsafe { (self.api.destroy_error)(&mut api::DestroyError::new(error)) };
        }
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
