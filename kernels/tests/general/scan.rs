//! Running sums, products and extremes along every dimension.

use super::reduce::lines;
use crate::common::{Random, Real, assert_close, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Direction};
use tilewright_kernels::{Context, Tensor};

const SHAPES: [[usize; 3]; 5] = [[3, 5, 7], [1, 1, 1], [2, 1, 300], [2, 300, 3], [1, 40_000, 1]];

/// The index of element `k` of each line, in the order of [`lines`].
fn places(shape: [usize; 3], axis: usize) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..shape.iter().product()).collect();
    lines(&all, shape, axis)
}

fn check_sums<T: Real + general::Real>(cx: &Context) -> Result<(), Error> {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let (x, reals) = Random::new(seed as u64 + 20).tensor::<T, 3>(cx, shape);
        for axis in 0..3 {
            for direction in [Direction::Forward, Direction::Backward] {
                let (mut want, mut size) = (vec![0.0; reals.len()], vec![0.0; reals.len()]);
                for mut line in places(shape, axis) {
                    if direction == Direction::Backward {
                        line.reverse();
                    }
                    let (mut sum, mut magnitude) = (0.0, 0.0);
                    for at in line {
                        sum += reals[at];
                        magnitude += reals[at].abs();
                        (want[at], size[at]) = (sum, magnitude);
                    }
                }
                // A tree of 12 levels in tiles and pieces each, and a carry of up to 4 tiles or, undivided, of all.
                let steps = 24.0 + 4.0 + shape[axis] as f64 / 32.0;
                let got = general::cumsum(cx, &x, axis, direction)?;
                assert_close("cumsum", &got.to_vec()?, &want, |at, _| T::STEP * steps * 1.01 * size[at]);
            }
        }
    }
    Ok(())
}

#[test]
fn running_sums_along_every_dimension() {
    on_every_device(|cx| {
        check_sums::<bf16>(cx)?;
        check_sums::<f32>(cx)
    });
}

#[test]
fn running_products_of_integers_wrap() {
    on_every_device(|cx| {
        for shape in [[2, 70, 3], [1, 1, 20_000]] {
            let mut random = Random::new(21);
            let x: Vec<u16> = (0..shape.iter().product()).map(|_| random.bits() as u16 | 1).collect();
            let tensor = Tensor::upload(cx.device(), &x, shape)?;
            for axis in 0..3 {
                let mut want = vec![0u64; x.len()];
                for line in places(shape, axis) {
                    line.into_iter().fold(1u64, |product, at| {
                        want[at] = product.wrapping_mul(u64::from(x[at]));
                        want[at]
                    });
                }
                assert_eq!(general::cumprod(cx, &tensor, axis, Direction::Forward)?.to_vec()?, want);
            }
        }
        Ok(())
    });
}

#[test]
fn running_extremes_are_the_first_of_equal_ones() {
    on_every_device(|cx| {
        for shape in [[3, 50, 5], [1, 33_000, 1], [1, 20_000, 2]] {
            let mut random = Random::new(22);
            let special = [f32::NEG_INFINITY, -1.0, 0.0, 2.0, f32::INFINITY, f32::NAN];
            let len: usize = shape.iter().product();
            // What is special comes late, so that it matters.
            let limit = |at: usize| if at > len * 9 / 10 { 6 } else { 4 };
            let x: Vec<f32> = (0..len).map(|at| special[random.below(limit(at))]).collect();
            let tensor = Tensor::upload(cx.device(), &x, shape)?;
            for axis in 0..3 {
                for largest in [true, false] {
                    let (mut want, mut want_at) = (vec![0.0; len], vec![0; len]);
                    for line in places(shape, axis) {
                        let (mut best, mut best_at) = (x[line[0]], 0);
                        for (k, at) in line.into_iter().enumerate() {
                            let more = if largest { x[at] > best } else { x[at] < best };
                            if more || x[at].is_nan() && !best.is_nan() {
                                (best, best_at) = (x[at], k as i32);
                            }
                            (want[at], want_at[at]) = (best, best_at);
                        }
                    }
                    let got =
                        if largest { general::cummax(cx, &tensor, axis)? } else { general::cummin(cx, &tensor, axis)? };
                    let bits =
                        |x: &[f32]| x.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect::<Vec<_>>();
                    assert_eq!(got.1.to_vec()?, want_at, "{shape:?} {axis} {largest}");
                    assert_eq!(bits(&got.0.to_vec()?), bits(&want), "{shape:?} {axis} {largest}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn scans_without_elements() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [0, 5])?;
        assert_eq!(general::cumsum(cx, &x, 0, Direction::Forward)?.shape(), [0, 5]);
        assert_eq!(general::cummax(cx, &x, 1)?.0.len(), 0);
        Ok(())
    });
}
