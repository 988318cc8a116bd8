//! Products with the gate of a gated activation in the same pass.

#[cfg(test)]
mod code_tests;
mod config;
mod kernels;

pub use config::GatedMatmulConfig;

use super::Activation;
use super::matmul::problem::{Order, UNIT, order};
use super::tiles::balanced;
use crate::check::{self, Rows};
use crate::config::Key;
use crate::{Context, Tensor, TensorView, TensorViewMut};
use kernels::{GatedBlocksConsts, GatedPointersConsts};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// `activation(x @ gate) * (x @ up)`, both products and the gate in one pass: the first half of a gated feed-forward layer
/// (Shazeer, "GLU Variants Improve Transformer", 2020).
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::products::GatedMatmul;
/// use tilewright_kernels::{Context, Tensor};
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::best()?);
/// let x = Tensor::upload(cx.device(), &[1.0f32, 2.0], [1, 2])?;
/// // Rows of the gate's weights, and behind them those of the weights that it multiplies.
/// let weights = Tensor::upload(cx.device(), &[0.0f32, 1.0, 1.0, 1.0], [2, 2])?;
/// let y = GatedMatmul::default().run(&cx, &x, weights.view().transpose(0, 1)?)?;
/// // silu(2) * 3
/// assert!((y.to_vec()?[0] - 2.0 / (1.0 + (-2.0f32).exp()) * 3.0).abs() < 1e-5);
/// # Ok(())
/// # }
/// ```
///
/// # Shapes
///
/// `x` is `[.., k]`, rows at one distance. `weights` are `[k, 2 * n]`: the columns of `gate`, then those of `up`, of any strides.
/// The result is `[.., n]`.
///
/// # Gradients
///
/// [`GatedMatmul::run_into_keeping`] keeps both products, `[.., 2 * n]`. Their gradient for `silu` is
/// [`swiglu_backward_halves_into`](crate::rows::swiglu_backward_halves_into), and those of `x` and `weights` are products with it:
/// `dx = d @ weights^T` and `dweights = x^T @ d`.
///
/// # Numerics
///
/// Factors of 16 bits are multiplied exactly and summed in f32, f32 factors as
/// [`Precision::Bf16x6`](super::Precision::Bf16x6) says, f64 in f64. The gate is computed from the sums, and the result is rounded
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatedMatmul {
    activation: Activation,
}

impl Default for GatedMatmul {
    /// With [`Activation::Silu`]: SwiGLU.
    fn default() -> Self {
        GatedMatmul { activation: Activation::Silu }
    }
}

impl GatedMatmul {
    /// The function of the gate.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Computes it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit, or if rows of `x` have gaps or do not follow each other at one distance;
    /// [`Error::OutOfMemory`], those of a launch.
    pub fn run<'a, 'b, T: Float, const R: usize>(
        &self,
        cx: &Context,
        x: impl Into<TensorView<'a, T, R>>,
        weights: impl Into<TensorView<'b, T, 2>>,
    ) -> Result<Tensor<T, R>> {
        let (x, weights) = (x.into(), weights.into());
        let mut shape = x.shape();
        if let Some(last) = shape.last_mut() {
            *last = columns(&weights)?;
        }
        let mut out = Tensor::empty(cx.device(), shape)?;
        self.compute(cx, x, weights, out.view_mut(), None)?;
        Ok(out)
    }

