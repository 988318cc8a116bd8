//! What is allowed while a stream is captured, and what the rest does to the capture.

use super::in_the_model;
use super::raw::{
    allocate, begin, end, event, fill, free, instantiate, instantiate_with, launch, ok, open, read, record, status,
    stream, synchronize, wait,
};
use cudarc::driver::sys::{self, CUresult as Code, CUstream};
use tilewright_driver_model::{Settings, take_violations};

const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

/// Does something during a capture that gives an error, after which the capture is of no use.
fn ruins(own: CUstream, what: &str, expected: Code, run: impl FnOnce() -> Code) {
    ok(begin(own, 0));
    assert_eq!(run(), expected, "{what}");
    assert_eq!(status(own), INVALIDATED, "{what}");
    assert_eq!(fill(8, 0, 0, own), Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "{what}");
    assert_eq!(end(own), Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "{what}");
    assert_eq!((status(own), synchronize(own)), (0, Code::CUDA_SUCCESS), "{what}");
}

/// An allocation for everybody, which could disturb a capture.
fn disturb() -> Code {
    let mut address = 0;
    // SAFETY: the result has a place.
    unsafe { sys::cuMemAlloc_v2(&mut address, 64) }
}

fn exchange(mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    let mut mode = mode;
    // SAFETY: the mode has a place.
    ok(unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) });
    mode
}

