//! Type rules: the result types of every operation, given its operands.
//!
//! The builder, the parser and the verifier all ask this one function, so an operation that was built is an
//! operation that verifies.

use super::dim::Dim;
use super::dtype::{DType, DTypeBound};
use super::format;
use super::func::Func;
use super::hint;
use super::ids::{RegionId, ValueId};
use super::infer_dot::{desc, dot};
use super::infer_gpu::gpu;
use super::infer_tile::tile;
use super::names::LimitKind;
pub use super::needs::{Needs, TypeError, dt_admits};
use super::needs::{Result, data, ensure, fail, is_bool, mask_fits, permuted};
use super::ops::{ControlOp, CreateOp, ElementwiseOp, MemoryOp, Op, ShapeOp};
use super::params::ParamKind;
use super::ptx::{self, InlinePtx};
use super::table::Regions;
use super::types::{Dt, Elem, Ty};

/// The types of the results of `op`, or why its operands do not fit it.
///
/// Regions must already have their terminators: `if` reads its result types from the first region's `yield`.
///
/// # Errors
/// If the number or types of the operands or regions are wrong.
pub fn result_types(func: &Func, op: &Op, operands: &[ValueId], regions: &[RegionId]) -> Result<Vec<Ty>> {
    counts(op, operands.len(), regions.len())?;
    let tys: Vec<&Ty> = operands.iter().map(|&v| func.ty(v)).collect();
    match op {
        Op::Create(op) => create(func, op, &tys).map(|t| vec![t]),
        Op::Elementwise(op) => elementwise(func, op, &tys).map(|t| vec![t]),
        Op::Shape(op) => shape(func, op, &tys).map(|t| vec![t]),
        Op::Tile(op) => tile(func, op, &tys).map(|t| vec![t]),
        Op::Memory(op) => memory(func, op, &tys),
        Op::Control(op) => control(func, op, &tys, regions),
        Op::Dot(op) => dot(func, op, &tys),
        Op::Desc(op) => desc(func, op, &tys),
        Op::Gpu(op) => gpu(func, op, &tys),
    }
}

/// Whether there are as many operands and regions as the table says.
fn counts(op: &Op, operands: usize, regions: usize) -> Result<()> {
    let row = op.row();
    if !row.admits(operands) {
        return fail(format!("expects {}, found {operands} operands", row.signature()));
    }
    let fits = match row.regions {
        Regions::Straight => regions == 0,
        Regions::Loop(count) | Regions::Branch(count) | Regions::Combine(count) | Regions::Apply(count) => {
            regions == count
        }
        Regions::Concurrent => true,
    };
    ensure(fits, if row.regions == Regions::Straight { "it has no regions" } else { "wrong number of regions" })
}

fn create(func: &Func, op: &CreateOp, tys: &[&Ty]) -> Result<Ty> {
    match op {
        CreateOp::Splat { shape } => {
            ensure(tys[0].is_scalar(), "expects a scalar")?;
            ensure(!shape.is_empty(), "a tile needs at least one dimension")?;
            Ok(tys[0].with_shape(shape.clone()))
        }
        CreateOp::Const { dtype, .. } | CreateOp::ConstExpr { dtype, .. } => Ok(Ty::scalar(*dtype)),
        CreateOp::Limit { kind, dtype } => {
            let bound = match kind {
                LimitKind::Min | LimitKind::Max => DTypeBound::Num,
                LimitKind::Infinity
                | LimitKind::NegInfinity
                | LimitKind::Nan
                | LimitKind::Epsilon
                | LimitKind::MinPositive => DTypeBound::Float,
            };
            ensure(dt_admits(func, *dtype, bound), "the dtype has no such value")?;
            Ok(Ty::scalar(*dtype))
        }
        CreateOp::Counter { which } => Ok(Ty::scalar(which.dtype())),
        CreateOp::ProgramId { axis } | CreateOp::NumPrograms { axis } => {
            ensure(*axis < 3, "a grid has the axes 0, 1 and 2")?;
            Ok(Ty::scalar(DType::I32))
        }
        CreateOp::Arange { lo, hi } => {
            let len = hi.sub(lo).map_err(|e| TypeError { message: e.to_string() })?;
            Ok(Ty::tile(DType::I32, vec![len]))
        }
    }
}

