//! Closures for single elements, and PTX that a kernel writes itself.

use half::f16;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Numbers that look random, with repetitions.
fn numbers(len: usize) -> Vec<i32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 18) as i32 % 997 - 400).collect()
}

#[kernel]
fn collatz<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, limit: i32) {
    let at = program_id(0) * N + arange(0, N);
    let steps = map_elementwise(load(x + at), |start| {
        let mut n = start;
        let mut count = 0;
        while n > 1 && count < limit {
            if n % 2 == 0 {
                n /= 2;
            } else {
                n = 3 * n + 1;
            }
            count += 1;
        }
        count
    });
    store(out + at, steps);
}

#[test]
fn each_element_runs_its_own_loop() {
    let steps = |start: i32, limit: i32| {
        let (mut n, mut count) = (start, 0);
        while n > 1 && count < limit {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        count
    };
    check(|device| {
        let xs: Vec<i32> = numbers(1024).iter().map(|x| x.abs()).collect();
        let input = device.upload(&xs)?;
        for limit in [0, 7, 1000] {
            let expected: Vec<i32> = xs.iter().map(|&x| steps(x, limit)).collect();
            for warps in [1, 4, 8] {
                let mut out = device.zeros::<i32>(1024)?;
                collatz::<256>(&input, &mut out, limit).grid(4).num_warps(warps).launch(device)?;
                assert_eq!(out.to_vec()?, expected, "{limit}, {warps} warps");
            }
            let mut out = device.zeros::<i32>(1024)?;
            collatz::<16>(&input, &mut out, limit).grid(64).launch(device)?;
            assert_eq!(out.to_vec()?, expected, "more threads than elements");
        }
        Ok(())
    });
}

#[kernel]
fn searched<const N: usize>(keys: Ptr<f32>, out: PtrMut<i32>, roots: PtrMut<f64>, bias: f64) {
    let at = arange(0, N);
    let key = load(keys + at);
    // What a `loop` gives, a label, a counter that goes on, `continue`, a variable of the kernel.
    let mut offset = 100;
    offset += 1;
    let (place, root) = map_elementwise(key, at, |x, i| {
        let mut tries = 0;
        let found = 'all: loop {
            for k in 0..8 {
                tries += 1;
                if k % 2 == 1 {
                    continue;
                }
                if x < k as f32 {
                    break 'all k;
                }
            }
            break -1;
        };
        let mut root = 1.0_f64;
        let x = abs(x) as f64;
        for _ in 0..i % 5 {
            root = (root + x / root) / 2.0;
        }
        (found * 1000 + tries + offset, root + bias)
    });
    store(out + at, place);
    store(roots + at, root);
}

#[test]
fn loops_of_elements_are_left_early_and_read_scalars_around_them() {
    check(|device| {
        let xs: Vec<f32> = numbers(128).iter().map(|&x| x as f32 / 64.0).collect();
        let (mut out, mut roots) = (device.zeros::<i32>(128)?, device.zeros::<f64>(128)?);
        searched::<128>(&device.upload(&xs)?, &mut out, &mut roots, 0.5).grid(1).launch(device)?;
        let (out, roots) = (out.to_vec()?, roots.to_vec()?);
        for (i, &x) in xs.iter().enumerate() {
            let found = (0..8).find(|k| k % 2 == 0 && x < *k as f32);
            let (found, tries) = found.map_or((-1, 8), |k| (k, k + 1));
            assert_eq!(out[i], found * 1000 + tries + 101, "{x}");
            let (mut root, wide) = (1.0_f64, f64::from(x.abs()));
            for _ in 0..i % 5 {
                root = (root + wide / root) / 2.0;
            }
            assert_eq!(roots[i], root + 0.5, "{i}");
        }
        Ok(())
    });
}

#[kernel]
fn rooted<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, most: i32) {
    let at = arange(0, N);
    let (root, way) = map_elementwise(load(x + at), |x| {
        if x < 0 {
            return (-1, 0);
        }
        let limit = if x > 300 { return (most, 1) } else { x };
        for i in 0..limit {
            let mut j = 0;
            while j < 2 {
                if i * i + j > limit {
                    return (i, 2 + j);
                }
                j += 1;
            }
        }
        (limit, 4)
    });
    store(out + at, root * 10 + way);
}

