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
    const WORTH_IT: f64 = 0.995;
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    let (wins, rounds) = (ratios.iter().filter(|ratio| **ratio < 1.0).count() as f64, ratios.len() as f64);
    wins >= rounds / 2.0 + rounds.sqrt() && median(&mut ratios) < WORTH_IT
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
