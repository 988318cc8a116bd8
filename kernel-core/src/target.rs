//! The GPUs that code is generated for, as a table of what each has.
//!
//! Passes ask for what they need (`target.has_wgmma()`) and never for an architecture, so a new one is a row. Rows are in no
//! order: a later architecture may lack what an earlier one has, as GPUs after Hopper lack `wgmma`.
//!
//! Below the table stand the numbers that are the same for all of them.

/// Threads of a warp.
pub use crate::layout::WARP_SIZE;

/// The most warps of a program: 1024 threads.
pub const MAX_WARPS: u32 = 32;

/// Warps of a warp group: what multiplies by `wgmma`, and what registers are dealt to.
pub const GROUP_WARPS: u32 = 4;

/// The most elements of one tile per thread. A thread has 255 registers; a tile of several times that can still be compiled,
/// because not all of it need be held at once, but beyond this LLVM takes minutes.
pub const MAX_PER_THREAD: i64 = 1024;

/// Bytes of a phase barrier in shared memory.
pub const BARRIER_BYTES: u32 = 8;

/// Swizzled tiles and their slots begin at multiples of this many bytes in shared memory: the period of the widest swizzle,
/// which the hardware derives from the address.
pub const SWIZZLE_ALIGNMENT: u32 = 1024;

/// A GPU architecture.
///
/// ```
/// use kernel_core::target::Target;
/// assert_eq!(Target::sm_90a().name(), "sm_90a");
/// assert_eq!(Target::for_compute_capability(8, 6), Some(Target::sm_80()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target(&'static Row);

/// What an architecture has. Sizes are from the table "Technical Specifications per Compute Capability" of the CUDA
/// programming guide.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Row {
    name: &'static str,
    runs_on: RunsOn,
    ptx: PtxVersions,
    max_shared_bytes: u32,
    multiprocessor: Multiprocessor,
    /// The instructions that multiply matrices; `fma` is everywhere.
    products: &'static [Product],
    features: &'static [Feature],
}

/// The GPUs that run what is compiled for a target, by compute capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RunsOn {
    /// This one and every later one.
    From(u32, u32),
    /// This one, as its own instructions are used.
    Only(u32, u32),
}

/// PTX versions (84 is 8.4): the lowest that have what is emitted, so that old drivers accept it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PtxVersions {
    /// For kernels without 8-bit floats.
    pub usual: u32,
    /// For kernels with 8-bit floats.
    pub f8: u32,
    /// For kernels that add vectors to memory, where the target does.
    pub vector_atomics: u32,
}

/// What a multiprocessor has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Multiprocessor {
    /// Registers of 32 bits.
    pub registers: u32,
    /// Warps that it holds.
    pub warps: u32,
    /// Programs that it holds.
    pub programs: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
}

/// An instruction that multiplies matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Product {
    /// `mma.sync` of a warp, from registers.
    Mma,
    /// The same of 8-bit floats, where that is faster than widening them.
    MmaF8,
    /// `wgmma` of four warps, from shared memory.
    Wgmma,
}

/// What one target has and another lacks, besides products. A method of [`Target`] asks for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Feature {
    AsyncCopies,
    TensorCopies,
    AsyncProxy,
    Stmatrix,
    F8Conversions,
    Bf16Atomics,
    VectorAtomics,
    DependentLaunches,
}

const A100: Multiprocessor = Multiprocessor { registers: 64 * 1024, warps: 64, programs: 32, shared_bytes: 164 * 1024 };
const ADA: Multiprocessor = Multiprocessor { registers: 64 * 1024, warps: 48, programs: 24, shared_bytes: 100 * 1024 };
const HOPPER: Multiprocessor =
    Multiprocessor { registers: 64 * 1024, warps: 64, programs: 32, shared_bytes: 228 * 1024 };

/// What Hopper and later have.
const SINCE_HOPPER: &[Feature] = &[
    Feature::AsyncCopies,
    Feature::TensorCopies,
    Feature::AsyncProxy,
    Feature::Stmatrix,
    Feature::F8Conversions,
    Feature::Bf16Atomics,
    Feature::VectorAtomics,
    Feature::DependentLaunches,
];