#[test]
fn elements_return_early() {
    let want = |x: i32, most: i32| {
        if x < 0 {
            return -10;
        }
        if x > 300 {
            return most * 10 + 1;
        }
        for i in 0..x {
            for j in 0..2 {
                if i * i + j > x {
                    return i * 10 + 2 + j;
                }
            }
        }
        x * 10 + 4
    };
    check(|device| {
        let xs = numbers(512);
        for warps in [1, 4] {
            let mut out = device.zeros::<i32>(512)?;
            rooted::<512>(&device.upload(&xs)?, &mut out, 77).grid(1).num_warps(warps).launch(device)?;
            assert_eq!(out.to_vec()?, xs.iter().map(|&x| want(x, 77)).collect::<Vec<_>>());
        }
        Ok(())
    });
}

#[device]
fn clamped(x: f32, lo: f32, hi: f32) -> f32 {
    if x < lo {
        lo
    } else if x > hi {
        hi
    } else {
        x
    }
}

#[kernel]
fn broadcast_together<const M: usize, const N: usize>(x: Ptr<f32>, lo: Ptr<f32>, out: PtrMut<f32>, total: PtrMut<i32>) {
    let at = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
    let lows = load(lo + arange(0, M))[(.., None)];
    let between = |v, lo| clamped(v, lo, 2.0);
    let v = map_elementwise(load(x + at), lows, |v, lo| between(v, lo));
    store(out + at, v + map_elementwise(sum(v, axis = 0), |s| if s > 0.0 { 1.0 } else { 0.0 }));
    // Of scalars it is one element.
    store(
        total,
        map_elementwise(M, N, |m: i32, n: i32| -> i32 {
            if m > n { m - n } else { n - m }
        }),
    );
}

#[test]
fn tiles_broadcast_and_functions_are_called() {
    check(|device| {
        let (m, n) = (16usize, 64usize);
        let xs: Vec<f32> = numbers(m * n).iter().map(|&x| x as f32 / 100.0).collect();
        let lows: Vec<f32> = (0..m).map(|row| row as f32 / 16.0 - 1.0).collect();
        for warps in [1, 4, 8] {
            let (mut out, mut total) = (device.zeros::<f32>(m * n)?, device.zeros::<i32>(1)?);
            let (x, lo) = (device.upload(&xs)?, device.upload(&lows)?);
            broadcast_together::<16, 64>(&x, &lo, &mut out, &mut total).grid(1).num_warps(warps).launch(device)?;
            let clamped: Vec<f32> = xs.iter().enumerate().map(|(i, &x)| x.max(lows[i / n]).min(2.0)).collect();
            for (i, got) in out.to_vec()?.into_iter().enumerate() {
                let column: f64 = clamped.iter().skip(i % n).step_by(n).map(|&x| f64::from(x)).sum();
                if column.abs() > 1e-3 {
                    assert_eq!(got, clamped[i] + if column > 0.0 { 1.0 } else { 0.0 }, "{i}");
                }
            }
            assert_eq!(total.to_vec()?, [48]);
        }
        Ok(())
    });
}

#[kernel]
fn greatest_divisors<T: Int, const N: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let at = arange(0, N);
    let divisor = map_elementwise(load(x + at), load(y + at), |x, y| {
        let (mut a, mut b) = (x, y);
        while b != 0 {
            let rest = a % b;
            a = b;
            b = rest;
        }
        a
    });
    store(out + at, divisor);
}

macro_rules! divisors {
    ($device:ident, $($ty:ident)*) => {$(
        let of = |seed: usize| -> Vec<$ty> { (0..64).map(|i| ((i * seed + 1) % 120) as $ty).collect() };
        let (xs, ys) = (of(7), of(45));
        let mut out = $device.zeros::<$ty>(64)?;
        greatest_divisors::<_, 64>(&$device.upload(&xs)?, &$device.upload(&ys)?, &mut out).grid(1).launch($device)?;
        for (i, got) in out.to_vec()?.into_iter().enumerate() {
            let (mut a, mut b) = (xs[i], ys[i]);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            assert_eq!(got, a, "{} and {}", xs[i], ys[i]);
        }
    )*};
}

#[test]
fn elements_of_every_integer_dtype_are_mapped() {
    check(|device| {
        divisors!(device, i8 i16 i32 i64 u8 u16 u32 u64);
        Ok(())
    });
}

