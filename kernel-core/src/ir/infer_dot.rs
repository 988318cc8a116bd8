//! Type rules of matrix products and of tensor descriptors.

use super::dim::Dim;
use super::dtype::DType;
use super::func::Func;
use super::names::AtomicOp;
use super::needs::{Result, data, ensure, fail};
use super::ops::{DescOp, DotOp};
use super::params::ParamKind;
use super::scaled;
use super::types::{Dt, Elem, Ty};

/// The largest rank of a tensor that a descriptor describes.
pub const MAX_TENSOR_RANK: usize = 5;

/// The dtypes that a matrix product of factors of `dtype` may accumulate in, the usual one first.
pub fn accumulators(dtype: DType) -> &'static [DType] {
    match dtype {
        DType::F16 | DType::F8E4M3 | DType::F8E5M2 => &[DType::F32, DType::F16],
        DType::BF16 | DType::F32 => &[DType::F32],
        DType::F64 => &[DType::F64],
        DType::I8 | DType::U8 => &[DType::I32],
        DType::Bool | DType::I16 | DType::I32 | DType::I64 | DType::U16 | DType::U32 | DType::U64 => &[],
    }
}

/// The name of a dtype or dtype parameter.
fn dt_name(func: &Func, dt: Dt) -> String {
    match dt {
        Dt::Known(dtype) => dtype.name().to_string(),
        Dt::Param(id) => func.dtype_params[id.index()].name.clone(),
    }
}

fn show(func: &Func, dim: &Dim) -> String {
    dim.display(&|id| func.const_params[id.index()].name.clone()).to_string()
}

pub(super) fn show_shape(func: &Func, shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(|d| show(func, d)).collect();
    format!("[{}]", dims.join(", "))
}

/// Whether factors of these dtypes multiply at all, and into an accumulator of that dtype. For a dtype parameter one of
/// the dtypes that it can stand for has to fit: binding decides.
///
/// # Errors
/// Which of them does not fit.
pub fn product_dtypes(func: &Func, a: Dt, b: Dt, acc: Dt) -> Result<()> {
    let fp8 = |dt: Dt| dt.known().is_some_and(DType::is_fp8);
    if a != b && !(fp8(a) && fp8(b)) {
        return fail(format!(
            "the factors have the dtypes {} and {}; a matrix product takes one dtype",
            dt_name(func, a),
            dt_name(func, b)
        ));
    }
    let candidates = |dt: Dt| -> Vec<DType> {
        match dt {
            Dt::Known(dtype) => vec![dtype],
            Dt::Param(id) => {
                let bound = func.dtype_params[id.index()].bound;
                DType::ALL.into_iter().filter(|d| bound.admits(*d)).collect()
            }
        }
    };
    let (factors, sums) = (candidates(a), candidates(acc));
    // Factor and accumulator of one dtype parameter are of one dtype.
    let meets = |f: &DType, s: &DType| if a == acc { f == s } else { true };
    let fits = factors.iter().any(|f| accumulators(*f).iter().any(|s| sums.contains(s) && meets(f, s)));
    if fits {
        return Ok(());
    }
    let allowed: Vec<DType> = factors.iter().flat_map(|f| accumulators(*f)).copied().collect();
    if allowed.is_empty() {
        return fail(format!("there is no matrix product of {}; it takes floats, i8 and u8", dt_name(func, a)));
    }
    let mut names: Vec<&str> = Vec::new();
    for dtype in allowed {
        if !names.contains(&dtype.name()) {
            names.push(dtype.name());
        }
    }
    fail(format!(
        "a matrix product of {} accumulates in {}, not in {}",
        dt_name(func, a),
        names.join(" or "),
        dt_name(func, acc)
    ))
}

/// The rule of shapes: `[.., M, K]` times `[.., K, N]` onto `[.., M, N]`.
pub(super) fn product_shapes(func: &Func, a: &[Dim], b: &[Dim], acc: &[Dim]) -> Result<()> {
    let rank = a.len();
    if rank < 2 || b.len() != rank || acc.len() != rank {
        return fail(format!(
            "factors and accumulator have one rank of at least 2; found {}, {} and {}",
            show_shape(func, a),
            show_shape(func, b),
            show_shape(func, acc)
        ));
    }
    let (m, k, n) = (&a[rank - 2], &a[rank - 1], &b[rank - 1]);
    if *k != b[rank - 2] {
        return fail(format!("the inner dimensions differ: {} times {}", show_shape(func, a), show_shape(func, b)));
    }
    let batch = &a[..rank - 2];
    if *batch != b[..rank - 2] {
        return fail(format!("the batches differ: {} times {}", show_shape(func, a), show_shape(func, b)));
    }
    let mut product = batch.to_vec();
    product.extend([m.clone(), n.clone()]);
    if product != acc {
        return fail(format!(
            "the product has the shape {}, the accumulator {}",
            show_shape(func, &product),
            show_shape(func, acc)
        ));
    }
    Ok(())
}

pub(super) fn dot(func: &Func, op: &DotOp, tys: &[&Ty]) -> Result<Vec<Ty>> {
    match op {
        DotOp::Dot { .. } => {
            product_shapes(func, &tys[0].shape, &tys[1].shape, &tys[2].shape)?;
            product_dtypes(func, data(tys[0])?, data(tys[1])?, data(tys[2])?)?;
            Ok(vec![tys[2].clone()])
        }
        DotOp::DotScaled { a_format, b_format, scaled } => scaled::infer(func, [*a_format, *b_format], *scaled, tys),
    }
}

/// What a descriptor describes.
pub(super) struct Described {
    pub dt: Dt,
    pub block: Vec<Dim>,
    pub mutable: bool,
}

