//! Streams: whom their operations follow.

use super::capture::Target;
use super::work::Point;
use super::{Action, Code, Model, Outcome, current};
use std::sync::Arc;

/// The handles that mean a stream of the current context: the legacy default stream, twice, and the calling thread's own.
const NULL: usize = 0;
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// How a stream gets on with the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// It is the legacy default stream.
    Itself,
    /// They wait for each other.
    Blocking,
    /// They do not.
    None,
}

/// A stream.
pub(super) struct Stream {
    pub(super) context: usize,
    pub(super) line: usize,
    pub(super) relation: Relation,
    pub(super) tail: Option<Arc<Point>>,
    /// The capture that it takes part in.
    pub(super) capture: Option<usize>,
}

impl Model {
    /// The stream that a handle means.
    pub(super) fn resolve(&mut self, handle: usize) -> Result<usize, Code> {
        match handle {
            NULL | LEGACY => {
                // The handle is out of the way of all others, which are multiples of 64.
                let own = current() | LEGACY;
                if !self.streams.contains_key(&own) {
                    self.add_stream(own, Relation::Itself);
                }
                Ok(own)
            }
            PER_THREAD => {
                let key = (std::thread::current().id(), current());
                if let Some(own) = self.per_thread.get(&key) {
                    return Ok(*own);
                }
                let own = self.new_handle();
                self.add_stream(own, Relation::Blocking);
                self.per_thread.insert(key, own);
                Ok(own)
            }
            handle if self.streams.contains_key(&handle) => Ok(handle),
            handle => Err(self.no_handle("stream", handle)),
        }
    }

    fn add_stream(&mut self, handle: usize, relation: Relation) {
        let (context, line) = (current(), self.work.new_line());
        self.streams.insert(handle, Stream { context, line, relation, tail: None, capture: None });
    }

    pub(super) fn stream(&mut self, handle: usize) -> Result<&mut Stream, Code> {
        let handle = self.resolve(handle)?;
        self.streams.get_mut(&handle).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    /// A new stream of the current context.
    pub(crate) fn create_stream(&mut self, is_blocking: bool) -> usize {
        let handle = self.new_handle();
        self.add_stream(handle, if is_blocking { Relation::Blocking } else { Relation::None });
        handle
    }

    /// Destroys a stream. What it was given is done all the same.
    pub(crate) fn destroy_stream(&mut self, handle: usize) -> Outcome {
        if handle <= PER_THREAD {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        let own = self.resolve(handle)?;
        if let Some(capture) = self.streams[&own].capture {
            self.invalidate(capture);
        }
        if let Some(Stream { context, line, tail, .. }) = self.streams.remove(&own) {
            match tail {
                Some(tail) => self.orphans.push((context, tail)),
                None => self.work.free_line(line),
            }
            self.gone.insert(own);
        }
        Ok(())
    }

    /// The context of a stream.
    pub(crate) fn context_of_stream(&mut self, handle: usize) -> Result<usize, Code> {
        self.stream(handle).map(|stream| stream.context)
    }

    /// Whether a stream does not wait for the legacy default stream.
    pub(crate) fn is_non_blocking(&mut self, handle: usize) -> Result<bool, Code> {
        self.stream(handle).map(|stream| stream.relation == Relation::None)
    }

    /// What an operation that a stream is given now comes after.
    pub(super) fn tails(&mut self, own: usize) -> Vec<Arc<Point>> {
        let Some(stream) = self.streams.get(&own) else { return Vec::new() };
        let (relation, context) = (stream.relation, stream.context);
        let others = self.streams.values().filter(|other| {
            let pair = (relation, other.relation);
            let waits = matches!(pair, (Relation::Itself, Relation::Blocking) | (Relation::Blocking, Relation::Itself));
            waits && other.context == context
        });
        others.chain([stream]).filter_map(|stream| stream.tail.clone()).collect()
    }

    /// Gives a stream an operation; a stream that is captured gets a node. Gives the point at which it is done.
    pub(crate) fn enqueue(&mut self, call: u64, handle: usize, action: Action) -> Result<Option<Arc<Point>>, Code> {
        match self.target(handle)? {
            Target::Capture(capture) => self.add_node(capture, handle, action).map(|()| None),
            Target::Stream(own) => {
                let after = self.tails(own);
                let point = self.enqueue_after(call, own, &after, action);
                self.let_time_pass();
                Ok(Some(point))
            }
        }
    }

    /// As `enqueue`, on a stream that is not captured, after other points too.
    pub(super) fn enqueue_after(&mut self, call: u64, own: usize, after: &[Arc<Point>], action: Action) -> Arc<Point> {
        let line = self.streams[&own].line;
        let point = self.work.submit(call, line, after, action);
        if let Some(stream) = self.streams.get_mut(&own) {
            stream.tail = Some(point.clone());
        }
        point
    }

    /// Waits for what a stream was given.
    pub(crate) fn synchronize_stream(&mut self, handle: usize) -> Outcome {
        let own = self.unless_captured(handle)?;
        let after = self.tails_to_wait_for(own);
        after.iter().try_for_each(|point| self.reach(point))
    }

    /// Whether a stream has done what it was given.
    pub(crate) fn query_stream(&mut self, handle: usize) -> Outcome {
        let own = self.unless_captured(handle)?;
        let after = self.tails_to_wait_for(own);
        for point in after {
            if !self.has_reached(&point)? {
                return Err(Code::CUDA_ERROR_NOT_READY);
            }
        }
        Ok(())
    }

    /// Waiting for the legacy default stream is waiting for what its next operation would follow.
    fn tails_to_wait_for(&mut self, own: usize) -> Vec<Arc<Point>> {
        match self.streams[&own].relation {
            Relation::Itself => self.tails(own),
            Relation::Blocking | Relation::None => self.streams[&own].tail.iter().cloned().collect(),
        }
    }

    /// Waits for everything in the current context.
    pub(crate) fn synchronize_context(&mut self) -> Outcome {
        self.refuse_while_captured()?;
        let context = current();
        let streams = self.streams.values().filter(|stream| stream.context == context);
        let mut tails: Vec<Arc<Point>> = streams.filter_map(|stream| stream.tail.clone()).collect();
        let orphans = std::mem::take(&mut self.orphans);
        let (ours, others) = orphans.into_iter().partition(|(of, _)| *of == context);
        self.orphans = others;
        let ours: Vec<(usize, Arc<Point>)> = ours;
        ours.iter().for_each(|(_, tail)| self.work.free_line(tail.place().0));
        tails.extend(ours.into_iter().map(|(_, tail)| tail));
        tails.iter().try_for_each(|point| self.reach(point))
    }
}
