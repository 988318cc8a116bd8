//! Many products of different heights in one launch, as a mixture of experts needs them: the rows of `x` are sorted
//! by expert, and each expert multiplies its rows by a matrix of its own.
//!
//! ```text
//! cargo run --release --example 07_grouped_matmul
//! ```

use tilewright::prelude::*;

/// `out[i] = x[i] @ weights[expert of i]`; the rows of expert e are `starts[e]..starts[e + 1]`.
///
/// Which tile is whose is found in the kernel, so nothing about the experts' sizes must be known on the host but
/// `tiles`, a bound of the number of tiles of all of them. Blocks may read rows of the next expert, which are not
/// stored.
#[kernel]
pub fn grouped<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    x: TensorDesc<T, { [BM, BK] }>,
    weights: TensorDesc<T, { [1, BK, BN] }>,
    starts: Ptr<i32>,
    out: PtrMut<T>,
    experts: i32,
    n: i32,
    k: i32,
) {
    // Walk over the experts until the tile is among the next one's.
    let mut tile = program_id(0);
    let mut expert = 0;
    let mut first = load(starts);
    let mut end = load(starts + 1);
    while expert < experts && tile >= cdiv(end - first, BM) {
        tile -= cdiv(end - first, BM);
        expert += 1;
        first = end;
        end = load(starts + expert + 1, mask = expert < experts, other = end);
    }
    if expert < experts {
        let i = first + tile * BM;
        let j = program_id(1) * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            let weight = reshape(weights.load([expert, t, j]), [BK, BN]);
            acc = dot(x.load([i, t]), weight, acc = acc);
        }
        let (rows, columns) = (i + arange(0, BM), j + arange(0, BN));
        let inside = (rows < end)[(.., None)] & (columns < n);
        store(out + rows[(.., None)] * n + columns, acc as T, mask = inside);
    }
}

/// What each expert's rows are multiplied by, and the rows: small integers, whose sums are exact.
fn integer(i: usize, j: usize) -> f32 {
    ((i * 31 + j * 17) % 5) as f32 - 2.0
}

/// Runs experts with these numbers of rows, and returns the result and the time in milliseconds.
fn run<const BM: usize, const BN: usize, const BK: usize>(
    device: &Device,
    sizes: &[usize],
    (n, k): (usize, usize),
    warps: u32,
) -> Result<(Vec<f16>, f64), Error> {
    let mut starts = vec![0];
    starts.extend(sizes.iter().scan(0, |sum, size| {
        *sum += *size as i32;
        Some(*sum)
    }));
    let (rows, experts) = (sizes.iter().sum::<usize>(), sizes.len());
    let xs: Vec<f16> = (0..rows * k).map(|at| f16::from_f32(integer(at / k, at % k))).collect();
    let ws: Vec<f16> = (0..experts * k * n).map(|at| f16::from_f32(integer(at % n, at / n))).collect();
    let (x, weights, starts) = (device.upload(&xs)?, device.upload(&ws)?, device.upload(&starts)?);
    let mut out = device.full(rows * n, f16::NAN)?;
    let (x, weights) = (TensorDesc::new(&x, [rows, k])?, TensorDesc::new(&weights, [experts, k, n])?);
    // Each expert has at most one tile that is not full.
    let tiles = rows / BM + experts;
    let (stream, mut best) = (device.default_stream(), f64::INFINITY);
    for _ in 0..if device.is_cuda() { 10 } else { 1 } {
        let start = stream.record()?;
        grouped::<_, BM, BN, BK>(&x, &weights, &starts, &mut out, experts as i32, n as i32, k as i32)
            .grid((tiles, n.div_ceil(BN)))
            .num_warps(warps)
            .launch(device)?;
        let end = stream.record()?;
        end.synchronize()?;
        best = best.min(start.elapsed_ms(&end)?);
    }
    Ok((out.to_vec()?, best))
}

/// Every element, against plain Rust.
fn check<const BM: usize, const BN: usize, const BK: usize>(
    device: &Device,
    sizes: &[usize],
    (n, k): (usize, usize),
    warps: u32,
) -> Result<(), Error> {
    let (got, _) = run::<BM, BN, BK>(device, sizes, (n, k), warps)?;
    let mut row = 0;
    for (expert, size) in sizes.iter().enumerate() {
        for i in row..row + size {
            for j in 0..n {
                let want: f32 = (0..k).map(|t| integer(i, t) * integer(j, expert * k + t)).sum();
                assert_eq!(got[i * n + j].to_f32(), want, "expert {expert}, out[{i}, {j}]");
            }
        }
        row += size;
    }
    println!("{} experts, {row} rows: exact", sizes.len());
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());

    // Heights that nothing divides, and an expert without rows.
    check::<32, 32, 16>(&device, &[5, 0, 70, 33], (72, 40), 4)?;
    // The tile that is timed.
    check::<128, 256, 64>(&device, &[1, 130, 0, 67], (136, 72), 8)?;

    if device.is_cuda() {
        let sizes: Vec<usize> = (0..16).map(|expert| 200 + expert * 37).collect();
        let (rows, n, k) = (sizes.iter().sum::<usize>(), 4096usize, 4096usize);
        let (_, ms) = run::<128, 256, 64>(&device, &sizes, (n, k), 8)?;
        let flops = 2.0 * rows as f64 * n as f64 * k as f64;
        println!("{} experts, {rows} rows of {k}: {ms:.3} ms, {:.0} TFLOP/s", sizes.len(), flops / ms / 1e9);
    }
    Ok(())
}
