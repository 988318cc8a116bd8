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

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::{Cursor, Place, Result, Uses, splice, walk, walk_region};
use kernel_core::ir::{
    AtomicOp, BinaryOp, ControlOp, DType, DescOp, Dim, DotOp, Dt, Effect, Elements, FenceKind, Func, GpuOp, Literal,
    Op, OpId, Param, ParamId, ParamKind, RegionId, Resource, ShapeOp, Span, StoreMode, ValueId, known, view,
};
use kernel_core::layout::LinearLayout;

use super::axes::Axes;
use super::carry::{self, EnclosingRegion};
use crate::analysis::axis::AxisAnalysis;
use crate::boxes::{box_layout, boxes_of};
use kernel_core::backend::nvidia::TensorCopies;
use kernel_core::target::Target;

/// Addresses and strides of tensors that can be copied are multiples of this many bytes.
const UNIT: u32 = 16;

const PASS: &str = "tensor_copies";

/// What [`choose`] decides.
#[derive(Default)]
pub(crate) struct Chosen {
    /// The parameters whose blocks are copied by the hardware.
    pub(crate) copied: BTreeSet<ParamId>,
    /// Whether blocks of some could go through registers instead: they take shared memory that something else might need.
    pub(crate) spares: bool,
}

/// Decides whose blocks are copied by the hardware.
pub(crate) fn choose(func: &Func, target: Target, copies: TensorCopies, room: SharedRoom) -> Chosen {
    if !target.has_tensor_copies() || copies == TensorCopies::Never {
        return Chosen::default();
    }
    let (tensors, axis) = (Tensors::of(func), AxisAnalysis::new(func));
    let beside = if room == SharedRoom::Much { tensors.beside_products(func) } else { BTreeSet::new() };
    let ids = (0..func.params.len()).map(|index| ParamId::new(index as u32));
    let copied = ids.filter(|&id| {
        let near = tensors.products.contains(&id) || beside.contains(&id);
        let useful = copies == TensorCopies::Always || near;
        useful && can_be_copied(func.param(id)) && tensors.fit(func, id) && tensors.begin_at_units(func, &axis, id)
    });
    let copied: BTreeSet<ParamId> = copied.collect();
    let spares = beside.iter().any(|id| copied.contains(id) && !tensors.products.contains(id));
    Chosen { copied, spares }
}

/// Moves loads of blocks that threads load, from in front of a loop to behind it, where they are used: they would take registers
/// all the while.
pub(crate) fn load_late(func: &mut Func, copied: &BTreeSet<ParamId>) {
    for (param, id, around) in Tensors::of(func).ops {
        let region = carry::innermost(func, &around);
        if func.op(id).op == Op::Desc(DescOp::DescLoad)
            && !copied.contains(&param)
            && let Some(late) = behind_loop(func, region, id)
        {
            late.put_off(func, region, id);
        }
    }
}

/// Whether the hardware can copy blocks of a tensor of which that is known.
///
/// It reads element by element where a block reaches beyond the tensor, but it writes whole units: a row that ends
/// within one would be written up to the unit's end, which is padding, another tensor or nobody's memory (seen on an
/// H100 with rows of 107 f16). So what is stored to needs rows of whole units.
fn can_be_copied(param: &Param) -> bool {
    let ParamKind::Desc { dt, block, mutable } = &param.kind else { return false };
    let (Some(dtype), Some(shape)) = (dt.known(), block_shape(block)) else { return false };
    let (facts, bytes) = (&param.facts, dtype.bytes());
    let aligned = facts.divisible_by.is_multiple_of(UNIT) && facts.divisible_by > 0;
    let strides = shape.len() == 1 || facts.stride_divisible_by.saturating_mul(bytes) >= UNIT;
    // Bytes are copied as such, so that an 8-bit float cannot be padded with NaN.
    let padding = !facts.pads_with_nan || (dtype.is_float() && !dtype.is_fp8());
    let rows = !mutable || facts.len_divisible_by.saturating_mul(bytes) >= UNIT;
    aligned && strides && rows && padding && box_layout(&shape, bytes * 8).is_some()
}

fn block_shape(block: &[Dim]) -> Option<Vec<u32>> {
    block.iter().map(|dim| u32::try_from(dim.as_const()?).ok()).collect()
}

