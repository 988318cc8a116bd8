//! Compiling without arguments: what `AddConsts { BLOCK: 1024 }.compile::<f32>(target)` does, and
//! `AddConsts { BLOCK: 1024 }.request::<f32>()` prepares.

use super::assumed::{Assumed, AssumedBuffer, AssumedScalar, AssumedTensor, Assumes};
use super::bind::element_type;
use super::call::TakesConstants;
use super::compiled::CompiledKernel;
use super::configured::LaunchOptions;
use super::definition::user_params;
use super::gpu::machine::ptxas::Ptxas;
use super::kernel::Kernel;
use super::scalar::{Scalar, ScalarValue};
use super::shape::Placement;
use super::spec::{ParamSpec, ParamSpecs, Spec, Tuning};
use super::target::Target;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use kernel_archive::Entry;
use kernel_core::backend::Checks;
use kernel_core::backend::nvidia::LaunchShape;
use kernel_core::ir::{Func, ParamKind, Passing};
use smallvec::SmallVec;

/// A kernel to be compiled without arguments. Without [`CompileRequest::assume`], buffers are taken to be aligned to 16
/// bytes, their lengths and integer arguments to be multiples of 16, as they are in most launches.
///
/// ```text
/// let request = AddConsts { BLOCK: 1024 }.request::<f32>().num_warps(8);
/// let kernel = request.assume(AddAssumed { n: AssumedScalar::Unknown, ..Default::default() }).compile(Target::sm_90a())?;
/// ```
#[must_use = "a request does nothing until `compile`"]
#[derive(Debug)]
pub struct CompileRequest<A = ()> {
    kernel: &'static Kernel,
    dtypes: SmallVec<[ElementType; 4]>,
    constants: SmallVec<[i64; 8]>,
    const_scalars: SmallVec<[ScalarValue; 4]>,
    /// Whether there are arguments for the parameters that may be without, in order.
    given: SmallVec<[bool; 4]>,
    tuning: Tuning,
    checks: Checks,
    assumed: A,
}

impl<A> TakesConstants for CompileRequest<A> {
    fn constant(self, value: i64) -> Self {
        self.constant(value)
    }

    fn const_scalar(self, value: impl Scalar) -> Self {
        self.const_scalar(value)
    }
}

impl<A: Assumes> CompileRequest<A> {
    /// A request for `kernel`.
    pub fn new(kernel: &'static Kernel) -> Self {
        CompileRequest {
            kernel,
            dtypes: SmallVec::new(),
            constants: SmallVec::new(),
            const_scalars: SmallVec::new(),
            given: SmallVec::new(),
            tuning: Tuning::default(),
            checks: Checks::AtLaunch,
            assumed: A::default(),
        }
    }

    /// What the code may know of the arguments.
    pub fn assume(mut self, assumed: A) -> Self {
        self.assumed = assumed;
        self
    }

    /// The variant that checks every access itself, which launches run that do not meet the launch conditions, instead of
    /// the fast one.
    pub fn checked(mut self) -> Self {
        self.checks = Checks::EveryAccess;
        self
    }
}

impl<A> CompileRequest<A> {
    /// The next dtype parameter.
    pub fn dtype<T: DType>(mut self) -> Self {
        self.dtypes.push(T::ELEMENT);
        self
    }

    /// The next constexpr; `false` is 0 and `true` is 1.
    pub fn constant(mut self, value: i64) -> Self {
        self.constants.push(value);
        self
    }

    /// The value of the next `Const<T>` parameter.
    pub fn const_scalar(mut self, value: impl Scalar) -> Self {
        self.const_scalars.push(value.value());
        self
    }

    /// Whether there is an argument for the next parameter that may be without.
    pub fn given(mut self, given: bool) -> Self {
        self.given.push(given);
        self
    }

    /// Warps of 32 threads per program: a power of two up to 32. Without it as for a launch: the kernel's attribute says,
    /// or the size of the largest tile: 4 warps up to 1024 elements, 8 below 8192, 16 up to 2^19, else 32; a kernel that
    /// asks for `num_warps()` has 4.
    pub fn num_warps(mut self, warps: u32) -> Self {
        self.tuning.num_warps = Some(warps);
        self
    }

    /// How many iterations of loops are in flight at once, where loops are pipelined: from 1 to 16, without it 3.
    pub fn num_stages(mut self, stages: u32) -> Self {
        self.tuning.num_stages = Some(stages);
        self
    }

    /// The most registers of a thread, from 16 to 255.
    pub fn max_registers(mut self, registers: u32) -> Self {
        self.tuning.max_registers = Some(registers);
        self
    }

    /// Several options at once; those that are `None` stay as they are.
    pub fn options(mut self, options: LaunchOptions) -> Self {
        self.tuning = options.over(self.tuning);
        self
    }

