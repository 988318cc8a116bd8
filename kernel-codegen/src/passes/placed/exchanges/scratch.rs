//! Shared memory for exchanges: where it is, and that nobody overwrites what another still reads.
//!
//! Every use writes, meets the other threads at a barrier, and reads. Before the *next* write to the same bytes all
//! reads must be over, which takes a second barrier, unless the next use takes other bytes: then the barrier
//! between its own writes and reads does for the one after it. So uses take turns between regions while
//! the memory for that is cheap, and barriers are as few as the uses.
//!
//! In a loop, what the iteration before still reads is not known when its first uses are placed. They are placed all
//! the same, and the places kept free of later uses; only if something is read there at the end of the iteration, a
//! barrier closes it.

use std::ops::Range;

use crate::analysis::exchange::ALIGNMENT;

/// Up to this many bytes, taking other memory is better than a barrier: four programs of that size fit every target.
const CHEAP_BYTES: u32 = 16 * 1024;

/// Which parts of the memory are still read.
#[derive(Clone, Default, Debug)]
pub(super) struct Scratch {
    /// Bytes below, which are allocations of the kernel's own that are live, up to where any access may begin.
    base: u32,
    /// Bytes below, which other warp groups pass things through at the same time.
    floor: u32,
    /// Where the highest use ends.
    end: u32,
    reads: Vec<Range<u32>>,
    /// Reads of an earlier iteration may be anywhere but in `early`.
    unknown_reads: bool,
    /// What uses have taken before the first barrier of the innermost loop's body; `None` if no use may do so, because
    /// reads of loops around it are not known either.
    early: Option<Vec<Range<u32>>>,
    /// What uses have accessed that tensor copies do not know of, and whether their threads have passed a fence since.
    unfenced: Vec<(Range<u32>, bool)>,
    uses: u32,
    high_water: u32,
    /// What there is: no memory beyond that is cheaper than a barrier.
    most: u32,
}

impl Scratch {
    /// Memory for exchanges beside `bytes` that the kernel itself allocates, of `most` altogether.
    pub(super) fn beside(bytes: u32, most: u32) -> Scratch {
        Scratch { high_water: bytes, most, ..Scratch::default() }
    }

    /// From here on the kernel's live allocations end at `base`. Those that are dead now may still be read.
    pub(super) fn rebase(&mut self, base: u32) {
        let base = base.max(self.floor);
        if base < self.base {
            self.reads.push(base..self.base);
        }
        // Allocations may end anywhere: an odd number of barriers of 8 bytes, say.
        self.base = base.next_multiple_of(ALIGNMENT);
    }

    /// From here on another warp group's code is placed, which runs beside those before.
    pub(super) fn beside_others(&mut self) {
        self.floor = self.floor.max(self.end);
    }

    /// Whether anybody may still read what was passed through these bytes.
    pub(super) fn is_read(&self, bytes: &Range<u32>) -> bool {
        self.reads.iter().any(|read| read.start < bytes.end && bytes.start < read.end)
    }

    /// Bytes above what is live that the program has in any case.
    pub(super) fn spare(&self) -> u32 {
        self.high_water - self.base.min(self.high_water)
    }

    /// Takes bytes for an exchange that will be written and read. Says where they begin, and whether all threads have
    /// to meet before.
    pub(super) fn take(&mut self, bytes: u32) -> (u32, bool) {
        let (start, meets) = match self.place(bytes) {
            Some(start) => (start, false),
            None => {
                self.settled();
                (self.base, true)
            }
        };
        self.uses += 1;
        self.end = self.end.max(start + bytes);
        self.unfenced.push((start..start + bytes, false));
        self.high_water = self.high_water.max((start + bytes).next_multiple_of(ALIGNMENT));
        (start, meets)
    }

    /// Notes that bytes are being read until the threads meet.
    pub(super) fn reading(&mut self, bytes: Range<u32>) {
        self.reads.push(bytes);
    }

    /// The number of uses so far.
    pub(super) fn uses(&self) -> u32 {
        self.uses
    }

    /// Whether a tensor copy into these bytes may overtake what uses do there.
    pub(super) fn is_unfenced(&self, bytes: &Range<u32>) -> bool {
        self.unfenced.iter().any(|(used, _)| meet(used, bytes))
    }

