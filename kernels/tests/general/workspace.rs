//! Functions in workspaces that are given.

mod convolutions;

use crate::common::{Mark, Random, Real, check_workspace, message, on_every_device, read};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_kernels::general::{
    self, ConvWeightConfig, Convolution, Direction, Extreme, Number, Order, PairRoom, PairWorkspace, QuantiseRoom,
    QuantiseWorkspace, Quantised, SampleWorkspace, Sampling, Scales, SortDigitsConfig,
};
use tilewright_kernels::{Context, Tensor, TensorView, TensorViewMut};

/// Shapes with the dimension of the work: of one piece, and of several with and without neighbours.
const WORK: [([usize; 3], usize); 4] = [([3, 5, 7], 1), ([1, 40_000, 1], 1), ([2, 1, 40_000], 2), ([33_000, 2, 3], 0)];

fn read_both<T: DType, const R: usize>(x: &(Tensor<T, R>, Tensor<i32, R>)) -> Result<String, Error> {
    Ok(read(&x.0)? + &read(&x.1)?)
}

/// [`check_workspace`] of a function with one result.
fn check<T: DType, W: Mark, const R: usize>(
    cx: &Context,
    room: (usize, W),
    want: Tensor<T, R>,
    run: impl Fn(&Context, TensorViewMut<'_, W, 1>, TensorViewMut<'_, T, R>) -> Result<(), Error>,
) -> Result<(), Error> {
    let shape = want.shape();
    let nothing = || Tensor::<T, R>::zeros(cx.device(), shape);
    check_workspace(cx, ("workspace", room.0, room.1), (want, read), nothing, |cx, workspace, out| {
        run(cx, workspace, out.view_mut())
    })
}

type Both<T, const R: usize> = (Tensor<T, R>, Tensor<i32, R>);

