//! Products by groups of warps, some of which only fetch: warp specialisation on Hopper.

use half::{bf16, f16};
use tilewright::launch::CompiledKernel;
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{contains, integers, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![groups()]
}

/// By pointers and masks. A factor that is transposed lies in memory column after column.
#[kernel]
fn by_pointers<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let i = tile / cdiv(n, N) * M + arange(0, M);
        let j = tile % cdiv(n, N) * N + arange(0, N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let inner = first + arange(0, K);
            let (down, across) = (if LEFT { 1 } else { k }, if LEFT { m } else { 1 });
            let x = load(a + (i[(.., None)] * down + inner * across), mask = (i < m)[(.., None)] & (inner < k));
            let (down, across) = (if RIGHT { 1 } else { n }, if RIGHT { k } else { 1 });
            let y = load(b + (inner[(.., None)] * down + j * across), mask = (inner < k)[(.., None)] & (j < n));
            acc = dot(x, y, acc = acc);
        }
        store(c + (i[(.., None)] * n + j), acc, mask = (i < m)[(.., None)] & (j < n));
    }
}

/// By descriptors that are passed.
#[kernel]
fn by_passed<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    a: TensorDesc<T, { [M, K] }>,
    a_turned: TensorDesc<T, { [K, M] }>,
    b: TensorDesc<T, { [K, N] }>,
    b_turned: TensorDesc<T, { [N, K] }>,
    c: TensorDescMut<f32, { [M, N] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(n, N) * M, tile % cdiv(n, N) * N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let x = if LEFT { a_turned.load([first, i]).trans() } else { a.load([i, first]) };
            let y = if RIGHT { b_turned.load([j, first]).trans() } else { b.load([first, j]) };
            acc = dot(x, y, acc = acc);
        }
        c.store([i, j], acc);
    }
}

/// By descriptors that the kernel makes.
#[kernel]
fn by_made<T: Float, const M: usize, const N: usize, const K: usize, const LEFT: bool, const RIGHT: bool>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let a = tensor_desc(x, [m, k], [k, 1], [M, K]);
    let a_turned = tensor_desc(x, [k, m], [m, 1], [K, M]);
    let b = tensor_desc(y, [k, n], [n, 1], [K, N]);
    let b_turned = tensor_desc(y, [n, k], [k, 1], [N, K]);
    let c = tensor_desc(out, [m, n], [n, 1], [M, N]);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
        let (i, j) = (tile / cdiv(n, N) * M, tile % cdiv(n, N) * N);
        let mut acc = zeros::<f32>([M, N]);
        for first in (0..k).step_by(K) {
            let x = if LEFT { a_turned.load([first, i]).trans() } else { a.load([i, first]) };
            let y = if RIGHT { b_turned.load([j, first]).trans() } else { b.load([first, j]) };
            acc = dot(x, y, acc = acc);
        }
        c.store([i, j], acc);
    }
}

/// Where the factors come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Factors {
    Pointers,
    Passed,
    Made,
}

/// A launch.
#[derive(Clone, Copy)]
struct Form {
    from: Factors,
    size: [usize; 3],
    tile: [usize; 3],
    warps: u32,
    stages: u32,
    /// Whether the left and the right factor are transposed.
    turned: [bool; 2],
}

