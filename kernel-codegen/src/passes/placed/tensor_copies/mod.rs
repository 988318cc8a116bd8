//! Tensor copies: which descriptors the hardware reads, and a copy where a block is loaded or stored.
//!
//! [`choose`] decides on the bound IR, before [`super::bound::descriptors`] turns the other descriptors into
//! pointers. A tensor can be copied on targets that have tensor copies, if its address and its strides are known to
//! be multiples of 16 bytes and its blocks can be cut into boxes. It is, where a matrix product is near: a block that
//! feeds one has to be in shared memory anyway, and so has the result of one on its way to memory; one that meets the sums of
//! one would go to other threads through it. Elsewhere threads access memory at the same speed, and without an iteration
//! through shared memory.
//!
//! [`run`] works on the placed IR, behind the passes that pipeline copies, on what they have left:
//!
//! ```text
//! %a = desc_load %d, %i, %j
//! ```
//! becomes
//! ```text
//! %b = mbarrier_alloc {slots = 1, count = 1}                           where the kernel begins
//! %v = shared_alloc
//! mbarrier_arrive %b, 0, bytes; tma_load %d, %v, %b, 0, %i, %j
//! mbarrier_wait %b, 0, %phase
//! %a = shared_load %v
//! ```
//!
//! with a phase that the loops around it carry; and
//!
//! ```text
//! desc_store %d, %x, %i, %j       shared_store %v, %x; fence {kind = proxy_async}
//!                                 tma_store %d, %v, %i, %j; tma_store_wait {pending = 0}
//! ```
//!
//! Barriers of threads are put between them by [`super::membar`]. In a loop the wait is for the store of the last
//! iteration, before shared memory is written again, so that the copy runs beside what the next iteration does first.
//!
//! A block whose only use is a `shared_store` (a factor of a product) is copied to that place at once, also if it loses leading
//! dimensions of one element on the way, or if its dimensions are put in another order ([`super::axes`]). If a loop reads it,
//! the copy begins where the block is loaded, and is waited for where it was stored: of several blocks all are on their way at
//! once. One map says how all blocks of a tensor lie in shared memory, so those of one that products would read in two ways
//! go through registers.
//!
//! A block that is loaded in front of a loop and used behind it is read from shared memory behind it, so that it takes no
//! registers meanwhile:
//!
//! ```text
//! %a = desc_load %d, %i, %j        mbarrier_arrive %b, 0, bytes; tma_load %d, %v, %b, 0, %i, %j
//! %sum = for ..                    %sum = for ..
//!                                  mbarrier_wait %b, 0, %phase; %a = shared_load %v
//! %c = add %sum, %a                %c = add %sum, %a
//! ```
//! in warp groups, which have a multiprocessor for themselves; elsewhere all of it goes behind the loop, as do loads by threads.

mod choose;
mod late;

pub(crate) use choose::choose;
pub(crate) use late::load_late;

use std::collections::BTreeMap;

use kernel_core::edit::{Cursor, Place, Result, Uses, splice, walk, walk_region};
use kernel_core::ir::{
    BinaryOp, DType, DescOp, Dt, Elements, FenceKind, Func, GpuOp, Op, OpId, ParamId, RegionId, ShapeOp, Span,
    StoreMode, ValueId,
};
use kernel_core::layout::LinearLayout;

use super::axes::Axes;
use super::carry::{self, EnclosingRegion};
use crate::boxes::{box_layout, boxes_of};
use choose::{Tensors, block_shape};
use late::{Late, behind_loop};

const PASS: &str = "tensor_copies";

/// Whether a place is in one of several groups of warps, which keep their own order.
fn in_warp_group(func: &Func, around: &[EnclosingRegion]) -> bool {
    around.iter().any(|site| matches!(func.op(site.owner).op, Op::Gpu(GpuOp::WarpGroups { .. })))
}

