//! Products of factors with scales: every pair of formats, with scales and without, against plain Rust.
//!
//! Factors that are small numbers, with scales that are small powers of two, have exact sums: every bit is right. Other
//! factors are rounded here as the operation says, and then summed in f64; the error is that of sums in f32, as of `dot`.

use half::{bf16, f16};
use kernel_core::ir::scaled::scaled_dtype;
use kernel_core::ir::{DType, DotOp, FactorFormat, ScaledFactors, ShapeOp, ValueId};
use tilewright_tests::author::Author;
use tilewright_tests::data::{self, Data, to_f64};
use tilewright_tests::expect::Answer;
use tilewright_tests::rounding::Format;
use tilewright_tests::samples::Rng;

/// The numbers of e2m1.
const E2M1: [f64; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Batch, M, N and K.
const SHAPES: [[usize; 4]; 7] =
    [[1, 16, 8, 32], [1, 64, 64, 64], [1, 64, 32, 128], [1, 1, 64, 32], [1, 32, 1, 64], [2, 16, 16, 64], [1, 4, 2, 32]];

/// What the elements of a factor are.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    dtype: DType,
    format: FactorFormat,
}

const E4M3: Kind = Kind { dtype: DType::F8E4M3, format: FactorFormat::Own };
const E5M2: Kind = Kind { dtype: DType::F8E5M2, format: FactorFormat::Own };
const BF16: Kind = Kind { dtype: DType::BF16, format: FactorFormat::Own };
const F16: Kind = Kind { dtype: DType::F16, format: FactorFormat::Own };
const PAIRS: Kind = Kind { dtype: DType::U8, format: FactorFormat::E2m1 };

/// What data are like.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    /// All sums of products are exact.
    Exact,
    /// Any numbers in a range in which nothing overflows.
    Any,
    /// Scales from the smallest to the largest, in pairs of which one undoes the other; some are NaN.
    Extreme,
}

/// The numbers of a factor in lines along K, `[batch, lines, K]`, with scales, and how they lie in memory.
struct Factor {
    numbers: Vec<f64>,
    scales: Option<Vec<u8>>,
    memory: Data,
}

