use crate::common::{
    Random, Real, additions, assert_close, assert_slopes, differences, message, on_every_device, reals,
};
use tilewright::prelude::*;
use tilewright_kernels::rows::{self, GroupNormConfig, Norm, NormBackwardConfig, NormConfig, NormGradientsMut};
use tilewright_kernels::{Context, Table, Tensor, TensorView, TensorViewMut};

const EPS: f64 = 1e-5;

/// A row, normalised; and the reciprocal deviation.
fn normalised(x: &[f64], centre: bool) -> (Vec<f64>, f64) {
    let n = x.len() as f64;
    let mean = if centre { x.iter().sum::<f64>() / n } else { 0.0 };
    let rstd = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + EPS).sqrt();
    (x.iter().map(|x| (x - mean) * rstd).collect(), rstd)
}

/// By how much rounding of the mean and of `x - mean` spoils what is normalised: relative to the largest element over the
/// deviation.
fn spread(x: &[f64], rstd: f64) -> f64 {
    1.0 + 2.0 * rstd * x.iter().fold(0.0f64, |most, x| most.max(x.abs()))
}

struct Case<'a> {
    x: &'a [f64],
    weight: &'a [f64],
    bias: &'a [f64],
    centre: bool,
}

impl Case<'_> {
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.x.chunks(self.weight.len())
    }

    fn forward(&self) -> Vec<f64> {
        let row = |x| normalised(x, self.centre).0;
        let affine = |h: Vec<f64>| {
            let all = h.into_iter().zip(self.weight).zip(self.bias);
            all.map(|((h, w), b)| h * w + b).collect::<Vec<_>>()
        };
        self.rows().flat_map(|x| affine(row(x))).collect()
    }

    /// The mean, the square and the root each add their roundings to an element's own.
    fn forward_bound<T: Real>(&self) -> Vec<f64> {
        let columns = self.weight.len();
        let row = |x: &[f64]| {
            let (h, rstd) = normalised(x, self.centre);
            let off = T::STEP * (additions(columns) + 8.0) * spread(x, rstd);
            let each = h.iter().zip(self.weight).zip(self.bias);
            each.map(|((h, w), b)| off * (1.0 + h.abs()) * w.abs() + T::STEP * b.abs()).collect::<Vec<_>>()
        };
        self.rows().flat_map(row).collect()
    }

    /// `dx`, `dweight`, `dbias`, and a bound for each.
    fn backward<T: Real>(&self, dy: &[f64]) -> [(Vec<f64>, Vec<f64>); 3] {
        let columns = self.weight.len();
        let n = columns as f64;
        let mut all: [(Vec<f64>, Vec<f64>); 3] = Default::default();
        for sums in &mut all[1..] {
            *sums = (vec![0.0; columns], vec![0.0; columns]);
        }
        let rows = self.x.len() / columns.max(1);
        for (x, dy) in self.rows().zip(dy.chunks(columns)) {
            let (h, rstd) = normalised(x, self.centre);
            let g: Vec<f64> = dy.iter().zip(self.weight).map(|(dy, w)| dy * w).collect();
            let mean = if self.centre { g.iter().sum::<f64>() / n } else { 0.0 };
            let along = g.iter().zip(&h).map(|(g, h)| g * h).sum::<f64>() / n;
            let mean_size = g.iter().map(|g| g.abs()).sum::<f64>() / n;
            let along_size = g.iter().zip(&h).map(|(g, h)| (g * h).abs()).sum::<f64>() / n;
            let off = T::STEP * (additions(columns) + 16.0) * spread(x, rstd);
            for i in 0..columns {
                all[0].0.push(rstd * (g[i] - mean - h[i] * along));
                let size = g[i].abs() + mean_size + (1.0 + h[i].abs()) * (mean_size + 2.0 * along_size);
                all[0].1.push(2.0 * off * rstd * size);
                all[1].0[i] += dy[i] * h[i];
                all[1].1[i] += (off + T::STEP * rows as f64) * dy[i].abs() * (1.0 + h[i].abs());
                all[2].0[i] += dy[i];
                all[2].1[i] += T::STEP * (rows as f64 + 1.0) * dy[i].abs();
            }
        }
        all
    }
}

