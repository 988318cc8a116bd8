//! Products of factors that are made of others: split into bf16 terms, or multiplied by scales that elements share.
//!
//! # Split factors
//!
//! A number x of f32 is `hi + mid + lo`: hi is x rounded to bf16, mid is what that leaves rounded to bf16, lo the rest.
//! What is left is exact in f32 each time, |mid| <= 2^-8 |x| and |lo| <= 2^-17 |x|, and lo, which has six bits, is a bf16.
//! So a product x y without the terms
//!
//! | precision | leaves out | at most |
//! |---|---|---|
//! | `bf16x3` | mid mid', and all with lo or lo' | (2^-16 + 2 * 2^-17 + 2^-34) \|x y\| |
//! | `bf16x6` | mid lo', lo mid', lo lo' | (2 * 2^-25 + 2^-34) \|x y\| |
//!
//! as long as no term is below 2^-133, the smallest bf16: what is smaller counts as zero. Numbers of more than 3.39e38,
//! the largest bf16, count as infinite.
//!
//! # Scaled factors
//!
//! [`SCALE_BLOCK`] neighbours along K of a factor have one scale. Scales lie in tiles of `u8`, `[.., M, K / 32]` for `a` and
//! `[.., N, K / 32]` for `b`, in the format e8m0: s stands for 2^(s - 127), and 255 for NaN.

use super::dim::{Atom, Dim};
use super::dtype::DType;
use super::func::Func;
use super::infer_dot::show_shape;
use super::names::{DotPrecision, FactorFormat, ScaledFactors};
use super::needs::{Result, data, fail};
use super::types::{Dt, Ty};

/// How many neighbours along K share a scale.
pub const SCALE_BLOCK: i64 = 32;

/// The numbers of e2m1 by their lower three bits; the fourth is the sign.
pub const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The number that a scale stands for.
pub fn e8m0(scale: u8) -> f32 {
    match scale {
        // The one below the normal numbers.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(scale) << 23),
    }
}

/// A product of f32 as products of bf16 terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Into how many terms each factor is split, the largest first.
    pub terms: usize,
    /// The small products, by the numbers of their terms, in the order in which they are summed. A sum that is NaN
    /// counts as zero: infinities times zero, or less each other, are no part of the product.
    pub small: &'static [(usize, usize)],
}

impl DotPrecision {
    /// How factors of f32 are split into bf16; `None` where they are not. To the small products that of the first terms is
    /// added, and then the accumulator.
    pub fn split(self) -> Option<Split> {
        match self {
            DotPrecision::Tf32 | DotPrecision::Tf32x3 | DotPrecision::Ieee => None,
            DotPrecision::Bf16x3 => Some(Split { terms: 2, small: &[(1, 0), (0, 1)] }),
            DotPrecision::Bf16x6 => Some(Split { terms: 3, small: &[(1, 1), (2, 0), (0, 2), (1, 0), (0, 1)] }),
        }
    }
}

impl FactorFormat {
    /// How many neighbours along K one element of the tile holds.
    pub fn pack(self) -> i64 {
        match self {
            FactorFormat::Own => 1,
            FactorFormat::E2m1 => 2,
        }
    }

    /// The dtypes of the tile that holds such a factor.
    pub fn dtypes(self) -> &'static [DType] {
        match self {
            FactorFormat::Own => &[DType::F8E4M3, DType::F8E5M2, DType::BF16, DType::F16],
            FactorFormat::E2m1 => &[DType::U8],
        }
    }
}

impl ScaledFactors {
    /// The one for factors with and without scales.
    pub fn of(a: bool, b: bool) -> ScaledFactors {
        match (a, b) {
            (true, true) => ScaledFactors::Both,
            (true, false) => ScaledFactors::Left,
            (false, true) => ScaledFactors::Right,
            (false, false) => ScaledFactors::Neither,
        }
    }

    /// Whether `a` has a scale, and `b`.
    pub fn has(self) -> [bool; 2] {
        match self {
            ScaledFactors::Both => [true, true],
            ScaledFactors::Left => [true, false],
            ScaledFactors::Right => [false, true],
            ScaledFactors::Neither => [false, false],
        }
    }

    /// The scale of each factor, of an operation's scales in their order.
    pub fn pair<T: Copy>(self, scales: &[T]) -> [Option<T>; 2] {
        let mut scales = scales.iter().copied();
        self.has().map(|has| if has { scales.next() } else { None })
    }
}

