//! The last launch that met its conditions, so that one like it need not evaluate them.
//!
//! Most launches differ from the one before in where their buffers are, which conditions do not
//! speak of. Any thread may look and note at the same time, none waits: a version that is odd while
//! somebody notes tells lookers that what they saw may be of two launches (a sequence lock).

use super::super::args::Arg;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Arguments that are remembered. Launches with more evaluate their conditions.
const ARGS: usize = 14;

/// What conditions speak of, of a launch that met them. All launches of a variant have as many
/// arguments, of the same kinds.
#[derive(Default)]
pub(super) struct Memo {
    /// Zero if nothing was noted, odd while somebody notes.
    version: AtomicU64,
    grid: [AtomicU64; 2],
    facts: [AtomicU64; ARGS],
}

impl Memo {
    /// Whether a launch with these arguments is known to meet the conditions.
    #[inline]
    pub(super) fn holds(&self, args: &[Arg<'_>], grid: [u32; 3]) -> bool {
        let version = self.version.load(Ordering::Acquire);
        if version == 0 || version % 2 == 1 || args.len() > ARGS {
            return false;
        }
        let mut differences = 0;
        for (word, noted) in grid_words(grid).iter().zip(&self.grid) {
            differences |= word ^ noted.load(Ordering::Relaxed);
        }
        for (arg, noted) in args.iter().zip(&self.facts) {
            differences |= arg.fact() ^ noted.load(Ordering::Relaxed);
        }
        // The words above are read before the version is read again.
        fence(Ordering::Acquire);
        differences == 0 && self.version.load(Ordering::Relaxed) == version
    }

    /// Notes that a launch with these arguments meets the conditions, unless somebody else notes now.
    #[cold]
    pub(super) fn note(&self, args: &[Arg<'_>], grid: [u32; 3]) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        if odd == version
            || args.len() > ARGS
            || self.version.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // Whoever sees a word of these sees the odd version, or a later one.
        fence(Ordering::Release);
        for (word, noted) in grid_words(grid).iter().zip(&self.grid) {
            noted.store(*word, Ordering::Relaxed);
        }
        for (arg, noted) in args.iter().zip(&self.facts) {
            noted.store(arg.fact(), Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

#[inline]
fn grid_words([x, y, z]: [u32; 3]) -> [u64; 2] {
    [u64::from(x) | u64::from(y) << u32::BITS, z.into()]
}

#[cfg(test)]
mod tests {
    use super::super::super::scalar::Scalar;
    use super::*;

    fn args(n: i64, m: i64) -> [Arg<'static>; 2] {
        [Arg::scalar(n.value()), Arg::scalar(m.value())]
    }

    const GRID: [u32; 3] = [7, 8, 9];

    #[test]
    fn only_what_was_noted_last_holds() {
        let memo = Memo::default();
        assert!(!memo.holds(&args(0, 0), [0; 3]), "nothing was noted");
        memo.note(&args(1, 2), GRID);
        assert!(memo.holds(&args(1, 2), GRID));
        assert!(!memo.holds(&args(2, 1), GRID) && !memo.holds(&args(1, 3), GRID));
        for grid in [[8, 8, 9], [7, 0, 9], [7, 8, 0]] {
            assert!(!memo.holds(&args(1, 2), grid));
        }
        memo.note(&args(3, 4), GRID);
        assert!(memo.holds(&args(3, 4), GRID) && !memo.holds(&args(1, 2), GRID));
        memo.note(&[Arg::scalar(1.0f32.value())], GRID);
        assert!(memo.holds(&[Arg::scalar(5.0f32.value())], GRID), "conditions do not speak of floats");
    }

    #[test]
    fn many_arguments_are_not_remembered() {
        let memo = Memo::default();
        let many = |count: i32| (0..count).map(|i| Arg::scalar(i.value())).collect::<Vec<_>>();
        memo.note(&many(ARGS as i32), GRID);
        assert!(memo.holds(&many(ARGS as i32), GRID));
        memo.note(&many(ARGS as i32 + 1), GRID);
        assert!(!memo.holds(&many(ARGS as i32 + 1), GRID));
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
                        memo.note(&args(n, -n), GRID);
                        assert!(!memo.holds(&args(n, -n - 1), GRID) && !memo.holds(&args(n + 1, -n), GRID));
                    }
                });
            }
            let memo = &memo;
            scope.spawn(move || {
                for n in 1..40_000 {
                    assert!(!memo.holds(&args(n, 1 - n), GRID), "a mixture of two notes");
                }
            });
        });
    }
}
