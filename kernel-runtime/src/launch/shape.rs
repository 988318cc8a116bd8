//! What the code of a launch is made from, without its arguments, so that other threads can look at it and compile it.

use super::args::ArgKind;
use super::bind::bind;
use super::definition::Definition;
use super::gpu;
use super::gpu::machine::assembler::Assembler;
use super::grid;
use super::invocation::Invocation;
use super::kernel::Kernel;
use super::loads::Loads;
use super::spec::{ParamSpecs, Spec, Tuning};
use super::target::Target;
use super::tile_size::LargestTile;
use crate::dtype::ElementType;
use crate::error::Result;
use kernel_core::backend::Timings;
use kernel_core::backend::nvidia::LaunchShape;
use kernel_core::ir::Safety;
use smallvec::SmallVec;
use std::hash::{DefaultHasher, Hash, Hasher};

pub use kernel_core::backend::nvidia::{Placement, Work};

/// A launch without its arguments: what is known of them, constexprs, options, the grid.
#[derive(Clone, Debug)]
pub struct CallShape {
    kernel: &'static Kernel,
    dtypes: SmallVec<[ElementType; 4]>,
    constants: SmallVec<[i64; 8]>,
    params: ParamSpecs,
    tuning: Tuning,
    safety: Safety,
    launch: LaunchShape,
}

/// What is known of a launch before it is compiled.
#[derive(Clone, Debug)]
pub struct Preview {
    /// What it takes of a GPU; `None` on the CPU.
    pub placement: Option<Placement>,
    /// Equal for launches that run the same code with the same grid and numbers.
    pub digest: u64,
    loads: Loads,
}

impl Preview {
    /// Whether the kernel loads from the argument with this number.
    pub(super) fn loads_from(&self, arg: usize) -> bool {
        self.loads.loads_from(arg)
    }

    /// That of launches one behind the other: times add up, and of what each takes the most counts. `None` of no launch.
    pub(crate) fn together(all: Vec<Preview>) -> Option<Preview> {
        let mut all = all.into_iter();
        let mut whole = all.next()?;
        for next in all {
            let mut hasher = DefaultHasher::new();
            (whole.digest, next.digest).hash(&mut hasher);
            whole.digest = hasher.finish();
            if let (Some(sum), Some(next)) = (&mut whole.placement, next.placement) {
                let cycles = sum.cycles + next.cycles;
                let crowded = |placement: &Placement| {
                    (placement.programs == 0, f64::from(placement.registers) / f64::from(placement.register_limit))
                };
                if crowded(&next) > crowded(sum) {
                    *sum = next;
                }
                sum.cycles = cycles;
            }
        }
        Some(whole)
    }
}

#[cfg(test)]
impl Preview {
    /// One of which the estimated time alone is known.
    pub(crate) fn of_cycles(cycles: f64) -> Preview {
        let placement = Placement {
            num_warps: 4,
            shared_bytes: 0,
            registers: 1,
            register_limit: 255,
            programs: 1,
            work: Work::default(),
            cycles,
            digest: 0,
        };
        Preview { placement: Some(placement), digest: 0, loads: Loads::from_bits(0) }
    }
}

