//! Which launches the bytes of buffers depend on, of those that have failed or may yet prove to have.
//!
//! ```text
//! buffer 7:  0..400 launch 12,  0..200 launch 15
//! ```
//!
//! Overlapping and adjacent parts of one launch are joined, so that the list stays short.

use super::BufferId;
use crate::report_slot::LaunchId;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Parts of a buffer with gaps between them that are kept for one launch. If there are more, the bytes between them are
/// taken to depend on the launch too.
const PARTS: usize = 64;

/// Launches, the oldest first.
pub(super) type Launches = SmallVec<[LaunchId; 8]>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Taint {
    launch: LaunchId,
    range: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Taints {
    /// By launch, then by range. No list is empty.
    buffers: BTreeMap<BufferId, Vec<Taint>>,
}

impl Taints {
    pub(super) const fn new() -> Self {
        Taints { buffers: BTreeMap::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The bytes depend on the launch.
    pub(super) fn add(&mut self, buffer: BufferId, range: Range<usize>, launch: LaunchId) {
        if range.is_empty() {
            return;
        }
        let list = self.buffers.entry(buffer).or_default();
        let first = list.partition_point(|taint| taint.launch < launch);
        let count = list[first..].partition_point(|taint| taint.launch == launch);
        let own = &list[first..first + count];
        // Those that the new one touches are one with it.
        let low = first + own.partition_point(|taint| taint.range.end < range.start);
        let high = first + own.partition_point(|taint| taint.range.start <= range.end);
        let (mut start, mut end) = (range.start, range.end);
        if low < high {
            start = start.min(list[low].range.start);
            end = end.max(list[high - 1].range.end);
        }
        list.splice(low..high, [Taint { launch, range: start..end }]);
        let count = count + 1 - (high - low);
        if count > PARTS {
            let hull = list[first].range.start..list[first + count - 1].range.end;
            list.splice(first..first + count, [Taint { launch, range: hull }]);
        }
    }

    /// Adds the launches that these bytes depend on to `launches`, which may hold some twice then.
    pub(super) fn collect(&self, buffer: BufferId, range: &Range<usize>, launches: &mut Launches) {
        let list = self.buffers.get(&buffer).map_or(&[][..], Vec::as_slice);
        let overlaps = |taint: &&Taint| taint.range.start < range.end && range.start < taint.range.end;
        launches.extend(list.iter().filter(overlaps).map(|taint| taint.launch));
    }

    /// Bytes `from` of a buffer are copied to another, from `start` on.
    pub(super) fn copy(&mut self, buffer: BufferId, from: &Range<usize>, to: BufferId, start: usize) {
        let list = self.buffers.get(&buffer).map_or(&[][..], Vec::as_slice);
        let shifted = |taint: &Taint| {
            let (low, high) = (taint.range.start.max(from.start), taint.range.end.min(from.end));
            (low < high).then(|| Taint { range: low - from.start + start..high - from.start + start, ..*taint })
        };
        let copied: Vec<Taint> = list.iter().filter_map(shifted).collect();
        for Taint { launch, range } in copied {
            self.add(to, range, launch);
        }
    }

    /// The contents of the buffer are gone.
    pub(super) fn remove(&mut self, buffer: BufferId) {
        self.buffers.remove(&buffer);
    }

    /// Keeps what depends on launches that are `live`.
    pub(super) fn retain(&mut self, live: impl Fn(LaunchId) -> bool) {
        self.buffers.retain(|_, list| {
            list.retain(|taint| live(taint.launch));
            !list.is_empty()
        });
    }

    /// Whether something depends on the launch.
    pub(super) fn has(&self, launch: LaunchId) -> bool {
        self.buffers.values().any(|list| list.binary_search_by_key(&launch, |taint| taint.launch).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(taints: &Taints, buffer: BufferId) -> Vec<(usize, usize)> {
        taints
            .buffers
            .get(&buffer)
            .map_or(Vec::new(), |list| list.iter().map(|taint| (taint.range.start, taint.range.end)).collect())
    }

    #[test]
    fn parts_that_touch_are_joined() {
        let (mut taints, buffer, launch) = (Taints::new(), BufferId::next(), LaunchId::next());
        for range in [10..20, 40..50, 60..70, 0..5] {
            taints.add(buffer, range, launch);
        }
        assert_eq!(ranges(&taints, buffer), [(0, 5), (10, 20), (40, 50), (60, 70)]);
        taints.add(buffer, 20..41, launch);
        assert_eq!(ranges(&taints, buffer), [(0, 5), (10, 50), (60, 70)]);
        taints.add(buffer, 12..13, launch);
        assert_eq!(ranges(&taints, buffer), [(0, 5), (10, 50), (60, 70)]);
        taints.add(buffer, 7..7, launch);
        taints.add(buffer, 1..100, launch);
        assert_eq!(ranges(&taints, buffer), [(0, 100)]);
    }

    #[test]
    fn launches_are_told_apart_by_bytes() {
        let (mut taints, buffer) = (Taints::new(), BufferId::next());
        let [a, b, c] = [(); 3].map(|()| LaunchId::next());
        taints.add(buffer, 0..10, b);
        taints.add(buffer, 5..15, a);
        taints.add(buffer, 20..30, c);
        let of = |taints: &Taints, range: Range<usize>| {
            let mut launches = Launches::new();
            taints.collect(buffer, &range, &mut launches);
            launches.into_vec()
        };
        assert_eq!(of(&taints, 0..5), [b]);
        assert_eq!(of(&taints, 0..30), [a, b, c]);
        assert_eq!(of(&taints, 15..20), []);
        taints.retain(|launch| launch != b);
        assert_eq!(of(&taints, 0..30), [a, c]);
        assert!(taints.has(a) && !taints.has(b));
        taints.remove(buffer);
        assert!(taints.is_empty() && !taints.has(a));
    }

    #[test]
    fn copies_are_of_bytes() {
        let mut taints = Taints::new();
        let ([from, to], launch) = ([(); 2].map(|()| BufferId::next()), LaunchId::next());
        taints.add(from, 10..20, launch);
        taints.add(from, 40..50, launch);
        taints.copy(from, &(15..45), to, 100);
        assert_eq!(ranges(&taints, to), [(100, 105), (125, 130)]);
        taints.copy(from, &(20..40), to, 0);
        assert_eq!(ranges(&taints, to).len(), 2);
        taints.copy(to, &(100..105), to, 0);
        assert_eq!(ranges(&taints, to), [(0, 5), (100, 105), (125, 130)]);
    }

    #[test]
    fn many_parts_become_one_that_covers_them() {
        let (mut taints, buffer, launch) = (Taints::new(), BufferId::next(), LaunchId::next());
        for index in 0..=PARTS {
            taints.add(buffer, 10 * index..10 * index + 1, launch);
        }
        assert_eq!(ranges(&taints, buffer), [(0, 10 * PARTS + 1)]);
    }
}
