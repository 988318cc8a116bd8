use super::{UNIT, lost, lost_of_bytes, product};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::products::Activation;
use tilewright_kernels::products::fp8::{self, BLOCK};
use tilewright_kernels::products::grouped::{self, GroupedConfig, Groups, Routing, Scaled};
use tilewright_kernels::{Context, Tensor, general};

fn softmax(row: &[f64]) -> Vec<f64> {
    let peak = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|x| (x - peak).exp()).collect();
    let total: f64 = exps.iter().sum();
    exps.iter().map(|x| x / total).collect()
}

#[test]
fn routing_takes_the_likeliest() {
    on_every_device(|cx| {
        for ([tokens, experts], k) in [([1, 1], 1), ([37, 8], 2), ([5, 60], 6), ([3, 256], 8)] {
            let (logits, reals) = Random::new(experts as u64).tensor::<bf16, 2>(cx, [tokens, experts]);
            for normalise in [false, true] {
                let Routing { weights, experts: chosen } = grouped::route(cx, &logits, k, normalise)?;
                let (weights, chosen) = (weights.to_vec()?, chosen.to_vec()?);
                for (token, row) in reals.chunks(experts).enumerate() {
                    let mut order: Vec<usize> = (0..experts).collect();
                    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
                    let (likely, own) = (softmax(row), &chosen[token * k..][..k]);
                    let expected: Vec<i32> = order[..k].iter().map(|expert| *expert as i32).collect();
                    assert_eq!(own, expected, "token {token} of {tokens} x {experts}");
                    let total = if normalise { order[..k].iter().map(|e| likely[*e]).sum() } else { 1.0 };
                    let want: Vec<f64> = order[..k].iter().map(|e| likely[*e] / total).collect();
                    // Exponentials of arguments below 16, sums of up to 256, two quotients.
                    let bound = |_, want: f64| want * UNIT * (2.0 * (2.0 * 18.0 + 16.0) + 8.0);
                    assert_close("weights", &weights[token * k..][..k], &want, bound);
                }
            }
        }
        Ok(())
    });
}

/// f8e4m3 has no infinity that could stand behind the last expert.
#[test]
fn routing_of_the_smallest_bytes() {
    on_every_device(|cx| {
        let logits = Tensor::upload(cx.device(), &[F8E4M3::from_f64(-448.0); 5], [1, 5])?;
        let Routing { weights, experts } = grouped::route(cx, &logits, 2, false)?;
        assert_close("weights", &weights.to_vec()?, &[0.2; 2], |_, want| want * UNIT * 64.0);
        assert_eq!(experts.to_vec()?, [0, 1]);
        Ok(())
    });
}

/// Choices of distinct experts, the last expert never.
fn choices(random: &mut Random, tokens: usize, k: usize, experts: usize) -> Vec<i32> {
    let mut all = Vec::new();
    for _ in 0..tokens {
        let mut own = Vec::new();
        while own.len() < k {
            let expert = random.below(experts.max(k + 1) - 1) as i32;
            if !own.contains(&expert) {
                own.push(expert);
            }
        }
        all.extend(own);
    }
    all
}

#[test]
fn groups_keep_the_order_of_each_experts_pairs() {
    on_every_device(|cx| {
        for (tokens, k, experts, block) in [(1, 1, 2, 16), (150, 2, 7, 16), (40, 4, 64, 32), (700, 1, 3, 64)] {
            let chosen = choices(&mut Random::new(1), tokens, k, experts);
            let tensor = Tensor::upload(cx.device(), &chosen, [tokens, k])?;
            let groups = Groups::with_block(cx, &tensor, experts, block)?;
            let (mut want, mut rows) = (Vec::new(), vec![0; tokens * k]);
            for expert in 0..experts as i32 {
                for (pair, _) in chosen.iter().enumerate().filter(|(_, own)| **own == expert) {
                    rows[pair] = want.len() as i32;
                    want.push(pair as i32);
                }
                want.resize(want.len().next_multiple_of(block), -1);
            }
            assert!(want.len() <= groups.height(), "{} rows of {}", want.len(), groups.height());
            want.resize(groups.height(), -1);
            assert_eq!(groups.pairs().to_vec()?, want, "{tokens} tokens, {experts} experts");
            assert_eq!(groups.rows().to_vec()?, rows);
        }
        let none = Groups::new(cx, &Tensor::<i32, 2>::zeros(cx.device(), [0, 2])?, 4)?;
        assert_eq!(none.height(), 0);
        let strangers = Tensor::upload(cx.device(), &[-1, 5, 4, 0], [2, 2])?;
        let groups = Groups::new(cx, &strangers, 4)?;
        assert_eq!(groups.rows().to_vec()?, [-1, -1, -1, 0], "numbers that are no expert's are left out");
        Ok(())
    });
}

