//! Many products of different heights in one launch, as a mixture of experts needs them: the rows of `x` are sorted
//! by expert, and each expert multiplies its rows by a matrix of its own.
//!
//! ```text
//! cargo run --release --example 07_grouped_matmul
//! ```

use tilewright::prelude::*;

/// `out[i] = x[i] @ weights[expert of i]`, where `owners[i / BM]` is the expert of row i.
///
/// The rows of an expert begin at a multiple of `BM`, so that no tile has rows of two of them; what is between is padding.
/// With that, one number per `BM` rows is all that this kernel knows more than `06_persistent_matmul` does, and blocks
/// leave as they come, by the hardware's copies. Programs go down `GROUP` rows of tiles before they go on to the next
/// column, so that the tiles of an expert read its weights at about the same time. Few tiles share them, so the tiles are
/// as large as can be: here that gains more than two groups of warps in turns would.
#[kernel]
pub fn grouped<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    x: TensorDesc<T, { [BM, BK] }>,
    weights: TensorDesc<T, { [1, BK, BN] }>,
    owners: Ptr<i32>,
    out: TensorDescMut<T, { [BM, BN] }>,
    rows: i32,
    n: i32,
    k: i32,
) {
    let wide = GROUP * cdiv(n, BN);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let first = tile / wide * GROUP;
        let height = minimum(cdiv(rows, BM) - first, GROUP);
        let row = first + tile % wide % height;
        let j = tile % wide / height * BN;
        let expert = load(owners + row);
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            let weight = reshape(weights.load([expert, t, j]), [BK, BN]);
            acc = dot(x.load([row * BM, t]), weight, acc = acc);
        }
        out.store([row * BM, j], acc as T);
    }
}

/// What each expert's rows are multiplied by, and the rows: small integers, whose sums are exact.
fn integer(i: usize, j: usize) -> f32 {
    ((i * 31 + j * 17) % 5) as f32 - 2.0
}

/// The rows of some experts: each expert's begin at a multiple of a tile's height.
struct Rows {
    /// The expert of each tile.
    owners: Vec<i32>,
    /// Where each expert's rows begin and end; what follows up to the next expert is padding.
    experts: Vec<std::ops::Range<usize>>,
}

impl Rows {
    fn new(sizes: &[usize], height: usize) -> Rows {
        let (mut owners, mut experts) = (Vec::new(), Vec::new());
        for (expert, &size) in sizes.iter().enumerate() {
            let first = owners.len() * height;
            experts.push(first..first + size);
            owners.extend(std::iter::repeat_n(expert as i32, size.div_ceil(height)));
        }
        Rows { owners, experts }
    }
}

/// How a kernel is launched: warps that compute a tile, and trips in flight.
type Options = (u32, u32);

/// Runs experts with these numbers of rows, and returns the result and the time in milliseconds.
fn run<const BM: usize, const BN: usize, const BK: usize>(
    device: &Device,
    rows: &Rows,
    (n, k): (usize, usize),
    (warps, stages): Options,
) -> Result<(Vec<f16>, f64), Error> {
    let (height, experts) = (rows.owners.len() * BM, rows.experts.len());
    let xs: Vec<f16> = (0..height * k).map(|at| f16::from_f32(integer(at / k, at % k))).collect();
    let ws: Vec<f16> = (0..experts * k * n).map(|at| f16::from_f32(integer(at % n, at / n))).collect();
    let (x, weights, owners) = (device.upload(&xs)?, device.upload(&ws)?, device.upload(&rows.owners)?);
    let mut out = device.full(height * n, f16::NAN)?;
    let (x, weights) = (TensorDesc::new(&x, [height, k])?, TensorDesc::new(&weights, [experts, k, n])?);
    // As few programs as need no more tiles each than one per multiprocessor would.
    let tiles = rows.owners.len() * n.div_ceil(BN);
    let programs = tiles.div_ceil(tiles.div_ceil(device.multiprocessor_count()));
    let (stream, mut best) = (device.default_stream(), f64::INFINITY);
    for _ in 0..if device.is_cuda() { 20 } else { 1 } {
        let mut result = TensorDescMut::new(&mut out, [height, n])?;
        let start = stream.record()?;
        grouped::<_, BM, BN, BK, 8>(&x, &weights, &owners, &mut result, height as i32, n as i32, k as i32)
            .grid(programs)
            .num_warps(warps)
            .num_stages(stages)
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
    options: Options,
) -> Result<(), Error> {
    let rows = Rows::new(sizes, BM);
    let (got, _) = run::<BM, BN, BK>(device, &rows, (n, k), options)?;
    for (expert, own) in rows.experts.iter().enumerate() {
        for (i, j) in own.clone().flat_map(|i| (0..n).map(move |j| (i, j))) {
            let want: f32 = (0..k).map(|t| integer(i, t) * integer(j, expert * k + t)).sum();
            assert_eq!(got[i * n + j].to_f32(), want, "expert {expert}, out[{i}, {j}]");
        }
    }
    println!("{} experts, {} rows: exact", sizes.len(), sizes.iter().sum::<usize>());
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());

    // Heights that nothing divides, and an expert without rows.
    check::<32, 32, 16>(&device, &[5, 0, 70, 33], (72, 40), (4, 3))?;
    // The tile that is timed.
    check::<128, 256, 64>(&device, &[1, 130, 0, 67], (136, 72), (8, 4))?;

    if device.is_cuda() {
        let sizes: Vec<usize> = (0..16).map(|expert| 200 + expert * 37).collect();
        let (rows, n, k) = (sizes.iter().sum::<usize>(), 4096usize, 4096usize);
        let (_, ms) = run::<128, 256, 64>(&device, &Rows::new(&sizes, 128), (n, k), (8, 4))?;
        let flops = 2.0 * rows as f64 * n as f64 * k as f64;
        println!("{} experts, {rows} rows of {k}: {ms:.3} ms, {:.0} TFLOP/s", sizes.len(), flops / ms / 1e9);
    }
    Ok(())
}
