//! Elementwise functions that networks use, and their gradients.

use crate::elementwise;
use tilewright::prelude::*;

elementwise! {
    /// `x + y`, rounded once. Dimensions of size 1 repeat.
    pub fn add, add_into<T: Num>(x, y) => x + y;
    /// `x - y`, rounded once. Dimensions of size 1 repeat.
    pub fn sub, sub_into<T: Num>(x, y) => x - y;
    /// `x y`, rounded once. Dimensions of size 1 repeat.
    pub fn mul, mul_into<T: Num>(x, y) => x * y;
    /// `x / y`; integers truncate, and `x / 0` is 0 for them. Dimensions of size 1 repeat.
    pub fn div, div_into<T: Num>(x, y) => x / y;
    /// `scale x + offset`.
    pub fn affine, affine_into<T: Float>(x; scale: f32, offset: f32) => scale * x + offset;
    /// `max(x, 0)`; of NaN 0.
    pub fn relu, relu_into<T: Num>(x) => maximum(x, 0 as T::Acc);
    /// The gradient of [`relu`]: `dy` where `x` is positive, else 0.
    pub fn relu_backward, relu_backward_into<T: Num>(x, dy) => select(x > (0 as T::Acc), dy, 0 as T::Acc);
    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid, sigmoid_into<T: Float>(x) => sigmoid(x);
    /// The gradient of [`sigmoid`] from its result: `dy y (1 - y)`.
    pub fn sigmoid_backward, sigmoid_backward_into<T: Float>(y, dy) => dy * y * (1.0 - y);
    /// `tanh(x)`.
    pub fn tanh, tanh_into<T: Float>(x) => tanh(x);
    /// The gradient of [`tanh`] from its result: `dy (1 - y^2)`.
    pub fn tanh_backward, tanh_backward_into<T: Float>(y, dy) => dy * (1.0 - y * y);
    /// `x / (1 + exp(-x))`, the sigmoid linear unit (Elfwing, Uchibe and Doya, 2017).
    pub fn silu, silu_into<T: Float>(x) => x * sigmoid(x);
    /// The gradient of [`silu`]: `dy s (1 + x (1 - s))` where `s = 1 / (1 + exp(-x))`.
    pub fn silu_backward, silu_backward_into<T: Float>(x, dy) =>
        dy * (sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))));
    /// `x (1 + erf(x / sqrt(2))) / 2`, the Gaussian error linear unit (Hendrycks and Gimpel, 2016).
    pub fn gelu, gelu_into<T: Float>(x) => x * 0.5 * (1.0 + erf(x * 0.707_106_781_186_547_5));
    /// The gradient of [`gelu`]: `dy (F(x) + x f(x))`, with the distribution and density of the normal distribution.
    pub fn gelu_backward, gelu_backward_into<T: Float>(x, dy) =>
        dy * (0.5 * (1.0 + erf(x * 0.707_106_781_186_547_5)) + x * 0.398_942_280_401_432_7 * exp(x * x * -0.5));
}
