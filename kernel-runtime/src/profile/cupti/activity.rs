//! Times of kernels.
//!
//! Of CUPTI's records only fields are read whose places have been the same since CUDA 9: `CUpti_ActivityKernel4`, the
//! beginning of each version after it (5 to 13, as of CUDA 13.4). Versions before are refused.

use super::{Cupti, functions};
use cudarc::driver::sys::CUcontext;
use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`: times of kernels, which still overlap.
const CONCURRENT_KERNEL: c_int = 10;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FLUSH_FORCED: u32 = 1;
/// What CUPTI is given to write records into at a time, about 40,000 of them.
const BUFFER: Layout = match Layout::from_size_align(8 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("eight is a power of two"),
};

/// The beginning of `CUpti_ActivityKernel4` and of all versions after it.
#[repr(C)]
struct RawKernel {
    kind: c_int,
    cache_config: [u8; 2],
    registers: u16,
    partitioned_cache: [u32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [i32; 3],
    block: [i32; 3],
    static_shared: i32,
    dynamic_shared: i32,
    local_per_thread: u32,
    local_total: u32,
    correlation: u32,
    grid_id: i64,
    name: *const c_char,
}

/// A kernel that has run.
#[derive(Clone, Debug)]
pub(in crate::profile) struct Record {
    /// The name of its entry.
    pub(in crate::profile) entry: String,
    /// In nanoseconds of CUPTI's clock.
    pub(in crate::profile) start: u64,
    pub(in crate::profile) end: u64,
    context: u32,
    pub(in crate::profile) stream: u32,
    pub(in crate::profile) grid: [u32; 3],
    /// Threads per program.
    pub(in crate::profile) threads: u32,
    pub(in crate::profile) registers: u32,
    pub(in crate::profile) shared_bytes: u32,
    pub(in crate::profile) local_bytes: u32,
}

/// What has been collected since it was last taken. CUPTI has one such collection for the process.
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// Records that CUPTI had no memory for since then.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

functions! {
    struct Functions;
    get_timestamp = cuptiGetTimestamp(*mut u64);
    get_context_id = cuptiGetContextId(CUcontext, *mut u32);
    register_callbacks = cuptiActivityRegisterCallbacks(Requested, Completed);
    enable = cuptiActivityEnable(c_int);
    disable = cuptiActivityDisable(c_int);
    flush_all = cuptiActivityFlushAll(u32);
    get_num_dropped_records = cuptiActivityGetNumDroppedRecords(CUcontext, u32, *mut usize);
    get_next_record = cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut RawKernel);
}

type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// Whether CUPTI knows the callbacks.
static KNOWS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// Has CUPTI give what it has collected to whoever collects.
pub(super) fn flush() -> Result<(), String> {
    let (cupti, functions) = ready()?;
    // SAFETY: it takes no pointer.
    let status = unsafe { (functions.flush_all)(FLUSH_FORCED) };
    cupti.check("cuptiActivityFlushAll", status)
}

/// CUPTI has forgotten everything.
pub(super) fn was_detached() {
    KNOWS_CALLBACKS.store(false, Ordering::Relaxed);
}

/// CUPTI, or why there is none.
fn ready() -> Result<(&'static Cupti, &'static Functions), String> {
    static READY: OnceLock<Result<Functions, String>> = OnceLock::new();
    let cupti = super::loaded()?;
    let functions = READY.get_or_init(|| Functions::of(cupti));
    Ok((cupti, functions.as_ref().map_err(Clone::clone)?))
}

/// Tells CUPTI the callbacks, if it does not know them.
fn register(cupti: &Cupti, functions: &Functions) -> Result<(), String> {
    if !KNOWS_CALLBACKS.load(Ordering::Relaxed) {
        // SAFETY: the callbacks keep CUPTI's rules, and live as long as the program.
        let status = unsafe { (functions.register_callbacks)(requested, completed) };
        cupti.check("cuptiActivityRegisterCallbacks", status)?;
        KNOWS_CALLBACKS.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Kernels are being collected.
pub(in crate::profile) struct Collecting {
    cupti: &'static Cupti,
    functions: &'static Functions,
    context: u32,
    /// The clock when it began.
    pub(in crate::profile) began: u64,
}

impl Collecting {
    /// Begins to collect the kernels of a context.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(in crate::profile) fn begin(context: CUcontext) -> Result<Collecting, String> {
        let (cupti, functions) = ready()?;
        register(cupti, functions)?;
        // SAFETY: it takes no pointer.
        cupti.check("cuptiActivityEnable", unsafe { (functions.enable)(CONCURRENT_KERNEL) })?;
        // Dropped where the rest fails, it disables what is enabled now.
        let mut collecting = Collecting { cupti, functions, context: 0, began: 0 };
        // SAFETY: the context is alive; the places are writable.
        unsafe {
            cupti.check("cuptiGetContextId", (functions.get_context_id)(context, &mut collecting.context))?;
            cupti.check("cuptiGetTimestamp", (functions.get_timestamp)(&mut collecting.began))?;
        }
        lock().clear();
        DROPPED.store(0, Ordering::Relaxed);
        Ok(collecting)
    }

    /// What to call CUPTI.
    pub(in crate::profile) fn version(&self) -> u32 {
        self.cupti.version()
    }

    /// The kernels of the context that began since, in their order. The device has nothing more to do.
    pub(in crate::profile) fn finish(self) -> Vec<Record> {
        if let Err(why) = flush() {
            log::warn!("kernels may be missing in the profile: {why}");
        }
        let dropped = DROPPED.load(Ordering::Relaxed);
        if dropped > 0 {
            log::warn!("{dropped} kernels are missing in the profile: CUPTI had no memory for them");
        }
        let mut records = std::mem::take(&mut *lock());
        records.retain(|record| record.context == self.context && record.start >= self.began);
        records.sort_by_key(|record| (record.start, record.end));
        records
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // SAFETY: it takes no pointer. A failure means that nothing was enabled.
        let _ = unsafe { (self.functions.disable)(CONCURRENT_KERNEL) };
        // Of a profile that failed, nobody has them.
        let _ = flush();
        lock().clear();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CUPTI wants memory for records.
extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    // SAFETY: the layout is not empty; the places are CUPTI's. Of no memory it makes no records.
    unsafe {
        let memory = std::alloc::alloc(BUFFER);
        buffer.write(memory);
        size.write(if memory.is_null() { 0 } else { BUFFER.size() });
        max_records.write(0);
    }
}

/// CUPTI gives memory back, with records.
extern "C" fn completed(context: CUcontext, stream: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Ok((_, functions)) = ready() {
        let mut dropped = 0;
        // SAFETY: the context and the stream are CUPTI's own; the place is writable.
        if unsafe { (functions.get_num_dropped_records)(context, stream, &mut dropped) } == 0 {
            DROPPED.fetch_add(dropped, Ordering::Relaxed);
        }
        let mut records = lock();
        let mut next: *mut RawKernel = std::ptr::null_mut();
        // SAFETY: the buffer has so many valid bytes; what CUPTI points at lies inside, until it is freed below.
        while unsafe { (functions.get_next_record)(buffer, valid, &mut next) } == 0 && !next.is_null() {
            // SAFETY: each record begins with its kind; only kernels are collected, whose records begin like this.
            unsafe {
                if (&raw const (*next).kind).read_unaligned() == CONCURRENT_KERNEL {
                    records.push(Record::read(next));
                }
            }
        }
    }
    // SAFETY: `requested` has allocated it.
    unsafe { std::alloc::dealloc(buffer, BUFFER) };
}

impl Record {
    /// # Safety
    /// It is a record of a kernel.
    unsafe fn read(raw: *const RawKernel) -> Record {
        // SAFETY: promised by the caller; CUPTI's names end in zero.
        let (raw, entry) = unsafe {
            let raw = raw.read_unaligned();
            let name = raw.name;
            (raw, if name.is_null() { "?".into() } else { CStr::from_ptr(name).to_string_lossy() })
        };
        let positive = |value: i32| u32::try_from(value).unwrap_or(0);
        Record {
            entry: entry.into_owned(),
            start: raw.start,
            end: raw.end,
            context: raw.context,
            stream: raw.stream,
            grid: raw.grid.map(positive),
            threads: raw.block.map(positive).iter().product(),
            registers: raw.registers.into(),
            shared_bytes: positive(raw.static_shared) + positive(raw.dynamic_shared),
            local_bytes: raw.local_per_thread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The places of `CUpti_ActivityKernel4`, from CUPTI's header.
    #[test]
    fn fields_are_where_cupti_has_them() {
        assert_eq!((offset_of!(RawKernel, registers), offset_of!(RawKernel, start)), (6, 16));
        assert_eq!((offset_of!(RawKernel, device), offset_of!(RawKernel, grid)), (40, 52));
        assert_eq!((offset_of!(RawKernel, static_shared), offset_of!(RawKernel, correlation)), (76, 92));
        assert_eq!((offset_of!(RawKernel, name), size_of::<RawKernel>()), (104, 112));
    }
}
