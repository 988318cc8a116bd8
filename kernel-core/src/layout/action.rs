//! Linear rearrangements of the list of values that a thread holds.

use super::linear::{field, log2};
use super::{LayoutDim, LayoutError, LinearLayout};

/// A rearrangement of a list of values that is linear in their index: it permutes, drops or repeats them.
///
/// Value `i` of the result is value `XOR of bases[b] for the set bits b of i` of the source.
/// In generated code it costs nothing, since it only renames values.
///
/// ```text
/// bases [2, 1]: [a, b, c, d] -> [a, c, b, d]     a permutation
/// bases [2]:    [a, b, c, d] -> [a, c]           drops the values with bit 0 set
/// bases [1, 0]: [a, b]       -> [a, b, a, b]     repeats
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnAction {
    bases: Vec<u32>,
    source_bits: u32,
}

impl ColumnAction {
    pub(super) fn from_parts(bases: Vec<u32>, source_bits: u32) -> Self {
        debug_assert!(bases.iter().all(|base| base >> source_bits == 0));
        ColumnAction { bases, source_bits }
    }

    /// The action with the given bases on lists of `source_len` values.
    ///
    /// # Errors
    /// `source_len` is no power of two, or a base lies outside the list.
    pub fn new(bases: Vec<u32>, source_len: u32) -> Result<Self, LayoutError> {
        let source_bits = log2("the number of values", source_len)?;
        if let Some(&base) = bases.iter().find(|&&base| base >= source_len) {
            return Err(LayoutError::BadParameters {
                constructor: "ColumnAction::new",
                message: format!("base {base} lies outside a list of {source_len} values"),
            });
        }
        Ok(ColumnAction { bases, source_bits })
    }

    /// The action that changes nothing, on lists of `2^bits` values.
    pub fn identity(bits: u32) -> Self {
        ColumnAction { bases: (0..bits).map(|bit| 1 << bit).collect(), source_bits: bits }
    }

    /// The bases, one per bit of the index of the result.
    pub fn bases(&self) -> &[u32] {
        &self.bases
    }

    /// The number of values of the result.
    pub fn result_len(&self) -> usize {
        1 << self.bases.len()
    }

    /// The number of values of the source.
    pub fn source_len(&self) -> usize {
        1 << self.source_bits
    }

    /// Whether nothing changes.
    pub fn is_identity(&self) -> bool {
        *self == Self::identity(self.source_bits)
    }

    /// The source index of value `index` of the result.
    pub fn source_of(&self, index: usize) -> usize {
        let bits = self.bases.iter().enumerate();
        bits.filter(|(bit, _)| index >> bit & 1 == 1).fold(0, |sum, (_, &base)| sum ^ base as usize)
    }

    /// Rearranges `values`, of which there must be [`ColumnAction::source_len`]
    /// (values that are missing are left out of the result).
    pub fn apply<T: Clone>(&self, values: &[T]) -> Vec<T> {
        (0..self.result_len()).filter_map(|index| values.get(self.source_of(index)).cloned()).collect()
    }

    /// The layout of the rearranged values: value `i` is at `layout(source_of(i))`.
    pub fn apply_to_layout(&self, layout: &LinearLayout, dim: LayoutDim) -> LinearLayout {
        let own = layout.columns(dim);
        let range = field(&layout.ins, dim);
        let moved = self.bases.iter().map(|&base| {
            let bits = own.iter().enumerate().filter(|(bit, _)| base >> bit & 1 == 1);
            bits.fold(0, |sum, (_, column)| sum ^ column)
        });
        let mut columns = layout.columns[..range.start as usize].to_vec();
        columns.extend(moved);
        columns.extend_from_slice(&layout.columns[range.end as usize..]);
        let mut ins = layout.ins.clone();
        match ins.iter_mut().find(|(name, _)| *name == dim) {
            Some((_, bits)) => *bits = self.bases.len() as u32,
            // An absent dimension has one value, which is repeated.
            None => ins.push((dim, self.bases.len() as u32)),
        }
        LinearLayout::from_parts(ins, layout.outs.clone(), columns)
    }

    /// First this action, then `next`.
    ///
    /// # Errors
    /// The lengths do not fit.
    pub fn then(&self, next: &ColumnAction) -> Result<ColumnAction, LayoutError> {
        if next.source_len() != self.result_len() {
            return Err(LayoutError::DimsDiffer {
                operation: "ColumnAction::then",
                left: format!("{} values", self.result_len()),
                right: format!("{} values", next.source_len()),
            });
        }
        let bases = next.bases.iter().map(|&base| self.source_of(base as usize) as u32).collect();
        Ok(ColumnAction { bases, source_bits: self.source_bits })
    }
}
