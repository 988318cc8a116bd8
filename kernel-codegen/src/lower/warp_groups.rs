//! Warp groups: warps that run different code at the same time.
//!
//! ```text
//! warp_groups {warps = [8, 4], roles = [consumer, producer], registers = [232, 40]} { consumers } with { producer }
//! ```
//!
//! Consumers have the warps that layouts speak of: tiles live there. A producer computes with scalars, waits at
//! barriers with phases and asks for tensor copies; one thread does that, because a thread that falls behind may miss
//! a phase of a barrier that nobody keeps for it.
//!
//! - The number of a warp is read from its first lane, which tells ptxas that all lanes go the same way.
//! - All warps of a group say how many registers they need (`setmaxnreg`), before any of them does anything. ptxas
//!   honours that only if it knows the size of the block and how many of them a multiprocessor runs.
//! - Threads of a group meet at a barrier with a number of their own. Each half of a group that takes turns has one more, at
//!   which it waits for its turn; the other half arrives there when it has had its own, and goes on.
//! - Outside of the groups all warps run the same, which may only be scalars, allocations, and assertions about
//!   scalars, which end all threads together.

use kernel_core::edit::walk_region;
use kernel_core::ir::{ControlOp, Elem, Func, GpuOp, Op, OpId, Operation, RegionId, Span, ValueId};
use kernel_core::layout::{LayoutDim, LinearForm, WARP_SIZE};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::{Lower, Result};
use crate::analysis::warp_groups::{Group, REGISTER_UNIT, groups_of, registers_at_start, warp_groups_of};
use crate::error::CodegenError;
use kernel_core::target::GROUP_WARPS;

/// The numbers of registers that a group may ask for.
const MIN_REGISTERS: u32 = 24;
/// Barriers of threads that a block has; number 0 is that of all threads.
const BARRIERS: u32 = 16;

