//! What a variant of a kernel is made from: dtypes, constexprs, what is known of the arguments,
//! options.

use super::scalar::ScalarValue;
use crate::dtype::ElementType;
use crate::error::{Error, Result};
use crate::tensor::{Padding, TensorFacts};
use kernel_core::ir::{Facts, Safety};
use kernel_core::target::MAX_WARPS;
use smallvec::SmallVec;

/// Alignments above this many bytes make no code better: it is the widest access of a thread.
const MAX_ALIGNMENT: u32 = 16;

/// Lengths are specialised on divisibility by this: elements of a byte fill the widest access.
const DIVISOR: u32 = 16;

/// Integers are specialised on divisibility by these, the first that fits: 16 as in Triton, and 8, which is what rows
/// of 16-bit elements need to be accessed 16 bytes at a time.
const DIVISORS: [u32; 2] = [DIVISOR, 8];

/// The deepest software pipeline that anybody can ask for.
const MAX_STAGES: u32 = 16;

/// The limits that anybody can ask for: a call needs some registers, and no instruction names more than 255.
const REGISTERS: std::ops::RangeInclusive<u32> = 16..=255;

/// What a launch may choose about how its kernel is compiled. `None` leaves it to the kernel's
/// attribute, then to a heuristic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tuning {
    pub(super) num_warps: Option<u32>,
    pub(super) num_stages: Option<u32>,
    pub(super) max_registers: Option<u32>,
    /// Whether the launch may begin before those before it in the stream have ended.
    pub(super) dependent_launch: bool,
    /// The seed of random delays, in tests.
    pub(super) delays: Option<u64>,
    /// Whether the code says which lines it is from.
    pub(super) line_info: Option<bool>,
    /// The tensors made by the kernel of which the variant must take nothing for granted, a bit each.
    pub(super) rough_tensors: u32,
}

impl Tuning {
    /// These choices, and where there are none, those of `other`.
    #[inline]
    pub(super) fn or(self, other: Tuning) -> Tuning {
        Tuning {
            num_warps: self.num_warps.or(other.num_warps),
            num_stages: self.num_stages.or(other.num_stages),
            max_registers: self.max_registers.or(other.max_registers),
            dependent_launch: self.dependent_launch || other.dependent_launch,
            delays: self.delays.or(other.delays),
            line_info: self.line_info.or(other.line_info),
            rough_tensors: self.rough_tensors | other.rough_tensors,
        }
    }

    /// Refuses what no kernel can have.
    pub(super) fn check(self) -> Result<Tuning> {
        if self.is_valid() { Ok(self) } else { Err(self.refusal()) }
    }

    /// Whether a kernel can have these.
    #[inline]
    pub(super) fn is_valid(self) -> bool {
        self.has_valid_warps() && self.has_valid_stages() && self.has_valid_registers()
    }

    #[inline]
    fn has_valid_warps(self) -> bool {
        self.num_warps.is_none_or(|warps| warps.is_power_of_two() && warps <= MAX_WARPS)
    }

    #[inline]
    fn has_valid_stages(self) -> bool {
        self.num_stages.is_none_or(|stages| (1..=MAX_STAGES).contains(&stages))
    }

    #[inline]
    fn has_valid_registers(self) -> bool {
        self.max_registers.is_none_or(|registers| REGISTERS.contains(&registers))
    }

    /// What is wrong with options that are not valid.
    #[cold]
    pub(super) fn refusal(self) -> Error {
        let (name, value, expected) = if !self.has_valid_warps() {
            ("num_warps", self.num_warps, format!("a power of two from 1 to {MAX_WARPS}"))
        } else if !self.has_valid_stages() {
            ("num_stages", self.num_stages, format!("a number from 1 to {MAX_STAGES}"))
        } else {
            let (least, most) = (REGISTERS.start(), REGISTERS.end());
            ("max_registers", self.max_registers, format!("a number from {least} to {most}"))
        };
        let value = value.map_or_else(String::new, |value| value.to_string());
        Error::InvalidSetting { name: name.into(), value: value.into(), expected: expected.into() }
    }
}

/// What is known of one argument when a variant is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamSpec {
    /// `len_divisor` is 1 or one of [`DIVISORS`].
    Buffer {
        element: ElementType,
        mutable: bool,
        alignment: u32,
        len_divisor: u32,
    },
    /// `divisor` is 1 or one of [`DIVISORS`].
    Scalar {
        element: ElementType,
        divisor: u32,
        one: bool,
    },
    Const(ScalarValue),
    /// Nothing is passed.
    Omitted(ElementType),
    /// A tensor behind a descriptor, in memory aligned to 16 bytes if `aligned`.
    Tensor {
        element: ElementType,
        mutable: bool,
        aligned: bool,
        facts: TensorFacts,
    },
}

