//! Code that depends on a dtype.

use tilewright::prelude::*;
use tilewright::{Error, Target};
use tilewright_tests::devices::check;

/// Which dtypes `T` and `U` are, and their widths.
#[kernel]
fn described<T: DType, U: Num>(out: PtrMut<i32>) {
    let mut which = if T == f16 || T == bf16 {
        1
    } else if T == bool {
        2
    } else {
        3
    };
    if T == U {
        which += 10;
    }
    if T != U && program_id(0) == 0 {
        which += 20;
    }
    store(out, which);
    store(out + 1, T::BITS as i32);
    store(out + 2, U::BITS / 8);
    store(out + 3, T::Acc::BITS as i32);
    store(out + arange(4, 4 + U::BITS), full([U::BITS], U::Acc::BITS));
}

fn described_as<T: DType, U: Num>(device: &Device, expected: [i32; 4], width: usize, acc: i32) -> Result<(), Error> {
    let mut out = device.zeros::<i32>(4 + 64)?;
    described::<T, U>(&mut out).grid(1).launch(device)?;
    let out = out.to_vec()?;
    assert_eq!(out[..4], expected);
    assert_eq!(out[4..4 + width], vec![acc; width]);
    assert_eq!(out[4 + width..], vec![0; 64 - width]);
    Ok(())
}

#[test]
fn dtypes_are_known_when_a_kernel_is_compiled() {
    check(|device| {
        described_as::<f16, f16>(device, [11, 16, 2, 32], 16, 32)?;
        described_as::<bf16, F8E4M3>(device, [21, 16, 1, 32], 8, 32)?;
        described_as::<bool, f64>(device, [22, 1, 8, 32], 64, 64)?;
        described_as::<u32, u16>(device, [23, 32, 2, 32], 16, 32)?;
        described_as::<i64, i64>(device, [13, 64, 8, 64], 64, 64)
    });
}

/// What is stored is `T::Acc`, so that it must be what the test says.
#[kernel]
fn sums<T: Num, A: Num, const N: usize>(x: Ptr<T>, out: PtrMut<A>) {
    static_assert!(T::Acc == A);
    let total: T::Acc = sum(load(x + arange(0, N)) as T::Acc);
    store(out, total as A);
}

#[test]
fn accumulators_hold_sums_of_many() {
    check(|device| {
        let mut total = device.zeros::<i32>(1)?;
        sums::<u8, _, 64>(&device.full(64, 255u8)?, &mut total).grid(1).launch(device)?;
        assert_eq!(total.to_vec()?, [64 * 255]);
        sums::<i16, _, 64>(&device.full(64, i16::MIN)?, &mut total).grid(1).launch(device)?;
        assert_eq!(total.to_vec()?, [64 * i32::from(i16::MIN)]);
        let mut total = device.zeros::<f32>(1)?;
        sums::<_, _, 64>(&device.full(64, f16::MAX)?, &mut total).grid(1).launch(device)?;
        assert_eq!(total.to_vec()?, [64.0 * 65504.0]);
        sums::<_, _, 64>(&device.full(64, 1.5f32)?, &mut total).grid(1).launch(device)?;
        assert_eq!(total.to_vec()?, [96.0]);
        let mut total = device.zeros::<f64>(1)?;
        sums::<_, _, 64>(&device.full(64, 0.1f64)?, &mut total).grid(1).launch(device)?;
        assert!((total.to_vec()?[0] - 6.4).abs() < 1e-14);
        let mut total = device.zeros::<u64>(1)?;
        sums::<_, _, 64>(&device.full(64, u64::MAX / 64)?, &mut total).grid(1).launch(device)?;
        assert_eq!(total.to_vec()?, [u64::MAX / 64 * 64]);
        Ok(())
    });
}

/// Products, summed in `T::Acc` from the first on.
#[kernel]
fn products<T: Num, A: Num, const N: usize>(x: Ptr<T>, out: PtrMut<A>) {
    static_assert!(T::Acc == A);
    let at = arange(0, N)[(.., None)] * N + arange(0, N);
    let x = load(x + at);
    let twice = dot(x, x, acc = dot(x, x, out = T::Acc, precision = ieee), out = T::Acc, precision = ieee);
    store(out + at, twice as A);
}