/// [`check_workspace`] of a function with values and places, of either part of its workspace.
fn check_pair<T: Mark, const R: usize>(
    cx: &Context,
    (room, garbage): (PairRoom, T),
    want: impl Fn() -> Result<Both<T, R>, Error>,
    run: impl Fn(&Context, PairWorkspace<'_, T>, &mut Both<T, R>) -> Result<(), Error>,
) -> Result<(), Error> {
    let device = cx.device();
    let shape = want()?.0.shape();
    let nothing = || Ok((Tensor::zeros(device, shape)?, Tensor::zeros(device, shape)?));
    let places = RefCell::new(Tensor::upload(device, &vec![i32::MIN; room.places], [room.places])?);
    check_workspace(
        cx,
        ("workspace.values", room.values, garbage),
        (want()?, read_both),
        nothing,
        |cx, values, out| run(cx, PairWorkspace { values, places: places.borrow_mut().view_mut() }, out),
    )?;
    let values = RefCell::new(Tensor::upload(device, &vec![garbage; room.values], [room.values])?);
    check_workspace(
        cx,
        ("workspace.places", room.places, i32::MAX),
        (want()?, read_both),
        nothing,
        |cx, places, out| run(cx, PairWorkspace { values: values.borrow_mut().view_mut(), places }, out),
    )
}

#[test]
fn reductions_within_a_workspace() {
    on_every_device(|cx| {
        for (shape, axis) in WORK {
            let (x, _) = &Random::new(60).tensor::<f16, 3>(cx, shape);
            let room = general::reduction_workspace(x, axis)?;
            assert_eq!(room > 0, shape[axis] > 1000, "{shape:?}");
            let f32s = (room, f32::NAN);
            macro_rules! check_each {
                ($x:ident, $garbage:expr, $($name:ident $with:ident,)*) => {$(
                    check(cx, $garbage, general::$name(cx, $x, axis)?, |cx, workspace, out| {
                        general::$with(cx, $x, axis, out, workspace)
                    })?;
                )*};
            }
            check_each!(x, f32s, sum sum_into_with, prod prod_into_with, mean mean_into_with,);
            check_each!(x, f32s, norm_l1 norm_l1_into_with, norm_l2 norm_l2_into_with, norm_max norm_max_into_with,);
            check_each!(x, (room, f16::NAN), max max_into_with, min min_into_with,);
            let x = &Tensor::upload(cx.device(), &vec![7i8; x.len()], shape)?;
            check_each!(x, (room, i64::MAX), sum sum_into_with, prod prod_into_with,);
            let (x, _) = &Random::new(59).tensor::<f64, 3>(cx, shape);
            check_each!(x, (room, f64::NAN), sum sum_into_with, mean mean_into_with, norm_l2 norm_l2_into_with,);
        }
        let none = Tensor::<f32, 2>::zeros(cx.device(), [0, 40_000])?;
        assert_eq!(general::reduction_workspace(&none, 1)?, 0);
        assert!(message(general::reduction_workspace(&none, 2)).contains("dimension"));
        Ok(())
    });
}

#[test]
fn truths_within_a_workspace() {
    on_every_device(|cx| {
        for (shape, axis) in WORK {
            let len = shape.iter().product::<usize>();
            for truth in [false, true] {
                let mut x = vec![truth; len];
                x[len / 2] = !truth;
                let x = &Tensor::upload(cx.device(), &x, shape)?;
                let room = (general::reduction_workspace(x, axis)?, truth);
                check(cx, room, general::all(cx, x, axis)?, |cx, workspace, out| {
                    general::all_into_with(cx, x, axis, out, workspace)
                })?;
                check(cx, room, general::any(cx, x, axis)?, |cx, workspace, out| {
                    general::any_into_with(cx, x, axis, out, workspace)
                })?;
            }
        }
        Ok(())
    });
}

#[test]
fn extremes_within_a_workspace() {
    on_every_device(|cx| {
        for (shape, axis) in WORK {
            let (x, _) = &Random::new(61).tensor::<bf16, 3>(cx, shape);
            let room = general::reduction_workspace(x, axis)?;
            let room = (PairRoom { values: room, places: room }, bf16::NAN);
            check_pair(
                cx,
                room,
                || general::argmax(cx, x, axis),
                |cx, workspace, (values, places)| general::argmax_into_with(cx, x, axis, values, places, workspace),
            )?;
            check_pair(
                cx,
                room,
                || general::argmin(cx, x, axis),
                |cx, workspace, (values, places)| general::argmin_into_with(cx, x, axis, values, places, workspace),
            )?;
        }
        Ok(())
    });
}

#[test]
fn scans_within_a_workspace() {
    on_every_device(|cx| {
        for (shape, axis) in WORK {
            let (x, _) = &Random::new(62).tensor::<f32, 3>(cx, shape);
            let room = general::scan_workspace(x, axis)?;
            for direction in [Direction::Forward, Direction::Backward] {
                let want = general::cumsum(cx, x, axis, direction)?;
                check(cx, (room, f32::NAN), want, |cx, workspace, out| {
                    general::cumsum_into_with(cx, x, axis, direction, out, workspace)
                })?;
            }
            let want = general::cumprod(cx, x, axis, Direction::Forward)?;
            check(cx, (room, f32::NAN), want, |cx, workspace, out| {
                general::cumprod_into_with(cx, x, axis, Direction::Forward, out, workspace)
            })?;
            let whole: Vec<i32> = (0..x.len() as i32).collect();
            let whole = &Tensor::upload(cx.device(), &whole, shape)?;
            let want = general::cumsum(cx, whole, axis, Direction::Backward)?;
            check(cx, (room, i64::MAX), want, |cx, workspace, out| {
                general::cumsum_into_with(cx, whole, axis, Direction::Backward, out, workspace)
            })?;
            let room = (PairRoom { values: room, places: room }, f32::NAN);
            check_pair(
                cx,
                room,
                || general::cummax(cx, x, axis),
                |cx, workspace, (values, places)| general::cummax_into_with(cx, x, axis, values, places, workspace),
            )?;
            check_pair(
                cx,
                room,
                || general::cummin(cx, x, axis),
                |cx, workspace, (values, places)| general::cummin_into_with(cx, x, axis, values, places, workspace),
            )?;
        }
        Ok(())
    });
}

fn check_sorts<T: Number + Mark>(cx: &Context, x: &Tensor<T, 2>, pairs: usize) -> Result<(), Error> {
    let room = general::sort_workspace(cx, x)?;
    assert_eq!(room.values / x.len(), pairs);
    let fewer = general::sort_values_workspace(cx, x)?;
    assert_eq!((fewer.values, room.places - fewer.places >= room.values), (room.values, true));
    for order in [Order::Ascending, Order::Descending] {
        check_pair(
            cx,
            (room, T::LAST),
            || general::sort(cx, x, order),
            |cx, workspace, (values, places)| general::sort_into_with(cx, x, order, values, places, workspace),
        )?;
        check_pair(
            cx,
            (fewer, T::LAST),
            || Ok((general::sort_values(cx, x, order)?, Tensor::zeros(cx.device(), x.shape())?)),
            |cx, workspace, (values, _)| general::sort_values_into_with(cx, x, order, values, workspace),
        )?;
        check_pair(
            cx,
            (room, T::LAST),
            || Ok((Tensor::zeros(cx.device(), x.shape())?, general::argsort(cx, x, order)?)),
            |cx, workspace, (_, places)| general::argsort_into_with(cx, x, order, places, workspace),
        )?;
    }
    Ok(())
}

#[test]
fn sorts_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(63);
        check_sorts(cx, &random.tensor::<f32, 2>(cx, [3, 50]).0, 0)?;
        check_sorts(cx, &random.tensor::<f32, 2>(cx, [2, 16_391]).0, 2)?;
        check_sorts(cx, &random.tensor::<bf16, 2>(cx, [2, 16_391]).0, 1)?;
        let bytes: Vec<u8> = (0..16_400).map(|_| random.bits() as u8).collect();
        check_sorts(cx, &Tensor::upload(cx.device(), &bytes, [1, 16_400])?, 0)?;
        // Smaller tiles have more counts.
        let (x, _) = &random.tensor::<f32, 2>(cx, [1, 16_391]);
        let tiles = cx.clone().with_config(SortDigitsConfig { block: 512, num_warps: 4 });
        let (large, small) = (general::sort_workspace(cx, x)?, general::sort_workspace(&tiles, x)?);
        assert_eq!(small.places - large.places, (16_391usize.div_ceil(512) - 16_391usize.div_ceil(2048)) * 256);
        check_sorts(&tiles, x, 2)
    });
}

