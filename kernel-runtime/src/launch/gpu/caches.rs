//! The variants of a kernel on GPUs: compiled, and loaded into a context.

use super::super::cache::Cache;
use super::memo::Memo;
use super::module::Loaded;
use super::plan::Plan;
use super::variant::Variant;
use std::sync::Arc;

/// The variants of a kernel on GPUs.
pub(in super::super) struct GpuCaches {
    /// Ready to run, by context.
    pub(super) ready: Cache<Ready>,
    /// Compiled, by target. Several keys may have one variant.
    pub(super) variants: Cache<&'static Variant>,
}

impl GpuCaches {
    pub(in super::super) const fn new() -> Self {
        GpuCaches { ready: Cache::new(), variants: Cache::new() }
    }
}

/// A variant in a context. What each launch reads comes first.
#[repr(C)]
pub(in super::super) struct Ready {
    pub(super) plan: Plan,
    pub(super) memo: Memo,
    pub(super) variant: &'static Variant,
    pub(super) loaded: Arc<Loaded>,
}
