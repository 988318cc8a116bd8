//! Launches of the products of experts.

use super::Scaled;
use super::groups::{Groups, Lists};
use super::kernels::{ExpertsConsts, ExpertsGradientConsts, GatedExpertsConsts};
use crate::arguments::packed;
use crate::config::config;
use crate::general::write_zeros;
use crate::products::Activation;
use crate::products::fp8::BLOCK;
use crate::products::tiles::balanced;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View};

config! {
    /// How products of experts run; sizes are the rows of a block, columns, the length of sums, and 1, of products with a
    /// gate 2, with scales 4, of the gradient of weights 8. The rows of a tile are those of a block; 128 of a gradient.
    "grouped": pub struct GroupedConfig {
        /// Columns of a tile: at most 128 with scales.
        pub bn,
        /// Elements of each sum in a step, without scales. Of a gradient they are rows: those of a block at most.
        pub bk,
        /// Blocks that neighbouring programs go down before the next column begins.
        pub group,
        /// Warps of a program.
        pub num_warps,
        /// Steps in flight.
        pub num_stages,
    }
}

/// What a product of experts is. Tables tell kinds apart as a size, which they round up to a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain = 1,
    Gated = 2,
    Scaled = 4,
    Gradient = 8,
}

impl GroupedConfig {
    pub(super) fn choose(block: usize, bytes: usize, kind: Kind, capability: Option<(u32, u32)>) -> Self {
        let of = |bn, bk, num_stages, num_warps| GroupedConfig { bn, bk, group: 8, num_warps, num_stages };
        let bk = 128 / bytes;
        match (capability, kind, block) {
            (None, ..) => of(32, 32.min(block), 2, 4),
            (Some(capability), ..) if capability < (9, 0) => of(64, bk / 2, 3, 4),
            (_, Kind::Gradient, _) => of(128, bk.min(block), 5, 8),
            (_, _, ..64) => of(64, bk, 5, 4),
            (_, Kind::Scaled, 64) => of(128, bk, 6, 4),
            (_, Kind::Scaled, _) => of(128, bk, 5, 8),
            (_, Kind::Gated, 64) => of(64, bk, 6, 4),
            (_, Kind::Gated, _) => of(128, bk, 4, 8),
            (_, Kind::Plain, 64) => of(128, bk, 6, 4),
            (_, Kind::Plain, _) => of(256, bk, 4, 8),
        }
    }
}

/// Weights as descriptors take them: a stride for experts and one for rows, of the matrices or of their transposes.
pub(super) struct Weights<'a, F: Float> {
    desc: TensorDesc<'a, F, 3>,
    down: bool,
    /// Experts, the length of sums, columns.
    shape: [usize; 3],
}

impl<'a, F: Float> Weights<'a, F> {
    pub(super) fn new(argument: &str, weights: TensorView<'a, F, 3>) -> Result<Self> {
        let ([experts, k, n], [step, row, column]) = (weights.shape(), weights.strides());
        let (shape, far, down) = if column == 1 || n == 1 {
            ([experts, k, n], row, false)
        } else if row == 1 || k == 1 {
            ([experts, n, k], column, true)
        } else {
            let problem = format!("has strides {:?}", weights.strides());
            let hint = "one dimension of each matrix is contiguous: copy it with `general::contiguous` first";
            return Err(check::invalid(argument, problem, hint));
        };
        let desc = TensorDesc::with_strides(weights.elements(), shape, [step, far, 1])?;
        Ok(Weights { desc, down, shape: [experts, k, n] })
    }

    fn across(&self) -> Option<&TensorDesc<'a, F, 3>> {
        (!self.down).then_some(&self.desc)
    }

    fn transposed(&self) -> Option<&TensorDesc<'a, F, 3>> {
        self.down.then_some(&self.desc)
    }
}

/// Checks rows and weights, and gives the columns of the weights and the length of sums.
fn sizes<F: Float>(x: &TensorView<'_, F, 2>, weights: &Weights<'_, F>, groups: &Lists<'_>) -> Result<[i32; 3]> {
    let ([experts, k, n], height) = (weights.shape, groups.sizes.height());
    check::shape("x", x.shape(), [height, k])?;
    check::shape("weights", [experts, k, n], [groups.sizes.experts, k, n])?;
    Ok([check::size("weights", n)?, check::size("weights", k)?, check::size("x", height)?])
}

fn rows<'a, F: Float>(argument: &str, x: TensorView<'a, F, 2>) -> Result<TensorDesc<'a, F, 2>> {
    let rows = x.rows(argument)?;
    TensorDesc::with_strides(x.elements(), [rows.rows, rows.columns], [rows.stride, 1])
}

