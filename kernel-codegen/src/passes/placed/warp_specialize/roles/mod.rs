//! Roles: groups of four warps that share the work of an iteration, where one has no registers for all sums.
//!
//! ```text
//! for k in .. (peak, a, b)                 sums `a` and `b` that four warps cannot hold together
//!   scores = wgmma q, k[slot]
//!   w, old, far = .. scores, peak ..       what the sums need of the scores
//!   if far { a = a * old; b = b * old }
//!   a = wgmma w, v0[slot], a
//!   b = wgmma w, v1[slot], b
//! ```
//! becomes, beside the producer,
//! ```text
//! for k in .. (peak) {                     for k in .. (a) {                       the same with b
//!   wait full[slot]                          wait passed
//!   scores = wgmma q, k[slot]                w, far = load from shared memory
//!   arrive empty[slot]                       if far { a = a * old, from there }
//!   w, old, far = ..                         arrive taken
//!   wait taken; store them                   wait full[slot]
//!   arrive passed                            a = wgmma w, v0[slot], a
//! }                                          arrive empty[slot] behind the product
//! store totals; arrive behind              }
//!                                          wait behind; load totals
//! ```
//!
//! A sum waits until the one before it has been added to (not drawn): the part of the block that only that one reads is free then,
//! and fetched again, while the others are still multiplied.
//!
//! While the sums of one block are multiplied, the scores of the next one are: tensor cores wait for neither. A product of
//! scores is as wide as the block, so that it reads its left factor once, where two groups that divide a block read it twice.
//!
//! What is passed on has the same layout in all groups, so a thread passes values to the threads with its own number: they lie in
//! shared memory in the order of registers and threads.

mod passed;
mod share;
mod stores;
mod suits;
mod version;

use std::collections::{BTreeMap, HashMap};

use kernel_core::backend::nvidia::Options;
use kernel_core::edit::{self, Cursor, Structure, clone_op, compact, import_region};
use kernel_core::ir::{ControlOp, Func, GpuOp, GroupRole, OpId, ValueId};
use kernel_core::passes::dce;
use kernel_core::target::{GROUP_WARPS, Target};

use super::PASS;
use super::find::{self, FedLoop};
use super::needs::Needs;
use super::prologue::Prologue;
use super::split::{Ring, Side};
use crate::error::CodegenError;
use crate::report::LoopReport;
use passed::{place, synchronise};
pub(super) use share::{Alone, Roles};
use share::{PRODUCER_REGISTERS, Sum};
use version::{Version, version};

/// What the groups share.
struct Shared {
    ring: Ring,
    places: BTreeMap<ValueId, ValueId>,
    /// Barriers of what is passed in each iteration: it is there; it has been taken.
    passed: ValueId,
    taken: ValueId,
    /// That of what is passed behind the loop.
    behind: ValueId,
    /// Between each group that stores to a buffer and the next one.
    turns: Vec<ValueId>,
    /// Between each sum and the next one, in each iteration.
    added: Vec<ValueId>,
}

