//! The names of a layout's dimensions.

use std::fmt;

/// A named dimension of a [`LinearLayout`](super::LinearLayout), on its input or its output side.
///
/// One enum serves both sides, because an inverse swaps them:
/// a shared-memory layout maps [`Dim::Offset`] to tile axes, its inverse maps tile axes to [`Dim::Offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// The index of a value in the list of values that one thread holds.
    Register,
    /// The lane of a thread in its warp (0..32).
    Lane,
    /// The warp in its program (or in its warp group).
    Warp,
    /// The thread block in its cluster.
    Block,
    /// The element offset into a shared-memory allocation.
    Offset,
    /// Offset bits inside one vector access of shared memory.
    Vector,
    /// Offset bits that choose the shared-memory bank.
    Bank,
    /// Offset bits that choose the row of all banks.
    Segment,
    /// The pass number, where a conversion goes through shared memory in several passes.
    Reps,
    /// A coordinate of the tile: `Axis(0)` is the slowest (outermost) in row-major order.
    Axis(u8),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Register => f.write_str("register"),
            Dim::Lane => f.write_str("lane"),
            Dim::Warp => f.write_str("warp"),
            Dim::Block => f.write_str("block"),
            Dim::Offset => f.write_str("offset"),
            Dim::Vector => f.write_str("vector"),
            Dim::Bank => f.write_str("bank"),
            Dim::Segment => f.write_str("segment"),
            Dim::Reps => f.write_str("reps"),
            Dim::Axis(axis) => write!(f, "dim{axis}"),
        }
    }
}
