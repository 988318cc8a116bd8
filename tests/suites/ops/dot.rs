//! Matrix products: every dtype, accumulator, precision and transposition, against sums in f64.
//!
//! On small integers every product and sum is exact, so every bit is right. On other numbers the error is at most
//! γ · Σ|a||b| + the rounding of the result, where γ covers one rounding of each of K sums (two for tensor cores, which
//! truncate) and, for tf32, the rounding of both factors; 8-bit floats may be summed with 13 bits.

use kernel_core::ir::{DType, DotOp, DotPrecision, ShapeOp};
use tilewright_tests::author::Author;
use tilewright_tests::data::{self, Data, number, to_f64};
use tilewright_tests::expect::Answer;
use tilewright_tests::rounding::Format;
use tilewright_tests::samples::Rng;

/// Batch, M, N and K: instructions' own sizes, several of them, single rows and columns, batches.
const SHAPES: [[i64; 4]; 7] =
    [[1, 16, 8, 32], [1, 64, 64, 64], [1, 128, 32, 16], [1, 1, 64, 32], [1, 32, 1, 64], [2, 16, 16, 32], [4, 2, 4, 1]];

/// Whether a factor lies transposed in memory.
const TRANSPOSITIONS: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

/// What is multiplied.
#[derive(Clone, Copy)]
struct Product {
    a: DType,
    b: DType,
    acc: DType,
    precision: DotPrecision,
}

impl Product {
    /// The bound of the relative error of a sum of `k` products, as a part of the sum of their magnitudes.
    fn gamma(self, k: i64) -> f64 {
        let sums = (k + 2) as f64 * 2.0;
        let unit = |bits: i32| 2f64.powi(-bits);
        let f32_sums = sums * unit(24);
        match (self.acc, self.a) {
            (DType::F64, _) => sums * unit(53),
            (DType::F16, _) => sums * unit(11),
            (_, DType::F8E4M3 | DType::F8E5M2) => sums * unit(13),
            (_, DType::F32) => match self.precision {
                DotPrecision::Tf32 => f32_sums + 2.01 * unit(11),
                // The product of two small parts, 2^-22 of the whole, is left out.
                DotPrecision::Tf32x3 => 4.0 * f32_sums + 4.0 * unit(22),
                DotPrecision::Ieee => f32_sums,
                // What is left out of the products, and sums of small products, which are small.
                DotPrecision::Bf16x3 => 1.1 * f32_sums + 1.01 * unit(15),
                DotPrecision::Bf16x6 => 1.1 * f32_sums + 1.01 * unit(24),
            },
            _ => f32_sums,
        }
    }

