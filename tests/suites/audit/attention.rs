//! Attention, forward and backward, whose products are in flight beside what an iteration computes and over its end: with
//! no, one, and odd numbers of iterations, and ends on the diagonal.

use tilewright::prelude::*;
use tilewright_tests::attention::*;
use tilewright_tests::devices::check;

/// A power of two, so that scores of small integers are exact.
const SCALE: f32 = 0.125;

/// Small integers for `q`, `k`, `v` and `dout`, of which row `i` begins at `i * depth`.
struct Numbers {
    depth: usize,
    all: [Vec<i32>; 4],
}

/// What attention of them is, with what the absolute values of its terms add up to.
struct Wanted {
    out: Vec<f64>,
    lse: Vec<f64>,
    delta: Vec<f64>,
    dq: Vec<[f64; 2]>,
    dk: Vec<[f64; 2]>,
    dv: Vec<[f64; 2]>,
}

impl Numbers {
    fn new(rows: usize, depth: usize) -> Numbers {
        let hash = |i: usize, salt: usize| (i.wrapping_add(salt * 7919).wrapping_mul(2_654_435_769) >> 13) % 1021;
        let all = [1, 2, 3, 4].map(|salt| (0..rows * depth).map(|i| hash(i, salt) as i32 % 5 - 2).collect());
        Numbers { depth, all }
    }

    fn product(&self, [a, b]: [usize; 2], i: usize, j: usize) -> f64 {
        let at = |of: usize, row: usize, d: usize| self.all[of][row * self.depth + d];
        (0..self.depth).map(|d| f64::from(at(a, i, d) * at(b, j, d))).sum()
    }

    /// The weights of `len` keys for `rows` rows, and all that follows.
    fn wanted(&self, rows: usize, len: usize, causal: bool) -> Wanted {
        let depth = self.depth;
        let number = |of: usize, i: usize, d: usize| f64::from(self.all[of][i * depth + d]);
        let seen = |i: usize, j: usize| !causal || j <= i;
        let score = |i: usize, j: usize| self.product([0, 1], i, j) * f64::from(SCALE);
        let lse =
            |i: usize| -> f64 { (0..len).filter(|&j| seen(i, j)).map(|j| score(i, j).exp2()).sum::<f64>().log2() };
        let lse: Vec<f64> = (0..rows).map(lse).collect();
        let p = |i: usize, j: usize| if seen(i, j) { (score(i, j) - lse[i]).exp2() } else { 0.0 };
        let weights: Vec<f64> = (0..rows * len).map(|at| p(at / len, at % len)).collect();
        let sum = |terms: &dyn Fn(usize) -> f64, count: usize| -> [f64; 2] {
            (0..count).map(terms).fold([0.0; 2], |[sum, size], term| [sum + term, size + term.abs()])
        };
        let tile = |rows: usize, count: usize, term: &dyn Fn(usize, usize, usize) -> f64| -> Vec<[f64; 2]> {
            (0..rows * depth).map(|at| sum(&|k| term(at / depth, k, at % depth), count)).collect()
        };
        let out: Vec<f64> =
            tile(rows, len, &|i, j, d| weights[i * len + j] * number(2, j, d)).iter().map(|x| x[0]).collect();
        let delta: Vec<f64> =
            (0..rows).map(|i| (0..depth).map(|d| out[i * depth + d] * number(3, i, d)).sum()).collect();
        let ds: Vec<f64> = (0..rows * len)
            .map(|at| weights[at] * (self.product([3, 2], at / len, at % len) - delta[at / len]))
            .collect();
        Wanted {
            dq: tile(rows, len, &|i, j, d| ds[i * len + j] * number(1, j, d)),
            dk: tile(len, rows, &|j, i, d| ds[i * len + j] * number(0, i, d)),
            dv: tile(len, rows, &|j, i, d| weights[i * len + j] * number(3, i, d)),
            out,
            lse,
            delta,
        }
    }
}

/// Weights and gradients of scores are rounded to f16, which are off by 2^-11 of themselves or by half of the least
/// number, 2^-25; all else is f32, a hundred times as exact.
fn near(what: &str, found: &[f32], wanted: &[[f64; 2]], most: f64, count: usize) {
    for (at, (&found, &[value, size])) in found.iter().zip(wanted).enumerate() {
        let bound = size / 1024.0 + most * count as f64 / f64::from(1 << 24);
        assert!((f64::from(found) - value).abs() <= bound, "{what}: {found} at {at}, not {value} within {bound}");
    }
}

/// Launches a call for which a GPU has room.
macro_rules! launch {
    ($call:expr, $device:expr) => {{
        let call = $call;
        call.compile(Target::sm_90a())?;
        call.launch($device)?;
    }};
}

