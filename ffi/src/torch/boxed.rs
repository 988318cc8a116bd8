//! A call of an operator by PyTorch's dispatcher.

use super::api::{Api, Cuda, Handle};
use crate::call::{self, Arg, ArgList, CallFn};
use crate::device::{self, Lives};
use crate::error::{Error, Result};
use crate::op::{AttributeType, DTYPES, Kind, Op};
use crate::scratch::{Block, Memory};
use crate::shape::{Sizes, Wanted, wanted};
use crate::tensor::{Place, RawTensor};
use smallvec::SmallVec;
use std::ffi::{CString, c_void};
use std::ptr;
use tilewright::ElementType;

/// Who makes the outputs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outputs {
    /// The call.
    Made,
    /// The caller, who gives them behind the inputs.
    Given,
}

/// A tensor of libtorch, owned.
struct Tensor(Handle);

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the handle is owned, and deleted once.
        unsafe { (Api::get().functions.delete_tensor)(self.0) };
    }
}

/// A string of libtorch, owned.
struct Str(Handle);

impl Drop for Str {
    fn drop(&mut self) {
        if let Some(strings) = &Api::get().strings {
            // SAFETY: the handle is owned, and deleted once.
            unsafe { (strings.delete)(self.0) };
        }
    }
}

/// An argument as it comes from the stack.
enum Owned {
    Tensor(Tensor),
    Str(Str),
    /// The bits of a number.
    Bits(u64),
    None,
}

/// Calls the operator with the arguments on the stack, which this takes, and leaves its outputs there.
///
/// # Errors
///
/// The text of what is wrong. Nothing is left on the stack then.
///
/// # Safety
///
/// The stack has the arguments of the operator's schema, and room for its outputs.
pub(super) unsafe fn call(op: &'static Op, function: CallFn, stack: *mut u64, outputs: Outputs) -> Result<(), CString> {
    let done = call::guarded(|| {
        // SAFETY: the caller's promise.
        let owned = unsafe { take(op, stack, outputs) };
        let results = run(op, function, &owned, outputs)?;
        for (at, result) in results.into_iter().enumerate() {
            // SAFETY: there is room for the outputs. They belong to the caller now.
            unsafe { *stack.add(at) = result.0 as u64 };
            std::mem::forget(result);
        }
        Ok(())
    });
    done.map_err(|error| call::message(&op.name, &error))
}

/// Takes the arguments from the stack, one per parameter.
unsafe fn take(op: &Op, stack: *mut u64, outputs: Outputs) -> SmallVec<[Owned; 10]> {
    let mut given = 0;
    let mut written = op.inputs().count();
    let take_one = |param: &crate::op::Param| {
        let at = match &param.kind {
            Kind::Output(_) if outputs == Outputs::Made => return Owned::None,
            Kind::Output(_) => &mut written,
            _ => &mut given,
        };
        // SAFETY: the stack has as many values.
        let value = unsafe { *stack.add(*at) };
        *at += 1;
        let is_optional = match &param.kind {
            Kind::Input { optional } => *optional,
            Kind::Output(output) => output.with.is_some(),
            Kind::OptionalAttribute { .. } => true,
            Kind::InPlace | Kind::Attribute { .. } => false,
        };
        // SAFETY: libtorch gives optional values like this.
        let value = if is_optional { unsafe { unboxed(value) } } else { Some(value) };
        match (&param.kind, value) {
            (_, None) => Owned::None,
            (Kind::Attribute { of: AttributeType::Str, .. }, Some(value)) => Owned::Str(Str(value as Handle)),
            (Kind::Attribute { .. } | Kind::OptionalAttribute { .. }, Some(value)) => Owned::Bits(value),
            (_, Some(value)) => Owned::Tensor(Tensor(value as Handle)),
        }
    };
    op.params.iter().map(take_one).collect()
}

/// An optional value: null, or a pointer to the value in memory of C++'s `new`.
unsafe fn unboxed(value: u64) -> Option<u64> {
    let pointer = value as *mut u64;
    if pointer.is_null() {
        return None;
    }
    // SAFETY: libtorch gives the pointer away with the value behind it.
    unsafe {
        let inner = *pointer;
        (Api::get().functions.delete)(pointer.cast());
        Some(inner)
    }
}

