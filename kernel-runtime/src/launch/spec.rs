//! What a variant of a kernel is made from: dtypes, constexprs, what is known of the arguments,
//! options. And its [`Key`] in the caches: a few words, made without an allocation.

use super::args::{Arg, ScalarValue, core_dtype};
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use kernel_core::ir::{Facts, Safety};
use smallvec::SmallVec;
use std::borrow::Borrow;

/// Alignments above this many bytes make no code better: it is the widest access of a thread.
const MAX_ALIGNMENT: u32 = 16;

/// Lengths are specialised on divisibility by this: elements of a byte fill the widest access.
const DIVISOR: u32 = 16;

/// Integers are specialised on divisibility by these, the first that fits: 16 as in Triton, and 8, which is what rows
/// of 16-bit elements need to be accessed 16 bytes at a time.
const DIVISORS: [u32; 2] = [DIVISOR, 8];

/// The largest number of warps of a program: 1024 threads.
pub(super) const MAX_WARPS: u32 = 32;

/// The deepest software pipeline that anybody can ask for.
const MAX_STAGES: u32 = 16;

/// What a launch may choose about how its kernel is compiled. `None` leaves it to the kernel's
/// attribute, then to a heuristic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tuning {
    pub(super) num_warps: Option<u32>,
    pub(super) num_stages: Option<u32>,
}

impl Tuning {
    /// These choices, and where there are none, those of `other`.
    #[inline]
    pub(super) fn or(self, other: Tuning) -> Tuning {
        Tuning { num_warps: self.num_warps.or(other.num_warps), num_stages: self.num_stages.or(other.num_stages) }
    }

    /// Refuses what no kernel can have.
    pub(super) fn check(self) -> Result<Tuning> {
        if self.is_valid() { Ok(self) } else { Err(self.refusal()) }
    }

    /// Whether a kernel can have these.
    #[inline]
    pub(super) fn is_valid(self) -> bool {
        self.has_valid_warps() && self.num_stages.is_none_or(|stages| (1..=MAX_STAGES).contains(&stages))
    }

    #[inline]
    fn has_valid_warps(self) -> bool {
        self.num_warps.is_none_or(|warps| warps.is_power_of_two() && warps <= MAX_WARPS)
    }

    /// What is wrong with options that are not valid.
    #[cold]
    pub(super) fn refusal(self) -> Error {
        let (name, value, expected) = if self.has_valid_warps() {
            ("num_stages", self.num_stages, format!("a number from 1 to {MAX_STAGES}"))
        } else {
            ("num_warps", self.num_warps, format!("a power of two from 1 to {MAX_WARPS}"))
        };
        let value = value.map_or_else(String::new, |value| value.to_string());
        Error::InvalidSetting { name: name.into(), value: value.into(), expected: expected.into() }
    }
}

/// What is known of one argument when a variant is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamSpec {
    Buffer {
        element: ElementType,
        mutable: bool,
        alignment: u32,
        len_divisible: bool,
    },
    /// `divisor` is 1 or one of [`DIVISORS`].
    Scalar {
        element: ElementType,
        divisor: u32,
        one: bool,
    },
    Const(ScalarValue),
}

impl ParamSpec {
    /// What the GPU's code generator may know of an argument.
    #[inline]
    pub(super) fn of(arg: &Arg<'_>) -> ParamSpec {
        match arg {
            Arg::Scalar(value) => {
                // The low bits of a negative integer are those of its remainder.
                let is_int = is_int(value.element);
                let fits = |divisor: &u32| is_int && value.bits & u64::from(divisor - 1) == 0;
                let divisor = DIVISORS.into_iter().find(fits).unwrap_or(1);
                ParamSpec::Scalar { element: value.element, divisor, one: is_int && value.bits == 1 }
            }
            Arg::Const(value) => ParamSpec::Const(*value),
            Arg::Ptr(_) | Arg::PtrMut(_) => {
                let mutable = matches!(arg, Arg::PtrMut(_));
                // An argument of these kinds has a buffer.
                let (address, len, element) = arg
                    .buffer()
                    .map_or((0, 0, ElementType::U8), |buffer| (buffer.address().get(), buffer.len(), buffer.element()));
                let alignment = 1 << address.trailing_zeros().min(MAX_ALIGNMENT.trailing_zeros());
                ParamSpec::Buffer { element, mutable, alignment, len_divisible: len % DIVISOR as usize == 0 }
            }
        }
    }

