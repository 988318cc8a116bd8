//! Operations without regions.

use crate::ir::{
    AtomicOp, BinaryOp, CreateOp, DType, ElementwiseOp, FenceKind, GpuOp, Literal, MemoryOp, Op, OpId, Operation,
    ShapeOp, SharedRange, ValueId,
};

use crate::ir::hint::broken;
use crate::num::to_bits;

use super::super::cast::cast;
use super::super::elementwise::{add_ptr, binary, select};
use super::super::fault::Access;
use super::super::flush::Lanes;
use super::super::instructions::{Atomic, AtomicKind, CheckBounds, Hint, Inst, Load, Step, Store, Strides, Symbolic};
use super::super::lanes::{Bits, Fn2};
use super::super::registers::{Holders, Lane, Part, Parts, RegId};
use super::super::round::{f64_to_bf16, f64_to_f16};
use super::{Compiler, Result, unsupported};

impl Compiler<'_> {
    pub(super) fn op(&mut self, id: OpId, operation: &Operation) -> Result<()> {
        if !operation.shared.is_empty() && !operation.op.allocates_shared() {
            let step = |range: &SharedRange| Step {
                bytes: self.shared_base + range.start as usize..self.shared_base + range.end as usize,
                scope: range.scope,
                meets: range.meets,
            };
            let steps = operation.shared.iter().map(step).collect();
            self.emit(Inst::Exchange { steps });
        }
        match &operation.op {
            Op::Create(op) => self.create(op, operation),
            Op::Elementwise(op) => self.elementwise(op, operation),
            Op::Shape(op) => self.shape(op, operation),
            Op::Tile(op) => self.tile(op, operation),
            Op::Memory(op) => self.memory(op, operation),
            Op::Dot(op) => self.dot(op, operation),
            Op::Desc(op) => self.desc(op, operation),
            Op::Control(op) => self.control(op, id, operation),
            Op::Gpu(op) => self.gpu(op, operation),
        }
    }

    /// The register of operand number `index`.
    pub(super) fn operand(&self, operation: &Operation, index: usize) -> Result<RegId> {
        match operation.operands.get(index) {
            Some(&value) => self.reg(value),
            None => unsupported(format!("`{}` lacks an operand", operation.op.mnemonic()), self.span),
        }
    }

    pub(super) fn optional(&self, operation: &Operation, index: usize) -> Result<Option<RegId>> {
        operation.operands.get(index).map(|&value| self.reg(value)).transpose()
    }

    /// A register for the operation's only result.
    pub(super) fn result(&mut self, operation: &Operation) -> Result<RegId> {
        match operation.results.as_slice() {
            [value] => self.define(*value),
            _ => unsupported(format!("`{}` has one result", operation.op.mnemonic()), self.span),
        }
    }

    pub(super) fn dtype(&self, reg: RegId) -> Result<DType> {
        match self.info(reg).lane {
            Lane::Data(dtype) => Ok(dtype),
            Lane::Pointer | Lane::Handle => unsupported("an operation on numbers got something else", self.span),
        }
    }

    fn known<T>(&self, f: Option<T>) -> Result<T> {
        match f {
            Some(f) => Ok(f),
            None => unsupported("an operation is not defined for this dtype", self.span),
        }
    }

    fn create(&mut self, op: &CreateOp, operation: &Operation) -> Result<()> {
        match op {
            CreateOp::Const { value, .. } => {
                let out = self.result(operation)?;
                let bits = literal(*value, self.dtype(out)?);
                self.emit(Inst::Const { out, bits });
            }
            CreateOp::ProgramId { axis } => {
                let out = self.result(operation)?;
                self.emit(Inst::ProgramId { out, axis: *axis });
            }
            CreateOp::NumPrograms { axis } => {
                let out = self.result(operation)?;
                self.emit(Inst::NumPrograms { out, axis: *axis });
            }
            CreateOp::Counter { which } => {
                let out = self.result(operation)?;
                self.emit(Inst::Counter { out, which: *which });
            }
            CreateOp::Arange { lo, hi } => {
                let bounds = (lo.as_const(), hi.as_const());
                let (Some(lo), Some(hi)) = bounds else { return unsupported("unknown bounds of arange", self.span) };
                // The end is no number of the range.
                if i32::try_from(lo).is_err() || i32::try_from(hi.saturating_sub(1)).is_err() {
                    return unsupported("the bounds of arange exceed i32", self.span);
                }
                let out = self.result(operation)?;
                self.emit(Inst::Arange { out, lo });
            }
            CreateOp::Splat { .. } => {
                let scalar = self.operand(operation, 0)?;
                let out = self.result(operation)?;
                self.emit(Inst::Splat { out, scalar });
            }
            CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } => {
                return unsupported(format!("`{}` remains: the kernel is not bound", op.mnemonic()), self.span);
            }
        }
        Ok(())
    }

    fn elementwise(&mut self, op: &ElementwiseOp, operation: &Operation) -> Result<()> {
        let a = self.operand(operation, 0)?;
        let b = self.optional(operation, 1)?.unwrap_or(a);
        let c = self.optional(operation, 2)?.unwrap_or(a);
        let lane = self.info(a).lane;
        let out = self.result(operation)?;
        let lanes = Lanes(self.func.subnormals);
        let inst = match op {
            ElementwiseOp::Unary { op } => Inst::Unary { f: self.known(lanes.unary(*op, self.dtype(a)?))?, a, out },
            ElementwiseOp::Binary { op } => {
                let f = self.known(lanes.binary(*op, self.dtype(a)?))?;
                Inst::Binary { f, symbolic: symbolic(*op), a, b, out }
            }
            ElementwiseOp::FloatInt { op } => {
                let f = self.known(lanes.float_int(*op, self.dtype(a)?))?;
                Inst::Binary { f, symbolic: Symbolic::Opaque, a, b, out }
            }
            ElementwiseOp::Compare { op } => Inst::Compare { f: lanes.compare(*op, lane.dtype()), op: *op, a, b, out },
            ElementwiseOp::Select => {
                let f = select(self.info(out).lane.bytes());
                Inst::Select { f, condition: a, a: b, b: c, out }
            }
            ElementwiseOp::Fma => Inst::Fma { f: self.known(lanes.fma(self.dtype(a)?))?, a, b, c, out },
            // A conversion to its own dtype keeps what others saturate.
            ElementwiseOp::Cast { .. } if self.dtype(a)? == self.dtype(out)? => Inst::CopyLanes { a, out },
            ElementwiseOp::Cast { .. } => Inst::Cast { f: lanes.cast(self.dtype(a)?, self.dtype(out)?), a, out },
            ElementwiseOp::Bitcast { .. } => Inst::CopyLanes { a, out },
        };
        self.emit(inst);
        Ok(())
    }

    fn shape(&mut self, op: &ShapeOp, operation: &Operation) -> Result<()> {
        let a = self.operand(operation, 0)?;
        let out = self.result(operation)?;
        let inst = match op {
            ShapeOp::ExpandDims { axis } => Inst::ExpandDims { a, out, axis: *axis },
            ShapeOp::Broadcast { .. } => Inst::Broadcast { a, out, strides: self.broadcast_strides(a, out) },
            ShapeOp::Reshape { .. } => Inst::Reshape { a, out },
            ShapeOp::Permute { perm } => {
                let from = row_major(&self.info(a).dims);
                let strides = perm.iter().map(|&p| from[usize::from(p)]).collect();
                Inst::Permute { a, out, perm: perm.clone().into(), strides }
            }
            ShapeOp::Join => {
                let from = [a, self.operand(operation, 1)?].map(|tile| Part { tile, first: 0 });
                Inst::Take { out, from: from.into(), strides: row_major(&self.info(a).dims).into_iter().collect() }
            }
            ShapeOp::Half { upper } => {
                let mut strides = row_major(&self.info(a).dims);
                strides.pop();
                Inst::Take { out, from: [Part { tile: a, first: usize::from(*upper) }].into(), strides: strides.into() }
            }
            ShapeOp::Hint { kind, n, multiple, axis, believed: _ } => {
                let number = |dim: &crate::ir::Dim| dim.as_const().map_or(1, |value| value.max(1) as usize);
                let message = broken(*kind, n, multiple).into();
                let (n, multiple) = (number(n), number(multiple));
                Inst::Hint(Box::new(Hint { kind: *kind, n, multiple, axis: usize::from(*axis), a, out, message }))
            }
            ShapeOp::Slice { start, .. } => {
                let from = row_major(&self.info(a).dims);
                let start = start.iter().map(|at| at.as_const().and_then(|at| usize::try_from(at).ok()).unwrap_or(0));
                let first = start.zip(&from).map(|(at, (_, stride))| at * stride).sum();
                let strides =
                    self.info(out).dims.iter().zip(&from).map(|(&size, &(_, stride))| (size, stride)).collect();
                Inst::Take { out, from: [Part { tile: a, first }].into(), strides }
            }
            ShapeOp::ConvertLayout => Inst::Move { a, out },
        };
        self.emit(inst);
        Ok(())
    }

    fn broadcast_strides(&self, a: RegId, out: RegId) -> Strides {
        let from = row_major(&self.info(a).dims);
        let to = self.info(out).dims.iter();
        to.zip(&from).map(|(&to, &(dim, stride))| (to, if dim == 1 { 0 } else { stride })).collect()
    }

    fn memory(&mut self, op: &MemoryOp, operation: &Operation) -> Result<()> {
        match op {
            MemoryOp::AddPtr => {
                let (a, b) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
                let f = self.known(add_ptr(self.dtype(b)?))?;
                let out = self.result(operation)?;
                self.emit(Inst::Binary { f, symbolic: Symbolic::Add, a, b, out });
            }
            MemoryOp::Load { .. } => {
                let out = self.result(operation)?;
                let dtype = self.dtype(out)?;
                let load = self.load(operation, 0, dtype, out)?;
                self.emit(Inst::Load(Box::new(load)));
            }
            MemoryOp::Store { .. } => {
                let value = self.operand(operation, 1)?;
                let store = Store {
                    param: self.pointee(operation, 0)?,
                    dtype: self.dtype(value)?,
                    pointer: self.operand(operation, 0)?,
                    value,
                    mask: self.optional(operation, 2)?,
                };
                self.emit(Inst::Store(Box::new(store)));
            }
            MemoryOp::AtomicRmw { op, .. } => {
                let dtype = self.dtype(self.operand(operation, 1)?)?;
                let kind = match self.combination(*op, dtype)? {
                    Some(f) => AtomicKind::Combine(f),
                    None => AtomicKind::Exchange,
                };
                let (value, mask) = (self.operand(operation, 1)?, self.optional(operation, 2)?);
                self.atomic(operation, kind, value, mask)?;
            }
            MemoryOp::AtomicCas { .. } => {
                let kind = AtomicKind::CompareExchange(self.operand(operation, 1)?);
                let value = self.operand(operation, 2)?;
                let mask = self.optional(operation, 3)?;
                self.atomic(operation, kind, value, mask)?;
            }
            MemoryOp::CheckBounds { param, store } => {
                let offsets = self.operand(operation, 0)?;
                let room = self.room(self.info(offsets).n, 8);
                let check = CheckBounds {
                    param: crate::ir::ParamId::new(*param),
                    access: if *store { Access::Store } else { Access::Load },
                    widen: cast(self.dtype(offsets)?, DType::I64),
                    offsets,
                    len: self.operand(operation, 1)?,
                    mask: self.optional(operation, 2)?,
                    out: self.result(operation)?,
                    room: room.offset,
                };
                self.emit(Inst::CheckBounds(Box::new(check)));
                self.storage.free(room);
            }
        }
        Ok(())
    }

    /// What an atomic operation does to an element of memory; `None` if it exchanges it.
    pub(super) fn combination(&self, op: AtomicOp, dtype: DType) -> Result<Option<Fn2>> {
        let op = match op {
            AtomicOp::Add => BinaryOp::Add,
            AtomicOp::Min => BinaryOp::Min,
            AtomicOp::Max => BinaryOp::Max,
            AtomicOp::And => BinaryOp::And,
            AtomicOp::Or => BinaryOp::Or,
            AtomicOp::Xor => BinaryOp::Xor,
            AtomicOp::Exchange => return Ok(None),
        };
        self.known(binary(op, dtype)).map(Some)
    }

    fn pointee(&self, operation: &Operation, index: usize) -> Result<crate::ir::ParamId> {
        let pointer: Option<&ValueId> = operation.operands.get(index);
        match pointer.and_then(|&v| self.func.ty(v).pointee()) {
            Some(param) => Ok(param),
            None => unsupported("an access needs a pointer", self.span),
        }
    }

    /// A load from the pointer, mask and `other` that begin at operand number `first`.
    fn load(&self, operation: &Operation, first: usize, dtype: DType, out: RegId) -> Result<Load> {
        Ok(Load {
            param: self.pointee(operation, first)?,
            dtype,
            pointer: self.operand(operation, first)?,
            mask: self.optional(operation, first + 1)?,
            other: self.optional(operation, first + 2)?,
            out,
        })
    }

    fn atomic(&mut self, operation: &Operation, kind: AtomicKind, value: RegId, mask: Option<RegId>) -> Result<()> {
        let atomic = Atomic {
            param: self.pointee(operation, 0)?,
            dtype: self.dtype(value)?,
            kind,
            pointer: self.operand(operation, 0)?,
            value,
            mask,
            out: self.result(operation)?,
        };
        self.emit(Inst::Atomic(Box::new(atomic)));
        Ok(())
    }

    fn shared_alloc(&mut self, operation: &Operation) -> Result<()> {
        let out = self.result(operation)?;
        let bytes = self.shared_bytes(operation.results[0])?;
        // Shared memory stays where it is for the whole program, loops included: no tile had this room before, and it
        // is never given back. Where its place is known, others may have it before and after.
        let offset = match operation.shared.first() {
            Some(range) if bytes <= range.bytes() as usize => self.shared_base + range.start as usize,
            Some(_) => return unsupported("an allocation that is larger than its place", self.span),
            None => self.storage.alloc_new(Some(bytes)).offset,
        };
        self.emit(Inst::SharedAlloc { out, offset, bytes });
        Ok(())
    }

    fn shared_index(&mut self, operation: &Operation) -> Result<()> {
        let (view, index) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
        let out = self.result(operation)?;
        let outermost = self.func.ty(operation.operands[0]).shape.first().and_then(crate::ir::Dim::as_const);
        let count = outermost.and_then(|d| usize::try_from(d).ok()).unwrap_or(0);
        let bytes = self.shared_bytes(operation.results[0])?;
        let element = self.func.ty(operation.results[0]).dtype().map_or(1, |d| d.bytes() as usize);
        self.emit(Inst::SharedIndex { view, index, out, count, bytes, element });
        Ok(())
    }

    fn gpu(&mut self, op: &GpuOp, operation: &Operation) -> Result<()> {
        match op {
            GpuOp::SharedAlloc { .. } => self.shared_alloc(operation)?,
            GpuOp::SharedIndex => self.shared_index(operation)?,
            GpuOp::SharedPermute { perm } => {
                let view = self.operand(operation, 0)?;
                let out = self.result(operation)?;
                let dims = self.dims(self.func.ty(operation.operands[0]))?;
                self.emit(Inst::SharedPermute { view, out, dims, perm: perm.as_slice().into() });
            }
            GpuOp::SharedLoad => {
                let view = self.operand(operation, 0)?;
                let out = self.result(operation)?;
                let holders = self.holders(operation.results[0]);
                self.emit(Inst::SharedLoad { view, out, holders });
            }
            GpuOp::SharedStore => {
                let (view, value) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
                let holders = self.holders(operation.operands[1]);
                self.emit(Inst::SharedStore { view, value, holders });
            }
            GpuOp::AsyncCopy => self.async_copy(operation)?,
            GpuOp::AsyncCommit => {
                let token = self.result(operation)?;
                self.emit(Inst::AsyncCommit { token });
            }
            GpuOp::AsyncWait { pending } => {
                let token = self.result(operation)?;
                self.emit(Inst::AsyncWait { token, pending: *pending });
            }
            // A program is one thread here, so its accesses are in order as they are, but for who checks the order.
            GpuOp::Barrier => {
                self.emit(Inst::Barrier);
            }
            GpuOp::WarpgroupBarrier => {
                self.emit(Inst::WarpgroupBarrier);
            }
            GpuOp::Fence { kind: FenceKind::ProxyAsync } => {
                self.emit(Inst::ProxyFence);
            }
            GpuOp::TurnBegin => {
                self.emit(Inst::TurnBegin);
            }
            GpuOp::TurnEnd => {
                self.emit(Inst::TurnEnd);
            }
            GpuOp::Fence { kind: FenceKind::BarrierInit } => {}
            GpuOp::MbarrierAlloc { slots, count } => {
                let out = self.result(operation)?;
                self.emit(Inst::MbarrierAlloc { out, slots: *slots, count: *count });
            }
            GpuOp::MbarrierArrive => {
                let (barrier, slot) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
                let bytes = self.optional(operation, 2)?;
                self.emit(Inst::MbarrierArrive { barrier, slot, bytes });
            }
            GpuOp::MbarrierWait => {
                let (barrier, slot) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
                let phase = self.operand(operation, 2)?;
                self.emit(Inst::MbarrierWait { barrier, slot, phase });
            }
            GpuOp::Wgmma { precision, part } => self.wgmma(*precision, *part, operation)?,
            GpuOp::WgmmaWait { pending } => self.wgmma_wait(*pending, operation)?,
            GpuOp::TmaLoad => self.tma_load(operation)?,
            GpuOp::TmaStore { reduce, parts } => self.tma_store(*reduce, parts, operation)?,
            GpuOp::TmaStoreWait { pending } => {
                self.emit(Inst::TmaStoreWait { pending: *pending });
            }
            GpuOp::WarpGroups { .. } => self.warp_groups(operation)?,
            // Nothing to wait for: asynchronous work is as late as its wait allows anyway, and races are found by what
            // orders accesses, not by when they happen.
            // Launches follow each other.
            GpuOp::Delay { .. } | GpuOp::LaunchDependents | GpuOp::GridWait => {}
        }
        Ok(())
    }

    fn async_copy(&mut self, operation: &Operation) -> Result<()> {
        let view = self.operand(operation, 0)?;
        let token = self.result(operation)?;
        // What is in flight has the type of the tile in the view.
        let ty = self.func.ty(operation.operands[0]);
        let Some(dtype) = ty.dtype() else { return unsupported("an unknown dtype", self.span) };
        let data = self.new_reg(&ty.with_dt(dtype))?;
        let load = self.load(operation, 1, dtype, data)?;
        let layout = self.func.value(operation.operands[1]).layout;
        self.emit(Inst::AsyncCopy { view, load: Box::new(load), token, layout });
        self.free(data);
        Ok(())
    }

    /// Which threads hold the elements of a tile.
    fn holders(&self, tile: ValueId) -> Holders {
        let layout = self.func.value(tile).layout;
        let parts = layout.and_then(|id| self.func.layouts[id.index()].warp_group_parts());
        Holders { layout, parts: Parts::new(parts.as_deref()) }
    }

    /// The size of a view of shared memory.
    fn shared_bytes(&self, view: ValueId) -> Result<usize> {
        let ty = self.func.ty(view);
        let n = self.dims(ty)?.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bytes = ty.dtype().map_or(1, |d| d.bytes() as usize);
        match n.and_then(|n| n.checked_mul(bytes)) {
            Some(bytes) => Ok(bytes),
            None => unsupported("shared memory exceeds the address space", self.span),
        }
    }
}

