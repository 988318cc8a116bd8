//! Blocks of tensors as masked accesses through pointers: what descriptors are where nothing copies their blocks.
//!
//! ```text
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

use crate::edit::{Cursor, Result};
use crate::ir::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, CreateOp, DType, DescOp, Dim, EvictionPolicy, Func, Literal, MemOrder,
    MemScope, MemoryOp, Op, OpId, ShapeOp, Span, ValueId,
};

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The address of its first element.
    pub first: ValueId,
    /// Its dtype.
    pub dtype: DType,
    /// The shape of its blocks.
    pub block: Vec<i64>,
    /// Whether elements outside read as NaN.
    pub pads_with_nan: bool,
    /// The size of each dimension, an i32 or i64 scalar that fits i32.
    pub shape: Vec<ValueId>,
    /// The distance of neighbours along each dimension, an i64 scalar; none of a last one where that is 1.
    pub strides: Vec<ValueId>,
}

/// The elements of one dimension of a block.
#[derive(Clone, Copy)]
struct Along {
    /// Their numbers in the tensor, an i32 scalar or tile.
    index: ValueId,
    /// Their distance from the first element of the block, an i64 tile; `None` for a single one.
    offset: Option<ValueId>,
}

/// Appends accesses to a list of operations.
pub struct Blocks<'b> {
    func: &'b mut Func,
    out: &'b mut Vec<OpId>,
    pass: &'static str,
}

impl<'b> Blocks<'b> {
    /// At the end of a list, for a pass of this name.
    pub fn new(func: &'b mut Func, out: &'b mut Vec<OpId>, pass: &'static str) -> Blocks<'b> {
        Blocks { func, out, pass }
    }

    /// Appends what an operation on a block of the tensor does.
    ///
    /// # Errors
    /// If an operation that is put in breaks a type rule, which is a mistake of the pass.
    pub fn expand(&mut self, id: OpId, op: &DescOp, tensor: &Tensor) -> Result<()> {
        let operation = self.func.op(id).clone();
        let (span, operands) = (operation.span, operation.operands.as_slice());
        match op {
            // What it makes is the tensor.
            DescOp::MakeDesc { .. } => Ok(()),
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
        let first = self.moved(tensor.first, column, tensor.strides.get(1).copied(), span)?;
        let row_offsets = self.offsets(rows, count, tensor.strides.first().copied(), span)?;
        let mut dims = vec![Along { index: rows, offset: Some(row_offsets) }];
        if columns == 1 {
            dims.push(Along { index: column, offset: None });
        } else {
            let lanes = self.lanes(columns, span)?;
            let start = self.splat(column, &[columns], span)?;
            let index = self.binary(BinaryOp::Add, start, lanes, span)?;
            let offset = self.offsets(lanes, columns, tensor.strides.get(1).copied(), span)?;
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
        let size = match self.func.ty(size).dtype() {
            Some(DType::I32) => size,
            _ => self.one(Op::cast(DType::I32), &[size], span)?,
        };
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
        Cursor::new(&mut *self.func, &mut *self.out, self.pass).at(span)
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
