//! Values from nothing, from a scalar or from the launch.

use kernel_core::ir::{CounterKind, CreateOp, Operation};
use kernel_core::layout::LayoutDim;
use kernel_llvm::AsmEffects;

use super::intrinsics::Intrinsic;
use super::ir::Value;
use super::{Lower, Result};
use crate::error::CodegenError;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn create(&mut self, operation: &Operation, op: &CreateOp) -> Result<()> {
        let result = operation.results[0];
        let registers = match op {
            CreateOp::Const { value, .. } => vec![self.ir.literal(*value, self.dtype(result))],
            CreateOp::ProgramId { axis } => vec![self.launch_number(Intrinsic::BlockId(*axis))],
            CreateOp::NumPrograms { axis } => vec![self.launch_number(Intrinsic::GridSize(*axis))],
            CreateOp::Counter { which } => {
                let value = self.counter(*which);
                vec![if operation.shared.is_empty() { value } else { self.broadcast_from_first(value) }]
            }
            CreateOp::Splat { .. } => {
                let scalar = self.scalar(operation.operands[0]);
                vec![scalar; self.register_count(result)]
            }
            CreateOp::Arange { lo, .. } => {
                let Some(layout) = self.layout(result) else { return Err(self.malformed(operation)) };
                let form = layout.coordinate_form(LayoutDim::Axis(0));
                let additive = form.is_additive();
                let thread = self.form(&form.thread);
                let Some(lo) = lo.as_const() else { return Err(self.malformed(operation)) };
                let (ir, lo) = (&self.ir, lo as i32);
                let coordinate = |&constant: &u32| match (additive, constant as i32) {
                    (true, constant) => ir.add(thread, ir.i32(constant.wrapping_add(lo))).into(),
                    (false, constant) => ir.add(ir.xor(thread, ir.i32(constant)), ir.i32(lo)).into(),
                };
                form.registers.iter().map(coordinate).collect()
            }
            CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } => {
                let what = format!("`{}` after binding", op.mnemonic());
                return Err(CodegenError::internal(self.func, operation.span, "bind", what));
            }
        };
        self.set(result, registers);
        Ok(())
    }

    /// What a special register holds. Nothing moves across a look at the time.
    fn counter(&self, which: CounterKind) -> Value<'ctx> {
        let (register, letter) = match which {
            CounterKind::Clock => ("mov.u64 $0, %clock64;", "=l"),
            CounterKind::GlobalTimer => ("mov.u64 $0, %globaltimer;", "=l"),
            CounterKind::Smid => ("mov.u32 $0, %smid;", "=r"),
        };
        let ty = self.ir.int_type(which.dtype().bits());
        let value = self.ir.asm(&[ty.into()], register, letter, &[], AsmEffects::Memory);
        value.first().copied().unwrap_or_else(|| ty.const_zero().into())
    }

    /// A number of the launch, which every thread reads for itself.
    pub(super) fn launch_number(&self, which: Intrinsic) -> Value<'ctx> {
        self.ir.call(which, &[], &[]).unwrap_or_else(|| self.ir.i32(0).into())
    }
}
