//! What the reference lists, used once each as it says.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use crate::{close, numbers};

/// Sums and differences of pairs of halves, by one instruction for two of them.
#[kernel]
fn packed_halves<const N: usize>(x: Ptr<f16>, y: Ptr<f16>, sums: PtrMut<f16>, differences: PtrMut<f16>) {
    let at = program_id(0) * N + arange(0, N);
    let (sum, difference) = inline_ptx(
        "add.rn.f16x2 $0, $2, $3;
         sub.rn.f16x2 $1, $2, $3;",
        load(x + at),
        load(y + at),
        pack = 2,
        |a, b| (a + b, a - b),
    );
    store(sums + at, sum);
    store(differences + at, difference);
}

/// The greatest of four bytes at a time, with a register of its own.
#[kernel]
fn greatest_bytes<const N: usize>(x: Ptr<u8>, limit: u8, out: PtrMut<u8>) {
    let at = arange(0, N);
    let greater = inline_ptx(
        "{ .reg .b32 zero;
           mov.u32 zero, 0;
           vmax4.u32.u32.u32 $0, $1, $2, zero; }",
        load(x + at),
        limit,
        pack = 4,
        |a, b| maximum(a, b),
    );
    store(out + at, greater);
}

/// How long each point of the plane stays near zero.
#[kernel]
fn mandelbrot<const BLOCK: usize = 256>(out: PtrMut<i32>, width: i32, height: i32, limit: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let x = (i % width) as f32 * (3.0 / (width - 1) as f32) - 2.0;
    let y = (i / width) as f32 * (2.0 / (height - 1) as f32) - 1.0;
    let steps = map_elementwise(x, y, |cx, cy| {
        let (mut a, mut b) = (0.0_f32, 0.0_f32);
        for step in 0..limit {
            if a * a + b * b > 4.0 {
                return step;
            }
            (a, b) = (a * a - b * b + cx, 2.0 * a * b + cy);
        }
        limit
    });
    store(out + i, steps, mask = i < width * height);
}

/// Columns of a matrix from a descriptor that the kernel makes, turned.
#[kernel]
fn turned<T: Num, const M: usize, const N: usize>(x: Ptr<T>, out: PtrMut<T>, rows: i32, columns: i32) {
    let from = tensor_desc(x, [rows, columns], [columns, 1], [M, N]);
    let to = tensor_desc(out, [columns, rows], [rows, 1], [N, M]);
    let (row, column) = (program_id(0) * M, program_id(1) * N);
    to.store([column, row], trans(from.load([row, column])));
}

/// A step that may be launched before the one before it has ended.
#[kernel(max_registers = 64)]
fn relaxed<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let at = |shift| load(x + clamp(i + shift, 0, n - 1), mask = i < n);
    store(out + i, 0.25 * at(-1) + 0.5 * at(0) + 0.25 * at(1), mask = i < n);
}

/// Says what it does, and how long it takes.
#[kernel]
fn watched<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, times: PtrMut<i64>, who: PtrMut<i32>) {
    let (start, begun) = (clock(), globaltimer());
    let v = load(x + arange(0, N));
    let total = sum(v);
    if program_id(0) == 0 {
        println!("total = {}, as it is: {:?} {{{}}}", total, total, total > 0.0);
    }
    store(out, total);
    store(times, clock() - start);
    store(times + 1, globaltimer() - begun);
    store(who, smid());
}

/// Programs count themselves in; the last one adds up.
#[kernel(flush = true)]
fn gathered<const BLOCK: usize>(x: Ptr<f32>, parts: PtrMut<f32>, done: PtrMut<i32>, out: PtrMut<f32>, n: i32) {
    let (p, programs) = (program_id(0), num_programs(0));
    let i = p * BLOCK + arange(0, BLOCK);
    store(parts + p, sum(exp(load(x + i, mask = i < n, other = f32::NEG_INFINITY))));
    if atomic_add(done, 1) == programs - 1 {
        let j = arange(0, BLOCK);
        let all = atomic_load(parts + j, mask = j < programs, order = relaxed);
        store(out, log(sum(all)));
        atomic_store(done, 0, order = relaxed);
    }
}

