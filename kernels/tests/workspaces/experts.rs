//! Mixtures of experts, into tensors and in workspaces that are given.

use super::nans;
use crate::common::{Random, check_workspace, message, on_every_device, read};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_kernels::products::Activation;
use tilewright_kernels::products::fp8::{self, BLOCK};
use tilewright_kernels::products::grouped::{
    self, Groups, MoeFp8Room, MoeFp8Workspace, MoeRoom, MoeWorkspace, Routing, Scaled,
};
use tilewright_kernels::{Context, Tensor};

/// Choices among experts, some of them none.
fn chosen(cx: &Context, [tokens, k]: [usize; 2], experts: usize, seed: u64) -> Result<Tensor<i32, 2>, Error> {
    let mut random = Random::new(seed);
    let numbers: Vec<i32> = (0..tokens * k).map(|_| random.below(experts + 2) as i32 - 1).collect();
    Tensor::upload(cx.device(), &numbers, [tokens, k])
}

fn read_groups(groups: &Groups) -> Result<String, Error> {
    Ok(format!("{:?} {:?}", groups.pairs().to_vec()?, groups.rows().to_vec()?))
}

#[test]
fn tokens_are_sorted_within_a_workspace() {
    on_every_device(|cx| {
        for (tokens, k, experts, room) in [(150, 2, 7, 5 * 8), (3, 1, 64, 64), (0, 2, 4, 0)] {
            let choices = &chosen(cx, [tokens, k], experts, 90)?;
            let other = &chosen(cx, [tokens, k], experts, 91)?;
            let groups = Groups::unsorted(cx, [tokens, k], experts)?;
            assert_eq!(grouped::sort_workspace(&groups), room);
            assert!(groups.pairs().to_vec()?.iter().chain(&groups.rows().to_vec()?).all(|place| *place == -1));
            for sorted in [false, true] {
                // What other choices have left does not matter.
                let before = || {
                    if sorted { Groups::new(cx, other, experts) } else { Groups::unsorted(cx, [tokens, k], experts) }
                };
                let want = Groups::new(cx, choices, experts)?;
                let mut out = before()?;
                grouped::sort_into(cx, choices, &mut out)?;
                assert_eq!(read_groups(&out)?, read_groups(&want)?);
                let what = ("workspace", room, i32::MAX);
                check_workspace(cx, what, (want, read_groups), before, |cx, workspace, out| {
                    grouped::sort_into_with(cx, choices, out, workspace)
                })?;
            }
        }
        let mut groups = Groups::unsorted(cx, [5, 2], 4)?;
        let refused = message(grouped::sort_into(cx, &chosen(cx, [4, 2], 4, 90)?, &mut groups));
        assert_eq!(refused, "`chosen` has the shape [4, 2]; the other arguments ask for [5, 2]");
        assert!(message(Groups::unsorted(cx, [usize::MAX, 2], 4)).starts_with("`chosen` has a dimension of"));
        assert!(message(Groups::unsorted(cx, [5, 2], 1025)).contains("1025 experts"));
        Ok(())
    });
}

#[test]
fn experts_are_chosen_into_tensors() {
    on_every_device(|cx| {
        let (logits, _) = &Random::new(92).tensor::<bf16, 2>(cx, [37, 8]);
        let want = grouped::route(cx, logits, 2, true)?;
        let mut out = Routing { weights: nans(cx, [37, 2])?, experts: Tensor::zeros(cx.device(), [37, 2])? };
        let stream = cx.device().new_stream()?;
        let graph = stream.capture(|stream| {
            let cx = cx.clone().with_stream(stream);
            grouped::route_into(&cx, logits, 2, true, &mut out.weights, &mut out.experts)
        })?;
        graph.replay()?;
        assert_eq!((read(&out.weights)?, read(&out.experts)?), (read(&want.weights)?, read(&want.experts)?));
        let refused = message(grouped::route_into(cx, logits, 3, true, &mut out.weights, &mut out.experts));
        assert_eq!(refused, "`weights` has the shape [37, 2]; the other arguments ask for [37, 3]");
        Ok(())
    });
}

