//! What passes edit and analyse kernels with.
//!
//! | job | by |
//! |---|---|
//! | append an operation, typed by the type rules | [`Cursor`] |
//! | put what was written somewhere | [`splice`] at a [`Place`] |
//! | rewrite values in one walk in program order | [`Rewriter`] |
//! | copy operations and regions | [`clone_op`], [`clone_region`] |
//! | drop what no region lists | [`compact`] |
//! | visit every operation | [`walk`], [`walk_region`] |
//! | ask what is around an operation, or before it | [`Structure`] |
//! | ask who uses a value | [`Uses`] |
//!
//! [`Structure`] and [`Uses`] are snapshots: they describe the kernel from which they were made, and know nothing of
//! what is changed after.
//!
//! There is one answer to an operation whose operands do not fit it: an [`EditError`], which names the pass, the
//! operation and its line. It is a mistake of the compiler's own, so passes hand it on and none of them panics.

mod compact;
mod copy;
mod cursor;
mod rewrite;
mod structure;
#[cfg(test)]
mod tests;
mod uses;
mod walk;

pub use compact::compact;
pub use copy::{clone_op, clone_region, import_region};
pub use cursor::{Cursor, EditError, Place, Result, splice};
pub use rewrite::{Action, Rewriter};
pub use structure::Structure;
pub use uses::{Uses, replace_all_uses};
pub use walk::{count_ops, ops_in_order, walk, walk_region};
