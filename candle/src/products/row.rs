//! Products of single rows, as decoding has them: the time is that of reading the weight, and what stands around a product costs
//! nothing beside it.

use crate::prelude::*;
use crate::{Element, TensorRef};
use tilewright::launch::MaybeView;
use tilewright_kernels::{TensorView, TensorViewMut};

/// RMS norm of a row `x`, its products with `BN` rows of the weight, and what follows. Lanes keep sums of their own, so that
/// threads exchange them once. `GATED` rows come in pairs, `n` apart: the result is `silu(a) * b`.
#[kernel]
fn row_product<T: Float, const BN: usize, const BK: usize, const GATED: bool>(
    x: Ptr<T>,
    weight: Ptr<T>,
    norm: Option<Ptr<T>>,
    residual: Option<Ptr<T>>,
    out: PtrMut<T>,
    n: i32,
    k: i32,
    x_row: i64,
    weight_row: i64,
    residual_row: i64,
    eps: f64,
) {
    let column = program_id(0) * BN + arange(0, BN);
    let (row, inside) = (program_id(1) as i64, (column < n)[(.., None)]);
    let mut sums = zeros::<T::Acc>([BN, BK]);
    let mut others = zeros::<T::Acc>([BN, BK]);
    let mut squares = zeros::<T::Acc>([1, BK]);
    for first in (0..k).step_by(BK) {
        let at = (first + arange(0, BK))[(None, ..)];
        let mask = inside & (at < k);
        let value = load(x + row * x_row + at, mask = at < k) as T::Acc;
        let value = if let Some(norm) = norm {
            squares += value * value;
            value * load(norm + at, mask = at < k) as T::Acc
        } else {
            value
        };
        let place = column[(.., None)] as i64 * weight_row + at as i64;
        sums += value * load(weight + place, mask = mask) as T::Acc;
        if GATED {
            others += value * load(weight + (place + n as i64 * weight_row), mask = mask) as T::Acc;
        }
    }
    let scale = if let Some(_) = norm { rsqrt(sum(squares) / k as T::Acc + eps as T::Acc) } else { 1.0 as T::Acc };
    let result = sum(sums, axis = 1) * scale;
    let result = if GATED { result * sigmoid(result) * (sum(others, axis = 1) * scale) } else { result };
    let result = if let Some(residual) = residual {
        result + load(residual + row * residual_row + column, mask = column < n) as T::Acc
    } else {
        result
    };
    store(out + (row * n as i64 + column as i64), result as T, mask = column < n);
}

/// The most rows that are multiplied one by one: a weight that several read is read from memory once, then from the cache.
const MOST_ROWS: usize = 4;

/// A product of rows `x` with a weight `[n, k]`, or `[2 n, k]` if it is gated.
pub(super) struct RowProduct<'a, T: Element + Float> {
    pub(super) x: TensorView<'a, T, 2>,
    pub(super) weight: TensorView<'a, T, 2>,
    /// The weight of an RMS norm of `x`, and its epsilon.
    pub(super) norm: Option<(TensorView<'a, T, 1>, f64)>,
    pub(super) residual: Option<TensorView<'a, T, 2>>,
    pub(super) gated: bool,
}

impl<T: Element + Float> RowProduct<'_, T> {
    /// Whether rows are few, and tensors have the strides that this needs.
    pub(super) fn fits(&self) -> bool {
        let ([rows, k], [_, weight_column]) = (self.x.shape(), self.weight.strides());
        let norm = self.norm.is_none_or(|(norm, _)| norm.is_contiguous());
        (1..=MOST_ROWS).contains(&rows) && k > 0 && weight_column == 1 && norm
    }

    /// Launches it; `out` is `[rows, n]` without gaps, and shapes fit.
    pub(super) fn launch(self, at: TensorRef<'_>, out: TensorViewMut<'_, T, 2>) -> Result<()> {
        let ([rows, n], [_, k]) = (out.shape(), self.x.shape());
        let size = |size: usize| i32::try_from(size).map_err(|_| at.invalid("is too large", "i32 counts its columns"));
        let residual_row = self.residual.map_or(0, |residual| residual.strides()[0]);
        let (norm, eps) = self.norm.map_or((None, 0.0), |(norm, eps)| (Some(norm.elements()), eps));
        // 16 bytes a thread and row of the weight, of four rows or two pairs.
        let (bn, bk) = if self.gated { (2, 512) } else { (4, 512) };
        RowProductConsts { BN: bn, BK: bk, GATED: self.gated }
            .call(
                self.x.elements(),
                self.weight.elements(),
                MaybeView::from(norm),
                MaybeView::from(self.residual.map(|residual| residual.elements())),
                out.elements(),
                size(n)?,
                size(k)?,
                self.x.strides()[0] as i64,
                self.weight.strides()[0] as i64,
                residual_row as i64,
                eps,
            )
            .grid((n.div_ceil(bn), rows))
            .num_warps(4)
            .launch(at.device())
    }
}
