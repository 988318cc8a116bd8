//! Software pipelining: copies into shared memory run some iterations ahead of the loop that uses them.
//!
//! ```text
//! before:  for i { %a = load ..; %va = shared_alloc; shared_store %va, %a; .. %c = wgmma %va, .., %acc; wgmma_wait 0 }
//! after:   %buffer = shared_alloc [3, ..]
//!          async_copy of iterations 0 and 1                          the prologue, where the iterations exist
//!          for i {
//!            async_wait 1; fence; barrier                       the copy of iteration i is there, for everybody
//!            %c = wgmma %buffer[i % 3], .., %acc
//!            wgmma_wait 1; barrier                              the product of iteration i - 1 is over, for everybody
//!            async_copy of iteration i + 2 into %buffer[(i + 2) % 3]
//!          }
//!          wgmma_wait 0; async_wait 0
//! ```
//!
//! # What is copied ahead
//!
//! A load of a tile (or of a tensor's block) whose addresses can be computed ahead: from values outside the loop, its
//! counter, and carried values that themselves can be computed ahead, or loaded. What is computed for that is the *slice*;
//! it is repeated in the prologue, per iteration, and in the loop, ahead of the rest. Memory that the loop writes is not
//! read ahead. Numbers that address what a loop loads are carried values by [`indirection`], and so is the little that is
//! computed with the results of products.
//!
//! A loop with one product that is waited for in its iteration waits for the copies of the next one, and shows them to its
//! product, while this one runs: nothing else would hide that.
//!
//! - A load that goes to shared memory as it is (for `wgmma` or `ldmatrix`) is copied there by `cp.async`, or by TMA
//!   where it is a block of a tensor; permutations on the way become permuted views.
//! - A load that is used otherwise is copied to shared memory and read from there in the same layout: each thread reads
//!   what it has copied itself.
//!
//! # Slots and barriers
//!
//! With `S` slots, a copy runs `S - 1` iterations ahead. Its slot is then that of the iteration before, which all
//! threads have left at the barrier that the copied data need anyway.
//!
//! Where products stay in flight over the end of an iteration, that slot is still being read when the iteration
//! begins. Its copy then comes behind the iteration's own products: they keep the tensor cores busy while the
//! products of the iteration before are waited for, and a second barrier says that all warp groups have done so.
//! Copies `S - 2` iterations ahead would need no second barrier, but a warp issues a product only when the one before
//! it is well on its way, so that a copy behind it would have little more than `S - 2` products' time to arrive,
//! where it has `S - 1` this way.

mod advance;
mod build;
mod emit;
mod find;
mod flight;
pub(crate) mod indirection;
mod reasons;
mod replace;
mod scratch;
#[cfg(test)]
mod tests;

use kernel_core::edit::{Structure, Uses, walk, walk_region};
use kernel_core::ir::{ControlOp, Elem, Func, GpuOp, Op, OpId, RegionId, Span};
use kernel_core::passes::dce;

use crate::analysis::allocation::view_bytes;
use crate::analysis::axis::AxisAnalysis;
use crate::error::CodegenError;
use crate::passes::placed::late_waits::Room;
use crate::passes::placed::stored_blocks;
use crate::report::{LoopReport, StayReport, WaitReport};
use kernel_core::backend::nvidia::Options;
use kernel_core::target::{SWIZZLE_ALIGNMENT, Target};

use super::carry::{self, EnclosingRegion};
use find::{Candidate, Found, Refused};
use flight::Flown;
use reasons::Reasons;

/// A pipeline with one slot is none.
const MIN_STAGES: u32 = 2;

/// What the pass says of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// What became of each loop that was looked at.
    pub(crate) loops: Vec<LoopReport>,
    /// The loads in loops that are not fetched ahead.
    pub(crate) stays: Vec<StayReport>,
    /// The products that are waited for in their iteration.
    pub(crate) waits: Vec<WaitReport>,
}

