//! Products with scales per block of 128.

use super::kernels::{ScaledBlocksConsts, ScaledPointersConsts};
use super::quantise::BLOCK;
use crate::config::config;
use crate::products::matmul::problem::{Order, order};
use crate::products::tiles::balanced;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Device, Result};

config! {
    /// How [`matmul_blocks`] runs; sizes are rows, columns and the length of sums.
    "fp8_blocks": pub struct Fp8BlocksConfig {
        /// Rows of a tile of the result.
        pub bm,
        /// Columns of a tile: at most 128.
        pub bn,
        /// Rows of tiles that neighbouring programs go down before the next column begins.
        pub group,
        /// Warps of a program.
        pub num_warps,
        /// Steps of 128 in flight.
        pub num_stages,
    }
}

impl Fp8BlocksConfig {
    fn choose(m: usize, n: usize, device: &Device) -> Self {
        let of = |bm, bn, num_stages, num_warps| Fp8BlocksConfig { bm, bn, group: 8, num_warps, num_stages };
        let tiles = |bm: usize, bn: usize| m.div_ceil(bm) * n.div_ceil(bn);
        match device.compute_capability() {
            None => of(32, 32, 2, 4),
            Some(capability) if capability < (9, 0) => of(if m <= 32 { 32 } else { 64 }, 64, 3, 4),
            _ if m <= 64 && tiles(64, 128) < device.multiprocessor_count() => of(64, 64, 6, 4),
            _ if m <= 64 || tiles(128, 128) < device.multiprocessor_count() => of(64, 128, 6, 4),
            _ => of(128, 128, 5, 8),
        }
    }
}

/// Matrices and scales, checked.
struct Scaled<'a, F: Float> {
    a: TensorView<'a, F, 2>,
    b: TensorView<'a, F, 2>,
    a_scale: TensorView<'a, f32, 2>,
    b_scale: TensorView<'a, f32, 2>,
    sizes: [usize; 3],
}

/// `(a * a_scale) @ (b * b_scale)`, where 128 neighbours of a row of `a` have one scale, and 128 by 128 elements of `b` (as
/// DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3).
///
/// # Shapes
///
/// | tensor | shape |
/// |---|---|
/// | `a` | `[m, k]` |
/// | `a_scale` | `[m, ceil(k / 128)]` |
/// | `b` | `[k, n]` |
/// | `b_scale` | `[ceil(k / 128), ceil(n / 128)]` |
/// | result | `[m, n]`, any float dtype |
///
/// Any strides. Weights that are stored as `[n, k]`, with scales as [`quantise_squares`](super::quantise_squares) makes them,
/// are the fastest: give the transposes of both as views.
///
/// # Numerics
///
/// Products are exact. Each 128 of them are summed by the tensor cores, which keep 13 bits of fraction of 8-bit products on
/// Hopper, and these sums are multiplied by both scales and added up in f32.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, [`Error::OutOfMemory`], those of a launch.
pub fn matmul_blocks<'a, 'b, 'c, 'd, F: Float, R: Float>(
    cx: &Context,
    a: impl Into<TensorView<'a, F, 2>>,
    a_scale: impl Into<TensorView<'b, f32, 2>>,
    b: impl Into<TensorView<'c, F, 2>>,
    b_scale: impl Into<TensorView<'d, f32, 2>>,
) -> Result<Tensor<R, 2>> {
    let (a, b) = (a.into(), b.into());
    let scaled = Scaled::new(a, a_scale.into(), b, b_scale.into())?;
    let mut out = Tensor::empty(cx.device(), [a.shape()[0], b.shape()[1]])?;
    scaled.run(cx, out.view_mut())?;
    Ok(out)
}

/// [`matmul_blocks`], into a tensor of the result's shape.
///
/// # Errors
///
/// As [`matmul_blocks`].
pub fn matmul_blocks_into<'a, 'b, 'c, 'd, 'e, F: Float, R: Float>(
    cx: &Context,
    a: impl Into<TensorView<'a, F, 2>>,
    a_scale: impl Into<TensorView<'b, f32, 2>>,
    b: impl Into<TensorView<'c, F, 2>>,
    b_scale: impl Into<TensorView<'d, f32, 2>>,
    out: impl Into<TensorViewMut<'e, R, 2>>,
) -> Result<()> {
    Scaled::new(a.into(), a_scale.into(), b.into(), b_scale.into())?.run(cx, out.into())
}

