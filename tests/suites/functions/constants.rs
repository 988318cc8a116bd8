//! Functions that name constants of their own module and crate.

use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::functions::limits::limited;

const LIMIT: i32 = 1000;

mod local {
    use tilewright::prelude::*;
    use tilewright_tests::functions::limits;

    const LIMIT: i32 = 10;

    /// Of a function of another crate, and of a constant of the same name as others.
    #[device]
    pub(super) fn steps<const N: usize>(x: i32) -> Tile<f32, { [N] }> {
        (arange(0, N) * LIMIT) as f32 + limits::limited(x)
    }

    /// A function that is only called by others keeps its constants, and a branch that is not taken keeps its own.
    #[device]
    pub(super) fn chosen<const FIRST: bool>(x: i32) -> i32 {
        const_of(if FIRST { x * LIMIT } else { x - LIMIT })
    }

    /// Two ways lead to one constant.
    #[device]
    pub(super) fn both_ways(x: i32) -> i32 {
        chosen::<true>(x) + const_of(x)
    }

    #[device]
    fn const_of(x: i32) -> i32 {
        x + LIMIT
    }
}

#[kernel]
fn constants(out: PtrMut<f32>) {
    store(out, limited(16 + LIMIT - 1000));
    store(out + 1 + arange(0, 4), local::steps::<4>(3));
    store(out + 5, (local::chosen::<true>(7) * LIMIT + local::chosen::<false>(7)) as f32);
    store(out + 6, local::both_ways(7) as f32);
}

#[test]
fn functions_see_the_constants_of_their_modules() {
    check(|device| {
        let mut out = device.zeros::<f32>(7)?;
        constants(&mut out).grid(1).launch(device)?;
        let limited = |x: i32| x.min(20) as f32 * 0.125 + 3.0;
        let mut wanted = vec![limited(16)];
        wanted.extend((0..4).map(|i| (i * 10) as f32 + limited(3)));
        wanted.extend([80.0 * 1000.0 + 7.0, 80.0 + 17.0]);
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}

mod converted {
    use tilewright::prelude::*;

    const EPS: f32 = 1e-5;
    const COUNT: usize = 3;
    const MASK: u32 = 0xFFFF_FFF0;
    const DOWN: i32 = -1;
    const ZERO: f64 = -0.0;

    /// Constants of other types than `T`, in a function whose `T` is known where it is called.
    #[device]
    fn raised<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        x * COUNT as T + EPS as T
    }

    #[device]
    fn masked<T: Int, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        (x & MASK as T) + DOWN as T
    }

    #[kernel]
    pub fn floats<T: Float, const N: usize>(x: Ptr<T>, known: PtrMut<f32>, out: PtrMut<T>) {
        let at = arange(0, N);
        store(out + at, raised(load(x + at)) + DOWN as T);
        store(out + N, ZERO as T);
        store(known + at, raised(load(x + at) as f32));
    }

    #[kernel]
    pub fn integers<T: Int, const N: usize>(x: Ptr<T>, sums: PtrMut<i64>, out: PtrMut<T>) {
        let at = arange(0, N);
        let tile = masked(load(x + at));
        store(out + at, tile);
        store(sums + at, tile as T::Acc as i64 + (MASK as T::Acc) as i64);
    }
}

/// What Rust's `as` makes of the same constants.
#[test]
fn constants_become_dtype_parameters() {
    check(|device| {
        let x = [1.0f64, -2.5, 0.0, 1e300];
        let (buffer, mut known, mut out) = (device.upload(&x)?, device.zeros::<f32>(4)?, device.zeros::<f64>(5)?);
        converted::floats::<_, 4>(&buffer, &mut known, &mut out).grid(1).launch(device)?;
        let out = out.to_vec()?;
        assert_eq!(out[..4], x.map(|x| (x * 3.0 + f64::from(1e-5f32)) - 1.0));
        assert!(out[4] == 0.0 && out[4].is_sign_negative(), "{}", out[4]);
        assert_eq!(known.to_vec()?, x.map(|x| x as f32 * 3.0 + 1e-5));

        macro_rules! integers {
            ($($ty:ty, $acc:ty;)*) => {$(
                let x: Vec<$ty> = vec![77, 5, 16, <$ty>::MAX];
                let (buffer, mut sums) = (device.upload(&x)?, device.zeros::<i64>(4)?);
                let mut out = device.zeros::<$ty>(4)?;
                converted::integers::<_, 4>(&buffer, &mut sums, &mut out).grid(1).launch(device)?;
                let masked = |x: &$ty| (x & 0xFFFF_FFF0u32 as $ty).wrapping_add(-1i32 as $ty);
                let wanted: Vec<$ty> = x.iter().map(masked).collect();
                let sum = |x: &$ty| (*x as $acc as i64).wrapping_add(0xFFFF_FFF0u32 as $acc as i64);
                assert_eq!(sums.to_vec()?, wanted.iter().map(sum).collect::<Vec<i64>>());
                assert_eq!(out.to_vec()?, wanted);
            )*};
        }
        integers! { i8, i32; u8, i32; i16, i32; i32, i32; u32, u32; i64, i64; u64, u64; }
        Ok(())
    });
}

