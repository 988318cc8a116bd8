//! Divides a kernel between warps that fetch and warps that multiply.
//!
//! ```text
//! for tile in ..                           a persistent kernel, or none of this loop
//!   acc = 0
//!   for k in ..                            blocks come by tensor descriptors, and go into shared memory as they are
//!     a = desc_load A; b = desc_load B
//!     store a, b to shared memory; acc = wgmma a, b, acc; wait
//!   desc_store C, acc
//! ```
//! becomes, with a ring of `stages` slots and two barriers per slot,
//! ```text
//! warp_groups {
//!   for tile in ..                         the consumers: everything as it was, but
//!     for k in ..
//!       wait full[slot], phase
//!       acc = wgmma a[slot], b[slot], acc
//!       wait until one product is in flight; arrive empty[previous]
//!       advance (slot, phase)
//!     wait for the products; arrive empty[previous]
//!     desc_store C, acc
//! } with {
//!   for tile in ..                         the producer: one thread, which computes coordinates and nothing else
//!     for k in ..
//!       wait empty[slot], phase
//!       arrive full[slot], expecting the bytes of both blocks
//!       tma_load A -> a[slot], full[slot]; tma_load B -> b[slot], full[slot]
//!       advance (slot, phase)
//! }
//! ```
//!
//! Slot and phase run on from tile to tile, so the producer is up to `stages` iterations ahead, across the ends of
//! tiles: while the consumers store a tile, the factors of the next one arrive. Neither side knows how many
//! iterations there are; loops that run never, once or a few times need nothing special.
//!
//! Loops that follow each other share a ring if their blocks are of the same form, and go on in it where the one before
//! has ended, as tiles do.
//!
//! Blocks that a loop reads in all its iterations are fetched by the producer too: see [`held`].
//!
//! Tiles go out in pieces, by the warps that computed them: see [`outgoing`]. The products of an iteration wait for
//! nobody but its barriers either, so groups of four warps fall out of step, and some store while others multiply.
//!
//! The first iteration of a tile has no slot before it to release. It releases one slot that nobody waits for, beyond
//! the ring, which costs less than a condition in every iteration.
//!
//! Loops with `#[warp_specialize]`, and those in them, are divided where that is possible; others where all factors of
//! all products come by descriptors, and where it pays: mostly, where the program goes on to another tile. Where the
//! kernel has no room as a whole, these are divided too: see [`Specialize`]. The report says why
//! a loop was not specialised. Assertions are hoisted above the split; if they cannot be, the kernel stays whole: see
//! [`prologue`].

mod consume;
mod find;
mod held;
mod needs;
mod outgoing;
mod parts;
mod ping_pong;
mod prologue;
mod roles;
mod scratch;
mod send;
mod split;
mod vectors;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kernel_core::edit::{self, Cursor, Structure, clone_op, compact, walk, walk_region};
use kernel_core::ir::{ControlOp, Dim, Does, Func, GpuOp, GroupRole, Op, OpId, Span, ValueId};
use kernel_core::passes::dce;

use crate::analysis::allocation::{root, view_bytes};
use crate::analysis::warp_groups::{registers_at_start, shared_out};
use crate::error::CodegenError;
use crate::occupancy::{Occupancy, words};
use crate::report::LoopReport;
use find::{FedLoop, NotFed};
use held::Held;
use kernel_core::backend::nvidia::Options;
use kernel_core::target::{BARRIER_BYTES, GROUP_WARPS, MAX_WARPS, SWIZZLE_ALIGNMENT, Target};
use needs::Needs;
use outgoing::{Outgoing, staging_bytes, widen};
use ping_pong::Tiles;
use prologue::Prologue;
use roles::Alone;
use scratch::Scratch;
use split::{Ring, Side, Split, Turn};

const PASS: &str = "warp_specialize";

/// Warps of which seldom two programs share a multiprocessor.
const MANY_WARPS: u32 = 2 * GROUP_WARPS;
/// Registers of a thread beside the tiles that a loop carries, and the sums of its products.
const BESIDE_TILES: u32 = 40;

/// Which of the loops that nobody asked to divide are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Specialize {
    /// Those that gain from it.
    IfProfitable,
    /// All that can be, since the kernel as a whole takes more than there is: a divided kernel sends what it stores in
    /// pieces, and takes as many slots as there is room for.
    IfLegal,
}

