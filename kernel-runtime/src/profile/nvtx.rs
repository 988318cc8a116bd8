//! Ranges for profilers, by NVTX: a profiler that runs a program names a library in a variable, and the library takes the
//! calls that it wants.
//!
//! This is the client's side of NVTX 3, which NVIDIA ships as a C header and not as a library: what the header does in a
//! program is done here, for the two functions that are called. Without a profiler nothing is loaded.

use super::explained;
use crate::settings;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `nvtxRangePushA`: its text is UTF-8.
type RangePush = unsafe extern "C" fn(*const c_char) -> c_int;
/// `nvtxRangePop`.
type RangePop = unsafe extern "C" fn() -> c_int;
/// `NvtxGetExportTableFunc_t`: what the library asks for tables with.
type GetExportTable = extern "C" fn(c_uint) -> *const c_void;
/// `InitializeInjectionNvtx2`: gives zero if it refuses.
type InitializeInjection = unsafe extern "C" fn(GetExportTable) -> c_int;

/// The functions of the core module by their callback ids (`NvtxCallbackIdCore`), of which the library fills in those
/// that it takes.
static CORE: [AtomicPtr<c_void>; CORE_SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CORE_SIZE];
/// Those of the module of domains, of which none is called. Libraries ask for them all the same.
static CORE2: [AtomicPtr<c_void>; CORE_SIZE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CORE_SIZE];
/// `NVTX_CBID_CORE_SIZE` and `NVTX_CBID_CORE2_SIZE`.
const CORE_SIZE: usize = 16;
/// `NVTX_CBID_CORE_RangePushA`.
const RANGE_PUSH: usize = 9;
/// `NVTX_CBID_CORE_RangePop`.
const RANGE_POP: usize = 11;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`.
const MODULE_CORE: c_uint = 1;
const MODULE_CORE2: c_uint = 5;
/// `NVTX_ETID_CALLBACKS` and `NVTX_ETID_VERSIONINFO`.
const TABLE_CALLBACKS: c_uint = 1;
const TABLE_VERSION: c_uint = 3;
/// `NVTX_VERSION`: that of the tables here.
const VERSION: c_uint = 3;
/// What the library exports.
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";

/// `NvtxFunctionTable`: places of pointers to functions, the last of which is null.
struct Slots([*const AtomicPtr<c_void>; CORE_SIZE + 1]);

// SAFETY: they point at atomics that live as long as the program.
unsafe impl Sync for Slots {}

static SLOTS: Slots = slots(&CORE);
static SLOTS2: Slots = slots(&CORE2);

const fn slots(functions: &'static [AtomicPtr<c_void>; CORE_SIZE]) -> Slots {
    let mut slots = [std::ptr::null(); CORE_SIZE + 1];
    // The first id is invalid, and its place null.
    let mut id = 1;
    while id < CORE_SIZE {
        slots[id] = &raw const functions[id];
        id += 1;
    }
    Slots(slots)
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    module_functions: extern "C" fn(c_uint, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: c_uint,
    reserved: c_uint,
    set_injection_version: extern "C" fn(c_uint),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_functions };
static VERSION_INFO: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set_injection_version };

extern "C" fn set_injection_version(_: c_uint) {}

extern "C" fn export_table(id: c_uint) -> *const c_void {
    match id {
        TABLE_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_VERSION => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

extern "C" fn module_functions(
    module: c_uint,
    table: *mut *const *const AtomicPtr<c_void>,
    size: *mut c_uint,
) -> c_int {
    let slots = match module {
        MODULE_CORE => &SLOTS,
        MODULE_CORE2 => &SLOTS2,
        _ => return 0,
    };
    // SAFETY: the library gives two places to write to, or null.
    unsafe {
        if !size.is_null() {
            // The count does not include the null at the end.
            size.write(CORE_SIZE as c_uint);
        }
        if !table.is_null() {
            table.write(slots.0.as_ptr());
        }
    }
    1
}

/// The functions of a profiler.
#[derive(Clone, Copy)]
struct Functions {
    push: RangePush,
    pop: RangePop,
}

/// Whether a profiler takes ranges. The first call asks it to.
pub(super) fn is_there() -> bool {
    functions().is_some()
}

fn functions() -> Option<Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let path = settings::nvtx_injection()?;
        let inject = || -> Result<Functions, String> {
            // SAFETY: whoever set the variable wants this library to be part of the program.
            let library = unsafe { Library::new(&path) }.map_err(|error| explained(&error))?;
            // SAFETY: by NVTX's protocol the function of that name has this type.
            let entry = unsafe { library.get::<InitializeInjection>(ENTRY) }.map_err(|error| explained(&error))?;
            // SAFETY: the tables live as long as the program.
            let accepted = unsafe { entry(export_table) };
            // Its functions are called until the program ends.
            std::mem::forget(library);
            if accepted == 0 {
                return Err("it refuses this program".to_string());
            }
            taken().ok_or_else(|| "it takes no ranges".to_string())
        };
        inject().map_err(|why| log::warn!("no ranges for the profiler {}: {why}", path.display())).ok()
    })
}

/// The functions, if the library has taken both.
fn taken() -> Option<Functions> {
    let [push, pop] = [RANGE_PUSH, RANGE_POP].map(|id| CORE[id].load(Ordering::Acquire));
    if push.is_null() || pop.is_null() {
        return None;
    }
    // SAFETY: by NVTX's protocol what is at these ids has these types.
    unsafe {
        let push = std::mem::transmute::<*mut c_void, RangePush>(push);
        let pop = std::mem::transmute::<*mut c_void, RangePop>(pop);
        Some(Functions { push, pop })
    }
}

/// A range of this thread, until it is dropped.
pub(super) struct Pushed {
    pop: RangePop,
    /// Ranges are ended by the thread that began them.
    stays: PhantomData<*const ()>,
}

/// Begins a range, if a profiler takes them.
pub(super) fn push(name: &str) -> Option<Pushed> {
    let Functions { push, pop } = functions()?;
    let text = CString::new(name.replace('\0', " ")).ok()?;
    // SAFETY: the text ends in zero, and is copied.
    unsafe { push(text.as_ptr()) };
    Some(Pushed { pop, stays: PhantomData })
}

impl Drop for Pushed {
    fn drop(&mut self) {
        // SAFETY: it ends the range that this thread began.
        unsafe { (self.pop)() };
    }
}