    /// The same argument with nothing known, as the interpreter takes it.
    #[inline]
    pub(super) fn without_facts(self) -> ParamSpec {
        match self {
            ParamSpec::Buffer { element, mutable, .. } => {
                ParamSpec::Buffer { element, mutable, alignment: 1, len_divisible: false }
            }
            ParamSpec::Scalar { element, .. } => ParamSpec::Scalar { element, divisor: 1, one: false },
            ParamSpec::Const(value) => ParamSpec::Const(value),
        }
    }

    /// The same argument with nothing known of its length.
    #[cfg(feature = "jit")]
    pub(super) fn without_length(self) -> ParamSpec {
        match self {
            ParamSpec::Buffer { element, mutable, alignment, .. } => {
                ParamSpec::Buffer { element, mutable, alignment, len_divisible: false }
            }
            ParamSpec::Scalar { .. } | ParamSpec::Const(_) => self,
        }
    }

    pub(super) fn facts(self) -> Facts {
        let known = |is_known: bool| if is_known { DIVISOR } else { 0 };
        match self {
            ParamSpec::Buffer { alignment, len_divisible, .. } => {
                Facts { divisible_by: alignment, equals_one: false, len_divisible_by: known(len_divisible) }
            }
            ParamSpec::Scalar { divisor, one, .. } => {
                Facts { divisible_by: if divisor > 1 { divisor } else { 0 }, equals_one: one, len_divisible_by: 0 }
            }
            ParamSpec::Const(_) => Facts::default(),
        }
    }

    pub(super) fn element(self) -> ElementType {
        match self {
            ParamSpec::Buffer { element, .. } | ParamSpec::Scalar { element, .. } => element,
            ParamSpec::Const(value) => value.element,
        }
    }

    /// Everything but a constant's value, in [`UNIT_BITS`] bits.
    #[inline]
    fn bits(self) -> u64 {
        let (kind, element, facts) = match self {
            ParamSpec::Buffer { element, mutable, alignment, len_divisible } => {
                (u64::from(mutable), element, u64::from(alignment.trailing_zeros()) | u64::from(len_divisible) << 3)
            }
            ParamSpec::Scalar { element, divisor, one } => {
                (2, element, u64::from(divisor.trailing_zeros()) | u64::from(one) << 3)
            }
            ParamSpec::Const(value) => (3, value.element, 0),
        };
        kind | (element as u64) << 2 | facts << 6
    }
}

/// The parameters of most kernels, without an allocation.
pub(super) type ParamSpecs = SmallVec<[ParamSpec; 12]>;

/// What a variant is made from, but for the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec<'s> {
    pub(super) dtypes: &'s [ElementType],
    pub(super) constants: &'s [i64],
    pub(super) params: &'s [ParamSpec],
    pub(super) tuning: Tuning,
    /// What the caller takes the kernel for: `launch` of a safe kernel is a safe function.
    pub(super) safety: Safety,
}

impl Spec<'_> {
    /// The dtypes as the tile IR names them.
    pub(super) fn core_dtypes(&self) -> Vec<kernel_core::ir::DType> {
        self.dtypes.iter().map(|element| core_dtype(*element)).collect()
    }
}

/// Which code of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checking {
    /// The launch meets the conditions under which no access needs a check, unless it depends on
    /// data.
    #[cfg(feature = "jit")]
    AtLaunch,
    /// Every access is checked.
    Everywhere,
}

/// Bits of one dtype or parameter in a key. Divides 64.
const UNIT_BITS: u32 = 16;

/// What tells variants apart: two launches with one key run the same code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(Box<[u64]>);

