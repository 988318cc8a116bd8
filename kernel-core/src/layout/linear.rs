//! The layout type itself: construction, access, application and printing.

use std::fmt;
use std::ops::Range;

use super::gf2::combine;
use super::{LayoutDim, LayoutError};

/// The most bits on one side; one less than a word, so that sizes never overflow.
const MAX_BITS: u32 = 63;

/// A linear map over GF(2) between spaces of named bits.
///
/// `L(x)` is the XOR of the bases of the set bits of `x`. Both sides are ordered minor to major:
/// the first dimension holds the lowest bits of the flattened index.
/// The order matters to reshaping and flattening only.
///
/// A column is stored as one word, the flattened output coordinate,
/// so that flattening and reshaping the outputs never touch the columns.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinearLayout {
    pub(super) ins: Vec<(LayoutDim, u32)>,
    pub(super) outs: Vec<(LayoutDim, u32)>,
    pub(super) columns: Vec<u64>,
}

/// The base-two logarithm of `size`, which must be a power of two.
pub(super) fn log2(what: &'static str, size: u32) -> Result<u32, LayoutError> {
    if size.is_power_of_two() {
        Ok(size.trailing_zeros())
    } else {
        Err(LayoutError::NotPowerOfTwo { what, value: size })
    }
}

/// The bits of a list of dimensions, all together.
pub(super) fn total(dims: &[(LayoutDim, u32)]) -> u32 {
    dims.iter().map(|&(_, bits)| bits).sum()
}

/// Prints dimensions with their sizes, for messages.
pub(super) fn describe(dims: &[(LayoutDim, u32)]) -> String {
    let parts: Vec<_> = dims.iter().map(|(dim, bits)| format!("{dim}:{}", 1u64 << bits)).collect();
    format!("({})", parts.join(", "))
}

/// Checks that no dimension occurs twice and that all bits fit a word.
pub(super) fn check_dims(dims: &[(LayoutDim, u32)]) -> Result<(), LayoutError> {
    for (index, (dim, _)) in dims.iter().enumerate() {
        if dims[..index].iter().any(|(other, _)| other == dim) {
            return Err(LayoutError::DuplicateDim(*dim));
        }
    }
    let bits = total(dims);
    if bits > MAX_BITS { Err(LayoutError::TooManyBits { bits }) } else { Ok(()) }
}

/// The bit range of `dim` in the flattened index over `dims`; empty where it is absent.
pub(super) fn field(dims: &[(LayoutDim, u32)], dim: LayoutDim) -> Range<u32> {
    let mut start = 0;
    for &(name, bits) in dims {
        if name == dim {
            return start..start + bits;
        }
        start += bits;
    }
    start..start
}

/// The bits of `word` in `range`, moved to the bottom.
pub(super) fn extract(word: u64, range: &Range<u32>) -> u64 {
    (word >> range.start) & ((1u64 << (range.end - range.start)) - 1)
}

impl LinearLayout {
    /// The layout without dimensions: the neutral element of the product.
    pub fn empty() -> Self {
        LinearLayout { ins: Vec::new(), outs: Vec::new(), columns: Vec::new() }
    }

    /// Builds a layout from parts that are known to fit each other.
    pub(super) fn from_parts(ins: Vec<(LayoutDim, u32)>, outs: Vec<(LayoutDim, u32)>, columns: Vec<u64>) -> Self {
        debug_assert_eq!(total(&ins) as usize, columns.len());
        debug_assert!(columns.iter().all(|&c| c >> total(&outs) == 0));
        LinearLayout { ins, outs, columns }
    }