mod limits {
    use tilewright::prelude::*;

    const LARGE: u64 = u64::MAX - 41;
    const HALF: u64 = 1 << 63;
    const LEAST: i64 = i64::MIN;
    const BEYOND: f64 = 300.0;
    const BELOW: f32 = -300.0;
    const HUGE: f64 = 1e300;
    const FRACTION: f64 = 99.75;
    const NOTHING: f32 = f32::NAN;

    /// Constants beyond what some `T` hold, of all kinds.
    #[device]
    fn written<T: Num>(out: PtrMut<T>) {
        store(out, LARGE as T);
        store(out + 1, HALF as T);
        store(out + 2, LEAST as T);
        store(out + 3, BEYOND as T);
        store(out + 4, BELOW as T);
        store(out + 5, HUGE as T);
        store(out + 6, FRACTION as T);
        store(out + 7, NOTHING as T);
    }

    #[kernel]
    pub fn converted<T: Num>(x: Ptr<f64>, known: PtrMut<T>, out: PtrMut<T>, of_kernel: PtrMut<T>) {
        written(known);
        store(of_kernel, LARGE as T);
        store(of_kernel + 1, HUGE as T);
        // What is known at the launch only.
        store(out + arange(0, 4), load(x + arange(0, 4)) as T);
    }
}

/// Integers wrap and floats saturate, as in Rust: constants and what is known at the launch only.
#[test]
fn constants_beyond_a_dtype_are_what_rust_makes_of_them() {
    check(|device| {
        macro_rules! all {
            ($($ty:ty)*) => {$(
                let mut known = device.zeros::<$ty>(8)?;
                let (mut out, mut of_kernel) = (device.zeros::<$ty>(4)?, device.zeros::<$ty>(2)?);
                let x = [300.0, -300.0, 1e300, f64::NAN];
                limits::converted(&device.upload(&x)?, &mut known, &mut out, &mut of_kernel).grid(1).launch(device)?;
                let want = [
                    (u64::MAX - 41) as $ty,
                    (1u64 << 63) as $ty,
                    i64::MIN as $ty,
                    300.0f64 as $ty,
                    -300.0f32 as $ty,
                    1e300f64 as $ty,
                    99.75f64 as $ty,
                    x[3] as $ty,
                ];
                // NaN is the number that is not itself.
                let same = |a: &$ty, b: &$ty| a == b || (a != a && b != b);
                let equal = |got: Vec<$ty>, want: &[$ty]| {
                    let equal = got.len() == want.len() && got.iter().zip(want).all(|(a, b)| same(a, b));
                    assert!(equal, "{}: {got:?}, not {want:?}", stringify!($ty));
                };
                equal(known.to_vec()?, &want);
                assert_eq!(of_kernel.to_vec()?, [want[0], want[5]]);
                equal(out.to_vec()?, &x.map(|x| x as $ty));
            )*};
        }
        all! { i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 }
        Ok(())
    });
}

mod narrow {
    use tilewright::prelude::*;

    /// Slightly more than the middle between two `f16`, `f8e4m3`, `f8e5m2` or `bf16`. Rounded to another float first, each of them
    /// is that middle.
    const ELEVENTH: f64 = 1.0 + 1.0 / 2048.0 + 1e-9;
    const FOURTH: f64 = 1.0 + 1.0 / 16.0 + 1e-9;
    const THIRD: f64 = 1.0 + 1.0 / 8.0 + 1e-9;
    const UNSIGNED: u64 = (1 << 40) + (1 << 32) + 1;
    const LARGE: u64 = (1 << 63) + (1 << 55) + 1;
    const SIGNED: i64 = -(1 << 62) - (1 << 54) - 1;
    /// Slightly less than such a middle, above which f64 rounds.
    const LESS: u64 = (1 << 63) + (3 << 55) - 1;
    const WIDE: i128 = (1 << 100) + (1 << 92) + 1;
    const HUGE: f64 = -1e300;
    const ZERO: f32 = -0.0;
    const NOTHING: f32 = f32::NAN;

    #[device]
    fn halves(out: PtrMut<f16>) {
        store(out, ELEVENTH as f16);
        store(out + 1, UNSIGNED as f16);
        store(out + 2, HUGE as f16);
        store(out + 3, ZERO as f16);
        store(out + 4, NOTHING as f16);
    }

