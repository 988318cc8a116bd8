//! Functions of one and more elements, and conversions.

use half::{bf16, f16};
use kernel_core::ir::DType as Format;
use tilewright::prelude::*;
use tilewright_tests::data;

use crate::elements::{Element, Random, close, equal};
use crate::runner::{Failure, Outcome, Row};
use crate::{for_floats, for_numbers};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![
        functions(),
        error_functions(),
        precise(),
        division(),
        absolute(),
        upper_half(),
        conversions(),
        narrow(),
        nans(),
    ]
}

const LEN: usize = 256;

/// The functions of rows C09 and C10, in the order of the kernel.
const FUNCTIONS: [&str; 16] = [
    "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "floor", "ceil", "abs", "erf", "fma", "tanh",
    "sigmoid", "cdiv",
];

#[kernel]
fn function<T: Float, const F: i32, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, N);
    let a = load(x + i);
    if F == 0 {
        store(out + i, exp(a));
    } else if F == 1 {
        store(out + i, exp2(a));
    } else if F == 2 {
        store(out + i, log(a));
    } else if F == 3 {
        store(out + i, log2(a));
    } else if F == 4 {
        store(out + i, a.sin());
    } else if F == 5 {
        store(out + i, a.cos());
    } else if F == 6 {
        store(out + i, sqrt(a));
    } else if F == 7 {
        store(out + i, rsqrt(a));
    } else if F == 8 {
        store(out + i, floor(a));
    } else if F == 9 {
        store(out + i, ceil(a));
    } else if F == 10 {
        store(out + i, a.abs());
    } else if F == 11 {
        store(out + i, erf(a));
    } else if F == 12 {
        store(out + i, fma(a, a, a));
    } else if F == 13 {
        store(out + i, tanh(a));
    } else {
        store(out + i, sigmoid(a));
    }
}

fn function_case<T: Element + Float, const N: usize>(device: &Device, f: usize) -> Outcome {
    let mut x: Vec<T> = Random::new(9 + f as u64).elements(N);
    if matches!(FUNCTIONS[f], "log" | "log2" | "sqrt" | "rsqrt") {
        x.iter_mut().for_each(|x| *x = T::from_f64(x.to_f64().abs()));
    }
    let mut out = device.zeros::<T>(N)?;
    FunctionConsts { F: f as i32, N }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
    let want = x.iter().map(|x| {
        let a = x.to_f64();
        T::from_f64(match FUNCTIONS[f] {
            "exp" => a.exp(),
            "exp2" => a.exp2(),
            "log" => a.ln(),
            "log2" => a.log2(),
            "sin" => a.sin(),
            "cos" => a.cos(),
            "sqrt" => a.sqrt(),
            "rsqrt" => 1.0 / a.sqrt(),
            "floor" => a.floor(),
            "ceil" => a.ceil(),
            "abs" => a.abs(),
            "erf" => libm::erf(a),
            "fma" => a.mul_add(a, a),
            "tanh" => a.tanh(),
            _ => 1.0 / (1.0 + (-a).exp()),
        })
    });
    // Ten units in the last place, far inside the 1e-2 of Triton's test; near zero of a logarithm, absolutely.
    let ulp = [2f64.powi(-10), 2f64.powi(-7), 2f64.powi(-23), 2f64.powi(-52)];
    let ulp = ulp[["f16", "bf16", "f32", "f64"].iter().position(|name| *name == T::NAME).unwrap_or(1)];
    close(&out.to_vec()?, &want.collect::<Vec<T>>(), 10.0 * ulp, 4.0 * ulp * 1e-1)
}

fn functions() -> Row {
    let mut row = Row::new("C09", "test_math_op").remarks("16-bit floats too; to 10 ulp where Triton asks for 1 %");
    macro_rules! each {
        ($t:ident) => {
            for f in 0..FUNCTIONS.len() - 5 {
                row.case(format!("{} {} 256", FUNCTIONS[f], $t::NAME), move |device| {
                    function_case::<$t, LEN>(device, f)
                });
                row.case(format!("{} {} 1", FUNCTIONS[f], $t::NAME), move |device| function_case::<$t, 1>(device, f));
            }
        };
    }
    for_floats!(each);
    row
}