/// Copies what is loaded and stored through descriptors that are left.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func, room: SharedRoom) -> Result<()> {
    let sites: Vec<(OpId, Vec<EnclosingRegion>)> =
        Tensors::of(func).ops.into_iter().map(|(_, id, around)| (id, around)).collect();
    let mut pass = Copies { func, room, ways: BTreeMap::new(), first: Vec::new(), pending: false };
    pass.ways = pass.ways_of(&sites);
    for (id, around) in sites {
        let op = pass.func.op(id).op.clone();
        let Op::Desc(op) = op else { continue };
        match op {
            DescOp::DescLoad => pass.load(id, &around)?,
            DescOp::DescStore => pass.store(id, &around, StoreMode::Store)?,
            DescOp::DescReduce { op } => {
                if let Some(mode) = StoreMode::of(op) {
                    pass.store(id, &around, mode)?;
                }
            }
            // Rows by number go one by one: `descriptors` has made pointers of them.
            DescOp::DescGather | DescOp::DescScatter | DescOp::MakeDesc { .. } => {}
        }
    }
    pass.finish()
}

/// Where a block goes that nothing reads but the store of it.
struct Direct {
    store: OpId,
    /// What it stores to, and what allocates that.
    view: ValueId,
    alloc: OpId,
    /// What names the block's elements anew on the way.
    moves: Vec<OpId>,
    axes: Axes,
    /// The layouts of the block in shared memory as it is, and without one leading dimension more each.
    layouts: Vec<LinearLayout>,
    /// Whether the copy begins where the block is loaded: it is waited for where it was stored.
    early: bool,
}

/// How much shared memory copies may take that could do with less.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SharedRoom {
    #[default]
    Much,
    /// As the kernel does not fit otherwise: what threads can load goes through registers, and no block lies in shared memory
    /// for longer than it takes to copy it.
    Little,
}

struct Copies<'f> {
    func: &'f mut Func,
    room: SharedRoom,
    /// How the blocks of each tensor lie in shared memory: one map says it for all of its copies.
    ways: BTreeMap<ParamId, LinearLayout>,
    /// What the kernel begins with.
    first: Vec<OpId>,
    /// Whether stores may still read shared memory where the kernel ends.
    pending: bool,
}

