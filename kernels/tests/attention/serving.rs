use super::reference::{Case, Inputs, PLAIN, Reals, expected};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, DecodeConfig, LatentCache, MlaConfig, PagedCache};
use tilewright_kernels::{Context, Table, Tensor, TensorView, TensorViewMut};

/// What merging may add to an error: a part is scaled by `exp2` of a logarithm, which is kept in f32, and summed in it.
pub(super) fn merging(lse: &[f64], v: &[f64]) -> f64 {
    let finite = lse.iter().filter(|x| x.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    16.0 * (finite + 2.0) * f32::ROUNDING * v.iter().fold(0.0, |a: f64, b| a.max(b.abs()))
}

fn check_decode<T: Real>(cx: &Context, case: Case, parts: usize) -> Result<(), Error> {
    let inputs = Inputs::<T>::new(cx, &case, 11);
    let want = expected::<T>(&case, &inputs.reals);
    let mut table = Table::new();
    let config = DecodeConfig { block_rows: 16, block_k: 16, parts, num_warps: 4, num_stages: 2 };
    let rows = case.queries * case.heads / case.kv_heads;
    table.insert(cx.device().name(), T::ELEMENT, &[case.d, rows, case.keys], config);
    let cx = &cx.clone().with_table(table);
    let (out, lse) = attention::decode(cx, &inputs.q, &inputs.k, &inputs.v, None, &case.options())?;
    let more = merging(&want.lse, &inputs.reals.v);
    assert_close(&format!("{case:?}"), &out.to_vec()?, &want.out, |at, _| want.out_bounds[at] + more);
    let more = merging(&want.lse, &[1.0]);
    assert_close(&format!("lse, {case:?}"), &lse.to_vec()?, &want.lse, |at, _| want.lse_bounds[at] + more);
    Ok(())
}

#[test]
fn decoding_in_parts() {
    on_every_device(|cx| {
        let one = Case { queries: 1, heads: 6, kv_heads: 2, keys: 150, ..PLAIN };
        for parts in [1, 2, 3, 16] {
            check_decode::<f16>(cx, one, parts)?;
        }
        check_decode::<bf16>(cx, Case { keys: 7, ..one }, 4)?;
        check_decode::<f32>(cx, Case { d: 40, dv: 24, ..one }, 3)?;
        check_decode::<f16>(cx, Case { queries: 3, causal: true, ..one }, 3)?;
        check_decode::<f16>(cx, Case { queries: 9, keys: 5, causal: true, ..one }, 2)?;
        check_decode::<f32>(cx, Case { queries: 2, window: Some((40, 0)), cap: Some(2.0), ..one }, 3)?;
        check_decode::<f64>(cx, Case { keys: 20, ..one }, 1)
    });
}

/// Results of parts are f32.
#[test]
fn decoding_of_f64_is_in_one_part() {
    on_every_device(|cx| {
        let case = Case { queries: 1, heads: 6, kv_heads: 2, keys: 150, ..PLAIN };
        let Inputs { q, k, v, reals, .. } = &Inputs::<f64>::new(cx, &case, 13);
        let want = expected::<f64>(&case, reals);
        let cx = &cx.clone().with_config(DecodeConfig {
            block_rows: 16,
            block_k: 16,
            parts: 3,
            num_warps: 4,
            num_stages: 2,
        });
        let (out, _) = attention::decode(cx, q, k, v, None, &case.options())?;
        assert_close("out", &out.to_vec()?, &want.out, |at, _| want.out_bounds[at]);
        assert_eq!(attention::decode_workspace(cx, q, k, v)?, 0);

        let (tokens, _) = &Random::new(14).tensor::<f64, 3>(cx, [3, 16, 48]);
        let (q, _) = &Random::new(15).tensor::<f64, 4>(cx, [1, 5, 1, 48]);
        let table = Tensor::upload(cx.device(), &[1, 0, 2], [1, 3])?;
        let lengths = Tensor::upload(cx.device(), &[48], [1])?;
        let cache = LatentCache { tokens: tokens.view(), table: table.view(), lengths: lengths.view(), rank: 32 };
        let config = MlaConfig { block_heads: 16, block_k: 16, parts: 3, num_warps: 4, num_stages: 1 };
        assert_eq!(attention::mla_decode_workspace(&cx.clone().with_config(config), q, &cache)?, 0);
        Ok(())
    });
}

/// The first `length` keys of each sequence.
#[test]
fn decoding_of_sequences_that_differ() {
    on_every_device(|cx| {
        let case = Case { batch: 3, queries: 2, keys: 70, causal: true, ..PLAIN };
        let inputs = Inputs::<f16>::new(cx, &case, 12);
        let lengths = [70, 0, 33];
        let on_device = Tensor::upload(cx.device(), &lengths.map(|length| length as i32), [3])?;
        let Inputs { q, k, v, reals, .. } = &inputs;
        let (out, lse) = attention::decode(cx, q, k, v, Some(on_device.view()), &case.options())?;
        let (out, lse) = (out.to_vec()?, lse.to_vec()?);
        for (sequence, length) in lengths.into_iter().enumerate() {
            let one = Case { batch: 1, keys: length, ..case };
            let part = |x: &[f64]| x[sequence * 70 * 16..][..length * 16].to_vec();
            let q = reals.q[sequence * 64..][..64].to_vec();
            let x = Reals { q, k: part(&reals.k), v: part(&reals.v), bias: None };
            let want = expected::<f16>(&one, &x);
            let more = merging(&want.lse, &x.v);
            let got = &out[sequence * 64..][..64];
            assert_close("out", got, &want.out, |at, _| want.out_bounds[at] + more);
            let more = merging(&want.lse, &[1.0]);
            assert_close("lse", &lse[sequence * 4..][..4], &want.lse, |at, _| want.lse_bounds[at] + more);
        }
        Ok(())
    });
}

/// Sequences in pages, scattered over a cache whose other elements are NaN.
struct Pages<K: DType> {
    k: Tensor<K, 4>,
    v: Tensor<K, 4>,
    table: Tensor<i32, 2>,
    lengths: Tensor<i32, 1>,
    /// Keys and values of each sequence, as heads.
    sequences: Vec<(Vec<f64>, Vec<f64>)>,
}

const KV_HEADS: usize = 2;
const D: usize = 16;

impl<K: DType> Pages<K> {
    fn new(
        cx: &Context,
        lengths: &[usize],
        [page, d]: [usize; 2],
        of: fn(f64) -> K,
        real: fn(K) -> f64,
    ) -> Result<Self, Error> {
        let most = lengths.iter().map(|length| length.div_ceil(page)).max().unwrap_or(0);
        let pages = lengths.iter().map(|length| length.div_ceil(page)).sum::<usize>() + 2;
        let mut random = Random::new(page as u64);
        let size = pages * page * KV_HEADS * d;
        let (mut k, mut v) = (vec![of(f64::NAN); size], vec![of(f64::NAN); size]);
        // Numbers that are no pages stand behind those of a sequence.
        let mut table = vec![-7; lengths.len() * most];
        let (mut free, mut sequences) = (pages - 1, vec![]);
        for (sequence, &length) in lengths.iter().enumerate() {
            let mut heads = (vec![0.0; KV_HEADS * length * d], vec![0.0; KV_HEADS * length * d]);
            for key in 0..length {
                if key % page == 0 {
                    table[sequence * most + key / page] = free as i32;
                    free -= 1;
                }
                let at = table[sequence * most + key / page] as usize * page + key % page;
                for (head, column) in (0..KV_HEADS).flat_map(|head| (0..d).map(move |column| (head, column))) {
                    let (to, from) = ((at * KV_HEADS + head) * d + column, (head * length + key) * d + column);
                    (k[to], v[to]) = (of(random.normal()), of(random.normal()));
                    (heads.0[from], heads.1[from]) = (real(k[to]), real(v[to]));
                }
            }
            sequences.push(heads);
        }
        let lengths: Vec<i32> = lengths.iter().map(|length| *length as i32).collect();
        Ok(Pages {
            k: Tensor::upload(cx.device(), &k, [pages, page, KV_HEADS, d])?,
            v: Tensor::upload(cx.device(), &v, [pages, page, KV_HEADS, d])?,
            table: Tensor::upload(cx.device(), &table, [lengths.len(), most])?,
            lengths: Tensor::upload(cx.device(), &lengths, [lengths.len()])?,
            sequences,
        })
    }

    fn cache(&self) -> PagedCache<'_, K> {
        let (k, v) = (self.k.view(), self.v.view());
        PagedCache { k, v, table: self.table.view(), lengths: self.lengths.view(), k_scale: None, v_scale: None }
    }
}

