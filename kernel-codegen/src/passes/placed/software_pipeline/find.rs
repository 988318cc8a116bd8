//! What a loop loads that can be copied ahead, and what has to be computed for it.

use std::collections::BTreeSet;

use kernel_core::edit::{Uses, walk_region};
use kernel_core::ir::known::uniform_constant;
use kernel_core::ir::{
    BinaryOp, CacheModifier, CmpOp, ControlOp, Cost, CreateOp, DType, Def, DescOp, Elem, ElementwiseOp, Func, GpuOp,
    Literal, MemOrder, MemoryOp, Op, OpId, Operation, ParamId, ParamKind, RegionId, Resource, ShapeOp, ValueId, view,
};
use kernel_core::layout::{LayoutDim, LinearLayout, shared_access, swizzled_shared};
use kernel_core::target::SWIZZLE_ALIGNMENT;

use crate::analysis::axis::AxisAnalysis;
use crate::boxes::{box_layout, boxes_of};
use crate::passes::placed::axes::Axes;

/// The narrowest copy of a thread, in bytes.
const MIN_COPY_BYTES: u32 = 4;
/// Bits of the widest copy of a thread.
const MAX_COPY_BITS: u32 = 128;

/// Shared memory that holds what is loaded, until the pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Feed {
    /// The allocation, in the loop.
    pub(super) alloc: OpId,
    /// The store of what is loaded.
    pub(super) store: OpId,
    /// What becomes of the load's dimensions on the way.
    pub(super) axes: Axes,
}

/// A load that is copied ahead.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// The load.
    pub(super) op: OpId,
    /// Its first operand: the pointers, or the tensor. The load may have been rewritten when it is copied.
    pub(super) source: ValueId,
    /// What addresses it: the pointers and the mask, or the coordinates.
    pub(super) address: Vec<ValueId>,
    /// The layout of a slot, in the shape of the load.
    pub(super) layout: LinearLayout,
    pub(super) dtype: DType,
    /// What the slots replace.
    pub(super) feeds: Vec<Feed>,
    /// Whether the tile is also used in registers.
    pub(super) in_registers: bool,
    /// Whether threads read what others have copied.
    pub(super) crosses_threads: bool,
    /// A comparison in the loop without which nothing is copied: it can be made to fail in iterations that do not
    /// exist.
    pub(super) end: Option<OpId>,
    tensor: Option<ParamId>,
}

impl Candidate {
    /// Whether it is a block of a tensor, copied by TMA.
    pub(super) fn is_tensor(&self) -> bool {
        self.tensor.is_some()
    }

    /// Bytes of the tile.
    pub(super) fn bytes(&self) -> u32 {
        (1 << self.layout.total_out_bits()) * self.dtype.bytes()
    }

    /// Bytes of a slot.
    pub(super) fn slot_bytes(&self) -> u32 {
        self.bytes().next_multiple_of(SWIZZLE_ALIGNMENT)
    }
}

/// Why `cp.async` cannot copy a load.
pub(super) const TOO_NARROW: &str = "a thread copies less than 4 bytes at once";

/// What is to be done in a loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    /// Operations of the body to be computed ahead, in program order.
    pub(super) slice: Vec<OpId>,
    /// Positions of the carried values to be computed ahead.
    pub(super) carried: Vec<usize>,
    /// Loads that stay.
    pub(super) refused: Vec<Refused>,
}

/// A load that stays where it is.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) op: OpId,
    /// The name of the parameter.
    pub(super) param: String,
    pub(super) why: &'static str,
}

/// What the search looks at.
struct Search<'f> {
    func: &'f Func,
    axis: &'f AxisAnalysis,
    body: RegionId,
    /// Operations of the body itself.
    own: BTreeSet<OpId>,
    /// The users of values, in the body and below.
    uses: Uses,
    memory: Memory,
}

/// What a loop does to memory.
#[derive(Default)]
pub(super) struct Memory {
    /// Buffers that it writes.
    written: BTreeSet<ParamId>,
    /// Whether it waits for what other programs write.
    acquires: bool,
    /// Whether it may end the program.
    asserts: bool,
}

