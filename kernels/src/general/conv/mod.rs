//! Convolutions of one and two dimensions, and their gradients, channels last.

mod backward;
mod forward;
mod line;

pub use backward::{
    ConvWeightConfig, conv2d_backward_input, conv2d_backward_input_into, conv2d_backward_weight,
    conv2d_backward_weight_into, conv2d_backward_weight_into_with, conv2d_backward_weight_workspace,
};
pub use forward::{ConvConfig, conv2d, conv2d_into};
pub use line::{
    conv1d, conv1d_backward_input, conv1d_backward_input_into, conv1d_backward_weight, conv1d_backward_weight_into,
    conv1d_backward_weight_into_with, conv1d_backward_weight_workspace, conv1d_into,
};

use crate::check;
use crate::workspace::product;
use tilewright::Result;

/// Stride, padding, dilation and groups of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
}

impl Default for Convolution {
    /// Stride 1, no padding, dilation 1, one group.
    fn default() -> Self {
        Convolution { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Convolution {
    /// Steps of the filter along height and width.
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Zeros before and behind the image, along height and width.
    pub fn padding(mut self, padding: [usize; 2]) -> Self {
        self.padding = padding;
        self
    }

    /// The distance of neighbouring elements of the filter in the image, along height and width.
    pub fn dilation(mut self, dilation: [usize; 2]) -> Self {
        self.dilation = dilation;
        self
    }

    /// Groups of channels that are convolved by themselves.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// The shape of the result, for an image `[n, h, w, c]` and filters `[o, kh, kw, c / groups]`.
    ///
    /// # Errors
    ///
    /// [`tilewright::Error::InvalidTensor`] if they do not fit.
    pub fn result(&self, x: [usize; 4], filters: [usize; 4]) -> Result<[usize; 4]> {
        let ([n, h, w, c], [o, kh, kw, _]) = (x, filters);
        let groups = self.groups;
        if groups == 0 || c % groups != 0 || o % groups != 0 {
            let hint = format!("channels of the image ({c}) and of the result ({o}) are multiples of it");
            return Err(check::invalid("groups", format!("is {groups}"), hint));
        }
        check::shape("filters", filters, [o, kh, kw, c / groups])?;
        if kh == 0 || kw == 0 || self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(check::invalid(
                "filters",
                format!("has the shape {filters:?}"),
                "sizes and steps are positive",
            ));
        }
        let along = |axis: usize, size: usize, taps: usize| {
            let reach = self.dilation[axis].checked_mul(taps - 1)?.checked_add(1)?;
            let padded = self.padding[axis].saturating_mul(2).saturating_add(size);
            if padded < reach { None } else { Some((padded - reach) / self.stride[axis] + 1) }
        };
        for number in [self.stride, self.padding, self.dilation].as_flattened() {
            check::size("convolution", *number)?;
        }
        // Kernels count rows and columns with their padding, and the elements of a filter.
        for (padding, size) in self.padding.into_iter().zip([h, w]) {
            if padding.saturating_mul(2).saturating_add(size) > check::LONGEST {
                let hint = format!("an image has at most {} rows and columns with it", check::LONGEST);
                return Err(check::invalid("padding", format!("is {padding} on each side of {size}"), hint));
            }
        }
        check::size("filters", product(&[kh, kw, c / groups]))?;
        match (along(0, h, kh), along(1, w, kw)) {
            (Some(p), Some(q)) => Ok([n, p, q, o]),
            _ => Err(check::invalid(
                "x",
                format!("has the shape {x:?}"),
                format!("with its padding it is at least as large as the filters, {filters:?}, with their dilation"),
            )),
        }
    }

    /// Stride, padding and dilation as kernels take them.
    fn numbers(&self) -> [i32; 6] {
        let [a, b] = self.stride;
        let [c, d] = self.padding;
        let [e, f] = self.dilation;
        [a, b, c, d, e, f].map(|number| number as i32)
    }
}

/// Checks that sizes fit the 32 bits that kernels count pixels and taps in.
fn check_sizes(name: &str, shape: [usize; 4]) -> Result<()> {
    let [n, h, w, c] = shape;
    check::size(name, n.saturating_mul(h).saturating_mul(w))?;
    check::size(name, h.saturating_mul(w).saturating_mul(c))?;
    Ok(())
}
