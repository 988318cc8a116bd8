//! The clock of the multiprocessors and what holds it back, read while a kernel runs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::library;

type Handle = *mut c_void;

/// The clock of the multiprocessors.
const SM: c_uint = 1;

/// What the driver says at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// MHz; 0 if unknown.
    pub clock: u32,
    /// Why it is not higher: bits of NVML.
    pub reasons: u64,
}

/// The reasons that say that the GPU is held back, by their bits.
const REASONS: [(u64, &str); 7] = [
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "software thermal"),
    (0x40, "hardware thermal"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
];

/// The names of throttle reasons, joined by `+`; `none` if there is none.
pub fn reasons(bits: u64) -> String {
    let names: Vec<&str> = REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { "none".to_string() } else { names.join("+") }
}

/// NVML, and the device that it asks about.
pub struct Nvml {
    device: Handle,
    clock: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int,
    reasons: unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_int,
}

impl Nvml {
    /// Opens the library for the first GPU.
    ///
    /// # Errors
    /// If there is no NVML, or no GPU.
    pub fn open() -> Result<Nvml, String> {
        let library = library::open_file("libnvidia-ml.so.1")?;
        // SAFETY: the types are those of `nvml.h`, and the library is never unloaded.
        let (init, by_index, clock, reasons) = unsafe {
            (
                library::function::<unsafe extern "C" fn() -> c_int>(&library, "nvmlInit_v2")?,
                library::function::<unsafe extern "C" fn(c_uint, *mut Handle) -> c_int>(
                    &library,
                    "nvmlDeviceGetHandleByIndex_v2",
                )?,
                library::function(&library, "nvmlDeviceGetClockInfo")?,
                library::function(&library, "nvmlDeviceGetCurrentClocksThrottleReasons")?,
            )
        };
        std::mem::forget(library);
        let mut device = std::ptr::null_mut();
        // SAFETY: the library is initialised before it is asked, and `device` is written once.
        let codes = unsafe { (init(), by_index(0, &mut device)) };
        if codes != (0, 0) {
            return Err(format!("NVML refuses the first GPU with {codes:?}"));
        }
        Ok(Nvml { device, clock, reasons })
    }

    /// What it says now.
    pub fn sample(&self) -> Sample {
        let (mut clock, mut reasons) = (0, 0);
        // SAFETY: the device is NVML's, and both results are written by the calls.
        let codes = unsafe { ((self.clock)(self.device, SM, &mut clock), (self.reasons)(self.device, &mut reasons)) };
        if codes == (0, 0) { Sample { clock, reasons } } else { Sample::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_names_and_idleness_is_none() {
        assert_eq!(reasons(0), "none");
        assert_eq!(reasons(0x1), "none");
        assert_eq!(reasons(0x44), "power cap+hardware thermal");
    }
}
