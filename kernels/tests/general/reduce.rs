//! Reductions, extremes and their places, along every dimension.

use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::{Context, Tensor, TensorView, TensorViewMut, general};

/// Dimensions that are shorter than a block, no multiples of it, and long enough to be divided.
const SHAPES: [[usize; 3]; 6] = [[3, 5, 7], [1, 1, 1], [2, 1, 300], [2, 300, 3], [70, 2, 2], [1, 40_000, 1]];

/// The elements along `axis`, for each index of the others in row-major order.
pub fn lines<E: Copy>(x: &[E], shape: [usize; 3], axis: usize) -> Vec<Vec<E>> {
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let line = |o: usize, i: usize| (0..shape[axis]).map(|k| x[(o * shape[axis] + k) * inner + i]).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
}

/// A sum whose own error is below that of one addition (Neumaier's).
fn total(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut rest) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        rest += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    sum + rest
}

/// Additions that an element goes through: those of its lane, 12 levels of a tile, 9 of pieces; and the map, the end.
fn steps(len: usize) -> f64 {
    (len as f64 / 16.0).min(64.0) + 12.0 + 9.0 + 4.0
}

fn check_floats<T: Real + general::Real>(cx: &Context) -> Result<(), Error> {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let (x, reals) = Random::new(seed as u64 + 1).tensor::<T, 3>(cx, shape);
        for axis in 0..3 {
            let lines = lines(&reals, shape, axis);
            let each = |f: fn(&[f64]) -> f64| -> Vec<f64> { lines.iter().map(|line| f(line)).collect() };
            let magnitudes = each(|line| total(line.iter().map(|x| x.abs())));
            let len = shape[axis] as f64;
            let error = T::STEP * steps(shape[axis]) * 1.01;
            let sum = general::sum(cx, &x, axis)?;
            let mut small = shape;
            small[axis] = 1;
            assert_eq!(sum.shape(), small);
            let close = |what: &str, got: &Tensor<T, 3>, want: Vec<f64>, bound: &dyn Fn(usize, f64) -> f64| {
                assert_close(&format!("{what} {shape:?} {axis}"), &got.to_vec()?, &want, bound);
                Ok::<(), Error>(())
            };
            close("sum", &sum, each(|line| total(line.iter().copied())), &|at, _| error * magnitudes[at])?;
            let mean = general::mean(cx, &x, axis)?;
            close("mean", &mean, each(|l| total(l.iter().copied()) / l.len() as f64), &|at, _| {
                error * magnitudes[at] / len
            })?;
            close("l1", &general::norm_l1(cx, &x, axis)?, magnitudes.clone(), &|_, want| error * want)?;
            let l2 = each(|line| total(line.iter().map(|x| x * x)).sqrt());
            close("l2", &general::norm_l2(cx, &x, axis)?, l2, &|_, want| error * want)?;
            let largest = each(|line| line.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            close("max", &general::max(cx, &x, axis)?, largest.clone(), &|_, _| 0.0)?;
            let smallest = each(|line| line.iter().copied().fold(f64::INFINITY, f64::min));
            close("min", &general::min(cx, &x, axis)?, smallest, &|_, _| 0.0)?;
            let magnitude = each(|line| line.iter().fold(0.0, |a, x| f64::max(a, x.abs())));
            close("norm_max", &general::norm_max(cx, &x, axis)?, magnitude, &|_, _| 0.0)?;
            let (values, places) = general::argmax(cx, &x, axis)?;
            close("argmax", &values, largest.clone(), &|_, _| 0.0)?;
            let first = |line: &Vec<f64>, peak: f64| line.iter().position(|x| *x == peak).unwrap() as i32;
            let want: Vec<i32> = lines.iter().zip(&largest).map(|(line, peak)| first(line, *peak)).collect();
            assert_eq!(places.to_vec()?, want, "argmax {shape:?} {axis}");
        }
    }
    Ok(())
}

#[test]
fn reductions_of_floats_along_every_dimension() {
    on_every_device(|cx| {
        check_floats::<f16>(cx)?;
        check_floats::<f32>(cx)
    });
}

#[test]
fn reductions_of_bf16_and_f64() {
    on_every_device(|cx| {
        check_floats::<bf16>(cx)?;
        check_floats::<f64>(cx)
    });
}

#[test]
fn products_are_in_the_dtype_of_sums() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[2i8, 100, -3, 100, 1, 100], [2, 3])?;
        assert_eq!(general::prod(cx, &x, 1)?.to_vec()?, [-600i64, 10_000]);
        assert_eq!(general::sum(cx, &x, 0)?.to_vec()?, [102i64, 101, 97]);
        assert_eq!(general::sum_all(cx, &x)?.to_vec()?, [300]);
        let y = Tensor::upload(cx.device(), &[0.5f32, 3.0, -2.0, 4.0], [4])?;
        assert_eq!(general::prod(cx, &y, 0)?.to_vec()?, [-12.0]);
        assert_eq!(general::prod_all(cx, &y)?.to_vec()?, [-12.0]);
        Ok(())
    });
}

#[test]
fn extremes_of_equal_elements_are_the_first() {
    on_every_device(|cx| {
        let mut random = Random::new(3);
        for shape in [[3, 50, 5], [2, 2, 40_000], [1, 33_000, 2]] {
            let len: usize = shape.iter().product();
            let x: Vec<i16> = (0..len).map(|_| random.below(5) as i16 - 2).collect();
            let tensor = Tensor::upload(cx.device(), &x, shape)?;
            for axis in 0..3 {
                let first = |peak: fn(&[i16]) -> i16| -> Vec<i32> {
                    let of = |line: Vec<i16>| line.iter().position(|x| *x == peak(&line)).unwrap() as i32;
                    lines(&x, shape, axis).into_iter().map(of).collect()
                };
                let (_, places) = general::argmax(cx, &tensor, axis)?;
                assert_eq!(places.to_vec()?, first(|line| *line.iter().max().unwrap()), "{shape:?} {axis}");
                let (_, places) = general::argmin(cx, &tensor, axis)?;
                assert_eq!(places.to_vec()?, first(|line| *line.iter().min().unwrap()), "{shape:?} {axis}");
            }
        }
        Ok(())
    });
}

