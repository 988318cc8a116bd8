//! Launching kernels.
//!
//! | module | what it is |
//! |---|---|
//! | `call` | [`Call`], [`UnsafeCall`]: a kernel with its arguments, what launchers return |
//! | `args`, `optional`, `scalar`, `grid` | what may be passed for a parameter and for a grid |
//! | `definition` | the tile IR that `#[kernel]` embeds |
//! | `kernel` | [`Kernel`]: a definition with the caches of its variants |
//! | `invocation`, `start` | a call without its types, and what every launch does before it comes to a backend |
//! | `spec`, `key`, `cache` | what variants are made from, their keys, one compilation per key |
//! | `lines` | what line information says of sources |
//! | `list` | the short lists that calls are made of |
//! | `made` | tensors that a kernel makes itself of its arguments |
//! | `loads` | which buffers what a launch writes can depend on |
//! | `bind` | from generic to bound tile IR, with errors that show the source |
//! | `cpu`, `gpu` | running variants: the interpreter; what a [`Backend`](kernel_core::backend::Backend) has compiled, by the driver |
//! | `fault` | what failing programs report, as [`Error`](crate::Error)s |
//! | `configured` | constexprs with options, as one value |
//! | `shape`, `trial`, `noted` | a launch without its arguments; launches for a tuner; what work would launch |
//! | `compiled`, `request`, `assumed`, `chosen` | looking at what is compiled, without a GPU: the stages, what to compile for, which variant a launch runs |
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

mod ahead;
mod args;
mod assumed;
mod bind;
mod cache;
mod call;
mod chosen;
mod compiled;
mod configured;
mod cpu;
mod definition;
mod fault;
mod gpu;
mod grid;
mod invocation;
mod kernel;
mod key;
mod lines;
mod list;
mod loads;
mod made;
mod noted;
mod optional;
mod outputs;
mod request;
mod scalar;
mod shape;
mod spec;
mod start;
mod target;
mod tile_size;
mod trial;

pub use crate::tensor::{DescArg, DescMutArg, DescRef, DescRefMut};
pub use ahead::AheadCompiler;
pub use args::{BufferArg, BufferArgMut, PtrArg, PtrMutArg};
pub use assumed::{Alignment, Assumed, AssumedBuffer, AssumedLength, AssumedScalar, AssumedTensor, Assumes};
pub use call::{Call, Grid, HasGrid, MaybeGrid, NoGrid, TakesConstants, UnsafeCall, WithoutBody};
pub use chosen::{ConditionFailure, FailedCondition, LaunchVariant};
pub use compiled::CompiledKernel;
pub use configured::{Config, Constexprs, LaunchOptions};
pub use definition::{KernelSource, SourceFile};
pub use gpu::Shipped;
#[doc(hidden)] // For what looks into archives.
pub use gpu::machine::nvdisasm::Nvdisasm;
pub use gpu::machine::ptxas::Ptxas;
pub(crate) use gpu::stored::{entries_of, shipped};
pub(crate) use gpu::{MISSING_COMPILER, compiler_name};
pub use grid::{GRID_LIMITS, GridSize, IntoGrid};
pub use kernel::Kernel;
pub use kernel_core::backend::Timings;
pub(crate) use noted::is_active as are_noted;
pub use noted::shapes_of;
pub use optional::{
    InPlace, InPlaceArg, MaybeView, MaybeViewMut, OptionalDescArg, OptionalDescMutArg, OptionalPtrArg,
    OptionalPtrMutArg,
};
pub(crate) use outputs::Outputs;
pub use request::CompileRequest;
pub use scalar::{Scalar, ScalarValue};
pub use shape::{CallShape, Placement, Preview, Work};
pub use target::Target;
pub use trial::Trial;
pub(crate) use trial::{Given, Step};
