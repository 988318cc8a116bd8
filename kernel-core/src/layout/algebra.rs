//! Products, composition, inverses and division.

use std::ops::Mul;

use super::gf2::Subspace;
use super::linear::{check_dims, describe, extract, field, total};
use super::{LayoutDim, LayoutError, LinearLayout};

/// The bits of `dim` in `dims`, 0 where it is absent.
fn bits_of(dims: &[(LayoutDim, u32)], dim: LayoutDim) -> u32 {
    let range = field(dims, dim);
    range.end - range.start
}

/// The dimensions of a product: those of `a` with the bits of `b` added, then those that only `b` has.
fn joined(a: &[(LayoutDim, u32)], b: &[(LayoutDim, u32)]) -> Vec<(LayoutDim, u32)> {
    let mut dims: Vec<_> = a.iter().map(|&(dim, bits)| (dim, bits + bits_of(b, dim))).collect();
    dims.extend(b.iter().filter(|(dim, _)| !a.iter().any(|(other, _)| other == dim)));
    dims
}

/// Moves the fields of `column` from their place in `from` to their place in `to`,
/// `shift(dim)` bits above the bottom of the field.
pub(super) fn repack(
    column: u64,
    from: &[(LayoutDim, u32)],
    to: &[(LayoutDim, u32)],
    shift: impl Fn(LayoutDim) -> u32,
) -> u64 {
    from.iter().fold(0, |word, &(dim, _)| {
        let target = field(to, dim);
        if target.is_empty() {
            return word;
        }
        word | extract(column, &field(from, dim)) << (target.start + shift(dim))
    })
}

/// Whether both lists have the same dimensions with the same sizes, in any order.
pub(super) fn same_dims(a: &[(LayoutDim, u32)], b: &[(LayoutDim, u32)]) -> bool {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort_unstable();
    b.sort_unstable();
    a == b
}

impl LinearLayout {
    /// The direct sum: bits of `other` come after (above) those of `self`, in inputs and outputs alike.
    ///
    /// Every hardware layout is such a product of small parts. Associative; `empty` is neutral.
    ///
    /// # Errors
    /// More than 63 bits on a side.
    pub fn product(&self, other: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let ins = joined(&self.ins, &other.ins);
        let outs = joined(&self.outs, &other.outs);
        check_dims(&ins)?;
        check_dims(&outs)?;
        let mut columns = Vec::with_capacity(total(&ins) as usize);
        for &(dim, _) in &ins {
            let low = self.columns(dim).iter();
            columns.extend(low.map(|&column| repack(column, &self.outs, &outs, |_| 0)));
            let high = other.columns(dim).iter();
            let shift = |out| self.out_bits(out);
            columns.extend(high.map(|&column| repack(column, &other.outs, &outs, shift)));
        }
        Ok(LinearLayout::from_parts(ins, outs, columns))
    }

    /// `outer(self(x))`. The outputs of `self` are the inputs of `outer`, in any order, and fit them.
    ///
    /// # Errors
    /// The names differ, or an output of `self` is larger than the input of `outer`.
    pub fn compose(&self, outer: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        let fits = self.outs.len() == outer.ins.len()
            && self.outs.iter().all(|&(dim, bits)| outer.has_in(dim) && bits <= outer.in_bits(dim));
        if !fits {
            return Err(LayoutError::DimsDiffer {
                operation: "compose",
                left: describe(&self.outs),
                right: describe(&outer.ins),
            });
        }
        let columns = self.columns.iter();
        let columns = columns.map(|&c| outer.apply_flat(repack(c, &self.outs, &outer.ins, |_| 0))).collect();
        Ok(LinearLayout::from_parts(self.ins.clone(), outer.outs.clone(), columns))
    }

    /// The inverse of a bijection.
    ///
    /// # Errors
    /// The layout is not a bijection.
    pub fn invert(&self) -> Result<LinearLayout, LayoutError> {
        if self.total_in_bits() != self.total_out_bits() {
            return Err(LayoutError::NotInvertible);
        }
        self.pseudoinvert().map_err(|_| LayoutError::NotInvertible)
    }

