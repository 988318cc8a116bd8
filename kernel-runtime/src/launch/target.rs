//! What kernels are compiled for.

use crate::device::Device;
pub use kernel_core::target::Target;

impl Device {
    /// What kernels are compiled for on this device: the GPU's architecture, with what only this
    /// generation has, or the nearest older one. `None` on the CPU, which interprets the tile IR,
    /// and on GPUs before Ampere.
    pub fn target(&self) -> Option<Target> {
        let (major, minor) = self.compute_capability()?;
        Target::for_compute_capability(major, minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_has_no_target() {
        assert_eq!(Device::cpu().target(), None);
    }
}
