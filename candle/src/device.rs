//! Devices and contexts of Tilewright for devices of candle.

use crate::memory::cuda;
use candle_core::{Device, DeviceLocation, Error, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tilewright_kernels::{Context, Table};

thread_local! {
    /// The CPU. Launches there are done when they return, and each thread has errors of its own.
    static CPU: tilewright::Device = tilewright::Device::cpu();
    /// The contexts of a thread by the names of their streams, and how many tables had been set when they were made. candle's
    /// default device of a GPU has a stream for each thread, of one name.
    static KNOWN: RefCell<(usize, Vec<(cuda::Name, Context)>)> = const { RefCell::new((0, Vec::new())) };
}

/// The table that comes before the library's.
static TABLE: Mutex<Option<Table>> = Mutex::new(None);
/// How many were set.
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// Tilewright's device for one of candle's: the CPU, or the same context and stream of a GPU. After the first call for a
/// device it is looked up.
///
/// Launches there are in order with candle's. Those on the CPU are done when they return.
///
/// ```
/// # fn main() -> candle_core::Result<()> {
/// let device = tilewright_candle::device(&candle_core::Device::Cpu)?;
/// assert!(!device.is_cuda());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the device is Metal's, or the GPU's driver is too old.
pub fn device(device: &Device) -> Result<tilewright::Device> {
    Ok(context(device)?.device().clone())
}

/// The context of the library's functions for one of candle's devices.
///
/// # Errors
///
/// As [`device`].
pub fn context(device: &Device) -> Result<Context> {
    match device {
        Device::Cpu => on_cpu(),
        Device::Cuda(device) => on_gpu(&cuda::stream(device)),
        Device::Metal(_) => Err(Error::Msg("Tilewright does not run on Metal; use a CUDA device or the CPU".into())),
    }
}

pub(crate) fn on_cpu() -> Result<Context> {
    known(cuda::Name::CPU, || Ok(CPU.with(tilewright::Device::clone)))
}

pub(crate) fn on_gpu(stream: &cuda::Stream) -> Result<Context> {
    known(cuda::name(stream), || cuda::device(stream))
}

/// The context of a stream with this name, made if this thread has none. A context keeps its stream, so that no other one has the
/// name meanwhile.
fn known(name: cuda::Name, device: impl FnOnce() -> Result<tilewright::Device>) -> Result<Context> {
    KNOWN.with_borrow_mut(|(tables, known)| {
        let set = TABLES.load(Ordering::Acquire);
        if *tables != set {
            known.clear();
            *tables = set;
        }
        if let Some((_, context)) = known.iter().find(|(own, _)| *own == name) {
            return Ok(context.clone());
        }
        let context = made(&device()?);
        known.retain(|(_, context)| !cuda::is_gone(context));
        known.push((name, context.clone()));
        Ok(context)
    })
}

fn made(device: &tilewright::Device) -> Context {
    match &*TABLE.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(table) => Context::new(device).with_table(table.clone()),
        None => Context::new(device),
    }
}

/// Configurations of this table are taken before those that the library chooses, by all ops from now on: what
/// [`tilewright_kernels::tuning`] has found on GPUs, each of which has rows of its own.
pub fn set_table(table: Table) {
    *TABLE.lock().unwrap_or_else(PoisonError::into_inner) = Some(table);
    TABLES.fetch_add(1, Ordering::AcqRel);
}

/// Waits for what was launched on the device, and gives the oldest error of a launch that nobody has been told. An error that
/// is known earlier is given by the next op on the device.
///
/// # Errors
///
/// Those of launches, and as [`device`].
pub fn synchronize(device: &Device) -> Result<()> {
    self::device(device)?.synchronize().map_err(Error::wrap)
}

/// A device's name for messages.
pub(crate) fn name(location: DeviceLocation) -> String {
    match location {
        DeviceLocation::Cpu => "the CPU".into(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
    }
}
