//! Products whose left factor stays in registers from iteration to iteration of a loop, beside others whose factors
//! do not.
//!
//! ptxas up to 13.0 gives two such factors one register where control takes several ways between their products
//! (`lower/held_factors.rs` of the code generator). So every kernel here has a condition between them, and is run where
//! there is a GPU; everywhere the code that ptxas makes of it is looked at.

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::factors::check_sass;

/// The products of all kernels are exact: sums of few small integers.
pub(crate) const KEYS: usize = 256;
pub(crate) const ROWS: usize = 128;

/// `out = p * v`, where `p` is `x * k`, without what lies above the diagonal if `MASKED`, and `x` is the result of a
/// product before the loop, in the layout of a left factor.
macro_rules! masked {
    ($name:ident, $kind:ident, $sum:ident) => {
        #[kernel]
        fn $name<T: $kind, const D: usize, const M: usize, const N: usize, const MASKED: bool>(
            q: TensorDesc<T, { [M, D] }>,
            k: TensorDesc<T, { [N, D] }>,
            v: TensorDesc<T, { [N, D] }>,
            out: PtrMut<$sum>,
            len: i32,
        ) {
            let first = program_id(0) * M;
            let i = first + arange(0, M);
            let one = (arange(0, D)[(.., None)] == arange(0, D)) as i32 as T;
            let x = dot(q.load([first, 0]), one) as T;
            let mut acc = zeros::<$sum>([M, D]);
            for start in (0..len).step_by(N) {
                let mut s = dot(x, k.load([start, 0]).trans());
                if MASKED {
                    if start + N > first {
                        s = select(i[(.., None)] >= start + arange(0, N), s, 0 as $sum);
                    }
                }
                acc = dot(s as T, v.load([start, 0]), acc = acc);
            }
            store(out + i[(.., None)] * D + arange(0, D), acc);
        }
    };
}
masked!(masked, Float, f32);
masked!(masked_integers, Int, i32);

