//! What two layouts have to do with each other: the same inputs and outputs, and where in its warp each value comes
//! from.

use super::gf2::{Subspace, combine};
use super::linear::describe;
use super::{ColumnAction, LayoutDim, LayoutError, LinearLayout};

/// The inputs of layouts in registers, in their canonical order.
pub(super) const HARDWARE: [LayoutDim; 4] = [LayoutDim::Register, LayoutDim::Lane, LayoutDim::Warp, LayoutDim::Block];

/// Both layouts with inputs (register, lane, warp, block) and the outputs of `src` in order.
pub(super) fn aligned(src: &LinearLayout, dst: &LinearLayout) -> Result<(LinearLayout, LinearLayout), LayoutError> {
    let outs: Vec<LayoutDim> = src.outs.iter().map(|&(dim, _)| dim).collect();
    let (src, dst) = (with_hardware(src)?, with_hardware(dst)?.transpose_outs(&outs)?);
    let same_threads = HARDWARE[1..].iter().all(|&dim| src.in_bits(dim) == dst.in_bits(dim));
    if src.outs != dst.outs || !same_threads {
        let operation = "conversion of layouts";
        return Err(LayoutError::DimsDiffer { operation, left: src.to_string(), right: dst.to_string() });
    }
    let span = Subspace::of(src.columns.iter().copied());
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
    /// Takes the source's registers to the elements of words, one word after the other.
    pub(super) gather: ColumnAction,
    /// Elements of a word, which move together.
    pub(super) per_word: u32,
    /// Takes the elements of received words to the registers of the destination.
    pub(super) result: ColumnAction,
}

impl WarpMap {
    /// The map from `dst` to `src` (both [`aligned`]), if every warp holds what it needs.
    pub(super) fn new(src: &LinearLayout, dst: &LinearLayout) -> Option<WarpMap> {
        let (registers, lanes) = (src.columns(LayoutDim::Register), src.columns(LayoutDim::Lane));
        let register_bits = registers.len() as u32;
        let in_thread = Subspace::indexed(registers);
        let mut in_warp = in_thread.clone();
        let mut redundant = super::gf2::nullspace(registers);
        for (bit, &column) in lanes.iter().enumerate() {
            if let Err(relation) = in_warp.insert(column, 1 << (register_bits + bit as u32)) {
                redundant.push(relation);
            }
        }
        let reduced = dst.remove_broadcast_registers();
        let slots = reduced.layout.columns(LayoutDim::Register).iter().map(|&c| in_warp.express(c));
        let from_lane = |(bit, &column): (usize, &u64)| {
            let own = 1u64 << (register_bits + bit as u32);
            let same_lane = in_thread.express(column ^ lanes[bit]).map(|place| place | own);
            same_lane.or_else(|| in_warp.express(column))
        };
        let pairs = |dim| src.columns(dim).iter().zip(dst.columns(dim));
        // The block's and the warp's own bits stay as they are: only the difference has to be found.
        let mut blocks = pairs(LayoutDim::Block);
        if !blocks.all(|(from, to)| from == to) {
            return None;
        }
        Some(WarpMap {
            register_bits,
            slots: slots.collect::<Option<_>>()?,
            lanes: dst.columns(LayoutDim::Lane).iter().enumerate().map(from_lane).collect::<Option<_>>()?,
            warps: pairs(LayoutDim::Warp).map(|(from, to)| in_warp.express(from ^ to)).collect::<Option<_>>()?,
            redundant,
            gather: ColumnAction::identity(register_bits),
            per_word: 1,
            result: reduced.restore,
        })
    }

    /// The map of words of at most 32 bits. Elements are neighbours in a word if a register bit of the source is one of
    /// the destination, and where anything else comes from does not depend on it: then they come from one thread and go to one.
    pub(super) fn of_words(self, elem_bits: u32) -> WarpMap {
        let places = || self.slots.iter().chain(&self.lanes).chain(&self.warps).chain(&self.redundant);
        let moves_alone = |place: u64| {
            place.is_power_of_two()
                && place >> self.register_bits == 0
                && places().filter(|&&other| other & place != 0).count() == 1
        };
        let mut together: Vec<(u64, usize)> = (0..self.slots.len())
            .map(|slot| (self.slots[slot], slot))
            .filter(|&(place, _)| moves_alone(place))
            .collect();
        together.sort_unstable();
        together.truncate((32 / elem_bits.clamp(1, 32)).ilog2() as usize);
        let (bits, slots): (Vec<u64>, Vec<usize>) = together.into_iter().unzip();
        // Numbers without the bits of the elements of a word.
        let of_word = |place: u64| {
            let rest = (0..64).filter(|bit| !bits.contains(&(1 << bit)));
            rest.enumerate().fold(0, |word, (to, from)| word | (place >> from & 1) << to)
        };
        let words = |places: &[u64]| places.iter().map(|&place| of_word(place)).collect::<Vec<u64>>();
        let rest = (0..self.register_bits).map(|bit| 1 << bit).filter(|bit| !bits.contains(bit));
        let gather = bits.iter().copied().chain(rest).map(|bit| bit as u32).collect();
        let moved: Vec<usize> = (0..self.slots.len()).filter(|slot| !slots.contains(slot)).collect();
        let order: Vec<usize> = slots.iter().chain(&moved).copied().collect();
        let element = |slot: u32| {
            let is_in = |&(_, from): &(usize, &usize)| slot >> *from & 1 == 1;
            order.iter().enumerate().filter(is_in).fold(0, |element, (to, _)| element | 1 << to)
        };
        let result = self.result.bases().iter().map(|&slot| element(slot)).collect();
        WarpMap {
            register_bits: self.register_bits - bits.len() as u32,
            slots: moved.iter().map(|&slot| of_word(self.slots[slot])).collect(),
            lanes: words(&self.lanes),
            warps: words(&self.warps),
            redundant: words(&self.redundant),
            gather: ColumnAction::from_parts(gather, self.register_bits),
            per_word: 1 << bits.len(),
            result: ColumnAction::from_parts(result, self.slots.len() as u32),
        }
    }

    /// The renaming of registers that does it, if no lane needs another's value
    /// and all threads rename alike.
    pub(super) fn register_action(&self) -> Option<ColumnAction> {
        let own_lane = |(bit, &place): (usize, &u64)| place == 1 << (self.register_bits + bit as u32);
        let stays = self.lanes.iter().enumerate().all(own_lane)
            && self.warps.iter().all(|&place| place == 0)
            && self.slots.iter().all(|&place| place >> self.register_bits == 0);
        let bases = self.result.bases().iter();
        let source = |&slot: &u32| combine(&self.slots, u64::from(slot)) as u32;
        stays.then(|| ColumnAction::from_parts(bases.map(source).collect(), self.register_bits))
    }
}
