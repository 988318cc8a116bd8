//! Products against candle's own: results in all dtypes, gradients in f64; quantised weights; 8-bit floats.

use crate::common::{Random, Sum, assert_close, check_forward, check_gradients, message, on_every_device, reals};
use candle_core::{DType, IndexOp, Module, Result, Tensor, Var};
use tilewright_candle::products::{
    Activation, Fp8Linear, Fused, Packing, QuantisedLinear, Weights, fp8, fused_linear, fused_swiglu, linear, matmul,
};

/// Sums of `k` products of numbers up to 2.
fn of_product(k: usize) -> Sum {
    Sum::of(k, 4.0)
}

#[test]
fn linear_layers_and_their_gradients_are_candles() {
    on_every_device(|device| {
        let mut random = Random::new(61);
        for shape in [&[5, 48][..], &[2, 3, 48]] {
            let (x, weight) = (random.variable(shape, device)?, random.variable(&[20, 48], device)?);
            let own = |x: &[Tensor]| x[0].broadcast_matmul(&x[1].t()?);
            let own = |x: &[Tensor]| if x[0].rank() == 2 { x[0].matmul(&x[1].t()?) } else { own(x) };
            let op = |x: &[Tensor]| linear(&x[0], &x[1]);
            check_forward("linear", &[&x.detach(), &weight.detach()], of_product(48), op, own)?;
            check_gradients("linear", &[&x, &weight], of_product(48), op, own)?;
        }
        Ok(())
    });
}

#[test]
fn products_and_their_gradients_are_candles() {
    on_every_device(|device| {
        let mut random = Random::new(62);
        let sum = of_product(2 * 24);
        for (a, b) in [(&[7, 24][..], &[24, 9][..]), (&[2, 7, 24], &[2, 24, 9]), (&[2, 7, 24], &[24, 9])] {
            let (a, b) = (random.variable(a, device)?, random.variable(b, device)?);
            let (op, own) = (|x: &[Tensor]| matmul(&x[0], &x[1]), |x: &[Tensor]| x[0].broadcast_matmul(&x[1]));
            check_forward("matmul", &[&a.detach(), &b.detach()], sum, op, own)?;
            check_gradients("matmul", &[&a, &b], sum, op, own)?;
        }
        // Any strides.
        let a = random.variable(&[24, 7], device)?;
        let b = random.variable(&[9, 24], device)?;
        let op = |x: &[Tensor]| matmul(&x[0].t()?, &x[1].t()?);
        let own = |x: &[Tensor]| x[0].t()?.contiguous()?.matmul(&x[1].t()?.contiguous()?);
        check_gradients("matmul of transposes", &[&a, &b], sum, op, own)?;
        // Matrices whose rows are not at one distance, by one matrix.
        let a = random.variable(&[2, 24, 7], device)?;
        let op = |x: &[Tensor]| matmul(&x[0].transpose(1, 2)?, &x[1].t()?);
        let own = |x: &[Tensor]| x[0].transpose(1, 2)?.contiguous()?.broadcast_matmul(&x[1].t()?);
        check_gradients("matmul of several transposes", &[&a, &b], sum, op, own)
    });
}

#[test]
fn ends_of_a_product_are_computed_with_it() {
    on_every_device(|device| {
        let mut random = Random::new(63);
        let (x, weight) = (random.tensor(&[2, 3, 32], device)?, random.tensor(&[16, 32], device)?);
        let (bias, residual) = (random.tensor(&[16], device)?, random.tensor(&[2, 3, 16], device)?);
        let op = |x: &[Tensor]| {
            let around =
                Fused { bias: Some(&x[2]), activation: Activation::Relu, residual: Some(&x[3]), ..Fused::default() };
            fused_linear(&x[0], &x[1], around)
        };
        let own = |x: &[Tensor]| x[0].broadcast_matmul(&x[1].t()?)?.broadcast_add(&x[2])?.relu()? + &x[3];
        check_forward("fused_linear", &[&x, &weight, &bias, &residual], of_product(34), op, own)?;
        let op = |x: &[Tensor]| fused_linear(&x[0], &x[1], Fused::default());
        let own = |x: &[Tensor]| x[0].broadcast_matmul(&x[1].t()?);
        check_forward("fused_linear", &[&x, &weight], of_product(32), op, own)
    });
}

/// RMS norm by candle's elementary ops.
fn normed(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let scale = (x.sqr()?.mean_keepdim(candle_core::D::Minus1)? + eps)?.sqrt()?;
    x.broadcast_div(&scale)?.broadcast_mul(weight)
}

