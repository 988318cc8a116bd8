//! Graphs of the CUDA driver: a kernel node per launch, each after the one before.

use super::replay_slots::{GraphRecords, RecordPool};
use crate::context::CudaMemory;
use crate::driver::{CaptureMode, wrap};
use crate::error::{Error, Result};
use crate::report_slot::{LaunchId, ReportSource};
use crate::stream::Stream;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// A graph under construction.
pub(crate) struct CudaRecording {
    memory: Arc<CudaMemory>,
    graph: sys::CUgraph,
    last: Option<sys::CUgraphNode>,
    records: RecordPool,
}

/// A launch as the driver takes it.
pub(crate) struct KernelNode<'p> {
    pub(crate) function: sys::CUfunction,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
    /// Where the value of each parameter is.
    pub(crate) params: &'p mut [*mut c_void],
}

impl CudaRecording {
    pub(super) fn new(memory: &Arc<CudaMemory>) -> Result<Self> {
        memory.bind()?;
        let mut recording = CudaRecording {
            memory: memory.clone(),
            graph: std::ptr::null_mut(),
            last: None,
            records: RecordPool::new(memory),
        };
        // SAFETY: the result is owned by the value, which destroys it.
        unsafe { sys::cuGraphCreate(&mut recording.graph, 0) }.result().map_err(wrap("cuGraphCreate"))?;
        Ok(recording)
    }

    /// A record for a launch that can fail: its address on the GPU.
    pub(crate) fn acquire_record(&mut self, launch: u64, source: Arc<dyn ReportSource>) -> Result<u64> {
        self.records.acquire(launch, source)
    }

    /// Adds a launch after all before it.
    ///
    /// # Safety
    ///
    /// As for `cuLaunchKernel`, at each replay: there is one value for each parameter of the
    /// function, and the function is of this context and is never unloaded.
    pub(crate) unsafe fn add(&mut self, node: KernelNode<'_>) -> Result<()> {
        self.memory.bind()?;
        let [x, y, z] = node.grid;
        let params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: node.function,
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: node.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: node.shared_bytes,
            kernelParams: node.params.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut added = std::ptr::null_mut();
        let (before, count) = self.last.as_ref().map_or((std::ptr::null(), 0), |last| (std::ptr::from_ref(last), 1));
        // SAFETY: the graph is alive, `last` is one of its nodes; the caller vouches for the rest.
        // The driver copies the parameters' values before it returns.
        unsafe { sys::cuGraphAddKernelNode_v2(&mut added, self.graph, before, count, &params) }
            .result()
            .map_err(wrap("cuGraphAddKernelNode"))?;
        self.last = Some(added);
        Ok(())
    }

    /// Makes the graph ready for replays on `stream`.
    pub(super) fn finish(mut self, stream: &Stream, launches: u64) -> Result<CudaGraph> {
        self.memory.bind()?;
        let records = std::mem::replace(&mut self.records, RecordPool::new(&self.memory)).finish(launches);
        let mut graph =
            CudaGraph { exec: std::ptr::null_mut(), records: Arc::new(records), memory: self.memory.clone() };
        // What is made is no part of a capture by somebody else.
        let _mode = CaptureMode::relaxed();
        // SAFETY: the graph is alive and complete; the result is owned by the value, which destroys it.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut graph.exec, self.graph, 0) }
            .result()
            .map_err(wrap("cuGraphInstantiate"))?;
        let is_captured = stream.is_captured()?;
        if let Some(stream) = stream.cuda_stream().filter(|_| !is_captured) {
            // The first replay need not wait for what can be copied to the GPU beforehand.
            // SAFETY: both handles are alive.
            unsafe { sys::cuGraphUpload(graph.exec, stream.cu_stream()) }.result().map_err(wrap("cuGraphUpload"))?;
        }
        Ok(graph)
    }
}

impl Drop for CudaRecording {
    fn drop(&mut self) {
        // A failure means that the context is gone, and the graph with it.
        if self.memory.bind().is_ok() && !self.graph.is_null() {
            // SAFETY: the graph is ours, and nobody uses it after this.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}

/// A graph that the driver can launch.
pub(super) struct CudaGraph {
    exec: sys::CUgraphExec,
    records: Arc<GraphRecords>,
    memory: Arc<CudaMemory>,
}

// SAFETY: graphs are handles that the driver lets any thread use, if only one does so at a time,
// which the lock of `records` ensures.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

impl CudaGraph {
    pub(super) fn records(&self) -> &Arc<GraphRecords> {
        &self.records
    }

    /// Gives a replay to the stream, after `begin` has ordered it; it is told the replay's first
    /// launch.
    pub(super) fn launch(&self, stream: &Stream, begin: impl FnOnce(LaunchId) -> Result<()>) -> Result<()> {
        let ledger = stream.ledger();
        let stream = stream.cuda_stream().ok_or_else(|| Error::Unsupported {
            what: "replaying a graph of a GPU on the CPU".into(),
            reason: "capture the launches on the stream that shall run them".into(),
        })?;
        self.memory.bind()?;
        self.records.replay(ledger, |first| {
            begin(first)?;
            // SAFETY: both handles are alive and of the current context; the graph's owner keeps
            // its buffers alive, whose uses `begin` has ordered.
            unsafe { sys::cuGraphLaunch(self.exec, stream.cu_stream()) }.result().map_err(wrap("cuGraphLaunch"))
        })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.memory.bind().is_ok() && !self.exec.is_null() {
            let _mode = CaptureMode::relaxed();
            // SAFETY: the graph is ours; its replays are complete, as its owner has waited.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