#[kernel]
fn funnel<const N: usize>(x: Ptr<u32>, y: Ptr<u32>, out: PtrMut<u32>, n: u32) {
    let at = program_id(0) * N + arange(0, N);
    let shifted = inline_ptx("shf.l.wrap.b32 $0, $1, $2, $3;", load(x + at), load(y + at), n, |lo, hi, n| {
        if n % 32 == 0 { hi } else { hi << (n % 32) | lo >> (32 - n % 32) }
    });
    store(out + at, shifted);
}

#[test]
fn ptx_is_what_its_closure_says() {
    check(|device| {
        let xs: Vec<u32> = (0..2048u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let ys: Vec<u32> = (0..2048u32).map(|i| i.wrapping_mul(0x85EB_CA6B) ^ 77).collect();
        for (n, warps) in [(0, 1), (5, 4), (31, 8), (37, 4)] {
            let expected: Vec<u32> = xs
                .iter()
                .zip(&ys)
                .map(|(&lo, &hi)| ((u64::from(hi) << 32 | u64::from(lo)) << (n % 32) >> 32) as u32)
                .collect();
            let mut out = device.zeros::<u32>(2048)?;
            funnel::<512>(&device.upload(&xs)?, &device.upload(&ys)?, &mut out, n)
                .grid(4)
                .num_warps(warps)
                .launch(device)?;
            assert_eq!(out.to_vec()?, expected, "{n}");
            let mut out = device.zeros::<u32>(2048)?;
            funnel::<32>(&device.upload(&xs)?, &device.upload(&ys)?, &mut out, n).grid(64).launch(device)?;
            assert_eq!(out.to_vec()?, expected, "{n}, more threads than elements");
        }
        Ok(())
    });
}

/// Bytes, four in a register of 32 bits: with `N` smaller than the threads, some of a register are nobody's.
#[kernel]
fn packed_bytes<const N: usize>(x: Ptr<i8>, y: Ptr<i8>, sums: PtrMut<i8>, products: PtrMut<f32>) {
    let at = arange(0, N);
    let (sum, product) = inline_ptx(
        "{ .reg .b32 a, b; .reg .b16 p, q;
           and.b32 a, $5, 0x7f7f7f7f;
           and.b32 b, $6, 0x7f7f7f7f;
           add.s32 a, a, b;
           xor.b32 b, $5, $6;
           and.b32 b, b, 0x80808080;
           xor.b32 $0, a, b;
           bfe.s32 a, $5, 0, 8;  bfe.s32 b, $6, 0, 8;  mul.lo.s32 a, a, b; cvt.rn.f32.s32 $1, a;
           bfe.s32 a, $5, 8, 8;  bfe.s32 b, $6, 8, 8;  mul.lo.s32 a, a, b; cvt.rn.f32.s32 $2, a;
           bfe.s32 a, $5, 16, 8; bfe.s32 b, $6, 16, 8; mul.lo.s32 a, a, b; cvt.rn.f32.s32 $3, a;
           bfe.s32 a, $5, 24, 8; bfe.s32 b, $6, 24, 8; mul.lo.s32 a, a, b; cvt.rn.f32.s32 $4, a; }",
        load(x + at),
        load(y + at),
        |a, b| (a + b, (a as i32 * b as i32) as f32),
        pack = 4,
    );
    store(sums + at, sum);
    store(products + at, product);
}

#[test]
fn small_elements_are_packed() {
    fn run<const N: usize>(device: &Device) -> Result<(), tilewright::Error> {
        let of = |seed: usize| -> Vec<i8> { (0..N).map(|i| (i * seed + 3) as u8 as i8).collect() };
        let (xs, ys) = (of(37), of(101));
        for warps in [1, 4, 8] {
            let (mut sums, mut products) = (device.zeros::<i8>(N)?, device.zeros::<f32>(N)?);
            let (x, y) = (device.upload(&xs)?, device.upload(&ys)?);
            packed_bytes::<N>(&x, &y, &mut sums, &mut products).grid(1).num_warps(warps).launch(device)?;
            let pairs = || xs.iter().zip(&ys);
            assert_eq!(sums.to_vec()?, pairs().map(|(x, y)| x.wrapping_add(*y)).collect::<Vec<_>>());
            let product = |(x, y): (&i8, &i8)| f32::from(i16::from(*x) * i16::from(*y));
            assert_eq!(products.to_vec()?, pairs().map(product).collect::<Vec<_>>(), "{N}, {warps} warps");
        }
        Ok(())
    }
    check(|device| {
        run::<16>(device)?;
        run::<256>(device)?;
        run::<4096>(device)
    });
}

