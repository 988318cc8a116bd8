//! Control flow: structured regions become blocks, carried values phis, one per register.
//!
//! All threads of a program take the same way, so barriers may stand anywhere.

use kernel_core::ir::{ControlOp, Cost, GpuOp, MemoryOp, Op, Operation, RegionId, Unroll, ValueId, view};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::basic_block::BasicBlock;
use kernel_llvm::inkwell::values::{IntValue, PhiValue};
use kernel_llvm::{AsmEffects, LoopHint, set_loop_hint};

use super::accumulators::Unfilled;
use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::wgmma::is_overwritten;
use super::{Lower, Result};
use crate::analysis::exchange::meetings;
use crate::error::CodegenError;

/// The most registers that the loads of joined iterations and what the loop carries may fill: of the 64 that a thread
/// has where 1024 share a multiprocessor ([`crate::occupancy`]), as addresses and what is being computed take the
/// rest. With more, ptxas lets loads wait for registers, one for the other.
const IN_FLIGHT: usize = 40;

/// Two elements of 16 bits in a register.
const PAIR: Words = Words { bits: 32, count: 1 };

/// The phis of one carried value.
type Phis<'ctx> = Vec<PhiValue<'ctx>>;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn control(&mut self, operation: &Operation, op: &ControlOp) -> Result<()> {
        match op {
            ControlOp::For { reverse, unroll, runs, .. } => self.for_loop(operation, *reverse, *unroll, *runs),
            ControlOp::While => self.while_loop(operation),
            ControlOp::If => self.condition(operation),
            ControlOp::Reduce { axis } => self.reduce(operation, *axis),
            ControlOp::Scan { axis, reverse } => self.scan(operation, *axis, *reverse),
            ControlOp::Map { ptx } => self.map_elements(operation, ptx.as_ref()),
            ControlOp::Assert { message } => self.assert(operation, message),
            ControlOp::Print { text } => self.print(operation, text),
            // Whoever lowers a region reads what it yields.
            ControlOp::Yield => Ok(()),
            ControlOp::Return => {
                self.ir.branch(self.blocks.exit);
                Ok(())
            }
            ControlOp::StaticAssert { .. } => {
                Err(CodegenError::refuse(self.func, operation.span, "`static_assert` after binding"))
            }
        }
    }

    pub(super) fn block(&self, name: &str) -> BasicBlock<'ctx> {
        self.ir.context.append_basic_block(self.blocks.function, name)
    }

    /// The block in which instructions are being emitted.
    pub(super) fn here(&self) -> BasicBlock<'ctx> {
        self.ir.builder.get_insert_block().unwrap_or(self.blocks.start)
    }

    /// Phis for a value like `like`, at the start of the present block; none for what lives in a bank.
    fn phis(&self, like: ValueId) -> Phis<'ctx> {
        let ty = self.element_type(like);
        match self.products.banks.bank(like) {
            Some(_) => Phis::new(),
            None => (0..self.register_count(like)).filter_map(|_| self.ir.phi(ty)).collect(),
        }
    }

    /// The same for what a loop carries, in words of two elements where `in_words` says so.
    fn carried_phis(&self, like: ValueId, in_words: bool) -> Phis<'ctx> {
        if !in_words {
            return self.phis(like);
        }
        let word = self.ir.int_type(PAIR.bits).into();
        (0..self.register_count(like) / 2).filter_map(|_| self.ir.phi(word)).collect()
    }

    /// Whether a loop carries a tile in words: a left factor of asynchronous products, which read words. LLVM would
    /// carry its elements, and take apart and join in each iteration what conversions make by twos. Not where the next one
    /// is made while a product that reads this one is in flight: ptxas makes it in the registers that the product still
    /// reads, and serialises all (C7513).
    fn is_carried_in_words(&self, body: RegionId, arg: ValueId) -> bool {
        let func = self.func;
        let reads = |operation: &Operation| view::Wgmma::of(operation).is_some_and(|product| product.a == arg);
        let ends = |operation: &Operation| matches!(operation.op, Op::Gpu(GpuOp::WgmmaWait { pending: 0 }));
        let Some(at) = func.region(body).args[1..].iter().position(|&carried| carried == arg) else { return false };
        let next = func.yielded(body)[at];
        let ops: Vec<&Operation> = func.region_ops(body).map(|(_, operation)| operation).collect();
        let made_behind = |read: usize| {
            let wait = ops[read..].iter().position(|operation| ends(operation)).map(|wait| read + wait);
            wait.is_some_and(|wait| ops[wait..].iter().any(|operation| operation.results.contains(&next)))
        };
        self.layout(arg).is_some()
            && memory_bits(self.dtype(arg)) == PAIR.bits / 2
            && self.register_count(arg).is_multiple_of(2)
            && ops.iter().rposition(|operation| reads(operation)).is_some_and(made_behind)
    }

    /// The registers of a carried value, in words where `in_words` says so.
    fn carried_registers(&self, registers: Vec<Value<'ctx>>, in_words: bool) -> Vec<Value<'ctx>> {
        match in_words {
            true => registers.chunks(2).flat_map(|pair| self.ir.pack(pair, PAIR)).map(Value::from).collect(),
            false => registers,
        }
    }

    /// Makes values of what a loop carries.
    fn set_carried(&mut self, values: &[ValueId], all: &[Phis<'ctx>], in_words: &[bool]) {
        for ((&value, phis), &in_words) in values.iter().zip(all).zip(in_words) {
            if !in_words {
                self.set_all(&[value], std::slice::from_ref(phis));
                continue;
            }
            let (ty, bits) = (self.element_type(value), memory_bits(self.dtype(value)));
            let words = phis.iter().map(|phi| phi.as_basic_value());
            let elements = words.flat_map(|word| self.ir.unpack(&[word], PAIR, ty, bits)).collect();
            self.set(value, elements);
        }
    }

    fn incoming(&self, phis: &Phis<'ctx>, value: ValueId, from: BasicBlock<'ctx>) {
        if phis.is_empty() {
            return;
        }
        for (phi, register) in phis.iter().zip(self.registers(value).iter()) {
            phi.add_incoming(&[(register, from)]);
        }
    }

    fn set_phis(&mut self, value: ValueId, phis: &Phis<'ctx>) {
        self.set(value, phis.iter().map(|phi| phi.as_basic_value()).collect());
    }

    /// Makes values of their phis, or of their banks, behind the phis of all.
    fn set_all(&mut self, values: &[ValueId], all: &[Phis<'ctx>]) {
        for (&value, phis) in values.iter().zip(all) {
            match self.products.banks.bank(value) {
                Some(_) => self.set_in_bank(value),
                None => self.set_phis(value, phis),
            }
        }
    }

    /// What is left before the first iteration, and whether there is none at all, of a loop that counts down by its
    /// step.
    fn span(
        &self,
        lo: IntValue<'ctx>,
        hi: IntValue<'ctx>,
        step: IntValue<'ctx>,
        signed: bool,
    ) -> (IntValue<'ctx>, IntValue<'ctx>) {
        let ir = &self.ir;
        let ty = lo.get_type();
        let (least, greater) =
            if signed { (IntPredicate::SGE, IntPredicate::SLE) } else { (IntPredicate::UGE, IntPredicate::ULE) };
        let never = ir.or(ir.icmp(least, lo, hi), ir.icmp(greater, step, ty.const_zero()));
        (ir.sub(ir.sub(hi, lo), ty.const_int(1, false)), never)
    }

    /// How often the loop runs: 0 if `step <= 0` or `lo >= hi`. Exact in unsigned arithmetic of the same width.
    fn trip_count(&self, lo: IntValue<'ctx>, hi: IntValue<'ctx>, step: IntValue<'ctx>, signed: bool) -> IntValue<'ctx> {
        let ir = &self.ir;
        let ty = lo.get_type();
        let (zero, one) = (ty.const_zero(), ty.const_int(1, false));
        let (less, greater) =
            if signed { (IntPredicate::SLT, IntPredicate::SGT) } else { (IntPredicate::ULT, IntPredicate::UGT) };
        let forward = ir.icmp(greater, step, zero);
        let runs = ir.and(ir.icmp(less, lo, hi), forward);
        let divisor = ir.iselect(forward, step, one);
        let span = ir.sub(ir.sub(hi, lo), one);
        let count = ir.add(ir.udiv(span, divisor), one);
        ir.iselect(runs, count, zero)
    }

    fn for_loop(&mut self, operation: &Operation, reverse: bool, unroll: Unroll, runs: bool) -> Result<()> {
        let func = self.func;
        let body_region = operation.regions[0];
        let args = &func.region(body_region).args;
        let bounds: Vec<IntValue> = operation.operands[..3].iter().map(|&v| self.ir.int(self.scalar(v))).collect();
        let (lo, hi, step) = (bounds[0], bounds[1], bounds[2]);
        let inits = &operation.operands[3..];
        let ty = lo.get_type();
        let signed = self.dtype(operation.operands[0]).is_signed_int();
        let one = ty.const_int(1, false);
        // Iterations are counted only where that needs no division, or something asks for their number.
        let counted = reverse || unroll != Unroll::Never || step.is_const();
        let (count, never) = match counted {
            true => {
                let count = self.trip_count(lo, hi, step, signed);
                (count, self.ir.icmp(IntPredicate::EQ, count, ty.const_zero()))
            }
            false => self.span(lo, hi, step, signed),
        };
        let never = if runs { self.ir.bool(false) } else { never };
        let first = match reverse {
            false => lo,
            true => self.ir.add(lo, self.ir.mul(self.ir.sub(count, one), step)),
        };
        let (body, exit) = (self.block("for"), self.block("for.end"));
        self.settle_strides(body_region);
        self.hold_factors(body_region);
        let in_words: Vec<bool> = args[1..].iter().map(|&arg| self.is_carried_in_words(body_region, arg)).collect();
        let firsts: Vec<Vec<Value>> = args[1..]
            .iter()
            .zip(inits)
            .zip(&in_words)
            .map(|((&arg, &init), &in_words)| match self.products.banks.bank(arg) {
                Some(_) => Vec::new(),
                None => self.carried_registers(self.registers(init).to_vec(), in_words),
            })
            .collect();
        let (before, around) = self.fill_before(operation, never, body, exit);

        self.ir.builder.position_at_end(body);
        let (Some(left), Some(counter)) = (self.ir.phi(ty.into()), self.ir.phi(ty.into())) else {
            return Err(self.malformed(operation));
        };
        self.set(args[0], vec![counter.as_basic_value()]);
        let carried: Vec<Phis> =
            args[1..].iter().zip(&in_words).map(|(&arg, &in_words)| self.carried_phis(arg, in_words)).collect();
        self.set_carried(&args[1..], &carried, &in_words);
        self.region(body_region)?;

        let latch = self.here();
        let yields = func.yielded(body_region);
        args[1..].iter().zip(yields).for_each(|(&arg, &next)| self.fill(next, arg));
        let nexts: Vec<Vec<Value>> = args[1..]
            .iter()
            .zip(yields)
            .zip(&in_words)
            .map(|((&arg, &next), &in_words)| {
                self.carried_registers(self.next_registers(body_region, arg, next), in_words)
            })
            .collect();
        let (remaining, index) = (self.ir.int(left.as_basic_value()), self.ir.int(counter.as_basic_value()));
        let next_left = self.ir.sub(remaining, if counted { one } else { step });
        let next_index = if reverse { self.ir.sub(index, step) } else { self.ir.add(index, step) };
        let done = match counted {
            true => self.ir.icmp(IntPredicate::EQ, next_left, ty.const_zero()),
            false => self.ir.icmp(IntPredicate::ULT, remaining, step),
        };
        let branch = self.ir.builder.build_conditional_branch(done, exit, body);
        match branch {
            Ok(branch) => {
                let is_quiet = meetings(self.func, body_region, self.threads()) == 0;
                set_loop_hint(&self.ir.module, branch, self.hint(body_region, unroll, is_quiet));
            }
            Err(error) => self.ir.bug(error.to_string()),
        }
        left.add_incoming(&[(&count, before), (&next_left, latch)]);
        counter.add_incoming(&[(&first, before), (&next_index, latch)]);
        for ((phis, first), next) in carried.iter().zip(&firsts).zip(&nexts) {
            phis.iter().zip(first).for_each(|(phi, register)| phi.add_incoming(&[(register, before)]));
            phis.iter().zip(next).for_each(|(phi, register)| phi.add_incoming(&[(register, latch)]));
        }

        self.ir.builder.position_at_end(exit);
        let results = &operation.results;
        let left: Vec<Phis> =
            results.iter().zip(&in_words).map(|(&result, &in_words)| self.carried_phis(result, in_words)).collect();
        for ((((phis, first), next), &last), &in_words) in
            left.iter().zip(&firsts).zip(&nexts).zip(yields).zip(&in_words)
        {
            phis.iter().zip(first).for_each(|(phi, register)| phi.add_incoming(&[(register, around)]));
            match in_words {
                true => phis.iter().zip(next).for_each(|(phi, register)| phi.add_incoming(&[(register, latch)])),
                false => self.incoming(phis, last, latch),
            }
        }
        self.set_carried(results, &left, &in_words);
        self.release_factors(body_region);
        Ok(())
    }

    /// Branches into a loop, with the banks of its accumulators filled; returns the blocks from which the body and
    /// the end are reached. What the first iteration overwrites is filled only where the loop does not run: behind
    /// the wait for its products, if that is all that becomes of it, or on the way around the loop.
    fn fill_before(
        &mut self,
        operation: &Operation,
        never: IntValue<'ctx>,
        body: BasicBlock<'ctx>,
        exit: BasicBlock<'ctx>,
    ) -> (BasicBlock<'ctx>, BasicBlock<'ctx>) {
        let func = self.func;
        let (inits, args) = (&operation.operands[3..], &func.region(operation.regions[0]).args[1..]);
        let (late, early): (Vec<_>, Vec<_>) =
            inits.iter().zip(args).partition(|(_, arg)| is_overwritten(func, operation, **arg));
        early.iter().for_each(|(init, arg)| self.fill(**init, **arg));
        let before = self.here();
        let results = &operation.results;
        let (behind, late): (Vec<_>, Vec<_>) = late.into_iter().partition(|(_, arg)| {
            let place = args.iter().position(|other| other == *arg);
            place.and_then(|place| results.get(place)).is_some_and(|&result| self.products.banks.is_waited_for(result))
        });
        self.products.unfilled.extend(behind.into_iter().map(|(&init, &arg)| Unfilled { init, arg, never }));
        if !late.iter().any(|(init, arg)| self.products.banks.is_filled(**init, **arg)) {
            self.ir.branch_if(never, exit, body);
            return (before, before);
        }
        let around = self.block("for.around");
        self.ir.branch_if(never, around, body);
        self.ir.builder.position_at_end(around);
        late.iter().for_each(|(init, arg)| self.fill(**init, **arg));
        self.ir.branch(exit);
        (before, around)
    }

    /// Makes what loops add to the pointers of asynchronous copies numbers of which ptxas knows nothing.
    ///
    /// It would find that they are products, and multiply in each iteration: wide products beside those of the tensor
    /// cores cost matrix products 5 % of their time. It does not look through a shuffle.
    fn settle_strides(&mut self, body: RegionId) {
        let func = self.func;
        for (_, copy) in func.region_ops(body).filter(|(_, operation)| operation.op == Op::Gpu(GpuOp::AsyncCopy)) {
            for &next in func.yielded(body) {
                let Some(advance) = func.def_op(next).filter(|def| def.op == Op::Memory(MemoryOp::AddPtr)) else {
                    continue;
                };
                let (pointer, by) = (advance.operands[0], advance.operands[1]);
                let registers = self.registers(by);
                if pointer != copy.operands[1] || registers.iter().all(|by| self.ir.int(*by).is_const()) {
                    continue;
                }
                let settled = self.shuffle(Intrinsic::ShuffleIndex, registers[0], self.ir.i32(0));
                self.set(by, vec![settled; registers.len()]);
            }
        }
    }

    /// What a loop carries to its next iteration of a value that its body knows as `arg`.
    ///
    /// Pointers of asynchronous copies are carried on purpose, by the pipeline, and those that copies begin at pass
    /// through inline assembly that does nothing: LLVM would find that all go on by one number, carry one, and
    /// compute the others from it in each iteration.
    fn next_registers(&self, body: RegionId, arg: ValueId, next: ValueId) -> Vec<Value<'ctx>> {
        if self.products.banks.bank(arg).is_some() {
            return Vec::new();
        }
        let mut registers = self.registers(next).to_vec();
        for (_, operation) in self.func.region_ops(body) {
            if operation.op != Op::Gpu(GpuOp::AsyncCopy) || operation.operands[1] != arg {
                continue;
            }
            for group in self.vectors(arg, operation.operands.get(2).copied()).groups {
                let first = &mut registers[group[0] as usize];
                *first = self.kept(*first);
            }
        }
        registers
    }

    /// The same value, behind inline assembly of which LLVM does not know that it does nothing.
    fn kept(&self, value: Value<'ctx>) -> Value<'ctx> {
        let letter = match value {
            Value::IntValue(int) if int.get_type().get_bit_width() == 32 => "r",
            _ => "l",
        };
        let kept = self.ir.asm(&[value.get_type()], "// kept $0", &format!("={letter},0"), &[value], AsmEffects::Pure);
        kept.first().copied().unwrap_or(value)
    }

    /// How a loop is unrolled, which by itself only one without barriers is.
    fn hint(&self, body: RegionId, unroll: Unroll, is_quiet: bool) -> LoopHint {
        match unroll {
            Unroll::Full => LoopHint::UnrollFully,
            Unroll::Auto if is_quiet => self.overlap(body),
            // Without the pass that repeats bodies, LLVM may.
            Unroll::By(factor) if is_quiet => LoopHint::Unroll(factor.into()),
            Unroll::Auto | Unroll::Never | Unroll::By(_) => LoopHint::NoUnroll,
        }
    }

    /// How many iterations of a loop without barriers to join, so that the loads of one overlap the arithmetic of
    /// another.
    ///
    /// A loop that streams through memory waits for each iteration's loads before it can issue the next ones. Joined
    /// iterations issue theirs together; as many are joined as keep the loaded and the carried values within
    /// [`IN_FLIGHT`] registers.
    fn overlap(&self, body: RegionId) -> LoopHint {
        let words = |value: &ValueId| crate::occupancy::words(self.func, *value) as usize;
        let carried: usize = self.func.region(body).args[1..].iter().map(words).sum();
        let mut loaded = 0;
        for (_, operation) in self.func.region_ops(body) {
            let op = &operation.op;
            let is_atomic = matches!(op, Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }));
            let leaves = op.cost() == Cost::Control && *op != Op::Control(ControlOp::Yield);
            if op.is_together() || is_atomic || leaves {
                return LoopHint::NoUnroll;
            }
            if let Op::Memory(MemoryOp::Load { .. }) = op {
                loaded += self.loaded_words(operation);
            }
        }
        match loaded {
            0 => LoopHint::NoUnroll,
            few if few * 4 + carried <= IN_FLIGHT => LoopHint::Unroll(4),
            some if some * 2 + carried <= IN_FLIGHT => LoopHint::Unroll(2),
            _ => LoopHint::NoUnroll,
        }
    }

    /// Registers of 32 bits that a load fills: vectors of short elements are packed.
    fn loaded_words(&self, load: &Operation) -> usize {
        let vectors = self.vectors(load.operands[0], load.operands.get(1).copied());
        let bits = memory_bits(self.dtype(load.results[0])) * vectors.width;
        vectors.groups.len() * bits.div_ceil(32) as usize
    }

    fn while_loop(&mut self, operation: &Operation) -> Result<()> {
        let func = self.func;
        let (test, body_region) = (operation.regions[0], operation.regions[1]);
        let (header, body, exit) = (self.block("while"), self.block("while.body"), self.block("while.end"));
        self.hold_factors(test);
        let before = self.here();
        self.ir.branch(header);

        self.ir.builder.position_at_end(header);
        let carried: Vec<Phis> = func.region(test).args.iter().map(|&arg| self.phis(arg)).collect();
        for region in [test, body_region] {
            for (&arg, phis) in func.region(region).args.iter().zip(&carried) {
                self.set_phis(arg, phis);
            }
        }
        self.region(test)?;
        let goes_on = func.yielded(test).first().map_or(self.ir.bool(false), |&v| self.ir.int(self.scalar(v)));
        self.ir.branch_if(goes_on, body, exit);

        self.ir.builder.position_at_end(body);
        self.region(body_region)?;
        let latch = self.here();
        match self.ir.builder.build_unconditional_branch(header) {
            Ok(branch) => set_loop_hint(&self.ir.module, branch, LoopHint::NoUnroll),
            Err(error) => self.ir.bug(error.to_string()),
        }
        let yields = func.yielded(body_region);
        for ((phis, &init), &next) in carried.iter().zip(&operation.operands).zip(yields) {
            self.incoming(phis, init, before);
            self.incoming(phis, next, latch);
        }

        self.ir.builder.position_at_end(exit);
        for (&result, phis) in operation.results.iter().zip(&carried) {
            self.set_phis(result, phis);
        }
        self.release_factors(test);
        Ok(())
    }

    fn condition(&mut self, operation: &Operation) -> Result<()> {
        let condition = self.ir.int(self.scalar(operation.operands[0]));
        let (yes, no, end) = (self.block("then"), self.block("else"), self.block("end"));
        self.ir.branch_if(condition, yes, no);
        let first = self.branch_of(operation, operation.regions[0], yes, end)?;
        let second = self.branch_of(operation, operation.regions[1], no, end)?;
        self.ir.builder.position_at_end(end);
        let results: Vec<Phis> = operation.results.iter().map(|&result| self.phis(result)).collect();
        for (index, phis) in results.iter().enumerate() {
            for (block, values) in [&first, &second] {
                for (phi, register) in phis.iter().zip(values[index].iter()) {
                    phi.add_incoming(&[(register, *block)]);
                }
            }
        }
        self.set_all(&operation.results, &results);
        Ok(())
    }

    /// Lowers one side of a condition; returns its last block and what it yields besides what is in banks then.
    fn branch_of(
        &mut self,
        operation: &Operation,
        region: RegionId,
        block: BasicBlock<'ctx>,
        end: BasicBlock<'ctx>,
    ) -> Result<(BasicBlock<'ctx>, Vec<Vec<Value<'ctx>>>)> {
        self.ir.builder.position_at_end(block);
        self.region(region)?;
        let mut values = Vec::with_capacity(operation.results.len());
        for (&value, &result) in self.func.yielded(region).iter().zip(&operation.results) {
            match self.products.banks.bank(result) {
                Some(_) => {
                    self.fill(value, result);
                    values.push(Vec::new());
                }
                None => values.push(self.registers(value).to_vec()),
            }
        }
        let last = self.here();
        self.ir.branch(end);
        Ok((last, values))
    }
}