/// Rows, products and sums of a mixture, with NaN where they are written.
#[test]
fn products_of_experts_into_tensors() {
    on_every_device(|cx| {
        let [tokens, k, experts, hidden, n] = [20, 2, 3, 144, 40];
        let mut random = Random::new(93);
        let groups = &Groups::new(cx, &chosen(cx, [tokens, k], experts, 94)?, experts)?;
        let (height, device) = (groups.height(), cx.device());
        let (x, _) = &random.tensor::<f16, 2>(cx, [tokens, hidden]);
        let (w, _) = &random.tensor::<f16, 3>(cx, [experts, hidden, n]);
        let (weights, _) = &random.tensor::<f32, 2>(cx, [tokens, k]);
        let (bytes, _) = &random.tensor::<F8E4M3, 3>(cx, [experts, hidden, n]);
        let scales = &Tensor::upload(device, &[0.5f32; 6], [experts, 2, 1])?;
        let bytes = Scaled { weights: bytes.view(), scales: scales.view() };
        let (small, x_scales) = &fp8::quantise_blocks(cx, &grouped::gather(cx, x, groups)?)?;

        let rows = grouped::gather(cx, x, groups)?;
        let product: Tensor<f16, 2> = grouped::matmul(cx, &rows, w, groups)?;
        let gated: Tensor<f32, 2> = grouped::matmul_gated(cx, &rows, w, groups, Activation::Silu)?;
        let scaled: Tensor<f16, 2> = grouped::matmul_blocks(cx, small, x_scales, bytes, groups)?;
        let gradient: Tensor<f32, 3> = grouped::weights_gradient(cx, &rows, &product, groups)?;
        let sum = grouped::combine(cx, &product, weights, groups)?;
        let mut to_rows = nans(cx, rows.shape())?;
        let mut to_product = nans(cx, product.shape())?;
        let mut to_gated = nans::<f32, 2>(cx, gated.shape())?;
        let mut to_scaled = nans::<f16, 2>(cx, scaled.shape())?;
        let mut to_gradient = nans::<f32, 3>(cx, gradient.shape())?;
        let mut to_sum = nans(cx, sum.shape())?;
        let stream = device.new_stream()?;
        let graph = stream.capture(|stream| {
            let cx = &cx.clone().with_stream(stream);
            grouped::gather_into(cx, x, groups, &mut to_rows)?;
            grouped::matmul_into(cx, &to_rows, w, groups, &mut to_product)?;
            grouped::matmul_gated_into(cx, &to_rows, w, groups, Activation::Silu, &mut to_gated)?;
            grouped::matmul_blocks_into(cx, small, x_scales, bytes, groups, &mut to_scaled)?;
            grouped::weights_gradient_into(cx, &to_rows, &to_product, groups, &mut to_gradient)?;
            grouped::combine_into(cx, &to_product, weights, groups, &mut to_sum)
        })?;
        graph.replay()?;
        assert_eq!((read(&to_rows)?, read(&to_product)?), (read(&rows)?, read(&product)?));
        assert_eq!((read(&to_gated)?, read(&to_scaled)?), (read(&gated)?, read(&scaled)?));
        assert_eq!((read(&to_gradient)?, read(&to_sum)?), (read(&gradient)?, read(&sum)?));

        let wanted =
            |shape: &str, asked: &str| format!("`out` has the shape {shape}; the other arguments ask for {asked}");
        let refused = message(grouped::matmul_into(cx, &rows, w, groups, &mut to_rows));
        assert_eq!(refused, wanted(&format!("[{height}, 144]"), &format!("[{height}, 40]")));
        let refused = message(grouped::combine_into(cx, &product, weights, groups, &mut to_product));
        assert_eq!(refused, wanted(&format!("[{height}, 40]"), "[20, 40]"));
        let refused = message(grouped::gather_into(cx, x, groups, &mut to_product));
        assert_eq!(refused, wanted(&format!("[{height}, 40]"), &format!("[{height}, 144]")));
        let refused = message(grouped::matmul_gated_into(cx, &rows, w, groups, Activation::Silu, &mut to_product));
        assert_eq!(refused, wanted(&format!("[{height}, 40]"), &format!("[{height}, 20]")));
        let refused = message(grouped::weights_gradient_into(cx, &product, &rows, groups, &mut to_gradient));
        assert_eq!(refused, wanted("[3, 144, 40]", "[3, 40, 144]"));
        Ok(())
    });
}

