use crate::common::{Random, Real, additions, assert_close, message, on_every_device, reals};
use tilewright::prelude::*;
use tilewright_kernels::rows::{self, CrossEntropy, CrossEntropyConfig, KlTarget, Reduction};
use tilewright_kernels::{Context, Table, Tensor, TensorView};

/// The logarithm of the sum of exponentials.
fn lse(x: &[f64]) -> f64 {
    let peak = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    peak + x.iter().map(|x| (x - peak).exp()).sum::<f64>().ln()
}

/// The relative error of the sum of exponentials: `exp` errs by 4 + 2.5 |x - peak| roundings for |x - peak| below 16, and
/// then come the additions.
pub(crate) fn bound<T: Real>(columns: usize) -> f64 {
    T::STEP * (2.0 * (2.0 + 1.25 * 16.0) + additions(columns) + 8.0)
}

fn check_log_softmax<T: Real>(cx: &Context, columns: usize) -> Result<(), Error> {
    let mut random = Random::new(columns as u64);
    let (x, x_reals) = random.tensor::<T, 2>(cx, [3, columns]);
    let y = rows::log_softmax(cx, &x)?;
    let shifted = |row: &[f64], all: f64| row.iter().map(|x| x - all).collect::<Vec<_>>();
    let want: Vec<f64> = x_reals.chunks(columns).flat_map(|row| shifted(row, lse(row))).collect();
    assert_close("log softmax", &y.to_vec()?, &want, |_, want| {
        bound::<T>(columns) + 4.0 * T::STEP * (want.abs() + 6.0)
    });
    let (dy, dy_reals) = random.tensor::<T, 2>(cx, [3, columns]);
    let (mut want, mut size) = (Vec::new(), Vec::new());
    for (y, dy) in reals(&y.to_vec()?).chunks(columns).zip(dy_reals.chunks(columns)) {
        let (total, all) = (dy.iter().sum::<f64>(), dy.iter().map(|dy| dy.abs()).sum::<f64>());
        want.extend(y.iter().zip(dy).map(|(y, dy)| dy - y.exp() * total));
        size.extend(y.iter().zip(dy).map(|(y, dy)| dy.abs() + y.exp() * all));
    }
    let dx = rows::log_softmax_backward(cx, &y, &dy)?;
    assert_close("backward", &dx.to_vec()?, &want, |at, _| bound::<T>(columns) * size[at]);
    Ok(())
}

#[test]
fn log_softmax_in_every_dtype() {
    on_every_device(|cx| {
        for columns in [1, 3, 128, 1000, 20_000] {
            check_log_softmax::<f32>(cx, columns)?;
        }
        check_log_softmax::<f16>(cx, 130)?;
        check_log_softmax::<bf16>(cx, 500)?;
        check_log_softmax::<f64>(cx, 77)
    });
}

#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) reduction: Reduction,
    pub(crate) smoothing: f64,
    pub(crate) z: f64,
}

pub(crate) const IGNORED: i64 = 7;

impl Options {
    pub(crate) fn options(self) -> CrossEntropy {
        let options = CrossEntropy::default().reduction(self.reduction).ignore_index(IGNORED);
        options.label_smoothing(self.smoothing as f32).z_loss(self.z as f32)
    }

    /// Losses of rows, gradients of their sum.
    pub(crate) fn rows(self, x: &[f64], classes: usize, targets: &[i64]) -> (Vec<f64>, Vec<f64>) {
        let (s, z) = (f64::from(self.smoothing as f32), f64::from(self.z as f32));
        let (mut losses, mut gradients) = (Vec::new(), Vec::new());
        for (x, target) in x.chunks(classes).zip(targets) {
            if *target == IGNORED {
                losses.push(0.0);
                gradients.extend(vec![0.0; classes]);
                continue;
            }
            let all = lse(x);
            let mean = x.iter().sum::<f64>() / classes as f64;
            losses.push(all - (1.0 - s) * x[*target as usize] - s * mean + z * all * all);
            gradients.extend(x.iter().enumerate().map(|(i, x)| {
                let hit = if i as i64 == *target { 1.0 - s } else { 0.0 };
                (x - all).exp() * (1.0 + 2.0 * z * all) - hit - s / classes as f64
            }));
        }
        (losses, gradients)
    }
}

