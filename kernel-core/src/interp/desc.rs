//! Blocks of tensors: loads, stores and reductions through descriptors.
//!
//! A block is walked by rows of its innermost dimension; of each, the part inside the tensor is accessed.

use std::ptr;

use crate::ir::{DType, Literal, ParamId};
use crate::num::to_bits;

use super::buffers::{Tensor, TensorMemory};
use super::executor::{Executor, fill};
use super::instructions::{Block, BlockAccess, Rows};
use super::lanes::{Bits, Fn2};
use super::memory::{Cell, by_width, combine};
use super::registers::RegId;

/// How elements meet memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Load,
    Store,
    Reduce(Fn2),
}

/// Calls `f` with the first lane, the offset in the tensor and the length of every run of a block inside the tensor.
fn for_each_run(tensor: &Tensor, dims: &[usize], at: &[i64], mut f: impl FnMut(usize, usize, usize)) {
    let Some((&columns, outer)) = dims.split_last() else { return };
    let inner = outer.len();
    let rows: usize = outer.iter().product();
    let first = at[inner].max(0);
    let end = at[inner].saturating_add_unsigned(columns as u64).min(tensor.shape[inner].min(i64::MAX as u64) as i64);
    if first >= end {
        return;
    }
    'rows: for row in 0..rows {
        let (mut rest, mut offset) = (row, first as u64 * tensor.strides[inner]);
        for axis in (0..inner).rev() {
            let position = at[axis] + (rest % outer[axis]) as i64;
            rest /= outer[axis];
            match u64::try_from(position) {
                Ok(position) if position < tensor.shape[axis] => offset += position * tensor.strides[axis],
                Ok(_) | Err(_) => continue 'rows,
            }
        }
        f(row * columns + (first - at[inner]) as usize, offset as usize, (end - first) as usize);
    }
}

/// Accesses the part of a block that lies inside the tensor.
///
/// # Safety
/// `data` is valid for the block, for writes if it is loaded; `f` of a reduction is for elements of type `T`.
unsafe fn access<T: Cell>(memory: &TensorMemory, dims: &[usize], at: &[i64], data: *mut T, direction: Direction) {
    let step = memory.tensor.strides[memory.tensor.rank - 1] as usize;
    for_each_run(&memory.tensor, dims, at, |lane, offset, len| {
        // SAFETY: runs lie inside block and tensor, whose memory the launch promises to be valid; memory that the
        // kernel may write is accessed atomically.
        unsafe {
            let (data, cells) = (data.add(lane), memory.tensor.ptr.cast::<T>().add(offset));
            match direction {
                Direction::Load if !memory.mutable && step == 1 => ptr::copy_nonoverlapping(cells, data, len),
                Direction::Load => {
                    for i in 0..len {
                        *data.add(i) = T::load(cells.add(i * step));
                    }
                }
                Direction::Store => {
                    for i in 0..len {
                        T::store(cells.add(i * step), *data.add(i));
                    }
                }
                Direction::Reduce(f) => {
                    for i in 0..len {
                        combine(cells.add(i * step), f, *data.add(i));
                    }
                }
            }
        }
    });
}

/// What elements outside a tensor read as.
fn padding(dtype: DType, pads_with_nan: bool) -> Bits {
    let nan = if pads_with_nan { to_bits(Literal::float(f64::NAN), dtype) } else { None };
    Bits::from_raw(nan.unwrap_or(0), dtype.bytes() as usize)
}

impl Executor<'_> {
    pub(super) fn tensor(&self, param: ParamId) -> Option<TensorMemory> {
        self.launch.tensors.get(param.index()).copied().flatten()
    }

    pub(super) fn coordinates(&self, registers: &[RegId]) -> Vec<i64> {
        registers.iter().map(|&reg| self.scalar(reg).to_int(DType::I32) as i64).collect()
    }

    pub(super) fn block(&mut self, block: &Block, access: BlockAccess) {
        let at = self.coordinates(&block.coordinates);
        let n: usize = block.dims.iter().product();
        let (data, direction) = match access {
            BlockAccess::Load { out } => (self.reg(out).home, Direction::Load),
            BlockAccess::Store { value } => (self.dense(value).cast_mut(), Direction::Store),
            BlockAccess::Reduce { value, f } => (self.dense(value).cast_mut(), Direction::Reduce(f)),
        };
        // SAFETY: the register has the block's elements; only a load writes, to the home of its result.
        unsafe { self.move_block(block.param, block.dtype, &block.dims, &at, data, direction, n) };
        if let BlockAccess::Load { out } = access {
            self.set_dense(out);
        }
    }

    /// Moves a block between memory and `data`; what is outside the tensor is padded.
    ///
    /// # Safety
    /// `data` holds `n` elements of the block, for writes if they are loaded.
    #[expect(clippy::too_many_arguments, reason = "each says something else about one move")]
    pub(super) unsafe fn move_block(
        &mut self,
        param: ParamId,
        dtype: DType,
        dims: &[usize],
        at: &[i64],
        data: *mut u8,
        direction: Direction,
        n: usize,
    ) {
        let Some(memory) = self.tensor(param) else { return };
        if matches!(direction, Direction::Load) {
            // SAFETY: promised by the caller.
            unsafe { fill(data, padding(dtype, memory.tensor.pads_with_nan), dtype.bytes() as usize, n) };
        } else if memory.mutable {
            self.turn.changed = true;
        } else {
            return;
        }
        // SAFETY: promised by the caller.
        by_width!(dtype, T => unsafe { access::<T>(&memory, dims, at, data.cast::<T>(), direction) });
        if dtype == DType::Bool && matches!(direction, Direction::Load) {
            // SAFETY: as above.
            let lanes = unsafe { std::slice::from_raw_parts_mut(data, n) };
            lanes.iter_mut().for_each(|lane| *lane = u8::from(*lane != 0));
        }
    }

    pub(super) fn rows(&mut self, rows: &Rows) {
        let column = self.coordinates(&[rows.column])[0];
        let from: *const i32 = self.dense(rows.rows).cast();
        let count = self.reg(rows.rows).n;
        let (data, direction) = if rows.load {
            (self.reg(rows.value).home, Direction::Load)
        } else {
            (self.dense(rows.value).cast_mut(), Direction::Store)
        };
        let bytes = rows.columns * rows.dtype.bytes() as usize;
        for i in 0..count {
            // SAFETY: there are `count` rows; the register holds `columns` elements for each.
            unsafe {
                let at = [i64::from(*from.add(i)), column];
                self.move_block(
                    rows.param,
                    rows.dtype,
                    &[1, rows.columns],
                    &at,
                    data.add(i * bytes),
                    direction,
                    rows.columns,
                );
            }
        }
        if rows.load {
            self.set_dense(rows.value);
        }
    }
}