fn config<F: Float>(cx: &Context, groups: &Lists<'_>, [n, k]: [i32; 2], kind: Kind) -> Result<GroupedConfig> {
    let block = groups.sizes.block;
    let choose = || GroupedConfig::choose(block, F::ELEMENT.size(), kind, cx.device().compute_capability());
    cx.config(F::ELEMENT, &[block, n as usize, k as usize, kind as usize], choose)
}

/// As many programs as run at the same time, or as there are tiles at most.
fn programs(cx: &Context, groups: &Lists<'_>, n: i32, config: GroupedConfig) -> usize {
    let tiles = groups.sizes.height() / groups.sizes.block * (n as usize).div_ceil(config.bn);
    balanced(tiles, cx.device().multiprocessor_count())
}

/// Scales of rows and weights.
struct Scales<'a> {
    rows: View<'a, f32>,
    row: i32,
    weights: View<'a, f32>,
    strides: [i32; 3],
}

/// Weights of 8-bit floats with their scales, checked.
pub(super) struct ScaledWeights<'a> {
    weights: Weights<'a, F8E4M3>,
    scales: View<'a, f32>,
    strides: [i32; 3],
}

impl<'a> ScaledWeights<'a> {
    pub(super) fn new(argument: &str, Scaled { weights, scales }: Scaled<'a>) -> Result<Self> {
        let [experts, k, n] = weights.shape();
        let name = format!("{argument}.scales");
        check::shape(&name, scales.shape(), [experts, k.div_ceil(BLOCK), n.div_ceil(BLOCK)])?;
        // Offsets of scales are i32.
        check::size(&name, scales.elements().len())?;
        let strides = scales.strides().map(|stride| stride as i32);
        Ok(ScaledWeights { weights: Weights::new(argument, weights)?, scales: scales.elements(), strides })
    }
}

/// What results hold in rows behind the last block that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Zeros,
    /// What they held before: nobody reads them.
    Unread,
}

/// Where a product is written, and what becomes of rows that it does not reach.
pub(super) struct To<'a, R: DType> {
    pub(super) out: TensorViewMut<'a, R, 2>,
    pub(super) rest: Rest,
}

impl<'a, R: Float> To<'a, R> {
    /// Checks the shape, and writes zeros where they are asked for.
    fn prepare(mut self, cx: &Context, shape: [usize; 2]) -> Result<TensorViewMut<'a, R, 2>> {
        check::shape("out", self.out.shape(), shape)?;
        packed("out", self.out.is_contiguous())?;
        if self.rest == Rest::Zeros {
            write_zeros(cx, self.out.elements_mut())?;
        }
        Ok(self.out)
    }
}

fn launch<F: Float, R: Float>(
    cx: &Context,
    x: TensorView<'_, F, 2>,
    weights: &Weights<'_, F>,
    scales: Option<Scales<'_>>,
    groups: &Lists<'_>,
    to: To<'_, R>,
) -> Result<()> {
    let [n, k, height] = sizes(&x, weights, groups)?;
    let (x, shape) = (rows("x", x)?, [height as usize, n as usize]);
    let kind = if scales.is_some() { Kind::Scaled } else { Kind::Plain };
    let config = config::<F>(cx, groups, [n, k], kind)?;
    let out = to.prepare(cx, shape)?;
    if out.is_empty() {
        return Ok(());
    }
    let mut to = TensorDescMut::new(out.elements(), shape)?;
    let strides = scales.as_ref().map_or([0; 3], |scales| scales.strides);
    let bk = if scales.is_some() { BLOCK } else { config.bk };
    ExpertsConsts { BM: groups.sizes.block, BN: config.bn, BK: bk, GROUP: config.group }
        .call(
            &x,
            weights.across(),
            weights.transposed(),
            MaybeView::from(scales.as_ref().map(|scales| scales.rows)),
            MaybeView::from(scales.as_ref().map(|scales| scales.weights)),
            groups.owners,
            groups.used,
            &mut to,
            n,
            k,
            height,
            scales.as_ref().map_or(0, |scales| scales.row),
            strides[0],
            strides[1],
            strides[2],
        )
        .grid(programs(cx, groups, n, config))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `out[i] = x[i] @ weights[expert of row i]`; padding is multiplied too.
///
/// # Shapes
///
/// `x` is `[groups.height(), k]`, `weights` is `[experts, k, n]`, of which `k` or `n` is contiguous; the result is
/// `[groups.height(), n]`, of any float dtype. Sums are in f32.
///
/// # Gradients
///
/// That of `x` is the product of the result's gradient with `weights.transpose(1, 2)?`, by the same groups; that of `weights`
/// is [`weights_gradient`].
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes or strides do not fit, [`Error::OutOfMemory`], those of a launch.
pub fn matmul<'a, 'b, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: impl Into<TensorView<'b, F, 3>>,
    groups: &Groups,
) -> Result<Tensor<R, 2>> {
    let weights = weights.into();
    let mut out = Tensor::empty(cx.device(), [groups.height(), weights.shape()[2]])?;
    matmul_into(cx, x, weights, groups, &mut out)?;
    Ok(out)
}

