//! Why something is not as fast as it could be, as the passes themselves say it.

use std::fmt;

use kernel_core::ir::{ParamId, Span};

/// What keeps the accesses of a thread from being 16 bytes wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Narrow {
    /// So many addresses in a row are known to be contiguous.
    Contiguity(u64),
    /// A group of contiguous offsets is only known to begin at a multiple of so many elements.
    Offsets(u64),
    /// The buffer is only known to be aligned to so many elements.
    Buffer(u64),
    /// The mask may change every so many elements.
    Mask(u64),
    /// A thread has so many elements of the tile.
    Share(u32),
    /// The layout gives a thread so many elements in a row.
    Layout(u32),
    /// Shared memory, where the elements go, has them in another order.
    Shared,
    /// Atomics change one element at a time.
    Atomic,
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Narrow::Contiguity(1) => write!(f, "no two of its addresses are known to be contiguous"),
            Narrow::Contiguity(some) => write!(f, "only {some} of its addresses in a row are known to be contiguous"),
            Narrow::Offsets(1) => write!(f, "nothing is known to divide the offsets at which its rows begin"),
            Narrow::Offsets(some) => write!(f, "its offsets are only known to begin at multiples of {some} elements"),
            Narrow::Buffer(1) => write!(f, "its buffer may begin at any element"),
            Narrow::Buffer(some) => write!(f, "its buffer is only known to be aligned to {some} elements"),
            Narrow::Mask(1) => write!(f, "its mask, or bounds check, may end at any element"),
            Narrow::Mask(some) => write!(f, "its mask, or bounds check, may end at any multiple of {some} elements"),
            Narrow::Share(1) => write!(f, "a thread has one element of the tile"),
            Narrow::Share(some) => write!(f, "a thread has {some} elements of the tile"),
            Narrow::Layout(1) => write!(f, "its layout gives a thread no two elements in a row"),
            Narrow::Layout(some) => write!(f, "its layout gives a thread {some} elements in a row"),
            Narrow::Shared => write!(f, "shared memory, where it goes, has the elements in another order"),
            Narrow::Atomic => write!(f, "atomics change one element at a time"),
        }
    }
}

/// A load in a loop that is not fetched in an iteration before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StayReport {
    /// The load.
    pub span: Span,
    /// The buffer or tensor.
    pub param: ParamId,
    /// Why not, as the end of a sentence.
    pub why: &'static str,
}

/// A matrix product that is waited for where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitReport {
    /// The product.
    pub span: Span,
    /// Why, as the end of a sentence.
    pub why: &'static str,
}
