//! Operators for PyTorch, JAX and everything that speaks DLPack, from Rust functions: without C++, and without Python or
//! libtorch where they are built.
//!
//! A function over borrowed tensors becomes an operator by [`#[op]`](macro@op). [`export!`] puts operators into a `cdylib`,
//! which has a door for each framework, and the program `tilewright-ffi` writes a Python package around it. The [`guide`]
//! takes one from the kernel to the wheel.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_ffi::prelude::*;
//!
//! #[kernel]
//! fn silu_kernel<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
//!     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
//!     let mask = offsets < n;
//!     let value = load(x + offsets, mask = mask);
//!     store(y + offsets, value * sigmoid(value), mask = mask);
//! }
//!
//! /// `x * sigmoid(x)`, elementwise.
//! #[op(out(y: like(x)), vmap = broadcast_all)]
//! pub fn silu(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
//!     dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
//!         let n = x.len();
//!         let call = silu_kernel::<T, 1024>(x.flat::<T>()?, y.flat_mut::<T>()?, n as i64);
//!         call.grid(n.div_ceil(1024)).launch(x.device())?;
//!         Ok(())
//!     })
//! }
//!
//! tilewright_ffi::export!(my_ops: silu);
//! # fn main() {}
//! ```
//!
//! ```sh
//! cargo build --release
//! tilewright-ffi wheel target/release/libmy_ops.so dist
//! pip install dist/my_ops-0.1.0-*.whl
//! ```
//!
//! ```python
//! import my_ops.torch, my_ops.jax, my_ops.tvm_ffi
//!
//! y = my_ops.torch.silu(x)        # in torch.compile, torch.export and CUDA graphs, too
//! y = my_ops.jax.silu(x)          # in jax.jit, jax.grad and jax.vmap, too
//! y = my_ops.tvm_ffi.silu(x)      # of arrays of NumPy
//! ```
//!
//! # Where to find what
//!
//! | item | what it is |
//! |---|---|
//! | [`prelude`] | what a file with operators imports |
//! | [`#[op]`](macro@op), [`export!`] | functions as operators, and libraries of them |
//! | [`TensorRef`], [`TensorMut`], [`Scratch`] | what operators take |
//! | [`dispatch!`] | from a tensor's dtype to a type |
//! | [`Error`], [`Result`] | what they fail with |
//! | `package` | Python packages and wheels, with the feature of this name |
//! | [`op`](mod@op), [`call`], [`backward`] | what operators are inside, for what the macros write |
//! | [`torch`], [`tvm_ffi`], [`xla`] | the doors |
//! | [`native`] | the door for frameworks that are written in Rust |
//!
//! # What holds for all doors
//!
//! - **Nothing is copied.** Tensors are the framework's memory. Kernels run on its current stream, in the primary context that
//!   it uses too, and [scratch memory](Scratch) is the framework's. On the CPU, kernels run before the call returns.
//! - **Arguments are checked** before the function runs: dtypes that no kernel knows, tensors on several devices, outputs of
//!   another shape or dtype, written tensors that share memory with another one.
//! - **Errors and panics** become exceptions that name operator, argument, and what is accepted.
//! - **Errors of kernels** on a GPU come later: the next call of an operator on the stream raises them, with the file and line
//!   in the kernel, and so does `synchronize()` of the package. Those of replays of a CUDA graph come with the next call on any
//!   stream of the GPU. Nothing waits for them.
//!
//! # Features
//!
//! | feature | default | meaning |
//! |---|---|---|
//! | `package` | on | the program `tilewright-ffi`; a library of operators needs none of it, and turns it off |
//! | `kernels` | off | [`TensorRef::view`](TensorRef) and its kind give tensors of `tilewright-kernels` |
//!
//! Linux only.

pub mod backward;
pub mod call;
mod device;
mod dispatch;
mod error;
pub mod guide;
mod library;
mod memory;
pub mod native;
pub mod op;
#[cfg(feature = "package")]
pub mod package;
mod scratch;
mod shape;
mod tensor;
pub mod torch;
pub mod tvm_ffi;
pub mod xla;

pub use call::Exported;
pub use error::{Error, Result};
pub use scratch::Scratch;
pub use tensor::{NotBool, TensorMut, TensorRef};
pub use tilewright::{DType, ElementType};

