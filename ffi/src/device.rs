//! The devices that calls run on.

use crate::error::Result;
use crate::tensor::Place;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use tilewright::Device;

/// All GPUs with a stream that calls were for and that stays, for [`synchronize`].
static USED: Mutex<Vec<(u32, u64, Device)>> = Mutex::new(Vec::new());

thread_local! {
    /// The CPU, with errors of this thread's launches alone. They are done when they return.
    static CPU: Device = Device::cpu();
    /// The GPU and stream of this thread's last call, which are in the list.
    static LAST: Cell<Option<(u32, u64)>> = const { Cell::new(None) };
}

/// How long a stream of a framework is alive.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lives {
    /// As long as the process, or as the framework's own memory.
    Long,
    /// At least as long as the call.
    ForTheCall,
}

/// The last name of a stream that always is: those of default streams are 0, 1 and 2.
const LAST_DEFAULT: u64 = 2;

/// The device of a place and, on a GPU, of a stream of the framework.
///
/// # Errors
///
/// [`tilewright::Error::NoDriver`] and others, if the GPU cannot be used.
///
/// # Safety
///
/// `stream` is a stream of the GPU's primary context, or 0 for its default stream, and lives as long as it is said.
pub(crate) unsafe fn of(place: Place, stream: u64, lives: Lives) -> Result<Device> {
    let index = match place {
        // A thread that ends has no device of its own any more.
        Place::Cpu => return Ok(CPU.try_with(Device::clone).unwrap_or_else(|_| Device::cpu())),
        Place::Cuda(index) => index,
    };
    // SAFETY: the caller's promise.
    let device = unsafe { Device::of_stream(index as usize, stream) }?;
    let stays = lives == Lives::Long || stream <= LAST_DEFAULT;
    if stays && LAST.replace(Some((index, stream))) != Some((index, stream)) {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.iter().any(|(of, on, _)| (*of, *on) == (index, stream)) {
            used.push((index, stream, device.clone()));
        }
    }
    Ok(device)
}

/// Waits for all GPUs and streams that calls were for and that stay, and for graphs into which calls were captured.
///
/// # Errors
///
/// The oldest error of a launch that nobody has taken, of the first of them that has one.
pub(crate) fn synchronize() -> Result<()> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let devices: Vec<Device> = used.iter().map(|(_, _, device)| device.clone()).collect();
    drop(used);
    Ok(tilewright::synchronize_all(&devices)?)
}