#[test]
fn products_are_summed_in_accumulators() {
    const N: usize = 16;
    fn of<T: Num, A: Num + PartialEq + std::fmt::Debug>(device: &Device, x: T, wanted: A) -> Result<(), Error> {
        let mut out = device.zeros::<A>(N * N)?;
        products::<T, A, N>(&device.full(N * N, x)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, vec![wanted; N * N]);
        Ok(())
    }
    check(|device| {
        of(device, f16::from_f32(300.0), 32.0 * 90000.0f32)?;
        of(device, bf16::from_f32(-1.5), 72.0f32)?;
        of(device, 3.0f32, 288.0f32)?;
        of(device, 2f64.powi(200), 32.0 * 2f64.powi(400))?;
        of(device, 0.5f64, 8.0f64)?;
        of(device, -128i8, 32 * 16384)?;
        of(device, 255u8, 32 * 65025)
    });
}

#[test]
fn a_wrong_dtype_is_an_error_of_the_assertion() {
    check(|device| {
        let mut total = device.zeros::<i64>(1)?;
        let launched = sums::<u8, _, 64>(&device.full(64, 255u8)?, &mut total).grid(1).launch(device);
        let Err(Error::Compile { .. }) = launched else { panic!("{launched:?}") };
        let text = launched.map_or_else(|error| error.to_string(), |()| String::new());
        assert!(text.contains("static assertion failed") && text.contains("T = u8, A = i64"), "{text}");
        Ok(())
    });
}

/// The branch that is not taken may hold what the dtype does not allow.
#[kernel]
fn bits_of<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<u32>) {
    let x = load(x + arange(0, N));
    let bits = if T::BITS == 16 {
        bitcast::<u16>(x) as u32
    } else if T == f32 {
        bitcast::<u32>(x)
    } else {
        full([N], 0)
    };
    store(out + arange(0, N), bits);
}

/// The bits of a float, as a function that is checked for all dtypes and inlined for one.
#[device]
fn bits<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<u32, { [N] }> {
    if T == f16 || T == bf16 {
        bitcast::<u16>(x) as u32
    } else {
        let wide: Tile<T::Acc, { [N] }> = x as T::Acc;
        bitcast::<u32>(wide as f32)
    }
}

#[kernel]
fn bits_of_three<const N: usize>(x: Ptr<f16>, y: Ptr<f32>, z: Ptr<f8e5m2>, out: PtrMut<u32>) {
    let i = arange(0, N);
    store(out + i, bits(load(x + i)));
    store(out + N + i, bits(load(y + i)));
    store(out + 2 * N + i, bits(load(z + i)));
}

#[test]
fn the_branch_that_is_not_taken_is_dropped() {
    check(|device| {
        let mut out = device.zeros::<u32>(8)?;
        bits_of::<_, 8>(&device.full(8, f16::ONE)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [u32::from(f16::ONE.to_bits()); 8]);
        bits_of::<_, 8>(&device.full(8, 1.5f32)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [1.5f32.to_bits(); 8]);
        bits_of::<_, 8>(&device.full(8, 1.5f64)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [0; 8]);
        let (x, y, z) = (device.full(4, f16::ONE)?, device.full(4, -2.0f32)?, device.full(4, F8E5M2::from_f32(0.5))?);
        let mut out = device.zeros::<u32>(12)?;
        bits_of_three::<4>(&x, &y, &z, &mut out).grid(1).launch(device)?;
        let expected = [u32::from(f16::ONE.to_bits()), (-2.0f32).to_bits(), 0.5f32.to_bits()];
        assert_eq!(out.to_vec()?, expected.map(|bits| [bits; 4]).concat());
        Ok(())
    });
}

/// The same code, written for one dtype.
#[kernel]
fn copy_halves<const N: usize>(x: Ptr<f16>, out: PtrMut<f16>) {
    let i = arange(0, N);
    store(out + i, load(x + i) * 2.0);
}

#[kernel]
fn copy_any<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, N);
    let x = load(x + i);
    store(out + i, if T == f16 { x * (2.0 as T) } else { exp(x) });
}

#[test]
fn a_branch_on_a_dtype_leaves_nothing_in_the_code() {
    let compiled = |kernel: Result<tilewright::launch::CompiledKernel, Error>| {
        let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
        kernel.ptx().replace("copy_any", "copy_halves")
    };
    let target = Target::sm_90a();
    let one = compiled(CopyHalvesConsts { N: 1024 }.compile(target));
    assert_eq!(compiled(CopyAnyConsts { N: 1024 }.compile::<f16>(target)), one);
    assert_ne!(compiled(CopyAnyConsts { N: 1024 }.compile::<bf16>(target)), one);
}