/// Memory and arguments of a launch, which is made or compiled.
fn with<T: Float>(
    form: Form,
    data: [&Buffer<T>; 2],
    out: &mut Buffer<f32>,
    task: Task<'_>,
) -> Result<Option<CompiledKernel>, Failure> {
    let Form { size: [m, n, k], tile: [bm, bn, bk], turned: [left, right], .. } = form;
    let ([x, y], [rows, columns, depth]) = (data, [m as i32, n as i32, k as i32]);
    macro_rules! finish {
        ($call:expr) => {{
            let call = $call.num_warps(form.warps).num_stages(form.stages);
            match task {
                Task::Launch(device) => call.grid(2).launch(device).map(|()| None)?,
                Task::Compile => Some(call.compile(Target::sm_90a())?),
            }
        }};
    }
    Ok(match form.from {
        Factors::Pointers => {
            let consts = ByPointersConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(x, y, out, rows, columns, depth))
        }
        Factors::Made => {
            let consts = ByMadeConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(x, y, out, rows, columns, depth))
        }
        Factors::Passed => {
            let (a, a_turned) = (TensorDesc::new(x, [m, k])?, TensorDesc::new(x, [k, m])?);
            let (b, b_turned) = (TensorDesc::new(y, [k, n])?, TensorDesc::new(y, [n, k])?);
            let mut c = TensorDescMut::new(out, [m, n])?;
            let consts = ByPassedConsts { M: bm, N: bn, K: bk, LEFT: left, RIGHT: right };
            finish!(consts.call(&a, &a_turned, &b, &b_turned, &mut c, rows, columns, depth))
        }
    })
}

/// What is done with a call.
enum Task<'d> {
    Launch(&'d Device),
    Compile,
}

fn case<T: Element + Float>(device: &Device, form: Form) -> Outcome {
    let ([m, n, k], mut random) = (form.size, Random::new(104));
    let ((a, plain_a), (b, plain_b)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, k * n));
    let turned = |x: &[T], rows: usize, columns: usize, turn: bool| -> Vec<T> {
        if !turn {
            return x.to_vec();
        }
        (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
    };
    let (x, y) = (turned(&a, m, k, form.turned[0]), turned(&b, k, n, form.turned[1]));
    let (x, y, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<f32>(m * n)?);
    with(form, [&x, &y], &mut out, Task::Launch(device))?;
    let want: Vec<f32> = multiplied(&plain_a, &plain_b, [m, n, k]).into_iter().map(|x| x as f32).collect();
    equal(&out.to_vec()?, &want)
}

/// Triton's kernel: tiles in groups of 8 rows, a second factor that lies in lines of `k`, a result in the dtype of the factors.
#[kernel]
fn in_groups<T: Float, const M: usize, const N: usize, const K: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
) {
    let a = tensor_desc(x, [m, k], [k, 1], [M, K]);
    let b = tensor_desc(y, [n, k], [k, 1], [N, K]);
    let c = tensor_desc(out, [m, n], [n, 1], [M, N]);
    let (rows, columns) = (cdiv(m, M), cdiv(n, N));
    #[warp_specialize]
    for tile in (program_id(0)..rows * columns).step_by(num_programs(0)) {
        let first = tile / (8 * columns) * 8;
        let height = minimum(rows - first, 8);
        let within = tile % (8 * columns);
        let (i, j) = ((first + within % height) * M, within / height * N);
        let mut acc = zeros::<f32>([M, N]);
        for at in (0..k).step_by(K) {
            acc = dot(a.load([i, at]), b.load([j, at]).trans(), acc = acc);
        }
        c.store([i, j], acc as T);
    }
}

fn in_groups_case<T: Element + Float>(device: &Device, [m, n, k]: [usize; 3], tile: [usize; 3], how: How) -> Outcome {
    let mut random = Random::new(104);
    let ((x, a), (y, b)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, n * k));
    let (x, y, mut out) = (device.upload(&x)?, device.upload(&y)?, device.zeros::<T>(m * n)?);
    let consts = InGroupsConsts { M: tile[0], N: tile[1], K: tile[2] };
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
    let call = consts.call(&x, &y, &mut out, m as i32, n as i32, k as i32);
    let grid = if how.persistent { tiles.min(3) } else { tiles };
    call.grid(grid as u32).num_warps(how.warps).num_stages(how.stages).launch(device)?;
    let b: Vec<f64> = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
    let want: Vec<T> = multiplied(&a, &b, [m, n, k]).into_iter().map(T::from_f64).collect();
    equal(&out.to_vec()?, &want)
}

/// How a launch is made.
#[derive(Clone, Copy)]
struct How {
    warps: u32,
    stages: u32,
    /// Whether programs go on to further tiles.
    persistent: bool,
}

