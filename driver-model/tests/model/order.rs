//! Streams, events and graphs: what is done when.

use super::in_the_model;
use super::raw::{
    BUMP, allocate, begin, bump, end, event, fill, instantiate, launch, load, ok, open, read, record, stream,
    synchronize, wait,
};
use cudarc::driver::sys::{self, CUresult as Code, CUstream};
use tilewright_driver_model::{Schedule, Settings, take_violations};

fn query(stream: CUstream) -> Code {
    // SAFETY: handles that mean nothing are refused.
    unsafe { sys::cuStreamQuery(stream) }
}

/// Waits by asking.
fn poll(stream: CUstream) -> usize {
    let mut asked = 0;
    while query(stream) == Code::CUDA_ERROR_NOT_READY {
        asked += 1;
    }
    asked
}

in_the_model! {
    fn nothing_is_done_before_somebody_waits(Settings::default().schedule(Schedule::Late)) {
        open();
        let (own, mut seen) = (stream(), std::ptr::null_mut());
        let address = allocate(4, own);
        // SAFETY: the memory stays, and is read while nothing writes it.
        unsafe {
            ok(sys::cuMemHostAlloc(&mut seen, 4, 0));
            ok(fill(address, 5, 1, own));
            ok(sys::cuMemcpyDtoHAsync_v2(seen, address, 4, own));
            assert_eq!(seen.cast::<u32>().read_volatile(), 0);
            ok(synchronize(own));
            assert_eq!(seen.cast::<u32>().read_volatile(), 5);
        }
    }

    fn who_asks_often_enough_finds_it_done(Settings::default().schedule(Schedule::Late)) {
        open();
        let own = stream();
        assert_eq!(poll(own), 0);
        let address = allocate(4, own);
        ok(fill(address, 5, 1, own));
        assert!(poll(own) > 0);
    }

    fn kernels_are_loaded_from_files(Settings::default()) {
        open();
        let folder = std::env::temp_dir().join(format!("tilewright-kernel-in-a-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (file, nowhere) = (folder.join("bump.ptx"), folder.join("nothing.ptx"));
        std::fs::write(&file, BUMP).expect("a file");
        let load = |path: &std::path::Path| {
            let path = std::ffi::CString::new(path.to_str().expect("a path")).expect("no zero in it");
            let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the texts end in zero, results have places.
            unsafe {
                sys::cuModuleLoad(&mut module, path.as_ptr()).result().map_err(|error| error.0)?;
                ok(sys::cuModuleGetFunction(&mut function, module, c"bump".as_ptr()));
            }
            Ok(function)
        };
        let function = load(&file).expect("a kernel");
        assert_eq!(load(&nowhere), Err(Code::CUDA_ERROR_FILE_NOT_FOUND));
        let _ = std::fs::remove_dir_all(&folder);
        let own = stream();
        let address = allocate(4, own);
        ok(fill(address, 5, 1, own));
        ok(bump(function, address, 0, own));
        assert_eq!((read(address, own), take_violations()), (6, vec![]));
    }

    fn memory_is_copied_from_gpu_to_gpu(Settings { devices: 2, ..Settings::default() }) {
        let first = open();
        let (own, mut second, mut from) = (stream(), std::ptr::null_mut(), 0);
        let to = allocate(4, own);
        // SAFETY: results have places, and what is no memory is refused.
        let copy = unsafe {
            ok(sys::cuDevicePrimaryCtxRetain(&mut second, 1));
            ok(sys::cuCtxSetCurrent(second));
            ok(sys::cuMemAlloc_v2(&mut from, 4));
            ok(sys::cuMemsetD8_v2(from, 7, 4));
            ok(sys::cuCtxSynchronize());
            ok(sys::cuCtxSetCurrent(first));
            |there, here| sys::cuMemcpyPeerAsync(to, there, from, here, 4, own)
        };
        ok(copy(first, second));
        assert_eq!((read(to, own), take_violations()), (0x0707_0707, vec![]));
        assert_eq!(copy(second, first), Code::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(take_violations().len(), 1, "the contexts are exchanged");
        assert_eq!(copy(std::ptr::null_mut(), second), Code::CUDA_ERROR_INVALID_CONTEXT);
    }

    fn waiting_for_all_is_waiting_for_streams_that_are_gone_too(Settings::default().schedule(Schedule::Late)) {
        open();
        let (own, gone) = (stream(), stream());
        let address = allocate(4, gone);
        ok(fill(address, 5, 1, gone));
        // SAFETY: nobody uses the stream after this.
        unsafe {
            ok(sys::cuStreamDestroy_v2(gone));
            ok(sys::cuCtxSynchronize());
        }
        assert_eq!((read(address, own), take_violations()), (5, vec![]));
    }

    fn the_legacy_stream_waits_and_is_waited_for(Settings::default()) {
        open();
        let (legacy, own, mut blocking) = (std::ptr::null_mut(), stream(), std::ptr::null_mut());
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuStreamCreate(&mut blocking, 0) });
        let address = allocate(8, legacy);
        ok(fill(address, 1, 2, blocking));
        ok(fill(address, 2, 2, legacy));
        ok(fill(address, 3, 1, std::ptr::without_provenance_mut(2)));
        ok(fill(address + 4, 4, 1, blocking));
        assert_eq!((read(address, legacy), read(address + 4, legacy)), (3, 4));
        assert_eq!(take_violations(), [""; 0]);
        ok(fill(address, 5, 1, legacy));
        ok(fill(address, 6, 1, own));
        ok(synchronize(own));
        ok(synchronize(legacy));
        assert_eq!(take_violations().len(), 1, "a stream that does not wait for the legacy stream");
    }

    fn an_event_is_what_it_was_when_it_was_waited_for(Settings::default().schedule(Schedule::Late)) {
        open();
        let (first, second, event) = (stream(), stream(), event());
        let address = allocate(8, first);
        ok(fill(address, 1, 1, first));
        ok(record(event, first));
        ok(wait(second, event));
        // What comes later is not waited for.
        ok(fill(address + 4, 2, 1, first));
        ok(record(event, first));
        assert_eq!((read(address, second), query(first)), (1, Code::CUDA_ERROR_NOT_READY));
        ok(synchronize(first));
    }

    /// Branches of a graph that nothing orders may not touch the same bytes; launches of one graph follow each other.
    fn graphs_keep_their_order(Settings::default()) {
        open();
        let (own, side, other) = (stream(), stream(), stream());
        let function = load(BUMP).expect("a kernel");
        let address = allocate(64, own);
        ok(fill(address, 0, 16, own));
        ok(synchronize(own));
        let capture = |distance: u64| {
            let (fork, join) = (event(), event());
            ok(begin(own, 0));
            ok(bump(function, address, 0, own));
            ok(record(fork, own));
            ok(wait(side, fork));
            ok(bump(function, address, 4, side));
            ok(record(join, side));
            ok(bump(function, address, distance, own));
            ok(wait(own, join));
            ok(bump(function, address, 4, own));
            instantiate(end(own).expect("a graph"))
        };
        let exec = capture(8);
        assert_eq!(read(address, own), 0, "nothing has been launched");
        for _ in 0..5 {
            ok(launch(exec, own));
            ok(launch(exec, other));
        }
        ok(synchronize(other));
        assert_eq!([0, 4, 8].map(|at| read(address + at, other)), [10, 20, 10]);
        assert_eq!(take_violations(), [""; 0]);
        ok(launch(capture(4), own));
        ok(synchronize(own));
        assert_eq!(take_violations().len(), 1, "both branches bump one number");
    }
}
