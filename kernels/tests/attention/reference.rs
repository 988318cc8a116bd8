//! Attention in f64, and how far a result may be from it.

use crate::common::{Random, Real};
use tilewright_kernels::attention::Attention;
use tilewright_kernels::{Context, Tensor};

/// A problem. Tensors are `[batch, heads, rows, d]`.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub d: usize,
    pub dv: usize,
    pub scale: f64,
    pub cap: Option<f64>,
    /// Keys seen before and after a query's own.
    pub window: Option<(usize, usize)>,
    pub causal: bool,
    pub bias: bool,
}

pub const PLAIN: Case = Case {
    batch: 2,
    heads: 2,
    kv_heads: 1,
    queries: 37,
    keys: 45,
    d: 16,
    dv: 16,
    scale: 0.25,
    cap: None,
    window: None,
    causal: false,
    bias: false,
};

impl Case {
    pub fn options(&self) -> Attention {
        let mut options = Attention::default().scale(self.scale);
        if self.causal {
            options = options.causal();
        }
        if let Some((left, right)) = self.window {
            options = options.window(left, right);
        }
        if let Some(cap) = self.cap {
            options = options.soft_cap(cap);
        }
        options
    }

    pub fn sees(&self, query: usize, key: usize) -> bool {
        let at = query as i64 + self.keys as i64 - self.queries as i64;
        let key = key as i64;
        let right = if self.causal { 0 } else { i64::MAX / 2 };
        let (left, right) = match self.window {
            Some((before, after)) => (before as i64, right.min(after as i64)),
            None => (i64::MAX / 2, right),
        };
        at - left <= key && key <= at + right
    }
}

/// Tensors of a problem and the same as f64.
pub struct Inputs<T: Real> {
    pub q: Tensor<T, 4>,
    pub k: Tensor<T, 4>,
    pub v: Tensor<T, 4>,
    pub bias: Option<Tensor<T, 4>>,
    pub reals: Reals,
}

#[derive(Clone)]
pub struct Reals {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub bias: Option<Vec<f64>>,
}

impl<T: Real> Inputs<T> {
    pub fn new(cx: &Context, case: &Case, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let Case { batch, heads, kv_heads, queries, keys, d, dv, .. } = *case;
        let (q, q_reals) = random.tensor::<T, 4>(cx, [batch, heads, queries, d]);
        let (k, k_reals) = random.tensor::<T, 4>(cx, [batch, kv_heads, keys, d]);
        let (v, v_reals) = random.tensor::<T, 4>(cx, [batch, kv_heads, keys, dv]);
        let (bias, bias_reals) = case.bias.then(|| random.tensor::<T, 4>(cx, [batch, heads, queries, keys])).unzip();
        Inputs { q, k, v, bias, reals: Reals { q: q_reals, k: k_reals, v: v_reals, bias: bias_reals } }
    }
}

/// What attention should give, and the errors that it may have before results are rounded.
pub struct Expected {
    pub out: Vec<f64>,
    pub out_bounds: Vec<f64>,
    pub lse: Vec<f64>,
    pub lse_bounds: Vec<f64>,
}

/// The relative error of a product of two elements: products of 16 bits are exact in f32, `tf32x3` drops what is below
/// 2^-20.
pub fn product_error<T: Real>() -> f64 {
    if T::ROUNDING == f32::ROUNDING { 2f64.powi(-20) } else { 0.0 }
}

/// The relative error of a sum of `terms` terms, of the sum of magnitudes: each addition rounds once, and tensor cores
/// truncate, which is two roundings. Of 8-bit floats Hopper adds up 32 products at a time, keeping 13 bits of the largest: that is
/// the loss of terms that are alike in size.
pub fn sum_error<T: Real>(terms: usize) -> f64 {
    let of_bytes = (terms as f64 / 32.0 + 2.0) * 2f64.powi(-12);
    2.0 * (terms as f64 + 8.0) * T::STEP + if size_of::<T>() == 1 { of_bytes } else { 0.0 }
}

/// The error of a weight's rounding: relative, and next to zero. Those of f32 and f64 are not rounded, those of 8 bits raised by
/// 2^8 before.
pub fn weight_rounding<T: Real>() -> (f64, f64) {
    if size_of::<T>() == 1 {
        return (T::ROUNDING, T::TINY / 256.0);
    }
    if T::ROUNDING > f32::ROUNDING { (T::ROUNDING, T::TINY) } else { (0.0, 0.0) }
}