fn check_norm<T: Real>(cx: &Context, shape: [usize; 3], centre: bool) -> Result<(), Error> {
    let columns = shape[2];
    let mut random = Random::new(columns as u64 + u64::from(centre));
    let (x, x_reals) = random.tensor::<T, 3>(cx, shape);
    let (dy, dy_reals) = random.tensor::<T, 3>(cx, shape);
    let (weight, weights) = random.tensor::<T, 1>(cx, [columns]);
    let (bias, biases) = random.tensor::<T, 1>(cx, [columns]);
    let norm = Norm::default().weight(&weight).bias(&bias).eps(EPS);
    let case = Case { x: &x_reals, weight: &weights, bias: &biases, centre };
    let y = if centre { rows::layer_norm(cx, &x, &norm)? } else { rows::rms_norm(cx, &x, &norm)? };
    let bound = case.forward_bound::<T>();
    assert_close("norm", &y.to_vec()?, &case.forward(), |at, _| bound[at]);
    let got = if centre {
        rows::layer_norm_backward(cx, &x, &dy, &norm)?
    } else {
        rows::rms_norm_backward(cx, &x, &dy, &norm)?
    };
    let [dx, dw, db] = case.backward::<T>(&dy_reals);
    assert_close("dx", &got.dx.to_vec()?, &dx.0, |at, _| dx.1[at]);
    assert_close("dweight", &got.dweight.unwrap().to_vec()?, &dw.0, |at, _| dw.1[at]);
    assert_close("dbias", &got.dbias.unwrap().to_vec()?, &db.0, |at, _| db.1[at]);
    Ok(())
}

/// Of tiles with more rows than there are, without what keeps scales finite.
#[test]
fn gradients_of_norms_without_eps() {
    on_every_device(|cx| {
        let shape = [3, 5];
        let (x, _) = Random::new(20).tensor::<f32, 2>(cx, shape);
        let (dy, dys) = Random::new(21).tensor::<f32, 2>(cx, shape);
        let ones = Tensor::upload(cx.device(), &[1.0f32; 5], [5])?;
        let norm = Norm::default().weight(&ones).bias(&ones).eps(0.0);
        for got in [rows::layer_norm_backward(cx, &x, &dy, &norm)?, rows::rms_norm_backward(cx, &x, &dy, &norm)?] {
            assert!(got.dweight.unwrap().to_vec()?.iter().all(|x| x.is_finite()));
            let sums: Vec<f64> = (0..5).map(|column| dys.iter().skip(column).step_by(5).sum()).collect();
            assert_close("dbias", &got.dbias.unwrap().to_vec()?, &sums, |_, _| 1e-5);
        }
        Ok(())
    });
}

#[test]
fn norms_in_every_dtype() {
    on_every_device(|cx| {
        for centre in [true, false] {
            for columns in [1, 3, 128, 1000] {
                check_norm::<f32>(cx, [2, 3, columns], centre)?;
            }
            check_norm::<f16>(cx, [1, 5, 264], centre)?;
            check_norm::<bf16>(cx, [5, 1, 264], centre)?;
            check_norm::<f64>(cx, [2, 2, 100], centre)?;
        }
        Ok(())
    });
}

/// Rows of which a program takes a piece at a time, and programs with several rows or none.
#[test]
fn norms_of_long_rows() {
    on_every_device(|cx| {
        let mut table = Table::new();
        for element in [f32::ELEMENT, bf16::ELEMENT] {
            let sizes = [6, 200];
            table.insert(cx.device().name(), element, &sizes, NormConfig { rows: 1, block: 64, num_warps: 2 });
            let config = NormBackwardConfig { rows: 1, block: 64, num_warps: 2, programs: 1 };
            table.insert(cx.device().name(), element, &sizes, config);
        }
        let pieces = cx.clone().with_table(table);
        for centre in [true, false] {
            check_norm::<f32>(&pieces, [2, 3, 200], centre)?;
            check_norm::<bf16>(&pieces, [2, 3, 200], centre)?;
        }
        let mut random = Random::new(3);
        let (x, x_reals) = random.tensor::<f32, 2>(cx, [6, 200]);
        let (dy, dy_reals) = random.tensor::<f32, 2>(cx, [6, 200]);
        let (weight, weights) = random.tensor::<f32, 1>(cx, [200]);
        let norm = Norm::default().weight(&weight).eps(EPS);
        let case = Case { x: &x_reals, weight: &weights, bias: &[0.0; 200], centre: true };
        for (cx, programs) in [(cx, 1), (cx, 4), (&pieces, 1), (&pieces, 4), (&pieces, 9)] {
            let mut dx = Tensor::zeros(cx.device(), [6, 200])?;
            let mut dweight = Tensor::zeros(cx.device(), [200])?;
            let mut sums = cx.device().full(programs * 200, f32::NAN)?;
            let gradients = NormGradientsMut {
                dx: dx.view_mut(),
                dweight: Some(dweight.view_mut()),
                dbias: None,
                sums: TensorViewMut::new(&mut sums, [programs, 200])?,
            };
            rows::layer_norm_backward_into(cx, &x, &dy, &norm, gradients)?;
            let [want, dw, _] = case.backward::<f32>(&dy_reals);
            assert_close("dx", &dx.to_vec()?, &want.0, |at, _| want.1[at]);
            assert_close("dweight", &dweight.to_vec()?, &dw.0, |at, _| dw.1[at]);
        }
        Ok(())
    });
}