    /// [`GatedMatmul::run`], into a tensor of the result's shape.
    ///
    /// # Errors
    ///
    /// As [`GatedMatmul::run`].
    pub fn run_into<'a, 'b, 'c, T: Float, const R: usize>(
        &self,
        cx: &Context,
        x: impl Into<TensorView<'a, T, R>>,
        weights: impl Into<TensorView<'b, T, 2>>,
        out: impl Into<TensorViewMut<'c, T, R>>,
    ) -> Result<()> {
        self.compute(cx, x.into(), weights.into(), out.into(), None)
    }

    /// [`GatedMatmul::run_into`], which also keeps `x @ weights` in `products`, `[.., 2 * n]`, for gradients.
    ///
    /// # Errors
    ///
    /// As [`GatedMatmul::run`].
    pub fn run_into_keeping<'a, 'b, 'c, 'd, T: Float, const R: usize>(
        &self,
        cx: &Context,
        x: impl Into<TensorView<'a, T, R>>,
        weights: impl Into<TensorView<'b, T, 2>>,
        products: impl Into<TensorViewMut<'c, T, R>>,
        out: impl Into<TensorViewMut<'d, T, R>>,
    ) -> Result<()> {
        self.compute(cx, x.into(), weights.into(), out.into(), Some(products.into()))
    }

    fn compute<T: Float, const R: usize>(
        &self,
        cx: &Context,
        x: TensorView<'_, T, R>,
        weights: TensorView<'_, T, 2>,
        out: TensorViewMut<'_, T, R>,
        products: Option<TensorViewMut<'_, T, R>>,
    ) -> Result<()> {
        let n = columns(&weights)?;
        let with = |columns: usize| {
            let mut shape = x.shape();
            if let Some(last) = shape.last_mut() {
                *last = columns;
            }
            shape
        };
        check::shape("out", out.shape(), with(n))?;
        let rows = x.rows("x")?;
        check::shape("weights", weights.shape(), [rows.columns, 2 * n])?;
        let mut pass = Pass {
            cx,
            activation: self.activation,
            n,
            x: rows,
            weights: weights.strides(),
            out: out.rows("out")?,
            products: None,
        };
        if let Some(products) = &products {
            check::shape("products", products.shape(), with(2 * n))?;
            pass.products = Some(products.rows("products")?);
        }
        if out.is_empty() {
            return Ok(());
        }
        for (name, size) in [("x", rows.rows), ("x", rows.columns), ("weights", 2 * n)] {
            check::size(name, size)?;
        }
        let config = pass.config::<T>()?;
        let products = products.map(|products| products.elements());
        match pass.by_blocks(T::ELEMENT.size()) {
            Some(order) => pass.blocks(config, x.elements(), weights.elements(), products, out.elements(), order),
            None => pass.pointers(config, x.elements(), weights.elements(), products, out.elements()),
        }
    }
}

/// The columns of the result.
fn columns<T: Float>(weights: &TensorView<'_, T, 2>) -> Result<usize> {
    let columns = weights.shape()[1];
    if !columns.is_multiple_of(2) {
        let problem = format!("has {columns} columns");
        return Err(check::invalid("weights", problem, "give those of the gate and as many of what it multiplies"));
    }
    Ok(columns / 2)
}

/// A product with a gate, checked.
struct Pass<'a> {
    cx: &'a Context,
    activation: Activation,
    /// Columns of the result.
    n: usize,
    x: Rows,
    weights: [usize; 2],
    products: Option<Rows>,
    out: Rows,
}

