//! Compiling on other threads while one measures: to PTX, and where there is an assembler of the driver's release, or one
//! that the environment names, to machine code. The driver's own compiler works for one thread at a time, and takes the
//! thread that measures.

use super::measure::{Failure, FailureKind, said};
use crate::device::Device;
use crate::launch::{AheadCompiler, CallShape};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Compilers recurse over kernels; the main thread of a program has as much.
const STACK: usize = 8 << 20;

/// What is to be compiled: its number, and the launch.
type Job = (usize, CallShape);

/// Threads that compile what they are given, in order.
pub(super) struct Compilers {
    jobs: Sender<Job>,
    done: Arc<Done>,
}

#[derive(Default)]
struct Done {
    results: Mutex<HashMap<usize, Result<(), Failure>>>,
    more: Condvar,
}

impl Compilers {
    /// So many threads for a device; `None` if nothing is compiled for it. They end when nothing refers to this any more,
    /// after what they compile: no compiler can be stopped.
    pub(super) fn new(device: &Device, threads: usize) -> Option<Compilers> {
        device.target()?;
        let compiler = Arc::new(AheadCompiler::of(device));
        let (jobs, queue) = channel::<Job>();
        let (queue, done) = (Arc::new(Mutex::new(queue)), Arc::<Done>::default());
        for _ in 0..threads.max(1) {
            let (queue, done, compiler) = (queue.clone(), done.clone(), compiler.clone());
            let work = move || compile_all(&queue, &done, &compiler);
            // Without a thread, what it would have compiled is compiled when it is launched.
            if let Err(error) = thread::Builder::new().name("tilewright-tune".into()).stack_size(STACK).spawn(work) {
                log::warn!("a thread for compiling cannot be started: {error}");
            }
        }
        Some(Compilers { jobs, done })
    }

    /// Gives them a launch.
    pub(super) fn begin(&self, number: usize, shape: CallShape) {
        // Without threads there is no receiver.
        if self.jobs.send((number, shape)).is_err() {
            self.done.put(number, Ok(()));
        }
    }

    /// Waits until a launch has been compiled.
    ///
    /// # Errors
    /// Why it cannot be, or that it takes too long.
    pub(super) fn wait(&self, number: usize, limit: Duration) -> Result<(), Failure> {
        let until = Instant::now() + limit;
        let mut results = self.done.results.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = results.get(&number) {
                return result.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = format!("compiling takes longer than {:.0} s", limit.as_secs_f64());
                return Err(Failure::new(FailureKind::Time, reason));
            }
            results = self.done.more.wait_timeout(results, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Done {
    fn put(&self, number: usize, result: Result<(), Failure>) {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, result);
        self.more.notify_all();
    }
}

fn compile_all(queue: &Mutex<Receiver<Job>>, done: &Done, compiler: &AheadCompiler) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, shape)) = job else { return };
        // A mistake of the compiler is one of this configuration, and no end of the search.
        let result = catch_unwind(AssertUnwindSafe(|| compiler.compile(&shape)));
        let result = match result {
            Ok(result) => result.map_err(|error| Failure::from(&error)),
            Err(panic) => Err(Failure::new(FailureKind::Other, format!("the compiler panicked: {}", said(&*panic)))),
        };
        done.put(number, result);
    }
}
