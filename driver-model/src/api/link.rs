//! The linker: PTX becomes what stands for machine code.

use super::function::Logs;
use super::{driver, list, put};
use crate::model::machine_code;
use cudarc::driver::sys::{CUjit_option_enum as Option_, CUjitInputType, CUresult as Code};
use std::ffi::{c_char, c_uint, c_void};

driver! {
    Context fn cuLinkCreate_v2(
        model,
        note,
        count: c_uint,
        options: *const Option_,
        values: *const *mut c_void,
        state: *mut usize,
    ) {
        Logs::of(count, options, values)?.inform("info    : linked by the model of the driver");
        let handle = model.new_handle();
        model.link_texts.insert(handle, String::new());
        put(state, handle)
    }

    Context fn cuLinkAddData_v2(
        model,
        note,
        state: usize,
        kind: CUjitInputType,
        data: *const c_void,
        size: usize,
        _name: *const c_char,
        _count: c_uint,
        _options: *const Option_,
        _values: *const *mut c_void,
    ) {
        if kind != CUjitInputType::CU_JIT_INPUT_PTX {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let ptx = String::from_utf8(list(data.cast::<u8>(), size)?).map_err(|_| Code::CUDA_ERROR_INVALID_PTX)?;
        let ptx = ptx.trim_end_matches('\0');
        // It is compiled here, and refused here.
        let module = model.load_module(ptx).map_err(|_| Code::CUDA_ERROR_INVALID_PTX)?;
        model.unload_module(module)?;
        let text = model.link_texts.get_mut(&state).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)?;
        if !text.is_empty() {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        *text = ptx.to_string();
        Ok(())
    }

    Context fn cuLinkComplete(model, note, state: usize, code: *mut *const c_void, size: *mut usize) {
        let text = model.link_texts.get(&state).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)?;
        if text.is_empty() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let made = machine_code(text, model.settings.capability_number());
        let made = model.links.entry(state).insert_entry(made);
        put(size, made.get().len())?;
        put(code, made.get().as_ptr().cast())
    }

    Context fn cuLinkDestroy(model, note, state: usize) {
        model.links.remove(&state);
        model.link_texts.remove(&state).map(drop).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }
}
