//! How blocks that the kernel stores by descriptors leave: through shared memory, in pieces.
//!
//! ```text
//! desc_store C, acc [128, 256]     becomes, in pieces of [128, 64] and with two slots for them,
//!
//! for each piece p:
//!   wait until the piece before the last has been read; named_barrier
//!   shared_store staging[p % 2], piece p of acc; fence; named_barrier
//!   tma_store C, staging[p % 2], in as many parts as there are groups of four warps
//! ```
//!
//! - **Each four warps are on their own.** The rows of a piece that four warps write are exactly those that they copy
//!   out, so they wait for each other and for nobody else. While some of them store, others still multiply.
//! - **Pieces are small**, so that shared memory is left for the ring, and the copy of one runs beside the next.
//!
//! Both follow from the layout of the tile in registers: a piece is the least block of which all threads hold a part,
//! as wide as a box. Tiles that four warps hold in another form leave as a whole, with barriers of all threads.

use std::collections::BTreeMap;

use kernel_core::edit::{Cursor, Result, walk};
use kernel_core::ir::{DescOp, Dim, Dt, Func, GpuOp, LayoutId, Op, OpId, StoreMode, ValueId};
use kernel_core::layout::{LayoutDim, LinearLayout};
use kernel_core::target::SWIZZLE_ALIGNMENT;

use crate::boxes::{box_layout, boxes_within};

/// Bytes of a row of a piece: the widest swizzle.
const ROW_BYTES: u32 = 128;
/// Pieces on their way at the same time, if there is room for no more.
const LEAST_SLOTS: u32 = 2;

/// A store of a block by a descriptor, and how the block gets there.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) store: OpId,
    /// Where the pieces begin in the block, in the order in which they leave.
    pub(super) starts: Vec<Vec<u32>>,
    /// What goes through shared memory at a time.
    pub(super) piece: Piece,
    /// How many pieces have room there.
    pub(super) slots: u32,
}

/// A part of a block that goes through shared memory at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) shape: Vec<u32>,
    pub(super) dtype: Dt,
    /// How threads hold it, if each four warps copy what they hold.
    pub(super) held: Option<LinearLayout>,
    /// In how many parts they divide it along each dimension; none if one thread copies everything.
    pub(super) parts: Vec<u8>,
    /// How it lies in shared memory.
    layout: LinearLayout,
    bytes: u32,
}

impl Outgoing {
    /// The stores of a kernel. Blocks that tensor copies do not move are none of them.
    pub(super) fn all(func: &Func) -> Vec<Outgoing> {
        let mut found = Vec::new();
        walk(func, &mut |id| {
            let operation = func.op(id);
            let reduces = |op: &DescOp| matches!(op, DescOp::DescReduce { op } if StoreMode::of(*op).is_some());
            if matches!(&operation.op, Op::Desc(op) if *op == DescOp::DescStore || reduces(op)) {
                found.extend(operation.operands.get(1).and_then(|&value| outgoing(func, id, value)));
            }
        });
        found
    }
}

fn outgoing(func: &Func, store: OpId, value: ValueId) -> Option<Outgoing> {
    let dims = func.ty(value).dims()?;
    let shape: Vec<u32> = dims.iter().filter_map(|&size| u32::try_from(size).ok()).collect();
    let dtype = func.ty(value).dtype()?;
    let bits = dtype.bytes() * 8;
    let held = func.layout(value);
    let piece = match held.and_then(|layout| divided(layout, bits)) {
        Some((shape, held, parts, layout)) => {
            let bytes = shape.iter().product::<u32>() * dtype.bytes();
            Piece { shape, dtype: dtype.into(), held: Some(held), parts, layout, bytes }
        }
        None => {
            let bytes = shape.iter().product::<u32>() * dtype.bytes();
            let layout = box_layout(&shape, bits)?;
            Piece { shape: shape.clone(), dtype: dtype.into(), held: None, parts: Vec::new(), layout, bytes }
        }
    };
    let starts = starts(&shape, &piece.shape);
    let slots = LEAST_SLOTS.min(starts.len() as u32);
    Some(Outgoing { store, starts, piece, slots })
}