impl Key {
    /// The key of a variant in `place`: a context, a target, or the CPU.
    pub(super) fn new(spec: &Spec<'_>, place: u64, checking: Checking) -> Key {
        let Spec { dtypes, constants, params, tuning, safety } = *spec;
        let mut words = Words::default();
        words.push_key(KeyHead { place, checking, tuning, safety }, dtypes, params.iter().copied(), constants);
        Key(words.as_slice().into())
    }
}

/// Tables find a key by its words alone.
impl Borrow<[u64]> for Key {
    #[inline]
    fn borrow(&self) -> &[u64] {
        &self.0
    }
}

/// Words of most keys.
const INLINE_WORDS: usize = 16;

/// The words of a key, made without an allocation if they are not many.
pub(super) struct Words {
    inline: [u64; INLINE_WORDS],
    /// How many are in `inline`.
    len: usize,
    /// All of them, if they are more than fit.
    all: Vec<u64>,
}

impl Default for Words {
    #[inline]
    fn default() -> Self {
        Words { inline: [0; INLINE_WORDS], len: 0, all: Vec::new() }
    }
}

impl Words {
    #[inline]
    fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.len) {
            Some(place) => {
                *place = word;
                self.len += 1;
            }
            None => self.push_more(word),
        }
    }

    #[cold]
    fn push_more(&mut self, word: u64) {
        if self.all.is_empty() {
            self.all.extend(self.inline);
        }
        self.all.push(word);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u64] {
        if self.all.is_empty() { &self.inline[..self.len] } else { &self.all }
    }

    /// The words of a key.
    #[inline]
    pub(super) fn push_key(
        &mut self,
        head: KeyHead,
        dtypes: &[ElementType],
        params: impl ExactSizeIterator<Item = ParamSpec> + Clone,
        constants: &[i64],
    ) {
        let option = |value: Option<u32>| u64::from(value.unwrap_or(0)) & 0xff;
        // The counts keep lists of different lengths apart.
        self.push(
            (head.checking as u64)
                | ((head.safety == Safety::Unsafe) as u64) << 1
                | option(head.tuning.num_warps) << 8
                | option(head.tuning.num_stages) << 16
                | (dtypes.len() as u64) << 24
                | (params.len() as u64) << 40,
        );
        self.push(head.place);
        let (mut word, mut shift) = (0, 0);
        let mut push_unit = |unit: u64| {
            word |= unit << shift;
            shift += UNIT_BITS;
            if shift == u64::BITS {
                self.push(word);
                (word, shift) = (0, 0);
            }
        };
        dtypes.iter().for_each(|element| push_unit(*element as u64));
        let mut has_consts = false;
        for param in params.clone() {
            has_consts |= matches!(param, ParamSpec::Const(_));
            push_unit(param.bits());
        }
        self.push(word);
        if has_consts {
            for param in params {
                if let ParamSpec::Const(value) = param {
                    self.push(value.bits);
                }
            }
        }
        // The rest of the words, however many.
        constants.iter().for_each(|value| self.push(*value as u64));
    }
}

/// What a [`Key`] has besides dtypes, constexprs and parameters.
#[derive(Clone, Copy)]
pub(super) struct KeyHead {
    pub(super) place: u64,
    pub(super) checking: Checking,
    pub(super) tuning: Tuning,
    pub(super) safety: Safety,
}

/// What an ordinary launch has, for code that is looked at without arguments: allocations are
/// aligned, sizes are multiples of 16.
pub(super) fn assumed_buffer(element: ElementType, mutable: bool) -> ParamSpec {
    ParamSpec::Buffer { element, mutable, alignment: MAX_ALIGNMENT, len_divisible: true }
}

/// As [`assumed_buffer`], of a scalar.
pub(super) fn assumed_scalar(element: ElementType) -> ParamSpec {
    ParamSpec::Scalar { element, divisor: if is_int(element) { DIVISOR } else { 1 }, one: false }
}

