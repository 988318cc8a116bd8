//! LLVM's process-wide options.
//!
//! They are set once, under the once of [`load`](crate::load()), before the first machine exists: a
//! machine reads them when it is made, so setting them later would give machines that disagree.

use std::ffi::CStr;

use llvm_sys::support::LLVMParseCommandLineOptions;

/// The options, each with its reason.
const OPTIONS: [&CStr; 2] = [
    // Shared, local and constant pointers of 32 bits: half the registers and instructions for
    // shared-memory addresses. Generated code relies on it, so the result is verified.
    c"--nvptx-short-ptr",
    // Folds a widening multiply and an add into `mad.wide`, which Triton sets too.
    c"--nvptx-mad-wide-opt",
];

/// Sets the options. One that this LLVM does not know has no effect: the C function hands LLVM's
/// parser a stream for its complaints (one that drops them), which makes the parser return instead
/// of ending the process. Options that would end it, such as `--version`, are not ours to pass.
///
/// Each is passed on its own, so that an unknown one cannot hide a known one behind it.
pub(crate) fn set() {
    for option in OPTIONS {
        parse(option);
    }
}

/// Hands LLVM one option.
fn parse(option: &CStr) {
    let arguments = [c"tilewright".as_ptr(), option.as_ptr()];
    let count = arguments.len() as std::ffi::c_int;
    // SAFETY: `arguments` holds `count` C strings, and the overview is one too; LLVM copies what it
    // keeps.
    unsafe { LLVMParseCommandLineOptions(count, arguments.as_ptr(), c"".as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load, machine};

    #[test]
    fn unknown_repeated_and_malformed_options_neither_exit_nor_undo() {
        let llvm = load().expect("LLVM loads");
        parse(c"--tilewright-no-such-option");
        parse(c"--nvptx-short-ptr");
        parse(c"--nvptx-fma-level=many");
        parse(c"a positional argument");
        machine::require_short_pointers(llvm).expect("pointers are still short");
    }
}