/// The shape of a piece of a tile, how threads hold it and divide it, and how it lies in shared memory: the least block
/// that all threads have a part of, with rows as long as a box's. `None` if no box would be one group's own.
fn divided(layout: &LinearLayout, bits: u32) -> Option<(Vec<u32>, LinearLayout, Vec<u8>, LinearLayout)> {
    let mut piece = layout.tile_shape();
    let row = ROW_BYTES * 8 / bits;
    for (axis, size) in piece.iter_mut().enumerate() {
        let axis = LayoutDim::Axis(axis as u8);
        let moved = |dim| layout.bases_along(dim, axis).into_iter().fold(0, |all, base| all | base);
        let own = (moved(LayoutDim::Lane) | moved(LayoutDim::Warp)).checked_ilog2().map_or(1, |bit| 2 << bit);
        *size = own.min(*size);
    }
    let shape = layout.tile_shape();
    let last = piece.len().checked_sub(1)?;
    piece[last] = piece[last].max(row.min(shape[last]));
    let held = layout.part(&piece)?;
    let parts = held.warp_group_parts()?;
    let own: Vec<u32> = piece.iter().zip(&parts).map(|(size, &parts)| size / u32::from(parts)).collect();
    let staged = box_layout(&piece, bits)?;
    boxes_within(&staged, bits, &own).map(|_| (piece, held, parts, staged))
}

/// Where the pieces of a block begin, row by row.
fn starts(shape: &[u32], piece: &[u32]) -> Vec<Vec<u32>> {
    shape.iter().zip(piece).fold(vec![Vec::new()], |starts, (&size, &own)| {
        let along =
            |start: Vec<u32>| (0..size / own).map(move |number| start.iter().copied().chain([number * own]).collect());
        starts.into_iter().flat_map(along).collect()
    })
}

/// Bytes of shared memory of all pieces on their way.
pub(super) fn staging_bytes(outgoing: &[Outgoing]) -> u32 {
    kinds(outgoing).iter().map(|(piece, slots)| slots * piece.bytes.next_multiple_of(SWIZZLE_ALIGNMENT)).sum()
}

/// The kinds of pieces, with their slots: stores of one kind use the same.
fn kinds(outgoing: &[Outgoing]) -> Vec<(&Piece, u32)> {
    let mut kinds: Vec<(&Piece, u32)> = Vec::new();
    for Outgoing { piece, slots, .. } in outgoing {
        match kinds.iter_mut().find(|(known, _)| *known == piece) {
            Some((_, known)) => *known = (*known).min(*slots),
            None => kinds.push((piece, *slots)),
        }
    }
    kinds
}

/// Gives each kind of pieces as many slots as fit, while `fits` says so of the whole kernel.
pub(super) fn widen(outgoing: &mut [Outgoing], fits: impl Fn(&[Outgoing]) -> bool) {
    // Stores of one kind have the same number, which divides the number of pieces of each.
    let shared: Vec<(Piece, u32)> = kinds(outgoing).into_iter().map(|(piece, slots)| (piece.clone(), slots)).collect();
    for (piece, slots) in shared {
        let own = |one: &Outgoing| one.piece == piece;
        let most = outgoing.iter().filter(|one| own(one)).map(|one| one.starts.len() as u32).min().unwrap_or(slots);
        let set = |outgoing: &mut [Outgoing], slots| {
            outgoing.iter_mut().filter(|one| own(one)).for_each(|one| one.slots = slots);
        };
        let mut slots = slots;
        set(outgoing, slots);
        while slots * 2 <= most {
            set(outgoing, slots * 2);
            if !fits(outgoing) {
                set(outgoing, slots);
                break;
            }
            slots *= 2;
        }
    }
}

/// A store with the shared memory that its pieces go through.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) outgoing: Outgoing,
    /// The slots for pieces.
    pub(super) staging: ValueId,
    /// How a slot lies.
    pub(super) layout: LayoutId,
    /// How threads hold a piece, if each four warps copy what they hold.
    pub(super) held: Option<LayoutId>,
}

/// Allocates what the pieces go through.
pub(super) fn allocate(cursor: &mut Cursor<'_>, outgoing: &[Outgoing]) -> Result<BTreeMap<OpId, Way>> {
    let mut known: Vec<(Piece, ValueId, LayoutId)> = Vec::new();
    for (piece, slots) in kinds(outgoing) {
        let layout = cursor.func.intern(&piece.layout);
        let sizes = std::iter::once(slots).chain(piece.shape.iter().copied());
        let shape = sizes.map(|size| Dim::Const(i64::from(size))).collect();
        let alloc = GpuOp::SharedAlloc { shape, dtype: piece.dtype };
        known.push((piece.clone(), cursor.placed(alloc, &[], Some(layout))?, layout));
    }
    let mut ways = BTreeMap::new();
    for one in outgoing {
        let Some(&(_, staging, layout)) = known.iter().find(|(piece, ..)| *piece == one.piece) else { continue };
        let held = one.piece.held.as_ref().map(|held| cursor.func.intern(held));
        ways.insert(one.store, Way { outgoing: one.clone(), staging, layout, held });
    }
    Ok(ways)
}