/// Looks at a loop. Where stages are `asked` for, every load counts, else those of factors only.
pub(super) fn find(func: &Func, axis: &AxisAnalysis, id: OpId, asked: bool) -> Found {
    let body = func.op(id).regions[0];
    let (uses, memory) = (Uses::within(func, body), Memory::of(func, body));
    let search = Search { func, axis, body, own: func.region(body).ops.iter().copied().collect(), uses, memory };
    let factors = factors(func, body);
    let (mut found, mut needs) = (Found::default(), Vec::new());
    for &op in &func.region(body).ops {
        let Some(&result) = func.op(op).results.first() else { continue };
        if !is_load(func, op) || !(asked || factors.contains(&result)) || search.is_only_carried(result) {
            continue;
        }
        let layouts = |tensor: ParamId, found: &Found| {
            found.candidates.iter().find(|known| known.tensor == Some(tensor)).map(|known| known.layout.clone())
        };
        match search.candidate(op, &|tensor| layouts(tensor, &found)) {
            Ok((candidate, ops, positions)) => {
                found.candidates.push(candidate);
                needs.push((op, ops, positions));
            }
            Err(why) => found.refused.push(refuse(func, op, why)),
        }
    }
    // What comes before a copy that it addresses comes by a load: the slots have what is copied too late.
    let addressing: BTreeSet<OpId> = needs.iter().flat_map(|(_, ops, _)| ops).copied().collect();
    found.candidates.retain(|candidate| !addressing.contains(&candidate.op));
    let (mut slice, mut carried) = (BTreeSet::new(), BTreeSet::new());
    for (op, ops, positions) in needs {
        if addressing.contains(&op) {
            found.refused.push(refuse(func, op, "what it loads addresses what is loaded in later iterations"));
        } else {
            slice.extend(ops);
            carried.extend(positions);
        }
    }
    found.slice = func.region(body).ops.iter().copied().filter(|op| slice.contains(op)).collect();
    found.carried = carried.into_iter().collect();
    found
}

fn refuse(func: &Func, op: OpId, why: &'static str) -> Refused {
    Refused { op, param: param_name(func, func.op(op).operands[0]), why }
}

/// The name of the parameter that a load reads.
pub(super) fn param_name(func: &Func, source: ValueId) -> String {
    let ty = func.ty(source);
    let param = ty.pointee().or_else(|| ty.descriptor());
    param.map_or_else(String::new, |param| func.param(param).name.clone())
}

/// Whether an operation loads a tile from a buffer or a tensor.
pub(super) fn is_load(func: &Func, id: OpId) -> bool {
    let operation = func.op(id);
    let tile = operation.results.first().is_some_and(|&result| !func.ty(result).is_scalar());
    tile && matches!(operation.op, Op::Memory(MemoryOp::Load { .. }) | Op::Desc(DescOp::DescLoad))
}

/// Whether an operation may be repeated ahead: it has no effect, needs no other threads, and costs little.
pub(super) fn is_cheap(op: &Op) -> bool {
    op.cost() <= Cost::Arithmetic && !op.touches_memory()
}

impl Memory {
    /// What the loop of a body does.
    pub(super) fn of(func: &Func, body: RegionId) -> Memory {
        let mut memory = Memory::default();
        walk_region(func, body, &mut |id| {
            memory.asserts |= matches!(func.op(id).op, Op::Control(ControlOp::Assert { .. }));
            for effect in func.own_effects(id) {
                match effect.resource {
                    Resource::Buffer(param) if effect.writes => {
                        memory.written.insert(param);
                    }
                    Resource::Buffer(_) | Resource::Shared | Resource::Barriers | Resource::Control => {}
                }
                memory.acquires |= matches!(effect.order, MemOrder::Acquire | MemOrder::AcqRel);
            }
        });
        memory
    }

