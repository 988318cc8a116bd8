//! The kernel's parameters.
//!
//! Buffers are pointers to global memory, scalars go by value (`bool` as a byte), tensor maps are 128 bytes in the
//! parameters themselves, and hidden parameters are last,
//! only if they are used: lengths of buffers, shapes and strides of tensors, the address of the report record.
//!
//! `PtrMut` parameters are `noalias`, because the borrow checker gave the launch the only reference; `Ptr`
//! parameters are `readonly` and may alias each other.

use kernel_core::edit::walk;
use kernel_core::ir::{ControlOp, DType, Func, MemoryOp, Op, ParamId, ParamKind, Span};
use kernel_llvm::inkwell::types::BasicMetadataTypeEnum;
use kernel_llvm::inkwell::values::{BasicValueEnum, FunctionValue};
use kernel_llvm::inkwell::{AddressSpace, IntPredicate};
use kernel_llvm::{ParameterFact, mark_grid_constant, mark_parameter, space};

use super::ir::Ir;
use super::shared::SHARED_MEMORY;
use super::{Lower, Result, tma};
use crate::error::CodegenError;
use kernel_core::backend::nvidia::AbiParam;

/// The size and the alignment of a tensor map, in bytes.
const MAP_BYTES: u32 = 128;
const MAP_ALIGNMENT: u32 = 64;

/// The launch parameters of a kernel, in order.
///
/// # Errors
/// If a scalar has no dtype, which binding sees to.
pub(super) fn parameters(func: &Func) -> Result<Vec<AbiParam>> {
    let (mut used, mut reports) = (vec![false; func.values.len()], false);
    walk(func, &mut |id| {
        let operation = func.op(id);
        for &value in &operation.operands {
            used[value.index()] = true;
        }
        reports |=
            matches!(operation.op, Op::Memory(MemoryOp::CheckBounds { .. }) | Op::Control(ControlOp::Assert { .. }));
    });
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    for (index, param) in func.params.iter().enumerate() {
        let id = ParamId::new(index as u32);
        let is_used = used[param.value.index()];
        match &param.kind {
            _ if param.facts.omitted => {}
            // The host need not make a tensor that nothing uses.
            ParamKind::Ptr { .. } if param.recipe.is_some() && !is_used => {}
            ParamKind::Ptr { .. } => shown.push(AbiParam::Buffer(id)),
            ParamKind::Desc { .. } if is_used => shown.extend(tma::map_of(func, id).map(AbiParam::TensorMap)),
            ParamKind::Scalar(dt) => match dt.known() {
                Some(dtype) => shown.push(AbiParam::Scalar(id, dtype)),
                None => return Err(CodegenError::internal(func, Span::UNKNOWN, "bind", "a scalar has no dtype")),
            },
            ParamKind::ConstScalar(_) | ParamKind::Desc { .. } => {}
            ParamKind::Length(of) if is_used => hidden.push(AbiParam::Length(*of)),
            ParamKind::DescShape { of, axis } if is_used => hidden.push(AbiParam::Shape(*of, *axis)),
            ParamKind::DescStride { of, axis } if is_used => hidden.push(AbiParam::Stride(*of, *axis)),
            ParamKind::Length(_)
            | ParamKind::ReportSlot
            | ParamKind::DescShape { .. }
            | ParamKind::DescStride { .. } => {}
        }
    }
    if reports {
        hidden.push(AbiParam::ReportSlot);
    }
    shown.append(&mut hidden);
    Ok(shown)
}

