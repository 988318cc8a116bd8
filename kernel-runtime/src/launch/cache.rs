//! A cache whose entries are made once, by whoever asks first, while others wait for it.
//!
//! Beside the table are a few pointers to what was asked for last, the hot entries, which are found without a
//! lock: a program launches each of its kernels in a few variants, over and over.

use super::key::{Digest, Key};
use crate::error::Result;
use rustc_hash::FxBuildHasher;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// There are `1 << HOT_BITS` hot places, and each key has one.
const HOT_BITS: u32 = 3;

/// Values by key. They stay for the life of the process, as the `static`s do in which caches are.
pub(super) struct Cache<V: 'static> {
    hot: [AtomicPtr<Entry<V>>; 1 << HOT_BITS],
    slots: RwLock<HashMap<Key, Arc<Slot<V>>, FxBuildHasher>>,
}

/// On lines of the cache of its own: what a launch reads of it lies together.
#[repr(C, align(64))]
struct Entry<V> {
    key: Key,
    value: V,
}

struct Slot<V: 'static> {
    entry: OnceLock<&'static Entry<V>>,
    /// Held by whoever makes the value.
    making: Mutex<()>,
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Slot { entry: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<V> Cache<V> {
    pub(super) const fn new() -> Self {
        Cache {
            hot: [const { AtomicPtr::new(std::ptr::null_mut()) }; 1 << HOT_BITS],
            slots: RwLock::new(HashMap::with_hasher(FxBuildHasher)),
        }
    }

    /// The value, if it is hot: what was asked for last of all keys that share its place. Takes no lock.
    /// `is_same` says whether words are those of the key, whose digest this is.
    #[inline]
    pub(super) fn get_hot(&self, digest: Digest, is_same: impl FnOnce(&[u64]) -> bool) -> Option<&'static V> {
        let place = self.hot[digest.place(HOT_BITS)].load(Ordering::Acquire);
        // SAFETY: null, or an entry, which is never freed.
        let entry = unsafe { place.as_ref() }?;
        is_same(entry.key.borrow()).then_some(&entry.value)
    }

    /// The value, if it has been made, which then is hot at the place of that digest. Takes a read lock.
    pub(super) fn get_slow(&self, digest: Digest, key: &[u64]) -> Option<&'static V> {
        // Nothing is left half-done under these locks, so a panic elsewhere changes nothing.
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let entry = *slots.get(key)?.entry.get()?;
        self.hot[digest.place(HOT_BITS)].store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
        Some(&entry.value)
    }

    /// The value, if it has been made.
    pub(super) fn get(&self, key: &[u64]) -> Option<&'static V> {
        let digest = Digest::of(key);
        self.get_hot(digest, |known| known == key).or_else(|| self.get_slow(digest, key))
    }

    /// The value, made by `make` if nobody has. Threads that ask for one key at the same time
    /// wait for the first of them; other keys do not wait. An error is not kept: the next caller
    /// tries again.
    pub(super) fn get_or_make(&self, key: &Key, make: impl FnOnce() -> Result<V>) -> Result<&'static V> {
        if let Some(value) = self.get(key.borrow()) {
            return Ok(value);
        }
        let slot = self.slots.write().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone();
        let _making = slot.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = slot.entry.get() {
            return Ok(&entry.value);
        }
        let value = make()?;
        Ok(&slot.entry.get_or_init(|| Box::leak(Box::new(Entry { key: key.clone(), value }))).value)
    }

    /// How many values there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.values().filter(|slot| slot.entry.get().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Spec, Tuning};
    use super::*;
    use crate::error::Error;
    use kernel_core::backend::Checks;
    use kernel_core::ir::Safety;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn key(constant: i64) -> Key {
        let constants = &[constant];
        let spec = Spec { dtypes: &[], constants, params: &[], tuning: Tuning::default(), safety: Safety::Safe };
        Key::new(&spec, 0, Checks::EveryAccess)
    }

    #[test]
    fn a_value_is_made_once_however_many_ask() {
        let cache = Cache::new();
        let made = AtomicUsize::new(0);
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (cache, made, barrier) = (&cache, &made, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let value = cache.get_or_make(&key(thread % 2), || {
                        made.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(thread % 2)
                    });
                    assert_eq!(value, Ok(&(thread % 2)));
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 2);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn an_error_is_not_kept() {
        let cache = Cache::new();
        let error = Error::Llvm { message: "no".into() };
        assert_eq!(cache.get_or_make(&key(1), || Err(error.clone())), Err(error));
        assert_eq!(cache.get(key(1).borrow()), None);
        assert_eq!(cache.get_or_make(&key(1), || Ok(5)), Ok(&5));
        assert_eq!(cache.get(key(1).borrow()), Some(&5));
    }

    /// A launch and the table need not agree on a digest: what is behind is found by its words.
    #[test]
    fn hot_entries_are_where_the_digest_says() {
        let cache = Cache::new();
        let (digest, other) = (Digest::default().with(1), Digest::default().with(3));
        assert_ne!(digest.place(HOT_BITS), other.place(HOT_BITS));
        assert_eq!(cache.get_or_make(&key(1), || Ok(5)), Ok(&5));
        let hot = |digest| cache.get_hot(digest, |words| words == Borrow::<[u64]>::borrow(&key(1)));
        assert_eq!((hot(digest), hot(other)), (None, None));
        assert_eq!(cache.get_slow(digest, key(1).borrow()), Some(&5));
        assert_eq!((hot(digest), hot(other)), (Some(&5), None));
        assert_eq!(cache.get_hot(digest, |_| false), None, "the words decide");
        assert_eq!(cache.get_slow(digest, key(2).borrow()), None);
    }

    #[test]
    fn keys_that_share_a_hot_place_are_told_apart() {
        let cache = Cache::new();
        for round in 0..3 {
            for number in 0..100 {
                let value = cache.get_or_make(&key(number), || if round == 0 { Ok(number) } else { panic!("made") });
                assert_eq!(value, Ok(&number));
                assert_eq!(cache.get(key(number).borrow()), Some(&number));
            }
        }
        assert_eq!(cache.len(), 100);
        assert_eq!(cache.get(key(100).borrow()), None);
    }
}
