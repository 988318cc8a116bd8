//! Functions over tensors of any shape.

mod arg;
mod axis;
mod conv;
mod copy;
mod elementwise;
mod gather;
mod histogram;
mod number;
mod pointwise;
mod pool;
mod quantise;
mod radix;
mod reduce;
mod sample;
mod scan;
mod scan_arg;
mod sort;
mod topk;
mod truth;
mod walk;

pub use arg::{argmax, argmax_into, argmin, argmin_into};
pub use conv::{
    ConvConfig, ConvWeightConfig, Convolution, conv1d, conv2d, conv2d_backward_input, conv2d_backward_weight,
};
pub use copy::{contiguous, copy_into, transpose};
#[doc(hidden)]
pub use elementwise::parts;
pub use gather::{
    gather, gather_into, index_add_into, index_select, index_select_into, scatter_add_into, scatter_into,
};
pub use histogram::{bincount, histogram};
pub use number::{Number, Real};
pub use pointwise::{
    add, add_into, affine, affine_into, div, div_into, gelu, gelu_backward, gelu_backward_into, gelu_into, mul,
    mul_into, relu, relu_backward, relu_backward_into, relu_into, sigmoid, sigmoid_backward, sigmoid_backward_into,
    sigmoid_into, silu, silu_backward, silu_backward_into, silu_into, sub, sub_into, tanh, tanh_backward,
    tanh_backward_into, tanh_into,
};
pub use pool::{Counted, Pooling, avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward};
pub use quantise::{Quantised, Scales, dequantise, quantise, quantise_into};
pub(crate) use radix::Keys;
pub use radix::SortDigitsConfig;
pub use reduce::{
    max, max_all, max_into, mean, mean_all, mean_into, min, min_all, min_into, norm_l1, norm_l1_all, norm_l1_into,
    norm_l2, norm_l2_all, norm_l2_into, norm_max, norm_max_all, norm_max_into, prod, prod_all, prod_into, sum, sum_all,
    sum_into,
};
pub use sample::{Sampling, sample};
pub use scan::{Direction, cumprod, cumprod_into, cumsum, cumsum_into};
pub use scan_arg::{cummax, cummax_into, cummin, cummin_into};
pub use sort::{Order, argsort, sort, sort_into, sort_values};
pub use topk::{Extreme, topk, topk_into};
pub use truth::{all, all_all, all_into, any, any_all, any_into};