/// From f64 and back.
type Conversions<K> = (fn(f64) -> K, fn(K) -> f64);

const LENGTHS: [usize; 3] = [100, 16, 41];

/// Pages of `page` keys with heads of `d`. `scales` are those of keys and of values, for each head.
fn check_paged<T: Real, K: Float>(
    cx: &Context,
    [page, d]: [usize; 2],
    (of, real): Conversions<K>,
    scales: Option<([f32; KV_HEADS], [f32; 1])>,
) -> Result<(), Error> {
    let pages = Pages::new(cx, &LENGTHS, [page, d], of, real)?;
    let (queries, heads) = (2, 6);
    let (q, q_reals) = Random::new(5).tensor::<T, 4>(cx, [LENGTHS.len(), heads, queries, d]);
    let on_device = scales.map(|(k, v)| {
        let k = Tensor::upload(cx.device(), &k, [KV_HEADS]).unwrap();
        (k, Tensor::upload(cx.device(), &v, [1]).unwrap())
    });
    let cache = PagedCache {
        k_scale: on_device.as_ref().map(|scales| scales.0.view()),
        v_scale: on_device.as_ref().map(|scales| scales.1.view()),
        ..pages.cache()
    };
    let options = Attention::default().scale(0.25).causal();
    let (out, lse) = attention::paged_decode(cx, &q, &cache, &options)?;
    let (out, lse) = (out.to_vec()?, lse.to_vec()?);

    // The same queries, token after token.
    let mut tokens: Vec<T> = vec![];
    for sequence in 0..LENGTHS.len() {
        for (query, head) in (0..queries).flat_map(|query| (0..heads).map(move |head| (query, head))) {
            let at = ((sequence * heads + head) * queries + query) * d;
            tokens.extend(q_reals[at..at + d].iter().map(|x| T::of(*x)));
        }
    }
    let tokens = Tensor::upload(cx.device(), &tokens, [LENGTHS.len() * queries, heads, d])?;
    let starts = Tensor::upload(cx.device(), &[0, 2, 4, 6], [4])?;
    let (packed, packed_lse) = attention::paged_prefill(cx, &tokens, &starts, queries, &cache, &options)?;
    let mut alone = Tensor::zeros(cx.device(), packed.shape())?;
    attention::paged_prefill_into(cx, &tokens, &starts, queries, &cache, &options, &mut alone, None)?;
    assert!(alone.to_vec()? == packed.to_vec()?, "without lse");
    let packed = packed.view().permute([1, 0, 2])?.to_vec()?;
    let packed_lse = packed_lse.to_vec()?;

    for (sequence, (k, v)) in pages.sequences.iter().enumerate() {
        let keys = LENGTHS[sequence];
        let case = Case { batch: 1, heads, kv_heads: KV_HEADS, queries, keys, d, dv: d, causal: true, ..PLAIN };
        let (k_scale, v_scale) = scales.unwrap_or(([1.0; KV_HEADS], [1.0]));
        let scaled = k.iter().enumerate().map(|(at, x)| x * f64::from(k_scale[at / (keys * d)])).collect();
        let v: Vec<f64> = v.iter().map(|x| x * f64::from(v_scale[0])).collect();
        let rows = heads * queries;
        let x = Reals { q: q_reals[sequence * rows * d..][..rows * d].to_vec(), k: scaled, v, bias: None };
        let want = expected::<T>(&case, &x);
        let more = merging(&want.lse, &x.v);
        let got = &out[sequence * rows * d..][..rows * d];
        assert_close("paged", got, &want.out, |at, _| want.out_bounds[at] + more);
        let log_more = merging(&want.lse, &[1.0]);
        let got = &lse[sequence * rows..][..rows];
        assert_close("paged lse", got, &want.lse, |at, _| want.lse_bounds[at] + log_more);
        for head in 0..heads {
            let (from, to) = ((head * LENGTHS.len() + sequence) * queries, head * queries);
            let (got, wanted) = (&packed[from * d..][..queries * d], &want.out[to * d..][..queries * d]);
            assert_close("prefill", got, wanted, |at, _| want.out_bounds[to * d + at]);
            let (got, wanted) = (&packed_lse[from..][..queries], &want.lse[to..][..queries]);
            assert_close("prefill lse", got, wanted, |at, _| want.lse_bounds[to + at]);
        }
    }
    Ok(())
}

