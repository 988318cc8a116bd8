//! Streams and their captures.

use super::{driver, list, put, put_if};
use crate::model::{Action, CaptureInfo, HostFunction, Mode, Model, Note, Outcome, exchange_mode};
use cudarc::driver::sys::CUresult as Code;
use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

const NON_BLOCKING: c_uint = 1;
/// Of `CUstreamCaptureStatus`.
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

thread_local! {
    /// Nodes that were given out, which stay where they are until the thread asks again.
    static NODES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn create(model: &mut Model, note: &mut Note, stream: *mut usize, flags: c_uint) -> Outcome {
    if flags > NON_BLOCKING {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    let handle = model.create_stream(flags != NON_BLOCKING);
    note.stream(handle);
    put(stream, handle)
}

/// The status of a stream's capture, if it has one.
fn status_of(info: Option<&CaptureInfo>) -> u32 {
    match info {
        None => 0,
        Some(info) if info.is_invalid => INVALIDATED,
        Some(_) => ACTIVE,
    }
}

/// Where a caller wants what is known of a capture; null where it does not.
struct CapturePlaces {
    id: *mut u64,
    graph: *mut usize,
    nodes: *mut *const usize,
    count: *mut usize,
}

/// Tells the status of a capture, and what is known of one that goes on.
fn put_capture(info: Option<CaptureInfo>, status: *mut u32, places: CapturePlaces) -> Outcome {
    put(status, status_of(info.as_ref()))?;
    let Some(info) = info.filter(|info| !info.is_invalid) else { return Ok(()) };
    put_if(places.id, info.id as u64);
    put_if(places.graph, info.graph);
    put_if(places.count, info.last.len());
    NODES.with_borrow_mut(|kept| {
        *kept = info.last;
        put_if(places.nodes, kept.as_ptr());
    });
    Ok(())
}

driver! {
    Context fn cuStreamCreate(model, note, stream: *mut usize, flags: c_uint) {
        create(model, note, stream, flags)
    }

    Context fn cuStreamCreateWithPriority(model, note, stream: *mut usize, flags: c_uint, _priority: c_int) {
        create(model, note, stream, flags)
    }

    Driver fn cuStreamDestroy_v2(model, note, stream: usize) {
        note.stream(stream);
        model.destroy_stream(stream)
    }

    Context fn cuStreamSynchronize(model, note, stream: usize) {
        note.stream(stream);
        model.refuse_prohibited()?;
        model.synchronize_stream(stream)
    }

    Context fn cuStreamQuery(model, note, stream: usize) {
        note.stream(stream);
        model.refuse_prohibited()?;
        model.query_stream(stream)
    }

    Context fn cuStreamWaitEvent(model, note, stream: usize, event: usize, flags: c_uint) {
        note.stream(stream);
        note.handle("event", event as u64);
        if flags != 0 {
            model.violate("the model has no waits for events outside of a graph");
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        model.wait_event(note.number, stream, event)
    }

    Context fn cuStreamGetCtx(model, note, stream: usize, context: *mut usize) {
        note.stream(stream);
        let own = model.context_of_stream(stream)?;
        put(context, own)
    }

    Context fn cuStreamGetDevice(model, note, stream: usize, device: *mut c_int) {
        note.stream(stream);
        let context = model.context_of_stream(stream)?;
        put(device, model.device_of(context)?)
    }

    Context fn cuStreamGetFlags(model, note, stream: usize, flags: *mut c_uint) {
        note.stream(stream);
        let own = model.is_non_blocking(stream)?;
        put(flags, if own { NON_BLOCKING } else { 0 })
    }

    Context fn cuLaunchHostFunc(model, note, stream: usize, function: Option<HostFunction>, data: *mut c_void) {
        note.stream(stream);
        let function = function.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        model.enqueue(note.number, stream, Action::Call(function, data.expose_provenance())).map(drop)
    }

    Context fn cuStreamBeginCapture_v2(model, note, stream: usize, mode: u32) {
        note.stream(stream);
        note.number("mode", mode.into());
        model.begin_capture(stream, Mode::of(mode)?)
    }

    Context fn cuStreamEndCapture(model, note, stream: usize, graph: *mut usize) {
        note.stream(stream);
        put(graph, 0)?;
        let captured = model.end_capture(stream)?;
        put(graph, captured)
    }

    Context fn cuStreamIsCapturing(model, note, stream: usize, status: *mut u32) {
        note.stream(stream);
        let info = model.capture_info(stream)?;
        put(status, status_of(info.as_ref()))
    }

    Context fn cuStreamGetCaptureInfo_v2(
        model,
        note,
        stream: usize,
        status: *mut u32,
        id: *mut u64,
        graph: *mut usize,
        nodes: *mut *const usize,
        count: *mut usize,
    ) {
        note.stream(stream);
        let info = model.capture_info(stream)?;
        put_capture(info, status, CapturePlaces { id, graph, nodes, count })
    }

    Context fn cuStreamGetCaptureInfo_v3(
        model,
        note,
        stream: usize,
        status: *mut u32,
        id: *mut u64,
        graph: *mut usize,
        nodes: *mut *const usize,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        note.stream(stream);
        put_if(edges, std::ptr::null());
        let info = model.capture_info(stream)?;
        put_capture(info, status, CapturePlaces { id, graph, nodes, count })
    }

    Context fn cuStreamUpdateCaptureDependencies_v2(
        model,
        note,
        stream: usize,
        nodes: *const usize,
        _edges: *const c_void,
        count: usize,
        flags: c_uint,
    ) {
        note.stream(stream);
        let nodes = list(nodes, count)?;
        // Zero adds, one sets.
        model.set_last_nodes(stream, &nodes, flags == 0)
    }

    Context fn cuStreamUpdateCaptureDependencies(
        model,
        note,
        stream: usize,
        nodes: *const usize,
        count: usize,
        flags: c_uint,
    ) {
        note.stream(stream);
        let nodes = list(nodes, count)?;
        model.set_last_nodes(stream, &nodes, flags == 0)
    }

    Nothing fn cuThreadExchangeStreamCaptureMode(model, note, mode: *mut u32) {
        let new = Mode::of(super::get(mode)?)?;
        put(mode, exchange_mode(new) as u32)
    }
}
