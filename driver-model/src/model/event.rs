//! Events: points in streams.

use super::capture::Target;
use super::work::Point;
use super::{Action, Code, Model, Outcome, current};
use std::sync::Arc;

/// What an event stands for.
pub(super) enum Recorded {
    /// It has not been recorded.
    Nothing,
    /// A point in a stream.
    Point(Arc<Point>),
    /// Nodes of a capture, which come before what waits for the event.
    Nodes { capture: usize, nodes: Vec<usize> },
}

/// An event.
pub(super) struct Event {
    context: usize,
    keeps_time: bool,
    recorded: Recorded,
}

impl Model {
    /// A new event of the current context.
    pub(crate) fn create_event(&mut self, keeps_time: bool) -> usize {
        let handle = self.new_handle();
        self.events.insert(handle, Event { context: current(), keeps_time, recorded: Recorded::Nothing });
        handle
    }

    fn event(&mut self, handle: usize) -> Result<&mut Event, Code> {
        if !self.events.contains_key(&handle) {
            return Err(self.no_handle("event", handle));
        }
        self.events.get_mut(&handle).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Destroys an event. Waits for it that were made stay.
    pub(crate) fn destroy_event(&mut self, handle: usize) -> Outcome {
        self.event(handle)?;
        self.events.remove(&handle);
        self.gone.insert(handle);
        Ok(())
    }

    /// Lets an event stand for what a stream was given.
    pub(crate) fn record_event(&mut self, call: u64, handle: usize, stream: usize) -> Outcome {
        let context = self.context_of_stream(stream)?;
        if self.event(handle)?.context != context {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        let recorded = match self.target(stream)? {
            Target::Capture(capture) => {
                let nodes = self.last_nodes(capture, stream)?;
                Recorded::Nodes { capture, nodes }
            }
            Target::Stream(own) => {
                let after = self.tails(own);
                let point = self.enqueue_after(call, own, &after, Action::Marker);
                self.let_time_pass();
                Recorded::Point(point)
            }
        };
        self.event(handle)?.recorded = recorded;
        Ok(())
    }

    /// Lets a stream wait for an event.
    pub(crate) fn wait_event(&mut self, call: u64, stream: usize, handle: usize) -> Outcome {
        let recorded = match &self.event(handle)?.recorded {
            Recorded::Nothing => return self.target(stream).map(drop),
            Recorded::Point(point) => Ok(point.clone()),
            Recorded::Nodes { capture, nodes } => Err((*capture, nodes.clone())),
        };
        match recorded {
            Err((capture, nodes)) => self.join_capture(capture, stream, &nodes),
            Ok(point) => match self.target(stream)? {
                Target::Capture(capture) => {
                    // A graph cannot wait for what is not in it.
                    self.invalidate(capture);
                    Err(Code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                }
                Target::Stream(own) => {
                    let mut after = self.tails(own);
                    after.push(point);
                    self.enqueue_after(call, own, &after, Action::Marker);
                    self.let_time_pass();
                    Ok(())
                }
            },
        }
    }

    /// The point that an event stands for, if any; an error if that is part of a graph.
    fn point_of(&mut self, handle: usize) -> Result<Option<Arc<Point>>, Code> {
        match &self.event(handle)?.recorded {
            Recorded::Nothing => Ok(None),
            Recorded::Point(point) => Ok(Some(point.clone())),
            Recorded::Nodes { capture, .. } => {
                let capture = *capture;
                self.invalidate(capture);
                Err(Code::CUDA_ERROR_CAPTURED_EVENT)
            }
        }
    }

    /// Waits for an event.
    pub(crate) fn synchronize_event(&mut self, handle: usize) -> Outcome {
        match self.point_of(handle)? {
            Some(point) => self.reach(&point),
            None => Ok(()),
        }
    }

    /// Whether an event has been reached.
    pub(crate) fn query_event(&mut self, handle: usize) -> Outcome {
        self.refuse_prohibited()?;
        match self.point_of(handle)? {
            Some(point) if !self.has_reached(&point)? => Err(Code::CUDA_ERROR_NOT_READY),
            Some(_) | None => Ok(()),
        }
    }

    /// The milliseconds between two events that have been reached.
    pub(crate) fn elapsed(&mut self, start: usize, end: usize) -> Result<f32, Code> {
        let mut times = [None; 2];
        for (time, handle) in times.iter_mut().zip([start, end]) {
            if !self.event(handle)?.keeps_time {
                return Err(Code::CUDA_ERROR_INVALID_HANDLE);
            }
            let point = self.point_of(handle)?.ok_or(Code::CUDA_ERROR_INVALID_HANDLE)?;
            *time = Some(point.time().ok_or(Code::CUDA_ERROR_NOT_READY)?);
        }
        let [Some(start), Some(end)] = times else { return Err(Code::CUDA_ERROR_INVALID_HANDLE) };
        let later = end.saturating_duration_since(start).as_secs_f32();
        Ok(1e3 * (later - start.saturating_duration_since(end).as_secs_f32()))
    }
}
