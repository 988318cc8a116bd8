//! candle's CUDA devices on the model of the driver: no GPU is needed, and each call of the driver is written down.
//!
//! Each test runs in a process of its own, whose driver is the model. candle's own kernels are not there but for those that
//! every gradient needs: `scripts/check-candle` builds it so, and says where the model's library is.

#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "the other tests use more")]
#[path = "../common.rs"]
mod common;

mod calls;
mod captures;
mod devices;
mod faults;
mod ops;

use candle_core::{Device, Result, Tensor};
use tilewright_driver_model::{Call, Settings, find_library, in_model, trace};

/// Whether this process has the model, as [`in_model`] says. Where the model is not there the test is skipped.
fn has_model(test: &str, settings: &Settings) -> bool {
    if find_library().is_none() {
        println!("skipped: no model of the driver; scripts/check-candle runs this test");
        return false;
    }
    in_model(test, settings)
}

/// Tests that run in a process which has the model, and give candle's results.
macro_rules! in_the_model {
    ($($(#[doc = $doc:expr])* fn $name:ident($settings:expr) $body:block)*) => { $(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let (_, test) = path.split_once("::").expect("the crate's name comes first");
            if $crate::has_model(test, &$settings) {
                let check = || -> candle_core::Result<()> { $body };
                check().unwrap();
            }
        }
    )* };
}
use in_the_model;

/// What a piece of the program gives, and what it asks of the driver, but for which context is current.
fn calls<R>(run: impl FnOnce() -> Result<R>) -> Result<(R, Vec<Call>)> {
    let before = trace().len();
    let result = run()?;
    let calls = trace().split_off(before);
    assert!(calls.iter().all(|call| call.code == 0), "{calls:#?}");
    Ok((result, calls.into_iter().filter(|call| call.function != "cuCtxGetCurrent").collect()))
}

/// Their functions.
fn functions(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.function.as_str()).collect()
}

/// Asserts that the host neither waits, nor asks whether something is done, nor copies.
#[track_caller]
fn check_no_wait(calls: &[Call]) {
    let waits = |call: &&Call| ["Synchronize", "Query", "Memcpy"].iter().any(|part| call.function.contains(part));
    assert_eq!(calls.iter().find(waits), None, "{:?}", functions(calls));
}

/// Another stream than that of [`Device::new_cuda`], on which candle marks nothing with events.
fn without_events() -> Result<Device> {
    let device = Device::new_cuda_with_stream(0)?;
    // SAFETY: all tensors of this context are used on one stream.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    Ok(device)
}

/// The numbers of a tensor, on the host.
fn numbers(x: &Tensor) -> Vec<f64> {
    common::reals(&x.to_device(&Device::Cpu).expect("a copy on the host"))
}