/// The same with two factors that outlive the iterations, in a loop of any of these kinds.
macro_rules! looped {
    ($name:ident, |$x:ident, $y:ident, $k:ident, $v:ident, $i:ident, $acc:ident, $len:ident, $flag:ident| { $($body:tt)* }) => {
        #[kernel]
        #[allow(unused_variables, reason = "not every loop has both factors")]
        fn $name<const D: usize, const M: usize, const N: usize>(
            q: TensorDesc<f16, { [M, D] }>,
            $k: TensorDesc<f16, { [N, D] }>,
            $v: TensorDesc<f16, { [N, D] }>,
            out: PtrMut<f32>,
            $len: i32,
            $flag: i32,
        ) {
            let first = program_id(0) * M;
            let $i = first + arange(0, M);
            let unit = arange(0, D)[(.., None)] == arange(0, D);
            let $x = dot(q.load([first, 0]), unit as i32 as f16) as f16;
            let $y = dot(q.load([first, 0]), -(unit as i32) as f16) as f16;
            let mut $acc = zeros::<f32>([M, D]);
            $($body)*
            store(out + $i[(.., None)] * D + arange(0, D), $acc);
        }
    };
}
looped!(both, |x, y, k, v, i, acc, len, flag| {
    for start in (0..len).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        let t = dot(y, k.load([start, 0]).trans(), acc = s + s);
        acc = dot(t as f16, v.load([start, 0]), acc = acc);
    }
});
looped!(nested, |x, y, k, v, i, acc, len, flag| {
    for outer in (0..len).step_by(2 * N) {
        let z = (x + y + x) * (2 * outer / len + 1 - outer / (len / 2)) as f16;
        for start in (outer..outer + 2 * N).step_by(N) {
            let mut s = dot(z, k.load([start, 0]).trans());
            if start + N > flag {
                s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
            }
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
});
looped!(whiled, |x, y, k, v, i, acc, len, flag| {
    let mut start = 0;
    while start < len {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
        start += N;
    }
});
looped!(chosen, |x, y, k, v, i, acc, len, flag| {
    for start in (0..len).step_by(N) {
        let z = if flag < 0 { y } else { x };
        let mut s = dot(z, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});
looped!(divided, |x, y, k, v, i, acc, len, flag| {
    #[warp_specialize]
    for start in (0..len).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});
looped!(carried, |x, y, k, v, i, acc, len, flag| {
    let mut p = zeros::<f16>([M, N]);
    for start in (0..len).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(p, v.load([start - N, 0]), acc = acc);
        p = s as f16;
    }
    acc = dot(p, v.load([len - N, 0]), acc = acc);
});

/// Factors of small integers: of a row of `k` seven numbers count, so that no score exceeds 7.
pub(crate) struct Numbers {
    pub(crate) q: Vec<i32>,
    pub(crate) k: Vec<i32>,
    pub(crate) v: Vec<i32>,
}

impl Numbers {
    pub(crate) fn new(depth: usize) -> Numbers {
        let hash = |i: usize, salt: usize| (i.wrapping_add(salt * 7919).wrapping_mul(2_654_435_769) >> 13) % 1021;
        let sparse =
            |i: usize| if (i % depth + 5 * (i / depth)) % depth < 7 { hash(i, 2) as i32 % 2 * 2 - 1 } else { 0 };
        Numbers {
            q: (0..ROWS * depth).map(|i| hash(i, 1) as i32 % 3 - 1).collect(),
            k: (0..KEYS * depth).map(sparse).collect(),
            v: (0..KEYS * depth).map(|i| hash(i, 3) as i32 % 5 - 2).collect(),
        }
    }

    /// What the kernels compute: `above` times the scores above the diagonal, of keys in iterations that end behind
    /// `flag`.
    pub(crate) fn sums(&self, depth: usize, iteration: usize, flag: usize, above: i32) -> Vec<f64> {
        let score = |i: usize, j: usize| {
            let score: i32 = (0..depth).map(|d| self.q[i * depth + d] * self.k[j * depth + d]).sum();
            let is_masked = (j / iteration + 1) * iteration > flag && j > i;
            if is_masked { above * score } else { score }
        };
        let row = |i: usize| {
            let scores: Vec<i32> = (0..KEYS).map(|j| score(i, j)).collect();
            let sum = |d: usize| (0..KEYS).map(|j| scores[j] * self.v[j * depth + d]).sum::<i32>();
            (0..depth).map(|d| f64::from(sum(d))).collect::<Vec<f64>>()
        };
        (0..ROWS).flat_map(row).collect()
    }
}

/// Looks at what ptxas makes of a kernel, with `wgmma` and with `mma.sync`.
fn look(what: &str, compile: &dyn Fn(Target) -> Result<CompiledKernel, Error>) -> Result<(), Error> {
    for target in [Target::sm_90a(), Target::sm_80()] {
        let checked = check_sass(compile(target)?.ptx(), target.name());
        checked.unwrap_or_else(|error| panic!("{what} on {}: {error}", target.name()));
    }
    Ok(())
}

/// Runs a kernel on a device, and looks at its code once.
macro_rules! run {
    ($device:expr, $kernel:ident::<$($T:ident,)? [$D:literal, $M:literal, $N:literal] $(, $masked:literal)?>, $warps:literal,
     $element:ty, $of:expr, $sum:ty, [$($more:expr),*], ($flag:expr, $above:expr)) => {{
        let numbers = Numbers::new($D);
        let upload = |values: &[i32]| $device.upload(&values.iter().map(|&x| $of(x)).collect::<Vec<$element>>());
        let (q, k, v) = (upload(&numbers.q)?, upload(&numbers.k)?, upload(&numbers.v)?);
        let q = TensorDesc::new(&q, [ROWS, $D])?;
        let (k, v) = (TensorDesc::new(&k, [KEYS, $D])?, TensorDesc::new(&v, [KEYS, $D])?);
        let mut out = $device.zeros::<$sum>(ROWS * $D)?;
        let what = format!("{} of {} {}x{}x{}, {} warps", stringify!($kernel), stringify!($element), $M, $N, $D, $warps);
        let call = $kernel::<$($T,)? $D, $M, $N $(, $masked)?>(&q, &k, &v, &mut out, KEYS as i32 $(, $more)*);
        let call = call.grid(ROWS / $M).num_warps($warps).num_stages(2);
        if !$device.is_cuda() {
            look(&what, &|target| call.compile(target))?;
        }
        call.launch($device)?;
        let found: Vec<f64> = out.to_vec()?.into_iter().map(f64::from).collect();
        assert!(found == numbers.sums($D, $N, $flag, $above), "{what} on {}", $device);
    }};
}

macro_rules! run_masked {
    ($device:expr, $kernel:ident, $T:ident, $of:expr, $sum:ty, $masked:literal,
     $([$D:literal, $M:literal, $N:literal, $warps:literal])*) => {
        $(run!($device, $kernel::<$T, [$D, $M, $N], $masked>, $warps, $T, $of, $sum, [], (0, i32::from(!$masked)));)*
    };
}

#[test]
fn a_factor_from_before_the_loop_in_halves() {
    check(|device| {
        let of = |x: i32| f16::from_f32(x as f32);
        run_masked!(device, masked, f16, of, f32, true, [64, 64, 64, 4] [64, 64, 32, 4] [128, 64, 128, 4]);
        run_masked!(device, masked, f16, of, f32, true, [128, 128, 128, 8] [64, 128, 64, 8] [16, 64, 16, 4]);
        run_masked!(device, masked, f16, of, f32, false, [64, 64, 64, 4]);
        let of = |x: i32| bf16::from_f32(x as f32);
        run_masked!(device, masked, bf16, of, f32, true, [64, 64, 64, 4]);
        Ok(())
    });
}

#[test]
fn a_factor_from_before_the_loop_in_other_dtypes() {
    check(|device| {
        run_masked!(device, masked, f32, |x: i32| x as f32, f32, true, [64, 64, 64, 4]);
        let of = |x: i32| F8E4M3::from_f32(x as f32);
        run_masked!(device, masked, F8E4M3, of, f32, true, [128, 128, 128, 8]);
        run_masked!(device, masked_integers, i8, |x: i32| x as i8, i32, true, [64, 64, 64, 4]);
        Ok(())
    });
}

macro_rules! run_loops {
    ($device:expr, [$D:literal, $M:literal, $N:literal, $warps:literal], $($kernel:ident $above:literal)*) => {
        $(
            let of = |x: i32| f16::from_f32(x as f32);
            run!($device, $kernel::<[$D, $M, $N]>, $warps, f16, of, f32, [128], (128, $above));
        )*
    };
}

#[test]
fn factors_from_before_loops_of_every_kind() {
    check(|device| {
        run_loops!(device, [64, 64, 64, 4], both -1 nested 0 whiled 0 chosen 0 divided 0 carried 0);
        run_loops!(device, [128, 128, 128, 8], both -1 nested 0 divided 0);
        Ok(())
    });
}

/// Attention whose left factor `x` is the result of a product before the loop.
#[kernel]
fn eye<const D: usize, const M: usize, const N: usize, const CAUSAL: bool>(
    q: TensorDesc<f16, { [M, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    v: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
    lse: PtrMut<f32>,
    len: i32,
    scale: f32,
) {
    let block = program_id(0);
    let i = block * M + arange(0, M);
    let one = (arange(0, D)[(.., None)] == arange(0, D)) as i32 as f16;
    let x = dot(q.load([block * M, 0]), one) as f16;
    let mut m = full([M], f32::NEG_INFINITY);
    let mut l = zeros::<f32>([M]);
    let mut acc = zeros::<f32>([M, D]);
    let end = if CAUSAL { (block + 1) * M } else { len };
    for start in (0..end).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if CAUSAL {
            if start + N > block * M {
                s = select(i[(.., None)] >= start + arange(0, N), s, f32::NEG_INFINITY);
            }
        }
        let top = maximum(m, max(s, axis = 1) * scale);
        let p = exp2(s * scale - top[(.., None)]);
        let alpha = exp2(m - top);
        l = l * alpha + sum(p, axis = 1);
        acc *= alpha[(.., None)];
        acc = dot(p as f16, v.load([start, 0]), acc = acc);
        m = top;
    }
    store(lse + i, m + log2(l));
    store(out + i[(.., None)] * D + arange(0, D), acc / l[(.., None)]);
}

const LEN: usize = 256;
const SCALE: f32 = 0.18;

/// A row of attention in f64: what goes out, and the logarithm of the sum.
fn attention([q, k, v]: &[Vec<f16>; 3], depth: usize, row: usize, causal: bool) -> (Vec<f64>, f64) {
    let keys = if causal { row + 1 } else { LEN };
    let at = |values: &[f16], row: usize, d: usize| values[row * depth + d].to_f64();
    let score = |j: usize| f64::from(SCALE) * (0..depth).map(|d| at(q, row, d) * at(k, j, d)).sum::<f64>();
    let scores: Vec<f64> = (0..keys).map(score).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let p: Vec<f64> = scores.iter().map(|score| (score - top).exp2()).collect();
    let sum: f64 = p.iter().sum();
    let out = (0..depth).map(|d| p.iter().enumerate().map(|(j, p)| p * at(v, j, d)).sum::<f64>() / sum);
    (out.collect(), top + sum.log2())
}

/// Each weight is rounded to f16 once, by 2^-11 of itself, and numbers of `v` are below 2: that is 2^-10 of the mean.
/// The scores, below 92, are f32 with an error below 2^-17, which their powers and sums share: far below another
/// 2^-10.
const MEAN_ERROR: f64 = 1.0 / 512.0;
/// The logarithm has the error of the scores, and those of sums of up to 256 numbers in f32.
const LOG_ERROR: f64 = 1.0 / 8192.0;

fn run_eye<const D: usize, const N: usize, const CAUSAL: bool>(device: &Device) -> Result<(), Error> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        f16::from_f32((state >> 16) as f32 / 16384.0 - 2.0)
    };
    let host = [(); 3].map(|()| (0..LEN * D).map(|_| next()).collect::<Vec<f16>>());
    let (q, k, v) = (device.upload(&host[0])?, device.upload(&host[1])?, device.upload(&host[2])?);
    let (q, k, v) = (TensorDesc::new(&q, [LEN, D])?, TensorDesc::new(&k, [LEN, D])?, TensorDesc::new(&v, [LEN, D])?);
    let (mut out, mut lse) = (device.zeros::<f32>(LEN * D)?, device.zeros::<f32>(LEN)?);
    let what = format!("attention {D} deep, {N} keys in an iteration, causal {CAUSAL}");
    let call = eye::<D, 64, N, CAUSAL>(&q, &k, &v, &mut out, &mut lse, LEN as i32, SCALE).grid(LEN / 64).num_warps(4);
    if !device.is_cuda() {
        look(&what, &|target| call.compile(target))?;
    }
    call.launch(device)?;
    let (out, lse) = (out.to_vec()?, lse.to_vec()?);
    for row in 0..LEN {
        let (means, log) = attention(&host, D, row, CAUSAL);
        let found = &out[row * D..(row + 1) * D];
        let worst = means.iter().zip(found).map(|(want, &got)| (want - f64::from(got)).abs()).fold(0.0, f64::max);
        assert!(worst <= MEAN_ERROR, "{what} on {device}: row {row} differs by {worst}");
        let error = (log - f64::from(lse[row])).abs();
        assert!(error <= LOG_ERROR, "{what} on {device}: the logarithm of row {row} differs by {error}");
    }
    Ok(())
}

#[test]
fn attention_whose_left_factor_is_a_product() {
    check(|device| {
        run_eye::<64, 64, true>(device)?;
        run_eye::<64, 64, false>(device)?;
        run_eye::<64, 32, true>(device)?;
        run_eye::<64, 128, true>(device)?;
        run_eye::<128, 64, true>(device)?;
        run_eye::<128, 128, true>(device)
    });
}
