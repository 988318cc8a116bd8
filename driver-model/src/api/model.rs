//! What tests ask the model.

use crate::client::{CALLS, Take};
use crate::model::model;
use std::ffi::c_void;

/// Gives the lines of the trace, or the violations, which are then forgotten, from a number on.
///
/// # Safety
///
/// `take` may be called with `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_driver_model_lines(which: u32, from: usize, take: Take, to: *mut c_void) {
    let mut model = model();
    let taken;
    let lines = if which == CALLS {
        model.trace.lines()
    } else {
        taken = model.trace.take_violations();
        &taken
    };
    for line in lines.iter().skip(from) {
        // SAFETY: promised by the caller.
        unsafe { take(to, line.as_ptr(), line.len()) };
    }
}

/// Leaves behind what a parent wants to know.
extern "C" fn at_exit() {
    model().trace.leave_counts();
}

/// Called when the process ends, or the library is closed.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
