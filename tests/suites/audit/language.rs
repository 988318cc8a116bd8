//! The language itself: literals, scopes, pointers, parameters of every type.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn literals(out: PtrMut<i64>) {
    store(out, 0xff);
    store(out + 1, 1_000_000);
    store(out + 2, -128i8 as i64);
    store(out + 3, 255u8 as i64);
    store(out + 4, 9_223_372_036_854_775_807);
    store(out + 5, -9_223_372_036_854_775_808);
    store(out + 6, 0b1010 as i64);
    store(out + 7, (7 / 2 * 2) as i64);
    store(out + 8, (-7 / 2) as i64);
    store(out + 9, (-7 % 3) as i64);
    store(out + 10, 1e3 as i64);
    store(out + 11, true as i64);
    store(out + 12, (i32::MAX + 1) as i64);
    store(out + 13, (3000000000u32) as i64);
    store(out + 14, !0u8 as i64);
    store(out + 15, (1u32 << 33) as i64);
}

#[test]
fn literals_and_constant_arithmetic() {
    check(|device| {
        let mut out = device.zeros::<i64>(16)?;
        literals(&mut out).grid(1).launch(device)?;
        let want = [
            255,
            1_000_000,
            -128,
            255,
            i64::MAX,
            i64::MIN,
            10,
            6,
            -3,
            -1,
            1000,
            1,
            i64::from(i32::MIN),
            3_000_000_000,
            255,
            2,
        ];
        assert_eq!(out.to_vec()?, want);
        Ok(())
    });
}

#[kernel]
fn assignments<const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange(0, BLOCK);
    let mut v = load(x + i);
    v += 5;
    v -= 1;
    v *= 3;
    v /= 2;
    v %= 100;
    v <<= 2;
    v >>= 1;
    v |= 1;
    v &= 0xfff;
    v ^= 0x55;
    let v = {
        let w = v;
        // Inner names end with their block.
        let v = 1;
        w + v
    };
    let (a, (b, c)) = (v, (v + 1, -v));
    let t = (a, b + c);
    store(out + i, t.0 * 2 + t.1);
}

