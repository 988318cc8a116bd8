//! Compiling without arguments: what `AddConsts { BLOCK: 1024 }.compile::<f32>(target)` does.

use super::bind::element_type;
use super::call::TakesConstants;
use super::compiled::CompiledKernel;
use super::definition::user_params;
use super::kernel::Kernel;
use super::scalar::{Scalar, ScalarValue};
use super::spec::{ParamSpec, ParamSpecs, Spec, Tuning, assumed_buffer, assumed_scalar, assumed_tensor};
use super::target::Target;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use kernel_core::ir::{Func, ParamKind, Passing};
use smallvec::SmallVec;

/// A kernel to be compiled without arguments. Buffers are taken to be aligned to 16 bytes, their
/// lengths and integer arguments to be multiples of 16, as they are in most launches.
#[must_use = "a request does nothing until `compile`"]
#[derive(Debug)]
pub struct CompileRequest {
    kernel: &'static Kernel,
    dtypes: SmallVec<[ElementType; 4]>,
    constants: SmallVec<[i64; 8]>,
    const_scalars: SmallVec<[ScalarValue; 4]>,
    /// Whether there are arguments for the parameters that may be without, in order.
    given: SmallVec<[bool; 4]>,
    tuning: Tuning,
}

impl TakesConstants for CompileRequest {
    fn constant(self, value: i64) -> Self {
        self.constant(value)
    }

    fn const_scalar(self, value: impl Scalar) -> Self {
        self.const_scalar(value)
    }
}

impl CompileRequest {
    /// A request for `kernel`.
    pub fn new(kernel: &'static Kernel) -> Self {
        CompileRequest {
            kernel,
            dtypes: SmallVec::new(),
            constants: SmallVec::new(),
            const_scalars: SmallVec::new(),
            given: SmallVec::new(),
            tuning: Tuning::default(),
        }
    }

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

    /// Warps of 32 threads per program: a power of two up to 32.
    pub fn num_warps(mut self, warps: u32) -> Self {
        self.tuning.num_warps = Some(warps);
        self
    }

    /// How many iterations of loops are in flight at once, where loops are pipelined.
    pub fn num_stages(mut self, stages: u32) -> Self {
        self.tuning.num_stages = Some(stages);
        self
    }

    /// The most registers of a thread, from 16 to 255.
    pub fn max_registers(mut self, registers: u32) -> Self {
        self.tuning.max_registers = Some(registers);
        self
    }

    /// As for a launch that may begin before those before it in the stream have ended.
    pub fn dependent_launch(mut self) -> Self {
        self.tuning.dependent_launch = true;
        self
    }

    /// Compiles for `target`, without a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`], [`Error::Resources`], [`Error::Llvm`], [`Error::InvalidSetting`] for
    /// options.
    pub fn compile(self, target: Target) -> Result<CompiledKernel> {
        let func = self.kernel.generic()?.func();
        let params = self.params(func)?;
        let spec = Spec {
            dtypes: &self.dtypes,
            constants: &self.constants,
            params: &params,
            tuning: self.tuning.or(self.kernel.source().tuning()).check()?,
            safety: func.safety,
        };
        super::gpu::compile(self.kernel.definition(), &spec, target)
    }

    /// What the parameters are assumed to be.
    fn params(&self, func: &Func) -> Result<ParamSpecs> {
        let (mut const_scalars, mut given) = (self.const_scalars.iter(), self.given.iter());
        let mut params = ParamSpecs::new();
        for param in user_params(func) {
            let element = |dt| element_type(dt, &self.dtypes);
            let is_given = param.passing == Passing::Always || given.next() != Some(&false);
            let assumed = match &param.kind {
                kind if !is_given => kind.dt().and_then(element).map(ParamSpec::Omitted),
                ParamKind::Ptr { dt, mutable } => element(*dt).map(|element| assumed_buffer(element, *mutable)),
                ParamKind::Desc { dt, block, mutable } => {
                    element(*dt).map(|element| assumed_tensor(element, *mutable, block.len()))
                }
                ParamKind::Scalar(dt) => element(*dt).map(assumed_scalar),
                ParamKind::ConstScalar(_) => const_scalars.next().copied().map(ParamSpec::Const),
                ParamKind::ReportSlot
                | ParamKind::Length(_)
                | ParamKind::DescShape { .. }
                | ParamKind::DescStride { .. } => None,
            };
            params.push(assumed.ok_or_else(|| Error::Unsupported {
                what: format!("this request for kernel `{}`", self.kernel.name()).into(),
                reason: format!("it lacks the dtype or the value of parameter `{}`", param.name).into(),
            })?);
        }
        Ok(params)
    }
}
