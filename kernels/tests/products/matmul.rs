use super::{UNIT, lost, lost_of_bytes, product};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::products::{Activation, Matmul, MatmulConfig, Precision, matmul, matmul_into};
use tilewright_kernels::{Context, Table, Tensor, TensorView, TensorViewMut, general};

/// Rows, columns and the length of sums: one element, less than a block, whole blocks, and none of them.
const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [5, 3, 7], [32, 64, 32], [33, 40, 72], [70, 65, 130], [16, 8, 257]];

/// `x` in both orders in memory.
fn orders<T: Real>(cx: &Context, x: &Tensor<T, 2>) -> Result<[Tensor<T, 2>; 2], Error> {
    Ok([general::contiguous(cx, x)?, general::contiguous(cx, x.view().transpose(0, 1)?)?])
}

fn check<T: Real>(cx: &Context, sizes: &[[usize; 3]], loss: impl Fn(usize) -> f64) -> Result<(), Error> {
    for &[m, n, k] in sizes {
        let mut random = Random::new((m * n + k) as u64);
        let ((a, a_reals), (b, b_reals)) = (random.tensor::<T, 2>(cx, [m, k]), random.tensor::<T, 2>(cx, [k, n]));
        let want = product(&a_reals, &b_reals, [m, n, k]);
        let (a, b) = (orders(cx, &a)?, orders(cx, &b)?);
        for way in 0..4 {
            let first = if way & 1 == 0 { a[0].view() } else { a[1].view().transpose(0, 1)? };
            let second = if way & 2 == 0 { b[0].view() } else { b[1].view().transpose(0, 1)? };
            let got = matmul(cx, first, second)?.to_vec()?;
            let what = format!("{m} x {n} x {k} of {}, order {way}", T::ELEMENT);
            assert_close(&what, &got, &want.sums, |at, _| want.sizes[at] * loss(k));
        }
    }
    Ok(())
}

#[test]
fn products_in_every_order_of_f16_and_bf16() {
    on_every_device(|cx| {
        check::<f16>(cx, &SIZES, lost)?;
        check::<bf16>(cx, &SIZES, lost)
    });
}

#[test]
fn products_in_every_order_of_f32_and_f64() {
    on_every_device(|cx| {
        check::<f32>(cx, &SIZES[..5], |k| lost(k) + 1.01 * UNIT)?;
        check::<f64>(cx, &SIZES[..5], |k| (k as f64 + 2.0) * f64::ROUNDING)
    });
}

/// The errors that the language's table of precisions says.
#[test]
fn each_precision_keeps_its_promise() {
    on_every_device(|cx| {
        let [m, n, k] = [33, 20, 70];
        let mut random = Random::new(1);
        let ((a, a_reals), (b, b_reals)) = (random.tensor::<f32, 2>(cx, [m, k]), random.tensor::<f32, 2>(cx, [k, n]));
        let want = product(&a_reals, &b_reals, [m, n, k]);
        let promises = [
            (Precision::Tf32, 2f64.powi(-10)),
            (Precision::Tf32x3, 2f64.powi(-20)),
            (Precision::Bf16x6, UNIT),
            (Precision::Ieee, 0.0),
        ];
        for (precision, promise) in promises {
            let y: Tensor<f32, 2> = Matmul::default().precision(precision).run(cx, &a, &b)?;
            let loss = 1.01 * promise + lost(k);
            assert_close(&format!("{precision:?}"), &y.to_vec()?, &want.sums, |at, _| want.sizes[at] * loss);
        }
        Ok(())
    });
}