/// Attention of a block of queries to `n` keys, block by block: the sum, not divided, with the sums and maxima of rows.
#[device]
fn attend<T: Float, const M: usize, const D: usize>(
    q: Tile<T, { [M, D] }>,
    keys: impl Fn(i32) -> Tile<T, { [D, D] }>,
    values: impl Fn(i32) -> Tile<T, { [D, D] }>,
    n: i32,
    scale: f32,
) -> (Tile<f32, { [M, D] }>, Tile<f32, { [M] }>, Tile<f32, { [M] }>) {
    let mut most = full([M], -f32::INFINITY);
    let mut sum = full([M], 1.0f32);
    let mut acc = zeros::<f32>([M, D]);
    for at in (0..n).step_by(D) {
        let scores = dot(q, keys(at).trans());
        let larger = maximum(most, max(scores, axis = 1) * scale);
        let p = exp2(scores * scale - larger[(.., None)]);
        let factor = exp2(most - larger);
        acc = dot(p as T, values(at), acc = acc * factor[(.., None)]);
        sum = sum * factor + p.sum(axis = 1);
        most = larger;
    }
    (acc, sum, most)
}

#[kernel]
fn attention<T: Float, const M: usize, const D: usize, const PERSISTENT: bool>(
    q: TensorDesc<T, { [M, D] }>,
    keys: TensorDesc<T, { [D, D] }>,
    values: TensorDesc<T, { [D, D] }>,
    out: TensorDescMut<T, { [M, D] }>,
    sums: PtrMut<f32>,
    maxima: PtrMut<f32>,
    m: i32,
    n: i32,
    scale: f32,
) {
    if PERSISTENT {
        #[warp_specialize]
        for tile in (program_id(0)..m / M).step_by(num_programs(0)) {
            let (acc, sum, most) =
                attend(q.load([tile * M, 0]), |at| keys.load([at, 0]), |at| values.load([at, 0]), n, scale);
            out.store([tile * M, 0], acc as T);
            let rows = tile * M + arange(0, M);
            store(sums + rows, sum, mask = rows < m);
            store(maxima + rows, most, mask = rows < m);
        }
    } else {
        let first = program_id(0) * M;
        let (acc, sum, most) = attend(q.load([first, 0]), |at| keys.load([at, 0]), |at| values.load([at, 0]), n, scale);
        out.store([first, 0], acc as T);
        let rows = first + arange(0, M);
        store(sums + rows, sum, mask = rows < m);
        store(maxima + rows, most, mask = rows < m);
    }
}

/// Half a unit in the last place of a number near 1, and of the smallest one.
fn halves<T: Element>() -> [f64; 2] {
    match T::NAME {
        "F8E4M3" => [2f64.powi(-4), 2f64.powi(-10)],
        _ => [2f64.powi(-11), 2f64.powi(-25)],
    }
}

