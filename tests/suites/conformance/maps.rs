//! Code for single elements, in Rust and in PTX.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::for_numbers;
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![ptx(), elements()]
}

/// Calls a macro for sizes of tiles and warps: with fewer elements than threads, as many, and several of each.
macro_rules! for_sizes {
    ($call:ident) => {
        $call!(32, 1);
        $call!(64, 4);
        $call!(128, 4);
        $call!(1024, 4);
        $call!(2048, 8);
    };
}

#[kernel]
fn funnel<const N: usize>(x: Ptr<u32>, y: Ptr<u32>, out: PtrMut<u32>, n: u32) {
    let at = arange(0, N);
    let shifted = inline_ptx("shf.l.wrap.b32 $0, $1, $2, $3;", load(x + at), load(y + at), n, |lo, hi, n| {
        if n % 32 == 0 { hi } else { hi << (n % 32) | lo >> (32 - n % 32) }
    });
    store(out + at, shifted);
}

#[kernel]
fn packed<const N: usize>(x: Ptr<i8>, out: PtrMut<i8>) {
    let at = arange(0, N);
    let low = inline_ptx("and.b32 $0, $1, 0x1F1F1F1F; shl.b32 $0, $0, 3;", load(x + at), |x| (x & 31) << 3, pack = 4);
    store(out + at, low);
}

#[kernel]
fn several<const N: usize>(x: Ptr<u32>, y: Ptr<u32>, a: PtrMut<u32>, b: PtrMut<u32>) {
    let at = arange(0, N);
    let (first, second) =
        inline_ptx("sub.u32 $0, $2, $3; sub.u32 $1, $3, $2;", load(x + at), load(y + at), |x, y| (x - y, y - x));
    store(a + at, first);
    store(b + at, second);
}

/// Four bytes become integers, and four numbers their absolute values.
#[kernel]
fn unpacked<const N: usize>(x: Ptr<u8>, y: Ptr<f32>, a: PtrMut<i32>, b: PtrMut<f32>) {
    let at = arange(0, N);
    let (first, second) = inline_ptx(
        "{
            bfe.u32 $0, $8, 0, 8;
            bfe.u32 $1, $8, 8, 8;
            bfe.u32 $2, $8, 16, 8;
            bfe.u32 $3, $8, 24, 8;
            abs.f32 $4, $9;
            abs.f32 $5, $10;
            abs.f32 $6, $11;
            abs.f32 $7, $12;
        }",
        load(x + at),
        load(y + at),
        |x, y| (x as i32, abs(y)),
        pack = 4,
    );
    store(a + at, first);
    store(b + at, second);
}

/// What lies between loads and stores: its pointers are the kernel's.
#[kernel]
unsafe fn between<const N: usize>(x: Ptr<i8>, out: PtrMut<i8>) {
    let at = arange(0, N);
    let moved =
        inline_ptx("{ .reg .b16 t; mov.b16 t, $1; membar.cta; mov.b16 $0, t; }", load(x + at), |x| x, pure = false);
    store(out + at, moved);
}

fn ptx() -> Row {
    let mut row = Row::new(
        "C82",
        "test_inline_asm, test_inline_asm_packed, test_inline_asm_with_pointers, \
        test_inline_asm_multiple_outputs, test_inline_asm_packed_multiple_outputs",
    )
    .remarks("a closure says what the text computes; pointers are no operands: loads and stores are around the text");
    macro_rules! sized {
        ($n:literal, $warps:literal) => {
            for shift in [0u32, 2, 17, 31, 32] {
                row.case(format!("a shift of {}, {}, {}", shift, $n, $warps), move |device| {
                    let (x, y) = (Random::new(1).elements::<u32>($n), Random::new(2).elements::<u32>($n));
                    let mut out = device.zeros::<u32>($n)?;
                    funnel::<$n>(&device.upload(&x)?, &device.upload(&y)?, &mut out, shift)
                        .grid(1)
                        .num_warps($warps)
                        .launch(device)?;
                    let wide = |(&lo, &hi): (&u32, &u32)| u64::from(hi) << 32 | u64::from(lo);
                    let want: Vec<u32> =
                        x.iter().zip(&y).map(|pair| ((wide(pair) << (shift % 32)) >> 32) as u32).collect();
                    equal(&out.to_vec()?, &want)
                });
            }
            row.case(format!("bytes, {}, {}", $n, $warps), |device| {
                let x = Random::new(3).elements::<i8>($n);
                let mut out = device.zeros::<i8>($n)?;
                packed::<$n>(&device.upload(&x)?, &mut out).grid(1).num_warps($warps).launch(device)?;
                equal(&out.to_vec()?, &x.iter().map(|x| (x & 31) << 3).collect::<Vec<_>>())
            });
            row.case(format!("two results, {}, {}", $n, $warps), |device| {
                let (x, y) = (Random::new(4).elements::<u32>($n), Random::new(5).elements::<u32>($n));
                let (mut a, mut b) = (device.zeros::<u32>($n)?, device.zeros::<u32>($n)?);
                several::<$n>(&device.upload(&x)?, &device.upload(&y)?, &mut a, &mut b)
                    .grid(1)
                    .num_warps($warps)
                    .launch(device)?;
                equal(&a.to_vec()?, &x.iter().zip(&y).map(|(x, y)| x.wrapping_sub(*y)).collect::<Vec<_>>())?;
                equal(&b.to_vec()?, &x.iter().zip(&y).map(|(x, y)| y.wrapping_sub(*x)).collect::<Vec<_>>())
            });
            row.case(format!("two results of bytes, {}, {}", $n, $warps), |device| {
                let (x, y) = (Random::new(6).elements::<u8>($n), Random::new(7).elements::<f32>($n));
                let (mut a, mut b) = (device.zeros::<i32>($n)?, device.zeros::<f32>($n)?);
                unpacked::<$n>(&device.upload(&x)?, &device.upload(&y)?, &mut a, &mut b)
                    .grid(1)
                    .num_warps($warps)
                    .launch(device)?;
                equal(&a.to_vec()?, &x.iter().map(|&x| i32::from(x)).collect::<Vec<_>>())?;
                equal(&b.to_vec()?, &y.iter().map(|y| y.abs()).collect::<Vec<_>>())
            });
            row.case(format!("between accesses, {}, {}", $n, $warps), |device| {
                let x = Random::new(8).elements::<i8>($n);
                let mut out = device.zeros::<i8>($n)?;
                // SAFETY: both buffers have as many elements as the kernel accesses.
                unsafe { between::<$n>(&device.upload(&x)?, &mut out).grid(1).num_warps($warps).launch(device)? };
                equal(&out.to_vec()?, &x)
            });
        };
    }
    for_sizes!(sized);
    row
}

