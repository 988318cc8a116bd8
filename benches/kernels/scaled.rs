//! Products of factors with scales, of 8-bit floats and of 4-bit floats in pairs. The second factor lies transposed, so
//! that K is along rows in both.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::shape::{Matrix, Variant};
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

/// f8e4m3, a block per program.
#[kernel]
pub fn scaled_e4m3<const M: usize, const N: usize, const K: usize>(
    a: Ptr<f8e4m3>,
    a_scale: Ptr<u8>,
    b: Ptr<f8e4m3>,
    b_scale: Ptr<u8>,
    out: PtrMut<f32>,
    n: i32,
    k: i32,
) {
    let rows = program_id(0) * M + arange(0, M)[(.., None)];
    let columns = program_id(1) * N + arange(0, N);
    let mut acc = zeros([M, N]);
    for step in 0..k / K {
        let inner = step * K + arange(0, K);
        let blocks = step * (K / 32) + arange(0, K / 32);
        let (x, s) = (load(a + rows * k + inner), load(a_scale + rows * (k / 32) + blocks));
        let y = load(b + columns[(.., None)] * k + inner);
        let t = load(b_scale + columns[(.., None)] * (k / 32) + blocks);
        acc = dot_scaled(x, y.trans(), a_scale = s, b_scale = t, acc = acc);
    }
    store(out + rows * n + columns, acc);
}

/// e2m1, a block per program.
#[kernel]
pub fn scaled_e2m1<const M: usize, const N: usize, const K: usize>(
    a: Ptr<u8>,
    a_scale: Ptr<u8>,
    b: Ptr<u8>,
    b_scale: Ptr<u8>,
    out: PtrMut<f32>,
    n: i32,
    k: i32,
) {
    let rows = program_id(0) * M + arange(0, M)[(.., None)];
    let columns = program_id(1) * N + arange(0, N);
    let mut acc = zeros([M, N]);
    for step in 0..k / K {
        let bytes = step * (K / 2) + arange(0, K / 2);
        let blocks = step * (K / 32) + arange(0, K / 32);
        let (x, s) = (load(a + rows * (k / 2) + bytes), load(a_scale + rows * (k / 32) + blocks));
        let y = load(b + columns[(.., None)] * (k / 2) + bytes);
        let t = load(b_scale + columns[(.., None)] * (k / 32) + blocks);
        acc = dot_scaled(x, y.trans(), a_scale = s, b_scale = t, a_format = e2m1, b_format = e2m1, acc = acc);
    }
    store(out + rows * n + columns, acc);
}

/// The numbers of e2m1; twice each of these is a whole number.
const E2M1: [f64; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Blocks and warps.
const BLOCKS: [([usize; 3], u32); 6] = [
    ([64, 64, 64], 4),
    ([128, 64, 64], 4),
    ([128, 128, 64], 4),
    ([128, 128, 64], 8),
    ([128, 128, 128], 8),
    ([128, 256, 64], 8),
];

/// A matrix of lines along K, each with its scales.
struct Lines {
    /// Each number by its bits in e2m1.
    bits: Vec<u8>,
    scales: Vec<u8>,
    k: usize,
}

impl Lines {
    fn new(lines: usize, k: usize, salt: u64) -> Lines {
        let random = |len: usize, salt: u64| {
            (0..len as u64).map(move |i| (i + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) >> 7)
        };
        let bits = random(lines * k, salt).map(|x| (x & 15) as u8).collect();
        // A half or one: all sums are exact.
        let scales = random(lines * k / 32, salt + 1).map(|x| 126 + (x & 1) as u8).collect();
        Lines { bits, scales, k }
    }

    fn pairs(&self) -> Vec<u8> {
        self.bits.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect()
    }

    fn bytes(&self) -> Vec<F8E4M3> {
        self.bits.iter().map(|&bits| F8E4M3::from_f64(E2M1[usize::from(bits)])).collect()
    }

    fn line(&self, line: usize) -> Vec<f64> {
        let scale = |i: usize| 2f64.powi(i32::from(self.scales[(line * self.k + i) / 32]) - 127);
        (0..self.k).map(|i| E2M1[usize::from(self.bits[line * self.k + i])] * scale(i)).collect()
    }
}

/// The results of some rows.
fn expected(a: &Lines, b: &Lines, [m, n]: [usize; 2]) -> Vec<Segment> {
    let columns: Vec<Vec<f64>> = (0..n).map(|column| b.line(column)).collect();
    let row = |row: usize| {
        let line = a.line(row);
        let product = |column: &Vec<f64>| line.iter().zip(column).map(|(x, y)| x * y).sum();
        Segment { at: row * n, values: columns.iter().map(product).collect() }
    };
    sampled(m).into_iter().map(row).collect()
}

/// The contest of one format: its kernel, what its factors are uploaded as, and how many bytes that is per number.
macro_rules! contests {
    ($name:ident, $work:literal, $Consts:ident, $elements:ident, $pack:literal) => {
        pub fn $name(stage: &mut Stage) -> Result<(), Failure> {
            for matrix in stage.sized(vec![Matrix::new(4096, 4096)], vec![Matrix::new(128, 128)]) {
                let (device, Matrix { rows: m, columns: k, .. }) = (stage.device(), matrix);
                // Blocks are not masked: both dimensions of small products are those of the largest block.
                let n = m.max(256);
                let (left, right) = (Lines::new(m, k, 1), Lines::new(n, k, 1 << 40));
                let (a, b) = (Input::of(&device, &left.$elements())?, Input::of(&device, &right.$elements())?);
                let (a_scale, b_scale) = (Input::of(&device, &left.scales)?, Input::of(&device, &right.scales)?);
                let exact = Tolerance { relative: 0.0, absolute: 0.0 };
                let out = Output::<f32>::new(&device, m * n, 0, exact, expected(&left, &right, [m, n]))?;
                let (x, s, y, t, z) = (&a, &a_scale, &b, &b_scale, &out);
                let mut ours = Contender::ours();
                for ([bm, bn, bk], warps) in BLOCKS {
                    ours.config(format!("M={bm} N={bn} K={bk} warps={warps}"), move |how| {
                        let mut z = z.lock();
                        let consts = $Consts { M: bm, N: bn, K: bk };
                        let call =
                            consts.call(x.view()?, s.view()?, y.view()?, t.view()?, z.view()?, n as i32, k as i32);
                        call.grid((m / bm, n / bn)).num_warps(warps).submit(how)
                    });
                }
                let buffers = [a.argument(), a_scale.argument(), b.argument(), b_scale.argument(), out.argument()];
                let sizes = [Argument::I32(n as i32), Argument::I32(k as i32)];
                let arguments = buffers.into_iter().chain(sizes).collect();
                let triton = stage.triton(($work, "f32", Variant::Aligned), arguments, |e| {
                    Some([m / e.get("M")?, n / e.get("N")?, 1])
                })?;
                stage.hold(Contest {
                    work: $work,
                    shape: format!("{m}x{n}x{k}"),
                    dtype: "f32",
                    bytes: ((m + n) * (k / $pack + k / 32) + 4 * m * n) as f64,
                    flops: 0.0,
                    outputs: vec![&out],
                    contenders: vec![triton, ours],
                })?;
            }
            Ok(())
        }
    };
}

contests!(e4m3_contests, "scaled_e4m3", ScaledE4m3Consts, bytes, 1);
contests!(e2m1_contests, "scaled_e2m1", ScaledE2m1Consts, pairs, 2);