pub(super) fn described(func: &Func, ty: &Ty) -> Result<Described> {
    let Elem::Desc(param) = ty.elem else { return fail("expects a tensor descriptor") };
    match &func.param(param).kind {
        ParamKind::Desc { dt, block, mutable } => {
            ensure(!block.is_empty() && block.len() <= MAX_TENSOR_RANK, "a tensor has 1 to 5 dimensions")?;
            Ok(Described { dt: *dt, block: block.clone(), mutable: *mutable })
        }
        // One that the kernel makes: its type says what the blocks are.
        ParamKind::Ptr { dt, mutable } if !ty.shape.is_empty() => {
            ensure(ty.rank() <= MAX_TENSOR_RANK, "a tensor has 1 to 5 dimensions")?;
            Ok(Described { dt: *dt, block: ty.shape.clone(), mutable: *mutable })
        }
        ParamKind::Ptr { .. }
        | ParamKind::Scalar(_)
        | ParamKind::ConstScalar(_)
        | ParamKind::ReportSlot
        | ParamKind::Length(_)
        | ParamKind::DescShape { .. }
        | ParamKind::DescStride { .. } => fail("the descriptor's parameter is not a tensor"),
    }
}

/// Coordinates: one i32 scalar per dimension of the tensor.
pub(super) fn coordinates(block: &[Dim], tys: &[&Ty]) -> Result<()> {
    if tys.len() != block.len() {
        return fail(format!("the tensor has {} dimensions, but there are {} coordinates", block.len(), tys.len()));
    }
    ensure(tys.iter().all(|t| **t == Ty::scalar(DType::I32)), "coordinates are i32 scalars")
}

fn writable(tensor: &Described) -> Result<()> {
    ensure(tensor.mutable, "stores need a mutable descriptor")
}

/// Whether a tensor of that dtype can be combined with values in memory.
pub(super) fn reduces(func: &Func, op: AtomicOp, dt: Dt) -> Result<()> {
    ensure(op != AtomicOp::Exchange, "an exchange is no reduction")?;
    ensure(op.needs().admits(func, dt), "the atomic operation is not defined for this dtype")
}

/// The shape of the rows that a gather or scatter moves.
fn rows(tensor: &Described, rows: &Ty, column: &Ty) -> Result<Vec<Dim>> {
    let [one, columns] = tensor.block.as_slice() else { return fail("rows are those of a matrix") };
    ensure(one.is_one(), "the block of a gather or scatter is one row, `[1, C]`")?;
    ensure(rows.rank() == 1 && rows.elem == Elem::Data(DType::I32.into()), "the rows are an i32 tile of rank 1")?;
    ensure(*column == Ty::scalar(DType::I32), "the column is an i32 scalar")?;
    Ok(vec![rows.shape[0].clone(), columns.clone()])
}

/// The type of a descriptor that the kernel makes: the pointer's buffer, and the shape of the blocks.
fn made(func: &Func, block: &[Dim], tys: &[&Ty]) -> Result<Vec<Ty>> {
    let (Some((pointer, extents)), rank) = (tys.split_first(), block.len()) else { return fail("expects a pointer") };
    let Some(param) = pointer.pointee().filter(|_| pointer.is_scalar()) else { return fail("expects a pointer") };
    ensure(matches!(func.param(param).kind, ParamKind::Ptr { .. }), "expects a pointer into a buffer")?;
    ensure((1..=MAX_TENSOR_RANK).contains(&rank), "a tensor has 1 to 5 dimensions")?;
    if extents.len() != 2 * rank {
        return fail(format!(
            "a tensor of {rank} dimensions has {} sizes and strides, found {}",
            2 * rank,
            extents.len()
        ));
    }
    let is_extent = |ty: &&Ty| **ty == Ty::scalar(DType::I32) || **ty == Ty::scalar(DType::I64);
    ensure(extents.iter().all(is_extent), "sizes and strides are i32 or i64 scalars")?;
    Ok(vec![Ty { elem: Elem::Desc(param), shape: block.to_vec() }])
}

pub(super) fn desc(func: &Func, op: &DescOp, tys: &[&Ty]) -> Result<Vec<Ty>> {
    if let DescOp::MakeDesc { block, .. } = op {
        return made(func, block, tys);
    }
    let Some((first, rest)) = tys.split_first() else { return fail("expects a tensor descriptor") };
    let tensor = described(func, first)?;
    let block = Ty::tile(tensor.dt, tensor.block.clone());
    let value_is = |ty: Option<&&Ty>, expected: &Ty| {
        ensure(ty.is_some_and(|t| **t == *expected), "the value must have the block's shape and the tensor's dtype")
    };
    match op {
        DescOp::DescLoad => {
            coordinates(&tensor.block, rest)?;
            Ok(vec![block])
        }
        DescOp::DescStore => {
            writable(&tensor)?;
            value_is(rest.first(), &block)?;
            coordinates(&tensor.block, &rest[1..])?;
            Ok(Vec::new())
        }
        DescOp::DescReduce { op } => {
            writable(&tensor)?;
            reduces(func, *op, tensor.dt)?;
            value_is(rest.first(), &block)?;
            coordinates(&tensor.block, &rest[1..])?;
            Ok(Vec::new())
        }
        DescOp::MakeDesc { .. } => fail("a descriptor is made of a pointer"),
        DescOp::DescGather => Ok(vec![Ty::tile(tensor.dt, rows(&tensor, rest[0], rest[1])?)]),
        DescOp::DescScatter => {
            writable(&tensor)?;
            let expected = Ty::tile(tensor.dt, rows(&tensor, rest[1], rest[2])?);
            value_is(rest.first(), &expected)?;
            Ok(Vec::new())
        }
    }
}