impl CallShape {
    /// The shape of a call.
    pub(super) fn of(call: &Invocation<'_>, programs: [i64; 3]) -> Result<CallShape> {
        let tuning = call.tuning()?;
        let written = |kind: ArgKind| matches!(kind, ArgKind::Scalar | ArgKind::Const);
        let scalar = |arg: &super::args::Arg<'_>| {
            let value = arg.as_value().filter(|_| written(arg.kind()))?;
            let literal = kernel_core::num::from_bits(value.bits, value.element);
            if let kernel_core::ir::Literal::Int(value) = literal { Some(value) } else { None }
        };
        let buffers = || call.args.iter().map(super::args::Arg::as_buffer);
        let bytes = call.args.iter().map(|arg| arg.bytes() as u64).sum();
        let launch = LaunchShape {
            scalars: call.args.iter().map(scalar).collect(),
            lengths: buffers().map(|buffer| buffer.map(|(_, len)| len as u64)).collect(),
            bytes,
            grid: grid::check(programs)?,
            processors: 1,
        };
        Ok(call.with_spec(tuning, |spec| CallShape {
            kernel: call.kernel,
            dtypes: spec.dtypes.into(),
            constants: spec.constants.into(),
            params: spec.params.iter().copied().collect(),
            tuning,
            safety: spec.safety,
            launch,
        }))
    }

    /// On a GPU with so many multiprocessors.
    pub fn on_processors(mut self, processors: usize) -> Self {
        self.launch.processors = u32::try_from(processors).unwrap_or(u32::MAX);
        self
    }

    /// The programs along each axis.
    pub fn grid(&self) -> [u32; 3] {
        self.launch.grid
    }

    /// Equal for launches with the same grid and numbers, where `code` is equal for the same code.
    pub(crate) fn digest(&self, code: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (code, self.launch.grid, &self.launch.scalars).hash(&mut hasher);
        hasher.finish()
    }

    /// The kernel's tile IR.
    pub(crate) fn ir(&self) -> &'static str {
        self.kernel.source().ir
    }

    /// The kernel's name.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// The dtypes that the call gives, as `f16` or `f16, f32`.
    pub fn dtypes(&self) -> String {
        let names: Vec<String> = self.dtypes.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    fn spec(&self) -> Spec<'_> {
        let CallShape { dtypes, constants, params, tuning, safety, .. } = self;
        Spec { dtypes, constants, params, tuning: *tuning, safety: *safety }
    }

    /// Binds the kernel, and places it for a target, or for none to run on the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`](crate::Error::Compile) for assertions at compile time and what cannot be compiled,
    /// [`Error::Resources`](crate::Error::Resources), [`Error::InvalidSetting`](crate::Error::InvalidSetting) for options.
    pub fn preview(&self, target: Option<Target>) -> Result<Preview> {
        let Some(target) = target else { return self.preview_on_cpu() };
        let (placement, loads) = gpu::estimate(self.kernel, &self.spec(), target, &self.launch)?;
        let digest = self.digest(placement.digest);
        Ok(Preview { placement: Some(placement), digest, loads })
    }

    /// The interpreter runs the bound kernel, and knows no warps but those that the kernel asks for.
    fn preview_on_cpu(&self) -> Result<Preview> {
        let definition: &Definition = self.kernel.definition();
        let spec = self.spec();
        let asked = spec.tuning.num_warps.filter(|_| definition.asks_for_warps());
        let bound = bind(
            definition,
            &Spec { tuning: Tuning { num_warps: asked, ..Tuning::default() }, ..spec },
            None,
            &mut Timings::default(),
        )?;
        let values = || super::bind::shown_values(definition, &spec);
        LargestTile::of(&bound).check(definition, &bound.func().files, spec.tuning.num_warps, values)?;
        let mut hasher = DefaultHasher::new();
        kernel_core::text::print(bound.func()).hash(&mut hasher);
        let digest = self.digest(hasher.finish());
        Ok(Preview { placement: None, digest, loads: Loads::of(bound.func()) })
    }

    /// Compiles what a launch would, which it then finds compiled, as far as that can be done on any thread. Nothing on the
    /// CPU. [`AheadCompiler`](super::AheadCompiler) also does what the driver would.
    ///
    /// # Errors
    ///
    /// Those of a first launch.
    pub fn compile_ahead(&self, target: Option<Target>) -> Result<()> {
        self.assemble_ahead(target, None)
    }

    /// As [`CallShape::compile_ahead`], and what the driver would do when the code is loaded, where there is an assembler.
    pub(super) fn assemble_ahead(&self, target: Option<Target>, assembler: Option<&Assembler>) -> Result<()> {
        target.map_or(Ok(()), |target| gpu::compile_ahead(self.kernel, &self.spec(), target, assembler))
    }
}
