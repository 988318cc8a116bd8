//! Contests of matrix products: `c = a @ b`, everybody interleaved on the same matrices.
//!
//! Every configuration of every contender is checked twice before it is timed: on small integers, where it must give
//! the exact sums rounded once, and on normally distributed numbers, where it must stay within a bound that follows
//! from the terms. Outputs are poisoned before each check. The best configuration of each contender then runs in turn
//! with the others, and ratios are medians over the rounds of the ratio within a round.
//!
//! | module | what it has |
//! |---|---|
//! | [`bench`](mod@bench) | holds contests: modes, filters, tuning, timing |
//! | `check` | whether results are right |
//! | [`data`] | operands and references, computed by all cores in f64 |
//! | [`ladder`] | what each step from a naive kernel to the fastest gains |
//! | [`peers`] | Triton's kernels, cuBLAS and cuBLASLt as contenders |
//! | [`outcome`] | results as CSV and tables |
//! | [`plot`] | results as pictures |

pub mod bench;
mod check;
pub mod data;
pub mod ladder;
pub mod outcome;
pub mod peers;
pub mod plot;

use std::fmt;

use kernel_core::num::F8E4M3;
use tilewright::prelude::*;
use tilewright::{View, ViewMut};

use crate::cublas::{Compute, Problem, Type};
use crate::element::Element;
use crate::{Failure, How};

/// The sizes of a product, and what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// Which row of the targets it belongs to.
    pub group: Group,
    /// How many products, one after the other in memory.
    pub batch: usize,
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Columns of `b` and `c`.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
}

/// Kinds of products, each with its own target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Large, all sizes equal, or 8192 × 8192 with a `k` of its own.
    Large,
    /// A few microseconds.
    Small,
    /// Few rows: limited by reading `b`.
    Skinny,
    /// Operands of one byte.
    Bytes,
    /// f32, multiplied as tf32.
    Singles,
    /// Several products at once.
    Batched,
    /// Tiles that are not a multiple of the multiprocessors.
    Uneven,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 7] =
        [Group::Large, Group::Small, Group::Skinny, Group::Bytes, Group::Singles, Group::Batched, Group::Uneven];

    /// Its name in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Group::Large => "large",
            Group::Small => "small",
            Group::Skinny => "skinny",
            Group::Bytes => "fp8",
            Group::Singles => "tf32",
            Group::Batched => "batched",
            Group::Uneven => "uneven",
        }
    }
}

impl Product {
    /// One product.
    pub const fn new(group: Group, m: usize, n: usize, k: usize) -> Product {
        Product { group, batch: 1, m, n, k }
    }

    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        2.0 * (self.batch * self.m) as f64 * self.n as f64 * self.k as f64
    }

    /// Elements of `a`, of `b` and of `c`.
    pub fn lens(&self) -> [usize; 3] {
        [self.m * self.k, self.k * self.n, self.m * self.n].map(|len| len * self.batch)
    }

    /// Bytes that it must read and write at least.
    pub fn bytes<T: Factor>(&self) -> f64 {
        let [a, b, c] = self.lens();
        ((a + b) * size_of::<T>() + c * size_of::<T::Result>()) as f64
    }

    /// As cuBLAS is told.
    pub fn problem<T: Factor>(&self) -> Problem {
        let Product { m, n, k, batch, .. } = *self;
        let (operand, result, compute) = (T::TYPE, T::RESULT, T::COMPUTE);
        Problem { m, n, k, batch, b_k_major: T::B_K_MAJOR, operand, result, compute }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batch != 1 {
            write!(f, "{}*", self.batch)?;
        }
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}

/// A dtype of operands.
pub trait Factor: DType {
    /// The dtype of the result.
    type Result: Element;
    /// Its name in results and in the index of the peers.
    const NAME: &'static str;
    /// Whether `b` is stored as its transpose, so that both operands are contiguous along `k`.
    const B_K_MAJOR: bool;
    /// Operands of exact checks are integers of at most this size.
    const EXACT: i32;
    /// The operands' type for cuBLAS.
    const TYPE: Type;
    /// The result's.
    const RESULT: Type;
    /// What cuBLAS may do.
    const COMPUTE: Compute;

    /// The nearest number.
    fn from_f32(value: f32) -> Self;
    /// The same number.
    fn to_f64(self) -> f64;
    /// How far a sum of `k` products may be off, relative to the sum of their absolute values.
    fn growth(k: usize) -> f64;
}

/// The unit roundoff of f32.
const SINGLE: f64 = 1.0 / (1u64 << 24) as f64;