fn run(op: &'static Op, function: CallFn, owned: &[Owned], outputs: Outputs) -> Result<SmallVec<[Tensor; 4]>> {
    let api = Api::get();
    let mut args = ArgList::new();
    for (param, owned) in op.params.iter().zip(owned) {
        args.push(read(api, &param.name, &param.kind, owned)?);
    }
    let place = call::place(op, &args)?;
    let stream = match place {
        Place::Cpu => 0,
        Place::Cuda(index) => Cuda::get()?.stream(index as i32)?,
    };
    let lives = || match place {
        Place::Cuda(index) if !api.has_made(index as i32, stream) => Lives::ForTheCall,
        Place::Cuda(_) | Place::Cpu => Lives::Long,
    };
    // SAFETY: the stream is PyTorch's current one of that device.
    let device = unsafe { device::of(place, stream, lives) }?;
    // A guard costs more than all else here: PyTorch asks the driver for the state of contexts when it ends.
    let _current = match place {
        Place::Cuda(index) if !device.is_current()? => Some(Current::enter(index as i32)?),
        Place::Cuda(_) | Place::Cpu => None,
    };
    let mut made = SmallVec::new();
    for (at, param) in op.params.iter().enumerate() {
        let Kind::Output(output) = &param.kind else { continue };
        if !call::is_wanted(output, &args) {
            call::check_absent(op, &param.name, output, &args[at])?;
            if outputs == Outputs::Made {
                made.push(allocate(api, place, &Wanted { dtype: ElementType::F32, sizes: Sizes::from_slice(&[0]) })?);
            }
            continue;
        }
        let wanted = wanted(op, &param.name, output, &args)?;
        match (&args[at], outputs) {
            (Arg::Tensor(given), _) => call::check_given(&param.name, given, &wanted)?,
            (_, Outputs::Given) => return Err(Error::argument(&param.name, "is missing", "a tensor")),
            (_, Outputs::Made) => {
                let tensor = allocate(api, place, &wanted)?;
                // SAFETY: the tensor outlives the arguments, in `made`.
                args[at] = unsafe { read_made(api, tensor.0, place, wanted.dtype) }?;
                made.push(tensor);
            }
        }
    }
    call::check_disjoint(op, &args, outputs == Outputs::Made)?;
    call::run(op, function, &args, &device, &TorchMemory { api, place })?;
    Ok(made)
}

fn read<'a>(api: &Api, name: &str, kind: &Kind, owned: &'a Owned) -> Result<Arg<'a>> {
    Ok(match (owned, kind) {
        (Owned::None, _) => Arg::None,
        // SAFETY: the tensor lives for `'a`.
        (Owned::Tensor(tensor), _) => unsafe { read_tensor(api, name, tensor.0) }?,
        (Owned::Str(text), _) => Arg::Str(read_str(api, name, text)?),
        (Owned::Bits(bits), Kind::Attribute { of, .. } | Kind::OptionalAttribute { of }) => match of {
            AttributeType::Int => Arg::Int(*bits as i64),
            AttributeType::Float => Arg::Float(f64::from_bits(*bits)),
            // A `bool` is in the first byte; the others mean nothing.
            AttributeType::Bool => Arg::Bool(*bits as u8 != 0),
            AttributeType::Str => Arg::None,
        },
        (Owned::Bits(_), _) => Arg::None,
    })
}

/// # Safety
///
/// The handle is a tensor that lives for `'a`.
unsafe fn read_tensor<'a>(api: &Api, name: &str, handle: Handle) -> Result<Arg<'a>> {
    let functions = &api.functions;
    let (mut dtype, mut device_type, mut device_index) = (0, 0, 0);
    let mut strides = ptr::null_mut();
    // SAFETY: the handle is a tensor. The arrays and the memory are its own, and live as long as it.
    let code = unsafe {
        (functions.dtype)(handle, &mut dtype)
            | (functions.device_type)(handle, &mut device_type)
            | (functions.device_index)(handle, &mut device_index)
            | (functions.strides)(handle, &mut strides)
    };
    // SAFETY: as above.
    let memory = if code == 0 { unsafe { read_memory(api, handle) } } else { None };
    let Some((address, shape)) = memory else {
        return Err(Error::argument(name, "has no memory", "an ordinary tensor with elements in strides"));
    };
    let Some(element) = api.dtype(dtype) else { return Err(unknown_dtype(name, dtype)) };
    let place = match device_type {
        kind if kind == api.cpu => Place::Cpu,
        kind if kind == api.cuda => Place::Cuda(device_index as u32),
        _ => return Err(Error::argument(name, "is on another device", "a tensor on cpu or cuda")),
    };
    // SAFETY: libtorch has as many strides as sizes.
    let strides = unsafe { slice(strides.cast_const(), shape.len()) };
    let len = shape.iter().product();
    Ok(Arg::Tensor(RawTensor { address, dtype: element, place, shape, strides: Some(strides), len }))
}

/// A tensor that [`allocate`] has made.
///
/// # Safety
///
/// The handle is that tensor, which lives for `'a`.
unsafe fn read_made<'a>(api: &Api, handle: Handle, place: Place, dtype: ElementType) -> Result<Arg<'a>> {
    // SAFETY: the caller's promise.
    let memory = unsafe { read_memory(api, handle) };
    let (address, shape) = memory.ok_or("PyTorch gave a tensor without an address")?;
    Ok(Arg::Tensor(RawTensor { address, dtype, place, shape, strides: None, len: shape.iter().product() }))
}