/// Declares the kernel, as yet without its bounds.
pub(super) fn declare<'ctx>(ir: &Ir<'ctx>, func: &Func, abi: &[AbiParam]) -> FunctionValue<'ctx> {
    let types: Vec<BasicMetadataTypeEnum> = abi
        .iter()
        .map(|param| match param {
            AbiParam::Buffer(_) => ir.context.ptr_type(AddressSpace::from(space::GLOBAL)).into(),
            AbiParam::Scalar(_, DType::Bool) => ir.context.i8_type().into(),
            AbiParam::Scalar(_, dtype) => ir.dtype(*dtype).into(),
            AbiParam::Length(_) | AbiParam::ReportSlot | AbiParam::Shape(..) | AbiParam::Stride(..) => {
                ir.context.i64_type().into()
            }
            AbiParam::TensorMap(_) => ir.context.ptr_type(AddressSpace::from(space::GENERIC)).into(),
        })
        .collect();
    let function = ir.module.add_function(&symbol(&func.name), ir.context.void_type().fn_type(&types, false), None);
    for (index, param) in (0u32..).zip(abi) {
        if let AbiParam::TensorMap(_) = param {
            mark_grid_constant(function, index, ir.context.i8_type().array_type(MAP_BYTES), MAP_ALIGNMENT);
        }
        if let AbiParam::Buffer(id) = param {
            let fact = match func.param(*id).kind {
                ParamKind::Ptr { mutable: true, .. } => ParameterFact::NoAlias,
                _ => ParameterFact::ReadOnly,
            };
            mark_parameter(function, index, fact);
            let alignment = func.param(*id).facts.divisible_by;
            if alignment > 1 {
                // More than 256 bytes is of no use to any access.
                mark_parameter(function, index, ParameterFact::Aligned(1 << alignment.trailing_zeros().min(8)));
            }
        }
    }
    function
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Gives the parameters' values their registers.
    pub(super) fn bind_parameters(&mut self) {
        for (index, param) in (0u32..).zip(self.abi.clone()) {
            let Some(value) = self.blocks.function.get_nth_param(index) else {
                self.ir.bug("a parameter is missing");
                return;
            };
            let id = match param {
                AbiParam::Buffer(id) | AbiParam::Scalar(id, _) => id,
                AbiParam::TensorMap(map) => map.param,
                AbiParam::ReportSlot => {
                    self.checks.report_slot = Some(self.ir.int(value));
                    continue;
                }
                AbiParam::Length(of) => match self.hidden(&ParamKind::Length(of)) {
                    Some(id) => id,
                    None => continue,
                },
                AbiParam::Shape(of, axis) => match self.hidden(&ParamKind::DescShape { of, axis }) {
                    Some(id) => id,
                    None => continue,
                },
                AbiParam::Stride(of, axis) => match self.hidden(&ParamKind::DescStride { of, axis }) {
                    Some(id) => id,
                    None => continue,
                },
            };
            let register: BasicValueEnum = match param {
                AbiParam::Scalar(_, DType::Bool) => {
                    let byte = self.ir.int(value);
                    self.ir.icmp(IntPredicate::NE, byte, byte.get_type().const_zero()).into()
                }
                _ => value,
            };
            self.set(self.func.param(id).value, vec![register]);
        }
    }

    fn hidden(&self, kind: &ParamKind) -> Option<ParamId> {
        let index = self.func.params.iter().position(|param| param.kind == *kind)?;
        Some(ParamId::new(index as u32))
    }
}

/// The name of a kernel's entry: its own, in the characters that assemblers take.
///
/// Others become their code points (`größe` is `gr$f6$$df$e`), a raw identifier loses its `r#`, and the names of the
/// shared memory and of PTX's own constant are taken.
pub(crate) fn symbol(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let mut symbol = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => symbol.push(c),
            other => symbol.push_str(&format!("${:x}$", u32::from(other))),
        }
    }
    let taken = [SHARED_MEMORY, "WARP_SZ"].contains(&symbol.as_str());
    if symbol.is_empty() || symbol.starts_with(|c: char| c.is_ascii_digit()) || taken {
        symbol.insert_str(0, "kernel$");
    }
    symbol
}

#[cfg(test)]
mod tests {
    use super::symbol;

    #[test]
    fn every_name_becomes_a_symbol() {
        let cases = [
            ("add", "add"),
            ("r#move", "move"),
            ("größe", "gr$f6$$df$e"),
            ("shared_memory", "kernel$shared_memory"),
            ("WARP_SZ", "kernel$WARP_SZ"),
            ("", "kernel$"),
        ];
        for (name, expected) in cases {
            assert_eq!(symbol(name), expected);
        }
    }
}