/// A sum in the dtype that fits, with a factor and a bias that may be missing.
#[kernel]
fn scaled_sums<T: Num, const M: usize, const N: usize = 32, const SATURATE: bool = true>(
    x: Ptr<T>,
    factor: Option<T>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
) {
    let (row, column) = (arange(0, M), arange(0, N));
    let x = load(x + row[(.., None)] * N + column);
    let x = if let Some(factor) = factor { x * factor } else { x };
    let total = sum(x as T::Acc, axis = 1);
    let total = if let Some(bias) = bias { total + load(bias + row) as T::Acc } else { total };
    let total = if T == f16 {
        clamp(total, -1000.0 as T::Acc, 1000.0 as T::Acc)
    } else if SATURATE && T::BITS < T::Acc::BITS {
        clamp(total, T::MIN as T::Acc, T::MAX as T::Acc)
    } else {
        total
    };
    store(out + row, total as T);
}

/// Mean and sum of squared distances, of which two can be joined.
#[device]
struct Moments<const N: usize> {
    count: f32,
    mean: Tile<f32, { [N] }>,
    squares: Tile<f32, { [N] }>,
}

#[device]
fn seen<const N: usize>(moments: Moments<N>, x: Tile<f32, { [N] }>) -> Moments<N> {
    let count = moments.count + 1.0;
    let away = x - moments.mean;
    let mean = moments.mean + away / count;
    Moments { count, mean, squares: moments.squares + away * (x - mean) }
}

/// Folds rows by what the caller says.
#[device]
fn over_rows<const N: usize>(
    x: Ptr<f32>,
    rows: i32,
    mut moments: Moments<N>,
    next: impl Fn(Moments<N>, Tile<f32, { [N] }>) -> Moments<N>,
    change: impl Fn(Tile<f32, { [N] }>) -> Tile<f32, { [N] }>,
) -> Moments<N> {
    for row in 0..rows {
        moments = next(moments, change(load(x + row * N + arange(0, N))));
    }
    moments
}

#[kernel]
fn moments<const N: usize>(x: Ptr<f32>, mean: PtrMut<f32>, variance: PtrMut<f32>, rows: i32, shift: f32) {
    let start = Moments { count: 0.0, mean: zeros([N]), squares: zeros([N]) };
    let found = over_rows(x, rows, start, seen, |row| row + shift);
    store(mean + arange(0, N), found.mean);
    store(variance + arange(0, N), found.squares / found.count);
}

/// Orders and counts.
#[kernel]
fn ordered<const N: usize, const K: usize = 4, const BINS: usize = 8>(
    x: Ptr<i32>,
    sorted: PtrMut<i32>,
    best: PtrMut<i32>,
    counts: PtrMut<i32>,
    shuffled: PtrMut<i32>,
) {
    static_assert!(N % 2 == 0);
    let i = arange(0, N);
    let v = load(x + i);
    let order = v.argsort();
    store(sorted + i, v.gather(order));
    store(sorted + N + i, sort(v, descending = true));
    let (values, indices) = topk(v, K, return_indices = true);
    store(best + arange(0, K), values);
    store(best + K + arange(0, K), indices);
    store(best + 2 * K + arange(0, K), topk(v, K, smallest = true));
    store(counts + arange(0, BINS), histogram(v, BINS, mask = v % 2 == 0));
    let (even, odd) = split(reshape(v, [N / 2, 2]));
    let back = interleave(even, odd);
    let both = cat(flip(even), odd, axis = 0);
    let pairs = reshape(join(even, odd), [N]);
    let moved = scatter(zeros::<i32>([N]), order, i);
    store(shuffled + i, back - v);
    store(shuffled + N + i, both);
    store(shuffled + 2 * N + i, pairs - v);
    store(shuffled + 3 * N + i, moved);
}

/// Reductions of several axes.
#[kernel]
fn planes<const A: usize, const B: usize, const C: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let (a, b, c) = (arange(0, A), arange(0, B), arange(0, C));
    let x = load(x + (a[(.., None, None)] * B + b[(.., None)]) * C + c);
    store(out + b, sum(x, axis = [0, 2]));
    store(out + B + b, mean(x, axis = [0, -1]));
    store(out + 2 * B + b, var(x, axis = [0, 2], correction = 1));
    let centred = x - mean(x, axis = [0, 2], keep_dims = true);
    store(out + 3 * B + b, max(abs(centred), axis = [0, 2]));
}

