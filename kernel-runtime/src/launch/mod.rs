//! Launching kernels.
//!
//! | module | what it is |
//! |---|---|
//! | `call` | [`Call`], [`UnsafeCall`]: a kernel with its arguments, what launchers return |
//! | `args`, `scalar`, `grid` | what may be passed for a parameter and for a grid |
//! | `kernel` | [`Kernel`]: the tile IR that `#[kernel]` embeds, with the caches of its variants |
//! | `invocation` | what every launch does before it comes to a backend |
//! | `spec`, `key`, `cache` | what variants are made from, their keys, one compilation per key |
//! | `list` | the short lists that calls are made of |
//! | `loads` | which buffers what a launch writes can depend on |
//! | `bind` | from generic to bound tile IR, with errors that show the source |
//! | `cpu`, `gpu` | the backends: the interpreter; code generation, the driver |
//! | `fault` | what failing programs report, as [`Error`](crate::Error)s |
//! | `compiled`, `request`, `timing` | looking at what is compiled, without a GPU |
//!
//! A launch like one before takes no lock, allocates nothing and hashes nothing but a few words:
//!
//! 1. the grid and the options are within limits;
//! 2. dtypes, constexprs and what is known of the arguments were mixed into a digest while the call was made; it finds
//!    the code, whose key is compared with them;
//! 3. on a GPU, the host evaluates the conditions under which no access leaves its buffer, unless they are known to
//!    hold for such arguments; where they do not hold, a second variant that checks every access runs instead;
//! 4. buffers that have only been used on this stream are known to be on its device, and need one compare each; for
//!    others, devices are compared and streams made to wait. Each notes its reader or writer;
//! 5. a launch that can fail gets a record, and with launches that read what such a one wrote it is appended to the
//!    ledger of its context, which knows whose errors readers are told;
//! 6. the kernel is given to the stream, with parameters that are read where the call has them.

mod args;
mod bind;
mod cache;
mod call;
mod compiled;
mod cpu;
mod fault;
#[cfg(jit)]
mod gpu;
#[cfg(jit)]
use gpu as backend;
mod grid;
mod invocation;
mod kernel;
mod key;
mod list;
mod loads;
#[cfg(not(jit))]
mod no_jit;
#[cfg(not(jit))]
use no_jit as backend;
mod request;
mod scalar;
mod spec;
mod target;
mod tile_size;
mod timing;

pub use crate::tensor::{DescArg, DescMutArg, DescRef, DescRefMut};
pub use args::{BufferArg, BufferArgMut, PtrArg, PtrMutArg};
pub use call::{Call, Grid, HasGrid, NoGrid, UnsafeCall};
pub use compiled::CompiledKernel;
pub use grid::{GRID_LIMITS, GridSize, IntoGrid};
pub use kernel::{Kernel, KernelSource, SourceFile};
pub use request::CompileRequest;
pub use scalar::{Scalar, ScalarValue};
pub use target::Target;
pub use timing::Timings;

/// Why a program without the code generator compiles nothing for GPUs, and what to do.
pub(crate) const NO_CODE_GENERATOR: &str = if cfg!(feature = "jit") {
    "the compiler loads the LLVM of the Rust toolchain, which works on x86-64 and aarch64 Linux only; here, build with the \
     feature `link-llvm` of `tilewright` and an installed LLVM 22, or run on `Device::cpu()`"
} else {
    "this program was built without the code generator; turn on the feature `jit` of `tilewright`, or run on \
     `Device::cpu()`"
};
