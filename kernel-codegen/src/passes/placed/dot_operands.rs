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
//! A factor of `wgmma` that does not change in the loops around a product is stored before the outermost of them, and
//! stays there. Products behind it find it where it is:
//!
//! ```text
//! for { %s = dot %q, %k, .. }               %vq = shared_alloc; barrier; shared_store %vq, %q; fence; barrier
//! for { %t = dot %q, %l, .. }               for { .. wgmma %vq, %vk, .. }
//!                                           for { .. wgmma %vq, %vl, .. }
//! ```
//!
//! So it costs no registers in the loop, and no barriers there, which would keep groups of warps in step.
//!
//! The pass is a function of the placed kernel: what a product needs can be read off its instruction and layouts.

use std::collections::BTreeSet;

use kernel_core::edit::{Cursor, Result as Edit, Structure, ops_in_order};
use kernel_core::ir::{
    DType, Def, DescOp, DotInstruction, DotOp, DotPrecision, FenceKind, Func, GpuOp, GroupPart, MemoryOp, Op, OpId,
    RegionId, ShapeOp, ValueId, view,
};
use kernel_core::layout::{
    Conversion, LayoutDim, LinearLayout, Operand, SwizzleWidth, convert, is_wgmma_left, matrix_access, nvmma_shared,
    shared_access,
};

use crate::dot::GROUP_ROWS;
use crate::error::CodegenError;

/// Bytes of a row of all banks.
const LINE_BYTES: u32 = 128;
/// Bytes of the widest access of a thread.
const CHUNK_BYTES: u32 = 16;

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
    let (structure, unpacked) = (Structure::new(func), unpacked(func));
    Dots { func, structure, factors, unpacked, around: Vec::new(), held: Vec::new() }.region(body)
}

struct Dots<'f> {
    func: &'f mut Func,
    /// The kernel as it was.
    structure: Structure,
    /// Factors of products.
    factors: BTreeSet<ValueId>,
    /// What factors of `mma.sync` are computed from.
    unpacked: BTreeSet<ValueId>,
    /// What is around the place that is looked at, from the outermost.
    around: Vec<Around>,
    /// Factors that have been stored before loops.
    held: Vec<Held>,
}

/// An operation with regions that is being looked at.
struct Around {
    op: OpId,
    is_loop: bool,
    /// What goes before it.
    before: Vec<OpId>,
}

/// A factor in shared memory that stays as it is.
struct Held {
    value: ValueId,
    shared: Shared,
    /// The region in which it was stored.
    region: RegionId,
    view: ValueId,
}