#[test]
fn products_of_any_number_of_rows_are_fused_with_what_stands_around_them() {
    on_every_device(|device| {
        let mut random = Random::new(68);
        // Rows of less than a block, of more than one, and one and a half.
        for (rows, k) in [(1, 48), (1, 1100), (4, 768), (5, 64)] {
            let (x, weight) = (random.tensor(&[1, rows, k], device)?, random.tensor(&[14, k], device)?);
            let (norm, residual) = (random.tensor(&[k], device)?, random.tensor(&[1, rows, 14], device)?);
            // Normed numbers times their weights are up to 8, those of the product up to 2. Where the norm is a launch of its own,
            // they are rounded to the dtype in between: in bf16 by 2^-8, which is 512 times the 128 roundings of 2^-24 of a term.
            let between = if rows > 4 { 512.0 } else { 0.0 };
            let sum = Sum::of(k + 2, 16.0 * (1.0 + between));

            let op = |x: &[Tensor]| {
                let around = Fused { norm: Some((&x[2], 1e-5)), residual: Some(&x[3]), ..Fused::default() };
                fused_linear(&x[0], &x[1], around)
            };
            let own = |x: &[Tensor]| normed(&x[0], &x[2], 1e-5)?.broadcast_matmul(&x[1].t()?)? + &x[3];
            check_forward("fused_linear", &[&x, &weight, &norm, &residual], sum, op, own)?;

            let gate = |y: Tensor| y.narrow(2, 0, 7)?.silu()? * y.narrow(2, 7, 7)?;
            let op = |x: &[Tensor]| fused_swiglu(&x[0], &x[1], Some((&x[2], 1e-5)));
            let own = |x: &[Tensor]| gate(normed(&x[0], &x[2], 1e-5)?.broadcast_matmul(&x[1].t()?)?);
            // The product of two such sums.
            let sum = Sum::of(2 * (k + 2), 16.0 * 8.0 * k as f64 * (1.0 + between));
            check_forward("fused_swiglu", &[&x, &weight, &norm], sum, op, own)?;
            let op = |x: &[Tensor]| fused_swiglu(&x[0], &x[1], None);
            let own = |x: &[Tensor]| gate(x[0].broadcast_matmul(&x[1].t()?)?);
            let sum = Sum::of(2 * (k + 2), 4.0 * 4.0 * k as f64 * (1.0 + between));
            check_forward("fused_swiglu", &[&x, &weight], sum, op, own)?;
        }
        // candle adds up no rows on a GPU where there are none.
        let none = Tensor::zeros((1, 0, 16), DType::F32, device)?;
        let weight = random.tensor(&[14, 16], device)?.to_dtype(DType::F32)?;
        let norm = Tensor::ones(16, DType::F32, device)?;
        let around = Fused { norm: Some((&norm, 1e-5)), ..Fused::default() };
        assert_eq!(fused_linear(&none, &weight, around)?.dims(), [1, 0, 14]);
        assert_eq!(fused_swiglu(&none, &weight, Some((&norm, 1e-5)))?.dims(), [1, 0, 7]);
        Ok(())
    });
}

/// Layers of all kinds of quantised weights, with what an element of a weight may be off by: numbers are up to 2.
fn layers(weight: &Tensor) -> Result<Vec<(&'static str, QuantisedLinear, f64)>> {
    // Half a step of 2 / 127, and what the scale is rounded by; a step of 4 / 15 and its rounding to f16; of NF4 half the widest
    // gap between neighbours, which is 0.304 of the largest number.
    Ok(vec![
        ("int8", QuantisedLinear::int8(weight)?, 2.0 / 127.0 / 2.0 + 1e-3),
        ("int4 as AWQ", QuantisedLinear::int4(weight, 32, Packing::Awq)?, 4.0 / 15.0 * 1.01),
        ("int4 as GPTQ", QuantisedLinear::int4(weight, 32, Packing::Gptq)?, 4.0 / 15.0 * 1.01),
        ("nf4", QuantisedLinear::nf4(weight)?, 2.0 * 0.304 / 2.0 + 1e-3),
    ])
}

#[test]
fn quantised_weights_are_near_what_they_stand_for() {
    on_every_device(|device| {
        let weight = Random::new(64).tensor(&[24, 64], device)?.to_dtype(DType::F16)?;
        for (kind, layer, error) in layers(&weight)? {
            let back = layer.dequantise(DType::F16)?;
            assert_eq!(back.dims(), weight.dims(), "{kind}");
            for (got, want) in reals(&back).into_iter().zip(reals(&weight)) {
                assert!((got - want).abs() <= error, "{kind}: {got} is not near {want}");
            }
        }
        Ok(())
    });
}

#[test]
fn products_with_quantised_weights_are_those_with_what_they_stand_for() {
    on_every_device(|device| {
        let mut random = Random::new(65);
        let weight = random.tensor(&[24, 64], device)?.to_dtype(DType::F16)?;
        let x = random.tensor(&[2, 3, 64], device)?.to_dtype(DType::F16)?;
        for (kind, layer, _) in layers(&weight)? {
            let want =
                x.to_dtype(DType::F64)?.broadcast_matmul(&layer.dequantise(DType::F16)?.to_dtype(DType::F64)?.t()?)?;
            // What integers stand for is rounded to f16 in the matrix, not in the product of so few rows.
            let rounded = if kind == "nf4" { 0.0 } else { 64.0 * 4.0 * (-11f64).exp2() };
            let sum = Sum::of(64, 4.0 + rounded / (64.0 * (-24f64).exp2() * 64.0));
            assert_close(kind, &layer.forward(&x)?, &want, sum);
        }
        Ok(())
    });
}

