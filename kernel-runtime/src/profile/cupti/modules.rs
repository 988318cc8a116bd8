//! Machine code as it is loaded, and the lines of the source that it names.
//!
//! What the driver has made of PTX it gives nobody but CUPTI, when the code is loaded. Code that was loaded before is
//! therefore loaded once more, which gives the same bytes; that they are the same a checksum says.

use super::{Cupti, functions, size_to};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// `CUPTI_CB_DOMAIN_RESOURCE`.
const RESOURCE: c_int = 3;
/// `CUPTI_CBID_RESOURCE_MODULE_LOADED`.
const MODULE_LOADED: u32 = 6;

/// `CUpti_ResourceData`.
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    handle: *mut c_void,
    descriptor: *const ModuleData,
}

/// `CUpti_ModuleResourceData`.
#[repr(C)]
struct ModuleData {
    id: u32,
    size: usize,
    cubin: *const u8,
}

/// `CUpti_GetCubinCrcParams`.
#[repr(C)]
struct CubinCrc {
    size: usize,
    cubin_size: usize,
    cubin: *const u8,
    crc: u64,
}

/// `CUpti_GetSassToSourceCorrelationParams`.
#[repr(C)]
struct Correlation {
    size: usize,
    cubin: *const u8,
    function: *const c_char,
    cubin_size: usize,
    line: u32,
    pc: u64,
    file: *mut c_char,
    folder: *mut c_char,
}

const CRC_SIZE: usize = size_to!(CubinCrc, crc: u64);
const CORRELATION_SIZE: usize = size_to!(Correlation, folder: *mut c_char);

type Subscriber = *mut c_void;
type Callback = extern "C" fn(*mut c_void, c_int, u32, *const c_void);

functions! {
    struct Functions;
    subscribe = cuptiSubscribe(*mut Subscriber, Callback, *mut c_void);
    unsubscribe = cuptiUnsubscribe(Subscriber);
    enable_callback = cuptiEnableCallback(u32, Subscriber, c_int, u32);
    cubin_crc = cuptiGetCubinCrc(*mut CubinCrc);
    correlation = cuptiGetSassToSourceCorrelation(*mut Correlation);
}

unsafe extern "C" {
    /// The C library's, with which CUPTI's texts are freed.
    fn free(memory: *mut c_void);
}

/// A line of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::profile) struct Line {
    pub(in crate::profile) file: String,
    pub(in crate::profile) line: u32,
}

/// Machine code by checksum.
type Known = HashMap<u64, Arc<[u8]>>;

/// What was loaded, as long as somebody watches. CUPTI is not called under the lock, which its callback takes.
static CODE: Mutex<Option<Known>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Known>> {
    CODE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ready() -> Result<(&'static Cupti, &'static Functions), String> {
    static READY: OnceLock<Result<Functions, String>> = OnceLock::new();
    let cupti = super::loaded()?;
    let functions = READY.get_or_init(|| Functions::of(cupti)).as_ref().map_err(Clone::clone)?;
    Ok((cupti, functions))
}

/// What is loaded is noted, until this is dropped.
pub(in crate::profile) struct Watch {
    functions: &'static Functions,
    subscriber: Subscriber,
}

// SAFETY: a subscriber is a handle that any thread may use.
unsafe impl Send for Watch {}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// Why that cannot be: there is one subscriber in a process.
    pub(in crate::profile) fn begin() -> Result<Watch, String> {
        let (cupti, functions) = ready()?;
        let mut subscriber = null_mut();
        // SAFETY: the place is writable; the callback keeps CUPTI's rules, and lives as long as the program.
        let status = unsafe { (functions.subscribe)(&mut subscriber, loaded, null_mut()) };
        cupti.check("cuptiSubscribe", status)?;
        let watch = Watch { functions, subscriber };
        *lock() = Some(HashMap::new());
        // SAFETY: the subscriber is CUPTI's.
        let status = unsafe { (functions.enable_callback)(1, subscriber, RESOURCE, MODULE_LOADED) };
        cupti.check("cuptiEnableCallback", status)?;
        Ok(watch)
    }

    /// Whether code with this checksum was loaded.
    pub(in crate::profile) fn has(&self, crc: u64) -> bool {
        lock().as_ref().is_some_and(|code| code.contains_key(&crc))
    }

    /// The line that an instruction of code with this checksum is from: that of the innermost function. Nothing if the
    /// code is not known, or does not say.
    pub(in crate::profile) fn line(&self, crc: u64, entry: &str, pc: u64) -> Option<Line> {
        let code = lock().as_ref()?.get(&crc)?.clone();
        line_of(self.functions, &code, entry, pc)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the subscriber is CUPTI's.
        let _ = unsafe { (self.functions.unsubscribe)(self.subscriber) };
        *lock() = None;
    }
}

