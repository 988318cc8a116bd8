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
mod error;
mod expand;
mod foreign;
mod guard;
mod help;
mod jumps;
mod launcher;
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
