//! Pooling and its gradients.

use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Counted, Pooling};
use tilewright_kernels::{Context, Tensor};

/// Windows, side by side and not, over the border and not.
fn cases() -> Vec<([usize; 4], [[usize; 2]; 3])> {
    vec![
        ([2, 6, 5, 3], [[2, 2], [2, 2], [0, 0]]),
        ([1, 7, 6, 33], [[3, 2], [1, 2], [1, 1]]),
        ([1, 5, 5, 1], [[5, 5], [1, 1], [2, 2]]),
        ([2, 4, 9, 4], [[1, 2], [2, 3], [0, 0]]),
    ]
}

/// The elements of each window, in flat indices, for each element of the result.
fn windows([_, h, w, c]: [usize; 4], [size, stride, padding]: [[usize; 2]; 3], shape: [usize; 4]) -> Vec<Vec<usize>> {
    let [n, p, q, _] = shape;
    let window = |at: usize| {
        let (image, y, z, channel) = (at / (p * q * c), at / (q * c) % p, at / c % q, at % c);
        let tap = |tap: usize| {
            let y = (y * stride[0] + tap / size[1]).wrapping_sub(padding[0]);
            let z = (z * stride[1] + tap % size[1]).wrapping_sub(padding[1]);
            (y < h && z < w).then(|| ((image * h + y) * w + z) * c + channel)
        };
        (0..size[0] * size[1]).filter_map(tap).collect()
    };
    (0..n * p * q * c).map(window).collect()
}

fn check_pooling<T: Real + general::Real>(cx: &Context) -> Result<(), Error> {
    for (shape, steps @ [size, stride, padding]) in cases() {
        let how = Pooling::new(size).stride(stride).padding(padding);
        let mut random = Random::new(70);
        let (x, xs) = random.tensor::<T, 4>(cx, shape);
        let (values, places) = general::max_pool2d(cx, &x, how)?;
        let windows = windows(shape, steps, values.shape());
        let (dy, ds) = random.tensor::<T, 4>(cx, values.shape());
        let first = |window: &Vec<usize>| {
            window.iter().copied().reduce(|best, at| if xs[at] > xs[best] { at } else { best }).unwrap()
        };
        let taken: Vec<usize> = windows.iter().map(first).collect();
        let want: Vec<f64> = taken.iter().map(|&at| xs[at]).collect();
        assert_close("max", &values.to_vec()?, &want, |_, _| 0.0);
        let image = shape[1] * shape[2];
        let want: Vec<i32> = taken.iter().map(|at| (at / shape[3] % image) as i32).collect();
        assert_eq!(places.to_vec()?, want);
        let terms = (size[0] * size[1]) as f64;
        let (mut want, mut scale) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
        taken.iter().zip(&ds).for_each(|(&at, d)| (want[at], scale[at]) = (want[at] + d, scale[at] + d.abs()));
        let dx = general::max_pool2d_backward(cx, shape, &places, &dy, how)?;
        assert_close("max backward", &dx.to_vec()?, &want, |at, _| T::STEP * terms * scale[at]);
        for counted in [Counted::Window, Counted::Inside] {
            let count = |window: &Vec<usize>| if counted == Counted::Window { terms } else { window.len() as f64 };
            let mean = |window: &Vec<usize>| window.iter().map(|&at| xs[at]).sum::<f64>() / count(window);
            let size = |window: &Vec<usize>| window.iter().map(|&at| xs[at].abs()).sum::<f64>() / count(window);
            let (want, sizes): (Vec<f64>, Vec<f64>) = windows.iter().map(|w| (mean(w), size(w))).unzip();
            let y = general::avg_pool2d(cx, &x, how, counted)?;
            assert_close("avg", &y.to_vec()?, &want, |at, _| T::STEP * (terms + 4.0) * sizes[at]);
            let (mut want, mut scale) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
            for (window, d) in windows.iter().zip(&ds) {
                for &at in window {
                    want[at] += d / count(window);
                    scale[at] += d.abs() / count(window);
                }
            }
            let dx = general::avg_pool2d_backward(cx, shape, &dy, how, counted)?;
            assert_close("avg backward", &dx.to_vec()?, &want, |at, _| T::STEP * (terms + 4.0) * scale[at]);
        }
    }
    Ok(())
}

#[test]
fn windows_of_every_kind_and_their_gradients() {
    on_every_device(|cx| {
        check_pooling::<f16>(cx)?;
        check_pooling::<f64>(cx)
    });
}

#[test]
fn windows_that_do_not_fit() {
    on_every_device(|cx| {
        let nan = Tensor::upload(cx.device(), &[1.0f32, f32::NAN, f32::NEG_INFINITY, f32::NEG_INFINITY], [1, 2, 2, 1])?;
        let (values, places) = general::max_pool2d(cx, &nan, Pooling::new([1, 2]))?;
        assert_eq!(places.to_vec()?, [1, 2]);
        assert!(values.to_vec()?[0].is_nan());
        let refused = message(general::max_pool2d(cx, &nan, Pooling::new([3, 3])));
        assert_eq!(
            refused,
            "`x` has the shape [1, 2, 2, 1]; with its padding it is at least as large as windows of [3, 3]"
        );
        assert!(general::max_pool2d(cx, &nan, Pooling::new([2, 2]).padding([2, 0])).is_err());
        Ok(())
    });
}

/// Half of a window may lie outside on each side, so that windows are much larger than images.
#[test]
fn windows_with_more_elements_than_kernels_count() {
    for (size, wanted) in [([40_000, 50_000], true), ([60_000, 60_000], false), ([1 << 30, 1], false)] {
        let pooling = Pooling::new(size).padding([size[0] / 2, size[1] / 2]);
        let result = pooling.result([1, 4, 4, 1]);
        assert_eq!(result.is_ok(), wanted, "{size:?}: {result:?}");
    }
}

#[test]
fn matrices_are_transposed() {
    on_every_device(|cx| {
        for shape in [[1, 1, 5], [2, 70, 65], [1, 64, 128]] {
            let x: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
            let x = Tensor::upload(cx.device(), &x, shape)?;
            let want = x.view().permute([0, 2, 1])?.to_vec()?;
            assert_eq!(general::transpose(cx, &x)?.to_vec()?, want);
        }
        assert!(general::transpose(cx, &Tensor::<f32, 1>::zeros(cx.device(), [3])?).is_err());
        Ok(())
    });
}