/// One row's scores: what a query thinks of each key, and the error that this may have.
pub struct Scores {
    pub values: Vec<f64>,
    pub errors: Vec<f64>,
    /// The derivative of each by the product of query and key.
    pub slopes: Vec<f64>,
}

/// Offsets of rows.
pub fn row(case: &Case, batch: usize, head: usize, query: usize) -> usize {
    (batch * case.heads + head) * case.queries + query
}

pub fn key_row(case: &Case, batch: usize, head: usize, key: usize) -> usize {
    (batch * case.kv_heads + head / (case.heads / case.kv_heads)) * case.keys + key
}

pub fn scores<T: Real>(case: &Case, x: &Reals, (batch, head, query): (usize, usize, usize)) -> Scores {
    let d = case.d;
    let at = row(case, batch, head, query);
    let (mut values, mut errors, mut slopes) = (vec![], vec![], vec![]);
    for key in 0..case.keys {
        let of = key_row(case, batch, head, key);
        let terms = || x.q[at * d..(at + 1) * d].iter().zip(&x.k[of * d..(of + 1) * d]).map(|(q, k)| q * k);
        let size: f64 = terms().map(f64::abs).sum();
        let product: f64 = terms().sum();
        let mut error = case.scale * size * (product_error::<T>() + sum_error::<T>(d));
        let (mut value, mut slope) = (product * case.scale, case.scale);
        if let Some(cap) = case.cap {
            // `tanh` is within 6 units of the last place, its derivative is at most 1.
            value = cap * (value / cap).tanh();
            slope *= 1.0 - (value / cap).powi(2);
            error += cap * 16.0 * T::STEP;
        }
        if let Some(bias) = &x.bias {
            value += bias[at * case.keys + key];
        }
        error += 4.0 * T::STEP * value.abs();
        if !case.sees(query, key) {
            (value, error, slope) = (f64::NEG_INFINITY, 0.0, 0.0);
        }
        values.push(value);
        errors.push(error);
        slopes.push(slope);
    }
    Scores { values, errors, slopes }
}

/// The logarithm of the sum of exponentials.
pub fn log_sum(scores: &[f64]) -> f64 {
    let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if peak == f64::NEG_INFINITY {
        return peak;
    }
    peak + scores.iter().map(|s| (s - peak).exp()).sum::<f64>().ln()
}

/// The relative error of a row's weights: that of a score, absolutely, its distance from the peak (itself off by a few
/// roundings), and 4 units for `exp2` and the rescaling.
pub fn weight_error<T: Real>(scores: &Scores) -> f64 {
    let seen = || scores.values.iter().zip(&scores.errors).filter(|(s, _)| s.is_finite());
    let size = seen().map(|(s, _)| s.abs()).fold(0.0, f64::max);
    let error = seen().map(|(_, e)| *e).fold(0.0, f64::max);
    // Both a score and the peak that it is relative to.
    2.0 * error + (16.0 * size + 16.0) * T::STEP
}

pub fn expected<T: Real>(case: &Case, x: &Reals) -> Expected {
    let mut expected = Expected { out: vec![], out_bounds: vec![], lse: vec![], lse_bounds: vec![] };
    for (batch, head, query) in rows(case) {
        let scores = scores::<T>(case, x, (batch, head, query));
        let lse = log_sum(&scores.values);
        let error = weight_error::<T>(&scores);
        let (relative, tiny) = weight_rounding::<T>();
        for column in 0..case.dv {
            let (mut sum, mut size, mut all) = (0.0, 0.0, 0.0);
            for key in (0..case.keys).filter(|key| scores.values[*key].is_finite()) {
                let v = x.v[key_row(case, batch, head, key) * case.dv + column];
                let weight = (scores.values[key] - lse).exp();
                sum += weight * v;
                size += weight * v.abs();
                all += v.abs();
            }
            expected.out.push(sum);
            // Numerator and denominator are off by the weights' errors; the largest weight is 1 before the division.
            let errors = 2.0 * (error + sum_error::<T>(case.keys)) + relative + product_error::<T>();
            expected.out_bounds.push(size * errors + all * tiny);
        }
        expected.lse.push(lse);
        let finite = if lse.is_finite() { lse.abs() } else { 0.0 };
        expected.lse_bounds.push(error + sum_error::<T>(case.keys) + (8.0 * finite + 8.0) * T::STEP);
    }
    expected
}

