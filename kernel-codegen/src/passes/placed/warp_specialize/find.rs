//! Which loops are fed by tensor copies alone, and through what.

use kernel_core::edit::{Uses, walk, walk_region};
use kernel_core::ir::{
    ControlOp, DescOp, Dim, Dt, Elem, FenceKind, Func, GpuOp, Op, OpId, ParamId, RegionId, Span, ValueId,
};
use kernel_core::layout::LinearLayout;
use kernel_core::target::SWIZZLE_ALIGNMENT;

use super::held::Held;
use super::parts::{around_copies, parts};
use super::{PASS, vectors};
use crate::boxes::{box_layout, boxes_of};
use crate::error::CodegenError;
use crate::passes::placed::axes::Axes;
use crate::passes::placed::late_waits::{self, Room};
use crate::report::LoopReport;

/// A block that comes from global memory into shared memory in each iteration of a loop.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// The `desc_load`.
    pub(super) load: OpId,
    /// The `shared_alloc` that the block was written to through registers.
    pub(super) alloc: OpId,
    /// How the block's dimensions become those of the allocation.
    pub(super) axes: Axes,
    /// The block's own shape, dtype and layout in shared memory.
    pub(super) shape: Vec<Dim>,
    pub(super) dtype: Dt,
    pub(super) layout: LinearLayout,
    /// The layouts of its views without one leading dimension more each.
    pub(super) narrower: Vec<LinearLayout>,
    /// The bytes that arrive.
    pub(super) bytes: u32,
    /// Which of the blocks of an iteration it is: what is read in two orders is fetched once.
    pub(super) block: usize,
    /// The part of a slot that it is in: what the same products read arrives together and is released together.
    pub(super) part: usize,
    /// Of a vector, the load by which threads read it.
    pub(super) read: Option<OpId>,
}

/// A loop whose products read what one thread can fetch ahead.
#[derive(Clone, Debug)]
pub(super) struct FedLoop {
    /// The `for`.
    pub(super) owner: OpId,
    pub(super) copies: Vec<Copy>,
    /// The stores into the allocations, which the copies replace.
    pub(super) stores: Vec<OpId>,
    /// Barriers and fences that are there for those stores alone.
    pub(super) obsolete: Vec<OpId>,
    /// Products of one iteration whose sums are only carried on: they stay in flight until the next iteration. Empty
    /// if something else in the loop needs a sum.
    pub(super) carried_products: Vec<OpId>,
    /// The waits of the products.
    pub(super) waits: Vec<OpId>,
    /// Per part of a slot, the wait behind which nobody reads it any more; `None` for the end of the iteration.
    pub(super) releases: Vec<Option<OpId>>,
    /// Per part of a slot, whether that wait stands in the next iteration.
    pub(super) late: Vec<bool>,
    /// The positions of the carried sums that stay in flight until that wait, where others are looked at.
    pub(super) crossing: Vec<usize>,
    /// Slots of the ring.
    pub(super) stages: u32,
    /// Whether a person asked for that number.
    pub(super) stages_given: bool,
    /// Whether a person asked for it.
    pub(super) requested: bool,
    /// The number of its ring, which loops that run one after the other share if its slots are what they need.
    pub(super) ring: usize,
}

impl FedLoop {
    /// Whether the slots of a ring serve both loops.
    fn fits_ring_of(&self, other: &FedLoop) -> bool {
        let slots = |fed: &FedLoop| -> Vec<_> {
            let slot = |copy: &Copy| (copy.shape.clone(), copy.dtype, copy.layout.clone(), copy.part);
            fed.blocks().map(slot).collect()
        };
        let wishes = |fed: &FedLoop| (fed.stages, fed.stages_given, fed.requested, fed.carried_products.is_empty());
        wishes(self) == wishes(other) && slots(self) == slots(other)
    }

    /// The fewest slots with which it pays to divide a kernel: with two, a fetch has as long as one product takes.
    pub(super) fn least_stages(&self) -> u32 {
        if self.requested { 2 } else { 3 }
    }

    /// Whether products stay in flight over the end of an iteration, so that parts of a slot are released in the next one.
    pub(super) fn trails(&self) -> bool {
        !self.carried_products.is_empty() || !self.crossing.is_empty()
    }

    /// The bytes of all slots.
    pub(super) fn ring_bytes(&self) -> u32 {
        let slot = |copy: &Copy| copy.bytes.next_multiple_of(SWIZZLE_ALIGNMENT);
        self.stages * self.blocks().map(slot).sum::<u32>()
    }

