//! The layouts of accesses to global memory.
//!
//! A warp's access is fastest where its lanes touch consecutive vectors of 16 bytes: then it moves whole sectors
//! with the fewest instructions. So the fastest dimension is the one along which the pointers are contiguous, each
//! thread holds a vector along it, lanes and then warps follow, and what is left is repeated in registers
//! at a stride of (threads x vector), so that every access of the repetition is coalesced too:
//!
//! ```text
//! f32[4096], 8 warps:  registers 0..4 | lanes | warps | registers 4..16   four independent loads of 16 bytes
//! ```
//!
//! Where vectors are shorter, because addresses are not aligned or the elements are too few, each warp still has 512
//! consecutive bytes: what it accesses at a time begins and ends within sectors, and the rest of these should be
//! accessed next by the same warp. On an H100 that is worth 4 % of a copy whose addresses are off by one element.
//! Elements of fewer than 4 bytes are left out: there it gains nothing that can be told from noise over kernels as a
//! whole, and costs those that compute much for each element 8 %.
//!
//! ```text
//! the same, unaligned: lanes | registers 0..4 | warps | registers 4..16   16 loads of 4 bytes
//! ```
//!
//! All accesses of one shape that run along the same dimension agree on the number of elements per thread: the
//! most that any of them can use, but no more than 16 bytes of any store, because a store of a part of a sector
//! wastes the rest of it, while a load finds the rest in the first-level cache. Factors of products agree with those of
//! their own width alone ([`super::factors`]), and so does what they are unpacked from ([`super::unpacked`]): copies to
//! shared memory pass that cache by, and fetch a sector twice of which they take half at a time.
//!
//! Where a kernel reduces along the fastest dimension, warps are laid along the others first, so that
//! a warp has whole rows and the reduction needs no shared memory.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::walk;
use kernel_core::ir::{ControlOp, DType, LayoutId, MemoryOp, Op, OpId, ValueId};
use kernel_core::layout::{Blocked, LayoutDim, LinearLayout, WARP_SIZE};

use super::Placement;
use crate::analysis::vectors::adds_floats;
use crate::error::CodegenError;

/// The widest access of one thread, in bytes.
pub(super) const MAX_ACCESS_BYTES: u64 = 16;
/// The smallest elements whose accesses a warp has next to each other where they are not vectors.
const WORD_BYTES: u32 = 4;

/// One access to global memory on a tile.
struct TileAccess {
    op: OpId,
    shape: Vec<u32>,
    order: Vec<u8>,
    /// Elements that one access of a thread can cover.
    vector: u32,
    /// Elements in 16 bytes, for stores.
    store_limit: Option<u32>,
    /// Bytes of an element.
    bytes: u32,
    /// The vector of a load that is nothing but a factor of products, or what factors are unpacked from in other threads: it
    /// agrees with those of its width.
    factor: Option<u32>,
}

/// Accesses that agree on a layout: of a shape and an order, and for factors of a vector.
type Kind<'s> = (&'s [u32], &'s [u8], Option<u32>);

impl TileAccess {
    fn kind(&self) -> Kind<'_> {
        (&self.shape, &self.order, self.factor)
    }
}

/// The operand of a memory operation that holds the pointers, if it is an access on a tile.
pub(super) fn pointers(op: &MemoryOp) -> Option<usize> {
    match op {
        MemoryOp::Load { .. } | MemoryOp::Store { .. } | MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } => {
            Some(0)
        }
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => None,
    }
}

/// Chooses the layout of every access.
pub(super) fn choose(placement: &mut Placement<'_>) -> Result<(), CodegenError> {
    let func = placement.func;
    let mut sites = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        if let Op::Memory(op) = &operation.op
            && let Some(index) = pointers(op)
            && !func.ty(operation.operands[index]).is_scalar()
        {
            sites.push(site(placement, id, op, &operation.operands));
        }
    });
    let mut alike: BTreeMap<Kind<'_>, Alike> = BTreeMap::new();
    for site in &sites {
        let known = alike.entry(site.kind()).or_default();
        known.widest = known.widest.max(site.vector);
        let limit = site.store_limit.filter(|_| site.vector > 1);
        known.stores = known.stores.into_iter().chain(limit).min();
        known.bytes = known.bytes.max(site.bytes);
    }
    for site in &sites {
        let Some(known) = alike.get_mut(&site.kind()) else { continue };
        let layout = match known.layout {
            Some(layout) => layout,
            None => {
                let per_thread = known.widest.min(known.stores.unwrap_or(known.widest)).max(1);
                let layout = blocked(placement, &site.shape, &site.order, per_thread, known.bytes).layout(&site.shape);
                let layout = placement.layout(site.op, layout)?;
                *known.layout.insert(placement.table.intern(&layout))
            }
        };
        placement.access[site.op.index()] = Some(layout);
    }
    Ok(())
}

