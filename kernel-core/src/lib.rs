//! The tile IR of Tilewright and everything about it that needs no GPU to run: types, symbolic shapes, the op table,
//! the text form, the verifier, binding, target-independent passes, linear layouts, the CPU interpreter, and the interface
//! of back ends.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! No I/O, no LLVM, and no CUDA API. What it does know is the machine model of NVIDIA's GPUs, as kernels at the placed level
//! are made of it: warps and warp groups, shared memory, tensor copies, matrix instructions and phase barriers
//! ([`ir::GpuOp`]), the layouts that these prescribe ([`layout`]), what each architecture has of them ([`target`]), and how the
//! interpreter runs them without one. Generic and bound kernels, and the passes on them, know no machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`ir`] | types, dimensions, the op table, kernels, places in the source |
//! | [`text`], [`verify`] | the text form; the rules of each level |
//! | `passes` | binding, and passes that need no target |
//! | [`layout`], [`target`] | linear layouts; GPU architectures and the numbers of their machine |
//! | [`num`], [`math`] | numbers of every dtype; elementary functions |
//! | `interp` | the interpreter, which defines every operation |
//! | `backend` | what compiles bound kernels, and what a launch needs of the result |
//! | [`diag`] | what is wrong with a kernel, for a person to read |

#[cfg(feature = "passes")]
pub mod backend;
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
pub mod target;
pub mod text;
pub mod verify;