/// Whether the pass might find something to divide.
pub(crate) fn might_divide(func: &Func, target: Target) -> bool {
    let mut multiplies = false;
    walk(func, &mut |id| multiplies |= matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. })));
    multiplies && target.has_wgmma()
}

/// Runs the pass: whether the kernel was divided, and what became of each loop that was to be.
///
/// # Errors
/// If the kernel it writes breaks a type rule, which is a mistake in this pass.
pub(crate) fn run(
    func: &mut Func,
    target: Target,
    options: &Options,
    division: Specialize,
) -> Result<(bool, Vec<LoopReport>), CodegenError> {
    // With what threads compute with beside products, if there is such and the kernel can be divided then.
    if target.has_wgmma() {
        let mut other = func.clone();
        let (fed_loops, _) = find::fed_loops(&other, options.num_stages);
        let looks = fed_loops.iter().filter(|fed| fed.carried_products.is_empty()).map(|fed| fed.owner);
        if vectors::store(&mut other, &looks.collect::<Vec<_>>())? > 0
            && let Ok((true, loops)) = run_as_is(&mut other, target, options, division)
        {
            *func = other;
            return Ok((true, loops));
        }
    }
    run_as_is(func, target, options, division)
}

/// A kernel whose iterations groups may share.
pub(crate) enum Shared {
    /// The kernel divided between them, and what became of its loops.
    Divided(Box<Func>, Vec<LoopReport>),
    /// It need not be divided so, or cannot be, which the report says.
    Alone(Option<LoopReport>),
}

/// The kernel divided between groups that share the iterations of a loop: see [`roles`].
///
/// # Errors
/// As [`run`].
pub(crate) fn share(func: &Func, target: Target, options: &Options) -> Result<Shared, CodegenError> {
    if !target.has_wgmma() || options.num_warps != GROUP_WARPS {
        return Ok(Shared::Alone(None));
    }
    let (mut fed_loops, refusals) = find::fed_loops(func, options.num_stages);
    fed_loops.retain(|fed| fed.requested);
    let [fed] = &fed_loops[..] else { return Ok(Shared::Alone(None)) };
    let span = func.op(fed.owner).span;
    let roles = match roles::Roles::of(func, target, fed) {
        Ok(roles) => roles,
        Err(Alone::Suits) => return Ok(Shared::Alone(None)),
        Err(Alone::Because(reason)) => return Ok(Shared::Alone(Some(not_shared(span, reason)))),
    };
    if !Outgoing::all(func).is_empty() {
        return Ok(Shared::Alone(Some(not_shared(span, "blocks are stored by descriptors"))));
    }
    // Of which the ordinary way speaks.
    if obstacle(func, &fed_loops, &[], options).is_err() {
        return Ok(Shared::Alone(None));
    }
    let Some((divided, told)) = roles::divide(func, target, options, &roles, fed)? else {
        let reason = "a group would need what another one computes, or more shared memory than there is";
        return Ok(Shared::Alone(Some(not_shared(span, reason))));
    };
    Ok(Shared::Divided(Box::new(divided), refusals.iter().map(NotFed::report).chain([told]).collect()))
}

/// What the report says of a loop whose sums four warps cannot hold.
pub(crate) fn not_shared(span: Span, reason: &str) -> LoopReport {
    let what = format!("not shared by groups of warps, although four warps have no registers for its sums: {reason}");
    LoopReport { span, what }
}

