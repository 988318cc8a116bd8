//! Operands of products, and what products of them must be.

use std::ops::Range;
use std::thread;

use tilewright::prelude::*;

use super::{Factor, Product};

/// What the elements of operands are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Integers so small that every sum is exact.
    Integers,
    /// Standard normal.
    Normal,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Integers, Kind::Normal];
}

/// One pair of operands, here and on the device. Products of one dtype share them and use as much as they need.
pub struct Pair<T: Factor> {
    host: [Vec<T>; 2],
    device: [Buffer<T>; 2],
}

/// Both kinds of operands.
pub struct Data<T: Factor> {
    integers: Pair<T>,
    normal: Pair<T>,
}

/// Elements that one random sequence makes.
const PIECE: usize = 1 << 16;

/// The number of threads that work on references.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` with parts of `0..n`, on all cores, and returns the results in order.
fn in_parts<R: Send>(n: usize, work: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
    let share = n.div_ceil(threads()).max(1);
    let work = &work;
    thread::scope(|scope| {
        let spawn = |at: usize| scope.spawn(move || work(at..(at + share).min(n)));
        let workers: Vec<_> = (0..n).step_by(share).map(spawn).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
            .collect()
    })
}

/// A random sequence: PCG's output function over a linear congruence.
struct Random(u64);

impl Random {
    fn new(seed: u64, piece: u64) -> Random {
        // Different pieces are far apart after the mixing of splitmix64.
        let mut z = seed.wrapping_add(piece.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Random(z ^ (z >> 31))
    }

    fn next(&mut self) -> u32 {
        let old = self.0;
        self.0 = old.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        ((((old >> 18) ^ old) >> 27) as u32).rotate_right((old >> 59) as u32)
    }

    /// In `(0, 1]`.
    fn uniform(&mut self) -> f32 {
        ((self.next() >> 8) + 1) as f32 / (1u32 << 24) as f32
    }

    /// Two independent standard normal numbers.
    fn normal(&mut self) -> [f32; 2] {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f32::consts::TAU * self.uniform());
        [radius * angle.cos(), radius * angle.sin()]
    }
}

/// `len` random elements.
fn random<T: Factor>(kind: Kind, seed: u64, len: usize) -> Vec<T> {
    let pieces = in_parts(len.div_ceil(PIECE), |pieces| {
        let mut out = Vec::with_capacity(pieces.len() * PIECE);
        for piece in pieces {
            let mut random = Random::new(seed, piece as u64);
            let end = out.len() + PIECE;
            while out.len() < end {
                match kind {
                    Kind::Normal => out.extend(random.normal().map(T::from_f32)),
                    Kind::Integers => {
                        let choices = 2 * T::EXACT as u32 + 1;
                        out.push(T::from_f32((random.next() % choices) as f32 - T::EXACT as f32));
                    }
                }
            }
        }
        out
    });
    let mut all = pieces.concat();
    all.truncate(len);
    all
}

impl<T: Factor> Pair<T> {
    fn random(device: &Device, kind: Kind, seed: u64, lens: [usize; 2]) -> Result<Pair<T>, Error> {
        let host = [random::<T>(kind, seed, lens[0]), random::<T>(kind, !seed, lens[1])];
        let device = [device.upload(&host[0])?, device.upload(&host[1])?];
        Ok(Pair { host, device })
    }

    /// The operands of a product on the device.
    ///
    /// # Errors
    /// If the product needs more than there is.
    pub fn views(&self, product: &Product) -> Result<[tilewright::View<'_, T>; 2], Error> {
        let [a, b, _] = product.lens();
        Ok([self.device[0].slice(..a)?, self.device[1].slice(..b)?])
    }
}

impl<T: Factor> Data<T> {
    /// Fresh operands for the largest of some products.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn random(device: &Device, seed: u64, products: &[Product]) -> Result<Data<T>, Error> {
        let most = |which: usize| products.iter().map(|p| p.lens()[which]).max().unwrap_or(0);
        let lens = [most(0), most(1)];
        Ok(Data {
            integers: Pair::random(device, Kind::Integers, seed ^ 0x5555, lens)?,
            normal: Pair::random(device, Kind::Normal, seed, lens)?,
        })
    }

    /// The operands of a kind.
    pub fn pair(&self, kind: Kind) -> &Pair<T> {
        match kind {
            Kind::Integers => &self.integers,
            Kind::Normal => &self.normal,
        }
    }
}