pub(crate) fn targets(random: &mut Random, rows: usize, classes: usize) -> Vec<i64> {
    let target = |random: &mut Random, row: usize| match row {
        0 => classes as i64 - 1,
        _ if row % 4 == 1 => IGNORED,
        _ => Some(random.below(classes) as i64).filter(|target| *target != IGNORED).unwrap_or(0),
    };
    (0..rows).map(|row| target(random, row)).collect()
}

/// The losses, the gradient out of place with a `dloss`, and both at once in place.
fn check_cross_entropy<T: Real>(cx: &Context, classes: usize, options: Options) -> Result<(), Error> {
    let rows = 6;
    let mut random = Random::new(classes as u64);
    let (mut x, x_reals) = random.tensor::<T, 2>(cx, [rows, classes]);
    let targets = targets(&mut random, rows, classes);
    let given = Tensor::upload(cx.device(), &targets, [rows])?;
    let (losses, gradients) = options.rows(&x_reals, classes, &targets);
    let count = targets.iter().filter(|target| **target != IGNORED).count() as f64;
    let scale = if options.reduction == Reduction::Mean { 1.0 / count } else { 1.0 };
    let want = match options.reduction {
        Reduction::None => losses.clone(),
        _ => vec![losses.iter().sum::<f64>() * scale],
    };
    // Each loss errs as its logarithm of a sum, of which z-loss takes 2 z times it, and by its sums of terms below 32.
    let each = bound::<T>(classes) * (1.0 + 2.0 * options.z * 12.0) + f32::STEP * 8.0 * 32.0;
    let loss_bound = each * if want.len() == 1 { rows as f64 * scale } else { 1.0 };
    let loss = rows::cross_entropy(cx, &x, &given, options.options())?;
    assert_close("loss", &loss.to_vec()?, &want, |_, _| loss_bound);

    let dloss: Vec<f32> = random.normals(want.len());
    let upstream = Tensor::upload(cx.device(), &dloss, [want.len()])?;
    let factor = |at: usize| scale * f64::from(dloss[if want.len() == 1 { 0 } else { at / classes }]);
    let scaled: Vec<f64> = gradients.iter().enumerate().map(|(at, gradient)| gradient * factor(at)).collect();
    let step = 2.0 * bound::<T>(classes) * (1.0 + 2.0 * options.z * 12.0) + 8.0 * f32::STEP;
    let dx = rows::cross_entropy_backward(cx, &x, &given, options.options(), &upstream)?;
    assert_close("gradient", &dx.to_vec()?, &scaled, |at, _| step * factor(at).abs());

    let loss = rows::cross_entropy_in_place(cx, &mut x, &given, options.options())?;
    assert_close("loss", &loss.to_vec()?, &want, |_, _| loss_bound);
    let scaled: Vec<f64> = gradients.iter().map(|gradient| gradient * scale).collect();
    assert_close("in place", &x.to_vec()?, &scaled, |_, _| step * scale);
    Ok(())
}

#[test]
fn cross_entropy_in_every_dtype() {
    on_every_device(|cx| {
        for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
            for (smoothing, z) in [(0.0, 0.0), (0.1, 0.0), (0.2, 0.01)] {
                check_cross_entropy::<f32>(cx, 100, Options { reduction, smoothing, z })?;
            }
        }
        let plain = Options { reduction: Reduction::Mean, smoothing: 0.0, z: 0.0 };
        let full = Options { reduction: Reduction::Mean, smoothing: 0.1, z: 1e-3 };
        check_cross_entropy::<f32>(cx, 7, plain)?;
        check_cross_entropy::<f16>(cx, 500, full)?;
        check_cross_entropy::<bf16>(cx, 1000, plain)?;
        check_cross_entropy::<f64>(cx, 64, full)
    });
}