    /// A copy of each block, in their order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Copy> {
        let first = |at: usize| self.copies[..at].iter().all(|other| other.block != self.copies[at].block);
        (0..self.copies.len()).filter(move |&at| first(at)).map(|at| &self.copies[at])
    }
}

/// Why a loop is left as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NotFed {
    /// The loop.
    span: Span,
    /// The reason, as the end of a sentence that begins with "not specialised: ".
    reason: String,
}

impl NotFed {
    pub(super) fn new(span: Span, reason: impl Into<String>) -> NotFed {
        NotFed { span, reason: reason.into() }
    }

    pub(super) fn report(&self) -> LoopReport {
        LoopReport { span: self.span, what: format!("not specialised: {}", self.reason) }
    }
}

/// A loop with the mark, or the mark of a loop around it.
#[derive(Clone, Copy)]
struct Loop {
    id: OpId,
    requested: bool,
}

/// The loops with the mark.
pub(super) fn marked(func: &Func) -> Vec<Span> {
    let mut spans = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        let is_marked = matches!(operation.op, Op::Control(ControlOp::For { warp_specialize: true, .. }));
        spans.extend(is_marked.then_some(operation.span));
    });
    spans
}

/// Finds the loops of a kernel that can be fed by a producer. A loop that was asked for and cannot be is in the second
/// list.
pub(super) fn fed_loops(func: &Func, default_stages: u32) -> (Vec<FedLoop>, Vec<NotFed>) {
    let mut loops = Vec::new();
    innermost(func, func.body, false, &mut loops);
    let users = Uses::new(func);
    let (mut fed_loops, mut refusals) = (Vec::new(), Vec::new());
    for Loop { id, requested } in loops {
        match fed(func, &users, id, requested, default_stages) {
            Ok(fed) => fed_loops.push(fed),
            Err(refusal) if requested => refusals.push(refusal),
            Err(_) => {}
        }
    }
    (fed_loops, refusals)
}

/// Numbers the rings of loops. None of these is in another, so they run one after the other, and what one leaves free
/// the next one fills.
pub(super) fn number_rings(fed_loops: &mut [FedLoop]) {
    let mut count = 0;
    for at in 0..fed_loops.len() {
        let (before, rest) = fed_loops.split_at_mut(at);
        let fed = &mut rest[0];
        fed.ring = before.iter().find(|other| other.fits_ring_of(fed)).map_or(count, |other| other.ring);
        count = count.max(fed.ring + 1);
    }
}

/// A loop of each ring.
pub(super) fn rings(fed_loops: &[FedLoop]) -> impl Iterator<Item = &FedLoop> {
    let first = |at: usize| fed_loops[..at].iter().all(|other| other.ring != fed_loops[at].ring);
    (0..fed_loops.len()).filter(move |&at| first(at)).map(|at| &fed_loops[at])
}

/// Innermost loops that multiply, in program order.
fn innermost(func: &Func, region: RegionId, requested: bool, loops: &mut Vec<Loop>) {
    for &id in &func.region(region).ops {
        let operation = func.op(id);
        let marked = matches!(operation.op, Op::Control(ControlOp::For { warp_specialize: true, .. }));
        if let Op::Control(ControlOp::For { .. }) = operation.op {
            let body = operation.regions[0];
            if multiplies(func, body) || (marked && !has_loop(func, body)) {
                loops.push(Loop { id, requested: requested || marked });
            }
        }
        for &inner in &operation.regions {
            innermost(func, inner, requested || marked, loops);
        }
    }
}

/// Whether an operation of the block itself is a product.
fn multiplies(func: &Func, region: RegionId) -> bool {
    func.region(region).ops.iter().any(|&id| func.op(id).op.multiplies())
}

fn has_loop(func: &Func, region: RegionId) -> bool {
    let mut found = false;
    walk_region(func, region, &mut |id| {
        found |= matches!(func.op(id).op, Op::Control(ControlOp::For { .. } | ControlOp::While));
    });
    found
}