    /// As [`Call::line_info`](super::call::Call::line_info).
    pub fn line_info(mut self, wanted: bool) -> Self {
        self.tuning.line_info = Some(wanted);
        self
    }

    /// As for a launch that may begin before those before it in the stream have ended.
    pub fn dependent_launch(mut self) -> Self {
        self.tuning.dependent_launch = true;
        self
    }
}

impl<A: Assumes> CompileRequest<A> {
    /// Compiles for `target`, without a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`], [`Error::Resources`], [`Error::Llvm`], [`Error::InvalidSetting`] for
    /// options.
    pub fn compile(self, target: Target) -> Result<CompiledKernel> {
        self.with_spec(|spec| super::gpu::compile(self.kernel.definition(), spec, target, self.checks))
    }

    /// Compiles for an archive: the fast variant, and if launches must meet conditions for it, the one that checks every
    /// access itself.
    pub(crate) fn entries(&self, target: Target, ptxas: Option<&Ptxas>) -> Result<Vec<Entry>> {
        let kernel = self.kernel.definition();
        self.with_spec(|spec| super::gpu::stored::compile_entries(kernel, spec, target, self.checks, ptxas))
    }

    fn with_spec<R>(&self, then: impl FnOnce(&Spec<'_>) -> Result<R>) -> Result<R> {
        let func = self.kernel.generic()?.func();
        let params = self.params(func)?;
        then(&Spec {
            dtypes: &self.dtypes,
            constants: &self.constants,
            params: &params,
            tuning: self.kernel.definition().tuning(self.tuning)?,
            safety: func.safety,
        })
    }

    /// Binds and places the kernel, without generating code: what tables of configurations are checked by. Costs are those
    /// of a launch of one program whose arguments are not known.
    ///
    /// # Errors
    ///
    /// As for [`CompileRequest::compile`], without those of LLVM.
    pub fn place(self, target: Target) -> Result<Placement> {
        let func = self.kernel.generic()?.func();
        let params = self.params(func)?;
        let spec = Spec {
            dtypes: &self.dtypes,
            constants: &self.constants,
            params: &params,
            tuning: self.kernel.definition().tuning(self.tuning)?,
            safety: func.safety,
        };
        let launch = LaunchShape { grid: [1; 3], processors: 1, ..LaunchShape::default() };
        super::gpu::estimate(self.kernel, &spec, target, &launch).map(|(placement, _)| placement)
    }

    /// What the parameters are assumed to be.
    fn params(&self, func: &Func) -> Result<ParamSpecs> {
        let (mut const_scalars, mut given) = (self.const_scalars.iter(), self.given.iter());
        let mut assumed = self.assumed.of_params().into_iter();
        let mut params = ParamSpecs::new();
        for param in user_params(func) {
            let element = |dt| element_type(dt, &self.dtypes);
            let is_given = param.passing == Passing::Always || given.next() != Some(&false);
            // Requests without a struct assume what is usual.
            let said = if matches!(param.kind, ParamKind::ConstScalar(_)) { None } else { assumed.next() };
            let known = match &param.kind {
                kind if !is_given => kind.dt().and_then(element).map(ParamSpec::Omitted),
                ParamKind::Ptr { dt, mutable } => match said.unwrap_or(AssumedBuffer::default().into()) {
                    Assumed::OfBuffer(buffer) => element(*dt).map(|element| buffer.spec(element, *mutable)),
                    Assumed::OfScalar(_) | Assumed::OfTensor(_) => None,
                },
                ParamKind::Desc { dt, block, mutable } => match said.unwrap_or(AssumedTensor::default().into()) {
                    Assumed::OfTensor(tensor) => {
                        element(*dt).map(|element| tensor.spec(element, *mutable, block.len()))
                    }
                    Assumed::OfScalar(_) | Assumed::OfBuffer(_) => None,
                },
                ParamKind::Scalar(dt) => match said.unwrap_or(AssumedScalar::default().into()) {
                    Assumed::OfScalar(scalar) => element(*dt).map(|element| scalar.spec(element)),
                    Assumed::OfBuffer(_) | Assumed::OfTensor(_) => None,
                },
                ParamKind::ConstScalar(_) => const_scalars.next().copied().map(ParamSpec::Const),
                ParamKind::ReportSlot
                | ParamKind::Length(_)
                | ParamKind::DescShape { .. }
                | ParamKind::DescStride { .. } => None,
            };
            params.push(known.ok_or_else(|| {
                Error::Unsupported {
                    what: format!("this request for kernel `{}`", self.kernel.name()).into(),
                    reason: format!(
                        "it lacks the dtype or the value of parameter `{}`, or assumes another kind",
                        param.name
                    )
                    .into(),
                }
            })?);
        }
        Ok(params)
    }
}