/// Writes the kernel divided into roles; `None` if that cannot be done, or has no room.
pub(super) fn divide(
    func: &Func,
    target: Target,
    options: &Options,
    roles: &Roles,
    fed: &FedLoop,
) -> Result<Option<(Func, LoopReport)>, CodegenError> {
    let Ok(prologue) = Prologue::of(func) else { return Ok(None) };
    let mut fed = fed.clone();
    while roles.shared_bytes(func, &fed) > target.max_shared_bytes() && !fed.stages_given && fed.stages > 2 {
        fed.stages -= 1;
    }
    if roles.shared_bytes(func, &fed) > target.max_shared_bytes() {
        return Ok(None);
    }
    let mut base = func.clone();
    let mut map = HashMap::new();
    let mut out: Vec<OpId> = prologue.ops.iter().map(|&id| clone_op(&mut base, id, &mut map)).collect();
    let Some(shared) = shared(&mut base, &mut out, roles, &fed)? else { return Ok(None) };
    let mut versions: Vec<Version> = Vec::new();
    for role in std::iter::once(None).chain(roles.sums.iter().map(Some)) {
        let Some(version) = version(&base, &shared, roles, role, &fed, &out, options)? else { return Ok(None) };
        versions.push(version);
    }
    let arrives = |part: usize| versions.iter().filter(|version| version.parts.contains(&part)).count() as u32;
    if (0..fed.releases.len()).any(|part| arrives(part) != readers(&base, roles, &fed, part)) {
        return Ok(None);
    }
    let mut regions = Vec::new();
    for (number, version) in versions.iter_mut().enumerate() {
        // A group that adds waits for its product before it takes what the next one needs: it has no registers for both, and the
        // scores of the next block take longer.
        if number == 0 {
            find::wait_late(&mut version.func, &mut version.fed, roles.registers.0)?;
        }
        synchronise(&mut version.func, &shared, roles, number.checked_sub(1), fed.owner)?;
    }
    let mut whole = Version {
        parts: (0..fed.releases.len()).collect(),
        blocks: (0..fed.blocks().count()).collect(),
        func: base.clone(),
        fed: fed.clone(),
    };
    let needs = Needs::of(&whole.func, &Structure::new(&whole.func), std::slice::from_ref(&whole.fed), &[]);
    let Ok(needs) = needs else { return Ok(None) };
    for version in &mut versions {
        let region = version.region(&shared.ring, Side::Consumer)?;
        regions.push(import_region(&mut base, &version.func, region, &mut HashMap::new()));
    }
    let region = whole.region(&shared.ring, Side::Producer(&needs))?;
    regions.push(import_region(&mut base, &whole.func, region, &mut HashMap::new()));
    let groups = regions.len();
    let mut registers = vec![roles.registers.1 as u8; groups];
    (registers[0], registers[groups - 1]) = (roles.registers.0 as u8, PRODUCER_REGISTERS as u8);
    let mut kinds = vec![GroupRole::Consumer; groups];
    kinds[groups - 1] = GroupRole::Producer;
    let op = GpuOp::WarpGroups { warps: vec![GROUP_WARPS as u8; groups], roles: kinds, registers };
    let mut cursor = Cursor::new(&mut base, &mut out, PASS);
    cursor.op(op, &[], &regions)?;
    cursor.op(ControlOp::Return, &[], &[])?;
    let body = base.body;
    base.regions[body.index()].ops = out;
    dce::run(&mut base);
    compact(&mut base);
    let bytes: u32 = fed.blocks().map(|copy| copy.bytes).sum();
    let what = format!(
        "fed by warps of their own through {} slots of {bytes} bytes, scores by four warps and sums by {} times four",
        fed.stages,
        roles.sums.len()
    );
    Ok(Some((base, LoopReport { span: func.op(fed.owner).span, what })))
}

/// How many groups arrive when a part of a slot has been read: the scores, and each sum that reads it.
fn readers(func: &Func, roles: &Roles, fed: &FedLoop, part: usize) -> u32 {
    let reads = |product: OpId| fed.copies.iter().any(|copy| copy.part == part && find::reads(func, product, copy));
    let scores = u32::from(roles.scores.iter().any(|&score| reads(score)));
    scores + roles.sums.iter().filter(|sum| reads(sum.product)).count() as u32
}

fn shared(base: &mut Func, out: &mut Vec<OpId>, roles: &Roles, fed: &FedLoop) -> edit::Result<Option<Shared>> {
    let counts: Vec<u32> = (0..fed.releases.len()).map(|part| readers(base, roles, fed, part)).collect();
    let ring = super::ring(&mut Cursor::new(base, out, PASS), fed, true, &counts)?;
    let mut places = BTreeMap::new();
    for &value in roles.passed.iter().flatten() {
        let Some(view) = place(&mut Cursor::new(base, out, PASS), value)? else { return Ok(None) };
        places.insert(value, view);
    }
    let mut cursor = Cursor::new(base, out, PASS);
    let passed = cursor.value(GpuOp::MbarrierAlloc { slots: 1, count: 1 }, &[])?;
    let takes = |sum: &&Sum| roles.passed[0].iter().any(|value| sum.needs.contains(value));
    let count = roles.sums.iter().filter(takes).count().max(1) as u32;
    let taken = cursor.value(GpuOp::MbarrierAlloc { slots: 1, count }, &[])?;
    let behind = cursor.value(GpuOp::MbarrierAlloc { slots: 1, count: 1 }, &[])?;
    let mut turns = Vec::new();
    for _ in 1..roles.turns.len() {
        turns.push(cursor.value(GpuOp::MbarrierAlloc { slots: 1, count: 1 }, &[])?);
    }
    let mut added = Vec::new();
    for _ in 1..roles.sums.len() {
        added.push(cursor.value(GpuOp::MbarrierAlloc { slots: 1, count: 1 }, &[])?);
    }
    Ok(Some(Shared { ring, places, passed, taken, behind, turns, added }))
}
