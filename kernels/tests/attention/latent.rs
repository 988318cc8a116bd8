use super::reference::{Case, PLAIN, Reals, expected};
use super::serving::{PARTS, check_workspace, merging};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, LatentCache, MlaConfig};
use tilewright_kernels::{Context, Table, Tensor};

/// A case of latent attention.
#[derive(Clone, Copy)]
struct Latent {
    page: usize,
    heads: usize,
    queries: usize,
    lengths: [usize; 3],
    /// Elements of a latent vector, and those of position.
    sizes: [usize; 2],
    /// Elements of memory between tokens.
    gap: usize,
    /// The keys before its own that a query sees, and those behind it.
    window: Option<(usize, usize)>,
}

const LATENT: Latent =
    Latent { page: 16, heads: 3, queries: 1, lengths: [50, 3, 64], sizes: [32, 16], gap: 0, window: None };

/// A sequence's tokens are its keys, and their latent parts its values. Tokens are multiplied by what is said for their place in a
/// sequence.
fn check_latent<T: Real>(cx: &Context, case: &Latent, factor: impl Fn(usize) -> f64) -> Result<(), Error> {
    let &Latent { page, heads, queries, lengths, sizes: [rank, positions], gap, window } = case;
    let width = rank + positions;
    let most = lengths.into_iter().max().unwrap_or(0).div_ceil(page);
    let pages = lengths.len() * most;
    let mut random = Random::new(page as u64);
    let (_, mut reals) = random.tensor::<T, 3>(cx, [pages, page, width]);
    // The last page comes first.
    let place = |at: usize| (pages - 1 - at / (page * width)) % most * page + at / width % page;
    let elements: Vec<T> = (0..reals.len()).map(|at| T::of(reals[at] * factor(place(at)))).collect();
    reals = elements.iter().map(|element| element.real()).collect();
    let spread: Vec<T> =
        elements.chunks(width).flat_map(|token| token.iter().copied().chain(vec![T::of(0.0); gap])).collect();
    let tokens = Tensor::upload(cx.device(), &spread, [pages, page, width + gap])?;
    // Backwards.
    let numbers: Vec<i32> = (0..pages as i32).rev().collect();
    let table = Tensor::upload(cx.device(), &numbers, [lengths.len(), most])?;
    let on_device = Tensor::upload(cx.device(), &lengths.map(|length| length as i32), [lengths.len()])?;
    let (q, q_reals) = random.tensor::<T, 4>(cx, [lengths.len(), heads, queries, width]);
    let tokens = tokens.view().narrow(2, 0..width)?;
    let cache = LatentCache { tokens, table: table.view(), lengths: on_device.view(), rank };
    let options = Attention::default().scale(0.25).causal();
    let options = window.map_or(options, |(left, right)| options.window(left, right));
    let (out, lse) = attention::mla_decode(cx, &q, &cache, &options)?;
    let (out, lse) = (out.to_vec()?, lse.to_vec()?);
    for (sequence, length) in lengths.into_iter().enumerate() {
        let token = |key: usize| {
            let at = numbers[sequence * most + key / page] as usize * page + key % page;
            &reals[at * width..(at + 1) * width]
        };
        let k: Vec<f64> = (0..length).flat_map(|key| token(key).to_vec()).collect();
        let v: Vec<f64> = (0..length).flat_map(|key| token(key)[..rank].to_vec()).collect();
        let rows = heads * queries;
        let x = Reals { q: q_reals[sequence * rows * width..][..rows * width].to_vec(), k, v, bias: None };
        let shape = Case { batch: 1, heads, kv_heads: 1, queries, keys: length, d: width, dv: rank, ..PLAIN };
        let want = expected::<T>(&Case { causal: true, window, ..shape }, &x);
        let more = merging(&want.lse, &x.v);
        let got = &out[sequence * rows * rank..][..rows * rank];
        assert_close("latent", got, &want.out, |at, _| want.out_bounds[at] + more);
        let more = merging(&want.lse, &[1.0]);
        assert_close("lse", &lse[sequence * rows..][..rows], &want.lse, |at, _| want.lse_bounds[at] + more);
    }
    Ok(())
}

/// Scores that grow from block to block, at first by little, later by far more than weights may: what was summed is multiplied in
/// some blocks and not in others.
const RISING: fn(usize) -> f64 = |at| 0.5 + at as f64 / 24.0;
/// Scores of which the first are the largest.
const FALLING: fn(usize) -> f64 = |at| 12.0 / (1.0 + at as f64 / 16.0);

/// Sums that four warps cannot hold, which groups of warps share: with any number of blocks, from the first key and from others,
/// and of tokens that tensor copies cannot bring.
#[test]
fn latent_attention_of_512_elements() {
    on_every_device(|cx| {
        let large = Latent { page: 64, heads: 66, sizes: [512, 64], ..LATENT };
        check_latent::<f16>(cx, &Latent { lengths: [129, 1, 64], ..large }, |_| 1.0)?;
        check_latent::<bf16>(cx, &Latent { lengths: [0, 65, 200], window: Some((70, 0)), ..large }, |_| 1.0)?;
        check_latent::<f16>(cx, &Latent { lengths: [100, 128, 7], gap: 4, heads: 5, ..large }, |_| 1.0)?;
        for grows in [RISING, FALLING] {
            check_latent::<f16>(cx, &Latent { lengths: [448, 320, 10], queries: 2, heads: 16, ..large }, grows)?;
        }
        Ok(())
    });
}

