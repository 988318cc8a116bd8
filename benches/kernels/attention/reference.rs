//! Rows of attention and of its gradients in f64, and how far results may be from them.

use tilewright_bench::Failure;
use tilewright_bench::data::{Input, Segment, sampled};
use tilewright_bench::element::Element;

/// The size of a contest.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Heads of all batches.
    pub heads: usize,
    pub length: usize,
    pub d: usize,
    pub causal: bool,
}

impl Size {
    pub fn len(self) -> usize {
        self.heads * self.length * self.d
    }

    pub fn scale(self) -> f64 {
        1.0 / (self.d as f64).sqrt()
    }

    pub fn sees(self, query: usize, key: usize) -> bool {
        !self.causal || key <= query
    }

    /// Operations of the forward pass.
    pub fn flops(self) -> f64 {
        let all = 4.0 * (self.heads * self.length * self.length * self.d) as f64;
        if self.causal { all / 2.0 } else { all }
    }

    /// Heads and rows that are compared with a reference.
    pub fn sample(self) -> Vec<(usize, usize)> {
        let heads = if self.heads > 1 { vec![0, self.heads - 1] } else { vec![0] };
        heads.into_iter().flat_map(|head| sampled(self.length).into_iter().map(move |row| (head, row))).collect()
    }

    /// The relative error of sums in f32: each addition rounds once, and tensor cores truncate, which is two roundings.
    fn arithmetic(self) -> f64 {
        2.0 * (self.length + self.d + 64) as f64 / (1u64 << 24) as f64
    }
}

/// Segments of a result, and the largest error that one of their elements may have before it is rounded.
#[derive(Default)]
pub struct Rows {
    pub segments: Vec<Segment>,
    pub error: f64,
}

impl Rows {
    fn push(&mut self, at: usize, values: Vec<f64>, errors: Vec<f64>) {
        self.error = errors.into_iter().fold(self.error, f64::max);
        self.segments.push(Segment { at, values });
    }
}

/// A head of the inputs.
pub struct Head {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Head {
    pub fn read<T: Element>(size: Size, head: usize, [q, k, v]: [&Input<T>; 3]) -> Result<Head, Failure> {
        let len = size.length * size.d;
        let part = |x: &Input<T>| x.read(head * len, len);
        Ok(Head { q: part(q)?, k: part(k)?, v: part(v)? })
    }
}

fn of(x: &[f64], row: usize, d: usize) -> &[f64] {
    &x[row * d..(row + 1) * d]
}

fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (a, b)| (sum + a * b, size + (a * b).abs()))
}

/// Results and logarithms of sums.
pub fn forward<T: Element>(size: Size, x: [&Input<T>; 3]) -> Result<(Rows, Rows), Failure> {
    let (mut out, mut lse) = (Rows::default(), Rows::default());
    let mut known: Option<(usize, Head)> = None;
    for (head, row) in size.sample() {
        if known.as_ref().is_none_or(|(known, _)| *known != head) {
            known = Some((head, Head::read(size, head, x)?));
        }
        let Some((_, x)) = &known else { continue };
        let keys: Vec<usize> = (0..size.length).filter(|key| size.sees(row, *key)).collect();
        let scores: Vec<(f64, f64)> =
            keys.iter().map(|key| dot(of(&x.q, row, size.d), of(&x.k, *key, size.d))).collect();
        let peak = scores.iter().map(|s| s.0 * size.scale()).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|s| (s.0 * size.scale() - peak).exp()).sum();
        let widest = scores.iter().map(|s| s.1 * size.scale()).fold(0.0, f64::max);
        // A score, absolutely, is a weight, relatively.
        let score = 2.0 * widest * 2.0 * (size.d + 16) as f64 / (1u64 << 24) as f64;
        let (mut sums, mut sizes) = (vec![0.0; size.d], vec![0.0; size.d]);
        for (key, (product, _)) in keys.iter().zip(&scores) {
            let weight = (product * size.scale() - peak).exp() / total;
            for ((sum, all), v) in sums.iter_mut().zip(&mut sizes).zip(of(&x.v, *key, size.d)) {
                *sum += weight * v;
                *all += weight * v.abs();
            }
        }
        let relative = T::HALF_ULP + 2.0 * (score + size.arithmetic());
        let at = head * size.length + row;
        out.push(at * size.d, sums, sizes.iter().map(|size| size * relative).collect());
        lse.push(at, vec![peak + total.ln()], vec![score + size.arithmetic()]);
    }
    Ok((out, lse))
}

/// What the backward pass is given for one head beside its inputs.
pub struct Upstream {
    pub out: Vec<f64>,
    pub lse: Vec<f64>,
    pub dout: Vec<f64>,
}

/// Gradients of sampled rows: those of queries, keys and values.
pub fn backward<T: Element>(
    size: Size,
    x: [&Input<T>; 3],
    upstream: impl Fn(usize) -> Result<Upstream, Failure>,
) -> Result<[Rows; 3], Failure> {
    let [mut dq, mut dk, mut dv] = [Rows::default(), Rows::default(), Rows::default()];
    let mut known: Option<(usize, Head, Upstream)> = None;
    for (head, row) in size.sample() {
        if known.as_ref().is_none_or(|(known, ..)| *known != head) {
            known = Some((head, Head::read(size, head, x)?, upstream(head)?));
        }
        let Some((_, x, up)) = &known else { continue };
        let at = (head * size.length + row) * size.d;
        let relative = 3.0 * T::HALF_ULP + 4.0 * size.arithmetic();
        // Weight, its gradient and that one's error, of a query and a key.
        let pair = |query: usize, key: usize| {
            let (product, _) = dot(of(&x.q, query, size.d), of(&x.k, key, size.d));
            let weight = (product * size.scale() - up.lse[query]).exp();
            let (dweight, wide) = dot(of(&up.dout, query, size.d), of(&x.v, key, size.d));
            let (delta, deep) = dot(of(&up.dout, query, size.d), of(&up.out, query, size.d));
            let gradient = weight * (dweight - delta);
            (weight, gradient, gradient.abs() * relative + weight * (wide + deep) * size.arithmetic())
        };
        let (mut sums, mut errors) = (vec![0.0; size.d], vec![0.0; size.d]);
        for key in (0..size.length).filter(|key| size.sees(row, *key)) {
            let (_, gradient, error) = pair(row, key);
            for ((sum, all), k) in sums.iter_mut().zip(&mut errors).zip(of(&x.k, key, size.d)) {
                *sum += size.scale() * gradient * k;
                *all += size.scale() * error * k.abs();
            }
        }
        dq.push(at, sums, errors);
        let [mut k_sums, mut k_errors, mut v_sums, mut v_errors] = [(); 4].map(|()| vec![0.0; size.d]);
        for query in (0..size.length).filter(|query| size.sees(*query, row)) {
            let (weight, gradient, error) = pair(query, row);
            for column in 0..size.d {
                let (q, g) = (of(&x.q, query, size.d)[column], of(&up.dout, query, size.d)[column]);
                k_sums[column] += size.scale() * gradient * q;
                k_errors[column] += size.scale() * error * q.abs();
                v_sums[column] += weight * g;
                v_errors[column] += weight * g.abs() * relative;
            }
        }
        dk.push(at, k_sums, k_errors);
        dv.push(at, v_sums, v_errors);
    }
    Ok([dq, dk, dv])
}
