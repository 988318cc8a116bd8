//! A kernel of the program, and what was made from it.

use super::cache::Cache;
use super::cpu::variant::CpuVariant;
use super::definition::{Definition, KernelSource};
use super::gpu::caches::GpuCaches;
use crate::error::Result;
use crate::profile::Place;
use kernel_core::ir::Generic;
use std::fmt;

/// A kernel with its compiled variants, one `static` per `#[kernel]`.
///
/// Variants stay for the life of the process: a kernel is compiled once for each combination of
/// dtypes, constexprs, argument facts, options and device.
pub struct Kernel {
    definition: Definition,
    pub(super) cpu: Cache<CpuVariant>,
    pub(super) gpu: GpuCaches,
}

impl Kernel {
    /// A kernel that has not been looked at yet.
    pub const fn new(source: KernelSource) -> Self {
        Kernel { definition: Definition::new(source), cpu: Cache::new(), gpu: GpuCaches::new() }
    }

    /// The kernel without its variants.
    pub(super) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What `#[kernel]` embedded.
    pub fn source(&self) -> &KernelSource {
        self.definition.source()
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.definition.name()
    }

    /// Where it stands in the source, as rustc names the file.
    pub(crate) fn place(&self) -> Place {
        self.definition.place()
    }

    /// How many variants have been compiled so far, or taken from an archive, for any device.
    pub fn compilations(&self) -> usize {
        self.definition.compilations()
    }

    /// The generic tile IR, read on first use. Binding verifies it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Compile`] if the text is not that of a kernel, which the macro of the same version
    /// never embeds.
    pub fn generic(&self) -> Result<&Generic> {
        self.definition.generic()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({}::{})", self.source().module, self.name())
    }
}