#[test]
fn cross_entropy_of_long_rows() {
    on_every_device(|cx| {
        let mut table = Table::new();
        let config = CrossEntropyConfig { block: 64, num_warps: 1 };
        table.insert(cx.device().name(), f32::ELEMENT, &[6, 300], config);
        let cx = cx.clone().with_table(table);
        check_cross_entropy::<f32>(&cx, 300, Options { reduction: Reduction::Mean, smoothing: 0.1, z: 1e-3 })?;
        check_cross_entropy::<f32>(&cx, 257, Options { reduction: Reduction::None, smoothing: 0.0, z: 0.0 })
    });
}

/// Rows of 16 bits that are held as they are: those of up to 32,768 classes whose rows begin at units of 16 bytes, and by
/// configuration any.
#[test]
fn cross_entropy_of_rows_that_are_held() {
    on_every_device(|cx| {
        let plain = Options { reduction: Reduction::Sum, smoothing: 0.0, z: 0.0 };
        let full = Options { reduction: Reduction::Mean, smoothing: 0.1, z: 1e-3 };
        check_cross_entropy::<bf16>(cx, 16_392, plain)?;
        check_cross_entropy::<f16>(cx, 32_000, full)?;
        let cx = cx.clone().with_config(CrossEntropyConfig { block: 32_768, num_warps: 16 });
        check_cross_entropy::<bf16>(&cx, 501, full)?;
        check_cross_entropy::<f16>(&cx, 8193, plain)
    });
}

/// A class that is impossible, and one that is sure.
#[test]
fn cross_entropy_of_infinite_logits() {
    on_every_device(|cx| {
        let x = [f32::NEG_INFINITY, 0.0, 0.0, f32::NEG_INFINITY];
        let mut x = Tensor::upload(cx.device(), &x, [1, 4])?;
        let targets = Tensor::upload(cx.device(), &[2u8], [1])?;
        let loss = rows::cross_entropy_in_place(cx, &mut x, &targets, CrossEntropy::default())?;
        assert_close("loss", &loss.to_vec()?, &[2f64.ln()], |_, _| 1e-6);
        assert_close("gradient", &x.to_vec()?, &[0.0, 0.5, -0.5, 0.0], |_, _| 1e-6);
        Ok(())
    });
}

/// Rows of the smallest numbers that there are, which is what masks leave, and of the largest of f16: whole, held, and in pieces.
#[test]
fn cross_entropy_of_large_logits() {
    on_every_device(|cx| [72, 16_392, 40_000].into_iter().try_for_each(|classes| check_large_logits(cx, classes)));
}

fn check_large_logits(cx: &Context, classes: usize) -> Result<(), Error> {
    let targets = Tensor::upload(cx.device(), &[classes as i32 - 1], [1])?;
    let mut x = Tensor::upload(cx.device(), &vec![bf16::MIN; classes], [1, classes])?;
    let loss = rows::cross_entropy_in_place(cx, &mut x, &targets, CrossEntropy::default())?;
    assert_close("loss", &loss.to_vec()?, &[(classes as f64).ln()], |_, want| 1e-5 * want);
    let mut want = vec![1.0 / classes as f64; classes];
    want[classes - 1] -= 1.0;
    assert_close("gradient", &x.to_vec()?, &want, |_, want| want.abs() * 0.01);

    let mut x = vec![f16::from_f32(0.0); classes];
    x[3] = f16::from_f32(60_000.0);
    x[classes - 1] = f16::from_f32(60_000.0);
    let mut x = Tensor::upload(cx.device(), &x, [1, classes])?;
    let loss = rows::cross_entropy_in_place(cx, &mut x, &targets, CrossEntropy::default())?;
    assert_close("loss", &loss.to_vec()?, &[2f64.ln()], |_, _| 1e-6);
    let mut want = vec![0.0; classes];
    (want[3], want[classes - 1]) = (0.5, -0.5);
    assert_close("gradient", &x.to_vec()?, &want, |_, _| 5e-4);
    Ok(())
}

