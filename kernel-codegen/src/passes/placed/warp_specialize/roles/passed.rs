//! What groups pass on through shared memory, and the barriers around it.

use std::collections::BTreeSet;

use kernel_core::edit::{self, Cursor, Place, Structure, replace_all_uses, splice, walk_region};
use kernel_core::ir::{
    BinaryOp, CmpOp, CreateOp, DType, Def, Dim, Dt, Func, GpuOp, Op, OpId, RegionId, Resource, ShapeOp, ValueId,
};
use kernel_core::layout::{LayoutDim, LinearLayout, WARP_SIZE};
use kernel_core::target::GROUP_WARPS;

use super::Shared;
use super::share::Roles;
use crate::passes::placed::warp_specialize::PASS;

/// The dtype of a value on its way.
fn passed_dtype(func: &Func, value: ValueId) -> DType {
    match func.ty(value).dtype() {
        Some(DType::Bool) | None => DType::I32,
        Some(dtype) => dtype,
    }
}

pub(super) fn passed_bytes(func: &Func, value: ValueId) -> u32 {
    let elements: u32 = func.tile_shape(value).iter().product();
    (elements * passed_dtype(func, value).bytes()).next_multiple_of(128)
}

/// The layout of a tile of one element that all threads have.
fn single() -> LinearLayout {
    let zeros = |bits: u32| vec![vec![0]; bits as usize];
    let ins = [
        (LayoutDim::Register, zeros(0)),
        (LayoutDim::Lane, zeros(WARP_SIZE.ilog2())),
        (LayoutDim::Warp, zeros(GROUP_WARPS.ilog2())),
    ];
    LinearLayout::from_bases(&ins, &[(LayoutDim::Axis(0), 1)]).unwrap_or_else(|_| LinearLayout::empty())
}

/// How a tile lies in shared memory whose elements the same threads write and read: vectors of 16 bytes, one behind the other
/// by threads.
fn by_threads(layout: &LinearLayout, bytes: u32) -> Option<LinearLayout> {
    let own = layout.bases(LayoutDim::Register);
    let vector = ((16 / bytes.min(16)).ilog2() as usize).min(own.len());
    let (first, rest) = own.split_at(vector);
    let columns = first
        .iter()
        .cloned()
        .chain(layout.bases(LayoutDim::Lane))
        .chain(layout.bases(LayoutDim::Warp))
        .chain(rest.iter().cloned())
        .filter(|column| column.iter().any(|&at| at != 0));
    let outs: Vec<(LayoutDim, u32)> = layout.outs().map(|(dim, size)| (dim, size as u32)).collect();
    let lies = LinearLayout::from_bases(&[(LayoutDim::Offset, columns.collect())], &outs).ok()?;
    lies.invert().is_ok().then_some(lies)
}

/// Shared memory for a value that is passed on.
pub(super) fn place(cursor: &mut Cursor<'_>, value: ValueId) -> edit::Result<Option<ValueId>> {
    let dtype = passed_dtype(cursor.func, value);
    let (shape, layout) = match cursor.func.layout(value) {
        Some(layout) => (cursor.func.ty(value).shape.clone(), by_threads(layout, dtype.bytes())),
        None => (vec![Dim::Const(1)], by_threads(&single(), dtype.bytes())),
    };
    let Some(layout) = layout else { return Ok(None) };
    let layout = cursor.func.intern(&layout);
    cursor.placed(GpuOp::SharedAlloc { shape, dtype: Dt::Known(dtype) }, &[], Some(layout)).map(Some)
}

/// Where a value is made, in a version of the kernel.
fn behind(func: &Func, value: ValueId) -> Option<Place> {
    match func.value(value).def {
        Def::Param(_) => None,
        Def::Arg(region, _) => Some(Place::Start(region)),
        Def::Result(id, _) => Structure::new(func).region_of(id).map(|region| Place::After(region, id)),
    }
}

