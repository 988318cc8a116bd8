//! The driver itself, its errors, and devices.

use super::{driver, put, put_text};
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::sys::{CUresult as Code, CUuuid};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The newest CUDA that it supports, as `cuDriverGetVersion` counts.
const VERSION: c_int = 12_080;
/// Of an A100, as "Technical specifications" in the CUDA programming guide has them.
const SHARED_PER_BLOCK: i32 = 48 << 10;
const SHARED_OPT_IN: i32 = 163 << 10;
const SHARED_PER_PROCESSOR: i32 = 164 << 10;
const PROCESSORS: i32 = 108;

/// A text that lives for ever, by the number of an error.
fn kept(code: u32, make: impl FnOnce() -> String) -> *const c_char {
    static TEXTS: OnceLock<Mutex<HashMap<(u32, usize), CString>>> = OnceLock::new();
    let mut texts = TEXTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let text = make();
    let kept = texts.entry((code, text.len())).or_insert_with(|| CString::new(text).unwrap_or_default());
    kept.as_ptr()
}

/// The value of an attribute; `None` of one that nobody has asked for yet.
fn attribute(wanted: Attribute, capability: (u32, u32), pools: bool, pageable: bool) -> Option<i32> {
    use Attribute as A;
    Some(match wanted {
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => capability.0 as i32,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => capability.1 as i32,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => PROCESSORS,
        A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => i32::from(pools),
        A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS => i32::from(pageable),
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => SHARED_PER_BLOCK,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_OPT_IN,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => SHARED_PER_PROCESSOR,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => 32,
        A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK => 65536,
        A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => 1,
        A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 40 << 20,
        A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_410_000,
        A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 1_215_000,
        A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 5120,
        _ => return None,
    })
}

driver! {
    Nothing fn cuInit(model, note, flags: c_uint) {
        if flags != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        model.is_initialised = true;
        if model.settings.devices == 0 { Err(Code::CUDA_ERROR_NO_DEVICE) } else { Ok(()) }
    }

    Nothing fn cuDriverGetVersion(model, note, version: *mut c_int) {
        put(version, VERSION)
    }

    Nothing fn cuGetErrorName(model, note, error: Code, name: *mut *const c_char) {
        put(name, kept(error as u32, || format!("{error:?}")))
    }

    Nothing fn cuGetErrorString(model, note, error: Code, string: *mut *const c_char) {
        // Words of the name: the driver's sentences are its own.
        let words = || format!("{error:?}").trim_start_matches("CUDA_ERROR_").to_lowercase().replace('_', " ");
        put(string, kept(error as u32, words))
    }

    Driver fn cuDeviceGetCount(model, note, count: *mut c_int) {
        put(count, model.settings.devices as c_int)
    }

    Driver fn cuDeviceGet(model, note, device: *mut c_int, ordinal: c_int) {
        if ordinal < 0 || ordinal as u32 >= model.settings.devices {
            return Err(Code::CUDA_ERROR_INVALID_DEVICE);
        }
        put(device, ordinal)
    }

    Driver fn cuDeviceGetName(model, note, name: *mut c_char, size: c_int, device: c_int) {
        model.check_device(device)?;
        put_text(name, usize::try_from(size).unwrap_or(0), "model of a GPU")
    }

    Driver fn cuDeviceGetAttribute(model, note, value: *mut c_int, wanted: Attribute, device: c_int) {
        model.check_device(device)?;
        let settings = &model.settings;
        match attribute(wanted, settings.capability, settings.pools, settings.reads_pageable) {
            Some(known) => put(value, known),
            None => {
                model.violate(&format!("the model does not know {wanted:?}"));
                Err(Code::CUDA_ERROR_NOT_SUPPORTED)
            }
        }
    }

    Driver fn cuDeviceTotalMem_v2(model, note, bytes: *mut usize, device: c_int) {
        model.check_device(device)?;
        put(bytes, model.settings.memory as usize)
    }

    Driver fn cuDeviceGetUuid(model, note, uuid: *mut CUuuid, device: c_int) {
        model.check_device(device)?;
        put(uuid, CUuuid { bytes: [device as c_char + 1; 16] })
    }

    Driver fn cuDeviceGetUuid_v2(model, note, uuid: *mut CUuuid, device: c_int) {
        model.check_device(device)?;
        put(uuid, CUuuid { bytes: [device as c_char + 1; 16] })
    }

    Driver fn cuDeviceGetPCIBusId(model, note, name: *mut c_char, size: c_int, device: c_int) {
        model.check_device(device)?;
        put_text(name, usize::try_from(size).unwrap_or(0), &format!("0000:{device:02x}:00.0"))
    }
}
