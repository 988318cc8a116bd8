//! Where calls go: the checks that need no code, then the interpreter or the driver.

use super::bind::bind;
use super::compiled::CompiledKernel;
use super::gpu::Shipped;
use super::invocation::{Dispatch, Invocation};
use super::made::{For, Outcome, Recipes};
use super::spec::Tuning;
use super::target::Target;
use super::{cpu, gpu, grid, noted};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::profile::observed::{Launched, around};
use crate::{settings, watchers};
use kernel_core::backend::Timings;

impl Invocation<'_> {
    /// Starts the kernel on `device`.
    pub(super) fn launch(mut self: Box<Self>, grid: [i64; 3], device: &Device) -> Result<()> {
        // Errors are long: where there is none, none is moved.
        match self.start(grid, device) {
            Ok(()) => {
                self.recycle();
                Ok(())
            }
            Err(error) => {
                self.recycle();
                Err(error)
            }
        }
    }

    #[inline(always)]
    pub(super) fn start(&mut self, grid: [i64; 3], device: &Device) -> Result<()> {
        if watchers::is_anybody_there() {
            return self.start_watched(grid, device);
        }
        self.start_unwatched(grid, device)
    }

    /// As `start`, where somebody looks on. What is noted instead of made is in no profile.
    #[cold]
    #[inline(never)]
    fn start_watched(&mut self, grid: [i64; 3], device: &Device) -> Result<()> {
        if noted::is_active() {
            return self.start_checked(grid::check(grid), device);
        }
        let (kernel, stream) = (self.kernel, self.stream.unwrap_or_else(|| device.default_stream()));
        let launched = Launched { kernel: kernel.name(), place: kernel.place(), grid };
        around(launched, stream, || self.start_unwatched(grid, device))
    }

    #[inline(always)]
    fn start_unwatched(&mut self, grid: [i64; 3], device: &Device) -> Result<()> {
        let stream = self.stream.unwrap_or_else(|| device.default_stream());
        let checked = grid::check(grid);
        if let Ok(grid) = checked
            && self.stream.is_none_or(|stream| stream.is_in(device.context()))
            && self.tuning.is_valid()
            && self.time_limit.is_none()
            && !grid.contains(&0)
            && device.is_cuda()
        {
            // It checks the buffers' devices, where it must look at them anyway.
            return gpu::launch(self, &Dispatch { device, stream, grid });
        }
        self.start_checked(checked, device)
    }

    /// As `start`, for calls that are refused, do nothing or are rare.
    #[inline(never)]
    fn start_checked(&mut self, grid: Result<[u32; 3]>, device: &Device) -> Result<()> {
        let stream = self.stream.unwrap_or_else(|| device.default_stream());
        if stream.check_context(device.context()).is_err() {
            return Err(Error::WrongDevice {
                argument: "".into(),
                actual: stream.context().label().into(),
                expected: device.to_string().into(),
            });
        }
        self.check_buffers(stream)?;
        let dispatch = Dispatch { device, stream, grid: grid? };
        self.tuning()?;
        self.check_time_limit(device)?;
        if dispatch.grid.contains(&0) {
            return Ok(());
        }
        if noted::is_active() {
            return noted::note(self, dispatch.grid.map(i64::from), device);
        }
        if device.is_cuda() { gpu::launch_cold(self, &dispatch) } else { cpu::launch(self, &dispatch) }
    }

    /// A limit of time is more than none, and something keeps it.
    fn check_time_limit(&self, device: &Device) -> Result<()> {
        match self.time_limit {
            Some(limit) if limit.is_zero() => Err(Error::InvalidSetting {
                name: "time_limit".into(),
                value: format!("{limit:?}").into(),
                expected: "a duration above 0; without `.time_limit(..)` there is no limit".into(),
            }),
            Some(_) if device.is_cuda() => Err(Error::Unsupported {
                what: format!("a limit of time for kernel `{}` on {device}", self.kernel.name()).into(),
                reason: format!(
                    "nothing can stop a kernel that runs on a GPU; leave out `.time_limit(..)` there, or set the \
                     variable {}, which limits launches on the CPU only",
                    settings::TIME_LIMIT_VARIABLE
                )
                .into(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Compiles what a launch with this grid runs.
    pub(super) fn compile(&self, target: Target, grid: Option<[i64; 3]>) -> Result<CompiledKernel> {
        let (tuning, grid) = (self.tuning_for(target)?, grid.map(grid::check).transpose()?);
        self.with_spec(tuning, |spec| gpu::compile_call(self, spec, target, grid))
    }

    /// What archives have for a launch with these arguments.
    pub(super) fn shipped(&self, target: Target) -> Result<Shipped> {
        let tuning = self.tuning_for(target)?;
        self.with_spec(tuning, |spec| gpu::shipped(self.kernel.definition(), spec, target))
    }

    /// The options of the variant that a launch with these arguments runs on such a GPU.
    fn tuning_for(&self, target: Target) -> Result<Tuning> {
        let (definition, mut tuning) = (self.kernel.definition(), self.tuning()?);
        loop {
            let bound = self.with_spec(tuning, |spec| bind(definition, spec, Some(target), &mut Timings::default()))?;
            let recipes = Recipes::of(bound.func());
            // Of tensors that no launch could make, the code is that of ordinary ones.
            match recipes.make(definition, &self.args, tuning.rough_tensors, For::Gpu) {
                Ok(Outcome::Rough(bits)) => tuning.rough_tensors |= bits,
                Ok(Outcome::Tensors(_)) | Err(_) => return Ok(tuning),
            }
        }
    }

    pub(super) fn compile_on(&self, device: &Device, grid: Option<[i64; 3]>) -> Result<CompiledKernel> {
        let tuning = device.target().map_or_else(|| self.tuning(), |target| self.tuning_for(target))?;
        let grid = grid.map(grid::check).transpose()?;
        self.with_spec(tuning, |spec| gpu::compile_on(self, spec, device, grid))
    }
}
