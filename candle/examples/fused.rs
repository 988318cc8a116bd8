//! Several elementwise ops as one, with its gradient: Snake (Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic
//! Functions and How to Fix It", 2020), with a frequency for each channel.

use candle_core::{Device, Var};
use tilewright_candle::prelude::*;
use tilewright_candle::tilewright_kernels::elementwise;

elementwise! {
    /// The function, of elements that broadcast.
    fn snake_of, snake_into<T: Float>(x, a) => x + sin(a * x) * sin(a * x) / a;
    /// Its derivative for `x`, times `dy`.
    fn snake_slope, snake_slope_into<T: Float>(x, a, dy) => dy * (1.0 + 2.0 * sin(a * x) * cos(a * x));
}

candle_op! {
    /// `x + sin(a x)^2 / a`. `x` is `[batch, channels, samples]`, `a` is `[1, channels, 1]`.
    fn snake(x, a) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32] {
            snake_into(x.context(), x.view::<T, 3>()?, a.view::<T, 3>()?, y.view_mut::<T, 3>()?)
        })
    }
    backward(dy) -> (x: dx) {
        dispatch!(x => T in [f16, bf16, f32] {
            snake_slope_into(x.context(), x.view::<T, 3>()?, a.view()?, dy.view()?, dx.view_mut::<T, 3>()?)
        })
    }
}

fn main() -> candle_core::Result<()> {
    let device = Device::cuda_if_available(0)?;
    let x = Var::randn(0f32, 1.0, (2, 8, 1000), &device)?;
    let a = Tensor::rand(0.5f32, 2.0, (1, 8, 1), &device)?;
    let candles = (x.as_tensor() + x.broadcast_mul(&a)?.sin()?.sqr()?.broadcast_div(&a)?)?;
    let ours = snake(&x, &a)?;
    let furthest = |x: &Tensor, y: &Tensor| (x - y)?.abs()?.max_all()?.to_scalar::<f32>();
    println!("results differ by {:.1e} at most", furthest(&ours, &candles)?);

    let (ours, candles) = (ours.sum_all()?.backward()?, candles.sum_all()?.backward()?);
    let (Some(ours), Some(candles)) = (ours.get(&x), candles.get(&x)) else { unreachable!("x is a variable") };
    let difference = furthest(ours, candles)?;
    println!("gradients differ by {difference:.1e} at most");
    // A few roundings of numbers up to 3, and sines of numbers up to 10 by the GPU's fast functions.
    assert!(difference < 1e-4);
    Ok(())
}

#[test]
fn the_gradient_is_candles() {
    main().unwrap();
}