/// Whether values of the dtype are specialised on: integers, but not `bool`.
#[inline]
fn is_int(element: ElementType) -> bool {
    !matches!(element, ElementType::Bool | ElementType::F16 | ElementType::BF16 | ElementType::F32 | ElementType::F64)
}

#[cfg(test)]
mod tests {
    use super::super::args::Scalar;
    use super::*;

    fn key(dtypes: &[ElementType], constants: &[i64], params: &[ParamSpec], num_warps: Option<u32>) -> Key {
        let tuning = Tuning { num_warps, num_stages: None };
        let spec = Spec { dtypes, constants, params, tuning, safety: Safety::Safe };
        Key::new(&spec, 0, Checking::Everywhere)
    }

    #[test]
    fn integers_are_specialised_on_few_divisors() {
        let spec = |value: ScalarValue| ParamSpec::of(&Arg::Scalar(value)).facts();
        assert_eq!(spec(1i32.value()), Facts { divisible_by: 0, equals_one: true, len_divisible_by: 0 });
        for divisible in [0i64, 16, -32, 4096] {
            assert_eq!(spec(divisible.value()).divisible_by, 16, "{divisible}");
        }
        for other in [2i64, 4, 12, -1] {
            assert_eq!(spec(other.value()), Facts::default());
        }
        for divisible in [8i64, 1000, -24] {
            assert_eq!(spec(divisible.value()).divisible_by, 8, "{divisible}");
        }
        assert_eq!(spec(1.0f32.value()).divisible_by, 0, "floats are not specialised");
        assert!(!spec(1.0f32.value()).equals_one);
        assert_eq!(spec(true.value()), Facts::default(), "nor are truth values");
        assert_eq!(spec((-16i8).value()).divisible_by, 16);
    }

    #[test]
    fn keys_differ_where_variants_do() {
        let (f32, i32) = (ElementType::F32, ElementType::I32);
        let one = ParamSpec::of(&Arg::Scalar(1i32.value()));
        let two = ParamSpec::of(&Arg::Scalar(2i32.value()));
        let buffer = assumed_buffer(f32, false);
        let many = [two; 40];
        let keys = [
            key(&[f32], &[1024], &[one], None),
            key(&[f32], &[1024], &[two], None),
            key(&[i32], &[1024], &[two], None),
            key(&[f32], &[512], &[two], None),
            key(&[f32], &[512], &[two], Some(4)),
            key(&[f32], &[512], &[two], Some(8)),
            key(&[], &[512], &[two], None),
            key(&[], &[512, 0], &[two], None),
            key(&[], &[512], &[buffer], None),
            key(&[], &[512], &[buffer.without_facts()], None),
            key(&[], &[512], &[assumed_buffer(f32, true)], None),
            key(&[], &[], &[ParamSpec::Const(0.5f32.value())], None),
            key(&[], &[], &[ParamSpec::Const(0.25f32.value())], None),
            key(&[], &[], &many, None),
            key(&[], &[], &many[1..], None),
        ];
        for (index, a) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|b| a == b), Some(index));
        }
    }

    #[test]
    fn keys_of_any_length_are_exact() {
        for len in [0, 1, INLINE_WORDS - 1, INLINE_WORDS, INLINE_WORDS + 1, 100] {
            let mut words = Words::default();
            (0..len).for_each(|word| words.push(word as u64));
            assert_eq!(words.as_slice(), (0..len as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for warps in [0, 3, 6, 64, u32::MAX] {
            let tuning = Tuning { num_warps: Some(warps), num_stages: None };
            assert!(matches!(tuning.check(), Err(Error::InvalidSetting { .. })), "{warps}");
        }
        for stages in [0, MAX_STAGES + 1] {
            let tuning = Tuning { num_warps: None, num_stages: Some(stages) };
            assert!(matches!(tuning.check(), Err(Error::InvalidSetting { .. })), "{stages}");
        }
        for warps in [1, 2, 4, 8, 16, 32] {
            let tuning = Tuning { num_warps: Some(warps), num_stages: Some(3) };
            assert_eq!(tuning.check(), Ok(tuning));
        }
    }
}
