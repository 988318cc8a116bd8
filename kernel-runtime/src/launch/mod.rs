//! Launching kernels.
//!
//! | module | what it is |
//! |---|---|
//! | `call` | [`Call`], [`UnsafeCall`]: a kernel with its arguments, what launchers return |
//! | `args`, `grid` | what may be passed for a parameter and for a grid |
//! | `kernel` | [`Kernel`]: the tile IR that `#[kernel]` embeds, with the caches of its variants |
//! | `invocation` | what every launch does before it comes to a backend |
//! | `spec`, `cache` | what variants are made from, their keys, one compilation per key |
//! | `bind` | from generic to bound tile IR, with errors that show the source |
//! | `cpu`, `gpu` | the backends: the interpreter; code generation, the driver |
//! | `fault` | what failing programs report, as [`Error`](crate::Error)s |
//! | `compiled`, `request`, `timing` | looking at what is compiled, without a GPU |
//!
//! A launch of a variant that has been compiled takes a read lock and hashes a few words:
//!
//! 1. every buffer and the stream are on the device, the grid is within limits;
//! 2. dtypes, constexprs and what is known of the arguments make a key, the key finds the code;
//! 3. on a GPU, the host evaluates the conditions under which no access leaves its buffer; where
//!    they do not hold, a second variant that checks every access runs instead;
//! 4. each buffer notes its reader or writer, and the kernel is given to the stream.

mod args;
mod bind;
mod cache;
mod call;
mod compiled;
mod cpu;
mod fault;
#[cfg(feature = "jit")]
mod gpu;
#[cfg(feature = "jit")]
use gpu as backend;
mod grid;
mod invocation;
mod kernel;
#[cfg(not(feature = "jit"))]
mod no_jit;
#[cfg(not(feature = "jit"))]
use no_jit as backend;
mod request;
mod spec;
mod target;
mod timing;

pub use crate::tensor::{DescArg, DescMutArg, DescRef, DescRefMut};
pub use args::{BufferArg, BufferArgMut, PtrArg, PtrMutArg, Scalar, ScalarValue};
pub use call::{Call, Grid, HasGrid, NoGrid, UnsafeCall};
pub use compiled::CompiledKernel;
pub use grid::{GRID_LIMITS, GridSize, IntoGrid};
pub use kernel::{Kernel, KernelSource};
pub use request::CompileRequest;
pub use target::Target;
pub use timing::Timings;