/// Logits that all have something large in common lose nothing by it, with label smoothing either: their differences count.
#[test]
fn cross_entropy_of_logits_with_an_offset() {
    on_every_device(|cx| {
        let mut random = Random::new(30);
        for classes in [72, 40_001] {
            // Some of the later ones are larger.
            let mut x = |at: usize| 1e6 + 3.0 * random.normal() + (at / 9000) as f64;
            let x: Vec<f32> = (0..classes).map(|at| x(at) as f32).collect();
            check_offset(cx, &x, 32.0 * f32::STEP * additions(classes))?;
        }
        // A row that is held. Its differences are whole numbers, whose sums are exact.
        let x: Vec<f16> = (0..20_000).map(|at| f16::of(f64::from(32_768 + 32 * (at % 3)))).collect();
        check_offset(cx, &x, 64.0 * 8.0 * f32::STEP)
    });
}

fn check_offset<T: Real>(cx: &Context, elements: &[T], limit: f64) -> Result<(), Error> {
    let (x, classes) = (reals(elements), elements.len());
    let target = classes as i64 - 2;
    let options = Options { reduction: Reduction::Sum, smoothing: 0.1, z: 0.0 };
    let (want, _) = options.rows(&x, classes, &[target]);
    let mut tensor = Tensor::upload(cx.device(), elements, [1, classes])?;
    let targets = Tensor::upload(cx.device(), &[target], [1])?;
    let limit = limit + bound::<f32>(classes);
    let loss = rows::cross_entropy(cx, &tensor, &targets, options.options())?;
    assert_close("loss", &loss.to_vec()?, &want, |_, _| limit);
    let loss = rows::cross_entropy_in_place(cx, &mut tensor, &targets, options.options())?;
    assert_close("loss beside the gradient", &loss.to_vec()?, &want, |_, _| limit);
    Ok(())
}

/// Rows of the smallest number of f8e4m3, which has no infinity that could stand behind their end.
#[test]
fn rows_of_the_smallest_bytes() {
    on_every_device(|cx| {
        let least = F8E4M3::from_f64(-448.0);
        for columns in [5, 20_001] {
            let mut x = Tensor::upload(cx.device(), &vec![least; columns], [1, columns])?;
            let n = columns as f64;
            let softmax = rows::softmax(cx, &x)?.to_vec()?;
            assert_close("softmax", &softmax, &vec![1.0 / n; columns], |_, want| 1e-5 * want);
            let logs = rows::log_softmax(cx, &x)?.to_vec()?;
            assert_close("log softmax", &logs, &vec![-n.ln(); columns], |_, want| 1e-5 * want.abs());
            let targets = Tensor::upload(cx.device(), &[3], [1])?;
            let sum = CrossEntropy::default().reduction(Reduction::Sum);
            let loss = rows::cross_entropy(cx, &x, &targets, sum)?.to_vec()?;
            assert_close("loss", &loss, &[n.ln()], |_, want| 1e-5 * want);
            let loss = rows::cross_entropy_in_place(cx, &mut x, &targets, sum)?.to_vec()?;
            assert_close("loss beside the gradient", &loss, &[n.ln()], |_, want| 1e-5 * want);
        }
        Ok(())
    });
}

/// Tables may say what cannot be: it is refused, and nothing is left out.
#[test]
fn blocks_that_are_no_powers_of_two_are_refused() {
    on_every_device(|cx| {
        let cx = cx.clone().with_config(CrossEntropyConfig { block: 32_770, num_warps: 16 });
        let mut x = Tensor::<bf16, 2>::zeros(cx.device(), [1, 32_770])?;
        let targets = Tensor::upload(cx.device(), &[1], [1])?;
        let error = message(rows::cross_entropy_in_place(&cx, &mut x, &targets, CrossEntropy::default()));
        assert!(error.contains("32770"), "{error}");
        Ok(())
    });
}