/// What the accesses of one shape that run along the same dimensions agree on.
#[derive(Default)]
struct Alike {
    /// The most elements that an access of a thread can cover.
    widest: u32,
    /// The fewest elements in 16 bytes, among stores of vectors.
    stores: Option<u32>,
    /// Bytes of the largest elements.
    bytes: u32,
    /// The layout of all, once it is made.
    layout: Option<LayoutId>,
}

fn site(placement: &Placement<'_>, op: OpId, kind: &MemoryOp, operands: &[ValueId]) -> TileAccess {
    let func = placement.func;
    let pointer = operands[0];
    let order = placement.axis.order(func, pointer);
    let param = func.ty(pointer).pointee();
    let bytes = param.and_then(|p| func.pointee_dt(p)).and_then(|dt| dt.known()).map_or(1, |d| d.bytes());
    let limit = (MAX_ACCESS_BYTES / u64::from(bytes)).max(1);
    let fastest = order.first().copied().unwrap_or(0);
    let adds_vectors = adds_floats(func, func.op(op), placement.target);
    let mask = match kind {
        MemoryOp::Load { .. } => operands.get(1),
        MemoryOp::Store { .. } => operands.get(2),
        MemoryOp::AtomicRmw { .. } if adds_vectors => operands.get(2),
        MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } | MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => {
            None
        }
    };
    // A vector has one mask, so elements that may differ in it are accessed one by one, whatever their pointers: they
    // must not ask for a layout of vectors.
    let equal = mask.map_or(u64::MAX, |&mask| placement.axis.mask_run(func, mask, fastest));
    let run = match kind {
        MemoryOp::Load { .. } | MemoryOp::Store { .. } => placement.axis.pointer_run(func, pointer, fastest).min(equal),
        MemoryOp::AtomicRmw { .. } if adds_vectors => placement.axis.pointer_run(func, pointer, fastest).min(equal),
        // Others move one element at a time, and neighbouring lanes should meet in one sector.
        MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } | MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => 1,
    };
    let shape = func.tile_shape(pointer);
    let numel: u64 = shape.iter().map(|&dim| u64::from(dim)).product();
    let threads = u64::from(placement.num_warps * WARP_SIZE);
    let vector = run.min(limit).min((numel / threads).max(1)) as u32;
    let is_store = adds_vectors || matches!(kind, MemoryOp::Store { .. });
    let apart = placement.factors.alone.contains(&op) || placement.packed.contains(&op);
    let factor = apart.then_some(vector);
    TileAccess { op, shape, order, vector, store_limit: is_store.then_some(limit as u32), bytes, factor }
}

/// Bytes of the unit in which memory is read and written.
const SECTOR_BYTES: u32 = 32;

/// Whether an access may as well be done in `layout` as in the layout chosen for it, because converting its tile
/// would cost more: where at least half as much of each sector is used, or where the tile is a line of
/// at most one element per thread (a row of weights, the results of a reduction).
pub(super) fn suits(placement: &Placement<'_>, op: OpId, layout: LayoutId) -> bool {
    let func = placement.func;
    let Some(access) = placement.access[op.index()] else { return true };
    let pointer = func.op(op).operands[0];
    let shape = func.tile_shape(pointer);
    let numel: u32 = shape.iter().product();
    if shape.iter().filter(|&&size| size > 1).count() <= 1 && numel <= placement.num_warps * WARP_SIZE {
        return true;
    }
    let order = placement.axis.order(func, pointer);
    let fastest = order.first().copied().unwrap_or(0);
    let param = func.ty(pointer).pointee();
    let bytes = param.and_then(|p| func.pointee_dt(p)).and_then(|dt| dt.known()).map_or(1, |d| d.bytes());
    let (used, sectors) = sectors_of(placement.table.get(layout), fastest, bytes);
    let (best_used, best_sectors) = sectors_of(placement.table.get(access), fastest, bytes);
    2 * used * best_sectors >= best_used * sectors
}

