//! Matrix products in scalar arithmetic.
//!
//! Scalar arithmetic goes through shared memory, where both operands lie with K slowest:
//!
//! ```text
//! store A as [K, .., M], B as [K, .., N];  barrier
//! for k:  a = rows of A at k that the thread needs;  b = columns of B at k;  acc[i][j] = fma(a[i], b[j], acc[i][j])
//! ```
//!
//! The lanes of a warp then read neighbouring rows and columns, or the same ones, so no bank is asked twice.

use kernel_core::ir::{DType, DotInstruction, Operation, Span, ValueId};
use kernel_core::layout::{LayoutError, LinearLayout, SharedAccess, shared_access};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::packing::memory_bits;
use super::shape::register_coordinates;
use super::shared::SharedOffset;
use super::{Lower, Result};
use crate::analysis::exchange::{factors, shared_in_order};
use crate::dot::{Kind, Problem};
use crate::error::CodegenError;

/// Steps along K in one iteration of the loop.
const STEPS: u32 = 4;

/// An operand in shared memory, as the scalar product reads it.
struct Staged {
    start: u32,
    /// How a thread reads what it needs at one `k`.
    access: SharedAccess,
    /// Bytes from one `k` to the next.
    step: u32,
    dtype: DType,
    /// Per register of the accumulator, the register of `access` that it multiplies.
    register_of: Vec<u32>,
    /// Registers that `access` fills.
    registers: usize,
}