/// Predicates of asynchronous copies need PTX 7.5, eviction priorities 7.4, sm_89 needs 7.8, sm_90 needs 7.8 and its barriers
/// 8.0, and its additions of vectors to memory 8.1. On sm_89, 8-bit floats need 8.1, and products of them 8.4.
///
/// GPUs of compute capability 8.6 and 8.7 run code for sm_80 and have less shared memory. Hopper's `mma.sync` takes 8-bit
/// floats too, but no faster than f16, and with a newer PTX.
static TABLE: [Row; 4] = [
    Row {
        name: "sm_80",
        runs_on: RunsOn::From(8, 0),
        ptx: PtxVersions { usual: 75, f8: 75, vector_atomics: 75 },
        max_shared_bytes: 163 * 1024,
        multiprocessor: A100,
        products: &[Product::Mma],
        features: &[Feature::AsyncCopies],
    },
    Row {
        name: "sm_89",
        runs_on: RunsOn::From(8, 9),
        ptx: PtxVersions { usual: 78, f8: 84, vector_atomics: 78 },
        max_shared_bytes: 99 * 1024,
        multiprocessor: ADA,
        products: &[Product::Mma, Product::MmaF8],
        features: &[Feature::AsyncCopies, Feature::F8Conversions],
    },
    Row {
        name: "sm_90",
        runs_on: RunsOn::From(9, 0),
        ptx: PtxVersions { usual: 80, f8: 80, vector_atomics: 81 },
        max_shared_bytes: 227 * 1024,
        multiprocessor: HOPPER,
        products: &[Product::Mma],
        features: SINCE_HOPPER,
    },
    Row {
        name: "sm_90a",
        runs_on: RunsOn::Only(9, 0),
        ptx: PtxVersions { usual: 80, f8: 80, vector_atomics: 81 },
        max_shared_bytes: 227 * 1024,
        multiprocessor: HOPPER,
        products: &[Product::Mma, Product::Wgmma],
        features: SINCE_HOPPER,
    },
];

impl RunsOn {
    /// How well a target suits a GPU: the nearest architecture below it, and rather its own instructions; `None` if the GPU
    /// does not run it.
    fn suits(self, gpu: (u32, u32)) -> Option<(u32, u32, bool)> {
        match self {
            RunsOn::From(major, minor) if gpu >= (major, minor) => Some((major, minor, false)),
            RunsOn::Only(major, minor) if gpu == (major, minor) => Some((major, minor, true)),
            RunsOn::From(..) | RunsOn::Only(..) => None,
        }
    }
}

impl Target {
    /// Ampere (A100), and every later GPU through the driver's compiler.
    pub const fn sm_80() -> Target {
        Target(&TABLE[0])
    }

    /// Ada (L4, L40, RTX 40 series) and later.
    pub const fn sm_89() -> Target {
        Target(&TABLE[1])
    }

    /// Hopper without its architecture-specific instructions, and later.
    pub const fn sm_90() -> Target {
        Target(&TABLE[2])
    }

    /// Hopper (H100, H200) with `wgmma` and `setmaxnreg`. Runs on compute capability 9.0 only.
    pub const fn sm_90a() -> Target {
        Target(&TABLE[3])
    }

    /// Every target.
    pub fn all() -> [Target; TABLE.len()] {
        TABLE.each_ref().map(Target)
    }

    /// The target of that name.
    pub fn named(name: &str) -> Option<Target> {
        TABLE.iter().find(|row| row.name == name).map(Target)
    }

    /// The best target for a GPU, or `None` if it is older than all of them.
    pub fn for_compute_capability(major: u32, minor: u32) -> Option<Target> {
        let suits = TABLE.iter().filter_map(|row| Some((row.runs_on.suits((major, minor))?, row)));
        suits.max_by_key(|&(how_well, _)| how_well).map(|(_, row)| Target(row))
    }

    /// The name that LLVM and ptxas give it.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The compute capability of the first GPU that runs it, as `capability()` gives it in kernels: 90 for 9.0.
    ///
    /// ```
    /// use kernel_core::target::Target;
    /// assert_eq!(Target::sm_90a().capability(), 90);
    /// assert_eq!(Target::for_compute_capability(8, 6).map(Target::capability), Some(80));
    /// ```
    pub fn capability(self) -> u32 {
        match self.0.runs_on {
            RunsOn::From(major, minor) | RunsOn::Only(major, minor) => 10 * major + minor,
        }
    }

