//! What a product is: sizes and strides of its matrices, checked.

use crate::check;
use crate::tensor::layout::Layout;
use crate::{TensorView, TensorViewMut};
use tilewright::{DType, Result};

/// Strides of matrix, row and column, in elements.
pub(crate) type Strides = [usize; 3];

/// `c[z] = a[z] @ b[z]` for each `z` below `batch`; a stride of 0 repeats a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::products) struct Problem {
    pub(in crate::products) batch: usize,
    pub(in crate::products) m: usize,
    pub(in crate::products) n: usize,
    pub(in crate::products) k: usize,
    pub(in crate::products) a: Strides,
    pub(in crate::products) b: Strides,
    pub(in crate::products) c: Strides,
    /// Zeros where there is none.
    pub(in crate::products) residual: Strides,
}

/// A matrix, or some of them, as some of them.
pub(in crate::products) fn matrices<const R: usize>(layout: Layout<R>) -> Layout<3> {
    const { assert!(R == 2 || R == 3, "a factor is a matrix or has one more dimension, that of the products") }
    let last = |values: [usize; R], first| [if R == 3 { values[0] } else { first }, values[R - 2], values[R - 1]];
    Layout { shape: last(layout.shape, 1), strides: last(layout.strides, 0) }
}

/// The shape of a product.
pub(in crate::products) fn result<const R: usize, const S: usize>(a: [usize; R], b: [usize; S]) -> [usize; R] {
    let mut shape = a;
    shape[R - 1] = b[S - 1];
    if R == 3 && S == 3 && shape[0] == 1 {
        shape[0] = b[0];
    }
    shape
}

impl Problem {
    /// Checks shapes. Of each, `None` of a residual is one that is nowhere.
    pub(in crate::products) fn new<const R: usize, const S: usize>(
        a: Layout<R>,
        b: Layout<S>,
        c: Layout<R>,
        residual: Option<Layout<3>>,
    ) -> Result<Problem> {
        const { assert!(S <= R, "the second factor has as many dimensions as the first, or one less") }
        if a.shape[R - 1] != b.shape[S - 2] {
            let problem = format!("has {} rows, `a` has {} columns", b.shape[S - 2], a.shape[R - 1]);
            return Err(check::invalid("b", problem, "columns of `a` are multiplied with rows of `b`: give as many"));
        }
        check::shape("out", c.shape, result(a.shape, b.shape))?;
        let (a, b, c) = (matrices(a), matrices(b), matrices(c));
        let batch = c.shape[0];
        for (name, matrices) in [("a", a), ("b", b)] {
            if matrices.shape[0] != batch && matrices.shape[0] != 1 {
                let problem = format!("has {} matrices, the result has {batch}", matrices.shape[0]);
                return Err(check::invalid(name, problem, "give as many matrices in both factors, or one"));
            }
        }
        let repeated = |layout: Layout<3>| match layout.shape[0] {
            1 => [0, layout.strides[1], layout.strides[2]],
            _ => layout.strides,
        };
        if let Some(residual) = residual {
            check::shape("residual", residual.shape, c.shape)?;
        }
        let [_, m, n] = c.shape;
        let k = a.shape[2];
        for (name, size) in [("out", batch), ("out", m), ("out", n), ("a", k)] {
            check::size(name, size)?;
        }
        let (a, b) = (repeated(a), repeated(b));
        let problem =
            Problem { batch, m, n, k, a, b, c: c.strides, residual: residual.map_or([0; 3], |layout| layout.strides) };
        Ok(problem.merged())
    }

    /// Products that share the second factor are one product, where their rows follow each other.
    fn merged(self) -> Problem {
        let follow = |strides: Strides| strides[0] == strides[1] * self.m;
        let one = self.batch > 1 && self.b[0] == 0 && self.m > 0;
        let rows = self.batch.checked_mul(self.m).filter(|rows| i32::try_from(*rows).is_ok());
        match rows {
            Some(rows) if one && follow(self.a) && follow(self.c) && follow(self.residual) => {
                Problem { batch: 1, m: rows, ..self }
            }
            _ => self,
        }
    }

