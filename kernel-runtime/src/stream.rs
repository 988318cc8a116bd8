//! Streams: queues of work that runs in order, and the errors of the launches among it.
//!
//! A CUDA stream works while the host goes on. The stream of a CPU device does its work within
//! the call that asks for it, so everything on it is always complete.
//!
//! Errors belong to the launch. A stream keeps them until somebody reads a buffer that the launch
//! wrote, or synchronises: each is delivered once, and one that nobody takes is logged when the
//! stream drops.
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

use crate::context::{Context, CudaMemory};
use crate::driver::{MappedMemory, RawEvent, Timing, wrap};
use crate::error::{Error, Result};
use crate::errors::ErrorQueue;
use crate::event::Event;
use crate::graph::{GraphRecords, recording};
use crate::record::{LaunchId, LaunchRecord, ReportSource};
use crate::ring::{Queue, Ring};
use cudarc::driver::{CudaStream, result as cu};
use std::cell::RefCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The handle value that means "the default stream of whichever thread calls".
const PER_THREAD_HANDLE: usize = 2;

/// A queue of work on a device. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

pub(crate) struct StreamInner {
    id: u64,
    context: Arc<Context>,
    work: Work,
    /// Taken after the lock of the ring, never before it.
    errors: Mutex<ErrorQueue>,
    /// Where the replays of graphs on this stream report.
    graphs: Mutex<Vec<Weak<GraphRecords>>>,
}

enum Work {
    Immediate,
    Cuda { queue: CudaQueue, ring: Mutex<Ring<CudaQueue>> },
}

/// The driver's name of a stream.
#[cfg(feature = "jit")]
#[derive(Clone, Copy)]
pub(crate) struct StreamHandle(cudarc::driver::sys::CUstream);

// SAFETY: a handle is a name, which the driver lets any thread use. Who uses it answers for the stream's life.
#[cfg(feature = "jit")]
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
#[cfg(feature = "jit")]
unsafe impl Sync for StreamHandle {}

#[cfg(feature = "jit")]
impl StreamHandle {
    /// As the driver takes it.
    #[inline]
    pub(crate) fn get(self) -> cudarc::driver::sys::CUstream {
        self.0
    }

    /// Whether it means the stream, rather than one of the current context.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.0 as usize > PER_THREAD_HANDLE
    }
}

/// A CUDA stream as the ring and the tracking of buffers see it.
pub(crate) struct CudaQueue {
    /// The driver's name of `stream`.
    #[cfg(feature = "jit")]
    handle: StreamHandle,
    per_thread: bool,
    memory: Arc<CudaMemory>,
    stream: Arc<CudaStream>,
    /// Made once and recorded anew whenever another stream has to wait for this one. A wait
    /// stands for what the event covered when the wait was made, or for more.
    join: Mutex<Option<RawEvent>>,
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
        Self::with_work(context, Work::Immediate)
    }

    /// Wraps a stream of cudarc, of the context `memory`, which is that of `context`.
    pub(crate) fn cuda(context: Arc<Context>, memory: Arc<CudaMemory>, stream: Arc<CudaStream>) -> Self {
        let per_thread = stream.cu_stream() as usize == PER_THREAD_HANDLE;
        let queue = CudaQueue {
            #[cfg(feature = "jit")]
            handle: StreamHandle(stream.cu_stream()),
            per_thread,
            memory,
            stream,
            join: Mutex::new(None),
        };
        Self::with_work(context, Work::Cuda { queue, ring: Mutex::new(Ring::new()) })
    }

    fn with_work(context: Arc<Context>, work: Work) -> Self {
        Stream(Arc::new(StreamInner {
            id: next_id(),
            context,
            work,
            errors: Mutex::default(),
            graphs: Mutex::default(),
        }))
    }

    /// Waits until everything that the stream was given is done. Gives the oldest error of a
    /// launch on it that nobody has taken yet; call again for the next.
    ///
    /// # Errors
    ///
    /// That of a launch; [`Error::Driver`]; [`Error::Unsupported`] inside
    /// [`Stream::capture`].
    pub fn synchronize(&self) -> Result<()> {
        recording::refuse("synchronising a stream")?;
        self.finish()?;
        lock(&self.0.errors).take_oldest().map_or(Ok(()), Err)
    }

    /// Marks the end of what the stream was given so far, with its time.
    pub fn record(&self) -> Result<Event> {
        recording::refuse("recording an event")?;
        match &self.0.work {
            Work::Immediate => Ok(Event::now()),
            Work::Cuda { queue, .. } => Event::record(&queue.memory, &queue.stream),
        }
    }

    /// Lets what the stream is given from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        recording::refuse("waiting for an event")?;
        match &self.0.work {
            // Work of the CPU is done before it is recorded; a CPU stream that waits for a GPU
            // has to wait here and now.
            Work::Immediate => event.synchronize(),
            Work::Cuda { queue, .. } => event.block(&queue.memory, &queue.stream),
        }
    }

    /// Whether this is a stream of a GPU.
    pub fn is_cuda(&self) -> bool {
        matches!(self.0.work, Work::Cuda { .. })
    }

    /// cudarc's stream, for launches and libraries that take one. `None` on the CPU.
    pub fn cudarc(&self) -> Option<&Arc<CudaStream>> {
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
    #[cfg(feature = "jit")]
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
        recording::refuse("a launch by hand")?;
        let (launch, address) = match &self.0.work {
            Work::Immediate => (LaunchId::next(), 0),
            Work::Cuda { queue, ring } => lock(ring).acquire(queue, source, &mut self.found())?,
        };
        Ok(RecordHandle { stream: self, launch, address, state: HandleState::Acquired })
    }

    /// Reports the error of a launch that ran on the CPU, or whose failure is known otherwise.
    pub fn push_error(&self, launch: LaunchId, error: Error) {
        lock(&self.0.errors).push(launch, error);
    }

    /// Takes the error of a launch on this stream. The launch must be complete, which reading a
    /// buffer that it wrote or [`Stream::synchronize`] ensures; otherwise its error may be missed
    /// here and found later.
    pub fn take_error_of(&self, launch: LaunchId) -> Option<Error> {
        match &self.0.work {
            Work::Immediate => lock(&self.0.errors).take(launch),
            Work::Cuda { ring, .. } => {
                let mut ring = lock(ring);
                let error = ring.take(launch).or_else(|| lock(&self.0.errors).take(launch));
                drop(ring);
                error.or_else(|| self.0.graphs().iter().find_map(|graph| graph.take(launch)))
            }
        }
    }

    /// Takes the oldest known error of a launch on this stream, without waiting for anything.
    pub fn take_oldest_error(&self) -> Option<Error> {
        lock(&self.0.errors).take_oldest()
    }

    /// The launch whose known error is the oldest.
    pub(crate) fn oldest_error(&self) -> Option<LaunchId> {
        lock(&self.0.errors).oldest()
    }

    /// Waits until everything is done and collects the errors of launches, but takes none.
    pub(crate) fn finish(&self) -> Result<()> {
        self.0.finish()
    }

    fn found(&self) -> impl FnMut(LaunchId, Error) {
        |launch, error| lock(&self.0.errors).push(launch, error)
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
            event.block(own.stream.cu_stream())
        }
    }
}

