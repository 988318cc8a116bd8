//! What can be wrong with a layout or with a question about it.

use std::fmt;

use super::LayoutDim;

/// Why an operation on layouts has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// A size must be a power of two (layouts are linear over GF(2)).
    NotPowerOfTwo {
        /// What the size describes.
        what: &'static str,
        /// The size given.
        value: u32,
    },
    /// A dimension is named twice on one side.
    DuplicateDim(LayoutDim),
    /// A dimension is asked for that the layout does not have.
    UnknownDim(LayoutDim),
    /// A basis has another number of coordinates than the layout has output dimensions.
    BasisRank {
        /// The input dimension of the basis.
        dim: LayoutDim,
        /// Which of its bits.
        bit: usize,
        /// Coordinates given.
        got: usize,
        /// Output dimensions of the layout.
        expected: usize,
    },
    /// A basis coordinate does not fit its output dimension.
    BasisOutOfRange {
        /// The input dimension of the basis.
        dim: LayoutDim,
        /// Which of its bits.
        bit: usize,
        /// The output dimension.
        out: LayoutDim,
        /// The coordinate given.
        value: u32,
        /// The size of the output dimension.
        size: u32,
    },
    /// One side of the layout has more bits than a machine word can hold.
    TooManyBits {
        /// The bits asked for.
        bits: u32,
    },
    /// Two layouts, or a layout and a list, do not have the same dimensions or sizes.
    DimsDiffer {
        /// What was attempted.
        operation: &'static str,
        /// The one side, printed.
        left: String,
        /// The other side, printed.
        right: String,
    },
    /// The layout is not a bijection.
    NotInvertible,
    /// Some element of the output space is reached from nowhere.
    NotSurjective,
    /// The values of one layout do not all occur in the other.
    OutsideImage {
        /// The input dimension whose basis has no counterpart.
        dim: LayoutDim,
        /// Which of its bits.
        bit: usize,
    },
    /// The conversion moves values between the thread blocks of a cluster.
    CrossesBlocks,
    /// The parameters of a constructor contradict each other or the shape.
    BadParameters {
        /// The constructor.
        constructor: &'static str,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// No way through shared memory fits the memory that is allowed.
    ScratchTooSmall {
        /// The least number of bytes that would do.
        needed: u32,
        /// The bytes allowed.
        allowed: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::NotPowerOfTwo { what, value } => {
                write!(f, "{what} is {value}, but layouts need powers of two")
            }
            LayoutError::DuplicateDim(dim) => write!(f, "dimension `{dim}` is named twice"),
            LayoutError::UnknownDim(dim) => write!(f, "the layout has no dimension `{dim}`"),
            LayoutError::BasisRank { dim, bit, got, expected } => write!(
                f,
                "basis {bit} of `{dim}` has {got} coordinates, but the layout has {expected} output dimensions"
            ),
            LayoutError::BasisOutOfRange { dim, bit, out, value, size } => {
                write!(f, "basis {bit} of `{dim}` has coordinate {value} along `{out}`, which has size {size}")
            }
            LayoutError::TooManyBits { bits } => {
                write!(f, "one side of the layout would have {bits} bits; at most 63 are allowed")
            }
            LayoutError::DimsDiffer { operation, left, right } => {
                write!(f, "{operation}: dimensions differ: {left} against {right}")
            }
            LayoutError::NotInvertible => f.write_str("the layout is not a bijection"),
            LayoutError::NotSurjective => f.write_str("the layout does not reach every element of its output space"),
            LayoutError::OutsideImage { dim, bit } => {
                write!(f, "basis {bit} of `{dim}` is an element that the other layout does not hold")
            }
            LayoutError::CrossesBlocks => f.write_str("the conversion moves values between thread blocks"),
            LayoutError::BadParameters { constructor, message } => {
                write!(f, "{constructor}: {message}")
            }
            LayoutError::ScratchTooSmall { needed, allowed } => {
                write!(f, "the conversion needs {needed} bytes of shared memory, {allowed} are allowed")
            }
        }
    }
}

impl std::error::Error for LayoutError {}