#[test]
fn gradients_of_norms_are_slopes() {
    on_every_device(|cx| {
        let (rows, columns) = (2, 9);
        let mut random = Random::new(11);
        let (x, x_reals) = random.tensor::<f64, 2>(cx, [rows, columns]);
        let (dy, dy_reals) = random.tensor::<f64, 2>(cx, [rows, columns]);
        let (weight, weights) = random.tensor::<f64, 1>(cx, [columns]);
        let norm = Norm::default().weight(&weight).eps(0.1);
        let at = [0, 4, 8, 9, 17];
        let layer = |x: &[f64]| {
            let x = Tensor::upload(cx.device(), x, [rows, columns]).unwrap();
            rows::layer_norm(cx, &x, &norm).unwrap().to_vec().unwrap()
        };
        let got = rows::layer_norm_backward(cx, &x, &dy, &norm)?;
        assert_slopes("layer norm", &got.dx.to_vec()?, &at, &differences(&x_reals, &dy_reals, &at, layer));
        let rms = |x: &[f64]| {
            let x = Tensor::upload(cx.device(), x, [rows, columns]).unwrap();
            rows::rms_norm(cx, &x, &norm).unwrap().to_vec().unwrap()
        };
        let got = rows::rms_norm_backward(cx, &x, &dy, &norm)?;
        assert_slopes("rms norm", &got.dx.to_vec()?, &at, &differences(&x_reals, &dy_reals, &at, rms));
        let of_weight = |weight: &[f64]| {
            let weight = Tensor::upload(cx.device(), weight, [columns]).unwrap();
            let norm = Norm::default().weight(&weight).eps(0.1);
            rows::rms_norm(cx, &x, &norm).unwrap().to_vec().unwrap()
        };
        let at = [0, 3, 8];
        let slopes = differences(&weights, &dy_reals, &at, of_weight);
        assert_slopes("weight", &got.dweight.unwrap().to_vec()?, &at, &slopes);
        Ok(())
    });
}

/// The sum stays in the residual, rounded, and is what is normalised; its other gradient is added.
#[test]
fn rms_norm_of_a_sum() {
    on_every_device(|cx| {
        for block in [256, 64] {
            let mut table = Table::new();
            table.insert(cx.device().name(), bf16::ELEMENT, &[3, 200], NormConfig { rows: 1, block, num_warps: 2 });
            let cx = &cx.clone().with_table(table);
            let mut random = Random::new(5);
            let (x, x_reals) = random.tensor::<bf16, 2>(cx, [3, 200]);
            let (mut residual, residuals) = random.tensor::<bf16, 2>(cx, [3, 200]);
            let norm = Norm::default().eps(EPS);
            let y = rows::add_rms_norm(cx, &x, &mut residual, &norm)?;
            let sum = residual.to_vec()?;
            let want: Vec<f64> = x_reals.iter().zip(&residuals).map(|(x, r)| x + r).collect();
            assert_close("sum", &sum, &want, |_, want| want.abs() * f32::ROUNDING);
            let sums = reals(&sum);
            let case = Case { x: &sums, weight: &[1.0; 200], bias: &[0.0; 200], centre: false };
            let bound = case.forward_bound::<bf16>();
            assert_close("norm", &y.to_vec()?, &case.forward(), |at, _| bound[at]);

            let (dy, dy_reals) = random.tensor::<bf16, 2>(cx, [3, 200]);
            let (dsum, dsum_reals) = random.tensor::<bf16, 2>(cx, [3, 200]);
            let got = rows::add_rms_norm_backward(cx, &residual, &dy, &dsum, &norm)?;
            let [(dx, bound), ..] = case.backward::<bf16>(&dy_reals);
            let want: Vec<f64> = dx.iter().zip(&dsum_reals).map(|(a, b)| a + b).collect();
            assert_close("dx", &got.dx.to_vec()?, &want, |at, want| bound[at] + f32::ROUNDING * want.abs());
            assert!(got.dweight.is_none() && got.dbias.is_none());
        }
        Ok(())
    });
}

