//! What the runtime asks of the driver.

#[allow(dead_code, reason = "shared with the tests of the runtime")]
#[path = "../../../kernel-runtime/tests/launch/kernels.rs"]
mod kernels;

use super::in_the_model;
use super::raw::{ok, open};
use cudarc::driver::sys;
use kernel_runtime::{Device, Result};
use kernels::{ADD, AddConsts, add, leak};
use tilewright_driver_model::{Schedule, Settings, trace};

/// The functions that a piece of the program calls.
fn calls(run: impl FnOnce() -> Result<()>) -> Result<Vec<String>> {
    let before = trace().len();
    run()?;
    let calls = &trace()[before..];
    assert!(calls.iter().all(|call| call.code == 0), "{calls:?}");
    Ok(calls.iter().map(|call| call.function.clone()).collect())
}

fn check_calls() -> Result<()> {
    let device = Device::cuda(0)?;
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let x = device.upload(&values)?;
    let mut out = device.zeros::<f32>(1000)?;
    let mut launch = || add::<_, 128>(&x, &x, &mut out, 1000).grid(8).launch(&device);
    launch()?;
    assert_eq!(calls(&mut launch)?, ["cuLaunchKernelEx"]);
    let read = calls(|| {
        assert_eq!(out.to_vec()?, values.iter().map(|x| x + x).collect::<Vec<f32>>());
        Ok(())
    })?;
    let mode = "cuThreadExchangeStreamCaptureMode";
    let wait = [mode, "cuStreamSynchronize", mode];
    assert_eq!(read, [&["cuCtxGetCurrent", "cuMemcpyDtoHAsync_v2", "cuCtxGetCurrent"][..], &wait].concat());

    // What another stream has used is waited for once, buffer by buffer, and not by the host.
    let stream = device.new_stream()?;
    let mut sum = device.zeros::<f32>(1000)?;
    let mut elsewhere = || add::<_, 128>(&out, &x, &mut sum, 1000).grid(8).stream(&stream).launch(&device);
    let first = calls(&mut elsewhere)?;
    assert_eq!(first.iter().filter(|call| *call == "cuStreamWaitEvent").count(), 3, "{first:?}");
    assert_eq!(first.iter().filter(|call| call.contains("Synchronize")).count(), 0, "{first:?}");
    assert_eq!(calls(&mut elsewhere)?, ["cuLaunchKernelEx"]);
    assert_eq!(sum.to_vec()?, values.iter().map(|x| 3.0 * x).collect::<Vec<f32>>());
    Ok(())
}

/// Three kernels with one source stand for three processes with one cache of compiled code.
fn check_loading() -> Result<()> {
    let device = Device::cuda(0)?;
    let x = device.upload(&[1.0f32; 64])?;
    let mut out = device.zeros::<f32>(64)?;
    let mut loads = || -> Result<Vec<String>> {
        let kernel = leak(ADD);
        let mut calls = calls(|| AddConsts { BLOCK: 64 }.call(kernel, &x, &x, &mut out, 64).grid(1).launch(&device))?;
        calls.retain(|call| call.starts_with("cuLink") || call.starts_with("cuModuleLoad"));
        Ok(calls)
    };
    assert_eq!(loads()?, ["cuModuleLoadDataEx"], "the driver compiles");
    let links = ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy", "cuModuleLoadData"];
    assert_eq!(loads()?, links, "the linker makes machine code");
    assert_eq!(loads()?, ["cuModuleLoadData"], "which is kept");
    assert_eq!(out.to_vec()?, [2.0; 64]);
    Ok(())
}

in_the_model! {
    fn machine_code_is_made_once(Settings::default()) {
        check_loading().expect("no error");
    }

    fn a_warm_launch_is_one_call(Settings::default()) {
        check_calls().expect("no error");
    }

    fn the_callers_gpu_stays_current(Settings { devices: 2, ..Settings::default() }) {
        let (own, mut now) = (open(), std::ptr::null_mut());
        // SAFETY: the legacy stream is always there.
        let other = unsafe { Device::of_stream(1, 0) }.expect("a second GPU");
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuCtxGetCurrent(&mut now) });
        assert_eq!(now, own);
        assert_ne!(Some(other), Device::cuda(0).ok());
    }

    fn a_warm_launch_is_one_call_however_late_it_runs(Settings::default().schedule(Schedule::Late)) {
        check_calls().expect("no error");
    }
}
