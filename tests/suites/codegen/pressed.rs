//! Kernels that need many registers: products of large tiles, and rows that programs keep over reductions and scans.

// Launchers are not called here: the kernels are compiled by the structs of their constexprs.
#![allow(dead_code)]

use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

/// Two products in a loop, the second of a factor that the first one makes.
#[kernel]
pub fn two<const M: usize, const N: usize, const D: usize>(
    q: Ptr<f16>,
    k: Ptr<f16>,
    v: Ptr<f16>,
    out: PtrMut<f32>,
    n: i32,
) {
    let (i, d) = (program_id(0) * M + arange(0, M), arange(0, D));
    let query = load(q + i[(.., None)] * D + d);
    let mut acc = zeros::<f32>([M, D]);
    for start in (0..n).step_by(N) {
        let j = start + arange(0, N);
        let s = dot(query, load(k + j * D + d[(.., None)]), out = f32);
        let p = exp2(s - max(s, axis = 1, keep_dims = true));
        acc = dot(p as f16, load(v + j[(.., None)] * D + d), acc = acc);
    }
    store(out + i[(.., None)] * D + d, acc);
}

/// Attention with a running maximum; the last blocks are masked.
#[kernel]
pub fn attention<const M: usize, const N: usize, const D: usize>(
    q: Ptr<f16>,
    k: Ptr<f16>,
    v: Ptr<f16>,
    out: PtrMut<f16>,
    n: i32,
    scale: f32,
) {
    let (i, d) = (program_id(0) * M + arange(0, M), arange(0, D));
    let query = load(q + i[(.., None)] * D + d, mask = (i < n)[(.., None)]);
    let mut acc = zeros::<f32>([M, D]);
    let mut peak = full::<f32>([M], -1e30);
    let mut total = zeros::<f32>([M]);
    for start in (0..minimum(n, (program_id(0) + 1) * M)).step_by(N) {
        let j = start + arange(0, N);
        let keys = load(k + j * D + d[(.., None)], mask = j < n);
        let mut s = dot(query, keys, out = f32) * scale;
        s = select((j < n) & (i[(.., None)] >= j), s, -1e30);
        let higher = maximum(peak, max(s, axis = 1));
        let p = exp2(s - higher[(.., None)]);
        let old = exp2(peak - higher);
        total = total * old + sum(p, axis = 1);
        acc *= old[(.., None)];
        acc = dot(p as f16, load(v + j[(.., None)] * D + d, mask = (j < n)[(.., None)]), acc = acc);
        peak = higher;
    }
    store(out + i[(.., None)] * D + d, (acc / total[(.., None)]) as f16, mask = (i < n)[(.., None)]);
}

/// The gradients of an RMS norm: of the rows, and the sums over the rows of a program for the weight's.
#[kernel]
pub fn rms_norm_backward<T: Float, const BLOCK: usize>(
    dy: Ptr<T>,
    x: Ptr<T>,
    weight: Ptr<T>,
    rstds: Ptr<f32>,
    dx: PtrMut<T>,
    partial: PtrMut<f32>,
    rows: i32,
    columns: i32,
) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let scale = load(weight + column, mask = mask) as f32;
    let mut weights = zeros::<f32>([BLOCK]);
    for row in (program_id(0)..rows).step_by(num_programs(0)) {
        let offsets = row * columns + column;
        let values = load(x + offsets, mask = mask) as f32;
        let gradient = load(dy + offsets, mask = mask) as f32;
        let rstd = load(rstds + row);
        let normed = values * rstd;
        let scaled = scale * gradient;
        let along = sum(normed * scaled, axis = 0) / columns as f32;
        store(dx + offsets, ((scaled - normed * along) * rstd) as T, mask = mask);
        weights += gradient * normed;
    }
    store(partial + program_id(0) * columns + column, weights, mask = mask);
}