fn elementwise(func: &Func, op: &ElementwiseOp, tys: &[&Ty]) -> Result<Ty> {
    let same = |a: &Ty, b: &Ty| ensure(a == b, "operands must have one type");
    match op {
        ElementwiseOp::Unary { op } => {
            ensure(op.needs().admits(func, data(tys[0])?), "the operation is not defined for this dtype")?;
            Ok(tys[0].clone())
        }
        ElementwiseOp::Binary { op } => {
            same(tys[0], tys[1])?;
            ensure(op.needs().admits(func, data(tys[0])?), "the operation is not defined for this dtype")?;
            Ok(tys[0].clone())
        }
        ElementwiseOp::FloatInt { .. } => {
            let admitted = dt_admits(func, data(tys[0])?, DTypeBound::Float);
            ensure(admitted, "the operation is defined for floats")?;
            ensure(*tys[1] == tys[0].with_dt(DType::I32), "the second operand must be `i32` of the first one's shape")?;
            Ok(tys[0].clone())
        }
        ElementwiseOp::Compare { op } => {
            same(tys[0], tys[1])?;
            if tys[0].pointee().is_none() {
                ensure(op.needs().admits(func, data(tys[0])?), "the comparison is not defined for this dtype")?;
            }
            Ok(tys[0].with_dt(DType::Bool))
        }
        ElementwiseOp::Select => {
            ensure(is_bool(tys[0]), "the condition must be `bool`")?;
            same(tys[1], tys[2])?;
            ensure(tys[0].shape == tys[1].shape, "the condition must have the operands' shape")?;
            Ok(tys[1].clone())
        }
        ElementwiseOp::Fma => {
            same(tys[0], tys[1])?;
            same(tys[0], tys[2])?;
            ensure(dt_admits(func, data(tys[0])?, DTypeBound::Float), "fma is defined for floats")?;
            Ok(tys[0].clone())
        }
        ElementwiseOp::Cast { to } => {
            data(tys[0])?;
            Ok(tys[0].with_dt(*to))
        }
        ElementwiseOp::Bitcast { to } => {
            if let (Some(a), Some(b)) = (data(tys[0])?.known(), to.known()) {
                ensure(a.bits() == b.bits(), "a bitcast keeps the width")?;
            }
            Ok(tys[0].with_dt(*to))
        }
    }
}

fn shape(func: &Func, op: &ShapeOp, tys: &[&Ty]) -> Result<Ty> {
    let ty = tys[0];
    ensure(matches!(ty.elem, Elem::Data(_) | Elem::Ptr(_)), "expects a tile")?;
    match op {
        ShapeOp::ExpandDims { axis } => {
            ensure(usize::from(*axis) <= ty.rank(), "the axis is beyond the tile's rank")?;
            let mut shape = ty.shape.clone();
            shape.insert(usize::from(*axis), Dim::Const(1));
            Ok(ty.with_shape(shape))
        }
        ShapeOp::Broadcast { shape } => {
            ensure(shape.len() == ty.rank(), "broadcast keeps the rank")?;
            let fits = ty.shape.iter().zip(shape).all(|(from, to)| from == to || from.is_one());
            ensure(fits, "only dimensions of size 1 are repeated")?;
            Ok(ty.with_shape(shape.clone()))
        }
        ShapeOp::Reshape { shape } => {
            let (from, to) = (Dim::product(&ty.shape), Dim::product(shape));
            let fits = from.is_ok_and(|from| to.is_ok_and(|to| from.may_equal(&to)));
            ensure(fits, "reshape keeps the number of elements")?;
            Ok(ty.with_shape(shape.clone()))
        }
        ShapeOp::Permute { perm } => Ok(ty.with_shape(permuted(&ty.shape, perm)?)),
        ShapeOp::Join => {
            data(ty)?;
            ensure(!ty.is_scalar() && ty == tys[1], "joins two tiles of one type")?;
            let mut shape = ty.shape.clone();
            shape.push(Dim::Const(2));
            Ok(ty.with_shape(shape))
        }
        ShapeOp::Half { .. } => {
            let Some((last, rest)) = ty.shape.split_last() else { return fail("expects a tile") };
            ensure(!rest.is_empty(), "the half of a tile of one dimension would be a scalar")?;
            ensure(last.as_const() == Some(2), "the last dimension must have size 2")?;
            Ok(ty.with_shape(rest.to_vec()))
        }
        ShapeOp::Hint { kind, n, multiple, axis, believed: _ } => {
            hint::result_type(func, *kind, n, multiple, *axis, ty)
        }
        ShapeOp::Slice { start, shape } => {
            ensure(start.len() == ty.rank() && shape.len() == ty.rank(), "a slice keeps the rank")?;
            let inside = |((size, start), own): ((&Dim, &Dim), &Dim)| match (
                size.as_const(),
                start.as_const(),
                own.as_const(),
            ) {
                (Some(size), Some(start), Some(own)) => {
                    start >= 0 && own >= 0 && start.checked_add(own).is_some_and(|end| end <= size)
                }
                _ => false,
            };
            ensure(ty.shape.iter().zip(start).zip(shape).all(inside), "a slice lies inside the tile")?;
            Ok(ty.with_shape(shape.clone()))
        }
        ShapeOp::ConvertLayout => Ok(ty.clone()),
    }
}