    #[kernel]
    pub fn rounded(f16s: PtrMut<f16>, bf16s: PtrMut<bf16>, e4m3: PtrMut<f8e4m3>, e5m2: PtrMut<f8e5m2>) {
        halves(f16s);
        store(bf16s, UNSIGNED as bf16);
        store(bf16s + 1, LARGE as bf16);
        store(bf16s + 2, SIGNED as bf16);
        store(bf16s + 3, LESS as bf16);
        store(bf16s + 4, WIDE as bf16);
        store(bf16s + 5, ELEVENTH as bf16);
        store(e4m3, FOURTH as f8e4m3);
        store(e4m3 + 1, HUGE as f8e4m3);
        store(e5m2, THIRD as f8e5m2);
        store(e5m2 + 1, UNSIGNED as f8e5m2);
    }
}

#[test]
fn constants_are_rounded_to_narrow_floats_once() {
    check(|device| {
        let (mut halves, mut shorts) = (device.zeros::<f16>(5)?, device.zeros::<bf16>(6)?);
        let (mut e4m3, mut e5m2) = (device.zeros::<F8E4M3>(2)?, device.zeros::<F8E5M2>(2)?);
        narrow::rounded(&mut halves, &mut shorts, &mut e4m3, &mut e5m2).grid(1).launch(device)?;
        let halves: Vec<f64> = halves.to_vec()?.into_iter().map(f16::to_f64).collect();
        assert_eq!(halves[..3], [1.0 + 1.0 / 1024.0, f64::INFINITY, f64::NEG_INFINITY]);
        assert!(halves[3] == 0.0 && halves[3].is_sign_negative() && halves[4].is_nan(), "{halves:?}");
        let shorts: Vec<f64> = shorts.to_vec()?.into_iter().map(bf16::to_f64).collect();
        let step = 1.0 + 1.0 / 128.0;
        let power = |exponent| 2f64.powi(exponent);
        assert_eq!(
            shorts,
            [power(40) * step, power(63) * step, -power(62) * step, power(63) * step, power(100) * step, 1.0]
        );
        assert_eq!(e4m3.to_vec()?.into_iter().map(F8E4M3::to_f64).collect::<Vec<f64>>(), [1.125, -448.0]);
        assert_eq!(e5m2.to_vec()?.into_iter().map(F8E5M2::to_f64).collect::<Vec<f64>>(), [1.25, 57344.0]);
        Ok(())
    });
}

mod shapes {
    use tilewright::prelude::*;
    use tilewright_tests::functions::lanes::{self, Groups, LANES, eighths, group};
    use tilewright_tests::functions::widths::{self, numbers};

    /// The lanes of a local function, which are those of the other crate's.
    #[device]
    fn doubled(group: Tile<f32, { [LANES] }>) -> Tile<f32, { [LANES] }> {
        group + lanes::same(group)
    }

    #[kernel]
    pub fn grouped(x: Ptr<f32>, out: PtrMut<f32>, few: PtrMut<f32>, count: PtrMut<i32>) {
        let first = group(x);
        let mut groups = Groups::<2>::new();
        for i in 0..3 {
            groups.add(join(first, group(x + i * LANES)).trans());
        }
        let offsets = arange(0, 2)[(.., None)] * LANES + arange(0, lanes::LANES);
        store(out + offsets, groups.sums + doubled(first));
        store(few + arange(0, 4), eighths(first));
        store(count + arange(0, widths::WIDTH), numbers());
        store(out + 2 * LANES + arange(0, LANES), reshape(trans(lanes::halves(first)), [LANES]));
    }
}

#[test]
fn constants_of_modules_may_be_in_shapes() {
    check(|device| {
        let x: Vec<f32> = (0..96).map(|i| (i * 7 % 32) as f32).collect();
        let (mut out, mut few) = (device.zeros::<f32>(96)?, device.zeros::<f32>(4)?);
        let mut count = device.zeros::<i32>(4)?;
        shapes::grouped(&device.upload(&x)?, &mut out, &mut few, &mut count).grid(1).launch(device)?;
        let lane = |row: usize, i: usize| 3.0 * if row == 0 { x[i] } else { (x[i] + x[32 + i] + x[64 + i]) / 3.0 };
        let mut wanted: Vec<f32> = (0..64).map(|at| lane(at / 32, at % 32) + 2.0 * x[at % 32]).collect();
        wanted.extend(&x[..32]);
        assert_eq!(out.to_vec()?, wanted);
        assert_eq!(few.to_vec()?, x[..32].chunks(8).map(|few| few.iter().sum()).collect::<Vec<f32>>());
        assert_eq!(count.to_vec()?, [0, 1, 2, 3]);
        Ok(())
    });
}