    /// All threads have passed a proxy fence, which tensor copies behind the next barrier know of.
    pub(super) fn fenced(&mut self) {
        self.unfenced.iter_mut().for_each(|(_, fenced)| *fenced = true);
    }

    /// All threads have met: nobody reads.
    pub(super) fn settled(&mut self) {
        self.reads.clear();
        self.unknown_reads = false;
        self.unfenced.retain(|(_, fenced)| !fenced);
    }

    /// Begins the body of a loop; gives what [`Scratch::leave_body`] is given.
    pub(super) fn enter_loop(&mut self) -> Option<Vec<Range<u32>>> {
        let around = self.early.take();
        self.early = (!self.unknown_reads).then(Vec::new);
        self.unknown_reads = true;
        around
    }

    /// Whether what is read at the end of an iteration is in the way of the next one.
    pub(super) fn blocks_next_iteration(&self) -> bool {
        let early = self.early.iter().flatten();
        early.into_iter().any(|early| self.reads.iter().any(|read| meet(early, read)))
    }

    /// Ends the body of a loop.
    pub(super) fn leave_body(&mut self, around: Option<Vec<Range<u32>>>) {
        self.early = around;
    }

    /// Back to what was read at `before`; the sizes stay.
    pub(super) fn rewind(&mut self, before: &Scratch) {
        self.base = before.base;
        self.reads.clone_from(&before.reads);
        self.unfenced.clone_from(&before.unfenced);
        self.unknown_reads = before.unknown_reads;
    }

    /// What is read where two ways meet.
    pub(super) fn join(&mut self, other: &Scratch) {
        self.reads.extend(other.reads.iter().cloned());
        self.unfenced.extend(other.unfenced.iter().cloned());
        self.unknown_reads |= other.unknown_reads;
    }

    /// A low place for `bytes` that nobody reads; `None` if a barrier is needed first.
    fn place(&mut self, bytes: u32) -> Option<u32> {
        if self.unknown_reads && self.early.is_none() {
            return None;
        }
        let limit = self.high_water.max((self.base + CHEAP_BYTES).min(self.most));
        let early = self.early.as_deref().unwrap_or_default();
        let free = |start: &u32, taken: &[Range<u32>]| !taken.iter().any(|taken| meet(taken, &(*start..start + bytes)));
        let ends = self.reads.iter().chain(early).map(|taken| taken.end.next_multiple_of(ALIGNMENT));
        // What is read may end below what is live by now.
        let above = ends.filter(|end| *end > self.base).chain([self.base]);
        let mut starts: Vec<u32> = above.filter(|start| free(start, &self.reads)).collect();
        starts.sort_unstable();
        // Places of early uses are left to those of the next iteration, if others are cheap.
        let apart = starts.iter().find(|start| free(start, early) && *start + bytes <= limit);
        if self.unknown_reads {
            let start = *apart?;
            self.early.get_or_insert_default().push(start..start + bytes);
            return Some(start);
        }
        let start = *apart.or(starts.first())?;
        (self.reads.is_empty() || start + bytes <= limit).then_some(start)
    }
}

/// Whether ranges have a byte in common.
fn meet(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocations that are dead may still be read, and end in the middle of what is live later.
    #[test]
    fn what_is_passed_lies_above_what_is_live() {
        for in_loop in [false, true] {
            let mut scratch = Scratch::beside(3072, 64 * 1024);
            for live in [2048, 8, 3072] {
                scratch.rebase(live);
            }
            if in_loop {
                scratch.enter_loop();
            }
            let start = scratch.place(512);
            assert!(start.is_some_and(|start| start >= 3072), "{start:?}");
        }
    }

    /// Where little is left, a barrier is put and the same bytes are used again.
    #[test]
    fn turns_stay_within_what_there_is() {
        let mut scratch = Scratch::beside(60 * 1024, 64 * 1024);
        scratch.rebase(60 * 1024);
        for (bytes, meets) in [(3072, false), (3072, true), (1024, false)] {
            let (start, met) = scratch.take(bytes);
            assert_eq!(met, meets, "{bytes}");
            assert!(start >= 60 * 1024 && start + bytes <= 64 * 1024, "{start}");
            scratch.settled();
            scratch.reading(start..start + bytes);
        }
    }
}
