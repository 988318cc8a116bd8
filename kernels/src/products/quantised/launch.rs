//! What all products with quantised weights have in common.

use crate::config::{Key, config};
use crate::products::matmul::kernels::FinishConsts;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Device, ElementType, Result, View, ViewMut};

config! {
    /// How [`matmul`] runs; sizes are rows, columns and the length of sums, the dtype is that of `x`.
    "quantised": pub struct QuantisedConfig {
        /// Rows of a tile of the result.
        pub bm,
        /// Columns of a tile.
        pub bn,
        /// Elements of each sum in a step; fewer where groups of weights are smaller.
        pub bk,
        /// Programs that share a tile, each with a part of the sums.
        pub splits or 0,
        /// Warps of a program.
        pub num_warps,
        /// Steps in flight.
        pub num_stages,
    }
}

impl QuantisedConfig {
    fn choose<F: Float, W: Packed<F>>([m, n, k]: [usize; 3], weights: &W, device: &Device) -> Self {
        let of = |bm, bn, bk, num_stages, num_warps| QuantisedConfig { bm, bn, bk, splits: 1, num_warps, num_stages };
        let chosen = match device.compute_capability() {
            None => of(32, 32, 64, 2, 4),
            _ if m <= 16 => of(16, 128, 64, 4, 4),
            _ if m <= 32 => of(32, 128, 64, 4, 4),
            _ if m <= 128 => of(64, 128, 64, 4, 4),
            // 99 KiB of shared memory is what the smallest have.
            Some(capability) if capability < (9, 0) => of(128, 128, 64, 3, 8),
            _ => of(128, 128, 128, 3, 8),
        };
        if !device.is_cuda() {
            return chosen;
        }
        let chosen = weights.adjusted(chosen, device);
        // Few rows take the time that it takes to read the weights: one or two programs for each multiprocessor read at once.
        let (tiles, steps) = (m.div_ceil(chosen.bm) * n.div_ceil(chosen.bn), k.div_ceil(chosen.bk));
        let programs = weights.programs(&chosen) * device.multiprocessor_count();
        let splits = (programs / tiles.max(1)).min(steps / 4).clamp(1, 16);
        QuantisedConfig { splits, ..chosen }
    }
}

/// A product, as the kernels take it.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub(super) cx: &'a Context,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) config: QuantisedConfig,
    pub(super) x_row: i64,
    pub(super) out_row: i64,
    pub(super) out_part: i64,
}

/// Rows of tiles that neighbouring programs go down before the next column begins.
pub(super) const TALL: usize = 8;

impl Launch<'_> {
    /// Programs of the launch.
    pub(super) fn programs(&self) -> usize {
        self.m.div_ceil(self.config.bm) * self.n.div_ceil(self.config.bn) * self.config.splits
    }

    /// The dimensions as kernels take them: checked before.
    pub(super) fn sizes(&self) -> [i32; 4] {
        [self.m, self.n, self.k, self.config.splits].map(|size| size as i32)
    }
}

mod sealed {
    use super::*;

    /// What is known of quantised weights here.
    pub trait Packed<F: Float> {
        /// The length of sums and the columns of the result.
        fn shape(&self) -> [usize; 2];
        /// What tables call such weights.
        fn name(&self) -> &'static str;
        /// The largest step that a product of these weights can take.
        fn step(&self) -> usize;
        /// What suits these weights where the other kinds take `config`.
        fn adjusted(&self, config: QuantisedConfig, _device: &Device) -> QuantisedConfig {
            config
        }
        /// How many programs are to read these weights at once on a multiprocessor, where rows are few.
        fn programs(&self, _config: &QuantisedConfig) -> usize {
            2
        }
        /// Launches the product into the result, or into the sums of each program that shares a tile.
        fn launch<R: Float>(&self, launch: Launch<'_>, x: View<'_, F>, out: ViewMut<'_, R>) -> Result<()>;
    }
}
pub(super) use sealed::Packed;

/// Quantised weights of a product with `x` of dtype `F`: [`Int4`](super::Int4), [`Int8`](super::Int8) and
/// [`Nf4`](super::Nf4).
pub trait Weights<F: Float>: sealed::Packed<F> {}

impl<F: Float, W: sealed::Packed<F>> Weights<F> for W {}

/// `x @ w`, where `w` is what the weights stand for.
///
/// # Shapes
///
/// `x` is `[m, k]` of f16 or bf16, the weights stand for `[k, n]`, the result is `[m, n]` in the dtype of `x`.
///
/// # Numerics
///
/// 4-bit weights and NF4 are unpacked, scaled and rounded to the dtype of `x`, as their dequantised matrix is; 8-bit
/// weights are exact there, and their scale multiplies the sums, as those of 4-bit integers multiply the sums of steps where
/// rows are few and a table says nothing else: up to 32 on a GPU, with groups of multiples of 32 rows or one of all. Sums are
/// in f32.
///
/// # Memory
///
/// With few rows several programs share a tile. Then [`workspace`] says how many f32 are allocated beside the result.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes or dtypes do not fit, [`Error::OutOfMemory`], those of a launch.
pub fn matmul<'a, F: Float, W: Weights<F>>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: &W,
) -> Result<Tensor<F, 2>> {
    let x = x.into();
    let (m, room) = (x.shape()[0], workspace(cx, x, weights)?);
    let mut out = Tensor::empty(cx.device(), [m, weights.shape()[1]])?;
    let mut sums = Tensor::<f32, 1>::empty(cx.device(), [room])?;
    matmul_into(cx, x, weights, &mut out, &mut sums)?;
    Ok(out)
}

