//! Captures: streams whose operations become nodes of a graph.
//!
//! What is refused during a capture, and what a refusal does to it, follows "CUDA graphs, stream capture" in the CUDA
//! programming guide and the documentation of `cuThreadExchangeStreamCaptureMode`.

use super::stream::Relation;
use super::{Action, Code, Model, Outcome, current};
use std::cell::Cell;
use std::collections::HashMap;
use std::thread::ThreadId;

/// How far a capture keeps threads from what could disturb it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// All threads.
    Global,
    /// The one that began it.
    ThreadLocal,
    /// Nobody.
    Relaxed,
}

impl Mode {
    /// The mode of that number.
    pub(crate) fn of(number: u32) -> Result<Mode, Code> {
        let modes = [Mode::Global, Mode::ThreadLocal, Mode::Relaxed];
        modes.get(number as usize).copied().ok_or(Code::CUDA_ERROR_INVALID_VALUE)
    }
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets the mode of the calling thread; gives the one before.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// Where what a stream is given goes.
pub(super) enum Target {
    Stream(usize),
    Capture(usize),
}

/// A capture.
pub(super) struct Capture {
    mode: Mode,
    thread: ThreadId,
    origin: usize,
    graph: usize,
    is_invalid: bool,
    /// Of each stream that takes part, the nodes that come before what it is given next.
    last: HashMap<usize, Vec<usize>>,
}

/// What is known of a stream's capture.
pub(crate) struct CaptureInfo {
    pub(crate) is_invalid: bool,
    pub(crate) id: usize,
    pub(crate) graph: usize,
    /// Handles of nodes.
    pub(crate) last: Vec<usize>,
}

impl Model {
    /// Where what a stream is given goes.
    pub(super) fn target(&mut self, handle: usize) -> Result<Target, Code> {
        let own = self.resolve(handle)?;
        self.refuse_legacy(own)?;
        match self.streams[&own].capture {
            None => Ok(Target::Stream(own)),
            Some(capture) if self.captures[&capture].is_invalid => Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            Some(capture) => Ok(Target::Capture(capture)),
        }
    }