#[test]
fn targets_that_are_no_classes_are_reported() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [2, 5])?;
        for wrong in [5, -1] {
            let targets = Tensor::upload(cx.device(), &[0, wrong], [2])?;
            let error = message(rows::cross_entropy(cx, &x, &targets, CrossEntropy::default())?.to_vec());
            assert!(error.contains("a target is no class, and is not ignored"), "{error}");
        }
        let targets = Tensor::upload(cx.device(), &[0, 1, 2], [3])?;
        assert_eq!(
            message(rows::cross_entropy(cx, &x, &targets, CrossEntropy::default())),
            "`targets` has the shape [3]; the other arguments ask for [2]"
        );
        let (none, no_targets) = (x.view().narrow(0, 0..0)?, targets.view().narrow(0, 0..0)?);
        let sum = CrossEntropy::default().reduction(Reduction::Sum);
        assert_eq!(rows::cross_entropy(cx, none, no_targets, sum)?.to_vec()?, [0.0]);
        Ok(())
    });
}

/// What is too unlikely to be a number in f32 has no share in a divergence, and does not make it infinite.
#[test]
fn jsd_of_what_is_hardly_likely() {
    on_every_device(|cx| {
        let infinite = f32::NEG_INFINITY;
        let log_q: Vec<f32> = vec![0.0, -86.0, -88.0, -100.0, -1000.0, infinite, -87.0, -200.0];
        let log_p: Vec<f32> = vec![-88.0, -86.5, -87.0, -90.0, infinite, -1000.0, infinite, 0.0];
        let shape = [1, log_q.len()];
        let (x, y) = (Tensor::upload(cx.device(), &log_q, shape)?, Tensor::upload(cx.device(), &log_p, shape)?);
        let upstream = Tensor::upload(cx.device(), &[1.0f32], [1])?;
        for beta in [0.01, 0.5, 0.999] {
            // Of q and p in one place: their parts of the divergence.
            let part = |a: f64, log_a: f64, m: f64| if a > 0.0 { a * (log_a - m.ln()) } else { 0.0 };
            let parts = log_q.iter().zip(&log_p).map(|(log_q, log_p)| {
                let (log_q, log_p) = (f64::from(*log_q), f64::from(*log_p));
                let (q, p) = (log_q.exp(), log_p.exp());
                let m = beta * p + (1.0 - beta) * q;
                ((1.0 - beta) * part(q, log_q, m), beta * part(p, log_p, m))
            });
            let (of_q, of_p): (Vec<f64>, Vec<f64>) = parts.unzip();
            let want: f64 = of_q.iter().chain(&of_p).sum();
            let step = 24.0 * (bound::<f32>(log_q.len()) + 8.0 * f32::STEP);
            let got = rows::jsd(cx, &x, &y, beta, Reduction::Sum)?;
            assert_close("jsd", &got.to_vec()?, &[want], |_, _| step);
            let dx = rows::jsd_backward(cx, &x, &y, beta, Reduction::Sum, &upstream)?;
            // What counts as zero is below 2^-126, times a logarithm below 1024.
            let tiny = 2f64.powi(-116);
            let size = |at: usize| f64::from(log_q[at]).exp() + f64::from(log_p[at]).exp();
            assert_close("backward", &dx.to_vec()?, &of_q, |at, _| step * size(at) + tiny);
        }
        Ok(())
    });
}

