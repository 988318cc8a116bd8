//! Graphs: launches that are recorded once and replayed at the price of one.
//!
//! ```
//! # use kernel_runtime::Device;
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::best()?;
//! let graph = device.capture(|| {
//!     // add::<_, 1024>(&x, &y, &mut sum, n).grid(..).launch(&device)?;
//!     // add::<_, 1024>(&sum, &y, &mut out, n).grid(..).launch(&device)
//!     Ok(())
//! })?;
//! for _ in 0..100 {
//!     graph.replay()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Between the braces nothing runs. A launch is checked, compiled if need be, and recorded with
//! the values of its scalars, its grid and its buffers' places and lengths; everything but launches
//! is refused there, because a replay would not repeat it.
//!
//! **Buffers.** A graph keeps the memory of its buffers alive, but does not borrow them: between
//! replays they are read and written like all others, and a replay waits for, and is waited for by,
//! whatever else uses them. A buffer that is dropped stays usable for the graph, which is then the
//! only one that can see it.
//!
//! **Errors** of a replay reach whoever reads what depends on it, or synchronises its stream, like those
//! of a launch; each launch of the graph has its own. Where one recorded launch fails in several replays before anybody
//! looks, the first failure is told, to the first who reads what any of these replays wrote.
//!
//! On a GPU, a graph is the driver's, made node by node, each after the one before: nothing is put
//! into the stream while it is recorded, so other threads may use the stream, and the first launch
//! of a kernel may be a recorded one. On the CPU, a replay runs the launches in the interpreter.

pub(crate) mod capture;
mod cuda;
mod replay_slots;
mod uses;

use crate::error::{Error, Result};
use crate::gate;
use crate::report_slot::LaunchId;
use crate::stream::Stream;
pub(crate) use capture::HostLaunch;
use capture::Recording;
use cuda::CudaGraph;
pub(crate) use cuda::KernelNode;
pub(crate) use replay_slots::GraphRecords;
use std::fmt;
use uses::Uses;

/// Recorded launches. Made by [`Stream::capture`] and [`Device::capture`](crate::Device::capture).
///
/// Dropping it waits for its last replay, if nobody has.
pub struct Graph {
    stream: Stream,
    uses: Uses,
    launches: u64,
    work: Work,
}

enum Work {
    Host(Vec<Box<dyn HostLaunch>>),
    Cuda(CudaGraph),
}

impl Stream {
    /// Records the launches that `launches` makes on this stream, instead of making them.
    ///
    /// ```
    /// # use kernel_runtime::Device;
    /// # fn main() -> kernel_runtime::Result<()> {
    /// let device = Device::best()?;
    /// let stream = device.new_stream()?;
    /// let graph = stream.capture(|stream| {
    ///     // add::<_, 1024>(&x, &y, &mut out, n).grid(..).stream(stream).launch(&device)
    ///     # let _ = stream;
    ///     Ok(())
    /// })?;
    /// graph.replay()?;
    /// stream.synchronize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error that `launches` returns; [`Error::Driver`]. Inside, on this
    /// thread, everything but launches on this stream is
    /// [`Error::Unsupported`]: launches on other streams, allocations,
    /// copies, synchronisation, another capture.
    pub fn capture(&self, launches: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let session = capture::begin(self)?;
        launches(self)?;
        let Recording { stream, uses, launches, work } = session.end()?;
        let work = match work {
            capture::Work::Host(launches) => Work::Host(launches),
            capture::Work::Cuda(graph) => {
                let graph = graph.finish(&stream, launches)?;
                stream.watch(graph.records());
                Work::Cuda(graph)
            }
        };
        Ok(Graph { stream, uses: uses.finish(), launches, work })
    }
}

impl Graph {
    /// Gives all launches to the stream on which they were recorded, in their order. On a GPU they
    /// run after this returns; on the CPU they have run.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`]. What goes wrong in the kernels is the error of
    /// whoever reads data that depends on them, or synchronises the stream.
    /// [`Error::Unsupported`] inside [`Stream::capture`], and while somebody else captures the stream.
    pub fn replay(&self) -> Result<()> {
        capture::refuse("replaying a graph")?;
        if self.launches == 0 {
            return Ok(());
        }
        self.refuse_in_capture()?;
        let _entered = gate::enter(self.uses.gates());
        match &self.work {
            Work::Host(launches) => self.run(launches),
            Work::Cuda(graph) => graph.launch(&self.stream, |first| {
                self.stream.bind_for_work()?;
                self.uses.begin(&self.stream)?;
                // The stream joins a capture in which a buffer was used last.
                self.refuse_in_capture()?;
                self.uses.note(&self.stream, first, true);
                Ok(())
            }),
        }
    }

    /// An error if somebody else captures the stream: the launches would become nodes of another graph, which would use the
    /// buffers and the records of this one when it is gone.
    fn refuse_in_capture(&self) -> Result<()> {
        if !self.stream.is_captured()? {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: "replaying a graph on a stream that is being captured".into(),
            reason: "the graph that captures it does not keep what this one uses; replay it before the capture or after it, or \
                     make its launches in the capture"
                .into(),
        })
    }

    /// Runs the launches here and now. One that fails does not keep the others from running, as on
    /// a GPU.
    fn run(&self, launches: &[Box<dyn HostLaunch>]) -> Result<()> {
        let first = LaunchId::reserve(self.launches);
        self.uses.begin(&self.stream)?;
        let result = self.run_all(launches, first);
        self.uses.note(&self.stream, first, false);
        result
    }

    fn run_all(&self, launches: &[Box<dyn HostLaunch>], first: LaunchId) -> Result<()> {
        for (launch, index) in launches.iter().zip(0..) {
            // SAFETY: the graph keeps the memory alive; behind the gates, and after `begin`, nobody
            // else uses it.
            if let Err(error) = unsafe { launch.run() } {
                if !error.is_from_kernel() {
                    return Err(error);
                }
                self.stream.ledger().lock().push_error(self.stream.id(), first.plus(index), error);
            }
        }
        Ok(())
    }

    /// How many launches a replay makes.
    pub fn len(&self) -> usize {
        usize::try_from(self.launches).unwrap_or(usize::MAX)
    }

    /// Whether no launch was recorded.
    pub fn is_empty(&self) -> bool {
        self.launches == 0
    }

    /// The stream that replays run on: the one on which the launches were recorded.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Work::Cuda(graph) = &self.work else { return };
        // The nodes and the records must not be freed while kernels run.
        if graph.records().may_be_in_use()
            && let Err(error) = self.stream.finish()
        {
            // The context is broken, or somebody captures the stream, while replays from before may still run.
            log::warn!("a graph was dropped that cannot be waited for, and its records stay: {error}");
            std::mem::forget(std::mem::replace(&mut self.work, Work::Host(Vec::new())));
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} launches on {:?})", self.launches, self.stream)
    }
}