#[test]
fn norms_of_strided_rows_and_of_none() {
    on_every_device(|cx| {
        let (x, x_reals) = Random::new(7).tensor::<f32, 2>(cx, [4, 100]);
        let part = x.view().narrow(1, 10..47)?;
        let norm = Norm::default();
        let y = rows::rms_norm(cx, part, &norm)?.to_vec()?;
        for row in 0..4 {
            let x = &x_reals[row * 100 + 10..row * 100 + 47];
            let case = Case { x, weight: &[1.0; 37], bias: &[0.0; 37], centre: false };
            let bound = case.forward_bound::<f32>();
            assert_close("row", &y[row * 37..(row + 1) * 37], &case.forward(), |at, _| bound[at]);
        }
        let none = TensorView::new(x.buffer(), [0, 37])?;
        assert_eq!(rows::layer_norm(cx, none, &norm)?.len(), 0);
        let weight = Tensor::upload(cx.device(), &[2.0f32; 37], [37])?;
        let got = rows::layer_norm_backward(cx, none, none, &Norm::default().weight(&weight))?;
        assert_eq!(got.dweight.unwrap().to_vec()?, [0.0; 37]);
        assert_eq!(
            message(rows::rms_norm(cx, &x, &Norm::default().weight(&weight))),
            "`weight` has the shape [37]; the other arguments ask for [100]"
        );
        let mut residual = Tensor::<f32, 2>::zeros(cx.device(), [4, 99])?;
        assert_eq!(
            message(rows::add_rms_norm(cx, &x, &mut residual, &norm)),
            "`residual` has the shape [4, 99]; the other arguments ask for [4, 100]"
        );
        Ok(())
    });
}

fn check_groups<T: Real>(cx: &Context, shape: [usize; 3], groups: usize) -> Result<(), Error> {
    let [samples, channels, inner] = shape;
    let mut random = Random::new(inner as u64);
    let (x, x_reals) = random.tensor::<T, 3>(cx, shape);
    let (dy, dy_reals) = random.tensor::<T, 3>(cx, shape);
    let (weight, weights) = random.tensor::<T, 1>(cx, [channels]);
    let (bias, biases) = random.tensor::<T, 1>(cx, [channels]);
    let norm = Norm::default().weight(&weight).bias(&bias).eps(EPS);
    let y = rows::group_norm(cx, &x, groups, &norm)?.to_vec()?;
    let got = rows::group_norm_backward(cx, &x, &dy, groups, &norm)?;
    let dx = got.dx.to_vec()?;
    let len = channels / groups * inner;
    let spread_out = |values: &[f64], group: usize| -> Vec<f64> {
        let first = group % groups * (channels / groups);
        values[first..first + channels / groups].iter().flat_map(|value| vec![*value; inner]).collect()
    };
    let mut sums = [(); 4].map(|()| vec![0.0; channels]);
    for group in 0..samples * groups {
        let range = group * len..(group + 1) * len;
        let (weight, bias) = (spread_out(&weights, group), spread_out(&biases, group));
        let case = Case { x: &x_reals[range.clone()], weight: &weight, bias: &bias, centre: true };
        let bound = case.forward_bound::<T>();
        assert_close("group norm", &y[range.clone()], &case.forward(), |at, _| bound[at]);
        let [want, dw, db] = case.backward::<T>(&dy_reals[range.clone()]);
        assert_close("dx", &dx[range], &want.0, |at, _| want.1[at]);
        for at in 0..len {
            let channel = group % groups * (channels / groups) + at / inner;
            for (sum, part) in sums.iter_mut().zip([&dw.0, &dw.1, &db.0, &db.1]) {
                sum[channel] += part[at];
            }
        }
    }
    // Each channel is the sum of as many terms as it has elements, and of samples.
    let more = 1.0 + (samples as f64 + additions(inner)) / 16.0;
    assert_close("dweight", &got.dweight.unwrap().to_vec()?, &sums[0], |at, _| more * sums[1][at]);
    assert_close("dbias", &got.dbias.unwrap().to_vec()?, &sums[2], |at, _| more * 16.0 * sums[3][at]);
    Ok(())
}

