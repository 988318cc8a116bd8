//! Matrix products of factors with scales. Factors are small numbers and scales small powers of two, so that all sums
//! are exact.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Random, equal};
use crate::products::{contains, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![scaled()]
}

/// `S` is what has scales, in bytes of two numbers if `PACKED`; it is the second factor if `RIGHT`.
#[kernel]
fn scaled_product<
    S: Num,
    T: Float,
    const M: usize,
    const N: usize,
    const K: usize,
    const PACKED: bool,
    const RIGHT: bool,
    const COLUMN_A: bool,
    const COLUMN_B: bool,
>(
    x: Ptr<S>,
    scale: Ptr<u8>,
    y: Ptr<T>,
    out: PtrMut<f32>,
) {
    let (i, j, k, half) = (arange(0, M), arange(0, N), arange(0, K), arange(0, K / 2));
    let blocks = arange(0, K / 32);
    let a = if COLUMN_A { i[(.., None)] + k * M } else { i[(.., None)] * K + k };
    let a_half = if COLUMN_A { i[(.., None)] + half * M } else { i[(.., None)] * (K / 2) + half };
    let b = if COLUMN_B { k[(.., None)] + j * K } else { k[(.., None)] * N + j };
    let b_half = if COLUMN_B { half[(.., None)] + j * (K / 2) } else { half[(.., None)] * N + j };
    let product = if RIGHT {
        let s = load(scale + (j[(.., None)] * (K / 32) + blocks));
        if PACKED {
            dot_scaled(load(y + a), load(x + b_half), b_scale = s, b_format = e2m1)
        } else {
            dot_scaled(load(y + a), load(x + b), b_scale = s)
        }
    } else {
        let s = load(scale + (i[(.., None)] * (K / 32) + blocks));
        if PACKED {
            dot_scaled(load(x + a_half), load(y + b), a_scale = s, a_format = e2m1)
        } else {
            dot_scaled(load(x + a), load(y + b), a_scale = s)
        }
    };
    store(out + (i[(.., None)] * N + j), product);
}

