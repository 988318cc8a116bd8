//! The macros of [tilewright-ffi](https://docs.rs/tilewright-ffi), which documents them.
//!
//! ```text
//! #[op(..)] fn ── attribute ──> options ──┐
//!              ── params ─────> kinds ────┼── shapes ──> outputs ──> expand: the function, its `Op`, its call
//! ```
//!
//! All mistakes of an operator are reported together, on the user's tokens, and the function itself is kept, so that one
//! mistake gives one message.

mod attribute;
mod expand;
mod export;
mod params;
mod shapes;

/// Makes an operator of a function. The documentation of `tilewright-ffi` describes it.
#[proc_macro_attribute]
pub fn op(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::expand(attribute.into(), item.into()).into()
}

/// Exports operators from a `cdylib`. The documentation of `tilewright-ffi` describes it.
#[proc_macro]
pub fn export(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    export::expand(tokens.into()).into()
}
