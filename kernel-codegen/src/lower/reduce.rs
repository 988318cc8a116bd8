//! Reductions: in each thread, then between the lanes of a warp, then between warps through shared memory.
//!
//! ```text
//! f32[4096], 8 warps:   15 combinations per thread, 5 butterfly shuffles, one store of 4 bytes per warp, one barrier,
//!                       two 16-byte loads, 7 combinations
//! f32[4096], 32 warps:  3 combinations per thread, 5 butterfly shuffles, one store of 4 bytes per warp, one barrier,
//!                       one 16-byte load, 3 combinations, 3 butterfly shuffles
//! ```
//!
//! Only bits that move along the axis take part, so copies are counted once, and afterwards every thread that holds
//! the result holds the same bits: a combination that is not known to be commutative gets its operands in the same
//! order in both lanes of an exchange.

use kernel_core::ir::{BinaryOp, Func, Operation, RegionId};
use kernel_core::layout::{ReductionPlan, SelectLevel, reduction};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::{Lower, Result};
use crate::analysis::exchange::{Threads, WarpExchange, combination, vote};

/// One value per operand of the reduction.
pub(super) type Tuple<'ctx> = Vec<Value<'ctx>>;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn reduce(&mut self, operation: &Operation, axis: u8) -> Result<()> {
        let Some(layout) = self.layout(operation.operands[0]) else { return Err(self.malformed(operation)) };
        let region = operation.regions[0];
        let plan = reduction(layout, axis).map_err(|error| self.layout_error(&error))?;
        let operands: Vec<_> = operation.operands.iter().map(|&v| self.registers(v)).collect();
        let tuple = |register: u32| operands.iter().map(|values| values[register as usize]).collect::<Tuple>();
        let commutative = is_commutative(self.func, region);
        let mut results = Vec::with_capacity(plan.in_thread.len());
        for group in &plan.in_thread {
            let mut members: Vec<Tuple> = group.iter().map(|&register| tuple(register)).collect();
            for turn in plan.turns.iter().filter(|_| !commutative) {
                members = self.exchange_members(&members, turn);
            }
            results.push(self.combine_all(region, members)?);
        }
        if let Some(op) = vote(self.func, operation).filter(|_| self.threads() != Threads::One) {
            return self.count_votes(operation, op, &results);
        }
        for step in &plan.lane_steps {
            for result in &mut results {
                *result = self.combine_lanes(region, result, step, commutative)?;
            }
        }
        if plan.crosses_warps() {
            results = self.combine_warps(operation, &plan, results)?;
        }
        let passes_on = self.exchanges.len() > 0;
        for (index, &value) in operation.results.iter().enumerate() {
            let mut registers: Vec<Value> = results.iter().map(|tuple| tuple[index]).collect();
            // Copies that other programs may have changed in between need not agree.
            if passes_on {
                registers = vec![self.broadcast_from_first(registers[0])];
            }
            self.set(value, registers);
        }
        Ok(())
    }

    /// Whether what the threads have found holds for any of them, or for all.
    fn count_votes(&mut self, operation: &Operation, op: BinaryOp, found: &[Tuple<'ctx>]) -> Result<()> {
        let [found] = found else { return Err(self.malformed(operation)) };
        if self.threads() != Threads::Program(1) {
            // Its place has no bytes: it says that all meet.
            self.take_scratch(0);
        }
        let found = self.ir.int(found[0]);
        let holds = if op == BinaryOp::And {
            let fails = self.any_thread(self.ir.not(found).into());
            self.ir.not(self.ir.int(fails)).into()
        } else {
            self.any_thread(found.into())
        };
        self.set(operation.results[0], vec![holds]);
        Ok(())
    }

    /// The members of a group in another order, in the threads that the exchange is for.
    fn exchange_members(&mut self, members: &[Tuple<'ctx>], turn: &SelectLevel) -> Vec<Tuple<'ctx>> {
        let turned = self.is_odd(turn.lanes, turn.warps);
        let other = |at: usize| &members[at ^ turn.xor as usize];
        members.iter().enumerate().map(|(at, own)| self.pick(turned, other(at), own)).collect()
    }

    /// Whether an odd number of the chosen bits of lane and warp are set.
    pub(super) fn is_odd(&self, lanes: u32, warps: u32) -> IntValue<'ctx> {
        let bits = |mask: u32| (0..u32::BITS).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0);
        let of_lane = bits(lanes).map(|bit| (self.ids.lane, bit));
        let set = of_lane.chain(bits(warps).map(|bit| (self.ids.warp, bit))).map(|(number, bit)| {
            let masked = self.ir.and(number, self.ir.i32(bit as i32));
            self.ir.icmp(IntPredicate::NE, masked, self.ir.i32(0))
        });
        set.reduce(|odd, set| self.ir.xor(odd, set)).unwrap_or_else(|| self.ir.bool(false))
    }

    /// One of two tuples.
    pub(super) fn pick(&self, condition: IntValue<'ctx>, yes: &Tuple<'ctx>, no: &Tuple<'ctx>) -> Tuple<'ctx> {
        yes.iter().zip(no).map(|(&yes, &no)| self.ir.select(condition, yes, no)).collect()
    }

    /// Combines values in order, as a tree.
    fn combine_all(&mut self, region: RegionId, mut values: Vec<Tuple<'ctx>>) -> Result<Tuple<'ctx>> {
        while values.len() > 1 {
            let mut next = Vec::with_capacity(values.len().div_ceil(2));
            for pair in values.chunks(2) {
                next.push(match pair {
                    [a, b] => self.combine(region, a, b)?,
                    rest => rest[0].clone(),
                });
            }
            values = next;
        }
        Ok(values.pop().unwrap_or_default())
    }

    /// Lowers the region that combines two values, here.
    pub(super) fn combine(&mut self, region: RegionId, a: &[Value<'ctx>], b: &[Value<'ctx>]) -> Result<Tuple<'ctx>> {
        let func = self.func;
        for (&arg, &value) in func.region(region).args.iter().zip(a.iter().chain(b)) {
            self.set(arg, vec![value]);
        }
        self.region(region)?;
        let yields = func.yielded(region);
        Ok(yields.iter().map(|&value| self.scalar(value)).collect())
    }

    /// Combines a value with that of lane `own ^ step.xor`, to the same result in both.
    fn combine_lanes(
        &mut self,
        region: RegionId,
        own: &Tuple<'ctx>,
        step: &SelectLevel,
        commutative: bool,
    ) -> Result<Tuple<'ctx>> {
        let which = self.ir.i32(step.xor as i32);
        let other: Tuple = own.iter().map(|&v| self.shuffle(Intrinsic::ShuffleButterfly, v, which)).collect();
        if commutative {
            return self.combine(region, own, &other);
        }
        let upper = self.is_odd(step.lanes, step.warps);
        let (first, second) = (self.pick(upper, &other, own), self.pick(upper, own, &other));
        self.combine(region, &first, &second)
    }

    /// Exchanges the partial results of the warps, and combines them in every thread.
    fn combine_warps(
        &mut self,
        operation: &Operation,
        plan: &ReductionPlan,
        results: Vec<Tuple<'ctx>>,
    ) -> Result<Vec<Tuple<'ctx>>> {
        let warps = plan.warp_bits.count_ones();
        let bits: Vec<u32> = operation.operands.iter().map(|&operand| self.shared_bits(operand)).collect();
        let WarpExchange { exchanges, bytes } =
            WarpExchange::new(plan, &bits).map_err(|error| self.layout_error(&error))?;
        let start = self.take_scratch(bytes);
        for (index, (offset, exchange)) in exchanges.iter().enumerate() {
            let registers: Vec<Value> = results.iter().map(|tuple| tuple[index]).collect();
            self.write_shared(start + offset, &exchange.store, &registers, 0);
        }
        self.barrier();
        let mut partials: Vec<Vec<Value>> = Vec::new();
        for (index, (offset, exchange)) in exchanges.iter().enumerate() {
            let ty = results.first().map_or(self.ir.int_type(32).into(), |tuple| tuple[index].get_type());
            let mut loaded = vec![ty.const_zero(); exchange.registers];
            self.read_shared(start + offset, &exchange.load, ty, &mut loaded, 0);
            partials.push(exchange.load.canonical.apply(&loaded));
        }
        let (count, region) = (results.len(), operation.regions[0]);
        let commutative = is_commutative(self.func, region);
        let lanes = exchanges.first().map_or(&[][..], |(_, exchange)| &exchange.lane_steps);
        let mut combined = Vec::with_capacity(count);
        for register in 0..count {
            let members = (0..1usize << (warps as usize - lanes.len()))
                .map(|warp| partials.iter().map(|values| values[register + warp * count]).collect())
                .collect();
            let mut result = self.combine_all(region, members)?;
            for step in lanes {
                result = self.combine_lanes(region, &result, step, commutative)?;
            }
            combined.push(result);
        }
        Ok(combined)
    }
}

/// Whether the region is one commutative operation per operand.
pub(super) fn is_commutative(func: &Func, region: RegionId) -> bool {
    (0..func.yielded(region).len()).all(|operand| {
        let Some(op) = combination(func, region, operand) else { return false };
        match op {
            BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNan
            | BinaryOp::MaxNan
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingMul => true,
            BinaryOp::Sub
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::DivRn
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::SaturatingSub
            | BinaryOp::CopySign
            | BinaryOp::NextAfter
            | BinaryOp::Math(_) => false,
        }
    })
}
