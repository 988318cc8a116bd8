//! Factors of 8-bit floats become f16 where no matrix instruction takes them as they are.
//!
//! ```text
//! %c = dot %a, %b, %acc                 f8e4m3 on sm_80
//! ```
//! becomes
//! ```text
//! %x = cast %a {to = f16}; %y = cast %b {to = f16}; %c = dot %x, %y, %acc
//! ```
//!
//! Every 8-bit float is an f16, so products stay exact and sums are in f32 as before.

use kernel_core::ir::{DType, ElementwiseOp, FloatFlags, Func, Op, OpId, RegionId};

use crate::dot::{Instruction, Problem};
use crate::target::Target;

/// Runs the pass on all regions of a bound kernel.
pub(crate) fn run(func: &mut Func, target: Target, num_warps: u32) {
    for index in 0..func.regions.len() {
        let region = RegionId::new(index as u32);
        let ops = func.region(region).ops.clone();
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            if is_better_in_halves(func, id, target, num_warps) {
                widen(func, id, &mut out);
            }
            out.push(id);
        }
        func.regions[region.index()].ops = out;
    }
}

/// Whether a product of 8-bit floats would be done in scalar arithmetic, and one of f16 by a matrix instruction.
fn is_better_in_halves(func: &Func, id: OpId, target: Target, num_warps: u32) -> bool {
    let Some(problem) = Problem::of(func, func.op(id)) else { return false };
    let is_scalar = |problem: &Problem| problem.instruction(target, num_warps) == Instruction::Fma;
    let halves = Problem { a: DType::F16, b: DType::F16, ..problem.clone() };
    problem.a.is_fp8() && is_scalar(&problem) && !is_scalar(&halves)
}

fn widen(func: &mut Func, id: OpId, out: &mut Vec<OpId>) {
    let (operands, span) = (func.op(id).operands.clone(), func.op(id).span);
    for (place, value) in operands.into_iter().enumerate().take(2) {
        let ty = func.ty(value).with_dt(DType::F16);
        let cast = Op::Elementwise(ElementwiseOp::Cast { to: DType::F16.into() });
        let cast = func.new_op(cast, vec![value], vec![ty], Vec::new(), FloatFlags::default(), span);
        func.ops[id.index()].operands[place] = func.op(cast).results[0];
        out.push(cast);
    }
}
