//! A matrix product through tensor descriptors, by programs that stay: each takes tile after tile, so that loads of
//! the next tile can begin while the last one is written. On Hopper the hardware copies the blocks, and two groups of
//! four warps take tiles in turns: while one stores, the other multiplies.
//!
//! ```text
//! cargo run --release --example 06_persistent_matmul
//! ```

use tilewright::prelude::*;

/// `c = a @ b`, all row-major. Blocks that reach beyond a matrix read zeros there and are not written, so there are
/// no masks.
#[kernel]
pub fn persistent<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<T, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    let wide = GROUP * cdiv(n, BN);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let first = tile / wide * GROUP;
        let height = minimum(cdiv(m, BM) - first, GROUP);
        let i = (first + tile % wide % height) * BM;
        let j = tile % wide / height * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as T);
    }
}

/// A matrix in a buffer whose rows are padded to a multiple of 16 bytes, as the hardware's copies want them.
struct Matrix {
    buffer: Buffer<f16>,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl Matrix {
    fn new(device: &Device, rows: usize, columns: usize, element: impl Fn(usize, usize) -> f32) -> Result<Self, Error> {
        let stride = columns.next_multiple_of(8);
        let at = |index: usize| f16::from_f32(element(index / stride, index % stride));
        let host: Vec<f16> = (0..rows * stride).map(at).collect();
        Ok(Matrix { buffer: device.upload(&host)?, rows, columns, stride })
    }

    fn desc(&self) -> Result<TensorDesc<'_, f16, 2>, Error> {
        TensorDesc::with_strides(&self.buffer, [self.rows, self.columns], [self.stride, 1])
    }

    fn desc_mut(&mut self) -> Result<TensorDescMut<'_, f16, 2>, Error> {
        TensorDescMut::with_strides(&mut self.buffer, [self.rows, self.columns], [self.stride, 1])
    }
}

/// A small integer for each place.
fn integer(i: usize, j: usize) -> f32 {
    ((i * 31 + j * 17) % 5) as f32 - 2.0
}

/// Sizes that nothing divides. Sums of small integers are exact in f32 and, as far as they go here, in f16.
fn check<const BM: usize, const BN: usize, const BK: usize>(
    device: &Device,
    (m, n, k): (usize, usize, usize),
    warps: u32,
) -> Result<(), Error> {
    let a = Matrix::new(device, m, k, integer)?;
    let b = Matrix::new(device, k, n, |i, j| integer(j, i))?;
    let mut c = Matrix::new(device, m, n, |_, _| f32::NAN)?;
    persistent::<_, BM, BN, BK, 8>(&a.desc()?, &b.desc()?, &mut c.desc_mut()?, m as i32, n as i32, k as i32)
        .grid(3)
        .num_warps(warps)
        .launch(device)?;
    let got = c.buffer.to_vec()?;
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let want: f32 = (0..k).map(|t| integer(i, t) * integer(j, t)).sum();
        assert_eq!(got[i * c.stride + j].to_f32(), want, "c[{i}, {j}]");
    }
    assert!(
        (0..m).all(|i| got[i * c.stride + n..(i + 1) * c.stride].iter().all(|x| x.is_nan())),
        "the padding is written"
    );
    println!("{m} x {n} x {k}: exact");
    Ok(())
}

/// A product that is worth timing.
fn time(device: &Device) -> Result<(), Error> {
    let size = 4096usize;
    let random = |i: usize, j: usize| ((i * 7919 + j * 104_729 + i * j) % 2003) as f32 / 1001.0 - 1.0;
    let (a, b) = (Matrix::new(device, size, size, random)?, Matrix::new(device, size, size, random)?);
    let mut c = Matrix::new(device, size, size, |_, _| 0.0)?;
    // As few programs as need no more tiles each than one per multiprocessor would.
    let tiles = size.div_ceil(128).pow(2);
    let programs = tiles.div_ceil(tiles.div_ceil(device.multiprocessor_count()));
    let (stream, mut best) = (device.default_stream(), f64::INFINITY);
    for _ in 0..20 {
        let start = stream.record()?;
        let size = size as i32;
        persistent::<_, 128, 128, 64, 8>(&a.desc()?, &b.desc()?, &mut c.desc_mut()?, size, size, size)
            .grid(programs)
            .num_warps(4)
            .num_stages(6)
            .launch(device)?;
        let end = stream.record()?;
        end.synchronize()?;
        best = best.min(start.elapsed_ms(&end)?);
    }
    println!("{size} x {size} x {size}: {best:.3} ms, {:.0} TFLOP/s", 2.0 * (size as f64).powi(3) / best / 1e9);
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    println!("on {}", device.name());
    check::<32, 64, 32>(&device, (75, 107, 91), 4)?;
    // The tile that is timed, with rows that the hardware's copies may write, and with others.
    check::<128, 256, 64>(&device, (387, 520, 157), 8)?;
    check::<128, 256, 64>(&device, (387, 517, 157), 8)?;
    if device.is_cuda() { time(&device) } else { Ok(()) }
}