    /// A right inverse `R`, with `self(R(y)) = y`: of all hardware places that hold an element, the one whose
    /// redundant bits are zero.
    ///
    /// # Errors
    /// The layout does not reach every element.
    pub fn pseudoinvert(&self) -> Result<LinearLayout, LayoutError> {
        let span = Subspace::indexed(&self.columns);
        let columns = (0..self.total_out_bits())
            .map(|bit| span.express(1 << bit).ok_or(LayoutError::NotSurjective))
            .collect::<Result<_, _>>()?;
        Ok(LinearLayout::from_parts(self.outs.clone(), self.ins.clone(), columns))
    }

    /// `C` with `outer(C(x)) = self(x)`, which is `outer⁻¹ ∘ self`: where in `outer` the element sits
    /// that `self` has at `x`. Redundant bits of `outer` are taken to be zero.
    ///
    /// With a register layout `r` and a shared-memory layout `s`, `r.invert_and_compose(&s)` is
    /// the shared-memory offset of each (register, lane, warp).
    ///
    /// # Errors
    /// The outputs differ in name or size, or `outer` lacks an element of `self`.
    pub fn invert_and_compose(&self, outer: &LinearLayout) -> Result<LinearLayout, LayoutError> {
        if !same_dims(&self.outs, &outer.outs) {
            return Err(LayoutError::DimsDiffer {
                operation: "invert_and_compose",
                left: describe(&self.outs),
                right: describe(&outer.outs),
            });
        }
        let span = Subspace::indexed(&outer.columns);
        let mut columns = Vec::with_capacity(self.columns.len());
        for &(dim, _) in &self.ins {
            for (bit, &column) in self.columns(dim).iter().enumerate() {
                let target = repack(column, &self.outs, &outer.outs, |_| 0);
                columns.push(span.express(target).ok_or(LayoutError::OutsideImage { dim, bit })?);
            }
        }
        Ok(LinearLayout::from_parts(self.ins.clone(), outer.ins.clone(), columns))
    }

    /// `C` with `self = divisor * C`, if there is one: whether the instruction tile `divisor` fits the
    /// lowest bits of this layout. Dimensions that are used up are dropped from `C`.
    pub fn divide_left(&self, divisor: &LinearLayout) -> Option<LinearLayout> {
        let ins = remaining(&self.ins, &divisor.ins)?;
        let outs = remaining(&self.outs, &divisor.outs)?;
        let mut columns = Vec::new();
        for &(dim, _) in &self.ins {
            let divided = divisor.columns(dim);
            for (bit, &column) in self.columns(dim).iter().enumerate() {
                // What the column moves within the divisor, and what above it.
                let (mut low, mut high) = (0, 0);
                for &(out, _) in &self.outs {
                    let value = extract(column, &field(&self.outs, out));
                    let cut = bits_of(&divisor.outs, out);
                    low |= (value & ((1 << cut) - 1)) << field(&divisor.outs, out).start;
                    high |= (value >> cut) << field(&outs, out).start;
                }
                match divided.get(bit) {
                    Some(&own) if own == low && high == 0 => {}
                    None if low == 0 => columns.push(high),
                    Some(_) | None => return None,
                }
            }
        }
        Some(LinearLayout::from_parts(ins, outs, columns))
    }
}

/// The dimensions of `dims` less the bits of `divisor`; none of those that are used up.
fn remaining(dims: &[(LayoutDim, u32)], divisor: &[(LayoutDim, u32)]) -> Option<Vec<(LayoutDim, u32)>> {
    if divisor.iter().any(|(dim, _)| !dims.iter().any(|(other, _)| other == dim)) {
        return None;
    }
    let mut rest = Vec::new();
    for &(dim, bits) in dims {
        let used = bits_of(divisor, dim);
        let left = bits.checked_sub(used)?;
        if left > 0 || used == 0 {
            rest.push((dim, left));
        }
    }
    Some(rest)
}

/// `a * b` is [`LinearLayout::product`].
///
/// # Panics
/// More than 63 bits on a side; use [`LinearLayout::product`] where sizes are not bounded beforehand.
impl Mul for LinearLayout {
    type Output = LinearLayout;

    fn mul(self, other: LinearLayout) -> LinearLayout {
        &self * &other
    }
}

/// `&a * &b` is [`LinearLayout::product`].
///
/// # Panics
/// More than 63 bits on a side; use [`LinearLayout::product`] where sizes are not bounded beforehand.
impl Mul for &LinearLayout {
    type Output = LinearLayout;

    fn mul(self, other: &LinearLayout) -> LinearLayout {
        match self.product(other) {
            Ok(layout) => layout,
            Err(error) => panic!("product of layouts: {error}"),
        }
    }
}