fn pointee(func: &Func, ty: &Ty) -> Result<(Dt, bool)> {
    let Elem::Ptr(param) = ty.elem else { return fail("expects a pointer") };
    match func.param(param).kind {
        ParamKind::Ptr { dt, mutable } => Ok((dt, mutable)),
        ParamKind::Desc { .. }
        | ParamKind::Scalar(_)
        | ParamKind::ConstScalar(_)
        | ParamKind::ReportSlot
        | ParamKind::Length(_)
        | ParamKind::DescShape { .. }
        | ParamKind::DescStride { .. } => fail("the pointer's parameter is not a buffer"),
    }
}

fn memory(func: &Func, op: &MemoryOp, tys: &[&Ty]) -> Result<Vec<Ty>> {
    match op {
        MemoryOp::AddPtr => {
            pointee(func, tys[0])?;
            ensure(dt_admits(func, data(tys[1])?, DTypeBound::Int), "an offset is an integer")?;
            ensure(tys[0].shape == tys[1].shape, "pointers and offsets must have one shape")?;
            Ok(vec![tys[0].clone()])
        }
        MemoryOp::Load { .. } => {
            let (dt, _) = pointee(func, tys[0])?;
            mask_fits(tys[0], tys.get(1))?;
            let result = tys[0].with_dt(dt);
            if let Some(other) = tys.get(2) {
                ensure(**other == result, "`other` must have the type of the loaded value")?;
            }
            Ok(vec![result])
        }
        MemoryOp::Store { .. } => {
            let (dt, mutable) = pointee(func, tys[0])?;
            ensure(mutable, "stores need a mutable pointer")?;
            ensure(*tys[1] == tys[0].with_dt(dt), "the value must have the pointers' shape and dtype")?;
            mask_fits(tys[0], tys.get(2))?;
            Ok(Vec::new())
        }
        MemoryOp::AtomicRmw { op, .. } => {
            let (dt, mutable) = pointee(func, tys[0])?;
            ensure(mutable, "atomics need a mutable pointer")?;
            ensure(op.needs().admits(func, dt), "the atomic operation is not defined for this dtype")?;
            ensure(*tys[1] == tys[0].with_dt(dt), "the value must have the pointers' shape and dtype")?;
            mask_fits(tys[0], tys.get(2))?;
            Ok(vec![tys[1].clone()])
        }
        MemoryOp::CheckBounds { .. } => {
            ensure(dt_admits(func, data(tys[0])?, DTypeBound::Int), "an offset is an integer")?;
            ensure(*tys[1] == Ty::scalar(DType::I64), "the length is an i64 scalar")?;
            mask_fits(tys[0], tys.get(2))?;
            Ok(vec![tys[0].with_dt(DType::Bool)])
        }
        MemoryOp::AtomicCas { .. } => {
            let (dt, mutable) = pointee(func, tys[0])?;
            ensure(mutable, "atomics need a mutable pointer")?;
            mask_fits(tys[0], tys.get(3))?;
            let value = tys[0].with_dt(dt);
            ensure(*tys[1] == value && *tys[2] == value, "the values must have the pointers' shape and dtype")?;
            Ok(vec![value])
        }
    }
}

/// The types that a region yields.
pub fn yield_types(func: &Func, region: RegionId) -> Result<Vec<Ty>> {
    let last = func.region(region).ops.last().map(|&op| func.op(op));
    match last {
        Some(operation) if operation.op == Op::Control(ControlOp::Yield) => {
            Ok(operation.operands.iter().map(|&v| func.ty(v).clone()).collect())
        }
        Some(_) | None => fail("a region must end in `yield`"),
    }
}

fn arg_types(func: &Func, region: RegionId) -> Vec<&Ty> {
    func.region(region).args.iter().map(|&v| func.ty(v)).collect()
}

fn region_is(func: &Func, region: RegionId, args: &[&Ty], yields: &[Ty]) -> Result<()> {
    ensure(arg_types(func, region) == args, "the region's arguments have other types")?;
    ensure(yield_types(func, region)? == yields, "the region yields other types")
}

