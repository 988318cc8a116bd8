//! From one register layout to another: what has to move, and how.

use super::gf2::{Span, combine};
use super::linear::describe;
use super::shuffle::{self, ShufflePlan};
use super::swizzle::{SharedPlan, SwizzleOptions, optimal_swizzle_with};
use super::{ColumnAction, Dim, LayoutError, LinearLayout};

/// How to bring the values of one layout into another, cheapest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Every thread already holds the right values in the right order.
    NoOp,
    /// Every thread holds the values it needs: rename (permute, drop, repeat) them.
    RegisterPermute(ColumnAction),
    /// Values move between the lanes of a warp.
    Shuffle(ShufflePlan),
    /// Values go through shared memory.
    SharedMemory(SharedPlan),
}

/// What [`convert_with`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionOptions {
    /// The most levels of selects on either side of the shuffles. More registers change places with more lanes
    /// than this: shared memory moves them with fewer instructions.
    pub max_select_levels: usize,
    /// How shared memory may be used.
    pub swizzle: SwizzleOptions,
}

impl Default for ConversionOptions {
    fn default() -> Self {
        ConversionOptions { max_select_levels: 1, swizzle: SwizzleOptions::default() }
    }
}

/// The cheapest way from `src` to `dst`, for elements of `elem_bits` bits.
///
/// # Errors
/// The tiles or the numbers of lanes, warps and blocks differ, `src` lacks an element of `dst`,
/// values would have to move between the blocks of a cluster, or shared memory cannot hold such elements.
pub fn convert(src: &LinearLayout, dst: &LinearLayout, elem_bits: u32) -> Result<Conversion, LayoutError> {
    convert_with(src, dst, elem_bits, &ConversionOptions::default())
}

/// As [`convert`], within the limits of `options`.
///
/// # Errors
/// As [`convert`]; also if the shared memory allowed is too small.
pub fn convert_with(
    src: &LinearLayout,
    dst: &LinearLayout,
    elem_bits: u32,
    options: &ConversionOptions,
) -> Result<Conversion, LayoutError> {
    let (src, dst) = aligned(src, dst)?;
    let Some(map) = WarpMap::new(&src, &dst) else {
        return optimal_swizzle_with(&src, &dst, elem_bits, &options.swizzle).map(Conversion::SharedMemory);
    };
    if let Some(action) = map.register_action() {
        let unchanged = action.is_identity();
        return Ok(if unchanged { Conversion::NoOp } else { Conversion::RegisterPermute(action) });
    }
    match shuffle::plan(&map) {
        Some(plan) if plan.levels() <= options.max_select_levels => Ok(Conversion::Shuffle(plan)),
        _ => optimal_swizzle_with(&src, &dst, elem_bits, &options.swizzle).map(Conversion::SharedMemory),
    }
}

/// The conversion as shuffles, however many selects that takes;
/// `None` where values must move between warps, or copies in the lanes defeat the scheme.
///
/// # Errors
/// As [`convert`].
pub fn shuffle_plan(src: &LinearLayout, dst: &LinearLayout) -> Result<Option<ShufflePlan>, LayoutError> {
    let (src, dst) = aligned(src, dst)?;
    Ok(WarpMap::new(&src, &dst).and_then(|map| shuffle::plan(&map)))
}

/// Whether each warp already holds all values that it needs: then no barrier of the whole block is needed.
///
/// # Errors
/// As [`convert`].
pub fn stays_in_warp(src: &LinearLayout, dst: &LinearLayout) -> Result<bool, LayoutError> {
    let (src, dst) = aligned(src, dst)?;
    Ok(WarpMap::new(&src, &dst).is_some())
}

