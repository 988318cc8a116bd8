//! Turns accesses through tensor descriptors into masked accesses through pointers.
//!
//! ```text
//! %a: desc {f32, [64, 32]}              param %a: ptr f32, and as hidden parameters its shape and strides (i64)
//! %x: f32[64, 32] = desc_load %a, %i, %j
//! ```
//! becomes, per dimension, the numbers of the block's elements, their distance from the tensor's first element, and
//! whether they are inside:
//! ```text
//! first = a + i * stride0 + j                            a scalar, 64 bits wide
//! rows  = i + arange(0, 64);  inside0 = 0 <= rows < shape0
//! cols  = j + arange(0, 32);  inside1 = 0 <= cols < shape1
//! x = load (first + arange(0, 64) * stride0 + arange(0, 32)), inside0 & inside1
//! ```
//!
//! What the block's coordinates change is a scalar, so that in a loop only that scalar and the comparisons are computed
//! again. Coordinates are i32 and sizes below 2^31: a number that wraps is negative, and so outside as it should be.
//!
//! The accesses need no checks: the host has proved that every element of the tensor lies in its buffer, and the
//! masks admit no others. What is known of the tensor (the alignment of its address, divisors of strides and rows) is
//! known of the new parameters, so accesses are as wide as they are through pointers.
//!
//! Descriptors that the target's tensor copies can read stay as they are ([`crate::passes::placed::tensor_copies`]).

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CreateOp, DType, DescOp, Dim, Elem, EvictionPolicy, Func, Literal,
    MemOrder, MemScope, MemoryOp, Op, OpId, ParamId, ParamKind, RegionId, ShapeOp, Span, Ty, ValueId,
};

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

/// A tensor whose descriptor has become a pointer.
#[derive(Clone)]
struct Tensor {
    /// The address of its first element.
    first: ValueId,
    dtype: DType,
    block: Vec<i64>,
    pads_with_nan: bool,
    /// Hidden parameters, i64: the size of each dimension, and the strides of all but the last.
    shape: Vec<ValueId>,
    strides: Vec<ValueId>,
}

