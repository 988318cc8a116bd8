//! Launches of the kernels of a product.

use super::config::{Machine, MatmulConfig};
use super::kernels::{BlocksConsts, FinishConsts, PointersConsts, ResidentConsts};
use super::problem::{Order, Problem, Strides};
use crate::products::tiles::balanced;
use crate::products::{Activation, Precision};
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// What happens to sums before they are stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a, R: Float> {
    pub(super) a_scale: Option<TensorView<'a, f32, 1>>,
    pub(super) b_scale: Option<TensorView<'a, f32, 1>>,
    pub(super) bias: Option<TensorView<'a, R, 1>>,
    pub(super) residual: Option<TensorView<'a, R, 3>>,
    pub(super) activation: Activation,
}

impl<R: Float> Default for Ends<'_, R> {
    fn default() -> Self {
        Ends { a_scale: None, b_scale: None, bias: None, residual: None, activation: Activation::None }
    }
}

/// The elements of a tensor that need not be there, as a kernel takes them.
fn maybe<'a, T: DType, const R: usize>(view: Option<TensorView<'a, T, R>>) -> MaybeView<'a, T> {
    MaybeView::from(view.map(|view| view.elements()))
}

/// How far apart the scales of neighbours are: one serves all, or each has its own.
fn step(scale: Option<TensorView<'_, f32, 1>>) -> i32 {
    i32::from(scale.is_some_and(|scale| scale.len() > 1))
}

/// Whether one matrix is all of them.
fn is_repeated(strides: Strides) -> bool {
    strides[0] == 0
}

/// A descriptor of `batch` matrices of `rows` times `columns`; one that is repeated is there once.
fn desc<'a, T: DType>(
    view: View<'a, T>,
    strides: Strides,
    [batch, rows, columns]: [usize; 3],
    order: Order,
) -> Result<TensorDesc<'a, T, 3>> {
    let count = if is_repeated(strides) { 1 } else { batch };
    match order {
        Order::Across => TensorDesc::with_strides(view, [count, rows, columns], [strides[0], strides[1], 1]),
        Order::Down => TensorDesc::with_strides(view, [count, columns, rows], [strides[0], strides[2], 1]),
    }
}

/// Sums, and how they are computed.
pub(super) struct Sums<'a> {
    pub(super) cx: &'a Context,
    pub(super) problem: Problem,
    pub(super) config: MatmulConfig,
    pub(super) precision: Precision,
}

