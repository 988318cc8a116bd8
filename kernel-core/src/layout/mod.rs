//! Linear layouts: which thread holds which element of a tile, and where shared memory keeps it.
//!
//! A layout is a linear map over GF(2), from named bits of the hardware to coordinates of a tile.
//! It is given by the coordinates of the powers of two (its *bases*); everything else is their XOR:
//!
//! ```text
//! register: [0, 1]   lane: [0, 2] [1, 0]   warp: [2, 0]      of a 4 x 4 tile
//! register 1 of lane 3 in warp 1 holds [0, 1] ^ [0, 2] ^ [1, 0] ^ [2, 0] = [3, 3]
//! ```
//!
//! The map goes from the hardware to the tile and not the other way, so that copies are expressible:
//! a zero basis means that the bit makes no difference. All sizes are powers of two.
//!
//! The one type [`LinearLayout`] covers all layouts: blocked ones ([`Blocked`]), the results of shape operations
//! ([`LinearLayout::slice`], [`LinearLayout::reshape`] and their kind), those that the matrix instructions
//! prescribe ([`mma_v2_accumulator`], [`wgmma_accumulator`], [`dot_operand`]),
//! and shared memory ([`swizzled_shared`], [`nvmma_shared`]), which maps [`LayoutDim::Offset`] to the tile.
//! All questions about them are questions to the algebra:
//!
//! | question | answer |
//! |---|---|
//! | which element does a thread hold? | [`LinearLayout::coordinate_form`], [`LinearLayout::apply`] |
//! | how wide can a memory access be? | [`LinearLayout::num_consecutive`], [`LinearLayout::vectors`] |
//! | which threads hold copies? | [`LinearLayout::free_variable_masks`] |
//! | how do values get from one layout to another? | [`convert`] |
//! | how is a shared-memory tile accessed? | [`shared_access`], [`matrix_access`] |
//! | how does `wgmma` read it? | [`wgmma_operand`] |
//! | can a matrix instruction take it from registers? | [`is_mma_v2`], [`wgmma_columns`], [`is_wgmma_left`] |
//! | is an instruction's tile a factor of the layout? | [`LinearLayout::divide_left`] |
//! | what does a reduction combine? | [`reduction`] |
//! | what does sorting compare? | [`sort()`] |
//!
//! # Example
//!
//! A row-major 64 x 64 tile of f32 is loaded in rows and then needed in columns:
//!
//! ```
//! use kernel_core::layout::{Blocked, Conversion, convert};
//!
//! // Four elements per thread along the rows, for 4 warps.
//! let rows = Blocked::coalesced(&[64, 64], &[1, 0], 4, 4).layout(&[64, 64])?;
//! assert_eq!(rows.num_consecutive(kernel_core::layout::LayoutDim::Register, kernel_core::layout::LayoutDim::Axis(1)), 4);
//!
//! // The transposed tile has the same data in the same threads, under other coordinates.
//! let columns = rows.permute(&[1, 0])?;
//!
//! // To have rows of the transposed tile in a thread again, values cross the warps: through shared memory,
//! // with 16-byte accesses on one side at least and no bank conflicts on either.
//! let Conversion::SharedMemory(plan) = convert(&columns, &rows, 32)? else { unreachable!() };
//! assert_eq!((plan.store.conflicts, plan.load.conflicts), (0, 0));
//! assert_eq!(plan.bytes, 64 * 64 * 4);
//! # Ok::<(), kernel_core::layout::LayoutError>(())
//! ```
//!
//! The idea, the operations and the lowering of conversions are from Zhou et al., "Linear Layouts: Robust Code
//! Generation of Efficient Tensor Computation Using F2", arXiv 2505.23819, as Triton has them.

mod access;
mod action;
mod algebra;
mod constructors;
mod conversion;
mod descriptor;
mod dim;
mod error;
mod form;
mod gf2;
mod linear;
mod matrix;
mod nvidia;
mod product;
mod query;
mod reduce;
mod shape;
mod shuffle;
mod sort;
mod swizzle;

#[cfg(test)]
mod tests;
mod warp_map;

pub use access::{SharedAccess, TurnedAccess, VectorAccess, bank_conflicts, shared_access};
pub use action::ColumnAction;
pub use constructors::{Blocked, WARP_SIZE};
pub use conversion::{Conversion, ConversionOptions, conversion_map, convert, convert_with};
pub use descriptor::{WgmmaOperand, wgmma_operand};
pub use dim::LayoutDim;
pub use error::LayoutError;
pub use form::{CoordinateForm, LinearForm, ShiftTerm};
pub use linear::LinearLayout;
pub use matrix::{MatrixAccess, MatrixWords, matrix_access};
pub use nvidia::{
    MmaVersion, Operand, SwizzleWidth, dot_operand, mma_v2_accumulator, nvmma_shared, swizzled_shared,
    wgmma_accumulator,
};
pub use product::{GroupParts, group_parts, is_mma_v2, is_wgmma_left, wgmma_columns};
pub use query::{BroadcastRemoved, Vectors};
pub use reduce::{ReductionPlan, reduction};
pub use shuffle::{Exchange, SelectLevel, ShuffleKind, ShufflePlan};
pub use sort::{SortPlan, SortStep, sort};
pub use swizzle::{SharedPlan, SwizzleOptions, SyncScope, optimal_swizzle};
