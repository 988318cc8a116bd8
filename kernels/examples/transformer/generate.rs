//! Generation: one token after the other, over keys and values in pages.

use tilewright::Result;
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, PagedCache};
use tilewright_kernels::general::{self, Sampling};
use tilewright_kernels::rows::Rotary;
use tilewright_kernels::{Context, Tensor};

use crate::model::Model;
use crate::parameters::{Matrix, Real, Scale, Shape};
use crate::train::vector;

/// Writes the keys and values of new tokens to the pages of their sequences. A program has one token.
///
/// A kernel of this example's own: the library reads pages, and how they are filled is up to who keeps them.
#[kernel]
fn append<T: DType, const BLOCK: usize>(
    keys: Ptr<T>,
    values: Ptr<T>,
    positions: Ptr<i32>,
    table: Ptr<i32>,
    key_pages: PtrMut<T>,
    value_pages: PtrMut<T>,
    pages: i32,
    page_size: i32,
    width: i32,
) {
    let (token, sequence) = (program_id(0), program_id(1));
    let from = sequence * num_programs(0) + token;
    let position = load(positions + from);
    let page = load(table + sequence * pages + position / page_size);
    let to = page as i64 * page_size as i64 + (position % page_size) as i64;
    let column = arange(0, BLOCK);
    let mask = column < width;
    let (from, to) = (from as i64 * width as i64 + column as i64, to * width as i64 + column as i64);
    store(key_pages + to, load(keys + from, mask = mask), mask = mask);
    store(value_pages + to, load(values + from, mask = mask), mask = mask);
}

/// The keys and values of sequences that grow together.
pub struct Cache<T: Real> {
    /// For each layer keys and values, `[pages, page size, heads, head]`.
    layers: Vec<[Tensor<T, 4>; 2]>,
    /// `[sequences, pages of each]`.
    table: Tensor<i32, 2>,
    /// How many tokens each sequence has.
    length: usize,
}

impl<T: Real> Cache<T> {
    /// Room for `context` tokens of each sequence. Pages are dealt out to sequences in turn, as if they had been asked for
    /// while all grew.
    pub fn new(cx: &Context, shape: &Shape, sequences: usize, page_size: usize) -> Result<Self> {
        let pages = shape.context.div_ceil(page_size);
        let room = [sequences * pages, page_size, shape.heads, shape.head()];
        let zeros = || -> Result<_> { Ok([Tensor::zeros(cx.device(), room)?, Tensor::zeros(cx.device(), room)?]) };
        let table =
            (0..sequences).flat_map(|sequence| (0..pages).map(move |page| (page * sequences + sequence) as i32));
        Ok(Cache {
            layers: (0..shape.layers).map(|_| zeros()).collect::<Result<_>>()?,
            table: Tensor::upload(cx.device(), &table.collect::<Vec<_>>(), [sequences, pages])?,
            length: 0,
        })
    }

    /// Adds the keys and values of a layer, `[sequences * tokens, width]`.
    fn append(
        &mut self,
        cx: &Context,
        layer: usize,
        [keys, values]: [&Tensor<T, 2>; 2],
        positions: &Tensor<i32, 2>,
    ) -> Result<()> {
        let ([_, pages], [sequences, tokens]) = (self.table.shape(), positions.shape());
        let ([key_pages, value_pages], width) = (&mut self.layers[layer], keys.shape()[1]);
        let page_size = key_pages.shape()[1];
        AppendConsts { BLOCK: width.next_power_of_two() }
            .call(
                keys.buffer(),
                values.buffer(),
                positions.buffer(),
                self.table.buffer(),
                key_pages.buffer_mut(),
                value_pages.buffer_mut(),
                pages as i32,
                page_size as i32,
                width as i32,
            )
            .grid((tokens, sequences))
            .stream(cx.stream())
            .launch(cx.device())
    }
}

impl<T: Real> Model<T> {
    /// The logits of tokens that follow those of the cache, `[sequences * tokens, vocabulary]`. `ids` has `tokens` of each
    /// sequence, one sequence after the other.
    pub fn extend(&self, cache: &mut Cache<T>, ids: &Tensor<i32, 1>) -> Result<Tensor<T, 2>> {
        let (cx, device) = (&self.cx, self.cx.device());
        let sequences = cache.table.shape()[0];
        let tokens = ids.len() / sequences;
        let [first, last] = [cache.length, cache.length + tokens].map(|at| at as i32);
        let positions: Vec<i32> = (0..sequences).flat_map(|_| first..last).collect();
        let positions = Tensor::upload(device, &positions, [sequences, tokens])?;
        let lengths = vector(cx, &vec![last; sequences])?;
        let rotary = Rotary::default().positions(&positions);

        let mut x = self.embed(ids)?;
        for layer in 0..self.shape.layers {
            let normed = self.norm(&x, Scale::Attention(layer))?;
            let mut queries = self.linear(&normed, layer, Matrix::Query)?;
            let mut keys = self.linear(&normed, layer, Matrix::Key)?;
            let values = self.linear(&normed, layer, Matrix::Value)?;
            self.rotate(&mut queries, sequences, &rotary)?;
            self.rotate(&mut keys, sequences, &rotary)?;
            cache.append(cx, layer, [&keys, &values], &positions)?;

            let [k, v] = &cache.layers[layer];
            let (table, lengths) = (cache.table.view(), lengths.view());
            let pages = PagedCache { k: k.view(), v: v.view(), table, lengths, k_scale: None, v_scale: None };
            let mut mixed = Tensor::zeros(device, x.shape())?;
            let q = self.heads(&queries, sequences)?;
            let mut workspace = Tensor::empty(device, [attention::paged_decode_workspace(cx, q, &pages)?])?;
            let out = self.heads_mut(&mut mixed, sequences)?;
            attention::paged_decode_into(cx, q, &pages, &Attention::default().causal(), &mut workspace, out, None)?;
            x = self.after_attention(layer, self.linear_added(&mixed, layer, Matrix::Output, &x)?)?;
        }
        cache.length += tokens;
        self.logits(&self.norm(&x, Scale::Last)?)
    }

    /// Continues a text `samples` times, until the context is full, each time with one of the eight likeliest characters.
    pub fn generate(&self, prompt: &[i32], samples: usize, temperature: f32, seed: u32) -> Result<Vec<Vec<i32>>> {
        let (cx, vocabulary) = (&self.cx, self.shape.vocabulary);
        let mut cache = Cache::new(cx, &self.shape, samples, 16)?;
        // The prompt at once: of each sample, the logits behind its last token count.
        let logits = self.extend(&mut cache, &vector(cx, &prompt.repeat(samples))?)?;
        let logits = logits.view().reshape([samples, prompt.len(), vocabulary])?;
        let last = logits.narrow(1, prompt.len() - 1..prompt.len())?.reshape([samples, vocabulary])?;
        let sampling = Sampling::default().temperature(temperature).top_k(8);
        let mut next = general::sample(cx, last, sampling.seed(seed))?;
        let mut drawn = Vec::new();
        for step in 1..=(self.shape.context - prompt.len()) as u32 {
            // Tokens stay on the device: the host runs ahead, and reads them all at the end.
            let logits = self.extend(&mut cache, &next)?;
            drawn.push(std::mem::replace(&mut next, general::sample(cx, &logits, sampling.seed(seed + step))?));
        }
        drawn.push(next);
        let drawn = drawn.iter().map(Tensor::to_vec).collect::<Result<Vec<_>>>()?;
        Ok((0..samples).map(|sample| drawn.iter().map(|tokens| tokens[sample]).collect()).collect())
    }
}
