//! The LLVM that ships with the Rust toolchain, loaded when it is needed.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! rustup's toolchains carry a `libLLVM` that exports the LLVM C API with code generation for NVIDIA
//! GPUs, so nobody has to install LLVM. This crate defines all functions of the C API as jumps
//! through a table and fills the table when [`load()`] is called: programs build, link and start
//! without LLVM, and a missing one is an ordinary [`LoadError`]. On top of that it has what a code
//! generator for GPUs needs and `inkwell` does not give: machines, the optimiser run and PTX as
//! `Result`s, and kernel attributes.
//!
//! ```
//! use kernel_llvm::{KernelBounds, SlpVectorize, emit_ptx, load, mark_kernel, new_context, new_module, optimise,
//!     target_machine};
//!
//! let llvm = load()?;
//! let machine = target_machine(llvm, "sm_90a", "+ptx80")?;
//! let context = new_context(llvm);
//! let module = new_module(&context, "nothing", &machine);
//! let function = module.add_function("nothing", context.void_type().fn_type(&[], false), None);
//! mark_kernel(function, &KernelBounds::block(128));
//! let builder = context.create_builder();
//! builder.position_at_end(context.append_basic_block(function, "entry"));
//! builder.build_return(None).map_err(kernel_llvm::Error::from)?;
//!
//! optimise(&module, &machine, SlpVectorize::Off)?;
//! let ptx = emit_ptx(&module, &machine)?;
//! assert!(ptx.contains(".visible .entry nothing()"));
//! # Ok::<(), kernel_llvm::Error>(())
//! ```
//!
//! **Rules for users of `inkwell` through this crate**, because LLVM 22 and 23 are both accepted and
//! the bindings are written for 22:
//!
//! - Call nothing of `inkwell` or `llvm_sys` before [`load()`] returned `Ok`: the process would end
//!   with a message that names the function. [`new_context`] asks for the proof.
//! - Hold a [`Stay`] meanwhile, so that a process that ends waits.
//! - Never read opcodes or value kinds back: LLVM 23 renumbered them, and `inkwell` turns the numbers
//!   into Rust enums. `InstructionValue::get_opcode`, `AnyValueEnum` and `as_any_value_enum` do so, and
//!   so do the setters `InstructionValue::set_alignment`, `set_volatile` and `set_atomic_ordering`:
//!   use [`set_alignment`] and [`set_volatile`] instead.
//!
//! A program that already links an LLVM of its own turns on the feature `link-llvm`, which links an
//! LLVM 22 when the program is built instead (`build.rs` says where it is looked for).

// Elsewhere nothing is here, and `kernel-runtime` says at the launch why and what to do.
#![cfg(any(feature = "link-llvm", all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]

mod diagnostics;
mod error;
mod fatal;
mod handle;
mod instructions;
mod kernel;
mod lines;
mod load;
mod machine;
#[cfg(not(feature = "link-llvm"))]
mod open;
mod options;
mod passes;
#[cfg(not(feature = "link-llvm"))]
mod search;
#[cfg(not(feature = "link-llvm"))]
mod settings;
mod stay;
#[cfg(not(feature = "link-llvm"))]
mod trampolines;

pub use inkwell;
pub use llvm_sys;

pub use error::{Error, LoadError, Rejected, Rejection, Version};
pub use handle::Llvm;
pub use instructions::{
    AsmEffects, LoopHint, inline_asm, intrinsic, set_alignment, set_convergent, set_fast_math, set_loop_hint,
    set_volatile,
};
pub use kernel::{
    KernelBounds, PTX_KERNEL, ParameterFact, dynamic_shared_memory, mark_flushing, mark_grid_constant, mark_kernel,
    mark_parameter, space,
};
pub use lines::{LineFile, LineLocation, LineTable, set_location};
#[cfg(not(feature = "link-llvm"))]
pub use load::check;
pub use load::{fingerprint, load};
pub use machine::{TRIPLE, data_layout, emit_ptx, kept_machine, new_context, new_module, target_machine};
pub use passes::{SlpVectorize, optimise};
pub use stay::{Stay, stay};
