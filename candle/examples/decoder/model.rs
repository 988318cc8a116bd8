//! The decoder: its shape, its weights, its cache, and how they make logits.

use crate::fused;
use crate::ops::{Op, Ops};
use candle_core::{DType, Device, Result, Tensor};
use std::cell::RefCell;
use tilewright_candle::rows::rotary_tables;

/// Sizes of a decoder.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Elements of a head.
    pub head: usize,
    /// The width between both products of the gated layer.
    pub inner: usize,
    pub vocabulary: usize,
    /// The base of rotary frequencies.
    pub theta: f64,
    pub eps: f64,
}

impl Shape {
    pub fn tiny() -> Self {
        Shape {
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 2,
            head: 16,
            inner: 96,
            vocabulary: 160,
            theta: 10_000.0,
            eps: 1e-5,
        }
    }

    /// That of Llama 3.2 1B.
    pub fn one_billion() -> Self {
        Shape {
            layers: 16,
            width: 2048,
            heads: 32,
            kv_heads: 8,
            head: 64,
            inner: 8192,
            vocabulary: 128_256,
            theta: 500_000.0,
            eps: 1e-5,
        }
    }

    /// That of Llama 3.1 8B, but for the last product, whose weights are those of the embedding.
    pub fn eight_billion() -> Self {
        Shape { layers: 32, width: 4096, heads: 32, kv_heads: 8, head: 128, inner: 14_336, ..Self::one_billion() }
    }

    /// Columns of queries, keys and values.
    pub fn qkv(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head
    }

    /// How many weights there are.
    pub fn weights(&self) -> usize {
        let layer = self.width * (self.qkv() + self.heads * self.head + 3 * self.inner + 2);
        self.layers * layer + self.width * (self.vocabulary + 1)
    }
}

/// The weights of a layer: `[outputs, inputs]` of products, `[width]` of norms.
pub struct Layer {
    pub attention_norm: Tensor,
    /// Of queries, keys and values, one after the other.
    pub qkv: Tensor,
    pub output: Tensor,
    pub gated_norm: Tensor,
    /// Of the gate and of what it is multiplied with.
    pub gate_up: Tensor,
    pub down: Tensor,
}

/// A decoder.
pub struct Model {
    pub shape: Shape,
    layers: Vec<Layer>,
    /// Rows of tokens; their products with the last state are the logits.
    embedding: Tensor,
    norm: Tensor,
    pub places: Places,
}

/// What is known of places before any token is.
pub struct Places {
    /// Cosines and sines of rotary embedding, in f32 and in the model's dtype, which candle's `rope` asks for.
    pub tables: [Tensor; 2],
    pub own_tables: [Tensor; 2],
    /// `[room + 1, batch]`: 0, 1, 2 and so on for each sequence, of which parts are positions and lengths. They are on the
    /// device, so that nothing is uploaded for a token.
    numbers: Tensor,
    /// What is added to scores of a prompt, made when it is read first: minus infinity where a key is behind its query.
    mask: RefCell<Option<Tensor>>,
}

/// Keys and values of each layer: `[2, batch, kv_heads, room, head]`.
pub struct Cache(pub Vec<Tensor>);

/// Random weights, the same each time.
struct Random {
    state: u64,
    device: Device,
    dtype: DType,
}

impl Random {
    /// Normal numbers.
    fn tensor(&mut self, shape: (usize, usize), deviation: f64) -> Result<Tensor> {
        let numbers = if self.device.is_cuda() {
            Tensor::randn(0f32, deviation as f32, shape, &self.device)?
        } else {
            let numbers: Vec<f32> = (0..shape.0 * shape.1).map(|_| (self.normal() * deviation) as f32).collect();
            Tensor::from_vec(numbers, shape, &self.device)?
        };
        numbers.to_dtype(self.dtype)
    }

