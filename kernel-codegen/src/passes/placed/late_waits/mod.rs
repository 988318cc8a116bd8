//! Waits for products where their results are needed, and no earlier.
//!
//! ```text
//! for .. (%acc = ..) {                                for .. (%acc = ..) {                 in flight from before
//!   %s = wgmma %q, %k; wgmma_wait {pending = 0}         %s = wgmma %q, %k
//!   %p = .. %s ..; %a = mul %acc, ..                    %s1, %acc1 = wgmma_wait %s, %acc {pending = 0}
//!   %o = wgmma %p, %v, %a; wgmma_wait {pending = 0}     %p = .. %s1 ..; %a = mul %acc1, ..
//!   yield %o                                            %o = wgmma %p, %v, %a
//! }                                                     yield %o
//!                                                     }
//!                                                     wgmma_wait {pending = 0}
//! ```
//!
//! A product is asynchronous: a wait right behind it leaves the tensor cores without work until the next one begins. So
//! each product is waited for before the first operation that looks at its result, by a wait that leaves those in
//! flight that were begun since; products end in the order in which they began, so a wait for one is a wait for all
//! that are older. What nothing in the iteration looks at stays in flight over its end, where the passes that fill
//! shared memory for the next iterations know how long it is read: `warp_specialize` and `software_pipeline` ask for
//! such a [`Plan`]; this pass is for all other loops.
//!
//! A factor in registers is computed before the products with which its own is in flight together: where it is not,
//! those are waited for first.
//!
//! Loops of which nothing looks at a sum are left alone: they have ways of their own.

mod plan;
mod room;

use std::collections::{BTreeMap, HashMap};

use kernel_core::edit::{Cursor, Result, walk, walk_region};
use kernel_core::ir::{ControlOp, Func, GpuOp, Op, OpId, RegionId, ValueId};
use kernel_core::target::{MAX_WARPS, Target};

use crate::analysis::warp_groups::registers_at_start;

use plan::{Plan, Style, Tile};

/// What a plan leaves of a thread's registers for what is no tile of the loop: addresses, coordinates, scalars, and what is
/// just being computed. Plans are compared by the registers of their tiles alone, so this bounds how many of them products may
/// keep in flight; how many registers the rest takes is decided by ptxas. An estimate, not a measurement, and nothing
/// guarantees it: whether kernels spill is seen by the tests that assemble them (`tests/suites/codegen`, and those of the
/// library).
const BESIDE_TILES: u32 = 24;

/// The same where products stay in flight over the end of an iteration: ptxas makes one stage of those and of what the next
/// iteration begins only where it has registers to spare, and else runs all products one after the other (C7512).
const BESIDE_CROSSING: u32 = 40;

/// How many registers there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Room {
    /// So many for each thread.
    Registers(u32),
    /// Those of a multiprocessor, for as many programs of so many warps as have room now.
    Programs(Target, u32),
}

impl Room {
    /// The most that a thread may take that takes so many now.
    fn limit(self, now: u32) -> u32 {
        match self {
            Room::Registers(registers) => registers,
            Room::Programs(target, warps) => {
                let fitting = (1..=MAX_WARPS / warps.max(1))
                    .take_while(|programs| registers_at_start(target, warps, *programs) >= now);
                registers_at_start(target, warps, fitting.max().unwrap_or(1))
            }
        }
    }
}

/// Runs the pass.
///
/// # Errors
/// If the kernel it writes breaks a type rule, which is a mistake in this pass.
pub(crate) fn run(func: &mut Func, room: Room) -> Result<()> {
    let mut loops = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        if let Op::Control(ControlOp::For { .. }) = operation.op
            && !is_fed(func, operation.regions[0])
        {
            loops.push(id);
        }
    });
    for id in loops {
        wait_late(func, id, room, "late_waits", &|_, _| false)?;
    }
    Ok(())
}

/// Has the products of a loop waited for where something looks at them, as far as a thread has that many registers;
/// `None` if nothing is gained. Products of which `may_cross` says that the next iteration leaves their factors in shared
/// memory alone until it has waited for them may stay in flight over the end of an iteration. What is in flight behind
/// the loop is the caller's to wait for.
///
/// # Errors
/// If the kernel it writes breaks a type rule, which is a mistake in this pass.
pub(crate) fn wait_late(
    func: &mut Func,
    owner: OpId,
    room: Room,
    pass: &'static str,
    may_cross: &dyn Fn(&Func, OpId) -> bool,
) -> Result<Option<Applied>> {
    let at_once = room::registers(func, owner, &Applied::default());
    let limit = |style: Style| {
        let beside = if style.across { BESIDE_CROSSING } else { BESIDE_TILES };
        room.limit(at_once + BESIDE_CROSSING).saturating_sub(beside)
    };
    let mut styles = [(true, true), (false, true), (true, false)]
        .map(|(inside, across)| Style { inside, across })
        .into_iter()
        .filter(|&style| !style.across || at_once <= limit(style));
    styles
        .find_map(|style| {
            let plan = Plan::new(func, owner, style, &|product| may_cross(func, product))?;
            if style.across && plan.crossing.is_empty() && !style.inside {
                return None;
            }
            let mut other = func.clone();
            let applied = match apply(&mut other, owner, &plan, pass) {
                Ok(applied) => applied,
                Err(error) => return Some(Err(error)),
            };
            (room::registers(&other, owner, &applied) <= limit(style).max(at_once)).then(|| {
                *func = other;
                Ok(applied)
            })
        })
        .transpose()
}