#[kernel]
fn registers<const N: usize>(h: PtrMut<f16>, b: PtrMut<i8>, u: PtrMut<u8>, w: PtrMut<i64>, d: PtrMut<f64>) {
    let at = arange(0, N);
    let half = load(h + at);
    let one = inline_ptx("neg.f16 $0, $1;", half, |a| -a);
    store(h + at, one);
    store(h + N + at, inline_ptx("neg.f16x2 $0, $1;", half, |a| -a, pack = 2));
    store(h + 2 * N + at, inline_ptx("neg.f16x2 $0, $2; neg.f16x2 $1, $3;", half, |a| -a, pack = 4));
    // Alone in its register, a byte is extended as its dtype says.
    let byte = load(b + at);
    store(b + at, inline_ptx("shr.s16 $0, $1, 1;", byte, |a| a >> 1));
    let byte = load(u + at);
    store(u + at, inline_ptx("shr.u16 $0, $1, 1;", byte, |a| a >> 1));
    let wide = load(w + at);
    store(w + at, inline_ptx("mad.lo.s64 $0, $1, $1, $2;", wide, 7_i64, |a, b| a * a + b));
    let double = load(d + at);
    store(d + at, inline_ptx("fma.rn.f64 $0, $1, $1, $1;", double, |a| fma(a, a, a)));
    store(d + N + at, inline_ptx("neg.f64 $0, $2; neg.f64 $1, $3;", double, |a| -a, pack = 2));
}

#[test]
fn registers_of_every_width_are_passed() {
    fn run<const N: usize>(device: &Device) -> Result<(), tilewright::Error> {
        let xs: Vec<i32> = numbers(N);
        let halves: Vec<f16> = xs.iter().cycle().take(3 * N).map(|&x| f16::from_f32(x as f32)).collect();
        let bytes: Vec<i8> = xs.iter().map(|&x| x as i8).collect();
        let unsigned: Vec<u8> = xs.iter().map(|&x| x as u8).collect();
        let wide: Vec<i64> = xs.iter().map(|&x| i64::from(x) << 20).collect();
        let doubles: Vec<f64> = xs.iter().cycle().take(2 * N).map(|&x| f64::from(x) / 3.0).collect();
        let (mut h, mut b, mut u) = (device.upload(&halves)?, device.upload(&bytes)?, device.upload(&unsigned)?);
        let (mut w, mut d) = (device.upload(&wide)?, device.upload(&doubles)?);
        registers::<N>(&mut h, &mut b, &mut u, &mut w, &mut d).grid(1).launch(device)?;
        assert_eq!(h.to_vec()?, halves.iter().map(|&x| -x).collect::<Vec<_>>());
        assert_eq!(b.to_vec()?, bytes.iter().map(|x| x >> 1).collect::<Vec<_>>());
        assert_eq!(u.to_vec()?, unsigned.iter().map(|x| x >> 1).collect::<Vec<_>>());
        assert_eq!(w.to_vec()?, wide.iter().map(|x| x.wrapping_mul(*x).wrapping_add(7)).collect::<Vec<_>>());
        let fused = doubles[..N].iter().map(|x| x.mul_add(*x, *x));
        assert_eq!(d.to_vec()?, fused.chain(doubles[..N].iter().map(|x| -x)).collect::<Vec<_>>());
        Ok(())
    }
    check(|device| {
        run::<32>(device)?;
        run::<1024>(device)
    });
}

/// An instruction that is not pure: each of two equal ones runs, between the stores around it.
#[kernel]
unsafe fn ordered<const N: usize>(x: PtrMut<i32>, out: PtrMut<i32>) {
    let at = arange(0, N);
    store(x + at, at);
    let a = inline_ptx("{ membar.cta; add.s32 $0, $1, 1; }", at, |a| a + 1, pure = false);
    let b = inline_ptx("{ membar.cta; add.s32 $0, $1, 1; }", at, |a| a + 1, pure = false);
    store(out + at, load(x + at) + a + b);
}

#[test]
fn ptx_that_is_not_pure_keeps_its_place() {
    check(|device| {
        let (mut x, mut out) = (device.zeros::<i32>(256)?, device.zeros::<i32>(256)?);
        // SAFETY: the kernel accesses 256 elements of each buffer.
        unsafe { ordered::<256>(&mut x, &mut out).grid(1).launch(device)? };
        assert_eq!(out.to_vec()?, (0..256).map(|i| 3 * i + 2).collect::<Vec<_>>());
        Ok(())
    });
}