/// No tokens, or no experts of a token: sums over nothing.
#[test]
fn mixtures_of_nothing_are_written() {
    on_every_device(|cx| {
        for [tokens, k] in [[0, 2], [3, 0]] {
            let groups = Groups::new(cx, &Tensor::<i32, 2>::zeros(cx.device(), [tokens, k])?, 4)?;
            let (rows, weights) = (&Tensor::<f16, 2>::zeros(cx.device(), [0, 5])?, nans(cx, [tokens, k])?);
            let mut sum = nans(cx, [tokens, 5])?;
            grouped::combine_into(cx, rows, &weights, &groups, &mut sum)?;
            assert_eq!(sum.to_vec()?, vec![f16::ZERO; tokens * 5]);
            let mut gradient = nans::<f32, 3>(cx, [4, 5, 5])?;
            grouped::weights_gradient_into(cx, rows, rows, &groups, &mut gradient)?;
            assert_eq!(gradient.to_vec()?, [0.0; 100]);
        }
        Ok(())
    });
}

fn routing(cx: &Context, [tokens, k]: [usize; 2], experts: usize) -> Result<Routing, Error> {
    let (weights, _) = Random::new(95).tensor::<f32, 2>(cx, [tokens, k]);
    Ok(Routing { weights, experts: chosen(cx, [tokens, k], experts, 96)? })
}

#[test]
fn mixtures_within_a_workspace() {
    on_every_device(|cx| {
        for [tokens, k, experts, hidden, inner] in [[30, 2, 5, 40, 24], [9, 3, 8, 24, 72], [0, 2, 4, 16, 8]] {
            let mut random = Random::new(97);
            let (x, _) = &random.tensor::<f16, 2>(cx, [tokens, hidden]);
            let (gate_up, _) = &random.tensor::<f16, 3>(cx, [experts, hidden, 2 * inner]);
            let (down, _) = &random.tensor::<f16, 3>(cx, [experts, inner, hidden]);
            let routing = &routing(cx, [tokens, k], experts)?;
            let activation = Activation::Silu;
            let MoeRoom { rows, places } = grouped::moe_workspace(cx, x.shape(), k, gate_up.shape())?;
            let want = || grouped::moe(cx, x, routing, gate_up, down, activation);
            let nothing = || nans::<f16, 2>(cx, x.shape());
            let mut out = nothing()?;
            grouped::moe_into(cx, x, routing, gate_up, down, activation, &mut out)?;
            assert_eq!(read(&out)?, read(&want()?)?);
            let all = RefCell::new(Tensor::upload(cx.device(), &vec![i32::MIN; places], [places])?);
            let what = ("workspace.rows", rows, f16::NAN);
            check_workspace(cx, what, (want()?, read), nothing, |cx, rows, out| {
                let mut all = all.borrow_mut();
                let workspace = MoeWorkspace { rows, places: all.view_mut() };
                grouped::moe_into_with(cx, x, routing, gate_up, down, activation, out, workspace)
            })?;
            let all = RefCell::new(nans::<f16, 1>(cx, [rows])?);
            let what = ("workspace.places", places, i32::MAX);
            check_workspace(cx, what, (want()?, read), nothing, |cx, places, out| {
                let mut all = all.borrow_mut();
                let workspace = MoeWorkspace { rows: all.view_mut(), places };
                grouped::moe_into_with(cx, x, routing, gate_up, down, activation, out, workspace)
            })?;
        }
        Ok(())
    });
}

/// Room of garbage for a mixture of 8-bit floats.
struct Bytes {
    bytes: Tensor<F8E4M3, 1>,
    scales: Tensor<f32, 1>,
    rows: Tensor<bf16, 1>,
    places: Tensor<i32, 1>,
}

impl Bytes {
    fn new(cx: &Context, room: MoeFp8Room) -> Result<Bytes, Error> {
        Ok(Bytes {
            bytes: nans(cx, [room.bytes])?,
            scales: nans(cx, [room.scales])?,
            rows: nans(cx, [room.rows])?,
            places: Tensor::upload(cx.device(), &vec![i32::MIN; room.places], [room.places])?,
        })
    }

