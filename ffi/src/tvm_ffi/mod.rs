//! The door to TVM-FFI: functions for everything that speaks DLPack (NumPy, PyTorch, JAX, CuPy, Paddle).
//!
//! `tvm_ffi.load_module("libmy_ops.so").silu(x, y)` calls the symbol `__tvm_ffi_silu`. It takes the parameters of the Rust
//! function, outputs included, in its order; attributes with defaults may be left out at the end. The convention is that of
//! `tvm/ffi/c_api.h`, and DLPack's `DLTensor`.

mod api;

pub use api::Any;

use crate::call::{self, Arg, ArgList, CallFn, Exported};
use crate::device::{self, Lives};
use crate::error::{Error, Result};
use crate::memory::RuntimeMemory;
use crate::op::{AttributeType, DTYPES, Kind, Op};
use crate::scratch::{Block, Memory};
use crate::tensor::{Place, RawTensor};
use api::{Api, DlTensor, Element};
use std::ffi::{c_int, c_void};
use tilewright::ElementType;

/// Calls an operator.
///
/// # Safety
///
/// `args` are `count` values, and `result` is one, by the convention of TVM-FFI.
pub unsafe fn call<O: Exported>(_function: *mut c_void, args: *const Any, count: i32, result: *mut Any) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { enter(O::OP, O::call, args, count, result) }
}

unsafe fn enter(op: &'static Op, function: CallFn, args: *const Any, count: i32, result: *mut Any) -> c_int {
    let done = call::guarded(|| {
        // SAFETY: there are as many.
        let given = if count <= 0 { &[] } else { unsafe { std::slice::from_raw_parts(args, count as usize) } };
        run(op, function, given)
    });
    match done {
        Ok(()) => {
            // SAFETY: it is one value, to be written.
            unsafe { result.write(Any::NONE) };
            0
        }
        Err(error) => {
            let kind = if error.is_of_an_argument() { c"ValueError" } else { c"RuntimeError" };
            Api::raise(kind, &call::message(&op.name, &error));
            -1
        }
    }
}

fn run(op: &'static Op, function: CallFn, given: &[Any]) -> Result<()> {
    if given.len() > op.params.len() {
        return Err(format!("{} arguments are given, {} are taken", given.len(), op.params.len()).into());
    }
    let mut args = ArgList::new();
    for (at, param) in op.params.iter().enumerate() {
        args.push(match given.get(at) {
            Some(value) => read(&param.name, &param.kind, value)?,
            None => call::default(&param.name, &param.kind)?,
        });
    }
    call::check_outputs(op, &args)?;
    let place = call::place(op, &args)?;
    let stream = match place {
        Place::Cpu => 0,
        Place::Cuda(index) => Api::get()?.stream(index),
    };
    // SAFETY: the stream is the environment's current one of that device.
    let device = unsafe { device::of(place, stream, || Lives::ForTheCall) }?;
    device.keeping_current(|| match place {
        Place::Cuda(index) if op.scratch && Api::get()?.has_allocator() => {
            call::run(op, function, &args, &device, &EnvironmentMemory { index })
        }
        _ => call::run(op, function, &args, &device, &RuntimeMemory::new(&device)),
    })
}

fn read<'a>(name: &str, kind: &Kind, value: &'a Any) -> Result<Arg<'a>> {
    let wrong = |accepted: &str| Err(Error::argument(name, format_args!("is {}", value.kind_name()), accepted));
    match kind {
        Kind::Input { optional: true } | Kind::OptionalAttribute { .. } if value.is_none() => Ok(Arg::None),
        Kind::Output(output) if output.with.is_some() && value.is_none() => Ok(Arg::None),
        Kind::Input { .. } | Kind::InPlace | Kind::Output(_) => match value.tensor() {
            Some(tensor) => read_tensor(name, tensor),
            None => wrong("a tensor"),
        },
        Kind::Attribute { of, .. } | Kind::OptionalAttribute { of } => match of {
            AttributeType::Int => value.int().map_or_else(|| wrong("an integer"), |value| Ok(Arg::Int(value))),
            AttributeType::Float => value.float().map_or_else(|| wrong("a float"), |value| Ok(Arg::Float(value))),
            AttributeType::Bool => value.bool().map_or_else(|| wrong("a bool"), |value| Ok(Arg::Bool(value))),
            AttributeType::Str => value.str().map_or_else(|| wrong("a string"), |value| Ok(Arg::Str(value))),
        },
    }
}

fn read_tensor<'a>(name: &str, tensor: &'a DlTensor) -> Result<Arg<'a>> {
    let Some(dtype) = dtype(tensor.dtype) else { return Err(unknown_dtype(name, tensor.dtype)) };
    let place = match tensor.device_type {
        api::CPU | api::CUDA_HOST => Place::Cpu,
        api::CUDA | api::CUDA_MANAGED => Place::Cuda(tensor.device_id as u32),
        other => {
            return Err(Error::argument(
                name,
                format_args!("is on DLPack's device type {other}"),
                "a tensor on cpu or cuda",
            ));
        }
    };
    // SAFETY: a `DLTensor` has as many sizes, and as many strides or none.
    let (sizes, strides) = unsafe { (tensor.sizes(), tensor.strides()) };
    let Some((shape, len)) = RawTensor::sizes(sizes) else {
        return Err(Error::argument(name, format_args!("has shape {sizes:?}"), "sizes that can be"));
    };
    let address = (tensor.data as u64).wrapping_add(tensor.byte_offset);
    Ok(Arg::Tensor(RawTensor { address, dtype, place, shape, strides, len }))
}

fn dtype(element: Element) -> Option<ElementType> {
    let Element { code, bits, lanes: 1 } = element else { return None };
    DTYPES.into_iter().find(|dtype| (code_of(*dtype), dtype.size() * 8) == (code, bits as usize))
}

/// DLPack's code.
fn code_of(dtype: ElementType) -> u8 {
    match dtype {
        ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => 0,
        ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => 1,
        ElementType::F16 | ElementType::F32 | ElementType::F64 => 2,
        ElementType::BF16 => 4,
        ElementType::Bool => 6,
        ElementType::F8E4M3 => 10,
        ElementType::F8E5M2 => 12,
    }
}

#[cold]
fn unknown_dtype(name: &str, Element { code, bits, lanes }: Element) -> Error {
    let known: Vec<&str> = DTYPES.iter().map(|dtype| dtype.name()).collect();
    let given =
        format!("has a dtype of DLPack's code {code}, {bits} bits, {lanes} lanes, which no kernel computes with");
    Error::argument(name, given, known.join(", "))
}

/// Memory of the allocator that the caller's framework has set.
struct EnvironmentMemory {
    index: u32,
}

impl Memory for EnvironmentMemory {
    fn take(&self, bytes: usize) -> Result<Block> {
        Api::get()?.allocate(self.index, bytes)
    }

    fn give_back(&self, block: Block) {
        if let Ok(api) = Api::get() {
            api.release(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_its_own_code() {
        for of in DTYPES {
            let element = Element { code: code_of(of), bits: of.size() as u8 * 8, lanes: 1 };
            assert_eq!(dtype(element), Some(of));
            assert_eq!(dtype(Element { lanes: 2, ..element }), None);
        }
        assert_eq!(dtype(Element { code: 5, bits: 64, lanes: 1 }), None, "complex numbers");
        assert_eq!(
            dtype(Element { code: 11, bits: 8, lanes: 1 }),
            None,
            "floats of 8 bits without a zero of their own sign"
        );
    }
}