/// Makes an operator of a function.
///
/// ```
/// # use tilewright_ffi::prelude::*;
/// /// The function itself stays as it is; its documentation becomes the operator's.
/// #[op(out(y: like(x)), backward = scale_backward, vmap = broadcast_all)]
/// pub fn scale(x: TensorRef<'_>, y: TensorMut<'_>, #[default(2.0)] factor: f64) -> Result<()> {
/// #     let _ = (x, y, factor);
///     // ..
///     Ok(())
/// }
///
/// #[op(out(d_x: like(d_y)))]
/// pub fn scale_backward(d_y: TensorRef<'_>, d_x: TensorMut<'_>, factor: f64) -> Result<()> {
/// #     let _ = (d_y, d_x, factor);
///     // ..
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// # Parameters
///
/// | type | is |
/// |---|---|
/// | `TensorRef<'_>`, `Option<TensorRef<'_>>` | a tensor to read; one that may be `None` |
/// | `TensorMut<'_>` that `out(..)` names | an output, which the door makes unless the caller gives one |
/// | `Option<TensorMut<'_>>` that `out(..)` names | an output that is there if the optional tensor is whose shape it has |
/// | `TensorMut<'_>` otherwise | a tensor that is written where it is |
/// | `i64`, `f64`, `bool`, `&str` | an attribute; `#[default(1e-5)]` in front gives it a default |
/// | `Option<i64>`, `Option<f64>` | an attribute that may be `None` |
/// | `&Scratch<'_>` | memory for intermediate results; callers do not see it |
///
/// The function returns a `Result<(), E>`, where [`Error`] can be made of `E`. At least one tensor that is given is not
/// optional.
///
/// # Outputs
///
/// `out(..)` says dtype and shape of each output, for allocation, checks, and tracing in frameworks:
///
/// | `out(..)` | is |
/// |---|---|
/// | `y: like(x)` | dtype and shape of `x`, in row-major order |
/// | `y: x.dtype[x.shape[0], n]` | the dtype of `x`, two dimensions; `n` is an attribute of type `i64` |
/// | `y: f32[..x.shape[..-1]]` | f32, all dimensions of `x` but the last |
/// | `y: bool[x.shape[-1] / 2, max(n, 1)]` | sizes are computed with `+ - * / %`, `min` and `max`, and rounded as in Python |
///
/// # Gradients
///
/// `backward = f` names the operator that computes gradients. Its parameters say by their names what it takes: `d_y` is the gradient of
/// the output `y`; other tensors are inputs or outputs of the operator, and attributes are its attributes. It gives `d_x` for
/// each input `x` that has a gradient, or `d_x_and_y` for two that have the same and are always given. Whether that fits is checked when the crate compiles. Gradients come in contiguous.
/// An input without one must not require it: the packages refuse it. An output of which no gradient is taken is a constant to them.
/// One of an output on which nothing depends is zeros; of several outputs, `d_y: Option<TensorRef>` is `None` then, in PyTorch outside of
/// `torch.compile`. The operator must still write each `d_x` that it is given: memory of outputs holds anything before.
///
/// # `vmap`
///
/// What the operator does where `jax.vmap` maps it: `sequential` (the default) calls it once per element; with
/// `broadcast_all` it is called once, and all its tensors have one more leading dimension; with `expand_dims` that is of
/// size 1 in those which are not mapped. Shapes in `out(..)` must then be right for more leading dimensions, too, and so must the
/// operator: a tensor without dimensions, of which one is mapped, becomes one with a last dimension. Where that means something, let
/// `out(..)` name it, as `y: x.dtype[..x.shape[..-1], x.shape[-1]]` does, which refuses a tensor that lacks it.
pub use tilewright_ffi_macros::op;

/// Exports operators from a `cdylib`, once in a library: `export!(my_ops: silu, silu_backward);`.
///
/// The first name is that of the Python package, and of the namespace `torch.ops.my_ops`. An operator's gradient is in the list
/// too. The symbols are:
///
/// | symbol | is |
/// |---|---|
/// | `tilewright_describe` | the operators as JSON, for the generator |
/// | `tilewright_torch_register` | gives them to the PyTorch of the process: null, or the text of what is wrong |
/// | `tilewright_synchronize` | waits for all GPUs that were used: null, or the text of the oldest error |
/// | `__tvm_ffi_NAME` | the function for TVM-FFI |
/// | `tilewright_xla_NAME` | the handler for XLA |
/// | `tilewright_xla_NAME.unrecorded` | the same, which XLA does not record into command buffers |
/// | `tilewright_scratch` | how many bytes of scratch memory a call takes that JSON describes: -1 where that is not known |
pub use tilewright_ffi_macros::export;

/// What a file with operators imports, beside `tilewright::prelude`.
pub mod prelude {
    pub use crate::{Result, Scratch, TensorMut, TensorRef, dispatch, export, op};
}
