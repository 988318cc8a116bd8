//! What a reduction along an axis has to combine: registers of a thread, lanes of a warp, warps of a block.

use super::gf2::{Subspace, combine};
use super::{LayoutDim, LayoutError, LinearLayout, SelectLevel, WARP_SIZE};

/// The steps of a reduction along one axis, from the inside outwards.
///
/// Copies are never combined, so that sums count each element once: of the bases along the axis only those take part
/// that are no sum of bases inside. The others give threads the same elements in another order;
/// [`ReductionPlan::turns`] and the conditions of [`ReductionPlan::lane_steps`] put them in one order, for
/// combinations that are not commutative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionPlan {
    /// Per register of the result (the layout's [`LinearLayout::slice`]), the registers to combine, in order of
    /// their coordinate along the axis.
    pub in_thread: Vec<Vec<u32>>,
    /// Exchanges within each list of `in_thread`, after which all threads that hold the same elements hold them in
    /// the same order; none for most layouts.
    pub turns: Vec<SelectLevel>,
    /// Lane bits to combine, as masks (`xor`) for butterfly shuffles, with the threads that hold the later of the two
    /// values. Afterwards every lane has the result of its group.
    pub lane_steps: Vec<SelectLevel>,
    /// Warp bits to combine: where there are any, partial results go through shared memory.
    pub warp_bits: u32,
    /// The layout of the result, once everything is combined.
    pub result: LinearLayout,
    /// The layout of the partial results of the warps, `[.., warps along the axis]`:
    /// the last axis counts the warps that share an element of the result.
    pub partials: LinearLayout,
}

/// Plans the reduction of a tile in `layout` along `axis`.
///
/// # Errors
/// The axis is absent, or a basis moves along the axis and another at the same time
/// (convert to a blocked layout first).
pub fn reduction(layout: &LinearLayout, axis: u8) -> Result<ReductionPlan, LayoutError> {
    let out = LayoutDim::Axis(axis);
    if !layout.has_out(out) {
        return Err(LayoutError::UnknownDim(out));
    }
    let mask = layout.out_mask(out);
    if layout.all_columns().iter().any(|column| column & mask != 0 && column & !mask != 0) {
        return Err(LayoutError::BadParameters {
            constructor: "reduction",
            message: format!("the layout {layout} is not aligned with axis {axis}"),
        });
    }
    let result = layout.slice(axis)?;
    let along = Along::new(layout, mask);
    let in_thread = in_thread(layout, mask);
    Ok(ReductionPlan {
        turns: along.turns(layout, &in_thread[0]),
        lane_steps: (0..LANE_BITS).filter(|bit| along.lanes >> bit & 1 == 1).map(|bit| along.lane_step(bit)).collect(),
        warp_bits: along.warps,
        partials: partials(&result, &along)?,
        in_thread,
        result,
    })
}

/// Bits of a lane's number.
const LANE_BITS: u32 = WARP_SIZE.ilog2();
/// Where the bits of lanes and of warps begin in a word that chooses bases.
const LANES: u32 = 32;
const WARPS: u32 = LANES + LANE_BITS;

/// The bases of lanes and warps that move along an axis.
struct Along {
    /// Bits whose bases are no sum of those inside, which are the ones to combine.
    lanes: u32,
    warps: u32,
    /// Per such basis, its bit as a word has it, and the word of the bases that are to be combined of which it is the
    /// sum.
    sums: Vec<(u32, u64)>,
}

impl Along {
    /// Of the axis that is `mask` in the flattened coordinate.
    fn new(layout: &LinearLayout, mask: u64) -> Along {
        let (mut span, mut sums, mut fresh) = (Subspace::new(), Vec::new(), 0u64);
        for (dim, start) in [(LayoutDim::Register, 0), (LayoutDim::Lane, LANES), (LayoutDim::Warp, WARPS)] {
            for (bit, &column) in (start..).zip(layout.columns(dim)).filter(|(_, column)| **column & mask != 0) {
                if span.insert(column, 1 << bit).is_ok() {
                    fresh |= 1 << bit;
                }
                if dim != LayoutDim::Register {
                    sums.push((bit, span.express(column).unwrap_or(0)));
                }
            }
        }
        Along { lanes: (fresh >> LANES) as u32 & (WARP_SIZE - 1), warps: (fresh >> WARPS) as u32, sums }
    }

