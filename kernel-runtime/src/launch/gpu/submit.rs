//! A launch: arguments as the code takes them, and the call of the driver.

use super::super::args::{Arg, ArgKind, enter};
use super::super::invocation::Place;
use super::super::kernel::Kernel;
use super::Ready;
use crate::driver::wrap;
use crate::error::{Error, Result};
use crate::graph::{KernelNode, recording};
use crate::record::LaunchId;
use crate::tensor::{Encoded, Map};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use kernel_codegen::AbiParam;
use kernel_codegen::check::{LaunchConditions, LaunchValues};
use kernel_core::ir::ParamId;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// A launch as its conditions see it.
struct Launch<'l> {
    args: &'l [Arg<'l>],
    grid: [u32; 3],
}

impl LaunchValues for Launch<'_> {
    #[inline]
    fn scalar(&self, param: ParamId) -> Option<i128> {
        let arg = self.args.get(param.index())?;
        if arg.kind() == ArgKind::Scalar { arg.as_value()?.as_int() } else { None }
    }

    #[inline]
    fn length(&self, param: ParamId) -> u64 {
        self.args.get(param.index()).and_then(Arg::as_buffer).map_or(0, |(_, len)| len as u64)
    }

    #[inline]
    fn grid(&self) -> [u32; 3] {
        self.grid
    }
}

