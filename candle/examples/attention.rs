//! Causal attention of the library, with its gradient, beside candle's ops.

use candle_core::{D, Device, Result, Tensor, Var};
use tilewright_candle::attention::{Attention, attention};

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let random = || Var::randn(0f32, 1.0, (1, 2, 100, 32), &device);
    let (q, k, v) = (random()?, random()?, random()?);
    let ours = attention(&q, &k, &v, Attention::default().causal())?;
    let candles = by_candle(&q, &k, &v)?;

    let furthest = |x: &Tensor, y: &Tensor| (x - y)?.abs()?.max_all()?.to_scalar::<f32>();
    let difference = furthest(&ours, &candles)?;
    println!("results differ by {difference:.1e} at most");
    let (ours, candles) = (ours.sqr()?.sum_all()?.backward()?, candles.sqr()?.sum_all()?.backward()?);
    let mut worst = 0f32;
    for x in [&q, &k, &v] {
        let (Some(ours), Some(candles)) = (ours.get(x), candles.get(x)) else { unreachable!("all are variables") };
        worst = worst.max(furthest(ours, candles)?);
    }
    println!("gradients differ by {worst:.1e} at most");
    // Products are within 2^-20. So a score, of 32 products of numbers up to 3 over the root of 32, is within 5e-5, a weight within
    // twice that share of itself, and a result, of numbers up to 4, within 4e-4. In gradients such weights, which add up to 1, stand
    // before numbers up to 40.
    assert!(difference < 4e-4 && worst < 4e-3);
    Ok(())
}

fn by_candle(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (.., tokens, d) = q.dims4()?;
    let later = (0..tokens * tokens).map(|at| u8::from(at % tokens > at / tokens)).collect();
    let later = Tensor::from_vec(later, (tokens, tokens), q.device())?;
    let scores = (q.matmul(&k.t()?)? / (d as f64).sqrt())?;
    let hidden = Tensor::full(f32::NEG_INFINITY, scores.shape(), q.device())?;
    let scores = later.broadcast_as(scores.shape())?.where_cond(&hidden, &scores)?;
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(v)
}

#[test]
fn results_and_gradients_are_candles() {
    main().unwrap();
}
