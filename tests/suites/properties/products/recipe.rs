//! What is multiplied, and how.

use proptest::prelude::*;
use tilewright_tests::samples::Rng;

use super::kernels::{ALL, DTypes, Numbers};

/// What outputs hold before.
pub const POISON: f64 = -77.0;

/// How a kernel gets at its factors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Pointers,
    Moving,
    Blocks,
    TurnedBlocks,
    Persistent,
    Batched,
    Chained,
}

/// Each as often as it stands here.
const FORMS: [Form; 11] = [
    Form::Pointers,
    Form::Pointers,
    Form::Moving,
    Form::Blocks,
    Form::TurnedBlocks,
    Form::Persistent,
    Form::Persistent,
    Form::Persistent,
    Form::Batched,
    Form::Batched,
    Form::Chained,
];

/// What a kernel does beside multiplying.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Factors lie transposed.
    pub turn_a: bool,
    pub turn_b: bool,
    /// The first factor is doubled first, in registers.
    pub double: bool,
    /// Another sum of the same products is added at the end.
    pub twice: bool,
    /// The sum is at least 1 after each iteration.
    pub clamp: bool,
    /// A bias is added, and what is negative becomes 0.
    pub bias: bool,
    /// The rows of each tile are summed.
    pub sum: bool,
}

/// A product.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub form: Form,
    pub parts: Parts,
    /// BM, BN and BK.
    pub tile: [usize; 3],
    /// M, N and K.
    pub sizes: [usize; 3],
    pub warps: u32,
    pub stages: u32,
    /// Of kernels that take several tiles.
    programs: usize,
    dtypes: usize,
    seed: u64,
}

/// A size around a multiple of the tile's; copies in hardware need rows of whole units of 16 bytes.
fn size(tile: usize, whole: bool, (tiles, rest, exact): (usize, usize, bool)) -> usize {
    let rest = rest % tile;
    match (exact, whole) {
        (true, _) => tiles * tile,
        (false, true) => (tiles - 1) * tile + (rest + 1).next_multiple_of(16),
        (false, false) => (tiles - 1) * tile + rest.max(1),
    }
}

/// Any product. Two of three have tiles, warps and sizes of which Hopper's own products and copies can be made.
pub fn recipe() -> impl Strategy<Value = Recipe> {
    let part = || prop::bool::weighted(0.25);
    let parts = (any::<[bool; 2]>(), part(), part(), part(), part(), part());
    let sizes = prop::array::uniform3((1usize..3, any::<usize>(), prop::bool::weighted(0.25)));
    let shape = (sizes, 1usize..5, (0usize..4, 0usize..4, 0usize..3));
    let how = (prop::sample::select(&FORMS[..]), 0usize..ALL.len(), 0u32..4, 1u32..5, 1usize..4);
    let on_hopper = prop::bool::weighted(0.67);
    (how, on_hopper, parts, shape, any::<u64>()).prop_map(
        |(how, on_hopper, parts, (mut sizes, iterations, tile), seed)| {
            let (form, dtypes, warps, stages, programs) = how;
            let ([turn_a, turn_b], double, twice, clamp, bias, sum) = parts;
            let (turn_a, turn_b) = match form {
                Form::Pointers | Form::Moving => (turn_a, turn_b),
                Form::Blocks | Form::Batched => (false, false),
                Form::TurnedBlocks => (true, true),
                Form::Persistent | Form::Chained => (false, true),
            };
            let (rows, warps) =
                if on_hopper { (64 << (tile.0 % 2), 4 << (warps % 2)) } else { (16 << tile.0, 1 << warps) };
            let mut tile = [rows, 16 << tile.1, 16 << tile.2];
            // A few warps hold small tiles only.
            while tile[0] * tile[1].max(tile[2]) > 2048 * warps as usize {
                let largest = if tile[0] > tile[1] { 0 } else { 1 };
                tile[largest] /= 2;
            }
            sizes[2].0 = iterations;
            let [m, n, k] = [0, 1, 2].map(|axis| size(tile[axis], on_hopper, sizes[axis]));
            let k = if form == Form::Chained { tile[2] } else { k };
            let parts = Parts { turn_a, turn_b, double, twice, clamp, bias, sum };
            Recipe { form, parts, tile, sizes: [m, n, k], warps, stages, programs, dtypes, seed }
        },
    )
}

