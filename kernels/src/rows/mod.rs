//! Functions of rows: what the last dimension of a tensor holds.
//!
//! The dimensions before the last may have any strides that let one index run over them; the last is contiguous.
//! [`crate::general::contiguous`] makes a copy that is so.

mod gated;
mod layer_norm;
mod norm;
mod norm_backward;
mod reduction;
mod rotary;
mod softmax;

pub use gated::{
    GatedConfig, Gelu, geglu, geglu_backward, geglu_backward_in_place, geglu_into, swiglu, swiglu_backward,
    swiglu_backward_in_place, swiglu_backward_into, swiglu_into,
};
pub use layer_norm::{
    add_rms_norm, add_rms_norm_backward, add_rms_norm_backward_into, add_rms_norm_into, layer_norm,
    layer_norm_backward, layer_norm_backward_into, layer_norm_into, rms_norm, rms_norm_backward,
    rms_norm_backward_into, rms_norm_into,
};
pub use norm::{Norm, NormConfig};
pub use norm_backward::{NormBackwardConfig, NormGradients, NormGradientsMut, norm_programs};
pub use reduction::Reduction;
pub use rotary::{Pairs, Rotary, RotaryConfig, rotary, rotary_in_place, rotary_into, rotary_tables};
pub use softmax::{SoftmaxConfig, softmax, softmax_backward, softmax_backward_into, softmax_into};