fn run_as_is(
    func: &mut Func,
    target: Target,
    options: &Options,
    division: Specialize,
) -> Result<(bool, Vec<LoopReport>), CodegenError> {
    let marked = find::marked(func);
    if !target.has_wgmma() {
        let what = format!("not specialised: {} has no warp groups", target.name());
        return Ok((false, marked.into_iter().map(|span| LoopReport { span, what: what.clone() }).collect()));
    }
    let (mut fed_loops, mut refusals) = find::fed_loops(func, options.num_stages);
    let structure = Structure::new(func);
    match division {
        Specialize::IfProfitable => {
            fed_loops.retain(|fed| fed.requested || pays(func, target, &structure, fed, options.num_warps));
        }
        // The lack of room asks for it.
        Specialize::IfLegal => fed_loops.iter_mut().for_each(|fed| fed.requested = true),
    }
    find::number_rings(&mut fed_loops);
    if fed_loops.is_empty() {
        if refusals.is_empty() {
            refusals
                .extend(marked.into_iter().map(|span| NotFed::new(span, "nothing in it multiplies by warp groups")));
        }
        return Ok((false, refusals.iter().map(NotFed::report).collect()));
    }
    let requested = fed_loops.iter().any(|fed| fed.requested);
    let mut outgoing = Outgoing::all(func);
    let mut held = held::blocks(func, &structure, &fed_loops);
    let mut tiles = None;
    let mut scratch = Scratch::usual(func, &structure, &fed_loops);
    let needs = obstacle(func, &fed_loops, &held, options)
        .and_then(|()| {
            let least = Scratch::least(func, target, &structure, &fed_loops, options.num_warps);
            tiles = ping_pong::tile_loop(func, &fed_loops, &outgoing, least, options.num_warps);
            if tiles.is_some() {
                scratch = least;
            }
            let all = (fed_loops.clone(), outgoing.clone(), held.clone());
            if fit(func, target, &mut fed_loops, &mut outgoing, &mut held, tiles, scratch) {
                return Ok(());
            }
            (fed_loops, outgoing, held) = all;
            scratch = Scratch::least(func, target, &structure, &fed_loops, options.num_warps);
            if fit(func, target, &mut fed_loops, &mut outgoing, &mut held, tiles, scratch) {
                return Ok(());
            }
            too_large(func, target, &fed_loops, shared_bytes(func, &fed_loops, &outgoing, &held, tiles, scratch))
        })
        .and_then(|()| Ok((Needs::of(func, &structure, &fed_loops, &held)?, Prologue::of(func)?)));
    let mut loops: Vec<LoopReport> = refusals.iter().map(NotFed::report).collect();
    match needs {
        Ok((needs, prologue)) => {
            too_many(func, target, &fed_loops, &outgoing, &held, tiles, scratch)?;
            let registers = match registers(target, options.num_warps) {
                (0, _) => registers_at_start(target, options.num_warps + GROUP_WARPS, 1),
                (consumer, _) => u32::from(consumer),
            };
            if tiles.is_none() {
                fed_loops.iter_mut().try_for_each(|fed| find::wait_late(func, fed, registers))?;
            }
            loops.extend(fed_loops.iter().map(|fed| described(func, fed, &held, tiles)));
            let plan = Plan { fed_loops: &fed_loops, held: &held, outgoing: &outgoing, prologue: &prologue, tiles };
            divide(func, target, plan, &structure, &needs, options.num_warps)?;
            Ok((true, loops))
        }
        Err(refusal) => {
            loops.extend(requested.then(|| refusal.report()));
            Ok((false, loops))
        }
    }
}

/// Whether a kernel gains from the division where nobody asked for it. Measured on an H100:
///
/// - *A program that goes on to another tile* gains 1.01 to 1.4 times, and up to 1.6 times where two groups take
///   turns: the factors of the next tile come while this one is stored. Of four warps, a second program may have room
///   beside it; two then took 0.8 to 1.04 times as long as the divided one, and one alone 1.03 to 1.2 times.
/// - *A program of one tile that only multiplies* has nothing to fetch by then. Over 26 tiles with two to eight slots
///   and 12 sizes of 1024 to 8192 it took 1.05 times as long on average; up to 1.6 times where several programs would
///   have shared a multiprocessor, and 1.00 to 1.01 times with tiles of 128 x 256.
/// - *A program of one tile that computes with its products in each iteration*, as attention does, gains 1.01 to 1.08
///   times if its eight warps have the multiprocessor for themselves. Two that share one overlap by themselves, and
///   took 1.29 times as long divided.
fn pays(func: &Func, target: Target, structure: &Structure, fed: &FedLoop, num_warps: u32) -> bool {
    let is_loop = |id: OpId| matches!(func.op(id).op, Op::Control(ControlOp::For { .. } | ControlOp::While));
    let stays = structure.around(fed.owner).any(is_loop);
    let is_wide = num_warps >= MANY_WARPS;
    (stays && is_wide)
        || ((stays || (is_wide && fed.carried_products.is_empty())) && is_alone(func, target, fed, num_warps))
}

/// Whether a multiprocessor has no room for a second program, undivided.
fn is_alone(func: &Func, target: Target, fed: &FedLoop, num_warps: u32) -> bool {
    let owner = func.op(fed.owner);
    let mut tiles: BTreeSet<ValueId> = owner.results.iter().copied().collect();
    let carried = |value: &ValueId| func.yielded(owner.regions[0]).contains(value);
    for &wait in &fed.waits {
        tiles.extend(func.op(wait).results.iter().filter(|value| !carried(value)));
    }
    let registers = BESIDE_TILES + tiles.iter().map(|&tile| words(func, tile)).sum::<u32>();
    Occupancy::new(target, num_warps, fed.ring_bytes(), Some(registers)).programs() < 2
}