#[test]
fn latent_attention() {
    on_every_device(|cx| {
        check_latent::<f16>(cx, &Latent { heads: 20, ..LATENT }, |_| 1.0)?;
        check_latent::<bf16>(cx, &Latent { page: 64, queries: 2, ..LATENT }, |_| 1.0)?;
        // Pages whose blocks are no multiple of what products take.
        check_latent::<f16>(cx, &Latent { page: 8, heads: 5, ..LATENT }, |_| 1.0)?;
        check_latent::<bf16>(cx, &Latent { page: 24, ..LATENT }, |_| 1.0)?;
        check_latent::<f32>(cx, &Latent { queries: 2, ..LATENT }, |_| 1.0)?;
        let long = Latent { lengths: [256, 170, 90], ..LATENT };
        for grows in [RISING, FALLING] {
            check_latent::<f16>(cx, &Latent { page: 64, heads: 20, ..long }, grows)?;
            check_latent::<bf16>(cx, &Latent { heads: 70, ..long }, grows)?;
            check_latent::<f32>(cx, &Latent { page: 32, ..long }, grows)?;
        }
        let q = Tensor::<f16, 4>::zeros(cx.device(), [1, 1, 1, 48])?;
        let (tokens, table) = (Tensor::zeros(cx.device(), [1, 16, 48])?, Tensor::zeros(cx.device(), [1, 1])?);
        let lengths = Tensor::zeros(cx.device(), [1])?;
        let cache = LatentCache { tokens: tokens.view(), table: table.view(), lengths: lengths.view(), rank: 32 };
        assert_eq!(
            message(attention::mla_decode(cx, &q, &cache, &Attention::default())),
            "the scale of attention is set to `nothing`; expected `Attention::scale`, 1 / sqrt(d) of heads before the absorption"
        );
        Ok(())
    });
}

/// A row for pages of 64 tokens serves calls with pages of 48, which blocks of 64 do not divide.
#[test]
fn rows_for_other_pages_serve_calls_whose_pages_they_divide() -> Result<(), Error> {
    let cx = Context::new(&Device::cpu());
    let q = Tensor::<f32, 4>::zeros(cx.device(), [1, 3, 1, 48])?;
    let (table, lengths) = (Tensor::zeros(cx.device(), [1, 1])?, Tensor::zeros(cx.device(), [1])?);
    let block_k = |cx: &Context, page: usize| {
        let tokens = Tensor::zeros(cx.device(), [1, page, 48])?;
        let cache = LatentCache { tokens: tokens.view(), table: table.view(), lengths: lengths.view(), rank: 32 };
        let (worked, asked) = cx.asked(|cx| attention::mla_decode_workspace(cx, &q, &cache));
        worked.map(|_| asked[0].config["block_k"])
    };
    let large = MlaConfig { block_heads: 16, block_k: 64, parts: 1, num_warps: 4, num_stages: 1 };
    let mut rows = Table::new();
    rows.insert(cx.device().name(), f32::ELEMENT, &[32, 3, 64], large);
    let by_table = cx.clone().with_table(rows);
    assert_eq!((block_k(&by_table, 64)?, block_k(&by_table, 48)?, block_k(&cx, 48)?), (64, 16, 16));
    // What is said for this very call is not replaced.
    let refused = message(block_k(&cx.with_config(large), 48));
    assert_eq!(refused, "block_k of attention_mla is set to `64`; expected a divisor of the page size, 48");
    Ok(())
}

#[test]
fn latent_attention_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(22);
        let (tokens, _) = random.tensor::<f16, 3>(cx, [6, 16, 48]);
        let (q, _) = &random.tensor::<f16, 4>(cx, [2, 5, 1, 48]);
        let table = Tensor::upload(cx.device(), &[4, 0, 2, 1, 5, 3], [2, 3])?;
        let lengths = Tensor::upload(cx.device(), &[48, 20], [2])?;
        let cache = &LatentCache { tokens: tokens.view(), table: table.view(), lengths: lengths.view(), rank: 32 };
        let options = &Attention::default().scale(0.25).causal();
        for parts in PARTS {
            let config = MlaConfig { block_heads: 64, block_k: 16, parts, num_warps: 8, num_stages: 2 };
            let cx = &cx.clone().with_config(config);
            let want = attention::mla_decode(cx, q, cache, options)?;
            let needs = attention::mla_decode_workspace(cx, q, cache)?;
            check_workspace(cx, parts, needs, want, |cx, (workspace, out, lse)| {
                attention::mla_decode_into(cx, q, cache, options, workspace, out, lse)
            })?;
        }
        Ok(())
    });
}
