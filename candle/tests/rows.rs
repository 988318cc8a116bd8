//! Functions of rows against candle's own ops: results in all dtypes, gradients in f64.

use crate::common::{Random, Sum, assert_close, check_forward, check_gradients, largest, on_every_device, reals};
use candle_core::{D, DType, Device, Result, Tensor};
use tilewright_candle::rows::{self, CrossEntropy, Gelu, Pairs, Reduction};

/// Rows and columns: one that fills its block, one that does not.
const SHAPES: [&[usize]; 2] = [&[3, 64], &[2, 3, 37]];

fn softmax(x: &Tensor) -> Result<Tensor> {
    candle_nn::ops::softmax(x, D::Minus1)
}

#[test]
fn softmax_and_its_gradient_are_candles() {
    on_every_device(|device| {
        for shape in SHAPES {
            let x = Random::new(1).variable(shape, device)?;
            let columns = shape[shape.len() - 1];
            // A quotient: of an exponential and of the sum of as many as there are columns, relative to it.
            let sum = Sum::of(columns, 1.0);
            check_forward("softmax", &[&x.detach()], sum, |x| rows::softmax(&x[0]), |x| softmax(&x[0]))?;
            // y (dy - sum(y dy)), with dy up to 2.
            let sum = Sum::of(columns + 1, 2.0);
            check_gradients("softmax", &[&x], sum, |x| rows::softmax(&x[0]), |x| softmax(&x[0]))?;
        }
        Ok(())
    });
}

#[test]
fn log_softmax_and_its_gradient_are_candles() {
    on_every_device(|device| {
        for shape in SHAPES {
            let x = Random::new(2).variable(shape, device)?;
            let columns = shape[shape.len() - 1];
            let own = |x: &[Tensor]| candle_nn::ops::log_softmax(&x[0], D::Minus1);
            // x, its maximum, and the logarithm of a sum of as many exponentials, which is 4 + ln(64) at most.
            let sum = Sum::of(columns + 2, 9.0);
            check_forward("log_softmax", &[&x.detach()], sum, |x| rows::log_softmax(&x[0]), own)?;
            // dy - softmax(x) sum(dy).
            let sum = Sum::of(columns + 1, 2.0);
            check_gradients("log_softmax", &[&x], sum, |x| rows::log_softmax(&x[0]), own)?;
        }
        Ok(())
    });
}