#[test]
fn eight_bit_factors_make_wider_results() {
    on_every_device(|cx| {
        for [m, n, k] in [[7, 9, 33], [40, 48, 64]] {
            let mut random = Random::new(3);
            let mut bytes = |len: usize| (0..len).map(|_| F8E4M3::from_f64(random.normal())).collect::<Vec<_>>();
            let (a, b) = (bytes(m * k), bytes(k * n));
            let reals = |bytes: &[F8E4M3]| bytes.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
            let want = product(&reals(&a), &reals(&b), [m, n, k]);
            let (a, b) = (Tensor::upload(cx.device(), &a, [m, k])?, Tensor::upload(cx.device(), &b, [k, n])?);
            let mut y = Tensor::<bf16, 2>::zeros(cx.device(), [m, n])?;
            matmul_into(cx, &a, &b, &mut y)?;
            assert_close("fp8", &y.to_vec()?, &want.sums, |at, _| want.sizes[at] * lost_of_bytes(k));
        }
        Ok(())
    });
}

/// erf by its series and continued fraction would be longer than this: the integral by Simpson's rule in f64.
fn erf(x: f64) -> f64 {
    let (steps, x) = (2000, x.clamp(-7.0, 7.0));
    let (h, f) = (x / steps as f64, |t: f64| (-t * t).exp());
    let inner: f64 = (1..steps).map(|i| f(i as f64 * h) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (f(0.0) + inner + f(x)) * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

fn activated(x: f64, activation: Activation) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0,
        Activation::GeluTanh => {
            x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0
        }
        Activation::Silu => x * sigmoid(x),
    }
}

const ACTIVATIONS: [Activation; 5] =
    [Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu];

/// Bias, activation and residual; with strides that the hardware can copy and with others.
fn check_ends<T: Real>(cx: &Context) -> Result<(), Error> {
    for [m, n, k] in [[33, 40, 24], [10, 35, 13]] {
        let mut random = Random::new(5);
        let ((a, a_reals), (b, b_reals)) = (random.tensor::<T, 2>(cx, [m, k]), random.tensor::<T, 2>(cx, [k, n]));
        let ((bias, biases), (rest, rests)) = (random.tensor::<T, 1>(cx, [n]), random.tensor::<T, 2>(cx, [m, n]));
        let sums = product(&a_reals, &b_reals, [m, n, k]);
        for activation in ACTIVATIONS {
            let end = Matmul::default().bias(&bias).activation(activation).residual(&rest)?;
            let y = end.run(cx, &a, &b)?;
            let before = |at: usize| sums.sums[at] + biases[at % n];
            let want: Vec<f64> = (0..m * n).map(|at| activated(before(at), activation) + rests[at]).collect();
            assert_close(&format!("{activation:?}"), &y.to_vec()?, &want, |at, want| {
                // No activation is steeper than 1.13. Each is within 32 units of its argument: the argument of the
                // exponential is below 16 where its result counts, and it is known to 2 of them; two additions follow.
                let error = sums.sizes[at] * lost(k) + 2.0 * UNIT * before(at).abs();
                1.13 * error + 40.0 * UNIT * before(at).abs() + 2.0 * UNIT * (want.abs() + rests[at].abs())
            });
        }
    }
    Ok(())
}

#[test]
fn bias_activation_and_residual_follow_the_sums() {
    on_every_device(|cx| {
        check_ends::<f16>(cx)?;
        check_ends::<f32>(cx)
    });
}

