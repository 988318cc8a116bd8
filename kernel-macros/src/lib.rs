//! The `#[kernel]` attribute of Tilewright: turns a Rust function into tile IR while the crate compiles.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! ```text
//! tokens ── guard ──> syn ── signature ──> typeck ──> tree ── jumps ──> lower ──> tile IR text
//!                                 └──────────────── launcher ─────────────────────┘
//! ```
//!
//! - `device` finds the functions and structs that a body names, which `typeck` inlines;
//! - `guard` refuses nesting that would overflow a stack, without recursion;
//! - `signature` reads dtype parameters, constexprs and parameters;
//! - `typeck` types the body, shapes included, and collects every mistake, on the user's tokens;
//! - `jumps` turns `return`, `break` and `continue` into structure, and ranges into those that the IR has;
//! - `lower` settles dtypes and turns mutable variables into carried values;
//! - `launcher` writes the typed launcher around the text of the IR;
//! - `lints` writes the body once more, for rustc to warn of what nobody uses.
//!
//! No I/O, no LLVM, no CUDA.

mod attr;
mod attributes;
mod decimal;
mod device;
mod error;
mod expand;
mod foreign;
mod guard;
mod help;
mod jumps;
mod launcher;
mod libdevice;
mod lints;
mod lower;
mod names;
mod ops;
mod parse_errors;
mod quotient;
mod signature;
mod source;
mod source_lines;
mod source_range;
mod spellings;
#[cfg(test)]
mod tests;
mod tree;
mod typeck;
mod types;

#[doc = include_str!("language.md")]
#[proc_macro_attribute]
pub fn kernel(attr: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::expand(attr.into(), item.into()).into()
}

/// A function that kernels inline, or a struct that they pass on.
///
/// The function works on tiles, scalars and pointers, and is called like any function. `return` ends it early, and not the
/// kernel. An error of a launch names the place in the function, and the calls that led there.
///
/// ```ignore
/// use tilewright::prelude::*;
///
/// /// `x * sigmoid(x)`
/// #[device]
/// pub fn silu<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
///     x * sigmoid(x)
/// }
///
/// #[kernel]
/// pub fn activate<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
///     let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
///     let mask = offsets < n;
///     store(out + offsets, silu(load(x + offsets, mask = mask)), mask = mask);
/// }
/// ```
///
/// A struct has tiles, scalars, pointers and other structs as its fields:
///
/// ```ignore
/// #[device]
/// pub struct Stats<T: Float, const N: usize> {
///     pub max: Tile<T, { [N] }>,
///     pub sum: Tile<T, { [N] }>,
///     pub count: i32,
/// }
/// ```
///
/// `#[device(methods)]` in front of a struct and `#[device]` in front of an `impl` in its module give it methods:
///
/// ```ignore
/// #[device(methods)]
/// pub struct Counter {
///     pub value: i32,
/// }
///
/// #[device]
/// impl Counter {
///     pub fn next(&mut self) -> i32 {
///         self.value += 1;
///         self.value
///     }
/// }
/// ```
///
/// The sections *Functions* and *Structs* of the documentation of [`kernel`](macro@kernel) say what they take and give.
#[proc_macro_attribute]
pub fn device(attr: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    device::expand(attr.into(), item.into()).into()
}

/// What the macro of a `#[device]` function hands its tokens to.
#[doc(hidden)]
#[proc_macro]
pub fn inline_device_function(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    device::inline(tokens.into()).into()
}
