//! Type rules of placed operations: shared memory, copies, barriers and instructions of warp groups.

use super::dim::Dim;
use super::dtype::DType;
use super::func::Func;
use super::infer_dot::{coordinates, described, product_dtypes, product_shapes, reduces};
use super::needs::{Result, data, ensure, fail, mask_fits, permuted};
use super::ops::GpuOp;
use super::types::{Dt, Elem, Ty};

fn shared(ty: &Ty) -> Result<Dt> {
    match ty.elem {
        Elem::Shared(dt) => Ok(dt),
        Elem::Data(_) | Elem::Ptr(_) | Elem::Desc(_) | Elem::Token | Elem::Barrier => {
            fail("expects a view of shared memory")
        }
    }
}

fn tokens(tys: &[&Ty]) -> Result<()> {
    ensure(tys.iter().all(|t| t.elem == Elem::Token), "expects tokens")
}

fn barrier_slot(tys: &[&Ty]) -> Result<()> {
    ensure(tys[0].elem == Elem::Barrier, "expects barriers")?;
    ensure(tys[1..].iter().all(|t| **t == Ty::scalar(DType::I32)), "slot, bytes and phase are i32 scalars")
}

/// Whether a view holds a block of a tensor, or a part of one.
fn part_fits_view(block: &[Dim], dt: Dt, view: &Ty) -> Result<()> {
    let within = |(size, block): (&Dim, &Dim)| {
        size == block || size.as_const().zip(block.as_const()).is_some_and(|(size, block)| size <= block)
    };
    let fits = view.rank() == block.len() && view.shape.iter().zip(block).all(within);
    ensure(
        shared(view)? == dt && fits,
        "the view must have the shape of a block, or of a part of one, and the tensor's dtype",
    )
}

/// Whether a view can be divided in so many parts along each dimension; not at all if there is no number.
fn divides(parts: &[u8], view: &Ty) -> Result<()> {
    let whole = |(size, &parts): (&Dim, &u8)| {
        parts.is_power_of_two() && size.as_const().is_some_and(|size| size % i64::from(parts) == 0)
    };
    let fits = parts.is_empty() || (parts.len() == view.rank() && view.shape.iter().zip(parts).all(whole));
    ensure(fits, "the parts divide the view, in a power of two along each dimension")
}

/// Whether a block of a tensor fits a view.
fn fits_view(block: &[Dim], dt: Dt, view: &Ty) -> Result<()> {
    ensure(shared(view)? == dt && view.shape == block, "the view must have the block's shape and the tensor's dtype")
}

pub(super) fn gpu(func: &Func, op: &GpuOp, tys: &[&Ty]) -> Result<Vec<Ty>> {
    match op {
        GpuOp::SharedAlloc { shape, dtype } => Ok(vec![Ty { elem: Elem::Shared(*dtype), shape: shape.clone() }]),
        GpuOp::SharedIndex => {
            shared(tys[0])?;
            ensure(tys[0].rank() > 1 && *tys[1] == Ty::scalar(DType::I32), "expects a view and an i32 index")?;
            Ok(vec![tys[0].with_shape(tys[0].shape[1..].to_vec())])
        }
        GpuOp::SharedPermute { perm } => {
            shared(tys[0])?;
            Ok(vec![tys[0].with_shape(permuted(&tys[0].shape, perm)?)])
        }
        GpuOp::SharedLoad => Ok(vec![tys[0].with_dt(shared(tys[0])?)]),
        GpuOp::SharedStore => {
            ensure(*tys[1] == tys[0].with_dt(shared(tys[0])?), "the tile must fit the view")?;
            Ok(Vec::new())
        }
        GpuOp::AsyncCopy => {
            shared(tys[0])?;
            ensure(tys[1].pointee().is_some() && tys[1].shape == tys[0].shape, "the pointers must fit the view")?;
            mask_fits(tys[1], tys.get(2))?;
            Ok(vec![Ty::token()])
        }
        GpuOp::AsyncCommit => tokens(tys).map(|()| vec![Ty::token()]),
        GpuOp::AsyncWait { .. } => tokens(tys).map(|()| vec![Ty::token()]),
        GpuOp::MbarrierAlloc { slots, .. } => {
            Ok(vec![Ty { elem: Elem::Barrier, shape: vec![Dim::Const(i64::from(*slots))] }])
        }
        GpuOp::MbarrierArrive => barrier_slot(tys).map(|()| Vec::new()),
        GpuOp::MbarrierWait => barrier_slot(tys).map(|()| Vec::new()),
        GpuOp::Wgmma { .. } => {
            let is_flag = |ty: &&Ty| **ty == Ty::scalar(DType::Bool);
            ensure(tys.get(3).is_none_or(is_flag), "whether a product is added is a scalar `bool`")?;
            let factor = |ty: &Ty| if matches!(ty.elem, Elem::Shared(_)) { shared(ty) } else { data(ty) };
            ensure(tys[0].rank() == 2, "the product of an asynchronous group is of matrices")?;
            product_shapes(func, &tys[0].shape, &tys[1].shape, &tys[2].shape)?;
            product_dtypes(func, factor(tys[0])?, shared(tys[1])?, data(tys[2])?)?;
            Ok(vec![tys[2].clone()])
        }
        GpuOp::WgmmaWait { .. } => {
            for ty in tys {
                data(ty)?;
            }
            Ok(tys.iter().map(|t| (*t).clone()).collect())
        }
        GpuOp::TmaLoad => {
            let tensor = described(func, tys[0])?;
            fits_view(&tensor.block, tensor.dt, tys[1])?;
            barrier_slot(&tys[2..4])?;
            coordinates(&tensor.block, &tys[4..]).map(|()| Vec::new())
        }
        GpuOp::TmaStore { reduce, parts } => {
            let tensor = described(func, tys[0])?;
            ensure(tensor.mutable, "stores need a mutable descriptor")?;
            if let Some(op) = reduce.atomic() {
                reduces(func, op, tensor.dt)?;
            }
            part_fits_view(&tensor.block, tensor.dt, tys[1])?;
            divides(parts, tys[1])?;
            coordinates(&tensor.block, &tys[2..]).map(|()| Vec::new())
        }
        GpuOp::Delay { longest, .. } => {
            let fits = longest.checked_add(1).is_some_and(u32::is_power_of_two);
            ensure(fits, "the longest delay is a power of two less one").map(|()| Vec::new())
        }
        GpuOp::Barrier
        | GpuOp::WarpgroupBarrier
        | GpuOp::TurnBegin
        | GpuOp::TurnEnd
        | GpuOp::Fence { .. }
        | GpuOp::TmaStoreWait { .. }
        | GpuOp::LaunchDependents
        | GpuOp::GridWait
        | GpuOp::WarpGroups { .. } => Ok(Vec::new()),
    }
}
