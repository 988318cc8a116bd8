//! Streams: queues of work that runs in order, and the errors of the launches among it.
//!
//! A CUDA stream works while the host goes on. The stream of a CPU device does its work within
//! the call that asks for it, so everything on it is always complete.
//!
//! Errors belong to the launch. Whoever reads a buffer is told the oldest error among the launches
//! that its contents depend on, whoever synchronises the oldest of the stream. Each is delivered once;
//! one that nobody takes is logged when the stream drops, or the last buffer that depends on the launch.
//!
//! ```
//! use kernel_runtime::Device;
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let stream = Device::cpu().new_stream()?;
//! let start = stream.record()?;
//! // launches
//! let end = stream.record()?;
//! stream.synchronize()?;
//! assert!(start.elapsed_ms(&end)? >= 0.0);
//! # Ok(())
//! # }
//! ```

mod captured;
mod handle;
mod inner;
mod queue;
#[cfg(all(test, jit, target_os = "linux"))]
mod tests;

use crate::context::{Context, CudaMemory};
use crate::driver::{RawEvent, Timing};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::graph::{GraphRecords, capture};
use crate::ledger::Use;
use crate::ledger::{Done, End, Ledger};
use crate::report_slot::{LaunchId, ReportSource};
use crate::ring::Ring;
pub(crate) use captured::Capture;
use captured::Captured;
use cudarc::driver::CudaStream;
pub use handle::RecordHandle;
use inner::Collect;
use queue::CudaQueue;
pub(crate) use queue::PER_THREAD_HANDLE;
pub(crate) use queue::StreamHandle;
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A queue of work on a device. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

pub(crate) struct StreamInner {
    id: u64,
    context: Arc<Context>,
    work: Work,
    /// Has the errors of the stream's launches. Locked after the ring, never before it.
    ledger: &'static Ledger,
    /// Where the replays of graphs on this stream report.
    graphs: Mutex<Vec<Weak<GraphRecords>>>,
}

#[allow(clippy::large_enum_variant, reason = "there is one per stream, behind a pointer")]
enum Work {
    Immediate,
    Cuda { queue: CudaQueue, ring: Mutex<Ring<CudaQueue>>, captured: Captured },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done by a panic under these locks, and errors must still be found.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Stream {
    pub(crate) fn cpu(context: Arc<Context>) -> Self {
        Self::with_work(next_id(), context, Work::Immediate)
    }

    /// Wraps a stream of cudarc, of the context `memory`, which is that of `context`. `is_foreign` if somebody else uses it
    /// besides.
    pub(crate) fn cuda(
        context: Arc<Context>,
        memory: Arc<CudaMemory>,
        stream: Arc<CudaStream>,
        is_foreign: bool,
    ) -> Self {
        let per_thread = stream.cu_stream() as usize == PER_THREAD_HANDLE;
        let queue = CudaQueue {
            handle: StreamHandle::new(stream.cu_stream()),
            per_thread,
            is_foreign,
            is_shared: AtomicBool::new(is_foreign),
            home: std::thread::current().id(),
            strayed: AtomicBool::new(false),
            memory,
            stream,
            join: Mutex::new(None),
        };
        let id = next_id();
        let captured = Captured::new(id, context.ledger());
        Self::with_work(id, context, Work::Cuda { queue, ring: Mutex::new(Ring::new()), captured })
    }

    fn with_work(id: u64, context: Arc<Context>, work: Work) -> Self {
        let ledger = context.ledger();
        let stream = Stream(Arc::new(StreamInner { id, context, work, ledger, graphs: Mutex::default() }));
        if stream.is_cuda() {
            ledger.lock().add_stream(id, stream.downgrade());
        }
        stream
    }

    /// Waits until everything that the stream was given is done. Gives the oldest error of a
    /// launch on it that nobody has taken yet; call again for the next. Errors that reading a buffer has given
    /// are taken.
    ///
    /// # Errors
    ///
    /// That of a launch; [`Error::Driver`]; [`Error::Unsupported`] inside
    /// [`Stream::capture`].
    pub fn synchronize(&self) -> Result<()> {
        capture::refuse("synchronising a stream")?;
        self.finish()?;
        self.0.collect_replays();
        self.take_oldest_error().map_or(Ok(()), Err)
    }

    /// Marks the end of what the stream was given so far, with its time.
    pub fn record(&self) -> Result<Event> {
        capture::refuse("recording an event")?;
        match &self.0.work {
            Work::Immediate => Ok(Event::now()),
            Work::Cuda { queue, .. } => Event::record(&queue.memory, &queue.stream, queue.may_be_captured()),
        }
    }

    /// Lets what the stream is given from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        capture::refuse("waiting for an event")?;
        match &self.0.work {
            // Work of the CPU is done before it is recorded; a CPU stream that waits for a GPU
            // has to wait here and now.
            Work::Immediate => event.synchronize(),
            Work::Cuda { queue, .. } => {
                event.block(&queue.memory, &queue.stream)?;
                if event.may_be_captured() { queue.note_joined() } else { Ok(()) }
            }
        }
    }

