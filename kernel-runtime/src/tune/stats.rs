//! What repeated times say.

/// The median; sorts its argument. `NaN` of nothing.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile at `at`, from 0 to 1, between neighbours linearly; sorts its argument. `NaN` of nothing.
pub fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let place = at.clamp(0.0, 1.0) * last as f64;
    let (below, share) = (place.floor() as usize, place.fract());
    let above = values[(below + 1).min(last)];
    values[below] + (above - values[below]) * share
}

/// Whether `a` is faster than `b` beyond noise, of paired runs: it wins so many rounds that chance alone would do so in less
/// than one of forty cases (two standard deviations of fair coins), and the median round is faster by half a percent.
pub fn is_faster(a: &[f64], b: &[f64]) -> bool {
    is_fastest_faster(a, 1, b)
}

/// As [`is_faster`], where `a` is the fastest of so many, one of which is the luckiest: chance alone would let any of them win
/// in less than one of forty cases. (The tail of the normal distribution beyond the root of `z² + 2 ln n` is less than one
/// `n`-th of that beyond `z`.)
pub fn is_fastest_faster(a: &[f64], of: usize, b: &[f64]) -> bool {
    const WORTH_IT: f64 = 0.995;
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    let (wins, rounds) = (ratios.iter().filter(|ratio| **ratio < 1.0).count() as f64, ratios.len() as f64);
    let beyond = beyond_chance(of).sqrt();
    wins >= rounds / 2.0 + beyond * rounds.sqrt() / 2.0 && median(&mut ratios) < WORTH_IT
}

/// The fewest rounds in which the fastest of so many can be faster than another one beyond noise: where it wins all of them.
pub fn least_rounds(of: usize) -> usize {
    // From `rounds >= rounds / 2 + beyond * rounds.sqrt() / 2`.
    beyond_chance(of).ceil() as usize
}

/// How many standard deviations the fastest of so many must be away from chance, squared.
fn beyond_chance(of: usize) -> f64 {
    /// Standard deviations.
    const BEYOND_CHANCE: f64 = 2.0;
    BEYOND_CHANCE.powi(2) + 2.0 * (of.max(1) as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let mut values = [4.0, 1.0, 2.0, 3.0];
        assert_eq!((median(&mut values), quantile(&mut values, 0.0), quantile(&mut values, 1.0)), (2.5, 1.0, 4.0));
        assert_eq!(quantile(&mut values, 0.2), 1.6);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn the_luckiest_of_many_must_win_more_often() {
        let (slow, mut fast) = ([1.0; 31], [0.99; 31]);
        // 15.5 + 2 * 5.57 / 2 = 21.07 wins of 31 for one, and 23.45 for one of eight.
        fast[..9].fill(1.01);
        assert!(is_faster(&fast, &slow) && !is_fastest_faster(&fast, 8, &slow));
        fast[..2].fill(0.99);
        assert!(is_fastest_faster(&fast, 8, &slow), "24 wins");
    }

    #[test]
    fn one_that_always_wins_does_so_in_the_fewest_rounds() {
        assert_eq!([1, 2, 7, 8, 16].map(least_rounds), [4, 6, 8, 9, 10]);
        for of in 1..40 {
            let rounds = least_rounds(of);
            let wins = |rounds: usize| is_fastest_faster(&vec![0.9; rounds], of, &vec![1.0; rounds]);
            assert!(wins(rounds) && !wins(rounds - 1), "{of}");
        }
    }

    #[test]
    fn noise_is_not_faster() {
        let slow = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.99, 1.01];
        let fast = slow.map(|ms| ms * 0.97);
        assert!(is_faster(&fast, &slow) && !is_faster(&slow, &fast));
        assert!(!is_faster(&slow, &slow));
        let tiny = slow.map(|ms| ms * 0.999);
        assert!(!is_faster(&tiny, &slow), "a thousandth is not worth another configuration");
        let mut mixed = slow;
        mixed.reverse();
        assert!(!is_faster(&mixed, &slow));
    }
}
