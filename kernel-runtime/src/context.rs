//! Where memory lives: the host's memory, or one CUDA context.
//!
//! A [`Context`] is what a [`Device`](crate::Device), its streams and its buffers share. It
//! allocates, frees and copies raw bytes; types, bounds and the order between streams are the
//! business of `buffer`, `view` and `tracking`.

use crate::driver::{self, CaptureMode, wrap};
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use cudarc::driver::result as cu;
use cudarc::driver::sys;
use cudarc::driver::{CudaContext, CudaStream};
use std::alloc::Layout;
use std::sync::{Arc, Mutex, PoisonError};

/// Host buffers start on a cache line, which is also the widest vector of any CPU.
pub(crate) const HOST_ALIGNMENT: usize = 64;

/// A place where memory lives.
#[derive(Debug)]
pub(crate) enum Context {
    /// The host's own memory.
    Cpu,
    /// Memory of one GPU.
    Cuda(Arc<CudaMemory>),
}

/// A CUDA context and the facts about its device that are asked for often.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    pub(crate) ctx: Arc<CudaContext>,
    pub(crate) device_name: Box<str>,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    /// Whether allocation is stream-ordered (`cuMemAllocAsync`).
    pub(crate) stream_ordered: bool,
    /// Whether the GPU can read pageable host memory itself. Then the driver may read the source
    /// of a copy after the call that starts the copy has returned.
    reads_pageable: bool,
    pub(crate) ledger: &'static Ledger,
}

impl CudaMemory {
    fn new(ctx: Arc<CudaContext>) -> Result<Self> {
        use sys::CUdevice_attribute_enum as Attribute;
        let attribute = |attribute| {
            // SAFETY: the device belongs to a live context.
            let value = unsafe { cu::device::get_attribute(ctx.cu_device(), attribute) };
            value.map(|value| u32::try_from(value).unwrap_or(0)).map_err(wrap("cuDeviceGetAttribute"))
        };
        Ok(Self {
            device_name: cu::device::get_name(ctx.cu_device()).map_err(wrap("cuDeviceGetName"))?.into(),
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            stream_ordered: ctx.has_async_alloc(),
            reads_pageable: attribute(Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0,
            ledger: Ledger::of_context(ctx.cu_ctx().addr()),
            ctx,
        })
    }

    /// Makes the context current on this thread.
    ///
    /// cudarc's own `bind_to_thread` would also hand us errors that others' destructors left in
    /// the context; they are not ours to report.
    #[inline]
    pub(crate) fn bind(&self) -> Result<()> {
        // Asking costs a few nanoseconds, and others may change the current context at any time.
        if self.is_current()? { Ok(()) } else { self.make_current() }
    }

    /// Whether the context is current on this thread.
    #[inline]
    pub(crate) fn is_current(&self) -> Result<bool> {
        let current = cu::ctx::get_current().map_err(wrap("cuCtxGetCurrent"))?;
        Ok(current == Some(self.ctx.cu_ctx()))
    }

    #[cold]
    fn make_current(&self) -> Result<()> {
        // SAFETY: the context is alive as long as `self.ctx`.
        unsafe { cu::ctx::set_current(self.ctx.cu_ctx()) }.map_err(wrap("cuCtxSetCurrent"))
    }

    /// Does something with the context current on this thread, and makes that current again which was. That there is no
    /// context any more is for the work to find out.
    pub(crate) fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = cu::ctx::get_current();
        let _ = self.bind();
        let done = work();
        if let Ok(before) = before
            && before != Some(self.ctx.cu_ctx())
        {
            // SAFETY: it was current, or is none.
            let _ = unsafe { cu::ctx::set_current(before.unwrap_or(std::ptr::null_mut())) };
        }
        done
    }

