//! Numbers that address what a loop loads are themselves loaded an iteration ahead, into registers.
//!
//! ```text
//! before:  for i { %p = load (%table + i); %k = load (%keys + %p * ..); .. dot .., %k .. }
//! after:   %first = load (%table + lo), if there is an iteration
//!          for i, %p = %first {
//!            %next = load (%table + i + step), if there is another iteration
//!            %k = load (%keys + %p * ..); .. dot .., %k ..
//!            yield %next
//!          }
//! ```
//!
//! What addresses `%k` is then known when an iteration begins, as a counter is. So `software_pipeline` copies it any
//! number of iterations ahead (its slice loads the number for the iteration after the one that it copies), tensor
//! copies included, and a producer's warp (`warp_specialize`) waits for a slot while the next number is on its way.
//! Without the pass each copy would wait for the number, 300 to 800 cycles, or not be made ahead at all.
//!
//! # What is loaded ahead
//!
//! One level: a load whose own address comes from the loop's counter, carried values and what does not change, and that
//! addresses another load, which feeds a product (or any, where the loop asks for stages). The memory must stay as it is
//! while the loop runs, by the rule for everything that is fetched ahead ([`Memory::check`]), and a thread must not hold
//! more than [`MOST_WORDS`] of them. Iterations that do not exist load nothing.
//!
//! What feeds a product but is too narrow for `cp.async`, as a scale of 16 bits for each column is, comes the same way, and so
//! does what is computed with its result, as a scale for each row is, if a thread has [`MOST_BESIDE`] registers of it at most:
//! `software_pipeline` asks for that in loops that it pipelines ([`in_registers`]). Their latency is then that of an iteration.

use std::collections::{BTreeSet, HashMap};

use kernel_core::edit::{Cursor, Place, Result, Uses, clone_op, replace_all_uses, splice};
use kernel_core::ir::known::constant;
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, Def, DescOp, Func, Literal, MemoryOp, Op, OpId, RegionId, ValueId,
};
use kernel_core::layout::LayoutDim;
use kernel_core::passes::dce;

use super::build::restrict;
use super::find::{self, Found, Memory};
use super::{LoopNest, MIN_STAGES, collect, stages_of};
use crate::error::CodegenError;
use kernel_core::backend::nvidia::Options;
use kernel_core::target::Target;

/// The most registers of a thread that numbers are carried in: those of the rows that it copies, of which there are up to
/// 16 where a tile of 64 rows is copied by four warps, 16 bytes at a time.
const MOST_WORDS: u32 = 16;

/// The most registers of a thread that a loop with products carries what it computes with their results in: products leave few,
/// and as many hold those of the next iteration.
const MOST_BESIDE: u32 = 8;

/// Runs the pass.
///
/// # Errors
/// If it makes a mistake.
pub(crate) fn run(func: &mut Func, target: Target, options: &Options) -> std::result::Result<(), CodegenError> {
    if !target.has_async_copies() {
        return Ok(());
    }
    let mut loops = Vec::new();
    collect(func, func.body, &mut Vec::new(), &mut loops);
    let mut changed = false;
    for place in loops {
        let stages = stages_of(func, place.id, options);
        if stages.wanted < MIN_STAGES {
            continue;
        }
        let numbers = Numbers::of(func, place.id, stages.by_loop);
        if !numbers.loads.is_empty() {
            Ahead { func, place: &place, numbers: &numbers, out: Vec::new() }.run()?;
            changed = true;
        }
    }
    if changed {
        dce::run(func);
    }
    Ok(())
}

/// Loads into registers what a pipeline of a loop needs and cannot copy ahead of time, because threads take too little of it
/// at once, and the little that is computed with the results of its products; returns those loads.
///
/// # Errors
/// If it makes a mistake.
pub(super) fn in_registers(func: &mut Func, place: &LoopNest, found: &Found) -> Result<BTreeSet<OpId>> {
    // Of bytes, each takes a register and has to be taken out of it: 8 % more instructions in a product whose scales they are.
    let bytes = |id: OpId| func.ty(func.op(id).results[0]).dtype().is_some_and(|dtype| dtype.bytes() == 1);
    let narrow = found.refused.iter().filter(|refused| refused.why == find::TOO_NARROW && !bytes(refused.op));
    let narrow: Vec<OpId> = narrow.map(|refused| refused.op).collect();
    let numbers = Numbers::among(func, place.id, narrow.into_iter().chain(beside(func, place.id, found)));
    if !numbers.loads.is_empty() {
        Ahead { func, place, numbers: &numbers, out: Vec::new() }.run()?;
    }
    Ok(numbers.loads)
}

