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

pub mod online {
    //! A struct with methods, one of which names a constant that nobody else sees.

    use tilewright::prelude::*;

    /// Added to the sum before it divides.
    const EPS: f32 = 0.5;

    /// The softmax of rows that come in pieces: their largest element and the sum of their weights so far.
    #[device(methods)]
    pub struct Softmax<T: Float, const N: usize> {
        /// The largest elements.
        pub max: Tile<T, { [N] }>,
        /// The sums of weights.
        pub sum: Tile<T, { [N] }>,
        /// How many pieces there were.
        pub pieces: i32,
    }

    #[device]
    impl<T: Float, const N: usize> Softmax<T, N> {
        /// Of no pieces.
        pub fn new() -> Self {
            Self { max: full([N], T::NEG_INFINITY), sum: zeros([N]), pieces: 0 }
        }

        /// Takes one more piece of each row.
        pub fn update(&mut self, piece: Tile<T, { [N] }>) {
            let max = maximum(self.max, piece);
            self.sum = self.sum * exp(self.max - max) + exp(piece - max);
            self.max = max;
            self.count(1);
        }

        fn count(&mut self, by: i32) {
            self.pieces += by;
        }

        /// The weight of a piece.
        pub fn weight(&self, piece: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
            if self.pieces == 0 {
                return zeros([N]);
            }
            exp(piece - self.max) / self.total()
        }

        fn total(self) -> Tile<T, { [N] }> {
            self.sum + (EPS as f32 as T)
        }
    }

    /// One of a piece.
    #[device]
    pub fn of_one<T: Float, const N: usize>(piece: Tile<T, { [N] }>) -> Softmax<T, N> {
        let mut softmax = Softmax::<T, N>::new();
        softmax.update(piece);
        softmax
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

pub mod lanes {
    //! Constants of modules in shapes.

    use tilewright::prelude::*;

    /// How many lanes a group has.
    pub const LANES: usize = 32;
    /// Of another module that has one of this name.
    const WIDTH: usize = 8;

    /// The running sums of groups.
    #[device(methods)]
    pub struct Groups<const M: usize> {
        /// A group in each row.
        pub sums: Tile<f32, { [M, LANES] }>,
    }

    #[device]
    impl<const M: usize> Groups<M> {
        /// Of nothing.
        pub fn new() -> Self {
            Self { sums: zeros([M, LANES]) }
        }

        /// Adds one more row to each group.
        pub fn add(&mut self, rows: Tile<f32, { [M, LANES] }>) {
            self.sums += rows;
        }
    }

    /// A group from memory.
    #[device]
    pub fn group(x: Ptr<f32>) -> Tile<f32, { [LANES] }> {
        load(x + arange(0, LANES))
    }

    /// A group as it is.
    #[device]
    pub fn same(group: Tile<f32, { [LANES] }>) -> Tile<f32, { [LANES] }> {
        group
    }

    /// The first half of a group and the second.
    #[device]
    pub fn halves(group: Tile<f32, { [LANES] }>) -> Tile<f32, { [LANES / 2, 2] }> {
        static_assert!(LANES % 2 == 0);
        trans(reshape(group, [2, LANES / 2]))
    }

    /// The sums of eight neighbours in a group.
    #[device]
    pub fn eighths(group: Tile<f32, { [LANES] }>) -> Tile<f32, { [4] }> {
        static_assert!(LANES == 4 * WIDTH);
        sum(reshape(group, [4, WIDTH]), axis = 1)
    }
}

pub mod widths {
    //! A constant that has the name of another one, and another value.

    use tilewright::prelude::*;

    /// How many numbers there are.
    pub const WIDTH: usize = 4;

    /// The numbers up to a width.
    #[device]
    pub fn numbers() -> Tile<i32, { [WIDTH] }> {
        arange(0, WIDTH)
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