/// Whether copies fill shared memory ahead of a loop's iterations.
fn is_fed(func: &Func, body: RegionId) -> bool {
    func.region_ops(body).any(|(_, operation)| {
        matches!(operation.op, Op::Gpu(GpuOp::MbarrierWait | GpuOp::AsyncWait { .. } | GpuOp::AsyncCopy))
    })
}

/// What became of a loop's waits.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Applied {
    /// Per product, the wait behind which it is over: in the next iteration, where it crosses.
    pub(crate) over: BTreeMap<OpId, OpId>,
    /// The wait for what the iteration before has left in flight, if it leaves anything.
    pub(crate) carried: Option<OpId>,
    /// What is still in flight behind the loop, by its position among the carried values.
    pub(crate) crossing: Vec<usize>,
    /// The products that make it.
    pub(crate) last: Vec<OpId>,
}

/// Rewrites the waits of a loop. What it leaves in flight behind it is the caller's to wait for.
///
/// # Errors
/// If the kernel it writes breaks a type rule, which is a mistake in this pass.
fn apply(func: &mut Func, owner: OpId, plan: &Plan, pass: &'static str) -> Result<Applied> {
    let body = func.op(owner).regions[0];
    let old = std::mem::take(&mut func.regions[body.index()].ops);
    let waited: HashMap<OpId, ValueId> = results_of_waits(func, &old);
    let args = func.region(body).args.clone();
    let (mut out, mut now) = (Vec::with_capacity(old.len()), HashMap::new());
    let (last, crossing) = plan.crossing.iter().copied().unzip();
    let mut applied = Applied { last, crossing, ..Applied::default() };
    let mut landings = plan.landings.iter().peekable();
    let mut begun: Vec<OpId> = Vec::new();
    for (at, &id) in old.iter().enumerate() {
        while let Some(landing) = landings.next_if(|landing| landing.before == at) {
            // What goes in is the product's own result, or what the loop carries.
            let old_names: Vec<ValueId> = landing
                .tiles
                .iter()
                .map(|&tile| match tile {
                    Tile::Of(product) => waited[&product],
                    Tile::Carried(position) => args[1 + position],
                })
                .collect();
            let tiles: Vec<ValueId> = old_names.iter().map(|value| now.get(value).copied().unwrap_or(*value)).collect();
            let span = func.op(id).span;
            let wait = wait(&mut Cursor::new(func, &mut out, pass).at(span), &tiles, landing.pending)?;
            now.extend(old_names.into_iter().zip(func.op(wait).results.clone()));
            let over = begun.len().saturating_sub(usize::from(landing.pending));
            applied.over.extend(
                begun[..over]
                    .iter()
                    .filter(|id| !applied.over.contains_key(id))
                    .map(|&id| (id, wait))
                    .collect::<Vec<_>>(),
            );
            let are_over = !plan.crossing.is_empty() && usize::from(landing.pending) <= begun.len();
            applied.carried = applied.carried.or(Some(wait).filter(|_| are_over));
        }
        if matches!(func.op(id).op, Op::Gpu(GpuOp::WgmmaWait { .. })) {
            continue;
        }
        rename(func, id, &now);
        if let Some(&result) = waited.get(&id) {
            now.insert(result, func.op(id).results[0]);
            begun.push(id);
        }
        out.push(id);
    }
    if let Some(wait) = applied.carried {
        applied.over.extend(plan.crossing.iter().map(|&(product, _)| (product, wait)));
    }
    func.regions[body.index()].ops = out;
    Ok(applied)
}

/// Per product, the result of the wait for it.
fn results_of_waits(func: &Func, ops: &[OpId]) -> HashMap<OpId, ValueId> {
    let mut waited = HashMap::new();
    for &id in ops {
        let operation = func.op(id);
        if let Op::Gpu(GpuOp::WgmmaWait { .. }) = operation.op {
            let products = operation.operands.iter().filter_map(|&value| func.defining_op(value));
            waited.extend(products.zip(operation.results.iter().copied()));
        }
    }
    waited
}

/// Has an operation, and what is in it, use values under other names.
fn rename(func: &mut Func, id: OpId, now: &HashMap<ValueId, ValueId>) {
    let mut inside = vec![id];
    for &region in &func.op(id).regions {
        walk_region(func, region, &mut |inner| inside.push(inner));
    }
    for inner in inside {
        for operand in &mut func.ops[inner.index()].operands {
            *operand = now.get(operand).copied().unwrap_or(*operand);
        }
    }
}

/// Waits until at most the `pending` youngest products are in flight.
fn wait(cursor: &mut Cursor<'_>, tiles: &[ValueId], pending: u8) -> Result<OpId> {
    let id = cursor.op(GpuOp::WgmmaWait { pending }, tiles, &[])?;
    let results = cursor.func.op(id).results.clone();
    for (&from, &to) in tiles.iter().zip(&results) {
        cursor.func.values[to.index()].layout = cursor.func.value(from).layout;
    }
    Ok(id)
}