/// The dtype in which scaled factors of these dtypes are multiplied; `None` for f16 and bf16, which have none in common.
pub fn scaled_dtype(a: DType, b: DType) -> Option<DType> {
    match (a, b) {
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => None,
        (DType::F16, _) | (_, DType::F16) => Some(DType::F16),
        _ => Some(DType::BF16),
    }
}

/// Whether `a` elements of which each stands for `pack_a` are as many as `b` of which each stands for `pack_b`. A dimension
/// that is a quotient leaves no rest, as dimensions are powers of two.
pub fn same_extent((a, pack_a): (&Dim, i64), (b, pack_b): (&Dim, i64)) -> bool {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => i128::from(a) * i128::from(pack_a) == i128::from(b) * i128::from(pack_b),
        _ => {
            let (a, b) = (Extent::of(a, pack_a), Extent::of(b, pack_b));
            a.base == b.base && a.times.checked_mul(b.over) == b.times.checked_mul(a.over)
        }
    }
}

/// `base * times / over`.
struct Extent {
    base: Dim,
    times: i64,
    over: i64,
}

impl Extent {
    fn of(dim: &Dim, pack: i64) -> Extent {
        let mut extent = Extent { base: dim.clone(), times: pack, over: 1 };
        while let Some(next) = extent.step() {
            extent = next;
        }
        extent
    }

    /// The same with a number taken out of the base.
    fn step(&self) -> Option<Extent> {
        let Dim::Poly(poly) = &self.base else {
            let number = self.base.as_const().filter(|&number| number != 1)?;
            return Some(Extent { base: Dim::Const(1), times: self.times.checked_mul(number)?, over: self.over });
        };
        if let [(atoms, 1)] = poly.terms.as_slice()
            && let [Atom::Div(whole, by)] = atoms.as_slice()
        {
            let over = self.over.checked_mul(by.as_const()?)?;
            return Some(Extent { base: whole.clone(), times: self.times, over });
        }
        let common = poly.terms.iter().fold(0, |common, (_, factor)| gcd(common, *factor));
        if common <= 1 {
            return None;
        }
        let base = self.base.div(&Dim::Const(common)).ok()?;
        Some(Extent { base, times: self.times.checked_mul(common)?, over: self.over })
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.checked_abs().unwrap_or(1) } else { gcd(b, a % b) }
}

/// The rule of `dot_scaled`.
pub(super) fn infer(func: &Func, formats: [FactorFormat; 2], scaled: ScaledFactors, tys: &[&Ty]) -> Result<Vec<Ty>> {
    let [a, b, acc, scales @ ..] = tys else { return fail("a product has two factors and an accumulator") };
    let has = scaled.has();
    if scales.len() != has.iter().filter(|has| **has).count() {
        return fail(format!("`{}` of the factors have scales, but there are {} of them", scaled.name(), scales.len()));
    }
    dtypes(func, [data(a)?, data(b)?], formats)?;
    if data(acc)? != Dt::from(DType::F32) {
        return fail("a scaled product accumulates in f32");
    }
    let shapes = [&a.shape, &b.shape, &acc.shape].map(Vec::as_slice);
    let [[batch @ .., m, k_a], [batch_b @ .., k_b, n], [batch_acc @ .., rows, columns]] = shapes else {
        return fail("factors and accumulator have one rank of at least 2");
    };
    let extents = [(k_a, formats[0].pack()), (k_b, formats[1].pack())];
    let shown = || format!("{} times {}", show_shape(func, &a.shape), show_shape(func, &b.shape));
    if !same_extent(extents[0], extents[1]) {
        return fail(format!("the inner dimensions differ: {}", shown()));
    }
    if batch != batch_b {
        return fail(format!("the batches differ: {}", shown()));
    }
    if batch_acc != batch || [rows, columns] != [m, n] {
        return fail(format!("the accumulator {} does not fit {}", show_shape(func, &acc.shape), shown()));
    }
    for (scale, lines) in scaled.pair(scales).into_iter().zip([m, n]) {
        let Some(scale) = scale else { continue };
        if data(scale)? != Dt::from(DType::U8) {
            return fail("scales are u8, in the format e8m0");
        }
        let fits = match scale.shape.as_slice() {
            [own @ .., own_lines, blocks] => own == batch && own_lines == lines && is_blocks(blocks, extents),
            _ => false,
        };
        if !fits {
            let found = show_shape(func, &scale.shape);
            return fail(format!("{found} are no scales of 32 elements each along K of {}", shown()));
        }
    }
    Ok(vec![(*acc).clone()])
}