    /// Refuses the legacy default stream while one is captured that waits for it.
    fn refuse_legacy(&mut self, own: usize) -> Outcome {
        if self.streams[&own].relation != Relation::Itself {
            return Ok(());
        }
        let blocking = self.streams.values().filter(|stream| stream.relation == Relation::Blocking);
        let captures: Vec<usize> = blocking.filter_map(|stream| stream.capture).collect();
        captures.iter().for_each(|capture| self.invalidate(*capture));
        if captures.is_empty() { Ok(()) } else { Err(Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses to wait for a stream that is captured, or to ask whether it is done.
    pub(super) fn unless_captured(&mut self, handle: usize) -> Result<usize, Code> {
        match self.target(handle)? {
            Target::Stream(own) => Ok(own),
            Target::Capture(capture) => {
                self.invalidate(capture);
                Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Refuses to wait for a context of which a stream is captured.
    pub(super) fn refuse_while_captured(&mut self) -> Outcome {
        let context = current();
        let streams = self.streams.values().filter(|stream| stream.context == context);
        let captures: Vec<usize> = streams.filter_map(|stream| stream.capture).collect();
        captures.iter().for_each(|capture| self.invalidate(*capture));
        if captures.is_empty() { Ok(()) } else { Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Refuses calls that could disturb a capture, by the modes of captures and of the thread.
    pub(crate) fn refuse_prohibited(&mut self) -> Outcome {
        let (thread, own) = (std::thread::current().id(), MODE.get());
        let disturbs = |capture: &Capture| match (own, capture.thread == thread) {
            (Mode::Relaxed, _) => false,
            (Mode::Global | Mode::ThreadLocal, true) => capture.mode != Mode::Relaxed,
            (Mode::Global, false) => capture.mode == Mode::Global,
            (Mode::ThreadLocal, false) => false,
        };
        let found = self.captures.iter().filter(|(_, capture)| disturbs(capture));
        let found: Vec<usize> = found.map(|(id, _)| *id).collect();
        found.iter().for_each(|capture| self.invalidate(*capture));
        if found.is_empty() { Ok(()) } else { Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
    }

    pub(super) fn invalidate(&mut self, capture: usize) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalid = true;
        }
    }

    /// Begins the capture of a stream.
    pub(crate) fn begin_capture(&mut self, handle: usize, mode: Mode) -> Outcome {
        let own = self.resolve(handle)?;
        if self.streams[&own].relation == Relation::Itself {
            return Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.streams[&own].capture.is_some() {
            return Err(Code::CUDA_ERROR_ILLEGAL_STATE);
        }
        let (id, graph) = (self.new_handle(), self.create_graph());
        let thread = std::thread::current().id();
        let last = HashMap::from([(own, Vec::new())]);
        self.captures.insert(id, Capture { mode, thread, origin: own, graph, is_invalid: false, last });
        self.stream(own)?.capture = Some(id);
        Ok(())
    }

    /// Ends the capture of a stream; gives the graph.
    pub(crate) fn end_capture(&mut self, handle: usize) -> Result<usize, Code> {
        let own = self.resolve(handle)?;
        let id = self.streams[&own].capture.ok_or(Code::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = &self.captures[&id];
        if capture.origin != own {
            self.invalidate(id);
            return Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(Code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.remove(&id).ok_or(Code::CUDA_ERROR_ILLEGAL_STATE)?;
        for stream in capture.last.keys() {
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.capture = None;
            }
        }
        let before = self.nodes_before(capture.graph, &capture.last[&own]);
        let is_joined = capture.last.values().flatten().all(|node| before.contains(node));
        match (capture.is_invalid, is_joined) {
            (false, true) => Ok(capture.graph),
            (true, _) => self.destroy_graph(capture.graph).and(Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)),
            (false, false) => self.destroy_graph(capture.graph).and(Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)),
        }
    }

    /// The capture that a stream takes part in.
    pub(crate) fn capture_info(&mut self, handle: usize) -> Result<Option<CaptureInfo>, Code> {
        let own = self.resolve(handle)?;
        self.refuse_legacy(own)?;
        let Some(id) = self.streams[&own].capture else { return Ok(None) };
        let capture = &self.captures[&id];
        let last = capture.last[&own].iter().map(|node| self.node_handle(capture.graph, *node)).collect();
        Ok(Some(CaptureInfo { is_invalid: capture.is_invalid, id, graph: capture.graph, last }))
    }

    /// The nodes that come before what a captured stream is given next.
    pub(super) fn last_nodes(&mut self, capture: usize, handle: usize) -> Result<Vec<usize>, Code> {
        let own = self.resolve(handle)?;
        Ok(self.captures[&capture].last.get(&own).cloned().unwrap_or_default())
    }

    /// Sets them, or adds to them.
    pub(crate) fn set_last_nodes(&mut self, handle: usize, nodes: &[usize], adds: bool) -> Outcome {
        let own = self.resolve(handle)?;
        let id = self.streams[&own].capture.ok_or(Code::CUDA_ERROR_ILLEGAL_STATE)?;
        let graph = self.captures[&id].graph;
        let nodes = nodes.iter().map(|node| self.node_index(graph, *node)).collect::<Result<Vec<_>, _>>()?;
        let capture = self.captures.get_mut(&id).ok_or(Code::CUDA_ERROR_ILLEGAL_STATE)?;
        let last = capture.last.entry(own).or_default();
        if !adds {
            last.clear();
        }
        last.extend(nodes);
        last.sort_unstable();
        last.dedup();
        Ok(())
    }

    /// Adds what a captured stream was given to its graph.
    pub(super) fn add_node(&mut self, capture: usize, handle: usize, action: Action) -> Outcome {
        let own = self.resolve(handle)?;
        let after = self.last_nodes(capture, own)?;
        let graph = self.captures[&capture].graph;
        let node = self.add_to_graph(graph, after, action)?;
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.last.insert(own, vec![node]);
        }
        Ok(())
    }

    /// Lets a stream wait for nodes of a capture, which it takes part in from then on.
    pub(super) fn join_capture(&mut self, capture: usize, handle: usize, nodes: &[usize]) -> Outcome {
        let own = self.resolve(handle)?;
        match self.captures.get(&capture) {
            None => return Err(Code::CUDA_ERROR_CAPTURED_EVENT),
            Some(capture) if capture.is_invalid => return Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            Some(_) => self.refuse_legacy(own)?,
        }
        match self.streams[&own].capture {
            Some(other) if other != capture => {
                self.invalidate(capture);
                self.invalidate(other);
                return Err(Code::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            Some(_) => {}
            None if self.streams[&own].relation == Relation::Itself => {
                self.invalidate(capture);
                return Err(Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            None => self.stream(own)?.capture = Some(capture),
        }
        if let Some(capture) = self.captures.get_mut(&capture) {
            let last = capture.last.entry(own).or_default();
            last.extend(nodes);
            last.sort_unstable();
            last.dedup();
        }
        Ok(())
    }
}
