//! Tiles of integers and pointers that are affine in their coordinates, kept as formulas.
//!
//! `program_id(0) * BLOCK + arange(0, BLOCK)` never needs memory: it is a base and a step per dimension. Loads and
//! stores through such pointers see runs of adjacent elements without looking at single offsets.

use crate::ir::{CmpOp, DType};

/// Ranks above this are computed lane by lane.
pub(super) const MAX_RANK: usize = 4;

/// The tile whose element at coordinates `x` is `base + Σ steps[d] * x[d]`.
///
/// Invariants: steps along dimensions of size 1, and beyond the rank, are 0; no element leaves the range of the
/// tile's dtype (so the formula never wraps) nor of i64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Affine {
    pub base: i64,
    pub steps: [i64; MAX_RANK],
}

/// The rows of an affine tile: the longest innermost stretch with one step, and what lies outside of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Elements in a row.
    pub len: usize,
    /// Step from element to element in a row.
    pub step: i64,
    /// How many leading dimensions count the rows.
    pub outer: usize,
}

/// Values of i64 that an integer dtype holds; `None` for what is not an integer.
pub(super) fn int_range(dtype: DType) -> Option<(i64, i64)> {
    dtype.is_int().then(|| (dtype.int_min() as i64, i64::try_from(dtype.int_max()).unwrap_or(i64::MAX)))
}

impl Affine {
    /// The same value everywhere.
    pub(super) fn uniform(base: i64) -> Affine {
        Affine { base, steps: [0; MAX_RANK] }
    }

    /// The smallest and the largest element.
    pub(super) fn range(&self, dims: &[usize]) -> (i128, i128) {
        let (mut low, mut high) = (i128::from(self.base), i128::from(self.base));
        for (&step, &dim) in self.steps.iter().zip(dims) {
            let reach = i128::from(step) * (dim.max(1) as i128 - 1);
            low += reach.min(0);
            high += reach.max(0);
        }
        (low, high)
    }

    /// This, if every element is within the bounds.
    pub(super) fn within(self, dims: &[usize], (min, max): (i64, i64)) -> Option<Affine> {
        let (low, high) = self.range(dims);
        (low >= i128::from(min) && high <= i128::from(max)).then_some(self)
    }

    /// The sum of two tiles of one shape, if no coefficient overflows. Elements may.
    pub(super) fn add(&self, other: &Affine) -> Option<Affine> {
        self.zip(other, i64::checked_add)
    }

    /// The difference.
    pub(super) fn sub(&self, other: &Affine) -> Option<Affine> {
        self.zip(other, i64::checked_sub)
    }

    /// The product, where one of the two is uniform.
    pub(super) fn mul(&self, other: &Affine) -> Option<Affine> {
        let (tile, factor) = if other.is_uniform() {
            (self, other.base)
        } else if self.is_uniform() {
            (other, self.base)
        } else {
            return None;
        };
        let mut steps = [0; MAX_RANK];
        for (out, step) in steps.iter_mut().zip(tile.steps) {
            *out = step.checked_mul(factor)?;
        }
        Some(Affine { base: tile.base.checked_mul(factor)?, steps })
    }

    fn zip(&self, other: &Affine, f: fn(i64, i64) -> Option<i64>) -> Option<Affine> {
        let mut steps = [0; MAX_RANK];
        for (out, (&a, &b)) in steps.iter_mut().zip(self.steps.iter().zip(&other.steps)) {
            *out = f(a, b)?;
        }
        Some(Affine { base: f(self.base, other.base)?, steps })
    }

    pub(super) fn is_uniform(&self) -> bool {
        self.steps == [0; MAX_RANK]
    }

    /// A comparison of two tiles, if it has the same outcome everywhere.
    pub(super) fn compare(&self, op: CmpOp, other: &Affine, dims: &[usize]) -> Option<bool> {
        let (low, high) = self.sub(other)?.range(dims);
        let (always, never) = match op {
            CmpOp::Eq => (low == 0 && high == 0, low > 0 || high < 0),
            CmpOp::Ne => (low > 0 || high < 0, low == 0 && high == 0),
            CmpOp::Lt => (high < 0, low >= 0),
            CmpOp::Le => (high <= 0, low > 0),
            CmpOp::Gt => (low > 0, high <= 0),
            CmpOp::Ge => (low >= 0, high < 0),
        };
        if always {
            Some(true)
        } else if never {
            Some(false)
        } else {
            None
        }
    }

    /// A dimension of size 1 inserted before `axis`.
    pub(super) fn expand_dims(&self, axis: usize, rank: usize) -> Option<Affine> {
        if rank >= MAX_RANK {
            return None;
        }
        let mut steps = [0; MAX_RANK];
        for d in 0..rank {
            steps[if d < axis { d } else { d + 1 }] = self.steps[d];
        }
        Some(Affine { base: self.base, steps })
    }