in_the_model! {
    fn what_is_captured_is_done_at_each_launch(Settings::default()) {
        open();
        let own = stream();
        let address = allocate(8, own);
        ok(fill(address, 1, 2, own));
        ok(begin(own, 0));
        assert_eq!(status(own), ACTIVE);
        ok(fill(address, 2, 1, own));
        // SAFETY: copies of four bytes between numbers.
        ok(unsafe { sys::cuMemcpyDtoDAsync_v2(address + 4, address, 4, own) });
        let graph = end(own).expect("a graph");
        let mut count = 0;
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) });
        assert_eq!((count, status(own), read(address + 4, own)), (2, 0, 1));
        ok(launch(instantiate(graph), own));
        assert_eq!(read(address + 4, own), 2);
    }

    fn memory_of_a_graph_lives_from_node_to_node(Settings::default()) {
        open();
        let own = stream();
        let kept = allocate(4, own);
        ok(begin(own, 0));
        let address = allocate(4, own);
        ok(fill(address, 3, 1, own));
        // SAFETY: a copy of a number.
        ok(unsafe { sys::cuMemcpyDtoDAsync_v2(kept, address, 4, own) });
        ok(free(address, own));
        let exec = instantiate(end(own).expect("a graph"));
        for _ in 0..3 {
            ok(launch(exec, own));
            assert_ne!(allocate(4, own), address, "it is the graph's between launches too");
        }
        assert_eq!(read(kept, own), 3);
        assert_eq!(take_violations(), [""; 0]);
        // SAFETY: a copy of a number.
        ok(unsafe { sys::cuMemcpyDtoDAsync_v2(kept, address, 4, own) });
        ok(synchronize(own));
        assert!(take_violations()[0].contains("are used after"), "it has been freed");
    }

    fn memory_that_a_launch_has_left_is_freed_by_the_next_if_the_graph_says_so(Settings::default()) {
        open();
        let (own, other) = (stream(), stream());
        let captured = |flags| {
            ok(begin(own, 0));
            let address = allocate(4, own);
            ok(fill(address, 3, 1, own));
            (address, instantiate_with(end(own).expect("a graph"), flags))
        };
        let (left, exec) = captured(1);
        for _ in 0..3 {
            ok(launch(exec, own));
            assert_eq!(read(left, own), 3);
        }
        ok(free(left, own));
        ok(launch(exec, own));
        assert_eq!((read(left, own), take_violations()), (3, vec![]), "who frees it himself may");
        // What others do with it is their business.
        ok(fill(left, 4, 1, other));
        ok(launch(exec, own));
        ok(synchronize(other));
        ok(synchronize(own));
        let found = take_violations();
        assert!(found.len() == 1 && found[0].contains("order"), "the other stream is not waited for: {found:?}");

        let (stays, exec) = captured(0);
        ok(launch(exec, own));
        ok(launch(exec, own));
        assert_eq!(read(stays, own), 3);
        assert!(take_violations()[0].contains("which nobody has freed"));
    }

    fn what_waits_ruins_a_capture(Settings::default()) {
        open();
        let (own, other, before) = (stream(), stream(), event());
        let address = allocate(4, other);
        ok(record(before, other));
        let unsupported = Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        // SAFETY: handles are alive.
        unsafe {
            ruins(own, "waiting", unsupported, || synchronize(own));
            ruins(own, "asking", unsupported, || sys::cuStreamQuery(own));
            ruins(own, "waiting for all", unsupported, || sys::cuCtxSynchronize());
            ruins(own, "an event", unsupported, || sys::cuEventQuery(before));
            ruins(own, "allocating", unsupported, disturb);
            let mut number = 0u32;
            let place = (&raw mut number).cast();
            ruins(own, "a copy that is waited for", unsupported, || sys::cuMemcpyDtoH_v2(place, address, 4));
            ruins(own, "what is not captured", Code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, || wait(own, before));
            let captured = event();
            ruins(own, "a captured event", Code::CUDA_ERROR_CAPTURED_EVENT, || {
                ok(record(captured, own));
                sys::cuEventSynchronize(captured)
            });
        }
    }

    fn captures_begin_and_end_on_their_stream(Settings::default()) {
        open();
        let (own, side, fork) = (stream(), stream(), event());
        assert_eq!(begin(std::ptr::null_mut(), 0), Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end(own), Err(Code::CUDA_ERROR_ILLEGAL_STATE));
        ok(begin(own, 0));
        assert_eq!(begin(own, 0), Code::CUDA_ERROR_ILLEGAL_STATE);
        let ended = std::thread::scope(|scope| {
            let own = own.expose_provenance();
            let end = move || { open(); end(std::ptr::with_exposed_provenance_mut(own)).map(|_| ()) };
            scope.spawn(end).join().expect("no panic")
        });
        assert_eq!(ended, Err(Code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
        ok(record(fork, own));
        ok(wait(side, fork));
        assert_eq!(status(side), ACTIVE);
        assert_eq!(end(side), Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
        assert_eq!(end(own), Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));

        let address = allocate(4, own);
        ok(begin(own, 0));
        ok(record(fork, own));
        ok(wait(side, fork));
        ok(fill(address, 1, 1, side));
        assert_eq!(end(own), Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        assert_eq!((status(own), status(side)), (0, 0));
    }

    fn captures_do_not_mix(Settings::default()) {
        open();
        let (own, other, fork) = (stream(), stream(), event());
        ok(begin(own, 0));
        ok(begin(other, 0));
        ok(record(fork, own));
        assert_eq!(wait(other, fork), Code::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        assert_eq!((status(own), status(other)), (INVALIDATED, INVALIDATED));
        assert!(end(own).is_err() && end(other).is_err());
        assert_eq!(wait(other, fork), Code::CUDA_ERROR_CAPTURED_EVENT);
    }

    fn the_legacy_stream_is_not_used_meanwhile(Settings::default()) {
        open();
        let (own, mut blocking, legacy) = (stream(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuStreamCreate(&mut blocking, 0) });
        let address = allocate(4, own);
        ok(synchronize(own));
        ok(begin(own, 2));
        ok(fill(address, 1, 1, legacy));
        end(own).expect("a stream that does not wait for it");
        ok(begin(blocking, 2));
        assert_eq!(fill(address, 1, 1, legacy), Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(end(blocking), Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    }

    fn modes_say_who_is_kept_from_what(Settings::default()) {
        use sys::CUstreamCaptureMode::{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED};
        open();
        let own = stream();
        let elsewhere = || std::thread::scope(|scope| {
            scope.spawn(|| { open(); disturb() }).join().expect("no panic")
        });
        let unsupported = Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        for (mode, here, there) in [
            (0, unsupported, unsupported),
            (1, unsupported, Code::CUDA_SUCCESS),
            (2, Code::CUDA_SUCCESS, Code::CUDA_SUCCESS),
        ] {
            ok(begin(own, mode));
            assert_eq!(elsewhere(), there, "mode {mode}");
            assert_eq!(end(own).is_ok(), there == Code::CUDA_SUCCESS, "mode {mode}");
            ok(begin(own, mode));
            assert_eq!(disturb(), here, "mode {mode}");
            assert_eq!(end(own).is_ok(), here == Code::CUDA_SUCCESS, "mode {mode}");
        }
        // Waiting for a stream, and asking for it, are among what may disturb, whichever stream it is.
        let other = stream();
        for look in [sys::cuStreamSynchronize, sys::cuStreamQuery] {
            ok(begin(own, 0));
            // SAFETY: the stream is alive.
            assert_eq!(unsafe { look(other) }, unsupported);
            assert!(end(own).is_err());
        }
        // A thread may say that it knows what it does.
        assert_eq!(exchange(CU_STREAM_CAPTURE_MODE_RELAXED), CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(begin(own, 0));
        ok(disturb());
        // SAFETY: the stream is alive.
        ok(unsafe { sys::cuStreamSynchronize(other) });
        end(own).expect("a graph");
    }

    fn the_graph_that_is_captured_can_be_looked_at(Settings::default()) {
        open();
        let own = stream();
        let address = allocate(4, own);
        ok(begin(own, 0));
        ok(fill(address, 1, 1, own));
        let (mut state, mut id, mut graph) = (sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0, std::ptr::null_mut());
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: results have places.
        ok(unsafe {
            sys::cuStreamGetCaptureInfo_v3(own, &mut state, &mut id, &mut graph, &mut nodes, &mut edges, &mut count)
        });
        assert_eq!((state as u32, count), (ACTIVE, 1));
        assert_ne!(id, 0);
        assert_eq!(end(own), Ok(graph));
    }
}