fn factor(rng: &mut Rng, kind: Kind, [batch, lines, k]: [usize; 3], scaled: Option<bool>, values: Values) -> Factor {
    let len = batch * lines * k;
    // What is packed lies in bytes of two neighbours.
    let (numbers, memory) = if kind.format == FactorFormat::E2m1 {
        let halves: Vec<u64> = (0..len).map(|_| rng.bits() & 15).collect();
        let bytes: Vec<u64> = halves.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
        (halves.iter().map(|half| E2M1[*half as usize]).collect(), Data::new(DType::U8, bytes))
    } else {
        let small = |rng: &mut Rng| E2M1[rng.below(16)];
        let unit = |rng: &mut Rng| (rng.bits() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        let numbers: Vec<f64> = (0..len).map(|_| if values == Values::Any { unit(rng) } else { small(rng) }).collect();
        let memory = Data::floats(kind.dtype, numbers);
        (memory.bits.iter().map(|bits| to_f64(kind.dtype, *bits)).collect(), memory)
    };
    let scale = |rng: &mut Rng, block: usize, first: bool| match values {
        Values::Exact => 126 + rng.below(4) as u8,
        Values::Any => 121 + rng.below(12) as u8,
        // The same choice for all lines of a factor, so that products are of moderate size, but for NaN.
        Values::Extreme if rng.below(64) == 0 => 255,
        Values::Extreme => {
            let low = [0, 1, 2, 127, 240, 251][block % 6];
            if first { low } else { 251 - low }
        }
    };
    let blocks = k / 32;
    let scales = scaled.map(|first| (0..batch * lines * blocks).map(|i| scale(rng, i % blocks, first)).collect());
    Factor { numbers, scales, memory }
}

impl Factor {
    /// The numbers as they are multiplied: times their scales, rounded.
    fn all_rounded(&self, k: usize, to: DType) -> Vec<f64> {
        (0..self.numbers.len()).map(|at| self.rounded(at, k, to)).collect()
    }

    fn rounded(&self, at: usize, k: usize, to: DType) -> f64 {
        let scale = match self.scales.as_ref().map(|scales| scales[at / k * (k / 32) + at % k / 32]) {
            None => 1.0,
            Some(255) => f64::NAN,
            Some(scale) => 2f64.powi(i32::from(scale) - 127),
        };
        let single = (self.numbers[at] * scale) as f32;
        match to {
            DType::F16 => f16::from_f32(single).to_f64(),
            _ => bf16::from_f32(single).to_f64(),
        }
    }
}

/// What stands in lines, `[batch, lines, length]`, as columns.
fn as_columns(author: &mut Author, data: &Data, [batch, lines, length]: [usize; 3]) -> ValueId {
    let tile = author.load_tile(data, &shape(batch, [lines, length]));
    let perm = if batch == 1 { vec![1, 0] } else { vec![0, 2, 1] };
    author.one(ShapeOp::Permute { perm }, &[tile])
}

fn shape(batch: usize, matrix: [usize; 2]) -> Vec<i64> {
    let batch = (batch > 1).then_some(batch as i64);
    batch.into_iter().chain(matrix.map(|size| size as i64)).collect()
}

fn check(left: Kind, right: Kind, scaled: ScaledFactors, values: Values) {
    let to = scaled_dtype(left.dtype, right.dtype).expect("they are multiplied");
    let name = |kind: Kind| if kind.format == FactorFormat::E2m1 { "e2m1".into() } else { kind.dtype.to_string() };
    let mut author = Author::new(&format!("scaled_{}_{}_{}", name(left), name(right), scaled.name()));
    let mut rng = Rng::new(17);
    let [a_scaled, b_scaled] = scaled.has();
    for [batch, m, n, k] in SHAPES {
        let a = factor(&mut rng, left, [batch, m, k], a_scaled.then_some(true), values);
        let b = factor(&mut rng, right, [batch, n, k], b_scaled.then_some(false), values);
        let acc = Data::floats(DType::F32, (0..batch * m * n).map(|_| rng.below(5) as f64 - 2.0).collect::<Vec<_>>());
        let packed = |kind: Kind| k / kind.format.pack() as usize;
        let x = author.load_tile(&a.memory, &shape(batch, [m, packed(left)]));
        let y = as_columns(&mut author, &b.memory, [batch, n, packed(right)]);
        let start = author.load_tile(&acc, &shape(batch, [m, n]));
        let mut operands = vec![x, y, start];
        for (factor, lines) in [(&a, m), (&b, n)] {
            if let Some(scales) = &factor.scales {
                let scales = Data::new(DType::U8, scales.iter().map(|&s| u64::from(s)).collect::<Vec<_>>());
                operands.push(author.load_tile(&scales, &shape(batch, [lines, k / 32])));
            }
        }
        let op = DotOp::DotScaled { a_format: left.format, b_format: right.format, scaled };
        let product = author.one(op, &operands);
        let (left, right) = (a.all_rounded(k, to), b.all_rounded(k, to));
        let answer = |at: usize| {
            let (batch, row, column) = (at / (m * n), at / n % m, at % n);
            let start = to_f64(DType::F32, acc.bits[at]);
            let (mut sum, mut magnitude) = (start, start.abs());
            for i in 0..k {
                let product = left[(batch * m + row) * k + i] * right[(batch * n + column) * k + i];
                sum += product;
                magnitude += product.abs();
            }
            if values != Values::Any {
                return Answer::UnsignedZero(data::from_f64(DType::F32, sum));
            }
            let gamma = (k + 2) as f64 * 2.0 * 2f64.powi(-24);
            Answer::Near(sum, gamma * magnitude / Format::of(DType::F32).ulp(sum) + 1.0)
        };
        let answers = (0..batch * m * n).map(answer).collect();
        author.store_tile(&format!("[{batch}, {m}, {k}] * [{batch}, {k}, {n}]"), product, answers);
    }
    author.finish().check_on_every_device();
}

macro_rules! scaled_products {
    ($($test:ident: $a:ident * $b:ident, $($scaled:ident)*;)*) => {$(
        #[test]
        fn $test() {
            $(
                check($a, $b, ScaledFactors::$scaled, Values::Exact);
                check($a, $b, ScaledFactors::$scaled, Values::Any);
            )*
        }
    )*};
}

scaled_products! {
    e2m1_twice: PAIRS * PAIRS, Both Left Right Neither;
    e2m1_and_e4m3: PAIRS * E4M3, Both Left;
    e4m3_and_e2m1: E4M3 * PAIRS, Both Right;
    e2m1_and_bf16: PAIRS * BF16, Left;
    bf16_and_e2m1: BF16 * PAIRS, Right;
    e2m1_and_f16: PAIRS * F16, Left;
    f16_and_e2m1: F16 * PAIRS, Right Both;
    e4m3_twice: E4M3 * E4M3, Both Neither;
    e4m3_and_e5m2: E4M3 * E5M2, Both Right;
    e5m2_and_bf16: E5M2 * BF16, Left Both;
    f16_and_e5m2: F16 * E5M2, Right;
    bf16_twice: BF16 * BF16, Both;
}

/// Scales over all of their range, and NaN.
#[test]
fn scales_at_the_ends_of_their_range() {
    check(PAIRS, PAIRS, ScaledFactors::Both, Values::Extreme);
    check(E4M3, PAIRS, ScaledFactors::Both, Values::Extreme);
    check(BF16, E5M2, ScaledFactors::Both, Values::Extreme);
}
