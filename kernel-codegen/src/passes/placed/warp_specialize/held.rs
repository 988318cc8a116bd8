//! Blocks that are fetched once for all iterations of a loop of products, as the queries of attention are for all keys.
//!
//! ```text
//! for tile in ..
//!   a = desc_load A; barrier; store a to shared memory; fence; barrier
//!   for k in ..                            fed by warps of their own
//!     acc = wgmma a, b[slot], acc
//! ```
//! becomes, on the side of the consumers and of the producer,
//! ```text
//! for tile in ..                           for tile in ..
//!   wait full[at], phase                     wait empty[at], phase; arrive full[at]; tma_load A -> a[at]
//!   for k in ..                              for k in ..
//!     acc = wgmma a[at], b[slot], acc          ..
//!   wait for the products
//!   arrive empty[at]; advance (at, phase)    advance (at, phase)
//! ```
//!
//! Threads touch such a block no more, and that of the next tile arrives while this one is stored. With two slots it
//! is there, and so are the first blocks of the loop, before the last product of this tile has ended.
//!
//! A program of one tile has no such loop, and no tile whose block could come early. There the consumers ask for the block
//! (`tensor_copies`) while the producer asks for the first blocks of the loop: a producer of both would ask for one after
//! the other, and it would take a barrier that nobody waits for.

use kernel_core::edit::{Cursor, Result, Structure, Uses, walk_region};
use kernel_core::ir::{ControlOp, Dim, FenceKind, Func, GpuOp, Op, OpId, RegionId, Span};
use kernel_core::target::{BARRIER_BYTES, SWIZZLE_ALIGNMENT};

use super::find::{Copy, FedLoop, copy};
use super::split::{Ring, Split};

/// A block that is fetched in front of a loop.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) copy: Copy,
    /// The store that the fetch replaces.
    pub(super) store: OpId,
    /// The barriers and the fence that are there for this store alone.
    obsolete: [OpId; 3],
    /// The last of the loops that read it.
    last: OpId,
    /// How many of them there is room for.
    pub(super) slots: u32,
    /// The number of its ring.
    ring: usize,
}

impl Held {
    /// The bytes of all slots and their barriers.
    pub(super) fn shared_bytes(&self) -> u32 {
        self.slots * (self.copy.bytes.next_multiple_of(SWIZZLE_ALIGNMENT) + 2 * BARRIER_BYTES)
    }

    /// What is not written any more.
    fn replaces(&self, id: OpId) -> bool {
        id == self.copy.alloc || self.obsolete.contains(&id)
    }
}

/// The blocks that loops of products read and that come before them, in the loop over tiles around them.
///
/// Rings are numbered behind those of the loops.
pub(super) fn blocks(func: &Func, structure: &Structure, fed_loops: &[FedLoop]) -> Vec<Held> {
    let users = Uses::new(func);
    let first = fed_loops.iter().map(|fed| fed.ring + 1).max().unwrap_or(0);
    let mut found: Vec<Held> = Vec::new();
    for region in regions(func, structure, fed_loops) {
        let ops = &func.region(region).ops;
        for at in 1..ops.len().saturating_sub(2) {
            found.extend(
                block(func, &users, region, at, fed_loops).map(|held| Held { ring: first + found.len(), ..held }),
            );
        }
    }
    found
}

/// The bodies of loops over tiles in which loops are fed; none of a program of one tile.
fn regions(func: &Func, structure: &Structure, fed_loops: &[FedLoop]) -> Vec<RegionId> {
    let mut regions = Vec::new();
    for fed in fed_loops {
        let Some(around) = structure.around(fed.owner).next() else { continue };
        let operation = func.op(around);
        let own = operation.regions.iter().find(|&&region| func.region(region).ops.contains(&fed.owner));
        regions.extend(own.filter(|_| matches!(operation.op, Op::Control(ControlOp::For { .. } | ControlOp::If))));
    }
    regions.dedup();
    regions
}

fn block(func: &Func, users: &Uses, region: RegionId, at: usize, fed_loops: &[FedLoop]) -> Option<Held> {
    let ops = &func.region(region).ops;
    let store = ops[at];
    let is = |id: OpId, wanted: GpuOp| func.op(id).op == Op::Gpu(wanted);
    let obsolete = [ops[at - 1], ops[at + 1], ops[at + 2]];
    let alone = is(store, GpuOp::SharedStore)
        && is(obsolete[0], GpuOp::Barrier)
        && is(obsolete[1], GpuOp::Fence { kind: FenceKind::ProxyAsync })
        && is(obsolete[2], GpuOp::Barrier);
    if !alone {
        return None;
    }
    let behind: Vec<&FedLoop> = fed_loops.iter().filter(|fed| ops[at..].contains(&fed.owner)).collect();
    let products = |fed: &FedLoop| {
        let mut products = Vec::new();
        walk_region(func, func.op(fed.owner).regions[0], &mut |id| {
            products.extend(matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. })).then_some(id));
        });
        products
    };
    let readers: Vec<(OpId, Vec<OpId>)> = behind.iter().map(|fed| (fed.owner, products(fed))).collect();
    let reads = |id: OpId| readers.iter().any(|(_, products)| products.contains(&id));
    let copy = copy(func, users, region, store, &reads)?;
    let reading = users.of(func.op(copy.alloc).results[0]);
    let last = readers.iter().rfind(|(_, products)| products.iter().any(|id| reading.contains(id)))?.0;
    // What else wants the block would load it once more.
    let single = users.of(func.op(copy.load).results[0]).len() == 1;
    single.then_some(Held { copy, store, obsolete, last, slots: 1, ring: 0 })
}

