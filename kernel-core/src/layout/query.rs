//! Questions about a layout: redundancy, contiguity, vectors.

use super::gf2::{Subspace, combine, rank};
use super::linear::{extract, field};
use super::{ColumnAction, LayoutDim, LinearLayout};
use crate::target::GROUP_WARPS;

/// A layout without redundant values along one dimension, and the ways there and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastRemoved {
    /// The layout whose bases along the dimension are independent.
    pub layout: LinearLayout,
    /// Takes the values of the full layout to those of the reduced one.
    pub remove: ColumnAction,
    /// Takes the values of the reduced layout to those of the full one.
    pub restore: ColumnAction,
}

/// How the values of one thread form vectors along an output (see [`LinearLayout::vectors`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Elements per vector, a power of two.
    pub width: u32,
    /// Per vector, the registers of its elements in order of their coordinate.
    /// A value that several registers hold is in the list once.
    pub groups: Vec<Vec<u32>>,
    /// Per register of the layout, the register in `groups` that holds the same element.
    pub canonical: ColumnAction,
}

impl LinearLayout {
    /// Whether every element of the output space is reached.
    pub fn is_surjective(&self) -> bool {
        rank(self.columns.iter().copied()) == self.total_out_bits()
    }

    /// Whether no element is reached twice.
    pub fn is_injective(&self) -> bool {
        rank(self.columns.iter().copied()) == self.total_in_bits()
    }

    /// Whether the layout is a bijection.
    pub fn is_invertible(&self) -> bool {
        self.is_injective() && self.is_surjective()
    }

    /// Per input dimension, the bits that are redundant: with these bits zero, the layout reaches the same elements.
    ///
    /// A thread whose lane or warp has such a bit set holds copies, so it need not store, and must not add.
    pub fn free_variable_masks(&self) -> Vec<(LayoutDim, u32)> {
        let mut span = Subspace::new();
        let mut masks = Vec::new();
        for &(dim, _) in &self.ins {
            let bits = self.columns(dim).iter().enumerate();
            let free = bits.filter(|&(_, &column)| span.insert(column, 0).is_err());
            masks.push((dim, free.fold(0, |mask, (bit, _)| mask | 1 << bit)));
        }
        masks
    }

    /// The redundant bits of one dimension; see [`LinearLayout::free_variable_masks`].
    pub fn free_variable_mask(&self, dim: LayoutDim) -> u32 {
        self.free_variable_masks().iter().find(|(name, _)| *name == dim).map_or(0, |&(_, mask)| mask)
    }

    /// The number of consecutive elements along `out` that consecutive values of `input` hold,
    /// starting at a multiple of that number: what decides the width of a vector access.
    ///
    /// [`LinearLayout::vectors`] also finds vectors that are spread over the registers.
    pub fn num_consecutive(&self, input: LayoutDim, out: LayoutDim) -> u32 {
        let start = field(&self.outs, out).start;
        let columns = self.columns(input);
        let limit = self.out_bits(out) as usize;
        let mut bits = 0;
        while bits < limit && columns.get(bits) == Some(&(1 << (start + bits as u32))) {
            bits += 1;
        }
        // The others must not move inside the vector.
        let own = field(&self.ins, input).start as usize;
        while bits > 0 {
            let low = ((1u64 << bits) - 1) << start;
            let mut others = self.columns.iter().enumerate().filter(|&(i, _)| i < own || i >= own + bits);
            if others.all(|(_, column)| column & low == 0) {
                break;
            }
            bits -= 1;
        }
        1 << bits
    }

    /// The widest vectors of registers that are contiguous along `out`, of at most `max_width` elements.
    ///
    /// Each group starts at a multiple of the width, whatever the lane, warp and block,
    /// and any register may take part: the result says which, in which order.
    pub fn vectors(&self, out: LayoutDim, max_width: u32) -> Vectors {
        let registers = self.columns(LayoutDim::Register);
        let start = field(&self.outs, out).start;
        let span = Subspace::indexed(registers);
        let others = self.ins.iter().filter(|(dim, _)| *dim != LayoutDim::Register);
        let moved = others.flat_map(|&(dim, _)| self.columns(dim)).fold(0, |word, column| word | column);
        let limit = max_width.max(1).ilog2().min(self.out_bits(out));

        // The combination of registers that moves by each power of two.
        let mut low = Vec::new();
        while (low.len() as u32) < limit {
            let unit = 1u64 << (start + low.len() as u32);
            match span.express(unit) {
                Some(combination) if moved & unit == 0 => low.push(combination),
                _ => break,
            }
        }
        let width = 1 << low.len();
        let high = self.vector_bases(&low, start);
        let groups = (0..1u64 << high.len())
            .map(|group| {
                let base = combine(&high, group);
                (0..width).map(|element| (base ^ combine(&low, element)) as u32).collect()
            })
            .collect();
        Vectors { width: width as u32, groups, canonical: self.canonical_registers(&low, &high) }
    }