    /// By Box and Muller, of uniform numbers by xorshift64*.
    fn normal(&mut self) -> f64 {
        let mut uniform = || {
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
        };
        let (a, b) = (1.0 - uniform(), uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

impl Model {
    /// Random weights, in which numbers stay near 1.
    /// There are places for `batch` sequences of `room` tokens.
    pub fn random(shape: Shape, (batch, room): (usize, usize), dtype: DType, device: &Device) -> Result<Self> {
        if device.is_cuda() {
            device.set_seed(1)?;
        }
        let mut random = Random { state: 0x9E37_79B9_7F4A_7C15, device: device.clone(), dtype };
        let mut product =
            |outputs: usize, inputs: usize| random.tensor((outputs, inputs), 1.0 / (inputs as f64).sqrt());
        let norm = || Tensor::ones(shape.width, dtype, device);
        let layers = (0..shape.layers)
            .map(|_| {
                Ok(Layer {
                    attention_norm: norm()?,
                    qkv: product(shape.qkv(), shape.width)?,
                    output: product(shape.width, shape.heads * shape.head)?,
                    gated_norm: norm()?,
                    gate_up: product(2 * shape.inner, shape.width)?,
                    down: product(shape.width, shape.inner)?,
                })
            })
            .collect::<Result<_>>()?;
        let embedding = product(shape.vocabulary, shape.width)?;
        Ok(Model {
            shape,
            layers,
            embedding,
            norm: norm()?,
            places: Places::new(&shape, (batch, room), dtype, device)?,
        })
    }

    /// The same weights in another dtype.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        let layers = self.layers.iter().map(|layer| {
            Ok(Layer {
                attention_norm: layer.attention_norm.to_dtype(dtype)?,
                qkv: layer.qkv.to_dtype(dtype)?,
                output: layer.output.to_dtype(dtype)?,
                gated_norm: layer.gated_norm.to_dtype(dtype)?,
                gate_up: layer.gate_up.to_dtype(dtype)?,
                down: layer.down.to_dtype(dtype)?,
            })
        });
        let (places, batch) = self.places.numbers.dims2()?;
        Ok(Model {
            shape: self.shape,
            layers: layers.collect::<Result<_>>()?,
            embedding: self.embedding.to_dtype(dtype)?,
            norm: self.norm.to_dtype(dtype)?,
            places: Places::new(&self.shape, (batch, places - 1), dtype, self.embedding.device())?,
        })
    }

    /// Room for keys and values of all tokens that there are places for.
    pub fn cache(&self) -> Result<Cache> {
        let (places, batch) = self.places.numbers.dims2()?;
        let shape = (2, batch, self.shape.kv_heads, places - 1, self.shape.head);
        let layer = |_| Tensor::zeros(shape, self.embedding.dtype(), self.embedding.device());
        Ok(Cache((0..self.shape.layers).map(layer).collect::<Result<_>>()?))
    }

    /// The logits behind the last of `tokens`, `[batch, count]` of u32, which follow the `first` tokens of the cache.
    pub fn forward(&self, ops: &Ops, tokens: &Tensor, first: usize, cache: &Cache) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let embedded = self.embedding.index_select(&tokens.flatten_all()?, 0)?;
        let mut residual = embedded.reshape((batch, count, self.shape.width))?;
        if count == 1 && ops.ours(Op::Fused) {
            for (layer, cache) in self.layers.iter().zip(&cache.0) {
                residual = fused::layer(self, layer, &residual, first, cache)?;
            }
            return fused::logits(&residual, (&self.norm, self.shape.eps), &self.embedding);
        }
        let mut normed = ops.norm(&residual, &self.layers[0].attention_norm, self.shape.eps)?;
        for (at, layer) in self.layers.iter().enumerate() {
            let mixed = ops.attention(self, layer, &normed, first, &cache.0[at])?;
            normed = ops.add_and_norm(&mut residual, &mixed, &layer.gated_norm, self.shape.eps)?;
            let gated = ops.gated(layer, &normed)?;
            let next = self.layers.get(at + 1).map_or(&self.norm, |next| &next.attention_norm);
            normed = ops.add_and_norm(&mut residual, &gated, next, self.shape.eps)?;
        }
        ops.product(&normed.narrow(1, count - 1, 1)?.contiguous()?, &self.embedding)?.flatten_all()
    }
}

impl Places {
    fn new(shape: &Shape, (batch, room): (usize, usize), dtype: DType, device: &Device) -> Result<Self> {
        let (cos, sin) = rotary_tables(room, shape.head, shape.theta, device)?;
        let own_tables = [cos.to_dtype(dtype)?, sin.to_dtype(dtype)?];
        let numbers = Tensor::arange(0u32, room as u32 + 1, device)?.unsqueeze(1)?;
        let numbers = numbers.expand((room + 1, batch))?.contiguous()?;
        Ok(Places { tables: [cos, sin], own_tables, numbers, mask: RefCell::new(None) })
    }

    /// `[batch, count]`: the positions of `count` tokens from `first` on.
    pub fn positions(&self, first: usize, count: usize) -> Result<Tensor> {
        self.numbers.narrow(0, first, count)?.t()
    }

    /// `[batch]`: the length of sequences of this length.
    pub fn lengths(&self, length: usize) -> Result<Tensor> {
        self.numbers.get(length)
    }

    /// What is added to the scores of `count` queries that follow `first` tokens.
    pub fn mask(&self, first: usize, count: usize) -> Result<Tensor> {
        let (shape, there) = (&[count, first + count], first + count);
        if let Some(known) = self.mask.borrow().as_ref().filter(|known| known.dims() == shape) {
            return Ok(known.clone());
        }
        let hidden = |at: usize| if at % there > first + at / there { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::from_vec((0..count * there).map(hidden).collect(), shape, self.numbers.device())?;
        let mask = mask.to_dtype(self.own_tables[0].dtype())?;
        *self.mask.borrow_mut() = Some(mask.clone());
        Ok(mask)
    }
}
