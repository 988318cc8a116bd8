//! Attention of one new token for each of many sequences, over caches in pages.

use crate::families::frame::{Library, Row, address, size, tensor, triton};
use std::ops::Range;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::attention::{self, Attention, DecodeConfig, LatentCache, MlaConfig, PagedCache};
use tilewright_kernels::{Tensor, TensorViewMut};

/// Sequences and tokens of each in the cache.
#[derive(Clone, Copy)]
struct Size {
    sequences: usize,
    tokens: usize,
    page: usize,
}

impl Size {
    fn of(stage: &Stage, page: usize) -> Size {
        let full = Size { sequences: 64, tokens: 8192, page };
        stage.either(full, Size { sequences: 2, tokens: 96, page })
    }

    /// Pages of a sequence.
    fn pages(self) -> usize {
        self.tokens.div_ceil(self.page)
    }

    fn all_pages(self) -> usize {
        self.sequences * self.pages()
    }

    /// The pages of each sequence, in no order: a step that divides no power of two visits each page once.
    fn table(self) -> Vec<i32> {
        let all = self.all_pages();
        (0..all).map(|i| ((i * 7919 + 13) % all) as i32).collect()
    }

    /// The tokens of a sequence in a cache of `width` elements for each: those of a range.
    fn tokens<T: Element>(
        self,
        cache: &Input<T>,
        table: &[i32],
        sequence: usize,
        (width, range): (usize, Range<usize>),
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let mut tokens = Vec::new();
        for page in &table[sequence * self.pages()..(sequence + 1) * self.pages()] {
            let page = cache.read(*page as usize * self.page * width, self.page * width)?;
            tokens.extend(page.chunks(width).map(|token| token[range.clone()].to_vec()));
        }
        tokens.truncate(self.tokens);
        Ok(tokens)
    }
}

/// The sum of values, weighted by the softmax of a query's products with keys.
pub fn attend(query: &[f64], keys: &[Vec<f64>], scale: f64, values: &[Vec<f64>]) -> Vec<f64> {
    let product = |key: &Vec<f64>| key.iter().zip(query).map(|(k, q)| k * q).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(product).collect();
    let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|s| (s - peak).exp()).sum();
    let mut out = vec![0.0; values[0].len()];
    for (score, value) in scores.iter().zip(values) {
        let weight = (score - peak).exp() / total;
        out.iter_mut().zip(value).for_each(|(out, v)| *out += weight * v);
    }
    out
}

const KV_HEADS: usize = 8;
const GROUP: usize = 8;
const D: usize = 128;

pub fn paged_decode(stage: &mut Stage) -> Result<(), Failure> {
    for page in [16, 64] {
        paged::<f16>(stage, page)?;
        paged::<F8E4M3>(stage, page)?;
    }
    Ok(())
}

/// The results of a few heads.
fn paged_results<K: Element>(
    sizes: Size,
    table: &[i32],
    q: &Input<f16>,
    [k, v]: [&Input<K>; 2],
) -> Result<Vec<Segment>, Failure> {
    let mut expected = Vec::new();
    for (sequence, head) in [(0, 0), (sizes.sequences - 1, KV_HEADS * GROUP - 3)] {
        let at = (sequence * KV_HEADS * GROUP + head) * D;
        let query = q.read(at, D)?;
        let own = head / GROUP * D;
        let part = (KV_HEADS * D, own..own + D);
        let keys = sizes.tokens(k, table, sequence, part.clone())?;
        let values = attend(&query, &keys, (D as f64).sqrt().recip(), &sizes.tokens(v, table, sequence, part)?);
        expected.push(Segment { at, values });
    }
    Ok(expected)
}

