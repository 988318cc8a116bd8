//! Brings the factors of matrix products to where their instructions read them.
//!
//! ```text
//! %c = dot %a, %b, %acc {by = wgmma(256)}
//! ```
//! becomes
//! ```text
//! %va = shared_alloc; %vb = shared_alloc    in swizzled layouts that the instruction reads
//! barrier                                   nobody reads what was there
//! shared_store %va, %a; shared_store %vb, %b
//! fence {kind = proxy_async}; barrier       the instruction sees what all threads wrote
//! %d = wgmma %va, %vb, %acc
//! %c = wgmma_wait %d {pending = 0}
//! ```
//!
//! and a factor of `mma.sync` that has to change threads goes through such an allocation too, so that it is read by
//! `ldmatrix`:
//!
//! ```text
//! %o = convert_layout %a                    %v = shared_alloc; barrier; shared_store %v, %a; barrier; %o = shared_load %v
//! ```
//!
//! The pass is a function of the placed kernel: what a product needs can be read off its instruction and layouts.

use std::collections::BTreeSet;

use kernel_core::edit::{Cursor, Result as Edit, ops_in_order};
use kernel_core::ir::{
    DType, DescOp, DotInstruction, DotOp, DotPrecision, FenceKind, Func, GpuOp, Op, OpId, RegionId, ShapeOp, ValueId,
    view,
};
use kernel_core::layout::{
    Conversion, LayoutDim, LinearLayout, Operand, SwizzleWidth, convert, matrix_access, nvmma_shared,
};

use crate::dot::GROUP_ROWS;
use crate::error::CodegenError;

/// Runs the pass.
///
/// # Errors
/// If a product is not what its instruction computes, which is a mistake of this crate.
pub(crate) fn run(func: &mut Func) -> Result<(), CodegenError> {
    let body = func.body;
    let mut factors = BTreeSet::new();
    for id in ops_in_order(func) {
        if let Op::Dot(DotOp::Dot { .. }) = func.op(id).op {
            factors.extend(&func.op(id).operands[..2]);
        }
    }
    Dots { func, factors }.region(body)
}

struct Dots<'f> {
    func: &'f mut Func,
    /// Factors of products.
    factors: BTreeSet<ValueId>,
}

