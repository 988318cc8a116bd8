//! Tilewright: Triton's programming model as native Rust.
//!
//! A kernel is a Rust function under [`#[kernel]`](kernel). It works on whole tiles
//! (`program_id`, `arange`, masked `load` and `store`, arithmetic with broadcasting, reductions),
//! is checked while the crate compiles, shapes included, and is launched like a function. It runs
//! on NVIDIA GPUs through LLVM and the CUDA driver, and on the CPU where there is no GPU.
//!
//! ```
//! use tilewright::prelude::*;
//!
//! /// out[i] = x[i] + y[i]
//! #[kernel]
//! pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
//!     let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
//!     let mask = offsets < n;
//!     let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
//!     store(out + offsets, sum, mask = mask);
//! }
//!
//! fn main() -> Result<(), tilewright::Error> {
//!     let n = 1000;
//!     let device = Device::best()?; // the first CUDA GPU, else the CPU
//!     let x = device.upload(&vec![1.0f32; n])?;
//!     let y = device.upload(&vec![2.0f32; n])?;
//!     let mut out = device.zeros::<f32>(n)?;
//!     add::<_, 1024>(&x, &y, &mut out, n as i32).grid(n.div_ceil(1024)).launch(&device)?;
//!     assert_eq!(out.to_vec()?, vec![3.0; n]);
//!
//!     // The same, with a constexpr that is chosen at run time.
//!     let block = n.next_power_of_two();
//!     AddConsts { BLOCK: block }.call(&x, &y, &mut out, n as i32).grid(n.div_ceil(block)).launch(&device)?;
//!     assert_eq!(out.to_vec()?, vec![3.0; n]);
//!     Ok(())
//! }
//! ```
//!
//! # Where to find what
//!
//! | item | what it is |
//! |---|---|
//! | [`prelude`] | what a file with kernels imports |
//! | [`kernel`] | the attribute, with the language of kernels |
//! | [`Device`], [`Buffer`], [`View`], [`ViewMut`], [`Stream`], [`Event`] | where kernels run, and on what |
//! | [`TensorDesc`], [`TensorDescMut`] | buffers seen as tensors, which kernels read and write in blocks |
//! | [`launch`] | calls, grids, compiled kernels to look at |
//! | [`tune`] | which configuration of a kernel is fastest, and tables of those that are |
//! | [`mod@bench`] | how long things take |
//! | [`Error`] | everything that can go wrong outside the attribute |
//! | [`Ptr`], [`PtrMut`], [`Const`], [`Tile`] | the types of kernels' parameters and values |
//! | [`archive`] | compiled kernels in files: the cache on disk, kernels shipped without a compiler |
//! | [`guide`] | how a matrix product and attention become fast, step by step |
//!
//! # Launches
//!
//! A launcher returns a [`launch::Call`]. `.grid(..)` says how many programs run: a number, or a
//! tuple or array of up to three; `.grid_with(|c| ..)` computes it from the constexprs. Options are
//! `.num_warps(8)`, `.num_stages(3)`, `.max_registers(96)`, `.dependent_launch()`, `.stream(&stream)` and, on the CPU,
//! `.time_limit(duration)`.
//! `.launch(&device)` starts the kernel and returns. An error while it runs is returned by the next operation that reads
//! data which depends on the launch, or by `synchronize`:
//!
//! ```text
//! bad(&x, &mut tmp).grid(1).launch(&device)?;      // an access out of bounds: suppressed
//! next(&tmp, &mut out).grid(1).launch(&device)?;   // is no error of a later launch
//! out.to_vec()                                     // Err: `bad.rs:7:5: kernel `bad` loads element 100 of `x`, ..`
//! out.to_vec()                                     // Ok: each error is delivered once
//! ```
//!
//! A buffer depends on the launches that wrote it since the host last set all of it (`copy_from_slice`, `fill`), on
//! those that wrote what these read, and so on; a later launch that overwrites it hides nothing. Copies inherit.
//! Readers get the oldest error that nobody has taken, other buffers stay readable. An error that nobody takes is logged
//! when the stream drops.
//!
//! # Functions
//!
//! `#[device]` makes a function that kernels of any module and crate call, and that is inlined, and structs that such
//! functions take and give: [`macro@device`].
//!
//! ```
//! use tilewright::prelude::*;
//!
//! /// `x * sigmoid(x)`
//! #[device]
//! pub fn silu<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
//!     x * sigmoid(x)
//! }
//!
//! mod layers {
//!     use crate::silu;
//!     use tilewright::prelude::*;
//!
//!     #[kernel]
//!     pub fn gate<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
//!         let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
//!         let read = |from| load(from + offsets, mask = offsets < n);
//!         store(out + offsets, silu(read(x)) * read(y), mask = offsets < n);
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let device = Device::best()?;
//!     let (x, y) = (device.upload(&[0.0f32, 100.0])?, device.upload(&[1.0f32, 2.0])?);
//!     let mut out = device.zeros::<f32>(2)?;
//!     layers::gate::<_, 64>(&x, &y, &mut out, 2).grid(1).launch(&device)?;
//!     assert_eq!(out.to_vec()?, [0.0, 200.0]);
//!     Ok(())
//! }
//! ```
//!
//! # Looking at the code
//!
//! Every stage of a kernel's way can be printed for every target, without a GPU:
//!
//! ```no_run
//! # use tilewright::prelude::*;
//! # #[kernel]
//! # pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
//! #     let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
//! #     let mask = offsets < n;
//! #     store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
//! # }
//! # fn main() -> Result<(), Error> {
//! let compiled = AddConsts { BLOCK: 1024 }.compile::<f32>(Target::sm_90a())?;
//! println!("{}", compiled.tile_ir()); // as the program embeds it
//! println!("{}", compiled.placed_ir()); // with a layout for every tile
//! println!("{}", compiled.ptx());
//! println!("{}", compiled.report());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | meaning |
//! |---|---|---|
//! | `jit` | on | kernels are compiled for GPUs; without it they run on the CPU, and on GPUs from an [archive] |
//! | `tune` | on | what people see of tuning: a bar on the terminal, Ctrl-C, pictures |
//! | `link-llvm` | off | LLVM is linked when the program is built, instead of loaded from the Rust toolchain when it runs |
//!
//! The LLVM of the Rust toolchain is loaded on x86-64 and aarch64 Linux. On other platforms `jit` has no effect without
//! `link-llvm` and an installed LLVM 22: programs build and run on the CPU, [`Device::best`] chooses it, and a launch on a
//! GPU is [`Error::Unsupported`].

