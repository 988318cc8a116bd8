//! The driver's linker: it compiles PTX as the driver does, and gives the machine code.

use crate::driver::wrap;
use crate::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{CString, c_void};

use super::super::module::Logs;

/// A link that is under way.
struct Link(sys::CUlinkState);

impl Drop for Link {
    fn drop(&mut self) {
        // A failure means that the context is gone, and the link with it.
        // SAFETY: the link was made, and nobody uses it after this.
        let _ = unsafe { sys::cuLinkDestroy(self.0) };
    }
}

/// Machine code of PTX for the GPU of the current context, and what the linker said.
///
/// # Errors
/// [`Error::Driver`] if the driver refuses the PTX.
pub(in super::super) fn link(ptx: &str) -> Result<(Vec<u8>, String)> {
    let image = CString::new(ptx).map_err(|_| Error::Llvm { message: "the PTX has a zero in it".into() })?;
    let mut logs = Logs::of(ptx);
    let mut state = std::ptr::null_mut();
    let (count, options, values) = logs.options();
    // SAFETY: there are as many values as options, each as its option wants it; the logs outlive the link, which is
    // destroyed before they are dropped.
    unsafe { sys::cuLinkCreate_v2(count, options, values, &mut state) }.result().map_err(wrap("cuLinkCreate"))?;
    let link = Link(state);
    let bytes = image.as_bytes_with_nul();
    let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the text ends in zero and is only read, the name too; there are no options.
    unsafe {
        sys::cuLinkAddData_v2(
            link.0,
            sys::CUjitInputType::CU_JIT_INPUT_PTX,
            bytes.as_ptr().cast_mut().cast::<c_void>(),
            bytes.len(),
            c"kernel".as_ptr(),
            0,
            none,
            nothing,
        )
    }
    .result()
    .map_err(wrap("cuLinkAddData"))?;
    let (mut code, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the link is whole; what it gives is its own, and lives as long.
    unsafe { sys::cuLinkComplete(link.0, &mut code, &mut size) }.result().map_err(wrap("cuLinkComplete"))?;
    // SAFETY: the driver says that so many bytes are there.
    let code = unsafe { std::slice::from_raw_parts(code.cast_const().cast::<u8>(), size) }.to_vec();
    drop(link);
    Ok((code, logs.info()))
}