/// What a kernel does with its tensors.
struct Tensors {
    /// Operations of descriptors, with the operations that they are in.
    ops: Vec<(ParamId, OpId, Vec<EnclosingRegion>)>,
    /// Tensors that feed matrix products, and tensors that are stored to in kernels with products.
    products: BTreeSet<ParamId>,
}

impl Tensors {
    fn of(func: &Func) -> Tensors {
        let mut uses = Tensors { ops: Vec::new(), products: BTreeSet::new() };
        uses.region(func, func.body, &mut Vec::new());
        let mut factors = Vec::new();
        walk(func, &mut |id| {
            if let Op::Dot(DotOp::Dot { .. }) = func.op(id).op {
                factors.extend_from_slice(&func.op(id).operands[..2]);
            }
        });
        let has_products = !factors.is_empty();
        let mut seen = BTreeSet::new();
        while let Some(value) = factors.pop() {
            let Some(operation) = func.def_op(value).filter(|_| seen.insert(value)) else { continue };
            if let Some(load) = view::DescLoad::of(operation) {
                uses.products.extend(func.ty(load.descriptor).descriptor());
            } else if operation.op.is_arithmetic() {
                factors.extend_from_slice(&operation.operands);
            }
        }
        if has_products {
            let stored = |op: &Op| matches!(op, Op::Desc(DescOp::DescStore | DescOp::DescReduce { .. }));
            let stored: Vec<ParamId> =
                uses.ops.iter().filter(|(_, id, _)| stored(&func.op(*id).op)).map(|(param, ..)| *param).collect();
            uses.products.extend(stored);
        }
        uses
    }

    fn region(&mut self, func: &Func, region: RegionId, around: &mut Vec<EnclosingRegion>) {
        for &id in &func.region(region).ops {
            let operation = func.op(id);
            if let (Op::Desc(_), Some(&tensor)) = (&operation.op, operation.operands.first())
                && let Some(param) = func.ty(tensor).descriptor()
            {
                self.ops.push((param, id, around.clone()));
            }
            for (index, &inner) in operation.regions.iter().enumerate() {
                around.push(EnclosingRegion { owner: id, region: index });
                self.region(func, inner, around);
                around.pop();
            }
        }
    }

    /// Tensors whose blocks meet the sums of a product, element by element, and are loaded outside the loop that adds them up:
    /// threads that have sums of `wgmma` have few neighbours of a row each, and would load them, or give them to each other, a few
    /// bytes at a time.
    fn beside_products(&self, func: &Func) -> BTreeSet<ParamId> {
        let (mut sums, uses) = (BTreeSet::new(), Uses::new(func));
        sums_of(func, func.body, &mut sums);
        let loaded = self.ops.iter().filter(|(_, id, around)| {
            let innermost = around.iter().rposition(|site| carry::is_loop(func, *site));
            let region = carry::innermost(func, &around[..innermost.map_or(0, |at| at + 1)]);
            func.op(*id).op == Op::Desc(DescOp::DescLoad) && !multiplies(func, region)
        });
        let met = loaded.filter(|(_, id, _)| meets(func, &uses, &sums, func.op(*id).results[0]));
        met.map(|(param, ..)| *param).collect()
    }

    /// Whether all blocks of a tensor are known to begin at multiples of a unit of their rows: the hardware refuses others as an
    /// illegal instruction (seen on an H200).
    fn begin_at_units(&self, func: &Func, axis: &AxisAnalysis, param: ParamId) -> bool {
        let Some(dtype) = func.param(param).kind.dt().and_then(Dt::known) else { return false };
        self.ops.iter().filter(|(of, ..)| *of == param).all(|(_, id, _)| {
            let innermost = func.op(*id).operands.last().map(|&last| axis.of(func, last));
            innermost.is_some_and(|info| {
                let divisor = info.dims.first().map_or(1, |dim| dim.divisibility);
                info.constant == Some(0) || divisor.saturating_mul(u64::from(dtype.bytes())).is_multiple_of(UNIT.into())
            })
        })
    }