impl StreamInner {
    fn finish(&self) -> Result<()> {
        let Work::Cuda { queue, ring } = &self.work else {
            return Ok(());
        };
        let order = lock(ring).snapshot();
        let graphs: Vec<_> = self.graphs().into_iter().map(|graph| (graph.replays(), graph)).collect();
        queue.wait_all()?;
        let mut found = |launch, error| lock(&self.errors).push(launch, error);
        lock(ring).complete(order, &mut found);
        for (replays, graph) in graphs {
            graph.complete(replays, &mut found);
        }
        Ok(())
    }

    /// Those that are alive. Cloned, because they take locks of their own.
    fn graphs(&self) -> Vec<Arc<GraphRecords>> {
        lock(&self.graphs).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let Work::Cuda { queue, ring } = &self.work else {
            return;
        };
        // The records must not be freed while a kernel may write to them. When waiting fails, the
        // context is broken and no kernel runs in it any more.
        let is_in_use = lock(ring).is_in_use();
        if is_in_use && let Err(error) = self.finish() {
            log::warn!("a stream was dropped while its device does not answer: {error}");
        }
        // The fields that follow free pinned memory and events in the current context.
        let _ = queue.memory.bind();
    }
}

impl Queue for CudaQueue {
    type Memory = MappedMemory;
    type Mark = RawEvent;

    fn allocate(&self, records: usize) -> Result<(MappedMemory, NonNull<LaunchRecord>, u64)> {
        self.memory.bind()?;
        let memory = MappedMemory::new(records * size_of::<LaunchRecord>())?;
        let host = NonNull::new(memory.host().cast()).ok_or_else(|| Error::Unsupported {
            what: "reporting errors of kernels".into(),
            reason: "the driver gave no page-locked memory".into(),
        })?;
        let device = memory.device();
        Ok((memory, host, device))
    }

    fn mark(&self) -> Result<Option<RawEvent>> {
        // An event covers the calling thread's stream only.
        if self.per_thread {
            return Ok(None);
        }
        self.memory.bind()?;
        let event = RawEvent::new(Timing::Off)?;
        // SAFETY: the stream is alive, its context is current.
        unsafe { event.record(self.stream.cu_stream())? };
        Ok(Some(event))
    }

    fn is_reached(&self, mark: &RawEvent) -> Result<bool> {
        self.memory.bind()?;
        mark.is_complete()
    }

    fn wait_mark(&self, mark: &RawEvent) -> Result<()> {
        self.memory.bind()?;
        mark.synchronize()
    }

    fn wait_all(&self) -> Result<()> {
        if self.per_thread {
            return self.memory.synchronize();
        }
        self.memory.bind()?;
        // SAFETY: the stream is alive.
        unsafe { cu::stream::synchronize(self.stream.cu_stream()) }.map_err(wrap("cuStreamSynchronize"))
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum HandleState {
    Acquired,
    Launched,
}

/// A launch's record, from acquiring it to launching. Dropping it without
/// [`RecordHandle::launched`] says that the launch was not made.
#[must_use = "say whether the launch was made with `launched`"]
pub struct RecordHandle<'s> {
    stream: &'s Stream,
    launch: LaunchId,
    address: u64,
    state: HandleState,
}

impl RecordHandle<'_> {
    /// The number of the launch.
    pub fn id(&self) -> LaunchId {
        self.launch
    }

    /// Where the GPU finds its [`LaunchRecord`]. Zero on the CPU.
    pub fn device_ptr(&self) -> u64 {
        self.address
    }

    /// Says that the launch was given to the stream.
    pub fn launched(mut self) {
        self.state = HandleState::Launched;
        if let Work::Cuda { queue, ring } = &self.stream.0.work {
            lock(ring).launched(queue, self.launch);
        }
    }
}

impl Drop for RecordHandle<'_> {
    fn drop(&mut self) {
        if self.state == HandleState::Acquired
            && let Work::Cuda { ring, .. } = &self.stream.0.work
        {
            lock(ring).cancel(self.launch);
        }
    }
}