impl ParamSpec {
    /// What the GPU's code generator may know of a buffer at this address, of so many elements.
    pub(super) fn buffer(element: ElementType, mutable: bool, address: u64, len: u64) -> ParamSpec {
        let alignment = 1 << address.trailing_zeros().min(MAX_ALIGNMENT.trailing_zeros());
        let fits = |divisor: &u32| len.is_multiple_of(u64::from(*divisor));
        let len_divisor = DIVISORS.into_iter().find(fits).unwrap_or(1);
        ParamSpec::Buffer { element, mutable, alignment, len_divisor }
    }

    /// As [`ParamSpec::buffer`], of a scalar.
    pub(super) fn scalar(value: ScalarValue) -> ParamSpec {
        let ScalarValue { bits, element } = value;
        // The low bits of a negative integer are those of its remainder.
        let is_int = element.is_int();
        let fits = |divisor: &u32| is_int && bits & u64::from(divisor - 1) == 0;
        let divisor = DIVISORS.into_iter().find(fits).unwrap_or(1);
        ParamSpec::Scalar { element, divisor, one: is_int && bits == 1 }
    }

    /// As [`ParamSpec::buffer`], of a tensor whose first element is at this address.
    pub(super) fn tensor(element: ElementType, mutable: bool, address: u64, facts: TensorFacts) -> ParamSpec {
        ParamSpec::Tensor { element, mutable, aligned: address.is_multiple_of(u64::from(MAX_ALIGNMENT)), facts }
    }

    /// The same argument with nothing known, as the interpreter takes it.
    #[inline]
    pub(super) fn without_facts(self) -> ParamSpec {
        match self {
            ParamSpec::Buffer { element, mutable, .. } => {
                ParamSpec::Buffer { element, mutable, alignment: 1, len_divisor: 1 }
            }
            ParamSpec::Scalar { element, .. } => ParamSpec::Scalar { element, divisor: 1, one: false },
            ParamSpec::Const(_) | ParamSpec::Omitted(_) => self,
            ParamSpec::Tensor { element, mutable, facts, .. } => {
                ParamSpec::Tensor { element, mutable, aligned: false, facts: facts.unknown() }
            }
        }
    }

    /// The same argument with nothing known of its length.
    pub(super) fn without_length(self) -> ParamSpec {
        match self {
            ParamSpec::Buffer { element, mutable, alignment, .. } => {
                ParamSpec::Buffer { element, mutable, alignment, len_divisor: 1 }
            }
            ParamSpec::Scalar { .. } | ParamSpec::Const(_) | ParamSpec::Omitted(_) | ParamSpec::Tensor { .. } => self,
        }
    }

    pub(super) fn facts(self) -> Facts {
        let known = |divisor: u32| if divisor > 1 { divisor } else { 0 };
        match self {
            ParamSpec::Buffer { alignment, len_divisor, .. } => {
                Facts { divisible_by: alignment, len_divisible_by: known(len_divisor), ..Facts::default() }
            }
            ParamSpec::Scalar { divisor, one, .. } => {
                Facts { divisible_by: known(divisor), equals_one: one, ..Facts::default() }
            }
            ParamSpec::Const(_) => Facts::default(),
            ParamSpec::Omitted(_) => Facts { omitted: true, ..Facts::default() },
            ParamSpec::Tensor { element, aligned, facts, .. } => {
                let unit = MAX_ALIGNMENT / element.size() as u32;
                // Memory that is known to be aligned, with strides that are, can be copied by the hardware.
                let usable = |is_known: bool| is_known && facts.copies;
                Facts {
                    divisible_by: match aligned {
                        true if facts.copies => MAX_ALIGNMENT,
                        true => MAX_ALIGNMENT / 2,
                        false => element.size() as u32,
                    },
                    len_divisible_by: if facts.rows { unit } else { 0 },
                    stride_divisible_by: if usable(facts.strides) { unit } else { 0 },
                    pads_with_nan: facts.padding == Padding::Nan,
                    ..Facts::default()
                }
            }
        }
    }

    pub(super) fn element(self) -> ElementType {
        match self {
            ParamSpec::Buffer { element, .. }
            | ParamSpec::Scalar { element, .. }
            | ParamSpec::Tensor { element, .. } => element,
            ParamSpec::Const(value) => value.element,
            ParamSpec::Omitted(element) => element,
        }
    }

    /// Everything but a constant's value.
    pub(super) fn unit(self) -> u16 {
        let log2 = |power: u32| power.trailing_zeros() as u16;
        let (kind, element, facts) = match self {
            ParamSpec::Buffer { element, mutable, alignment, len_divisor } => {
                (u16::from(mutable), element, log2(alignment) | log2(len_divisor) << 3)
            }
            ParamSpec::Scalar { element, divisor, one } => (2, element, log2(divisor) | u16::from(one) << 3),
            ParamSpec::Const(value) => (3, value.element, 0),
            ParamSpec::Tensor { element, mutable, aligned, facts } => {
                let flags = [aligned, facts.strides, facts.rows, facts.copies, facts.padding == Padding::Nan];
                let flags = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u16::from(flag));
                (4 + u16::from(mutable), element, flags << 3 | u16::from(facts.rank))
            }
            ParamSpec::Omitted(element) => (6, element, 0),
        };
        pack(kind, element, facts)
    }

    /// The value of a constant.
    pub(super) fn value(self) -> Option<u64> {
        match self {
            ParamSpec::Const(value) => Some(value.bits),
            ParamSpec::Buffer { .. } | ParamSpec::Scalar { .. } | ParamSpec::Omitted(_) | ParamSpec::Tensor { .. } => {
                None
            }
        }
    }
}

