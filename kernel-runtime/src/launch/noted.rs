//! What work launches, noted without launching it.
//!
//! ```text
//! let shapes = shapes_of(|| rows::softmax(&cx, &x).map(drop))?;    // what `softmax` would launch for such a tensor
//! ```
//!
//! A tuner looks so at work of several launches, a test at kernels of shapes that no CPU computes in reasonable time, and
//! whoever has to know of work before there is memory for it lends addresses of nothing.

use super::invocation::Invocation;
use super::shape::CallShape;
use crate::device::Device;
use crate::error::Result;
use crate::graph::capture;
use crate::watchers::{self, Watcher};
use std::cell::{Cell, RefCell};

thread_local! {
    static IS_ACTIVE: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Vec<CallShape>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread's launches are noted instead of made. Asked where [`watchers`] say that there is somebody.
#[inline]
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.get()
}

/// Notes a launch that has been checked.
#[cold]
pub(super) fn note(call: &Invocation<'_>, grid: [i64; 3], device: &Device) -> Result<()> {
    let shape = CallShape::of(call, grid)?.on_processors(device.multiprocessor_count());
    SEEN.with_borrow_mut(|seen| seen.push(shape));
    Ok(())
}

/// While it lives, this thread's launches are noted: it ends however work ends.
struct Noting;

impl Noting {
    fn begin() -> Noting {
        SEEN.take();
        IS_ACTIVE.set(true);
        watchers::come(Watcher::NotingThread);
        Noting
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        watchers::go(Watcher::NotingThread);
        IS_ACTIVE.set(false);
    }
}

/// The launches that `work` makes on this thread, none of which is made: arguments and options are checked, buffers stay as they
/// are. Everything else that it does, such as allocating and copying, happens, but to memory of somebody else
/// ([`Device::borrow`]): nothing is written there, and there may be none.
///
/// # Errors
///
/// Those of `work`, with [`Error::Unsupported`](crate::Error::Unsupported) where it reads memory of somebody else; the same
/// inside a capture and inside itself.
pub fn shapes_of(work: impl FnOnce() -> Result<()>) -> Result<Vec<CallShape>> {
    capture::refuse("looking at launches")?;
    if is_active() {
        return Err(crate::Error::Unsupported {
            what: "looking at launches of what looks at launches".into(),
            reason: "one at a time".into(),
        });
    }
    let noting = Noting::begin();
    let worked = work();
    drop(noting);
    let seen = SEEN.take();
    worked.map(|()| seen)
}