    /// The PTX versions that its code needs.
    pub fn ptx(self) -> PtxVersions {
        self.0.ptx
    }

    /// The most bytes of shared memory that one program may use.
    pub fn max_shared_bytes(self) -> u32 {
        self.0.max_shared_bytes
    }

    /// What each of its multiprocessors has.
    pub fn multiprocessor(self) -> Multiprocessor {
        self.0.multiprocessor
    }

    fn multiplies_by(self, product: Product) -> bool {
        self.0.products.contains(&product)
    }

    fn has(self, feature: Feature) -> bool {
        self.0.features.contains(&feature)
    }

    /// Whether a warp multiplies together, from registers (`mma.sync`).
    pub fn has_mma(self) -> bool {
        self.multiplies_by(Product::Mma)
    }

    /// Whether four warps multiply together, from shared memory (`wgmma`).
    pub fn has_wgmma(self) -> bool {
        self.multiplies_by(Product::Wgmma)
    }

    /// Whether `mma.sync` takes 8-bit floats, faster than f16.
    pub fn has_f8_mma(self) -> bool {
        self.multiplies_by(Product::MmaF8)
    }

    /// Whether a thread can start copies from global to shared memory (`cp.async`).
    pub fn has_async_copies(self) -> bool {
        self.has(Feature::AsyncCopies)
    }

    /// Whether the Tensor Memory Accelerator copies blocks of tensors (`cp.async.bulk.tensor`).
    pub fn has_tensor_copies(self) -> bool {
        self.has(Feature::TensorCopies)
    }

    /// Whether there are accesses to shared memory beside those of the threads, which fences order
    /// (`fence.proxy.async`).
    pub fn has_async_proxy(self) -> bool {
        self.has(Feature::AsyncProxy)
    }

    /// Whether warps store matrices to shared memory (`stmatrix`).
    pub fn has_stmatrix(self) -> bool {
        self.has(Feature::Stmatrix)
    }

    /// Whether there are conversions of 8-bit floats.
    pub fn has_f8_conversions(self) -> bool {
        self.has(Feature::F8Conversions)
    }

    /// Whether a launch may begin before the one before it has ended (`griddepcontrol`).
    pub fn has_dependent_launches(self) -> bool {
        self.has(Feature::DependentLaunches)
    }

    /// Whether `atom.add` takes bf16 (PTX: sm_90 and later).
    pub fn has_bf16_atomics(self) -> bool {
        self.has(Feature::Bf16Atomics)
    }

    /// Whether a thread adds up to 16 bytes of neighbouring floats to memory at once (`red.add.v4.f32`).
    pub fn has_vector_atomics(self) -> bool {
        self.has(Feature::VectorAtomics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for target in Target::all() {
            assert_eq!(Target::named(target.name()), Some(target));
        }
        let functions = [Target::sm_80(), Target::sm_89(), Target::sm_90(), Target::sm_90a()];
        assert_eq!(functions.map(Target::name), ["sm_80", "sm_89", "sm_90", "sm_90a"]);
        assert_eq!(functions, Target::all());
        assert_eq!(Target::named("sm_70"), None);
    }

    #[test]
    fn every_gpu_runs_the_nearest_target_below_it() {
        for (capability, name) in [
            ((8, 0), "sm_80"),
            ((8, 6), "sm_80"),
            ((8, 7), "sm_80"),
            ((8, 9), "sm_89"),
            ((9, 0), "sm_90a"),
            ((9, 1), "sm_90"),
            ((10, 0), "sm_90"),
            ((12, 1), "sm_90"),
        ] {
            assert_eq!(Target::for_compute_capability(capability.0, capability.1).map(Target::name), Some(name));
        }
        assert_eq!(Target::for_compute_capability(7, 5), None);
    }

    #[test]
    fn a_program_fits_a_multiprocessor() {
        for target in Target::all() {
            let has = target.multiprocessor();
            assert!(target.max_shared_bytes() < has.shared_bytes && MAX_WARPS <= has.warps, "{target:?}");
            // Tensor copies are accesses beside those of the threads.
            assert!(!target.has_tensor_copies() || target.has_async_proxy(), "{target:?}");
        }
    }
}
