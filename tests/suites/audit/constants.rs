//! Constexprs, module constants, `Const` parameters, and what is checked when they are bound.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// A constant of the module that a kernel uses.
const LIMIT: i32 = 17;
const SCALE: f32 = 0.375;
const WIDTH: usize = 64;

mod other {
    use tilewright::prelude::*;

    /// The same name as outside, another value.
    const LIMIT: i32 = 3;

    #[kernel]
    pub fn clipped(out: PtrMut<i32>) {
        let i = arange(0, 32);
        store(out + i, minimum(i, LIMIT));
    }
}

#[kernel]
fn clipped(out: PtrMut<i32>) {
    let i = arange(0, 32);
    store(out + i, minimum(i, LIMIT));
}

#[kernel]
fn scaled(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, WIDTH);
    store(out + i, load(x + i) * SCALE);
}

#[test]
fn module_constants_are_those_of_the_module() {
    check(|device| {
        let mut out = device.zeros::<i32>(32)?;
        clipped(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, (0..32).map(|i| i.min(17)).collect::<Vec<_>>());
        other::clipped(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, (0..32).map(|i| i.min(3)).collect::<Vec<_>>());
        let xs: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let mut floats = device.zeros::<f32>(64)?;
        scaled(&device.upload(&xs)?, &mut floats).grid(1).launch(device)?;
        assert_eq!(floats.to_vec()?, xs.iter().map(|x| x * 0.375).collect::<Vec<_>>());
        Ok(())
    });
}

#[device]
fn times<const H: u8, const K: usize>(x: f32) -> f32 {
    if K > 5 { -x } else { x * H as f32 }
}

#[kernel]
fn raised<const A: u8, const N: usize>(out: PtrMut<f32>) {
    store(out, times::<{ A + 200 }, { N - 1 }>(1.0));
}

#[kernel]
fn raised_in_closures<const A: u8>(out: PtrMut<f32>) {
    let x = full([4], 1.0);
    let each = map_elementwise(x, |v| if v > 0.0 { times::<{ A + 200 }, 0>(v) } else { v });
    store(out, sum(each) + reduce(x, axis = 0, |a, b| times::<{ A + 100 }, 0>(a) * 0.0 + b));
}

#[test]
fn constexprs_of_functions_are_what_their_types_hold() {
    check(|device| {
        let mut out = device.zeros::<f32>(1)?;
        raised::<55, 1>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [255.0]);
        raised_in_closures::<55>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [4.0 * 255.0 + 1.0]);
        let call = RaisedInClosuresConsts { A: 56 }.call(&mut out).grid(1);
        assert!(call.launch(device).is_err_and(|error| error.to_string().contains("which holds 0 to 255")));
        let refused = [
            (RaisedConsts { A: 56, N: 1 }, "`H` is `u8`, which holds 0 to 255"),
            (RaisedConsts { A: 55, N: 0 }, "`K` is `usize`, which holds 0 to 18446744073709551615"),
        ];
        for (consts, wanted) in refused {
            match consts.call(&mut out).grid(1).launch(device) {
                Err(Error::Compile(diagnostic)) => assert!(diagnostic.to_string().contains(wanted), "{diagnostic}"),
                other => panic!("{consts:?}: {other:?}"),
            }
        }
        Ok(())
    });
}

const LAST: i32 = 2;
const ROWS: i64 = 4;

/// Coordinates, sizes and strides are no shapes.
#[kernel]
fn rows_by_constants<const M: usize, const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, columns: i32) {
    let from = tensor_desc(x, [ROWS, columns], [columns, 1], [M, N]);
    let to = tensor_desc(out, [ROWS, columns], [columns, 1], [M, N]);
    to.store([LAST, 0], from.load([LAST - 1, LAST]) + LAST);
}

#[test]
fn constants_among_coordinates_and_sizes_have_the_dtypes_of_these() {
    check(|device| {
        let (x, mut out) = (device.upload(&(0..32).collect::<Vec<i32>>())?, device.zeros::<i32>(32)?);
        rows_by_constants::<1, 4>(&x, &mut out, 8).grid(1).launch(device)?;
        let mut wanted = vec![0; 32];
        wanted[16..20].copy_from_slice(&[12, 13, 14, 15]);
        assert_eq!(out.to_vec()?, wanted);
        Ok(())
    });
}

#[kernel]
fn to_the_end(out: PtrMut<i32>) {
    store(out + arange(0, 4), arange(2_147_483_644, 2_147_483_648));
}

#[test]
fn a_range_ends_with_the_greatest_number() {
    check(|device| {
        let mut out = device.zeros::<i32>(4)?;
        to_the_end(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [i32::MAX - 3, i32::MAX - 2, i32::MAX - 1, i32::MAX]);
        Ok(())
    });
}

