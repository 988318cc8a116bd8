//! What keeps others from coming between a thread's check of a buffer and its use.
//!
//! A use of a buffer has two steps: it is ordered after earlier uses, then it is given to a
//! stream. Between them nobody else may write the buffer. For launches and copies on whole buffers the borrow
//! checker sees to that. Two others can come between: the replay of a graph, which holds buffers without
//! borrowing them, and a use of another part of the buffer, since the parts share one record. So
//! whoever uses a buffer that *some* graph holds, or that was split, enters its gate for both steps. Buffers of which
//! neither was ever true, which are nearly all, pay one load.
//!
//! The gate is shut before it can matter: a buffer joins a graph while it is borrowed for the
//! launch that is recorded, and a use that conflicts with what the launch does to it needs a borrow
//! that comes later; a buffer is split by whoever has it alone.

use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The gate of one buffer's memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Gate {
    inside: Mutex<()>,
    is_shut: AtomicBool,
}

/// Those who hold this are alone with the memory behind the gates.
pub(crate) type Entered<'g> = SmallVec<[MutexGuard<'g, ()>; 4]>;

impl Gate {
    /// From now on everybody has to enter.
    pub(crate) fn shut(&self) {
        // Whoever must see this comes later by a borrow of the buffer, which orders the accesses.
        self.is_shut.store(true, Ordering::Relaxed);
    }

    /// Whether one has to enter.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }
}

/// Enters the gates that are shut, in an order on which all threads agree.
pub(crate) fn enter<'g>(gates: impl IntoIterator<Item = &'g Gate>) -> Entered<'g> {
    let mut shut: SmallVec<[&Gate; 8]> = gates.into_iter().filter(|gate| gate.is_shut()).collect();
    shut.sort_unstable_by_key(|gate| std::ptr::from_ref(*gate).addr());
    shut.dedup_by(|a, b| std::ptr::eq(*a, *b));
    // Nothing is left half-done by a panic behind a gate.
    shut.into_iter().map(|gate| gate.inside.lock().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn open_gates_are_passed_by() {
        let (open, shut) = (Gate::default(), Gate::default());
        shut.shut();
        assert_eq!(enter([&open, &open]).len(), 0);
        assert_eq!(enter([&open, &shut, &shut]).len(), 1, "a gate is entered once");
    }

    #[test]
    fn threads_that_enter_the_same_gates_in_any_order_are_alone() {
        let gates: [Gate; 3] = Default::default();
        gates.iter().for_each(Gate::shut);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gates, inside) = (&gates, &inside);
                scope.spawn(move || {
                    for round in 0..200 {
                        let (a, b) = ((thread + round) % 3, (thread + 2 * round + 1) % 3);
                        let _entered = enter([&gates[a], &gates[b], &gates[2]]);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
