//! What a reduction along an axis has to combine: registers of a thread, lanes of a warp, warps of a block.

use super::gf2::{Span, combine};
use super::{Dim, LayoutError, LinearLayout};

/// The steps of a reduction along one axis, from the inside outwards.
///
/// Copies (zero bases) are never combined, so that sums count each element once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionPlan {
    /// Per register of the result (the layout's [`LinearLayout::slice`]), the registers to combine, in order of
    /// their coordinate along the axis.
    pub in_thread: Vec<Vec<u32>>,
    /// Lane bits to combine, as masks for butterfly shuffles. Afterwards every lane has the result of its group.
    pub lane_masks: Vec<u32>,
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
    let out = Dim::Axis(axis);
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
    // Copies in the lanes or warps add nothing: only bits that are independent of those inside count.
    let mut span = Span::of(layout.columns(Dim::Register).iter().copied());
    let mut fresh = |dim| {
        let bits = layout.columns(dim).iter().enumerate();
        bits.filter(|(_, column)| span.insert(**column, 0).is_ok() && **column & mask != 0)
            .fold(0u32, |word, (bit, _)| word | 1 << bit)
    };
    let (lane_bits, warp_bits) = (fresh(Dim::Lane), fresh(Dim::Warp));
    Ok(ReductionPlan {
        in_thread: in_thread(layout, mask),
        lane_masks: (0..32).map(|bit| 1 << bit).filter(|bit| lane_bits & bit != 0).collect(),
        warp_bits,
        partials: partials(&result, warp_bits)?,
        result,
    })
}

/// The registers to combine per register of the result; `mask` is the axis in the flattened coordinate.
fn in_thread(layout: &LinearLayout, mask: u64) -> Vec<Vec<u32>> {
    let registers = layout.columns(Dim::Register);
    let (mut kept, mut reduced) = (Span::new(), Span::new());
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

/// The layout of partial results: a last axis counts the warps in `warp_bits`.
fn partials(result: &LinearLayout, warp_bits: u32) -> Result<LinearLayout, LayoutError> {
    let axis = Dim::Axis(result.outs.len() as u8);
    let mut layout = result.clone();
    layout.outs.push((axis, warp_bits.count_ones()));
    let mut next = 1u64 << result.total_out_bits();
    let ins = layout.ins.clone();
    let mut index = 0;
    for (dim, bits) in ins {
        for bit in 0..bits {
            if dim == Dim::Warp && warp_bits >> bit & 1 == 1 {
                layout.columns[index] |= next;
                next <<= 1;
            }
            index += 1;
        }
    }
    if layout.total_out_bits() > 63 {
        return Err(LayoutError::TooManyBits { bits: layout.total_out_bits() });
    }
    Ok(layout)
}

impl ReductionPlan {
    /// Whether the warps have to exchange partial results.
    pub fn crosses_warps(&self) -> bool {
        self.warp_bits != 0
    }
}