/// Whether there are as many scales along K as blocks of the factors, of which each element holds several numbers.
pub fn is_blocks(blocks: &Dim, extents: [(&Dim, i64); 2]) -> bool {
    extents.into_iter().any(|extent| same_extent((blocks, SCALE_BLOCK), extent))
}

/// Whether some dtypes that the factors can have are multiplied. Binding decides.
fn dtypes(func: &Func, dts: [Dt; 2], formats: [FactorFormat; 2]) -> Result<()> {
    let [a, b] = [0, 1].map(|i| scaled_candidates(func, dts[i], formats[i]));
    if a.is_empty() || b.is_empty() {
        return fail("factors with scales are f8e4m3, f8e5m2, bf16 or f16, or e2m1 in u8");
    }
    let same = |x: &DType, y: &DType| dts[0] != dts[1] || x == y;
    if a.iter().any(|x| b.iter().any(|y| same(x, y) && scaled_dtype(*x, *y).is_some())) {
        return Ok(());
    }
    fail("one factor is f16 and the other bf16; a matrix product takes one dtype")
}

/// The dtypes that a scaled factor of this format can have.
pub fn scaled_candidates(func: &Func, dt: Dt, format: FactorFormat) -> Vec<DType> {
    let all = format.dtypes().iter().copied();
    match dt {
        Dt::Known(dtype) => all.filter(|d| *d == dtype).collect(),
        Dt::Param(id) => {
            let bound = func.dtype_params[id.index()].bound;
            all.filter(|d| bound.admits(*d)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::ConstId;
    use super::*;

    #[test]
    fn scales_are_powers_of_two() {
        for scale in 0..=254u8 {
            assert_eq!(f64::from(e8m0(scale)), f64::powi(2.0, i32::from(scale) - 127), "{scale}");
        }
        assert!(e8m0(255).is_nan());
    }

    #[test]
    fn extents_are_compared_whatever_they_are_written_as() {
        let (k, two) = (Dim::param(ConstId::new(0)), Dim::Const(2));
        let over = |n: i64| k.div(&Dim::Const(n)).unwrap();
        let times = |n: i64| k.mul(&Dim::Const(n)).unwrap();
        assert!(same_extent((&over(32), 32), (&k, 1)));
        assert!(same_extent((&over(32), 32), (&over(2), 2)));
        assert!(same_extent((&over(2).div(&Dim::Const(16)).unwrap(), 32), (&over(2), 2)));
        assert!(same_extent((&k, 32), (&times(32), 1)));
        assert!(same_extent((&k, 32), (&times(16), 2)));
        assert!(!same_extent((&over(16), 32), (&k, 1)));
        assert!(!same_extent((&k, 1), (&k, 2)));
        assert!(!same_extent((&k.add(&two).unwrap(), 1), (&k, 1)));
        assert!(same_extent((&Dim::Const(4), 32), (&Dim::Const(64), 2)));
        assert!(!same_extent((&Dim::Const(4), 32), (&Dim::Const(64), 1)));
        assert!(!same_extent((&k, 1), (&Dim::Const(64), 1)));
    }

    #[test]
    fn what_a_split_leaves_out_is_small() {
        use half::bf16;
        let split = |x: f32| {
            let hi = bf16::from_f32(x).to_f32();
            let mid = bf16::from_f32(x - hi).to_f32();
            [hi, mid, bf16::from_f32(x - hi - mid).to_f32()]
        };
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // From 2^-100 to 2^100.
            let x = f32::from_bits((bits >> 31 << 31) | ((27 + (bits >> 8) % 200) << 23) | (bits & 0x7f_ffff));
            let [hi, mid, lo] = split(x).map(f64::from);
            let size = f64::from(x).abs();
            assert_eq!(hi + mid + lo, f64::from(x));
            assert!(mid.abs() <= size * f64::powi(2.0, -8) && lo.abs() <= size * f64::powi(2.0, -17), "{x}");
        }
    }
}