#[kernel]
fn ordered<T: Num, const N: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<i32>) {
    let at = arange(0, N);
    let order = map_elementwise(load(x + at), load(y + at), |x, y| {
        if x < y {
            -1
        } else if x == y {
            0
        } else {
            1
        }
    });
    store(out + at, order);
}

/// Quotient and remainder by subtraction.
#[kernel]
fn divided<const N: usize>(x: Ptr<i32>, y: Ptr<i32>, quotients: PtrMut<i32>, remainders: PtrMut<i32>) {
    let at = arange(0, N);
    let (quotient, remainder) = map_elementwise(load(x + at), load(y + at), |x, y| {
        let (mut quotient, mut remainder) = (0, x);
        while remainder >= y {
            quotient += 1;
            remainder -= y;
        }
        (quotient, remainder)
    });
    store(quotients + at, quotient);
    store(remainders + at, remainder);
}

fn order<T: Element + PartialOrd, const N: usize>(device: &Device, warps: u32) -> Outcome {
    let mut random = Random::new(9);
    let (x, y) = (random.small::<T>(N, 0, 20), random.small::<T>(N, 0, 20));
    let mut out = device.zeros::<i32>(N)?;
    ordered::<T, N>(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).num_warps(warps).launch(device)?;
    let order = |(x, y): (&T, &T)| i32::from(x > y) - i32::from(x < y);
    equal(&out.to_vec()?, &x.iter().zip(&y).map(order).collect::<Vec<_>>())
}

fn elements() -> Row {
    let upstream = "test_map_elementwise, test_map_elementwise_multiple_outputs, test_map_elementwise_pack";
    let mut row = Row::new("C83", upstream).remarks("without `pack`: LLVM joins the code of a thread's elements");
    macro_rules! ordered_cases {
        ($ty:ident) => {
            row.case(format!("the order of {}, 64, 4", <$ty as Element>::NAME), |device| order::<$ty, 64>(device, 4));
            row.case(format!("the order of {}, 1024, 1", <$ty as Element>::NAME), |device| {
                order::<$ty, 1024>(device, 1)
            });
            row.case(format!("the order of {}, 2048, 8", <$ty as Element>::NAME), |device| {
                order::<$ty, 2048>(device, 8)
            });
        };
    }
    for_numbers!(ordered_cases);
    macro_rules! divided_cases {
        ($n:literal, $warps:literal) => {
            row.case(format!("quotients and remainders, {}, {}", $n, $warps), |device| {
                let mut random = Random::new(10);
                let (x, y) = (random.small::<i32>($n, 0, 500), random.small::<i32>($n, 1, 30));
                let (mut q, mut r) = (device.zeros::<i32>($n)?, device.zeros::<i32>($n)?);
                divided::<$n>(&device.upload(&x)?, &device.upload(&y)?, &mut q, &mut r)
                    .grid(1)
                    .num_warps($warps)
                    .launch(device)?;
                equal(&q.to_vec()?, &x.iter().zip(&y).map(|(x, y)| x / y).collect::<Vec<_>>())?;
                equal(&r.to_vec()?, &x.iter().zip(&y).map(|(x, y)| x % y).collect::<Vec<_>>())
            });
        };
    }
    for_sizes!(divided_cases);
    row
}
