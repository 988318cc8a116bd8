//! The `#[kernel]` attribute of Tilewright: turns a Rust function into tile IR while the crate compiles.
//!
//! ```text
//! tokens ── guard ──> syn ── signature ──> check ──> tree ── returns ──> lower ──> tile IR text
//!                                 └───────────────── launcher ─────────────────────┘
//! ```
//!
//! - `guard` refuses nesting that would overflow a stack, without recursion;
//! - `signature` reads dtype parameters, constexprs and parameters;
//! - `check` types the body, shapes included, and collects every mistake, on the user's tokens;
//! - `returns` turns early `return` into structure;
//! - `lower` settles dtypes and turns mutable variables into carried values;
//! - `launcher` writes the typed launcher around the text of the IR.
//!
//! No I/O, no LLVM, no CUDA.

mod attr;
mod check;
mod error;
mod expand;
mod guard;
mod launcher;
mod lines;
mod lower;
mod names;
mod ops;
mod place;
mod returns;
mod signature;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod types;

/// Turns a function into a kernel: a typed launcher of the same name, and a struct of its constexprs.
///
/// ```text
/// use tilewright::prelude::*;
///
/// /// out[i] = x[i] + y[i]
/// #[kernel]
/// pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
///     let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
///     let mask = offsets < n;
///     let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
///     store(out + offsets, sum, mask = mask);
/// }
/// ```
///
/// Arguments: `num_warps = 8` and `num_stages = 3` are the defaults of a launch, `contract = false` forbids to fuse
/// float operations, `crate = path` says where Tilewright is re-exported.
#[proc_macro_attribute]
pub fn kernel(attr: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::expand(attr.into(), item.into()).into()
}
