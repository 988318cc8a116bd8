//! A call without its types: everything that a launch does before it comes to the backend.

use super::args::Arg;
#[cfg(feature = "jit")]
use super::args::ArgKind;
use super::compiled::CompiledKernel;
use super::kernel::{Kernel, user_params};
#[cfg(feature = "jit")]
use super::spec::{Checking, KeyHead, Words};
use super::spec::{ParamSpec, ParamSpecs, Spec, Tuning};
use super::target::Target;
use super::{backend, cpu, grid};
use crate::device::Device;
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use crate::stream::Stream;
use kernel_core::ir::Safety;
use smallvec::SmallVec;
use std::cell::Cell;

/// A kernel, its arguments and options. Nothing of it is checked yet.
pub(super) struct Invocation<'a> {
    pub(super) kernel: &'static Kernel,
    pub(super) dtypes: SmallVec<[ElementType; 16]>,
    pub(super) constants: SmallVec<[i64; 8]>,
    pub(super) args: SmallVec<[Arg<'a>; 16]>,
    pub(super) tuning: Tuning,
    pub(super) stream: Option<&'a Stream>,
    pub(super) safety: Safety,
}

/// Where a launch runs, after all checks that need no code.
pub(super) struct Place<'l> {
    pub(super) device: &'l Device,
    pub(super) stream: &'l Stream,
    pub(super) grid: [u32; 3],
}

thread_local! {
    /// The memory of the thread's last launch, for its next one.
    static SPARE: Cell<Option<Box<Invocation<'static>>>> = const { Cell::new(None) };
}

impl<'a> Invocation<'a> {
    #[inline]
    pub(super) fn new(kernel: &'static Kernel, safety: Safety) -> Box<Self> {
        // While the thread is being torn down there is no spare one.
        match SPARE.try_with(Cell::take) {
            Ok(Some(mut spare)) => {
                spare.kernel = kernel;
                spare.safety = safety;
                // SAFETY: it was cleared before it was put aside.
                unsafe { spare.with_lifetime() }
            }
            Ok(None) | Err(_) => Self::allocate(kernel, safety),
        }
    }

    #[cold]
    fn allocate(kernel: &'static Kernel, safety: Safety) -> Box<Self> {
        Box::new(Invocation {
            kernel,
            dtypes: SmallVec::new(),
            constants: SmallVec::new(),
            args: SmallVec::new(),
            tuning: Tuning::default(),
            stream: None,
            safety,
        })
    }

    /// Keeps the memory for the thread's next call.
    #[inline]
    pub(super) fn recycle(mut self: Box<Self>) {
        self.dtypes.clear();
        self.constants.clear();
        self.args.clear();
        self.tuning = Tuning::default();
        self.stream = None;
        // SAFETY: it has just been cleared.
        let spare = unsafe { self.with_lifetime() };
        let _ = SPARE.try_with(|place| place.set(Some(spare)));
    }

    /// The same memory for references of another lifetime.
    ///
    /// # Safety
    ///
    /// There are no arguments and no stream.
    unsafe fn with_lifetime<'b>(self: Box<Self>) -> Box<Invocation<'b>> {
        // SAFETY: the types differ in a lifetime only, and the caller says that no reference of
        // that lifetime is left.
        unsafe { std::mem::transmute::<Box<Invocation<'a>>, Box<Invocation<'b>>>(self) }
    }

    /// Starts the kernel on `device`.
    pub(super) fn launch(mut self: Box<Self>, grid: [i64; 3], device: &Device) -> Result<()> {
        let result = self.start(grid, device);
        self.recycle();
        result
    }

    fn start(&mut self, grid: [i64; 3], device: &Device) -> Result<()> {
        let stream = self.stream.unwrap_or_else(|| device.default_stream());
        self.check_devices(stream, device)?;
        let place = Place { device, stream, grid: grid::check(grid)? };
        self.tuning = self.tuning.or(self.kernel.source().tuning());
        if !self.tuning.is_valid() {
            return Err(self.tuning.refusal());
        }
        if place.grid.contains(&0) {
            return Ok(());
        }
        if device.is_cuda() { backend::launch(self, &place) } else { cpu::launch(self, &place) }
    }

    /// The options of the launch, then those of the kernel's attribute.
    fn tuning(&self) -> Result<Tuning> {
        self.tuning.or(self.kernel.source().tuning()).check()
    }

    /// Buffers and the stream live where the kernel runs.
    #[inline]
    fn check_devices(&self, stream: &Stream, device: &Device) -> Result<()> {
        if self.stream.is_some() && stream.check_context(device.context()).is_err() {
            return Err(Error::WrongDevice {
                argument: "".into(),
                actual: stream.context().label().into(),
                expected: device.to_string().into(),
            });
        }
        for (index, arg) in self.args.iter().enumerate() {
            if let Err(error) = arg.check_device(stream) {
                return Err(self.name_argument(error, index));
            }
        }
        Ok(())
    }

    /// Puts the name of the parameter into an error about its argument.
    #[cold]
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
        let tuning = self.tuning()?;
        self.with_spec(tuning, |spec| backend::compile(self.kernel, spec, target))
    }

    pub(super) fn compile_on(&self, device: &Device) -> Result<CompiledKernel> {
        let tuning = self.tuning()?;
        self.with_spec(tuning, |spec| backend::compile_on(self.kernel, spec, device))
    }

    /// What the variant of the kernel for these arguments is made from.
    pub(super) fn with_spec<R>(&self, tuning: Tuning, then: impl FnOnce(&Spec<'_>) -> R) -> R {
        let params: ParamSpecs = self.args.iter().map(ParamSpec::of).collect();
        then(&Spec { dtypes: &self.dtypes, constants: &self.constants, params: &params, tuning, safety: self.safety })
    }

    /// The words of that variant's key in `place`. The launch has put its kernel's options into its
    /// own.
    #[cfg(feature = "jit")]
    #[inline]
    pub(super) fn key(&self, words: &mut Words, place: u64, checking: Checking) {
        let head = KeyHead { place, checking, tuning: self.tuning, safety: self.safety };
        let value = |arg: &Arg<'_>| (arg.kind() == ArgKind::Const).then(|| arg.bits());
        words.set(head, &self.dtypes, self.args.iter().map(|arg| (arg.unit(), value(arg))), &self.constants);
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Scalar;
    use super::super::kernel::KernelSource;
    use super::*;

    #[test]
    fn memory_is_used_again_and_holds_nothing_of_the_last_call() {
        let source =
            KernelSource { name: "k", module: "", file: "", ir: "", lines: &[], num_warps: None, num_stages: None };
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(source)));
        let mut first = Invocation::new(kernel, Safety::Unsafe);
        first.args.push(Arg::scalar(1i32.value()));
        first.constants.push(3);
        first.dtypes.push(ElementType::F32);
        first.tuning.num_warps = Some(4);
        let address = std::ptr::from_ref(&*first).addr();
        let launched = first.launch([0, 1, 1], &Device::cpu());
        assert_eq!(launched, Ok(()));
        let second = Invocation::new(kernel, Safety::Safe);
        assert_eq!(std::ptr::from_ref(&*second).addr(), address);
        assert!(second.args.is_empty() && second.constants.is_empty() && second.dtypes.is_empty());
        assert_eq!((second.tuning, second.safety), (Tuning::default(), Safety::Safe));
        let third = Invocation::new(kernel, Safety::Safe);
        assert_ne!(std::ptr::from_ref(&*third).addr(), address);
    }
}