#[test]
fn group_norms_in_every_dtype() {
    on_every_device(|cx| {
        check_groups::<f32>(cx, [2, 6, 35], 3)?;
        check_groups::<f32>(cx, [1, 4, 5000], 1)?;
        check_groups::<f32>(cx, [3, 4, 1], 2)?;
        check_groups::<bf16>(cx, [2, 4, 64], 2)?;
        check_groups::<f16>(cx, [2, 3, 20], 1)?;
        check_groups::<f64>(cx, [2, 6, 17], 2)
    });
}

/// Groups that no program holds: 3 channels of 35 elements, 2 channels and 16 elements at a time.
#[test]
fn group_norms_in_pieces() {
    on_every_device(|cx| {
        let cx = cx.clone().with_config(GroupNormConfig { channels: 2, block: 16, num_warps: 1 });
        check_groups::<f32>(&cx, [2, 6, 35], 2)?;
        check_groups::<bf16>(&cx, [3, 9, 50], 3)?;
        check_groups::<f64>(&cx, [1, 5, 33], 1)?;
        // More pieces and channels than moments are taken at a time, more channels and samples than gradients are.
        check_groups::<f32>(&cx, [1, 40, 1100], 1)?;
        check_groups::<f32>(&cx, [35, 34, 17], 2)?;
        let (x, _) = Random::new(5).tensor::<f32, 3>(&cx, [2, 6, 35]);
        let (dy, _) = Random::new(7).tensor::<f32, 3>(&cx, [2, 6, 35]);
        let (weight, _) = Random::new(6).tensor::<f32, 1>(&cx, [6]);
        for norm in [Norm::default(), Norm::default().weight(&weight), Norm::default().bias(&weight)] {
            let whole = rows::group_norm_backward(&Context::new(cx.device()), &x, &dy, 2, &norm)?;
            let pieces = rows::group_norm_backward(&cx, &x, &dy, 2, &norm)?;
            let of = |gradient: Option<Tensor<f32, 1>>| gradient.map(|gradient| gradient.to_vec()).transpose();
            // Sums of a channel's 70 terms are below 1024.
            assert_close("dx", &pieces.dx.to_vec()?, &reals(&whole.dx.to_vec()?), |_, _| 1e-4);
            for (pieces, whole) in [(pieces.dweight, whole.dweight), (pieces.dbias, whole.dbias)] {
                match (of(pieces)?, of(whole)?) {
                    (Some(pieces), Some(whole)) => assert_close("sums", &pieces, &reals(&whole), |_, _| 1e-3),
                    (pieces, whole) => assert_eq!(pieces, whole, "what is not there has no gradient"),
                }
            }
        }
        Ok(())
    });
}

#[test]
fn group_norm_refuses_groups_that_do_not_divide() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 3>::zeros(cx.device(), [2, 6, 5])?;
        assert_eq!(
            message(rows::group_norm(cx, &x, 4, &Norm::default())),
            "`x` has 6 channels, which 4 groups do not divide; give a number of groups that divides the channels"
        );
        let none = TensorView::new(x.buffer(), [0, 6, 5])?;
        assert_eq!(rows::group_norm(cx, none, 3, &Norm::default())?.len(), 0);
        let weight = Tensor::upload(cx.device(), &[2.0f32; 6], [6])?;
        let got = rows::group_norm_backward(cx, none, none, 3, &Norm::default().weight(&weight))?;
        assert_eq!(got.dweight.unwrap().to_vec()?, [0.0; 6]);
        Ok(())
    });
}