/// Programs that stay read the residual of each tile beside its products: of more tiles than a GPU has multiprocessors, of
/// several products, and one residual for all of them.
#[test]
fn residuals_are_read_tile_after_tile() {
    on_every_device(|cx| {
        let [batch, m, n, k] =
            if cx.device().compute_capability().is_some() { [3, 900, 200, 136] } else { [3, 70, 40, 72] };
        let mut random = Random::new(8);
        let ((a, xs), (b, ys)) =
            (random.tensor::<bf16, 3>(cx, [batch, m, k]), random.tensor::<bf16, 3>(cx, [batch, k, n]));
        let ((rest, rests), (bias, biases)) =
            (random.tensor::<bf16, 3>(cx, [batch, m, n]), random.tensor::<bf16, 1>(cx, [n]));
        let one = rest.view().narrow(0, 0..1)?.broadcast(0, batch)?;
        let sums: Vec<_> =
            (0..batch).map(|z| product(&xs[z * m * k..][..m * k], &ys[z * k * n..][..k * n], [m, n, k])).collect();
        for (bm, bn, num_warps) in [(64, 32, 4), (32, 32, 4), (64, 64, 4)] {
            let config = MatmulConfig { bm, bn, bk: 64, group: 4, splits: 1, resident: 1, num_warps, num_stages: 3 };
            let mut table = Table::new();
            table.insert(cx.device().name(), bf16::ELEMENT, &[batch, m, n, k], config);
            let cx = cx.clone().with_table(table);
            for (residual, step) in [(rest.view(), m * n), (one, 0)] {
                let end = Matmul::default().bias(&bias).residual(residual)?;
                let got = end.run(&cx, &a, &b)?.to_vec()?;
                for z in 0..batch {
                    let rests = &rests[z * step..][..m * n];
                    let want: Vec<f64> = (0..m * n).map(|at| sums[z].sums[at] + biases[at % n] + rests[at]).collect();
                    assert_close(
                        &format!("{bm} x {bn}, step {step}"),
                        &got[z * m * n..][..m * n],
                        &want,
                        |at, want| {
                            sums[z].sizes[at] * lost(k)
                                + 2.0 * UNIT * (want.abs() + rests[at].abs() + biases[at % n].abs())
                        },
                    );
                }
            }
        }
        Ok(())
    });
}

#[test]
fn several_products_and_one_factor_for_all() {
    on_every_device(|cx| {
        let [batch, m, n, k] = [3, 34, 24, 40];
        let mut random = Random::new(6);
        let ((a, xs), (b, ys)) =
            (random.tensor::<f16, 3>(cx, [batch, m, k]), random.tensor::<f16, 3>(cx, [batch, k, n]));
        let check = |what: &str, got: Vec<f16>, a_step: usize, b_step: usize| {
            for z in 0..batch {
                let (x, y) = (&xs[z * a_step..][..m * k], &ys[z * b_step..][..k * n]);
                let want = product(x, y, [m, n, k]);
                assert_close(what, &got[z * m * n..][..m * n], &want.sums, |at, _| want.sizes[at] * lost(k));
            }
        };
        check("both", matmul(cx, &a, &b)?.to_vec()?, m * k, k * n);
        // `a` by rows of all products: then rows do not follow each other, and nothing is merged.
        let apart = general::contiguous(cx, a.view().permute([1, 0, 2])?)?;
        check("apart", matmul(cx, apart.view().permute([1, 0, 2])?, &b)?.to_vec()?, m * k, k * n);
        let first = b.view().select::<2>(0, 0)?;
        check("a matrix", matmul(cx, &a, first)?.to_vec()?, m * k, 0);
        check("apart by one", matmul(cx, apart.view().permute([1, 0, 2])?, first)?.to_vec()?, m * k, 0);
        let again = b.view().narrow(0, 0..1)?.broadcast(0, batch)?;
        check("a stride of 0", matmul(cx, &a, again)?.to_vec()?, m * k, 0);
        check("one for all", matmul(cx, a.view().narrow(0, 0..1)?, &b)?.to_vec()?, 0, k * n);
        let rest = Tensor::<f16, 3>::zeros(cx.device(), [batch, m, n])?;
        check("residual", Matmul::default().residual(&rest)?.run(cx, &a, first)?.to_vec()?, m * k, 0);
        Ok(())
    });
}

