//! A launch: arguments as the code takes them, and the call of the driver.

use super::super::args::{Arg, ArgKind, enter};
use super::super::invocation::{Dispatch, Invocation};
use super::super::kernel::Kernel;
use super::super::loads;
use super::caches::Ready;
use super::plan::{INLINE_PARAMS, Plan, Pointers};
use crate::driver::wrap;
use crate::error::{Error, Result};
use crate::gate::Entered;
use crate::graph::{KernelNode, capture};
use crate::ledger::{Ledger, LogPosition};
use crate::stream::{Capture, RecordHandle, Stream, StreamHandle};
use crate::tensor::{Encoded, Map};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use kernel_core::backend::nvidia::AbiParam;
use kernel_core::backend::{LaunchConditions, LaunchValues};
use kernel_core::ir::ParamId;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Launches that are noted in the ledger between two looks at which of them have ended: as many as have marks in a
/// stream, so that what a stream that keeps up has done is forgotten before the ledger is full.
const LOOK_EVERY: u64 = 512;

/// A launch as its conditions see it.
pub(super) struct Launch<'l> {
    pub(super) args: &'l [Arg<'l>],
    pub(super) grid: [u32; 3],
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

/// Tensor maps that a launch makes for itself.
#[allow(clippy::vec_box, reason = "the parameters point at the maps, which therefore must not move")]
type Maps = Vec<Box<Encoded>>;

/// Where the values of the code's parameters are.
pub(super) struct Params {
    pointers: Pointers,
    /// Instead, if there are more.
    long: Vec<*mut c_void>,
    /// Tensor maps that their descriptors do not keep.
    maps: Maps,
}

impl Params {
    #[inline]
    pub(super) fn new() -> Self {
        Params { pointers: [const { MaybeUninit::uninit() }; INLINE_PARAMS], long: Vec::new(), maps: Vec::new() }
    }

    /// Finds the values of all parameters; gives where each is. Each points to eight bytes, of which
    /// the driver reads as many as the parameter has: the low ones come first on every machine that
    /// NVIDIA's driver runs on. Tensor maps are where they were encoded.
    #[cold]
    pub(super) fn pack(
        &mut self,
        kernel: &Kernel,
        abi: &[AbiParam],
        args: &[Arg<'_>],
        report_slot: &u64,
    ) -> Result<&mut [*mut c_void]> {
        let Params { pointers, long, maps } = self;
        let mut pointer_of = |param| match value_of(param, args, report_slot) {
            Some(known) => Ok(std::ptr::from_ref(known).cast_mut().cast()),
            None => map_of(kernel, param, args, maps),
        };
        if abi.len() > INLINE_PARAMS {
            *long = abi.iter().map(pointer_of).collect::<Result<_>>()?;
            return Ok(long);
        }
        for (param, pointer) in abi.iter().zip(pointers.iter_mut()) {
            pointer.write(pointer_of(param)?);
        }
        // SAFETY: the loop has written one for each parameter.
        Ok(unsafe { pointers[..abi.len()].assume_init_mut() })
    }
}

/// Gives the kernel to the stream. `args` are those of the call, and behind them those of hidden parameters.
#[inline(always)]
pub(super) fn launch(call: &Invocation<'_>, args: &[Arg<'_>], ready: &Ready, dispatch: &Dispatch<'_>) -> Result<()> {
    let stream = dispatch.stream;
    let Some(handle) = stream.handle() else { return Err(no_handle(dispatch)) };
    let key = stream.key();
    let context = dispatch.device.context_number();
    let _entered = match args.iter().all(|arg| arg.is_at_once(key, context)) {
        true => None,
        false => Some(prepare(call, stream)?),
    };
    let record = note(&args[..call.args.len()], ready, stream)?;
    let report_slot = record.as_ref().map_or(0, RecordHandle::device_ptr);
    let (mut pointers, mut others) = ([const { MaybeUninit::uninit() }; INLINE_PARAMS], None);
    let params = match ready.plan.sources().pack(args, &report_slot, &mut pointers) {
        Some(params) => params,
        None => others.insert(Params::new()).pack(call.kernel, &ready.variant.artifact.code.abi, args, &report_slot)?,
    };
    // Handles of streams know their context. The others mean a stream of the current one, or of the thread.
    if !handle.is_own() {
        stream.bind_for_work()?;
    }
    // SAFETY: there is one value for each parameter of the function, in its order; buffers are
    // borrowed until the kernel is in the stream, and wait for it from then on; the kernel's
    // accesses stay inside them, for safe kernels by the conditions and checks, for others by the
    // caller's promise. The stream is alive.
    if let Err(error) = unsafe { submit(&ready.plan, dispatch.grid, handle, params) } {
        // SAFETY: as above; nothing has been launched.
        unsafe { submit_again(call.kernel, ready, dispatch, params, error)? };
    }
    if let Some(record) = record {
        let place = record.place();
        record.launched();
        look_at_times(stream.ledger(), place);
    }
    Ok(())
}