    /// Whether the memory stays as it is while the loop runs.
    pub(super) fn check(&self, func: &Func, pointer: ValueId) -> Result<(), &'static str> {
        let ty = func.ty(pointer);
        let param = match ty.elem {
            Elem::Ptr(param) | Elem::Desc(param) => param,
            Elem::Data(_) | Elem::Token | Elem::Shared(_) | Elem::Barrier => return Err("it reads no buffer"),
        };
        let mutable = match func.param(param).kind {
            ParamKind::Ptr { mutable, .. } | ParamKind::Desc { mutable, .. } => mutable,
            ParamKind::Scalar(_)
            | ParamKind::ConstScalar(_)
            | ParamKind::ReportSlot
            | ParamKind::Length(_)
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => return Err("it reads no buffer"),
        };
        if self.written.contains(&param) {
            return Err("the loop writes that memory");
        }
        if mutable && self.acquires {
            return Err("the loop waits for other programs to write it");
        }
        Ok(())
    }

    /// Whether memory may be accessed ahead of its place: not where an assert may end the program before. It may be all that keeps
    /// an address inside a buffer, or at a multiple of a copy's bytes; and a tensor copy must not outlive its program.
    fn check_order(&self) -> Result<(), &'static str> {
        if self.asserts { Err("an assert may end the program before it") } else { Ok(()) }
    }

    /// Whether a load of numbers may be repeated ahead of the loop: of memory that stays, and that may be cached.
    pub(super) fn keeps(&self, func: &Func, op: &Operation) -> bool {
        match op.op {
            Op::Memory(MemoryOp::Load { cache: CacheModifier::Cv, .. }) => false,
            Op::Memory(MemoryOp::Load { .. }) => {
                self.check(func, op.operands[0]).and_then(|()| self.check_order()).is_ok()
            }
            _ => false,
        }
    }
}

/// Values that products or stores to shared memory in a body depend on.
pub(super) fn factors(func: &Func, body: RegionId) -> BTreeSet<ValueId> {
    let mut factors: BTreeSet<ValueId> = BTreeSet::new();
    for (_, operation) in func.region_ops(body).rev() {
        let is_store = matches!(operation.op, Op::Gpu(GpuOp::SharedStore));
        let feeds = operation.op.multiplies() || is_store;
        if feeds || operation.results.iter().any(|result| factors.contains(result)) {
            factors.extend(&operation.operands);
        }
    }
    factors
}

