//! CUPTI, NVIDIA's library for profilers, where it is installed: it is loaded when a profile begins, so that nobody needs it.
//!
//! | module | what it is |
//! |---|---|
//! | `activity` | times of kernels |
//! | `ranges` | counters of the hardware, by CUPTI's range profiler, which `range_api` declares |
//! | `sampling` | samples of where programs are, and why they wait |
//! | `modules` | machine code as it is loaded, and the lines of the source that it names |
//!
//! Each module looks for the functions that it calls: a version that lacks some is too old for that, and good for the
//! rest. Structures have the places of CUPTI's headers, which tests keep.

pub(super) mod activity;
pub(super) mod modules;
mod range_api;
pub(super) mod ranges;
pub(super) mod sampling;

use super::explained;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

/// What the system may know CUPTI by, and where a toolkit installs it.
const NAMES: [&str; 4] =
    ["libcupti.so", "libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"];
/// What CUPTI loads by these names when counters are asked for. They lie beside it.
const BESIDE: [&str; 2] = ["libnvperf_target.so", "libnvperf_host.so"];
/// The API version of CUDA 9.0, the first with the records that `activity` reads.
const OLDEST: u32 = 10;
/// The API version of CUDA 12.6, the first with the range profiler, and with the samples that `sampling` reads.
const OLDEST_OF_COUNTERS: u32 = 24;

/// `CUPTI_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: c_int = 15;
/// `CUPTI_ERROR_HARDWARE_BUSY`.
const HARDWARE_BUSY: c_int = 26;
/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`, which is the driver's ERR_NVGPUCTRPERM, and that of virtual GPUs.
const INSUFFICIENT_PRIVILEGES: [c_int; 2] = [35, 40];
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const MULTIPLE_SUBSCRIBERS: c_int = 39;

/// `cuptiGetResultString`.
type GetResultString = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// The library.
pub(super) struct Cupti {
    library: Library,
    get_result_string: GetResultString,
    /// What it calls its interface.
    version: u32,
}

/// Declares functions of CUPTI, which are looked up together.
macro_rules! functions {
    ($vis:vis struct $functions:ident; $($field:ident = $name:ident($($ty:ty),*);)*) => {
        /// The functions that are called.
        $vis struct $functions {
            $($vis $field: unsafe extern "C" fn($($ty),*) -> std::ffi::c_int,)*
        }

        impl $functions {
            fn of(cupti: &super::Cupti) -> Result<$functions, String> {
                Ok($functions {
                    // SAFETY: CUPTI's functions of these names have these types.
                    $($field: unsafe { cupti.function(concat!(stringify!($name), "\0"))? },)*
                })
            }
        }
    };
}
use functions;

/// CUPTI, or why there is none.
pub(super) fn loaded() -> Result<&'static Cupti, String> {
    static LOADED: OnceLock<Result<Cupti, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let mut first = None;
        for name in NAMES {
            match Cupti::load(name) {
                Ok(cupti) => return Ok(cupti),
                Err(why) => drop(first.get_or_insert(why)),
            }
        }
        Err(first.unwrap_or_default())
    });
    loaded.as_ref().map_err(Clone::clone)
}

impl Cupti {
    fn load(path: &str) -> Result<Cupti, String> {
        // SAFETY: it is the library of that name, which the user has installed.
        let library = unsafe { Library::new(path) }.map_err(|error| explained(&error))?;
        // SAFETY: CUPTI's functions of these names have these types; it is never unloaded.
        let (get_result_string, get_version) = unsafe {
            let get_result_string: GetResultString = find(&library, "cuptiGetResultString\0")?;
            let get_version: unsafe extern "C" fn(*mut u32) -> c_int = find(&library, "cuptiGetVersion\0")?;
            (get_result_string, get_version)
        };
        let mut version = 0;
        // SAFETY: the place is writable.
        unsafe { get_version(&mut version) };
        if version < OLDEST {
            return Err(format!("{path} is of API version {version}, older than CUDA 9"));
        }
        load_beside(path);
        Ok(Cupti { library, get_result_string, version })
    }

    /// What it calls its interface.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// # Safety
    /// The function of that name, which ends in a zero, has the type `F`.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: promised by the caller.
        unsafe { find(&self.library, name) }
    }

    /// Whether it can count and sample.
    fn check_counts(&self) -> Result<(), String> {
        if self.version >= OLDEST_OF_COUNTERS {
            return Ok(());
        }
        Err(format!(
            "CUPTI of API version {} is too old: counters and samples take that of CUDA 12.6 (API version \
             {OLDEST_OF_COUNTERS}) or later",
            self.version
        ))
    }

    /// What a call gave, as an error that says what to do.
    fn check(&self, call: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the place is writable; the text is CUPTI's own and constant.
        let text = unsafe {
            match (self.get_result_string)(status, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy(),
                _ => "an error without a name".into(),
            }
        };
        Err(format!("{call}: {text} ({status}){}", advice(status)))
    }
}

/// What to do about an error.
fn advice(status: c_int) -> &'static str {
    match status {
        NOT_INITIALIZED => {
            "; it may be that libnvperf_host.so is not found, which lies beside libcupti.so: have LD_LIBRARY_PATH name \
             their folder"
        }
        HARDWARE_BUSY => "; another profiler has the counters of this GPU",
        MULTIPLE_SUBSCRIBERS => "; another profiler has this process",
        status if INSUFFICIENT_PRIVILEGES.contains(&status) => {
            " (ERR_NVGPUCTRPERM); the driver lets only administrators count and sample on this machine: run as root, or \
             have the module `nvidia` loaded with NVreg_RestrictProfilingToAdminUsers=0, see \
             https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        }
        _ => "",
    }
}

/// # Safety
/// The symbol of that name, which ends in a zero, has the type `F`.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: promised by the caller.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|error| explained(&error))
}

/// Loads what CUPTI will look for, from beside it: the system's loader does not look there.
fn load_beside(path: &str) {
    let Some(folder) = Path::new(path).parent().filter(|folder| folder.is_absolute()) else { return };
    for name in BESIDE {
        // SAFETY: it is part of CUPTI. Without it, counters cannot be had, which says so then.
        if let Ok(library) = unsafe { Library::new(folder.join(name)) } {
            std::mem::forget(library);
        }
    }
}

/// The size that CUPTI wants to be told of a structure: up to the end of its last field.
macro_rules! size_to {
    ($type:ty, $last:ident: $field:ty) => {
        std::mem::offset_of!($type, $last) + size_of::<$field>()
    };
}
use size_to;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        for status in INSUFFICIENT_PRIVILEGES {
            let text = advice(status);
            assert!(text.contains("ERR_NVGPUCTRPERM") && text.contains("root"), "{text}");
        }
        assert!(advice(NOT_INITIALIZED).contains("LD_LIBRARY_PATH"));
        assert_eq!(advice(1), "");
    }

    #[test]
    fn a_library_that_is_not_cupti_is_refused() {
        let why = Cupti::load("/no/such/folder/libcupti.so").map(drop).unwrap_err();
        assert!(why.contains("/no/such/folder"), "{why}");
        let why = Cupti::load("libc.so.6").map(drop).unwrap_err();
        assert!(why.contains("cuptiGetResultString"), "{why}");
    }
}