    /// Whether copies keep the order of the accesses to a tensor: it is only loaded, or only stored to, and there in loops of
    /// which the kernel says that their iterations do not depend on each other, at places of which no two store to the same
    /// elements. Copies to memory end in any order, so that of two that store to the same elements either might have the last
    /// word. Of reductions none has: they give the same in any order.
    fn fit(&self, func: &Func, param: ParamId) -> bool {
        let own: Vec<_> = self.ops.iter().filter(|(of, ..)| *of == param).collect();
        let carried = |around: &[EnclosingRegion]| around.iter().all(|site| carries_phases(func, *site));
        let is = |op: DescOp| own.iter().all(|(_, id, _)| func.op(*id).op == Op::Desc(op.clone()));
        if own.is_empty() || !own.iter().all(|(.., around)| carried(around)) {
            false
        } else if is(DescOp::DescLoad) {
            true
        } else if is(DescOp::DescStore) {
            let coordinates: Vec<_> = own.iter().map(|(_, id, _)| &func.op(*id).operands[2..]).collect();
            let differ =
                |at: usize| coordinates[..at].iter().all(|other| are_disjoint(func, param, coordinates[at], other));
            own.iter().enumerate().all(|(at, (.., around))| apart(func, coordinates[at], around) && differ(at))
        } else if let [(_, id, _)] = own.as_slice()
            && let Op::Desc(DescOp::DescReduce { op }) = func.op(*id).op
        {
            // Which block is added first does not matter.
            reduces(op, &func.param(param).kind)
        } else {
            false
        }
    }
}

/// Whether blocks of a tensor at two places have no element in common: along a dimension they begin at constants that are at
/// least a block apart.
fn are_disjoint(func: &Func, param: ParamId, one: &[ValueId], other: &[ValueId]) -> bool {
    let ParamKind::Desc { block, .. } = &func.param(param).kind else { return false };
    let start = |value: ValueId| match known::constant(func, value)? {
        Literal::Int(start) => Some(start),
        Literal::Bool(_) | Literal::Float(_) => None,
    };
    block.iter().zip(one.iter().zip(other)).any(|(size, (&one, &other))| {
        let starts = start(one).zip(start(other)).zip(size.as_const());
        starts.is_some_and(|((one, other), size)| one.abs_diff(other) >= u128::from(size.unsigned_abs()))
    })
}

/// Whether a product is among the operations of a region, or in its conditions.
fn multiplies(func: &Func, region: RegionId) -> bool {
    func.region(region).ops.iter().any(|&id| {
        let operation = func.op(id);
        let inside = |&inner: &RegionId| !operation.op.is_loop() && multiplies(func, inner);
        matches!(operation.op, Op::Dot(DotOp::Dot { .. })) || operation.regions.iter().any(inside)
    })
}

/// Whether something computed from a value element by element is computed from sums too.
fn meets(func: &Func, uses: &Uses, sums: &BTreeSet<ValueId>, value: ValueId) -> bool {
    let (mut values, mut seen) = (vec![value], BTreeSet::new());
    while let Some(value) = values.pop() {
        for &user in uses.of(value).iter().filter(|&&user| seen.insert(user)) {
            let operation = func.op(user);
            let same = operation.results.iter().all(|&result| func.ty(result).numel() == func.ty(value).numel());
            if !same || !(operation.op.is_arithmetic() || operation.moved_operand().is_some()) {
                continue;
            }
            if operation.results.iter().any(|result| sums.contains(result)) {
                return true;
            }
            values.extend(&operation.results);
        }
    }
    false
}

/// The sums of products, and what is computed from them element by element.
fn sums_of(func: &Func, region: RegionId, sums: &mut BTreeSet<ValueId>) {
    for &id in &func.region(region).ops {
        let operation = func.op(id);
        for &inner in &operation.regions {
            sums_of(func, inner, sums);
            let yielded = func.yielded(inner).iter().zip(&operation.results);
            sums.extend(
                yielded.filter(|(value, _)| sums.contains(value)).map(|(_, result)| *result).collect::<Vec<_>>(),
            );
        }
        let is_product = matches!(operation.op, Op::Dot(DotOp::Dot { .. }));
        let is_elementwise = operation.op.is_arithmetic() || operation.moved_operand().is_some();
        if is_product || (is_elementwise && operation.operands.iter().any(|operand| sums.contains(operand))) {
            sums.extend(&operation.results);
        }
    }
}

