//! A layer for one token of each sequence, in seven launches: norms, gates and residuals are computed with the products that they stand around.

use crate::model::{Layer, Model};
use crate::ops::our_attention;
use candle_core::{Result, Tensor};
use tilewright_candle::attention::rotary_append;
use tilewright_candle::products::{Fused, fused_linear, fused_swiglu};
use tilewright_candle::rows::Pairs;

/// The state `x`, `[batch, 1, width]`, after a layer.
pub fn layer(model: &Model, layer: &Layer, x: &Tensor, first: usize, cache: &Tensor) -> Result<Tensor> {
    let (shape, places) = (&model.shape, &model.places);
    let norm = Some((&layer.attention_norm, shape.eps));
    let qkv = fused_linear(x, &layer.qkv, Fused { norm, ..Fused::default() })?;
    let (batch, [cos, sin]) = (x.dim(0)?, &places.tables);
    let positions = places.positions(first, 1)?;
    let q = rotary_append(cache, &qkv, cos, sin, &positions, shape.heads, Pairs::Halves)?;
    let mixed =
        our_attention(model, &q, first, cache)?.transpose(1, 2)?.reshape((batch, 1, shape.heads * shape.head))?;
    let x = fused_linear(&mixed, &layer.output, Fused { residual: Some(x), ..Fused::default() })?;
    let gated = fused_swiglu(&x, &layer.gate_up, Some((&layer.gated_norm, shape.eps)))?;
    fused_linear(&gated, &layer.down, Fused { residual: Some(&x), ..Fused::default() })
}

/// The logits of a state.
pub fn logits(x: &Tensor, norm: (&Tensor, f64), embedding: &Tensor) -> Result<Tensor> {
    fused_linear(x, embedding, Fused { norm: Some(norm), ..Fused::default() })?.flatten_all()
}
