//! Who has touched which bytes last, to find operations that touch the same ones, one of them writing, and that nothing
//! orders.

use super::work::Point;
use std::collections::BTreeMap;
use std::ops::Range;

/// A touch: where it stands in the order that was asked for, and the call that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    line: usize,
    count: u64,
    call: u64,
}

impl Stamp {
    fn of(point: &Point) -> Stamp {
        let (line, count) = point.place();
        Stamp { line, count, call: point.call }
    }

    fn is_before(&self, point: &Point) -> bool {
        point.has_passed(self.line, self.count)
    }
}

/// Bytes that were touched alike.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Span {
    end: u64,
    writer: Option<Stamp>,
    /// Those who have read since, the last on each line.
    readers: Vec<Stamp>,
}

/// The bytes of an allocation, by where spans begin.
#[derive(Default)]
pub(crate) struct Shadow(BTreeMap<u64, Span>);

impl Shadow {
    /// Notes a touch. Gives the call of an operation that may touch the bytes at the same time.
    pub(super) fn touch(&mut self, range: Range<u64>, point: &Point, writes: bool) -> Option<u64> {
        self.cut(range.start);
        self.cut(range.end);
        let spans = self.0.range(range.clone()).map(|(_, span)| span);
        let others = spans.flat_map(|span| span.writer.iter().chain(span.readers.iter().filter(|_| writes)));
        let conflict = others.filter(|other| !other.is_before(point)).map(|other| other.call).next();
        let stamp = Stamp::of(point);
        if writes {
            let old: Vec<u64> = self.0.range(range.clone()).map(|(start, _)| *start).collect();
            old.iter().for_each(|start| drop(self.0.remove(start)));
            self.0.insert(range.start, Span { end: range.end, writer: Some(stamp), readers: Vec::new() });
            return conflict;
        }
        let mut gaps = Vec::new();
        let mut next = range.start;
        for (start, span) in self.0.range_mut(range.clone()) {
            if *start > next {
                gaps.push((next, *start));
            }
            next = span.end;
            match span.readers.iter_mut().find(|reader| reader.line == stamp.line) {
                Some(reader) => *reader = stamp,
                None => span.readers.push(stamp),
            }
        }
        if next < range.end {
            gaps.push((next, range.end));
        }
        for (start, end) in gaps {
            self.0.insert(start, Span { end, writer: None, readers: vec![stamp] });
        }
        conflict
    }

    /// Lets a span begin at a byte, if one goes across it.
    fn cut(&mut self, at: u64) {
        if let Some((_, span)) = self.0.range_mut(..at).next_back()
            && span.end > at
        {
            let rest = span.clone();
            span.end = at;
            self.0.insert(at, rest);
        }
    }
}

/// Bytes of a chunk: as many as a word has bits, squared.
const CHUNK: u64 = 4096;

/// The bytes that a kernel has touched: of each chunk, those that it read and those that it wrote.
#[derive(Default)]
pub(crate) struct Touched(BTreeMap<u64, [[u64; 64]; 2]>);

impl Touched {
    pub(super) fn add(&mut self, address: u64, len: usize, writes: bool) {
        // An access is aligned to its length, so that it lies in one word.
        let chunk = self.0.entry(address / CHUNK).or_insert([[0; 64]; 2]);
        let (word, bit) = ((address % CHUNK / 64) as usize, address % 64);
        let mask = if len >= 64 { u64::MAX } else { ((1 << len) - 1) << bit };
        chunk[usize::from(writes)][word] |= mask;
    }

    /// The ranges of bytes that were read, or written.
    pub(super) fn ranges(&self, writes: bool) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (chunk, sets) in &self.0 {
            for (index, word) in (0u64..).zip(&sets[usize::from(writes)]) {
                let mut left = *word;
                while left != 0 {
                    let (from, base) = (u64::from(left.trailing_zeros()), chunk * CHUNK + 64 * index);
                    let run = u64::from((left >> from).trailing_ones());
                    left &= if from + run == 64 { 0 } else { u64::MAX << (from + run) };
                    match found.last_mut() {
                        Some(last) if last.end == base + from => last.end += run,
                        _ => found.push(base + from..base + from + run),
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::Action;
    use super::super::work::Work;
    use super::*;

    #[test]
    fn what_nothing_orders_is_found() {
        let mut work = Work::new();
        let (first, second) = (work.new_line(), work.new_line());
        let a = work.submit(10, first, &[], Action::Marker);
        let b = work.submit(11, second, &[], Action::Marker);
        let c = work.submit(12, second, &[a.clone(), b.clone()], Action::Marker);
        let mut shadow = Shadow::default();
        assert_eq!(shadow.touch(0..8, &a, true), None);
        assert_eq!(shadow.touch(8..16, &b, true), None, "other bytes");
        assert_eq!(shadow.touch(16..20, &b, false), None, "nobody has touched them");
        assert_eq!(shadow.touch(16..24, &a, false), None, "both read");
        assert_eq!(shadow.touch(7..8, &b, false), Some(10));
        assert_eq!(shadow.touch(4..12, &c, true), None);
        assert_eq!(shadow.touch(12..13, &a, true), Some(11));
        assert_eq!(shadow.touch(18..19, &b, true), Some(10), "it is read by the other");
        assert_eq!(shadow.touch(0..24, &work.submit(13, second, &[c], Action::Marker), true), None);
    }

    #[test]
    fn touched_bytes_are_ranges() {
        let mut touched = Touched::default();
        for at in (0..256).step_by(16) {
            touched.add(CHUNK - 128 + at, 16, true);
        }
        touched.add(3, 1, false);
        touched.add(8, 4, false);
        let ranges = touched.ranges(true);
        assert_eq!((ranges.len(), &ranges[0]), (1, &(CHUNK - 128..CHUNK + 128)));
        assert_eq!(touched.ranges(false), [3..4, 8..12]);
    }
}