#[test]
fn the_largest_elements_within_a_workspace() {
    on_every_device(|cx| {
        // Rows as a whole, in groups, and in groups of groups.
        for (shape, k) in [([3, 200], 5), ([2, 5000], 7), ([1, 300_000], 40)] {
            let (x, _) = &Random::new(64).tensor::<f16, 2>(cx, shape);
            let room = general::topk_workspace(x, k)?;
            assert_eq!(room.places > 0, shape[1] > 4096);
            for extreme in [Extreme::Largest, Extreme::Smallest] {
                let want = || general::topk(cx, x, k, extreme);
                check_pair(cx, (room, f16::NAN), want, |cx, workspace, (values, places)| {
                    general::topk_into_with(cx, x, k, extreme, values, places, workspace)
                })?;
            }
        }
        let x = Tensor::<f32, 2>::zeros(cx.device(), [1, 10])?;
        assert_eq!(message(general::topk_workspace(&x, 11)), message(general::topk(cx, &x, 11, Extreme::Largest)));
        Ok(())
    });
}

fn check_quantised<T, Q: Quantised>(
    cx: &Context,
    (shape, scales): ([usize; 2], Scales),
    (nan, wide): (T, T::Sums),
) -> Result<(), Error>
where
    T: Real + Mark + general::Real<Sums: Mark>,
{
    let (x, _) = &Random::new(65).tensor::<T, 2>(cx, shape);
    let QuantiseRoom { peak, partials } = general::quantise_workspace(x, scales)?;
    let want = || general::quantise::<Q, T>(cx, x, scales);
    let scales_shape = want()?.1.shape();
    let nothing = || Ok((Tensor::zeros(cx.device(), shape)?, Tensor::zeros(cx.device(), scales_shape)?));
    let both = |x: &(Tensor<Q, 2>, Tensor<f32, 2>)| Ok(read(&x.0)? + &read(&x.1)?);
    let all = RefCell::new(Tensor::upload(cx.device(), &vec![wide; partials], [partials])?);
    check_workspace(cx, ("workspace.peak", peak, nan), (want()?, both), nothing, |cx, peak, (q, to)| {
        let mut partials = all.borrow_mut();
        let workspace = QuantiseWorkspace { peak, partials: partials.view_mut() };
        general::quantise_into_with(cx, x, scales, q, to, workspace)
    })?;
    let one = RefCell::new(Tensor::upload(cx.device(), &vec![nan; peak], [peak])?);
    check_workspace(cx, ("workspace.partials", partials, wide), (want()?, both), nothing, |cx, partials, (q, to)| {
        let mut peak = one.borrow_mut();
        general::quantise_into_with(cx, x, scales, q, to, QuantiseWorkspace { peak: peak.view_mut(), partials })
    })
}

