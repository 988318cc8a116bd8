//! A short list in memory that is used again and again.

use std::mem::MaybeUninit;

/// Up to `N` elements beside each other; if there are more, all of them are on the heap.
///
/// Elements need no drop, so that clearing the list, which every launch does, writes one number.
pub(super) struct List<T, const N: usize> {
    /// How many of `inline` are written.
    len: usize,
    inline: [MaybeUninit<T>; N],
    /// All elements, if they are more than fit. All of them are written.
    long: Vec<MaybeUninit<T>>,
}

impl<T, const N: usize> List<T, N> {
    pub(super) const fn new() -> Self {
        const { assert!(!std::mem::needs_drop::<T>()) };
        List { len: 0, inline: [const { MaybeUninit::uninit() }; N], long: Vec::new() }
    }

    /// Adds an element. It is written field by field to where it stays: what is copied as a whole after its fields were
    /// written waits for them.
    #[inline(always)]
    pub(super) fn push(&mut self, element: T) {
        let place = match self.inline.get_mut(self.len) {
            Some(place) => {
                self.len += 1;
                place
            }
            None => Self::place_in(&self.inline, &mut self.long),
        };
        place.write(element);
    }

    /// The place of one more element than fits. `inline` is full.
    #[cold]
    fn place_in<'l>(inline: &[MaybeUninit<T>; N], long: &'l mut Vec<MaybeUninit<T>>) -> &'l mut MaybeUninit<T> {
        if long.is_empty() {
            // SAFETY: these are bytes that may be uninitialised, of elements that need no drop. Nobody reads the inline
            // ones before the list is cleared.
            long.extend(inline.iter().map(|element| unsafe { std::ptr::from_ref(element).read() }));
        }
        long.push_mut(MaybeUninit::uninit())
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if !self.long.is_empty() {
            self.long.clear();
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        let written = if self.long.is_empty() { &self.inline[..self.len] } else { &self.long };
        // SAFETY: so many have been written.
        unsafe { written.assume_init_ref() }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        let written = if self.long.is_empty() { &mut self.inline[..self.len] } else { &mut self.long };
        // SAFETY: so many have been written.
        unsafe { written.assume_init_mut() }
    }
}

impl<T, const N: usize> std::ops::Deref for List<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T, const N: usize> std::ops::DerefMut for List<T, N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_hold_what_was_pushed() {
        let mut list: List<u64, 4> = List::new();
        for len in [0, 3, 4, 5, 9, 2, 4, 0] {
            list.clear();
            for element in 0..len {
                list.push(element * 10);
            }
            let expected: Vec<u64> = (0..len).map(|element| element * 10).collect();
            assert_eq!(list.as_slice(), expected);
            if let Some(last) = list.last_mut() {
                *last = 7;
                assert_eq!(list.last(), Some(&7));
            }
            assert_eq!(list.len(), len as usize);
        }
    }

    #[test]
    fn short_lists_allocate_nothing() {
        let (count, list) = crate::counting::allocations(|| {
            let mut list: List<u64, 4> = List::new();
            (0..4).for_each(|element| list.push(element));
            list
        });
        assert_eq!((count, list.as_slice()), (0, &[0, 1, 2, 3][..]));
    }
}
