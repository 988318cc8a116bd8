//! Functions of single elements that a product ends with.

use tilewright::prelude::*;

/// A function that each element of a product goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// `x`.
    #[default]
    None,
    /// `max(x, 0)`; NaN becomes 0.
    Relu,
    /// `x * (1 + erf(x / sqrt(2))) / 2` (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
    Gelu,
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`, from the same paper.
    GeluTanh,
    /// `x * sigmoid(x)` (Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", 2017).
    Silu,
}

impl Activation {
    /// The number that kernels know it by.
    pub(super) const fn code(self) -> usize {
        self as usize
    }
}

/// The function that has the number `ACTIVATION`, of each element of a tile.
#[device]
pub(super) fn activate<T: Float, const M: usize, const N: usize, const ACTIVATION: usize>(
    x: Tile<T, { [M, N] }>,
) -> Tile<T, { [M, N] }> {
    if ACTIVATION == 1 {
        maximum(x, 0.0 as T)
    } else if ACTIVATION == 2 {
        // 1 / sqrt(2).
        x * (erf(x * (0.707_106_781_186_547_5 as T)) + 1.0 as T) * (0.5 as T)
    } else if ACTIVATION == 3 {
        // (1 + tanh(y)) / 2 is sigmoid(2 y), and 2 sqrt(2 / pi) is 1.5957..
        x * sigmoid((x + x * x * x * (0.044_715 as T)) * (1.595_769_121_605_730_7 as T))
    } else if ACTIVATION == 4 {
        x * sigmoid(x)
    } else {
        x
    }
}