/// Loads of a loop for what is computed with the results of its products that can be made an iteration ahead and are not copied
/// ahead, if all of them have room in registers.
fn beside(func: &Func, id: OpId, found: &Found) -> Vec<OpId> {
    let body = func.op(id).regions[0];
    if !func.region_ops(body).any(|(_, operation)| operation.op.multiplies()) {
        return Vec::new();
    }
    let search = Search::new(func, body);
    let (factors, uses) = (find::factors(func, body), Uses::within(func, body));
    let is_copied = |load: OpId| found.candidates.iter().any(|candidate| candidate.op == load);
    let is_used = |user: &OpId| func.op(*user).op != Op::Control(ControlOp::Yield);
    let mut words = 0;
    let mut loads = Vec::new();
    for &load in &func.region(body).ops {
        let operation = func.op(load);
        let Op::Memory(MemoryOp::Load { .. }) = operation.op else { continue };
        let result = operation.results[0];
        let may_be = !factors.contains(&result) && !is_copied(load) && uses.of(result).iter().any(is_used);
        if may_be && search.number(load).is_some() {
            words += words_of(func, result);
            loads.push(load);
        }
    }
    if words <= MOST_BESIDE { loads } else { Vec::new() }
}

/// The registers of a thread that hold a value.
fn words_of(func: &Func, value: ValueId) -> u32 {
    let registers = func.layout(value).map_or(1, |layout| layout.in_size(LayoutDim::Register));
    registers * func.ty(value).dtype().map_or(1, |dtype| dtype.bytes().div_ceil(4))
}

/// What is loaded ahead in a loop, and what has to be computed for it.
#[derive(Default)]
struct Numbers {
    loads: BTreeSet<OpId>,
    /// Operations of the body that addresses and masks of these loads come from.
    slice: BTreeSet<OpId>,
    /// Positions of carried values among that.
    carried: BTreeSet<usize>,
    /// Operations of the body that the next of these carried values come from.
    next: BTreeSet<OpId>,
}

impl Numbers {
    fn of(func: &Func, id: OpId, asked: bool) -> Numbers {
        let body = func.op(id).regions[0];
        let search = Search::new(func, body);
        let factors = find::factors(func, body);
        let mut addressing = BTreeSet::new();
        for &load in &func.region(body).ops {
            let operation = func.op(load);
            let counts = operation.results.first().is_some_and(|result| asked || factors.contains(result));
            if !counts || !find::is_load(func, load) || search.memory.check(func, operation.operands[0]).is_err() {
                continue;
            }
            let addresses = match operation.op {
                Op::Desc(DescOp::DescLoad) => &operation.operands[1..],
                _ => &operation.operands[..],
            };
            let Some(origin) = search.origin(addresses, Loads::Collect) else { continue };
            if origin.loads.iter().all(|&number| search.number(number).is_some()) {
                addressing.extend(origin.loads);
            }
        }
        Numbers::among(func, id, addressing)
    }

    /// Those of some loads of a loop that can be made an iteration ahead.
    fn among(func: &Func, id: OpId, loads: impl IntoIterator<Item = OpId>) -> Numbers {
        let body = func.op(id).regions[0];
        let search = Search::new(func, body);
        let mut numbers = Numbers::default();
        for load in loads {
            let Some(origin) = search.number(load) else { continue };
            numbers.loads.insert(load);
            numbers.slice.extend(origin.ops);
            numbers.carried.extend(origin.carried);
        }
        let yields = func.yielded(body);
        let carried: Vec<ValueId> =
            numbers.carried.iter().filter_map(|&position| yields.get(position)).copied().collect();
        // Each of them has been looked at.
        numbers.next = search.origin(&carried, Loads::Refuse).map(|origin| origin.ops).unwrap_or_default();
        numbers
    }
}

/// What becomes of loads that something is computed from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loads {
    Collect,
    Refuse,
}