/// Bytes of shared memory that the divided kernel has: rings, barriers, factors that are not fetched, blocks on their
/// way out, and what conversions and reductions take.
fn shared_bytes(
    func: &Func,
    fed_loops: &[FedLoop],
    outgoing: &[Outgoing],
    held: &[Held],
    tiles: Option<Tiles>,
    scratch: Scratch,
) -> u32 {
    let groups = if tiles.is_some() { ping_pong::GROUPS } else { 1 };
    let barriers: u32 =
        find::rings(fed_loops).map(|fed| fed.releases.len() as u32 * (2 * fed.stages + 1) * BARRIER_BYTES).sum();
    let barriers = barriers + Tiles::barriers(tiles) * BARRIER_BYTES;
    let rings: u32 = find::rings(fed_loops).map(FedLoop::ring_bytes).sum();
    let beside = scratch.beside(groups * factor_bytes(func, fed_loops, held));
    let held: u32 = held.iter().map(Held::shared_bytes).sum();
    barriers.next_multiple_of(SWIZZLE_ALIGNMENT) + rings + held + groups * staging_bytes(outgoing) + beside
}

/// Bytes of the factors that the consumers store, before their loops or in them.
fn factor_bytes(func: &Func, fed_loops: &[FedLoop], held: &[Held]) -> u32 {
    let (mut fetched, mut read) = (BTreeSet::new(), BTreeSet::new());
    for fed in fed_loops {
        fetched.extend(fed.copies.iter().map(|copy| copy.alloc));
        walk_region(func, func.op(fed.owner).regions[0], &mut |id| {
            if matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. })) {
                read.extend(func.op(id).operands[..2].iter().filter_map(|&factor| root(func, factor)));
            }
        });
    }
    let stored = read.difference(&fetched).filter(|alloc| !held::is_held(held, **alloc));
    stored
        .map(|&alloc| view_bytes(func, func.op(alloc).results[0]))
        .map(|bytes| bytes.next_multiple_of(SWIZZLE_ALIGNMENT))
        .sum()
}

/// Takes as many slots as fit into shared memory, where nobody asked for a number. Numbers that were asked for stay as
/// they are. What is left goes to blocks on their way out. Returns whether all fits.
fn fit(
    func: &Func,
    target: Target,
    fed_loops: &mut [FedLoop],
    outgoing: &mut [Outgoing],
    held: &mut [Held],
    tiles: Option<Tiles>,
    scratch: Scratch,
) -> bool {
    let limit = target.max_shared_bytes();
    while shared_bytes(func, fed_loops, outgoing, held, tiles, scratch) > limit {
        let largest = fed_loops.iter().filter(|fed| !fed.stages_given && fed.stages > fed.least_stages());
        let Some(ring) = largest.max_by_key(|fed| fed.ring_bytes()).map(|fed| fed.ring) else { break };
        fed_loops.iter_mut().filter(|fed| fed.ring == ring).for_each(|fed| fed.stages -= 1);
    }
    held::widen(held, limit, |held| shared_bytes(func, fed_loops, outgoing, held, tiles, scratch));
    widen(outgoing, |outgoing| shared_bytes(func, fed_loops, outgoing, held, tiles, scratch) <= limit);
    shared_bytes(func, fed_loops, outgoing, held, tiles, scratch) <= limit
}

/// Why a kernel that needs too much shared memory stays whole; where numbers of slots were asked for, [`too_many`] says it.
fn too_large(func: &Func, target: Target, fed_loops: &[FedLoop], needs: u32) -> Result<(), NotFed> {
    let Some(fed) = fed_loops.iter().find(|fed| !fed.stages_given) else { return Ok(()) };
    let limit = target.max_shared_bytes();
    let reason = format!("{} slots and all else take {needs} bytes of shared memory, of {limit}", fed.stages);
    Err(NotFed::new(func.op(fed.owner).span, reason))
}

