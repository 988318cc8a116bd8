//! The driver's functions, with the signatures of `cuda.h`. Handles are passed as numbers.
//!
//! All of them are unsafe in the same way: pointers are null or to what the documentation of the function wants there.

#![allow(non_snake_case, reason = "the names are the driver's")]

mod context;
mod device;
mod event;
mod function;
mod graph;
mod link;
mod memory;
mod model;
mod pool;
mod stream;
mod tensor;

use crate::model::Outcome;
use cudarc::driver::sys::CUresult as Code;
use std::ffi::{CStr, c_char};

/// Functions of the driver: what each needs, its name, its parameters behind those for the model and for the trace.
macro_rules! driver {
    ($($needs:ident fn $name:ident($model:ident, $note:ident $(, $arg:ident: $ty:ty)* $(,)?) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> cudarc::driver::sys::CUresult {
            use crate::model::{Model, Needs, Note, gate};
            gate(stringify!($name), Needs::$needs, |$model: &mut Model, $note: &mut Note| {
                let _ = (&*$model, &*$note);
                $body
            })
        }
    )* };
}
use driver;

/// Writes a result where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: callers of the driver give places for results.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a result that the caller may not want.
fn put_if<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as in `put`.
        unsafe { place.write(value) };
    }
}

/// Reads what the caller has given.
fn get<T>(place: *const T) -> Result<T, Code> {
    // SAFETY: callers of the driver give what it reads.
    if place.is_null() { Err(Code::CUDA_ERROR_INVALID_VALUE) } else { Ok(unsafe { place.read() }) }
}

/// Reads a list that the caller has given.
fn list<T: Copy>(first: *const T, count: usize) -> Result<Vec<T>, Code> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if first.is_null() {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: as in `get`.
    Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// Reads a text that the caller has given.
fn text(first: *const c_char) -> Result<String, Code> {
    if first.is_null() {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: as in `get`; texts end in zero.
    Ok(unsafe { CStr::from_ptr(first) }.to_string_lossy().into_owned())
}

/// Writes a text with its zero into a place of so many bytes.
fn put_text(place: *mut c_char, size: usize, text: &str) -> Outcome {
    if place.is_null() || size == 0 {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    let count = text.len().min(size - 1);
    // SAFETY: callers give a place of this size.
    unsafe {
        place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count);
        place.add(count).write(0);
    }
    Ok(())
}