/// `src⁻¹ ∘ dst`: for each place of `dst`, the place of `src` that holds its element;
/// of several, the nearest: the same block, warp and lane where possible.
///
/// # Errors
/// As [`convert`].
pub fn conversion_map(src: &LinearLayout, dst: &LinearLayout) -> Result<LinearLayout, LayoutError> {
    let (src, dst) = aligned(src, dst)?;
    let columns = HARDWARE.iter().flat_map(|&dim| (0..dst.columns(dim).len()).map(move |bit| (dim, bit)));
    let nearest = Nearest::new(&src);
    let columns = columns
        .map(|(dim, bit)| {
            let keep = if dim == Dim::Register { None } else { Some((dim, bit)) };
            nearest.find(dst.columns(dim)[bit], keep).ok_or(LayoutError::OutsideImage { dim, bit })
        })
        .collect::<Result<_, _>>()?;
    Ok(LinearLayout::from_parts(dst.ins.clone(), src.ins.clone(), columns))
}

/// The dimensions that a conversion touches: those on which [`conversion_map`] is not the identity,
/// taken away from the outermost inwards. Empty for no work at all, `[Register]` for a renaming of values,
/// with `Lane` for shuffles, with `Warp` for shared memory.
///
/// # Errors
/// As [`convert`].
pub fn moved_dims(src: &LinearLayout, dst: &LinearLayout) -> Result<Vec<Dim>, LayoutError> {
    let mut map = conversion_map(src, dst)?;
    for dim in HARDWARE.into_iter().rev() {
        match map.quotient(&[dim]) {
            Some(rest) => map = rest,
            None => break,
        }
    }
    Ok(map.ins.iter().map(|&(dim, _)| dim).collect())
}

/// The inputs of layouts in registers, in their canonical order.
const HARDWARE: [Dim; 4] = [Dim::Register, Dim::Lane, Dim::Warp, Dim::Block];

/// Both layouts with inputs (register, lane, warp, block) and the outputs of `src` in order.
pub(super) fn aligned(src: &LinearLayout, dst: &LinearLayout) -> Result<(LinearLayout, LinearLayout), LayoutError> {
    let outs: Vec<Dim> = src.outs.iter().map(|&(dim, _)| dim).collect();
    let (src, dst) = (with_hardware(src)?, with_hardware(dst)?.transpose_outs(&outs)?);
    let same_threads = HARDWARE[1..].iter().all(|&dim| src.in_bits(dim) == dst.in_bits(dim));
    if src.outs != dst.outs || !same_threads {
        let operation = "conversion of layouts";
        return Err(LayoutError::DimsDiffer { operation, left: src.to_string(), right: dst.to_string() });
    }
    let span = Span::of(src.columns.iter().copied());
    for dim in HARDWARE {
        if let Some(bit) = dst.columns(dim).iter().position(|&column| !span.contains(column)) {
            return Err(LayoutError::OutsideImage { dim, bit });
        }
    }
    Ok((src, dst))
}

fn with_hardware(layout: &LinearLayout) -> Result<LinearLayout, LayoutError> {
    if layout.ins.iter().any(|(dim, _)| !HARDWARE.contains(dim)) {
        return Err(LayoutError::DimsDiffer {
            operation: "conversion of layouts",
            left: describe(&layout.ins),
            right: "(register, lane, warp, block)".to_string(),
        });
    }
    let ins = HARDWARE.iter().map(|&dim| (dim, layout.in_bits(dim))).collect();
    let columns = HARDWARE.iter().flat_map(|&dim| layout.columns(dim).iter().copied()).collect();
    Ok(LinearLayout::from_parts(ins, layout.outs.clone(), columns))
}

/// Finds places in a layout, preferring those that keep a thread's coordinates.
struct Nearest<'a> {
    layout: &'a LinearLayout,
    /// The spans of the registers, registers and lanes, and so on outwards;
    /// the tags are places of the layout.
    spans: Vec<Span>,
}

impl<'a> Nearest<'a> {
    fn new(layout: &'a LinearLayout) -> Self {
        let mut span = Span::new();
        let mut place = 0;
        let mut spans = Vec::new();
        for dim in HARDWARE {
            for &column in layout.columns(dim) {
                span.insert(column, 1 << place).ok();
                place += 1;
            }
            spans.push(span.clone());
        }
        Nearest { layout, spans }
    }