fn fed(func: &Func, users: &Uses, owner: OpId, requested: bool, default_stages: u32) -> Result<FedLoop, NotFed> {
    let operation = func.op(owner);
    let refuse = |reason: &str| NotFed::new(operation.span, reason);
    let Op::Control(ControlOp::For { stages, .. }) = operation.op else { return Err(refuse("it is no `for` loop")) };
    let body = operation.regions[0];
    let of_kind = |wanted: &dyn Fn(&GpuOp) -> bool| -> Vec<OpId> {
        let is_wanted = |id: &&OpId| matches!(&func.op(**id).op, Op::Gpu(op) if wanted(op));
        func.region(body).ops.iter().filter(is_wanted).copied().collect()
    };
    let products = of_kind(&|op| matches!(op, GpuOp::Wgmma { .. }));
    if products.is_empty() {
        return Err(refuse("nothing in it is multiplied by warp groups"));
    }
    if has_loop(func, body) {
        return Err(refuse("it has a loop in it"));
    }
    let Traffic { mut copies, stores, others } =
        traffic(func, users, body).ok_or_else(|| refuse("its copies are asynchronous already"))?;
    if copies.is_empty() {
        return Err(refuse("no factor comes from a tensor descriptor as it is"));
    }
    if !requested && !all_from(func, body, &products, &copies) {
        return Err(refuse("not all factors come from tensor descriptors"));
    }
    let fence = GpuOp::Fence { kind: FenceKind::ProxyAsync };
    let obsolete = match others {
        true => around_copies(func, body, &stores),
        false => of_kind(&|op| *op == GpuOp::Barrier || *op == fence),
    };
    let waits = of_kind(&|op| matches!(op, GpuOp::WgmmaWait { .. }));
    let waited = products.iter().all(|&product| {
        let used = users.of(func.op(product).results[0]);
        !used.is_empty() && used.iter().all(|user| waits.contains(user))
    });
    if !waited || !of_kind(&|op| matches!(op, GpuOp::WgmmaWait { pending: 1.. })).is_empty() {
        return Err(refuse("its products are asynchronous already"));
    }
    let vectors = copies.iter().any(|copy| copy.read.is_some());
    let carried = !others && !vectors && are_carried(func, users, body, &products, &waits);
    let releases = match carried {
        // What is in flight is released an iteration later, all of it.
        true => vec![None],
        false => parts(func, body, &mut copies, &products, &waits),
    };
    let late = vec![false; releases.len()];
    let carried_products = if carried { products } else { Vec::new() };
    let (stages_given, stages) = if stages > 0 { (true, u32::from(stages)) } else { (false, default_stages) };
    // The slot of a product in flight is not free before the next one has been waited for.
    let stages = stages.max(if carried { 2 } else { 1 });
    let ring = 0;
    Ok(FedLoop {
        owner,
        copies,
        stores,
        obsolete,
        carried_products,
        waits,
        releases,
        late,
        crossing: Vec::new(),
        stages,
        stages_given,
        requested,
        ring,
    })
}

/// What goes into shared memory in an iteration.
struct Traffic {
    copies: Vec<Copy>,
    /// The stores that end them.
    stores: Vec<OpId>,
    /// Whether threads access shared memory otherwise too.
    others: bool,
}

/// `None` if the loop has tensor copies or barriers with phases already.
fn traffic(func: &Func, users: &Uses, body: RegionId) -> Option<Traffic> {
    let mut traffic = Traffic { copies: Vec::new(), stores: Vec::new(), others: false };
    let in_body =
        |id: OpId| matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. })) && func.region(body).ops.contains(&id);
    for &id in &func.region(body).ops {
        let Op::Gpu(op) = &func.op(id).op else { continue };
        match op {
            GpuOp::SharedStore => match copy(func, users, body, id, &in_body) {
                Some(mut copy) => {
                    let blocks = traffic.copies.iter().map(|other| other.block + 1).max().unwrap_or(0);
                    let same = |other: &&Copy| other.load == copy.load && other.layout == copy.layout;
                    copy.block = traffic.copies.iter().find(same).map_or(blocks, |other| other.block);
                    traffic.copies.push(copy);
                    traffic.stores.push(id);
                }
                None => traffic.others = true,
            },
            GpuOp::SharedLoad if traffic.copies.iter().any(|copy| copy.read == Some(id)) => {}
            GpuOp::AsyncCopy | GpuOp::SharedLoad | GpuOp::TmaStore { .. } => traffic.others = true,
            GpuOp::TmaLoad | GpuOp::MbarrierWait | GpuOp::MbarrierArrive => return None,
            GpuOp::SharedAlloc { .. }
            | GpuOp::SharedIndex
            | GpuOp::SharedPermute { .. }
            | GpuOp::AsyncCommit
            | GpuOp::AsyncWait { .. }
            | GpuOp::Barrier
            | GpuOp::WarpgroupBarrier
            | GpuOp::TurnBegin
            | GpuOp::TurnEnd
            | GpuOp::Fence { .. }
            | GpuOp::MbarrierAlloc { .. }
            | GpuOp::Wgmma { .. }
            | GpuOp::WgmmaWait { .. }
            | GpuOp::TmaStoreWait { .. }
            | GpuOp::WarpGroups { .. }
            | GpuOp::Delay { .. }
            | GpuOp::LaunchDependents
            | GpuOp::GridWait => {}
        }
    }
    Some(traffic)
}

