//! The GPUs that code is generated for, and their limits.

use crate::occupancy::Multiprocessor;

/// A GPU architecture.
///
/// ```
/// use kernel_codegen::Target;
/// assert_eq!(Target::sm_90a().name(), "sm_90a");
/// assert_eq!(Target::for_compute_capability(8, 6), Some(Target::sm_80()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    arch: Arch,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Arch {
    Sm80,
    Sm89,
    Sm90,
    Sm90a,
}

impl Target {
    /// Ampere (A100), and every later GPU through the driver's compiler.
    pub fn sm_80() -> Target {
        Target { arch: Arch::Sm80 }
    }

    /// Ada (L4, L40, RTX 40 series) and later.
    pub fn sm_89() -> Target {
        Target { arch: Arch::Sm89 }
    }

    /// Hopper without its architecture-specific instructions, and later.
    pub fn sm_90() -> Target {
        Target { arch: Arch::Sm90 }
    }

    /// Hopper (H100, H200) with `wgmma` and `setmaxnreg`. Runs on compute capability 9.0 only.
    pub fn sm_90a() -> Target {
        Target { arch: Arch::Sm90a }
    }

    /// Every target.
    pub fn all() -> [Target; 4] {
        [Target::sm_80(), Target::sm_89(), Target::sm_90(), Target::sm_90a()]
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
        match self.arch {
            Arch::Sm80 => "sm_80",
            Arch::Sm89 => "sm_89",
            Arch::Sm90 => "sm_90",
            Arch::Sm90a => "sm_90a",
        }
    }

    /// LLVM's feature string: the lowest PTX version that has what is emitted, so that old drivers accept it.
    /// Predicates of asynchronous copies need 7.5, eviction priorities 7.4, sm_89 needs 7.8, sm_90 needs 7.8 and its
    /// barriers 8.0.
    ///
    /// On sm_89, 8-bit floats need 8.1, and products of them 8.4.
    pub(crate) fn features(self, has_f8: bool) -> &'static str {
        match self.arch {
            Arch::Sm89 if has_f8 => "+ptx84",
            Arch::Sm80 => "+ptx75",
            Arch::Sm89 => "+ptx78",
            Arch::Sm90 | Arch::Sm90a => "+ptx80",
        }
    }

    /// The most bytes of shared memory that one program may use.
    /// From the table "Technical Specifications per Compute Capability" of the CUDA programming guide.
    pub fn max_shared_bytes(self) -> u32 {
        match self.arch {
            Arch::Sm80 => 163 * 1024,
            Arch::Sm89 => 99 * 1024,
            Arch::Sm90 | Arch::Sm90a => 227 * 1024,
        }
    }

    /// What each of its multiprocessors has. GPUs of compute capability 8.6 and 8.7 run code for sm_80 and have less.
    pub fn multiprocessor(self) -> Multiprocessor {
        let (warps, programs, kilobytes) = match self.arch {
            Arch::Sm80 => (64, 32, 164),
            Arch::Sm89 => (48, 24, 100),
            Arch::Sm90 | Arch::Sm90a => (64, 32, 228),
        };
        Multiprocessor { registers: 64 * 1024, warps, programs, shared_bytes: kilobytes * 1024 }
    }

    /// Whether four warps multiply together, from shared memory (`wgmma`).
    pub(crate) fn has_wgmma(self) -> bool {
        self.arch == Arch::Sm90a
    }

    /// Whether `mma.sync` takes 8-bit floats. Hopper does too, but no faster than f16, and with a newer PTX.
    pub(crate) fn has_f8_mma(self) -> bool {
        self.arch == Arch::Sm89
    }

    /// Whether there are conversions of 8-bit floats.
    pub(crate) fn has_f8_conversions(self) -> bool {
        self.arch >= Arch::Sm89
    }

    /// Whether warps store matrices to shared memory (`stmatrix`).
    pub(crate) fn has_stmatrix(self) -> bool {
        self.arch >= Arch::Sm90
    }

    /// Whether there are accesses to shared memory beside those of the threads.
    pub(crate) fn has_async_proxy(self) -> bool {
        self.arch >= Arch::Sm90
    }

    /// Whether `atom.add` takes bf16 (PTX: sm_90 and later).
    pub(crate) fn has_bf16_atomics(self) -> bool {
        self.arch >= Arch::Sm90
    }
}