/// [`matmul`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`matmul`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn matmul_into<'a, 'b, 'c, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: impl Into<TensorView<'b, F, 3>>,
    groups: &Groups,
    out: impl Into<TensorViewMut<'c, R, 2>>,
) -> Result<()> {
    let to = To { out: out.into(), rest: Rest::Zeros };
    plain(cx, x.into(), &Weights::new("weights", weights.into())?, &groups.lists(), to)
}

/// [`matmul_into`], with what its result holds behind the blocks that are used.
pub(super) fn plain<F: Float, R: Float>(
    cx: &Context,
    x: TensorView<'_, F, 2>,
    weights: &Weights<'_, F>,
    groups: &Lists<'_>,
    to: To<'_, R>,
) -> Result<()> {
    launch(cx, x, weights, None, groups, to)
}

/// [`matmul`] of 8-bit floats with scales, `x_scale` one for each row and 128 neighbours of it, `[groups.height(), ceil(k /
/// 128)]`.
///
/// # Errors
///
/// As [`matmul`].
pub fn matmul_blocks<'a, 'b, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F8E4M3, 2>>,
    x_scale: impl Into<TensorView<'b, f32, 2>>,
    weights: Scaled<'_>,
    groups: &Groups,
) -> Result<Tensor<R, 2>> {
    let mut out = Tensor::empty(cx.device(), [groups.height(), weights.weights.shape()[2]])?;
    matmul_blocks_into(cx, x, x_scale, weights, groups, &mut out)?;
    Ok(out)
}

/// [`matmul_blocks`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`matmul_blocks`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn matmul_blocks_into<'a, 'b, 'c, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F8E4M3, 2>>,
    x_scale: impl Into<TensorView<'b, f32, 2>>,
    weights: Scaled<'_>,
    groups: &Groups,
    out: impl Into<TensorViewMut<'c, R, 2>>,
) -> Result<()> {
    let to = To { out: out.into(), rest: Rest::Zeros };
    scaled(cx, (x.into(), x_scale.into()), &ScaledWeights::new("weights", weights)?, &groups.lists(), to)
}

/// [`matmul_blocks_into`], with what its result holds behind the blocks that are used.
pub(super) fn scaled<R: Float>(
    cx: &Context,
    (x, x_scale): (TensorView<'_, F8E4M3, 2>, TensorView<'_, f32, 2>),
    weights: &ScaledWeights<'_>,
    groups: &Lists<'_>,
    to: To<'_, R>,
) -> Result<()> {
    let ([height, _], [_, k, _]) = (x.shape(), weights.weights.shape);
    check::shape("x_scale", x_scale.shape(), [height, k.div_ceil(BLOCK)])?;
    // Offsets of scales are i32.
    check::size("x_scale", x_scale.elements().len())?;
    let row = x_scale.rows("x_scale")?.stride as i32;
    let scales = Scales { rows: x_scale.elements(), row, weights: weights.scales, strides: weights.strides };
    launch(cx, x, &weights.weights, Some(scales), groups, to)
}

/// `out[i] = activation(x[i] @ gate) * (x[i] @ up)`, with `gate` and `up` of row i's expert, which lie side by side.
///
/// # Shapes
///
/// `x` is `[groups.height(), k]`, `weights` is `[experts, k, 2 * inner]`, the columns of `gate` first; the result is
/// `[groups.height(), inner]`. Sums and the activation are in f32.
///
/// # Errors
///
/// As [`matmul`], and [`Error::InvalidTensor`] if the number of columns is odd.
pub fn matmul_gated<'a, 'b, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: impl Into<TensorView<'b, F, 3>>,
    groups: &Groups,
    activation: Activation,
) -> Result<Tensor<R, 2>> {
    let weights = weights.into();
    let mut out = Tensor::empty(cx.device(), [groups.height(), weights.shape()[2] / 2])?;
    matmul_gated_into(cx, x, weights, groups, activation, &mut out)?;
    Ok(out)
}

/// [`matmul_gated`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`matmul_gated`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn matmul_gated_into<'a, 'b, 'c, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: impl Into<TensorView<'b, F, 3>>,
    groups: &Groups,
    activation: Activation,
    out: impl Into<TensorViewMut<'c, R, 2>>,
) -> Result<()> {
    let to = To { out: out.into(), rest: Rest::Zeros };
    gated(cx, x.into(), &Weights::new("weights", weights.into())?, &groups.lists(), activation, to)
}

