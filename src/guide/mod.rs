//! How kernels become fast, step by step, with what each step gains.
//!
//! | guide | about |
//! |---|---|
//! | [`matmul`] | a matrix product, from the obvious kernel to one that is as fast as the vendor's library |

pub mod matmul;