/// The copy that a store into shared memory ends: a block as it was loaded, or with its dimensions in another order, or
/// without leading ones of one element. Nothing reads what is stored but what `reads` says.
pub(super) fn copy(
    func: &Func,
    users: &Uses,
    body: RegionId,
    store: OpId,
    reads: &dyn Fn(OpId) -> bool,
) -> Option<Copy> {
    let &[view, value] = func.op(store).operands.as_slice() else { return None };
    let alloc = func.defining_op(view)?;
    let Op::Gpu(GpuOp::SharedAlloc { .. }) = func.op(alloc).op else { return None };
    let ops = &func.region(body).ops;
    let read = vectors::read_of(func, users, alloc).filter(|id| ops.contains(id));
    let known = |id: &OpId| *id == store || Some(*id) == read || (read.is_none() && reads(*id));
    if !users.of(view).iter().all(known) {
        return None;
    }
    let (mut value, mut way) = (value, Vec::new());
    let load = loop {
        let id = func.defining_op(value)?;
        let operation = func.op(id);
        if operation.op == Op::Desc(DescOp::DescLoad) && ops.contains(&id) {
            break id;
        }
        value = operation.moved_operand()?;
        way.push(operation);
    };
    let block = func.op(load).results[0];
    let shape = func.ty(block).shape.clone();
    let dtype = func.ty(block).dtype()?;
    let axes = way.iter().rev().try_fold(Axes::all(shape.len()), |axes, operation| axes.after(func, operation))?;
    let held = func.layout(view)?;
    let mut layouts = axes.layouts(held)?.into_iter();
    let (layout, narrower) = (layouts.next()?, layouts.collect());
    boxes_of(&layout, dtype.bytes() * 8)?;
    let bytes = shape.iter().map(|dim| dim.as_const().unwrap_or(1)).product::<i64>() as u32 * dtype.bytes();
    Some(Copy { load, alloc, axes, shape, dtype: Dt::Known(dtype), layout, narrower, bytes, block: 0, part: 0, read })
}

/// Has the products of a loop in which something looks at sums waited for where that is, those of which nothing does in
/// the next iteration.
///
/// # Errors
/// If a wait breaks a type rule, which is a mistake of this crate.
pub(super) fn wait_late(func: &mut Func, fed: &mut FedLoop, registers: u32) -> Result<(), CodegenError> {
    if !fed.carried_products.is_empty() {
        return Ok(());
    }
    let body = func.op(fed.owner).regions[0];
    // With one slot, what the next iteration waits for comes where a product in flight still reads.
    let several = fed.stages > 1;
    let stays = |func: &Func, product: OpId| {
        several
            && func.op(product).operands[..2].iter().all(|&value| {
                let is_copied = |alloc| fed.copies.iter().any(|copy| copy.alloc == alloc);
                !matches!(func.ty(value).elem, Elem::Shared(_))
                    || func.defining_op(value).is_some_and(|id| is_copied(id) || !func.region(body).ops.contains(&id))
            })
    };
    let Some(waits) = late_waits::wait_late(func, fed.owner, Room::Registers(registers), PASS, &stays)? else {
        return Ok(());
    };
    let of_kind = |wanted: &dyn Fn(&Op) -> bool| -> Vec<OpId> {
        func.region_ops(body).filter(|(_, operation)| wanted(&operation.op)).map(|(id, _)| id).collect()
    };
    let products = of_kind(&|op| matches!(op, Op::Gpu(GpuOp::Wgmma { .. })));
    for (part, (release, late)) in fed.releases.iter_mut().zip(&mut fed.late).enumerate() {
        let is_read = |product: &&OpId| fed.copies.iter().any(|copy| copy.part == part && reads(func, **product, copy));
        let last = products.iter().rfind(is_read);
        *release = last.and_then(|product| waits.over.get(product).copied());
        *late = last.is_some_and(|product| waits.last.contains(product));
    }
    fed.waits = of_kind(&|op| matches!(op, Op::Gpu(GpuOp::WgmmaWait { .. })));
    fed.crossing = waits.crossing;
    Ok(())
}

