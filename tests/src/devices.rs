//! The devices that tests run on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright::Device;

/// Checks that ran on the CPU only.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// Registers a function that runs when the process ends (C standard library).
    safe fn atexit(function: extern "C" fn()) -> i32;
}

/// The test harness keeps what passing tests print, so the count goes out when the process ends.
extern "C" fn report() {
    let count = SKIPPED.load(Ordering::Relaxed);
    if count > 0 {
        eprintln!("no CUDA device: {count} checks ran on the CPU only and were skipped on the GPU");
    }
}

/// The GPU, if there is one. Opened once per process.
pub fn gpu() -> Option<&'static Device> {
    static GPU: OnceLock<Option<Device>> = OnceLock::new();
    let device = GPU.get_or_init(|| Device::cuda(0).ok()).as_ref();
    if device.is_none() && SKIPPED.fetch_add(1, Ordering::Relaxed) == 0 {
        atexit(report);
    }
    device
}

/// Runs a test on the CPU, then on the GPU if there is one; where there is none, that is counted, and said at the end.
///
/// The device has streams of its own, so that the errors of one test are not those of another.
pub fn on_every_device(mut test: impl FnMut(&Device)) {
    test(&Device::cpu());
    if gpu().is_some() {
        match Device::cuda(0) {
            Ok(device) => test(&device),
            Err(error) => panic!("the GPU was there a moment ago: {error}"),
        }
    }
}

/// As [`on_every_device`], for tests that end at the first error of the runtime: an error is a failure.
pub fn check(test: impl Fn(&Device) -> Result<(), tilewright::Error>) {
    on_every_device(|device| test(device).unwrap_or_else(|error| panic!("on {device}: {error}")));
}