impl Copies<'_> {
    /// How blocks lie: as those do that are copied already, or as a product reads them if that is the same for all, or in the
    /// best boxes.
    fn ways_of(&self, sites: &[(OpId, Vec<EnclosingRegion>)]) -> BTreeMap<ParamId, LinearLayout> {
        let mut ways: BTreeMap<ParamId, LinearLayout> = BTreeMap::new();
        walk(self.func, &mut |id| {
            let operation = self.func.op(id);
            if let (Op::Gpu(GpuOp::TmaLoad | GpuOp::TmaStore { .. }), &[tensor, view, ..]) =
                (&operation.op, operation.operands.as_slice())
                && let (Some(param), Some(layout)) = (self.func.ty(tensor).descriptor(), self.func.layout(view))
            {
                ways.entry(param).or_insert_with(|| layout.clone());
            }
        });
        let copied = ways.clone();
        for (id, around) in sites {
            let operation = self.func.op(*id);
            let load = operation.op == Op::Desc(DescOp::DescLoad);
            let block = if load { operation.results.first() } else { operation.operands.get(1) };
            let tensor = operation.operands.first().and_then(|&tensor| self.func.ty(tensor).descriptor());
            let (Some(&block), Some(param)) = (block, tensor.filter(|param| !copied.contains_key(param))) else {
                continue;
            };
            let region = carry::innermost(self.func, around);
            let read = if load { self.only_store(block, region).map(|direct| direct.layouts[0].clone()) } else { None };
            let best = self.best(block);
            let (Some(best), Some(way)) = (best.clone(), read.or(best)) else { continue };
            let known = ways.entry(param).or_insert_with(|| way.clone());
            if *known != way {
                *known = best;
            }
        }
        ways
    }

    fn load(&mut self, id: OpId, around: &[EnclosingRegion]) -> Result<()> {
        let operation = self.func.op(id).clone();
        let (span, result) = (operation.span, operation.results[0]);
        let region = carry::innermost(self.func, around);
        let (&tensor, coordinates) = (&operation.operands[0], &operation.operands[1..]);
        let way = self.func.ty(tensor).descriptor().and_then(|param| self.ways.get(&param));
        let direct = self.only_store(result, region).filter(|direct| way == direct.layouts.first());
        let mut late = if direct.is_none() { behind_loop(self.func, region, id) } else { None };
        // Where programs share a multiprocessor, the others' work is what copies run beside.
        if !(self.room == SharedRoom::Much && in_warp_group(self.func, around))
            && let Some(late) = late.take()
        {
            late.put_off(self.func, region, id);
        }
        if let Some(direct) = direct.as_ref().filter(|direct| direct.early) {
            splice(self.func, Place::Instead(region, direct.alloc), Vec::new());
            splice(self.func, Place::Before(region, id), vec![direct.alloc]);
        }
        let loops = around.iter().any(|site| carry::is_loop(self.func, *site));
        let mut ops = Vec::new();
        // What is stored has a barrier of its own in front.
        let at_store = direct.as_ref().is_some_and(|direct| !direct.early);
        if (loops || !at_store) && in_warp_group(self.func, around) {
            // What was read there before, by threads that `membar` does not see to.
            let mut cursor = self.cursor(&mut ops, span);
            cursor.effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
            cursor.effect(GpuOp::Barrier, &[])?;
        }
        let view = match (&direct, self.boxes(tensor, result)) {
            (Some(direct), _) => self.place(direct, result, region, span)?,
            (None, Some(boxes)) => allocate(&mut self.cursor(&mut ops, span), result, &boxes)?,
            (None, None) => return Ok(()),
        };
        let barrier = self.first(span).value(GpuOp::MbarrierAlloc { slots: 1, count: 1 }, &[])?;
        let zero = self.first(span).i32(0)?;
        let bytes = self.func.ty(result).numel().unwrap_or(0) * i64::from(self.bits(result) / 8);
        let phase = if loops { self.carry_phase(around, zero, span)? } else { zero };
        let mut cursor = self.cursor(&mut ops, span);
        let bytes = cursor.i32(bytes as i32)?;
        cursor.effect(GpuOp::MbarrierArrive, &[barrier, zero, bytes])?;
        let mut operands = vec![tensor, view, barrier, zero];
        operands.extend_from_slice(coordinates);
        cursor.effect(GpuOp::TmaLoad, &operands)?;
        let mut ends = Vec::new();
        self.cursor(&mut ends, span).effect(GpuOp::MbarrierWait, &[barrier, zero, phase])?;
        match direct {
            Some(Direct { store, moves, early, .. }) => {
                let begins = if early { std::mem::take(&mut ops) } else { Vec::new() };
                ops.extend(ends);
                splice(self.func, Place::Instead(region, store), ops);
                splice(self.func, Place::Instead(region, id), begins);
                for moved in moves {
                    splice(self.func, Place::Instead(region, moved), Vec::new());
                }
            }
            None => {
                // The operation itself becomes the load from shared memory, so that its result stays.
                self.cursor(&mut ends, span).turn(id, GpuOp::SharedLoad, &[view])?;
                match late {
                    Some(Late { moves, first }) => {
                        splice(self.func, Place::Instead(region, id), ops);
                        for &moved in &moves {
                            splice(self.func, Place::Instead(region, moved), Vec::new());
                        }
                        ends.extend(moves);
                        splice(self.func, Place::Before(region, first), ends);
                    }
                    None => {
                        ops.extend(ends);
                        splice(self.func, Place::Instead(region, id), ops);
                    }
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, id: OpId, around: &[EnclosingRegion], reduce: StoreMode) -> Result<()> {
        let operation = self.func.op(id).clone();
        let span = operation.span;
        let (tensor, value, coordinates) = (operation.operands[0], operation.operands[1], &operation.operands[2..]);
        let loops = around.iter().any(|site| carry::is_loop(self.func, *site));
        let Some(boxes) = self.boxes(tensor, value) else { return Ok(()) };
        let mut ops = Vec::new();
        let view = match loops {
            true => allocate(&mut self.first(span), value, &boxes)?,
            false => allocate(&mut self.cursor(&mut ops, span), value, &boxes)?,
        };
        let mut cursor = self.cursor(&mut ops, span);
        if loops {
            cursor.effect(GpuOp::TmaStoreWait { pending: 0 }, &[])?;
        }
        cursor.effect(GpuOp::SharedStore, &[view, value])?;
        let mut operands = vec![tensor, view];
        operands.extend_from_slice(coordinates);
        cursor.effect(GpuOp::TmaStore { reduce, parts: Vec::new() }, &operands)?;
        if !loops {
            cursor.effect(GpuOp::TmaStoreWait { pending: 0 }, &[])?;
        }
        self.pending |= loops;
        let region = carry::innermost(self.func, around);
        splice(self.func, Place::Instead(region, id), ops);
        Ok(())
    }

    /// Puts in what the kernel begins and ends with.
    fn finish(&mut self) -> Result<()> {
        let body = self.func.body;
        let mut last = Vec::new();
        if self.pending {
            self.cursor(&mut last, Span::UNKNOWN).effect(GpuOp::TmaStoreWait { pending: 0 }, &[])?;
        }
        splice(self.func, Place::End(body), last);
        let first = std::mem::take(&mut self.first);
        splice(self.func, Place::Start(body), first);
        Ok(())
    }

    /// The `shared_store` that is the only use of a block, behind it in its own region, if what it stores to is made of boxes.
    fn only_store(&self, block: ValueId, region: RegionId) -> Option<Direct> {
        let uses = Uses::new(self.func);
        let here = |id: OpId| self.func.region(region).ops.contains(&id);
        let (mut value, mut axes, mut moves) = (block, Axes::all(self.func.ty(block).rank()), Vec::new());
        let store = loop {
            let user = uses.only(value).filter(|&id| here(id))?;
            let operation = self.func.op(user);
            if let Op::Gpu(GpuOp::SharedStore) = operation.op {
                break user;
            }
            axes = axes.after(self.func, operation)?;
            value = operation.results[0];
            moves.push(user);
        };
        let view = self.func.op(store).operands[0];
        let held = self.func.layout(view).filter(|held| held.tile_shape().len() == self.func.ty(view).rank())?;
        let layouts = axes.layouts(held)?;
        boxes_of(layouts.first()?, self.bits(block))?;
        let alloc = self.func.defining_op(view)?;
        let whole = here(alloc) && matches!(self.func.op(alloc).op, Op::Gpu(GpuOp::SharedAlloc { .. }));
        let as_it_is = axes.dropped() == 0 && axes.order().is_none();
        let early = whole && self.may_begin_early(&uses, region, self.func.defining_op(block)?, (store, &moves));
        (whole || as_it_is).then_some(Direct { store, view, alloc, moves, axes, layouts, early })
    }

    /// Whether the copy of a block may begin where the block is loaded, and not where it is stored, at no cost: if a loop behind
    /// reads it, so that it has its place in shared memory for long anyway, and if nothing between load and store wants shared
    /// memory for a while but such blocks.
    fn may_begin_early(&self, uses: &Uses, region: RegionId, load: OpId, (store, moves): (OpId, &[OpId])) -> bool {
        let ops = &self.func.region(region).ops;
        let at = |id: OpId| ops.iter().position(|&other| other == id);
        let (Some(from), Some(to)) = (at(load), at(store)) else { return false };
        let view = self.func.op(store).operands[0];
        let mut in_loop = false;
        for &id in ops[to..].iter().filter(|&&id| self.func.op(id).op.is_loop()) {
            for &inner in &self.func.op(id).regions {
                walk_region(self.func, inner, &mut |id| in_loop |= self.func.op(id).operands.contains(&view));
            }
        }
        in_loop && ops[from + 1..to].iter().all(|id| moves.contains(id) || self.stands_by(uses, *id, region))
    }

    /// Whether an operation wants no shared memory for a while, as an exchange of threads or a loop does.
    fn stands_by(&self, uses: &Uses, id: OpId, region: RegionId) -> bool {
        let operation = self.func.op(id);
        match operation.op.elements() {
            Elements::Made | Elements::Each | Elements::Repeated(_) | Elements::Joined => true,
            Elements::Moved(_) => operation.op != Op::Shape(ShapeOp::ConvertLayout),
            Elements::Yielded => false,
            Elements::Other if operation.op == Op::Desc(DescOp::DescLoad) => {
                // A block that goes to threads passes through shared memory.
                let mut value = operation.results[0];
                loop {
                    let Some(only) = uses.only(value) else { return false };
                    let user = self.func.op(only);
                    if user.op == Op::Gpu(GpuOp::SharedStore) {
                        return self.func.region(region).ops.contains(&only);
                    }
                    match user.moved_operand() {
                        Some(_) => value = user.results[0],
                        None => return false,
                    }
                }
            }
            Elements::Other => matches!(
                operation.op,
                Op::Gpu(
                    GpuOp::SharedAlloc { .. }
                        | GpuOp::SharedIndex
                        | GpuOp::SharedPermute { .. }
                        | GpuOp::SharedStore
                        | GpuOp::Barrier
                        | GpuOp::Fence { .. }
                        | GpuOp::MbarrierArrive
                        | GpuOp::MbarrierWait
                        | GpuOp::TmaLoad
                )
            ),
        }
    }

    /// The shared memory that a block is copied to at once. If its dimensions are not those of the block, it is allocated in
    /// those, and its readers get a view of it.
    fn place(&mut self, direct: &Direct, block: ValueId, region: RegionId, span: Span) -> Result<ValueId> {
        let Direct { view, alloc, axes, layouts, .. } = direct;
        let [outer, narrower @ ..] = layouts.as_slice() else { return Ok(*view) };
        let steps = axes.views(narrower, self.func.layout(*view));
        let Some(dtype) = self.func.ty(block).dt() else { return Ok(*view) };
        let Some((last, before)) = steps.split_last() else { return Ok(*view) };
        let mut ops = Vec::new();
        let mut cursor = self.cursor(&mut ops, span);
        let whole = allocate(&mut cursor, block, &Boxed { layout: outer.clone(), dtype })?;
        let zero = cursor.i32(0)?;
        let operands = |op: &GpuOp, of: ValueId| if *op == GpuOp::SharedIndex { vec![of, zero] } else { vec![of] };
        let mut inner = whole;
        for (op, layout) in before {
            let layout = cursor.func.intern(layout);
            inner = cursor.placed(op.clone(), &operands(op, inner), Some(layout))?;
        }
        // The allocation itself becomes the view, so that its readers stay.
        cursor.turn(*alloc, last.0.clone(), &operands(&last.0, inner))?;
        splice(self.func, Place::Instead(region, *alloc), ops);
        Ok(whole)
    }

    /// Makes the loops and conditions around a place carry a phase that changes with every visit; returns the phase
    /// there.
    fn carry_phase(&mut self, around: &[EnclosingRegion], first: ValueId, span: Span) -> Result<ValueId> {
        let seen = carry::enter(self.func, around, first);
        let here = seen[seen.len() - 1];
        let inside = carry::innermost(self.func, around);
        let mut flip = Vec::new();
        let mut cursor = self.cursor(&mut flip, span);
        let one = cursor.i32(1)?;
        let left = cursor.binary(BinaryOp::Xor, here, one)?;
        splice(self.func, Place::End(inside), flip);
        carry::leave(self.func, around, &seen, left);
        Ok(here)
    }

    fn bits(&self, value: ValueId) -> u32 {
        self.func.ty(value).dtype().map_or(8, DType::bytes) * 8
    }

    /// How a block of a tensor lies in shared memory.
    fn boxes(&self, tensor: ValueId, block: ValueId) -> Option<Boxed> {
        let ty = self.func.ty(block);
        let way = self.func.ty(tensor).descriptor().and_then(|param| self.ways.get(&param));
        let layout = way.filter(|way| Some(way.tile_shape()) == block_shape(&ty.shape)).cloned();
        Some(Boxed { layout: layout.or_else(|| self.best(block))?, dtype: ty.dt()? })
    }

    /// The best boxes for a block.
    fn best(&self, block: ValueId) -> Option<LinearLayout> {
        box_layout(&block_shape(&self.func.ty(block).shape)?, self.bits(block))
    }

    fn cursor<'e>(&'e mut self, out: &'e mut Vec<OpId>, span: Span) -> Cursor<'e> {
        Cursor::new(self.func, out, PASS).at(span)
    }

    /// Operations that the kernel begins with.
    fn first(&mut self, span: Span) -> Cursor<'_> {
        Cursor::new(self.func, &mut self.first, PASS).at(span)
    }
}

/// Shared memory for a block that lies so.
fn allocate(cursor: &mut Cursor<'_>, block: ValueId, boxes: &Boxed) -> Result<ValueId> {
    let (shape, layout) = (cursor.func.ty(block).shape.clone(), cursor.func.intern(&boxes.layout));
    cursor.placed(GpuOp::SharedAlloc { shape, dtype: boxes.dtype }, &[], Some(layout))
}

/// How a block lies in shared memory: in boxes.
struct Boxed {
    layout: LinearLayout,
    dtype: Dt,
}
