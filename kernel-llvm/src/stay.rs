//! What keeps a process that ends from taking LLVM away from threads that still use it.
//!
//! When `main` returns, or somebody calls `exit`, destructors of LLVM's own globals run while other threads go on. A thread
//! that compiles would read what is gone, which ends the process with a signal. So whoever uses LLVM stays inside a
//! [`Stay`], and the end of the process waits for those who do, as long as a compilation may take. Who comes later waits for
//! the end.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than LLVM takes for any kernel. A process that hangs would be worse than one that crashes.
const LIMIT: Duration = Duration::from_secs(20);

static USERS: Users = Users { state: Mutex::new(State { inside: 0, ended: 0, ends: false }), changed: Condvar::new() };

/// Uses of LLVM after each of which the end is watched anew.
const FIRST: u64 = 16;

struct Users {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many uses of LLVM there are.
    inside: usize,
    /// How many there have been.
    ended: u64,
    /// Whether the process is ending.
    ends: bool,
}

thread_local! {
    /// Those of this thread.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, LLVM is not taken away.
#[must_use = "LLVM may be gone as soon as it is dropped"]
pub struct Stay {
    /// It counts for the thread that has made it.
    thread: PhantomData<*const ()>,
}

/// Keeps LLVM from being taken away. If the process is already ending, this never returns.
pub fn stay() -> Stay {
    let mut state = USERS.state.lock().unwrap_or_else(PoisonError::into_inner);
    while state.ends && OWN.get() == 0 {
        state = USERS.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.inside += 1;
    OWN.set(OWN.get() + 1);
    Stay { thread: PhantomData }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut state = USERS.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside -= 1;
        state.ended += 1;
        OWN.set(OWN.get() - 1);
        USERS.changed.notify_all();
        let ended = state.ended;
        drop(state);
        // LLVM makes most of its globals when it first needs them, and registers their destructors then.
        if ended <= FIRST || ended.is_power_of_two() {
            watch_the_end();
        }
    }
}

/// Has the end of the process wait, before the destructors that have been registered so far: what is registered later runs
/// earlier.
fn watch_the_end() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    // SAFETY: C's own function, and one that it may call at the end. If it has no room, nothing waits.
    let _ = unsafe { atexit(wait_for_users) };
}

extern "C" fn wait_for_users() {
    let until = Instant::now() + LIMIT;
    let mut state = USERS.state.lock().unwrap_or_else(PoisonError::into_inner);
    // It has been registered several times, and the first call has waited as long as anybody should.
    if std::mem::replace(&mut state.ends, true) {
        return;
    }
    // Whoever ends the process from inside LLVM does not wait for itself.
    while state.inside > OWN.get() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        state = USERS.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