/// The address of the first element, and the sizes, the product of which libtorch has checked.
///
/// # Safety
///
/// As for [`read_tensor`].
unsafe fn read_memory<'a>(api: &Api, handle: Handle) -> Option<(u64, &'a [usize])> {
    let functions = &api.functions;
    let (mut rank, mut sizes, mut data) = (0, ptr::null_mut(), ptr::null_mut::<c_void>());
    // SAFETY: the handle is a tensor. The array and the memory are its own, and live as long as it.
    let code = unsafe {
        (functions.dim)(handle, &mut rank)
            | (functions.sizes)(handle, &mut sizes)
            | (functions.data_ptr)(handle, &mut data)
    };
    // SAFETY: libtorch has `rank` sizes, none negative; `usize` has the layout of `i64`.
    (code == 0).then(|| (data as u64, unsafe { slice(sizes.cast_const().cast::<usize>(), rank as usize) }))
}

/// The elements behind a pointer, which is null where there are none.
unsafe fn slice<'a, T>(pointer: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, len) }
}

#[cold]
fn unknown_dtype(name: &str, number: i32) -> Error {
    let known = DTYPES.map(super::dtype_name).join(", ");
    Error::argument(name, format_args!("has PyTorch's dtype number {number}, which no kernel computes with"), known)
}

fn read_str<'a>(api: &Api, name: &str, text: &'a Str) -> Result<&'a str> {
    let strings = api.strings.as_ref().ok_or("strings need PyTorch 2.10 or later")?;
    let (mut len, mut bytes) = (0, ptr::null());
    // SAFETY: the handle is a string, which owns its bytes.
    let code = unsafe { (strings.length)(text.0, &mut len) | (strings.bytes)(text.0, &mut bytes) };
    // SAFETY: there are as many bytes.
    let bytes = if code == 0 { unsafe { slice(bytes.cast::<u8>(), len) } } else { &[] };
    std::str::from_utf8(bytes).map_err(|_| Error::argument(name, "is no UTF-8", "text"))
}

/// A tensor in row-major order of unspecified elements.
fn allocate(api: &Api, place: Place, wanted: &Wanted) -> Result<Tensor> {
    let mut strides = Sizes::from_elem(1, wanted.sizes.len());
    for axis in (1..wanted.sizes.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(wanted.sizes[axis].max(1));
    }
    let (kind, index) = match place {
        Place::Cpu => (api.cpu, 0),
        Place::Cuda(index) => (api.cuda, index as i32),
    };
    let mut handle = ptr::null_mut();
    let (rank, dtype) = (wanted.sizes.len() as i64, api.number(wanted.dtype));
    // SAFETY: there are `rank` sizes and strides.
    let code = unsafe {
        (api.functions.empty_strided)(rank, wanted.sizes.as_ptr(), strides.as_ptr(), dtype, kind, index, &mut handle)
    };
    if code != 0 {
        return Err(
            format!("PyTorch could not allocate {} of shape {:?} on {place}", wanted.dtype, wanted.sizes).into()
        );
    }
    Ok(Tensor(handle))
}

/// A GPU as PyTorch's current one, while this lives.
struct Current {
    cuda: &'static Cuda,
    guard: Handle,
}

impl Current {
    fn enter(index: i32) -> Result<Self> {
        let cuda = Cuda::get()?;
        let mut guard = ptr::null_mut();
        // SAFETY: it is given where to write.
        match unsafe { (cuda.create_guard)(index, &mut guard) } {
            0 => Ok(Current { cuda, guard }),
            _ => Err(format!("PyTorch cannot use cuda:{index}").into()),
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: the guard is owned, and deleted once.
        unsafe { (self.cuda.delete_guard)(self.guard) };
    }
}

/// Memory of PyTorch's allocators, as tensors of bytes.
struct TorchMemory {
    api: &'static Api,
    place: Place,
}

impl Memory for TorchMemory {
    fn take(&self, bytes: usize) -> Result<Block> {
        let size = i64::try_from(bytes).map_err(|_| "more scratch memory is asked for than can be counted")?;
        let wanted = Wanted { dtype: ElementType::U8, sizes: Sizes::from_slice(&[size]) };
        let tensor = allocate(self.api, self.place, &wanted)?;
        let mut data = ptr::null_mut();
        // SAFETY: the handle is a tensor.
        if unsafe { (self.api.functions.data_ptr)(tensor.0, &mut data) } != 0 {
            return Err("PyTorch gave scratch memory without an address".into());
        }
        let block = Block { address: data as u64, handle: tensor.0 as u64 };
        std::mem::forget(tensor);
        Ok(block)
    }

    fn give_back(&self, block: Block) {
        drop(Tensor(block.handle as Handle));
    }
}