/// Whether something in the regions of an operation can see a value that each iteration changes.
fn carries_phases(func: &Func, site: EnclosingRegion) -> bool {
    let owner = func.op(site.owner);
    // A condition yields nothing but itself.
    owner.op.is_loop_or_branch() && owner.condition_region() != Some(owner.regions[site.region])
}

/// Whether the hardware combines blocks of that dtype in memory.
fn reduces(op: AtomicOp, kind: &ParamKind) -> bool {
    let dtype = kind.dt().and_then(Dt::known);
    match op {
        AtomicOp::Add => {
            matches!(dtype, Some(DType::F16 | DType::BF16 | DType::F32 | DType::I32 | DType::U32 | DType::U64))
        }
        AtomicOp::Min | AtomicOp::Max => matches!(dtype, Some(DType::I32 | DType::U32 | DType::I64 | DType::U64)),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
            matches!(dtype, Some(DType::I32 | DType::U32 | DType::I64 | DType::U64))
        }
        AtomicOp::Exchange => false,
    }
}

/// Whether iterations store to different blocks: all loops around a store are said to have independent iterations,
/// and a coordinate is computed in the innermost of them.
fn apart(func: &Func, coordinates: &[ValueId], around: &[EnclosingRegion]) -> bool {
    // Conditions, and groups of warps, run what is in them once.
    let mut loops = around.iter().rev().filter(|site| func.op(site.owner).op.is_loop()).map(|site| {
        let marked = matches!(func.op(site.owner).op, Op::Control(ControlOp::For { warp_specialize: true, .. }));
        (site, marked)
    });
    let Some((innermost, marked)) = loops.next() else { return true };
    let mut inside: BTreeSet<ValueId> = BTreeSet::new();
    for &region in &func.op(innermost.owner).regions {
        inside.extend(&func.region(region).args);
        walk_region(func, region, &mut |id| inside.extend(&func.op(id).results));
    }
    marked && loops.all(|(_, marked)| marked) && coordinates.iter().any(|coordinate| inside.contains(coordinate))
}

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

/// Where a block is first used that is loaded in front of a loop.
struct Late {
    /// What is computed from it element by element before, and moves there with its load from shared memory.
    moves: Vec<OpId>,
    first: OpId,
}

impl Late {
    /// Moves the load of a block to where it is used.
    fn put_off(self, func: &mut Func, region: RegionId, load: OpId) {
        let moved: Vec<OpId> = std::iter::once(load).chain(self.moves).collect();
        for &id in &moved {
            splice(func, Place::Instead(region, id), Vec::new());
        }
        splice(func, Place::Before(region, self.first), moved);
    }
}

/// Where a loaded block is first used, if that is behind a loop that is behind the load, and if nothing between them writes what
/// the load reads: the load may as well end there.
fn behind_loop(func: &Func, region: RegionId, load: OpId) -> Option<Late> {
    let ops = &func.region(region).ops;
    let from = ops.iter().position(|&id| id == load)?;
    let mut values: BTreeSet<ValueId> = func.op(load).results.iter().copied().collect();
    let (mut moves, mut has_loop) = (Vec::new(), false);
    for &id in &ops[from + 1..] {
        let operation = func.op(id);
        if !uses_any(func, id, &values) {
            let writes =
                |effect: &Effect| effect.writes && !matches!(effect.resource, Resource::Shared | Resource::Barriers);
            if func.effects(id).iter().any(writes) {
                return None;
            }
            has_loop |= operation.op.is_loop();
        } else if has_loop {
            return Some(Late { moves, first: id });
        } else if operation.op.is_arithmetic() || operation.moved_operand().is_some() {
            values.extend(&operation.results);
            moves.push(id);
        } else {
            return None;
        }
    }
    None
}

/// Whether an operation, or one in its regions, uses one of the values.
fn uses_any(func: &Func, id: OpId, values: &BTreeSet<ValueId>) -> bool {
    let is_one = |id: OpId| func.op(id).operands.iter().any(|operand| values.contains(operand));
    let mut found = is_one(id);
    for &region in &func.op(id).regions {
        walk_region(func, region, &mut |inner| found |= is_one(inner));
    }
    found
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