/// All rows of queries: batch, head, query.
pub fn rows(case: &Case) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let Case { batch, heads, queries, .. } = *case;
    (0..batch).flat_map(move |b| (0..heads).flat_map(move |h| (0..queries).map(move |i| (b, h, i))))
}

/// The inputs of a backward pass beside those of the forward pass.
pub struct Upstream {
    pub out: Vec<f64>,
    pub lse: Vec<f64>,
    pub dout: Vec<f64>,
    pub dlse: Option<Vec<f64>>,
}

/// Gradients that should be, and the errors that they may have before they are rounded.
pub struct ExpectedGradients {
    pub dq: Vec<f64>,
    pub dq_bounds: Vec<f64>,
    pub dk: Vec<f64>,
    pub dk_bounds: Vec<f64>,
    pub dv: Vec<f64>,
    pub dv_bounds: Vec<f64>,
}

/// The gradients from the `out` and `lse` that are given.
pub fn expected_gradients<T: Real>(case: &Case, x: &Reals, up: &Upstream) -> ExpectedGradients {
    let (d, dv) = (case.d, case.dv);
    let zeros = |like: &Vec<f64>| vec![0.0; like.len()];
    let mut want = ExpectedGradients {
        dq: zeros(&x.q),
        dq_bounds: zeros(&x.q),
        dk: zeros(&x.k),
        dk_bounds: zeros(&x.k),
        dv: zeros(&x.v),
        dv_bounds: zeros(&x.v),
    };
    let (relative, tiny) = weight_rounding::<T>();
    let keys_error = product_error::<T>() + sum_error::<T>(case.keys);
    let queries_error = product_error::<T>() + sum_error::<T>(case.queries * case.heads / case.kv_heads);
    for (batch, head, query) in rows(case) {
        let at = row(case, batch, head, query);
        let scores = scores::<T>(case, x, (batch, head, query));
        let lse = up.lse[at];
        if lse == f64::NEG_INFINITY {
            continue;
        }
        let dout = &up.dout[at * dv..(at + 1) * dv];
        let products = |other: &[f64]| -> (f64, f64) {
            let terms = || dout.iter().zip(other).map(|(a, b)| a * b);
            (terms().sum(), terms().map(f64::abs).sum())
        };
        let (mut delta, delta_size) = products(&up.out[at * dv..(at + 1) * dv]);
        let mut delta_error = delta_size * sum_error::<T>(dv);
        if let Some(dlse) = &up.dlse {
            delta -= dlse[at];
            // Both are kept in f32.
            delta_error += 4.0 * f32::ROUNDING * dlse[at].abs();
        }
        delta_error += 4.0 * f32::ROUNDING * delta.abs();
        // That of the scores, and of the logarithm that is kept to base 2 in f32.
        let weight_error = weight_error::<T>(&scores) + 4.0 * f32::ROUNDING * (lse.abs() + 1.0);
        for key in (0..case.keys).filter(|key| scores.values[*key].is_finite()) {
            let of = key_row(case, batch, head, key);
            let weight = (scores.values[key] - lse).exp();
            let (dweight, size) = products(&x.v[of * dv..(of + 1) * dv]);
            let dweight_error = size * (product_error::<T>() + sum_error::<T>(dv));
            let bend = scores.slopes[key] / case.scale;
            let dscore = weight * (dweight - delta) * bend;
            let mut dscore_error = weight * (dweight_error + delta_error) * bend;
            dscore_error += dscore.abs() * (weight_error + 8.0 * T::STEP);
            // The slope of `tanh` is off by twice its error.
            dscore_error += weight * (dweight - delta).abs() * if case.cap.is_some() { 32.0 * T::STEP } else { 0.0 };
            let dscore_error = dscore_error + (dscore.abs() + dscore_error) * relative + tiny;
            for (column, g) in dout.iter().enumerate() {
                let to = of * dv + column;
                want.dv[to] += weight * g;
                want.dv_bounds[to] += g.abs() * (weight * (weight_error + relative + queries_error) + tiny);
            }
            for column in 0..d {
                let (q_at, k_at) = (at * d + column, of * d + column);
                let (q, k) = (x.q[q_at], x.k[k_at]);
                want.dq[q_at] += case.scale * dscore * k;
                want.dk[k_at] += case.scale * dscore * q;
                want.dq_bounds[q_at] += case.scale * k.abs() * (dscore_error + dscore.abs() * keys_error);
                want.dk_bounds[k_at] += case.scale * q.abs() * (dscore_error + dscore.abs() * queries_error);
            }
        }
    }
    want
}