/// An error if a loop asks for more slots than fit.
fn too_many(
    func: &Func,
    target: Target,
    fed_loops: &[FedLoop],
    outgoing: &[Outgoing],
    held: &[Held],
    tiles: Option<Tiles>,
    scratch: Scratch,
) -> Result<(), CodegenError> {
    let (needed, limit) = (shared_bytes(func, fed_loops, outgoing, held, tiles, scratch), target.max_shared_bytes());
    let Some(fed) = fed_loops.iter().find(|fed| fed.stages_given).filter(|_| needed > limit) else { return Ok(()) };
    let slot = fed.ring_bytes() / fed.stages;
    let fitting = fed.stages.saturating_sub((needed - limit).div_ceil(slot));
    let what = format!("bytes of shared memory in a loop with {} stages", fed.stages);
    let error = CodegenError::refuse(func, func.op(fed.owner).span, what);
    Err(error.amounts(u64::from(needed), u64::from(limit)).help(match fitting {
        0 | 1 => "two stages do not fit: use smaller tiles".to_string(),
        _ => format!("the largest number that fits is `#[stages({fitting})]`; smaller tiles allow more"),
    }))
}

/// What became of a loop, for a person to read.
fn described(func: &Func, fed: &FedLoop, held: &[Held], tiles: Option<Tiles>) -> LoopReport {
    let bytes: u32 = fed.blocks().map(|copy| copy.bytes).sum();
    let flight = match fed.carried_products.len() + fed.crossing.len() {
        0 => "products are waited for in each iteration".to_string(),
        1 => "one product in flight".to_string(),
        many => format!("{many} products in flight"),
    };
    let stages = fed.stages;
    let groups = if tiles.is_some() { ", two warp groups in ping-pong" } else { "" };
    let held = held::described(held, fed);
    let what = format!("fed by warps of their own through {stages} slots of {bytes} bytes, {flight}{groups}{held}");
    LoopReport { span: func.op(fed.owner).span, what }
}

/// What keeps a whole kernel from being divided.
fn obstacle(func: &Func, fed_loops: &[FedLoop], held: &[Held], options: &Options) -> Result<(), NotFed> {
    let num_warps = options.num_warps;
    let span = fed_loops.first().map_or(Span::UNKNOWN, |fed| func.op(fed.owner).span);
    if !num_warps.is_multiple_of(GROUP_WARPS) || num_warps + GROUP_WARPS > MAX_WARPS {
        let reason = format!("{num_warps} warps multiply; it takes 4, 8 or 16 of them, and 4 more that fetch");
        return Err(NotFed::new(span, reason));
    }
    if options.max_registers.is_some() {
        return Err(NotFed::new(span, "`max_registers` is given, and the sides would share out registers otherwise"));
    }
    let written = find::written_tensors(func);
    for load in fed_loops.iter().flat_map(|fed| &fed.copies).map(|copy| copy.load).chain(held::loads(held)) {
        let load = func.op(load);
        let tensor = load.operands.first().and_then(|&value| func.ty(value).descriptor());
        if let Some(tensor) = tensor.filter(|tensor| written.contains(tensor)) {
            let reason =
                format!("the kernel also writes `{}`, which a producer would read ahead", func.param(tensor).name);
            return Err(NotFed::new(load.span, reason));
        }
    }
    if let Some(tensor) = find::torn_tensor(func, fed_loops, held) {
        let reason = format!("blocks of `{}` are wanted in two forms", func.param(tensor).name);
        return Err(NotFed::new(span, reason));
    }
    let mut found = Ok(());
    walk(func, &mut |id| {
        let operation = func.op(id);
        let phased = matches!(operation.op, Op::Gpu(GpuOp::WarpGroups { .. } | GpuOp::MbarrierAlloc { .. }));
        if phased && found.is_ok() {
            found = Err(NotFed::new(operation.span, "the kernel has barriers with phases already"));
        }
        if matches!(operation.op, Op::Control(ControlOp::Print { .. })) && found.is_ok() {
            found = Err(NotFed::new(operation.span, "the kernel prints, which both sides would do"));
        }
        if operation.op.does().contains(&Does::Orders) && found.is_ok() {
            found = Err(NotFed::new(operation.span, "the kernel has PTX that is not pure, which both sides would run"));
        }
    });
    found
}

/// Registers per thread of the consumers and of the producer: 0 leaves them as they are.
///
/// A single group of consumers has all that a thread can have as it is; whether it shall do with less, so that a second
/// program has room, is decided when all is placed (`residency`).
fn registers(target: Target, num_warps: u32) -> (u8, u8) {
    let groups = num_warps / GROUP_WARPS;
    if groups < 2 { (0, 0) } else { shared_out(target, groups, 1).unwrap_or_default() }
}

