//! What operations on whole tiles pass through shared memory.

use kernel_core::ir::{Func, Op, Operation, TileOp};
use kernel_core::layout::{LayoutDim, LayoutError, SortPlan, SortStep, SyncScope, WARP_SIZE, sort};

use super::{MAX_BYTES, Step, bits};

/// The one exchange of an operation on whole tiles, if its threads pass anything between warps.
///
/// # Errors
/// If the tile cannot be sorted in its layout.
pub(crate) fn tile_exchange(
    func: &Func,
    operation: &Operation,
    op: &TileOp,
    num_warps: u32,
) -> Result<Option<Step>, LayoutError> {
    let Some(layout) = func.layout(operation.operands[0]) else { return Ok(None) };
    let whole = (1u32 << layout.total_out_bits()) * bits(func, operation.operands[0]) / 8;
    let (bytes, passes) = match op {
        TileOp::Gather { .. } => (whole, 1),
        // The tile, then the values.
        TileOp::Scatter { .. } => (whole, 2),
        TileOp::Histogram { .. } => {
            let counters = Counters::of(func, operation, num_warps);
            (counters.bytes(), if counters.threads == WARP_SIZE { 1 } else { 2 })
        }
        TileOp::Sort { axis, indices, .. } => {
            let plan = sort_plan(func, operation, *axis)?;
            let words =
                KeyWords::new(bits(func, operation.operands[0]), layout.out_bits(LayoutDim::Axis(*axis)), *indices);
            let (mut registers, mut most, mut passes) = (layout.in_size(LayoutDim::Register), 0, 0);
            for step in &plan.steps {
                match step {
                    SortStep::Turn { .. } | SortStep::Compare { .. } => {}
                    SortStep::Double => registers *= 2,
                    SortStep::Halve { .. } => registers /= 2,
                    SortStep::Swap { warp: 0, .. } => {}
                    SortStep::Swap { .. } => (most, passes) = (most.max(registers / 2), passes + 1),
                }
            }
            (most * num_warps * WARP_SIZE * words.bytes(), passes)
        }
    };
    let step = |bytes: u32| Step { bytes: bytes.max(1), scope: SyncScope::Block, passes };
    Ok((passes > 0).then(|| step(bytes)))
}

/// Bytes of shared memory that an operation on whole tiles takes; 0 for every other.
pub(crate) fn tile_bytes(func: &Func, operation: &Operation) -> u32 {
    let Op::Tile(op) = &operation.op else { return 0 };
    let warps = func.layout(operation.operands[0]).map_or(1, |layout| layout.in_size(LayoutDim::Warp));
    // What cannot be sorted where it is has been refused.
    tile_exchange(func, operation, op, warps).ok().flatten().map_or(0, |step| step.bytes)
}

/// The network that sorts a tile along an axis.
///
/// # Errors
/// If the tile cannot be sorted in its layout.
pub(crate) fn sort_plan(func: &Func, operation: &Operation, axis: u8) -> Result<SortPlan, LayoutError> {
    let keep = func.tile_shape(operation.results[0]).get(usize::from(axis)).copied().unwrap_or_default();
    match func.layout(operation.operands[0]) {
        Some(layout) => sort(layout, axis, keep),
        None => Err(LayoutError::UnknownDim(LayoutDim::Axis(axis))),
    }
}

/// How an element is compared: as one unsigned word with the index behind the key, or, where both together are too long
/// for that, as two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyWords {
    /// Bits of the first word: 32 or 64.
    pub(crate) word: u32,
    /// How far the key is shifted to the left in it, to make room for the index.
    pub(crate) shift: u32,
    /// Whether the index is a second word, of 32 bits.
    pub(crate) apart: bool,
}

impl KeyWords {
    /// Of keys of so many bits along an axis with `1 << places` elements.
    pub(crate) fn new(key: u32, places: u32, indices: bool) -> KeyWords {
        let shift = if indices { places } else { 0 };
        match key + shift {
            ..=32 => KeyWords { word: 32, shift, apart: false },
            33..=64 => KeyWords { word: 64, shift, apart: false },
            _ => KeyWords { word: 64, shift: 0, apart: true },
        }
    }

    /// Bytes of an element in shared memory.
    pub(crate) fn bytes(self) -> u32 {
        self.word / 8 + if self.apart { 4 } else { 0 }
    }
}

/// The counters of a histogram in shared memory: in each copy those of the bins, then one for what is not counted, so
/// that no thread has to branch around its additions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counters {
    /// How many bins there are.
    pub(crate) bins: u32,
    /// How many counters are set to zero: as many for each of the threads that share a copy. What is not counted goes
    /// behind them.
    pub(crate) cleared: u32,
    /// A copy for each warp, which then waits for no other before it counts, or one for all.
    pub(crate) copies: u32,
    /// The threads that share a copy.
    pub(crate) threads: u32,
}

/// Counters behind those of the bins; one would do, but copies begin where vectors may.
const BEHIND: u32 = 4;

impl Counters {
    /// Of a histogram.
    pub(crate) fn of(func: &Func, histogram: &Operation, num_warps: u32) -> Counters {
        let bins: u32 = func.tile_shape(histogram.results[0]).iter().product();
        let shared_by = |warps: u32| {
            let threads = warps * WARP_SIZE;
            Counters { bins, cleared: bins.max(threads), copies: num_warps / warps, threads }
        };
        let apart = shared_by(1);
        if apart.bytes() <= MAX_BYTES { apart } else { shared_by(num_warps) }
    }

    /// Bytes of one copy.
    pub(crate) fn copy_bytes(self) -> u32 {
        (self.cleared + BEHIND) * 4
    }

    /// Bytes of all copies.
    pub(crate) fn bytes(self) -> u32 {
        self.copy_bytes() * self.copies
    }
}