/// The elements of one dimension of a block.
#[derive(Clone, Copy)]
struct Along {
    /// Their numbers in the tensor, an i32 scalar or tile.
    index: ValueId,
    /// Their distance from the first element of the block, an i64 tile; `None` for a single one.
    offset: Option<ValueId>,
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
                Some((op, tensor)) => self.operation(id, &op, &tensor)?,
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
            DescOp::DescLoad | DescOp::DescGather => AccessKind::Load,
            DescOp::DescStore | DescOp::DescScatter => AccessKind::Store,
            DescOp::DescReduce { .. } => AccessKind::Atomic,
        };
        let tensor = self.func.ty(*operation.operands.first()?);
        let param = tensor.pointee().or(tensor.descriptor())?;
        self.accesses.push(Access { span: operation.span, kind, param, class: Class::Described });
        Some((op.clone(), self.tensors.get(&param)?.clone()))
    }

    fn operation(&mut self, id: OpId, op: &DescOp, tensor: &Tensor) -> Result<()> {
        let operation = self.func.op(id).clone();
        let (span, operands) = (operation.span, operation.operands.as_slice());
        match op {
            DescOp::DescLoad => {
                let (pointers, mask) = self.block(tensor, &operands[1..], span)?;
                self.load(id, tensor, pointers, mask, span)
            }
            DescOp::DescGather => {
                let (pointers, mask) = self.rows(tensor, operands[1], operands[2], span)?;
                self.load(id, tensor, pointers, mask, span)
            }
            DescOp::DescStore => {
                let (pointers, mask) = self.block(tensor, &operands[2..], span)?;
                self.store(pointers, operands[1], mask, span)
            }
            DescOp::DescScatter => {
                let (pointers, mask) = self.rows(tensor, operands[2], operands[3], span)?;
                self.store(pointers, operands[1], mask, span)
            }
            DescOp::DescReduce { op } => {
                let (pointers, mask) = self.block(tensor, &operands[2..], span)?;
                self.combine(*op, pointers, operands[1], mask, span)
            }
        }
    }

    /// The addresses of the block at these coordinates, and which of them are in the tensor.
    fn block(&mut self, tensor: &Tensor, coordinates: &[ValueId], span: Span) -> Result<(ValueId, ValueId)> {
        let mut first = tensor.first;
        let mut dims = Vec::new();
        for (axis, &coordinate) in coordinates.iter().enumerate() {
            first = self.moved(first, coordinate, tensor.strides.get(axis).copied(), span)?;
            let size = tensor.block[axis];
            if size == 1 {
                dims.push(Along { index: coordinate, offset: None });
                continue;
            }
            let lanes = self.lanes(size, span)?;
            let start = self.splat(coordinate, &[size], span)?;
            let index = self.binary(BinaryOp::Add, start, lanes, span)?;
            let offset = self.offsets(lanes, size, tensor.strides.get(axis).copied(), span)?;
            dims.push(Along { index, offset: Some(offset) });
        }
        self.addresses(tensor, &tensor.block, first, &dims, span)
    }

    /// The same for some rows of a matrix, from a column on.
    fn rows(&mut self, tensor: &Tensor, rows: ValueId, column: ValueId, span: Span) -> Result<(ValueId, ValueId)> {
        let count = self.func.ty(rows).shape.first().and_then(Dim::as_const).unwrap_or(1);
        let columns = tensor.block.last().copied().unwrap_or(1);
        let first = self.moved(tensor.first, column, None, span)?;
        let row_offsets = self.offsets(rows, count, tensor.strides.first().copied(), span)?;
        let mut dims = vec![Along { index: rows, offset: Some(row_offsets) }];
        if columns == 1 {
            dims.push(Along { index: column, offset: None });
        } else {
            let lanes = self.lanes(columns, span)?;
            let start = self.splat(column, &[columns], span)?;
            let index = self.binary(BinaryOp::Add, start, lanes, span)?;
            let offset = self.offsets(lanes, columns, None, span)?;
            dims.push(Along { index, offset: Some(offset) });
        }
        self.addresses(tensor, &[count, columns], first, &dims, span)
    }

    /// A scalar pointer moved along a dimension.
    fn moved(&mut self, pointer: ValueId, by: ValueId, stride: Option<ValueId>, span: Span) -> Result<ValueId> {
        let wide = self.one(Op::cast(DType::I64), &[by], span)?;
        let distance = match stride {
            Some(stride) => self.binary(BinaryOp::Mul, wide, stride, span)?,
            None => wide,
        };
        self.one(MemoryOp::AddPtr, &[pointer, distance], span)
    }

    /// Distances (i64) of elements that are numbered along a dimension.
    fn offsets(&mut self, numbers: ValueId, size: i64, stride: Option<ValueId>, span: Span) -> Result<ValueId> {
        let wide = self.one(Op::cast(DType::I64), &[numbers], span)?;
        match stride {
            Some(stride) => {
                let strides = self.splat(stride, &[size], span)?;
                self.binary(BinaryOp::Mul, wide, strides, span)
            }
            None => Ok(wide),
        }
    }

    /// Addresses and masks in the shape of the block, from those along each dimension.
    fn addresses(
        &mut self,
        tensor: &Tensor,
        shape: &[i64],
        first: ValueId,
        dims: &[Along],
        span: Span,
    ) -> Result<(ValueId, ValueId)> {
        let mut pointers = self.splat(first, shape, span)?;
        let mut mask: Option<ValueId> = None;
        for (axis, along) in dims.iter().enumerate() {
            let inside = self.inside(along.index, tensor.shape[axis], span)?;
            let inside = self.spread(inside, axis, shape, span)?;
            mask = Some(match mask {
                Some(mask) => self.binary(BinaryOp::And, mask, inside, span)?,
                None => inside,
            });
            if let Some(offset) = along.offset {
                let offset = self.spread(offset, axis, shape, span)?;
                pointers = self.one(MemoryOp::AddPtr, &[pointers, offset], span)?;
            }
        }
        let mask = match mask {
            Some(mask) => mask,
            None => {
                let yes = self.one(Op::constant(Literal::Bool(true), DType::Bool), &[], span)?;
                self.splat(yes, shape, span)?
            }
        };
        Ok((pointers, mask))
    }

    /// `0 <= index < size`
    fn inside(&mut self, index: ValueId, size: ValueId, span: Span) -> Result<ValueId> {
        let shape: Vec<i64> = self.func.ty(index).dims().unwrap_or_default();
        let zero = self.one(Op::i32(0), &[], span)?;
        let zero = self.splat(zero, &shape, span)?;
        let size = self.one(Op::cast(DType::I32), &[size], span)?;
        let size = self.splat(size, &shape, span)?;
        let low = self.one(Op::compare(CmpOp::Ge), &[index, zero], span)?;
        let high = self.one(Op::compare(CmpOp::Lt), &[index, size], span)?;
        self.binary(BinaryOp::And, low, high, span)
    }

    /// A scalar, or a tile along `axis`, repeated in `shape`.
    fn spread(&mut self, value: ValueId, axis: usize, shape: &[i64], span: Span) -> Result<ValueId> {
        if self.func.ty(value).is_scalar() {
            return self.splat(value, shape, span);
        }
        let mut value = value;
        for other in 0..shape.len() {
            if other != axis {
                value = self.one(ShapeOp::ExpandDims { axis: other as u8 }, &[value], span)?;
            }
        }
        if self.func.ty(value).dims().as_deref() == Some(shape) {
            return Ok(value);
        }
        self.one(ShapeOp::Broadcast { shape: dims(shape) }, &[value], span)
    }

    fn load(&mut self, id: OpId, tensor: &Tensor, pointers: ValueId, mask: ValueId, span: Span) -> Result<()> {
        let mut cursor = self.cursor(span);
        let mut operands = vec![pointers, mask];
        if tensor.pads_with_nan {
            let nan = cursor.constant(Literal::float(f64::NAN), tensor.dtype)?;
            operands.push(cursor.splat_like(nan, pointers)?);
        }
        // The operation itself becomes the load, so that its result stays.
        cursor.turn(id, MemoryOp::Load { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal }, &operands)
    }

    fn store(&mut self, pointers: ValueId, value: ValueId, mask: ValueId, span: Span) -> Result<()> {
        let op = MemoryOp::Store { cache: CacheModifier::Default, eviction: EvictionPolicy::Normal };
        self.cursor(span).effect(op, &[pointers, value, mask]).map(|_| ())
    }

    fn combine(&mut self, op: AtomicOp, pointers: ValueId, value: ValueId, mask: ValueId, span: Span) -> Result<()> {
        let op = MemoryOp::AtomicRmw { op, order: MemOrder::Relaxed, scope: MemScope::Device };
        self.cursor(span).op(op, &[pointers, value, mask], &[]).map(|_| ())
    }

    fn cursor(&mut self, span: Span) -> Cursor<'_> {
        Cursor::new(&mut *self.func, &mut self.out, "descriptors").at(span)
    }

    fn one(&mut self, op: impl Into<Op>, operands: &[ValueId], span: Span) -> Result<ValueId> {
        self.cursor(span).value(op, operands)
    }

    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId, span: Span) -> Result<ValueId> {
        self.cursor(span).binary(op, a, b)
    }

    /// `0..size`
    fn lanes(&mut self, size: i64, span: Span) -> Result<ValueId> {
        self.one(CreateOp::Arange { lo: Dim::Const(0), hi: Dim::Const(size) }, &[], span)
    }

    /// A scalar repeated; itself if the shape is that of a scalar.
    fn splat(&mut self, scalar: ValueId, shape: &[i64], span: Span) -> Result<ValueId> {
        self.cursor(span).splat(scalar, dims(shape))
    }
}

fn dims(shape: &[i64]) -> Vec<Dim> {
    shape.iter().map(|&size| Dim::Const(size)).collect()
}