/// CUPTI says that something has happened.
extern "C" fn loaded(_: *mut c_void, domain: c_int, id: u32, data: *const c_void) {
    if (domain, id) != (RESOURCE, MODULE_LOADED) || data.is_null() {
        return;
    }
    // SAFETY: for that domain and id the data are these, during this call.
    let code = unsafe {
        let descriptor = (*data.cast::<ResourceData>()).descriptor;
        match descriptor.as_ref() {
            Some(module) if !module.cubin.is_null() => std::slice::from_raw_parts(module.cubin, module.size),
            _ => return,
        }
    };
    if let Ok((_, functions)) = ready()
        && let Some(crc) = checksum(functions, code)
        && let Some(known) = lock().as_mut()
    {
        known.entry(crc).or_insert_with(|| code.into());
    }
}

/// CUPTI's checksum of machine code.
fn checksum(functions: &Functions, code: &[u8]) -> Option<u64> {
    let mut params = CubinCrc { size: CRC_SIZE, cubin_size: code.len(), cubin: code.as_ptr(), crc: 0 };
    // SAFETY: the code is there during the call.
    let status = unsafe { (functions.cubin_crc)(&mut params) };
    (status == 0).then_some(params.crc)
}

fn line_of(functions: &Functions, code: &[u8], entry: &str, pc: u64) -> Option<Line> {
    let entry = CString::new(entry).ok()?;
    let mut params = Correlation {
        size: CORRELATION_SIZE,
        cubin: code.as_ptr(),
        function: entry.as_ptr(),
        cubin_size: code.len(),
        line: 0,
        pc,
        file: null_mut(),
        folder: null_mut(),
    };
    // SAFETY: the code and the name are there during the call.
    let status = unsafe { (functions.correlation)(&mut params) };
    // SAFETY: the texts are null or CUPTI's, which gives them away.
    let (file, folder) = unsafe { (taken(params.file), taken(params.folder)) };
    let file = file.filter(|file| status == 0 && !file.is_empty() && params.line > 0)?;
    let file = match folder.filter(|folder| !folder.is_empty() && !file.starts_with('/')) {
        Some(folder) => format!("{}/{file}", folder.trim_end_matches('/')),
        None => file,
    };
    Some(Line { file, line: params.line })
}

/// A text that is given away.
///
/// # Safety
/// It is null, or a text of the C library's that nobody else has.
unsafe fn taken(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: promised by the caller; texts end in zero.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        free(text.cast());
        Some(owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// From CUPTI's headers.
    #[test]
    fn structures_are_those_of_cupti() {
        assert_eq!((CRC_SIZE, CORRELATION_SIZE, offset_of!(Correlation, pc)), (32, 64, 40));
        assert_eq!((size_of::<ResourceData>(), offset_of!(ResourceData, descriptor)), (24, 16));
        assert_eq!((size_of::<ModuleData>(), offset_of!(ModuleData, cubin)), (24, 16));
    }

    /// Lines 7 and 8 of one file around one of another.
    const PTX: &str = r#"
.version 8.0
.target sm_90
.address_size 64
.visible .entry squares(.param .u64 x, .param .u64 out) {
    .reg .b64 %at<3>;
    .reg .f32 %value<2>;
    .loc 1 7 5
    ld.param.u64 %at1, [x];
    ld.param.u64 %at2, [out];
    ld.global.f32 %value0, [%at1];
    .loc 2 30 5
    mul.f32 %value1, %value0, %value0;
    .loc 1 8 5
    st.global.f32 [%at2], %value1;
    ret;
}
.file 1 "src/squares.rs"
.file 2 "/other/lib.rs"
"#;

    /// Where NVIDIA's assembler and CUPTI are.
    #[test]
    fn machine_code_says_which_lines_its_instructions_are_from() {
        let Ok((_, functions)) = ready() else { return };
        let Ok(ptxas) = crate::archive::Ptxas::find() else { return };
        let (code, _) = ptxas.assemble_text(PTX, "sm_90").expect("it assembles");
        let line = |pc| line_of(functions, &code, "squares", pc).map(|at| (at.file, at.line));
        let mut found: Vec<_> = (0..256).step_by(16).filter_map(line).collect();
        found.sort();
        found.dedup();
        let expected = [("/other/lib.rs", 30), ("src/squares.rs", 7), ("src/squares.rs", 8)];
        assert_eq!(found, expected.map(|(file, line)| (file.to_string(), line)));
        assert_eq!(line_of(functions, &code, "cubes", 0), None, "there is no such function");
    }

    #[test]
    fn what_is_no_machine_code_has_no_lines() {
        let Ok((_, functions)) = ready() else { return };
        assert_eq!(line_of(functions, b"not an ELF file", "add", 16), None);
        assert_eq!(line_of(functions, &[0; 64], "a\0b", 16), None);
    }
}
