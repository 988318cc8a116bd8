//! Layouts that NVIDIA's matrix instructions and shared memory prescribe.

use super::constructors::{axes, check_order, fit_to_shape, identity_nd};
use super::linear::log2;
use super::{LayoutDim, LayoutError, LinearLayout};
use crate::target::GROUP_WARPS;

/// Rows of one `mma.sync` or `wgmma` accumulator tile per warp.
const TILE_ROWS: u32 = 16;
/// Rows of the core matrix that both instructions are made of; also lanes along the rows.
const CORE_ROWS: u32 = 8;
/// Lanes along the columns of a core matrix.
const CORE_LANES: u32 = 4;

/// Which operand of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The left one, `[M, K]`.
    A,
    /// The right one, `[K, N]`.
    B,
}

/// Which way warps are laid over the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmaVersion {
    /// `mma.sync` (sm_80): warps run along N first.
    V2,
    /// `wgmma` (sm_90): four warps make a group along M, so warps run along M first.
    V3,
}

impl MmaVersion {
    fn warp_order(self) -> [u8; 2] {
        match self {
            MmaVersion::V2 => [1, 0],
            MmaVersion::V3 => [0, 1],
        }
    }
}

/// The swizzle of an operand tile that `wgmma` and TMA read and write: the width of its rows in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwizzleWidth {
    /// Rows of 16 bytes, not swizzled.
    None,
    /// Rows of 32 bytes.
    B32,
    /// Rows of 64 bytes.
    B64,
    /// Rows of 128 bytes.
    B128,
}

impl SwizzleWidth {
    /// Bytes of one row of the swizzled tile.
    pub fn row_bytes(self) -> u32 {
        match self {
            SwizzleWidth::None => 16,
            SwizzleWidth::B32 => 32,
            SwizzleWidth::B64 => 64,
            SwizzleWidth::B128 => 128,
        }
    }

    /// The widest swizzle for rows of `bytes` bytes.
    pub fn widest_for(bytes: u32) -> SwizzleWidth {
        match bytes {
            128.. => SwizzleWidth::B128,
            64..128 => SwizzleWidth::B64,
            32..64 => SwizzleWidth::B32,
            0..32 => SwizzleWidth::None,
        }
    }
}

fn bad<T>(constructor: &'static str, message: String) -> Result<T, LayoutError> {
    Err(LayoutError::BadParameters { constructor, message })
}

/// The registers and lanes of one warp over a `rows` x `columns` tile, of which each thread holds
/// `k_width` consecutive elements along `inner`.
fn warp_tile(
    rows: u32,
    columns: u32,
    k_width: u32,
    inner: LayoutDim,
    outer: LayoutDim,
) -> Result<LinearLayout, LayoutError> {
    let line = LinearLayout::identity1d;
    let core = line(k_width, LayoutDim::Register, inner)?
        .product(&line(CORE_LANES, LayoutDim::Lane, inner)?)?
        .product(&line(CORE_ROWS, LayoutDim::Lane, outer)?)?;
    let rows = line((rows / CORE_ROWS).max(1), LayoutDim::Register, outer)?;
    let columns = line((columns / (CORE_LANES * k_width)).max(1), LayoutDim::Register, inner)?;
    core.product(&rows)?.product(&columns)
}

fn check_rank2(constructor: &'static str, shape: &[u32]) -> Result<(), LayoutError> {
    if shape.len() == 2 { Ok(()) } else { bad(constructor, format!("the shape {shape:?} must have two dimensions")) }
}

/// The accumulator of `mma.sync.m16n8k*`: `[M, N]`, with `warps` along each axis.
///
/// # Errors
/// A shape that is not `[M, N]`, or sizes that are no powers of two.
pub fn mma_v2_accumulator(shape: &[u32], warps: [u32; 2]) -> Result<LinearLayout, LayoutError> {
    check_rank2("mma_v2_accumulator", shape)?;
    let tile = warp_tile(TILE_ROWS, 8, 2, LayoutDim::Axis(1), LayoutDim::Axis(0))?;
    let over = identity_nd(LayoutDim::Warp, &warps, &MmaVersion::V2.warp_order())?;
    fit_to_shape(&tile.product(&over)?, shape)
}