fn error_functions() -> Row {
    let mut row = Row::new("C10", "test_math_erf_op, test_math_fma_op").remarks("and `tanh`, `sigmoid`");
    macro_rules! each {
        ($t:ident) => {
            for f in FUNCTIONS.len() - 5..FUNCTIONS.len() - 1 {
                row.case(format!("{} {}", FUNCTIONS[f], $t::NAME), move |device| function_case::<$t, LEN>(device, f));
            }
        };
    }
    for_floats!(each);
    row
}

#[kernel]
fn rounded_once<T: Float, const ROOT: bool>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 256);
    if ROOT {
        store(out + i, sqrt_rn(load(x + i)));
    } else {
        store(out + i, div_rn(load(x + i), load(y + i)));
    }
}

fn precise_case<T: Element + Float>(device: &Device, root: bool, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    // All magnitudes.
    let mut draw = || -> Vec<T> {
        let one = |_| {
            let exponent = random.below(100) as f64 - 50.0;
            T::from_f64((random.unit() + 0.5) * exponent.exp2())
        };
        (0..LEN).map(one).collect()
    };
    let (x, y) = (draw(), draw());
    let mut out = device.zeros::<T>(LEN)?;
    let consts = RoundedOnceConsts { ROOT: root };
    consts.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
    let want = x.iter().zip(&y).map(|(a, b)| {
        let (a, b) = (a.to_f64(), b.to_f64());
        T::from_f64(if root { a.sqrt() } else { a / b })
    });
    equal(&out.to_vec()?, &want.collect::<Vec<T>>())
}

fn precise() -> Row {
    let mut row = Row::new("C11", "test_precise_math");
    for (root, name) in [(true, "sqrt_rn"), (false, "div_rn")] {
        for seed in 0..8 {
            row.case(format!("{name} f32, {seed}"), move |device| precise_case::<f32>(device, root, seed));
            row.case(format!("{name} f64, {seed}"), move |device| precise_case::<f64>(device, root, seed));
        }
    }
    row
}

#[kernel]
fn quotients(x: Ptr<f32>, y: Ptr<f32>, near: PtrMut<f32>, exact: PtrMut<f32>) {
    let i = arange(0, 256);
    let (a, b) = (load(x + i), load(y + i));
    store(near + i, a / b);
    store(exact + i, div_rn(a, b));
}

fn division() -> Row {
    let mut row = Row::new("C12", "test_fdiv_ieee_rounding").remarks("`/` is within 2 ulp, `div_rn` exact");
    for seed in 0..8 {
        row.case(format!("{seed}"), move |device| {
            let mut random = Random::new(40 + seed);
            let (x, y): (Vec<f32>, Vec<f32>) = (random.elements(LEN), random.nonzero(LEN));
            let (mut near, mut exact) = (device.zeros::<f32>(LEN)?, device.zeros::<f32>(LEN)?);
            quotients(&device.upload(&x)?, &device.upload(&y)?, &mut near, &mut exact).grid(1).launch(device)?;
            let want: Vec<f32> = x.iter().zip(&y).map(|(a, b)| a / b).collect();
            close(&near.to_vec()?, &want, 2.5e-7, 0.0)?;
            equal(&exact.to_vec()?, &want)
        });
    }
    row
}

#[kernel]
fn magnitude<T: Signed>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 256);
    store(out + i, abs(load(x + i)));
}

#[kernel]
fn magnitude_of_bytes<T: Float>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 256);
    store(out + i, abs(load(x + i)));
}

