//! Pools: each device has its default one, whose handle is told by the device.

use super::{driver, get, put};
use crate::model::{Model, Outcome};
use cudarc::driver::sys::{CUmemPool_attribute_enum as Attribute, CUresult as Code};
use std::ffi::{c_int, c_void};

const FIRST: usize = 0x2000_0000;

impl Model {
    fn pool_of(&self, device: c_int) -> Result<usize, Code> {
        self.check_device(device)?;
        if self.settings.pools { Ok(FIRST + device as usize) } else { Err(Code::CUDA_ERROR_NOT_SUPPORTED) }
    }

    fn check_pool(&self, pool: usize) -> Outcome {
        let device = pool.checked_sub(FIRST).and_then(|device| c_int::try_from(device).ok());
        self.pool_of(device.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?).map(drop)
    }
}

driver! {
    Driver fn cuDeviceGetDefaultMemPool(model, note, pool: *mut usize, device: c_int) {
        put(pool, model.pool_of(device)?)
    }

    Driver fn cuDeviceGetMemPool(model, note, pool: *mut usize, device: c_int) {
        put(pool, model.pool_of(device)?)
    }

    Driver fn cuMemPoolGetAttribute(model, note, pool: usize, attribute: Attribute, value: *mut c_void) {
        model.check_pool(pool)?;
        match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                put(value.cast(), model.pool_threshold.get(&pool).copied().unwrap_or(0))
            }
            _ => Err(Code::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    Driver fn cuMemPoolSetAttribute(model, note, pool: usize, attribute: Attribute, value: *mut c_void) {
        model.check_pool(pool)?;
        match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                model.pool_threshold.insert(pool, get(value.cast())?);
                Ok(())
            }
            _ => Err(Code::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    Driver fn cuMemPoolTrimTo(model, note, pool: usize, _kept: usize) {
        model.check_pool(pool)
    }
}