    /// The layout with the given bases: per input dimension, per bit, the coordinates along `outs`.
    ///
    /// # Errors
    /// Sizes that are no powers of two, dimensions named twice, bases of the wrong length or out of range,
    /// and more than 63 bits on a side.
    pub fn from_bases(ins: &[(LayoutDim, Vec<Vec<u32>>)], outs: &[(LayoutDim, u32)]) -> Result<Self, LayoutError> {
        let out_bits = outs
            .iter()
            .map(|&(dim, size)| Ok((dim, log2("the size of an output dimension", size)?)))
            .collect::<Result<Vec<_>, LayoutError>>()?;
        let in_bits: Vec<_> = ins.iter().map(|(dim, bases)| (*dim, bases.len() as u32)).collect();
        check_dims(&out_bits)?;
        check_dims(&in_bits)?;
        let mut columns = Vec::with_capacity(total(&in_bits) as usize);
        for (dim, bases) in ins {
            for (bit, basis) in bases.iter().enumerate() {
                if basis.len() != outs.len() {
                    let (got, expected) = (basis.len(), outs.len());
                    return Err(LayoutError::BasisRank { dim: *dim, bit, got, expected });
                }
                let mut column = 0;
                for (&value, &(out, size)) in basis.iter().zip(outs) {
                    if value >= size {
                        return Err(LayoutError::BasisOutOfRange { dim: *dim, bit, out, value, size });
                    }
                    column |= u64::from(value) << field(&out_bits, out).start;
                }
                columns.push(column);
            }
        }
        Ok(LinearLayout { ins: in_bits, outs: out_bits, columns })
    }

    /// `size` consecutive values of `input` are `size` consecutive values of `output`.
    ///
    /// # Errors
    /// `size` is not a power of two.
    pub fn identity1d(size: u32, input: LayoutDim, output: LayoutDim) -> Result<Self, LayoutError> {
        Self::strided1d(size, 1, input, output)
    }

    /// `size` values of `input` are multiples of `stride` along `output`, which has `size * stride` elements.
    ///
    /// # Errors
    /// `size` or `stride` is not a power of two, or the product does not fit.
    pub fn strided1d(size: u32, stride: u32, input: LayoutDim, output: LayoutDim) -> Result<Self, LayoutError> {
        let bits = log2("the size of a dimension", size)?;
        let shift = log2("a stride", stride)?;
        check_dims(&[(output, bits + shift)])?;
        let columns = (0..bits).map(|bit| 1u64 << (bit + shift)).collect();
        Ok(Self::from_parts(vec![(input, bits)], vec![(output, bits + shift)], columns))
    }

    /// `size` values of `input` all map to zero along `output`, which has `out_size` elements:
    /// the building block of replication.
    ///
    /// # Errors
    /// A size is not a power of two.
    pub fn zeros1d(size: u32, input: LayoutDim, output: LayoutDim, out_size: u32) -> Result<Self, LayoutError> {
        let bits = log2("the size of a dimension", size)?;
        let out_bits = log2("the size of a dimension", out_size)?;
        Ok(Self::from_parts(vec![(input, bits)], vec![(output, out_bits)], vec![0; bits as usize]))
    }