/// `γ_k = k u / (1 - k u)` for tensor cores, which truncate where others round: `u` is twice that of f32.
fn gamma(k: usize) -> f64 {
    let ku = k as f64 * 2.0 * SINGLE;
    ku / (1.0 - ku)
}

impl Factor for f16 {
    type Result = f16;
    const NAME: &'static str = "f16";
    const B_K_MAJOR: bool = false;
    const EXACT: i32 = 2;
    const TYPE: Type = Type::F16;
    const RESULT: Type = Type::F16;
    const COMPUTE: Compute = Compute::F32;

    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }

    fn growth(k: usize) -> f64 {
        gamma(k)
    }
}

impl Factor for bf16 {
    type Result = bf16;
    const NAME: &'static str = "bf16";
    const B_K_MAJOR: bool = false;
    const EXACT: i32 = 2;
    const TYPE: Type = Type::Bf16;
    const RESULT: Type = Type::Bf16;
    const COMPUTE: Compute = Compute::F32;

    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }

    fn growth(k: usize) -> f64 {
        gamma(k)
    }
}

impl Factor for f32 {
    type Result = f32;
    const NAME: &'static str = "f32";
    const B_K_MAJOR: bool = true;
    const EXACT: i32 = 2;
    const TYPE: Type = Type::F32;
    const RESULT: Type = Type::F32;
    const COMPUTE: Compute = Compute::Tf32;

    fn from_f32(value: f32) -> f32 {
        value
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn growth(k: usize) -> f64 {
        // The hardware reads f32 as tf32 by dropping the bits after the tenth, in both factors.
        let input = 1.0 / f64::from(1 << 10);
        gamma(k) + 2.0 * input + input * input
    }
}

impl Factor for F8E4M3 {
    type Result = f16;
    const NAME: &'static str = "f8e4m3";
    const B_K_MAJOR: bool = true;
    // Sums of up to 2^13 of such products are exact in the 13 bits that the hardware keeps between its steps.
    const EXACT: i32 = 1;
    const TYPE: Type = Type::F8E4M3;
    const RESULT: Type = Type::F16;
    const COMPUTE: Compute = Compute::F32;

    fn from_f32(value: f32) -> F8E4M3 {
        F8E4M3::from_f32(value)
    }

    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }

    fn growth(k: usize) -> f64 {
        // Each of the k products and of the k / 32 partial sums loses less than 2^-13 of the largest term of its step,
        // which is at most the sum of absolute values.
        (k + k.div_ceil(32)) as f64 / f64::from(1 << 13)
    }
}

/// Where everybody reads and writes.
pub struct Operands<'a, T: Factor> {
    /// `[batch, m, k]`
    pub a: View<'a, T>,
    /// `[batch, k, n]`, or `[batch, n, k]`
    pub b: View<'a, T>,
    /// `[batch, m, n]`
    pub c: ViewMut<'a, T::Result>,
}

/// One way to multiply.
pub type Launch<'a, T> = Box<dyn FnMut(&How<'_>, &mut Operands<'_, T>) -> Result<(), Failure> + 'a>;

/// Somebody who multiplies, in one or more configurations.
pub struct Contender<'a, T: Factor> {
    /// Such as `triton persistent`.
    pub name: &'static str,
    /// Configurations with a description each.
    pub configs: Vec<(String, Launch<'a, T>)>,
    /// The bytes that it moves if it does something else than multiply, so that its result is not looked at.
    pub moves: Option<f64>,
    /// Whether it must be right on integers: cuBLAS may round partial sums of a row that it splits.
    pub exact: bool,
}

impl<'a, T: Factor> Contender<'a, T> {
    /// Somebody without configurations so far.
    pub fn new(name: &'static str) -> Contender<'a, T> {
        Contender { name, configs: Vec::new(), moves: None, exact: true }
    }

    /// Adds a configuration.
    pub fn config(
        &mut self,
        name: String,
        launch: impl FnMut(&How<'_>, &mut Operands<'_, T>) -> Result<(), Failure> + 'a,
    ) {
        self.configs.push((name, Box::new(launch)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_counts_its_work() {
        let product = Product { batch: 3, ..Product::new(Group::Batched, 2, 5, 7) };
        assert_eq!((product.flops(), product.lens()), (420.0, [42, 105, 30]));
        assert_eq!(product.bytes::<f16>(), 2.0 * 177.0);
        assert_eq!(product.to_string(), "3*2x5x7");
    }

    #[test]
    fn bounds_grow_with_the_terms() {
        let tf32 = <f32 as Factor>::growth(64);
        assert!(
            <f16 as Factor>::growth(64) < <f16 as Factor>::growth(128) && tf32 > 2.0 / 1024.0 && tf32 < 2.1 / 1024.0
        );
    }
}