impl Recipe {
    pub fn dtypes(&self) -> &'static DTypes {
        &ALL[self.dtypes]
    }

    /// How many elements the outputs have: the product, and sums of rows per column of tiles.
    pub fn outputs(&self) -> [usize; 2] {
        let [m, n, k] = self.sizes;
        match self.form {
            Form::Chained => [m * k, m],
            _ => [m * n, m * n.div_ceil(self.tile[1])],
        }
    }

    pub fn grid(&self) -> usize {
        let rows = self.sizes[0].div_ceil(self.tile[0]);
        match self.form {
            Form::Chained => rows,
            Form::Persistent | Form::Batched => self.programs,
            Form::Pointers | Form::Moving | Form::Blocks | Form::TurnedBlocks => {
                rows * self.sizes[1].div_ceil(self.tile[1])
            }
        }
    }

    /// Both factors and the bias: whole numbers, so small that all sums are exact in f16.
    pub fn numbers(&self) -> [Vec<f64>; 3] {
        let mut rng = Rng::new(self.seed);
        let [m, n, k] = self.sizes;
        let low = if self.dtypes().name == "bytes" { 0 } else { -1 };
        let mut some = |len: usize| (0..len).map(|_| (rng.below(3) as i64 - 1).max(low) as f64).collect();
        [some(m * k), some(n * k), some(n)]
    }

    /// What comes out of it.
    pub fn results(&self, [a, b, bias]: Numbers<'_>) -> [Vec<f64>; 2] {
        if self.form == Form::Chained {
            return self.chained(a, b);
        }
        let ([m, n, k], [_, bn, bk]) = (self.sizes, self.tile);
        let Parts { turn_a, turn_b, double, twice, clamp, bias: shifts, sum } = self.parts;
        let left = |i: usize, t: usize| if turn_a { a[t * m + i] } else { a[i * k + t] };
        let right = |t: usize, j: usize| if turn_b { b[j * k + t] } else { b[t * n + j] };
        let [results, lines] = self.outputs();
        let (mut c, mut sums) = (vec![0.0; results], vec![if sum { 0.0 } else { POISON }; lines]);
        for (at, c) in c.iter_mut().enumerate() {
            let (i, j) = (at / n, at % n);
            let (mut acc, mut other) = (0.0, 0.0);
            for start in (0..k).step_by(bk) {
                let product: f64 = (start..k.min(start + bk)).map(|t| left(i, t) * right(t, j)).sum();
                acc += if double { 2.0 * product } else { product };
                other += if twice { product } else { 0.0 };
                acc = if clamp { f64::max(acc, 1.0) } else { acc };
            }
            acc += other;
            acc = if shifts { f64::max(acc + bias[j], 0.0) } else { acc };
            if sum {
                sums[j / bn * m + i] += acc;
            }
            *c = acc;
        }
        self.stored(c, sums)
    }

    fn chained(&self, a: &[f64], b: &[f64]) -> [Vec<f64>; 2] {
        let [m, n, k] = self.sizes;
        let (mut c, mut sums) = (vec![0.0; m * k], vec![0.0; m]);
        for (i, sum) in sums.iter_mut().enumerate() {
            for j in 0..n {
                let score: f64 = (0..k).map(|t| a[i * k + t] * b[j * k + t]).sum();
                let weight = score.clamp(0.0, 2.0);
                *sum += weight;
                (0..k).for_each(|t| c[i * k + t] += weight * b[j * k + t]);
            }
        }
        self.stored(c, sums)
    }

    fn stored(&self, c: Vec<f64>, sums: Vec<f64>) -> [Vec<f64>; 2] {
        let dtypes = self.dtypes();
        [c.into_iter().map(dtypes.rounded).collect(), sums.into_iter().map(dtypes.rounded_sum).collect()]
    }
}
