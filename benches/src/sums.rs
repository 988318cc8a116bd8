//! How far long sums of products may be off that a device adds up in f32.

use crate::data::Tolerance;
use crate::element::Element;

/// A sum of products on the host, in the order of the device, and how large it was on the way.
///
/// What one addition in f32 loses is relative to the sum at that time, which for numbers of both signs is much less than the sum
/// of their absolute values: of 32,768 products of normal numbers about 300 and 20,000. So a bound from the latter would not see
/// that a block of products is missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningSum {
    sum: f64,
    /// The least and the greatest that the sum was.
    least: f64,
    greatest: f64,
    /// The largest product, by its absolute value.
    largest: f64,
    count: usize,
}

impl RunningSum {
    /// Adds a product.
    pub fn add(&mut self, product: f64) {
        self.sum += product;
        self.least = self.least.min(self.sum);
        self.greatest = self.greatest.max(self.sum);
        self.largest = self.largest.max(product.abs());
        self.count += 1;
    }

    /// The sum of all.
    pub fn value(&self) -> f64 {
        self.sum
    }

    /// How far the same sum in f32 is off at the most: `count * 2^-24 * size`.
    ///
    /// `size` is the largest that anything to be added is: no sum of products that follow each other is more than the range of
    /// this one, wherever a device begins, so this holds too where parts of the sum are made apart and added up later. To it
    /// comes the largest product.
    ///
    /// A CPU adds product after product, and rounds each time: by `2^-24 * size` at the most, `count` times.
    ///
    /// `wgmma` adds 16 products of 16 bits and the sum so far at once. It aligns these 17 to the largest of them, drops what is
    /// below the last place, and drops again what f32 has no room for, which is less than `2^-23 * size`. NVIDIA does not say how
    /// many places it keeps. Assumed are two more than f32 has, as was found on an H100 (Khattak and Mikaitis, "Accurate Models of
    /// NVIDIA Tensor Cores", 2025): then each of the 17 loses less than `2^-25 * size`, and a step of 16 products less than
    /// `(17 / 4 + 1) * 2^-23 * size`, which is 10.5 times `2^-24 * size`, not 16 times. The difference is more than what the
    /// additions of parts lose, of which there are fewer than steps.
    pub fn lost(&self) -> f64 {
        let size = (self.greatest - self.least) + self.largest;
        self.count as f64 * size / f64::from(1 << 24)
    }

    /// What is admitted of results `T` that are such sums, rounded once.
    pub fn tolerance<'s, T: Element>(sums: impl IntoIterator<Item = &'s RunningSum>) -> Tolerance {
        let lost = sums.into_iter().map(RunningSum::lost).fold(0.0, f64::max);
        Tolerance { relative: T::HALF_ULP, absolute: (1.0 + T::HALF_ULP) * lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::normal;
    use kernel_core::ir::DType;
    use kernel_core::num;
    use tilewright::prelude::f16;

    /// Products that an instruction adds.
    const STEP: usize = 16;
    /// Products of an iteration of the library's kernels, or half as many.
    const BLOCK: usize = 64;

    /// What is left of a number whose places below `2^place` are dropped.
    fn cut(number: f64, place: i32) -> f64 {
        let unit = 2f64.powi(place);
        (number / unit).trunc() * unit
    }

    /// The exponent of a number, by which others are aligned to it.
    fn exponent(number: f64) -> i32 {
        if number == 0.0 { -126 } else { number.abs().log2().floor() as i32 }
    }

    /// A sum as the hardware is assumed to make it.
    fn stepwise(products: &[f64]) -> f64 {
        products.chunks(STEP).fold(0.0, |sum, step| {
            let terms = || step.iter().copied().chain([sum]);
            let place = terms().map(exponent).max().unwrap_or(0) - 25;
            let sum: f64 = terms().map(|term| cut(term, place)).sum();
            cut(sum, exponent(sum) - 23)
        })
    }

    fn products(seed: u64, count: usize) -> Vec<f64> {
        let number = |x: f32| f16::from_f32(x).to_f64();
        let (a, b) = (normal(seed, count), normal(seed + 1000, count));
        a.into_iter().zip(b).map(|(a, b)| number(a) * number(b)).collect()
    }

    fn running(products: &[f64]) -> RunningSum {
        let mut sum = RunningSum::default();
        products.iter().for_each(|product| sum.add(*product));
        sum
    }

    #[test]
    fn sums_of_every_device_are_admitted_and_a_missing_block_is_not() {
        for count in [1024, 4096, 32_768] {
            let mut seen = 0;
            for seed in 0..24 {
                let all = products(seed, count);
                let want = running(&all);
                let tolerance = RunningSum::tolerance::<f16>([&want]);
                let admits = |sum: f64| tolerance.admits(num::round(sum, DType::F16), want.value());
                assert!(admits(stepwise(&all)), "{count} products of {seed} by the tensor cores");
                let (front, back) = all.split_at(count / 4 + STEP);
                assert!(admits(stepwise(front) + stepwise(back)), "{count} products of {seed} in two parts");
                let one_by_one = all.iter().fold(0f32, |sum, product| sum + *product as f32);
                assert!(admits(f64::from(one_by_one)), "{count} products of {seed} one by one");
                // A block that is not there, from the middle.
                let mut fewer = all.clone();
                fewer.drain(count / 2..count / 2 + BLOCK);
                seen += usize::from(!admits(stepwise(&fewer)));
            }
            assert!(seen >= 18, "a missing block of {count} products is seen in {seen} of 24 elements");
        }
    }

    /// Sums that only grow, of products whose last places are always dropped, are off by a sixth of the bound: a much smaller one
    /// would not hold for all.
    #[test]
    fn bad_sums_are_near_the_bound() {
        let all = vec![1.0 + 2f64.powi(-14) - 2f64.powi(-20); 4096];
        let sum = running(&all);
        let off = sum.value() - stepwise(&all);
        assert!(off <= sum.lost() && off > sum.lost() / 8.0, "{off} of {}", sum.lost());
    }
}
