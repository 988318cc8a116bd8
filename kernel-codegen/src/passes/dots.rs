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

use kernel_core::ir::{
    DType, DescOp, Dim, DotInstruction, DotOp, DotPrecision, Dt, Elem, FenceKind, FloatFlags, Func, GpuOp, LayoutId,
    Op, OpId, RegionId, ShapeOp, Span, Ty, ValueId, view,
};
use kernel_core::layout::{
    Conversion, Dim as Axis, LinearLayout, Operand, SwizzleWidth, convert, matrix_access, nvmma_shared,
};

use crate::dot::GROUP_ROWS;
use crate::error::CodegenError;

/// Runs the pass.
///
/// # Errors
/// If a product is not what its instruction computes, which is a mistake of this crate.
pub(crate) fn run(func: &mut Func) -> Result<(), CodegenError> {
    let body = func.body;
    let mut pass = Dots { func, factors: BTreeSet::new() };
    pass.collect(body);
    pass.region(body)
}

struct Dots<'f> {
    func: &'f mut Func,
    /// Factors of products.
    factors: BTreeSet<ValueId>,
}

impl Dots<'_> {
    /// Notes the factors of all products.
    fn collect(&mut self, region: RegionId) {
        for id in self.func.region(region).ops.clone() {
            let operation = self.func.op(id);
            if let Op::Dot(DotOp::Dot { .. }) = operation.op {
                self.factors.extend(&operation.operands[..2]);
            }
            for inner in operation.regions.clone() {
                self.collect(inner);
            }
        }
    }

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
                let product = self.by_warp_groups(id, precision, columns, &mut out);
                let unfit = || CodegenError::internal(self.func, span, "dots", "`wgmma` cannot read a factor");
                replaced = Some(product.ok_or_else(unfit)?);
            } else if operation.op == Op::Shape(ShapeOp::ConvertLayout) && self.factors.contains(&operation.results[0])
            {
                replaced = self.by_matrices(id, &mut out);
            }
            if replaced.is_none() {
                out.push(id);
            }
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    /// A product by `wgmma` of so many columns: its factors go to shared memory.
    fn by_warp_groups(&mut self, id: OpId, precision: DotPrecision, columns: u32, out: &mut Vec<OpId>) -> Option<()> {
        let operation = self.func.op(id).clone();
        let &[a, b, acc] = operation.operands.as_slice() else { return None };
        let (result, span) = (operation.results[0], operation.span);
        let left_stays = self.is_left_operand(a, acc);
        let mut stores = Vec::new();
        let left = if left_stays { a } else { self.allocate(a, (Operand::A, GROUP_ROWS), span, out, &mut stores)? };
        let right = self.allocate(b, (Operand::B, columns), span, out, &mut stores)?;
        self.effect(GpuOp::Barrier, vec![], span, out);
        for (view, value) in stores {
            self.effect(GpuOp::SharedStore, vec![view, value], span, out);
        }
        self.effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, vec![], span, out);
        self.effect(GpuOp::Barrier, vec![], span, out);
        let (ty, layout) = (self.func.ty(acc).clone(), self.func.value(acc).layout);
        let product = self.value(GpuOp::Wgmma { precision }, vec![left, right, acc], ty, layout, span, out);
        // The product's own operation becomes the wait, so that its result keeps its users.
        let wait = &mut self.func.ops[id.index()];
        wait.op = Op::Gpu(GpuOp::WgmmaWait { pending: 0 });
        wait.operands = vec![product];
        debug_assert_eq!(wait.results, [result]);
        out.push(id);
        Some(())
    }

    /// A factor that has to change threads for `mma.sync`: it is read from shared memory by `ldmatrix`.
    fn by_matrices(&mut self, id: OpId, out: &mut Vec<OpId>) -> Option<()> {
        let operation = self.func.op(id).clone();
        let (source, result, span) = (operation.operands[0], operation.results[0], operation.span);
        let bits = self.dtype(source)?.bytes() * 8;
        let (from, to) = (self.layout(source)?.clone(), self.layout(result)?.clone());
        if !matches!(convert(&from, &to, bits), Ok(Conversion::SharedMemory(_))) {
            return None;
        }
        let shape = from.tile_shape();
        let shared = shared_layout(&from, &shape, bits)?;
        let by_matrices = |transposed| matches!(matrix_access(&to, &shared, bits, transposed), Ok(Some(_)));
        if !by_matrices(false) && !by_matrices(true) {
            return None;
        }
        let view = self.view(source, &shared, span, out)?;
        self.effect(GpuOp::Barrier, vec![], span, out);
        self.effect(GpuOp::SharedStore, vec![view, source], span, out);
        self.effect(GpuOp::Barrier, vec![], span, out);
        let load = &mut self.func.ops[id.index()];
        load.op = Op::Gpu(GpuOp::SharedLoad);
        load.operands = vec![view];
        debug_assert_eq!(load.results, [result]);
        out.push(id);
        Some(())
    }

    /// Whether `a` lies in the threads as `wgmma` reads it from registers: the rows of its lanes and warps are those of
    /// the accumulator.
    fn is_left_operand(&self, a: ValueId, acc: ValueId) -> bool {
        let (Some(left), Some(sum)) = (self.layout(a), self.layout(acc)) else { return false };
        let Some(width) = self.dtype(a).map(|dtype| 4 / dtype.bytes().clamp(1, 4)) else { return false };
        let (rows, along) = (Axis::Axis(0), Axis::Axis(1));
        let same_rows =
            [Axis::Lane, Axis::Warp].into_iter().all(|dim| left.bases_along(dim, rows) == sum.bases_along(dim, rows));
        same_rows
            && left.bases_along(Axis::Lane, along) == [width, 2 * width, 0, 0, 0]
            && left.bases_along(Axis::Warp, along).iter().all(|&base| base == 0)
    }

    /// Allocates shared memory for a factor of `wgmma`; the store is left for later.
    fn allocate(
        &mut self,
        value: ValueId,
        (operand, extent): (Operand, u32),
        span: Span,
        out: &mut Vec<OpId>,
        stores: &mut Vec<(ValueId, ValueId)>,
    ) -> Option<ValueId> {
        let bits = self.dtype(value)?.bytes() * 8;
        let from = self.layout(value)?.clone();
        let shape = from.tile_shape();
        let (mn, k) = if operand == Operand::A { (0, 1) } else { (1, 0) };
        let across = extent.min(shape[usize::from(mn)]);
        // Only factors of 16 bits can be contiguous along M or N, and only where a row is as wide as a swizzle.
        let wide = SwizzleWidth::widest_for(across * bits / 8) != SwizzleWidth::None;
        // A block of a tensor lies as in memory, so that a tensor copy can put it there.
        let contiguous = self.tensor_axis(value).map_or_else(|| is_contiguous(&from, mn, k), |axis| axis == mn);
        let along_mn = bits == 16 && wide && contiguous;
        let row = if along_mn { across } else { shape[usize::from(k)] };
        let width = SwizzleWidth::widest_for(row * bits / 8);
        let shared = nvmma_shared(&shape, width, bits, along_mn == (mn == 0)).ok()?;
        let view = self.view(value, &shared, span, out)?;
        stores.push((view, value));
        Some(view)
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

    /// An allocation for the tile `like`.
    fn view(&mut self, like: ValueId, shared: &LinearLayout, span: Span, out: &mut Vec<OpId>) -> Option<ValueId> {
        let dtype = Dt::Known(self.dtype(like)?);
        let shape: Vec<Dim> = self.func.ty(like).shape.clone();
        let layout = self.intern(shared);
        let ty = Ty { elem: Elem::Shared(dtype), shape: shape.clone() };
        Some(self.value(GpuOp::SharedAlloc { shape, dtype }, vec![], ty, Some(layout), span, out))
    }

    fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        let layouts = &mut self.func.layouts;
        let known = layouts.iter().position(|known| known == layout);
        let index = known.unwrap_or_else(|| {
            layouts.push(layout.clone());
            layouts.len() - 1
        });
        LayoutId::new(index as u32)
    }

    fn effect(&mut self, op: GpuOp, operands: Vec<ValueId>, span: Span, out: &mut Vec<OpId>) {
        out.push(self.func.new_op(Op::Gpu(op), operands, Vec::new(), Vec::new(), FloatFlags::default(), span));
    }

    fn value(
        &mut self,
        op: GpuOp,
        operands: Vec<ValueId>,
        ty: Ty,
        layout: Option<LayoutId>,
        span: Span,
        out: &mut Vec<OpId>,
    ) -> ValueId {
        let id = self.func.new_op(Op::Gpu(op), operands, vec![ty], Vec::new(), FloatFlags::default(), span);
        let value = self.func.op(id).results[0];
        self.func.values[value.index()].layout = layout;
        out.push(id);
        value
    }

    fn layout(&self, value: ValueId) -> Option<&LinearLayout> {
        self.func.value(value).layout.map(|id| &self.func.layouts[id.index()])
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.func.ty(value).dtype()
    }
}

/// Whether a thread holds more neighbours along `axis` than along `other`; none on either side counts for neither.
fn is_contiguous(layout: &LinearLayout, axis: u8, other: u8) -> bool {
    let run = |axis: u8| layout.num_consecutive(Axis::Register, Axis::Axis(axis));
    let (own, others) = (run(axis), run(other));
    // Without vectors, the lanes say which way a row runs.
    let lanes = |axis: u8| layout.bases_along(Axis::Lane, Axis::Axis(axis)).first().is_some_and(|&base| base != 0);
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
