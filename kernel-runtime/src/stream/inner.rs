//! What clones of a stream share: its work, and how its launches end.

use super::queue::CudaQueue;
use super::{StreamInner, Work, lock};
use crate::driver::CaptureMode;
use crate::error::Result;
use crate::graph::GraphRecords;
use crate::ledger::{Done, Locked};
use crate::report_slot::LaunchId;
use crate::ring::{Queue, Ring};
use std::sync::{Arc, Weak};

impl StreamInner {
    pub(super) fn finish(&self) -> Result<()> {
        let Work::Cuda { queue, ring, .. } = &self.work else {
            return Ok(());
        };
        let order = lock(ring).snapshot();
        let graphs: Vec<_> = self.graphs().into_iter().map(|graph| (graph.replays(), graph)).collect();
        queue.wait_all()?;
        let mut done = Collect::new(self);
        lock(ring).complete(order, &mut |ended| done.add(ended));
        drop(done);
        for (replays, graph) in graphs {
            let mut done = Collect::new(self);
            let ended = graph.complete(replays, &mut |launch, error| done.locked().push_error(self.id, launch, error));
            if let Some((first, launches)) = ended {
                done.locked().resolve_replay(first, launches);
            }
        }
        Ok(())
    }

    /// Looks at the record of a launch that is complete.
    pub(crate) fn examine(&self, launch: LaunchId) {
        self.examine_by(launch, Ring::examine);
    }

    /// As `examine`, for somebody who may be wrong about the launch: one that has not failed may still do so.
    pub(super) fn examine_failed(&self, launch: LaunchId) {
        self.examine_by(launch, Ring::examine_failed);
    }

    fn examine_by(&self, launch: LaunchId, examine: impl FnOnce(&mut Ring<CudaQueue>, LaunchId) -> Option<Done>) {
        let Work::Cuda { ring, .. } = &self.work else { return };
        let mut ring = lock(ring);
        let ended = examine(&mut ring, launch);
        if let Some(ended) = ended {
            self.ledger.lock().resolve(self.id, ended);
            return;
        }
        drop(ring);
        // A later replay may be writing to the same record.
        if self.graphs().iter().any(|graph| graph.has_failed(launch))
            && let Err(error) = self.finish()
        {
            log::warn!("the errors of a graph cannot be read, because its device does not answer: {error}");
        }
    }

    /// Has what replays of somebody else's graphs have reported told to those who ask the stream for errors, which is theirs.
    #[inline]
    pub(super) fn collect_replays(&self) {
        if let Work::Cuda { queue, captured, .. } = &self.work
            && queue.is_shared()
        {
            captured.collect();
        }
    }

    /// Whether replays of somebody else's graphs may report errors to those who ask the stream.
    pub(super) fn has_replays(&self) -> bool {
        matches!(&self.work, Work::Cuda { queue, captured, .. } if queue.is_shared() && captured.has_graphs())
    }

    /// Looks at the records of launches that are known to be complete, without waiting for anything. Others than the stream's
    /// user may ask.
    pub(crate) fn poll(&self) {
        let Work::Cuda { queue, ring, .. } = &self.work else { return };
        // Whoever holds the lock looks at them too, and may be waiting.
        let Ok(mut ring) = ring.try_lock() else { return };
        // Somebody else's stream may be gone where its user does not ask.
        let mut done = Collect::new(self);
        let polled = match queue.is_foreign {
            true => ring.poll_marks(queue, &mut |ended| done.add(ended)),
            false => ring.poll(queue, &mut |ended| done.add(ended)),
        };
        note_failure(polled);
    }

    /// As `poll`, for the stream's user, who wants errors alone: the driver is asked only if a record shows one, or there are
    /// many.
    #[inline]
    pub(crate) fn poll_errors(&self) {
        let Work::Cuda { queue, ring, .. } = &self.work else { return };
        self.collect_replays();
        let Ok(mut ring) = ring.try_lock() else { return };
        if ring.may_have_failed() {
            self.poll_ring(queue, &mut ring);
        }
    }

    #[cold]
    fn poll_ring(&self, queue: &CudaQueue, ring: &mut Ring<CudaQueue>) {
        let mut done = Collect::new(self);
        note_failure(ring.poll(queue, &mut |ended| done.add(ended)));
    }

    /// Those that are alive. Cloned, because they take locks of their own.
    fn graphs(&self) -> Vec<Arc<GraphRecords>> {
        lock(&self.graphs).iter().filter_map(Weak::upgrade).collect()
    }
}

fn note_failure(polled: Result<()>) {
    if let Err(error) = polled {
        log::debug!("the launches of a stream cannot be looked at: {error}");
    }
}

/// Tells the ledger how launches of a stream have ended. It is locked from the first of them on.
pub(super) struct Collect<'s> {
    stream: &'s StreamInner,
    locked: Option<Locked<'s>>,
}

impl<'s> Collect<'s> {
    #[inline]
    pub(super) fn new(stream: &'s StreamInner) -> Self {
        Collect { stream, locked: None }
    }

    #[inline]
    pub(super) fn locked(&mut self) -> &mut Locked<'s> {
        self.locked.get_or_insert_with(|| self.stream.ledger.lock())
    }

    pub(super) fn add(&mut self, ended: Done) {
        let stream = self.stream.id;
        self.locked().resolve(stream, ended);
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        if let Work::Cuda { queue, ring, .. } = &self.work {
            // The records must not be freed while a kernel may write to them.
            let is_in_use = lock(ring).is_in_use();
            if is_in_use && let Err(error) = self.finish() {
                // The context is broken, or somebody captures the stream, while launches from before may still run.
                log::warn!("a stream was dropped that cannot be waited for, and its records stay: {error}");
                std::mem::forget(std::mem::replace(&mut *lock(ring), Ring::new()));
            }
            // Destroying a stream ends a capture that it has joined.
            if !queue.is_foreign && queue.is_captured().unwrap_or(true) {
                std::mem::forget(queue.stream.clone());
            }
            // What is freed belongs to the context, and is no part of a capture by somebody else.
            let _ = queue.memory.bind();
            let _mode = CaptureMode::relaxed();
            self.work = Work::Immediate;
        }
        self.ledger.remove_stream(self.id);
    }
}