/// Runs the pass.
///
/// # Errors
/// If a loop asks for more stages than fit the shared memory of the target.
pub(crate) fn run(func: &mut Func, target: Target, options: &Options) -> Result<Told, CodegenError> {
    let mut loops = Vec::new();
    collect(func, func.body, &mut Vec::new(), &mut loops);
    let mut told = Told { loops: refused(func, &loops), ..Told::default() };
    let mut reasons = Reasons::new(func);
    let axis = (!loops.is_empty()).then(|| AxisAnalysis::new(func));
    let mut changed = false;
    for (place, axis) in loops.into_iter().zip(axis.iter().cycle()) {
        if !target.has_async_copies() {
            reasons.of_loop(place.id, "the target has no asynchronous copies");
            continue;
        }
        let asked = stages_of(func, place.id, options);
        if asked.wanted < MIN_STAGES {
            reasons.of_loop(place.id, asked.why_one());
            continue;
        }
        let mut found = find::find(func, axis, place.id, asked.by_loop);
        if !found.candidates.is_empty() {
            let carried = indirection::in_registers(func, &place, &found)?;
            if !carried.is_empty() {
                changed = true;
                reasons.of_carried(carried);
                found = find::find(func, axis, place.id, asked.by_loop);
            }
        }
        let span = func.op(place.id).span;
        let stages = match fitting_stages(func, &place, &found, target, asked) {
            Fit::All => asked.wanted,
            Fit::Fewer(shortage) if !asked.asked => shortage.stages,
            Fit::Fewer(shortage) => return Err(too_many(func, span, target, asked.wanted, shortage)),
        };
        reasons.of_loads(place.id, &found, stages >= MIN_STAGES);
        if found.candidates.is_empty() || stages < MIN_STAGES {
            told.loops.push(LoopReport { span, what: why_not(&found, stages) });
            continue;
        }
        let room = Room::Programs(target, options.num_warps);
        let flight = emit::emit(func, axis, &place, &found, stages, room)?;
        reasons.of_products(place.id, flight);
        told.loops.push(LoopReport { span, what: describe(func, &found, stages, flight == Flown::InFlight) });
        changed = true;
    }
    (told.stays, told.waits) = reasons.told();
    if changed {
        dce::run(func);
    }
    Ok(told)
}

/// Loops that ask for stages in vain.
fn refused(func: &Func, loops: &[LoopNest]) -> Vec<LoopReport> {
    let mut reports = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        let asks = |stages: u8| u32::from(stages) >= MIN_STAGES && loops.iter().all(|place| place.id != id);
        if let Op::Control(ControlOp::For { stages, reverse, .. }) = operation.op
            && asks(stages)
        {
            let why = if reverse { "it runs backwards" } else { "there is a loop in it, which can be" };
            reports.push(LoopReport { span: operation.span, what: format!("not pipelined: {why}") });
        }
    });
    reports
}

/// A loop and the regions that it is in.
#[derive(Clone, Debug)]
struct LoopNest {
    id: OpId,
    parent: RegionId,
    /// From the outermost to the innermost.
    around: Vec<EnclosingRegion>,
}

/// The innermost loops that run forwards, in program order.
fn collect(func: &Func, region: RegionId, around: &mut Vec<EnclosingRegion>, loops: &mut Vec<LoopNest>) {
    for (id, operation) in func.region_ops(region) {
        let mut nested = false;
        for &inner in &operation.regions {
            walk_region(func, inner, &mut |id| nested |= is_loop(&func.op(id).op));
        }
        if matches!(operation.op, Op::Control(ControlOp::For { reverse: false, .. })) && !nested {
            loops.push(LoopNest { id, parent: region, around: around.clone() });
        } else if !matches!(operation.op, Op::Gpu(GpuOp::WarpGroups { .. })) {
            // Warp groups have their own way of overlapping copies with arithmetic.
            for (index, &inner) in operation.regions.iter().enumerate() {
                around.push(EnclosingRegion { owner: id, region: index });
                collect(func, inner, around, loops);
                around.pop();
            }
        }
    }
}

fn is_loop(op: &Op) -> bool {
    matches!(op, Op::Control(ControlOp::For { .. } | ControlOp::While) | Op::Gpu(GpuOp::WarpGroups { .. }))
}

/// How many stages a loop shall have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stages {
    wanted: u32,
    /// Whether the loop itself asks for them: then everything that it loads counts.
    by_loop: bool,
    /// Whether somebody asked for them, so that fewer will not do: more than the default is nobody's default.
    asked: bool,
    /// Whether the loop multiplies matrices.
    products: bool,
}

impl Stages {
    /// Why there is one stage.
    fn why_one(self) -> &'static str {
        match (self.by_loop, self.products) {
            (false, false) => "its loop multiplies no matrices and asks for no stages; `#[stages(3)]` would",
            (true, _) | (_, true) => "its loop has one stage, as it was asked for",
        }
    }
}

fn stages_of(func: &Func, id: OpId, options: &Options) -> Stages {
    let operation = func.op(id);
    let none = Stages { wanted: 1, by_loop: false, asked: false, products: false };
    let Op::Control(ControlOp::For { stages, .. }) = operation.op else { return none };
    if stages > 0 {
        return Stages { wanted: u32::from(stages), by_loop: true, asked: true, products: false };
    }
    let mut products = false;
    walk_region(func, operation.regions[0], &mut |id| {
        products |= func.op(id).op.multiplies();
    });
    let asked = options.num_stages > Options::default().num_stages;
    if products { Stages { wanted: options.num_stages, by_loop: false, asked, products } } else { none }
}

enum Fit {
    All,
    Fewer(Shortage),
}