/// The numbers of e2m1.
const E2M1: [f64; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// What has scales, or has none.
trait Factor: Num {
    const NAME: &'static str;
    /// How many numbers are in an element.
    const PACK: usize;
    /// An element, of numbers of e2m1 by their bits.
    fn of(bits: &[usize]) -> Self;
}

macro_rules! factors {
    ($($ty:ident $name:literal $pack:literal, |$bits:ident| $of:expr;)*) => {$(
        impl Factor for $ty {
            const NAME: &'static str = $name;
            const PACK: usize = $pack;
            fn of($bits: &[usize]) -> $ty { $of }
        }
    )*};
}
factors! {
    u8 "e2m1" 2, |bits| (bits[0] | bits[1] << 4) as u8;
    F8E4M3 "e4m3" 1, |bits| F8E4M3::from_f64(E2M1[bits[0]]);
    F8E5M2 "e5m2" 1, |bits| F8E5M2::from_f64(E2M1[bits[0]]);
    bf16 "bf16" 1, |bits| bf16::from_f64(E2M1[bits[0]]);
    f16 "fp16" 1, |bits| f16::from_f64(E2M1[bits[0]]);
}

/// Elements of `lines` lines of `k` numbers each; line by line, or with those of all lines beside each other.
fn elements<F: Factor>(bits: &[usize], [lines, k]: [usize; 2], in_lines: bool) -> Vec<F> {
    let own: Vec<F> = bits.chunks(F::PACK).map(F::of).collect();
    let count = k / F::PACK;
    if in_lines {
        return own;
    }
    (0..own.len()).map(|at| own[at % lines * count + at / lines]).collect()
}

/// What is multiplied, and how.
#[derive(Clone, Copy)]
struct Form {
    size: [usize; 3],
    right: bool,
    columns: [bool; 2],
}

impl Form {
    fn consts<S: Factor>(self) -> ScaledProductConsts {
        let ([m, n, k], [column_a, column_b]) = (self.size, self.columns);
        let packed = S::PACK == 2;
        ScaledProductConsts {
            M: m,
            N: n,
            K: k,
            PACKED: packed,
            RIGHT: self.right,
            COLUMN_A: column_a,
            COLUMN_B: column_b,
        }
    }
}

fn case<S: Factor, T: Factor + Float>(device: &Device, form: Form) -> Outcome {
    let ([m, n, k], mut random) = (form.size, Random::new(63));
    let mut bits = |len: usize| -> Vec<usize> { (0..len).map(|_| random.below(16) as usize).collect() };
    let (a, b) = (bits(m * k), bits(n * k));
    let lines = if form.right { n } else { m };
    let scales: Vec<u8> = bits(lines * k / 32).into_iter().map(|bits| 124 + bits as u8 % 8).collect();
    // Of the first factor a line is a row, of the second a column.
    let in_lines = [!form.columns[0], form.columns[1]];
    let (x, y) = if form.right {
        (elements::<S>(&b, [n, k], in_lines[1]), elements::<T>(&a, [m, k], in_lines[0]))
    } else {
        (elements::<S>(&a, [m, k], in_lines[0]), elements::<T>(&b, [n, k], in_lines[1]))
    };
    let mut out = device.zeros::<f32>(m * n)?;
    let (x, s, y) = (device.upload(&x)?, device.upload(&scales)?, device.upload(&y)?);
    form.consts::<S>().call(&x, &s, &y, &mut out).grid(1).num_warps(4).launch(device)?;
    let plain = |bits: &[usize], scaled: bool| -> Vec<f64> {
        let scale = |i: usize| if scaled { 2f64.powi(i32::from(scales[i / 32]) - 127) } else { 1.0 };
        bits.iter().enumerate().map(|(i, &bits)| E2M1[bits] * scale(i)).collect()
    };
    let (a, b) = (plain(&a, !form.right), plain(&b, form.right));
    let b: Vec<f64> = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
    let want: Vec<f32> = multiplied(&a, &b, form.size).into_iter().map(|x| x as f32).collect();
    equal(&out.to_vec()?, &want)
}

/// The code for Hopper, of a launch whose buffers are aligned.
fn code<S: Factor, T: Factor + Float>(size: [usize; 3]) -> Result<String, Failure> {
    let (device, [m, n, k]) = (Device::cpu(), size);
    let (x, s, y) = (device.zeros::<S>(m * k / S::PACK)?, device.zeros::<u8>(m * k / 32)?, device.zeros::<T>(k * n)?);
    let mut out = device.zeros::<f32>(m * n)?;
    let consts = Form { size, right: false, columns: [false, true] }.consts::<S>();
    Ok(consts.call(&x, &s, &y, &mut out).num_warps(4).compile(Target::sm_90a())?.ptx().to_string())
}

fn scaled() -> Row {
    let mut row = Row::new("C63", "test_scaled_dot").remarks("exact, on small numbers");
    let sides = [32, 64, 128];
    let sizes = sides.into_iter().flat_map(|m| sides.into_iter().flat_map(move |n| [64, 128].map(|k| [m, n, k])));
    macro_rules! each {
        ($($s:ident: $($t:ident)*;)*) => {$($(
            for size in sizes.clone() {
                for right in [false, true] {
                    for columns in [[false, false], [false, true], [true, false], [true, true]] {
                        let form = Form { size, right, columns };
                        let (scaled, other) = (<$s as Factor>::NAME, <$t as Factor>::NAME);
                        let which = if right { "second" } else { "first" };
                        let name = format!("{scaled} is the {which}, {other}, {size:?}, in columns {columns:?}");
                        row.case(name, move |device| case::<$s, $t>(device, form));
                    }
                }
            }
        )*)*};
    }
    each! {
        u8: F8E4M3 F8E5M2 bf16 f16;
        F8E4M3: F8E4M3 F8E5M2 bf16 f16;
        F8E5M2: F8E4M3 F8E5M2 bf16 f16;
    }
    row.host("instructions", || {
        let wide = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16";
        contains(&code::<u8, F8E4M3>([64, 64, 64])?, &[wide])?;
        contains(&code::<F8E5M2, bf16>([64, 64, 64])?, &[wide])?;
        contains(&code::<u8, f16>([64, 64, 64])?, &["wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"])?;
        contains(&code::<F8E4M3, F8E4M3>([32, 32, 64])?, &["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"])
    });
    row
}
