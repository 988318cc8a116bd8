//! The devices that calls run on.

use crate::error::Result;
use crate::tensor::Place;
use std::cell::{Cell, RefCell};
use std::sync::{Mutex, PoisonError};
use tilewright::Device;

/// All GPUs with a stream that calls were for and that stays, for [`synchronize`].
static USED: Mutex<Vec<Device>> = Mutex::new(Vec::new());

thread_local! {
    /// The CPU, with errors of this thread's launches alone. They are done when they return.
    static CPU: Device = Device::cpu();
    /// The GPU and stream of this thread's last call, which are in the list.
    static LAST: Cell<Option<(u32, u64)>> = const { Cell::new(None) };
    /// The default streams of this thread alone, which are in the list as long as the thread lives.
    static OWN: RefCell<Own> = const { RefCell::new(Own(Vec::new())) };
}

struct Own(Vec<Device>);

impl Drop for Own {
    fn drop(&mut self) {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|one| !self.0.iter().any(|own| own.default_stream() == one.default_stream()));
    }
}

/// How long a stream of a framework is alive.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Lives {
    /// As long as the process, or as the framework's own memory.
    Long,
    /// At least as long as the call.
    ForTheCall,
}

/// The name of the default stream that each thread has for itself.
const PER_THREAD: u64 = 2;

/// The device of a place and, on a GPU, of a stream of the framework. Default streams, whose names are 0, 1 and [`PER_THREAD`],
/// live long.
///
/// # Errors
///
/// [`tilewright::Error::NoDriver`] and others, if the GPU cannot be used.
///
/// # Safety
///
/// `stream` is a stream of the GPU's primary context, or 0 for its default stream, and lives as long as `lives` says.
pub(crate) unsafe fn of(place: Place, stream: u64, lives: impl FnOnce() -> Lives) -> Result<Device> {
    let index = match place {
        // A thread that ends has no device of its own any more.
        Place::Cpu => return Ok(CPU.try_with(Device::clone).unwrap_or_else(|_| Device::cpu())),
        Place::Cuda(index) => index,
    };
    // SAFETY: the caller's promise.
    let device = unsafe { Device::of_stream(index as usize, stream) }?;
    if LAST.get() != Some((index, stream)) && (stream <= PER_THREAD || lives() == Lives::Long) {
        remember(&device, stream == PER_THREAD);
        LAST.set(Some((index, stream)));
    }
    Ok(device)
}

/// Puts a device into the list.
#[cold]
fn remember(device: &Device, of_thread: bool) {
    let is_it = |other: &Device| other.default_stream() == device.default_stream();
    // A thread that ends takes its streams out of the list, and so puts none in any more.
    let stays = !of_thread
        || OWN
            .try_with(|own| {
                let own = &mut own.borrow_mut().0;
                if !own.iter().any(is_it) {
                    own.push(device.clone());
                }
            })
            .is_ok();
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    if stays && !used.iter().any(is_it) {
        used.push(device.clone());
    }
}

/// Waits for all GPUs and streams that calls were for and that stay, and for graphs into which calls were captured.
///
/// # Errors
///
/// The oldest error of a launch that nobody has taken, of the first of them that has one.
pub(crate) fn synchronize() -> Result<()> {
    let devices = USED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(tilewright::synchronize_all(&devices)?)
}
