//! A call without its types: everything that a launch does before it comes to the backend.

use super::args::Arg;
use super::definition::user_params;
use super::kernel::Kernel;
use super::key::{Digest, KeyHead, Words};
use super::list::List;
use super::spec::{ParamSpecs, Spec, Tuning};
use crate::device::Device;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use crate::stream::Stream;
use kernel_core::backend::Checks;
use kernel_core::ir::Safety;
use std::cell::Cell;
use std::time::Duration;

/// A kernel, its arguments and options. Nothing of it is checked yet.
pub(super) struct Invocation<'a> {
    pub(super) kernel: &'static Kernel,
    pub(super) stream: Option<&'a Stream>,
    /// Of dtypes, constants and arguments, in the order in which they came.
    digest: Digest,
    /// What the call says. The kernel's own options are those of the variant, see [`Invocation::tuning`].
    pub(super) tuning: Tuning,
    /// How long the launch may take.
    pub(super) time_limit: Option<Duration>,
    pub(super) safety: Safety,
    dtypes: List<ElementType, 16>,
    constants: List<i64, 8>,
    pub(super) args: List<Arg<'a>, 16>,
}

/// Where a launch runs, after all checks that need no code.
pub(super) struct Dispatch<'l> {
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
            stream: None,
            digest: Digest::default(),
            tuning: Tuning::default(),
            time_limit: None,
            safety,
            dtypes: List::new(),
            constants: List::new(),
            args: List::new(),
        })
    }

    /// The next dtype parameter.
    #[inline(always)]
    pub(super) fn add_dtype(&mut self, element: ElementType) {
        self.digest = self.digest.with(element as u64);
        self.dtypes.push(element);
    }

    /// The next constexpr.
    #[inline(always)]
    pub(super) fn add_constant(&mut self, value: i64) {
        self.digest = self.digest.with(value as u64);
        self.constants.push(value);
    }

    /// Other values for the first constexprs. Those behind them are constants of the user's crate.
    #[inline]
    pub(super) fn replace_constants(&mut self, values: &[i64]) {
        for (place, &value) in self.constants.iter_mut().zip(values) {
            *place = value;
        }
        // Where caches look depends on the order in which parts came, so that a call like this one without replacement
        // may look elsewhere first. Both find the same code.
        let digest = self.dtypes.iter().fold(Digest::default(), |digest, element| digest.with(*element as u64));
        let digest = self.constants.iter().fold(digest, |digest, value| digest.with(*value as u64));
        self.digest = self.args.iter().fold(digest, |digest, arg| arg.mix_into(digest));
    }

    /// The next argument.
    #[inline(always)]
    pub(super) fn add_arg(&mut self, arg: Arg<'a>) {
        self.digest = arg.mix_into(self.digest);
        self.args.push(arg);
    }

    /// The next argument, for a parameter of the dtype `T`, if there is one.
    #[inline]
    pub(super) fn add_optional<T: DType, V>(&mut self, value: Option<V>, arg: impl FnOnce(V) -> Arg<'a>) {
        self.add_arg(value.map_or_else(|| Arg::omitted(T::ELEMENT), arg));
    }

    /// Learns again what the key says of the arguments.
    #[cold]
    pub(super) fn refresh_args(&mut self) {
        // What a digest finds is compared, so this one may be that of other arguments.
        self.args.iter_mut().for_each(Arg::refresh);
    }

    /// Keeps the memory for the thread's next call.
    #[inline]
    pub(super) fn recycle(mut self: Box<Self>) {
        self.dtypes.clear();
        self.constants.clear();
        self.args.clear();
        self.tuning = Tuning::default();
        self.time_limit = None;
        self.stream = None;
        self.digest = Digest::default();
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

    /// The options of the launch, then those of the kernel's attribute.
    pub(super) fn tuning(&self) -> Result<Tuning> {
        self.kernel.definition().tuning(self.tuning)
    }

    /// Buffers live where the kernel runs.
    #[cold]
    pub(super) fn check_buffers(&self, stream: &Stream) -> Result<()> {
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

    /// What the variant of the kernel for these arguments is made from.
    pub(super) fn with_spec<R>(&self, tuning: Tuning, then: impl FnOnce(&Spec<'_>) -> R) -> R {
        let params: ParamSpecs = self.args.iter().map(Arg::spec).collect();
        then(&Spec { dtypes: &self.dtypes, constants: &self.constants, params: &params, tuning, safety: self.safety })
    }

    /// The words of that variant's key in `place`. They say nothing of the kernel's own options, which are always the
    /// same.
    #[cold]
    pub(super) fn key(&self, words: &mut Words, place: u64, checks: Checks) {
        words.set(self.key_head(place, checks), &self.dtypes, key_params(&self.args), &self.constants);
    }

    /// Whether these are the words that [`Invocation::key`] gives, where `args` are the arguments.
    #[inline]
    pub(super) fn has_key(&self, words: &[u64], args: &[Arg<'_>], place: u64, checks: Checks) -> bool {
        Words::is(words, self.key_head(place, checks), &self.dtypes, key_params(args), &self.constants)
    }

    /// Where a cache may have it.
    #[inline]
    pub(super) fn key_digest(&self, place: u64, checks: Checks) -> Digest {
        self.key_head(place, checks).digest(self.digest)
    }

    #[inline]
    fn key_head(&self, place: u64, checks: Checks) -> KeyHead {
        KeyHead { place, checks, tuning: self.tuning, safety: self.safety }
    }
}

/// What a key says of the arguments.
#[inline]
fn key_params(args: &[Arg<'_>]) -> impl ExactSizeIterator<Item = (u16, Option<u64>)> {
    args.iter().map(|arg| (arg.unit(), arg.key_value()))
}

#[cfg(test)]
mod tests {
    use super::super::definition::KernelSource;
    use super::super::scalar::Scalar;
    use super::*;

    #[test]
    fn memory_is_used_again_and_holds_nothing_of_the_last_call() {
        let source = KernelSource {
            name: "k",
            module: "",
            files: &[],
            ir: "",
            num_warps: None,
            num_stages: None,
            max_registers: None,
        };
        let kernel: &'static Kernel = Box::leak(Box::new(Kernel::new(source)));
        let mut first = Invocation::new(kernel, Safety::Unsafe);
        first.add_arg(Arg::scalar(1i32.value()));
        first.add_constant(3);
        first.add_dtype(ElementType::F32);
        first.tuning.num_warps = Some(4);
        first.time_limit = Some(Duration::from_secs(1));
        let address = std::ptr::from_ref(&*first).addr();
        let launched = first.launch([0, 1, 1], &Device::cpu());
        assert_eq!(launched, Ok(()));
        let second = Invocation::new(kernel, Safety::Safe);
        assert_eq!(std::ptr::from_ref(&*second).addr(), address);
        assert!(second.args.is_empty() && second.constants.is_empty() && second.dtypes.is_empty());
        assert_eq!(second.time_limit, None);
        assert_eq!((second.tuning, second.safety), (Tuning::default(), Safety::Safe));
        let third = Invocation::new(kernel, Safety::Safe);
        assert_ne!(std::ptr::from_ref(&*third).addr(), address);
    }
}