#[test]
fn caches_in_pages() {
    on_every_device(|cx| {
        check_paged::<f16, f16>(cx, [16, D], (f16::from_f64, f16::to_f64), None)?;
        check_paged::<bf16, bf16>(cx, [64, D], (bf16::from_f64, bf16::to_f64), None)?;
        check_paged::<f32, f32>(cx, [1, D], (|x| x as f32, f64::from), None)?;
        check_paged::<f16, f16>(cx, [24, D], (f16::from_f64, f16::to_f64), None)
    });
}

#[test]
fn caches_of_eight_bits_have_scales() {
    on_every_device(|cx| {
        let scales = Some(([0.5, 1.75], [3.0]));
        check_paged::<f16, F8E4M3>(cx, [16, D], (F8E4M3::from_f64, F8E4M3::to_f64), scales)?;
        check_paged::<bf16, F8E5M2>(cx, [64, D], (F8E5M2::from_f64, F8E5M2::to_f64), scales)?;
        // Of keys that are zeros, and of such that vanish.
        let scales = Some(([0.0, 1e-42], [3.0]));
        check_paged::<f16, F8E4M3>(cx, [16, D], (F8E4M3::from_f64, F8E4M3::to_f64), scales)
    });
}

/// Keys of heads that are a multiple of 64, or become one in blocks, are multiplied in another order than those of others, and
/// of queries of other widths.
#[test]
fn heads_of_eight_bits_have_any_size() {
    on_every_device(|cx| {
        let scales = Some(([0.5, 1.75], [3.0]));
        for d in [64, 128, 40, 24] {
            check_paged::<f16, F8E4M3>(cx, [16, d], (F8E4M3::from_f64, F8E4M3::to_f64), scales)?;
        }
        check_paged::<bf16, F8E5M2>(cx, [24, 128], (F8E5M2::from_f64, F8E5M2::to_f64), scales)?;
        check_paged::<f32, F8E4M3>(cx, [16, 64], (F8E4M3::from_f64, F8E4M3::to_f64), scales)
    });
}

