//! The devices that calls run on.

use crate::error::Result;
use crate::tensor::Place;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use tilewright::Device;

/// All GPUs with a stream that calls were for, for [`synchronize`].
static USED: Mutex<Vec<(u32, u64, Device)>> = Mutex::new(Vec::new());

thread_local! {
    /// The CPU, with errors of this thread's launches alone. They are done when they return.
    static CPU: Device = Device::cpu();
    /// The GPU and stream of this thread's last call, which are in the list.
    static LAST: Cell<Option<(u32, u64)>> = const { Cell::new(None) };
}

/// The device of a place and, on a GPU, of a stream of the framework.
///
/// # Errors
///
/// [`tilewright::Error::NoDriver`] and others, if the GPU cannot be used.
///
/// # Safety
///
/// `stream` is a stream of the GPU's primary context, or 0 for its default stream, and stays.
pub(crate) unsafe fn of(place: Place, stream: u64) -> Result<Device> {
    let index = match place {
        // A thread that ends has no device of its own any more.
        Place::Cpu => return Ok(CPU.try_with(Device::clone).unwrap_or_else(|_| Device::cpu())),
        Place::Cuda(index) => index,
    };
    // SAFETY: the caller's promise.
    let device = unsafe { Device::of_stream(index as usize, stream) }?;
    if LAST.replace(Some((index, stream))) != Some((index, stream)) {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.iter().any(|(of, on, _)| (*of, *on) == (index, stream)) {
            used.push((index, stream, device.clone()));
        }
    }
    Ok(device)
}

/// Waits for all GPUs and streams that calls were for.
///
/// # Errors
///
/// The oldest error of a launch that nobody has taken, of the first of them that has one.
pub(crate) fn synchronize() -> Result<()> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (_, _, device) in used {
        device.synchronize()?;
    }
    Ok(())
}
