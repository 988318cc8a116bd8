//! Networks over the bits of an index: reshapes to sizes of which only numbers tell that they are whole.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Neighbours at a distance, `x[i]` and `x[i + STRIDE]`.
#[device]
fn pairs<T: Num, const N: usize, const STRIDE: usize>(
    x: Tile<T, { [N] }>,
) -> (Tile<T, { [N / (2 * STRIDE), STRIDE] }>, Tile<T, { [N / (2 * STRIDE), STRIDE] }>) {
    split(permute(reshape(x, [N / (2 * STRIDE), 2, STRIDE]), [0, 2, 1]))
}

/// A bitonic sort.
#[kernel]
fn sorted<T: Num, const LOG: usize, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let at = arange(0, N);
    let mut x = load(x + at);
    #[unroll]
    for stage in 1..LOG + 1 {
        #[unroll]
        for bit in (0..stage).rev() {
            let (a, b) = pairs::<T, N, { 1 << bit }>(x);
            let (first, _) = pairs::<i32, N, { 1 << bit }>(at);
            let up = (first >> stage as i32) & 1 == 0;
            let (least, most) = (minimum(a, b), maximum(a, b));
            let (a, b) = (select(up, least, most), select(up, most, least));
            x = reshape(permute(join(a, b), [0, 2, 1]), [N]);
        }
    }
    store(out + at, x);
}

/// Sums of all in each element, by exchanging halves in every distance.
#[kernel]
fn butterfly<const LOG: usize, const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let mut x = load(x + arange(0, N));
    #[unroll]
    for i in 0..LOG {
        let y = reshape(x, [N / (2 * (1 << i)), 2, 1 << i]);
        let both = y + flip(y, axis = 1);
        x = reshape(both, [N]);
    }
    store(out + arange(0, N), x);
}

/// A distance that the caller gives.
#[kernel]
fn swapped<const N: usize, const STRIDE: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let x = reshape(load(x + arange(0, N)), [N / (2 * STRIDE), 2, STRIDE]);
    store(out + arange(0, N), reshape(flip(x, axis = 1), [N]));
}

/// Powers of two as values, which wrap in their dtype as others do.
#[kernel]
fn powers(out: PtrMut<i32>) {
    #[unroll]
    for i in 0..33 {
        store(out + i, 1 << i);
    }
}

#[test]
fn networks_sort() {
    check(|device| {
        let x: Vec<f32> = (0..64).map(|i| ((i * 37 + 11) % 64) as f32 - 20.0).collect();
        let mut out = device.zeros::<f32>(64)?;
        sorted::<_, 6, 64>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, (0..64).map(|i| i as f32 - 20.0).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn butterflies_sum_all() {
    check(|device| {
        let x: Vec<i32> = (0..32).map(|i| i * i).collect();
        let mut out = device.zeros::<i32>(32)?;
        butterfly::<5, 32>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [x.iter().sum::<i32>(); 32]);
        Ok(())
    });
}

#[test]
fn distances_are_constexprs() {
    check(|device| {
        let x: Vec<i32> = (0..16).collect();
        let mut out = device.zeros::<i32>(16)?;
        swapped::<16, 4>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, x.iter().map(|i| i ^ 4).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn shifted_values_wrap() {
    check(|device| {
        let mut out = device.zeros::<i32>(33)?;
        powers(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, (0..33).map(|i| 1i32.wrapping_shl(i)).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn networks_are_compiled() -> Result<(), tilewright::Error> {
    for target in [Target::sm_80(), Target::sm_90a()] {
        let ptx = SortedConsts { LOG: 6, N: 64 }.compile::<f32>(target)?.ptx().to_string();
        assert!(ptx.contains("min.f32"), "{ptx}");
    }
    Ok(())
}

#[test]
fn sizes_that_do_not_fit_are_errors_of_their_reshape() {
    let compiled = |n: usize, stride: usize| {
        let error = SwappedConsts { N: n, STRIDE: stride }.compile(Target::sm_90a()).expect_err("it does not fit");
        error.to_string()
    };
    // 16 / 32 is 0.
    let error = compiled(16, 16);
    assert!(error.contains("dimension `(N / (2 * STRIDE))` of this tile is 0"), "{error}");
    let error = compiled(8, 3);
    assert!(error.contains("dimension `STRIDE` of this tile is 3"), "{error}");

    #[kernel]
    fn halves<const N: usize, const STRIDE: usize>(out: PtrMut<i32>) {
        let x = reshape(arange(0, N), [N / (4 * STRIDE), 2, STRIDE]);
        store(out + x, x);
    }
    let error = HalvesConsts { N: 32, STRIDE: 8 }.compile(Target::sm_90a()).expect_err("it does not fit").to_string();
    assert!(error.contains("`reshape` keeps the elements, but `[N]` = [32] has 32"), "{error}");
    assert!(error.contains("`[(N / (4 * STRIDE)), 2, STRIDE]` = [1, 2, 8] has 16"), "{error}");
    assert!(error.contains("networks.rs:"), "{error}");
}