/// Attention over parts of the keys, merged, is attention over all of them.
#[test]
fn states_merge() {
    on_every_device(|cx| {
        let case = Case { keys: 50, ..PLAIN };
        let inputs = Inputs::<f32>::new(cx, &case, 8);
        let want = expected::<f32>(&case, &inputs.reals);
        let part = |range: std::ops::Range<usize>| {
            let (k, v) = (inputs.k.view().narrow(2, range.clone())?, inputs.v.view().narrow(2, range)?);
            attention::forward(cx, &inputs.q, k, v, &case.options())
        };
        let (a, b, mut none) = (part(0..13)?, part(13..50)?, part(0..0)?);
        // What nobody has seen does not matter.
        none.0 = Tensor::upload(cx.device(), &vec![f32::NAN; none.0.len()], none.0.shape())?;
        let more = merging(&want.lse, &inputs.reals.v);
        let pair = attention::merge_states(cx, (&a.0, &a.1), (&b.0, &b.1))?;
        let again = attention::merge_states(cx, (&none.0, &none.1), (&pair.0, &pair.1))?;
        for (out, lse) in [&pair, &again] {
            assert_close("merged", &out.to_vec()?, &want.out, |at, _| want.out_bounds[at] + more);
            let more = merging(&want.lse, &[1.0]);
            assert_close("lse", &lse.to_vec()?, &want.lse, |at, _| want.lse_bounds[at] + more);
        }
        let outs = [none.0.to_vec()?, a.0.to_vec()?, b.0.to_vec()?].concat();
        let lses = [none.1.to_vec()?, a.1.to_vec()?, b.1.to_vec()?].concat();
        let [batch, heads, queries, d] = a.0.shape();
        let outs = Tensor::upload(cx.device(), &outs, [3, batch, heads, queries, d])?;
        let lses = Tensor::upload(cx.device(), &lses, [3, batch, heads, queries])?;
        let (out, _) = attention::merge::<f32, f32>(cx, &outs, &lses)?;
        assert_close("stacked", &out.to_vec()?, &want.out, |at, _| want.out_bounds[at] + more);
        let nothing = attention::merge_states(cx, (&none.0, &none.1), (&none.0, &none.1))?;
        assert!(nothing.0.to_vec()?.iter().all(|x| *x == 0.0));
        assert!(nothing.1.to_vec()?.iter().all(|x| *x == f32::NEG_INFINITY));
        Ok(())
    });
}