#[test]
fn quantisation_within_a_workspace() {
    on_every_device(|cx| {
        check_quantised::<f32, F8E4M3>(cx, ([5, 100], Scales::Row), (f32::NAN, f32::NAN))?;
        check_quantised::<bf16, i8>(cx, ([5, 100], Scales::Tensor), (bf16::NAN, f32::NAN))?;
        check_quantised::<f16, F8E5M2>(cx, ([2, 20_000], Scales::Tensor), (f16::NAN, f32::NAN))?;
        check_quantised::<f64, i8>(cx, ([0, 140], Scales::Tensor), (f64::NAN, f64::NAN))?;
        check_quantised::<f32, F8E4M3>(cx, ([3, 0], Scales::Tensor), (f32::NAN, f32::NAN))
    });
}

/// The scale of no elements is that of zeros, whatever was there.
#[test]
fn scales_of_no_elements_are_written() {
    on_every_device(|cx| {
        for (shape, scales, want) in [
            ([0, 140], Scales::Tensor, [1, 1]),
            ([3, 0], Scales::Tensor, [1, 1]),
            ([3, 0], Scales::Row, [3, 1]),
            ([0, 140], Scales::Row, [0, 1]),
            ([3, 0], Scales::Group(16), [3, 0]),
        ] {
            let (x, mut q) = (Tensor::<f32, 2>::zeros(cx.device(), shape)?, Tensor::zeros(cx.device(), shape)?);
            let count = want.iter().product();
            let mut to = Tensor::upload(cx.device(), &vec![f32::NAN; count], want)?;
            general::quantise_into::<i8, f32>(cx, &x, scales, &mut q, &mut to)?;
            assert_eq!(to.to_vec()?, vec![1.0; count], "{shape:?} {scales:?}");
            assert_eq!(general::quantise::<i8, f32>(cx, &x, scales)?.1.to_vec()?, vec![1.0; count]);
        }
        Ok(())
    });
}

#[test]
fn sizes_that_cannot_be_counted_are_refused_or_the_largest() {
    on_every_device(|cx| {
        let device = cx.device();
        // Tiles of nothing have no size.
        let (x, _) = &Random::new(69).tensor::<f32, 2>(cx, [1, 16_391]);
        let none = &cx.clone().with_config(SortDigitsConfig { block: 0, num_warps: 8 });
        let refused = message(general::sort_workspace(none, x));
        assert_eq!(refused, "block of sort_digits is set to `0`; expected at least 1");
        assert!(general::sort(none, x, Order::Ascending).is_err());
        let none = SortDigitsConfig { block: 1, num_warps: 8 };
        let many = TensorView::with_strides(x.buffer(), [1 << 48, 16_391], [0, 1])?;
        let room = general::sort_workspace(&cx.clone().with_config(none), many)?;
        assert_eq!(room.places, usize::MAX);
        let more = TensorView::with_strides(x.buffer(), [1 << 49, 16_391], [0, 1])?;
        let counts = (16_391usize.div_ceil(2048) + 1) * 256;
        assert_eq!(general::sort_values_workspace(cx, more)?, PairRoom { values: usize::MAX, places: counts << 49 });

        let how = Convolution::default();
        let x = &Tensor::<f32, 4>::zeros(device, [1, 3, 3, 1])?;
        let none = ConvWeightConfig { block_m: 0, block_n: 0, block_k: 0, num_warps: 4, num_stages: 3, programs: 0 };
        let none = &cx.clone().with_config(none);
        let refused = message(general::conv2d_backward_weight_workspace(none, x, [2, 2, 2, 1], how));
        assert_eq!(refused, "block_m of conv2d_weight is set to `0`; expected at least 1");
        let dy = Tensor::<f32, 4>::zeros(device, [1, 2, 2, 2])?;
        assert!(general::conv2d_backward_weight(none, x, &dy, [2, 2, 2, 1], how).is_err());
        let refused = message(general::conv2d_backward_weight_workspace(cx, x, [1 << 62, 3, 3, 1], how));
        assert!(refused.starts_with("`dy` has a dimension of 4611686018427387904"), "{refused}");
        let line = &Tensor::<f32, 3>::zeros(device, [1, 3, 1])?;
        let refused = message(general::conv1d_backward_weight_workspace(cx, line, [1 << 62, 3, 1], how));
        assert!(refused.starts_with("`dy` has a dimension of 4611686018427387904"), "{refused}");
        let far = how.padding([usize::MAX; 2]);
        assert!(general::conv2d_backward_weight_workspace(cx, x, [1, 3, 3, 1], far).is_err());
        let far = how.dilation([usize::MAX; 2]);
        assert!(general::conv2d_backward_weight_workspace(cx, x, [1, 3, 3, 1], far).is_err());
        let wide = TensorView::with_strides(x.buffer(), [1 << 31, 1 << 31], [0, 0])?;
        assert!(general::reduction_workspace(wide, 0).is_err() && general::scan_workspace(wide, 1).is_err());
        let empty = TensorView::with_strides(x.buffer(), [0, 1 << 40, 1 << 40], [1 << 40, 1 << 40, 1])?;
        assert!(general::reduction_workspace(empty, 0).is_err());

        let filters = Tensor::<f32, 4>::zeros(device, [0, 1, 1, 0])?;
        let mut pixels = device.empty::<f32>(0)?;
        let dx = TensorViewMut::new(&mut pixels, [1 << 31, 1, 1, 0])?;
        let dy = TensorView::new(filters.buffer(), [1 << 31, 1, 1, 0])?;
        let refused = message(general::conv2d_backward_input_into(cx, &filters, dy, how, dx));
        assert!(refused.starts_with("`dx` has a dimension of 2147483648"), "{refused}");
        Ok(())
    });
}