impl Dots<'_> {
    fn region(&mut self, region: RegionId) -> Result<(), CodegenError> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            let inner = self.func.op(id).regions.clone();
            if !inner.is_empty() {
                let is_loop = self.func.op(id).op.is_loop();
                self.around.push(Around { op: id, is_loop, before: Vec::new() });
                inner.into_iter().try_for_each(|inner| self.region(inner))?;
                out.extend(self.around.pop().map(|around| around.before).unwrap_or_default());
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
            } else if operation.op == Op::Shape(ShapeOp::ConvertLayout) && self.unpacked.contains(&operation.results[0])
            {
                replaced = self.by_words(id, &mut out)?;
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
        // Those that change are stored together, between one pair of barriers.
        let (mut operands, mut here) = (vec![a, b, acc], Vec::new());
        for (index, shared) in [(0, left.flatten()), (1, Some(right))] {
            let Some(shared) = shared else { continue };
            match self.loop_around(operands[index]) {
                Some(position) => operands[index] = self.hold(id, operands[index], shared, position)?,
                None => here.push((index, shared)),
            }
        }
        let stored: Vec<(ValueId, Shared)> =
            here.iter().map(|(index, shared)| (operands[*index], shared.clone())).collect();
        let mut cursor = self.cursor(id, out);
        for ((index, _), view) in here.iter().zip(store(&mut cursor, &stored)?) {
            operands[*index] = view;
        }
        let product = cursor.like(GpuOp::Wgmma { precision, part: GroupPart::Whole }, &operands, acc)?;
        // The product's own operation becomes the wait, so that its result keeps its users.
        cursor.turn(id, GpuOp::WgmmaWait { pending: 0 }, &[product])?;
        Ok(Some(()))
    }

    /// The position in `around` of the outermost loop around the place that is looked at in which a value does not
    /// change.
    fn loop_around(&self, value: ValueId) -> Option<usize> {
        let owners: Vec<OpId> = match self.func.value(value).def {
            Def::Param(_) => Vec::new(),
            Def::Arg(region, _) => {
                let owner = self.structure.owner(region);
                owner.into_iter().flat_map(|op| [op].into_iter().chain(self.structure.around(op))).collect()
            }
            Def::Result(op, _) => self.structure.around(op).collect(),
        };
        self.around.iter().position(|around| around.is_loop && !owners.contains(&around.op))
    }

    /// The view of a factor that does not change in the loop at a position of `around`: it is stored before that loop,
    /// unless it has been stored before.
    fn hold(&mut self, product: OpId, value: ValueId, shared: Shared, position: usize) -> Edit<ValueId> {
        let of = self.around[position].op;
        let region = self.structure.region_of(of).unwrap_or(self.func.body);
        let known = self
            .held
            .iter()
            .find(|held| held.value == value && held.shared == shared && self.structure.encloses(held.region, region));
        if let Some(held) = known {
            return Ok(held.view);
        }
        let mut before = std::mem::take(&mut self.around[position].before);
        let views = store(&mut self.cursor(product, &mut before), &[(value, shared.clone())])?;
        self.around[position].before = before;
        self.held.push(Held { value, shared, region, view: views[0] });
        Ok(views[0])
    }

    /// A factor that has to change threads for `mma.sync`: it is read from shared memory by `ldmatrix`.
    fn by_matrices(&mut self, id: OpId, out: &mut Vec<OpId>) -> Edit<Option<()>> {
        let operation = self.func.op(id);
        let (source, result) = (operation.operands[0], operation.results[0]);
        let Some(shared) = self.read_by_matrices(source, result) else { return Ok(None) };
        self.through(id, &shared, out).map(Some)
    }

    /// A conversion through an allocation of its own.
    fn through(&mut self, id: OpId, shared: &Shared, out: &mut Vec<OpId>) -> Edit<()> {
        let source = self.func.op(id).operands[0];
        let mut cursor = self.cursor(id, out);
        let view = view(&mut cursor, source, shared)?;
        cursor.effect(GpuOp::Barrier, &[])?;
        cursor.effect(GpuOp::SharedStore, &[view, source])?;
        cursor.effect(GpuOp::Barrier, &[])?;
        cursor.turn(id, GpuOp::SharedLoad, &[view])
    }

    /// What is loaded and goes to the threads that make factors of it: through an allocation, for which a pipeline can give
    /// a slot.
    fn by_words(&mut self, id: OpId, out: &mut Vec<OpId>) -> Edit<Option<()>> {
        let operation = self.func.op(id);
        let (source, result) = (operation.operands[0], operation.results[0]);
        let loaded = self.func.def_op(source).is_some_and(|op| matches!(op.op, Op::Memory(MemoryOp::Load { .. })));
        let is_loop = self.around.last().is_some_and(|around| around.is_loop);
        let layouts = self.func.layout(source).zip(self.func.layout(result)).zip(self.dtype(source));
        let Some(((from, to), dtype)) = layouts.filter(|_| loaded && is_loop) else { return Ok(None) };
        let bits = dtype.bytes() * 8;
        let Ok(Conversion::SharedMemory(plan)) = convert(from, to, bits) else { return Ok(None) };
        if plan.reps != 1 || to.free_variable_mask(LayoutDim::Lane) != 0 {
            return Ok(None);
        }
        let layout = match rows_for(from, to, bits) {
            Some(layout) => layout,
            None => match plan.layout.reshape_ins(&[(LayoutDim::Offset, 1 << plan.layout.total_in_bits())]) {
                Ok(layout) => layout,
                Err(_) => return Ok(None),
            },
        };
        self.through(id, &Shared { layout, dtype }, out).map(Some)
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
        is_wgmma_left(left, sum, width, None)
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
        let moved = operation.moved_operand()?;
        let axis = self.tensor_axis(moved)?;
        let position = if let Op::Shape(ShapeOp::Permute { perm }) = &operation.op {
            perm.iter().position(|&from| from == axis)?
        } else if let Op::Shape(ShapeOp::Reshape { .. }) = operation.op {
            same_but_ones(&self.func.tile_shape(moved), &self.func.tile_shape(value), usize::from(axis))?
        } else {
            return None;
        };
        u8::try_from(position).ok()
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        self.func.ty(value).dtype()
    }
}

/// What factors of `mma.sync` are computed from, element by element.
fn unpacked(func: &Func) -> BTreeSet<ValueId> {
    let mut values = BTreeSet::new();
    for id in ops_in_order(func).into_iter().rev() {
        let operation = func.op(id);
        if let Op::Dot(DotOp::Dot { by: Some(DotInstruction::Mma), .. }) = operation.op {
            values.extend(&operation.operands[..2]);
        } else if operation.op.is_arithmetic() && operation.results.iter().any(|result| values.contains(result)) {
            values.extend(&operation.operands);
        }
    }
    values
}