/// Without elements of heads their logarithms are merged all the same.
#[test]
fn states_of_heads_without_elements_merge() {
    on_every_device(|cx| {
        let (outs, lses) = (Tensor::<f32, 5>::zeros(cx.device(), [2, 1, 1, 3, 0])?, [0.5, -1.0, 2.0, 0.5, 1.0, -2.0]);
        let lses = Tensor::upload(cx.device(), &lses, [2, 1, 1, 3])?;
        let want = [0.5 + 2.0f64.ln(), (f64::exp(-1.0) + f64::exp(1.0)).ln(), (f64::exp(2.0) + f64::exp(-2.0)).ln()];
        let mut out = Tensor::<f32, 4>::zeros(cx.device(), [1, 1, 3, 0])?;
        let more = merging(&want, &[1.0]);
        // What is there before does not count.
        let mut lse = Tensor::upload(cx.device(), &[7.0; 3], [1, 1, 3])?;
        attention::merge_into(cx, &outs, &lses, &mut out, Some(lse.view_mut()))?;
        assert_close("merge", &lse.to_vec()?, &want, |_, _| more);
        let part = |at| Ok::<_, Error>((outs.view().select::<4>(0, at)?, lses.view().select::<3>(0, at)?));
        let mut lse = Tensor::upload(cx.device(), &[7.0; 3], [1, 1, 3])?;
        attention::merge_states_into(cx, part(0)?, part(1)?, &mut out, &mut lse)?;
        assert_close("merge_states", &lse.to_vec()?, &want, |_, _| more);
        Ok(())
    });
}

/// The workspace and the results of decoding, with or without logarithms of sums.
pub(super) type Given<'a, T> = (TensorViewMut<'a, f32, 1>, TensorViewMut<'a, T, 4>, Option<TensorViewMut<'a, f32, 3>>);