#[test]
fn compound_assignments_and_scopes() {
    check(|device| {
        let xs: Vec<i32> = (0..64).map(|i| i * 991 - 20_000).collect();
        let mut out = device.zeros::<i32>(64)?;
        assignments::<64>(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        let want = |x: i32| {
            let mut v = x;
            v += 5;
            v -= 1;
            v *= 3;
            v /= 2;
            v %= 100;
            v <<= 2;
            v >>= 1;
            v |= 1;
            v &= 0xfff;
            v ^= 0x55;
            let v = v + 1;
            v * 2 + 1
        };
        assert_eq!(out.to_vec()?, xs.into_iter().map(want).collect::<Vec<_>>());
        Ok(())
    });
}

#[kernel]
fn pointers(x: Ptr<i32>, out: PtrMut<i32>, back: u8, far: u64, near: i16) {
    let i = arange(0, 16);
    let mut p = x + 100;
    p -= back;
    store(out + i, load(p + i));
    let q = x + far;
    store(out + 16 + i, load(q + near as i32 + i));
    let mut walking = x + i;
    let mut total = zeros::<i32>([16]);
    for _ in 0..3 {
        total += load(walking);
        walking += 16;
    }
    store(out + 32 + i, total);
    let chosen = if near < 0 { x + 7 } else { x + 9 };
    store(out + 48 + i, load(chosen + i));
}

#[test]
fn pointers_move_by_offsets_of_every_type() {
    check(|device| {
        let xs: Vec<i32> = (0..200).map(|i| i * i).collect();
        let x = device.upload(&xs)?;
        for (back, far, near) in [(100u8, 64u64, -64i16), (3, 100, 60), (0, 184, 0)] {
            let mut out = device.zeros::<i32>(64)?;
            pointers(&x, &mut out, back, far, near).grid(1).launch(device)?;
            let mut want: Vec<i32> = (0..16).map(|i| xs[100 - usize::from(back) + i]).collect();
            want.extend((0..16).map(|i| xs[(far as i64 + i64::from(near)) as usize + i]));
            want.extend((0..16).map(|i| xs[i] + xs[16 + i] + xs[32 + i]));
            want.extend((0..16).map(|i| xs[i + if near < 0 { 7 } else { 9 }]));
            assert_eq!(out.to_vec()?, want);
        }
        Ok(())
    });
}

#[kernel]
fn scalars(
    flag: bool,
    a: i8,
    b: u8,
    c: i16,
    d: u16,
    e: i32,
    f: u32,
    g: i64,
    h: u64,
    half: f16,
    brain: bf16,
    single: f32,
    double: f64,
    ints: PtrMut<i64>,
    floats: PtrMut<f64>,
) {
    store(ints, flag as i64);
    store(ints + 1, a as i64);
    store(ints + 2, b as i64);
    store(ints + 3, c as i64);
    store(ints + 4, d as i64);
    store(ints + 5, e as i64);
    store(ints + 6, f as i64);
    store(ints + 7, g);
    store(ints + 8, h as i64);
    store(floats, half as f64);
    store(floats + 1, brain as f64);
    store(floats + 2, single as f64);
    store(floats + 3, double);
}

#[test]
fn scalars_of_every_type() {
    check(|device| {
        let (mut ints, mut floats) = (device.zeros::<i64>(9)?, device.zeros::<f64>(4)?);
        let (half, brain) = (f16::from_f32(-0.1), bf16::from_f32(1e30));
        for flag in [true, false] {
            scalars(
                flag,
                i8::MIN,
                u8::MAX,
                i16::MIN,
                u16::MAX,
                i32::MIN,
                u32::MAX,
                i64::MIN,
                u64::MAX - 1,
                half,
                brain,
                f32::MIN_POSITIVE / 2.0,
                std::f64::consts::PI,
                &mut ints,
                &mut floats,
            )
            .grid(1)
            .launch(device)?;
            let want =
                [i64::from(flag), -128, 255, -32768, 65535, i64::from(i32::MIN), i64::from(u32::MAX), i64::MIN, -2];
            assert_eq!(ints.to_vec()?, want);
            let want = [half.to_f64(), brain.to_f64(), f64::from(f32::MIN_POSITIVE / 2.0), std::f64::consts::PI];
            assert_eq!(floats.to_vec()?, want);
        }
        Ok(())
    });
}

#[kernel]
fn masks(x: Ptr<i32>, flags: Ptr<bool>, out: PtrMut<bool>, all: PtrMut<bool>) {
    let i = arange(0, 64);
    let v = load(x + i);
    let f = load(flags + i);
    store(out + i, (v > 3) & !f | (v == -1));
    store(out + 64 + i, f ^ (v < 0));
    store(out + 128 + i, f == (v < 0));
    store(out + 192 + i, select(f, v > 0, v < 0));
    store(all, reduce(f, axis = 0, |a, b| a & b));
    store(all + 1, reduce(f, axis = 0, |a, b| a | b));
}

#[test]
fn truth_values_in_memory() {
    check(|device| {
        let xs: Vec<i32> = (0..64).map(|i| i % 9 - 4).collect();
        let fs: Vec<bool> = (0..64).map(|i| i % 5 < 2).collect();
        let (mut out, mut all) = (device.zeros::<bool>(256)?, device.zeros::<bool>(2)?);
        masks(&device.upload(&xs)?, &device.upload(&fs)?, &mut out, &mut all).grid(1).launch(device)?;
        let each = |f: &dyn Fn(i32, bool) -> bool| xs.iter().zip(&fs).map(|(&v, &b)| f(v, b)).collect::<Vec<_>>();
        let mut want = each(&|v, f| (v > 3) & !f | (v == -1));
        want.extend(each(&|v, f| f ^ (v < 0)));
        want.extend(each(&|v, f| f == (v < 0)));
        want.extend(each(&|v, f| if f { v > 0 } else { v < 0 }));
        assert_eq!(out.to_vec()?, want);
        assert_eq!(all.to_vec()?, [false, true]);
        Ok(())
    });
}

#[kernel]
fn nothing() {}

#[kernel(num_warps = 2, num_stages = 1, contract = false)]
fn r#move<const r#TYPE: usize>(r#in: Ptr<f64>, out: PtrMut<f64>) {
    let r#loop = arange(0, r#TYPE);
    let v = load(r#in + r#loop);
    store(out + r#loop, v * v + 0.1);
}

#[test]
fn odd_names_and_empty_kernels() {
    check(|device| {
        nothing().grid(3).launch(device)?;
        let xs: Vec<f64> = (0..32).map(|i| f64::from(i) / 7.0).collect();
        let mut out = device.zeros::<f64>(32)?;
        r#move::<32>(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
        // Without contraction the product is rounded by itself.
        assert_eq!(out.to_vec()?, xs.iter().map(|x| x * x + 0.1).collect::<Vec<_>>());
        device.synchronize()
    });
}

#[kernel]
fn searches(x: Ptr<i32>, out: PtrMut<i32>, n: i32, wanted: i32) {
    // The load must not run when `i` has left the buffer.
    let mut i = 0;
    while i < n && load(x + i) != wanted {
        i += 1;
    }
    store(out, i);
}

#[test]
fn a_while_condition_that_stops_before_it_reads_too_far() {
    check(|device| {
        let x = device.upload(&[5, 6, 7, 8])?;
        for (wanted, index) in [(5, 0), (8, 3), (9, 4)] {
            let mut out = device.zeros::<i32>(1)?;
            searches(&x, &mut out, 4, wanted).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, [index], "{wanted}");
        }
        Ok(())
    });
}

#[kernel]
fn generic_constants<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, BLOCK);
    let v = load(x + i);
    let half_block = BLOCK / 2;
    let scaled = v * (2 as T) + (half_block as T);
    store(out + i, select(i < half_block, scaled, maximum(v, 3 as T)));
}

#[test]
fn generic_code_on_several_dtypes() {
    check(|device| {
        macro_rules! run {
            ($($ty:ty)*) => {$({
                let xs: Vec<$ty> = (0..16u8).map(|i| <$ty>::from(i)).collect();
                let mut out = device.zeros::<$ty>(16)?;
                generic_constants::<$ty, 16>(&device.upload(&xs)?, &mut out).grid(1).launch(device)?;
                let want = |i: u8| <$ty>::from(if i < 8 { 2 * i + 8 } else { i.max(3) });
                assert_eq!(out.to_vec()?, (0..16u8).map(want).collect::<Vec<_>>());
            })*};
        }
        run!(u8 i16 u16 i32 u32 i64 u64 f32 f64 f16 bf16);
        Ok(())
    });
}

/// Statements from elsewhere, with a semicolon behind them.
macro_rules! finished_by_a_semicolon {
    ($name:ident($out:ident) $($body:tt)*) => {
        #[kernel]
        fn $name($out: PtrMut<i32>) {
            $($body)*;
        }
    };
}

finished_by_a_semicolon! { seven(out) store(out, 6); store(out, load(out) + 1); }

#[test]
fn statements_may_be_empty() {
    check(|device| {
        let mut out = device.zeros::<i32>(1)?;
        seven(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [7]);
        Ok(())
    });
}