/// Programs that share tiles compute what others do, and leave nothing where there is nothing to write.
#[test]
fn sharing_tiles_changes_rounding_only() {
    on_every_device(|cx| {
        let config = |splits, resident| MatmulConfig {
            bm: 32,
            bn: 32,
            bk: 16,
            group: 4,
            splits,
            resident,
            num_warps: 4,
            num_stages: 2,
        };
        for [m, n, k] in [[20, 40, 200], [9, 33, 77]] {
            let mut random = Random::new(7);
            let ((a, xs), (b, ys)) = (random.tensor::<f16, 2>(cx, [m, k]), random.tensor::<f16, 2>(cx, [k, n]));
            let (bias, biases) = random.tensor::<f16, 1>(cx, [n]);
            let want = product(&xs, &ys, [m, n, k]);
            let sums: Vec<f64> =
                want.sums.iter().enumerate().map(|(at, sum)| (sum + biases[at % n]).max(0.0)).collect();
            for (splits, resident) in [(1, 0), (1, 1), (3, 0), (7, 1)] {
                let mut table = Table::new();
                table.insert(cx.device().name(), f16::ELEMENT, &[1, m, n, k], config(splits, resident));
                let cx = cx.clone().with_table(table);
                let relu = Matmul::default().bias(&bias).activation(Activation::Relu);
                let room = if splits > 1 { splits * m * n } else { 0 };
                assert_eq!(relu.workspace(&cx, &a, &b)?, room);
                let bound = |at: usize, _| want.sizes[at] * lost(k) + UNIT * 4.0;
                assert_close("shared", &relu.run(&cx, &a, &b)?.to_vec()?, &sums, bound);
                let mut out = cx.device().full(m * (n + 8), f16::NAN)?;
                let mut few = Tensor::<f32, 1>::zeros(cx.device(), [2 * m * n + 1])?;
                let part = TensorViewMut::with_strides(&mut out, [m, n], [n + 8, 1])?;
                relu.run_into_with(&cx, &a, &b, part, &mut few)?;
                let out = out.to_vec()?;
                for (i, row) in out.chunks(n + 8).enumerate() {
                    assert_close("into", &row[..n], &sums[i * n..][..n], |j, _| bound(i * n + j, 0.0));
                    assert!(row[n..].iter().all(|x| x.is_nan()));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn sums_of_nothing_are_zero() {
    on_every_device(|cx| {
        let (a, b) = (Tensor::<f32, 2>::zeros(cx.device(), [3, 0])?, Tensor::<f32, 2>::zeros(cx.device(), [0, 2])?);
        let bias = Tensor::upload(cx.device(), &[1.0f32, 2.0], [2])?;
        assert_eq!(Matmul::default().bias(&bias).run(cx, &a, &b)?.to_vec()?, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        let none = TensorView::new(b.buffer(), [0, 3])?;
        assert_eq!(matmul(cx, none, &a)?.shape(), [0, 0]);
        Ok(())
    });
}

#[test]
fn products_that_do_not_fit_are_refused() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [4, 6])?;
        assert_eq!(
            message(matmul(cx, &x, &x)),
            "`b` has 4 rows, `a` has 6 columns; columns of `a` are multiplied with rows of `b`: give as many"
        );
        let y = x.view().transpose(0, 1)?;
        let mut out = Tensor::<f32, 2>::zeros(cx.device(), [4, 5])?;
        assert_eq!(
            message(matmul_into(cx, &x, y, &mut out)),
            "`out` has the shape [4, 5]; the other arguments ask for [4, 4]"
        );
        let bias = Tensor::<f32, 1>::zeros(cx.device(), [3])?;
        assert_eq!(
            message(Matmul::default().bias(&bias).run(cx, &x, y)),
            "`bias` has the shape [3]; the other arguments ask for [4]"
        );
        let (three, two) =
            (Tensor::<f32, 3>::zeros(cx.device(), [3, 4, 6])?, Tensor::<f32, 3>::zeros(cx.device(), [2, 6, 4])?);
        assert_eq!(
            message(matmul(cx, &three, &two)),
            "`b` has 2 matrices, the result has 3; give as many matrices in both factors, or one"
        );
        Ok(())
    });
}