/// `x / sqrt(mean(x^2) + eps) * weight`, by candle's elementary ops, as candle's own kernel takes no f64.
fn rms_norm(x: &[Tensor], eps: f64) -> Result<Tensor> {
    let scale = (x[0].sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    x[0].broadcast_div(&scale)?.broadcast_mul(&x[1])
}

fn layer_norm(x: &[Tensor], eps: f64) -> Result<Tensor> {
    let centred = x[0].broadcast_sub(&x[0].mean_keepdim(D::Minus1)?)?;
    let scale = (centred.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    centred.broadcast_div(&scale)?.broadcast_mul(&x[1])?.broadcast_add(&x[2])
}

/// What the terms of norms and their gradients are below, for rows of `columns` numbers up to 2, whose deviation is above 1/2,
/// with weights up to 2: normed numbers are below `sqrt(columns)`, and so are means of products of theirs with gradients.
fn of_norms(shape: &[usize]) -> Sum {
    let columns = shape[shape.len() - 1];
    let elements: usize = shape.iter().product();
    Sum::of(columns + elements / columns + 2, 16.0 * columns as f64)
}

#[test]
fn norms_and_their_gradients_are_candles() {
    on_every_device(|device| {
        for shape in SHAPES {
            let mut random = Random::new(3);
            let (x, columns) = (random.variable(shape, device)?, shape[shape.len() - 1]);
            let (weight, bias) = (random.variable(&[columns], device)?, random.variable(&[columns], device)?);
            let (sum, eps) = (of_norms(shape), 1e-5);

            let inputs = [&x.detach(), &weight.detach(), &bias.detach()];
            let op = |x: &[Tensor]| rows::rms_norm(&x[0], &x[1], eps);
            check_forward("rms_norm", &inputs[..2], sum, op, |x| rms_norm(x, eps))?;
            check_gradients("rms_norm", &[&x, &weight], sum, op, |x| rms_norm(x, eps))?;

            let op = |x: &[Tensor]| rows::layer_norm(&x[0], &x[1], &x[2], eps);
            check_forward("layer_norm", &inputs, sum, op, |x| layer_norm(x, eps))?;
            check_gradients("layer_norm", &[&x, &weight, &bias], sum, op, |x| layer_norm(x, eps))?;
        }
        Ok(())
    });
}

#[test]
fn a_residual_is_changed_and_the_norm_of_the_sum_is_given() {
    on_every_device(|device| {
        let mut random = Random::new(4);
        let shape = [4, 48];
        let (x, residual) = (random.tensor(&shape, device)?, random.tensor(&shape, device)?);
        let weight = random.tensor(&[48], device)?;
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let (x, residual, weight) = (x.to_dtype(dtype)?, residual.to_dtype(dtype)?, weight.to_dtype(dtype)?);
            // The sum is rounded before it is normed.
            let sum = (&x + &residual)?.to_dtype(DType::F64)?;
            let y = rows::add_rms_norm_in_place(&residual, &x, &weight, 1e-5)?;
            assert_eq!(reals(&residual), reals(&sum));
            let want = rms_norm(&[sum, weight.to_dtype(DType::F64)?], 1e-5)?;
            assert_close("add_rms_norm_in_place", &y, &want, of_norms(&shape));
        }
        Ok(())
    });
}

/// Pairs turned by candle's elementary ops. `x` is `[batch, heads, tokens, dim]`.
fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor, pairs: Pairs) -> Result<Tensor> {
    let (batch, heads, tokens, dim) = x.dims4()?;
    let (cos, sin) = (cos.narrow(0, 0, tokens)?, sin.narrow(0, 0, tokens)?);
    let (a, b) = match pairs {
        Pairs::Halves => (x.narrow(3, 0, dim / 2)?, x.narrow(3, dim / 2, dim / 2)?),
        Pairs::Interleaved => {
            let both = x.reshape((batch, heads, tokens, dim / 2, 2))?;
            (both.narrow(4, 0, 1)?.squeeze(4)?, both.narrow(4, 1, 1)?.squeeze(4)?)
        }
    };
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    match pairs {
        Pairs::Halves => Tensor::cat(&[first, second], 3),
        Pairs::Interleaved => Tensor::stack(&[first, second], 4)?.reshape((batch, heads, tokens, dim)),
    }
}

#[test]
fn pairs_are_turned_as_candle_turns_them() {
    on_every_device(|device| {
        for pairs in [Pairs::Halves, Pairs::Interleaved] {
            let mut random = Random::new(5);
            let x = random.variable(&[2, 3, 5, 8], device)?;
            // Any numbers will do, and these are exact in all dtypes.
            let (cos, sin) = (random.tensor(&[7, 4], device)?, random.tensor(&[7, 4], device)?);
            let sum = Sum::of(2, 4.0);
            let inputs = [&x.detach(), &cos, &sin];
            let op = |x: &[Tensor]| rows::rotary(&x[0], &x[1], &x[2], pairs);
            let own = |x: &[Tensor]| turned(&x[0], &x[1], &x[2], pairs);
            check_forward("rotary", &inputs, sum, op, own)?;
            let in_place = |x: &[Tensor]| {
                let y = x[0].copy()?;
                rows::rotary_in_place(&y, &x[1], &x[2], pairs)?;
                Ok(y)
            };
            check_forward("rotary_in_place", &inputs, sum, in_place, own)?;
            let op = |x: &[Tensor]| rows::rotary(&x[0], &cos, &sin, pairs);
            check_gradients("rotary", &[&x], sum, op, |x| turned(&x[0], &cos, &sin, pairs))?;

            let positions = Tensor::new(&[[2u32, 3, 4, 5, 6], [0, 1, 2, 3, 4]], device)?;
            let op = |x: &[Tensor]| rows::rotary_at(&x[0], &x[1], &x[2], &positions, pairs);
            let own = |x: &[Tensor]| {
                let later = turned(&x[0].narrow(0, 0, 1)?, &x[1].narrow(0, 2, 5)?, &x[2].narrow(0, 2, 5)?, pairs)?;
                Tensor::cat(&[later, turned(&x[0].narrow(0, 1, 1)?, &x[1], &x[2], pairs)?], 0)
            };
            check_forward("rotary_at", &inputs, sum, op, own)?;
        }
        Ok(())
    });
}