const BEYOND_F64: i64 = (1 << 53) + 1;

/// As the message about a constant beside a dtype parameter says it.
#[kernel]
fn converted<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
    store(out, BEYOND_F64 as T);
    store(out + 1, load(x) - BEYOND_F64 as T);
}

#[test]
fn constants_become_dtype_parameters_without_losing_digits() {
    check(|device| {
        let (x, mut out) = (device.upload(&[0_i64])?, device.zeros::<i64>(2)?);
        converted(&x, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [BEYOND_F64, -BEYOND_F64]);
        Ok(())
    });
}

#[kernel]
fn with_flag<const FLAG: bool, const BLOCK: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange(0, BLOCK);
    if FLAG {
        store(out + i, load(x + i));
    } else {
        // Out of bounds, if it ran with FLAG.
        store(out + i, load(x + i + 1000) + 1);
    }
}

#[test]
fn a_branch_on_a_constexpr_is_decided_when_it_is_bound() {
    check(|device| {
        let xs: Vec<i32> = (0..1032).collect();
        let (short, long) = (device.upload(&xs[..32])?, device.upload(&xs)?);
        let mut out = device.zeros::<i32>(32)?;
        with_flag::<true, 32>(&short, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, xs[..32]);
        WithFlagConsts { FLAG: false, BLOCK: 32 }.call(&long, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, (1001..1033).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn what_a_constexpr_decides_is_not_compiled() {
    let mut ptx = Vec::new();
    for flag in [true, false] {
        let kernel = WithFlagConsts { FLAG: flag, BLOCK: 32 }.compile(Target::sm_90());
        ptx.push(kernel.map(|kernel| kernel.bound_ir().to_string()).unwrap_or_else(|error| panic!("{error}")));
    }
    assert!(!ptx[0].contains("1000") && ptx[1].contains("1000"), "{ptx:?}");
    assert!(ptx.iter().all(|ir| !ir.contains(" if ")), "{ptx:?}");
}

#[kernel]
fn affine(x: Ptr<f32>, out: PtrMut<f32>, a: Const<f32>, b: Const<i32>) {
    let i = arange(0, 16);
    store(out + i, load(x + i) * a + b as f32);
}

#[test]
fn const_parameters_are_values_of_the_launch() {
    check(|device| {
        let xs: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let x = device.upload(&xs)?;
        for (a, b) in [(0.5, 1), (-2.0, 0), (0.5, -3), (1e-3, 1)] {
            let mut out = device.zeros::<f32>(16)?;
            affine(&x, &mut out, a, b).grid(1).launch(device)?;
            let got = out.to_vec()?;
            for (i, (&got, &x)) in got.iter().zip(&xs).enumerate() {
                // The product and the sum may be one operation.
                let (fused, split) = (x.mul_add(a, b as f32), x * a + b as f32);
                assert!(got == fused || got == split, "{i}: {got}, not {fused} or {split}");
            }
        }
        Ok(())
    });
}

#[kernel]
fn halves<const N: usize>(out: PtrMut<i32>) {
    static_assert!(N % 2 == 0, "N must be even");
    let i = arange(0, N / 2);
    store(out + i, i * 2);
}

#[test]
fn what_constexprs_break_is_an_error_with_a_place() {
    check(|device| {
        let mut out = device.zeros::<i32>(64)?;
        HalvesConsts { N: 64 }.call(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?[..32], (0..32).map(|i| i * 2).collect::<Vec<_>>());
        // Odd: the assertion. 24 / 2 is no power of two. 0 has no elements.
        for (n, line) in [(7, "static_assert!(N % 2"), (24, "arange(0, N / 2)"), (0, "arange(0, N / 2)")] {
            let error = match (HalvesConsts { N: n }).call(&mut out).grid(1).launch(device) {
                Err(Error::Compile(diagnostic)) => diagnostic,
                other => panic!("N = {n}: {other:?}"),
            };
            let text = error.to_string();
            assert!(text.contains("constants.rs:") && text.contains(line), "no place or source in:\n{text}");
            assert!(text.contains(&n.to_string()) || n == 7, "no value in:\n{text}");
        }
        Ok(())
    });
}

#[kernel]
fn matrix<const M: usize, const N: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>) {
    static_assert!(M == N);
    let i = arange(0, M);
    let j = arange(0, N);
    store(out + i, load(x + i) + load(y + j));
}

#[test]
fn shapes_that_an_assertion_makes_equal() {
    check(|device| {
        let x = device.full(32, 1.0f32)?;
        let mut out = device.zeros::<f32>(32)?;
        matrix::<32, 32>(&x, &x, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [2.0; 32]);
        let refused = matrix::<32, 16>(&x, &x, &mut out).grid(1).launch(device);
        assert!(matches!(refused, Err(Error::Compile(_))), "{refused:?}");
        Ok(())
    });
}

#[kernel]
fn integers<const A: i32, const B: u8, const C: i64>(out: PtrMut<i64>) {
    store(out, A as i64 + B as i64 * 1000);
    store(out + 1, C);
}

#[test]
fn constexprs_of_every_integer_type() {
    check(|device| {
        let mut out = device.zeros::<i64>(2)?;
        integers::<-5, 255, { i64::MIN }>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [254_995, i64::MIN]);
        Ok(())
    });
}

/// Elements of groups of four in reverse, where there are such groups.
#[device]
fn reversed<const N: usize>(x: Tile<i32, { [N] }>) -> Tile<i32, { [N] }> {
    static_assert!(N % 4 == 0);
    reshape(flip(reshape(x, [N / 4, 4])), [N])
}

#[kernel]
fn in_groups<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, times: i32) {
    let i = arange(0, N);
    let mut x = load(x + i);
    if N % 4 == 0 && N > 4 {
        x = reshape(sum(reshape(x, [N / 4, 4]), axis = 1, keep_dims = true) + reshape(x, [N / 4, 4]), [N]);
        for _ in 0..times {
            x = reversed(x);
        }
    } else if N > 4 {
        static_assert!(N % 2 == 0);
        x = reshape(flip(reshape(x, [N / 2, 2])), [N]);
    }
    store(out + i, x);
}

/// What holds in a branch says how tiles divide there, and binding compares the numbers once more.
#[test]
fn what_holds_in_a_branch_divides_tiles_there() {
    check(|device| {
        for n in [2usize, 4, 16, 32] {
            let xs: Vec<i32> = (0..n as i32).map(|i| i * i).collect();
            let mut out = device.zeros::<i32>(n)?;
            InGroupsConsts { N: n }.call(&device.upload(&xs)?, &mut out, 3).grid(1).launch(device)?;
            let group = |g: &[i32]| g.iter().rev().map(|x| x + g.iter().sum::<i32>()).collect::<Vec<_>>();
            let want = if n > 4 { xs.chunks(4).flat_map(group).collect() } else { xs };
            assert_eq!(out.to_vec()?, want, "{n}");
        }
        Ok(())
    });
}

#[kernel]
fn shifted<const K: u32>(out: PtrMut<i32>, x: i32) {
    let minimum: i32 = 1 << K;
    store(out, x + (1 << K));
    store(out + 1, (minimum < 0) as i32);
    store(out + 2, x + (1 << K) / 2);
    store(out + 3, ((1 << K) < 0) as i32);
    store(out + 4, x + (4096 >> 9) + (1 << K) / (1 << 20 >> 2));
    store(out + 5, x + (1 << 31 >> 2));
}

#[test]
fn shifts_of_constexprs_are_exact_in_arithmetic_and_of_the_dtype_alone() {
    check(|device| {
        let mut out = device.zeros::<i32>(6)?;
        ShiftedConsts { K: 31 }.call(&mut out, 1).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [i32::MIN + 1, 1, (1 << 30) + 1, 0, 9 + (1 << 13), 1 - (1 << 29)]);
        let refused = ShiftedConsts { K: 32 }.call(&mut out, 1).grid(1).launch(device);
        let message = refused.map_or_else(|error| error.to_string(), |_| String::new());
        assert!(message.contains("does not fit i32"), "{message}");
        Ok(())
    });
}

#[kernel]
#[allow(clippy::excessive_precision)]
fn near_the_middle<T: Float>(out: PtrMut<T>) {
    store(out, load(out) * 1.00000005960464477539062500001);
    store(out + 1, load(out + 1) * -1.00048828125000000000000001);
}

#[test]
fn literals_are_rounded_once_to_what_a_dtype_parameter_stands_for() {
    check(|device| {
        let mut single = device.full(2, 1.0f32)?;
        near_the_middle(&mut single).grid(1).launch(device)?;
        assert_eq!(single.to_vec()?, [1.0 + f32::EPSILON, -1.000_488_3]);
        let mut double = device.full(2, 1.0f64)?;
        near_the_middle(&mut double).grid(1).launch(device)?;
        assert_eq!(double.to_vec()?, [1.0 + f64::from(f32::EPSILON) / 2.0, -1.000_488_281_25]);
        let mut half = device.full(2, f16::ONE)?;
        near_the_middle(&mut half).grid(1).launch(device)?;
        assert_eq!(half.to_vec()?, [f16::ONE, -f16::from_f32(1.000_976_6)]);
        Ok(())
    });
}