/// The accumulator of `wgmma.m64nNk*`: `[M, N]`, `n` columns per instruction, with `warps` along each axis,
/// a multiple of 4 along M.
///
/// # Errors
/// A shape that is not `[M, N]`, an `n` that is no power of two from 8 to 256, fewer than 4 warps along M.
pub fn wgmma_accumulator(shape: &[u32], n: u32, warps: [u32; 2]) -> Result<LinearLayout, LayoutError> {
    check_rank2("wgmma_accumulator", shape)?;
    if !n.is_power_of_two() || !(8..=256).contains(&n) {
        return bad("wgmma_accumulator", format!("n is {n}, but a power of two from 8 to 256 is needed"));
    }
    if warps[0] < GROUP_WARPS {
        return bad(
            "wgmma_accumulator",
            format!("{} warps along M, but a warp group is {GROUP_WARPS} of them", warps[0]),
        );
    }
    let tile = warp_tile(TILE_ROWS, n, 2, LayoutDim::Axis(1), LayoutDim::Axis(0))?;
    let over = identity_nd(LayoutDim::Warp, &warps, &MmaVersion::V3.warp_order())?;
    fit_to_shape(&tile.product(&over)?, shape)
}

/// An operand in registers, for accumulators of the given version and warps:
/// `[M, K]` for A and `[K, N]` for B. Warps along the other axis of the accumulator hold copies.
///
/// `k_width` is the number of consecutive elements along K that one thread holds: 32 bits' worth.
///
/// # Errors
/// A shape that is not two-dimensional, or sizes that are no powers of two.
pub fn dot_operand(
    shape: &[u32],
    operand: Operand,
    k_width: u32,
    version: MmaVersion,
    warps: [u32; 2],
) -> Result<LinearLayout, LayoutError> {
    check_rank2("dot_operand", shape)?;
    let k_tile = 2 * CORE_LANES * k_width;
    let (tile, k_axis) = match operand {
        Operand::A => (warp_tile(TILE_ROWS, k_tile, k_width, LayoutDim::Axis(1), LayoutDim::Axis(0))?, 1),
        Operand::B => (warp_tile(CORE_ROWS, k_tile, k_width, LayoutDim::Axis(0), LayoutDim::Axis(1))?, 0),
    };
    let mut layout = tile;
    for axis in version.warp_order() {
        let count = warps[axis as usize];
        let dim = LayoutDim::Axis(axis);
        let line = if axis == k_axis {
            LinearLayout::zeros1d(count, LayoutDim::Warp, dim, 1)?
        } else {
            LinearLayout::identity1d(count, LayoutDim::Warp, dim)?
        };
        layout = layout.product(&line)?;
    }
    fit_to_shape(&layout, shape)
}

/// Shared memory with rows along `order[0]`, whose column index is XORed with
/// `vec * ((row / per_phase) % max_phase)`. `max_phase` 1 is the plain layout.
///
/// # Errors
/// Parameters that are no powers of two, an order that is no permutation, or a swizzle wider than a row.
pub fn swizzled_shared(
    shape: &[u32],
    vec: u32,
    per_phase: u32,
    max_phase: u32,
    order: &[u8],
) -> Result<LinearLayout, LayoutError> {
    for (what, value) in [("vec", vec), ("per_phase", per_phase), ("max_phase", max_phase)] {
        log2(what, value)?;
    }
    check_order("swizzled_shared", order)?;
    if order.len() != shape.len() {
        return bad("swizzled_shared", format!("order {order:?} against shape {shape:?}"));
    }
    let layout = match order {
        [] => LinearLayout::empty(),
        &[only] => LinearLayout::identity1d(shape[0], LayoutDim::Offset, LayoutDim::Axis(only))?,
        &[column, row, ref rest @ ..] => {
            let sizes = (shape[row as usize], shape[column as usize]);
            let (row, column) = (LayoutDim::Axis(row), LayoutDim::Axis(column));
            let mut layout = swizzled_rows(sizes, (row, column), vec, per_phase, max_phase)?;
            for &axis in rest {
                let line = LinearLayout::identity1d(shape[axis as usize], LayoutDim::Offset, LayoutDim::Axis(axis))?;
                layout = layout.product(&line)?;
            }
            layout
        }
    };
    layout.transpose_outs(&axes(shape.len()))
}

