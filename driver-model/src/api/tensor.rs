//! Tensor maps. The model has no tensor copies, but checks what a map is made of.

use super::{driver, list};
use cudarc::driver::sys::{CUresult as Code, CUtensorMap};
use std::ffi::c_void;

/// Bytes of an element, by the number of the type (`CUtensorMapDataType`): unsigned and signed integers, then floats.
/// Those of four and six bits are left out.
const BYTES: [u64; 13] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4];
const MAX_RANK: u32 = 5;

/// Whether the driver accepts these numbers, by the documentation of `cuTensorMapEncodeTiled`.
fn is_valid(
    element: u64,
    address: u64,
    sizes: &[u64],
    strides: &[u64],
    boxes: &[u32],
    steps: &[u32],
    swizzle: u32,
) -> bool {
    // Bytes across which it swizzles: none, 32, 64, 128.
    const SPANS: [u64; 4] = [u64::MAX, 32, 64, 128];
    let Some(span) = SPANS.get(swizzle as usize) else { return false };
    let inner = u64::from(boxes[0]) * element;
    address.is_multiple_of(16)
        && sizes.iter().all(|size| (1..=1 << 32).contains(size))
        && strides.iter().all(|stride| stride.is_multiple_of(16) && *stride < 1 << 40)
        && boxes.iter().all(|size| (1..=256).contains(size))
        && steps.iter().all(|step| (1..=8).contains(step))
        && inner.is_multiple_of(16)
        && inner <= *span
}

driver! {
    Context fn cuTensorMapEncodeTiled(
        model,
        note,
        map: *mut CUtensorMap,
        kind: u32,
        rank: u32,
        address: *mut c_void,
        sizes: *const u64,
        strides: *const u64,
        boxes: *const u32,
        steps: *const u32,
        interleave: u32,
        swizzle: u32,
        promotion: u32,
        fill: u32,
    ) {
        if model.settings.capability < (9, 0) {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let element = BYTES.get(kind as usize).copied().ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        let is_float = matches!(kind, 6..);
        if !(1..=MAX_RANK).contains(&rank) || interleave != 0 || promotion > 3 || fill > u32::from(is_float) {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let rank = rank as usize;
        let (sizes, strides) = (list(sizes, rank)?, list(strides, rank - 1)?);
        let (boxes, steps) = (list(boxes, rank)?, list(steps, rank)?);
        if map.is_null() || !is_valid(element, address.addr() as u64, &sizes, &strides, &boxes, &steps, swizzle) {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        // What the hardware would read, in the model's own form.
        let mut words = [0; 16];
        words[0] = address.addr() as u64;
        words[1..=rank].copy_from_slice(&sizes);
        words[6..6 + strides.len()].copy_from_slice(&strides);
        super::put(map, CUtensorMap { opaque: words })
    }
}