/// Has a value stored where it is made, or loaded there.
pub(super) fn pass(func: &mut Func, value: ValueId, view: ValueId, loads: bool) -> edit::Result<()> {
    let Some(place) = behind(func, value) else { return Ok(()) };
    let (dtype, layout) = (func.ty(value).dtype(), func.value(value).layout);
    let mut ops = Vec::new();
    let whole = func.intern(&single());
    let mut cursor = Cursor::new(func, &mut ops, PASS);
    if !loads {
        let number = match dtype {
            Some(DType::Bool) => cursor.cast(value, DType::I32)?,
            _ => value,
        };
        let tile = match layout {
            Some(_) => number,
            None => cursor.placed(CreateOp::Splat { shape: vec![Dim::Const(1)] }, &[number], Some(whole))?,
        };
        cursor.effect(GpuOp::SharedStore, &[view, tile])?;
        splice(func, place, ops);
        return Ok(());
    }
    let mut loaded = cursor.placed(GpuOp::SharedLoad, &[view], layout.or(Some(whole)))?;
    if layout.is_none() {
        loaded = cursor.value(ShapeOp::Reshape { shape: Vec::new() }, &[loaded])?;
    }
    if dtype == Some(DType::Bool) {
        let zero = cursor.i32(0)?;
        let zero = cursor.splat_like(zero, loaded)?;
        loaded = cursor.compare(CmpOp::Ne, loaded, zero)?;
    }
    replace_all_uses(func, value, loaded);
    splice(func, place, ops);
    Ok(())
}

/// Puts the barriers around what is passed, and around what is stored. The role is the number of a sum, or that of the scores.
pub(super) fn synchronise(
    func: &mut Func,
    shared: &Shared,
    roles: &Roles,
    role: Option<usize>,
    owner: OpId,
) -> edit::Result<()> {
    let (body, outside) = (func.op(owner).regions[0], func.body);
    let views = |values: &[ValueId]| -> BTreeSet<ValueId> { values.iter().map(|value| shared.places[value]).collect() };
    let accesses = |func: &Func, id: OpId, views: &BTreeSet<ValueId>| {
        func.op(id).operands.iter().any(|value| views.contains(value))
    };
    let [within, after] = &roles.passed;
    let within = views(within);
    if let Some((first, last)) = span_of(func, body, &|func, id| accesses(func, id, &within)) {
        let mut ops = Vec::new();
        let phase = iteration_parity(func, owner, role.is_none(), &mut ops)?;
        let (awaited, told) = match role {
            None => (shared.taken, shared.passed),
            Some(_) => (shared.passed, shared.taken),
        };
        let mut cursor = Cursor::new(func, &mut ops, PASS);
        let slot = cursor.i32(0)?;
        cursor.effect(GpuOp::MbarrierWait, &[awaited, slot, phase])?;
        splice(func, Place::Before(body, first), ops);
        tell(func, Place::After(body, last), told)?;
    }
    if let Some(sum) = role {
        in_order(func, shared, sum, roles.sums[sum].product, owner)?;
    }
    let after = views(after);
    if let Some((first, last)) = span_of(func, outside, &|func, id| accesses(func, id, &after)) {
        match role {
            None => tell(func, Place::After(outside, last), shared.behind)?,
            Some(_) => wait_once(func, Place::Before(outside, first), shared.behind)?,
        }
    }
    let Some(turn) = role.and_then(|role| roles.turns.iter().position(|sum| *sum == role)) else { return Ok(()) };
    let stores = |func: &Func, id: OpId| {
        func.own_effects(id).iter().any(|effect| effect.writes && matches!(effect.resource, Resource::Buffer(_)))
    };
    let Some((first, last)) = span_of(func, outside, &stores) else { return Ok(()) };
    if let Some(&before) = turn.checked_sub(1).and_then(|turn| shared.turns.get(turn)) {
        wait_once(func, Place::Before(outside, first), before)?;
    }
    match shared.turns.get(turn) {
        Some(&barrier) => tell(func, Place::After(outside, last), barrier),
        None => Ok(()),
    }
}

