//! Shared memory as `wgmma` reads it: what its matrix descriptors say about a layout.
//!
//! A descriptor names the start of an operand's tile, the swizzle, and two distances. The tile is made of *core
//! matrices* of 8 rows, each as long as the swizzle is wide:
//!
//! ```text
//!                  contiguous along K                      contiguous along M or N
//! core matrix      8 of M or N, `width` bytes of K         `width` bytes of M or N, 8 of K
//! stride           to the next 8 of M or N                 to the next 8 of K
//! leading          to the next core matrix along K         to the next core matrix along M or N
//! ```
//!
//! Whether a layout is made of them is a question of division: its inverse must have the inverse of the core matrix
//! as its lowest factor. What is left of it says where core matrices are, and the distances are its columns.
//!
//! ```
//! use kernel_core::layout::{SwizzleWidth, nvmma_shared, wgmma_operand};
//! // 128 rows of 64 f16, contiguous along K: core matrices of 1024 bytes, one panel.
//! let shared = nvmma_shared(&[128, 64], SwizzleWidth::B128, 16, false)?;
//! let operand = wgmma_operand(&shared, 16, 0, 64, 16).unwrap();
//! assert_eq!((operand.swizzle, operand.contiguous_k, operand.stride), (SwizzleWidth::B128, true, 1024));
//! // The next 16 of K are 32 bytes further, the next 64 rows 8 core matrices.
//! assert_eq!((operand.offset(0, 16), operand.offset(64, 0)), (32, 8192));
//! # Ok::<(), kernel_core::layout::LayoutError>(())
//! ```

use super::linear::log2;
use super::nvidia::{SwizzleWidth, nvmma_shared};
use super::{LayoutDim, LinearLayout};

/// Rows of a core matrix.
const CORE_ROWS: u32 = 8;

/// What the descriptors of an operand have in common, and where its tiles are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WgmmaOperand {
    /// The swizzle.
    pub swizzle: SwizzleWidth,
    /// Whether neighbours along K are neighbours in memory; else those along M or N are.
    pub contiguous_k: bool,
    /// The leading distance in bytes; 0 where the tile of an instruction does not use it.
    pub leading: u32,
    /// The stride distance in bytes; 0 where the tile of an instruction does not use it.
    pub stride: u32,
    /// Bytes from the start of the view to each power of two along M or N, and along K.
    along: [Vec<u32>; 2],
}

impl WgmmaOperand {
    /// The descriptor of a tile that starts at byte 0: the start address is added to it, divided by 16.
    pub fn descriptor(&self) -> u64 {
        let swizzle = match self.swizzle {
            SwizzleWidth::None => 0,
            SwizzleWidth::B128 => 1,
            SwizzleWidth::B64 => 2,
            SwizzleWidth::B32 => 3,
        };
        u64::from(self.leading >> 4) << 16 | u64::from(self.stride >> 4) << 32 | swizzle << 62
    }

    /// The bytes from the start of the view to the tile at `mn` along M or N and `k` along K: both at multiples of the
    /// instruction's tile.
    pub fn offset(&self, mn: u32, k: u32) -> u32 {
        let sum = |index: u32, bases: &[u32]| {
            let bits = bases.iter().enumerate().filter(|(bit, _)| index >> bit & 1 == 1);
            bits.fold(0, |sum, (_, base)| sum ^ base)
        };
        sum(mn, &self.along[0]) ^ sum(k, &self.along[1])
    }
}

/// The operand in a view of shared memory with the layout `shared`, whose tiles of `mn_tile` by `k_tile` elements
/// instructions read. `mn_axis` (0 or 1) is the axis of M or N. `None` if the hardware cannot read the layout.
pub fn wgmma_operand(
    shared: &LinearLayout,
    elem_bits: u32,
    mn_axis: u8,
    mn_tile: u32,
    k_tile: u32,
) -> Option<WgmmaOperand> {
    // Widest first: a row of 16 bytes is a factor of wider core matrices too.
    let widths = [SwizzleWidth::B128, SwizzleWidth::B64, SwizzleWidth::B32, SwizzleWidth::None];
    let ways = [true, false].into_iter().flat_map(|contiguous_k| widths.map(|width| (width, contiguous_k)));
    ways.filter_map(|(width, contiguous_k)| read_as(shared, elem_bits, mn_axis, (mn_tile, k_tile), width, contiguous_k))
        .next()
}

fn read_as(
    shared: &LinearLayout,
    elem_bits: u32,
    mn_axis: u8,
    (mn_tile, k_tile): (u32, u32),
    swizzle: SwizzleWidth,
    contiguous_k: bool,
) -> Option<WgmmaOperand> {
    // Only 16-bit elements can be contiguous along M or N, and then only swizzled layouts are used here.
    if !contiguous_k && (elem_bits != 16 || swizzle == SwizzleWidth::None) {
        return None;
    }
    let (mn, k) = (LayoutDim::Axis(mn_axis), LayoutDim::Axis(1 - mn_axis));
    let row = 8 * swizzle.row_bytes() / elem_bits;
    let (core_mn, core_k) = if contiguous_k { (CORE_ROWS, row) } else { (row, CORE_ROWS) };
    let shape = if mn_axis == 0 { [core_mn, core_k] } else { [core_k, core_mn] };
    let is_transposed = contiguous_k == (mn_axis == 1);
    let core = nvmma_shared(&shape, swizzle, elem_bits, is_transposed).ok()?;
    let inverse = shared.invert().ok()?;
    let cores = inverse.divide_left(&core.invert().ok()?)?;
    let core_bytes = CORE_ROWS * swizzle.row_bytes();
    // Core matrices within the tile of an instruction are at equal distances.
    let distance = |dim: LayoutDim, count: u32| -> Option<u32> {
        let columns = cores.columns(dim);
        let used = count.max(1).ilog2() as usize;
        let Some(&first) = columns.first().filter(|_| used > 0) else { return (used == 0).then_some(0) };
        let equal = columns.len() >= used && columns[..used].iter().enumerate().all(|(bit, &c)| c == first << bit);
        equal.then_some(first as u32 * core_bytes)
    };
    let (along_mn, along_k) = (distance(mn, mn_tile / core_mn)?, distance(k, k_tile / core_k)?);
    let (leading, stride) = if contiguous_k { (along_k, along_mn) } else { (along_mn, along_k) };
    if mn_tile < core_mn || [leading, stride].iter().any(|distance| distance >> 4 >= 1 << 14) {
        return None;
    }
    let shift = log2("the bits of an element", elem_bits).ok()?;
    let bytes = |dim: LayoutDim| inverse.columns(dim).iter().map(|&c| ((c << shift) >> 3) as u32).collect();
    Some(WgmmaOperand { swizzle, contiguous_k, leading, stride, along: [bytes(mn), bytes(k)] })
}
