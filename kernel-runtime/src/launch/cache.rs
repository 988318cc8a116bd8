//! A cache whose entries are made once, by whoever asks first, while others wait for it.

use super::spec::Key;
use crate::error::Result;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Values by key. They stay for the life of the cache, which in a `static` is that of the process.
pub(super) struct Cache<V> {
    slots: RwLock<HashMap<Key, Arc<Slot<V>>, FxBuildHasher>>,
}

struct Slot<V> {
    value: OnceLock<Arc<V>>,
    /// Held by whoever makes the value.
    making: Mutex<()>,
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Slot { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<V> Cache<V> {
    pub(super) const fn new() -> Self {
        Cache { slots: RwLock::new(HashMap::with_hasher(FxBuildHasher)) }
    }

    /// The value, if it has been made. Takes a read lock.
    #[inline]
    pub(super) fn get(&self, key: &Key) -> Option<Arc<V>> {
        // Nothing is left half-done under these locks, so a panic elsewhere changes nothing.
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(key).and_then(|slot| slot.value.get().cloned())
    }

    /// The value, made by `make` if nobody has. Threads that ask for one key at the same time
    /// wait for the first of them; other keys do not wait. An error is not kept: the next caller
    /// tries again.
    pub(super) fn get_or_make(&self, key: &Key, make: impl FnOnce() -> Result<Arc<V>>) -> Result<Arc<V>> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let slot = self.slots.write().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone();
        let _making = slot.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = slot.value.get() {
            return Ok(value.clone());
        }
        let value = make()?;
        Ok(slot.value.get_or_init(|| value).clone())
    }

    /// How many values there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.values().filter(|slot| slot.value.get().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Checking, Spec, Tuning};
    use super::*;
    use crate::error::Error;
    use kernel_core::ir::Safety;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn key(constant: i64) -> Key {
        let constants = &[constant];
        let spec = Spec { dtypes: &[], constants, params: &[], tuning: Tuning::default(), safety: Safety::Safe };
        Key::new(&spec, 0, Checking::Everywhere)
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
                        Ok(Arc::new(thread % 2))
                    });
                    assert_eq!(value, Ok(Arc::new(thread % 2)));
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
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.get_or_make(&key(1), || Ok(Arc::new(5))), Ok(Arc::new(5)));
        assert_eq!(cache.get(&key(1)), Some(Arc::new(5)));
    }
}
