//! `#[device]` functions that kernels of other crates call: the suite `functions`.

use tilewright::prelude::*;

pub mod activations {
    //! Functions in a module of their own, one of which calls another that nobody else sees.

    use tilewright::prelude::*;

    /// `1 / (1 + exp(-x))`, as an operation has it.
    #[device]
    fn gate<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        sigmoid(x)
    }

    /// `x * sigmoid(x)`
    #[device]
    pub fn silu<T: Float, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        x * gate(x)
    }

    /// The function of a public macro that is not public itself.
    #[device]
    pub(crate) fn twice<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        x + x
    }
}

pub use activations::silu as activate;

/// `2 * x`, of a module below.
#[device]
pub fn doubled<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
    activations::twice(x)
}

/// Element `index` of a buffer; out of bounds on this line of this file.
#[device]
pub fn element<T: Num>(x: Ptr<T>, index: i32) -> T {
    load(x + index)
}

/// The sum of a tile of even length; of another, an error on this line.
#[device]
pub fn even<const N: usize>(x: Tile<i32, { [N] }>) -> i32 {
    static_assert!(N % 2 == 0);
    sum(x)
}
