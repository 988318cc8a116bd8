//! The tile IR of Tilewright and everything about it that needs no GPU: types, symbolic shapes, the op table,
//! the text form, the verifier, binding, target-independent passes, linear layouts and the CPU interpreter.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! No I/O, no LLVM, no CUDA.

pub mod diag;
#[cfg(feature = "passes")]
pub mod edit;
#[cfg(feature = "interp")]
pub mod interp;
pub mod ir;
pub mod layout;
pub mod math;
pub mod num;
#[cfg(feature = "passes")]
pub mod passes;
pub mod text;
pub mod verify;
