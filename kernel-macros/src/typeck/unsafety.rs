//! `unsafe` blocks, in which hints are believed.
//!
//! ```text
//! // SAFETY: the caller pads rows to multiples of 16.
//! let stride = unsafe { multiple_of(stride, 16) };
//! ```
//!
//! Nothing else changes in such a block: as in Rust, it does not switch checks off that its operations have outside, so
//! accesses of a safe kernel are kept inside their buffers there too. rustc sees every block again, empty if nothing in
//! it is unsafe, and says what its lints have to say about it.

use syn::ExprUnsafe;

use super::Checker;
use super::block::Flow;

/// An `unsafe` block of the kernel.
pub struct UnsafeBlock {
    /// Its attributes, among which those for lints are.
    pub attrs: Vec<syn::Attribute>,
    /// The keyword and the braces, on which rustc reports.
    pub token: syn::Token![unsafe],
    /// See `token`.
    pub braces: proc_macro2::Span,
    /// Whether something in it is unsafe.
    pub is_used: bool,
}

impl Checker<'_> {
    /// The statements of an `unsafe` block; `want` says whether its value is used.
    pub(super) fn unsafe_block(&mut self, block: &ExprUnsafe, want: bool) -> Flow {
        // All that an `unsafe fn` does is unsafe.
        let is_used = self.signature.is_unsafe;
        let (attrs, token, braces) = (block.attrs.clone(), block.unsafe_token, block.block.brace_token.span.join());
        self.unsafe_blocks.push(UnsafeBlock { attrs, token, braces, is_used });
        self.open_unsafe.push(self.unsafe_blocks.len() - 1);
        let end = block.block.brace_token.span.close();
        let flow = self.scoped(|c| c.block(&block.block.stmts, want, end));
        self.open_unsafe.pop();
        flow
    }

    /// Whether an unsafe operation stands in an `unsafe` block. Of nested ones the outermost is what it needs.
    pub(super) fn believes(&mut self) -> bool {
        let outermost = self.open_unsafe.first().copied();
        let block = outermost.and_then(|index| self.unsafe_blocks.get_mut(index));
        block.is_some_and(|block| {
            block.is_used = true;
            true
        })
    }
}
