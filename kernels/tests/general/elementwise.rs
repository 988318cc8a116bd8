//! Elementwise functions from expressions.

use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::{Context, Tensor, TensorViewMut, elementwise, general};

elementwise! {
    fn gelu_add, gelu_add_into<T: Float>(x, y) => (x + y) * 0.5 * (1.0 + erf((x + y) * 0.707_106_77));
    fn weighted, weighted_into<T: Float>(x, y, z; a: f32, b: f64) => a as T::Acc * x + b as T::Acc * y - z;
    fn bits, bits_into<T: Int>(x, y) => x ^ y;
}

fn check_weighted<T: Real>(cx: &Context) -> Result<(), Error> {
    let mut random = Random::new(9);
    for shape in [[1, 1, 1, 1], [3, 1, 5, 130], [2, 3, 4, 5]] {
        let (x, xs) = random.tensor::<T, 4>(cx, shape);
        let (y, ys) = random.tensor::<T, 4>(cx, [1, 1, shape[2], 1]);
        let (z, zs) = random.tensor::<T, 4>(cx, [shape[3], shape[2], shape[1], shape[0]]);
        let turned = z.view().permute([3, 2, 1, 0])?;
        let out = weighted(cx, &x, &y, turned, 0.5, -2.0)?;
        let (mut want, mut size) = (Vec::new(), Vec::new());
        for (at, x) in xs.iter().enumerate() {
            let [_, b, c, d] = shape;
            let (i, j, k, l) = (at / (b * c * d), at / (c * d) % b, at / d % c, at % d);
            let (y, z) = (ys[k], zs[((l * c + k) * b + j) * shape[0] + i]);
            want.push(0.5 * x - 2.0 * y - z);
            size.push(x.abs() + 2.0 * y.abs() + z.abs());
        }
        // Two products and two sums.
        assert_close("weighted", &out.to_vec()?, &want, |at, _| 4.0 * T::STEP * size[at]);
    }
    Ok(())
}

#[test]
fn expressions_broadcast_over_any_strides() {
    on_every_device(|cx| {
        check_weighted::<f16>(cx)?;
        check_weighted::<f32>(cx)?;
        check_weighted::<f64>(cx)
    });
}

#[test]
fn expressions_of_contiguous_tensors() {
    on_every_device(|cx| {
        for len in [0, 1, 1023, 1024, 2500] {
            let (x, xs) = Random::new(1).tensor::<f32, 1>(cx, [len]);
            let (y, ys) = Random::new(2).tensor::<f32, 1>(cx, [len]);
            let sums: Vec<f64> = xs.iter().zip(&ys).map(|(x, y)| x - y).collect();
            assert_close("sub", &general::sub(cx, &x, &y)?.to_vec()?, &sums, |_, _| 0.0);
            // gelu(x) is within 8 units of |x|: erf within 4, and four more operations.
            let out = gelu_add(cx, &x, &x)?.to_vec()?;
            let silu = general::silu(cx, &x)?.to_vec()?;
            for ((x, got), silu) in xs.iter().zip(out).zip(silu) {
                let twice = 2.0 * x;
                let want = general_gelu(twice);
                assert!((f64::from(got) - want).abs() <= 16.0 * f32::ROUNDING * (twice.abs() + 1e-30), "{got} {want}");
                let want = x / (1.0 + (-x).exp());
                assert!(
                    (f64::from(silu) - want).abs() <= 16.0 * f32::ROUNDING * x.abs() * (1.0 + x.abs()),
                    "{silu} {want}"
                );
            }
        }
        Ok(())
    });
}

/// `x (1 + erf(x / sqrt 2)) / 2` by Simpson's rule, whose error is `h^4 / 180` times the length and the fourth derivative of
/// `exp(-t^2)`, at most 12: below 1e-12 for all `x` here.
fn general_gelu(x: f64) -> f64 {
    let (steps, z) = (4000, x / std::f64::consts::SQRT_2);
    let h = z / f64::from(steps);
    let weight = |i: i32| if i == 0 || i == steps { 1.0 } else { f64::from(2 + i % 2 * 2) };
    let sum: f64 = (0..=steps).map(|i| weight(i) * (-(f64::from(i) * h).powi(2)).exp()).sum();
    x * 0.5 * (1.0 + sum * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI)
}

/// Gradients against differences of the function, in f64.
#[test]
fn gradients_are_those_of_the_functions() {
    type Unary = fn(&Context, &Tensor<f64, 1>) -> Result<Tensor<f64, 1>, Error>;
    type Gradient = fn(&Context, &Tensor<f64, 1>, &Tensor<f64, 1>) -> Result<Tensor<f64, 1>, Error>;
    let cases: [(&str, Unary, Gradient, bool); 5] = [
        ("relu", |cx, x| general::relu(cx, x), |cx, x, dy| general::relu_backward(cx, x, dy), false),
        ("silu", |cx, x| general::silu(cx, x), |cx, x, dy| general::silu_backward(cx, x, dy), false),
        ("gelu", |cx, x| general::gelu(cx, x), |cx, x, dy| general::gelu_backward(cx, x, dy), false),
        ("tanh", |cx, x| general::tanh(cx, x), |cx, y, dy| general::tanh_backward(cx, y, dy), true),
        ("sigmoid", |cx, x| general::sigmoid(cx, x), |cx, y, dy| general::sigmoid_backward(cx, y, dy), true),
    ];
    on_every_device(|cx| {
        let (x, xs) = Random::new(6).tensor::<f64, 1>(cx, [50]);
        let (dy, dys) = Random::new(7).tensor::<f64, 1>(cx, [50]);
        let h = 1e-4;
        let moved = |by: f64| Tensor::upload(cx.device(), &xs.iter().map(|x| x + by).collect::<Vec<_>>(), [50]);
        for (name, function, gradient, of_result) in cases {
            let (above, below) = (function(cx, &moved(h)?)?.to_vec()?, function(cx, &moved(-h)?)?.to_vec()?);
            let y = function(cx, &x)?;
            let got = gradient(cx, if of_result { &y } else { &x }, &dy)?.to_vec()?;
            for at in 0..50 {
                let want = dys[at] * (above[at] - below[at]) / (2.0 * h);
                // A third derivative of at most 10, over 6, and cancellation of 16 digits by h.
                let bound = dys[at].abs() * (10.0 * h * h / 6.0 + 1e-15 / h * 8.0);
                assert!((got[at] - want).abs() <= bound, "{name}: {} {want} at {}", got[at], xs[at]);
            }
        }
        Ok(())
    });
}

#[test]
fn expressions_of_integers_into_parts() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1u8, 2, 3, 4, 5, 6], [2, 3])?;
        let y = Tensor::upload(cx.device(), &[255u8, 1], [2, 1])?;
        let mut buffer = cx.device().full(10, 9u8)?;
        bits_into(cx, &x, &y, TensorViewMut::with_strides(&mut buffer, [2, 3], [5, 1])?)?;
        assert_eq!(buffer.to_vec()?, [254, 253, 252, 9, 9, 5, 4, 7, 9, 9]);
        let z = Tensor::upload(cx.device(), &[1u8, 2], [1, 2])?;
        assert_eq!(
            message(bits(cx, &x, &z)),
            "`y` has the shape [1, 2]; dimension 1 has 3 elements in other arguments: it has as many, or 1"
        );
        Ok(())
    });
}
