//! Lengths that are prime, one more, one less, zero, and near the largest.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

const SIZES: [usize; 16] = [0, 1, 2, 3, 7, 31, 32, 33, 127, 128, 129, 997, 1021, 1023, 1024, 1025];

#[kernel]
fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    store(out + i, load(x + i, mask = mask) + load(y + i, mask = mask), mask = mask);
}

fn check_add<T>(device: &Device, make: fn(usize) -> T) -> Result<(), Error>
where
    T: Num + std::ops::Add<Output = T>,
{
    for n in SIZES {
        for block in [32usize, 128, 1024] {
            let xs: Vec<T> = (0..n).map(make).collect();
            let x = device.upload(&xs)?;
            // What lies behind the output's part must stay.
            let mut whole = device.full(n + 64, make(99))?;
            let (mut out, _) = whole.split_at_mut(n)?;
            AddConsts { BLOCK: block }.call(&x, &x, &mut out, n as i32).grid(n.div_ceil(block)).launch(device)?;
            let got = whole.to_vec()?;
            let want: Vec<T> = xs.iter().map(|&x| x + x).chain((0..64).map(|_| make(99))).collect();
            assert_eq!(got, want, "{n} elements in blocks of {block}");
        }
    }
    Ok(())
}

#[test]
fn tails_of_every_length() {
    check(|device| {
        check_add::<f32>(device, |i| i as f32)?;
        check_add::<i64>(device, |i| i as i64 - 3)?;
        check_add::<f16>(device, |i| f16::from_f32((i % 512) as f32))?;
        check_add::<u8>(device, |i| (i % 100) as u8)
    });
}

/// Buffers that start in the middle of an allocation, so that nothing is aligned.
#[test]
fn views_with_odd_offsets() {
    check(|device| {
        for start in [1usize, 2, 3, 5, 8] {
            let xs: Vec<f32> = (0..600).map(|i| i as f32).collect();
            let x = device.upload(&xs)?;
            let mut whole = device.zeros::<f32>(600)?;
            let n = 531;
            let mut out = whole.slice_mut(start..start + n)?;
            add::<f32, 128>(x.slice(7..7 + n)?, x.slice(start..start + n)?, &mut out, n as i32)
                .grid(n.div_ceil(128))
                .launch(device)?;
            let inside = |i: usize| (start..start + n).contains(&i);
            let sum = |i: usize| if inside(i) { xs[i - start + 7] + xs[i] } else { 0.0 };
            assert_eq!(whole.to_vec()?, (0..600).map(sum).collect::<Vec<_>>(), "from {start}");
        }
        Ok(())
    });
}

#[kernel]
fn column_sums<T: Num, const ROWS: usize, const COLUMNS: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    height: i32,
    width: i32,
    stride: i32,
) {
    let column = program_id(0) * COLUMNS + arange(0, COLUMNS);
    let mut total = zeros::<T>([COLUMNS]);
    for top in (0..height).step_by(ROWS) {
        let row = top + arange(0, ROWS);
        let mask = (row < height)[(.., None)] & (column < width)[(None, ..)];
        let values = load(x + row[(.., None)] * stride + column[(None, ..)], mask = mask);
        total += sum(values, axis = 0);
    }
    store(out + column, total, mask = column < width);
}

#[test]
fn matrices_that_no_tile_divides() {
    check(|device| {
        for (height, width) in [(1usize, 1usize), (7, 13), (16, 64), (17, 65), (15, 63), (0, 5), (100, 3)] {
            let stride = width + 3;
            let xs: Vec<i32> = (0..(height * stride + 1) as i32).map(|i| i % 11 - 5).collect();
            let x = device.upload(&xs)?;
            let mut out = device.full(width, 77i32)?;
            column_sums::<i32, 16, 64>(&x, &mut out, height as i32, width as i32, stride as i32)
                .grid(width.div_ceil(64))
                .launch(device)?;
            let want: Vec<i32> = (0..width).map(|c| (0..height).map(|r| xs[r * stride + c]).sum()).collect();
            assert_eq!(out.to_vec()?, want, "{height} x {width}");
        }
        Ok(())
    });
}

#[test]
fn empty_grids_and_empty_buffers_do_nothing() {
    check(|device| {
        let x = device.full(10, 1.0f32)?;
        let empty = device.zeros::<f32>(0)?;
        let mut out = device.full(10, 5.0f32)?;
        add::<_, 32>(&x, &x, &mut out, 10).grid(0).launch(device)?;
        add::<_, 32>(&x, &x, &mut out, 10).grid((3, 0)).launch(device)?;
        add::<_, 32>(&x, &x, &mut out, 10).grid([1, 1, 0]).launch(device)?;
        add::<_, 32>(&empty, &empty, &mut out, 0).grid(1).launch(device)?;
        let mut nothing = device.zeros::<f32>(0)?;
        add::<_, 32>(&empty, &empty, &mut nothing, 0).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [5.0; 10]);
        assert!(nothing.to_vec()?.is_empty());
        Ok(())
    });
}

#[test]
fn grids_beyond_the_limits_are_errors() {
    check(|device| {
        let x = device.full(1, 1.0f32)?;
        let mut out = device.zeros::<f32>(1)?;
        for (grid, axis) in [([1i64, 1 << 16, 1], 1), ([1, 1, 1 << 16], 2), ([1 << 31, 1, 1], 0), ([-1, 1, 1], 0)] {
            match add::<_, 32>(&x, &x, &mut out, 1).grid(grid).launch(device) {
                Err(Error::InvalidGrid { axis: found, .. }) => assert_eq!(found, axis),
                other => panic!("{grid:?}: {other:?}"),
            }
        }
        Ok(())
    });
}

/// Whatever the number of warps, the results are the same.
#[test]
fn every_number_of_warps() {
    check(|device| {
        let xs: Vec<i32> = (0..1000).collect();
        let x = device.upload(&xs)?;
        for warps in [1, 2, 4, 8, 16, 32] {
            let mut out = device.zeros::<i32>(1000)?;
            add::<_, 256>(&x, &x, &mut out, 1000).num_warps(warps).grid(4).launch(device)?;
            assert_eq!(out.to_vec()?, xs.iter().map(|x| 2 * x).collect::<Vec<_>>(), "{warps} warps");
        }
        for warps in [0, 3, 64] {
            let mut out = device.zeros::<i32>(1000)?;
            let refused = add::<_, 256>(&x, &x, &mut out, 1000).num_warps(warps).grid(4).launch(device);
            assert!(matches!(refused, Err(Error::InvalidSetting { .. })), "{warps} warps: {refused:?}");
        }
        Ok(())
    });
}