fn symbolic(op: BinaryOp) -> Symbolic {
    match op {
        BinaryOp::Add => Symbolic::Add,
        BinaryOp::Sub => Symbolic::Sub,
        BinaryOp::Mul => Symbolic::Mul,
        BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => Symbolic::Opaque,
    }
}

/// Sizes and row-major strides.
fn row_major(dims: &[usize]) -> Vec<(usize, usize)> {
    let mut stride = 1usize;
    let mut strides: Vec<(usize, usize)> = dims
        .iter()
        .rev()
        .map(|&dim| {
            let entry = (dim, stride);
            stride = stride.saturating_mul(dim);
            entry
        })
        .collect();
    strides.reverse();
    strides
}

/// The element that a constant is: integers wrap, floats round once.
fn literal(value: Literal, dtype: DType) -> Bits {
    let bytes = dtype.bytes() as usize;
    let float = |x: f64| match dtype {
        DType::F8E4M3 | DType::F8E5M2 => to_bits(Literal::float(x), dtype).unwrap_or_default(),
        DType::F16 => u64::from(f64_to_f16(x).to_bits()),
        DType::BF16 => u64::from(f64_to_bf16(x).to_bits()),
        DType::F32 => u64::from((x as f32).to_bits()),
        DType::F64 => x.to_bits(),
        DType::Bool => u64::from(x != 0.0),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => x as i64 as u64,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => x as u64,
    };
    let raw = match value {
        Literal::Bool(b) if dtype.is_float() => float(f64::from(u8::from(b))),
        Literal::Bool(b) => u64::from(b),
        Literal::Int(i) if dtype.is_float() => float(i as f64),
        Literal::Int(i) if dtype == DType::Bool => u64::from(i != 0),
        Literal::Int(i) => i as u64,
        Literal::Float(bits) => float(f64::from_bits(bits)),
    };
    Bits::from_raw(raw, bytes)
}
