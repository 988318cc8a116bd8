//! Appends operations to a region, typed by [`super::infer`].

use super::func::{Def, Func};
use super::ids::{OpId, RegionId, ValueId};
use super::infer::{TypeError, result_types};
use super::ops::{FloatFlags, Op, Operation};
use super::span::Span;
use super::types::Ty;

/// Builds operations at the end of a region.
///
/// ```
/// use kernel_core::ir::{Builder, DType, Func, Op, Safety, Span};
/// let mut func = Func::new("demo", "demo.rs", Safety::Safe);
/// let body = func.body;
/// let mut b = Builder::new(&mut func, body);
/// let two = b.one(Op::i32(2), &[], Span::UNKNOWN)?;
/// let four = b.one(Op::binary(kernel_core::ir::BinaryOp::Add), &[two, two], Span::UNKNOWN)?;
/// assert_eq!(b.func.ty(four).dtype(), Some(DType::I32));
/// # Ok::<(), kernel_core::ir::TypeError>(())
/// ```
pub struct Builder<'f> {
    /// The kernel being built.
    pub func: &'f mut Func,
    /// The region that grows.
    pub region: RegionId,
    /// Flags given to the operations that follow.
    pub flags: FloatFlags,
}

impl<'f> Builder<'f> {
    /// A builder at the end of `region`.
    pub fn new(func: &'f mut Func, region: RegionId) -> Builder<'f> {
        Builder { func, region, flags: FloatFlags::default() }
    }

    /// Appends an operation and returns it; its results have the types that the type rules give.
    ///
    /// # Errors
    /// If the operands or regions do not fit the operation.
    pub fn op(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        regions: &[RegionId],
        span: Span,
    ) -> Result<OpId, TypeError> {
        let id = self.func.typed_op(op.into(), operands, regions, self.flags, span)?;
        self.func.regions[self.region.index()].ops.push(id);
        Ok(id)
    }

    /// Appends an operation without regions that has one result.
    ///
    /// # Errors
    /// If the operands do not fit the operation, or it has not exactly one result.
    pub fn one(&mut self, op: impl Into<Op>, operands: &[ValueId], span: Span) -> Result<ValueId, TypeError> {
        let id = self.op(op, operands, &[], span)?;
        match self.func.op(id).results.as_slice() {
            [value] => Ok(*value),
            _ => Err(TypeError { message: "expected an operation with one result".to_string() }),
        }
    }
}

impl Func {
    /// Adds an operation to the arena, in no region yet; its results have the types that the type rules give.
    pub(crate) fn typed_op(
        &mut self,
        op: Op,
        operands: &[ValueId],
        regions: &[RegionId],
        flags: FloatFlags,
        span: Span,
    ) -> Result<OpId, TypeError> {
        let tys = result_types(self, &op, operands, regions)?;
        Ok(self.new_op(op, operands.to_vec(), tys, regions.to_vec(), flags, span))
    }

    /// Adds an operation with results of these types to the arena, in no region yet. For copies of operations: who
    /// writes one has its types inferred.
    pub(crate) fn new_op(
        &mut self,
        op: Op,
        operands: Vec<ValueId>,
        result_tys: Vec<Ty>,
        regions: Vec<RegionId>,
        flags: FloatFlags,
        span: Span,
    ) -> OpId {
        let id = OpId::new(self.ops.len() as u32);
        let results = (0u32..).zip(result_tys).map(|(i, ty)| self.new_value(ty, Def::Result(id, i))).collect();
        self.ops.push(Operation { op, operands, results, regions, flags, shared: Vec::new(), span });
        id
    }
}