/// How a kernel is divided.
#[derive(Clone, Copy)]
struct Plan<'a> {
    fed_loops: &'a [FedLoop],
    held: &'a [Held],
    outgoing: &'a [Outgoing],
    prologue: &'a Prologue,
    /// The tiles, if groups take them in turns.
    tiles: Option<Tiles>,
}

/// Writes the divided kernel.
fn divide(
    func: &mut Func,
    target: Target,
    Plan { fed_loops, held, outgoing, prologue, tiles }: Plan<'_>,
    structure: &Structure,
    needs: &Needs,
    num_warps: u32,
) -> edit::Result<()> {
    let mut inside: BTreeMap<OpId, Vec<usize>> = BTreeMap::new();
    for fed in fed_loops {
        for owner in structure.around(fed.owner) {
            let rings = inside.entry(owner).or_default();
            if !rings.contains(&fed.ring) {
                rings.push(fed.ring);
            }
        }
    }
    held::inside(structure, held, |owner, ring| inside.entry(owner).or_default().push(ring));
    let mut map = HashMap::new();
    let mut out: Vec<OpId> = prologue.ops.iter().map(|&id| clone_op(func, id, &mut map)).collect();
    let mut rings = Vec::new();
    for fed in find::rings(fed_loops) {
        let trails = fed_loops.iter().any(|other| other.ring == fed.ring && other.trails());
        rings.push(ring(&mut Cursor::new(func, &mut out, PASS), fed, trails, &vec![1; fed.releases.len()])?);
    }
    for one in held {
        rings.push(held::ring(&mut Cursor::new(func, &mut out, PASS), one)?);
    }
    let turns = GpuOp::MbarrierAlloc { slots: Tiles::barriers(tiles), count: 1 };
    let turns = tiles.map(|_| Cursor::new(func, &mut out, PASS).value(turns, &[])).transpose()?;
    let mut regions = Vec::new();
    for own in 0..if tiles.is_some() { ping_pong::GROUPS } else { 1 } {
        let ways = outgoing::allocate(&mut Cursor::new(func, &mut out, PASS), outgoing)?;
        let mut split = Split::new(func, (fed_loops, held), &rings, &inside, &ways, Side::Consumer);
        split.turn = tiles.zip(turns).map(|(tiles, barriers)| Turn { tiles, barriers, own: own as i32, phase: None });
        regions.push(split.region()?);
    }
    let consumers = regions.len();
    let ways = BTreeMap::new();
    regions.push(Split::new(func, (fed_loops, held), &rings, &inside, &ways, Side::Producer(needs)).region()?);
    let (many, few) = registers(target, num_warps * consumers as u32);
    let groups = GpuOp::WarpGroups {
        warps: one_more(consumers, num_warps as u8, GROUP_WARPS as u8),
        roles: one_more(consumers, GroupRole::Consumer, GroupRole::Producer),
        registers: one_more(consumers, many, few),
    };
    let mut cursor = Cursor::new(func, &mut out, PASS);
    cursor.op(groups, &[], &regions)?;
    cursor.op(ControlOp::Return, &[], &[])?;
    func.regions[func.body.index()].ops = out;
    dce::run(func);
    compact(func);
    Ok(())
}

/// What each of so many groups has, and what the last one.
fn one_more<T: Clone>(groups: usize, each: T, last: T) -> Vec<T> {
    std::iter::repeat_n(each, groups).chain([last]).collect()
}

/// Shared memory and barriers for a ring of a loop, with a slot beyond it if loops release slots an iteration later.
fn ring(cursor: &mut Cursor<'_>, fed: &FedLoop, trails: bool, readers: &[u32]) -> edit::Result<Ring> {
    let mut slots = Vec::new();
    for copy in fed.blocks() {
        let mut shape = vec![Dim::Const(i64::from(fed.stages))];
        shape.extend(copy.shape.iter().cloned());
        let layout = cursor.func.intern(&copy.layout);
        slots.push(cursor.placed(GpuOp::SharedAlloc { shape, dtype: copy.dtype }, &[], Some(layout))?);
    }
    let spare = u32::from(trails);
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for &count in readers {
        full.push(cursor.value(GpuOp::MbarrierAlloc { slots: fed.stages, count: 1 }, &[])?);
        empty.push(cursor.value(GpuOp::MbarrierAlloc { slots: fed.stages + spare, count }, &[])?);
    }
    Ok(Ring { slots, full, empty })
}