#[test]
fn a_gradient_goes_through_quantised_weights() {
    on_every_device(|device| {
        let mut random = Random::new(66);
        let weight = random.tensor(&[24, 64], device)?.to_dtype(DType::BF16)?;
        let x = Var::from_tensor(&random.tensor(&[2, 3, 64], device)?.to_dtype(DType::BF16)?)?;
        let dy = random.tensor(&[2, 3, 24], device)?;
        for (kind, layer, _) in layers(&weight)? {
            let loss = (layer.forward(&x)? * dy.to_dtype(DType::BF16)?)?.sum_all()?;
            let got = loss.backward()?;
            let want = dy.broadcast_matmul(&layer.dequantise(DType::BF16)?.to_dtype(DType::F64)?)?;
            assert_close(kind, got.get(&x).expect("x is a variable"), &want, of_product(24));
            // A row alone, which is no matrix.
            let row = Var::from_tensor(&x.i((0, 0))?.detach())?;
            let dy = dy.i((0, 0))?;
            let got = (layer.forward(&row)? * dy.to_dtype(DType::BF16)?)?.sum_all()?.backward()?;
            assert_close(kind, got.get(&row).expect("it is a variable"), &want.i((0, 0))?, of_product(24));
        }
        Ok(())
    });
}

#[test]
fn weights_that_others_have_quantised_are_taken() {
    on_every_device(|device| {
        // 8 columns of 16 rows of the number 9, with zeros of 8 and scales of 0.5: each weight is 0.5.
        let words = Tensor::full(0x9999_9999u32, (16, 1), device)?;
        let scales = Tensor::full(0.5f32, (1, 8), device)?.to_dtype(DType::F16)?;
        let weights = Weights::Int4 { words, scales, zeros: None, group: 16, packing: Packing::Awq };
        let y = QuantisedLinear::new(weights).forward(&Tensor::ones((1, 16), DType::F16, device)?)?;
        assert_eq!(reals(&y), [8.0; 8]);
        // -3 as u8, in any order of dimensions.
        let weights = Weights::Int8 {
            numbers: Tensor::full(253u8, (4, 16), device)?.t()?,
            scales: Tensor::full(2f32, 4, device)?,
        };
        let y = QuantisedLinear::new(weights).forward(&Tensor::ones((1, 16), DType::F16, device)?)?;
        assert_eq!(reals(&y), [-96.0; 4]);
        Ok(())
    });
}

#[test]
fn products_of_8_bit_floats_are_exact_but_for_their_sums() {
    on_every_device(|device| {
        let mut random = Random::new(67);
        let (x, weight) = (random.tensor(&[5, 200], device)?, random.tensor(&[140, 200], device)?);
        let ([a, a_scale], [b, b_scale]) = (fp8::quantise_blocks(&x)?, fp8::quantise_squares(&weight)?);
        assert_eq!((a_scale.dims(), b_scale.dims()), (&[5, 2][..], &[2, 2][..]));
        let back = |numbers: &Tensor, scale: &Tensor, tall: usize| {
            let (rows, columns) = numbers.dims2()?;
            let (numbers, scale) = (reals(&to_host(numbers)?), reals(scale));
            let wide = columns.div_ceil(128);
            let value = |at: usize| numbers[at] * scale[at / columns / tall * wide + at % columns / 128];
            Tensor::from_vec((0..rows * columns).map(value).collect(), (rows, columns), device)
        };
        let (left, right) = (back(&a, &a_scale, 1)?, back(&b, &b_scale, 128)?);
        for (numbers, exact) in [(&left, &x), (&right, &weight)] {
            // 3 bits of fraction, of numbers whose largest, 2, has become 448.
            for (got, want) in reals(numbers).into_iter().zip(reals(exact)) {
                assert!((got - want).abs() <= want.abs() / 16.0 + 2.0 / 448.0 / 512.0, "{got} is not near {want}");
            }
        }
        let want = left.matmul(&right.t()?)?;
        // Tensor cores keep 13 bits of fraction of sums of 128 products; the interpreter keeps all.
        let sum = Sum::of(200, 4.0 * (-13f64).exp2() / (128.0 * (-24f64).exp2()));
        let y = fp8::matmul_blocks(&a, &a_scale, &b.t()?, &b_scale.t()?, DType::F32)?;
        assert_close("matmul_blocks", &y, &want, sum);

        let layer = Fp8Linear::quantise(&weight)?;
        assert_close("Fp8Linear", &layer.forward(&x.to_dtype(DType::F32)?)?, &want, sum);
        assert!(message(layer.forward(&x.to_dtype(DType::U8)?)).contains("`x` is of u8"));
        Ok(())
    });
}

fn to_host(x: &Tensor) -> Result<Tensor> {
    x.to_device(&candle_core::Device::Cpu)
}
