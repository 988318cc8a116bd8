//! A launch: arguments as the code takes them, and the call of the driver.

use super::super::args::Arg;
use super::super::invocation::Place;
use super::super::kernel::Kernel;
use super::Ready;
use crate::driver::wrap;
use crate::error::{Error, Result};
use crate::record::LaunchId;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use kernel_codegen::AbiParam;
use kernel_codegen::check::{LaunchConditions, LaunchEnv};
use smallvec::SmallVec;
use std::ffi::c_void;

/// Whether the launch keeps every access inside its buffer that the conditions speak of.
pub(super) fn conditions_hold(conditions: &LaunchConditions, args: &[Arg<'_>], grid: [u32; 3]) -> bool {
    let mut scalars = SmallVec::<[Option<i128>; 12]>::new();
    let mut lengths = SmallVec::<[u64; 12]>::new();
    for arg in args {
        scalars.push(match arg {
            Arg::Scalar(value) => value.as_int(),
            Arg::Ptr(_) | Arg::PtrMut(_) | Arg::Const(_) => None,
        });
        lengths.push(arg.buffer().map_or(0, |buffer| buffer.len() as u64));
    }
    conditions.hold(&LaunchEnv { scalars: &scalars, lengths: &lengths, grid })
}

/// Gives the kernel to the stream.
pub(super) fn launch(kernel: &'static Kernel, ready: &Ready, args: &mut [Arg<'_>], place: &Place<'_>) -> Result<()> {
    let stream = place.stream;
    let record = match &ready.variant.reports {
        Some(reports) => Some(stream.acquire_record(reports.clone())?),
        None => None,
    };
    let (launch, report_slot) =
        record.as_ref().map_or_else(|| (LaunchId::next(), 0), |record| (record.id(), record.device_ptr()));
    stream.bind()?;
    for arg in &mut *args {
        arg.prepare(stream, launch)?;
    }
    let mut values = SmallVec::<[u64; 24]>::new();
    for param in &ready.variant.compiled.abi {
        values.push(value_of(kernel, param, args, report_slot)?);
    }
    // Each points to eight bytes, of which the driver reads as many as the parameter has: the
    // low ones come first on every machine that NVIDIA's driver runs on.
    let mut pointers: SmallVec<[*mut c_void; 24]> =
        values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
    // SAFETY: `values` holds one value for each parameter of the function, in its order; buffers
    // are borrowed until the kernel is in the stream, and wait for it from then on; the kernel's
    // accesses stay inside them, for safe kernels by the conditions and checks, for others by the
    // caller's promise. The context is current, and the stream is alive in it.
    unsafe { submit(ready, place, &mut pointers) }.map_err(|error| explain(kernel, ready, error))?;
    if let Some(record) = record {
        record.launched();
    }
    Ok(())
}

/// The value of a parameter, in the low bytes.
pub(super) fn value_of(kernel: &Kernel, param: &AbiParam, args: &[Arg<'_>], report_slot: u64) -> Result<u64> {
    let buffer = |id: kernel_core::ir::ParamId| args.get(id.index()).and_then(Arg::buffer);
    let value = match param {
        AbiParam::Buffer(id) => buffer(*id).map(|buffer| buffer.address().get()),
        AbiParam::Length(id) => buffer(*id).map(|buffer| buffer.len() as u64),
        AbiParam::Scalar(id, _) => match args.get(id.index()) {
            Some(Arg::Scalar(value) | Arg::Const(value)) => Some(value.bits),
            Some(Arg::Ptr(_) | Arg::PtrMut(_)) | None => None,
        },
        AbiParam::ReportSlot => Some(report_slot),
        AbiParam::Scratch => None,
    };
    value.ok_or_else(|| Error::Unsupported {
        what: format!("launching kernel `{}`", kernel.name()).into(),
        reason: format!("its code takes a parameter that the launch does not have: {param:?}").into(),
    })
}

/// # Safety
///
/// As for `cuLaunchKernel`: `params` points to one value for each parameter of the function.
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

/// The driver's refusal of a launch, with what can be done about it.
fn explain(kernel: &Kernel, ready: &Ready, error: DriverError) -> Error {
    if error.0 != sys::CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES {
        return wrap("cuLaunchKernel")(error);
    }
    let usage = ready.loaded.usage();
    Error::Resources {
        kernel: kernel.name().into(),
        what: format!("threads with {} registers each", usage.registers).into(),
        needed: ready.variant.compiled.threads().into(),
        limit: usage.max_threads.into(),
        hint: "use fewer warps or smaller tiles".into(),
    }
}
