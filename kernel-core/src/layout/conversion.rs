//! From one register layout to another: what has to move, and how.

use super::gf2::Subspace;
use super::shuffle::{self, ShufflePlan};
use super::swizzle::{SharedPlan, SwizzleOptions, optimal_swizzle};
use super::warp_map::{HARDWARE, WarpMap, aligned};
use super::{ColumnAction, LayoutDim, LayoutError, LinearLayout};

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
        return optimal_swizzle(&src, &dst, elem_bits, &options.swizzle).map(Conversion::SharedMemory);
    };
    if let Some(action) = map.register_action() {
        let unchanged = action.is_identity();
        return Ok(if unchanged { Conversion::NoOp } else { Conversion::RegisterPermute(action) });
    }
    match shuffle::plan(&map.of_words(elem_bits)) {
        Some(plan) if plan.levels() <= options.max_select_levels => Ok(Conversion::Shuffle(plan)),
        _ => optimal_swizzle(&src, &dst, elem_bits, &options.swizzle).map(Conversion::SharedMemory),
    }
}

/// The conversion as shuffles, for tests, however many selects that takes;
/// `None` where values must move between warps, or copies in the lanes defeat the scheme.
///
/// # Errors
/// As [`convert`].
#[cfg(test)]
pub(super) fn shuffle_plan(
    src: &LinearLayout,
    dst: &LinearLayout,
    elem_bits: u32,
) -> Result<Option<ShufflePlan>, LayoutError> {
    let (src, dst) = aligned(src, dst)?;
    Ok(WarpMap::new(&src, &dst).and_then(|map| shuffle::plan(&map.of_words(elem_bits))))
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
            let keep = if dim == LayoutDim::Register { None } else { Some((dim, bit)) };
            nearest.find(dst.columns(dim)[bit], keep).ok_or(LayoutError::OutsideImage { dim, bit })
        })
        .collect::<Result<_, _>>()?;
    Ok(LinearLayout::from_parts(dst.ins.clone(), src.ins.clone(), columns))
}

/// Finds places in a layout, preferring those that keep a thread's coordinates.
struct Nearest<'a> {
    layout: &'a LinearLayout,
    /// The spans of the registers, registers and lanes, and so on outwards;
    /// the tags are places of the layout.
    spans: Vec<Subspace>,
}

impl<'a> Nearest<'a> {
    fn new(layout: &'a LinearLayout) -> Self {
        let mut span = Subspace::new();
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
    fn find(&self, column: u64, keep: Option<(LayoutDim, usize)>) -> Option<u64> {
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