/// Too little shared memory for the stages that a loop shall have.
#[derive(Clone, Copy)]
struct Shortage {
    /// The stages that fit.
    stages: u32,
    /// Bytes of those that it shall have.
    needed: u32,
    /// Bytes that there are.
    limit: u32,
}

/// How many stages fit the shared memory beside what the rest of the kernel allocates.
fn fitting_stages(func: &Func, place: &LoopNest, found: &Found, target: Target, asked: Stages) -> Fit {
    let per_stage: u32 = found.candidates.iter().map(|candidate| candidate.slot_bytes()).sum();
    if per_stage == 0 {
        return Fit::All;
    }
    // Barriers lie before everything that is swizzled.
    let mut others = if found.candidates.iter().any(Candidate::is_tensor) { SWIZZLE_ALIGNMENT } else { 0 };
    let (structure, uses) = (Structure::new(func), Uses::new(func));
    walk(func, &mut |id| {
        let operation = func.op(id);
        let goes = found.candidates.iter().any(|candidate| candidate.feeds.iter().any(|feed| feed.alloc == id));
        if matches!(operation.op, Op::Gpu(GpuOp::SharedAlloc { .. }))
            && !goes
            && lives_with(func, &structure, &uses, place, id)
        {
            others += view_bytes(func, operation.results[0]);
        }
    });
    others += scratch::block_bytes(func, place, found);
    let margin = if asked.asked { 0 } else { scratch::MARGIN };
    let own = scratch::scratch_bytes(func, place.id, margin);
    // What is done between the visits of a loop around is done beside the slots too.
    let outermost = place.around.iter().find(|site| carry::is_loop(func, **site)).map_or(place.id, |site| site.owner);
    others += own.max(scratch::scratch_bytes(func, outermost, 0));
    let limit = target.max_shared_bytes().saturating_sub(others);
    let needed = asked.wanted * per_stage;
    if needed <= limit {
        Fit::All
    } else {
        let (stages, needed) = (limit / per_stage, needed + others);
        Fit::Fewer(Shortage { stages, needed, limit: target.max_shared_bytes() })
    }
}

/// Whether an allocation is in the loop, or stands before its end and is used behind its beginning.
fn lives_with(func: &Func, structure: &Structure, uses: &Uses, place: &LoopNest, alloc: OpId) -> bool {
    let (own, around) = (structure.extent(alloc), structure.extent(place.id));
    let mut work = func.op(alloc).results.clone();
    let mut last = own.start;
    while let Some(view) = work.pop() {
        for &user in uses.of(view) {
            last = last.max(structure.extent(user).start);
            work.extend(func.op(user).results.iter().filter(|&&value| matches!(func.ty(value).elem, Elem::Shared(_))));
        }
    }
    around.contains(&own.start) || (own.start < around.start && last > around.start)
}

fn too_many(func: &Func, span: Span, target: Target, wanted: u32, shortage: Shortage) -> CodegenError {
    let Shortage { stages, needed, limit } = shortage;
    let what = format!("bytes of shared memory in a loop with {wanted} stages");
    let error = CodegenError::refuse(func, span, what).amounts(u64::from(needed), u64::from(limit));
    let fewer = match stages {
        0 => "a single stage does not fit: use smaller tiles".to_string(),
        stages => format!("{stages} stages fit (`#[stages({stages})]`, or `num_stages`); smaller tiles allow more"),
    };
    error.help(stored_blocks::help(func, target).map_or(fewer.clone(), |other| format!("{fewer}; {other}")))
}

fn why_not(found: &Found, stages: u32) -> String {
    let mut what = "not pipelined".to_string();
    if !found.candidates.is_empty() {
        what.push_str(&format!(": shared memory has room for {stages} stages"));
    } else if found.refused.is_empty() {
        what.push_str(": nothing that is loaded feeds a product");
    }
    for Refused { param, why, .. } in &found.refused {
        what.push_str(&format!("; `{param}`: {why}"));
    }
    what
}

fn describe(func: &Func, found: &Found, stages: u32, in_flight: bool) -> String {
    let names: Vec<String> = found.candidates.iter().map(|candidate| candidate.describe(func)).collect();
    let bytes: u32 = found.candidates.iter().map(|candidate| candidate.slot_bytes()).sum();
    let mut what = format!("pipelined with {stages} stages of {bytes} bytes: {}", names.join(", "));
    if in_flight {
        what.push_str("; products stay in flight");
    }
    for Refused { param, why, .. } in &found.refused {
        what.push_str(&format!("; not `{param}`: {why}"));
    }
    what
}

impl Candidate {
    fn describe(&self, func: &Func) -> String {
        let how = if self.is_tensor() { "tensor copy" } else { "cp.async" };
        format!("`{}` by {how}", find::param_name(func, self.source))
    }
}