fn control(func: &Func, op: &ControlOp, tys: &[&Ty], regions: &[RegionId]) -> Result<Vec<Ty>> {
    match op {
        ControlOp::For { .. } => {
            let iv = tys[0];
            ensure(iv.is_scalar() && dt_admits(func, data(iv)?, DTypeBound::Int), "bounds are integer scalars")?;
            ensure(tys[1] == iv && tys[2] == iv, "bounds and step must have one type")?;
            let carried: Vec<Ty> = tys[3..].iter().map(|t| (*t).clone()).collect();
            let mut args = vec![iv];
            args.extend(&tys[3..]);
            region_is(func, regions[0], &args, &carried)?;
            Ok(carried)
        }
        ControlOp::While => {
            let carried: Vec<Ty> = tys.iter().map(|t| (*t).clone()).collect();
            region_is(func, regions[0], tys, &[Ty::scalar(DType::Bool)])?;
            region_is(func, regions[1], tys, &carried)?;
            Ok(carried)
        }
        ControlOp::If => {
            ensure(is_bool(tys[0]) && tys[0].is_scalar(), "the condition must be a scalar `bool`")?;
            let results = yield_types(func, regions[0])?;
            region_is(func, regions[0], &[], &results)?;
            region_is(func, regions[1], &[], &results)?;
            Ok(results)
        }
        ControlOp::Reduce { axis } | ControlOp::Scan { axis, .. } => {
            ensure(!tys.is_empty(), "expects a tile")?;
            ensure(usize::from(*axis) < tys[0].rank(), "the axis is beyond the tile's rank")?;
            ensure(tys.iter().all(|t| t.shape == tys[0].shape), "tiles must have one shape")?;
            let mut scalars = Vec::new();
            for ty in tys {
                scalars.push(Ty::scalar(data(ty)?));
            }
            let args: Vec<&Ty> = scalars.iter().chain(&scalars).collect();
            region_is(func, regions[0], &args, &scalars)?;
            let keeps = matches!(op, ControlOp::Scan { .. });
            Ok(tys.iter().map(|t| if keeps { (*t).clone() } else { drop_axis(t, *axis) }).collect())
        }
        ControlOp::Map { ptx } => map(func, ptx.as_ref(), tys, regions[0]),
        ControlOp::Yield | ControlOp::Return => Ok(Vec::new()),
        ControlOp::Assert { .. } => ensure(is_bool(tys[0]), "the condition must be `bool`").map(|()| Vec::new()),
        ControlOp::Print { text } => print(text, tys).map(|()| Vec::new()),
        ControlOp::StaticAssert { .. } => {
            ensure(is_bool(tys[0]) && tys[0].is_scalar(), "the condition must be a scalar `bool`").map(|()| Vec::new())
        }
    }
}

/// An operation on each element: its region says what it gives.
fn map(func: &Func, ptx: Option<&InlinePtx>, tys: &[&Ty], region: RegionId) -> Result<Vec<Ty>> {
    let shape = tys.first().map_or(&[][..], |ty| &ty.shape);
    ensure(tys.iter().all(|ty| ty.shape == shape), "tiles must have one shape")?;
    let arguments = tys.iter().map(|ty| data(ty)).collect::<Result<Vec<Dt>>>()?;
    let yields = yield_types(func, region)?;
    ensure(!yields.is_empty(), "the region yields nothing")?;
    ensure(yields.iter().all(Ty::is_scalar), "the region yields scalars")?;
    let results = yields.iter().map(data).collect::<Result<Vec<Dt>>>()?;
    let scalars: Vec<Ty> = arguments.iter().map(|&dt| Ty::scalar(dt)).collect();
    region_is(func, region, &scalars.iter().collect::<Vec<_>>(), &yields)?;
    if let Some(ptx) = ptx {
        ptx::fits(ptx, &arguments, &results)?;
    }
    Ok(yields.iter().map(|ty| ty.with_shape(shape.to_vec())).collect())
}

fn print(text: &str, tys: &[&Ty]) -> Result<()> {
    let pieces = format::pieces(text).map_err(|error| TypeError { message: error.explain().0.to_string() })?;
    let digits = format::values(&pieces);
    ensure(digits.len() == tys.len(), "the text has places for another number of values")?;
    ensure(tys.iter().all(|ty| ty.shape == tys[0].shape), "values that are printed together have one shape")?;
    tys.iter().zip(digits).try_for_each(|(ty, digits)| {
        let float = matches!(data(ty)?, Dt::Known(dtype) if !dtype.is_int());
        ensure(!float || digits != format::Digits::Hex, "hexadecimal digits are those of integers")
    })
}

fn drop_axis(ty: &Ty, axis: u8) -> Ty {
    let mut shape = ty.shape.clone();
    shape.remove(usize::from(axis));
    ty.with_shape(shape)
}