    /// Whether this is a stream of a GPU.
    pub fn is_cuda(&self) -> bool {
        matches!(self.0.work, Work::Cuda { .. })
    }

    /// cudarc's stream, for launches and libraries that take one. `None` on the CPU.
    ///
    /// Whoever has it may capture the stream. From then on launches that can fail, and those on buffers, ask the driver whether
    /// somebody does.
    pub fn cudarc(&self) -> Option<&Arc<CudaStream>> {
        self.share();
        self.cuda_stream()
    }

    /// Somebody else has a handle of the stream.
    pub(crate) fn share(&self) {
        if let Work::Cuda { queue, .. } = &self.0.work {
            queue.share();
        }
    }

    /// As `cudarc`, for what is done here.
    #[inline]
    pub(crate) fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        match &self.0.work {
            Work::Immediate => None,
            Work::Cuda { queue, .. } => Some(&queue.stream),
        }
    }

    /// The memory of the stream's GPU. `None` on the CPU.
    pub(crate) fn cuda_memory(&self) -> Option<&Arc<CudaMemory>> {
        match &self.0.work {
            Work::Immediate => None,
            Work::Cuda { queue, .. } => Some(&queue.memory),
        }
    }

    /// The driver's name of the stream, which lives as long as it. `None` on the CPU.
    #[inline]
    pub(crate) fn handle(&self) -> Option<StreamHandle> {
        match &self.0.work {
            Work::Immediate => None,
            Work::Cuda { queue, .. } => Some(queue.handle),
        }
    }

    /// Looks at the records of a graph whenever the stream has been waited for.
    pub(crate) fn watch(&self, graph: &Arc<GraphRecords>) {
        let mut graphs = lock(&self.0.graphs);
        graphs.retain(|graph| graph.strong_count() > 0);
        graphs.push(Arc::downgrade(graph));
    }

    /// Makes the stream's CUDA context current on this thread. Does nothing on the CPU.
    #[inline]
    pub fn bind(&self) -> Result<()> {
        match &self.0.work {
            Work::Immediate => Ok(()),
            Work::Cuda { queue, .. } => queue.memory.bind(),
        }
    }

    /// Takes a record for a launch that can fail. Pass the address to the kernel, launch it, then
    /// call [`RecordHandle::launched`].
    ///
    /// On the CPU there is no record: the launcher reports with [`Stream::push_error`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Driver`]; [`Error::Unsupported`] inside
    /// [`Stream::capture`].
    pub fn acquire_record(&self, source: Arc<dyn ReportSource>) -> Result<RecordHandle<'_>> {
        capture::refuse("a launch by hand")?;
        let handle = match &self.0.work {
            Work::Immediate => RecordHandle::without_record(self),
            Work::Cuda { queue, ring, .. } => match self.foreign_capture()? {
                Some(capture) => self.acquire_captured(&capture, source)?,
                None => {
                    queue.note_thread();
                    let mut done = Collect::new(&self.0);
                    let acquired = lock(ring).acquire(queue, source, &mut |ended| done.add(ended))?;
                    RecordHandle::new(self, acquired, 0)
                }
            },
        };
        self.0.ledger.lock().begin_by_hand(handle.id(), End::Recorded);
        Ok(handle)
    }

    /// A record for a launch that somebody else captures.
    pub(crate) fn acquire_captured(
        &self,
        capture: &Capture<'_>,
        source: Arc<dyn ReportSource>,
    ) -> Result<RecordHandle<'_>> {
        capture.acquire(source).map(|launch| RecordHandle::captured(self, launch))
    }

    /// As `acquire_record`, for a launch whose uses of buffers are known, which has been ordered after earlier ones, and which
    /// nobody captures. Gives where the ledger has it as well.
    #[inline]
    pub(crate) fn acquire_record_of(
        &self,
        source: Arc<dyn ReportSource>,
        uses: impl ExactSizeIterator<Item = Option<Use>>,
    ) -> Result<RecordHandle<'_>> {
        let Work::Cuda { queue, ring, .. } = &self.0.work else {
            return Ok(RecordHandle::without_record(self));
        };
        queue.note_thread();
        let mut done = Collect::new(&self.0);
        let mut ring = lock(ring);
        let acquired = ring.acquire(queue, source, &mut |ended| done.add(ended))?;
        let place = done.locked().append_fallible(self.0.id, acquired.launch, uses);
        ring.set_place(place);
        Ok(RecordHandle::new(self, acquired, place))
    }

    /// This thread gives the stream work next that those who wait for the stream must wait for.
    #[inline]
    pub(crate) fn note_thread(&self) {
        if let Work::Cuda { queue, .. } = &self.0.work {
            queue.note_thread();
        }
    }

    /// As `bind`, before this thread gives the stream work.
    #[inline]
    pub(crate) fn bind_for_work(&self) -> Result<()> {
        self.note_thread();
        self.bind()
    }

    /// Whether somebody else captures the stream.
    pub(crate) fn is_captured(&self) -> Result<bool> {
        match &self.0.work {
            Work::Immediate => Ok(false),
            Work::Cuda { queue, .. } => queue.is_captured(),
        }
    }

    /// Whether somebody else may be capturing the stream, without a call of the driver.
    #[inline]
    pub(crate) fn may_be_captured(&self) -> bool {
        matches!(&self.0.work, Work::Cuda { queue, .. } if queue.may_be_captured())
    }

    /// The capture of the stream by somebody else, if there is one. Streams that nobody else knows cost no call of the driver.
    #[inline]
    pub(crate) fn foreign_capture(&self) -> Result<Option<Capture<'_>>> {
        match &self.0.work {
            Work::Cuda { queue, captured, .. } if queue.may_be_captured() => {
                captured.capture(&queue.memory, queue.stream.cu_stream())
            }
            Work::Cuda { .. } | Work::Immediate => Ok(None),
        }
    }

    /// The address of memory for launches that are given to the stream next, if somebody else captures it. The graph keeps it.
    pub(crate) fn captured_scratch(&self, bytes: usize) -> Result<Option<u64>> {
        self.foreign_capture()?.map(|capture| capture.scratch(bytes)).transpose()
    }

    /// Frees what somebody else's graphs kept that are gone.
    pub(crate) fn free_gone_graphs(&self) {
        if let Work::Cuda { captured, .. } = &self.0.work {
            captured.free_gone();
        }
    }

    /// Reports the error of a launch that ran on the CPU, or whose failure is known otherwise. Readers of its buffers are
    /// told while its handle lives; of launches without one, those of the last 64 are. Others are found by synchronising.
    pub fn push_error(&self, launch: LaunchId, error: Error) {
        self.0.ledger.lock().resolve(self.0.id, Done { launch, place: 0, error: Some(error) });
    }

    /// What tells streams apart in the ledger.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// The launches of the stream's context that may have failed.
    #[inline]
    pub(crate) fn ledger(&self) -> &'static Ledger {
        self.0.ledger
    }

    /// Takes the error of a launch on this stream. The launch must be complete, which reading a
    /// buffer that it wrote or [`Stream::synchronize`] ensures; otherwise its error may be missed
    /// here and found later, by those who read what it wrote too.
    pub fn take_error_of(&self, launch: LaunchId) -> Option<Error> {
        self.0.examine_failed(launch);
        self.0.ledger.lock().take(launch)
    }

    /// Takes the oldest known error of a launch on this stream, without waiting for anything.
    pub fn take_oldest_error(&self) -> Option<Error> {
        self.0.ledger.lock().take_oldest(&[self.0.id])
    }

    /// As `take_oldest_error`, after looking at which launches have failed. Where none has, it takes no lock of the ledger.
    #[inline]
    pub(crate) fn poll_error(&self) -> Option<Error> {
        self.0.poll_errors();
        if self.0.ledger.has_errors() { self.take_oldest_error() } else { None }
    }

    /// Waits until everything is done and collects the errors of launches, but takes none.
    pub(crate) fn finish(&self) -> Result<()> {
        self.0.finish()
    }

    /// Has the errors of replays that are known so far told to those who ask this stream, if it is somebody else's.
    pub(crate) fn collect_replays(&self) {
        self.0.collect_replays();
    }

    /// Whether replays of somebody else's graphs may report errors to those who ask this stream.
    pub(crate) fn has_replays(&self) -> bool {
        self.0.has_replays()
    }

    /// What tells streams apart. It differs between threads for a per-thread stream, which is
    /// another stream on each thread.
    #[inline]
    pub(crate) fn key(&self) -> u64 {
        match &self.0.work {
            Work::Cuda { queue: CudaQueue { per_thread: true, .. }, .. } => self.key_of_thread(),
            Work::Cuda { .. } | Work::Immediate => self.0.id,
        }
    }

    fn key_of_thread(&self) -> u64 {
        thread_local! {
            static KEYS: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
        }
        let known = KEYS.try_with(|keys| {
            let mut keys = keys.borrow_mut();
            if let Some((_, key)) = keys.iter().find(|(id, _)| *id == self.0.id) {
                return *key;
            }
            let key = next_id();
            keys.push((self.0.id, key));
            key
        });
        // While the thread is being torn down no key can be kept, so this use equals no other,
        // which costs a wait and is safe.
        known.unwrap_or_else(|_| next_id())
    }

    /// Whether memory of the context can be used on this stream.
    #[inline]
    pub(crate) fn is_in(&self, context: &Context) -> bool {
        self.0.context.is_same(context)
    }

    /// Refuses a context whose memory cannot be used on this stream.
    #[inline]
    pub(crate) fn check_context(&self, context: &Context) -> Result<()> {
        if self.is_in(context) { Ok(()) } else { Err(self.wrong_context(context)) }
    }

    #[cold]
    fn wrong_context(&self, context: &Context) -> Error {
        Error::WrongDevice {
            argument: "".into(),
            actual: context.label().into(),
            expected: self.0.context.label().into(),
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    pub(crate) fn downgrade(&self) -> Weak<StreamInner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn from_inner(inner: Arc<StreamInner>) -> Self {
        Stream(inner)
    }

    /// Lets what this stream is given from now on run after what `other` was given so far.
    /// `key` is the key under which `other` was used.
    pub(crate) fn run_after(&self, other: &Stream, key: u64) -> Result<()> {
        let (Work::Cuda { queue: own, .. }, Work::Cuda { queue, .. }) = (&self.0.work, &other.0.work) else {
            // What the CPU was given is done.
            return other.finish();
        };
        if queue.per_thread && other.key() != key {
            // The stream belongs to another thread, from here nobody can name it.
            return queue.memory.synchronize();
        }
        queue.memory.bind()?;
        let mut join = lock(&queue.join);
        let event = match &mut *join {
            Some(event) => event,
            none => none.insert(RawEvent::new(Timing::Off)?),
        };
        // SAFETY: both streams are alive, and both belong to one device, whose context is
        // current; uses are checked with `check_context` before they are tracked.
        unsafe {
            event.record(queue.stream.cu_stream())?;
            event.block(own.stream.cu_stream())?;
        }
        if queue.may_be_captured() { own.note_joined() } else { Ok(()) }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.0.id, self.0.context.label())
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Stream {}