impl Dots<'_> {
    fn region(&mut self, region: RegionId) -> Result<(), CodegenError> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            for inner in self.func.op(id).regions.clone() {
                self.region(inner)?;
            }
            let operation = self.func.op(id);
            let mut replaced = None;
            if let Op::Dot(DotOp::Dot { precision, by: Some(DotInstruction::Wgmma { columns }) }) = operation.op {
                let span = operation.span;
                let product = self.by_warp_groups(id, precision, columns, &mut out)?;
                let unfit = || CodegenError::internal(self.func, span, "dot_operands", "`wgmma` cannot read a factor");
                replaced = Some(product.ok_or_else(unfit)?);
            } else if operation.op == Op::Shape(ShapeOp::ConvertLayout) && self.factors.contains(&operation.results[0])
            {
                replaced = self.by_matrices(id, &mut out)?;
            }
            if replaced.is_none() {
                out.push(id);
            }
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    /// A product by `wgmma` of so many columns: its factors go to shared memory.
    fn by_warp_groups(
        &mut self,
        id: OpId,
        precision: DotPrecision,
        columns: u32,
        out: &mut Vec<OpId>,
    ) -> Edit<Option<()>> {
        let &[a, b, acc] = self.func.op(id).operands.as_slice() else { return Ok(None) };
        let left = (!self.is_left_operand(a, acc)).then(|| self.shared(a, Operand::A, GROUP_ROWS));
        let right = self.shared(b, Operand::B, columns);
        let (None | Some(Some(_)), Some(right)) = (&left, right) else { return Ok(None) };
        let mut cursor = self.cursor(id, out);
        let left = left.flatten().map(|left| view(&mut cursor, a, &left)).transpose()?;
        let right = view(&mut cursor, b, &right)?;
        cursor.effect(GpuOp::Barrier, &[])?;
        if let Some(left) = left {
            cursor.effect(GpuOp::SharedStore, &[left, a])?;
        }
        cursor.effect(GpuOp::SharedStore, &[right, b])?;
        cursor.effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
        cursor.effect(GpuOp::Barrier, &[])?;
        let product = cursor.like(GpuOp::Wgmma { precision }, &[left.unwrap_or(a), right, acc], acc)?;
        // The product's own operation becomes the wait, so that its result keeps its users.
        cursor.turn(id, GpuOp::WgmmaWait { pending: 0 }, &[product])?;
        Ok(Some(()))
    }

    /// A factor that has to change threads for `mma.sync`: it is read from shared memory by `ldmatrix`.
    fn by_matrices(&mut self, id: OpId, out: &mut Vec<OpId>) -> Edit<Option<()>> {
        let operation = self.func.op(id);
        let (source, result) = (operation.operands[0], operation.results[0]);
        let Some(shared) = self.read_by_matrices(source, result) else { return Ok(None) };
        let mut cursor = self.cursor(id, out);
        let view = view(&mut cursor, source, &shared)?;
        cursor.effect(GpuOp::Barrier, &[])?;
        cursor.effect(GpuOp::SharedStore, &[view, source])?;
        cursor.effect(GpuOp::Barrier, &[])?;
        cursor.turn(id, GpuOp::SharedLoad, &[view])?;
        Ok(Some(()))
    }

    /// How a tile lies in shared memory on its way to another layout, if `ldmatrix` can read it there.
    fn read_by_matrices(&self, source: ValueId, result: ValueId) -> Option<Shared> {
        let dtype = self.dtype(source)?;
        let bits = dtype.bytes() * 8;
        let (from, to) = (self.func.layout(source)?, self.func.layout(result)?);
        if !matches!(convert(from, to, bits), Ok(Conversion::SharedMemory(_))) {
            return None;
        }
        let layout = shared_layout(from, &from.tile_shape(), bits)?;
        let by_matrices = |transposed| matches!(matrix_access(to, &layout, bits, transposed), Ok(Some(_)));
        (by_matrices(false) || by_matrices(true)).then_some(Shared { layout, dtype })
    }

    fn cursor<'e>(&'e mut self, of: OpId, out: &'e mut Vec<OpId>) -> Cursor<'e> {
        let span = self.func.op(of).span;
        Cursor::new(self.func, out, "dot_operands").at(span)
    }

    /// Whether `a` lies in the threads as `wgmma` reads it from registers: the rows of its lanes and warps are those of
    /// the accumulator.
    fn is_left_operand(&self, a: ValueId, acc: ValueId) -> bool {
        let (Some(left), Some(sum)) = (self.func.layout(a), self.func.layout(acc)) else { return false };
        let Some(width) = self.dtype(a).map(|dtype| 4 / dtype.bytes().clamp(1, 4)) else { return false };
        let (rows, along) = (LayoutDim::Axis(0), LayoutDim::Axis(1));
        let same_rows = [LayoutDim::Lane, LayoutDim::Warp]
            .into_iter()
            .all(|dim| left.bases_along(dim, rows) == sum.bases_along(dim, rows));
        same_rows
            && left.bases_along(LayoutDim::Lane, along) == [width, 2 * width, 0, 0, 0]
            && left.bases_along(LayoutDim::Warp, along).iter().all(|&base| base == 0)
    }

    /// How a factor of `wgmma` lies in shared memory, of which an instruction reads so many rows or columns.
    fn shared(&self, value: ValueId, operand: Operand, extent: u32) -> Option<Shared> {
        let dtype = self.dtype(value)?;
        let bits = dtype.bytes() * 8;
        let from = self.func.layout(value)?;
        let shape = from.tile_shape();
        let (mn, k) = if operand == Operand::A { (0, 1) } else { (1, 0) };
        let across = extent.min(shape[usize::from(mn)]);
        // Only factors of 16 bits can be contiguous along M or N, and only where a row is as wide as a swizzle.
        let wide = SwizzleWidth::widest_for(across * bits / 8) != SwizzleWidth::None;
        // A block of a tensor lies as in memory, so that a tensor copy can put it there.
        let contiguous = self.tensor_axis(value).map_or_else(|| is_contiguous(from, mn, k), |axis| axis == mn);
        let along_mn = bits == 16 && wide && contiguous;
        let row = if along_mn { across } else { shape[usize::from(k)] };
        let width = SwizzleWidth::widest_for(row * bits / 8);
        let layout = nvmma_shared(&shape, width, bits, along_mn == (mn == 0)).ok()?;
        Some(Shared { layout, dtype })
    }

    /// The axis along which a block of a tensor is contiguous in memory; `None` for a tile that is none.
    fn tensor_axis(&self, value: ValueId) -> Option<u8> {
        let operation = self.func.def_op(value)?;
        if let Op::Desc(DescOp::DescLoad) = operation.op {
            return (self.func.ty(value).rank() as u8).checked_sub(1);
        }
        if let Some(convert) = view::ConvertLayout::of(operation) {
            return self.tensor_axis(convert.tile);
        }
        let Op::Shape(ShapeOp::Permute { perm }) = &operation.op else { return None };
        let axis = self.tensor_axis(operation.moved_operand()?)?;
        perm.iter().position(|&from| from == axis).map(|position| position as u8)
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.func.ty(value).dtype()
    }
}

/// How a tile lies in shared memory.
struct Shared {
    layout: LinearLayout,
    dtype: DType,
}

/// Shared memory for a tile.
fn view(cursor: &mut Cursor<'_>, tile: ValueId, shared: &Shared) -> Edit<ValueId> {
    let (shape, layout) = (cursor.func.ty(tile).shape.clone(), cursor.func.intern(&shared.layout));
    cursor.placed(GpuOp::SharedAlloc { shape, dtype: shared.dtype.into() }, &[], Some(layout))
}

/// Whether a thread holds more neighbours along `axis` than along `other`; none on either side counts for neither.
fn is_contiguous(layout: &LinearLayout, axis: u8, other: u8) -> bool {
    let run = |axis: u8| layout.num_consecutive(LayoutDim::Register, LayoutDim::Axis(axis));
    let (own, others) = (run(axis), run(other));
    // Without vectors, the lanes say which way a row runs.
    let lanes =
        |axis: u8| layout.bases_along(LayoutDim::Lane, LayoutDim::Axis(axis)).first().is_some_and(|&base| base != 0);
    own > others || (own == others && lanes(axis))
}

/// Swizzled shared memory for a tile that is held in `from`, contiguous along the axis that threads hold vectors of.
/// `None` for tiles that are smaller than the swizzle.
fn shared_layout(from: &LinearLayout, shape: &[u32], bits: u32) -> Option<LinearLayout> {
    let rank = shape.len() as u8;
    let transposed = is_contiguous(from, rank - 2, rank - 1);
    let row = shape[usize::from(if transposed { rank - 2 } else { rank - 1 })];
    nvmma_shared(shape, SwizzleWidth::widest_for(row * bits / 8), bits, transposed).ok()
}