/// Checks each part of the workspace that `sampling` needs, while the others hold whatever they do.
fn check_sampling(cx: &Context, shape: [usize; 2], sampling: Sampling) -> Result<(), Error> {
    let (x, _) = &Random::new(66).tensor::<f32, 2>(cx, shape);
    let room = general::sample_workspace(x, sampling)?;
    let device = cx.device();
    let nothing = || Tensor::<i32, 1>::zeros(device, [shape[0]]);
    let want = || Ok::<_, Error>((general::sample(cx, x, sampling)?, read));
    let values = RefCell::new(Tensor::upload(device, &vec![f32::NAN; room.values], [room.values])?);
    let places = RefCell::new(Tensor::upload(device, &vec![i32::MAX; room.places], [room.places])?);
    let noisy = RefCell::new(Tensor::upload(device, &vec![f32::NAN; room.noisy], [room.noisy])?);
    let of = ("workspace.values", room.values, f32::NAN);
    check_workspace(cx, of, want()?, nothing, |cx, values, out| {
        let (mut places, mut noisy) = (places.borrow_mut(), noisy.borrow_mut());
        let workspace = SampleWorkspace { values, places: places.view_mut(), noisy: noisy.view_mut() };
        general::sample_into_with(cx, x, sampling, out, workspace)
    })?;
    let of = ("workspace.places", room.places, i32::MIN);
    check_workspace(cx, of, want()?, nothing, |cx, places, out| {
        let (mut values, mut noisy) = (values.borrow_mut(), noisy.borrow_mut());
        let workspace = SampleWorkspace { values: values.view_mut(), places, noisy: noisy.view_mut() };
        general::sample_into_with(cx, x, sampling, out, workspace)
    })?;
    let of = ("workspace.noisy", room.noisy, f32::INFINITY);
    check_workspace(cx, of, want()?, nothing, |cx, noisy, out| {
        let (mut values, mut places) = (values.borrow_mut(), places.borrow_mut());
        let workspace = SampleWorkspace { values: values.view_mut(), places: places.view_mut(), noisy };
        general::sample_into_with(cx, x, sampling, out, workspace)
    })
}

#[test]
fn samples_within_a_workspace() {
    on_every_device(|cx| {
        let sampling = Sampling::default().seed(9);
        check_sampling(cx, [3, 500], sampling)?;
        check_sampling(cx, [1, 40_000], sampling)?;
        check_sampling(cx, [2, 500], sampling.top_k(7))?;
        check_sampling(cx, [2, 9000], sampling.temperature(0.0))?;
        let x = Tensor::<f32, 2>::zeros(cx.device(), [3, 5])?;
        let mut short = Tensor::<i32, 1>::zeros(cx.device(), [2])?;
        let refused = message(general::sample_into(cx, &x, sampling, &mut short));
        assert_eq!(refused, "`out` has the shape [2]; the other arguments ask for [3]");
        Ok(())
    });
}

#[test]
fn sorts_into_tensors_of_another_shape() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [2, 3])?;
        let (mut values, mut places) =
            (Tensor::<f32, 2>::zeros(cx.device(), [2, 4])?, Tensor::<i32, 2>::zeros(cx.device(), [3, 3])?);
        let refused = message(general::sort_values_into(cx, &x, Order::Ascending, &mut values));
        assert_eq!(refused, "`values` has the shape [2, 4]; the other arguments ask for [2, 3]");
        let refused = message(general::argsort_into(cx, &x, Order::Ascending, &mut places));
        assert_eq!(refused, "`places` has the shape [3, 3]; the other arguments ask for [2, 3]");
        Ok(())
    });
}