    /// Waits for everything that was started in this context.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.bind()?;
        cu::ctx::synchronize().map_err(wrap("cuCtxSynchronize"))
    }

    /// The default pool returns its memory to the system at every synchronisation, so that the
    /// next allocation maps it again, which is slow. Unless somebody has chosen a threshold, let
    /// the pool keep what it has; `alloc` gives it back when memory runs out.
    fn keep_pool_memory(&self) -> Result<()> {
        if let Some(pool) = self.pool()? {
            let name = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let mut threshold: u64 = 0;
            // SAFETY: the pool is the device's own and lives as long as the process; this
            // attribute is a 64-bit number.
            unsafe {
                cu::mem_pool::get_attribute(pool, name, (&raw mut threshold).cast())
                    .map_err(wrap("cuMemPoolGetAttribute"))?;
                if threshold == 0 {
                    threshold = u64::MAX;
                    cu::mem_pool::set_attribute(pool, name, (&raw mut threshold).cast())
                        .map_err(wrap("cuMemPoolSetAttribute"))?;
                }
            }
        }
        Ok(())
    }

    fn pool(&self) -> Result<Option<sys::CUmemoryPool>> {
        if !self.stream_ordered {
            return Ok(None);
        }
        // SAFETY: the device belongs to a live context.
        let pool = unsafe { cu::device::get_mem_pool(self.ctx.cu_device()) };
        pool.map(Some).map_err(wrap("cuDeviceGetMemPool"))
    }

    /// Gives memory that the pool keeps, but no buffer uses, back to the system.
    pub(crate) fn trim(&self) -> Result<()> {
        self.synchronize()?;
        if let Some(pool) = self.pool()? {
            // SAFETY: as in `keep_pool_memory`.
            unsafe { cu::mem_pool::trim_to(pool, 0) }.map_err(wrap("cuMemPoolTrimTo"))?;
        }
        Ok(())
    }

    fn try_alloc(&self, bytes: usize, stream: &CudaStream) -> Result<u64> {
        self.bind()?;
        if self.stream_ordered {
            // SAFETY: the stream is alive; the result is owned by a buffer, which frees it.
            unsafe { cu::malloc_async(stream.cu_stream(), bytes) }.map_err(wrap("cuMemAllocAsync"))
        } else {
            // A capture by others does not use what is new.
            let _mode = CaptureMode::relaxed();
            // SAFETY: as above.
            unsafe { cu::malloc_sync(bytes) }.map_err(wrap("cuMemAlloc"))
        }
    }

    /// Allocates uninitialised memory for use on `stream`.
    pub(crate) fn alloc(&self, bytes: usize, stream: &CudaStream) -> Result<u64> {
        // Captures of other streams do not use it.
        let _mode = CaptureMode::relaxed();
        let first = self.try_alloc(bytes, stream);
        let retried = match first {
            Err(error) if driver::is_out_of_memory(&error) => {
                self.trim()?;
                self.try_alloc(bytes, stream)
            }
            other => other,
        };
        retried.map_err(|error| if driver::is_out_of_memory(&error) { self.out_of_memory(bytes as u64) } else { error })
    }

    /// Frees memory of [`CudaMemory::alloc`] once `stream` has done what it was given.
    ///
    /// # Safety
    ///
    /// `address` came from `alloc` of this context, and work on other streams than `stream` no
    /// longer uses it.
    pub(crate) unsafe fn free(&self, address: u64, stream: &CudaStream) -> Result<()> {
        self.bind()?;
        // Captures of other streams do not use it.
        let _mode = CaptureMode::relaxed();
        if self.stream_ordered {
            // SAFETY: promised by the caller.
            unsafe { cu::free_async(address, stream.cu_stream()) }.map_err(wrap("cuMemFreeAsync"))
        } else {
            // Without stream order, no kernel may use the memory any more. The stream has waited for the others.
            driver::wait_for(stream)?;
            // SAFETY: promised by the caller.
            unsafe { cu::free_sync(address) }.map_err(wrap("cuMemFree"))
        }
    }

    fn out_of_memory(&self, requested: u64) -> Error {
        let info = cu::mem_get_info().ok();
        Error::OutOfMemory {
            device: format!("cuda:{} ({})", self.ctx.ordinal(), self.device_name).into(),
            requested,
            free: info.map(|(free, _)| free as u64),
            total: info.map(|(_, total)| total as u64),
        }
    }

    /// Copies from host memory, which the caller may change or free afterwards.
    ///
    /// # Safety
    ///
    /// `from` is readable and `to` writable on `stream` for `bytes` bytes.
    pub(crate) unsafe fn copy_from_host(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: &CudaStream,
    ) -> Result<()> {
        self.bind()?;
        // SAFETY: promised by the caller; the wait below covers sources that outlive the call.
        unsafe { driver::copy_from_host(to, from, bytes, stream.cu_stream())? };
        // Pageable memory has been staged by the driver when the call returns, unless the GPU
        // reads it in place. Page-locked memory is read by DMA later.
        if self.reads_pageable || driver::is_known_to_driver(from) {
            driver::wait_for(stream)?;
        }
        Ok(())
    }
}