/// Whether a product reads what a copy brings.
pub(super) fn reads(func: &Func, product: OpId, copy: &Copy) -> bool {
    func.op(product).operands[..2].contains(&func.op(copy.alloc).results[0])
}

/// Whether the factors of all products are in shared memory: copies, or what was stored there before the loop.
fn all_from(func: &Func, body: RegionId, products: &[OpId], copies: &[Copy]) -> bool {
    let is_there = |value: &ValueId| {
        matches!(func.ty(*value).elem, Elem::Shared(_))
            && func.defining_op(*value).is_some_and(|alloc| {
                copies.iter().any(|copy| copy.alloc == alloc) || !func.region(body).ops.contains(&alloc)
            })
    };
    products.iter().all(|&product| func.op(product).operands[..2].iter().all(is_there))
}

/// Whether the sum of each product is an argument of the loop, and goes nowhere but into the next iteration.
fn are_carried(func: &Func, users: &Uses, body: RegionId, products: &[OpId], waits: &[OpId]) -> bool {
    let args = &func.region(body).args;
    let yields = func.yielded(body);
    let last = func.region(body).ops.last().copied();
    let is_carried = |product: &OpId| {
        let operation = func.op(*product);
        let Some(position) = args.iter().position(|&arg| arg == operation.operands[2]) else { return false };
        let sum = operation.results[0];
        let in_registers = !matches!(func.ty(operation.operands[0]).elem, Elem::Shared(_));
        let [wait] = users.of(sum) else { return false };
        let Some(at) = func.op(*wait).operands.iter().position(|&value| value == sum) else { return false };
        let waited = func.op(*wait).results[at];
        // Factors in registers may not be overwritten while they are read.
        !in_registers
            && users.of(operation.operands[2]).len() == 1
            && users.of(waited).iter().all(|&user| Some(user) == last)
            && position > 0
            && yields.get(position - 1) == Some(&waited)
            && yields.iter().filter(|&&value| value == waited).count() == 1
    };
    let all_waited_for = waits
        .iter()
        .flat_map(|&wait| &func.op(wait).operands)
        .all(|&value| func.defining_op(value).is_some_and(|id| products.contains(&id)));
    all_waited_for && products.iter().all(is_carried)
}

/// A tensor whose blocks would lie in shared memory in two ways, where one map says how they lie.
pub(super) fn torn_tensor(func: &Func, fed_loops: &[FedLoop], held: &[Held]) -> Option<ParamId> {
    let mut known: Vec<(ParamId, LinearLayout)> = Vec::new();
    let copies = || fed_loops.iter().flat_map(|fed| &fed.copies).chain(held.iter().map(|held| &held.copy));
    let fed = |id: OpId| copies().filter(move |copy| copy.load == id);
    let mut torn = None;
    walk(func, &mut |id| {
        let operation = func.op(id);
        let Op::Desc(op) = &operation.op else { return };
        let Some(tensor) = operation.operands.first().and_then(|&value| func.ty(value).descriptor()) else { return };
        let mut layouts: Vec<LinearLayout> = fed(id).map(|copy| copy.layout.clone()).collect();
        if layouts.is_empty() {
            let block = if *op == DescOp::DescLoad { operation.results[0] } else { operation.operands[1] };
            let bits = func.ty(block).dtype().map_or(8, |dtype| dtype.bytes() * 8);
            layouts.extend(box_layout(&func.tile_shape(block), bits));
        }
        for layout in layouts {
            match known.iter().find(|(other, _)| *other == tensor) {
                Some((_, other)) if *other != layout => torn = Some(tensor),
                Some(_) => {}
                None => known.push((tensor, layout)),
            }
        }
    });
    torn
}

/// The tensors that a kernel writes.
pub(super) fn written_tensors(func: &Func) -> Vec<ParamId> {
    let mut written = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        let tensor = operation.operands.first().and_then(|&value| func.ty(value).descriptor());
        let writes = matches!(
            operation.op,
            Op::Desc(DescOp::DescStore | DescOp::DescReduce { .. } | DescOp::DescScatter)
                | Op::Gpu(GpuOp::TmaStore { .. })
        );
        written.extend(tensor.filter(|_| writes));
    });
    written
}