impl<'a, F: Float> Scaled<'a, F> {
    fn new(
        a: TensorView<'a, F, 2>,
        a_scale: TensorView<'a, f32, 2>,
        b: TensorView<'a, F, 2>,
        b_scale: TensorView<'a, f32, 2>,
    ) -> Result<Self> {
        let ([m, k], [rows, n]) = (a.shape(), b.shape());
        check::shape("b", [rows, n], [k, n])?;
        check::shape("a_scale", a_scale.shape(), [m, k.div_ceil(BLOCK)])?;
        check::shape("b_scale", b_scale.shape(), [k.div_ceil(BLOCK), n.div_ceil(BLOCK)])?;
        for (name, size) in [("a", m), ("a", k), ("b", n)] {
            check::size(name, size)?;
        }
        for (name, scale) in [("a_scale", &a_scale), ("b_scale", &b_scale)] {
            // Offsets of scales are i32.
            check::size(name, scale.layout().span().unwrap_or(usize::MAX))?;
        }
        Ok(Scaled { a, b, a_scale, b_scale, sizes: [m, n, k] })
    }

    fn run<R: Float>(&self, cx: &Context, out: TensorViewMut<'_, R, 2>) -> Result<()> {
        let [m, n, k] = self.sizes;
        check::shape("out", out.shape(), [m, n])?;
        if out.is_empty() {
            return Ok(());
        }
        let config = cx.config(F::ELEMENT, &[m, n, k], || Fp8BlocksConfig::choose(m, n, cx.device()))?;
        let of = |strides: [usize; 2]| [0, strides[0], strides[1]];
        let bytes = F::ELEMENT.size();
        let orders = [
            order(of(self.a.strides()), [m, k], bytes),
            order(of(self.b.strides()), [k, n], bytes),
            order(of(out.strides()), [m, n], R::ELEMENT.size()),
        ];
        let copies = cx.device().compute_capability().is_none_or(|capability| capability >= (9, 0));
        match orders {
            [Some(Order::Across), Some(second), Some(Order::Across)] if copies => {
                self.by_blocks(cx, out, second, config)
            }
            _ => self.through_pointers(cx, out, config),
        }
    }

    /// Strides of scales: of both, rows and columns.
    fn scale_strides(&self) -> [i32; 4] {
        let ([a, b], [c, d]) = (self.a_scale.strides(), self.b_scale.strides());
        [a, b, c, d].map(|stride| stride as i32)
    }

    fn by_blocks<R: Float>(
        &self,
        cx: &Context,
        out: TensorViewMut<'_, R, 2>,
        second: Order,
        config: Fp8BlocksConfig,
    ) -> Result<()> {
        let ([m, n, k], Fp8BlocksConfig { bm, bn, group, num_warps, num_stages }) = (self.sizes, config);
        let a = TensorDesc::with_strides(self.a.elements(), [m, k], [self.a.strides()[0], 1])?;
        let b = match second {
            Order::Across => TensorDesc::with_strides(self.b.elements(), [k, n], [self.b.strides()[0], 1])?,
            Order::Down => TensorDesc::with_strides(self.b.elements(), [n, k], [self.b.strides()[1], 1])?,
        };
        let to = [out.strides()[0], 1];
        let mut c = TensorDescMut::with_strides(out.elements(), [m, n], to)?;
        let tiles = m.div_ceil(bm) * n.div_ceil(bn);
        let [a_row, a_column, b_row, b_column] = self.scale_strides();
        ScaledBlocksConsts { BM: bm, BN: bn, BK: BLOCK, GROUP: group }
            .call(
                &a,
                (second == Order::Across).then_some(&b),
                (second == Order::Down).then_some(&b),
                &mut c,
                self.a_scale.elements(),
                self.b_scale.elements(),
                m as i32,
                n as i32,
                k as i32,
                a_row,
                a_column,
                b_row,
                b_column,
            )
            .grid(balanced(tiles, cx.device().multiprocessor_count()))
            .num_warps(num_warps as u32)
            .num_stages(num_stages as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }

    fn through_pointers<R: Float>(
        &self,
        cx: &Context,
        out: TensorViewMut<'_, R, 2>,
        config: Fp8BlocksConfig,
    ) -> Result<()> {
        let ([m, n, k], Fp8BlocksConfig { bm, bn, group, num_warps, num_stages }) = (self.sizes, config);
        let ([a_row, a_column], [b_row, b_column]) = (self.a.strides(), self.b.strides());
        let [c_row, c_column] = out.strides();
        let scales = self.scale_strides();
        ScaledPointersConsts { BM: bm, BN: bn, BK: BLOCK, GROUP: group }
            .call(
                self.a.elements(),
                self.b.elements(),
                out.elements(),
                self.a_scale.elements(),
                self.b_scale.elements(),
                m as i32,
                n as i32,
                k as i32,
                a_row as i64,
                a_column as i64,
                b_row as i64,
                b_column as i64,
                c_row as i64,
                c_column as i64,
                scales[0],
                scales[1],
                scales[2],
                scales[3],
            )
            .grid(m.div_ceil(bm) * n.div_ceil(bn))
            .num_warps(num_warps as u32)
            .num_stages(num_stages as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
