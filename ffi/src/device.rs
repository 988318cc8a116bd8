//! The devices that calls run on.

use crate::error::Result;
use crate::tensor::Place;
use std::cell::RefCell;
use std::sync::{Mutex, OnceLock, PoisonError};
use tilewright::Device;

/// All that were used, for [`synchronize`].
static USED: Mutex<Vec<Device>> = Mutex::new(Vec::new());

thread_local! {
    /// The one that this thread used last: most calls are for the same GPU and stream, and need no lock.
    static LAST: RefCell<Option<(u32, u64, Device)>> = const { RefCell::new(None) };
}

/// The device of a place and, on a GPU, of a stream of the framework.
///
/// # Errors
///
/// [`tilewright::Error::NoDriver`] and others, if the GPU cannot be used.
///
/// # Safety
///
/// `stream` is a stream of the GPU's primary context, or 0 for its default stream, and lives as long as work is given to it.
pub(crate) unsafe fn of(place: Place, stream: u64) -> Result<Device> {
    let index = match place {
        Place::Cpu => return Ok(cpu().clone()),
        Place::Cuda(index) => index,
    };
    let last = LAST.with_borrow(|last| match last {
        Some((of, on, device)) if (*of, *on) == (index, stream) => Some(device.clone()),
        _ => None,
    });
    if let Some(device) = last {
        return Ok(device);
    }
    // SAFETY: the caller's promise.
    let device = unsafe { Device::of_stream(index as usize, stream) }?;
    LAST.set(Some((index, stream, device.clone())));
    remember(&device);
    Ok(device)
}

/// The CPU. Its launches are done when they return.
fn cpu() -> &'static Device {
    static CPU: OnceLock<Device> = OnceLock::new();
    CPU.get_or_init(Device::cpu)
}

fn remember(device: &Device) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let stream = |device: &Device| device.default_stream().cudarc().map(|stream| stream.cu_stream() as usize);
    if !used.iter().any(|other| other == device && stream(other) == stream(device)) {
        used.push(device.clone());
    }
}

/// Waits for all devices and streams that calls have run on.
///
/// # Errors
///
/// The oldest error of a launch that nobody has taken, of the first of them that has one.
pub(crate) fn synchronize() -> Result<()> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for device in used {
        device.synchronize()?;
    }
    Ok(())
}
