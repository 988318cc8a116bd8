//! What a file with kernels imports: `use tilewright::prelude::*;`.
//!
//! Operations (`load`, `arange`, `program_id` and all others) are not here: they mean something
//! inside kernels only, where the attribute knows them by name.

pub use crate::{
    Buffer, Const, DType, Device, Error, Float, InPlace, Int, Num, Ptr, PtrMut, Signed, Stream, Target, TensorDesc,
    TensorDescMut, Tile, device, kernel,
};
pub use half::{bf16, f16};
pub use kernel_runtime::dtype::{F8E4M3, F8E5M2};
