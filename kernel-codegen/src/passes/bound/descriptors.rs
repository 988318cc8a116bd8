//! Turns accesses through tensor descriptors into masked accesses through pointers.
//!
//! ```text
//! %a: desc {f32, [64, 32]}              param %a: ptr f32, and as hidden parameters its shape and strides (i64)
//! %x: f32[64, 32] = desc_load %a, %i, %j
//! ```
//! becomes a load of the tile of addresses that [`kernel_core::passes::blocks`] computes, under a mask.
//!
//! The accesses need no checks: the host has proved that every element of the tensor lies in its buffer, and the
//! masks admit no others. What is known of the tensor (the alignment of its address, divisors of strides and rows) is
//! known of the new parameters, so accesses are as wide as they are through pointers.
//!
//! Descriptors that the target's tensor copies can read stay as they are ([`crate::passes::placed::tensor_copies`]).

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::Result;
use kernel_core::ir::{DescOp, Dim, Elem, Func, Op, OpId, ParamId, ParamKind, RegionId, Span, Ty, ValueId};
use kernel_core::passes::blocks::{Blocks, Tensor};

use crate::checks::{Access, AccessKind, Class};

/// Expands the operations of all descriptors but those in `copied`. Returns the accesses of all, in program order.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub(crate) fn expand(func: &mut Func, copied: &BTreeSet<ParamId>) -> Result<Vec<Access>> {
    let mut expansion = Expansion { func, tensors: BTreeMap::new(), out: Vec::new(), accesses: Vec::new() };
    for index in 0..expansion.func.params.len() {
        let id = ParamId::new(index as u32);
        if !copied.contains(&id) {
            expansion.open(id);
        }
    }
    expansion.region(expansion.func.body)?;
    Ok(expansion.accesses)
}

struct Expansion<'f> {
    func: &'f mut Func,
    tensors: BTreeMap<ParamId, Tensor>,
    /// The region that is being written.
    out: Vec<OpId>,
    accesses: Vec<Access>,
}

impl Expansion<'_> {
    /// Makes a descriptor's parameter a pointer, and adds the parameters that say where its tensor is.
    fn open(&mut self, id: ParamId) {
        let param = self.func.param(id).clone();
        let ParamKind::Desc { dt, block, mutable } = &param.kind else { return };
        let block: Option<Vec<i64>> = block.iter().map(Dim::as_const).collect();
        let (Some(dtype), Some(block)) = (dt.known(), block) else { return };
        let facts = param.facts;
        let rank = block.len();
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for axis in 0..rank {
            let kind = ParamKind::DescShape { of: id, axis: axis as u8 };
            let divisor = if axis + 1 == rank { facts.len_divisible_by } else { 0 };
            shape.push(self.hidden(format!("{}_shape{axis}", param.name), kind, divisor));
        }
        for axis in 0..rank - 1 {
            let kind = ParamKind::DescStride { of: id, axis: axis as u8 };
            strides.push(self.hidden(format!("{}_stride{axis}", param.name), kind, facts.stride_divisible_by));
        }
        self.func.params[id.index()].kind = ParamKind::Ptr { dt: *dt, mutable: *mutable };
        for value in &mut self.func.values {
            if value.ty.elem == Elem::Desc(id) {
                value.ty = Ty::ptr(id);
            }
        }
        let pads_with_nan = facts.pads_with_nan && dtype.is_float();
        self.tensors.insert(id, Tensor { first: param.value, dtype, block, pads_with_nan, shape, strides });
    }

    fn hidden(&mut self, name: String, kind: ParamKind, divisor: u32) -> ValueId {
        let id = self.func.add_param(&name, kind, Span::UNKNOWN);
        self.func.params[id.index()].facts.divisible_by = divisor;
        self.func.param(id).value
    }

    fn region(&mut self, region: RegionId) -> Result<()> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let outer = std::mem::take(&mut self.out);
        for id in ops {
            for inner in self.func.op(id).regions.clone() {
                self.region(inner)?;
            }
            match self.target(id) {
                Some((op, tensor)) => Blocks::new(self.func, &mut self.out, "descriptors").expand(id, &op, &tensor)?,
                None => self.out.push(id),
            }
        }
        self.func.regions[region.index()].ops = std::mem::replace(&mut self.out, outer);
        Ok(())
    }

    /// The operation, if it is one of a tensor that has become a pointer. Notes the accesses of all tensors.
    fn target(&mut self, id: OpId) -> Option<(DescOp, Tensor)> {
        let operation = self.func.op(id);
        let Op::Desc(op) = &operation.op else { return None };
        let kind = match op {
            // Binding has replaced it.
            DescOp::MakeDesc { .. } => return None,
            DescOp::DescLoad | DescOp::DescGather => AccessKind::Load,
            DescOp::DescStore | DescOp::DescScatter => AccessKind::Store,
            DescOp::DescReduce { .. } => AccessKind::Atomic,
        };
        let tensor = self.func.ty(*operation.operands.first()?);
        let param = tensor.pointee().or(tensor.descriptor())?;
        self.accesses.push(Access { span: operation.span, kind, param, class: Class::Described });
        Some((op.clone(), self.tensors.get(&param)?.clone()))
    }
}
