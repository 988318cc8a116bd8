//! The names of a layout's dimensions.

use std::fmt;

/// A named dimension of a [`LinearLayout`](super::LinearLayout), on its input or its output side.
///
/// One enum serves both sides, because an inverse swaps them:
/// a shared-memory layout maps [`LayoutDim::Offset`] to tile axes, its inverse maps tile axes to [`LayoutDim::Offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayoutDim {
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

impl fmt::Display for LayoutDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutDim::Register => f.write_str("register"),
            LayoutDim::Lane => f.write_str("lane"),
            LayoutDim::Warp => f.write_str("warp"),
            LayoutDim::Block => f.write_str("block"),
            LayoutDim::Offset => f.write_str("offset"),
            LayoutDim::Vector => f.write_str("vector"),
            LayoutDim::Bank => f.write_str("bank"),
            LayoutDim::Segment => f.write_str("segment"),
            LayoutDim::Reps => f.write_str("reps"),
            LayoutDim::Axis(axis) => write!(f, "dim{axis}"),
        }
    }
}