/// One launch of each kernel with `len` keys, of rows and keys in blocks of `M` and `N`.
macro_rules! run {
    ($device:expr, $d:literal, $m:literal, $n:literal, $warps:literal, $stages:literal, $len:expr, [$forward:ident $skewed:ident $keys:ident $rows:ident], $causal:literal) => {{
        let (len, rows): (usize, usize) = ($len, if $causal { $len } else { 2 * $m });
        let all = len.max(rows).max($m).max($n);
        let numbers = Numbers::new(all, $d);
        let wanted = numbers.wanted(rows, len, $causal);
        let what = format!(
            "{}/{}/{} of {len} keys, causal {}, {} warps, {} stages, on {}",
            $d, $m, $n, $causal, $warps, $stages, $device
        );
        let upload =
            |values: &[i32]| $device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let [q, k, v, dout] = &numbers.all;
        let (q, k, v, dout) = (upload(q)?, upload(k)?, upload(v)?, upload(dout)?);
        let (qs, dos) = (TensorDesc::new(&q, [all, $d])?, TensorDesc::new(&dout, [all, $d])?);
        let (ks, vs) = (TensorDesc::new(&k, [all, $d])?, TensorDesc::new(&v, [all, $d])?);
        let floats = |values: &[f64]| $device.upload(&values.iter().map(|&x| x as f32).collect::<Vec<f32>>());
        let sizes: Vec<[f64; 2]> = wanted.out.iter().map(|&x| [x, 2.0]).collect();
        let forward = |what: &str, out: &[f32], sums: &[f32]| {
            if len == 0 {
                return assert!(out.iter().all(|x| x.is_nan()), "{what}: nothing over nothing");
            }
            near(what, out, &sizes, 2.0, len);
            for (sum, wanted) in sums.iter().zip(&wanted.lse) {
                assert!((f64::from(*sum) - wanted).abs() < 1e-4, "{what}: {sum}, not {wanted}");
            }
        };
        let (mut out, mut lse) = (device_zeros($device, rows * $d)?, device_zeros($device, rows)?);
        let call = $forward::<f16, $d, $m, $n, $causal>(&qs, &ks, &vs, &mut out, &mut lse, len as i32, SCALE);
        launch!(call.grid(rows / $m).num_warps($warps).num_stages($stages), $device);
        forward(&format!("forward {what}"), &out.to_vec()?, &lse.to_vec()?);
        if !$causal && len > 0 {
            let call = $skewed::<f16, $d, $m, $n>(&qs, &ks, &vs, &mut out, &mut lse, len as i32, SCALE);
            launch!(call.grid(rows / $m).num_warps($warps).num_stages($stages), $device);
            forward(&format!("skewed {what}"), &out.to_vec()?, &lse.to_vec()?);
        }
        if len > 0 || !$causal {
            let (sums, deltas) = (floats(&wanted.lse)?, floats(&wanted.delta)?);
            let mut dq = device_zeros($device, rows * $d)?;
            let call =
                $rows::<f16, $d, $m, $n, $causal>(&qs, &ks, &vs, &dos, &sums, &deltas, &mut dq, len as i32, SCALE);
            launch!(call.grid(rows / $m).num_warps($warps).num_stages($stages), $device);
            near(&format!("rows {what}"), &dq.to_vec()?, &wanted.dq, 2.0, len);
        }
        if len > 0 {
            // As many rows as there are in `lse`; keys in blocks of `N`.
            let (sums, deltas) = (floats(&wanted.lse)?, floats(&wanted.delta)?);
            let (mut dk, mut dv) = (device_zeros($device, len * $d)?, device_zeros($device, len * $d)?);
            let call = $keys::<f16, $d, $m, $n, $causal>(
                &qs,
                &ks,
                &vs,
                &dos,
                &sums,
                &deltas,
                &mut dk,
                &mut dv,
                rows as i32,
                SCALE,
            );
            launch!(call.grid(len / $n).num_warps($warps).num_stages($stages), $device);
            near(&format!("keys {what}"), &dk.to_vec()?, &wanted.dk, 2.0, rows);
            near(&format!("values {what}"), &dv.to_vec()?, &wanted.dv, 2.0, rows);
        }
    }};
}

fn device_zeros(device: &Device, count: usize) -> Result<Buffer<f32>, Error> {
    device.zeros::<f32>(count)
}

macro_rules! divided {
    ($device:expr, $($d:literal $m:literal $n:literal $warps:literal $stages:literal [$($len:expr),*] $causal:literal;)*) => {$(
        for len in [$($len),*] {
            run!($device, $d, $m, $n, $warps, $stages, len, [forward_divided skewed_divided keys_backward_divided rows_backward_divided], $causal);
        }
    )*};
}

macro_rules! both {
    ($device:expr, $($d:literal $m:literal $n:literal $warps:literal $stages:literal [$($len:expr),*] $causal:literal;)*) => {$(
        for len in [$($len),*] {
            run!($device, $d, $m, $n, $warps, $stages, len, [forward skewed keys_backward rows_backward], $causal);
            run!($device, $d, $m, $n, $warps, $stages, len, [forward_divided skewed_divided keys_backward_divided rows_backward_divided], $causal);
        }
    )*};
}

#[test]
fn attention_of_few_and_odd_numbers_of_iterations() {
    check(|device| {
        both!(device,
            64 64 64 4 2 [0, 64, 192] false;
            64 64 32 4 3 [0, 32, 160] false;
            128 64 64 4 2 [64, 320] false;
        );
        divided!(device, 128 64 128 8 2 [128, 384] false;);
        Ok(())
    });
}

#[test]
fn attention_that_ends_on_the_diagonal() {
    check(|device| {
        both!(device,
            64 64 64 4 2 [64, 192] true;
            64 128 64 8 3 [128, 384] true;
            128 64 32 4 3 [64, 192] true;
        );
        Ok(())
    });
}