    fn views(&mut self) -> MoeFp8Workspace<'_, bf16> {
        MoeFp8Workspace {
            bytes: self.bytes.view_mut(),
            scales: self.scales.view_mut(),
            rows: self.rows.view_mut(),
            places: self.places.view_mut(),
        }
    }
}

#[test]
fn mixtures_of_8_bit_floats_within_a_workspace() {
    on_every_device(|cx| {
        for [tokens, k, experts, hidden, inner] in [[5, 2, 3, 144, 80], [9, 2, 4, 64, 136], [0, 2, 3, 16, 8]] {
            let mut random = Random::new(98);
            let (x, _) = &random.tensor::<bf16, 2>(cx, [tokens, hidden]);
            let (w1, _) = random.tensor::<F8E4M3, 3>(cx, [experts, hidden, 2 * inner]);
            let (w2, _) = random.tensor::<F8E4M3, 3>(cx, [experts, inner, hidden]);
            let blocks = |size: usize| size.div_ceil(BLOCK);
            let scales =
                |shape: [usize; 3]| Tensor::upload(cx.device(), &vec![0.1f32; shape.iter().product::<usize>()], shape);
            let scales1 = scales([experts, blocks(hidden), blocks(2 * inner)])?;
            let scales2 = scales([experts, blocks(inner), blocks(hidden)])?;
            let gate_up = Scaled { weights: w1.view(), scales: scales1.view() };
            let down = Scaled { weights: w2.view(), scales: scales2.view() };
            let (routing, activation) = (&routing(cx, [tokens, k], experts)?, Activation::Silu);
            let room = grouped::moe_fp8_workspace(cx, x.shape(), k, w1.shape())?;
            let want = || Ok::<_, Error>((grouped::moe_fp8(cx, x, routing, gate_up, down, activation)?, read));
            let nothing = || nans::<bf16, 2>(cx, x.shape());
            let mut out = nothing()?;
            grouped::moe_fp8_into(cx, x, routing, gate_up, down, activation, &mut out)?;
            assert_eq!(read(&out)?, read(&want()?.0)?);
            let all = RefCell::new(Bytes::new(cx, room)?);
            macro_rules! check {
                ($name:literal, $part:ident, $garbage:expr) => {
                    check_workspace(cx, ($name, room.$part, $garbage), want()?, nothing, |cx, $part, out| {
                        let mut all = all.borrow_mut();
                        let workspace = MoeFp8Workspace { $part, ..all.views() };
                        grouped::moe_fp8_into_with(cx, x, routing, gate_up, down, activation, out, workspace)
                    })?
                };
            }
            check!("workspace.bytes", bytes, F8E4M3::from_f32(f32::NAN));
            check!("workspace.scales", scales, f32::NAN);
            check!("workspace.rows", rows, bf16::NAN);
            check!("workspace.places", places, i32::MAX);
        }
        Ok(())
    });
}

#[test]
fn mixtures_that_cannot_be_counted_are_refused() {
    on_every_device(|cx| {
        for x in [[usize::MAX, 3], [1 << 40, 1 << 20], [3, 1 << 40]] {
            assert!(message(grouped::moe_workspace(cx, x, 2, [4, x[1], 8])).contains("has a dimension of"));
            assert!(message(grouped::moe_fp8_workspace(cx, x, 2, [4, x[1], 8])).contains("has a dimension of"));
        }
        let large = grouped::moe_workspace(cx, [1 << 29, 1 << 30], 1, [4, 1 << 30, 1 << 30])?;
        assert!(large.rows > 1 << 58);
        assert!(message(grouped::moe_workspace(cx, [3, 4], 2, [0, 4, 8])).starts_with("`chosen` of the shape [3, 2]"));
        let (x, routing) = (Tensor::<f16, 2>::zeros(cx.device(), [4, 16])?, routing(cx, [4, 2], 3)?);
        let w1 = Tensor::<f16, 3>::zeros(cx.device(), [3, 16, 16])?;
        let (w2, mut out) = (Tensor::zeros(cx.device(), [3, 8, 16])?, Tensor::zeros(cx.device(), [4, 15])?);
        let refused = message(grouped::moe_into(cx, &x, &routing, &w1, &w2, Activation::Silu, &mut out));
        assert_eq!(refused, "`out` has the shape [4, 15]; the other arguments ask for [4, 16]");
        Ok(())
    });
}
