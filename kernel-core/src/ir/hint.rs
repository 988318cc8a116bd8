//! Promises about the elements of a value: what makes one well-formed, and what to say when it is broken.

use super::dim::Dim;
use super::names::HintKind;
use super::needs::{Needs, Result, dt_admits, ensure, fail};
use super::types::Ty;
use super::{DTypeBound, Func};

/// The type of a hint's result, which is that of its operand.
///
/// # Errors
/// If the promise makes no sense for the operand.
pub(super) fn result_type(func: &Func, kind: HintKind, n: &Dim, multiple: &Dim, axis: u8, ty: &Ty) -> Result<Ty> {
    let Some(dt) = ty.dt() else { return fail("promises something of integers or truth values") };
    match kind {
        HintKind::Contiguous => ensure(dt_admits(func, dt, DTypeBound::Int), "promises something of integers")?,
        HintKind::Constant => ensure(Needs::Bits.admits(func, dt), "promises something of integers or truth values")?,
        HintKind::Holds => ensure(dt.known() == Some(super::DType::Bool), "promises that a truth value holds")?,
    }
    ensure(usize::from(axis) < ty.rank().max(1), "the axis is beyond the tile's rank")?;
    if let Some(n) = n.as_const() {
        ensure(n >= 1 && (n as u64).is_power_of_two(), "the size of groups is a power of two")?;
    }
    if let Some(multiple) = multiple.as_const() {
        ensure((1..=1 << 30).contains(&multiple), "a divisor is a number from 1 to 2^30")?;
    }
    Ok(ty.clone())
}

/// The promise in the words of the source: `multiple_of(.., 16)`.
pub fn call(kind: HintKind, n: &Dim, multiple: &Dim) -> String {
    let number = |dim: &Dim| dim.as_const().map_or("..".to_string(), |value| value.to_string());
    match (kind, n.as_const(), multiple.as_const()) {
        (HintKind::Holds, _, _) => "assume(..)".to_string(),
        (HintKind::Constant, _, _) => format!("max_constancy(.., {})", number(n)),
        (HintKind::Contiguous, Some(1), _) => format!("multiple_of(.., {})", number(multiple)),
        (HintKind::Contiguous, _, Some(1)) => format!("max_contiguous(.., {})", number(n)),
        (HintKind::Contiguous, _, _) => {
            format!("max_contiguous(.., {}, multiple_of = {})", number(n), number(multiple))
        }
    }
}

/// What is said where the promise does not hold.
pub fn broken(kind: HintKind, n: &Dim, multiple: &Dim) -> String {
    match kind {
        HintKind::Holds => "what was assumed does not hold".to_string(),
        HintKind::Contiguous | HintKind::Constant => {
            format!("the hint `{}` does not hold", call(kind, n, multiple))
        }
    }
}
