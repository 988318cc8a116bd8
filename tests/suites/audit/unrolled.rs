//! Loops under `#[unroll]`: their variables are constexprs.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// The numbers of a tile that a function makes for a loop's variable.
#[device]
fn numbers<const N: usize>(first: i32) -> Tile<i32, { [N] }> {
    arange(0, N) + first
}

/// Tiles of 2 and 4 elements, in each with pieces of 1 and 2.
#[kernel]
fn shapes<const N: usize>(out: PtrMut<i32>) {
    #[unroll]
    for i in 0..N {
        let tile = full([2 * i + 2], i as i32 + 1);
        store(out + i * 4 + arange(0, 2 * i + 2), tile);
        #[unroll]
        for j in 0..i + 1 {
            static_assert!(j <= i && i < N, "an inner loop ends at the variable of the outer one");
            let piece: Tile<i32, { [i + 1] }> = numbers::<{ i + 1 }>(10 * (j + 1));
            store(out + 8 + 4 * i + j * (i + 1) + arange(0, i + 1), piece);
        }
    }
}

/// Loops that count in every way: a tile as long as the number says, which is a power of two.
#[kernel]
fn orders<const LAST: usize>(out: PtrMut<i32>) {
    let mut place = 0;
    #[unroll]
    for i in (1..=LAST).step_by(3) {
        store(out + place + arange(0, i), full([i], i as i32));
        place += i;
    }
    #[unroll]
    for i in (1..LAST + 1).step_by(3).rev() {
        store(out + place + arange(0, i), full([i], 10 + i as i32));
        place += i;
    }
    #[unroll]
    for i in (1..=LAST).rev().step_by(2) {
        store(out + place + arange(0, i), full([i], 20 + i as i32));
        place += i;
    }
    #[unroll]
    for i in (0..LAST).rev().step_by(3) {
        if i == LAST - 1 {
            store(out + place + arange(0, i + 1), full([i + 1], 30 + i as i32));
        } else {
            store(out + place, 39);
        }
        place += i + 1;
    }
}

/// Each iteration halves what is left, in a tree of sums.
#[kernel]
fn steps<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stop: f32) {
    let mut total = 0.0;
    #[unroll]
    for i in 0..3 {
        let lanes = arange(0, N / (i + 1 + i / 2));
        let part = sum(load(x + lanes), axis = 0);
        if part > stop {
            continue;
        }
        total += part * (i + 1) as f32;
        if i == 1 && part < 0.0 {
            break;
        }
    }
    store(out, total);
}

#[test]
fn shapes_follow_the_variable() {
    check(|device| {
        let mut out = device.zeros::<i32>(16)?;
        shapes::<2>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [1, 1, 0, 0, 2, 2, 2, 2, 10, 0, 0, 0, 10, 11, 20, 21]);
        Ok(())
    });
}

#[test]
fn every_order_counts_constexprs() {
    check(|device| {
        let mut out = device.zeros::<i32>(24)?;
        orders::<4>(&mut out).grid(1).launch(device)?;
        let up = [1, 4, 4, 4, 4];
        let down = [14, 14, 14, 14, 11];
        let from_end = [24, 24, 24, 24, 22, 22];
        let mixed = [33, 33, 33, 33, 39];
        let all: Vec<i32> = [&up[..], &down, &from_end, &mixed, &[0; 3]].concat();
        assert_eq!(out.to_vec()?, all);
        Ok(())
    });
}

#[test]
fn variables_of_loops_that_are_left_early() {
    check(|device| {
        let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
        let mut out = device.zeros::<f32>(1)?;
        // Sums of 8, 4 and 2 elements: 36, 10 and 3.
        for (stop, expected) in [(100.0, 36.0 + 20.0 + 9.0), (20.0, 20.0 + 9.0), (5.0, 9.0)] {
            steps::<8>(&x, &mut out, stop).grid(1).launch(device)?;
            assert_eq!(out.to_vec()?, [expected], "{stop}");
        }
        Ok(())
    });
}

#[test]
fn what_is_wrong_with_one_iteration_is_an_error_of_its_place() {
    let error = ShapesConsts { N: 3 }.compile(Target::sm_90a()).expect_err("a tile of 6 elements").to_string();
    assert!(error.contains("dimension `2 * i + 2` of this tile is 6"), "{error}");
    assert!(error.contains("with i = 2"), "{error}");
}