/// Notes what the launch does to its buffers, if somebody may have to be told an error because of it: it can fail
/// itself, and gets a record, or it reads what depends on one that can.
#[inline]
fn note<'s>(args: &[Arg<'_>], ready: &Ready, stream: &'s Stream) -> Result<Option<RecordHandle<'s>>> {
    let (loads, reports) = (ready.plan.loads(), &ready.variant.reports);
    // Borrowed memory is kept by whoever captures, so that a launch which needs no record need not know.
    let capture = match stream.may_be_captured() && (reports.is_some() || args.iter().any(Arg::is_own)) {
        true => stream.foreign_capture()?,
        false => None,
    };
    if let Some(capture) = capture {
        return note_captured(args, ready, stream, &capture);
    }
    match reports {
        Some(reports) => {
            let record = stream.acquire_record_of(reports.clone(), loads.uses(args))?;
            loads::set_suspect(args, record.place());
            Ok(Some(record))
        }
        None => {
            if loads.reads_suspect(args, stream.ledger()) {
                note_suspect(args, loads, stream.ledger());
            }
            Ok(None)
        }
    }
}

/// Lets the graph into which somebody else captures the stream keep the buffers. What is captured has not run: what they hold
/// is as it was.
#[cold]
fn note_captured<'s>(
    args: &[Arg<'_>],
    ready: &Ready,
    stream: &'s Stream,
    capture: &Capture<'_>,
) -> Result<Option<RecordHandle<'s>>> {
    capture.keep(args.iter().filter_map(Arg::own))?;
    ready.variant.reports.as_ref().map(|reports| stream.acquire_captured(capture, reports.clone())).transpose()
}

#[cold]
fn note_suspect(args: &[Arg<'_>], loads: loads::Loads, ledger: &Ledger) {
    let place = ledger.lock().append_infallible(loads.uses(args));
    loads::set_suspect(args, place);
    look_at_times(ledger, place);
}

/// Looks at earlier launches every so many that are noted.
#[inline]
fn look_at_times(ledger: &Ledger, place: LogPosition) {
    if place.is_multiple_of(LOOK_EVERY) {
        ledger.poll();
    }
}

/// Orders the uses of all buffers. What is returned lives until the kernel is in the stream.
#[cold]
fn prepare<'c>(call: &'c Invocation<'_>, stream: &Stream) -> Result<Entered<'c>> {
    call.check_buffers(stream)?;
    let entered = enter(&call.args);
    for arg in call.args.iter() {
        arg.prepare(stream)?;
    }
    Ok(entered)
}

/// After a refusal: once more if the wrong context was current. Asking which one is costs more than a launch can spare,
/// so only those that need it pay: the first of a thread, and those after somebody has changed it.
///
/// # Safety
///
/// As for [`submit`].
#[cold]
unsafe fn submit_again(
    kernel: &Kernel,
    ready: &Ready,
    dispatch: &Dispatch<'_>,
    params: &mut [*mut c_void],
    mut error: DriverError,
) -> Result<()> {
    let Some(handle) = dispatch.stream.handle() else { return Err(no_handle(dispatch)) };
    if is_about_context(error.0) {
        dispatch.stream.bind()?;
        // SAFETY: promised by the caller.
        match unsafe { submit(&ready.plan, dispatch.grid, handle, params) } {
            Ok(()) => return Ok(()),
            Err(second) => error = second,
        }
    }
    Err(explain(kernel, ready, error))
}

/// A stream of the CPU. Streams are checked before they come here.
#[cold]
fn no_handle(dispatch: &Dispatch<'_>) -> Error {
    Error::WrongDevice {
        argument: "".into(),
        actual: dispatch.stream.context().label().into(),
        expected: dispatch.device.to_string().into(),
    }
}

/// Adds the kernel to the graph that this thread records.
#[cold]
pub(super) fn record(call: &Invocation<'_>, args: &[Arg<'_>], ready: &Ready, dispatch: &Dispatch<'_>) -> Result<()> {
    call.check_buffers(dispatch.stream)?;
    capture::record(dispatch.stream, |recording| {
        for (index, arg) in call.args.iter().enumerate() {
            arg.note(recording, ready.variant.loads.loads_from(index))?;
        }
        recording.add_kernel(ready.variant.reports.is_some(), |graph, launch| {
            let report_slot = match &ready.variant.reports {
                Some(reports) => graph.acquire_record(launch, reports.clone())?,
                None => 0,
            };
            let mut params = Params::new();
            let params = params.pack(call.kernel, &ready.variant.artifact.code.abi, args, &report_slot)?;
            let node = KernelNode {
                function: ready.plan.function(),
                grid: dispatch.grid,
                threads: ready.plan.threads(),
                shared_bytes: ready.plan.shared_bytes(),
                params,
            };
            // SAFETY: as in `launch`; the buffers are noted, so that the graph keeps them and orders
            // their uses. What is loaded stays so.
            unsafe { graph.add(node) }
        })
    })
}