impl Context {
    /// Opens the CUDA device with this index. Contexts stay open for the life of the process:
    /// releasing a device's last context and opening it again takes a large part of a second.
    pub(crate) fn cuda(index: usize) -> Result<Arc<Self>> {
        static OPEN: Mutex<Vec<(usize, Arc<Context>)>> = Mutex::new(Vec::new());
        let count = driver::load()?.device_count();
        if index >= count {
            return Err(Error::NoSuchDevice { requested: index, count });
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, context)) = open.iter().find(|(open, _)| *open == index) {
            return Ok(context.clone());
        }
        let ctx = CudaContext::new(index).map_err(wrap("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the tracking of cudarc orders the uses of `CudaSlice`s that are made in this
        // `CudaContext`. We make none, except where a buffer leaves through `into_cudarc`, which
        // documents it.
        unsafe { ctx.disable_event_tracking() };
        let memory = CudaMemory::new(ctx)?;
        memory.keep_pool_memory()?;
        let context = Arc::new(Context::Cuda(Arc::new(memory)));
        open.push((index, context.clone()));
        Ok(context)
    }

    /// Uses a context of somebody else, whose settings stay as they are.
    pub(crate) fn from_cudarc(ctx: Arc<CudaContext>) -> Result<Arc<Self>> {
        driver::load()?;
        Ok(Arc::new(Context::Cuda(Arc::new(CudaMemory::new(ctx)?))))
    }

    /// Whether memory of one can be used in the other.
    #[inline]
    pub(crate) fn is_same(&self, other: &Context) -> bool {
        match (self, other) {
            // One context behind one pointer is by far the most common case.
            _ if std::ptr::eq(self, other) => true,
            (Context::Cpu, Context::Cpu) => true,
            (Context::Cuda(a), Context::Cuda(b)) => a.ctx.cu_ctx() == b.ctx.cu_ctx(),
            (Context::Cpu, Context::Cuda(_)) | (Context::Cuda(_), Context::Cpu) => false,
        }
    }

    /// Whose errors the readers of its memory are told.
    pub(crate) fn ledger(&self) -> &'static Ledger {
        match self {
            Context::Cpu => Ledger::cpu(),
            Context::Cuda(memory) => memory.ledger,
        }
    }

    /// `cpu`, or `cuda:` and the index.
    pub(crate) fn label(&self) -> String {
        match self {
            Context::Cpu => "cpu".into(),
            Context::Cuda(memory) => format!("cuda:{}", memory.ctx.ordinal()),
        }
    }

    /// The error for an allocation whose size in bytes cannot be counted.
    pub(crate) fn size_overflow(&self) -> Error {
        match self {
            Context::Cpu => host_out_of_memory(u64::MAX),
            Context::Cuda(memory) => {
                let _ = memory.bind();
                memory.out_of_memory(u64::MAX)
            }
        }
    }

    /// Free and total bytes.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64)> {
        match self {
            Context::Cpu => host_memory().ok_or_else(|| Error::Unsupported {
                what: "reading the size of the host's memory".into(),
                reason: "this system has no /proc/meminfo".into(),
            }),
            Context::Cuda(memory) => {
                memory.bind()?;
                let (free, total) = cu::mem_get_info().map_err(wrap("cuMemGetInfo"))?;
                Ok((free as u64, total as u64))
            }
        }
    }
}

fn host_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, HOST_ALIGNMENT).ok()
}

/// Allocates zeroed host memory. `bytes` is not zero.
pub(crate) fn host_alloc(bytes: usize) -> Result<*mut u8> {
    debug_assert!(bytes > 0);
    let out_of_memory = || host_out_of_memory(bytes as u64);
    let layout = host_layout(bytes).ok_or_else(out_of_memory)?;
    // SAFETY: the layout has a size, which callers check to be non-zero.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
    if pointer.is_null() { Err(out_of_memory()) } else { Ok(pointer) }
}

/// Frees host memory.
///
/// # Safety
///
/// `pointer` came from [`host_alloc`] with the same size, and is not used again.
pub(crate) unsafe fn host_free(pointer: *mut u8, bytes: usize) {
    if let Some(layout) = host_layout(bytes) {
        // SAFETY: promised by the caller; the layout is computed as in `host_alloc`.
        unsafe { std::alloc::dealloc(pointer, layout) };
    }
}

fn host_out_of_memory(requested: u64) -> Error {
    let info = host_memory();
    Error::OutOfMemory {
        device: "cpu".into(),
        requested,
        free: info.map(|(free, _)| free),
        total: info.map(|(_, total)| total),
    }
}

/// Free and total bytes of the host, where the system says so in `/proc/meminfo`.
fn host_memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    Some((field("MemAvailable:")?, field("MemTotal:")?))
}