    /// The orders of the factors, if the hardware can copy blocks of them and of the result; of elements of so many bytes in
    /// factors and result.
    pub(in crate::products) fn by_blocks(&self, [factors, result]: [usize; 2]) -> Option<[Order; 2]> {
        let &Problem { m, n, k, .. } = self;
        let orders = [order(self.a, [m, k], factors)?, order(self.b, [k, n], factors)?];
        (order(self.c, [m, n], result) == Some(Order::Across)).then_some(orders)
    }

    /// Whether the hardware can copy blocks of the residual, if there is one, and shared memory has room for them: for those of
    /// 16 bits.
    pub(in crate::products) fn has_residual_by_blocks(&self, bytes: usize) -> bool {
        bytes <= 2 && order(self.residual, [self.m, self.n], bytes) == Some(Order::Across)
    }

    /// The largest offset of all, with whole tiles beyond the end.
    pub(in crate::products) fn reach(&self, [bm, bn, bk]: [usize; 3]) -> usize {
        let (m, n, k) = (self.m.next_multiple_of(bm), self.n.next_multiple_of(bn), self.k.next_multiple_of(bk));
        let span = |strides: Strides, rows: usize, columns: usize| {
            rows.saturating_mul(strides[1]).saturating_add(columns.saturating_mul(strides[2]))
        };
        let spans = [span(self.a, m, k), span(self.b, k, n), span(self.c, m, n), span(self.residual, m, n)];
        spans.into_iter().max().unwrap_or(0)
    }
}

/// Which dimension of a matrix is contiguous, so that blocks of it can be copied by the hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Rows.
    Across,
    /// Columns: it is the transpose of a matrix whose rows are.
    Down,
}

/// What a tensor copy asks of addresses, in bytes.
pub(crate) const UNIT: usize = 16;

/// The order of matrices of `rows` times `columns` that the hardware can copy, if it can.
pub(crate) fn order(strides: Strides, [rows, columns]: [usize; 2], bytes: usize) -> Option<Order> {
    let whole = |stride: usize| (stride * bytes).is_multiple_of(UNIT);
    let fits = |far: usize, near: usize, size: usize| near == 1 && (size == 1 || (far > 0 && whole(far)));
    if rows == 0 || columns == 0 || !whole(strides[0]) {
        None
    } else if fits(strides[1], strides[2], rows) {
        Some(Order::Across)
    } else if fits(strides[2], strides[1], columns) {
        Some(Order::Down)
    } else {
        None
    }
}

/// The tensor as matrices, one behind the other.
pub(in crate::products) fn lifted<'a, T: DType, const R: usize>(
    view: TensorView<'a, T, R>,
) -> Result<TensorView<'a, T, 3>> {
    let Layout { shape, strides } = matrices(view.layout());
    TensorView::with_strides(view.elements(), shape, strides)
}

/// The same for one that is written.
pub(in crate::products) fn lifted_mut<T: DType, const R: usize>(
    view: TensorViewMut<'_, T, R>,
) -> Result<TensorViewMut<'_, T, 3>> {
    let Layout { shape, strides } = matrices(view.layout());
    TensorViewMut::with_strides(view.elements(), shape, strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(a: Layout<3>, b: Layout<2>) -> Problem {
        let c = Layout::packed(result(a.shape, b.shape));
        Problem::new(a, b, c, None).unwrap()
    }

    #[test]
    fn products_with_one_second_factor_are_one_product() {
        let merged = problem(Layout::packed([4, 3, 8]), Layout::packed([8, 5]));
        assert_eq!((merged.batch, merged.m, merged.n, merged.k), (1, 12, 5, 8));
        let apart = problem(Layout { shape: [4, 3, 8], strides: [32, 8, 1] }, Layout::packed([8, 5]));
        assert_eq!((apart.batch, apart.m), (4, 3));
    }

    #[test]
    fn the_hardware_copies_rows_of_whole_units() {
        assert_eq!(order([0, 64, 1], [10, 64], 2), Some(Order::Across));
        assert_eq!(order([0, 1, 64], [64, 10], 2), Some(Order::Down));
        assert_eq!(order([0, 60, 1], [10, 60], 2), None);
        assert_eq!(order([0, 60, 1], [10, 60], 4), Some(Order::Across));
        assert_eq!(order([0, 64, 2], [10, 32], 2), None);
        assert_eq!(order([640, 0, 1], [10, 64], 2), None, "a row that is repeated");
        assert_eq!(order([0, 7, 1], [1, 64], 2), Some(Order::Across), "of one row no stride matters");
    }
}