    fn factors(self, rng: &mut Rng, dtype: DType, len: i64, exact: bool) -> Data {
        if exact {
            // Sums of 64 products of these stay below 2^11, up to which f16 has every integer.
            let low = if dtype == DType::U8 { 0 } else { -2 };
            return Data::numbers(
                dtype,
                (0..len).map(|_| rng.below((3 - low) as usize) as i64 + low).collect::<Vec<_>>(),
            );
        }
        if dtype.is_int() {
            return Data::new(dtype, (0..len).map(|_| rng.bits()).collect::<Vec<_>>());
        }
        let unit = |rng: &mut Rng| (rng.bits() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        Data::floats(dtype, (0..len).map(|_| unit(rng)).collect::<Vec<_>>())
    }

    /// What element (`batch`, `row`, `column`) must be.
    fn answer(self, [m, n, k]: [usize; 3], a: &Data, b: &Data, acc: &Data, at: usize, exact: bool) -> Answer {
        let (batch, row, column) = (at / (m * n), at / n % m, at % n);
        let value = |data: &Data, i: usize| match data.dtype.is_float() {
            true => to_f64(data.dtype, data.bits[i]),
            false => data::to_int(data.dtype, data.bits[i]) as f64,
        };
        let start = value(acc, at);
        let (mut sum, mut magnitude) = (start, start.abs());
        for i in 0..k {
            let product = value(a, (batch * m + row) * k + i) * value(b, (batch * k + i) * n + column);
            sum += product;
            magnitude += product.abs();
        }
        if exact || self.acc.is_int() {
            return Answer::UnsignedZero(number(self.acc, sum as i64));
        }
        let ulp = Format::of(self.acc).ulp(sum);
        Answer::Near(sum, self.gamma(k as i64) * magnitude / ulp + 1.0)
    }

    /// All shapes with one transposition in one kernel.
    fn check(self, transposed: [bool; 2], exact: bool) {
        let Product { a, b, acc, precision } = self;
        let how = transposed.map(|t| if t { 't' } else { 'n' });
        let mut author = Author::new(&format!("dot_{a}_{b}_{acc}_{}_{}{}", precision.name(), how[0], how[1]));
        let mut rng = Rng::new(11);
        for [batch, m, n, k] in SHAPES {
            let x = self.factors(&mut rng, a, batch * m * k, exact);
            let y = self.factors(&mut rng, b, batch * k * n, exact);
            let z = self.factors(&mut rng, acc, batch * m * n, exact || acc.is_int());
            let left = load(&mut author, &x, [batch, m, k], transposed[0]);
            let right = load(&mut author, &y, [batch, k, n], transposed[1]);
            let start = load(&mut author, &z, [batch, m, n], false);
            let product = author.one(DotOp::Dot { precision, by: None }, &[left, right, start]);
            let sizes = [m, n, k].map(|d| d as usize);
            let answers = (0..z.len()).map(|at| self.answer(sizes, &x, &y, &z, at, exact)).collect();
            author.store_tile(&format!("[{batch}, {m}, {k}] * [{batch}, {k}, {n}]"), product, answers);
        }
        author.finish().check_on_every_device();
    }

    fn check_all(self) {
        for transposed in TRANSPOSITIONS {
            self.check(transposed, true);
            self.check(transposed, false);
        }
    }
}

/// A factor, which may lie transposed in memory. A batch of one has no axis.
fn load(
    author: &mut Author,
    data: &Data,
    [batch, rows, columns]: [i64; 3],
    transposed: bool,
) -> kernel_core::ir::ValueId {
    let shape = |rows: i64, columns: i64| match batch {
        1 => vec![rows, columns],
        _ => vec![batch, rows, columns],
    };
    if !transposed {
        return author.load_tile(data, &shape(rows, columns));
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let place = |i: usize| {
        let (matrix, row, column) = (i / (rows * columns), i % rows, i / rows % columns);
        matrix * rows * columns + row * columns + column
    };
    let there = Data::new(data.dtype, (0..data.len()).map(|i| data.bits[place(i)]).collect::<Vec<_>>());
    let tile = author.load_tile(&there, &shape(columns as i64, rows as i64));
    let perm = if batch == 1 { vec![1, 0] } else { vec![0, 2, 1] };
    author.one(ShapeOp::Permute { perm }, &[tile])
}

macro_rules! products {
    ($($test:ident: $a:ident * $b:ident in $acc:ident, $precision:ident;)*) => {$(
        #[test]
        fn $test() {
            let (a, b, acc) = (DType::$a, DType::$b, DType::$acc);
            Product { a, b, acc, precision: DotPrecision::$precision }.check_all();
        }
    )*};
}

products! {
    f16_in_f32: F16 * F16 in F32, Tf32;
    f16_in_f16: F16 * F16 in F16, Tf32;
    bf16_in_f32: BF16 * BF16 in F32, Tf32;
    f32_as_tf32: F32 * F32 in F32, Tf32;
    f32_as_three_tf32: F32 * F32 in F32, Tf32x3;
    f32_as_it_is: F32 * F32 in F32, Ieee;
    f32_as_three_bf16: F32 * F32 in F32, Bf16x3;
    f32_as_six_bf16: F32 * F32 in F32, Bf16x6;
    f64_in_f64: F64 * F64 in F64, Ieee;
    i8_in_i32: I8 * I8 in I32, Tf32;
    u8_in_i32: U8 * U8 in I32, Tf32;
    f8e4m3_in_f32: F8E4M3 * F8E4M3 in F32, Tf32;
    f8e5m2_in_f32: F8E5M2 * F8E5M2 in F32, Tf32;
    mixed_f8_in_f32: F8E4M3 * F8E5M2 in F32, Tf32;
    f8_in_f16: F8E5M2 * F8E4M3 in F16, Tf32;
}
