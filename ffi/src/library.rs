//! Libraries that the process has loaded already: that of the framework that calls.

use crate::error::Result;
use libloading::os::unix::{Library, RTLD_LAZY};
use std::ffi::c_int;

/// Of `dlopen` on Linux: give the library only if it is loaded.
const RTLD_NOLOAD: c_int = 4;

/// A library that stays loaded.
pub(crate) struct Loaded(Library);

/// The loaded library of this name.
pub(crate) fn loaded(name: &str) -> Option<Loaded> {
    // SAFETY: a library that is loaded has run its initialisers.
    unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) }.ok().map(Loaded)
}

impl Loaded {
    /// A function of the library, or of one that it depends on. It can be called as long as the process runs: frameworks are
    /// never unloaded.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    ///
    /// # Safety
    ///
    /// `F` is a pointer to a function of the type that the symbol has.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Result<F> {
        // SAFETY: the caller's promise.
        let found = unsafe { self.0.get::<F>(symbol.as_bytes()) };
        found.map(|function| *function).map_err(|_| format!("it has no `{symbol}`").into())
    }
}