/// Whether the launch keeps every access inside its buffer that the conditions speak of.
pub(super) fn conditions_hold(conditions: &LaunchConditions, args: &[Arg<'_>], grid: [u32; 3]) -> bool {
    conditions.hold(&Launch { args, grid })
}

/// Parameters of most kernels, without an allocation.
const INLINE_PARAMS: usize = 24;

/// Tensor maps that a launch makes for itself.
#[allow(clippy::vec_box, reason = "the parameters point at the maps, which therefore must not move")]
type Maps = Vec<Box<Encoded>>;

/// The values of the code's parameters, in the low bytes, and where each is.
pub(super) struct Params {
    values: [MaybeUninit<u64>; INLINE_PARAMS],
    pointers: [MaybeUninit<*mut c_void>; INLINE_PARAMS],
    /// Instead, if there are more.
    long: (Vec<u64>, Vec<*mut c_void>),
    /// Tensor maps that their descriptors do not keep.
    maps: Maps,
}

impl Params {
    #[inline]
    pub(super) fn new() -> Self {
        Params {
            values: [const { MaybeUninit::uninit() }; INLINE_PARAMS],
            pointers: [const { MaybeUninit::uninit() }; INLINE_PARAMS],
            long: (Vec::new(), Vec::new()),
            maps: Vec::new(),
        }
    }

    /// Packs the values of all parameters; gives where each is. Each points to eight bytes, of which
    /// the driver reads as many as the parameter has: the low ones come first on every machine that
    /// NVIDIA's driver runs on. Tensor maps are where they were encoded.
    #[inline]
    pub(super) fn pack(
        &mut self,
        kernel: &Kernel,
        abi: &[AbiParam],
        args: &[Arg<'_>],
        report_slot: u64,
    ) -> Result<&mut [*mut c_void]> {
        if abi.len() > INLINE_PARAMS {
            return self.pack_long(kernel, abi, args, report_slot);
        }
        for ((param, value), pointer) in abi.iter().zip(&mut self.values).zip(&mut self.pointers) {
            match value_of(param, args, report_slot) {
                Some(known) => pointer.write(std::ptr::from_mut(value.write(known)).cast()),
                None => pointer.write(map_of(kernel, param, args, &mut self.maps)?),
            };
        }
        // SAFETY: the loop has written one for each parameter.
        Ok(unsafe { self.pointers[..abi.len()].assume_init_mut() })
    }

    #[cold]
    fn pack_long(
        &mut self,
        kernel: &Kernel,
        abi: &[AbiParam],
        args: &[Arg<'_>],
        report_slot: u64,
    ) -> Result<&mut [*mut c_void]> {
        let (values, pointers) = &mut self.long;
        *values = abi.iter().map(|param| value_of(param, args, report_slot).unwrap_or(0)).collect();
        *pointers = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        for (param, pointer) in abi.iter().zip(pointers.iter_mut()) {
            if value_of(param, args, report_slot).is_none() {
                *pointer = map_of(kernel, param, args, &mut self.maps)?;
            }
        }
        Ok(pointers)
    }
}

/// Gives the kernel to the stream.
pub(super) fn launch(kernel: &'static Kernel, ready: &Ready, args: &[Arg<'_>], place: &Place<'_>) -> Result<()> {
    let stream = place.stream;
    let record = match &ready.variant.reports {
        Some(reports) => Some(stream.acquire_record(reports.clone())?),
        None => None,
    };
    let (launch, report_slot) = match &record {
        Some(record) => (record.id(), record.device_ptr()),
        None => (LaunchId::next(), 0),
    };
    let mut params = Params::new();
    let params = params.pack(kernel, &ready.variant.compiled.abi, args, report_slot)?;
    let _entered = enter(args);
    for arg in args {
        arg.prepare(stream, launch)?;
    }
    // Handles of streams know their context. The others mean a stream of the current one.
    if !stream.has_own_handle() {
        stream.bind()?;
    }
    // SAFETY: there is one value for each parameter of the function, in its order; buffers are
    // borrowed until the kernel is in the stream, and wait for it from then on; the kernel's
    // accesses stay inside them, for safe kernels by the conditions and checks, for others by the
    // caller's promise. The stream is alive.
    let mut result = unsafe { submit(ready, place, params) };
    if let Err(DriverError(code)) = result
        && is_about_context(code)
    {
        // Asking which context is current costs more than a launch can spare, so only those that
        // need it pay: the first of a thread, and those after somebody has changed it.
        stream.bind()?;
        // SAFETY: as above; nothing has been launched.
        result = unsafe { submit(ready, place, params) };
    }
    result.map_err(|error| explain(kernel, ready, error))?;
    if let Some(record) = record {
        record.launched();
    }
    Ok(())
}

/// Adds the kernel to the graph that this thread records.
#[cold]
pub(super) fn record(kernel: &'static Kernel, ready: &Ready, args: &[Arg<'_>], place: &Place<'_>) -> Result<()> {
    recording::record(place.stream, |recording| {
        args.iter().for_each(|arg| arg.note(recording));
        recording.add_kernel(|graph, launch| {
            let report_slot = match &ready.variant.reports {
                Some(reports) => graph.acquire_record(launch, reports.clone())?,
                None => 0,
            };
            let compiled = &ready.variant.compiled;
            let mut params = Params::new();
            let params = params.pack(kernel, &compiled.abi, args, report_slot)?;
            let node = KernelNode {
                function: ready.loaded.function(),
                grid: place.grid,
                threads: compiled.threads(),
                shared_bytes: compiled.shared_bytes,
                params,
            };
            // SAFETY: as in `launch`; the buffers are noted, so that the graph keeps them and orders
            // their uses. What is loaded stays so.
            unsafe { graph.add(node) }
        })
    })
}

#[inline]
pub(super) fn value_of(param: &AbiParam, args: &[Arg<'_>], report_slot: u64) -> Option<u64> {
    match param {
        // The variant was made for arguments of these kinds.
        AbiParam::Buffer(id) | AbiParam::Scalar(id, _) => args.get(id.index()).map(Arg::bits),
        AbiParam::Length(id) => args.get(id.index()).map(Arg::fact),
        AbiParam::ReportSlot => Some(report_slot),
        AbiParam::Shape(id, axis) => args.get(id.index())?.as_tensor()?.shape().get(usize::from(*axis)).copied(),
        AbiParam::Stride(id, axis) => args.get(id.index())?.as_tensor()?.strides().get(usize::from(*axis)).copied(),
        AbiParam::Scratch | AbiParam::TensorMap(_) => None,
    }
}

/// Where the tensor map is that a parameter takes; `maps` keeps it if nobody else does.
fn map_of(kernel: &Kernel, param: &AbiParam, args: &[Arg<'_>], maps: &mut Maps) -> Result<*mut c_void> {
    let AbiParam::TensorMap(blocks) = param else { return Err(unknown_param(kernel, param)) };
    let tensor = args.get(blocks.param.index()).and_then(Arg::as_desc);
    let tensor = tensor.ok_or_else(|| unknown_param(kernel, param))?;
    match tensor.map(blocks) {
        Map::Kept(kept) => Ok(kept.as_ptr()),
        Map::New(new) => {
            let pointer = new.as_ptr();
            maps.push(new);
            Ok(pointer)
        }
        Map::Refused => Err(Error::Unsupported {
            what: format!("copying the tensor of a launch of kernel `{}` in hardware", kernel.name()).into(),
            reason: "the driver refuses its shape or strides".into(),
        }),
    }
}

#[cold]
fn unknown_param(kernel: &Kernel, param: &AbiParam) -> Error {
    Error::Unsupported {
        what: format!("launching kernel `{}`", kernel.name()).into(),
        reason: format!("its code takes a parameter that the launch does not have: {param:?}").into(),
    }
}

/// # Safety
///
/// As for `cuLaunchKernel`: `params` points to one value for each parameter of the function.
#[inline]
unsafe fn submit(ready: &Ready, place: &Place<'_>, params: &mut [*mut c_void]) -> Result<(), DriverError> {
    let stream = place.stream.cudarc().map_or(std::ptr::null_mut(), |stream| stream.cu_stream());
    let [x, y, z] = place.grid;
    let compiled = &ready.variant.compiled;
    // SAFETY: promised by the caller; the function is alive as long as `ready.loaded`.
    unsafe {
        sys::cuLaunchKernel(
            ready.loaded.function(),
            x,
            y,
            z,
            compiled.threads(),
            1,
            1,
            compiled.shared_bytes,
            stream,
            params.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    }
    .result()
}

/// Whether the driver refused a launch because of the context that is current, or because none is.
fn is_about_context(code: sys::CUresult) -> bool {
    use sys::CUresult as Code;
    matches!(
        code,
        Code::CUDA_ERROR_INVALID_CONTEXT | Code::CUDA_ERROR_CONTEXT_IS_DESTROYED | Code::CUDA_ERROR_INVALID_HANDLE
    )
}

/// The driver's refusal of a launch, with what can be done about it.
#[cold]
fn explain(kernel: &Kernel, ready: &Ready, error: DriverError) -> Error {
    if error.0 != sys::CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES {
        return wrap("cuLaunchKernel")(error);
    }
    let usage = ready.loaded.usage();
    Error::Resources {
        kernel: kernel.name().into(),
        what: format!("threads with {} registers each", usage.registers).into(),
        needed: ready.variant.compiled.threads().into(),
        limit: ready.loaded.max_threads().into(),
        hint: "use fewer warps or smaller tiles".into(),
    }
}
