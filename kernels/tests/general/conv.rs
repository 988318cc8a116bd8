//! Convolutions and their gradients.

use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::general::{self, Convolution};
use tilewright_kernels::{Context, Tensor};

/// A convolution by its definition: for each pair of an element of `x` and one of the result that meet, the element of the
/// filters, in flat indices.
struct Case {
    x: [usize; 4],
    filters: [usize; 4],
    steps: ([usize; 2], [usize; 2], [usize; 2]),
    groups: usize,
}

impl Case {
    fn convolution(&self) -> Convolution {
        let (stride, padding, dilation) = self.steps;
        Convolution::default().stride(stride).padding(padding).dilation(dilation).groups(self.groups)
    }

    fn visit(&self, shape: [usize; 4], mut visit: impl FnMut(usize, usize, usize)) {
        let ([_, h, w, c], [o, kh, kw, per_group]) = (self.x, self.filters);
        let [n, p, q, _] = shape;
        let (stride, padding, dilation) = self.steps;
        for at in 0..n * p * q * o {
            let (image, y, z, k) = (at / (p * q * o), at / (q * o) % p, at / o % q, at % o);
            for tap in 0..kh * kw {
                let y = (y * stride[0] + tap / kw * dilation[0]).wrapping_sub(padding[0]);
                let z = (z * stride[1] + tap % kw * dilation[1]).wrapping_sub(padding[1]);
                if y < h && z < w {
                    for i in 0..per_group {
                        let channel = k / (o / self.groups) * per_group + i;
                        visit(((image * h + y) * w + z) * c + channel, (k * kh * kw + tap) * per_group + i, at);
                    }
                }
            }
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |x, filters, steps, groups| Case { x, filters, steps, groups };
    vec![
        case([2, 5, 6, 3], [4, 3, 3, 3], ([1, 1], [1, 1], [1, 1]), 1),
        case([1, 9, 7, 20], [18, 3, 2, 20], ([2, 1], [1, 0], [1, 2]), 1),
        case([2, 4, 5, 6], [8, 2, 3, 6], ([2, 3], [2, 1], [2, 1]), 1),
        case([1, 4, 4, 6], [9, 1, 1, 2], ([1, 1], [0, 0], [1, 1]), 3),
    ]
}

fn check_case<T: Real + general::Real>(cx: &Context, case: &Case) -> Result<(), Error> {
    let mut random = Random::new(60);
    let (x, xs) = random.tensor::<T, 4>(cx, case.x);
    let (filters, fs) = random.tensor::<T, 4>(cx, case.filters);
    let (bias, bs) = random.tensor::<T, 1>(cx, [case.filters[0]]);
    let how = case.convolution();
    let y = general::conv2d(cx, &x, &filters, Some(bias.view()), how)?;
    let (dy, ds) = random.tensor::<T, 4>(cx, y.shape());
    let mut want = [bs.repeat(ds.len() / bs.len()), vec![0.0; xs.len()], vec![0.0; fs.len()]];
    let mut size: Vec<Vec<f64>> = want.iter().map(|want| want.iter().map(|x| x.abs()).collect()).collect();
    let mut terms: Vec<Vec<f64>> = want.iter().map(|want| vec![1.0; want.len()]).collect();
    case.visit(y.shape(), |i, f, o| {
        for (which, at, product) in [(0, o, xs[i] * fs[f]), (1, i, ds[o] * fs[f]), (2, f, ds[o] * xs[i])] {
            want[which][at] += product;
            size[which][at] += product.abs();
            terms[which][at] += 1.0;
        }
    });
    let dx = general::conv2d_backward_input(cx, case.x, &filters, &dy, how)?;
    let df = general::conv2d_backward_weight(cx, &x, &dy, case.filters, how)?;
    for (which, got) in [y.to_vec()?, dx.to_vec()?, df.to_vec()?].iter().enumerate() {
        // An addition for each term, and what tf32x3 loses of products of f32.
        let split = if T::ELEMENT == f32::ELEMENT { 0.5f64.powi(20) } else { 0.0 };
        let error = |at: usize| size[which][at] * (T::STEP * terms[which][at] + split);
        assert_close(&format!("{which} of {:?}", case.x), got, &want[which], |at, _| error(at));
    }
    Ok(())
}

#[test]
fn convolutions_and_their_gradients_of_every_kind() {
    on_every_device(|cx| {
        for case in cases() {
            check_case::<f32>(cx, &case)?;
            check_case::<f16>(cx, &case)?;
        }
        check_case::<f64>(cx, &cases()[1])?;
        check_case::<bf16>(cx, &cases()[3])
    });
}

#[test]
fn convolutions_of_sequences() {
    on_every_device(|cx| {
        let x = Tensor::upload(cx.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0], [1, 5, 1])?;
        let filters = Tensor::upload(cx.device(), &[1.0f32, 10.0, 100.0], [1, 3, 1])?;
        let how = Convolution::default().padding([0, 1]);
        assert_eq!(general::conv1d(cx, &x, &filters, None, how)?.to_vec()?, [210.0, 321.0, 432.0, 543.0, 54.0]);
        let refused = message(general::conv1d(cx, &x, &filters, None, how.groups(2)));
        assert_eq!(refused, "`groups` is 2; channels of the image (1) and of the result (1) are multiples of it");
        let long = Tensor::<f32, 3>::zeros(cx.device(), [1, 8, 1])?;
        assert!(message(general::conv1d(cx, &x, &long, None, how)).contains("at least as large as the filters"));
        let none = Tensor::<f32, 3>::zeros(cx.device(), [0, 8, 1])?;
        assert_eq!(general::conv1d(cx, &none, &filters, None, how)?.shape(), [0, 8, 1]);
        Ok(())
    });
}

#[test]
fn images_with_more_rows_than_kernels_count() {
    let (most, [far, near]) = (i32::MAX as usize - 65_535, [1 << 30, 1 << 29]);
    let how = |padding| Convolution::default().padding([padding, 0]).stride([most, 1]);
    assert_eq!(how(near).result([1, 4, 4, 1], [1, 1, 1, 1]).unwrap(), [1, 1, 4, 1]);
    assert_eq!(
        message(how(far).result([1, 4, 4, 1], [1, 1, 1, 1])),
        "`padding` is 1073741824 on each side of 4; an image has at most 2147418112 rows and columns with it"
    );
    let filters = [1, 60_000, 60_000, 1];
    let refused = message(Convolution::default().padding([30_000, 30_000]).result([1, 4, 4, 1], filters));
    assert!(refused.starts_with("`filters` has a dimension of 3600000000"), "{refused}");
}