/// The value of a parameter, unless it is a tensor map.
pub(super) fn value_of<'l>(param: &AbiParam, args: &'l [Arg<'_>], report_slot: &'l u64) -> Option<&'l u64> {
    let arg = |id: &ParamId| args.get(id.index());
    match param {
        // The variant was made for arguments of these kinds.
        AbiParam::Buffer(id) | AbiParam::Scalar(id, _) => arg(id).map(|arg| &arg.words()[0]),
        AbiParam::Length(id) => arg(id).map(|arg| &arg.words()[1]),
        AbiParam::ReportSlot => Some(report_slot),
        AbiParam::Shape(id, axis) => arg(id)?.as_tensor()?.shape().get(usize::from(*axis)),
        AbiParam::Stride(id, axis) => arg(id)?.as_tensor()?.strides().get(usize::from(*axis)),
        AbiParam::TensorMap(_) => None,
    }
}

/// Where the tensor map is that a parameter takes; `maps` keeps it if nobody else does.
fn map_of(kernel: &Kernel, param: &AbiParam, args: &[Arg<'_>], maps: &mut Maps) -> Result<*mut c_void> {
    let AbiParam::TensorMap(blocks) = param else { return Err(unknown_param(kernel, param)) };
    let tensor = args.get(blocks.param.index()).and_then(Arg::as_desc);
    let tensor = tensor.ok_or_else(|| unknown_param(kernel, param))?;
    match tensor.map(blocks)? {
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
/// As for `cuLaunchKernelEx`: `params` points to one value for each parameter of the function, and the stream is alive.
#[inline]
unsafe fn submit(
    plan: &Plan,
    [x, y, z]: [u32; 3],
    stream: StreamHandle,
    params: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // The kernel waits for the launches before it by itself, in every program.
    let mut early = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let (attrs, count) = if plan.begins_early() { (&raw mut early, 1) } else { (std::ptr::null_mut(), 0) };
    let config = sys::CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: plan.threads(),
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: plan.shared_bytes(),
        hStream: stream.get(),
        attrs,
        numAttrs: count,
    };
    // Without attributes this is what `cuLaunchKernel` does. The driver takes up to forty nanoseconds less for it.
    // SAFETY: promised by the caller; the function is alive as long as what was loaded, which the plan lies beside.
    unsafe { sys::cuLaunchKernelEx(&config, plan.function(), params.as_mut_ptr(), std::ptr::null_mut()) }.result()
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
        return wrap("cuLaunchKernelEx")(error);
    }
    let usage = ready.loaded.usage();
    Error::Resources {
        kernel: kernel.name().into(),
        what: format!("threads with {} registers each", usage.registers).into(),
        needed: ready.variant.artifact.code.threads().into(),
        limit: ready.loaded.max_threads().into(),
        hint: "use fewer warps or smaller tiles".into(),
    }
}
