//! Where gradients are written.

use super::Saved;
use crate::attention::shape::{Problem, contiguous_last};
use crate::general::{write_zeros, write_zeros_between};
use crate::{Context, TensorViewMut, check};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Gradients of queries, keys and values: `[batch, heads, rows, d]`.
pub(super) enum Results<'a, T: DType> {
    /// Three tensors.
    Apart([TensorViewMut<'a, T, 4>; 3]),
    /// One, which has the heads of queries, keys and values one after the other. Where they are those of each token, each of the
    /// three begins between the elements of the others, so that no two can be borrowed.
    Beside(TensorViewMut<'a, T, 4>),
}

/// Gradients of keys and values, as kernels write them.
pub(super) struct OfKeys<'a, T: DType> {
    /// Those of keys; without `values` those of values behind them.
    pub(super) keys: ViewMut<'a, T>,
    pub(super) values: MaybeViewMut<'a, T>,
    /// How far the gradients of values are from those of keys in the same memory.
    pub(super) apart: Option<i64>,
    /// Of batch, head and row.
    pub(super) keys_strides: [i64; 3],
    pub(super) values_strides: [i64; 3],
}

fn outer_strides<T: DType>(x: &TensorViewMut<'_, T, 4>) -> [i64; 3] {
    let [batch, head, row, _] = x.strides();
    [batch, head, row].map(|stride| stride as i64)
}

impl<T: Float> Results<'_, T> {
    /// # Errors
    /// If they do not have the shapes of what they are gradients of.
    pub(super) fn check(&self, saved: &Saved<'_, T>, problem: &Problem) -> Result<()> {
        match self {
            Results::Apart([dq, dk, dv]) => {
                for (name, given, wanted) in [("dq", dq, &saved.q), ("dk", dk, &saved.k), ("dv", dv, &saved.v)] {
                    check::shape(name, given.shape(), wanted.shape())?;
                    contiguous_last(name, &given.as_view())?;
                }
                Ok(())
            }
            Results::Beside(all) => {
                let Problem { batch, heads, queries, d, .. } = *problem;
                let of_keys = [batch, saved.k.shape()[1], queries, d];
                check::shape("k", saved.k.shape(), of_keys)?;
                check::shape("v", saved.v.shape(), of_keys)?;
                check::shape("dqkv", all.shape(), [batch, heads + 2 * of_keys[1], queries, d])?;
                contiguous_last("dqkv", &all.as_view())
            }
        }
    }

    /// Zeros, for tokens of which no kernel writes gradients. Three tensors have no gaps then; one is not packed.
    pub(super) fn clear(&mut self, cx: &Context, queries_too: bool) -> Result<()> {
        let Results::Apart(all) = self else { return Ok(()) };
        for gradient in &mut all[usize::from(!queries_too)..] {
            write_zeros(cx, gradient.elements_mut())?;
        }
        Ok(())
    }

    /// Zeros for keys and values, which no queries see.
    pub(super) fn clear_keys_and_values(&mut self, cx: &Context, problem: &Problem) -> Result<()> {
        match self {
            Results::Apart([_, dk, dv]) => {
                write_zeros_between(cx, dk.reborrow())?;
                write_zeros_between(cx, dv.reborrow())
            }
            Results::Beside(all) => {
                let end = all.shape()[1];
                write_zeros_between(cx, all.reborrow().narrow(1, problem.heads..end)?)
            }
        }
    }

    /// Gradients of queries.
    pub(super) fn queries(&mut self, problem: &Problem) -> Result<TensorViewMut<'_, T, 4>> {
        match self {
            Results::Apart([dq, ..]) => Ok(dq.reborrow()),
            Results::Beside(all) => all.reborrow().narrow(1, 0..problem.heads),
        }
    }

    /// Those of keys.
    pub(super) fn keys(&mut self, problem: &Problem) -> Result<TensorViewMut<'_, T, 4>> {
        match self {
            Results::Apart([_, dk, _]) => Ok(dk.reborrow()),
            Results::Beside(all) => {
                let end = all.shape()[1];
                all.reborrow().narrow(1, problem.heads..problem.heads + (end - problem.heads) / 2)
            }
        }
    }

    /// Those of keys and values.
    pub(super) fn keys_and_values(&mut self, problem: &Problem) -> Result<OfKeys<'_, T>> {
        match self {
            Results::Apart([_, dk, dv]) => {
                let (keys_strides, values_strides) = (outer_strides(dk), outer_strides(dv));
                let values = MaybeViewMut::from(Some(dv.elements_mut()));
                Ok(OfKeys { keys: dk.elements_mut(), values, apart: None, keys_strides, values_strides })
            }
            Results::Beside(all) => {
                let end = all.shape()[1];
                let both = all.reborrow().narrow(1, problem.heads..end)?;
                let strides = outer_strides(&both);
                let apart = Some(((end - problem.heads) / 2) as i64 * strides[1]);
                let values = MaybeViewMut::from(None::<ViewMut<'_, T>>);
                Ok(OfKeys { keys: both.elements(), values, apart, keys_strides: strides, values_strides: strides })
            }
        }
    }
}
