//! What no driver promises is reported, and what drivers refuse is refused.

use super::in_the_model;
use super::raw::{BUMP, allocate, bump, event, fill, free, load, ok, open, read, record, stream, synchronize, wait};
use cudarc::driver::sys::{self, CUresult as Code};
use tilewright_driver_model::{Schedule, Settings, take_violations};

/// Panics unless there is one violation, which says this.
#[track_caller]
fn violates(what: &str) {
    let found = take_violations();
    assert!(found.len() == 1 && found[0].contains(what), "{found:#?}");
}

in_the_model! {
    fn memory_is_used_between_its_allocation_and_its_end(Settings::default()) {
        open();
        let (own, other) = (stream(), stream());
        let address = allocate(64, own);
        ok(fill(address, 1, 16, other));
        ok(synchronize(other));
        violates("not ordered behind their allocation");
        ok(synchronize(own));
        ok(fill(address, 1, 16, other));
        ok(free(address, own));
        ok(synchronize(other));
        ok(synchronize(own));
        assert_eq!(take_violations().len(), 1, "whichever comes first");

        let address = allocate(64, own);
        ok(free(address, own));
        ok(synchronize(own));
        assert_eq!(fill(address, 1, 16, own), Code::CUDA_ERROR_INVALID_VALUE);
        violates("are no memory");
        assert_eq!(free(address, own), Code::CUDA_ERROR_INVALID_VALUE);
        violates("freed a second time");
        assert_eq!(free(address + 8, own), Code::CUDA_ERROR_INVALID_VALUE);
        violates("start of no allocation");
    }

    fn copies_stay_inside_memory(Settings::default()) {
        open();
        let own = stream();
        let address = allocate(64, own);
        ok(fill(address, 1, 17, own));
        ok(synchronize(own));
        violates("not inside the 64 bytes");
    }

    /// On any schedule: it is the order that was asked for which counts.
    fn operations_that_share_bytes_are_ordered(Settings::default().schedule(Schedule::AtOnce)) {
        open();
        let (first, second, event) = (stream(), stream(), event());
        let address = allocate(64, first);
        ok(synchronize(first));
        ok(fill(address, 1, 8, first));
        ok(fill(address + 32, 2, 8, second));
        assert_eq!(take_violations(), [""; 0], "other bytes");
        ok(fill(address + 16, 3, 8, second));
        violates("nothing orders the two");
        ok(record(event, second));
        ok(wait(first, event));
        ok(fill(address, 4, 16, first));
        assert_eq!((read(address, first), take_violations()), (4, vec![]));
    }

    fn kernels_that_reach_beyond_memory_break_the_context(Settings::default()) {
        open();
        let (own, function) = (stream(), load(BUMP).expect("a kernel"));
        let address = allocate(64, own);
        ok(fill(address, 1, 16, own));
        ok(bump(function, address, 60, own));
        assert_eq!(read(address + 60, own), 2);
        ok(bump(function, address, 64, own));
        assert_eq!(synchronize(own), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
        violates("not inside the 64 bytes");
        assert_eq!(bump(function, address, 0, own), Code::CUDA_ERROR_ILLEGAL_ADDRESS, "for ever");
    }

    fn handles_that_are_gone_are_reported(Settings::default()) {
        open();
        let (own, gone) = (stream(), event());
        // SAFETY: it is used below to see what happens.
        unsafe {
            ok(sys::cuEventDestroy_v2(gone));
            ok(sys::cuStreamDestroy_v2(own));
        }
        assert_eq!(record(gone, stream()), Code::CUDA_ERROR_INVALID_HANDLE);
        violates("event");
        assert_eq!(synchronize(own), Code::CUDA_ERROR_INVALID_HANDLE);
        violates("stream");
        assert_eq!(synchronize(std::ptr::without_provenance_mut(12345)), Code::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(take_violations(), [""; 0], "it has never meant anything");
    }

    fn text_that_is_no_code_is_refused(Settings::default()) {
        open();
        let refused = |text: &str| load(text).expect_err("refused");
        assert_eq!(refused("rubbish"), Code::CUDA_ERROR_INVALID_IMAGE);
        assert_eq!(refused(".version 8.0\n.target sm_80\n"), Code::CUDA_ERROR_INVALID_PTX);
        assert_eq!(refused(&BUMP.replace("%rd3, %rd1", "what?")), Code::CUDA_ERROR_INVALID_PTX);
        assert_eq!(refused(&BUMP.replace("sm_80", "sm_90")), Code::CUDA_ERROR_INVALID_PTX, "of a later GPU");
        assert_eq!(refused(&BUMP.replace("bump(", "other(").replace("bump_", "other_")), Code::CUDA_ERROR_NOT_FOUND);
    }

    fn launches_are_checked(Settings::default()) {
        let function = { open(); load(BUMP).expect("a kernel") };
        let launch = |grid: [u32; 3], threads: [u32; 3], shared: u32| {
            let mut number = 0u64;
            let mut params = [(&raw mut number).cast(); 2];
            let ([gx, gy, gz], [x, y, z]) = (grid, threads);
            let (params, none, own) = (params.as_mut_ptr(), std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: there is a pointer for each parameter; none of these is launched.
            unsafe { sys::cuLaunchKernel(function, gx, gy, gz, x, y, z, shared, own, params, none) }
        };
        for (grid, threads, shared) in [
            ([0, 1, 1], [1, 1, 1], 0),
            ([1, 65536, 1], [1, 1, 1], 0),
            ([1, 1, 1], [1025, 1, 1], 0),
            ([1, 1, 1], [1, 0, 1], 0),
            ([1, 1, 1], [1, 1, 1], (48 << 10) + 1),
        ] {
            assert_eq!(launch(grid, threads, shared), Code::CUDA_ERROR_INVALID_VALUE, "{grid:?} {threads:?} {shared}");
        }
        // SAFETY: no context is one.
        ok(unsafe { sys::cuCtxSetCurrent(std::ptr::null_mut()) });
        assert_eq!(launch([1; 3], [1; 3], 0), Code::CUDA_ERROR_INVALID_CONTEXT);
    }

    fn tensor_maps_are_checked(Settings { capability: (9, 0), ..Settings::default() }) {
        use sys::CUtensorMapDataType as Type;
        open();
        let own = stream();
        let address = allocate(4096, own);
        // Rows of 64 numbers of 16 bits, in boxes of 8 by 32.
        let encode = |at: u64, kind: Type, stride: u64, boxes: [u32; 2], swizzle: sys::CUtensorMapSwizzle| {
            let (sizes, steps, mut map) = ([64u64, 32], [1u32; 2], sys::CUtensorMap { opaque: [0; 16] });
            // SAFETY: there are as many numbers as the rank wants; the map has a place.
            unsafe {
                sys::cuTensorMapEncodeTiled(
                    &mut map,
                    kind,
                    2,
                    std::ptr::with_exposed_provenance_mut(at as usize),
                    sizes.as_ptr(),
                    &stride,
                    boxes.as_ptr(),
                    steps.as_ptr(),
                    sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                    swizzle,
                    sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
                    sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            }
        };
        use sys::CUtensorMapSwizzle::{CU_TENSOR_MAP_SWIZZLE_64B as BY_64, CU_TENSOR_MAP_SWIZZLE_NONE as NONE};
        let half = Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        ok(encode(address, half, 128, [32, 8], NONE));
        ok(encode(address, half, 128, [32, 8], BY_64));
        for (what, code) in [
            ("the address", encode(address + 8, half, 128, [32, 8], NONE)),
            ("the stride", encode(address, half, 120, [32, 8], NONE)),
            ("a box of nothing", encode(address, half, 128, [32, 0], NONE)),
            ("a box that is too large", encode(address, half, 128, [32, 257], NONE)),
            ("rows of a box", encode(address, half, 128, [4, 8], NONE)),
            ("rows of a box, swizzled", encode(address, half, 128, [64, 8], BY_64)),
        ] {
            assert_eq!(code, Code::CUDA_ERROR_INVALID_VALUE, "{what}");
        }
    }

    fn pinned_memory_that_is_freed_too_early_is_reported(Settings::default().schedule(Schedule::Late)) {
        open();
        let own = stream();
        let address = allocate(4, own);
        let mut memory = std::ptr::null_mut();
        // SAFETY: what is freed is used no more by the host.
        unsafe {
            ok(sys::cuMemHostAlloc(&mut memory, 4, 0));
            memory.cast::<u32>().write(7);
            ok(sys::cuMemcpyHtoDAsync_v2(address, memory, 4, own));
            ok(sys::cuMemFreeHost(memory));
        }
        ok(synchronize(own));
        violates("not ordered before");
    }
}
