//! How kernels become fast, step by step, with what each step gains, and how the language compares to Triton's.
//!
//! | guide | about |
//! |---|---|
//! | [`matmul`] | a matrix product, from the obvious kernel to one that is as fast as the vendor's library |
//! | [`attention`] | attention, from three passes over the keys to two groups of warps that take turns |
//! | [`shipping`] | programs that take compiled kernels with them, and the cache on disk |
//! | [`tuning`] | how a kernel gets the configuration that is fastest where it runs |
//! | [`profiling`] | which kernels take how long, and lines of the source in NVIDIA's tools |
//! | [`conformance`] | Triton's own tests of its language, and its functions beside ours |

pub mod attention;
#[doc = include_str!("conformance.md")]
pub mod conformance {}
pub mod matmul;
pub mod profiling;
pub mod shipping;
pub mod tuning;
