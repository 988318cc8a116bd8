//! Models of sequences with a state: selective scans, state-space duality, gated linear attention, the gated delta rule.

mod delta;
mod gates;
mod linear;
mod linear_backward;
mod selective;
mod selective_backward;
mod ssd;
mod ssd_backward;

pub use delta::{gated_delta_rule, gated_delta_rule_into};
pub use linear::{gated_linear_attention, gated_linear_attention_into};
pub use linear_backward::{
    GatedLinearAttentionGradients, GatedLinearAttentionGradientsMut, gated_linear_attention_backward,
    gated_linear_attention_backward_into, gated_linear_attention_backward_into_with,
    gated_linear_attention_backward_workspace,
};
pub use selective::{SelectiveScan, selective_scan, selective_scan_into};
pub use selective_backward::{
    SelectiveScanGradients, SelectiveScanGradientsMut, selective_scan_backward, selective_scan_backward_into,
    selective_scan_backward_into_with, selective_scan_backward_workspace,
};
pub use ssd::{ssd, ssd_into, ssd_into_with, ssd_workspace};
pub use ssd_backward::{
    SsdGradients, SsdGradientsMut, ssd_backward, ssd_backward_into, ssd_backward_into_with, ssd_backward_workspace,
};

use crate::check;
use tilewright::{DType, Result};

/// The largest state along one dimension that kernels keep in registers.
const LARGEST: usize = 256;

/// Checks that a dimension of a state is not too large.
fn check_state(argument: &str, size: usize) -> Result<()> {
    if (1..=LARGEST).contains(&size) {
        return Ok(());
    }
    Err(check::invalid(argument, format!("has a state of {size}"), format!("a state has 1 to {LARGEST} elements")))
}

/// Checks an input's shape, and that it has no gaps.
fn check_input<T: DType, const R: usize>(
    argument: &str,
    tensor: &crate::TensorView<'_, T, R>,
    shape: [usize; R],
) -> Result<()> {
    check::shape(argument, tensor.shape(), shape)?;
    check::packed(argument, tensor)
}
