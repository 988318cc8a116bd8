//! Operators for PyTorch, JAX and everything that speaks DLPack, from Rust functions.

pub mod backward;
pub mod call;
mod device;
mod dispatch;
mod error;
mod library;
mod memory;
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
pub use tilewright_ffi_macros::{export, op};

/// What a file with operators imports, beside `tilewright::prelude`.
pub mod prelude {
    pub use crate::{Result, Scratch, TensorMut, TensorRef, dispatch, export, op};
}
