//! The last words when LLVM gives up.
//!
//! LLVM ends the process on some errors, for example an intrinsic that the processor lacks. No
//! handler can take that back, so code generation lets nothing reach LLVM that may end so; if it
//! happens all the same, the user at least learns that it was Tilewright, and in which kernel.

use std::cell::RefCell;

thread_local! {
    /// What this thread has LLVM do, for the message.
    static DOING: RefCell<String> = const { RefCell::new(String::new()) };
}

/// While it lives, a fatal error on this thread is reported as having happened during it.
pub(crate) struct Doing {
    before: String,
}

impl Doing {
    /// Begins, for example with "optimising module `softmax`".
    pub(crate) fn new(what: String) -> Self {
        Doing { before: DOING.replace(what) }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        DOING.replace(std::mem::take(&mut self.before));
    }
}

/// Tells the loaded LLVM to call [`report`] before it ends the process. A linked LLVM belongs to the
/// whole program, so its handler is left alone.
#[cfg(not(feature = "link-llvm"))]
pub(crate) fn install() {
    // SAFETY: `report` has the signature that LLVM declares and stays valid; this runs once, before
    // any other use of the loaded LLVM.
    unsafe { llvm_sys::error_handling::LLVMInstallFatalErrorHandler(Some(report)) };
}

/// Prints why the process is about to end.
#[cfg(not(feature = "link-llvm"))]
extern "C" fn report(reason: *const std::ffi::c_char) {
    // SAFETY: LLVM passes a C string that lives during the call.
    let reason = unsafe { std::ffi::CStr::from_ptr(reason) }.to_string_lossy();
    let doing = DOING.try_with(|doing| doing.try_borrow().map(|doing| doing.clone()));
    let doing = doing.ok().and_then(Result::ok).filter(|doing| !doing.is_empty());
    let doing = doing.unwrap_or_else(|| "running outside Tilewright's own steps".to_string());
    eprintln!(
        "Tilewright: LLVM met a fatal error while {doing} and is ending the process: {reason}\n\
         This is a bug in Tilewright: please report it with the kernel."
    );
}
