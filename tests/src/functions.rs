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

pub mod statistics {
    //! A struct, and functions that take and give it.

    use tilewright::prelude::*;

    /// Running statistics of rows.
    #[device]
    pub struct Stats<T: Float, const N: usize> {
        /// The largest elements.
        pub max: Tile<T, { [N] }>,
        /// The sums.
        pub sum: Tile<T, { [N] }>,
        /// How many rows there were.
        pub count: i32,
    }

    /// Of no rows.
    #[device]
    pub fn nothing<T: Float, const N: usize>() -> Stats<T, N> {
        Stats { max: full([N], T::NEG_INFINITY), sum: zeros([N]), count: 0 }
    }

    /// With one more row.
    #[device]
    pub fn extended<T: Float, const N: usize>(stats: Stats<T, N>, row: Tile<T, { [N] }>) -> Stats<T, N> {
        let Stats { max, sum, count } = stats;
        Stats { max: maximum(max, row), sum: sum + row, count: count + 1 }
    }
}

pub mod limits {
    //! Functions that name constants of their module, which nobody else sees.

    use tilewright::prelude::*;

    const SLOPE: f32 = 0.125;
    const SHIFT: i64 = 3;

    mod deeper {
        pub(super) const LIMIT: i32 = 20;
        pub(super) const ENABLED: bool = true;
    }

    #[device]
    fn sloped(x: f32) -> f32 {
        if deeper::ENABLED { x * SLOPE } else { x }
    }

    /// At most a limit, and less steep.
    #[device]
    pub fn limited(x: i32) -> f32 {
        sloped(minimum(x, deeper::LIMIT) as f32) + SHIFT as f32
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
