//! Launches by hand, on the model of the driver.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ledger::Touch;
use crate::report_slot::{LaunchRecord, ReportSource};
use crate::storage::{Fill, Storage};
use cudarc::driver::{result as cu, sys::CUstreamCaptureMode as Mode};
use std::sync::Arc;
use tilewright_driver_model::{Settings, in_model};

fn failure() -> Error {
    Error::Llvm { message: "it failed".into() }
}

fn source() -> Arc<dyn ReportSource> {
    Arc::new(|_: &LaunchRecord| failure())
}

/// What it was to write depends on nothing then.
#[test]
fn a_captured_launch_that_is_not_made_ends() -> Result<()> {
    if !in_model("stream::tests::a_captured_launch_that_is_not_made_ends", &Settings::default()) {
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let (stream, other) = (device.new_stream()?, device.default_stream());
    let storage = Arc::new(Storage::new(&device, other, 8, 1, Fill::Zero)?);
    let captured = stream.cudarc().expect("of a GPU");
    captured.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_GLOBAL).expect("nobody captures");
    let handle = stream.acquire_record(source())?;
    storage.note_by_hand(other, handle.id(), 0..8, Touch::Write);
    assert!(storage.is_suspect(other.ledger()));
    drop(handle);
    assert!(!storage.is_suspect(other.ledger()));
    // SAFETY: the stream is alive.
    unsafe { cu::stream::end_capture(captured.cu_stream()) }.expect("nothing spoils it");
    Ok(())
}

/// A launch that is asked for its error too early has not ended well for that.
#[test]
fn a_launch_that_fails_later_is_told_to_readers() -> Result<()> {
    if !in_model("stream::tests::a_launch_that_fails_later_is_told_to_readers", &Settings::default()) {
        return Ok(());
    }
    let device = Device::cuda(0)?;
    let stream = device.default_stream();
    let storage = Storage::new(&device, stream, 8, 1, Fill::Zero)?;
    let handle = stream.acquire_record(source())?;
    let (launch, record) = (handle.id(), handle.device_ptr());
    storage.note_by_hand(stream, launch, 0..8, Touch::Write);
    handle.launched();
    assert_eq!(stream.take_error_of(launch), None);
    // What a program does that fails. Memory of the host has one address in the model.
    let record = std::ptr::with_exposed_provenance_mut::<LaunchRecord>(record as usize);
    // SAFETY: the record is the launch's, and no kernel has it.
    unsafe { record.write_volatile(LaunchRecord { state: LaunchRecord::CLAIMED, ..Default::default() }) };
    // SAFETY: there is room for the bytes.
    assert_eq!(unsafe { storage.read(0..8, [0u8; 8].as_mut_ptr()) }, Err(failure()));
    stream.synchronize()
}