impl Pass<'_> {
    fn config<T: Float>(&self) -> Result<GatedMatmulConfig> {
        let (device, sizes) = (self.cx.device(), [self.x.rows, self.n]);
        // As tables tell it: they round sizes up to powers of two.
        let kept = if self.products.is_some() { 2 } else { 1 };
        let choose = || {
            let (capability, processors) = (device.compute_capability(), device.multiprocessor_count());
            GatedMatmulConfig::choose(T::ELEMENT, sizes, capability, processors)
        };
        self.cx.config(Key::of(T::ELEMENT, ""), &[self.x.rows, self.n, self.x.columns, kept], choose)
    }

    /// The order of the weights, if the hardware can copy blocks of all.
    fn by_blocks(&self, bytes: usize) -> Option<Order> {
        let capability = self.cx.device().compute_capability();
        let across = |rows: &Rows, columns: usize| {
            order([0, rows.stride, 1], [rows.rows, columns], bytes) == Some(Order::Across)
        };
        let all = [Some(&self.out), self.products.as_ref()].into_iter().flatten().all(|rows| across(rows, self.n));
        // The second half of each row begins where a copy can: at a multiple of its unit.
        let halves = (self.n * bytes).is_multiple_of(UNIT);
        let weights = order([0, self.weights[0], self.weights[1]], [self.x.columns, 2 * self.n], bytes);
        weights.filter(|_| {
            all && halves && across(&self.x, self.x.columns) && capability.is_none_or(|capability| capability >= (9, 0))
        })
    }

    fn blocks<T: Float>(
        &self,
        config: GatedMatmulConfig,
        x: View<'_, T>,
        weights: View<'_, T>,
        products: Option<ViewMut<'_, T>>,
        out: ViewMut<'_, T>,
        weights_order: Order,
    ) -> Result<()> {
        let GatedMatmulConfig { bm, bn, bk, group, num_warps, num_stages } = config;
        let (m, n, k) = (self.x.rows, self.n, self.x.columns);
        let x = TensorDesc::with_strides(x, [m, k], [self.x.stride, 1])?;
        let is_down = weights_order == Order::Down;
        let (shape, stride) = if is_down { ([2 * n, k], self.weights[1]) } else { ([k, 2 * n], self.weights[0]) };
        let weights = TensorDesc::with_strides(weights, shape, [stride, 1])?;
        let mut out = TensorDescMut::with_strides(out, [m, n], [self.out.stride, 1])?;
        let mut products = products
            .zip(self.products)
            .map(|(products, rows)| TensorDescMut::with_strides(products, [2, m, n], [n, rows.stride, 1]))
            .transpose()?;
        let tiles = m.div_ceil(bm) * n.div_ceil(bn);
        GatedBlocksConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: self.activation.code() }
            .call(
                &x,
                (!is_down).then_some(&weights),
                is_down.then_some(&weights),
                products.as_mut(),
                &mut out,
                m as i32,
                n as i32,
                k as i32,
            )
            .grid(balanced(tiles, self.cx.device().multiprocessor_count()))
            .num_warps(num_warps as u32)
            .num_stages(num_stages as u32)
            .stream(self.cx.stream())
            .launch(self.cx.device())
    }

    fn pointers<T: Float>(
        &self,
        config: GatedMatmulConfig,
        x: View<'_, T>,
        weights: View<'_, T>,
        products: Option<ViewMut<'_, T>>,
        out: ViewMut<'_, T>,
    ) -> Result<()> {
        let GatedMatmulConfig { bm, bn, bk, group, num_warps, num_stages } = config;
        let (m, n, k) = (self.x.rows, self.n, self.x.columns);
        let kept = self.products.map_or(0, |rows| rows.stride);
        // With whole tiles beyond the ends.
        let span = |rows: usize, row: usize, columns: usize, column: usize| {
            rows.saturating_mul(row).saturating_add(columns.saturating_mul(column))
        };
        let [height, depth] = [m.next_multiple_of(bm), k.next_multiple_of(bk)];
        let width = n.saturating_add(n.next_multiple_of(bn));
        let reach = span(height, self.x.stride.max(kept).max(self.out.stride), width.max(depth), 1).max(span(
            depth,
            self.weights[0],
            width,
            self.weights[1],
        ));
        macro_rules! launch {
            ($offset:ty) => {
                GatedPointersConsts { BM: bm, BN: bn, BK: bk, GROUP: group, ACTIVATION: self.activation.code() }
                    .call(
                        x,
                        weights,
                        MaybeViewMut::from(products),
                        out,
                        m as i32,
                        n as i32,
                        k as i32,
                        self.x.stride as $offset,
                        self.weights[0] as $offset,
                        self.weights[1] as $offset,
                        kept as $offset,
                        self.out.stride as $offset,
                    )
                    .grid(m.div_ceil(bm) * n.div_ceil(bn))
                    .num_warps(num_warps as u32)
                    .num_stages(num_stages as u32)
                    .stream(self.cx.stream())
                    .launch(self.cx.device())
            };
        }
        if reach < i32::MAX as usize { launch!(i32) } else { launch!(i64) }
    }
}