/// How many f32 the programs of [`matmul`] leave that share tiles; 0 where none do.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes or dtypes do not fit.
pub fn workspace<'a, F: Float, W: Weights<F>>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: &W,
) -> Result<usize> {
    let x = x.into();
    let [m, n, k] = sizes(&x, weights)?;
    let splits = config(cx, [m, n, k], weights)?.splits;
    Ok(if splits > 1 { splits.saturating_mul(m * n) } else { 0 })
}

/// [`matmul`], into a tensor of the result's shape. As many programs share a tile as the workspace has room for: it may be
/// empty.
///
/// # Errors
///
/// As [`matmul`].
pub fn matmul_into<'a, 'b, 'c, F: Float, W: Weights<F>>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    weights: &W,
    out: impl Into<TensorViewMut<'b, F, 2>>,
    workspace: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    let (x, out) = (x.into(), out.into());
    let [m, n, k] = sizes(&x, weights)?;
    check::shape("out", out.shape(), [m, n])?;
    let mut workspace = crate::workspace::contiguous("workspace", workspace.into())?;
    let (x_row, to) = (x.rows("x")?.stride as i64, out.rows("out")?);
    if m == 0 || n == 0 {
        return Ok(());
    }
    let config = config(cx, [m, n, k], weights)?;
    let splits = config.splits.min(workspace.len() / (m * n)).max(1);
    let config = QuantisedConfig { splits, ..config };
    let launch = Launch { cx, m, n, k, config, x_row, out_row: to.stride as i64, out_part: 0 };
    if splits == 1 {
        return weights.launch(launch, x.elements(), out.elements());
    }
    let apart = Launch { out_row: n as i64, out_part: (m * n) as i64, ..launch };
    weights.launch(apart, x.elements(), workspace.elements_mut())?;
    add_up(&launch, workspace.as_view().elements(), out.elements())
}

/// Checks sizes and the dtype.
fn sizes<F: Float, W: Weights<F>>(x: &TensorView<'_, F, 2>, weights: &W) -> Result<[usize; 3]> {
    let ([m, columns], [k, n]) = (x.shape(), weights.shape());
    if F::ELEMENT != ElementType::F16 && F::ELEMENT != ElementType::BF16 {
        return Err(check::invalid("x", format!("has the dtype {}", F::ELEMENT), "f16 and bf16 are multiplied"));
    }
    check::shape("x", [m, columns], [m, k])?;
    for (name, size) in [("x", m), ("x", k), ("weights", n)] {
        check::size(name, size)?;
    }
    Ok([m, n, k])
}

fn config<F: Float, W: Weights<F>>(cx: &Context, sizes: [usize; 3], weights: &W) -> Result<QuantisedConfig> {
    // Groups of weights limit steps.
    let key = Key::of(F::ELEMENT, weights.name()).and([Some(weights.step().min(sizes[2].next_power_of_two())), None]);
    let config = cx.config(key, &sizes, || QuantisedConfig::choose(sizes, weights, cx.device()))?;
    Ok(QuantisedConfig { bk: config.bk.min(weights.step()), splits: config.splits.max(1), ..config })
}

/// Adds up the sums of programs that shared tiles.
fn add_up<F: Float>(launch: &Launch<'_>, parts: View<'_, f32>, out: ViewMut<'_, F>) -> Result<()> {
    let (m, n) = (launch.m, launch.n);
    let (bm, bn) = (16.min(m.next_power_of_two()), 128);
    let none = tilewright::launch::MaybeView::from;
    FinishConsts { BM: bm, BN: bn, ACTIVATION: 0 }
        .call(
            parts,
            out,
            none(None),
            none(None),
            tilewright::launch::MaybeView::from(None::<View<'_, F>>),
            tilewright::launch::MaybeView::from(None::<View<'_, F>>),
            m as i32,
            n as i32,
            launch.config.splits as i32,
            0,
            launch.out_row,
            1,
            0,
            0,
            0,
            0,
            0,
        )
        .grid(m.div_ceil(bm) * n.div_ceil(bn))
        .num_warps(4)
        .stream(launch.cx.stream())
        .dependent_launch()
        .launch(launch.cx.device())
}

/// Checks that a tensor of packed numbers has no gaps.
pub(super) fn contiguous<T: DType, const R: usize>(name: &str, view: &TensorView<'_, T, R>) -> Result<()> {
    if view.is_contiguous() {
        return Ok(());
    }
    Err(check::invalid(name, "is not contiguous", "copy it with `general::contiguous` first"))
}
