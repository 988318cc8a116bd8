//! Constexprs with defaults.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

const WIDTH: usize = 32;

/// Each program writes its constexprs to a row.
#[kernel]
fn shown<
    T: Num,
    const BLOCK: usize = { 2 * WIDTH },
    const N: i32,
    const HALF: usize = { BLOCK / 2 },
    const UP: bool = true,
>(
    out: PtrMut<T>,
) {
    let lanes = arange(0, HALF);
    let value = if UP { N } else { -N };
    let row = out + program_id(0) * HALF;
    store(row + lanes, (value * (BLOCK as i32) + lanes) as T);
}

#[kernel]
fn copy<T: Num, const BLOCK: usize = 128>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + offsets, load(x + offsets, mask = offsets < n), mask = offsets < n);
}

fn expected(half: usize, first: i32) -> Vec<i32> {
    (0..half as i32).map(|lane| first + lane).collect()
}

#[test]
fn what_is_not_said_is_the_default() {
    check(|device| {
        let mut out = device.zeros::<i32>(32)?;
        shown::<_, 3>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, expected(32, 3 * 64));
        let consts = ShownConsts::new(3);
        assert_eq!(consts, ShownConsts { BLOCK: 64, N: 3, HALF: 32, UP: true });
        consts.call(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, expected(32, 3 * 64));
        Ok(())
    });
}

#[test]
fn defaults_can_be_replaced_one_by_one() {
    check(|device| {
        let mut out = device.zeros::<i32>(32)?;
        let consts = ShownConsts { UP: false, HALF: 16, ..ShownConsts::new(3) };
        consts.call(&mut out).grid_with(|c| 32 / c.HALF).launch(device)?;
        assert_eq!(out.to_vec()?, [expected(16, -3 * 64), expected(16, -3 * 64)].concat());
        Ok(())
    });
}

#[test]
fn a_kernel_whose_constexprs_all_have_defaults_is_called_without_any() {
    const CONSTS: CopyConsts = CopyConsts::new();
    check(|device| {
        let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
        let (x, mut out) = (device.upload(&values)?, device.zeros::<f32>(1000)?);
        copy(&x, &mut out, 1000).grid_with(|c| 1000usize.div_ceil(c.BLOCK)).launch(device)?;
        assert_eq!(out.to_vec()?, values);
        assert_eq!(CONSTS.BLOCK, 128);
        Ok(())
    });
}
