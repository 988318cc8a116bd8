//! Functions over tensors of any shape.

mod arg;
mod axis;
mod conv;
mod copy;
mod elementwise;
mod fill;
mod gather;
mod histogram;
mod number;
mod pairs;
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

pub use arg::{argmax, argmax_into, argmax_into_with, argmin, argmin_into, argmin_into_with};
pub use conv::{
    ConvConfig, ConvWeightConfig, Convolution, conv1d, conv1d_backward_input, conv1d_backward_input_into,
    conv1d_backward_weight, conv1d_backward_weight_into, conv1d_backward_weight_into_with,
    conv1d_backward_weight_workspace, conv1d_into, conv2d, conv2d_backward_input, conv2d_backward_input_into,
    conv2d_backward_weight, conv2d_backward_weight_into, conv2d_backward_weight_into_with,
    conv2d_backward_weight_workspace, conv2d_into,
};
pub use copy::{contiguous, copy_into, transpose};
#[doc(hidden)]
pub use elementwise::parts;
pub(crate) use fill::{fill, write_zeros, write_zeros_between};
pub use gather::{
    gather, gather_into, index_add_into, index_select, index_select_into, scatter_add_into, scatter_into,
};
pub use histogram::{bincount, bincount_into, histogram, histogram_into};
pub use number::{Number, Real};
pub use pairs::{PairRoom, PairWorkspace};
pub use pointwise::{
    add, add_into, affine, affine_into, div, div_into, gelu, gelu_backward, gelu_backward_into, gelu_into, mul,
    mul_into, relu, relu_backward, relu_backward_into, relu_into, sigmoid, sigmoid_backward, sigmoid_backward_into,
    sigmoid_into, silu, silu_backward, silu_backward_into, silu_into, sub, sub_into, tanh, tanh_backward,
    tanh_backward_into, tanh_into,
};
pub use pool::{
    Counted, Pooling, avg_pool2d, avg_pool2d_backward, avg_pool2d_backward_into, avg_pool2d_into, max_pool2d,
    max_pool2d_backward, max_pool2d_backward_into, max_pool2d_into,
};
pub use quantise::{
    QuantiseRoom, QuantiseWorkspace, Quantised, Scales, dequantise, dequantise_into, quantise, quantise_into,
    quantise_into_with, quantise_workspace,
};
pub(crate) use radix::Keys;
pub use radix::SortDigitsConfig;
pub use reduce::{
    max, max_all, max_into, max_into_with, mean, mean_all, mean_into, mean_into_with, min, min_all, min_into,
    min_into_with, norm_l1, norm_l1_all, norm_l1_into, norm_l1_into_with, norm_l2, norm_l2_all, norm_l2_into,
    norm_l2_into_with, norm_max, norm_max_all, norm_max_into, norm_max_into_with, prod, prod_all, prod_into,
    prod_into_with, reduction_workspace, sum, sum_all, sum_into, sum_into_with,
};
pub use sample::{SampleRoom, SampleWorkspace, Sampling, sample, sample_into, sample_into_with, sample_workspace};
pub use scan::{
    Direction, cumprod, cumprod_into, cumprod_into_with, cumsum, cumsum_into, cumsum_into_with, scan_workspace,
};
pub use scan_arg::{cummax, cummax_into, cummax_into_with, cummin, cummin_into, cummin_into_with};
pub use sort::{
    Order, argsort, argsort_into, argsort_into_with, sort, sort_into, sort_into_with, sort_values, sort_values_into,
    sort_values_into_with, sort_values_workspace, sort_workspace,
};
pub use topk::{Extreme, topk, topk_into, topk_into_with, topk_workspace};
pub use truth::{all, all_all, all_into, all_into_with, any, any_all, any_into, any_into_with};
