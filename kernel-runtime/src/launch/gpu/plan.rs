//! What a launch reads of the code that it runs, side by side.
//!
//! Between two launches the driver fills the caches with its own, so that a launch costs as much as the lines of memory
//! that it touches. What was compiled lies scattered; the few words of it that each launch needs are copied here.

use super::super::args::Arg;
use super::super::loads::Loads;
use super::module::Loaded;
use super::variant::Variant;
use cudarc::driver::sys;
use kernel_core::backend::nvidia::AbiParam;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Parameters of most kernels, without an allocation.
pub(super) const INLINE_PARAMS: usize = 24;

/// Where the parameters of a launch are.
pub(super) type Pointers = [MaybeUninit<*mut c_void>; INLINE_PARAMS];

/// Of a variant in a context.
pub(super) struct Plan {
    function: sys::CUfunction,
    threads: u32,
    shared_bytes: u32,
    has_conditions: bool,
    makes_tensors: bool,
    begins_early: bool,
    loads: Loads,
    sources: Sources,
}

// SAFETY: a function is a handle that the driver lets any thread use.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

/// Where each parameter comes from; nothing if a launch has to look at them one by one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(SmallVec<[Source; INLINE_PARAMS]>);

/// Where a parameter comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    /// An argument, or [`Source::REPORT_SLOT`].
    arg: u8,
    /// Which of [`Arg::words`].
    word: u8,
}

impl Source {
    const REPORT_SLOT: u8 = u8::MAX;

    fn of(param: &AbiParam) -> Option<Source> {
        let word = |index: usize, word| {
            let arg = u8::try_from(index).ok().filter(|arg| *arg != Source::REPORT_SLOT)?;
            Some(Source { arg, word })
        };
        match param {
            AbiParam::Buffer(id) | AbiParam::Scalar(id, _) => word(id.index(), 0),
            AbiParam::Length(id) => word(id.index(), 1),
            AbiParam::ReportSlot => Some(Source { arg: Source::REPORT_SLOT, word: 0 }),
            AbiParam::Shape(..) | AbiParam::Stride(..) | AbiParam::TensorMap(_) => None,
        }
    }
}

impl Plan {
    pub(super) fn new(variant: &Variant, loaded: &Loaded) -> Plan {
        let code = &variant.artifact.code;
        Plan {
            function: loaded.function(),
            threads: code.threads(),
            shared_bytes: code.shared_bytes,
            has_conditions: !variant.artifact.conditions.is_empty(),
            makes_tensors: !variant.made.is_empty(),
            begins_early: code.dependent_launch,
            loads: variant.loads,
            sources: sources(&code.abi),
        }
    }

    #[inline]
    pub(super) fn function(&self) -> sys::CUfunction {
        self.function
    }

    /// Threads per program.
    #[inline]
    pub(super) fn threads(&self) -> u32 {
        self.threads
    }

    /// Bytes of dynamic shared memory per program.
    #[inline]
    pub(super) fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Whether a launch must meet conditions.
    #[inline]
    pub(super) fn has_conditions(&self) -> bool {
        self.has_conditions
    }

    /// Whether a launch must make tensors.
    #[inline]
    pub(super) fn makes_tensors(&self) -> bool {
        self.makes_tensors
    }

    /// Whether a launch may begin before those before it in the stream have ended, which the kernel waits for.
    #[inline]
    pub(super) fn begins_early(&self) -> bool {
        self.begins_early
    }

    /// The parameters that the kernel loads from.
    #[inline]
    pub(super) fn loads(&self) -> Loads {
        self.loads
    }

    /// Where parameters come from.
    #[inline]
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }
}

/// Where parameters come from, if all of them are words of arguments or the report slot, and not too many.
pub(super) fn sources(abi: &[AbiParam]) -> Sources {
    let sources: Option<SmallVec<_>> = abi.iter().map(Source::of).collect();
    sources.filter(|sources| sources.len() <= INLINE_PARAMS).map(Sources).unwrap_or_default()
}

impl Sources {
    /// Points at the values of all parameters, of which each has eight bytes; `None` if it is not known where they come from.
    #[inline]
    pub(super) fn pack<'p>(
        &self,
        args: &[Arg<'_>],
        report_slot: &u64,
        pointers: &'p mut Pointers,
    ) -> Option<&'p mut [*mut c_void]> {
        if self.0.is_empty() {
            return None;
        }
        for (source, pointer) in self.0.iter().zip(pointers.iter_mut()) {
            let value = match source.arg {
                Source::REPORT_SLOT => report_slot,
                arg => &args.get(usize::from(arg))?.words()[usize::from(source.word & 1)],
            };
            pointer.write(std::ptr::from_ref(value).cast_mut().cast());
        }
        // SAFETY: the loop has written as many.
        Some(unsafe { pointers[..self.0.len()].assume_init_mut() })
    }
}