/// A row or a column of `c`.
pub struct Line {
    /// The index of its first element.
    pub start: usize,
    /// From one element to the next.
    pub stride: usize,
    /// The sums.
    pub values: Vec<f64>,
    /// The sums of the absolute values of the same terms.
    pub magnitudes: Vec<f64>,
}

/// What a product must be where it is looked at.
pub struct Reference {
    /// Some rows of the first and the last matrix.
    pub rows: Vec<Line>,
    /// Some columns of the first.
    pub columns: Vec<Line>,
    /// No sum of absolute values of terms is larger, anywhere.
    pub largest: f64,
}

/// Some indices below `n`: the first, the last, two between.
fn sampled(n: usize) -> Vec<usize> {
    let mut all = vec![0, n / 3, n / 2 + 1, n - 1];
    all.retain(|&i| i < n);
    all.dedup();
    all
}

/// The sums and the sums of absolute values of `x[t] * y[t]`.
fn dot(x: impl Iterator<Item = f64>, y: &[f64]) -> (f64, f64) {
    x.zip(y).fold((0.0, 0.0), |(sum, magnitude), (x, y)| (sum + x * y, magnitude + (x * y).abs()))
}

fn numbers<T: Factor>(elements: &[T]) -> Vec<f64> {
    elements.iter().map(|&x| x.to_f64()).collect()
}

/// A sum of products, and of their absolute values.
type Sum = (f64, f64);

/// A share of the columns of some rows of one matrix; `a` has the rows of the left operand.
fn row_part<T: Factor>(p: &Product, a: &[Vec<f64>], b: &[T], share: Range<usize>) -> Vec<Vec<Sum>> {
    let mut out = vec![vec![(0.0, 0.0); share.len()]; a.len()];
    if T::B_K_MAJOR {
        for (at, j) in share.enumerate() {
            let column = numbers(&b[j * p.k..(j + 1) * p.k]);
            for (row, out) in a.iter().zip(&mut out) {
                out[at] = dot(row.iter().copied(), &column);
            }
        }
        return out;
    }
    for t in 0..p.k {
        let terms = numbers(&b[t * p.n + share.start..t * p.n + share.end]);
        for (row, out) in a.iter().zip(&mut out) {
            let x = row[t];
            for ((sum, magnitude), y) in out.iter_mut().zip(&terms) {
                *sum += x * y;
                *magnitude += (x * y).abs();
            }
        }
    }
    out
}

impl Reference {
    /// Computes rows and columns in f64, where products of the dtypes are exact.
    pub fn of<T: Factor>(pair: &Pair<T>, p: &Product) -> Reference {
        let [len_a, len_b, _] = p.lens();
        let [a, b] = [&pair.host[0][..len_a], &pair.host[1][..len_b]];
        let mut matrices = vec![0, p.batch - 1];
        matrices.dedup();
        let mut rows = Vec::new();
        for matrix in matrices {
            let (a, b) = (&a[matrix * p.m * p.k..], &b[matrix * p.k * p.n..]);
            let chosen = sampled(p.m);
            let operands: Vec<Vec<f64>> = chosen.iter().map(|i| numbers(&a[i * p.k..(i + 1) * p.k])).collect();
            let parts = in_parts(p.n, |share| row_part(p, &operands, b, share));
            for (at, i) in chosen.into_iter().enumerate() {
                let (values, magnitudes) = parts.iter().flat_map(|rows| rows[at].iter().copied()).unzip();
                rows.push(Line { start: (matrix * p.m + i) * p.n, stride: 1, values, magnitudes });
            }
        }
        // By Cauchy and Schwarz no sum of absolute values exceeds the product of the norms of its row and its column.
        let largest = (row_norm(a, p.k) * column_norm(p, b)).sqrt();
        Reference { rows, columns: columns(p, a, b), largest }
    }
}

/// The largest norm squared of a matrix's rows.
fn row_norm<T: Factor>(a: &[T], k: usize) -> f64 {
    let norm = |row: &[T]| row.iter().map(|x| x.to_f64() * x.to_f64()).sum();
    let most = |share: Range<usize>| a[share.start * k..share.end * k].chunks(k).map(norm).fold(0.0, f64::max);
    in_parts(a.len() / k, most).into_iter().fold(0.0, f64::max)
}

