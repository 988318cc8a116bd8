//! The shapes of attention's tensors, checked.

use super::forward::Starts;
use super::options::MOST;
use crate::{TensorView, TensorViewMut, check};
use tilewright::launch::MaybeViewMut;
use tilewright::{DType, Result, TensorDesc};

/// The largest dimension of a head.
pub(super) const MAX_HEAD: usize = 256;

/// What the shapes of `q`, `k` and `v` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// The dimension of queries and keys.
    pub(super) d: usize,
    /// That of values.
    pub(super) dv: usize,
    /// Heads of queries that share one of keys.
    pub(super) group: usize,
}

impl Problem {
    /// # Errors
    /// If the tensors do not fit each other.
    pub(super) fn of<T: DType>(
        q: &TensorView<'_, T, 4>,
        k: &TensorView<'_, T, 4>,
        v: &TensorView<'_, T, 4>,
    ) -> Result<Self> {
        let ([batch, heads, queries, d], [_, kv_heads, keys, _]) = (q.shape(), k.shape());
        let dv = v.shape()[3];
        check::shape("k", k.shape(), [batch, kv_heads, keys, d])?;
        check::shape("v", v.shape(), [batch, kv_heads, keys, dv])?;
        for (name, size) in [("q", d), ("v", dv)] {
            if size == 0 || size > MAX_HEAD {
                let problem = format!("has heads of {size} elements");
                return Err(check::invalid(name, problem, format!("heads have 1 to {MAX_HEAD}")));
            }
        }
        for (name, size) in [("q", queries), ("k", keys)] {
            if size > MOST as usize {
                return Err(check::invalid(name, format!("has {size} rows"), format!("there are at most {MOST}")));
            }
        }
        if heads > 0 && !heads.is_multiple_of(kv_heads) {
            let hint = match kv_heads {
                0 => format!("the {heads} heads of `q` need one or more"),
                _ => format!("the {heads} heads of `q` must be a multiple of them"),
            };
            return Err(check::invalid("k", format!("has {kv_heads} heads"), hint));
        }
        let group = heads.checked_div(kv_heads).unwrap_or(1);
        Ok(Problem { batch, heads, queries, keys, d, dv, group })
    }

    /// How many sequences there are, and the most queries of one.
    pub(super) fn sequences(&self, starts: &Option<Starts<'_>>) -> Result<(usize, usize)> {
        let Some(starts) = starts else { return Ok((self.batch, self.queries)) };
        check::shape("k_starts", starts.k.shape(), starts.q.shape())?;
        for (name, view) in [("q_starts", &starts.q), ("k_starts", &starts.k)] {
            if !view.is_contiguous() {
                return Err(check::invalid(name, "is not contiguous", "copy it with `general::contiguous` first"));
            }
        }
        let sequences = starts.q.shape()[0]
            .checked_sub(1)
            .ok_or_else(|| check::invalid("q_starts", "is empty", "it has one number more than there are sequences"))?;
        Ok((sequences, starts.longest.min(self.queries)))
    }

    /// A bias with the shape that it needs.
    pub(super) fn bias<'a, T: DType>(&self, bias: TensorView<'a, T, 4>) -> Result<TensorView<'a, T, 4>> {
        check::shape("bias", bias.shape(), [self.batch, self.heads, self.queries, self.keys])?;
        self.last_contiguous("bias", &bias)?;
        Ok(bias)
    }

    /// The strides of a tensor whose last dimension is contiguous.
    pub(super) fn last_contiguous<T: DType>(&self, name: &str, view: &TensorView<'_, T, 4>) -> Result<[i64; 4]> {
        contiguous_last(name, view)?;
        Ok(view.strides().map(|stride| stride as i64))
    }
}

/// # Errors
/// If the last dimension is not contiguous.
pub(super) fn contiguous_last<T: DType, const R: usize>(name: &str, view: &TensorView<'_, T, R>) -> Result<()> {
    if view.shape()[R - 1] <= 1 || view.strides()[R - 1] == 1 {
        return Ok(());
    }
    let problem = format!(
        "has the shape {:?} and strides {:?}: its last dimension is not contiguous",
        view.shape(),
        view.strides()
    );
    Err(check::invalid(name, problem, "copy it with `general::contiguous` first"))
}

/// The dimension of tiles that hold heads of `d`.
pub(super) fn tile_dim(d: usize) -> usize {
    d.next_power_of_two().max(16)
}

/// A tensor for kernels that read blocks of it.
pub(super) fn descriptor<'a, T: DType>(name: &str, view: &TensorView<'a, T, 4>) -> Result<TensorDesc<'a, T, 4>> {
    contiguous_last(name, view)?;
    let mut strides = view.strides();
    strides[3] = 1;
    TensorDesc::with_strides(view.elements(), view.shape(), strides)
}

/// The elements of logarithms of sums, if they are asked for, and their strides.
pub(super) fn logarithms<const R: usize>(
    lse: Option<TensorViewMut<'_, f32, R>>,
) -> Result<(MaybeViewMut<'_, f32>, [i64; R])> {
    let Some(lse) = lse else { return Ok((MaybeViewMut::from(None), [0; R])) };
    contiguous_last("lse", &lse.as_view())?;
    let strides = lse.strides().map(|stride| stride as i64);
    Ok((MaybeViewMut::from(Some(lse.elements())), strides))
}
