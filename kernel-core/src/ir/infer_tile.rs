//! Type rules of operations on whole tiles.

use super::dim::Dim;
use super::dtype::{DType, DTypeBound};
use super::func::Func;
use super::needs::{Result, data, dt_admits, ensure, mask_fits};
use super::ops::TileOp;
use super::types::Ty;

/// The type of the result.
pub(super) fn tile(func: &Func, op: &TileOp, tys: &[&Ty]) -> Result<Ty> {
    let ty = tys[0];
    let dt = data(ty)?;
    match op {
        TileOp::Gather { axis } => {
            indexes(func, ty, tys[1], *axis)?;
            Ok(tys[1].with_dt(dt))
        }
        TileOp::Scatter { axis } => {
            indexes(func, ty, tys[1], *axis)?;
            ensure(*tys[2] == tys[1].with_dt(dt), "the values must have the index's shape and the tile's dtype")?;
            Ok(ty.clone())
        }
        TileOp::Histogram { bins } => {
            ensure(!ty.is_scalar() && dt_admits(func, dt, DTypeBound::Int), "expects a tile of integers")?;
            mask_fits(ty, tys.get(1))?;
            ensure(bins.as_const().is_none_or(|bins| bins >= 1), "a histogram has at least one bin")?;
            Ok(Ty::tile(DType::I32, vec![bins.clone()]))
        }
        TileOp::Sort { axis, keep, indices, descending: _ } => {
            ensure(dt_admits(func, dt, DTypeBound::Num), "expects numbers")?;
            let axis = usize::from(*axis);
            ensure(axis < ty.rank(), "the axis is beyond the tile's rank")?;
            let fits = match (keep.as_const(), ty.shape[axis].as_const()) {
                (Some(keep), Some(size)) => (1..=size).contains(&keep),
                (Some(_) | None, _) => true,
            };
            ensure(fits, "as many elements are kept as there are, or fewer")?;
            let mut shape = ty.shape.clone();
            shape[axis] = keep.clone();
            let kept = ty.with_shape(shape);
            Ok(if *indices { kept.with_dt(DType::I32) } else { kept })
        }
    }
}

/// Whether an index fits a tile along an axis.
fn indexes(func: &Func, tile: &Ty, index: &Ty, axis: u8) -> Result<()> {
    ensure(dt_admits(func, data(index)?, DTypeBound::Int), "an index is an integer")?;
    ensure(usize::from(axis) < tile.rank(), "the axis is beyond the tile's rank")?;
    let others = |ty: &Ty| -> Vec<Dim> {
        let kept = ty.shape.iter().enumerate().filter(|&(at, _)| at != usize::from(axis));
        kept.map(|(_, dim)| dim.clone()).collect()
    };
    let fits = tile.rank() == index.rank() && others(tile) == others(index);
    ensure(fits, "the index must have the tile's shape along all other dimensions")
}