/// Shared memory and barriers of a block.
pub(super) fn ring(cursor: &mut Cursor<'_>, held: &Held) -> Result<Ring> {
    let mut shape = vec![Dim::Const(i64::from(held.slots))];
    shape.extend(held.copy.shape.iter().cloned());
    let layout = cursor.func.intern(&held.copy.layout);
    let slots = cursor.placed(GpuOp::SharedAlloc { shape, dtype: held.copy.dtype }, &[], Some(layout))?;
    let barriers = GpuOp::MbarrierAlloc { slots: held.slots, count: 1 };
    let full = cursor.value(barriers.clone(), &[])?;
    let empty = cursor.value(barriers, &[])?;
    Ok(Ring { slots: vec![slots], full: vec![full], empty: vec![empty] })
}

impl Split<'_> {
    /// Writes what an operation of the consumers becomes that has to do with a block that is held: whether it has.
    pub(super) fn consume_held(&mut self, id: OpId) -> Result<bool> {
        let held = self.held;
        if let Some(held) = held.iter().find(|held| held.store == id) {
            let (ring, at) = (self.rings[held.ring].clone(), self.positions[held.ring]);
            let span = self.func.op(held.copy.load).span;
            self.cursor(span).effect(GpuOp::MbarrierWait, &[ring.full[0], at.slot, at.phase])?;
            self.view_as_alloc(&held.copy, ring.slots[0], at, span)?;
            return Ok(true);
        }
        Ok(held.iter().any(|held| held.replaces(id)))
    }

    /// Lets the blocks be fetched again that no loop reads behind this one.
    pub(super) fn release_held(&mut self, id: OpId) -> Result<()> {
        for held in self.held.iter().filter(|held| held.last == id) {
            let (empty, at) = (self.rings[held.ring].empty[0], self.positions[held.ring]);
            self.cursor(Span::UNKNOWN).effect(GpuOp::MbarrierArrive, &[empty, at.slot])?;
            self.positions[held.ring] = self.advance(at, held.slots)?;
        }
        Ok(())
    }

    /// Fetches the block that a store stands for: whether it stands for one.
    pub(super) fn produce_held(&mut self, id: OpId) -> Result<bool> {
        let Some(held) = self.held.iter().find(|held| held.store == id) else { return Ok(false) };
        let (ring, at) = (self.rings[held.ring].clone(), self.positions[held.ring]);
        let load = self.func.op(held.copy.load).clone();
        self.cursor(load.span).effect(GpuOp::MbarrierWait, &[ring.empty[0], at.slot, at.phase])?;
        let bytes = self.number(held.copy.bytes as i32)?;
        self.cursor(load.span).effect(GpuOp::MbarrierArrive, &[ring.full[0], at.slot, bytes])?;
        self.fetch(&held.copy, ring.slots[0], ring.full[0], at)?;
        self.positions[held.ring] = self.advance(at, held.slots)?;
        Ok(true)
    }
}

/// Gives blocks a second slot where that costs nothing: where the kernel has the multiprocessor for itself anyway.
pub(super) fn widen(held: &mut [Held], limit: u32, bytes: impl Fn(&[Held]) -> u32) {
    for at in 0..held.len() {
        if bytes(held) <= limit / 2 {
            return;
        }
        held[at].slots = 2;
        if bytes(held) > limit {
            held[at].slots = 1;
        }
    }
}

/// Of what a person reads about a loop: what is held for it.
pub(super) fn described(held: &[Held], fed: &FedLoop) -> String {
    let own: Vec<&Held> = held.iter().filter(|held| held.last == fed.owner).collect();
    match own.iter().map(|held| held.copy.bytes).sum::<u32>() {
        0 => String::new(),
        bytes => format!(", {bytes} bytes fetched ahead for the whole loop"),
    }
}

/// The operations whose operands say where blocks lie.
pub(super) fn loads(held: &[Held]) -> impl Iterator<Item = OpId> {
    held.iter().map(|held| held.copy.load)
}

/// The rings of the blocks in the regions of control flow, by the operations around them.
pub(super) fn inside(structure: &Structure, held: &[Held], mut add: impl FnMut(OpId, usize)) {
    for one in held {
        structure.around(one.last).for_each(|owner| add(owner, one.ring));
    }
}

/// Whether an allocation is that of a block.
pub(super) fn is_held(held: &[Held], alloc: OpId) -> bool {
    held.iter().any(|held| held.copy.alloc == alloc)
}