/// The gradient of `weight * tanh(alpha * x) + bias`, with the sums of a program's rows.
#[kernel]
pub fn tanh_backward<T: Float, const BLOCK: usize>(
    dy: Ptr<T>,
    x: Ptr<T>,
    weight: Ptr<T>,
    alpha: Ptr<f32>,
    dx: PtrMut<T>,
    sums: PtrMut<f32>,
    rows: i32,
    columns: i32,
) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let scale = load(weight + column, mask = mask) as f32;
    let by = load(alpha);
    let mut weights = zeros::<f32>([BLOCK]);
    let mut biases = zeros::<f32>([BLOCK]);
    let mut alphas = zeros::<f32>([BLOCK]);
    for row in (program_id(0)..rows).step_by(num_programs(0)) {
        let offsets = row * columns + column;
        let values = load(x + offsets, mask = mask) as f32;
        let gradient = load(dy + offsets, mask = mask) as f32;
        let t = tanh(by * values);
        weights += gradient * t;
        biases += gradient;
        let inner = gradient * scale * (1.0 - t * t);
        alphas += inner * values;
        store(dx + offsets, (inner * by) as T, mask = mask);
    }
    let offsets = program_id(0) * columns + column;
    store(sums + offsets, weights, mask = mask);
    store(sums + num_programs(0) * columns + offsets, biases, mask = mask);
    store(sums + 2 * num_programs(0) * columns + offsets, alphas, mask = mask);
}

/// The running minimum of a row with the index where it was first seen, as scans of pairs.
#[kernel]
pub fn cummin<const BLOCK: usize>(
    x: Ptr<f32>,
    out: PtrMut<f32>,
    places: PtrMut<i64>,
    least: PtrMut<f32>,
    least_places: PtrMut<i32>,
    n: i32,
) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let values = load(x + i, mask = mask, other = f32::INFINITY);
    let (running, at) = associative_scan((values, i), axis = 0, |(a, p), (b, q)| {
        let first = (a < b) | ((a == b) & (p > q)) | (a != a);
        (select(first, a, b), select(first, p, q))
    });
    let (smallest, place) = reduce((values, i), axis = 0, |(a, p), (b, q)| {
        let first = (a < b) | ((a == b) & (p > q)) | (a != a);
        (select(first, a, b), select(first, p, q))
    });
    store(out + i, running, mask = mask);
    store(places + i, at as i64, mask = mask);
    store(least + program_id(0), smallest);
    store(least_places + program_id(0), place);
}

/// The places of what is not zero, of a matrix with four dimensions.
#[kernel]
pub fn nonzero<const BLOCK: usize>(x: Ptr<i32>, before: Ptr<i64>, out: PtrMut<i64>, n: i32, b: i32, c: i32, d: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let found = load(x + i, mask = mask) != 0;
    let order = cumsum(found as i32, axis = 0) - 1;
    let to = (load(before + program_id(0)) + order as i64) * 4;
    let keep = mask & found;
    store(out + to, (i / (b * c * d)) as i64, mask = keep);
    store(out + to + 1, (i / (c * d) % b) as i64, mask = keep);
    store(out + to + 2, (i / d % c) as i64, mask = keep);
    store(out + to + 3, (i % d) as i64, mask = keep);
}

/// The logarithm of a softmax of `ROWS` rows at a time.
#[kernel]
pub fn log_softmax<T: Float, const ROWS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let row = program_id(0) * ROWS + arange(0, ROWS);
    let column = arange(0, BLOCK);
    let mask = (row < rows)[(.., None)] & (column < columns);
    let offsets = row[(.., None)] * columns + column;
    let values = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let shifted = values - max(values, axis = 1, keep_dims = true);
    store(out + offsets, (shifted - log(sum(exp(shifted), axis = 1, keep_dims = true))) as T, mask = mask);
}

/// A kernel under the name that its test uses.
pub struct Sample {
    /// Kernel and configuration.
    pub name: String,
    /// Its code.
    pub compiled: CompiledKernel,
}

/// The products, for a target. What needs more than the target has is left out.
pub fn products(target: Target) -> Vec<Sample> {
    compile_products(target).unwrap_or_else(|error| panic!("{error}"))
}

/// The kernels of rows, for a target.
pub fn rows(target: Target) -> Vec<Sample> {
    compile_rows(target).unwrap_or_else(|error| panic!("{error}"))
}

