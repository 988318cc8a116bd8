//! What kernels are compiled for.

use crate::device::Device;
#[cfg(jit)]
pub use kernel_codegen::Target;
#[cfg(not(jit))]
pub use without_codegen::Target;

/// The names of targets for builds that cannot compile for them, so that code which names one
/// builds either way.
#[cfg(not(jit))]
mod without_codegen {
    /// A GPU architecture.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Target(&'static str);

    impl Target {
        /// Ampere and later.
        pub fn sm_80() -> Target {
            Target("sm_80")
        }

        /// Ada and later.
        pub fn sm_89() -> Target {
            Target("sm_89")
        }

        /// Hopper without its architecture-specific instructions, and later.
        pub fn sm_90() -> Target {
            Target("sm_90")
        }

        /// Hopper.
        pub fn sm_90a() -> Target {
            Target("sm_90a")
        }

        /// The best target for a GPU, or `None` if it is older than all of them.
        pub fn for_compute_capability(major: u32, minor: u32) -> Option<Target> {
            match (major, minor) {
                (9, 0) => Some(Target::sm_90a()),
                (9.., _) => Some(Target::sm_90()),
                (8, 9..) => Some(Target::sm_89()),
                (8, _) => Some(Target::sm_80()),
                _ => None,
            }
        }

        /// The name that LLVM and ptxas give it.
        pub fn name(self) -> &'static str {
            self.0
        }
    }
}

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
    fn newer_gpus_run_what_the_newest_known_one_runs() {
        for (capability, name) in [
            ((8, 0), "sm_80"),
            ((8, 6), "sm_80"),
            ((8, 9), "sm_89"),
            ((9, 0), "sm_90a"),
            ((10, 0), "sm_90"),
            ((12, 1), "sm_90"),
        ] {
            assert_eq!(Target::for_compute_capability(capability.0, capability.1).map(Target::name), Some(name));
        }
        assert_eq!(Target::for_compute_capability(7, 5), None);
        assert_eq!(Device::cpu().target(), None);
    }
}