    /// The input dimensions with their sizes, minor to major.
    pub fn ins(&self) -> impl Iterator<Item = (LayoutDim, u64)> + '_ {
        self.ins.iter().map(|&(dim, bits)| (dim, 1 << bits))
    }

    /// The output dimensions with their sizes, minor to major.
    pub fn outs(&self) -> impl Iterator<Item = (LayoutDim, u64)> + '_ {
        self.outs.iter().map(|&(dim, bits)| (dim, 1 << bits))
    }

    /// Whether `dim` is an input dimension (maybe of size 1).
    pub fn has_in(&self, dim: LayoutDim) -> bool {
        self.ins.iter().any(|&(name, _)| name == dim)
    }

    /// Whether `dim` is an output dimension (maybe of size 1).
    pub fn has_out(&self, dim: LayoutDim) -> bool {
        self.outs.iter().any(|&(name, _)| name == dim)
    }

    /// The number of bits of input dimension `dim`; 0 where it is absent.
    pub fn in_bits(&self, dim: LayoutDim) -> u32 {
        let range = field(&self.ins, dim);
        range.end - range.start
    }

    /// The size of input dimension `dim`; 1 where it is absent.
    pub fn in_size(&self, dim: LayoutDim) -> u32 {
        1 << self.in_bits(dim)
    }

    /// The number of bits of output dimension `dim`; 0 where it is absent.
    pub fn out_bits(&self, dim: LayoutDim) -> u32 {
        let range = field(&self.outs, dim);
        range.end - range.start
    }

    /// The size of output dimension `dim`; 1 where it is absent.
    pub fn out_size(&self, dim: LayoutDim) -> u32 {
        1 << self.out_bits(dim)
    }

    /// The bits of all input dimensions together.
    pub fn total_in_bits(&self) -> u32 {
        total(&self.ins)
    }

    /// The bits of all output dimensions together.
    pub fn total_out_bits(&self) -> u32 {
        total(&self.outs)
    }

    /// The sizes of the tile axes, `Axis(0)` first, whatever their order in the layout.
    pub fn tile_shape(&self) -> Vec<u32> {
        let mut axes: Vec<_> = self.outs.iter().filter(|(dim, _)| matches!(dim, LayoutDim::Axis(_))).collect();
        axes.sort();
        axes.iter().map(|(_, bits)| 1 << bits).collect()
    }

    /// The columns of `dim` as flattened output coordinates; empty where it is absent.
    pub fn columns(&self, dim: LayoutDim) -> &[u64] {
        let range = field(&self.ins, dim);
        &self.columns[range.start as usize..range.end as usize]
    }

    /// All columns as flattened output coordinates, in the order of the inputs.
    pub fn all_columns(&self) -> &[u64] {
        &self.columns
    }

    /// The bases of `dim`: per bit, the coordinates in the order of the outputs.
    pub fn bases(&self, dim: LayoutDim) -> Vec<Vec<u32>> {
        self.columns(dim).iter().map(|&column| self.unpack(column)).collect()
    }

    /// The bases of `dim` along one output: per bit, the coordinate.
    pub fn bases_along(&self, dim: LayoutDim, out: LayoutDim) -> Vec<u32> {
        let range = field(&self.outs, out);
        self.columns(dim).iter().map(|&column| extract(column, &range) as u32).collect()
    }

    /// The coordinates of a flattened output index, in the order of the outputs.
    pub fn unpack(&self, flat: u64) -> Vec<u32> {
        let fields = self.outs.iter().map(|&(dim, _)| field(&self.outs, dim));
        fields.map(|range| extract(flat, &range) as u32).collect()
    }

    /// The image of a flattened input index, flattened.
    pub fn apply_flat(&self, index: u64) -> u64 {
        combine(&self.columns, index)
    }

    /// The image of a point; inputs that are not named are zero, names that the layout lacks are ignored.
    pub fn apply(&self, point: &[(LayoutDim, u32)]) -> Vec<(LayoutDim, u32)> {
        let flat = self.apply_flat(self.flat_index(point));
        self.outs.iter().map(|&(dim, _)| (dim, extract(flat, &field(&self.outs, dim)) as u32)).collect()
    }

    /// One coordinate of the image of a point (see [`LinearLayout::apply`]).
    pub fn apply_to(&self, point: &[(LayoutDim, u32)], out: LayoutDim) -> u32 {
        extract(self.apply_flat(self.flat_index(point)), &field(&self.outs, out)) as u32
    }

    /// The flattened input index of a point. Bits beyond the size of a dimension are dropped.
    pub fn flat_index(&self, point: &[(LayoutDim, u32)]) -> u64 {
        let mut index = 0;
        for &(dim, value) in point {
            let range = field(&self.ins, dim);
            index |= extract(u64::from(value), &(0..range.end - range.start)) << range.start;
        }
        index
    }
}

/// Prints `register: [0, 1] [0, 2]; lane: [1, 0] -> (dim0:2, dim1:4)`.
impl fmt::Display for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &(dim, _)) in self.ins.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{dim}:")?;
            for basis in self.bases(dim) {
                write!(f, " {basis:?}")?;
            }
        }
        if !self.ins.is_empty() {
            f.write_str(" ")?;
        }
        write!(f, "-> {}", describe(&self.outs))
    }
}

impl fmt::Debug for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinearLayout({self})")
    }
}
