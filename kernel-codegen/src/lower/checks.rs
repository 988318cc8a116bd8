//! Checks and how they are reported.
//!
//! A bounds check never branches: lanes that fail are masked off, and the thread remembers one failure in two
//! registers (`site`, `offset`). All ways out of the kernel lead through the exit block, where a thread that
//! remembers a failure claims the launch's report record with one compare-and-swap and fills it in. The record is in
//! the host's memory, where each swap of each thread takes its time on the bus: a wrong length in a large launch would
//! keep it busy for a minute. So a thread looks first whether the record is taken, which is one short read per warp.
//!
//! A failed `assert` ends the program: all threads learn of it together, one writes the report, and all leave.

use kernel_core::ir::{DType, GpuOp, Op, Operation, ParamId, ValueId};
use kernel_core::layout::LayoutDim;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::types::IntType;
use kernel_llvm::inkwell::values::{IntValue, PointerValue};

use super::bounds::Distances;
use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::{Lower, Result};
use kernel_core::backend::{Site, SiteKind};

/// Offsets of the report record's fields, in bytes.
mod record {
    /// 0, then 1 when a program has claimed it (u32).
    pub(super) const STATE: i32 = 0;
    /// Which check failed (u32).
    pub(super) const SITE: i32 = 4;
    /// The program (three u32).
    pub(super) const PROGRAM: i32 = 8;
    /// The offset in elements (i64).
    pub(super) const OFFSET: i32 = 24;
    /// The length in elements (u64).
    pub(super) const LENGTH: i32 = 32;
}

/// The failure that a thread remembers.
pub(super) struct Sticky<'ctx> {
    /// One more than the number of the site; 0 if nothing failed.
    site: PointerValue<'ctx>,
    offset: PointerValue<'ctx>,
    /// The site's numbers with the length that they compare with.
    lengths: Vec<(u32, IntValue<'ctx>)>,
}

/// The outcome of a bounds check.
struct Compared<'ctx> {
    /// Per register, whether its lane is admitted.
    registers: Vec<Value<'ctx>>,
    /// Whether a lane that the mask admits is outside of the buffer.
    failed: IntValue<'ctx>,
    /// The offset of the first one, in 64 bits.
    at: IntValue<'ctx>,
}

