//! Results of attention over parts of the keys, before they are [merged](super::merge).

use crate::workspace::contiguous;
use crate::{TensorViewMut, check};
use tilewright::{DType, Result};

/// The results of parts, in f32.
pub(super) struct Partial<'a> {
    /// `[parts, batch, heads, queries, dv]`.
    pub(super) sums: TensorViewMut<'a, f32, 5>,
    /// The logarithms of sums, `[parts, batch, heads, queries]`.
    pub(super) logs: TensorViewMut<'a, f32, 4>,
}

/// Into how many parts keys are divided if a configuration asks for so many: one of f64, whose digits results in f32 would lose.
pub(super) fn of<T: DType>(parts: usize) -> usize {
    if T::ELEMENT == f64::ELEMENT { 1 } else { parts.max(1) }
}

/// How many f32 the results of so many parts are, each `[batch, heads, queries, dv]` with logarithms of sums. One part needs
/// none: its results are those of attention.
pub(super) fn workspace(parts: usize, result: [usize; 4]) -> usize {
    let [batch, heads, queries, dv] = result;
    // More than can be counted is more than any memory has.
    if parts > 1 { [parts, batch, heads, queries, dv + 1].into_iter().fold(1, usize::saturating_mul) } else { 0 }
}

impl<'a> Partial<'a> {
    /// Room for the results of so many parts at the beginning of a workspace, or `None` for one part.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`](tilewright::Error::InvalidTensor) if the workspace has gaps, or fewer elements than
    /// [`workspace`] says.
    pub(super) fn of(workspace: TensorViewMut<'a, f32, 1>, parts: usize, result: [usize; 4]) -> Result<Option<Self>> {
        let workspace = contiguous("workspace", workspace)?;
        let needed = self::workspace(parts, result);
        if workspace.len() < needed {
            let problem = format!("has {} elements", workspace.len());
            return Err(check::invalid("workspace", problem, format!("the results of {parts} parts need {needed}")));
        }
        if parts <= 1 {
            return Ok(None);
        }
        let [batch, heads, queries, dv] = result;
        let (sums, logs) = workspace.elements().split_at_mut(parts * batch * heads * queries * dv)?;
        Ok(Some(Partial {
            sums: TensorViewMut::new(sums, [parts, batch, heads, queries, dv])?,
            logs: TensorViewMut::new(logs, [parts, batch, heads, queries])?,
        }))
    }
}

/// `x` as the only one of several parts: `S` is `R + 1`.
pub(super) fn one_part<T: DType, const R: usize, const S: usize>(
    x: TensorViewMut<'_, T, R>,
) -> Result<TensorViewMut<'_, T, S>> {
    const { assert!(S == R + 1, "a part is a dimension") }
    let shape = x.shape();
    x.reshape(std::array::from_fn(|at| if at == 0 { 1 } else { shape[at - 1] }))
}