    /// Dimension `i` of the result is dimension `perm[i]`.
    pub(super) fn permute(&self, perm: &[u8]) -> Affine {
        let mut steps = [0; MAX_RANK];
        for (out, &from) in steps.iter_mut().zip(perm) {
            *out = self.steps[usize::from(from)];
        }
        Affine { base: self.base, steps }
    }

    /// The same elements in row-major order in another shape, if they are evenly spaced.
    pub(super) fn reshape(&self, from: &[usize], to: &[usize]) -> Option<Affine> {
        let rows = self.rows(from);
        if rows.outer != 0 || to.len() > MAX_RANK {
            return None;
        }
        let mut steps = [0; MAX_RANK];
        let mut step = rows.step;
        for (d, &dim) in to.iter().enumerate().rev() {
            if dim > 1 {
                steps[d] = step;
                step = step.checked_mul(i64::try_from(dim).ok()?)?;
            }
        }
        Some(Affine { base: self.base, steps })
    }

    /// Splits the tile into rows, as long as possible.
    pub(super) fn rows(&self, dims: &[usize]) -> Rows {
        let mut rows = Rows { len: 1, step: 1, outer: dims.len() };
        for (d, &dim) in dims.iter().enumerate().rev() {
            if dim != 1 {
                let step = self.steps[d];
                if rows.len == 1 {
                    rows.step = step;
                } else if i128::from(step) != i128::from(rows.step) * rows.len as i128 {
                    break;
                }
                rows.len *= dim;
            }
            rows.outer = d;
        }
        rows
    }

    /// Calls `f` with the first lane and the first element of every row, in order.
    pub(super) fn for_each_row(&self, dims: &[usize], rows: Rows, mut f: impl FnMut(usize, i64)) {
        let outer = &dims[..rows.outer];
        let count: usize = outer.iter().product();
        let mut coordinates = [0usize; MAX_RANK];
        let mut start = self.base;
        for row in 0..count {
            f(row * rows.len, start);
            for d in (0..outer.len()).rev() {
                coordinates[d] += 1;
                start = start.wrapping_add(self.steps[d]);
                if coordinates[d] < outer[d] {
                    break;
                }
                start = start.wrapping_sub(self.steps[d].wrapping_mul(outer[d] as i64));
                coordinates[d] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(s: &[i64]) -> [i64; MAX_RANK] {
        let mut steps = [0; MAX_RANK];
        steps[..s.len()].copy_from_slice(s);
        steps
    }

    #[test]
    fn rows_merge_dimensions_that_continue_each_other() {
        let tile = Affine { base: 5, steps: steps(&[100, 4, 1]) };
        let rows = tile.rows(&[2, 3, 4]);
        assert_eq!((rows.len, rows.step, rows.outer), (12, 1, 1));
        let mut seen = Vec::new();
        tile.for_each_row(&[2, 3, 4], rows, |lane, start| seen.push((lane, start)));
        assert_eq!(seen, [(0, 5), (12, 105)]);
        let rows = tile.rows(&[1, 3, 4]);
        assert_eq!((rows.len, rows.outer), (12, 0));
    }

    #[test]
    fn rows_of_strided_and_broadcast_tiles() {
        let tile = Affine { base: 0, steps: steps(&[0, 2]) };
        let rows = tile.rows(&[3, 4]);
        assert_eq!((rows.len, rows.step, rows.outer), (4, 2, 1));
        let uniform = Affine::uniform(7).rows(&[3, 4]);
        assert_eq!((uniform.len, uniform.step, uniform.outer), (12, 0, 0));
    }

    #[test]
    fn rows_visit_every_start_in_order() {
        let tile = Affine { base: 0, steps: steps(&[1000, 100, 3]) };
        let rows = tile.rows(&[2, 2, 5]);
        let mut seen = Vec::new();
        tile.for_each_row(&[2, 2, 5], rows, |lane, start| seen.push((lane, start)));
        assert_eq!(seen, [(0, 0), (5, 100), (10, 1000), (15, 1100)]);
    }

    #[test]
    fn comparisons_with_one_outcome() {
        let tile = Affine { base: 0, steps: steps(&[1]) };
        assert_eq!(tile.compare(CmpOp::Lt, &Affine::uniform(8), &[8]), Some(true));
        assert_eq!(tile.compare(CmpOp::Lt, &Affine::uniform(7), &[8]), None);
        assert_eq!(tile.compare(CmpOp::Ge, &Affine::uniform(8), &[8]), Some(false));
        assert_eq!(tile.compare(CmpOp::Ne, &Affine::uniform(-1), &[8]), Some(true));
        assert_eq!(tile.compare(CmpOp::Eq, &tile, &[8]), Some(true));
    }

    #[test]
    fn reshape_needs_even_spacing() {
        let tile = Affine { base: 2, steps: steps(&[8, 2]) };
        let flat = tile.reshape(&[3, 4], &[12]).map(|t| t.steps);
        assert_eq!(flat, Some(steps(&[2])));
        let uneven = Affine { base: 2, steps: steps(&[9, 2]) };
        assert_eq!(uneven.reshape(&[3, 4], &[12]), None);
    }
}
