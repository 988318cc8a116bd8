//! Barriers with phases: `mbarrier` objects in shared memory.
//!
//! One thread makes them all where the kernel begins; the kernel has a fence and a barrier there. An arrival is one
//! for the threads that run the operation together: the first of them arrives, in a warp group the first of each four
//! warps. What the others did before is over only if they have met at a barrier (`wgmma`, which four warps wait for
//! together, and tensor copies, which that thread waits for itself, need none).

use std::collections::BTreeSet;

use kernel_core::edit::walk;
use kernel_core::ir::{Func, GpuOp, Op, OpId, Operation, ValueId};
use kernel_core::target::BARRIER_BYTES;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::IntValue;

use super::warp_groups::arrivals;
use super::{Lower, Result, Value};

/// The kernel's barriers with phases.
fn phase_barriers(func: &Func) -> BTreeSet<OpId> {
    let mut found = BTreeSet::new();
    walk(func, &mut |id| {
        if matches!(func.op(id).op, Op::Gpu(GpuOp::MbarrierAlloc { .. })) {
            found.insert(id);
        }
    });
    found
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Makes all barriers of the kernel, where it begins.
    pub(super) fn make_phase_barriers(&mut self) -> Result<()> {
        let func = self.func;
        let all = phase_barriers(func);
        if all.is_empty() {
            return Ok(());
        }
        let first = self.first_thread();
        for id in all {
            let Op::Gpu(GpuOp::MbarrierAlloc { slots, count }) = func.op(id).op else { continue };
            let offset = self.offset_of(func.op(id));
            let count = count * arrivals(func, id)?;
            for slot in 0..slots {
                let address = self.shared_int(self.ir.i32((offset + slot * BARRIER_BYTES) as i32));
                self.ir.asm(
                    &[],
                    "@$2 mbarrier.init.shared::cta.b64 [$0], $1;",
                    "r,r,b",
                    &[address.into(), self.ir.i32(count as i32).into(), first.into()],
                    AsmEffects::Memory,
                );
            }
        }
        Ok(())
    }

    pub(super) fn mbarrier_alloc(&mut self, operation: &Operation) {
        let offset = self.offset_of(operation);
        self.set(operation.results[0], vec![self.ir.i32(offset as i32).into()]);
    }

    /// The first thread arrives, expecting bytes of copies if there are any.
    pub(super) fn mbarrier_arrive(&mut self, operation: &Operation) {
        let address = self.phase_barrier(operation.operands[0], operation.operands[1]);
        let first = if operation.operands.len() > 2 { self.first_thread() } else { self.arriving_thread() };
        let mut arguments: Vec<Value> = vec![address.into(), first.into()];
        let (assembly, constraints) = match operation.operands.get(2) {
            Some(&bytes) => {
                arguments.push(self.scalar(bytes));
                ("@$1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $2;", "r,b,r")
            }
            None => ("@$1 mbarrier.arrive.shared::cta.b64 _, [$0];", "r,b"),
        };
        self.ir.asm(&[], assembly, constraints, &arguments, AsmEffects::Memory);
    }

    /// Every thread waits until the phase of that parity is over.
    pub(super) fn mbarrier_wait(&mut self, operation: &Operation) {
        let address = self.phase_barrier(operation.operands[0], operation.operands[1]);
        let parity = self.ir.and(self.ir.int(self.scalar(operation.operands[2])), self.ir.i32(1));
        // Its labels are its own: each copy is in braces.
        let assembly = "{\n\t.reg .pred over;\nagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1;\n\t\
                        @!over bra.uni again;\n}";
        self.ir.asm(&[], assembly, "r,r", &[address.into(), parity.into()], AsmEffects::ConvergentMemory);
    }

    /// The address of a barrier, as shared memory counts.
    pub(super) fn phase_barrier(&self, barriers: ValueId, slot: ValueId) -> IntValue<'ctx> {
        let first = self.ir.int(self.scalar(barriers));
        let distance = self.ir.mul(self.ir.int(self.scalar(slot)), self.ir.i32(BARRIER_BYTES as i32));
        self.shared_int(self.ir.add(first, distance))
    }

    /// The address of a byte of shared memory, as instructions take it in 32 bits.
    pub(super) fn shared_int(&self, offset: IntValue<'ctx>) -> IntValue<'ctx> {
        self.ir.pointer_to_int(self.shared_address(offset), self.ir.int_type(32))
    }

    /// Whether this is the first thread of those that run the code.
    pub(super) fn first_thread(&mut self) -> IntValue<'ctx> {
        self.owner(None).unwrap_or_else(|| self.ir.bool(true))
    }
}
