//! Numbers of 8 bits with scales.

use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Quantised, Scales};
use tilewright_kernels::{Context, Tensor};

/// Checks scales exactly, and elements against the error of rounding `x / scale`, whose quotient is within 2 units of f32.
fn check_quantised<T: Real + general::Real, Q: Quantised>(
    cx: &Context,
    real: fn(Q) -> f64,
    (relative, least): (f64, f64),
) -> Result<(), Error> {
    for ([rows, columns], scales) in [
        ([3, 300], Scales::Group(128)),
        ([40, 64], Scales::Group(16)),
        ([5, 100], Scales::Row),
        ([1, 20_000], Scales::Row),
        ([7, 33], Scales::Tensor),
    ] {
        let (x, mut reals) = Random::new(50).tensor::<T, 2>(cx, [rows, columns + 3]);
        let x = if scales == Scales::Tensor {
            let (x, all) = Random::new(50).tensor::<T, 2>(cx, [rows, columns]);
            reals = all;
            x
        } else {
            reals = reals.chunks(columns + 3).flat_map(|row| row[..columns].to_vec()).collect();
            x
        };
        let (q, q_scales) = general::quantise::<Q, T>(cx, x.view().narrow(1, 0..columns)?, scales)?;
        let group = match scales {
            Scales::Tensor => rows * columns,
            Scales::Row => columns,
            Scales::Group(group) => group,
        };
        let lines: Vec<&[f64]> = if group > columns {
            vec![&reals]
        } else {
            reals.chunks(columns).flat_map(|row| row.chunks(group)).collect()
        };
        let got = q_scales.to_vec()?;
        assert_eq!(got.len(), lines.len());
        let mut elements = q.to_vec()?.into_iter();
        let back: Tensor<f32, 2> = general::dequantise(cx, &q, &q_scales, scales)?;
        let mut back = back.to_vec()?.into_iter();
        for (line, scale) in lines.iter().zip(got) {
            let peak = line.iter().fold(0.0, |a, x| f64::max(a, x.abs()));
            let (want, scale) = (peak / f64::from(Q::LARGEST), f64::from(scale));
            assert!((scale - want).abs() <= 3.0 * f32::ROUNDING * want, "{scale} {want}");
            for (x, (q, back)) in line.iter().zip((&mut elements).zip(&mut back)) {
                let error = (real(q) * scale - x).abs();
                let bound = (relative * x.abs()).max(least * scale) + 4.0 * f32::ROUNDING * x.abs();
                assert!(error <= bound, "{x} became {q:?} * {scale}: off by {error}, at most {bound}");
                assert!((f64::from(back) - real(q) * scale).abs() <= f32::ROUNDING * x.abs() * 2.0);
            }
        }
    }
    Ok(())
}

#[test]
fn numbers_are_rounded_to_8_bits() {
    on_every_device(|cx| {
        // Half a unit of the last place, and half the smallest subnormal.
        check_quantised::<bf16, F8E4M3>(cx, |q| f64::from(q.to_f32()), (1.0 / 16.0, 1.0 / 1024.0))?;
        check_quantised::<f32, F8E5M2>(cx, |q| f64::from(q.to_f32()), (1.0 / 8.0, 0.5f64.powi(17)))?;
        check_quantised::<f16, i8>(cx, f64::from, (0.0, 0.5))
    });
}

/// Numbers beside one that is none, and numbers of which a scale would be too small to be divided by.
#[test]
fn scales_of_what_is_special() {
    on_every_device(|cx| {
        for scales in [Scales::Tensor, Scales::Row, Scales::Group(16)] {
            let x = Tensor::upload(cx.device(), &[10.0f32, -254.0, f32::NAN, 20.0], [1, 4])?;
            let (q, got) = general::quantise::<i8, f32>(cx, &x, scales)?;
            assert_eq!(q.to_vec()?, [5, -127, 0, 10], "{scales:?}");
            assert_close("scale", &got.to_vec()?, &[2.0], |_, _| 4.0 * f32::ROUNDING);

            let least = f32::MIN_POSITIVE;
            let x = Tensor::upload(cx.device(), &[least * 64.0, least * -16.0, 0.0, least], [1, 4])?;
            let (q, got) = general::quantise::<F8E4M3, f32>(cx, &x, scales)?;
            let q: Vec<f32> = q.to_vec()?.into_iter().map(|q| q.to_f32()).collect();
            assert_eq!((q, got.to_vec()?), (vec![64.0, -16.0, 0.0, 1.0], vec![least]), "{scales:?}");

            // One that is not above 0 where subnormal numbers are zeros has a scale of 1.
            let x = Tensor::upload(cx.device(), &[1e-45f32, 0.0, 0.0, 0.0], [1, 4])?;
            let (q, got) = general::quantise::<F8E4M3, f32>(cx, &x, scales)?;
            let got = got.to_vec()?[0];
            assert!(got == least || got == 1.0, "{got}");
            assert!(q.to_vec()?.into_iter().all(|q| q.to_f32() == 0.0));
        }
        // A long row is read twice.
        let mut x = vec![f32::MIN_POSITIVE; 20_000];
        x[7] = f32::NAN;
        let x = Tensor::upload(cx.device(), &x, [1, 20_000])?;
        let (q, got) = general::quantise::<F8E4M3, f32>(cx, &x, Scales::Row)?;
        assert_eq!(got.to_vec()?, [f32::MIN_POSITIVE]);
        assert_eq!(q.to_vec()?[19_999].to_f32(), 1.0);
        Ok(())
    });
}

#[test]
fn groups_without_a_scale() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[0.0f32, -0.0, f32::NAN, 2.0], [2, 2])?;
        let (q, scales) = general::quantise::<i8, f32>(cx, &x, Scales::Row)?;
        assert_eq!(q.to_vec()?, [0, 0, 0, 127]);
        assert_eq!(scales.to_vec()?[0], 1.0);
        let refused = message(general::quantise::<i8, f32>(cx, &x, Scales::Group(100)));
        assert_eq!(refused, "`scales` asks for groups of 100; groups are powers of two from 16 to 1024");
        let empty = Tensor::<f32, 2>::zeros(cx.device(), [0, 5])?;
        assert_eq!(general::quantise::<i8, f32>(cx, &empty, Scales::Row)?.1.shape(), [0, 1]);
        Ok(())
    });
}

#[test]
fn a_tensor_of_one_scale_has_no_gaps() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1.0f32, 9.0, 2.0, 9.0, 3.0, 9.0], [3, 2])?;
        let column = x.view().narrow(1, 0..1)?;
        assert_eq!(
            message(general::quantise::<i8, f32>(cx, column, Scales::Tensor)),
            "`x` has the shape [3] and strides [2]: it is not in row-major order without gaps; copy it with \
             `general::contiguous` first"
        );
        assert!(general::quantise_workspace(column, Scales::Tensor).is_err());
        assert_eq!(general::quantise::<i8, f32>(cx, column, Scales::Row)?.0.to_vec()?, [127; 3]);
        Ok(())
    });
}
