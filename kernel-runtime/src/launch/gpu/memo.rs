//! The last launch that met its conditions, so that one like it need not evaluate them.
//!
//! Most launches differ from the one before in where their buffers are, which conditions do not
//! speak of. Any thread may look and note at the same time, none waits: a version that is odd while
//! somebody notes tells lookers that what they saw may be of two launches (a sequence lock).

use super::super::args::Arg;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Arguments and grid words that are remembered. Launches with more evaluate their conditions.
const WORDS: usize = 16;

/// Words of the grid.
const GRID_WORDS: usize = 2;

/// What conditions are about: integer arguments, lengths, the grid.
pub(super) struct Facts {
    words: [u64; WORDS],
    len: usize,
}

impl Facts {
    /// The facts of a launch, unless there are too many.
    #[inline]
    pub(super) fn of(args: &[Arg<'_>], grid: [u32; 3]) -> Option<Facts> {
        let len = args.len() + GRID_WORDS;
        if len > WORDS {
            return None;
        }
        let mut words = [0; WORDS];
        let [x, y, z] = grid.map(u64::from);
        words[0] = x | y << u32::BITS;
        words[1] = z;
        for (word, arg) in words[GRID_WORDS..].iter_mut().zip(args) {
            *word = match arg {
                Arg::Ptr(buffer) => buffer.len() as u64,
                Arg::PtrMut(buffer) => buffer.shared().len() as u64,
                Arg::Scalar(value) => value.bits_of_int(),
                Arg::Const(_) => 0,
            };
        }
        Some(Facts { words, len })
    }

    fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

/// The facts of a launch that met the conditions. All launches of a variant have as many facts, of
/// the same kinds.
#[derive(Default)]
pub(super) struct Memo {
    /// Zero if nothing was noted, odd while somebody notes.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Memo {
    /// Whether a launch with these facts is known to meet the conditions.
    #[inline]
    pub(super) fn holds(&self, facts: &Facts) -> bool {
        let version = self.version.load(Ordering::Acquire);
        if version == 0 || version % 2 == 1 {
            return false;
        }
        let pairs = facts.words().iter().zip(&self.words);
        let differences =
            pairs.fold(0, |differences, (word, noted)| differences | (word ^ noted.load(Ordering::Relaxed)));
        // The words above are read before the version is read again.
        fence(Ordering::Acquire);
        differences == 0 && self.version.load(Ordering::Relaxed) == version
    }

    /// Notes that a launch with these facts meets the conditions, unless somebody else notes now.
    pub(super) fn note(&self, facts: &Facts) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        if odd == version || self.version.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Whoever sees a word of these sees the odd version, or a later one.
        fence(Ordering::Release);
        for (word, noted) in facts.words().iter().zip(&self.words) {
            noted.store(*word, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::Scalar;
    use super::*;

    fn facts(n: i64, m: i64) -> Facts {
        Facts::of(&[Arg::Scalar(n.value()), Arg::Scalar(m.value())], [1, 1, 1]).expect("there are few")
    }

    #[test]
    fn only_what_was_noted_last_holds() {
        let memo = Memo::default();
        assert!(!memo.holds(&facts(0, 0)), "nothing was noted");
        memo.note(&facts(1, 2));
        assert!(memo.holds(&facts(1, 2)));
        assert!(!memo.holds(&facts(2, 1)));
        memo.note(&facts(3, 4));
        assert!(memo.holds(&facts(3, 4)) && !memo.holds(&facts(1, 2)));
        let floats = [Arg::Scalar(1.0f32.value()), Arg::Scalar(2i64.value())];
        let other = [Arg::Scalar(5.0f32.value()), Arg::Scalar(2i64.value())];
        memo.note(&Facts::of(&floats, [7, 8, 9]).expect("few"));
        assert!(memo.holds(&Facts::of(&other, [7, 8, 9]).expect("few")), "conditions do not speak of floats");
        for grid in [[8, 8, 9], [7, 0, 9], [7, 8, 0]] {
            assert!(!memo.holds(&Facts::of(&floats, grid).expect("few")));
        }
        let many: Vec<Arg<'_>> = (0..WORDS).map(|i| Arg::Scalar(i.try_into().unwrap_or(0i32).value())).collect();
        assert!(Facts::of(&many, [1, 1, 1]).is_none());
    }

    #[test]
    fn threads_never_see_half_of_a_note() {
        let memo = Memo::default();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let memo = &memo;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let n = 2 * round + thread;
                        memo.note(&facts(n, -n));
                        assert!(!memo.holds(&facts(n, -n - 1)) && !memo.holds(&facts(n + 1, -n)));
                    }
                });
            }
            let memo = &memo;
            scope.spawn(move || {
                for n in 1..40_000 {
                    assert!(!memo.holds(&facts(n, 1 - n)), "a mixture of two notes");
                }
            });
        });
    }
}