/// Checks that `run` decodes in so many parts as the form that allocates has done, within a workspace of the size that it
/// `needs`: no other memory, as a capture refuses allocations, and no launch where the workspace does not do.
pub(super) fn check_workspace<T: Real>(
    cx: &Context,
    parts: usize,
    needs: usize,
    (want, want_lse): (Tensor<T, 4>, Tensor<f32, 3>),
    run: impl Fn(&Context, Given<'_, T>) -> Result<(), Error>,
) -> Result<(), Error> {
    let [batch, heads, queries, dv] = want.shape();
    assert_eq!(needs, if parts > 1 { parts * batch * heads * queries * (dv + 1) } else { 0 });
    let bits =
        |x: TensorView<'_, T, 4>| Ok::<_, Error>(x.to_vec()?.iter().map(|x| x.real().to_bits()).collect::<Vec<_>>());
    let lse_bits = |x: &Tensor<f32, 3>| Ok::<_, Error>(x.to_vec()?.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    let nothing = Tensor::<T, 4>::zeros(cx.device(), want.shape())?;
    let mut out = Tensor::<T, 4>::zeros(cx.device(), want.shape())?;
    let mut lse = Tensor::<f32, 3>::zeros(cx.device(), want_lse.shape())?;

    let mut gaps = Tensor::<f32, 2>::zeros(cx.device(), [needs.max(2), 2])?;
    let refused = run(cx, (gaps.view_mut().select(1, 0)?, out.view_mut(), Some(lse.view_mut())));
    assert_eq!(message(refused), "`workspace` is not contiguous; give a tensor without gaps");
    if parts > 1 {
        let mut small = Tensor::<f32, 1>::zeros(cx.device(), [needs - 1])?;
        let refused = run(cx, (small.view_mut(), out.view_mut(), None));
        let wanted = format!("`workspace` has {} elements; the results of {parts} parts need {needs}", needs - 1);
        assert_eq!(message(refused), wanted);
    }
    assert_eq!(bits(out.view())?, bits(nothing.view())?);

    for (more, has_lse) in [(0, true), (5, true), (0, false)] {
        let mut workspace = Tensor::upload(cx.device(), &vec![f32::NAN; needs + more], [needs + more])?;
        let stream = cx.device().new_stream()?;
        let graph = stream.capture(|stream| {
            let cx = cx.clone().with_stream(stream);
            run(&cx, (workspace.view_mut(), out.view_mut(), has_lse.then(|| lse.view_mut())))
        })?;
        assert_eq!(graph.len(), if parts > 1 { 2 } else { 1 });
        graph.replay()?;
        assert_eq!(bits(out.view())?, bits(want.view())?);
        let logarithms = if has_lse { &want_lse } else { &Tensor::zeros(cx.device(), want_lse.shape())? };
        assert_eq!(lse_bits(&lse)?, lse_bits(logarithms)?);
        assert!(workspace.to_vec()?[needs..].iter().all(|x| x.is_nan()), "what is not needed is not written");
        out = Tensor::zeros(cx.device(), want.shape())?;
        lse = Tensor::zeros(cx.device(), want_lse.shape())?;
    }
    Ok(())
}

pub(super) const PARTS: [usize; 2] = [1, 3];

#[test]
fn decoding_within_a_workspace() {
    on_every_device(|cx| {
        let case = Case { queries: 2, heads: 6, kv_heads: 2, keys: 70, dv: 24, causal: true, ..PLAIN };
        let Inputs { q, k, v, .. } = &Inputs::<f16>::new(cx, &case, 21);
        let lengths = &Tensor::upload(cx.device(), &[70, 33], [2])?;
        let options = &case.options();
        for parts in PARTS {
            let config = DecodeConfig { block_rows: 16, block_k: 16, parts, num_warps: 4, num_stages: 2 };
            let cx = &cx.clone().with_config(config);
            let want = attention::decode(cx, q, k, v, Some(lengths.view()), options)?;
            let needs = attention::decode_workspace(cx, q, k, v)?;
            check_workspace(cx, parts, needs, want, |cx, (workspace, out, lse)| {
                attention::decode_into(cx, q, k, v, Some(lengths.view()), options, workspace, out, lse)
            })?;
        }
        // Without queries there are no parts.
        let none = q.view().narrow(2, 0..0)?;
        assert_eq!(attention::decode_workspace(cx, none, k, v)?, 0);
        assert_eq!(attention::decode(cx, none, k, v, None, options)?.0.shape(), [2, 6, 0, 24]);
        Ok(())
    });
}

#[test]
fn decoding_over_pages_within_a_workspace() {
    fn check<K: Float>(cx: &Context, (of, real): Conversions<K>) -> Result<(), Error> {
        let pages = Pages::new(cx, &LENGTHS, [16, D], of, real)?;
        let (q, _) = &Random::new(6).tensor::<bf16, 4>(cx, [LENGTHS.len(), 4, 1, D]);
        let (cache, options) = (&pages.cache(), &Attention::default().causal());
        for parts in PARTS {
            let config = DecodeConfig { block_rows: 16, block_k: 16, parts, num_warps: 4, num_stages: 2 };
            let cx = &cx.clone().with_config(config);
            let want = attention::paged_decode(cx, q, cache, options)?;
            let needs = attention::paged_decode_workspace(cx, q, cache)?;
            check_workspace(cx, parts, needs, want, |cx, (workspace, out, lse)| {
                attention::paged_decode_into(cx, q, cache, options, workspace, out, lse)
            })?;
        }
        Ok(())
    }
    on_every_device(|cx| {
        check::<bf16>(cx, (bf16::from_f64, bf16::to_f64))?;
        check::<F8E4M3>(cx, (F8E4M3::from_f64, F8E4M3::to_f64))
    });
}

#[test]
fn caches_refuse_what_does_not_fit() {
    on_every_device(|cx| {
        let pages = Pages::<f32>::new(cx, &LENGTHS, [16, D], |x| x as f32, f64::from)?;
        let q = Tensor::<f32, 4>::zeros(cx.device(), [2, 6, 1, D])?;
        let refused = |q: &Tensor<f32, 4>, cache: &PagedCache<'_, f32>| {
            message(attention::paged_decode(cx, q, cache, &Attention::default()))
        };
        assert_eq!(
            refused(&q, &pages.cache()),
            "`q` has the shape [2, 6, 1, 16]; the other arguments ask for [3, 6, 1, 16]"
        );
        let q = Tensor::<f32, 4>::zeros(cx.device(), [3, 5, 1, D])?;
        assert_eq!(refused(&q, &pages.cache()), "`k` has 2 heads; the 5 heads of `q` must be a multiple of them");
        let scales = Tensor::<f32, 1>::zeros(cx.device(), [3])?;
        let cache = PagedCache { k_scale: Some(scales.view()), ..pages.cache() };
        assert_eq!(refused(&q, &cache), "`k_scale` has the shape [3]; the other arguments ask for [2]");
        Ok(())
    });
}