fn paged<K: Element>(stage: &mut Stage, page: usize) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage, page));
    let (sequences, heads) = (sizes.sequences, KV_HEADS * GROUP);
    let q = Input::<f16>::normal(&device, 1, sequences * heads * D, 0)?;
    let len = sizes.all_pages() * page * KV_HEADS * D;
    let (k, v) = (Input::<K>::normal(&device, 2, len, 0)?, Input::<K>::normal(&device, 3, len, 0)?);
    let table = sizes.table();
    let expected = paged_results(sizes, &table, &q, [&k, &v])?;
    let table = Tensor::upload(&device, &table, [sequences, sizes.pages()])?;
    let lengths = Tensor::upload(&device, &vec![sizes.tokens as i32; sequences], [sequences])?;
    // Weights are rounded to f16, of which a thousand or so count.
    let out = Output::<f16>::new(&device, q.len(), 0, Tolerance::of::<f16>(2e-3, 0.25), expected)?;
    let shape = [sequences, heads, 1, D];
    let library = Library::new(stage, |cx| {
        let cache = PagedCache {
            k: tensor(&k, [sizes.all_pages(), page, KV_HEADS, D])?,
            v: tensor(&v, [sizes.all_pages(), page, KV_HEADS, D])?,
            table: table.view(),
            lengths: lengths.view(),
            k_scale: None,
            v_scale: None,
        };
        let mut out = out.lock();
        let mut lse = Tensor::<f32, 3>::zeros(cx.device(), [sequences, heads, 1])?;
        let (q, to) = (tensor(&q, shape)?, TensorViewMut::new(out.view()?, shape)?);
        let mut workspace = Tensor::empty(cx.device(), [attention::paged_decode_workspace(cx, q, &cache)?])?;
        let options = Attention::default();
        Ok(attention::paged_decode_into(cx, q, &cache, &options, &mut workspace, to, Some(lse.view_mut()))?)
    })
    .tried(f16::ELEMENT, &[D, GROUP, sizes.tokens], &{
        // Those of 64 rows pad the heads of a group, and take blocks by tensor copies where a page has whole ones.
        let tried = [
            (16, 32, 1, 4, 3),
            (16, 64, 1, 8, 3),
            (16, 64, 2, 4, 3),
            (16, 128, 1, 8, 3),
            (64, 64, 1, 4, 3),
            (64, 32, 1, 4, 4),
            (64, 16, 1, 4, 8),
        ];
        tried.map(|(block_rows, block_k, parts, num_warps, num_stages)| DecodeConfig {
            block_rows,
            block_k,
            parts,
            num_warps,
            num_stages,
        })
    });
    let pointers = [q.argument(), k.argument(), v.argument(), address(&table), address(&lengths), out.argument()];
    let numbers = [Argument::F32((D as f32).sqrt().recip()), size(sizes.pages()), size(KV_HEADS)];
    let arguments = pointers.into_iter().chain(numbers).collect();
    let peers = triton(stage, ("paged_decode", K::NAME), arguments, |e| {
        (e.get("PAGE") == Some(page)).then_some([KV_HEADS, sequences, 1])
    })?;
    let bytes = 2 * len * size_of::<K>() + 2 * 2 * q.len();
    let shape = format!("{sequences}x{}x{heads}x{D} pages of {page}", sizes.tokens);
    // Products are of f16, whatever the cache has.
    let flops = 4.0 * (sequences * heads * sizes.tokens * D) as f64;
    Row::moving("paged_decode", shape, K::NAME, bytes).computing(flops).hold(stage, vec![&out], peers, library)
}

const RANK: usize = 512;
const POSITIONS: usize = 64;

pub fn mla_decode(stage: &mut Stage) -> Result<(), Failure> {
    let (device, sizes) = (stage.device(), Size::of(stage, stage.either(64, 16)));
    let (sequences, heads, width) = (sizes.sequences, stage.either(128, 5), RANK + POSITIONS);
    let q = Input::<f16>::normal(&device, 1, sequences * heads * width, 0)?;
    let tokens = Input::<f16>::normal(&device, 2, sizes.all_pages() * sizes.page * width, 0)?;
    let (table, scale) = (sizes.table(), 1.0 / (192f64).sqrt());
    let mut expected = Vec::new();
    for (sequence, head) in [(0, 0), (sequences - 1, heads - 2)] {
        let row = sequence * heads + head;
        let query = q.read(row * width, width)?;
        let keys = sizes.tokens(&tokens, &table, sequence, (width, 0..width))?;
        let values: Vec<Vec<f64>> = keys.iter().map(|key| key[..RANK].to_vec()).collect();
        expected.push(Segment { at: row * RANK, values: attend(&query, &keys, scale, &values) });
    }
    let table = Tensor::upload(&device, &table, [sequences, sizes.pages()])?;
    let lengths = Tensor::upload(&device, &vec![sizes.tokens as i32; sequences], [sequences])?;
    // Scores have a deviation of 1.7: fewer weights count, each with the rounding of f16.
    let out = Output::<f16>::new(&device, sequences * heads * RANK, 0, Tolerance::of::<f16>(2e-3, 1.0), expected)?;
    let library = Library::new(stage, |cx| {
        let cache = LatentCache {
            tokens: tensor(&tokens, [sizes.all_pages(), sizes.page, width])?,
            table: table.view(),
            lengths: lengths.view(),
            rank: RANK,
        };
        let mut out = out.lock();
        let mut lse = Tensor::<f32, 3>::zeros(cx.device(), [sequences, heads, 1])?;
        let to = TensorViewMut::new(out.view()?, [sequences, heads, 1, RANK])?;
        let (q, options) = (tensor(&q, [sequences, heads, 1, width])?, Attention::default().scale(scale));
        let mut workspace = Tensor::empty(cx.device(), [attention::mla_decode_workspace(cx, q, &cache)?])?;
        Ok(attention::mla_decode_into(cx, q, &cache, &options, &mut workspace, to, Some(lse.view_mut()))?)
    })
    .tried(f16::ELEMENT, &[RANK, heads, sizes.tokens], &{
        let tried = [(64, 32, 2, 8, 3), (64, 64, 1, 4, 2), (64, 64, 2, 4, 2), (64, 64, 4, 4, 2), (64, 32, 1, 8, 3)];
        let tried = if stage.is_timed() { tried } else { [(16, 16, 1, 4, 1); 5] };
        tried.map(|(block_heads, block_k, parts, num_warps, num_stages)| MlaConfig {
            block_heads,
            block_k,
            parts,
            num_warps,
            num_stages,
        })
    });
    let bytes = 2 * (sequences * sizes.tokens * width + q.len() + sequences * heads * RANK);
    let flops = 2.0 * (sequences * heads * sizes.tokens) as f64 * (width + RANK) as f64;
    let shape = format!("{sequences}x{}x{heads}x{width}", sizes.tokens);
    Row::moving("mla_decode", shape, f16::NAME, bytes).computing(flops).hold(stage, vec![&out], Vec::new(), library)
}