/// `offset -> (row, column)` for `sizes` (rows, columns), swizzled as in [`swizzled_shared`].
fn swizzled_rows(
    (rows, columns): (u32, u32),
    (row, column): (LayoutDim, LayoutDim),
    vec: u32,
    per_phase: u32,
    max_phase: u32,
) -> Result<LinearLayout, LayoutError> {
    let row_bits = log2("a dimension of the tile", rows)?;
    let column_bits = log2("a dimension of the tile", columns)?;
    let mut bases: Vec<_> = (0..column_bits).map(|bit| vec![1 << bit, 0]).collect();
    bases.extend((0..row_bits).map(|bit| {
        let row = 1 << bit;
        let swizzle = vec * (row / per_phase % max_phase);
        vec![swizzle & (columns - 1), row]
    }));
    LinearLayout::from_bases(&[(LayoutDim::Offset, bases)], &[(column, columns), (row, rows)])
}

/// The shared-memory tile that `wgmma` descriptors and TMA boxes describe: panels of
/// `width` bytes, 8 rows to a swizzle period, all rows of a panel before the next panel.
///
/// Axes before the last two count as rows. `transposed` swaps the roles of the last two axes
/// (the operand is contiguous along M or N).
///
/// # Errors
/// Elements of other widths than 8, 16 and 32 bits, rows that are narrower than the swizzle,
/// fewer than 8 rows, or fewer than two dimensions.
pub fn nvmma_shared(
    shape: &[u32],
    width: SwizzleWidth,
    elem_bits: u32,
    transposed: bool,
) -> Result<LinearLayout, LayoutError> {
    if !matches!(elem_bits, 8 | 16 | 32) {
        return bad("nvmma_shared", format!("elements of {elem_bits} bits; 8, 16 and 32 are allowed"));
    }
    let [leading @ .., second, last] = shape else {
        return bad("nvmma_shared", format!("the shape {shape:?} must have at least two dimensions"));
    };
    let rank = shape.len() as u8;
    let (row_size, column_size) = if transposed { (*last, *second) } else { (*second, *last) };
    let batch: u32 = leading.iter().product();
    let tile_columns = 8 * width.row_bytes() / elem_bits;
    if column_size < tile_columns || row_size * batch < CORE_ROWS {
        return bad(
            "nvmma_shared",
            format!("the shape {shape:?} is smaller than one swizzle tile of 8 rows and {tile_columns} columns"),
        );
    }
    // 16-byte chunks are permuted within a row; wider rows repeat the pattern more slowly.
    let chunks = width.row_bytes() / 16;
    let (row, column) = (LayoutDim::Axis(0), LayoutDim::Axis(1));
    let core = swizzled_rows((CORE_ROWS, tile_columns), (row, column), 128 / elem_bits, CORE_ROWS / chunks, chunks)?;
    let rows = LinearLayout::identity1d(row_size * batch / CORE_ROWS, LayoutDim::Offset, row)?;
    let panels = LinearLayout::identity1d(column_size / tile_columns, LayoutDim::Offset, column)?;
    let flat = core.product(&rows)?.product(&panels)?.transpose_outs(&[row, column])?;
    let mut ordered: Vec<u32> = leading.to_vec();
    ordered.extend([row_size, column_size]);
    let tile = flat.reshape(&ordered)?;
    if transposed {
        let mut order: Vec<u8> = (0..rank).collect();
        order.swap(rank as usize - 2, rank as usize - 1);
        tile.permute(&order)
    } else {
        Ok(tile)
    }
}