impl<'ctx> Lower<'_, 'ctx> {
    /// A product by the instruction that stands on it. Those of `wgmma` have become operations of their own.
    pub(super) fn dot(&mut self, operation: &Operation, by: Option<DotInstruction>) -> Result<()> {
        let &[a, b, acc] = operation.operands.as_slice() else { return Err(self.malformed(operation)) };
        let has_layouts = [a, b, acc].into_iter().all(|value| self.layout(value).is_some());
        let Some(problem) = Problem::of(self.func, operation).filter(|_| has_layouts) else {
            return Err(CodegenError::refuse(self.func, operation.span, "a matrix product without layouts"));
        };
        if problem.a == DType::F32 && problem.precision.split().is_some() {
            let what = "a product of bf16 terms has not been written as such";
            return Err(CodegenError::internal(self.func, operation.span, "lowering", what));
        }
        match (by, problem.kind()) {
            (Some(DotInstruction::Fma), _) => self.scalar_dot(operation, &problem),
            (Some(DotInstruction::Mma), Some(Kind::F8 { .. })) if !self.target.has_f8_mma() => {
                let what = "a matrix product of 8-bit floats by `mma.sync` on a target without it";
                Err(CodegenError::refuse(self.func, operation.span, what))
            }
            (Some(DotInstruction::Mma), Some(kind)) => self.mma(operation, &problem, kind),
            (Some(DotInstruction::Mma | DotInstruction::Wgmma { .. }) | None, _) => {
                let what = "a matrix product has no instruction that computes it";
                Err(CodegenError::internal(self.func, operation.span, "lowering", what))
            }
        }
    }

    fn scalar_dot(&mut self, operation: &Operation, problem: &Problem) -> Result<()> {
        let &[a, b, acc] = operation.operands.as_slice() else { return Err(self.malformed(operation)) };
        let Some(layout) = self.layout(acc) else { return Err(self.malformed(operation)) };
        let rank = layout.tile_shape().len() as u8;
        let (m, n) = (rank - 2, rank - 1);
        let Some((left, right)) = factors(self.func, operation) else { return Err(self.malformed(operation)) };
        let start = self.take_scratch(left.next_multiple_of(16) + right);
        let staged = [
            self.stage(a, layout, (n, n), start, problem.a)?,
            self.stage(b, layout, (m, m), start + left.next_multiple_of(16), problem.b)?,
        ];
        self.barrier();
        let sums = self.multiply_loop(&staged, problem, &self.registers(acc));
        self.set(operation.results[0], sums);
        Ok(())
    }

    /// Writes an operand to shared memory. `k` is its axis along K, `other` the accumulator's axis that it
    /// lacks.
    fn stage(
        &mut self,
        value: ValueId,
        acc: &LinearLayout,
        (k, other): (u8, u8),
        start: u32,
        dtype: DType,
    ) -> Result<Staged> {
        let bits = memory_bits(dtype);
        let plan = |layout: &LinearLayout| -> std::result::Result<_, LayoutError> {
            // In memory: K slowest, then batches, then M or N.
            let rank = layout.tile_shape().len() as u8;
            let own_here = rank - 2 + rank - 1 - k;
            let order: Vec<u8> = [k].into_iter().chain(0..rank - 2).chain([own_here]).collect();
            let whole = shared_in_order(layout, &order)?;
            let store = shared_access(layout, &whole, bits)?;
            let part = acc.slice(other)?;
            let order: Vec<u8> = (0..rank - 1).collect();
            let load = shared_access(&part, &shared_in_order(&part, &order)?, bits)?;
            Ok((store, load, part))
        };
        let Some(layout) = self.layout(value) else {
            let what = format!("factor {} of a product has no layout", value.index());
            return Err(CodegenError::internal(self.func, Span::UNKNOWN, "lowering", what));
        };
        let (store, access, part) = plan(layout).map_err(|error| self.layout_error(&error))?;
        let registers = self.registers(value);
        self.write_shared(start, &store, &registers, 0);
        let places = register_coordinates(Some(&part));
        let register_of = register_coordinates(Some(acc)).into_iter().map(|mut at| {
            at.remove(usize::from(other));
            places.iter().position(|place| *place == at).unwrap_or_else(|| {
                self.ir.bug(format!("no register of a factor is at {at:?}"));
                0
            }) as u32
        });
        let register_of = register_of.map(|register| access.canonical.source_of(register as usize) as u32).collect();
        let step = part.tile_shape().iter().product::<u32>() * dtype.bytes();
        Ok(Staged { start, access, step, dtype, register_of, registers: places.len() })
    }

    /// Multiplies along K, a few steps per iteration.
    fn multiply_loop(&mut self, staged: &[Staged; 2], problem: &Problem, acc: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        let wide = wide_dtype(problem.acc);
        let mut sums: Vec<Value> = acc.iter().map(|&value| self.ir.cast(problem.acc, wide, value)).collect();
        let steps = problem.k.min(STEPS);
        let iterations = problem.k / steps;
        if iterations == 1 {
            let zero = self.ir.i32(0);
            for k in 0..steps {
                self.multiply(staged, zero, k, wide, &mut sums);
            }
        } else {
            sums = self.multiply_iterations(staged, iterations, steps, wide, sums);
        }
        sums.into_iter().map(|value| self.ir.cast(wide, problem.acc, value)).collect()
    }

    fn multiply_iterations(
        &mut self,
        staged: &[Staged; 2],
        iterations: u32,
        steps: u32,
        wide: DType,
        sums: Vec<Value<'ctx>>,
    ) -> Vec<Value<'ctx>> {
        let (before, body) = (self.here(), self.block("dot"));
        let exit = self.block("dot.end");
        // What depends on the thread alone is computed before the loop.
        for operand in staged {
            self.form(&operand.access.thread);
        }
        self.ir.branch(body);
        self.ir.builder.position_at_end(body);
        let Some(iteration) = self.ir.phi(self.ir.int_type(32).into()) else { return sums };
        let phis: Vec<_> = sums.iter().filter_map(|sum| self.ir.phi(sum.get_type())).collect();
        let mut next: Vec<Value> = phis.iter().map(|phi| phi.as_basic_value()).collect();
        let number = self.ir.int(iteration.as_basic_value());
        let first = self.ir.mul(number, self.ir.i32(steps as i32));
        for k in 0..steps {
            self.multiply(staged, first, k, wide, &mut next);
        }
        let following = self.ir.add(number, self.ir.i32(1));
        let done = self.ir.icmp(IntPredicate::EQ, following, self.ir.i32(iterations as i32));
        let latch = self.here();
        self.ir.branch_if(done, exit, body);
        iteration.add_incoming(&[(&self.ir.i32(0), before), (&following, latch)]);
        for ((phi, sum), next) in phis.iter().zip(&sums).zip(&next) {
            phi.add_incoming(&[(sum, before), (next, latch)]);
        }
        self.ir.builder.position_at_end(exit);
        next
    }

    /// One step along K: the outer product of what a thread has of A and B at `first + k`.
    fn multiply(&mut self, [a, b]: &[Staged; 2], first: IntValue<'ctx>, k: u32, wide: DType, sums: &mut [Value<'ctx>]) {
        let (left, right) = (self.staged_at(a, first, k, wide), self.staged_at(b, first, k, wide));
        for (index, sum) in sums.iter_mut().enumerate() {
            let (x, y) = (left[a.register_of[index] as usize], right[b.register_of[index] as usize]);
            let ir = &self.ir;
            *sum = if wide.is_float() {
                ir.float_call(Intrinsic::Fma, &[ir.float(x), ir.float(y), ir.float(*sum)]).into()
            } else {
                ir.add(ir.mul(ir.int(x), ir.int(y)), ir.int(*sum)).into()
            };
        }
    }

    /// What a thread needs of an operand at `first + k`, in the dtype of the sums.
    fn staged_at(&mut self, operand: &Staged, first: IntValue<'ctx>, k: u32, wide: DType) -> Vec<Value<'ctx>> {
        let ty = self.ir.dtype(operand.dtype);
        let mut registers = vec![ty.const_zero(); operand.registers];
        let moved = self.ir.mul(first, self.ir.i32(operand.step as i32));
        let start = SharedOffset { moved: Some(moved), fixed: operand.start + k * operand.step };
        self.read_shared_at(start, &operand.access, ty, &mut registers, 0);
        registers.into_iter().map(|value| self.ir.cast(operand.dtype, wide, value)).collect()
    }
}

/// The dtype in which sums are kept.
fn wide_dtype(acc: DType) -> DType {
    if acc == DType::F16 { DType::F32 } else { acc }
}