/// A mixture and what it should be.
struct Case<F: DType> {
    x: Tensor<F, 2>,
    xs: Vec<f64>,
    routing: Routing,
    weights: Vec<f32>,
    chosen: Vec<i32>,
    sizes: [usize; 5],
}

fn case<F: Real>(cx: &Context, sizes: [usize; 5]) -> Result<Case<F>, Error> {
    let [tokens, k, experts, hidden, _] = sizes;
    let mut random = Random::new(2);
    let (x, xs) = random.tensor::<F, 2>(cx, [tokens, hidden]);
    let chosen = choices(&mut random, tokens, k, experts);
    let weights: Vec<f32> = (0..tokens * k).map(|_| random.uniform() as f32).collect();
    let routing = Routing {
        weights: Tensor::upload(cx.device(), &weights, [tokens, k])?,
        experts: Tensor::upload(cx.device(), &chosen, [tokens, k])?,
    };
    Ok(Case { x, xs, routing, weights, chosen, sizes })
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

impl<F: Real> Case<F> {
    /// What the mixture gives, and how far off it may be, if sums lose `loss` and rows and activations are rounded by `rounding`.
    fn expected(&self, w1: &[f64], w2: &[f64], loss: impl Fn(usize) -> f64, rounding: f64) -> (Vec<f64>, Vec<f64>) {
        let [tokens, k, _, hidden, inner] = self.sizes;
        let (mut want, mut bound) = (vec![0.0; tokens * hidden], vec![0.0; tokens * hidden]);
        for (pair, expert) in self.chosen.iter().enumerate() {
            let (token, expert) = (pair / k, *expert as usize);
            let x = &self.xs[token * hidden..][..hidden];
            let both = product(x, &w1[expert * hidden * 2 * inner..][..hidden * 2 * inner], [1, 2 * inner, hidden]);
            let (mut h, mut off) = (vec![0.0; inner], vec![0.0; inner]);
            for j in 0..inner {
                let (gate, up) = (both.sums[j], both.sums[inner + j]);
                let slip = |at: usize| both.sizes[at] * (loss(hidden) + rounding) + both.sums[at].abs() * F::ROUNDING;
                let (gate_off, up_off) = (slip(j), slip(inner + j));
                h[j] = silu(gate) * up;
                // silu is no steeper than 1.1 and within 32 units of its argument.
                let gate_off = 1.1 * gate_off + 32.0 * UNIT * gate.abs();
                off[j] = gate_off * up.abs() + (silu(gate).abs() + gate_off) * up_off;
                off[j] += (h[j].abs() + off[j]) * (F::ROUNDING + rounding) + F::TINY;
            }
            let down = &w2[expert * inner * hidden..][..inner * hidden];
            let (y, errors) = (product(&h, down, [1, hidden, inner]), product(&off, down, [1, hidden, inner]));
            for j in 0..hidden {
                let weight = f64::from(self.weights[pair]);
                want[token * hidden + j] += weight * y.sums[j];
                let off = (y.sizes[j] + errors.sizes[j]) * loss(inner) + errors.sizes[j];
                let off = off + (y.sums[j].abs() + off) * (F::ROUNDING + 4.0 * UNIT * k as f64);
                bound[token * hidden + j] += weight * off;
            }
        }
        (want, bound)
    }
}

/// Tokens, choices, experts, hidden and inner dimensions.
const SIZES: [[usize; 5]; 3] = [[1, 1, 2, 16, 8], [30, 2, 5, 40, 24], [9, 3, 8, 72, 48]];

fn check_moe<F: Real>(cx: &Context) -> Result<(), Error> {
    for sizes in SIZES {
        let [_, _, experts, hidden, inner] = sizes;
        let case = case::<F>(cx, sizes)?;
        let mut random = Random::new(3);
        let (w1, w1s) = random.tensor::<F, 3>(cx, [experts, hidden, 2 * inner]);
        let (w2, w2s) = random.tensor::<F, 3>(cx, [experts, inner, hidden]);
        let (want, bound) = case.expected(&w1s, &w2s, lost, 0.0);
        let y = grouped::moe(cx, &case.x, &case.routing, &w1, &w2, Activation::Silu)?;
        assert_close(&format!("{sizes:?}"), &y.to_vec()?, &want, |at, _| bound[at]);
        // As weights are usually stored.
        let w1 = general::contiguous(cx, w1.view().transpose(1, 2)?)?;
        let w2 = general::contiguous(cx, w2.view().transpose(1, 2)?)?;
        let (w1, w2) = (w1.view().transpose(1, 2)?, w2.view().transpose(1, 2)?);
        let y = grouped::moe(cx, &case.x, &case.routing, w1, w2, Activation::Silu)?;
        assert_close(&format!("{sizes:?}, transposed"), &y.to_vec()?, &want, |at, _| bound[at]);
    }
    Ok(())
}

#[test]
fn mixtures_of_f16_and_bf16() {
    on_every_device(|cx| {
        check_moe::<f16>(cx)?;
        check_moe::<bf16>(cx)
    });
}

/// Weights as 8-bit floats, and what they stand for.
struct Bytes {
    weights: Tensor<F8E4M3, 3>,
    scales: Tensor<f32, 3>,
    reals: Vec<f64>,
}

impl Bytes {
    fn scaled(&self) -> Scaled<'_> {
        Scaled { weights: self.weights.view(), scales: self.scales.view() }
    }
}