    /// A place that holds `column`. With `keep = (dim, bit)`, one that has exactly that bit among the bits
    /// of `dim` and outside, if there is one.
    fn find(&self, column: u64, keep: Option<(Dim, usize)>) -> Option<u64> {
        if let Some((dim, bit)) = keep {
            let inner = HARDWARE.iter().position(|&other| other == dim)?.checked_sub(1)?;
            let own = self.layout.columns(dim)[bit];
            let place = self.layout.flat_index(&[(dim, 1 << bit)]);
            if let Some(rest) = self.spans[inner].express(column ^ own) {
                return Some(rest | place);
            }
        }
        self.spans.iter().find_map(|span| span.express(column))
    }
}

/// A conversion that stays inside each warp: places are (register, lane) of the source in one word,
/// registers lowest.
#[derive(Clone, Debug)]
pub(super) struct WarpMap {
    /// Bits of the source's registers, the low part of a place.
    pub(super) register_bits: u32,
    /// Per independent register bit of the destination (a *slot* bit), the place it comes from.
    pub(super) slots: Vec<u64>,
    /// Per lane bit of the destination, the place it comes from.
    pub(super) lanes: Vec<u64>,
    /// Per warp bit, the place in the same warp.
    pub(super) warps: Vec<u64>,
    /// Places of the source that hold the same as place 0: a basis.
    pub(super) redundant: Vec<u64>,
    /// Takes slots to the registers of the destination.
    pub(super) result: ColumnAction,
}

impl WarpMap {
    /// The map from `dst` to `src` (both [`aligned`]), if every warp holds what it needs.
    pub(super) fn new(src: &LinearLayout, dst: &LinearLayout) -> Option<WarpMap> {
        let (registers, lanes) = (src.columns(Dim::Register), src.columns(Dim::Lane));
        let register_bits = registers.len() as u32;
        let in_thread = Span::indexed(registers);
        let mut in_warp = in_thread.clone();
        let mut redundant = super::gf2::nullspace(registers);
        for (bit, &column) in lanes.iter().enumerate() {
            if let Err(relation) = in_warp.insert(column, 1 << (register_bits + bit as u32)) {
                redundant.push(relation);
            }
        }
        let reduced = dst.remove_broadcast_registers();
        let slots = reduced.layout.columns(Dim::Register).iter().map(|&c| in_warp.express(c));
        let from_lane = |(bit, &column): (usize, &u64)| {
            let own = 1u64 << (register_bits + bit as u32);
            let same_lane = in_thread.express(column ^ lanes[bit]).map(|place| place | own);
            same_lane.or_else(|| in_warp.express(column))
        };
        let pairs = |dim| src.columns(dim).iter().zip(dst.columns(dim));
        // The block's and the warp's own bits stay as they are: only the difference has to be found.
        let mut blocks = pairs(Dim::Block);
        if !blocks.all(|(from, to)| from == to) {
            return None;
        }
        Some(WarpMap {
            register_bits,
            slots: slots.collect::<Option<_>>()?,
            lanes: dst.columns(Dim::Lane).iter().enumerate().map(from_lane).collect::<Option<_>>()?,
            warps: pairs(Dim::Warp).map(|(from, to)| in_warp.express(from ^ to)).collect::<Option<_>>()?,
            redundant,
            result: reduced.restore,
        })
    }

    /// The renaming of registers that does it, if no lane needs another's value
    /// and all threads rename alike.
    fn register_action(&self) -> Option<ColumnAction> {
        let own_lane = |(bit, &place): (usize, &u64)| place == 1 << (self.register_bits + bit as u32);
        let stays = self.lanes.iter().enumerate().all(own_lane)
            && self.warps.iter().all(|&place| place == 0)
            && self.slots.iter().all(|&place| place >> self.register_bits == 0);
        let bases = self.result.bases().iter();
        let source = |&slot: &u32| combine(&self.slots, u64::from(slot)) as u32;
        stays.then(|| ColumnAction::from_parts(bases.map(source).collect(), self.register_bits))
    }
}