/// [`matmul_gated_into`], with what its result holds behind the blocks that are used.
pub(super) fn gated<F: Float, R: Float>(
    cx: &Context,
    x: TensorView<'_, F, 2>,
    weights: &Weights<'_, F>,
    groups: &Lists<'_>,
    activation: Activation,
    to: To<'_, R>,
) -> Result<()> {
    let [both, k, height] = sizes(&x, weights, groups)?;
    if both % 2 != 0 {
        let problem = format!("has {both} columns");
        return Err(check::invalid("weights", problem, "half of them are the gate's, half are multiplied by it"));
    }
    let inner = both / 2;
    let (x, shape) = (rows("x", x)?, [height as usize, inner as usize]);
    let config = config::<F>(cx, groups, [inner, k], Kind::Gated)?;
    let out = to.prepare(cx, shape)?;
    if out.is_empty() {
        return Ok(());
    }
    let mut to = TensorDescMut::new(out.elements(), shape)?;
    GatedExpertsConsts {
        BM: groups.sizes.block,
        BN: config.bn,
        BK: config.bk,
        GROUP: config.group,
        ACTIVATION: activation.code(),
    }
    .call(&x, weights.across(), weights.transposed(), groups.owners, groups.used, &mut to, inner, k, height)
    .grid(programs(cx, groups, inner, config))
    .num_warps(config.num_warps as u32)
    .num_stages(config.num_stages as u32)
    .stream(cx.stream())
    .launch(cx.device())
}

/// The gradient of the weights of [`matmul`]: `out[e] = x^T @ dy` over the rows of expert `e`; zero of one without rows.
///
/// # Shapes
///
/// `x` is `[groups.height(), k]`, as [`gather`](super::gather) gives it, so that its padding is zero; `dy` is
/// `[groups.height(), n]`, whose padding is finite; the result is `[experts, k, n]`, of any float dtype. Sums are in f32.
///
/// # Errors
///
/// As [`matmul`].
pub fn weights_gradient<'a, 'b, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    dy: impl Into<TensorView<'b, F, 2>>,
    groups: &Groups,
) -> Result<Tensor<R, 3>> {
    let (x, dy) = (x.into(), dy.into());
    let shape = [groups.lists().sizes.experts, x.shape()[1], dy.shape()[1]];
    let mut out = Tensor::empty(cx.device(), shape)?;
    weights_gradient_into(cx, x, dy, groups, &mut out)?;
    Ok(out)
}

/// [`weights_gradient`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`weights_gradient`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn weights_gradient_into<'a, 'b, 'c, F: Float, R: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    dy: impl Into<TensorView<'b, F, 2>>,
    groups: &Groups,
    out: impl Into<TensorViewMut<'c, R, 3>>,
) -> Result<()> {
    let (x, dy, out, groups) = (x.into(), dy.into(), out.into(), groups.lists());
    let ([_, k], [_, n], height, experts) = (x.shape(), dy.shape(), groups.sizes.height(), groups.sizes.experts);
    check::shape("x", x.shape(), [height, k])?;
    check::shape("dy", dy.shape(), [height, n])?;
    check::shape("out", out.shape(), [experts, k, n])?;
    packed("out", out.is_contiguous())?;
    let (x, dy, shape) = (rows("x", x)?, rows("dy", dy)?, out.shape());
    let (inner, columns) = (check::size("x", k)?, check::size("dy", n)?);
    if height == 0 || out.is_empty() {
        return write_zeros(cx, out.elements());
    }
    let config = config::<F>(cx, &groups, [columns, inner], Kind::Gradient)?;
    let bm = if cx.device().is_cuda() { 128 } else { 32 };
    // A step is of one expert, whose rows are whole blocks.
    let bk = config.bk.min(groups.sizes.block);
    let mut to = TensorDescMut::new(out.elements(), shape)?;
    let tiles = experts * k.div_ceil(bm) * n.div_ceil(config.bn);
    ExpertsGradientConsts { BM: bm, BN: config.bn, BK: bk, GROUP: config.group }
        .call(&x, &dy, groups.ends, &mut to, experts as i32, inner, columns, groups.sizes.block as i32)
        .grid(balanced(tiles, cx.device().multiprocessor_count()))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use std::collections::BTreeSet;
    use tilewright::tune::bucket;

    #[test]
    fn tables_tell_kinds_apart() {
        let kinds = [Kind::Plain, Kind::Gated, Kind::Scaled, Kind::Gradient];
        let buckets: BTreeSet<_> = kinds.iter().map(|kind| bucket(&[*kind as usize])).collect();
        assert_eq!(buckets.len(), kinds.len());
    }
}
