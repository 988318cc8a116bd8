//! The kernels of [`tilewright_kernels`] as operators of PyTorch and JAX, with their gradients.
//!
//! | operators | |
//! |---|---|
//! | [`softmax`], [`log_softmax`] | along the last dimension |
//! | [`layer_norm`], [`rms_norm`], [`add_rms_norm`] | of rows, with weights and biases; of a sum |
//! | [`rotary`], [`rotary_in_place`] | rotary position embedding |
//! | [`swiglu`], [`swiglu_halves`], [`geglu`] | gated activations |
//! | [`cross_entropy`], [`cross_entropy_rows`], [`cross_entropy_in_place`] | losses of rows of logits |
//! | [`linear_cross_entropy_with_gradients`] | the loss of a linear layer's logits, with gradients |
//! | [`flash_attention`] | softmax attention |
//! | [`rotary_attention_backward`] | gradients of attention and rotary embedding at once |
//! | [`linear`], [`linear_activation`] | products with bias and activation |
//! | [`linear_swiglu`], [`linear_swiglu_keeping`] | two products, one of which gates the other |
//! | [`embedding`] | rows of a table |
//! | [`scale_in_place`] | gradients times that of the loss |
//! | [`adamw_step`] | a step of an optimizer |
//! | [`add`], [`scaled_silu`], [`take`], [`put_in_place`], [`nothing`] | the first kernels that one writes; a call alone |
//!
//! Inputs are used where they are, in their own strides; results and workspaces are memory of the framework.

mod attention;
mod elementwise;
mod gated;
mod losses;
mod norms;
mod optimizers;
mod probabilities;
mod products;
mod rotation;
mod tables;
mod views;

pub use attention::{flash_attention, flash_attention_backward, rotary_attention_backward};
pub use elementwise::{
    add, add_backward, nothing, put_in_place, scale_in_place, scaled_silu, scaled_silu_backward, take,
};
pub use gated::{geglu, geglu_backward, swiglu, swiglu_backward, swiglu_halves, swiglu_halves_backward};
pub use losses::{
    cross_entropy, cross_entropy_backward, cross_entropy_in_place, cross_entropy_rows, cross_entropy_rows_backward,
    cross_entropy_scale, linear_cross_entropy_with_gradients,
};
pub use norms::{add_rms_norm, add_rms_norm_backward, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
pub use optimizers::adamw_step;
pub use probabilities::{log_softmax, log_softmax_backward, softmax, softmax_backward};
pub use products::{linear, linear_activation, linear_backward, linear_swiglu, linear_swiglu_keeping};
pub use rotation::{rotary, rotary_backward, rotary_in_place};
pub use tables::{embedding, embedding_backward};

tilewright_ffi::export!(
    tilewright_ops: softmax,
    softmax_backward,
    log_softmax,
    log_softmax_backward,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
    add_rms_norm,
    add_rms_norm_backward,
    rotary,
    rotary_backward,
    rotary_in_place,
    swiglu,
    swiglu_backward,
    swiglu_halves,
    swiglu_halves_backward,
    geglu,
    geglu_backward,
    cross_entropy,
    cross_entropy_backward,
    cross_entropy_rows,
    cross_entropy_rows_backward,
    cross_entropy_scale,
    cross_entropy_in_place,
    linear_cross_entropy_with_gradients,
    flash_attention,
    flash_attention_backward,
    rotary_attention_backward,
    linear,
    linear_backward,
    linear_activation,
    linear_swiglu,
    linear_swiglu_keeping,
    embedding,
    embedding_backward,
    add,
    add_backward,
    scaled_silu,
    scaled_silu_backward,
    scale_in_place,
    adamw_step,
    take,
    put_in_place,
    nothing,
);
