//! Memory that others allocated: who has it.
//!
//! A buffer owns its memory: it orders all uses of it, and frees it. Two buffers over the same memory would know
//! nothing of each other, so that a launch could be given one as its input and the other as its output. The addresses
//! of all GPUs of a process are one space, so one list for the process is enough to refuse that when memory is wrapped,
//! and launches pay nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The claimed ranges by their first byte, each with the byte behind its last. They do not overlap.
static CLAIMED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Memory of others that a buffer of ours has; given up when dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    start: u64,
}

impl Claim {
    /// Claims bytes from `start` on; `None` if somebody has one of them. No bytes overlap nothing, and are had by
    /// nobody.
    pub(crate) fn new(start: u64, bytes: usize) -> Option<Claim> {
        let end = start.checked_add(bytes as u64)?;
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if start == end {
            return Some(Claim { start: u64::MAX });
        }
        // Ranges do not overlap, so only the last one that starts before our end can reach into ours.
        if claimed.range(..end).next_back().is_some_and(|(_, &other_end)| other_end > start) {
            return None;
        }
        claimed.insert(start, end);
        Some(Claim { start })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_one_owner_at_a_time() {
        // Nobody has memory at these addresses, so other tests do not interfere.
        let base = 7 << 60;
        let first = Claim::new(base + 100, 50).expect("free");
        for (start, bytes) in [(100, 50), (100, 1), (149, 1), (149, 100), (0, 101), (0, 1000), (120, 10)] {
            assert!(Claim::new(base + start, bytes).is_none(), "{bytes} bytes from {start}");
        }
        let before = Claim::new(base, 100).expect("up to the first");
        let behind = Claim::new(base + 150, 10).expect("right behind it");
        assert!(Claim::new(base + 99, 2).is_none() && Claim::new(base + 159, 1).is_none());
        drop(first);
        assert!(Claim::new(base + 100, 51).is_none(), "the one behind is still there");
        let again = Claim::new(base + 100, 50).expect("free again");
        drop((before, behind, again));
        assert!(Claim::new(base, 1000).is_some());
    }

    #[test]
    fn nothing_overlaps_no_bytes_and_no_range_wraps() {
        let base = 6 << 60;
        let some = Claim::new(base, 10).expect("free");
        let nothing = Claim::new(base + 5, 0);
        assert!(nothing.is_some());
        drop(nothing);
        assert!(Claim::new(base + 5, 1).is_none(), "dropping no bytes gives up no others");
        assert!(Claim::new(u64::MAX - 5, 10).is_none());
        drop(some);
    }
}