fn absolute() -> Row {
    fn case<T: Element + Signed>(device: &Device) -> Outcome {
        let x: Vec<T> = Random::new(13).elements(LEN);
        let mut out = device.zeros::<T>(LEN)?;
        magnitude(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let positive = |x: &T| if T::IS_FLOAT { T::from_f64(x.to_f64().abs()) } else { T::from_int(x.to_int().abs()) };
        equal(&out.to_vec()?, &x.iter().map(positive).collect::<Vec<T>>())
    }
    let mut row = Row::new("C13", "test_abs, test_abs_fp8").remarks("unsigned numbers have no `abs`");
    macro_rules! signed {
        ($($t:ident)*) => {$( row.case($t::NAME, |device| case::<$t>(device)); )*};
    }
    signed!(i8 i16 i32 i64 f16 bf16 f32 f64);
    macro_rules! bytes {
        ($($t:ident)*) => {$(
            row.case(stringify!($t), |device| {
                let x: Vec<$t> = (0..=u8::MAX).map($t::from_bits).collect();
                let mut out = device.zeros::<$t>(LEN)?;
                magnitude_of_bytes(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
                let got: Vec<u8> = out.to_vec()?.into_iter().map($t::to_bits).collect();
                let is_nan = |bits: u8| $t::from_bits(bits).to_f32().is_nan();
                let wrong = (0..=u8::MAX).find(|&b| !is_nan(b) && got[usize::from(b)] != b & 0x7f);
                wrong.map_or(Ok(()), |bits| Err(Failure(format!("abs of {bits:#x} is {:#x}", got[usize::from(bits)]))))
            });
        )*};
    }
    bytes!(F8E4M3 F8E5M2);
    row
}

#[kernel]
fn upper<T: Int>(x: Ptr<T>, y: Ptr<T>, unsigned: PtrMut<T>, signed: PtrMut<T>) {
    let i = arange(0, 256);
    let (a, b) = (load(x + i), load(y + i));
    store(unsigned + i, umulhi(a, b));
    store(signed + i, mulhi(a, b));
}

fn upper_half() -> Row {
    let mut row = Row::new("C14", "test_umulhi").remarks("all widths, and `mulhi`");
    macro_rules! each {
        ($($t:ident $u:ident)*) => {$(
            row.case(stringify!($t), |device| {
                let mut random = Random::new(14);
                let (x, y): (Vec<$t>, Vec<$t>) = (random.elements(LEN), random.elements(LEN));
                let (mut unsigned, mut signed) = (device.zeros::<$t>(LEN)?, device.zeros::<$t>(LEN)?);
                upper(&device.upload(&x)?, &device.upload(&y)?, &mut unsigned, &mut signed).grid(1).launch(device)?;
                let pairs = || x.iter().zip(&y);
                let high = |a: &$t, b: &$t| ((u128::from(*a as $u) * u128::from(*b as $u)) >> $t::BITS) as $t;
                equal(&unsigned.to_vec()?, &pairs().map(|(a, b)| high(a, b)).collect::<Vec<$t>>())?;
                let high = |a: &$t, b: &$t| (((*a as i128).wrapping_mul(*b as i128) as u128) >> $t::BITS) as $t;
                equal(&signed.to_vec()?, &pairs().map(|(a, b)| high(a, b)).collect::<Vec<$t>>())
            });
        )*};
    }
    each!(i8 u8 i16 u16 i32 u32 i64 u64 u8 u8 u16 u16 u32 u32 u64 u64);
    row
}

#[kernel]
fn cast<T: Num, U: Num, const N: usize>(x: Ptr<T>, out: PtrMut<U>) {
    let i = arange(0, N);
    store(out + i, load(x + i) as U);
}

#[kernel]
fn cast_scalar<T: Num, U: Num>(x: Ptr<T>, out: PtrMut<U>) {
    store(out, load(x).to::<U>());
}

#[kernel]
fn same_bits<T: Num, U: Num>(x: Ptr<T>, out: PtrMut<U>) {
    let i = arange(0, 256);
    store(out + i, bitcast::<U>(load(x + i)));
}

/// As Rust converts: integers keep their low bits, floats are truncated and saturate, all else is rounded to even.
fn cast_of<T: Element, U: Element>(x: T) -> U {
    match (T::IS_FLOAT, U::IS_FLOAT) {
        (false, _) => U::from_int(x.to_int()),
        (true, true) => U::from_f64(x.to_f64()),
        (true, false) => U::from_f64(x.to_f64()),
    }
}

fn cast_case<T: Element, U: Element>(device: &Device, scalar: bool) -> Outcome {
    let mut random = Random::new(15);
    let mut x: Vec<T> = random.elements(LEN);
    if T::IS_FLOAT {
        x[..64].copy_from_slice(&random.small::<T>(64, -1000, 1000));
    }
    let mut out = device.zeros::<U>(LEN)?;
    let buffer = device.upload(&x)?;
    if scalar {
        cast_scalar(&buffer, &mut out).grid(1).launch(device)?;
        x.truncate(1);
    } else {
        cast::<T, U, LEN>(&buffer, &mut out).grid(1).launch(device)?;
    }
    let want: Vec<U> = x.iter().map(|&x| cast_of(x)).collect();
    equal(&out.to_vec()?[..want.len()], &want)
}

fn conversions() -> Row {
    let mut row = Row::new("C15", "test_cast").remarks("floats saturate at the bounds of integers, as in Rust");
    macro_rules! pair {
        ($t:ident: $($u:ident)*) => {$(
            for (scalar, what) in [(false, "tile"), (true, "scalar")] {
                let name = format!("{} as {}, {what}", $t::NAME, $u::NAME);
                row.case(name, move |device| cast_case::<$t, $u>(device, scalar));
            }
        )*};
    }
    macro_rules! each {
        ($t:ident) => {
            pair!($t: i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);
        };
    }
    for_numbers!(each);
    macro_rules! bits {
        ($($t:ident $u:ident)*) => {$(
            row.case(format!("bits of {} as {}", $t::NAME, $u::NAME), |device| {
                let x: Vec<$t> = Random::new(16).elements(LEN);
                let mut out = device.zeros::<$u>(LEN)?;
                same_bits(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
                let want = x.iter().map(|x| <$u>::from_ne_bytes(x.to_ne_bytes())).collect::<Vec<$u>>();
                equal(&out.to_vec()?, &want)
            });
        )*};
    }
    bits!(i8 u8 u8 i8 i16 u16 u16 f16 f16 i16 bf16 u16 i32 f32 f32 u32 u32 i32 i64 f64 f64 u64 u64 i64);
    row
}

/// Every value of a narrow float, and what becomes of it in a wider one and back.
fn narrow() -> Row {
    let mut row = Row::new("C16", "test_typeconvert_upcast, _downcast, _downcast_clamping")
        .remarks("rounds to even; rounding towards zero is not offered");
    macro_rules! widen {
        ($narrow:ident $bits:ident: $($wide:ident)*) => {$(
            row.case(format!("every {} as {}", stringify!($narrow), $wide::NAME), |device| {
                const ALL: usize = $bits::MAX as usize + 1;
                let x: Vec<$narrow> = (0..=$bits::MAX).map($narrow::from_bits).collect();
                let mut out = device.zeros::<$wide>(ALL)?;
                cast::<$narrow, $wide, ALL>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
                let want: Vec<$wide> = x.iter().map(|x| <$wide as Element>::from_f64(f64::from(x.to_f32()))).collect();
                equal(&out.to_vec()?, &want)
            });
        )*};
    }
    widen!(F8E4M3 u8: f16 bf16 f32 f64);
    widen!(F8E5M2 u8: f16 bf16 f32 f64);
    widen!(f16 u16: f32 f64 bf16);
    widen!(bf16 u16: f32 f64);
    macro_rules! narrow {
        ($wide:ident: $($narrow:ident $bits:ident $dtype:ident)*) => {$(
            for seed in 0..4u64 {
                row.case(format!("{} as {}, {seed}", $wide::NAME, stringify!($narrow)), move |device| {
                    // The neighbours of every second value, and halves between two: where rounding is decided.
                    let mut random = Random::new(seed);
                    let mut x: Vec<$wide> = Vec::new();
                    while x.len() < 1024 {
                        let a = $narrow::from_bits(random.bits() as $bits);
                        let b = $narrow::from_bits(a.to_bits().wrapping_add(1));
                        let (a, b) = (f64::from(a.to_f32()), f64::from(b.to_f32()));
                        if a.is_finite() && b.is_finite() && a.signum() == b.signum() {
                            x.extend([a, (a + b) / 2.0, a + (b - a) * 0.51, a + (b - a) * 0.49].map(|v| v as $wide));
                        }
                    }
                    let mut out = device.zeros::<$narrow>(1024)?;
                    cast::<$wide, $narrow, 1024>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
                    let want = |x: &$wide| data::from_f64(Format::$dtype, f64::from(*x)) as $bits;
                    let got: Vec<$bits> = out.to_vec()?.into_iter().map($narrow::to_bits).collect();
                    equal(&got, &x.iter().map(want).collect::<Vec<$bits>>())
                });
            }
        )*};
    }
    narrow!(f32: F8E4M3 u8 F8E4M3 F8E5M2 u8 F8E5M2 f16 u16 F16 bf16 u16 BF16);
    narrow!(f64: F8E4M3 u8 F8E4M3 F8E5M2 u8 F8E5M2 f16 u16 F16 bf16 u16 BF16);
    row
}

#[kernel]
fn extremes<T: Float, const F: i32>(x: Ptr<T>, y: Ptr<T>, z: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 256);
    let (a, b, c) = (load(x + i), load(y + i), load(z + i));
    if F == 0 {
        store(out + i, minimum(a, b));
    } else if F == 1 {
        store(out + i, maximum(a, b));
    } else if F == 2 {
        store(out + i, minimum(a, b, propagate_nan = true));
    } else if F == 3 {
        store(out + i, maximum(a, b, propagate_nan = true));
    } else {
        store(out + i, clamp(a, minimum(b, c), maximum(b, c)));
    }
}

fn nans() -> Row {
    const NAMES: [&str; 5] = ["minimum", "maximum", "minimum of NaN", "maximum of NaN", "clamp"];
    fn case<T: Element + Float>(device: &Device, f: usize) -> Outcome {
        let mut random = Random::new(17);
        let mut draw = || -> Vec<T> { random.elements(LEN) };
        let (mut x, mut y, z) = (draw(), draw(), draw());
        for i in (0..LEN).step_by(3) {
            x[i] = T::from_f64(f64::NAN);
            y[(i + i % 2) % LEN] = if f < 4 { T::from_f64(f64::NAN) } else { y[i] };
        }
        let mut out = device.zeros::<T>(LEN)?;
        let (xs, ys, zs) = (device.upload(&x)?, device.upload(&y)?, device.upload(&z)?);
        ExtremesConsts { F: f as i32 }.call(&xs, &ys, &zs, &mut out).grid(1).launch(device)?;
        let want = (0..LEN).map(|i| {
            let (a, b, c) = (x[i].to_f64(), y[i].to_f64(), z[i].to_f64());
            let propagated = if a.is_nan() || b.is_nan() { f64::NAN } else { 0.0 };
            T::from_f64(match f {
                0 => a.min(b),
                1 => a.max(b),
                2 => a.min(b) + propagated,
                3 => a.max(b) + propagated,
                _ => a.max(b.min(c)).min(b.max(c)),
            })
        });
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C17", "test_propagate_nan, test_clamp, test_maximum_minimum");
    macro_rules! each {
        ($t:ident) => {
            for (f, name) in NAMES.into_iter().enumerate() {
                row.case(format!("{name} {}", $t::NAME), move |device| case::<$t>(device, f));
            }
        };
    }
    for_floats!(each);
    row
}