/// What values of a body are computed from, in the same iteration.
#[derive(Default)]
struct Origin {
    ops: BTreeSet<OpId>,
    carried: BTreeSet<usize>,
    loads: BTreeSet<OpId>,
}

struct Search<'f> {
    func: &'f Func,
    body: RegionId,
    own: BTreeSet<OpId>,
    memory: Memory,
}

impl<'f> Search<'f> {
    fn new(func: &'f Func, body: RegionId) -> Self {
        Search { func, body, own: func.region(body).ops.iter().copied().collect(), memory: Memory::of(func, body) }
    }

    /// What values are computed from, if that can be done again elsewhere.
    fn origin(&self, values: &[ValueId], loads: Loads) -> Option<Origin> {
        let mut origin = Origin::default();
        let mut work = values.to_vec();
        while let Some(value) = work.pop() {
            match self.func.value(value).def {
                Def::Arg(region, index) if region == self.body && index > 0 => {
                    origin.carried.insert(index as usize - 1);
                }
                Def::Result(op, _) if self.own.contains(&op) => {
                    let operation = self.func.op(op);
                    if matches!(operation.op, Op::Memory(MemoryOp::Load { .. })) {
                        if loads == Loads::Refuse {
                            return None;
                        }
                        origin.loads.insert(op);
                    } else if !find::is_cheap(&operation.op) {
                        return None;
                    } else if origin.ops.insert(op) {
                        work.extend(&operation.operands);
                    }
                }
                Def::Param(_) | Def::Arg(..) | Def::Result(..) => {}
            }
        }
        Some(origin)
    }

    /// What the addresses of a number come from, and of all that they are computed from in the iteration before; nothing
    /// if it cannot be loaded then.
    fn number(&self, id: OpId) -> Option<Origin> {
        let operation = self.func.op(id);
        let result = *operation.results.first()?;
        if words_of(self.func, result) > MOST_WORDS || !self.memory.keeps(self.func, operation) {
            return None;
        }
        let mut origin = self.origin(&operation.operands, Loads::Refuse)?;
        let mut work: Vec<usize> = origin.carried.iter().copied().collect();
        while let Some(position) = work.pop() {
            let next = *self.func.yielded(self.body).get(position)?;
            let more = self.origin(&[next], Loads::Refuse)?.carried;
            work.extend(more.into_iter().filter(|&position| origin.carried.insert(position)));
        }
        Some(origin)
    }
}

/// The iteration for which numbers are loaded, as the values of the loop's counter and of what it carries.
struct Iteration {
    exists: ValueId,
    map: HashMap<ValueId, ValueId>,
}

struct Ahead<'f> {
    func: &'f mut Func,
    place: &'f LoopNest,
    numbers: &'f Numbers,
    out: Vec<OpId>,
}