impl Search<'_> {
    /// Whether a value is for the next iteration alone, as addresses are that are loaded ahead.
    fn is_only_carried(&self, value: ValueId) -> bool {
        let users = self.uses.of(value);
        let hands_on = |user: &OpId| self.own.contains(user) && self.func.op(*user).op == Op::Control(ControlOp::Yield);
        !users.is_empty() && users.iter().all(hands_on)
    }

    /// A load with what has to be computed for it, or why it cannot be copied ahead.
    fn candidate(
        &self,
        id: OpId,
        known: &dyn Fn(ParamId) -> Option<LinearLayout>,
    ) -> Result<(Candidate, Vec<OpId>, Vec<usize>), &'static str> {
        let func = self.func;
        let operation = func.op(id);
        let result = operation.results[0];
        let dtype = func.ty(result).dtype().ok_or("it has no dtype")?;
        let first = *operation.operands.first().ok_or("it has no address")?;
        self.memory.check(func, first)?;
        self.memory.check_order()?;
        let (address, tensor) = if let Some(load) = view::Load::of(operation) {
            if let Op::Memory(MemoryOp::Load { cache: CacheModifier::Cv, .. }) = operation.op {
                return Err("it must be fetched again");
            }
            if load.other.is_some_and(|other| !is_zero(func, other)) {
                return Err("what its mask leaves out is not zero");
            }
            ([load.pointer].into_iter().chain(load.mask).collect(), None)
        } else if let Some(load) = view::DescLoad::of(operation) {
            (load.coordinates.to_vec(), func.ty(first).descriptor())
        } else {
            return Err("it is no load");
        };
        let (slice, carried) = self.slice(&address)?;
        let mut feeds = Vec::new();
        let mut in_registers = self.feeds(result, &Axes::all(func.ty(result).rank()), &mut feeds);
        let bits = dtype.bytes() * 8;
        let layout = match tensor {
            Some(tensor) => self.tensor_layout(result, bits, &feeds, known(tensor))?,
            None => self.copy_layout(result, bits, address[0], address.get(1).copied(), &feeds)?,
        };
        let matching = |feed: &Feed| self.source_layout(feed).as_ref() == Some(&layout);
        in_registers |= !feeds.iter().all(matching);
        feeds.retain(matching);
        let own = func.layout(result);
        let has_copies = own
            .is_none_or(|own| own.free_variable_mask(LayoutDim::Lane) | own.free_variable_mask(LayoutDim::Warp) != 0);
        let crosses_threads = !feeds.is_empty() || has_copies;
        let end = address.get(1).filter(|_| tensor.is_none()).and_then(|&mask| self.end(mask));
        let source = first;
        let candidate =
            Candidate { op: id, source, address, layout, dtype, feeds, in_registers, crosses_threads, end, tensor };
        Ok((candidate, slice, carried))
    }

    /// A comparison of the body with a bound that a mask implies.
    fn end(&self, mask: ValueId) -> Option<OpId> {
        let mut work = vec![mask];
        while let Some(value) = work.pop() {
            let Def::Result(id, _) = self.func.value(value).def else { continue };
            let operation = self.func.op(id);
            // Comparisons that are combined otherwise imply nothing.
            let joins = matches!(
                operation.op,
                Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::And })
                    | Op::Shape(ShapeOp::ExpandDims { .. } | ShapeOp::Broadcast { .. })
            );
            let compares = matches!(operation.op, Op::Elementwise(ElementwiseOp::Compare { .. }));
            if joins {
                work.extend(&operation.operands);
            } else if compares && self.own.contains(&id) && bound(self.func, id).is_some() {
                return Some(id);
            }
        }
        None
    }

    /// The operations and carried values that `values` depend on.
    ///
    /// Carried values may be loaded in the iteration before: an iteration's part of the slice then loads what the next
    /// one needs, so that nobody waits for it.
    fn slice(&self, values: &[ValueId]) -> Result<(Vec<OpId>, Vec<usize>), &'static str> {
        let func = self.func;
        let (mut ops, mut carried) = (BTreeSet::new(), BTreeSet::new());
        // Values, and whether they are those of the next iteration.
        let mut work: Vec<(ValueId, bool)> = values.iter().map(|&value| (value, false)).collect();
        let mut seen = BTreeSet::new();
        while let Some((value, next)) = work.pop() {
            if !seen.insert((value, next)) {
                continue;
            }
            match func.value(value).def {
                Def::Arg(region, index) if region == self.body && index > 0 => {
                    let position = index as usize - 1;
                    if carried.insert(position) {
                        work.extend(func.yielded(self.body).get(position).map(|&value| (value, true)));
                    }
                }
                Def::Param(_) | Def::Arg(..) => {}
                Def::Result(op, _) if self.own.contains(&op) => {
                    let operation = func.op(op);
                    let loads = next && self.memory.keeps(func, operation);
                    if !(is_cheap(&operation.op) || loads) {
                        return Err("its addresses are not known ahead");
                    }
                    ops.insert(op);
                    // What addresses a load must be there before it.
                    let next = next && is_cheap(&operation.op);
                    work.extend(operation.operands.iter().map(|&value| (value, next)));
                }
                Def::Result(..) => {}
            }
        }
        Ok((ops.into_iter().collect(), carried.into_iter().collect()))
    }

    /// Collects the allocations that hold `value`, which is the load with these axes; returns whether it is also used
    /// otherwise.
    fn feeds(&self, value: ValueId, axes: &Axes, feeds: &mut Vec<Feed>) -> bool {
        let mut otherwise = false;
        for &user in self.uses.of(value) {
            let operation = self.func.op(user);
            let is_own = self.own.contains(&user);
            if let Some(next) = axes.after(self.func, operation).filter(|_| is_own) {
                otherwise |= self.feeds(operation.results[0], &next, feeds);
                continue;
            }
            let stored = view::SharedStore::of(operation).filter(|store| store.tile == value);
            match stored.and_then(|_| self.allocation(user)) {
                Some(alloc) => feeds.push(Feed { alloc, store: user, axes: axes.clone() }),
                None => otherwise = true,
            }
        }
        otherwise
    }

    /// The allocation that a store fills, if both are in the body, nothing else is stored there, and all that reads it
    /// reads views.
    fn allocation(&self, store: OpId) -> Option<OpId> {
        let func = self.func;
        let view = func.op(store).operands[0];
        let Def::Result(alloc, _) = func.value(view).def else { return None };
        let is_alloc = matches!(func.op(alloc).op, Op::Gpu(GpuOp::SharedAlloc { .. }));
        let here = self.own.contains(&store) && self.own.contains(&alloc);
        (is_alloc && here && self.is_only_read(view, store)).then_some(alloc)
    }

    fn is_only_read(&self, view: ValueId, store: OpId) -> bool {
        self.uses.of(view).iter().filter(|&&user| user != store).all(|&user| {
            let operation = self.func.op(user);
            let reads = matches!(operation.op, Op::Gpu(GpuOp::SharedLoad | GpuOp::Wgmma { .. }));
            let renames = matches!(operation.op, Op::Gpu(GpuOp::SharedPermute { .. }));
            self.own.contains(&user) && (reads || (renames && self.is_only_read(operation.results[0], store)))
        })
    }

    /// The layout of an allocation in the shape of what was loaded.
    fn source_layout(&self, feed: &Feed) -> Option<LinearLayout> {
        let view = self.func.op(feed.alloc).results[0];
        feed.axes.layouts(self.func.layout(view)?)?.into_iter().next()
    }

    /// The layout of a slot that `cp.async` fills.
    fn copy_layout(
        &self,
        result: ValueId,
        bits: u32,
        pointer: ValueId,
        mask: Option<ValueId>,
        feeds: &[Feed],
    ) -> Result<LinearLayout, &'static str> {
        let func = self.func;
        let own = func.layout(result).ok_or("it has no layout")?;
        let order = self.axis.order(func, pointer);
        let axis = order.first().copied().unwrap_or(0);
        let layout = match feeds.first().and_then(|feed| self.source_layout(feed)) {
            Some(layout) => layout,
            None => {
                swizzled_shared(&func.tile_shape(result), 1, 1, 1, &order).map_err(|_| "no layout for its slots")?
            }
        };
        let run = self.axis.pointer_run(func, pointer, axis);
        let equal = mask.map_or(u64::MAX, |mask| self.axis.mask_run(func, mask, axis));
        let limit = u64::from(MAX_COPY_BITS / bits);
        let width = own.vectors(LayoutDim::Axis(axis), run.min(equal).min(limit) as u32).width;
        let access = shared_access(own, &layout, bits).map_err(|_| "no layout for its slots")?;
        if width.min(access.width) * bits / 8 < MIN_COPY_BYTES {
            return Err(TOO_NARROW);
        }
        Ok(layout)
    }

    /// The layout of a slot that a tensor copy fills; one tensor has one.
    fn tensor_layout(
        &self,
        result: ValueId,
        bits: u32,
        feeds: &[Feed],
        known: Option<LinearLayout>,
    ) -> Result<LinearLayout, &'static str> {
        let fed = feeds.iter().filter_map(|feed| self.source_layout(feed));
        let mut wanted = known.into_iter().chain(fed).filter(|layout| boxes_of(layout, bits).is_some());
        let own = || box_layout(&self.func.tile_shape(result), bits);
        wanted.next().or_else(own).ok_or("its block is not made of boxes that tensor copies can write")
    }
}

