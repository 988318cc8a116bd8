//! The GPU code generator of Tilewright: from bound tile IR to PTX.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! ```text
//! bound IR -> checks -> target-independent passes -> axis analysis -> layouts -> LLVM IR -> PTX
//! ```
//!
//! [`compile`] is the whole of it; its source reads as the list of passes. Nothing here needs a GPU.
//!
//! - [`checks`]: which accesses need a bounds check, and what the host can decide at launch instead.
//! - [`analysis`]: between which numbers offsets lie, and how they and masks run along each dimension.
//! - `place`: a layout for every tile, and conversions where two meet.
//! - `passes`: what pays on a GPU before layouts are chosen, and what moves tiles through shared memory after that.
//! - `lower`: LLVM IR for one thread of the program.
//! - [`occupancy`]: how many programs run at once, and how many registers that leaves each.
//! - [`estimate`]: what a kernel takes and what a launch costs, before any code is generated.
//! - [`report`]: what was decided, for a person to read.

// Where `kernel-llvm` is empty there is nothing to generate code with.
#![cfg(any(feature = "link-llvm", all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]

pub mod analysis;
mod boxes;
pub mod checks;
mod compile;
mod compiled;
mod dot;
mod error;
mod estimate;
mod flush;
mod lines;
mod lower;
mod negations;
pub mod occupancy;
mod passes;
mod place;
pub mod report;
mod unread;
mod upper_halves;

pub use checks::Checks;
pub use compile::{Nvptx, compile, compile_placed, compile_watched, place_watched};
pub use compiled::{Compiled, LlvmIr};
pub use error::CodegenError;
pub use estimate::estimate;
pub use kernel_core::backend::nvidia::{
    AbiParam, LaunchShape, LineInfo, MapSwizzle, Options, Placement, TensorCopies, TensorMap, Usage, with_min_programs,
};
pub use kernel_core::backend::{Internal, Refusal, Site, SiteKind, Timings};
pub use kernel_core::target::{MAX_WARPS, Target};
pub use passes::list::{Stage, Watcher, optional_passes, pass_names, run_named};
pub use report::Report;