fn attention_case<T: Element + Float>(device: &Device, block: usize, d: usize, how: How) -> Outcome {
    let ([m, n], scale, mut random) = ([256, 256], 0.125, Random::new(105));
    let mut matrix = |rows: usize| integers::<T>(&mut random, rows * d);
    let ((q, plain_q), (k, plain_k), (v, plain_v)) = (matrix(m), matrix(n), matrix(n));
    let (q, k, v) = (device.upload(&q)?, device.upload(&k)?, device.upload(&v)?);
    let (mut out, mut sums, mut maxima) = (device.zeros::<T>(m * d)?, device.zeros::<f32>(m)?, device.zeros::<f32>(m)?);
    {
        let (q, k, v) = (TensorDesc::new(&q, [m, d])?, TensorDesc::new(&k, [n, d])?, TensorDesc::new(&v, [n, d])?);
        let mut out = TensorDescMut::new(&mut out, [m, d])?;
        let consts = AttentionConsts { M: block, D: d, PERSISTENT: how.persistent };
        let call = consts.call(&q, &k, &v, &mut out, &mut sums, &mut maxima, m as i32, n as i32, scale as f32);
        let grid = if how.persistent { 3 } else { m / block };
        call.grid(grid as u32).num_warps(how.warps).num_stages(how.stages).launch(device)?;
    }
    let (out, sums, maxima) = (out.to_vec()?, sums.to_vec()?, maxima.to_vec()?);
    let [unit, least] = halves::<T>();
    for row in 0..m {
        let of = |x: &[f64], row: usize| x[row * d..][..d].to_vec();
        let scores: Vec<f64> = (0..n)
            .map(|key| scale * of(&plain_q, row).iter().zip(of(&plain_k, key)).map(|(a, b)| a * b).sum::<f64>())
            .collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let p: Vec<f64> = scores.iter().map(|score| (score - most).exp2()).collect();
        // Sums begin with 1, as in Triton's kernel, relative to a maximum that is below all others: nothing is left of it.
        near(&format!("maximum {row}"), f64::from(maxima[row]), most, 0.0)?;
        let sum: f64 = p.iter().sum();
        near(&format!("sum {row}"), f64::from(sums[row]), sum, sum * 1e-5)?;
        for column in 0..d {
            let terms = (0..n).map(|key| p[key] * plain_v[key * d + column]);
            let (want, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let bound = unit * (size + want.abs()) * 1.1 + least * (n as f64 + 1.0) + 1e-5 * size;
            near(&format!("element {row}, {column}"), out[row * d + column].to_f64(), want, bound)?;
        }
    }
    Ok(())
}

fn near(what: &str, got: f64, want: f64, bound: f64) -> Outcome {
    if (got - want).abs() <= bound { Ok(()) } else { Err(Failure(format!("{what} is {got}, not {want} +- {bound}"))) }
}

/// Products of several pairs, all of one size, that lie where offsets in memory say.
#[kernel]
fn of_pairs<T: Float, const M: usize, const N: usize, const K: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<T>,
    places: Ptr<i32>,
    pairs: i32,
    m: i32,
    n: i32,
    k: i32,
) {
    for pair in 0..pairs {
        let (at_x, at_y, at_out) = (load(places + 3 * pair), load(places + 3 * pair + 1), load(places + 3 * pair + 2));
        for tile in (program_id(0)..cdiv(m, M) * cdiv(n, N)).step_by(num_programs(0)) {
            let i = tile / cdiv(n, N) * M + arange(0, M);
            let j = tile % cdiv(n, N) * N + arange(0, N);
            let mut acc = zeros::<f32>([M, N]);
            for first in (0..k).step_by(K) {
                let inner = first + arange(0, K);
                let a = load(x + (at_x + i[(.., None)] * k + inner), mask = (i < m)[(.., None)] & (inner < k));
                let b = load(y + (at_y + j[(.., None)] * k + inner), mask = (j < n)[(.., None)] & (inner < k));
                acc += dot(a, b.trans());
            }
            store(out + (at_out + i[(.., None)] * n + j), acc as T, mask = (i < m)[(.., None)] & (j < n));
        }
    }
}

fn pairs_case<T: Element + Float>(device: &Device, [m, n, k]: [usize; 3], pairs: usize) -> Outcome {
    let mut random = Random::new(106);
    let ((x, a), (y, b)) = (integers::<T>(&mut random, pairs * m * k), integers::<T>(&mut random, pairs * n * k));
    // The last pair of factors first, and results in order.
    let places: Vec<i32> = (0..pairs)
        .flat_map(|pair| [(pairs - 1 - pair) * m * k, (pairs - 1 - pair) * n * k, pair * m * n])
        .map(|at| at as i32)
        .collect();
    let (x, y, places) = (device.upload(&x)?, device.upload(&y)?, device.upload(&places)?);
    let mut out = device.zeros::<T>(pairs * m * n)?;
    let consts = OfPairsConsts { M: 128, N: 128, K: 64 };
    let call = consts.call(&x, &y, &mut out, &places, pairs as i32, m as i32, n as i32, k as i32);
    call.grid(4).num_stages(3).launch(device)?;
    let want: Vec<T> = (0..pairs)
        .rev()
        .flat_map(|pair| {
            let b: Vec<f64> = (0..k * n).map(|i| b[pair * n * k + i % n * k + i / n]).collect();
            multiplied(&a[pair * m * k..][..m * k], &b, [m, n, k])
        })
        .map(T::from_f64)
        .collect();
    equal(&out.to_vec()?, &want)
}