    /// With the threads in which an odd number of those bits is set whose sums `takes` takes.
    fn level(&self, xor: u32, takes: impl Fn(u64) -> bool) -> SelectLevel {
        let bits = self.sums.iter().filter(|(_, sum)| takes(*sum)).fold(0u64, |word, (bit, _)| word | 1 << bit);
        SelectLevel { xor, lanes: (bits >> LANES) as u32 & (WARP_SIZE - 1), warps: (bits >> WARPS) as u32 }
    }

    /// The exchange over a bit of the lane.
    fn lane_step(&self, bit: u32) -> SelectLevel {
        self.level(1 << bit, |sum| sum >> (LANES + bit) & 1 == 1)
    }

    /// What brings the registers of a group, in order of their coordinates, into the order of all other threads.
    fn turns(&self, layout: &LinearLayout, group: &[u32]) -> Vec<SelectLevel> {
        let columns = layout.columns(LayoutDim::Register);
        // Where in the group the element is that the thread has in the first place: places add up as coordinates do.
        let place = |sum: u64| {
            let moved = combine(columns, sum & ((1 << LANES) - 1));
            group.iter().position(|&register| combine(columns, u64::from(register)) == moved).unwrap_or(0)
        };
        let levels = (0..group.len().ilog2()).map(|bit| self.level(1 << bit, |sum| place(sum) >> bit & 1 == 1));
        levels.filter(|level| level.lanes | level.warps != 0).collect()
    }

    /// Which of the warps that share an element of the result those are that have a bit set.
    fn partial_of(&self, bit: u32) -> u64 {
        let sum = self.sums.iter().find(|(own, _)| *own == WARPS + bit).map_or(0, |(_, sum)| sum >> WARPS);
        let counted = (0..u32::BITS).filter(|bit| self.warps >> bit & 1 == 1);
        (0..).zip(counted).fold(0, |partial, (place, bit)| partial | (sum >> bit & 1) << place)
    }
}

/// The registers to combine per register of the result; `mask` is the axis in the flattened coordinate.
fn in_thread(layout: &LinearLayout, mask: u64) -> Vec<Vec<u32>> {
    let registers = layout.columns(LayoutDim::Register);
    let (mut kept, mut reduced) = (Subspace::new(), Subspace::new());
    let (mut kept_bits, mut reduced_bits) = (Vec::new(), Vec::new());
    for (bit, &column) in registers.iter().enumerate() {
        if column & mask == 0 {
            if kept.insert(column, 0).is_ok() {
                kept_bits.push(1u64 << bit);
            }
        } else if reduced.insert(column, 0).is_ok() {
            reduced_bits.push(1u64 << bit);
        }
    }
    let groups = (0..1u64 << kept_bits.len()).map(|group| {
        let base = combine(&kept_bits, group);
        let members = 0..1u64 << reduced_bits.len();
        let mut members: Vec<u64> = members.map(|member| base ^ combine(&reduced_bits, member)).collect();
        members.sort_by_key(|&register| combine(registers, register) & mask);
        members.into_iter().map(|register| register as u32).collect()
    });
    groups.collect()
}

/// The layout of partial results: a last axis counts the warps to combine.
fn partials(result: &LinearLayout, along: &Along) -> Result<LinearLayout, LayoutError> {
    let axis = LayoutDim::Axis(result.outs.len() as u8);
    let mut layout = result.clone();
    layout.outs.push((axis, along.warps.count_ones()));
    if layout.total_out_bits() > 63 {
        return Err(LayoutError::TooManyBits { bits: layout.total_out_bits() });
    }
    let ins = layout.ins.iter().flat_map(|&(dim, bits)| (0..bits).map(move |bit| (dim, bit)));
    for ((dim, bit), column) in ins.zip(&mut layout.columns) {
        if dim == LayoutDim::Warp {
            *column |= along.partial_of(bit) << result.total_out_bits();
        }
    }
    Ok(layout)
}

impl ReductionPlan {
    /// Whether the warps have to exchange partial results.
    pub fn crosses_warps(&self) -> bool {
        self.warp_bits != 0
    }
}