/// The bytes of the vectors in which a thread has what an operation loads in a layout, as memory has them.
pub(super) fn vector_bytes(placement: &Placement<'_>, op: OpId, layout: LayoutId) -> u32 {
    let func = placement.func;
    let operation = func.op(op);
    let order = placement.axis.order(func, operation.operands[0]);
    let fastest = order.first().copied().unwrap_or(0);
    let bytes = func.ty(operation.results[0]).dtype().map_or(1, DType::bytes);
    let limit = MAX_ACCESS_BYTES as u32 / bytes.min(16);
    placement.table.get(layout).vectors(LayoutDim::Axis(fastest), limit).width * bytes
}

/// The bytes that the lanes of a warp access together, and the sectors in which they lie.
fn sectors_of(layout: &LinearLayout, fastest: u8, bytes: u32) -> (u64, u64) {
    let vector = layout.vectors(LayoutDim::Axis(fastest), MAX_ACCESS_BYTES as u32 / bytes.min(16));
    let first = vector.groups.first().map_or(&[0][..], Vec::as_slice);
    let (mut elements, mut touched) = (BTreeSet::new(), BTreeSet::new());
    for lane in 0..WARP_SIZE {
        for &register in first {
            let mut at = layout.apply(&[(LayoutDim::Register, register), (LayoutDim::Lane, lane)]);
            elements.insert(at.clone());
            for (dim, coordinate) in &mut at {
                if *dim == LayoutDim::Axis(fastest) {
                    *coordinate = *coordinate * bytes / SECTOR_BYTES;
                }
            }
            touched.insert(at);
        }
    }
    (elements.len() as u64 * u64::from(bytes), touched.len() as u64)
}

/// The parameters of the blocked layout for a tile of elements of so many bytes that is accessed along `order`.
fn blocked(placement: &Placement<'_>, shape: &[u32], order: &[u8], per_thread: u32, bytes: u32) -> Blocked {
    let mut blocked = Blocked::coalesced(shape, order, per_thread, placement.num_warps);
    let fastest = order.first().copied().unwrap_or(0);
    if reduces_along(placement, shape, fastest) {
        let mut left = placement.num_warps;
        for (index, &axis) in order.iter().rev().enumerate() {
            let axis = usize::from(axis);
            let last = index + 1 == order.len();
            let room = (shape[axis] / blocked.size_per_thread[axis] / blocked.threads_per_warp[axis]).max(1);
            blocked.warps[axis] = if last { left } else { left.min(room) };
            left /= blocked.warps[axis];
        }
    }
    let axis = usize::from(fastest);
    let warps = blocked.threads_per_warp[axis] * blocked.warps[axis];
    let room = shape[axis] / (blocked.size_per_thread[axis] * warps).max(1);
    if bytes >= WORD_BYTES {
        let own = (blocked.size_per_thread[axis] * bytes).min(MAX_ACCESS_BYTES as u32);
        blocked.repeats[axis] = (MAX_ACCESS_BYTES as u32 / own).min(room).max(1);
    }
    blocked
}

/// Whether the kernel reduces a tile of this shape along `axis`.
fn reduces_along(placement: &Placement<'_>, shape: &[u32], axis: u8) -> bool {
    let func = placement.func;
    let mut found = false;
    walk(func, &mut |id| {
        let operation = func.op(id);
        if let Op::Control(ControlOp::Reduce { axis: own } | ControlOp::Scan { axis: own, .. }) = operation.op {
            found |= own == axis && func.tile_shape(operation.operands[0]) == shape;
        }
    });
    found
}

/// The layout for a tile that no anchor gives one: that of an access of its shape, else row-major with up to four
/// elements per thread.
pub(super) fn default_layout(
    placement: &mut Placement<'_>,
    op: OpId,
    value: ValueId,
) -> Result<LayoutId, CodegenError> {
    let shape = placement.shape(value);
    let known = placement.access.iter().enumerate().filter_map(|(op, access)| Some((op, (*access)?)));
    let alike = known.filter(|(_, layout)| placement.table.get(*layout).tile_shape() == shape);
    // Those of factors are for shared memory.
    let factors: BTreeSet<usize> = placement.factors.alone.union(&placement.packed).map(|op| op.index()).collect();
    if let Some((_, layout)) = alike.min_by_key(|&(op, _)| (factors.contains(&op), op)) {
        return Ok(layout);
    }
    let numel: u32 = shape.iter().product();
    let per_thread = (numel / (placement.num_warps * WARP_SIZE)).clamp(1, 4);
    let order: Vec<u8> = (0..shape.len() as u8).rev().collect();
    let layout = blocked(placement, &shape, &order, per_thread, MAX_ACCESS_BYTES as u32).layout(&shape);
    let layout = placement.layout(op, layout)?;
    Ok(placement.table.intern(&layout))
}