/// Products of MXFP8.
#[kernel]
fn mx<const M: usize, const N: usize, const K: usize>(
    a: Ptr<f8e4m3>,
    a_scale: Ptr<u8>,
    b: Ptr<f8e4m3>,
    b_scale: Ptr<u8>,
    c: PtrMut<f32>,
) {
    let (row, column, inner, block) = (arange(0, M), arange(0, N), arange(0, K), arange(0, K / 32));
    let x = load(a + row[(.., None)] * K + inner);
    let y = load(b + inner[(.., None)] * N + column);
    let s = load(a_scale + row[(.., None)] * (K / 32) + block);
    let t = load(b_scale + column[(.., None)] * (K / 32) + block);
    store(c + row[(.., None)] * N + column, dot_scaled(x, y, a_scale = s, b_scale = t));
}

/// Random numbers of each kind.
#[kernel]
fn random<const N: usize>(uniform: PtrMut<f32>, normal: PtrMut<f32>, words: PtrMut<u32>, seed: u64) {
    let i = program_id(0) * N + arange(0, N);
    store(uniform + i, rand(seed, i));
    store(normal + i, randn(seed, i));
    let (a, b, c, d) = randint4x(seed, i);
    store(words + i, a ^ b ^ c ^ d ^ randint(seed, i));
    let (e, _, _, f) = rand4x(seed, i, n_rounds = 7);
    store(uniform + N * num_programs(0) + i, (e + f) * 0.5);
}

fn halves(len: usize, seed: u32) -> Vec<f16> {
    numbers(len, seed).into_iter().map(f16::from_f32).collect()
}