fn compile_products(target: Target) -> Result<Vec<Sample>, Error> {
    let device = Device::cpu();
    let n = 1024usize;
    let x = device.zeros::<f16>(n * 256)?;
    let (mut sums, mut out) = (device.zeros::<f32>(n * 256)?, device.zeros::<f16>(n * 256)?);
    let mut all = Vec::new();
    for (m, d, warps) in [(128, 128, 16), (128, 256, 8), (128, 256, 4), (128, 128, 8), (64, 64, 4)] {
        let call = TwoConsts { M: m, N: 128, D: d }.call(&x, &x, &x, &mut sums, n as i32).grid(n / m);
        match call.num_warps(warps).compile(target) {
            Ok(compiled) => all.push(Sample { name: format!("two {m}/128/{d} warps={warps}"), compiled }),
            // The factors need more shared memory than this target has.
            Err(Error::Resources { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for (m, block, d, warps) in [(128, 128, 128, 16), (128, 128, 64, 4), (64, 128, 64, 4), (128, 64, 128, 8)] {
        let call = AttentionConsts { M: m, N: block, D: d }.call(&x, &x, &x, &mut out, n as i32, 0.125).grid(n / m);
        match call.num_warps(warps).compile(target) {
            Ok(compiled) => all.push(Sample { name: format!("attention {m}/{block}/{d} warps={warps}"), compiled }),
            Err(Error::Resources { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn compile_rows(target: Target) -> Result<Vec<Sample>, Error> {
    let device = Device::cpu();
    let (n, columns) = (16usize, 4096usize);
    let x = device.zeros::<bf16>(n * columns)?;
    let (floats, ints) = (device.zeros::<f32>(n * columns)?, device.zeros::<i32>(n * columns)?);
    let (longs, halves) = (device.zeros::<i64>(n)?, device.zeros::<f16>(n * columns)?);
    let (mut dx, mut sums) = (device.zeros::<bf16>(n * columns)?, device.zeros::<f32>(3 * n * columns)?);
    let (mut places, mut least, mut at) = (device.zeros::<i64>(4 * n * columns)?, device.zeros(n)?, device.zeros(n)?);
    let (mut logs, mut alphas) = (device.zeros::<f16>(n * columns)?, device.zeros::<f32>(3 * n * columns)?);
    let (rows, width) = (n as i32, columns as i32);
    let mut all = Vec::new();
    let mut add = |name: &str, compiled| all.push(Sample { name: name.to_string(), compiled });
    for warps in [4, 8] {
        let consts = RmsNormBackwardConsts { BLOCK: columns };
        let call = consts.call(&x, &x, &x, &floats, &mut dx, &mut sums, rows, width).grid(n).num_warps(warps);
        add(&format!("rms_norm_backward 4096 warps={warps}"), call.compile(target)?);
    }
    let call = TanhBackwardConsts { BLOCK: columns }.call(&x, &x, &x, &floats, &mut dx, &mut alphas, rows, width);
    add("tanh_backward 4096 warps=8", call.grid(n).num_warps(8).compile(target)?);
    for (block, warps) in [(1024, 4), (4096, 8)] {
        let consts = CumminConsts { BLOCK: block };
        let call = consts.call(&floats, &mut sums, &mut places, &mut least, &mut at, (n * columns) as i32).grid(n);
        add(&format!("cummin {block} warps={warps}"), call.num_warps(warps).compile(target)?);
    }
    for (block, warps) in [(1024, 4), (4096, 8)] {
        let call = NonzeroConsts { BLOCK: block }.call(&ints, &longs, &mut places, (n * columns) as i32, 16, 16, 16);
        add(&format!("nonzero {block} warps={warps}"), call.grid(n).num_warps(warps).compile(target)?);
    }
    let call = LogSoftmaxConsts { ROWS: 2, BLOCK: columns }.call(&halves, &mut logs, rows, width).grid(n / 2);
    add("log_softmax 2x4096 warps=16", call.num_warps(16).compile(target)?);
    Ok(all)
}