/// What is no number makes a divergence none, wherever it is, and whatever is beside it.
#[test]
fn divergences_of_what_is_no_number() {
    on_every_device(|cx| {
        let (nan, infinite) = (f32::NAN, f32::NEG_INFINITY);
        let two = |x: [f32; 3], y: f32| Tensor::upload(cx.device(), &[x, [y; 3]].concat(), [2, 3]);
        let upload = |x| two(x, -1.0);
        let upstream = Tensor::upload(cx.device(), &[1.0f32, 1.0], [2])?;
        let none = Reduction::None;
        let check = |what: &str, losses: Tensor<f32, 1>| {
            let losses = losses.to_vec()?;
            assert!(losses[0].is_nan() && losses[1].is_finite(), "{what}: {losses:?}");
            Ok::<_, Error>(())
        };
        for (x, y) in [(nan, -1.0), (-1.0, nan), (nan, infinite), (infinite, nan)] {
            let (x, y) = (upload([-1.0, x, -2.0])?, upload([-2.0, y, -1.0])?);
            check("kl", rows::kl_divergence(cx, &x, &y, KlTarget::Logarithms, none)?)?;
            for beta in [0.0, 0.5, 1.0] {
                check("jsd", rows::jsd(cx, &x, &y, beta, none)?)?;
            }
            let dx = rows::jsd_backward(cx, &x, &y, 0.5, none, &upstream)?.to_vec()?;
            assert!(dx[1].is_nan() && dx.iter().filter(|x| x.is_nan()).count() == 1, "{dx:?}");
        }
        for (x, p) in [(nan, 0.5), (-1.0, nan), (nan, 0.0)] {
            let (x, p) = (upload([-1.0, x, -2.0])?, two([0.25, p, 0.25], 0.5)?);
            check("kl of probabilities", rows::kl_divergence(cx, &x, &p, KlTarget::Probabilities, none)?)?;
        }
        let y = upload([-1.0, nan, -1.0])?;
        let dx = rows::kl_divergence_backward(cx, &y, KlTarget::Logarithms, none, &upstream)?.to_vec()?;
        assert!(dx[1].is_nan() && dx.iter().filter(|x| x.is_nan()).count() == 1, "{dx:?}");
        Ok(())
    });
}

/// Rows of logarithms of probabilities, rounded to a dtype.
fn logarithms<T: Real>(random: &mut Random, cx: &Context, [rows, columns]: [usize; 2]) -> (Tensor<T, 2>, Vec<f64>) {
    let x: Vec<f64> = (0..rows * columns).map(|_| random.normal()).collect();
    let shifted = |row: &[f64], all: f64| row.iter().map(|x| T::of(x - all)).collect::<Vec<_>>();
    let logs: Vec<T> = x.chunks(columns).flat_map(|row| shifted(row, lse(row))).collect();
    let values = reals(&logs);
    (Tensor::upload(cx.device(), &logs, [rows, columns]).unwrap(), values)
}

fn reduced(losses: &[f64], reduction: Reduction) -> (Vec<f64>, f64) {
    match reduction {
        Reduction::None => (losses.to_vec(), 1.0),
        Reduction::Sum => (vec![losses.iter().sum()], 1.0),
        Reduction::Mean => (vec![losses.iter().sum::<f64>() / losses.len() as f64], 1.0 / losses.len() as f64),
    }
}

fn check_kl<T: Real>(cx: &Context, columns: usize, kind: KlTarget, reduction: Reduction) -> Result<(), Error> {
    let rows = 3;
    let mut random = Random::new(columns as u64);
    let (input, inputs) = logarithms::<T>(&mut random, cx, [rows, columns]);
    let (target, logs) = logarithms::<T>(&mut random, cx, [rows, columns]);
    let (target, p): (_, Vec<f64>) = match kind {
        KlTarget::Logarithms => (target, logs.iter().map(|log| log.exp()).collect()),
        KlTarget::Probabilities => {
            let mut rounded: Vec<T> = logs.iter().map(|log| T::of(log.exp())).collect();
            rounded[0] = T::of(0.0);
            (Tensor::upload(cx.device(), &rounded, [rows, columns])?, reals(&rounded))
        }
    };
    let term = |p: f64, x: f64| if p > 0.0 { p * (p.ln() - x) } else { 0.0 };
    let losses: Vec<f64> =
        (0..rows).map(|row| (row * columns..(row + 1) * columns).map(|at| term(p[at], inputs[at])).sum()).collect();
    let (want, scale) = reduced(&losses, reduction);
    let got = rows::kl_divergence(cx, &input, &target, kind, reduction)?;
    // Probabilities sum to about 1, and logarithms are above -24.
    assert_close("kl", &got.to_vec()?, &want, |_, _| rows as f64 * 24.0 * (bound::<T>(columns) + 8.0 * f32::STEP));
    let dloss: Vec<f32> = random.normals(want.len());
    let upstream = Tensor::upload(cx.device(), &dloss, [want.len()])?;
    let dx = rows::kl_divergence_backward(cx, &target, kind, reduction, &upstream)?;
    let factor = |at: usize| scale * f64::from(dloss[if want.len() == 1 { 0 } else { at / columns }]);
    let want: Vec<f64> = p.iter().enumerate().map(|(at, p)| -p * factor(at)).collect();
    assert_close("backward", &dx.to_vec()?, &want, |_, want| want.abs() * (bound::<T>(1) + 8.0 * f32::STEP));
    Ok(())
}