#[test]
fn extremes_of_what_is_special() {
    on_every_device(|cx| {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let x = [1.0, nan, 5.0, nan, -inf, -inf, -inf, -inf, inf, inf, -inf, f32::MIN, -0.0, 0.0, -0.0, 0.0];
        let x = Tensor::upload(cx.device(), &x, [4, 4])?;
        let (values, places) = general::argmax(cx, &x, 1)?;
        assert_eq!(places.to_vec()?, [1, 0, 0, 0]);
        assert!(values.to_vec()?[0].is_nan());
        assert_eq!(values.to_vec()?[1..], [-inf, inf, 0.0]);
        let (values, places) = general::argmin(cx, &x, 1)?;
        assert_eq!(places.to_vec()?, [1, 0, 2, 0]);
        assert_eq!(values.to_vec()?[1..], [-inf, -inf, 0.0]);
        let largest = general::max(cx, &x, 1)?.to_vec()?;
        assert!(largest[0].is_nan());
        assert_eq!(largest[1..], [-inf, inf, 0.0]);
        let bytes = Tensor::upload(cx.device(), &[u8::MIN; 5], [5])?;
        assert_eq!(general::argmax(cx, &bytes, 0)?.1.to_vec()?, [0]);
        assert_eq!(general::min(cx, &bytes, 0)?.to_vec()?, [0]);
        Ok(())
    });
}

#[test]
fn truth_along_every_dimension() {
    on_every_device(|cx| {
        let mut random = Random::new(4);
        for shape in [[3, 4, 5], [1, 1, 40_000], [2, 20_000, 2]] {
            let len: usize = shape.iter().product();
            let rare = 3.max(len / 3);
            let x: Vec<bool> = (0..len).map(|_| random.below(rare) == 0).collect();
            let tensor = Tensor::upload(cx.device(), &x, shape)?;
            let most: Vec<bool> = x.iter().map(|x| !x).collect();
            let opposite = Tensor::upload(cx.device(), &most, shape)?;
            assert_eq!(general::any_all(cx, &tensor)?.to_vec()?, [x.contains(&true)]);
            assert_eq!(general::all_all(cx, &opposite)?.to_vec()?, [!x.contains(&true)]);
            for axis in 0..3 {
                let any: Vec<bool> = lines(&x, shape, axis).iter().map(|line| line.contains(&true)).collect();
                assert_eq!(general::any(cx, &tensor, axis)?.to_vec()?, any);
                let all: Vec<bool> = any.iter().map(|any| !any).collect();
                assert_eq!(general::all(cx, &opposite, axis)?.to_vec()?, all);
            }
        }
        Ok(())
    });
}

#[test]
fn reductions_of_strided_tensors_into_parts() {
    on_every_device(|cx| {
        let (x, reals) = Random::new(5).tensor::<f32, 3>(cx, [6, 40, 9]);
        // Dimensions in another order, of which a part is taken.
        let view = x.view().permute([2, 1, 0])?.narrow(1, 3..37)?;
        let at = |a: usize, b: usize, c: usize| reals[c * 360 + (b + 3) * 9 + a];
        let mut buffer = cx.device().full(9 * 8, 5.0f32)?;
        let out = TensorViewMut::with_strides(&mut buffer, [9, 1, 6], [8, 8, 1])?;
        general::max_into(cx, view, 1, out)?;
        let got = buffer.to_vec()?;
        for (a, row) in got.chunks(8).enumerate() {
            let want: Vec<f32> =
                (0..6).map(|c| (0..34).map(|b| at(a, b, c) as f32).fold(f32::NEG_INFINITY, f32::max)).collect();
            assert_eq!(row[..6], want);
            assert_eq!(row[6..], [5.0, 5.0]);
        }
        Ok(())
    });
}

#[test]
fn reductions_without_elements_and_what_is_refused() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 3>::zeros(cx.device(), [2, 0, 3])?;
        assert_eq!(general::sum(cx, &x, 1)?.to_vec()?, [0.0; 6]);
        assert_eq!(general::prod(cx, &x, 1)?.to_vec()?, [1.0; 6]);
        assert_eq!(general::sum(cx, &x, 0)?.len(), 0);
        assert_eq!(general::max(cx, &x, 0)?.len(), 0);
        assert_eq!(message(general::argmax(cx, &x, 1)), "`x` has no elements in dimension 1; give it one at least");
        assert_eq!(message(general::sum(cx, &x, 3)), "`axis` is 3; dimensions are numbered below 3");
        let mut out = Tensor::zeros(cx.device(), [2, 3, 3])?;
        let refused = message(general::sum_into(cx, &x, 1, &mut out));
        assert_eq!(refused, "`out` has the shape [2, 3, 3]; the other arguments ask for [2, 1, 3]");
        let y = Tensor::<f32, 3>::zeros(cx.device(), [4, 4, 4])?;
        let apart = TensorView::with_strides(y.buffer(), [2, 2, 2], [32, 8, 1])?;
        assert!(message(general::sum(cx, apart, 2)).contains("copy it with `general::contiguous` first"));
        Ok(())
    });
}