pub mod guide;
mod markers;
pub mod prelude;

#[doc(hidden)]
pub use kernel_macros::inline_device_function;
pub use kernel_macros::{device, kernel};
pub use kernel_runtime::archive;
pub use kernel_runtime::launch::{self, InPlace, Target};
pub use kernel_runtime::profile::{self, profile};
pub use kernel_runtime::{
    Access, Buffer, CallSite, DType, Device, Diagnostic, ElementType, Error, Event, Float, Graph, Int, Num, Result,
    Signed, Stream, TensorDesc, TensorDescMut, View, ViewMut, synchronize_all,
};
pub use kernel_runtime::{bench, tune};
pub use markers::{Const, KernelOnly, Ptr, PtrMut, Tile};

/// Embeds an archive of compiled kernels, and lets launches find them; gives how many variants it has. The path is that of
/// `include_bytes!`: relative to the source file, or `concat!(env!("OUT_DIR"), "/kernels.twa")`. Call it before the first
/// launch, and before [`Device::best`] in a program without the feature `jit`.
///
/// # Errors
///
/// [`Error::Archive`] if the file is no archive, damaged, or of another version of Tilewright: see [`archive`].
#[macro_export]
macro_rules! embed_archive {
    ($path:expr $(,)?) => {
        $crate::archive::add(::core::include_bytes!($path))
    };
}

/// The 16-bit floats, which are dtypes like those of Rust.
pub use half;
