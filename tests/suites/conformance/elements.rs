//! Elements of every dtype, for kernels that are generic.

use std::fmt::Debug;

use half::{bf16, f16};
use tilewright::prelude::*;
use tilewright_tests::data::{bf16_from_f64, f16_from_f64};

use crate::runner::{Failure, Outcome};

/// A number that kernels compute with, as plain Rust computes with it.
pub trait Element: Num + PartialEq + Debug + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// Whether it is a float.
    const IS_FLOAT: bool;
    /// How many bits it has.
    const BITS: u32;
    /// The value as f64, which holds all but 64-bit integers.
    fn to_f64(self) -> f64;
    /// The value as an integer; floats are truncated.
    fn to_int(self) -> i128;
    /// The nearest value.
    fn from_f64(value: f64) -> Self;
    /// The low bits of an integer, or the float nearest to it.
    fn from_int(value: i128) -> Self;
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Element for $ty {
            const NAME: &'static str = stringify!($ty);
            const IS_FLOAT: bool = false;
            const BITS: u32 = <$ty>::BITS;
            fn to_f64(self) -> f64 { self as f64 }
            fn to_int(self) -> i128 { self as i128 }
            fn from_f64(value: f64) -> $ty { value as $ty }
            fn from_int(value: i128) -> $ty { value as $ty }
        }
    )*};
}
integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! floats {
    ($($ty:ident $bits:literal, |$x:ident| $to:expr, |$v:ident| $from:expr;)*) => {$(
        impl Element for $ty {
            const NAME: &'static str = stringify!($ty);
            const IS_FLOAT: bool = true;
            const BITS: u32 = $bits;
            fn to_f64(self) -> f64 { let $x = self; $to }
            fn to_int(self) -> i128 { self.to_f64() as i128 }
            fn from_f64($v: f64) -> $ty { $from }
            fn from_int(value: i128) -> $ty { <$ty as Element>::from_f64(odd(value, $bits)) }
        }
    )*};
}

/// An integer as an `f64` from which floats of so many bits are rounded as if from the integer: the nearest one for an `f64`,
/// else cut off, with the last bit set if that loses anything.
fn odd(value: i128, bits: u32) -> f64 {
    let nearest = value as f64;
    if bits == 64 || nearest as i128 == value {
        return nearest;
    }
    let beyond = nearest.abs() as u128 > value.unsigned_abs();
    f64::from_bits((nearest.to_bits() - u64::from(beyond)) | 1)
}

floats! {
    F8E4M3 8, |x| F8E4M3::to_f64(x), |v| F8E4M3::from_f64(v);
    F8E5M2 8, |x| F8E5M2::to_f64(x), |v| F8E5M2::from_f64(v);
    f16 16, |x| x.to_f64(), |v| f16_from_f64(v);
    bf16 16, |x| x.to_f64(), |v| bf16_from_f64(v);
    f32 32, |x| f64::from(x), |v| v as f32;
    f64 64, |x| x, |v| v;
}

/// Numbers from a seed, the same on every machine.
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    /// The next 64 bits (xorshift64*, Vigna 2016).
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// As Triton's tests draw them: integers of all values, floats of a normal distribution.
    pub fn element<T: Element>(&mut self) -> T {
        if T::IS_FLOAT {
            let (u, v) = (self.unit().max(1e-300), self.unit());
            T::from_f64((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos())
        } else {
            T::from_int(i128::from(self.bits() as i64))
        }
    }

    /// A list of those.
    pub fn elements<T: Element>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| self.element()).collect()
    }

    /// A list without zeros, for divisors.
    pub fn nonzero<T: Element>(&mut self, n: usize) -> Vec<T> {
        let one = |x: T| if x.to_f64() == 0.0 { T::from_int(1) } else { x };
        self.elements(n).into_iter().map(one).collect()
    }

    /// Small integers, whose sums are exact in every dtype.
    pub fn small<T: Element>(&mut self, n: usize, least: i128, most: i128) -> Vec<T> {
        let width = (most - least + 1) as u64;
        (0..n).map(|_| T::from_int(least + i128::from(self.below(width)))).collect()
    }
}

/// Each element must be the one that is wanted; NaN is NaN.
pub fn equal<T: Element>(got: &[T], want: &[T]) -> Outcome {
    compare(got, want, |a, b| a == b || (a.to_f64().is_nan() && b.to_f64().is_nan()))
}

/// Each element must be near the one that is wanted: `|got - want| <= absolute + relative * |want|`.
pub fn close<T: Element>(got: &[T], want: &[T], relative: f64, absolute: f64) -> Outcome {
    compare(got, want, |a, b| {
        let (a, b) = (a.to_f64(), b.to_f64());
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs()
    })
}

fn compare<T: Element>(got: &[T], want: &[T], same: impl Fn(T, T) -> bool) -> Outcome {
    if got.len() != want.len() {
        return Err(Failure(format!("{} elements, not {}", got.len(), want.len())));
    }
    match got.iter().zip(want).position(|(&a, &b)| !same(a, b)) {
        Some(at) => Err(Failure(format!("element {at} is {:?}, not {:?}", got[at], want[at]))),
        None => Ok(()),
    }
}

/// Calls a macro for each dtype of Triton's tests.
#[macro_export]
macro_rules! for_numbers {
    ($call:ident) => {
        $crate::for_integers!($call);
        $crate::for_floats!($call);
    };
}

/// Calls a macro for each integer dtype.
#[macro_export]
macro_rules! for_integers {
    ($call:ident) => {
        $call!(i8);
        $call!(i16);
        $call!(i32);
        $call!(i64);
        $call!(u8);
        $call!(u16);
        $call!(u32);
        $call!(u64);
    };
}

/// Calls a macro for each float dtype.
#[macro_export]
macro_rules! for_floats {
    ($call:ident) => {
        $call!(f16);
        $call!(bf16);
        $call!(f32);
        $call!(f64);
    };
}
