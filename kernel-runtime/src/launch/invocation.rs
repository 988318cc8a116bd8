//! A call without its types: everything that a launch does before it comes to the backend.

use super::args::Arg;
use super::compiled::CompiledKernel;
use super::kernel::{Kernel, user_params};
use super::spec::{ParamSpec, ParamSpecs, Spec, Tuning};
use super::target::Target;
use super::{backend, cpu, grid};
use crate::device::Device;
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use crate::stream::Stream;
use kernel_core::ir::Safety;
use smallvec::SmallVec;

/// Arguments of most kernels, without an allocation.
pub(super) type Args<'a> = SmallVec<[Arg<'a>; 12]>;

/// A kernel, its arguments and options. Nothing of it is checked yet.
pub(super) struct Invocation<'a> {
    pub(super) kernel: &'static Kernel,
    pub(super) dtypes: SmallVec<[ElementType; 4]>,
    pub(super) constants: SmallVec<[i64; 8]>,
    pub(super) args: Args<'a>,
    pub(super) tuning: Tuning,
    pub(super) stream: Option<&'a Stream>,
    safety: Safety,
}

/// Where a launch runs, after all checks that need no code.
pub(super) struct Place<'l> {
    pub(super) device: &'l Device,
    pub(super) stream: &'l Stream,
    pub(super) grid: [u32; 3],
}

impl<'a> Invocation<'a> {
    #[inline]
    pub(super) fn new(kernel: &'static Kernel, safety: Safety) -> Self {
        Invocation {
            kernel,
            dtypes: SmallVec::new(),
            constants: SmallVec::new(),
            args: SmallVec::new(),
            tuning: Tuning::default(),
            stream: None,
            safety,
        }
    }

    /// Starts the kernel on `device`.
    pub(super) fn launch(mut self, grid: [i64; 3], device: &Device) -> Result<()> {
        let stream = self.stream.unwrap_or_else(|| device.default_stream());
        self.check_devices(stream, device)?;
        let place = Place { device, stream, grid: grid::check(grid)? };
        let params: ParamSpecs = self.args.iter().map(ParamSpec::of).collect();
        let spec = Spec {
            dtypes: &self.dtypes,
            constants: &self.constants,
            params: &params,
            tuning: self.tuning()?,
            safety: self.safety,
        };
        if place.grid.contains(&0) {
            return Ok(());
        }
        if device.is_cuda() {
            backend::launch(self.kernel, &spec, &mut self.args, &place)
        } else {
            cpu::launch(self.kernel, &spec, &mut self.args, &place)
        }
    }

    /// The options of the launch, then those of the kernel's attribute.
    #[inline]
    fn tuning(&self) -> Result<Tuning> {
        self.tuning.or(self.kernel.source().tuning()).check()
    }

    /// Buffers and the stream live where the kernel runs.
    fn check_devices(&self, stream: &Stream, device: &Device) -> Result<()> {
        if self.stream.is_some() && stream.check_context(device.context()).is_err() {
            return Err(Error::WrongDevice {
                argument: "".into(),
                actual: stream.context().label().into(),
                expected: device.to_string().into(),
            });
        }
        for (index, buffer) in self.args.iter().enumerate().filter_map(|(index, arg)| Some((index, arg.buffer()?))) {
            if let Err(error) = buffer.check_device(stream) {
                return Err(self.name_argument(error, index));
            }
        }
        Ok(())
    }

    /// Puts the name of the parameter into an error about its argument.
    fn name_argument(&self, error: Error, index: usize) -> Error {
        let func = self.kernel.generic().map(kernel_core::ir::Generic::func);
        let name = func.ok().and_then(|func| user_params(func).nth(index)).map(|param| param.name.clone());
        match (error, name) {
            (Error::WrongDevice { actual, expected, .. }, Some(name)) => {
                Error::WrongDevice { argument: name.into(), actual, expected }
            }
            (error, _) => error,
        }
    }

    pub(super) fn compile(&self, target: Target) -> Result<CompiledKernel> {
        self.with_spec(|spec| backend::compile(self.kernel, spec, target))
    }

    pub(super) fn compile_on(&self, device: &Device) -> Result<CompiledKernel> {
        self.with_spec(|spec| backend::compile_on(self.kernel, spec, device))
    }

    fn with_spec<R>(&self, then: impl FnOnce(&Spec<'_>) -> Result<R>) -> Result<R> {
        let params: ParamSpecs = self.args.iter().map(ParamSpec::of).collect();
        then(&Spec {
            dtypes: &self.dtypes,
            constants: &self.constants,
            params: &params,
            tuning: self.tuning()?,
            safety: self.safety,
        })
    }
}