/// How many arrivals a barrier gets for each that the kernel speaks of.
///
/// # Errors
/// If groups of different sizes arrive at it.
pub(super) fn arrivals(func: &Func, alloc: OpId) -> Result<u32> {
    let barrier = func.op(alloc).results[0];
    let Some(operation) = warp_groups_of(func) else { return Ok(1) };
    let mut found: Option<u32> = None;
    let mut differ = None;
    for (group, region) in groups_of(operation) {
        walk_region(func, region, &mut |id| {
            let arrival = func.op(id);
            if arrival.op == Op::Gpu(GpuOp::MbarrierArrive) && arrival.operands[0] == barrier {
                let count = if arrival.operands.len() > 2 { 1 } else { group.arrivals() };
                if *found.get_or_insert(count) != count {
                    differ = Some(arrival.span);
                }
            }
        });
    }
    match differ {
        Some(span) => Err(CodegenError::refuse(func, span, "a barrier that warp groups of different sizes arrive at")),
        None => Ok(found.unwrap_or(1)),
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn warp_groups(&mut self, operation: &Operation) -> Result<()> {
        let Op::Gpu(GpuOp::WarpGroups { registers, .. }) = &operation.op else {
            return Err(self.malformed(operation));
        };
        let groups = groups_of(operation);
        self.check_groups(operation, &groups, registers)?;
        let at_start = self.registers_at_start();
        let ir = &self.ir;
        let own = ir.lshr(self.ids.thread, ir.i32(WARP_SIZE.ilog2() as i32));
        let warp = self.shuffle(Intrinsic::ShuffleIndex, own.into(), self.ir.i32(0));
        let warp = self.ir.int(warp);
        let end = self.block("groups.end");
        for ((group, region), &registers) in groups.iter().zip(registers) {
            let is_last = Some(group) == groups.last().map(|(group, _)| group);
            if !is_last {
                let (own, others) = (self.block("group"), self.block("groups.other"));
                let limit = self.ir.i32((group.first_warp + group.warps) as i32);
                let is_own = self.ir.icmp(IntPredicate::ULT, warp, limit);
                self.ir.branch_if(is_own, own, others);
                self.ir.builder.position_at_end(own);
                self.group(*group, *region, u32::from(registers), at_start)?;
                self.ir.branch(end);
                self.ir.builder.position_at_end(others);
            } else {
                self.group(*group, *region, u32::from(registers), at_start)?;
                self.ir.branch(end);
            }
        }
        self.ir.builder.position_at_end(end);
        Ok(())
    }

    /// Registers of each thread when a program starts.
    pub(super) fn registers_at_start(&self) -> u32 {
        registers_at_start(self.target, self.block_warps, self.func.programs.unwrap_or(1))
    }

    /// One group's code.
    fn group(&mut self, group: Group, region: RegionId, registers: u32, at_start: u32) -> Result<()> {
        if registers > 0 {
            let way = if registers > at_start { "inc" } else { "dec" };
            let assembly = format!("setmaxnreg.{way}.sync.aligned.u32 {registers};");
            self.ir.asm(&[], &assembly, "", &[], AsmEffects::ConvergentMemory);
        }
        let outer = self.group.replace(group);
        if group.single {
            let (own, done) = (self.block("group.thread"), self.block("group.end"));
            let first = self.ir.i32((group.first_warp * WARP_SIZE) as i32);
            let is_first = self.ir.icmp(IntPredicate::EQ, self.ids.thread, first);
            self.ir.branch_if(is_first, own, done);
            self.ir.builder.position_at_end(own);
            self.region(region)?;
            self.ir.branch(done);
            self.ir.builder.position_at_end(done);
        } else {
            self.give_first_turn(group, region);
            self.region(region)?;
        }
        self.group = outer;
        Ok(())
    }

    /// The threads of the group meet.
    pub(super) fn named_barrier(&mut self, group: Group) {
        if group.single {
            return;
        }
        let arguments = [self.ir.i32(group.barrier as i32).into(), self.ir.i32(group.threads() as i32).into()];
        self.ir.call(Intrinsic::NamedBarrier, &[], &arguments);
    }

    /// The threads of each four warps meet at the barrier of their own turn, or arrive at that of the others'. These have
    /// the numbers behind those of each four warps.
    pub(super) fn warp_turn(&mut self, operation: &Operation, how: Intrinsic, others: i32) -> Result<()> {
        let Some(group) = self.group.filter(|group| takes_turns(*group)) else {
            return Err(self.malformed(operation));
        };
        let number = self.four_warps(group.warps);
        self.meet_for_turn(how, self.ir.xor(number, self.ir.i32(others)), group);
        Ok(())
    }

    /// Four warps and those who let them have their turn meet at its barrier.
    fn meet_for_turn(&mut self, how: Intrinsic, number: IntValue<'ctx>, group: Group) {
        let first = self.group_barriers() + group.warps / GROUP_WARPS;
        let barrier = self.ir.add(number, self.ir.i32(first as i32));
        let both = 2 * GROUP_WARPS * WARP_SIZE;
        self.ir.call(how, &[], &[barrier.into(), self.ir.i32(both as i32).into()]);
    }

    /// Lets the first four warps of a group that takes turns have the first one: the others say so.
    fn give_first_turn(&mut self, group: Group, region: RegionId) {
        let mut turns = false;
        walk_region(self.func, region, &mut |id| turns |= self.func.op(id).op == Op::Gpu(GpuOp::TurnBegin));
        if !turns || !takes_turns(group) {
            return;
        }
        let (second, go_on) = (self.block("group.second"), self.block("group.turns"));
        let number = self.four_warps(group.warps);
        let is_second = self.ir.icmp(IntPredicate::NE, number, self.ir.i32(0));
        self.ir.branch_if(is_second, second, go_on);
        self.ir.builder.position_at_end(second);
        self.meet_for_turn(Intrinsic::NamedArrival, self.ir.i32(0), group);
        self.ir.branch(go_on);
        self.ir.builder.position_at_end(go_on);
    }

    /// The number of the four warps that a warp is one of, within its group.
    fn four_warps(&mut self, warps: u32) -> IntValue<'ctx> {
        let number = (0..(warps / GROUP_WARPS).ilog2()).map(|bit| 1 << bit);
        let number = std::iter::repeat_n(0, GROUP_WARPS.ilog2() as usize).chain(number).collect();
        self.uniform_form(&LinearForm { bases: vec![(LayoutDim::Warp, number)] })
    }

    /// The first number of a barrier of four warps.
    fn group_barriers(&self) -> u32 {
        1 + warp_groups_of(self.func).map_or(0, |operation| groups_of(operation).len() as u32)
    }

    /// The threads of each four warps meet: at barriers with numbers behind those of the groups that run different
    /// code.
    pub(super) fn warpgroup_barrier(&mut self) {
        let warps = self.group.map_or(self.num_warps, |group| group.warps);
        if warps <= GROUP_WARPS || self.group.is_some_and(|group| group.single) {
            return self.barrier();
        }
        let number = self.four_warps(warps);
        let barrier = self.ir.add(number, self.ir.i32(self.group_barriers() as i32));
        let arguments = [barrier.into(), self.ir.i32((GROUP_WARPS * WARP_SIZE) as i32).into()];
        self.ir.call(Intrinsic::NamedBarrier, &[], &arguments);
    }

    /// The thread that arrives at barriers with phases for its four warps.
    pub(super) fn arriving_thread(&mut self) -> IntValue<'ctx> {
        match self.group {
            Some(group) if !group.single && group.warps > GROUP_WARPS => {
                let mask = self.ir.i32((GROUP_WARPS * WARP_SIZE - 1) as i32);
                let place = self.ir.and(self.ids.thread, mask);
                self.ir.icmp(IntPredicate::EQ, place, self.ir.i32(0))
            }
            Some(_) | None => self.first_thread(),
        }
    }

    fn check_groups(&self, operation: &Operation, groups: &[(Group, RegionId)], registers: &[u8]) -> Result<()> {
        let refuse = |span: Span, what: &str| Err(CodegenError::refuse(self.func, span, what));
        if warp_groups_of(self.func) != Some(operation) {
            return refuse(operation.span, "warp groups inside of control flow");
        }
        let others = groups.iter().any(|(group, _)| !group.single && group.warps != self.num_warps);
        if others || groups.len() as u32 >= BARRIERS {
            return refuse(operation.span, "warp groups with tiles that have other warps than the layouts");
        }
        let changes = registers.iter().any(|&count| count > 0);
        for ((group, _), &count) in groups.iter().zip(registers) {
            let count = u32::from(count);
            let fits = count >= MIN_REGISTERS && count.is_multiple_of(REGISTER_UNIT);
            if changes && (!fits || !group.warps.is_multiple_of(GROUP_WARPS)) {
                return refuse(operation.span, "a number of registers that no group of four warps can have");
            }
        }
        let wanted =
            groups.iter().zip(registers).map(|((group, _), &count)| group.warps * u32::from(count)).sum::<u32>();
        let has = self.registers_at_start() * self.block_warps;
        if wanted > has {
            let error = CodegenError::refuse(self.func, operation.span, "registers in warp groups");
            return Err(error.amounts(u64::from(wanted * WARP_SIZE), u64::from(has * WARP_SIZE)));
        }
        for &id in &self.func.region(self.func.body).ops {
            let other = self.func.op(id);
            if !runs_anywhere(self.func, other) && other != operation {
                return refuse(
                    other.span,
                    "an operation beside warp groups that is no scalar, no allocation and no assertion about scalars",
                );
            }
        }
        for (group, region) in groups {
            self.check_group(*group, *region)?;
        }
        Ok(())
    }

    fn check_group(&self, group: Group, region: RegionId) -> Result<()> {
        let mut wrong = None;
        walk_region(self.func, region, &mut |id| {
            let operation = self.func.op(id);
            let is_assertion = matches!(operation.op, Op::Control(ControlOp::Assert { .. }));
            let prints = matches!(operation.op, Op::Control(ControlOp::Print { .. }));
            let what = if is_assertion {
                "an assertion in a warp group, which the others would wait for"
            } else if prints {
                "a print in a warp group"
            } else {
                "tiles, or barriers of threads, in a warp group that one thread runs"
            };
            if is_assertion || prints || (group.single && !is_for_one_thread(self.func, operation)) {
                wrong.get_or_insert((operation.span, what));
            }
        });
        match wrong {
            Some((span, what)) => Err(CodegenError::refuse(self.func, span, what)),
            None => Ok(()),
        }
    }
}