    /// Combinations of registers that, after those of `low`, span all registers without redundancy,
    /// and whose coordinate starts at a multiple of the vector.
    fn vector_bases(&self, low: &[u64], start: u32) -> Vec<u64> {
        let registers = self.columns(LayoutDim::Register);
        let mut span = Subspace::of(low.iter().map(|&combination| combine(registers, combination)));
        let low_field = start..start + low.len() as u32;
        let mut high = Vec::new();
        for (bit, &column) in registers.iter().enumerate() {
            let combination = 1 << bit ^ combine(low, extract(column, &low_field));
            if span.insert(combine(registers, combination), 0).is_ok() {
                high.push(combination);
            }
        }
        high
    }

    /// Per register bit, the combination in the span of `low` and `high` with the same column.
    fn canonical_registers(&self, low: &[u64], high: &[u64]) -> ColumnAction {
        let registers = self.columns(LayoutDim::Register);
        let mut span = Subspace::new();
        for &combination in low.iter().chain(high) {
            // The generators are independent, so each insertion enlarges the span.
            span.insert(combine(registers, combination), combination).ok();
        }
        let bases = registers.iter().map(|&column| span.express(column).unwrap_or(0) as u32).collect();
        ColumnAction::from_parts(bases, registers.len() as u32)
    }

    /// The part of that shape of a tile, for any place at multiples of the shape: the threads hold what they held of
    /// it.
    ///
    /// `None` if which part an element is in depends on more than the register: some threads would hold nothing.
    pub fn part(&self, shape: &[u32]) -> Option<LinearLayout> {
        let mut outs = Vec::new();
        // The bits of a flattened coordinate that say which part, and where those of the part go.
        let (mut outer, mut fields, mut start) = (0u64, Vec::new(), 0);
        for &(dim, bits) in &self.outs {
            let LayoutDim::Axis(axis) = dim else { return None };
            let own = shape.get(usize::from(axis)).filter(|size| size.is_power_of_two())?.ilog2();
            if own > bits {
                return None;
            }
            outer |= ((1 << bits) - (1 << own)) << start;
            fields.push(start..start + own);
            outs.push((dim, own));
            start += bits;
        }
        let pack = |column: u64| {
            let place = |(packed, at): (u64, u32), field: &std::ops::Range<u32>| {
                (packed | extract(column, field) << at, at + field.end - field.start)
            };
            fields.iter().fold((0, 0), place).0
        };
        let (mut ins, mut columns) = (Vec::new(), Vec::new());
        for &(dim, _) in &self.ins {
            let inner: Vec<u64> = self.columns(dim).iter().copied().filter(|column| column & outer == 0).collect();
            let dropped = self.columns(dim).iter().filter(|column| **column & outer != 0);
            if dropped.clone().any(|column| dim != LayoutDim::Register || column & !outer != 0) {
                return None;
            }
            ins.push((dim, inner.len() as u32));
            columns.extend(inner.into_iter().map(pack));
        }
        Some(LinearLayout::from_parts(ins, outs, columns))
    }

    /// In how many parts, along each axis, groups of four warps divide the tile so that each holds one: `[2, 1]` if the
    /// first four warps hold the upper half and the next four the lower. Groups go along the first axis first.
    ///
    /// `None` if they divide it otherwise, or hold copies.
    pub fn warp_group_parts(&self) -> Option<Vec<u8>> {
        let rank = self.tile_shape().len();
        let warps = self.columns(LayoutDim::Warp);
        let groups = warps.get(GROUP_WARPS.ilog2() as usize..).unwrap_or_default();
        let axis_of = |column: u64| {
            let axis = (0..rank as u8).find(|&axis| column & self.out_mask(LayoutDim::Axis(axis)) != 0)?;
            column.is_power_of_two().then_some(usize::from(axis))
        };
        let mut counts = vec![0u32; rank];
        for &column in groups {
            counts[axis_of(column)?] += 1;
        }
        let mut expected = Vec::new();
        for (axis, &count) in counts.iter().enumerate() {
            let end = field(&self.outs, LayoutDim::Axis(axis as u8)).end;
            expected.extend((end - count..end).map(|bit| 1u64 << bit));
        }
        let own = expected.iter().fold(0, |mask, column| mask | column);
        let others = self.columns.iter().filter(|column| **column & own != 0).count();
        (groups == expected && others == groups.len()).then(|| counts.iter().map(|&count| 1 << count).collect())
    }

    /// Without the redundant values along `dim`: those whose basis is zero or a sum of earlier bases of `dim`.
    pub fn remove_broadcast(&self, dim: LayoutDim) -> BroadcastRemoved {
        let columns = self.columns(dim);
        let mut span = Subspace::new();
        let mut kept = Vec::new();
        for (bit, &column) in columns.iter().enumerate() {
            if span.insert(column, 1 << kept.len()).is_ok() {
                kept.push(bit);
            }
        }
        let restore = columns.iter().map(|&column| span.express(column).unwrap_or(0) as u32).collect();
        let remove = ColumnAction::from_parts(kept.iter().map(|&bit| 1 << bit).collect(), columns.len() as u32);
        BroadcastRemoved {
            layout: remove.apply_to_layout(self, dim),
            remove,
            restore: ColumnAction::from_parts(restore, kept.len() as u32),
        }
    }

    /// Without redundant registers; see [`LinearLayout::remove_broadcast`].
    pub fn remove_broadcast_registers(&self) -> BroadcastRemoved {
        self.remove_broadcast(LayoutDim::Register)
    }
}