#[inline(always)]
fn pack(kind: u16, element: ElementType, facts: u16) -> u16 {
    kind | (element as u16) << 3 | facts << 8
}

/// The unit of a buffer at this address, of so many elements: as [`ParamSpec::unit`] makes it, but without a
/// [`ParamSpec`], because each launch needs it of each argument.
#[inline(always)]
pub(super) fn buffer_unit(element: ElementType, mutable: bool, address: u64, len: u64) -> u16 {
    let alignment = (address | u64::from(MAX_ALIGNMENT)).trailing_zeros() as u16;
    pack(u16::from(mutable), element, alignment | divisor_log2(len) << 3)
}

/// As [`buffer_unit`], of a scalar with these bits.
#[inline(always)]
pub(super) fn scalar_unit(element: ElementType, bits: u64) -> u16 {
    let facts = if element.is_int() { divisor_log2(bits) | u16::from(bits == 1) << 3 } else { 0 };
    pack(2, element, facts)
}

/// The logarithm of the first of [`DIVISORS`] that divides the number.
#[inline(always)]
fn divisor_log2(number: u64) -> u16 {
    const { assert!(DIVISORS[0] == 16 && DIVISORS[1] == 8) };
    let log2 = (number | u64::from(DIVISOR)).trailing_zeros() as u16;
    if log2 < DIVISORS[1].trailing_zeros() as u16 { 0 } else { log2 }
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

/// What an ordinary launch has, for code that is looked at without arguments: allocations are
/// aligned, sizes are multiples of 16.
pub(super) fn assumed_buffer(element: ElementType, mutable: bool) -> ParamSpec {
    ParamSpec::Buffer { element, mutable, alignment: MAX_ALIGNMENT, len_divisor: DIVISOR }
}

/// As [`assumed_buffer`], of a tensor of that many dimensions.
pub(super) fn assumed_tensor(element: ElementType, mutable: bool, rank: usize) -> ParamSpec {
    let facts = TensorFacts { rank: rank as u8, padding: Padding::Zero, strides: true, rows: true, copies: true };
    ParamSpec::Tensor { element, mutable, aligned: true, facts }
}

/// As [`assumed_buffer`], of a scalar.
pub(super) fn assumed_scalar(element: ElementType) -> ParamSpec {
    ParamSpec::Scalar { element, divisor: if element.is_int() { DIVISOR } else { 1 }, one: false }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Scalar;
    use super::*;

    #[test]
    fn integers_are_specialised_on_few_divisors() {
        let spec = |value: ScalarValue| ParamSpec::scalar(value).facts();
        assert_eq!(spec(1i32.value()), Facts { equals_one: true, ..Facts::default() });
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

    /// What launches pack by themselves is what the cache is told.
    #[test]
    fn units_do_not_depend_on_how_they_are_made() {
        let edges = [0u64, 1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 100, 1 << 31, u64::MAX, u64::MAX - 7, 1 << 63];
        for element in ElementType::ALL {
            for bits in edges {
                let value = ScalarValue { bits, element };
                let unit = ParamSpec::scalar(value).unit();
                assert_eq!(scalar_unit(element, bits), unit, "{element} {bits}");
                for len in edges {
                    let alignment = 1 << bits.trailing_zeros().min(4);
                    let len_divisor = DIVISORS.into_iter().find(|divisor| len % u64::from(*divisor) == 0).unwrap_or(1);
                    for mutable in [false, true] {
                        let spec = ParamSpec::Buffer { element, mutable, alignment, len_divisor };
                        assert_eq!(buffer_unit(element, mutable, bits, len), spec.unit(), "{element} {bits} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for warps in [0, 3, 6, 64, u32::MAX] {
            let tuning = Tuning { num_warps: Some(warps), ..Tuning::default() };
            assert!(matches!(tuning.check(), Err(Error::InvalidSetting { .. })), "{warps}");
        }
        for stages in [0, MAX_STAGES + 1] {
            let tuning = Tuning { num_stages: Some(stages), ..Tuning::default() };
            assert!(matches!(tuning.check(), Err(Error::InvalidSetting { .. })), "{stages}");
        }
        for registers in [0, 15, 256] {
            let tuning = Tuning { max_registers: Some(registers), ..Tuning::default() };
            let Err(Error::InvalidSetting { name, .. }) = tuning.check() else { panic!("{registers}") };
            assert_eq!(&*name, "max_registers");
        }
        for warps in [1, 2, 4, 8, 16, 32] {
            let (num_warps, num_stages, max_registers) = (Some(warps), Some(3), Some(255));
            let tuning = Tuning { num_warps, num_stages, max_registers, ..Tuning::default() };
            assert_eq!(tuning.check(), Ok(tuning));
        }
    }
}