/// Whether a group is twice four warps, which can take turns.
fn takes_turns(group: Group) -> bool {
    !group.single && group.warps == 2 * GROUP_WARPS
}

/// Whether all warps of a block may run an operation, whatever group they are in.
fn runs_anywhere(func: &Func, operation: &Operation) -> bool {
    let scalar = |value: &ValueId| func.ty(*value).is_scalar();
    let op = &operation.op;
    let computes = op.is_local() || op.applies() && op.does().is_empty();
    if computes || matches!(op, Op::Control(ControlOp::Assert { .. })) {
        return operation.operands.iter().chain(&operation.results).all(scalar);
    }
    let prepares = |op: &GpuOp| {
        matches!(
            op,
            GpuOp::SharedAlloc { .. }
                | GpuOp::MbarrierAlloc { .. }
                | GpuOp::Fence { .. }
                | GpuOp::Barrier
                | GpuOp::Delay { .. }
                | GpuOp::LaunchDependents
                | GpuOp::GridWait
        )
    };
    *op == Op::Control(ControlOp::Return) || matches!(op, Op::Gpu(op) if prepares(op))
}

/// Whether one thread can run an operation without others.
fn is_for_one_thread(func: &Func, operation: &Operation) -> bool {
    let is_tile = |value: &ValueId| {
        let ty = func.ty(*value);
        !ty.is_scalar() && matches!(ty.elem, Elem::Data(_) | Elem::Ptr(_))
    };
    !operation.op.is_together() && !operation.operands.iter().chain(&operation.results).any(is_tile)
}
