//! Writing down what was compiled, while the driver works on it.
//!
//! To print, pack and write a variant takes a part of a millisecond, for large kernels some, and nothing of a launch needs
//! it. The driver, which then compiles the PTX for 8 to 300 ms, works in one thread. So a thread writes meanwhile, and the
//! launch waits for it when the driver is done: when a launch has returned, what it compiled is kept, whatever the process
//! does next. A process that is killed leaves what it would leave otherwise: nothing, or all of it.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// The thread that keeps a variant, until somebody has waited for it.
#[derive(Debug, Default)]
pub(in super::super) struct Keeping(Mutex<Option<JoinHandle<()>>>);

impl Keeping {
    /// Begins to keep a variant; at once, where there can be no thread.
    pub(super) fn begin(&self, keep: impl FnOnce() + Send + 'static) {
        // Of a thread that cannot be made, what it should do comes back this way.
        let work = std::sync::Arc::new(Mutex::new(Some(keep)));
        let run = {
            let work = work.clone();
            move || {
                let keep = work.lock().unwrap_or_else(PoisonError::into_inner).take();
                keep.into_iter().for_each(|keep| keep());
            }
        };
        match thread::Builder::new().name("tilewright cache".to_string()).spawn(run.clone()) {
            Ok(thread) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
            Err(_) => run(),
        }
    }

    /// Waits until the variant is kept, if that has begun.
    pub(in super::super) fn wait(&self) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            // A mistake of ours, which costs the next process a compilation, and this launch nothing.
            log::warn!("a compiled kernel is not kept on disk: the thread that should has ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn who_waits_finds_it_done() {
        let keeping = Keeping::default();
        keeping.wait();
        let done = Arc::new(AtomicU32::new(0));
        for round in 1..=3 {
            let count = done.clone();
            keeping.begin(move || {
                thread::sleep(Duration::from_millis(20));
                count.fetch_add(1, Ordering::Relaxed);
            });
            keeping.wait();
            assert_eq!(done.load(Ordering::Relaxed), round);
        }
        keeping.wait();
    }

    #[test]
    fn a_mistake_is_nobody_elses() {
        let keeping = Keeping::default();
        keeping.begin(|| panic!("on purpose"));
        keeping.wait();
    }
}