/// The operand of a comparison of integers that the other one is to be below, and the scalar that it repeats.
pub(super) fn bound(func: &Func, compare: OpId) -> Option<(usize, ValueId)> {
    let operation = func.op(compare);
    let Op::Elementwise(ElementwiseOp::Compare { op }) = &operation.op else { return None };
    let position = match op {
        CmpOp::Lt => 1,
        CmpOp::Gt => 0,
        CmpOp::Eq | CmpOp::Ne | CmpOp::Le | CmpOp::Ge => return None,
    };
    let mut value = operation.operands[position];
    while let Some(Operation { op, operands, .. }) = func.def_op(value) {
        let repeats = matches!(
            op,
            Op::Create(CreateOp::Splat { .. }) | Op::Shape(ShapeOp::ExpandDims { .. } | ShapeOp::Broadcast { .. })
        );
        if !repeats {
            break;
        }
        value = operands[0];
    }
    let ty = func.ty(value);
    let is_int = ty.dtype().is_some_and(DType::is_int);
    (ty.is_scalar() && is_int).then_some((position, value))
}

fn is_zero(func: &Func, value: ValueId) -> bool {
    match uniform_constant(func, value) {
        Some(Literal::Int(value)) => value == 0,
        Some(Literal::Float(bits)) => bits == 0,
        Some(Literal::Bool(value)) => !value,
        None => false,
    }
}
