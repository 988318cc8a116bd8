//! Where tiles lie in a thread's arena: places are reused once a value is dead.

use std::collections::BTreeMap;

/// Alignment of tiles: a cache line.
const LINE: usize = 64;

/// A place in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Home {
    /// Bytes from the start of the arena.
    pub offset: usize,
    /// Bytes reserved.
    pub bytes: usize,
}

/// Bytes rounded up to whole lines; `None` beyond the address space.
fn lines(bytes: Option<usize>) -> Option<usize> {
    bytes?.max(1).checked_next_multiple_of(LINE)
}

/// Gives out places in an arena that is allocated later.
#[derive(Default, Debug)]
pub(super) struct Storage {
    end: usize,
    free: BTreeMap<usize, Vec<usize>>,
    /// Places freed inside regions that run at the same time, one list per nesting.
    held: Vec<Vec<Home>>,
    overflowed: bool,
}

impl Storage {
    /// A place for that many bytes, perhaps one that was given back.
    pub(super) fn alloc(&mut self, bytes: Option<usize>) -> Home {
        let wanted = lines(bytes).unwrap_or(usize::MAX);
        // A place up to twice as large serves; a larger one is kept for a larger tile.
        let found = self
            .free
            .range_mut(wanted..=wanted.saturating_mul(2))
            .find_map(|(&size, places)| places.pop().map(|offset| Home { offset, bytes: size }));
        found.unwrap_or_else(|| self.alloc_new(bytes))
    }

    /// A place for that many bytes that nothing has had before.
    pub(super) fn alloc_new(&mut self, bytes: Option<usize>) -> Home {
        let Some(bytes) = lines(bytes) else {
            self.overflowed = true;
            return Home { offset: 0, bytes: 0 };
        };
        let home = Home { offset: self.end, bytes };
        match self.end.checked_add(bytes) {
            Some(end) if isize::try_from(end).is_ok() => self.end = end,
            Some(_) | None => self.overflowed = true,
        }
        home
    }

    /// Gives a place back.
    pub(super) fn free(&mut self, home: Home) {
        match self.held.last_mut() {
            Some(held) => held.push(home),
            None => self.free.entry(home.bytes).or_default().push(home.offset),
        }
    }

    /// From here on what is freed is not reused, because regions run at the same time.
    pub(super) fn hold(&mut self) {
        self.held.push(Vec::new());
    }

    /// Ends the last [`Storage::hold`].
    pub(super) fn release(&mut self) {
        for home in self.held.pop().unwrap_or_default() {
            self.free(home);
        }
    }

    /// The size of the arena; `None` if it exceeds the address space.
    pub(super) fn bytes(&self) -> Option<usize> {
        (!self.overflowed).then_some(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_reused_but_not_while_held() {
        let mut storage = Storage::default();
        let a = storage.alloc(Some(100));
        assert_eq!(a, Home { offset: 0, bytes: 128 });
        storage.hold();
        storage.free(a);
        let b = storage.alloc(Some(100));
        assert_eq!(b.offset, 128);
        storage.release();
        assert_eq!(storage.alloc_new(Some(100)).offset, 256);
        assert_eq!(storage.alloc(Some(100)), a);
        assert_eq!(storage.bytes(), Some(384));
    }

    #[test]
    fn sizes_beyond_the_address_space_are_noticed() {
        let mut storage = Storage::default();
        storage.alloc(Some(1 << 62));
        storage.alloc(Some(1 << 62));
        assert_eq!(storage.bytes(), None);
        let mut storage = Storage::default();
        storage.alloc(None);
        assert_eq!(storage.bytes(), None);
    }
}
