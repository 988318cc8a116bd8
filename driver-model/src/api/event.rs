//! Events.

use super::{driver, put};
use cudarc::driver::sys::CUresult as Code;
use std::ffi::c_uint;

const DISABLE_TIMING: c_uint = 2;
/// All flags that exist: blocking waits, without time, between processes.
const FLAGS: c_uint = 7;

driver! {
    Context fn cuEventCreate(model, note, event: *mut usize, flags: c_uint) {
        if flags > FLAGS {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = model.create_event(flags & DISABLE_TIMING == 0);
        note.handle("event", handle as u64);
        put(event, handle)
    }

    Driver fn cuEventDestroy_v2(model, note, event: usize) {
        note.handle("event", event as u64);
        model.destroy_event(event)
    }

    Context fn cuEventRecord(model, note, event: usize, stream: usize) {
        note.stream(stream);
        note.handle("event", event as u64);
        model.record_event(note.number, event, stream)
    }

    Context fn cuEventSynchronize(model, note, event: usize) {
        note.handle("event", event as u64);
        model.synchronize_event(event)
    }

    Context fn cuEventQuery(model, note, event: usize) {
        note.handle("event", event as u64);
        model.query_event(event)
    }

    Context fn cuEventElapsedTime(model, note, milliseconds: *mut f32, start: usize, end: usize) {
        let elapsed = model.elapsed(start, end)?;
        put(milliseconds, elapsed)
    }

    Context fn cuEventElapsedTime_v2(model, note, milliseconds: *mut f32, start: usize, end: usize) {
        let elapsed = model.elapsed(start, end)?;
        put(milliseconds, elapsed)
    }
}
