//! [Tilewright](tilewright)'s kernels on [candle](candle_core)'s tensors: your own as ops with gradients, and the library's ready
//! ones. Nothing is copied, and on a GPU nothing is waited for: launches go to candle's stream, in order with candle's own.
//!
//! ```
//! use tilewright_candle::prelude::*;
//!
//! /// out[i] = a * x[i] + y[i]
//! #[kernel]
//! fn axpy_kernel<T: Float, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, a: f32, n: i64) {
//!     let offsets = program_id(0) as i64 * BLOCK + arange(0, BLOCK) as i64;
//!     let mask = offsets < n;
//!     let (x, y) = (load(x + offsets, mask = mask) as f32, load(y + offsets, mask = mask) as f32);
//!     store(out + offsets, (a * x + y) as T, mask = mask);
//! }
//!
//! candle_op! {
//!     /// `a * x + y`.
//!     pub fn axpy(x, y; a: f32) -> (out: like(x)) {
//!         dispatch!(x => T in [f16, bf16, f32] {
//!             let n = x.len();
//!             axpy_kernel::<T, 1024>(x.flat()?, y.flat()?, out.flat_mut()?, a, n as i64)
//!                 .grid(n.div_ceil(1024))
//!                 .launch(x.device())
//!         })
//!     }
//! }
//!
//! # fn main() -> candle_core::Result<()> {
//! let device = candle_core::Device::cuda_if_available(0)?;
//! let (x, y) = (Tensor::new(&[1f32, 2.0], &device)?, Tensor::new(&[10f32, 20.0], &device)?);
//! assert_eq!(axpy(&x, &y, 3.0)?.to_vec1::<f32>()?, [13.0, 26.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | what | where |
//! |---|---|
//! | ops of your own, with gradients or in place | [`candle_op!`], [`dispatch!`]; [`call`], [`call_in_place`], [`Op`] without a macro |
//! | operators that PyTorch and JAX call too, by the same source | [`from_op!`] |
//! | tensors in their bodies | [`TensorRef`], [`TensorMut`]: as views for kernels, as tensors of the library, as descriptors |
//! | softmax, norms, rotary embedding, gates, losses | [`rows`] |
//! | attention: flash, over caches, over pages | [`attention`] |
//! | products: with what follows them, quantised, of 8-bit floats | [`products`] |
//! | all other functions of the library | [`tilewright_kernels`], with [`TensorRef::view`] and [`TensorRef::context`] |
//! | a tensor of the library as one of candle's | [`into_candle`] |
//! | devices | [`device()`], [`context`], [`set_table`], [`synchronize`] |
//!
//! # Errors
//!
//! Input that does not fit is an error of candle's that names the op, the argument, what it is and what is accepted:
//! ``rms_norm: `weight` is of f16; the dtype that is accepted is f32``.
//!
//! What kernels notice while they run (an index out of bounds, an `assert!`) comes at once on the CPU. On a GPU it comes with the
//! next op on that stream, or with [`synchronize`]; candle's own functions know nothing of it.
//!
//! # The CPU
//!
//! There kernels run in Tilewright's interpreter, which checks every access: for tests, on machines without a GPU. candle's own ops are
//! much faster there.

pub mod attention;
mod call;
mod device;
mod element;
mod lock;
mod macros;
mod memory;
mod op;
#[doc(hidden)]
pub mod operators;
pub mod products;
pub mod rows;
mod tensor;

pub use candle_core;
pub use device::{context, device, set_table, synchronize};
pub use element::Element;
#[doc(hidden)]
pub use op::gradients;
pub use op::{Inputs, Op, apply, call, call_in_place, call_with};
pub use tensor::{Spec, TensorMut, TensorRef, into_candle, like};
pub use tilewright;
pub use tilewright_ffi;
pub use tilewright_kernels;

/// What ops are written with: Tilewright's prelude, candle's tensors, and the names of this crate. `Result` is Tilewright's,
/// which bodies of ops give; functions that candle calls give `candle_core::Result`.
pub mod prelude {
    pub use crate::{Spec, TensorMut, TensorRef, candle_op, dispatch, from_op, like};
    pub use candle_core::Tensor;
    pub use tilewright::Result;
    pub use tilewright::prelude::*;
}

/// The programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