impl<'ctx> Lower<'_, 'ctx> {
    fn new_site(&mut self, operation: &Operation, kind: SiteKind) -> u32 {
        let site = Site { span: operation.span, kind };
        let known = self.checks.sites.iter().position(|known| *known == site);
        let index = known.unwrap_or_else(|| {
            self.checks.sites.push(site);
            self.checks.sites.len() - 1
        });
        index as u32
    }

    fn sticky(&mut self) -> (PointerValue<'ctx>, PointerValue<'ctx>) {
        if let Some(sticky) = &self.checks.sticky {
            return (sticky.site, sticky.offset);
        }
        let (site, offset) = self.at_entry(|this| {
            let ir = &this.ir;
            let (site, offset) = (ir.variable(ir.int_type(32)), ir.variable(ir.int_type(64)));
            ir.store(site, ir.i32(0).into(), 4);
            ir.store(offset, ir.i64(0).into(), 8);
            (site, offset)
        });
        self.checks.sticky = Some(Sticky { site, offset, lengths: Vec::new() });
        (site, offset)
    }

    pub(super) fn check_bounds(&mut self, operation: &Operation, param: u32, store: bool) -> Result<()> {
        let (offsets, length) = (operation.operands[0], operation.operands[1]);
        let mask = operation.operands.get(2).copied();
        let result = operation.results[0];
        let site = self.new_site(operation, SiteKind::Bounds { param: ParamId::new(param), store });
        let (site_variable, offset_variable) = self.sticky();
        let length = self.ir.int(self.scalar(length));
        if let Some(sticky) = &mut self.checks.sticky {
            sticky.lengths.push((site, length));
        }
        let Compared { registers, failed, at } = self.compare_lanes(offsets, length, mask, result);
        let ir = &self.ir;
        let remembered = ir.int(ir.load(ir.int_type(32), site_variable, 4));
        // What failed first is remembered: later failures often follow from it.
        let failed = ir.and(failed, ir.icmp(IntPredicate::EQ, remembered, ir.i32(0)));
        let number = ir.i32(site as i32 + 1);
        ir.store(site_variable, ir.iselect(failed, number, remembered).into(), 4);
        let remembered = ir.int(ir.load(ir.int_type(64), offset_variable, 8));
        ir.store(offset_variable, ir.iselect(failed, at, remembered).into(), 8);
        self.set(result, registers);
        Ok(())
    }

    /// Which lanes a check admits, and whether and where it fails.
    fn compare_lanes(
        &self,
        offsets: ValueId,
        length: IntValue<'ctx>,
        mask: Option<ValueId>,
        result: ValueId,
    ) -> Compared<'ctx> {
        let ir = &self.ir;
        let dtype = self.dtype(offsets);
        let signed = dtype.is_signed_int();
        let (width, limit) = self.comparison(dtype, length);
        let values = self.registers(offsets);
        let mut registers = vec![ir.bool(false).into(); self.register_count(result)];
        let groups = self.equal_groups(result);
        let distances = self.distances(offsets, length, mask, groups.len());
        if let Some((distances, decided)) = distances.as_ref().and_then(|d| Some((d, d.decided(self)?))) {
            for group in groups {
                let lane = distances.lane(self, ir.int(values[group[0] as usize]));
                let admitted = ir.icmp(IntPredicate::ULT, lane, distances.limit());
                for &register in &group {
                    registers[register as usize] = admitted.into();
                }
            }
            return Compared { registers, failed: decided.failed, at: decided.at };
        }
        let limit = distances.as_ref().map_or(limit, Distances::limit);
        let leaders = mask.map(|mask| self.leaders(mask));
        let masks = mask.map(|mask| self.registers(mask));
        let mut failed = ir.bool(false);
        let mut at = limit.get_type().const_zero();
        // Backwards, so that of several failures the first is the one that stays.
        for group in groups.into_iter().rev() {
            let first = group[0] as usize;
            let lane = match &distances {
                Some(distances) => distances.lane(self, ir.int(values[first])),
                None => ir.resize(ir.int(values[first]), width, signed),
            };
            // One unsigned comparison: a negative offset is larger than any length.
            let inside = ir.icmp(IntPredicate::ULT, lane, limit);
            let masked = masks.as_ref().zip(leaders.as_ref()).map(|(masks, leaders)| ir.int(masks[leaders[first]]));
            let (admitted, refused) = match masked {
                Some(mask) => (ir.and(mask, inside), ir.and(mask, ir.not(inside))),
                None => (inside, ir.not(inside)),
            };
            failed = ir.or(failed, refused);
            at = ir.iselect(refused, lane, at);
            for &register in &group {
                registers[register as usize] = admitted.into();
            }
        }
        let at = match &distances {
            Some(distances) => distances.offset(self, at),
            None => ir.resize(at, ir.int_type(64), signed),
        };
        Compared { registers, failed, at }
    }

    /// The type in which offsets compare with a length, and the length in it.
    ///
    /// Signed offsets of 32 bits or fewer compare in 32 bits, which takes half the instructions: no such offset
    /// reaches 2^31, so neither does it reach a length cut to that.
    fn comparison(&self, offset: DType, length: IntValue<'ctx>) -> (IntType<'ctx>, IntValue<'ctx>) {
        let ir = &self.ir;
        if !offset.is_signed_int() || offset.bits() > 32 {
            return (ir.int_type(64), length);
        }
        let cut = ir.int_call(Intrinsic::UMin, &[length, ir.i64(1 << 31)]);
        (ir.int_type(32), ir.resize(cut, ir.int_type(32), false))
    }

    /// Per register of a value, the first register that is known to be equal.
    pub(super) fn leaders(&self, value: ValueId) -> Vec<usize> {
        let mut leaders: Vec<usize> = (0..self.register_count(value)).collect();
        for group in self.equal_groups(value) {
            let first = group.iter().copied().min().unwrap_or(0);
            for &register in &group {
                leaders[register as usize] = first as usize;
            }
        }
        leaders
    }

    /// The registers of a value in groups that are known to be equal.
    fn equal_groups(&self, value: ValueId) -> Vec<Vec<u32>> {
        let Some(layout) = self.layout(value) else { return vec![vec![0]] };
        let info = self.axis.of(self.func, value);
        let longest = (0u8..).zip(&info.dims).max_by_key(|(_, dim)| dim.constancy);
        let Some((axis, dim)) = longest else { return vec![vec![0]] };
        // Constancy of a power of two: groups are aligned.
        let width = 1u64 << dim.constancy.trailing_zeros().min(20);
        layout.vectors(LayoutDim::Axis(axis), width as u32).groups
    }

    pub(super) fn assert(&mut self, operation: &Operation, message: &str) -> Result<()> {
        let site = self.new_site(operation, SiteKind::Assert(message.to_string()));
        let condition = operation.operands[0];
        let registers = self.registers(condition);
        let holds = registers.iter().fold(self.ir.bool(true), |all, &one| self.ir.and(all, self.ir.int(one)));
        let fails = self.ir.not(holds);
        // A scalar is the same in every thread.
        let fails = match self.layout(condition) {
            Some(_) => {
                let any = self.any_thread(fails.into());
                self.ir.int(any)
            }
            None => fails,
        };
        let failed = self.ir.context.append_basic_block(self.blocks.function, "assert.failed");
        let goes_on = self.ir.context.append_basic_block(self.blocks.function, "assert.holds");
        self.ir.branch_if(fails, failed, goes_on);
        self.ir.builder.position_at_end(failed);
        let zero = self.ir.i64(0);
        let first = self.ir.icmp(IntPredicate::EQ, self.ids.thread, self.ir.i32(0));
        self.write_report(first, self.ir.i32(site as i32), zero, zero);
        if self.func.ops.iter().any(|operation| matches!(operation.op, Op::Gpu(GpuOp::TmaStore { .. }))) {
            // Shared memory that is copied out stays the program's until it has been read.
            self.tma_store_wait(0);
        }
        self.ir.branch(self.blocks.exit);
        self.ir.builder.position_at_end(goes_on);
        Ok(())
    }

    /// Ends the entry block and fills the exit block.
    pub(super) fn finish_exit(&mut self) {
        self.ir.builder.position_at_end(self.blocks.exit);
        if let Some(sticky) = self.checks.sticky.take() {
            let ir = &self.ir;
            let site = ir.int(ir.load(ir.int_type(32), sticky.site, 4));
            let offset = ir.int(ir.load(ir.int_type(64), sticky.offset, 8));
            let failed = ir.icmp(IntPredicate::NE, site, ir.i32(0));
            let number = ir.sub(site, ir.i32(1));
            let length = sticky.lengths.iter().fold(ir.i64(0), |length, &(site, limit)| {
                let is_this = ir.icmp(IntPredicate::EQ, number, ir.i32(site as i32));
                // Lengths are parameters: they are known wherever the exit is reached from.
                ir.iselect(is_this, limit, length)
            });
            self.write_report(failed, number, offset, length);
        }
        if let Err(error) = self.ir.builder.build_return(None) {
            self.ir.bug(error.to_string());
        }
        self.ir.builder.position_at_end(self.blocks.entry);
        self.ir.branch(self.blocks.start);
    }

    /// Where `condition` holds, claims the report record and fills it in; does nothing if another thread was first.
    fn write_report(
        &mut self,
        condition: IntValue<'ctx>,
        site: IntValue<'ctx>,
        offset: IntValue<'ctx>,
        length: IntValue<'ctx>,
    ) {
        let Some(slot) = self.checks.report_slot else {
            self.ir.bug("a check without a report record");
            return;
        };
        let block = |name| self.ir.context.append_basic_block(self.blocks.function, name);
        let (look, claim) = (block("report.look"), block("report.claim"));
        let (fill, done) = (block("report.fill"), block("report.end"));
        let ir = &self.ir;
        ir.branch_if(condition, look, done);
        ir.builder.position_at_end(look);
        let base = ir.int_to_pointer(slot, ir.global_pointer());
        let field = |bytes: i32| ir.offset(ir.int_type(8), base, ir.i32(bytes));
        let is_free = |assembly: &str| {
            let arguments = [field(record::STATE).into()];
            let before = ir.asm(&[ir.int_type(32).into()], assembly, "=r,l", &arguments, AsmEffects::Memory);
            let before = before.first().map_or(ir.i32(1), |&value| ir.int(value));
            ir.icmp(IntPredicate::EQ, before, ir.i32(0))
        };
        ir.branch_if(is_free("ld.relaxed.gpu.global.b32 $0, [$1];"), claim, done);
        ir.builder.position_at_end(claim);
        // The threads of one launch contend for the record and the host reads it after the launch, so the device's
        // scope is enough; few systems have atomics on host memory at the system's.
        ir.branch_if(is_free("atom.relaxed.gpu.global.cas.b32 $0, [$1], 0, 1;"), fill, done);
        ir.builder.position_at_end(fill);
        ir.store(field(record::SITE), site.into(), 4);
        for axis in 0..3u8 {
            let program: Value = self.launch_number(Intrinsic::BlockId(axis));
            ir.store(field(record::PROGRAM + 4 * i32::from(axis)), program, 4);
        }
        ir.store(field(record::OFFSET), offset.into(), 8);
        ir.store(field(record::LENGTH), length.into(), 8);
        ir.branch(done);
        ir.builder.position_at_end(done);
    }
}
