//! Places in a program's shared memory.

use crate::layout::SyncScope;

/// Bytes of a program's shared memory, and who meets where before and after they are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedRange {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
    /// Who meets between the writes and the reads of an exchange: all threads, or those of each warp.
    pub scope: SyncScope,
    /// Into how many parts an exchange is cut, as its bytes have room for one at a time: each is written and read before
    /// the next.
    pub passes: u32,
    /// Whether all threads meet before they write, too, as some may still read what was there.
    pub meets: bool,
}

impl SharedRange {
    /// The bytes from `start` up to `end`.
    pub fn new(start: u32, end: u32) -> SharedRange {
        SharedRange { start, end, scope: SyncScope::Block, passes: 1, meets: false }
    }

    /// How many bytes there are.
    pub fn bytes(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// How often all threads meet in an exchange.
    pub fn meetings(self) -> u32 {
        let inside = if self.scope == SyncScope::Block { 2 * self.passes.max(1) - 1 } else { 0 };
        u32::from(self.meets) + inside
    }
}