#[test]
fn kl_divergence_in_every_dtype() {
    on_every_device(|cx| {
        for kind in [KlTarget::Logarithms, KlTarget::Probabilities] {
            check_kl::<f32>(cx, 1, kind, Reduction::Mean)?;
            check_kl::<f32>(cx, 5000, kind, Reduction::None)?;
            check_kl::<bf16>(cx, 100, kind, Reduction::Mean)?;
            check_kl::<f16>(cx, 100, kind, Reduction::Sum)?;
            check_kl::<f64>(cx, 33, kind, Reduction::Mean)?;
        }
        Ok(())
    });
}

fn check_jsd<T: Real>(cx: &Context, columns: usize, beta: f64, reduction: Reduction) -> Result<(), Error> {
    let rows = 3;
    let mut random = Random::new(columns as u64);
    let (x, log_q) = logarithms::<T>(&mut random, cx, [rows, columns]);
    let (y, log_p) = logarithms::<T>(&mut random, cx, [rows, columns]);
    let (mut losses, mut gradients) = (vec![0.0; rows], Vec::new());
    for (at, (x, y)) in log_q.iter().zip(&log_p).enumerate() {
        let (q, p) = (x.exp(), y.exp());
        let m = (beta * p + (1.0 - beta) * q).ln();
        losses[at / columns] += match beta {
            0.0 => p * (y - x),
            1.0 => q * (x - y),
            _ => beta * p * (y - m) + (1.0 - beta) * q * (x - m),
        };
        gradients.push(match beta {
            0.0 => -p,
            1.0 => q * (x - y) + q,
            _ => (1.0 - beta) * q * (x - m),
        });
    }
    let (want, scale) = reduced(&losses, reduction);
    let step = 24.0 * (bound::<T>(columns) + 8.0 * f32::STEP);
    let got = rows::jsd(cx, &x, &y, beta, reduction)?;
    assert_close("jsd", &got.to_vec()?, &want, |_, _| rows as f64 * step);
    let dloss: Vec<f32> = random.normals(want.len());
    let upstream = Tensor::upload(cx.device(), &dloss, [want.len()])?;
    let dx = rows::jsd_backward(cx, &x, &y, beta, reduction, &upstream)?;
    let factor = |at: usize| scale * f64::from(dloss[if want.len() == 1 { 0 } else { at / columns }]);
    let want: Vec<f64> = gradients.iter().enumerate().map(|(at, gradient)| gradient * factor(at)).collect();
    let size = |at: usize| (log_q[at].exp() + log_p[at].exp()) * factor(at).abs();
    assert_close("backward", &dx.to_vec()?, &want, |at, _| step * size(at));
    Ok(())
}

#[test]
fn jsd_in_every_dtype() {
    on_every_device(|cx| {
        for beta in [0.0, 0.1, 0.5, 1.0] {
            check_jsd::<f32>(cx, 1, beta, Reduction::Sum)?;
            check_jsd::<f32>(cx, 4500, beta, Reduction::Mean)?;
            check_jsd::<bf16>(cx, 100, beta, Reduction::None)?;
            check_jsd::<f64>(cx, 20, beta, Reduction::Mean)?;
        }
        let x = Tensor::<f32, 2>::zeros(cx.device(), [2, 5])?;
        assert_eq!(
            message(rows::jsd(cx, &x, &x, 1.5, Reduction::Mean)),
            "`beta` of jsd is set to `1.5`; expected a number from 0 to 1"
        );
        let none = TensorView::new(x.buffer(), [0, 5])?;
        assert_eq!(rows::jsd(cx, none, none, 0.5, Reduction::Sum)?.to_vec()?, [0.0]);
        Ok(())
    });
}