/// Has sums of an iteration added to one after the other, so that the block of the first is free, and is fetched again, while the
/// others are still multiplied.
fn in_order(func: &mut Func, shared: &Shared, sum: usize, product: OpId, owner: OpId) -> edit::Result<()> {
    let body = func.op(owner).regions[0];
    if let Some(&before) = sum.checked_sub(1).and_then(|before| shared.added.get(before)) {
        let mut ops = Vec::new();
        let phase = iteration_parity(func, owner, false, &mut ops)?;
        let mut cursor = Cursor::new(func, &mut ops, PASS);
        let slot = cursor.i32(0)?;
        cursor.effect(GpuOp::MbarrierWait, &[before, slot, phase])?;
        splice(func, Place::Before(body, product), ops);
    }
    let result = func.op(product).results[0];
    let waits = |id: &OpId| {
        matches!(func.op(*id).op, Op::Gpu(GpuOp::WgmmaWait { .. })) && func.op(*id).operands.contains(&result)
    };
    let wait = func.region(body).ops.iter().copied().find(waits);
    if let (Some(&next), Some(wait)) = (shared.added.get(sum), wait) {
        let mut ops = Vec::new();
        let mut cursor = Cursor::new(func, &mut ops, PASS);
        let slot = cursor.i32(0)?;
        cursor.effect(GpuOp::MbarrierArrive, &[next, slot])?;
        splice(func, Place::After(body, wait), ops);
    }
    Ok(())
}

/// The lowest bit of the number of an iteration; of the next one where the group waits for what is before the first.
fn iteration_parity(func: &mut Func, owner: OpId, next: bool, ops: &mut Vec<OpId>) -> edit::Result<ValueId> {
    let body = func.op(owner).regions[0];
    let (counter, bounds) = (func.region(body).args[0], func.op(owner).operands[..3].to_vec());
    let mut cursor = Cursor::new(func, ops, PASS);
    let gone = cursor.binary(BinaryOp::Sub, counter, bounds[0])?;
    // Exact in unsigned arithmetic.
    let gone = cursor.cast(gone, DType::U32)?;
    let step = cursor.cast(bounds[2], DType::U32)?;
    let number = cursor.binary(BinaryOp::Div, gone, step)?;
    let number = cursor.cast(number, DType::I32)?;
    let one = cursor.i32(1)?;
    let parity = cursor.binary(BinaryOp::And, number, one)?;
    // On a fresh barrier the phase before the first counts as complete.
    if next { cursor.binary(BinaryOp::Xor, parity, one) } else { Ok(parity) }
}

/// Waits for the first phase of a barrier.
fn wait_once(func: &mut Func, place: Place, barrier: ValueId) -> edit::Result<()> {
    let mut ops = Vec::new();
    let mut cursor = Cursor::new(func, &mut ops, PASS);
    let zero = cursor.i32(0)?;
    cursor.effect(GpuOp::MbarrierWait, &[barrier, zero, zero])?;
    splice(func, place, ops);
    Ok(())
}

/// All threads have passed on or taken something, and one says so.
fn tell(func: &mut Func, place: Place, barrier: ValueId) -> edit::Result<()> {
    let mut ops = Vec::new();
    let mut cursor = Cursor::new(func, &mut ops, PASS);
    cursor.effect(GpuOp::WarpgroupBarrier, &[])?;
    let slot = cursor.i32(0)?;
    cursor.effect(GpuOp::MbarrierArrive, &[barrier, slot])?;
    splice(func, place, ops);
    Ok(())
}

/// The first and the last operation of a region that are wanted, or in which one is.
fn span_of(func: &Func, region: RegionId, is_wanted: &dyn Fn(&Func, OpId) -> bool) -> Option<(OpId, OpId)> {
    let holds = |id: &&OpId| {
        let mut found = is_wanted(func, **id);
        for &inner in &func.op(**id).regions {
            walk_region(func, inner, &mut |id| found |= is_wanted(func, id));
        }
        found
    };
    let ops = &func.region(region).ops;
    Some((*ops.iter().find(holds)?, *ops.iter().rfind(holds)?))
}
