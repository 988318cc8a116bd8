//! Versions of a kernel: what one group of warps does of it.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::backend::nvidia::Options;
use kernel_core::edit::{self, Place, Uses, splice, walk};
use kernel_core::ir::{FenceKind, Func, GpuOp, MemoryOp, Op, OpId, RegionId, ValueId};
use kernel_core::passes::dce;
use kernel_core::verify::verify;

use super::Shared;
use super::passed::pass;
use super::share::{Roles, Sum};
use super::stores::store_as_they_are;
use crate::analysis::allocation::root;
use crate::error::CodegenError;
use crate::passes::placed::warp_specialize::find::{self, FedLoop};
use crate::passes::placed::warp_specialize::split::{Ring, Side, Split};

/// A version of the kernel: what one group does.
pub(super) struct Version {
    pub(super) func: Func,
    pub(super) fed: FedLoop,
    /// Per part of its slots, that of the kernel's.
    pub(super) parts: Vec<usize>,
    /// Per block of its slots, that of the kernel's.
    pub(super) blocks: Vec<usize>,
}

impl Version {
    /// What the group runs.
    pub(super) fn region(&mut self, ring: &Ring, side: Side<'_>) -> edit::Result<RegionId> {
        let of = |all: &[ValueId], numbers: &[usize]| numbers.iter().map(|&number| all[number]).collect();
        let rings = [Ring {
            slots: of(&ring.slots, &self.blocks),
            full: of(&ring.full, &self.parts),
            empty: of(&ring.empty, &self.parts),
        }];
        let inside = BTreeMap::new();
        let ways = BTreeMap::new();
        Split::new(&mut self.func, (std::slice::from_ref(&self.fed), &[]), &rings, &inside, &ways, side).region()
    }
}

/// What one group does: the scores, or those of one sum.
pub(super) fn version(
    base: &Func,
    shared: &Shared,
    roles: &Roles,
    role: Option<&Sum>,
    whole: &FedLoop,
    prologue: &[OpId],
    options: &Options,
) -> Result<Option<Version>, CodegenError> {
    let mut func = base.clone();
    let body = func.op(whole.owner).regions[0];
    for (&value, &view) in &shared.places {
        if role.is_none_or(|sum| sum.needs.contains(&value)) {
            pass(&mut func, value, view, role.is_some())?;
        }
    }
    let others: BTreeSet<OpId> = match role {
        None => roles.sums.iter().map(|sum| sum.product).collect(),
        Some(own) => roles
            .sums
            .iter()
            .map(|sum| sum.product)
            .filter(|product| *product != own.product)
            .chain(roles.scores.iter().copied())
            .collect(),
    };
    let is_foreign = |func: &Func, id: OpId| {
        let operation = func.op(id);
        let of_sum = |sum: &Sum| operation.operands.iter().any(|value| sum.values.contains(value));
        match &operation.op {
            Op::Gpu(GpuOp::Wgmma { .. }) => others.contains(&id),
            Op::Gpu(GpuOp::WgmmaWait { .. }) => {
                operation.operands.iter().any(|&tile| func.defining_op(tile).is_some_and(|id| others.contains(&id)))
            }
            Op::Gpu(GpuOp::Barrier | GpuOp::Fence { kind: FenceKind::ProxyAsync }) => {
                func.region(body).ops.contains(&id)
            }
            Op::Memory(MemoryOp::Store { .. }) => match role {
                None => roles.sums.iter().any(of_sum),
                Some(own) => !of_sum(own),
            },
            _ => false,
        }
    };
    remove(&mut func, &is_foreign);
    dce::run(&mut func);
    // What no product reads is not stored.
    let users = Uses::new(&func);
    let places: BTreeSet<ValueId> = shared.places.values().copied().collect();
    let is_unread = |func: &Func, id: OpId| {
        let Some(alloc) = (match func.op(id).op {
            Op::Gpu(GpuOp::SharedStore) => root(func, func.op(id).operands[0]),
            Op::Gpu(GpuOp::SharedAlloc { .. }) => Some(id),
            _ => None,
        }) else {
            return false;
        };
        let view = func.op(alloc).results[0];
        let stores = |user: &OpId| func.op(*user).op == Op::Gpu(GpuOp::SharedStore);
        !places.contains(&view) && users.of(view).iter().all(stores)
    };
    remove(&mut func, &is_unread);
    dce::run(&mut func);
    if let Some(own) = role {
        store_as_they_are(&mut func, own.product);
    }
    // A check that stands for itself is made by the group of the scores.
    let own_checks = if role.is_none() { unused_checks(base) } else { BTreeSet::new() };
    drop_unused_checks(&mut func, &own_checks);
    dce::run(&mut func);
    // What another group computes and nobody passes on.
    if !is_whole(&func, prologue) {
        return Ok(None);
    }
    let (mut loops, _) = find::fed_loops(&func, options.num_stages);
    let Some(fed) = loops.pop().filter(|fed| loops.is_empty() && fed.owner == whole.owner) else { return Ok(None) };
    if !fed.carried_products.is_empty() {
        return Ok(None);
    }
    let fed = FedLoop { stages: whole.stages, ring: 0, ..fed };
    let same =
        |copy: &find::Copy| whole.copies.iter().find(|other| other.load == copy.load && other.layout == copy.layout);
    let mut parts = vec![None; fed.releases.len()];
    let mut blocks = Vec::new();
    for copy in &fed.copies {
        let Some(other) = same(copy) else { return Ok(None) };
        if parts[copy.part].replace(other.part).is_some_and(|part| part != other.part) {
            return Ok(None);
        }
    }
    for copy in fed.blocks() {
        blocks.extend(same(copy).map(|other| other.block));
    }
    let Some(parts) = parts.into_iter().collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let several = |part: &usize| parts.iter().filter(|other| *other == part).count() > 1;
    if parts.iter().any(several) {
        return Ok(None);
    }
    Ok(Some(Version { func, fed, parts, blocks }))
}

/// Whether everything is there that a version computes with, beside what all versions share.
fn is_whole(func: &Func, prologue: &[OpId]) -> bool {
    let mut whole = func.clone();
    let body = whole.body;
    splice(&mut whole, Place::Start(body), prologue.to_vec());
    verify(&whole).is_ok()
}

/// Checks of which nothing needs the result.
fn unused_checks(func: &Func) -> BTreeSet<OpId> {
    let (users, mut found) = (Uses::new(func), BTreeSet::new());
    walk(func, &mut |id| {
        let operation = func.op(id);
        if matches!(operation.op, Op::Memory(MemoryOp::CheckBounds { .. }))
            && operation.results.iter().all(|&result| users.of(result).is_empty())
        {
            found.insert(id);
        }
    });
    found
}

/// Drops checks of accesses that this version does not make, but for those that are kept.
fn drop_unused_checks(func: &mut Func, kept: &BTreeSet<OpId>) {
    loop {
        let unused = unused_checks(func);
        if !remove(func, &|_, id| unused.contains(&id) && !kept.contains(&id)) {
            return;
        }
        dce::run(func);
    }
}

/// Drops operations from all regions; whether there were any.
fn remove(func: &mut Func, is_removed: &dyn Fn(&Func, OpId) -> bool) -> bool {
    let mut removed = BTreeSet::new();
    walk(func, &mut |id| {
        if is_removed(func, id) {
            removed.insert(id);
        }
    });
    for region in &mut func.regions {
        region.ops.retain(|id| !removed.contains(id));
    }
    !removed.is_empty()
}
