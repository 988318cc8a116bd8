//! Grids: how many programs a launch runs along each axis.
//!
//! A grid is a number, a tuple or an array of one to three numbers of any integer type:
//!
//! ```
//! use kernel_runtime::launch::IntoGrid;
//!
//! assert_eq!(7usize.into_grid(), [7, 1, 1]);
//! assert_eq!((2u32, 3i64).into_grid(), [2, 3, 1]);
//! assert_eq!([4, 5, 6].into_grid(), [4, 5, 6]);
//! ```

use crate::error::{Error, Result};

/// The most programs along each axis, on every NVIDIA GPU since compute capability 3.0 ("Technical
/// Specifications per Compute Capability" of the CUDA programming guide). The CPU has the same
/// limits, so that a launch that works there works everywhere.
pub const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// An integer type that counts programs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not count programs",
    label = "expected an integer",
    note = "a grid is an integer, or a tuple or array of one to three integers"
)]
pub trait GridSize {
    /// The number, saturated to 64 bits.
    fn programs(self) -> i64;
}

macro_rules! grid_sizes {
    ($($int:ty)*) => {$(
        impl GridSize for $int {
            fn programs(self) -> i64 {
                // Every limit is far below, so what saturates is refused either way.
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }

        impl IntoGrid for $int {
            fn into_grid(self) -> [i64; 3] {
                [self.programs(), 1, 1]
            }
        }
    )*};
}

grid_sizes! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

/// What `.grid(..)` takes: the numbers of programs along x, y and z. Axes that are left out have
/// one program.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grid",
    label = "expected an integer, or a tuple or array of one to three integers",
    note = "for example `.grid(n.div_ceil(1024))` or `.grid((rows, columns))`"
)]
pub trait IntoGrid {
    /// The programs along each axis, saturated to 64 bits. Limits are checked by the launch.
    fn into_grid(self) -> [i64; 3];
}

impl<A: GridSize> IntoGrid for (A,) {
    fn into_grid(self) -> [i64; 3] {
        [self.0.programs(), 1, 1]
    }
}

impl<A: GridSize, B: GridSize> IntoGrid for (A, B) {
    fn into_grid(self) -> [i64; 3] {
        [self.0.programs(), self.1.programs(), 1]
    }
}

impl<A: GridSize, B: GridSize, C: GridSize> IntoGrid for (A, B, C) {
    fn into_grid(self) -> [i64; 3] {
        [self.0.programs(), self.1.programs(), self.2.programs()]
    }
}

impl<A: GridSize> IntoGrid for [A; 1] {
    fn into_grid(self) -> [i64; 3] {
        let [x] = self;
        [x.programs(), 1, 1]
    }
}

impl<A: GridSize> IntoGrid for [A; 2] {
    fn into_grid(self) -> [i64; 3] {
        let [x, y] = self;
        [x.programs(), y.programs(), 1]
    }
}

impl<A: GridSize> IntoGrid for [A; 3] {
    fn into_grid(self) -> [i64; 3] {
        self.map(GridSize::programs)
    }
}

/// The grid as the hardware counts it.
///
/// # Errors
///
/// [`Error::InvalidGrid`] names the first axis that has a negative number or exceeds its limit.
pub(super) fn check(grid: [i64; 3]) -> Result<[u32; 3]> {
    let mut checked = [0; 3];
    for (axis, (&value, &limit)) in grid.iter().zip(&GRID_LIMITS).enumerate() {
        checked[axis] = match u32::try_from(value) {
            Ok(value) if value <= limit => value,
            Ok(_) | Err(_) => return Err(Error::InvalidGrid { axis, value, limit: limit.into() }),
        };
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_grid_is_understood() {
        assert_eq!(5.into_grid(), [5, 1, 1]);
        assert_eq!((5u8,).into_grid(), [5, 1, 1]);
        assert_eq!([5u64].into_grid(), [5, 1, 1]);
        assert_eq!((5usize, 6u16).into_grid(), [5, 6, 1]);
        assert_eq!([5, 6].into_grid(), [5, 6, 1]);
        assert_eq!((5i8, 6i64, 7u32).into_grid(), [5, 6, 7]);
        assert_eq!(u64::MAX.into_grid(), [i64::MAX, 1, 1]);
        assert_eq!((-1).into_grid(), [-1, 1, 1]);
    }

    #[test]
    fn limits_of_each_axis_hold() {
        let limits = GRID_LIMITS.map(i64::from);
        assert_eq!(check(limits), Ok(GRID_LIMITS));
        for axis in 0..3 {
            for value in [limits[axis] + 1, i64::MAX, -1, i64::MIN] {
                let mut grid = [1; 3];
                grid[axis] = value;
                assert_eq!(check(grid), Err(Error::InvalidGrid { axis, value, limit: GRID_LIMITS[axis].into() }));
            }
        }
    }
}
