//! Memory whose buffer has dropped while somebody else captured a stream that has used it.
//!
//! A free would become a part of the graph, and so would the order behind what other streams have done. So the memory is put
//! aside, and freed when a buffer is allocated or freed after the capture.

use crate::context::CudaMemory;
use crate::error::Result;
use crate::tracking::Tracking;
use crate::transfer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of a buffer that has dropped.
struct Unused {
    memory: Arc<CudaMemory>,
    address: u64,
    tracking: Tracking,
    /// The capture in which it was allocated.
    capture: Option<u64>,
}

static LATER: Mutex<Vec<Unused>> = Mutex::new(Vec::new());
/// Whether there is any, for those who look without the lock.
static IS_THERE: AtomicBool = AtomicBool::new(false);

impl Unused {
    /// Whether the driver would capture the free, of memory that it does not know in that graph.
    fn is_captured(&self) -> bool {
        self.tracking.is_captured(self.capture)
    }

    /// Frees the memory once all that uses it is done.
    fn free(self) -> Result<()> {
        let stream = match self.tracking.finish() {
            Ok(stream) => stream,
            // An event could not be made; waiting for everything needs none.
            Err(_) => {
                self.memory.synchronize()?;
                self.tracking.home()
            }
        };
        match stream.cuda_stream() {
            // SAFETY: the address is an allocation of this context, and all other streams' uses come before this point.
            Some(cudarc) => unsafe { self.memory.free(self.address, cudarc) },
            None => Err(transfer::mismatch(&stream)),
        }
    }
}

/// Frees memory, and what was put aside before, or puts it aside.
///
/// # Safety
///
/// `address` came from `alloc` of this context, all its uses are in `tracking`, and nobody uses it from here on.
pub(crate) unsafe fn free_now_or_later(
    memory: &Arc<CudaMemory>,
    address: u64,
    tracking: Tracking,
    capture: Option<u64>,
) -> Result<()> {
    let unused = Unused { memory: memory.clone(), address, tracking, capture };
    if unused.is_captured() {
        put_aside([unused]);
        return Ok(());
    }
    let freed = unused.free();
    free();
    freed
}

fn put_aside(unused: impl IntoIterator<Item = Unused>) {
    let mut later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    later.extend(unused);
    IS_THERE.store(!later.is_empty(), Ordering::Release);
}

/// Frees what was put aside and is part of no capture any more.
#[inline]
pub(crate) fn free() {
    if IS_THERE.load(Ordering::Acquire) {
        free_all();
    }
}

#[cold]
fn free_all() {
    // Streams drop with the memory, which the list is not locked for.
    let all = std::mem::take(&mut *LATER.lock().unwrap_or_else(PoisonError::into_inner));
    let (captured, unused): (Vec<_>, Vec<_>) = all.into_iter().partition(Unused::is_captured);
    put_aside(captured);
    for unused in unused {
        let memory = unused.memory.clone();
        // Whoever allocates has a context current, which may be another one.
        if let Err(error) = memory.within(|| unused.free()) {
            log::debug!("memory that was put aside stays allocated: {error}");
        }
    }
}
