//! Products whose factors are not plain matrices.

pub mod ends;
pub mod fp8;
pub mod int4;
pub mod matmul;
pub mod moe;
