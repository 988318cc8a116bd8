//! Collects the errors that LLVM reports to a context.
//!
//! Without a handler LLVM prints such an error and *exits*. So each step that may report one runs
//! while a [`Diagnostics`] holds the context's handler, and the errors become a `Result`.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};

use llvm_sys::LLVMDiagnosticSeverity;
use llvm_sys::core::{
    LLVMContextGetDiagnosticContext, LLVMContextGetDiagnosticHandler, LLVMContextSetDiagnosticHandler,
    LLVMDisposeMessage, LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity,
};
use llvm_sys::prelude::{LLVMContextRef, LLVMDiagnosticInfoRef};

type Handler = llvm_sys::LLVMDiagnosticHandler;

/// Holds a context's diagnostic handler until dropped.
pub(crate) struct Diagnostics {
    context: LLVMContextRef,
    previous: (Handler, *mut c_void),
    /// Boxed because LLVM holds its address.
    errors: Box<RefCell<Vec<String>>>,
}

impl Diagnostics {
    /// Begins collecting.
    ///
    /// # Safety
    ///
    /// `context` must be a live context, used by this thread only, and must outlive the result.
    pub(crate) unsafe fn collect(context: LLVMContextRef) -> Self {
        let errors = Box::new(RefCell::new(Vec::new()));
        let address = (&raw const *errors).cast_mut().cast();
        // SAFETY: the context is live; `note` matches the type of a handler, and `errors` stays
        // where it is until `drop` has restored the previous handler.
        let previous = unsafe {
            let handler = LLVMContextGetDiagnosticHandler(context);
            let argument = LLVMContextGetDiagnosticContext(context);
            LLVMContextSetDiagnosticHandler(context, Some(note), address);
            (handler, argument)
        };
        Diagnostics { context, previous, errors }
    }

    /// Stops collecting and returns the errors.
    pub(crate) fn finish(self) -> Vec<String> {
        self.errors.take()
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        let (handler, argument) = self.previous;
        // SAFETY: the context outlives `self`, and it had this handler before.
        unsafe { LLVMContextSetDiagnosticHandler(self.context, handler, argument) };
    }
}

/// Keeps the text of an error; remarks and warnings are for people who read LLVM's logs.
extern "C" fn note(diagnostic: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM passes a live diagnostic and the pointer that `collect` registered, whose
    // `Diagnostics` lives because its `drop` unregisters it.
    unsafe {
        if !matches!(LLVMGetDiagInfoSeverity(diagnostic), LLVMDiagnosticSeverity::LLVMDSError) {
            return;
        }
        let text = LLVMGetDiagInfoDescription(diagnostic);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        let errors = &*errors.cast_const().cast::<RefCell<Vec<String>>>();
        if let Ok(mut errors) = errors.try_borrow_mut() {
            errors.push(message);
        }
    }
}