#[test]
fn ptx_of_ones_own() {
    check(|device| {
        let (x, y) = (halves(256, 20), halves(256, 21));
        let (a, b) = (device.upload(&x)?, device.upload(&y)?);
        let (mut sums, mut differences) = (device.zeros::<f16>(256)?, device.zeros::<f16>(256)?);
        packed_halves::<128>(&a, &b, &mut sums, &mut differences).grid(2).launch(device)?;
        let pairs = || x.iter().zip(&y);
        assert_eq!(sums.to_vec()?, pairs().map(|(x, y)| x + y).collect::<Vec<_>>());
        assert_eq!(differences.to_vec()?, pairs().map(|(x, y)| x - y).collect::<Vec<_>>());
        let bytes: Vec<u8> = (0..64).map(|i| (i * 37 % 256) as u8).collect();
        let (input, mut out) = (device.upload(&bytes)?, device.zeros::<u8>(64)?);
        greatest_bytes::<64>(&input, 100, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, bytes.iter().map(|&x| x.max(100)).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn elements_that_go_their_own_way() {
    check(|device| {
        let (width, height, limit) = (30, 20, 50);
        let mut out = device.zeros::<i32>(600)?;
        mandelbrot(&mut out, width, height, limit).grid(3).launch(device)?;
        let out = out.to_vec()?;
        // In the middle of the set, and far from it.
        assert_eq!(out[10 * 30 + 20], limit);
        assert_eq!(out[0], 1);
        assert!(out.iter().all(|&steps| (1..=limit).contains(&steps)));
        Ok(())
    });
}

#[test]
fn descriptors_that_kernels_make() {
    check(|device| {
        let x: Vec<i32> = (0..9 * 14).collect();
        let (input, mut out) = (device.upload(&x)?, device.zeros::<i32>(9 * 14)?);
        TurnedConsts { M: 4, N: 8 }.call(&input, &mut out, 9, 14).grid((3, 2)).launch(device)?;
        let want: Vec<i32> = (0..14).flat_map(|column| (0..9).map(move |row| row * 14 + column)).collect();
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn launches_that_begin_early() {
    check(|device| {
        let n = 300;
        let mut want: Vec<f32> = numbers(n, 22).iter().map(|x| (x * 64.0).round()).collect();
        let (mut x, mut y) = (device.upload(&want)?, device.zeros::<f32>(n)?);
        for _ in 0..6 {
            relaxed::<128>(&x, &mut y, n as i32).grid(3).dependent_launch().launch(device)?;
            std::mem::swap(&mut x, &mut y);
            let at = |i: i64| want[i.clamp(0, n as i64 - 1) as usize];
            // Sums of quarters are exact.
            want = (0..n as i64).map(|i| 0.25 * at(i - 1) + 0.5 * at(i) + 0.25 * at(i + 1)).collect();
        }
        assert_eq!(x.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn kernels_that_look_at_the_machine() {
    check(|device| {
        let x = device.full(64, 0.5f32)?;
        let (mut out, mut times) = (device.zeros::<f32>(1)?, device.full(2, -1i64)?);
        let mut who = device.full(1, -1i32)?;
        watched::<64>(&x, &mut out, &mut times, &mut who).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [32.0]);
        assert!(times.to_vec()?.iter().all(|&time| time >= 0));
        assert!(who.to_vec()?[0] >= 0);
        Ok(())
    });
}

#[test]
fn the_last_program_adds_up() {
    check(|device| {
        let x = numbers(500, 23);
        let (input, mut parts) = (device.upload(&x)?, device.zeros::<f32>(8)?);
        let (mut done, mut out) = (device.zeros::<i32>(1)?, device.zeros::<f32>(1)?);
        // Twice, as the last program leaves the count as it was.
        for _ in 0..2 {
            gathered::<64>(&input, &mut parts, &mut done, &mut out, 500).grid(8).launch(device)?;
        }
        let want: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        close(out.to_vec()?[0], want.ln(), 1e-5);
        Ok(())
    });
}

#[test]
fn parameters_that_may_be_missing() {
    check(|device| {
        let x: Vec<i8> = (0..128).map(|i| (i % 11) as i8 - 3).collect();
        let (input, bias, mut out) = (device.upload(&x)?, device.full(4, 7i8)?, device.zeros::<i8>(4)?);
        let row = |row: usize| x[row * 32..][..32].iter().map(|&x| i32::from(x)).sum::<i32>();
        scaled_sums::<_, 4>(&input, None, None, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [0, 1, 2, 3].map(|i| row(i).clamp(-128, 127) as i8));
        let consts = ScaledSumsConsts { SATURATE: false, ..ScaledSumsConsts::new(4) };
        let args = ScaledSumsArgs { x: &input, factor: Some(2), bias: Some(&bias), out: &mut out };
        args.call(consts).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [0, 1, 2, 3].map(|i| (2 * row(i) + 7) as i8));
        let (input, mut out) = (device.full(128, f16::from_f32(60.0))?, device.zeros::<f16>(4)?);
        scaled_sums::<_, 4>(&input, None, None, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [f16::from_f32(1000.0); 4]);
        Ok(())
    });
}

#[test]
fn structs_are_carried_by_loops() {
    check(|device| {
        let (rows, n) = (12, 32);
        let x = numbers(rows * n, 24);
        let (input, mut mean, mut variance) = (device.upload(&x)?, device.zeros(n)?, device.zeros(n)?);
        moments::<32>(&input, &mut mean, &mut variance, rows as i32, 0.5).grid(1).launch(device)?;
        let (mean, variance) = (mean.to_vec()?, variance.to_vec()?);
        for i in 0..n {
            let column = || (0..rows).map(|row| f64::from(x[row * n + i] + 0.5));
            let wanted = column().sum::<f64>() / rows as f64;
            let squares = column().map(|x| (x - wanted).powi(2)).sum::<f64>() / rows as f64;
            close(mean[i], wanted, 12.0 * 3.0 * f64::from(f32::EPSILON));
            close(variance[i], squares, 12.0 * 8.0 * f64::from(f32::EPSILON));
        }
        Ok(())
    });
}

#[test]
fn elements_in_order() {
    check(|device| {
        let n = 64usize;
        let x: Vec<i32> = (0..n as i32).map(|i| i * 29 % 64 % 13 - 2).collect();
        let (input, mut sorted) = (device.upload(&x)?, device.zeros::<i32>(2 * n)?);
        let (mut best, mut counts) = (device.zeros::<i32>(12)?, device.zeros::<i32>(8)?);
        let mut shuffled = device.zeros::<i32>(4 * n)?;
        ordered::<64>(&input, &mut sorted, &mut best, &mut counts, &mut shuffled).grid(1).launch(device)?;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|&i| x[i]);
        let up: Vec<i32> = order.iter().map(|&i| x[i]).collect();
        let down: Vec<i32> = up.iter().rev().copied().collect();
        assert_eq!(sorted.to_vec()?, [up.clone(), down.clone()].concat());
        let mut first_best: Vec<usize> = (0..n).collect();
        first_best.sort_by_key(|&i| -x[i]);
        let indices: Vec<i32> = first_best[..4].iter().map(|&i| i as i32).collect();
        assert_eq!(best.to_vec()?, [&down[..4], &indices, &up[..4]].concat());
        let count = |bin: i32| x.iter().filter(|&&x| x == bin && x % 2 == 0).count() as i32;
        assert_eq!(counts.to_vec()?, (0..8).map(count).collect::<Vec<_>>());
        let shuffled = shuffled.to_vec()?;
        assert!(shuffled[..n].iter().all(|&x| x == 0));
        let side = |first: usize| x.iter().skip(first).step_by(2).copied();
        let even: Vec<i32> = side(0).collect();
        let both: Vec<i32> = even.into_iter().rev().chain(side(1)).collect();
        assert_eq!(shuffled[n..2 * n], both);
        assert!(shuffled[2 * n..3 * n].iter().all(|&x| x == 0));
        let mut moved = vec![0; n];
        order.iter().enumerate().for_each(|(i, &to)| moved[to] = i as i32);
        assert_eq!(shuffled[3 * n..], moved);
        Ok(())
    });
}

#[test]
fn several_axes_at_once() {
    check(|device| {
        let (a, b, c) = (4usize, 8usize, 16usize);
        let x = numbers(a * b * c, 25);
        let (input, mut out) = (device.upload(&x)?, device.zeros::<f32>(4 * b)?);
        planes::<4, 8, 16>(&input, &mut out).grid(1).launch(device)?;
        let out = out.to_vec()?;
        for j in 0..b {
            let all =
                || (0..a).flat_map(|i| (0..c).map(move |k| (i, k))).map(|(i, k)| f64::from(x[(i * b + j) * c + k]));
            let (n, sum) = ((a * c) as f64, all().sum::<f64>());
            let mean = sum / n;
            let bound = 64.0 * 4.0 * f64::from(f32::EPSILON);
            close(out[j], sum, bound);
            close(out[b + j], mean, bound);
            close(out[2 * b + j], all().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0), bound);
            close(out[3 * b + j], all().map(|x| (x - mean).abs()).fold(0.0, f64::max), bound);
        }
        Ok(())
    });
}

#[test]
fn factors_with_scales() {
    check(|device| {
        let (m, n, k) = (16usize, 16usize, 64usize);
        let small = |len, seed| numbers(len, seed).into_iter().map(|x| F8E4M3::from_f32(x * 4.0)).collect::<Vec<_>>();
        let (a, b) = (small(m * k, 26), small(k * n, 27));
        let scales = |len: usize| (0..len).map(|i| 125 + (i % 5) as u8).collect::<Vec<u8>>();
        let (s, t) = (scales(m * k / 32), scales(n * k / 32));
        let (x, y) = (device.upload(&a)?, device.upload(&b)?);
        let (u, v, mut c) = (device.upload(&s)?, device.upload(&t)?, device.zeros::<f32>(m * n)?);
        mx::<16, 16, 64>(&x, &u, &y, &v, &mut c).grid(1).launch(device)?;
        let c = c.to_vec()?;
        let power = |scale: u8| 2f64.powi(i32::from(scale) - 127);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let product = |l: usize| {
                let (x, y) = (f64::from(a[i * k + l].to_f32()), f64::from(b[l * n + j].to_f32()));
                x * power(s[i * 2 + l / 32]) * y * power(t[j * 2 + l / 32])
            };
            // Products are exact; sums round 64 times at most.
            let magnitude: f64 = (0..k).map(|l| product(l).abs()).sum();
            close(c[i * n + j], (0..k).map(product).sum(), 64.0 * magnitude * f64::from(f32::EPSILON));
        }
        Ok(())
    });
}

#[test]
fn numbers_by_chance() {
    check(|device| {
        let n = 2048usize;
        let (mut uniform, mut normal) = (device.zeros::<f32>(2 * n)?, device.zeros::<f32>(n)?);
        let mut words = device.zeros::<u32>(n)?;
        random::<256>(&mut uniform, &mut normal, &mut words, 42).grid(n / 256).launch(device)?;
        let uniform = uniform.to_vec()?;
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
        // Within five standard deviations of a mean of 2048: of uniform numbers 1 / sqrt(12), of normal ones 1.
        assert!((mean(&uniform[..n]) - 0.5).abs() < 5.0 / (12.0 * n as f64).sqrt());
        assert!((mean(&uniform[n..]) - 0.5).abs() < 5.0 / (12.0 * n as f64).sqrt());
        assert!(mean(&normal.to_vec()?).abs() < 5.0 / (n as f64).sqrt());
        // `randint` is the first word of four.
        let words = words.to_vec()?;
        assert!(words.windows(2).any(|pair| pair[0] != pair[1]));
        Ok(())
    });
}
