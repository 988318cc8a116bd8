//! Contexts: each device has its primary one.

use super::{driver, put, put_if};
use crate::model::{Model, current, set_current};
use cudarc::driver::sys::CUresult as Code;
use std::ffi::c_int;

/// The handle of a device's context. What belongs to it in the model is counted from there.
const FIRST: usize = 0x1000_0000;
const DISTANCE: usize = 0x1000;

impl Model {
    pub(super) fn check_device(&self, device: c_int) -> crate::model::Outcome {
        let exists = u32::try_from(device).is_ok_and(|device| device < self.settings.devices);
        if exists { Ok(()) } else { Err(Code::CUDA_ERROR_INVALID_DEVICE) }
    }

    /// The context of a device.
    fn context_of(&self, device: c_int) -> Result<usize, Code> {
        self.check_device(device)?;
        Ok(FIRST + DISTANCE * device as usize)
    }

    /// The device of a context.
    pub(super) fn device_of(&self, context: usize) -> Result<c_int, Code> {
        let device = context.checked_sub(FIRST).filter(|distance| distance.is_multiple_of(DISTANCE));
        let device = device.and_then(|distance| c_int::try_from(distance / DISTANCE).ok());
        let device = device.ok_or(Code::CUDA_ERROR_INVALID_CONTEXT)?;
        self.check_device(device).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?;
        Ok(device)
    }

    /// The context, if it is one and is retained.
    pub(super) fn check_context(&self, context: usize) -> crate::model::Outcome {
        self.device_of(context)?;
        match self.retained.get(&context) {
            Some(1..) => Ok(()),
            Some(0) | None => Err(Code::CUDA_ERROR_CONTEXT_IS_DESTROYED),
        }
    }
}

driver! {
    Driver fn cuDevicePrimaryCtxRetain(model, note, context: *mut usize, device: c_int) {
        let own = model.context_of(device)?;
        *model.retained.entry(own).or_default() += 1;
        put(context, own)
    }

    Driver fn cuDevicePrimaryCtxRelease_v2(model, note, device: c_int) {
        let own = model.context_of(device)?;
        match model.retained.get_mut(&own) {
            Some(count @ 1..) => *count -= 1,
            Some(0) | None => return Err(Code::CUDA_ERROR_INVALID_CONTEXT),
        }
        Ok(())
    }

    Driver fn cuCtxDestroy_v2(model, note, context: usize) {
        note.handle("context", context as u64);
        // It has primary contexts alone, which are released.
        Err(Code::CUDA_ERROR_INVALID_CONTEXT)
    }

    Driver fn cuCtxGetCurrent(model, note, context: *mut usize) {
        put(context, current())
    }

    Driver fn cuCtxSetCurrent(model, note, context: usize) {
        note.handle("context", context as u64);
        if context != 0 {
            model.check_context(context)?;
        }
        set_current(context);
        Ok(())
    }

    Context fn cuCtxGetDevice(model, note, device: *mut c_int) {
        put(device, model.device_of(current())?)
    }

    Context fn cuCtxSynchronize(model, note) {
        model.synchronize_context()
    }

    Context fn cuCtxGetStreamPriorityRange(model, note, least: *mut c_int, greatest: *mut c_int) {
        put_if(least, 0);
        put_if(greatest, -5);
        Ok(())
    }
}
