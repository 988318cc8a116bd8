//! The values of a dtype that break things, and random ones.

use kernel_core::ir::DType;

use crate::data::{self, Data};
use crate::rounding::Format;

/// A small generator of numbers, so that a failure comes back in every run (Knuth's MMIX constants).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let mut step = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 32
        };
        step() << 32 | step()
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
}

/// Smallest, largest, zero, one, their neighbours, powers of two; for floats NaN, infinities, subnormals too.
pub fn edges(dtype: DType) -> Vec<u64> {
    if dtype.is_float() { float_edges(dtype) } else { int_edges(dtype) }
}

fn int_edges(dtype: DType) -> Vec<u64> {
    if dtype == DType::Bool {
        return vec![0, 1];
    }
    let (min, max, width) = (dtype.int_min(), dtype.int_max(), dtype.bits());
    let mut values = vec![0, 1, 2, 3, 5, 7, min, min + 1, max, max - 1, 100];
    values.extend([i128::from(width) - 1, i128::from(width), i128::from(width) + 1]);
    values.extend([1 << (width / 2), (1 << (width / 2)) - 1, 1 << (width - 2), 0x55 << (width - 8)]);
    if dtype.is_signed_int() {
        values.extend([-1, -2, -3, -7, -100, -(1 << (width / 2))]);
    }
    let mut bits: Vec<u64> = values.into_iter().map(|v| data::from_int(dtype, v)).collect();
    bits.sort_unstable();
    bits.dedup();
    bits
}

fn float_edges(dtype: DType) -> Vec<u64> {
    let format = Format::of(dtype);
    let infinity = ((1u64 << format.exponent_bits) - 1) << (format.precision - 1);
    let smallest_normal = 1u64 << (format.precision - 1);
    let positive = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 0.1, 10.0, 127.0, 128.0, 255.5, 256.0, 32768.0];
    let mut bits: Vec<u64> = positive.into_iter().map(|v| data::from_f64(dtype, v)).collect();
    // 1 less and more by one ulp; the largest; the smallest normal; the largest and smallest subnormals.
    let one = data::from_f64(dtype, 1.0);
    bits.extend([one - 1, one + 1, infinity - 1, smallest_normal, smallest_normal - 1, 1]);
    if dtype != DType::F16 {
        let powers = [31, 32, 63, 64].map(|e| 2f64.powi(e));
        bits.extend(powers.into_iter().chain([16_777_217.0, 4_294_967_040.0]).map(|v| data::from_f64(dtype, v)));
    }
    bits.push(infinity);
    bits.push(format.overflow);
    if dtype == DType::F8E4M3 {
        // Its only NaN.
        bits.push(0x7f);
    }
    let sign = 1u64 << (dtype.bits() - 1);
    let negative: Vec<u64> = bits.iter().map(|b| b | sign).collect();
    bits.extend(negative);
    bits.push(infinity | 1 << (format.precision - 2));
    bits
}

/// A random element. For floats: half of them any bits, half numbers of ordinary size.
pub fn random(dtype: DType, rng: &mut Rng) -> u64 {
    let bits = rng.bits();
    if dtype.is_float() && bits & 1 == 0 {
        let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
        return data::from_f64(dtype, (unit - 0.5) * 64.0);
    }
    rng.bits() & data::mask(dtype)
}

/// All edges, then random elements up to `len` in total (more if there are more edges).
pub fn one(dtype: DType, len: usize, seed: u64) -> Data {
    let mut rng = Rng::new(seed);
    let mut bits = edges(dtype);
    while bits.len() < len {
        bits.push(random(dtype, &mut rng));
    }
    Data::new(dtype, bits)
}

/// All pairs of edges, then `more` random pairs, of which half share an operand with the edges.
pub fn pairs(dtype: DType, more: usize, seed: u64) -> (Data, Data) {
    let mut rng = Rng::new(seed);
    let edges = edges(dtype);
    let mut all: Vec<(u64, u64)> = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).collect();
    for i in 0..more {
        let a = random(dtype, &mut rng);
        let b = random(dtype, &mut rng);
        let edge = edges[rng.below(edges.len())];
        all.push(match i % 4 {
            0 => (a, edge),
            1 => (edge, b),
            _ => (a, b),
        });
    }
    let (a, b): (Vec<u64>, Vec<u64>) = all.into_iter().unzip();
    (Data::new(dtype, a), Data::new(dtype, b))
}

/// Triples of edges and random elements.
pub fn triples(dtype: DType, len: usize, seed: u64) -> [Data; 3] {
    let mut rng = Rng::new(seed);
    let edges = edges(dtype);
    [(); 3].map(|()| {
        let pick = |_| if rng.below(2) == 0 { edges[rng.below(edges.len())] } else { random(dtype, &mut rng) };
        Data::new(dtype, (0..len).map(pick).collect::<Vec<_>>())
    })
}
