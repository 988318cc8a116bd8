//! The backward pass in one kernel, which adds up gradients of queries in memory.
//!
//! It has five products where two kernels have seven, since scores and gradients of weights are computed once. Sums in f32 lie
//! in the workspace: they are zeros first, programs add to them in an order that may change, and a kernel scales and
//! rounds them in the end.

pub(in crate::attention) mod kernels;

use super::results::{OfKeys, Results};
use super::rotated::tables;
use super::{BackwardConfig, Launch, rows_of};
use crate::attention::options::Attention;
use crate::attention::shape::{Problem, descriptor, tile_dim};
use crate::{Context, TensorView, TensorViewMut, check};
use kernels::{AttentionFusedBackwardConsts, AttentionQueriesScaleConsts};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, TensorDescMut};

/// Sums are in rows of whole units of 16 bytes, as copies in hardware write them.
const UNIT: usize = 4;

/// The elements of a row of sums.
pub(super) fn width(problem: &Problem) -> usize {
    problem.d.next_multiple_of(UNIT)
}

/// Whether there may be one kernel: the configuration says so, and the results may depend on the order of additions.
pub(super) fn is_chosen<T: DType>(config: &BackwardConfig, options: &Attention) -> bool {
    config.fused > 0 && !options.deterministic && size_of::<T>() == 2
}

impl<T: Float, C: Float> Launch<'_, T, C> {
    /// All three gradients. `sums` are zeros.
    pub(super) fn fused(
        &self,
        cx: &Context,
        logs: TensorView<'_, f32, 3>,
        deltas: TensorView<'_, f32, 3>,
        mut sums: TensorViewMut<'_, f32, 4>,
        mut results: Results<'_, T>,
    ) -> Result<()> {
        if self.keys > 0 {
            self.add(cx, logs, deltas, sums.reborrow(), results.keys_and_values(&self.problem)?)?;
        }
        if self.of_keys_in_registers().is_none() {
            self.turn_keys_back(cx, results.keys(&self.problem)?)?;
        }
        self.scale(cx, sums.as_view(), results.queries(&self.problem)?)
    }

    fn add(
        &self,
        cx: &Context,
        logs: TensorView<'_, f32, 3>,
        deltas: TensorView<'_, f32, 3>,
        sums: TensorViewMut<'_, f32, 4>,
        of_keys: OfKeys<'_, T>,
    ) -> Result<()> {
        let Launch { problem, places, saved, starts, config, .. } = self;
        let (bias, dk, dv) = (self.bias_strides(), of_keys.keys_strides, of_keys.values_strides);
        let (shape, strides) = (sums.shape(), sums.strides());
        let [cos, sin] = tables(self.of_keys_in_registers());
        AttentionFusedBackwardConsts {
            BM: config.keys_block_q,
            BN: config.keys_block_k,
            D: tile_dim(problem.d),
            DV: tile_dim(problem.dv),
        }
        .call(
            &descriptor("q", &saved.q)?,
            &descriptor("k", &saved.k)?,
            &descriptor("v", &saved.v)?,
            &descriptor("dout", &saved.dout)?,
            &rows_of(&logs)?,
            &rows_of(&deltas)?,
            MaybeView::from(saved.bias.map(|bias| bias.elements())),
            MaybeView::from(starts.map(|starts| starts.q.elements())),
            MaybeView::from(starts.map(|starts| starts.k.elements())),
            cos,
            sin,
            &mut TensorDescMut::with_strides(sums.elements(), shape, strides)?,
            of_keys.keys,
            of_keys.values,
            of_keys.apart,
            check::size("q", problem.queries)?,
            check::size("k", problem.keys)?,
            check::size("k", problem.d)?,
            check::size("v", problem.dv)?,
            check::size("q", problem.group)?,
            places.scale,
            self.soft_cap,
            places.left,
            places.right,
            bias[0],
            bias[1],
            bias[2],
            dk[0],
            dk[1],
            dk[2],
            dv[0],
            dv[1],
            dv[2],
        )
        .grid((self.keys.div_ceil(config.keys_block_k), problem.heads / problem.group, self.sequences))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
    }

    fn scale(&self, cx: &Context, sums: TensorView<'_, f32, 4>, dq: TensorViewMut<'_, T, 4>) -> Result<()> {
        let Problem { batch, heads, queries, d, .. } = self.problem;
        let (columns, strides) = (tile_dim(d), dq.strides());
        let [cos, sin] = tables(self.of_queries()?);
        // 32 elements a thread, of sums or of sums and tables.
        let rows = if self.rotation.is_some() { 2048 } else { 4096 } / columns;
        AttentionQueriesScaleConsts { BM: rows, D: columns }
            .call(
                sums.elements(),
                cos,
                sin,
                dq.elements(),
                check::size("q", queries)?,
                check::size("workspace", sums.shape()[2])?,
                check::size("q", d)?,
                check::size("q", width(&self.problem))?,
                self.places.scale,
                strides[0] as i64,
                strides[1] as i64,
                strides[2] as i64,
            )
            .grid((queries.div_ceil(rows), heads, batch))
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