/// Stores tiles to shared memory, where products see them; returns their views.
fn store(cursor: &mut Cursor<'_>, tiles: &[(ValueId, Shared)]) -> Edit<Vec<ValueId>> {
    if tiles.is_empty() {
        return Ok(Vec::new());
    }
    let views = tiles.iter().map(|(tile, shared)| view(cursor, *tile, shared)).collect::<Edit<Vec<ValueId>>>()?;
    cursor.effect(GpuOp::Barrier, &[])?;
    for (&view, (tile, _)) in views.iter().zip(tiles) {
        cursor.effect(GpuOp::SharedStore, &[view, *tile])?;
    }
    cursor.effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
    cursor.effect(GpuOp::Barrier, &[])?;
    Ok(views)
}

/// How a tile lies in shared memory.
#[derive(Clone, PartialEq, Eq)]
struct Shared {
    layout: LinearLayout,
    dtype: DType,
}

/// Shared memory for a tile.
fn view(cursor: &mut Cursor<'_>, tile: ValueId, shared: &Shared) -> Edit<ValueId> {
    let (shape, layout) = (cursor.func.ty(tile).shape.clone(), cursor.func.intern(&shared.layout));
    cursor.placed(GpuOp::SharedAlloc { shape, dtype: shared.dtype.into() }, &[], Some(layout))
}

/// What becomes of an axis where a shape gets or loses dimensions of 1 and no other; `None` where it is one of them, or
/// where the shapes differ otherwise.
fn same_but_ones(from: &[u32], to: &[u32], axis: usize) -> Option<usize> {
    let wide = |shape: &[u32]| -> Vec<usize> { (0..shape.len()).filter(|&axis| shape[axis] > 1).collect() };
    let (old, new) = (wide(from), wide(to));
    let sizes = |shape: &[u32], axes: &[usize]| -> Vec<u32> { axes.iter().map(|&axis| shape[axis]).collect() };
    (sizes(from, &old) == sizes(to, &new)).then_some(())?;
    old.iter().position(|&wide| wide == axis).map(|position| new[position])
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

/// A tile in rows of all banks, as it lies in memory, whose chunks of 16 bytes are swizzled for threads that read it as `to`.
///
/// `cp.async` writes what it gets by sectors of 32 bytes: chunks that go to lines of their own, as they do in the layouts of
/// conversions, take an H100 twice the time of a product of 4-bit weights. So only the bits of a chunk in its line are
/// exchanged, by the three lowest of the row's number, in the order that has the fewest conflicts.
///
/// Axes before the last two count as rows. `None` for tiles that are not of whole lines.
fn rows_for(from: &LinearLayout, to: &LinearLayout, bits: u32) -> Option<LinearLayout> {
    let shape = from.tile_shape();
    let rank = shape.len();
    if rank < 2 {
        return None;
    }
    let transposed = is_contiguous(from, rank as u8 - 2, rank as u8 - 1);
    let across = if transposed { rank - 2 } else { rank - 1 };
    let (line, chunk) = (8 * LINE_BYTES / bits, 8 * CHUNK_BYTES / bits);
    let columns = shape[across];
    if columns < line {
        return None;
    }
    // The place of each power of two of rows, the innermost first.
    let down: Vec<(usize, u32)> = (0..rank)
        .rev()
        .filter(|&axis| axis != across)
        .flat_map(|axis| (0..shape[axis].ilog2()).map(move |bit| (axis, 1 << bit)))
        .collect();
    let made = |order: [u32; 3]| {
        let place = |parts: &[(usize, u32)]| {
            let mut place = vec![0; rank];
            parts.iter().for_each(|&(axis, at)| place[axis] = at);
            place
        };
        let inside = (0..line.ilog2()).map(|bit| place(&[(across, 1 << bit)]));
        let rows = down.iter().enumerate().map(|(bit, &row)| {
            let swizzle = order.get(bit).map_or(0, |place| chunk << place);
            place(&[row, (across, swizzle)])
        });
        let beyond = (line.ilog2()..columns.ilog2()).map(|bit| place(&[(across, 1 << bit)]));
        let bases = inside.chain(rows).chain(beyond).collect();
        let outs: Vec<_> = (0..rank).map(|axis| (LayoutDim::Axis(axis as u8), shape[axis])).collect();
        LinearLayout::from_bases(&[(LayoutDim::Offset, bases)], &outs).ok()
    };
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let cost = |layout: &LinearLayout| shared_access(to, layout, bits).map_or(u32::MAX, |read| read.wavefronts());
    orders.into_iter().filter_map(made).min_by_key(cost)
}

/// Swizzled shared memory for a tile that is held in `from`, contiguous along the axis that threads hold vectors of.
/// `None` for tiles that are smaller than the swizzle.
fn shared_layout(from: &LinearLayout, shape: &[u32], bits: u32) -> Option<LinearLayout> {
    let rank = shape.len() as u8;
    let transposed = is_contiguous(from, rank - 2, rank - 1);
    let row = shape[usize::from(if transposed { rank - 2 } else { rank - 1 })];
    nvmma_shared(shape, SwizzleWidth::widest_for(row * bits / 8), bits, transposed).ok()
}
