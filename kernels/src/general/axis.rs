//! How work along one dimension of a tensor is divided among programs.

use crate::check::{self, Around};
use crate::tensor::layout::{Layout, Run};
use tilewright::Result;
use tilewright::prelude::*;

/// Where a piece ends that begins at `first`, of a dimension of `len` elements.
///
/// What is left is compared before it is added to, as the sum may not fit in 32 bits. Of the sum itself the host does not know
/// that it lies inside, so that accesses would be checked: hence the second comparison.
#[device]
pub(super) fn end_of_piece(first: i32, per_piece: i32, len: i32) -> i32 {
    minimum(first + minimum(per_piece, len - first), len)
}

/// Elements of the tile of a program: 16 for each thread of 8 warps, so that each has several wide loads in flight.
const TILE: usize = 4096;
/// Programs that keep a large GPU busy: about four on each multiprocessor.
const PROGRAMS: usize = 512;
/// Neighbours that a program takes where the dimension is not the contiguous one: 256 bytes of 16-bit elements.
const NEIGHBOURS: usize = 128;

/// A tensor `[beside, kept]` of work along a dimension of `len`. `kept` is in tiles, `beside` in the grid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub kept: Run,
    pub beside: Run,
    pub axis: Run,
    /// Whether `kept` are the dimensions behind the one of the work, and `beside` those before it.
    inner_is_kept: bool,
    /// Elements of a tile: kept ones, and along the dimension.
    pub block_kept: usize,
    pub block_axis: usize,
    /// Parts that the dimension is divided into, each a number of whole blocks long but the last.
    pub pieces: usize,
    pub per_piece: usize,
}

/// Strides of a result that has the kept dimensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub kept: i64,
    pub beside: i64,
    /// Along the dimension itself, or between pieces.
    pub axis: i64,
}

/// A run of one element has no step. A step of one would hide from the kernel that rows begin at multiples of 16 bytes.
fn stepless(run: Run) -> Run {
    if run.size == 1 { Run { stride: 0, ..run } } else { run }
}

impl Work {
    /// The work along `axis` of a tensor; `pieces` says whether it may be divided.
    pub(crate) fn of<const R: usize>(argument: &str, layout: Layout<R>, axis: usize, pieces: bool) -> Result<Work> {
        let around = Around::of(argument, layout, axis)?;
        for run in [around.outer, around.axis, around.inner] {
            check::size(argument, run.size)?;
        }
        // The inner dimensions are in tiles, unless there are hardly any.
        let inner_is_kept = around.outer.size == 1 || around.inner.size >= 4;
        let (kept, beside) = if inner_is_kept { (around.inner, around.outer) } else { (around.outer, around.inner) };
        let axis = around.axis;
        let along = axis.stride <= kept.stride || kept.size == 1;
        let [kept, beside] = [kept, beside].map(stepless);
        let (block_kept, block_axis) = if along {
            let block_axis = axis.size.next_power_of_two().clamp(1, TILE);
            ((TILE / block_axis).min(kept.size.next_power_of_two()), block_axis)
        } else {
            let block_kept = kept.size.next_power_of_two().min(NEIGHBOURS);
            (block_kept, (TILE / block_kept).min(axis.size.next_power_of_two()))
        };
        let per_piece = axis.size;
        let mut work = Work { kept, beside, axis, inner_is_kept, block_kept, block_axis, pieces: 1, per_piece };
        if pieces {
            work.divide();
        }
        Ok(work)
    }

    /// The work in blocks of these sizes, divided anew.
    pub(crate) fn with_blocks(mut self, block_kept: usize, block_axis: usize) -> Work {
        (self.block_kept, self.block_axis) = (block_kept, block_axis);
        self.divide();
        self
    }

    /// Divides the dimension where there are too few programs without it. A piece has four blocks or more.
    fn divide(&mut self) {
        let wanted = PROGRAMS.div_ceil(self.programs().max(1));
        let blocks = self.axis.size.div_ceil(self.block_axis).max(1);
        let per_piece = blocks.div_ceil(wanted).max(4) * self.block_axis;
        self.pieces = self.axis.size.div_ceil(per_piece).max(1);
        self.per_piece = if self.pieces == 1 { self.axis.size } else { per_piece };
    }

    /// The work of putting the results of pieces together, which lie in a tensor `[pieces, beside, kept]`.
    pub(crate) fn of_pieces(&self) -> Work {
        let axis = Run { size: self.pieces, stride: self.beside.size * self.kept.size };
        let block_axis = self.pieces.next_power_of_two();
        let block_kept = (TILE / block_axis).min(self.kept.size.next_power_of_two()).max(1);
        let partial = self.partial();
        Work {
            kept: Run { size: self.kept.size, stride: partial.kept as usize },
            beside: Run { size: self.beside.size, stride: partial.beside as usize },
            axis,
            inner_is_kept: self.inner_is_kept,
            block_kept,
            block_axis,
            pieces: 1,
            per_piece: self.pieces,
        }
    }

    /// Strides of a tensor `[pieces, beside, kept]`.
    pub(crate) fn partial(&self) -> Kept {
        let (kept, beside) = (self.kept.size as i64, self.beside.size as i64);
        Kept { kept: 1, beside: kept, axis: kept * beside }
    }

    /// Elements of a tensor `[pieces, beside, kept]`.
    pub(crate) fn partials(&self) -> usize {
        self.pieces * self.beside.size * self.kept.size
    }

    /// Elements of that tensor where there is one: work of one piece has its result at once.
    pub(crate) fn room(&self) -> usize {
        if self.pieces > 1 { self.partials() } else { 0 }
    }

    /// Strides of a result that differs from the tensor in the size of dimension `axis` alone.
    pub(crate) fn result<const R: usize>(&self, argument: &str, layout: Layout<R>, axis: usize) -> Result<Kept> {
        let around = Around::of(argument, layout, axis)?;
        let [inner, outer] = [around.inner, around.outer].map(stepless);
        let (kept, beside) = if self.inner_is_kept { (inner, outer) } else { (outer, inner) };
        Ok(Kept { kept: kept.stride as i64, beside: beside.stride as i64, axis: around.axis.stride as i64 })
    }

    /// Programs along axis 0 of the grid.
    pub(crate) fn programs(&self) -> usize {
        self.kept.size.div_ceil(self.block_kept) * self.beside.size
    }

    /// Warps for a tile: 16 elements for each thread.
    pub(crate) fn warps(&self) -> u32 {
        (self.block_kept * self.block_axis / 512).clamp(1, 8) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_one_element_have_no_step() {
        let layout = |shape, strides| Layout { shape, strides };
        let rows = Work::of("x", layout([300, 8192], [8192, 1]), 1, true).unwrap();
        assert_eq!((rows.kept, rows.beside), (Run { size: 300, stride: 8192 }, Run { size: 1, stride: 0 }));
        assert_eq!((rows.block_kept, rows.block_axis), (1, 4096), "a program goes along a row");
        let all = Work::of("x", layout([1, 8192], [8192, 1]), 1, true).unwrap();
        assert_eq!((all.kept.stride, all.beside.stride, all.axis.stride), (0, 0, 1));
        let to = rows.result("out", layout([300, 1], [1, 1]), 1).unwrap();
        assert_eq!((to.kept, to.beside), (1, 0));
    }
}
