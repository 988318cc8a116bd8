//! Who looks at launches. Usually nobody does, which a launch sees by one look at one number.
//!
//! | who | what it does with launches | where |
//! |---|---|---|
//! | a profiler that takes ranges | has a range around each | `profile/observed.rs` |
//! | a profile of this program | has the times of each | `profile/observed.rs` |
//! | a tuner, or a test, on its own thread | notes them instead of making them | `launch/noted.rs` |

use std::sync::atomic::{AtomicU32, Ordering};

/// One who looks on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Watcher {
    /// Nobody has asked yet whether there is a profiler, so there may be one.
    MaybeProfiler = 1,
    /// A profiler.
    Profiler = 2,
    /// A profile: one at a time in a process.
    Profile = 4,
    /// A thread whose launches are noted. There may be several of these: they count upwards from here.
    NotingThread = 8,
}

/// The sum of those who look on.
static WATCHERS: AtomicU32 = AtomicU32::new(Watcher::MaybeProfiler as u32);

/// Whether anybody looks at launches, or may. What a thread has begun itself it sees at once.
#[inline(always)]
pub(crate) fn is_anybody_there() -> bool {
    WATCHERS.load(Ordering::Relaxed) != 0
}

/// Whether one who is there once at most looks on.
pub(crate) fn is_there(watcher: Watcher) -> bool {
    debug_assert_ne!(watcher, Watcher::NotingThread, "each thread knows that of itself");
    WATCHERS.load(Ordering::Relaxed) & watcher as u32 != 0
}

/// Somebody looks on from here on. Only threads that note launches may come several times.
pub(crate) fn come(watcher: Watcher) {
    match watcher {
        Watcher::NotingThread => WATCHERS.fetch_add(watcher as u32, Ordering::Relaxed),
        Watcher::MaybeProfiler | Watcher::Profiler | Watcher::Profile => {
            WATCHERS.fetch_or(watcher as u32, Ordering::Relaxed)
        }
    };
}

/// Somebody who came goes.
pub(crate) fn go(watcher: Watcher) {
    match watcher {
        Watcher::NotingThread => WATCHERS.fetch_sub(watcher as u32, Ordering::Relaxed),
        Watcher::MaybeProfiler | Watcher::Profiler | Watcher::Profile => {
            WATCHERS.fetch_and(!(watcher as u32), Ordering::Relaxed)
        }
    };
}