impl Ahead<'_> {
    fn run(mut self) -> Result<()> {
        let id = self.place.id;
        let body = self.func.op(id).regions[0];
        let ops = self.func.region(body).ops.clone();
        let first = self.first(body)?;
        let inits = self.load(&ops, first)?;
        let before = std::mem::take(&mut self.out);
        let next = self.next(body, &ops)?;
        let nexts = self.load(&ops, next)?;
        let ahead = std::mem::take(&mut self.out);
        let Some(&end) = ops.last() else { return Ok(()) };
        let mut gone: BTreeSet<OpId> = self.numbers.loads.clone();
        for ((&load, init), next) in self.numbers.loads.iter().zip(inits).zip(nexts) {
            let old = self.func.op(load).results[0];
            let arg = self.carry(id, body, end, init, next);
            replace_all_uses(self.func, old, arg);
        }
        self.drop_unused(body, &ops, &mut gone);
        self.func.regions[body.index()].ops.retain(|op| !gone.contains(op));
        splice(self.func, Place::Start(body), ahead);
        splice(self.func, Place::Before(self.place.parent, id), before);
        Ok(())
    }

    fn cursor(&mut self) -> Cursor<'_> {
        let span = self.func.op(self.place.id).span;
        Cursor::new(&mut *self.func, &mut self.out, "indirection").at(span)
    }

    /// The first iteration, ahead of the loop.
    fn first(&mut self, body: RegionId) -> Result<Iteration> {
        let operands = self.func.op(self.place.id).operands.clone();
        let (lo, hi, step) = (operands[0], operands[1], operands[2]);
        let mut exists = self.cursor().compare(CmpOp::Lt, lo, hi)?;
        if !matches!(constant(self.func, step), Some(Literal::Int(1..))) {
            let dtype = self.func.ty(step).dtype().unwrap_or(DType::I32);
            let mut cursor = self.cursor();
            let zero = cursor.constant(Literal::Int(0), dtype)?;
            let forward = cursor.compare(CmpOp::Gt, step, zero)?;
            exists = cursor.binary(BinaryOp::And, exists, forward)?;
        }
        let args = &self.func.region(body).args;
        let map = args.iter().copied().zip([lo].into_iter().chain(operands[3..].iter().copied())).collect();
        Ok(Iteration { exists, map })
    }

    /// The iteration after the one that the body is in: it exists if the counter can take another step and stay below the
    /// end. In an iteration the counter is below the end, so that their distance is exact as an unsigned number.
    fn next(&mut self, body: RegionId, ops: &[OpId]) -> Result<Iteration> {
        let operands = self.func.op(self.place.id).operands.clone();
        let (hi, step) = (operands[1], operands[2]);
        let args = self.func.region(body).args.clone();
        let unsigned = self.func.ty(step).dtype().map_or(DType::U32, unsigned);
        let mut cursor = self.cursor();
        let left = cursor.binary(BinaryOp::Sub, hi, args[0])?;
        let left = cursor.bitcast(left, unsigned)?;
        let distance = cursor.bitcast(step, unsigned)?;
        let exists = cursor.compare(CmpOp::Gt, left, distance)?;
        let counter = cursor.binary(BinaryOp::Add, args[0], step)?;
        let mut now = HashMap::new();
        for &op in ops.iter().filter(|op| self.numbers.next.contains(op)) {
            let copy = clone_op(self.func, op, &mut now);
            self.out.push(copy);
        }
        let yields = self.func.yielded(body);
        let carried = self.numbers.carried.iter().map(|&position| {
            let next = yields[position];
            (args[1 + position], now.get(&next).copied().unwrap_or(next))
        });
        let map = carried.chain([(args[0], counter)]).collect();
        Ok(Iteration { exists, map })
    }

    /// Loads the numbers of an iteration.
    fn load(&mut self, ops: &[OpId], iteration: Iteration) -> Result<Vec<ValueId>> {
        let Iteration { exists, mut map } = iteration;
        for &op in ops.iter().filter(|op| self.numbers.slice.contains(op) || self.numbers.loads.contains(op)) {
            let copy = clone_op(self.func, op, &mut map);
            restrict(&mut self.cursor(), copy, exists)?;
            self.out.push(copy);
        }
        Ok(self.numbers.loads.iter().map(|&load| map[&self.func.op(load).results[0]]).collect())
    }

    /// Makes the loop carry a value; returns what the body sees.
    fn carry(&mut self, id: OpId, body: RegionId, end: OpId, init: ValueId, next: ValueId) -> ValueId {
        let (ty, layout) = (self.func.ty(init).clone(), self.func.value(init).layout);
        let index = self.func.op(id).results.len() as u32;
        let arg = self.func.add_region_arg(body, ty.clone());
        let result = self.func.new_value(ty, Def::Result(id, index));
        for value in [arg, result] {
            self.func.values[value.index()].layout = layout;
        }
        let operation = &mut self.func.ops[id.index()];
        operation.operands.push(init);
        operation.results.push(result);
        self.func.ops[end.index()].operands.push(next);
        arg
    }

    /// What led to nothing but the loads goes with them: checks of bounds are made once for each iteration.
    fn drop_unused(&self, body: RegionId, ops: &[OpId], gone: &mut BTreeSet<OpId>) {
        let uses = Uses::within(self.func, body);
        for &op in ops.iter().rev().filter(|op| self.numbers.slice.contains(op)) {
            let unused = |value: &ValueId| uses.of(*value).iter().all(|user| gone.contains(user));
            if self.func.op(op).results.iter().all(unused) {
                gone.insert(op);
            }
        }
    }
}

/// The unsigned dtype of a counter's width.
fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::U8 => DType::U8,
        DType::I16 | DType::U16 => DType::U16,
        DType::I64 | DType::U64 => DType::U64,
        _ => DType::U32,
    }
}