impl Sums<'_> {
    /// Multiplies into `out`: the result, or, where programs share tiles, their sums one matrix behind the other.
    pub(super) fn run<T: Float, R: Float>(
        &self,
        a: TensorView<'_, T, 3>,
        b: TensorView<'_, T, 3>,
        out: ViewMut<'_, R>,
        ends: &Ends<'_, R>,
    ) -> Result<()> {
        let written = Problem { c: self.to(), ..self.problem };
        let copies = Machine::of(self.cx.device()).has_copies();
        match written.by_blocks([T::ELEMENT.size(), R::ELEMENT.size()]).filter(|_| copies) {
            Some(orders) => self.by_blocks(a, b, out, ends, orders),
            None => self.through_pointers(a, b, out, ends),
        }
    }

    /// Strides of what is written.
    fn to(&self) -> Strides {
        let Problem { m, n, c, .. } = self.problem;
        if self.config.splits > 1 { [m * n, n, 1] } else { c }
    }

    /// Matrices that are written: one for each program that shares a tile.
    fn parts(&self) -> usize {
        self.problem.batch * self.config.splits
    }

    /// Tiles that are written.
    fn tiles(&self) -> usize {
        self.config.tiles(&self.problem) * self.config.splits
    }

    fn by_blocks<T: Float, R: Float>(
        &self,
        a: TensorView<'_, T, 3>,
        b: TensorView<'_, T, 3>,
        out: ViewMut<'_, R>,
        ends: &Ends<'_, R>,
        [first, second]: [Order; 2],
    ) -> Result<()> {
        let Problem { batch, m, n, k, residual, .. } = self.problem;
        let MatmulConfig { bm, bn, bk, group, splits, resident, num_warps, num_stages } = self.config;
        let a_desc = desc(a.elements(), self.problem.a, [batch, m, k], first)?;
        let b_desc = desc(b.elements(), self.problem.b, [batch, k, n], second)?;
        let mut c = TensorDescMut::with_strides(out, [self.parts(), m, n], self.to())?;
        let by_blocks = self.problem.has_residual_by_blocks(R::ELEMENT.size());
        let (beside, rest) = if by_blocks { (ends.residual, None) } else { (None, ends.residual) };
        let beside = beside.map(|view| desc(view.elements(), residual, [batch, m, n], Order::Across)).transpose()?;
        let (activation, precision) = (ends.activation.code(), self.precision.code());
        macro_rules! launch {
            ($consts:ident, $grid:expr) => {
                $consts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: activation, PRECISION: precision }
                    .call(
                        (first == Order::Across).then_some(&a_desc),
                        (first == Order::Down).then_some(&a_desc),
                        (second == Order::Across).then_some(&b_desc),
                        (second == Order::Down).then_some(&b_desc),
                        &mut c,
                        maybe(ends.a_scale),
                        maybe(ends.b_scale),
                        maybe(ends.bias),
                        beside.as_ref(),
                        maybe(rest),
                        check::size("out", self.parts())?,
                        m as i32,
                        n as i32,
                        k as i32,
                        splits as i32,
                        i32::from(!is_repeated(self.problem.a)),
                        i32::from(!is_repeated(self.problem.b)),
                        i32::from(!is_repeated(residual)),
                        residual[0] as i64,
                        residual[1] as i64,
                        residual[2] as i64,
                        step(ends.a_scale),
                        step(ends.b_scale),
                    )
                    .grid($grid)
                    .num_warps(num_warps as u32)
                    .num_stages(num_stages as u32)
                    .stream(self.cx.stream())
                    .launch(self.cx.device())
            };
        }
        if resident > 0 {
            launch!(ResidentConsts, balanced(self.tiles(), self.cx.device().multiprocessor_count()))
        } else {
            launch!(BlocksConsts, self.tiles())
        }
    }

    fn through_pointers<T: Float, R: Float>(
        &self,
        a: TensorView<'_, T, 3>,
        b: TensorView<'_, T, 3>,
        out: ViewMut<'_, R>,
        ends: &Ends<'_, R>,
    ) -> Result<()> {
        let Problem { m, n, k, residual, .. } = self.problem;
        let MatmulConfig { bm, bn, bk, group, splits, num_warps, num_stages, .. } = self.config;
        let (from_a, from_b, to) = (self.problem.a, self.problem.b, self.to());
        macro_rules! launch {
            ($offset:ty) => {
                PointersConsts {
                    BM: bm,
                    BN: bn,
                    BK: bk,
                    GROUP: group,
                    ACTIVATION: ends.activation.code(),
                    PRECISION: self.precision.code(),
                }
                .call(
                    a.elements(),
                    b.elements(),
                    out,
                    maybe(ends.a_scale),
                    maybe(ends.b_scale),
                    maybe(ends.bias),
                    maybe(ends.residual),
                    m as i32,
                    n as i32,
                    k as i32,
                    splits as i32,
                    from_a[0] as i64,
                    from_a[1] as $offset,
                    from_a[2] as $offset,
                    from_b[0] as i64,
                    from_b[1] as $offset,
                    from_b[2] as $offset,
                    to[0] as i64,
                    to[1] as $offset,
                    to[2] as $offset,
                    residual[0] as i64,
                    residual[1] as $offset,
                    residual[2] as $offset,
                    step(ends.a_scale),
                    step(ends.b_scale),
                )
                .grid(self.tiles())
                .num_warps(num_warps as u32)
                .num_stages(num_stages as u32)
                .stream(self.cx.stream())
                .launch(self.cx.device())
            };
        }
        if self.problem.reach([bm, bn, bk]) < i32::MAX as usize { launch!(i32) } else { launch!(i64) }
    }

    /// Adds up the sums of programs that shared tiles.
    pub(super) fn finish<R: Float>(
        &self,
        parts: View<'_, f32>,
        out: TensorViewMut<'_, R, 3>,
        ends: &Ends<'_, R>,
    ) -> Result<()> {
        let Problem { batch, m, n, c, residual, .. } = self.problem;
        let (bm, bn) = (16.min(m.next_power_of_two()), 128);
        FinishConsts { BM: bm, BN: bn, ACTIVATION: ends.activation.code() }
            .call(
                parts,
                out.elements(),
                maybe(ends.a_scale),
                maybe(ends.b_scale),
                maybe(ends.bias),
                maybe(ends.residual),
                m as i32,
                n as i32,
                self.config.splits as i32,
                c[0] as i64,
                c[1] as i64,
                c[2] as i64,
                residual[0] as i64,
                residual[1] as i64,
                residual[2] as i64,
                step(ends.a_scale),
                step(ends.b_scale),
            )
            .grid(batch * m.div_ceil(bm) * n.div_ceil(bn))
            .num_warps(4)
            .stream(self.cx.stream())
            .launch(self.cx.device())
    }
}