fn bytes(cx: &Context, random: &mut Random, [experts, k, n]: [usize; 3]) -> Result<Bytes, Error> {
    let (down, across) = (k.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let elements: Vec<F8E4M3> = (0..experts * k * n).map(|_| F8E4M3::from_f64(random.normal() * 8.0)).collect();
    let scales: Vec<f32> = (0..experts * down * across).map(|_| 0.1 * (0.5 + random.uniform() as f32)).collect();
    let scale = |at: usize| {
        let (expert, i, j) = (at / (k * n), at / n % k, at % n);
        f64::from(scales[(expert * down + i / BLOCK) * across + j / BLOCK])
    };
    Ok(Bytes {
        reals: elements.iter().enumerate().map(|(at, x)| x.to_f64() * scale(at)).collect(),
        weights: Tensor::upload(cx.device(), &elements, [experts, k, n])?,
        scales: Tensor::upload(cx.device(), &scales, [experts, down, across])?,
    })
}

#[test]
fn mixtures_of_8_bit_floats() {
    on_every_device(|cx| {
        for sizes in [[5, 2, 3, 144, 80], [20, 2, 4, 64, 136]] {
            let [_, _, experts, hidden, inner] = sizes;
            let case = case::<bf16>(cx, sizes)?;
            let mut random = Random::new(4);
            let w1 = bytes(cx, &mut random, [experts, hidden, 2 * inner])?;
            let w2 = bytes(cx, &mut random, [experts, inner, hidden])?;
            let y = grouped::moe_fp8(cx, &case.x, &case.routing, w1.scaled(), w2.scaled(), Activation::Silu)?;
            // An 8-bit float is within 2^-4 of what it stands for, or 2^-10 of 2^-6 of the largest of its block.
            let (want, bound) = case.expected(&w1.reals, &w2.reals, lost_of_bytes, 1.0 / 16.0);
            assert_close(&format!("{sizes:?}"), &y.to_vec()?, &want, |at, _| bound[at]);
        }
        Ok(())
    });
}

/// Without the rounding of rows and activations that hides what products with scales lose.
#[test]
fn products_of_experts_with_scales() {
    on_every_device(|cx| {
        let [tokens, k, experts, hidden, n] = [20, 2, 3, 200, 144];
        let mut random = Random::new(5);
        let w = bytes(cx, &mut random, [experts, hidden, n])?;
        let chosen = choices(&mut random, tokens, k, experts);
        let groups = Groups::new(cx, &Tensor::upload(cx.device(), &chosen, [tokens, k])?, experts)?;
        let (x, _) = random.tensor::<f32, 2>(cx, [tokens, hidden]);
        let (quantised, scales) = fp8::quantise_blocks(cx, &x)?;
        let (numbers, factors) = (quantised.to_vec()?, scales.to_vec()?);
        let (rows, row_scales) = (grouped::gather(cx, &quantised, &groups)?, grouped::gather(cx, &scales, &groups)?);
        let scaled = w.scaled();
        let y: Tensor<f32, 2> = grouped::matmul_blocks(cx, &rows, &row_scales, scaled, &groups)?;
        let (y, places) = (y.to_vec()?, groups.rows().to_vec()?);
        let blocks = hidden.div_ceil(BLOCK);
        for (pair, expert) in chosen.iter().enumerate() {
            let token = pair / k;
            let x: Vec<f64> = (0..hidden)
                .map(|i| numbers[token * hidden + i].to_f64() * f64::from(factors[token * blocks + i / BLOCK]))
                .collect();
            let want = product(&x, &w.reals[*expert as usize * hidden * n..][..hidden * n], [1, n, hidden]);
            let got = &y[places[pair] as usize * n..][..n];
            let loss = lost_of_bytes(BLOCK) + 8.0 * UNIT;
            assert_close("row", got, &want.sums, |at, _| want.sizes[at] * loss);
        }
        Ok(())
    });
}

/// Both gradients of a product of experts are sums over the pairs of each.
#[test]
fn gradients_of_products_of_experts() {
    on_every_device(|cx| {
        check_gradients(cx, 32)?;
        // Steps of more rows than a block has, which are those of the next expert.
        let config = GroupedConfig { bn: 32, bk: 64, group: 8, num_warps: 4, num_stages: 2 };
        check_gradients(&cx.clone().with_config(config), 16)
    });
}

fn check_gradients(cx: &Context, block: usize) -> Result<(), Error> {
    let [tokens, k, experts, hidden, n] = [45, 2, 4, 24, 40];
    let mut random = Random::new(6);
    let chosen = choices(&mut random, tokens, k, experts);
    let groups = Groups::with_block(cx, &Tensor::upload(cx.device(), &chosen, [tokens, k])?, experts, block)?;
    let ((x, xs), (dy, dys)) =
        (random.tensor::<f16, 2>(cx, [tokens, hidden]), random.tensor::<f16, 2>(cx, [tokens, n]));
    let (w, ws) = random.tensor::<f16, 3>(cx, [experts, hidden, n]);
    let (x_rows, dy_rows) = (grouped::gather(cx, &x, &groups)?, grouped::gather(cx, &dy, &groups)?);
    let dw: Tensor<f32, 3> = grouped::weights_gradient(cx, &x_rows, &dy_rows, &groups)?;
    let (mut want, mut sizes) = (vec![0.0; experts * hidden * n], vec![0.0; experts * hidden * n]);
    for (pair, expert) in chosen.iter().enumerate() {
        for (at, (i, j)) in (0..hidden).flat_map(|i| (0..n).map(move |j| (i, j))).enumerate() {
            let term = xs[pair / k * hidden + i] * dys[pair / k * n + j];
            want[*expert as usize * hidden * n + at] += term;
            sizes[*expert as usize * hidden * n + at] += term.abs();
        }
    }
    assert_close("weights", &dw.to_vec()?, &want, |at, _| sizes[at] * lost(tokens * k));
    let dx: Tensor<f16, 2> = grouped::matmul(cx, &dy_rows, w.view().transpose(1, 2)?, &groups)?;
    let (dx, places) = (dx.to_vec()?, groups.rows().to_vec()?);
    for (pair, expert) in chosen.iter().enumerate() {
        let own = &ws[*expert as usize * hidden * n..][..hidden * n];
        let turned: Vec<f64> = (0..hidden * n).map(|at| own[at % hidden * n + at / hidden]).collect();
        let want = product(&dys[pair / k * n..][..n], &turned, [1, hidden, n]);
        let got = &dx[places[pair] as usize * hidden..][..hidden];
        assert_close("rows", got, &want.sums, |at, _| want.sizes[at] * lost(n));
    }
    Ok(())
}

#[test]
fn mixtures_that_do_not_fit_are_refused() {
    on_every_device(|cx| {
        let case = case::<f16>(cx, [4, 2, 3, 16, 8])?;
        let (w1, w2) = (Tensor::zeros(cx.device(), [3, 16, 16])?, Tensor::zeros(cx.device(), [3, 9, 16])?);
        assert_eq!(
            message(grouped::moe(cx, &case.x, &case.routing, &w1, &w2, Activation::Silu)),
            "`down` has the shape [3, 9, 16]; the other arguments ask for [3, 8, 16]"
        );
        let logits = Tensor::<f32, 2>::zeros(cx.device(), [2, 3])?;
        assert_eq!(
            message(grouped::route(cx, &logits, 4, false)),
            "`logits` has 3 experts, of which 4 are chosen; choose no more than there are, of at most 1024"
        );
        Ok(())
    });
}
