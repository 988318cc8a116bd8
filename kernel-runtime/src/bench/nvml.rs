//! The clock of the multiprocessors and what holds it back, by NVML, where that is installed.

use crate::device::Device;
use cudarc::driver::sys;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;

/// The clock of the multiprocessors.
const SM: c_uint = 1;

/// Characters of a PCI address, with room to spare: `00000000:3B:00.0`.
const ADDRESS: usize = 32;

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
    /// Never unloaded before the functions were called for the last time.
    _library: Library,
}

type ByAddress = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;

impl Nvml {
    /// Opens the library for a GPU.
    ///
    /// # Errors
    /// If there is no NVML, or the device is none that it knows.
    pub fn of(device: &Device) -> Result<Nvml, String> {
        let address = pci_address(device).ok_or("the device has no PCI address")?;
        let name = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };
        // SAFETY: the driver's library is made to be loaded by any program.
        let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: the types are those of `nvml.h`; the library lives as long as what is called.
        let (init, find, clock, reasons) = unsafe {
            (
                *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").map_err(missing)?,
                *library.get::<ByAddress>(b"nvmlDeviceGetHandleByPciBusId_v2\0").map_err(missing)?,
                *library.get(b"nvmlDeviceGetClockInfo\0").map_err(missing)?,
                *library.get(b"nvmlDeviceGetCurrentClocksThrottleReasons\0").map_err(missing)?,
            )
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is initialised before it is asked, the address ends in zero, and `handle` is written once.
        let codes = unsafe { (init(), find(address.as_ptr(), &mut handle)) };
        if codes != (0, 0) {
            return Err(format!("NVML refuses the GPU with {codes:?}"));
        }
        Ok(Nvml { device: handle, clock, reasons, _library: library })
    }

    /// What it says now.
    pub fn sample(&self) -> Sample {
        let (mut clock, mut reasons) = (0, 0);
        // SAFETY: the device is NVML's, and both results are written by the calls.
        let codes = unsafe { ((self.clock)(self.device, SM, &mut clock), (self.reasons)(self.device, &mut reasons)) };
        if codes == (0, 0) { Sample { clock, reasons } } else { Sample::default() }
    }
}

/// Where the GPU is, as the driver writes it.
fn pci_address(device: &Device) -> Option<std::ffi::CString> {
    let ctx = device.cuda_context()?;
    let mut text = [0 as c_char; ADDRESS];
    // SAFETY: the device belongs to a live context, and the text has as much room as is said.
    unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), ADDRESS as c_int, ctx.cu_device()) }.result().ok()?;
    // SAFETY: the driver ends the text with a zero inside the array.
    Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_owned())
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