#[test]
fn rotary_tables_are_those_of_candles_models() {
    let (cos, sin) = rows::rotary_tables(4, 6, 10_000.0, &Device::Cpu).unwrap();
    assert_eq!((cos.dims(), sin.dims()), (&[4, 3][..], &[4, 3][..]));
    let (cos, sin) = (cos.to_vec2::<f32>().unwrap(), sin.to_vec2::<f32>().unwrap());
    let angle = 3.0 / 10_000f64.powf(4.0 / 6.0);
    assert_eq!((cos[3][2], sin[3][2]), (angle.cos() as f32, angle.sin() as f32));
}

#[test]
fn gated_activations_and_their_gradients_are_candles() {
    on_every_device(|device| {
        for shape in SHAPES {
            let mut random = Random::new(6);
            let (a, b) = (random.variable(shape, device)?, random.variable(shape, device)?);
            // Polynomials in numbers up to 2 of a bounded function: products up to 2 * 2 * 2, a few of them.
            let sum = Sum::of(4, 8.0);
            let inputs = [&a.detach(), &b.detach()];
            let (op, own) = (|x: &[Tensor]| rows::swiglu(&x[0], &x[1]), |x: &[Tensor]| x[0].silu()? * &x[1]);
            check_forward("swiglu", &inputs, sum, op, own)?;
            check_gradients("swiglu", &[&a, &b], sum, op, own)?;

            let op = |x: &[Tensor]| rows::geglu(&x[0], &x[1], Gelu::Erf);
            // Not by `gelu_erf`, of whose gradient candle knows six digits.
            let own = |x: &[Tensor]| (((&x[0] / 2f64.sqrt())?.erf()? + 1.0)? * (&x[0] * &x[1])?)? * 0.5;
            check_forward("geglu", &inputs, sum, op, own)?;
            check_gradients("geglu", &[&a, &b], sum, op, own)?;

            let op = |x: &[Tensor]| rows::geglu(&x[0], &x[1], Gelu::Tanh);
            let own = |x: &[Tensor]| x[0].gelu()? * &x[1];
            check_forward("geglu by tanh", &inputs, sum, op, own)?;
        }
        Ok(())
    });
}

#[test]
fn cross_entropy_and_its_gradient_are_candles() {
    on_every_device(|device| {
        let mut random = Random::new(7);
        let logits = random.variable(&[6, 45], device)?;
        let targets = random.indices(&[6], 45, device)?;
        // Losses and their mean are f32.
        let sum = Sum::of(6 * 45, largest(&logits) + 8.0).in_f32();
        let own = |x: &[Tensor]| {
            let logs = candle_nn::ops::log_softmax(&x[0], D::Minus1)?;
            logs.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?.neg()
        };
        let options = CrossEntropy::default();
        for (reduction, reduce) in [
            (Reduction::Mean, (|x| x.mean_all()) as fn(Tensor) -> Result<Tensor>),
            (Reduction::Sum, |x| x.sum_all()),
            (Reduction::None, Ok),
        ] {
            // Losses are f32 whatever the logits are, and so are the gradients that come in.
            let op = |x: &[Tensor]| rows::cross_entropy(&x[0], &targets, options.reduction(reduction));
            check_forward(
                "cross_entropy",
                &[&logits.detach()],
                sum,
                |x| op(&[x[0].to_dtype(DType::F32)?]),
                |x| reduce(own(x)?),
            )?;
            let own = |x: &[Tensor]| reduce(own(x)?)?.to_dtype(DType::F32);
            check_gradients("cross_entropy", &[&logits], sum, op, own)?;
        }
        Ok(())
    });
}

#[test]
fn rows_at_a_distance_are_read_where_they_are() {
    on_every_device(|device| {
        let both = Random::new(8).tensor(&[5, 96], device)?;
        let b = both.narrow(1, 48, 48)?;
        let sum = Sum::of(48, 8.0);
        let op = |x: &[Tensor]| rows::swiglu(&x[0].narrow(1, 0, 48)?, &x[0].narrow(1, 48, 48)?);
        let own = |x: &[Tensor]| x[0].narrow(1, 0, 48)?.silu()? * x[0].narrow(1, 48, 48)?;
        check_forward("swiglu of halves", &[&both], sum, op, own)?;
        check_forward("softmax of a half", &[&b], sum, |x| rows::softmax(&x[0]), |x| softmax(&x[0]))?;
        assert!(!b.is_contiguous());
        Ok(())
    });
}
