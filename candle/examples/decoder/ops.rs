//! The ops of the decoder: candle's, and this package's in their place.

use crate::model::{Layer, Model};
use candle_core::{D, DType, Module, Result, Tensor};
use candle_nn::{Linear, ops, rotary_emb};
use tilewright_candle::attention::{Attention, attention, decode, rotary_append};
use tilewright_candle::products::linear;
use tilewright_candle::rows::{Pairs, add_rms_norm_in_place, rms_norm, swiglu};

/// An op that can be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// RMS norm; ours adds the residual too.
    Norm,
    /// The gated activation, of both halves of a product.
    Gate,
    /// Products; of ours one makes queries, keys and values, and one the gate and what it is multiplied with.
    Product,
    /// Rotary embedding and what fills the cache, all in one launch of ours.
    Rotary,
    /// Attention, which of ours repeats no keys and keeps no scores.
    Attention,
    /// Of a token after the prompt, norms, gates and residuals together with the products that they stand around.
    Fused,
}

impl Op {
    /// In the order in which they are exchanged.
    pub const ALL: [Op; 6] = [Op::Norm, Op::Gate, Op::Product, Op::Rotary, Op::Attention, Op::Fused];

    pub fn name(self) -> &'static str {
        match self {
            Op::Norm => "norms",
            Op::Gate => "gates",
            Op::Product => "products",
            Op::Rotary => "rotary and cache",
            Op::Attention => "attention",
            Op::Fused => "fused products",
        }
    }
}

/// Which ops are this package's; the others are candle's.
#[derive(Debug, Clone, Default)]
pub struct Ops(pub Vec<Op>);

impl Ops {
    pub fn ours(&self, op: Op) -> bool {
        self.0.contains(&op)
    }

    /// RMS norm.
    pub fn norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        if self.ours(Op::Norm) {
            rms_norm(x, weight, eps)
        } else if x.dtype() == DType::F64 {
            ops::rms_norm_slow(x, weight, eps as f32) // candle's kernel takes no f64
        } else {
            ops::rms_norm(x, weight, eps as f32)
        }
    }

    /// Adds `x` to the residual, and gives the norm of the sum.
    pub fn add_and_norm(&self, residual: &mut Tensor, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        if self.ours(Op::Norm) {
            return add_rms_norm_in_place(residual, x, weight, eps);
        }
        *residual = (&*residual + x)?;
        self.norm(residual, weight, eps)
    }

    /// `x @ weight^T`.
    pub fn product(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        if self.ours(Op::Product) { linear(x, weight) } else { Linear::new(weight.clone(), None).forward(x) }
    }

    /// The products with parts of a weight's rows: one after the other of candle's, parts of one of ours.
    fn parts<const N: usize>(&self, x: &Tensor, weight: &Tensor, rows: [usize; N]) -> Result<Parts<N>> {
        if self.ours(Op::Product) {
            return Ok(Parts::Whole(linear(x, weight)?, rows));
        }
        let mut first = 0;
        let mut parts = Vec::new();
        for count in rows {
            parts.push(self.product(x, &weight.narrow(0, first, count)?)?);
            first += count;
        }
        Ok(Parts::Each(parts))
    }

    /// The gated layer.
    pub fn gated(&self, layer: &Layer, x: &Tensor) -> Result<Tensor> {
        let inner = layer.down.dim(1)?;
        let parts = self.parts(x, &layer.gate_up, [inner; 2])?;
        let (gate, up) = (parts.get(0)?, parts.get(1)?);
        let mixed = if self.ours(Op::Gate) { swiglu(&gate, &up)? } else { (gate.silu()? * up)? };
        self.product(&mixed, &layer.down)
    }

    /// The layer with attention: of new tokens, over those before.
    pub fn attention(&self, model: &Model, layer: &Layer, x: &Tensor, first: usize, cache: &Tensor) -> Result<Tensor> {
        let (shape, batch, count) = (&model.shape, x.dim(0)?, x.dim(1)?);
        let (queries, keys) = (shape.heads * shape.head, shape.kv_heads * shape.head);
        let qkv = self.parts(x, &layer.qkv, [queries, keys, keys])?;
        let q = if self.ours(Op::Rotary) {
            let positions = model.places.positions(first, count)?;
            let [cos, sin] = &model.places.tables;
            rotary_append(cache, &qkv.whole()?, cos, sin, &positions, shape.heads, Pairs::Halves)?
        } else {
            let heads = |x: Tensor| x.reshape((batch, count, (), shape.head))?.transpose(1, 2)?.contiguous();
            let [cos, sin] = &model.places.own_tables;
            let (cos, sin) = (cos.narrow(0, first, count)?, sin.narrow(0, first, count)?);
            let k = rotary_emb::rope(&heads(qkv.get(1)?)?, &cos, &sin)?;
            cache.get(0)?.slice_set(&k, 2, first)?;
            cache.get(1)?.slice_set(&heads(qkv.get(2)?)?, 2, first)?;
            rotary_emb::rope(&heads(qkv.get(0)?)?, &cos, &sin)?
        };
        let mixed = if self.ours(Op::Attention) {
            our_attention(model, &q, first, cache)?
        } else {
            candles_attention(model, &q, first, cache)?
        };
        self.product(&mixed.transpose(1, 2)?.reshape((batch, count, queries))?, &layer.output)
    }
}

/// Attention of new tokens over those of the cache, which has them already.
pub fn our_attention(model: &Model, q: &Tensor, first: usize, cache: &Tensor) -> Result<Tensor> {
    let (keys, values, count) = (cache.get(0)?, cache.get(1)?, q.dim(2)?);
    let options = Attention::default().causal();
    if count == 1 {
        return decode(q, &keys, &values, Some(&model.places.lengths(first + 1)?), options);
    }
    let there = first + count;
    attention(q, &keys.narrow(2, 0, there)?, &values.narrow(2, 0, there)?, options)
}

/// Results of products with parts of a weight.
enum Parts<const N: usize> {
    /// Columns of one tensor, and how many each part has.
    Whole(Tensor, [usize; N]),
    Each(Vec<Tensor>),
}

impl<const N: usize> Parts<N> {
    fn get(&self, at: usize) -> Result<Tensor> {
        match self {
            Parts::Whole(all, columns) => all.narrow(D::Minus1, columns[..at].iter().sum(), columns[at]),
            Parts::Each(parts) => Ok(parts[at].clone()),
        }
    }

    fn whole(&self) -> Result<Tensor> {
        match self {
            Parts::Whole(all, _) => Ok(all.clone()),
            Parts::Each(parts) => Tensor::cat(parts, D::Minus1),
        }
    }
}

/// As candle's models do it: heads of keys are repeated, scores are a tensor.
fn candles_attention(model: &Model, q: &Tensor, first: usize, cache: &Tensor) -> Result<Tensor> {
    let (batch, heads, count, d) = q.dims4()?;
    let (there, kv_heads) = (first + count, cache.dim(2)?);
    let repeated = |at: usize| {
        let x = cache.get(at)?.narrow(2, 0, there)?;
        if heads == kv_heads {
            return x.contiguous();
        }
        x.unsqueeze(2)?.expand((batch, kv_heads, heads / kv_heads, there, d))?.reshape((batch, heads, there, d))
    };
    let (k, v) = (repeated(0)?, repeated(1)?);
    let scores = (q.contiguous()?.matmul(&k.t()?)? * (1.0 / (d as f64).sqrt()))?;
    let scores = if count == 1 { scores } else { scores.broadcast_add(&model.places.mask(first, count)?)? };
    ops::softmax_last_dim(&scores)?.matmul(&v)
}