/// The largest norm squared of the columns of all right operands.
fn column_norm<T: Factor>(p: &Product, b: &[T]) -> f64 {
    if T::B_K_MAJOR {
        return row_norm(b, p.k);
    }
    let most = |share: Range<usize>| {
        let mut most = 0.0f64;
        for matrix in b.chunks(p.k * p.n) {
            let mut norms = vec![0.0f64; share.len()];
            for row in matrix.chunks(p.n) {
                for (norm, x) in norms.iter_mut().zip(&row[share.clone()]) {
                    *norm += x.to_f64() * x.to_f64();
                }
            }
            most = norms.into_iter().fold(most, f64::max);
        }
        most
    };
    in_parts(p.n, most).into_iter().fold(0.0, f64::max)
}

/// Some columns of the first matrix.
fn columns<T: Factor>(p: &Product, a: &[T], b: &[T]) -> Vec<Line> {
    let chosen = sampled(p.n);
    let at = |t: usize, j: usize| if T::B_K_MAJOR { b[j * p.k + t] } else { b[t * p.n + j] };
    let operands: Vec<Vec<f64>> = chosen.iter().map(|&j| (0..p.k).map(|t| at(t, j).to_f64()).collect()).collect();
    let parts = in_parts(p.m, |share| {
        let mut out: Vec<Vec<Sum>> = vec![Vec::new(); operands.len()];
        for i in share {
            let row = numbers(&a[i * p.k..(i + 1) * p.k]);
            for (column, out) in operands.iter().zip(&mut out) {
                out.push(dot(row.iter().copied(), column));
            }
        }
        out
    });
    let line = |(which, j): (usize, usize)| {
        let (values, magnitudes) = parts.iter().flat_map(|columns| columns[which].iter().copied()).unzip();
        Line { start: j, stride: p.n, values, magnitudes }
    };
    chosen.into_iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::Group;

    /// The product in the plainest way.
    fn plain<T: Factor>(p: &Product, pair: &Pair<T>) -> Vec<f64> {
        let [a, b] = [&pair.host[0], &pair.host[1]];
        let mut out = Vec::new();
        for matrix in 0..p.batch {
            for (i, j) in (0..p.m).flat_map(|i| (0..p.n).map(move |j| (i, j))) {
                let b_at = |t: usize| if T::B_K_MAJOR { j * p.k + t } else { t * p.n + j };
                let term =
                    |t: usize| a[(matrix * p.m + i) * p.k + t].to_f64() * b[matrix * p.k * p.n + b_at(t)].to_f64();
                out.push((0..p.k).map(term).sum());
            }
        }
        out
    }

    fn check<T: Factor>(p: Product) -> Result<(), Error> {
        let data = Data::<T>::random(&Device::cpu(), 1, &[p])?;
        for kind in Kind::ALL {
            let (pair, mut seen) = (data.pair(kind), 0);
            let (reference, want) = (Reference::of(pair, &p), plain(&p, pair));
            for line in reference.rows.iter().chain(&reference.columns) {
                for (at, (value, magnitude)) in line.values.iter().zip(&line.magnitudes).enumerate() {
                    assert!((value - want[line.start + at * line.stride]).abs() < 1e-9, "{p} {kind:?}");
                    assert!(value.abs() <= magnitude + 1e-9 && *magnitude <= reference.largest + 1e-9);
                    seen += 1;
                }
            }
            assert!(seen > p.m + p.n);
        }
        Ok(())
    }

    #[test]
    fn references_are_the_plain_sums() -> Result<(), Error> {
        check::<f32>(Product::new(Group::Singles, 7, 11, 13))?;
        check::<f16>(Product::new(Group::Large, 7, 11, 13))?;
        check::<bf16>(Product { batch: 2, ..Product::new(Group::Batched, 5, 3, 9) })
    }

    #[test]
    fn normal_numbers_have_the_moments_of_their_distribution() {
        let all = random::<f32>(Kind::Normal, 3, 1 << 18);
        let mean = |power: i32| all.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / all.len() as f64;
        // Three standard deviations of each sample moment.
        assert!(mean(1).abs() < 3.0 / 512.0 && (mean(2) - 1.0).abs() < 3.0 * 2f64.sqrt() / 512.0);
        assert!((mean(4) - 3.0).abs() < 3.0 * 96f64.sqrt() / 512.0);
    }
}
