//! The keys of variants: a few words, made without an allocation.
//!
//! A launch does not write down its key to find its code. While the call is made, its parts are mixed into a
//! [`Digest`]; that says where in the cache to look, and [`Words::is`] compares what is found there with the parts
//! themselves. The words are written only when that fails.

use super::list::List;
use super::spec::{Spec, Tuning};
use crate::dtype::ElementType;
use kernel_core::backend::Checks;
use kernel_core::ir::Safety;
use smallvec::SmallVec;
use std::borrow::Borrow;

/// What tells variants apart: two launches with one key run the same code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(SmallVec<[u64; KEY_WORDS]>);

/// Keys of up to this many words lie beside what they stand for.
const KEY_WORDS: usize = 14;

impl Key {
    /// The key of a variant in `place`: a context, a target, or the CPU.
    pub(super) fn new(spec: &Spec<'_>, place: u64, checks: Checks) -> Key {
        let Spec { dtypes, constants, params, tuning, safety } = *spec;
        let mut words = Words::default();
        let params = params.iter().map(|param| (param.unit(), param.value()));
        words.set(KeyHead { place, checks, tuning, safety }, dtypes, params, constants);
        Key(words.as_slice().into())
    }

    /// The key of these words.
    pub(super) fn of(words: &Words) -> Key {
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

/// What is left of a key when its words are mixed: where in a cache it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Digest(u64);

impl Digest {
    /// That of all words of a key.
    pub(super) fn of(words: &[u64]) -> Digest {
        words.iter().fold(Digest::default(), |digest, word| digest.with(*word))
    }

    /// With one more word.
    #[inline(always)]
    pub(super) fn with(self, word: u64) -> Digest {
        Digest(self.0.rotate_left(7) ^ word)
    }

    /// A number below `1 << bits`.
    #[inline]
    pub(super) fn place(self, bits: u32) -> usize {
        // Of a product with an odd number whose bits look random, the high bits are mixed best.
        const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
        (self.0.wrapping_mul(FACTOR) >> (u64::BITS - bits)) as usize
    }
}

/// Keys of up to this many words are made without an allocation.
const INLINE_WORDS: usize = 64;

/// The words of a key.
pub(super) struct Words(List<u64, INLINE_WORDS>);

impl Default for Words {
    #[inline]
    fn default() -> Self {
        Words(List::new())
    }
}

impl Words {
    /// The words of a key. Parameters have a unit, and constants among them a value.
    pub(super) fn set(
        &mut self,
        head: KeyHead,
        dtypes: &[ElementType],
        params: impl ExactSizeIterator<Item = (u16, Option<u64>)>,
        constants: &[i64],
    ) {
        self.0.clear();
        for_each_word(head, dtypes, params, constants, |word| self.0.push(word));
    }

    pub(super) fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// Whether [`Words::set`] would make just these words.
    #[inline]
    pub(super) fn is(
        known: &[u64],
        head: KeyHead,
        dtypes: &[ElementType],
        params: impl ExactSizeIterator<Item = (u16, Option<u64>)>,
        constants: &[i64],
    ) -> bool {
        let (mut rest, mut differences) = (known.iter(), 0);
        // A word more than there are differs from any.
        for_each_word(head, dtypes, params, constants, |word| {
            differences |= rest.next().map_or(1, |known| known ^ word);
        });
        differences == 0 && rest.next().is_none()
    }
}

/// Gives the words of a key.
#[inline(always)]
fn for_each_word(
    head: KeyHead,
    dtypes: &[ElementType],
    params: impl ExactSizeIterator<Item = (u16, Option<u64>)>,
    constants: &[i64],
    mut give: impl FnMut(u64),
) {
    give(head.options() | (dtypes.len() as u64) << 32 | (params.len() as u64) << 48);
    give(head.place);
    if let Some(seed) = head.tuning.delays {
        give(seed);
    }
    if head.tuning.rough_tensors != 0 {
        give(head.tuning.rough_tensors.into());
    }
    dtypes.iter().for_each(|element| give(*element as u64));
    for (unit, value) in params {
        give(unit.into());
        if let Some(value) = value {
            give(value);
        }
    }
    // The rest of the words, however many. The counts above keep lists of different lengths apart.
    constants.iter().for_each(|value| give(*value as u64));
}

/// What a [`Key`] has besides dtypes, constexprs and parameters.
#[derive(Clone, Copy)]
pub(super) struct KeyHead {
    pub(super) place: u64,
    pub(super) checks: Checks,
    /// Options that are valid.
    pub(super) tuning: Tuning,
    pub(super) safety: Safety,
}

impl KeyHead {
    /// What is no place and no seed.
    #[inline]
    fn options(self) -> u64 {
        let option = |value: Option<u32>| u64::from(value.unwrap_or(0)) & 0xff;
        (self.checks as u64)
            | ((self.safety == Safety::Unsafe) as u64) << 1
            | (self.tuning.delays.is_some() as u64) << 2
            | ((self.tuning.rough_tensors != 0) as u64) << 3
            | (self.tuning.dependent_launch as u64) << 4
            | (self.tuning.line_info.is_some() as u64) << 5
            | (self.tuning.line_info.unwrap_or_default() as u64) << 6
            | option(self.tuning.num_warps) << 8
            | option(self.tuning.num_stages) << 16
            | option(self.tuning.max_registers) << 24
    }

    /// The digest of a key with this head, from that of everything else.
    #[inline]
    pub(super) fn digest(self, rest: Digest) -> Digest {
        rest.with(self.options()).with(self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Scalar;
    use super::super::spec::{ParamSpec, assumed_buffer};
    use super::*;

    fn key(dtypes: &[ElementType], constants: &[i64], params: &[ParamSpec], num_warps: Option<u32>) -> Key {
        let tuning = Tuning { num_warps, ..Tuning::default() };
        let spec = Spec { dtypes, constants, params, tuning, safety: Safety::Safe };
        Key::new(&spec, 0, Checks::EveryAccess)
    }

    #[test]
    fn keys_differ_where_variants_do() {
        let (f32, i32) = (ElementType::F32, ElementType::I32);
        let one = ParamSpec::scalar(1i32.value());
        let two = ParamSpec::scalar(2i32.value());
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
            key(&[], &[512], &[ParamSpec::Omitted(f32)], None),
            key(&[], &[512], &[ParamSpec::Omitted(i32)], None),
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
    fn keys_differ_by_every_option() {
        let key = |[num_warps, num_stages, max_registers]: [Option<u32>; 3], checks, safety| {
            let tuning = Tuning { num_warps, num_stages, max_registers, ..Tuning::default() };
            Key::new(&Spec { dtypes: &[], constants: &[], params: &[], tuning, safety }, 0, checks)
        };
        let mut keys = Vec::new();
        let (three, four, most) = (Some(3), Some(4), Some(255));
        for options in [
            [None; 3],
            [four, None, None],
            [None, four, None],
            [None, None, Some(16)],
            [four, three, None],
            [three, four, None],
            [three, four, most],
        ] {
            for checks in [Checks::AtLaunch, Checks::EveryAccess] {
                keys.extend([Safety::Safe, Safety::Unsafe].map(|safety| key(options, checks, safety)));
                let tuning = Tuning { num_warps: options[0], dependent_launch: true, ..Tuning::default() };
                let spec = Spec { dtypes: &[], constants: &[], params: &[], tuning, safety: Safety::Safe };
                if options[1..] == [None; 2] {
                    keys.push(Key::new(&spec, 0, checks));
                }
            }
        }
        for (index, a) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|b| a == b), Some(index));
        }
    }

    /// The fields of the first word do not run into each other.
    #[test]
    fn keys_differ_by_options_whatever_else_they_have() {
        let key = |max_registers: u32, dtypes: &[ElementType]| {
            let tuning = Tuning { max_registers: Some(max_registers), ..Tuning::default() };
            let params = [ParamSpec::scalar(1i32.value())];
            Key::new(
                &Spec { dtypes, constants: &[], params: &params, tuning, safety: Safety::Safe },
                0,
                Checks::AtLaunch,
            )
        };
        let f32 = ElementType::F32;
        for dtypes in [&[][..], &[f32], &[f32; 2], &[f32; 3]] {
            let keys: Vec<Key> = (24..32).map(|registers| key(registers, dtypes)).collect();
            for (index, a) in keys.iter().enumerate() {
                assert_eq!(keys.iter().position(|b| a == b), Some(index), "{dtypes:?}");
            }
        }
    }

    #[test]
    fn keys_differ_by_line_information() {
        let key = |line_info| {
            let tuning = Tuning { line_info, ..Tuning::default() };
            let spec = Spec { dtypes: &[], constants: &[], params: &[], tuning, safety: Safety::Safe };
            Key::new(&spec, 0, Checks::EveryAccess)
        };
        let keys = [None, Some(false), Some(true)].map(key);
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }

    #[test]
    fn keys_differ_by_the_seed_of_delays() {
        let key = |delays, constants: &[i64]| {
            let tuning = Tuning { delays, ..Tuning::default() };
            let spec = Spec { dtypes: &[], constants, params: &[], tuning, safety: Safety::Safe };
            Key::new(&spec, 0, Checks::EveryAccess)
        };
        let keys = [key(None, &[]), key(None, &[1]), key(Some(0), &[]), key(Some(1), &[]), key(Some(u64::MAX), &[])];
        for (index, a) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|b| a == b), Some(index));
        }
    }

    /// Words of every length are exact, and nothing but what made them is the same.
    #[test]
    fn keys_of_any_length_are_exact() {
        const HEAD_WORDS: usize = 2;
        let mut words = Words::default();
        let tuning = Tuning::default();
        let head = KeyHead { place: 7, checks: Checks::EveryAccess, tuning, safety: Safety::Safe };
        for constants in [0, 1, INLINE_WORDS - HEAD_WORDS, INLINE_WORDS - HEAD_WORDS + 1, 1000, 3] {
            let values: Vec<i64> = (0..constants as i64).collect();
            words.set(head, &[], std::iter::empty(), &values);
            let (first, rest) = words.as_slice().split_at(HEAD_WORDS);
            assert_eq!(first[1], 7);
            assert_eq!(rest, values.iter().map(|value| *value as u64).collect::<Vec<_>>());
            let is = |head, values: &[i64]| Words::is(words.as_slice(), head, &[], std::iter::empty(), values);
            assert!(is(head, &values) && !is(KeyHead { place: 8, ..head }, &values));
            assert!(!is(KeyHead { safety: Safety::Unsafe, ..head }, &values));
            let longer: Vec<i64> = values.iter().copied().chain([0]).collect();
            assert!(!is(head, &longer) && (values.is_empty() || !is(head, &values[1..])));
            for index in [0, constants / 2, constants.saturating_sub(1)] {
                let mut other = values.clone();
                if let Some(value) = other.get_mut(index) {
                    *value ^= 1 << 40;
                    assert!(!is(head, &other), "{index}");
                }
            }
        }
    }
}