fn groups() -> Row {
    let mut row = Row::new(
        "C104",
        "test_warp_specialize_tma_matmul, test_warp_specialize_tma_matmul_persistent and others of its suite",
    )
    .remarks("sizes are smaller; factors by pointers and of two layouts, too; what Triton runs on Blackwell alone, attention and products of many pairs, runs on Hopper, with fewer sizes of pairs");
    let tiles = [([128, 128, 64], 4), ([128, 128, 64], 8), ([128, 256, 64], 8), ([64, 64, 32], 4), ([128, 64, 16], 4)];
    macro_rules! each {
        ($($t:ident)*) => {$(
            for from in [Factors::Pointers, Factors::Passed, Factors::Made] {
                for (tile, warps) in tiles {
                    for stages in [2, 3, 4] {
                        for turned in [[false, false], [true, false], [false, true], [true, true]] {
                            // Sizes that tiles divide, and sizes whose rows no copy may write.
                            let size = if stages == 3 { [136, 150, 72] } else { [256, 136, 64] };
                            let form = Form { from, size, tile, warps, stages, turned };
                            let name = format!("{} {from:?} {tile:?} warps={warps} stages={stages} turned={turned:?}", $t::NAME);
                            row.case(name, move |device| case::<$t>(device, form));
                        }
                    }
                }
            }
        )*};
    }
    each!(f16 bf16);
    macro_rules! as_triton {
        ($($t:ident)*) => {$(
            for persistent in [false, true] {
                for stages in [2, 3] {
                    for warps in [4, 8] {
                        let how = How { warps, stages, persistent };
                        let name = format!("{} warps={warps} stages={stages} persistent={persistent}", <$t as Element>::NAME);
                        for (n, k) in [(128, 64), (128, 128), (256, 64), (256, 128)] {
                            // As Triton, not what exceeds shared memory.
                            if (stages as usize * k * (128 + n) + 128 * n) * size_of::<$t>() > 228 << 10 {
                                continue;
                            }
                            for size in [[32, 32, 32], [384, 528, 256]] {
                                let name = format!("{name} in groups {size:?} {n} {k}");
                                row.case(name, move |device| in_groups_case::<$t>(device, size, [128, n, k], how));
                            }
                        }
                        for block in [64, 128] {
                            for d in [64, 128] {
                                let name = format!("{name} attention {block} {d}");
                                row.case(name, move |device| attention_case::<$t>(device, block, d, how));
                            }
                        }
                    }
                }
            }
        )*};
    }
    as_triton!(f16 F8E4M3);
    for m in [128, 256] {
        for n in [256, 512] {
            for k in [128, 512] {
                for pairs in [4, 8, 16] {
                    row.case(format!("{pairs} pairs of {m} x {n} x {k}"), move |device| {
                        pairs_case::<f16>(device, [m, n, k], pairs)
                    });
                }
            }
        }
    }
    for from in [Factors::Passed, Factors::Made] {
        for (tile, warps) in tiles {
            row.host(format!("a group of warps fetches: {from:?} {tile:?} warps={warps}"), move || {
                let form = Form { from, size: [256, 256, 128], tile, warps, stages: 3, turned: [false; 2] };
                let device = Device::cpu();
                let (x, y) = (device.zeros::<f16>(256 * 128)?, device.zeros::<f16>(256 * 128)?);
                let compiled = with(form, [&x, &y], &mut device.zeros::<f32>(256 * 256)?, Task::Compile)?;
                let compiled = compiled.ok_or_else(|| Failure("nothing was compiled".to_string()))?;
                contains(compiled.ptx(), &["setmaxnreg.dec", "setmaxnreg.inc", "wgmma.mma_async", "mbarrier.try_wait"])
            });
        }
    }
    row
}
