//! The model: a transformer as most are built today, forward and backward.
//!
//! Each layer adds twice to its input: `x + attention(norm(x))`, and then `x + down(silu(gate(norm(x))) * up(norm(x)))`.
//! Positions come in by rotating queries and keys; the table of tokens gives both the first numbers and the logits.
//!
//! The backward pass is written by hand, in the order of the forward pass reversed. What it needs is kept in [`Kept`].

use tilewright::Result;
use tilewright_kernels::attention::{self, Attention, Saved};
use tilewright_kernels::products::{Matmul, Precision};
use tilewright_kernels::rows::{self, CrossEntropy, LinearCrossEntropyMut, Norm, Rotary};
use tilewright_kernels::{Context, Tensor, TensorView, TensorViewMut, general};

use crate::parameters::{Matrix, Parameters, Real, Scale, Shape};

/// A model on a device.
pub struct Model<T: Real> {
    pub cx: Context,
    pub shape: Shape,
    pub parameters: Parameters<T>,
    /// Cosines and sines of the angles of positions, `[context, head / 2]`.
    angles: (Tensor<f32, 2>, Tensor<f32, 2>),
}

/// What the backward pass needs of a layer. Rows are tokens, those of a sequence one after the other.
struct Layer<T: Real> {
    /// What came in, `[rows, width]`, and its norm.
    x: Tensor<T, 2>,
    normed: Tensor<T, 2>,
    /// `[rows, width]` each; queries and keys are rotated.
    queries: Tensor<T, 2>,
    keys: Tensor<T, 2>,
    values: Tensor<T, 2>,
    /// The result of attention, and the logarithms of its sums, `[batch, heads, tokens]`.
    mixed: Tensor<T, 2>,
    lse: Tensor<f32, 3>,
    rest: Rest<T>,
}

/// The second half of a layer.
struct Rest<T: Real> {
    /// `x` with what attention added, and its norm.
    x: Tensor<T, 2>,
    normed: Tensor<T, 2>,
    /// `[rows, hidden]` each.
    gate: Tensor<T, 2>,
    up: Tensor<T, 2>,
    hidden: Tensor<T, 2>,
}

/// What a forward pass keeps.
pub struct Kept<T: Real> {
    batch: usize,
    layers: Vec<Layer<T>>,
    /// What the last layer gave, and its norm.
    x: Tensor<T, 2>,
    normed: Tensor<T, 2>,
}

/// How matrices are multiplied. The precision matters to f32 alone, which is for CPUs here: they have no tensor cores to
/// which factors would have to be divided.
fn product<'a, T: Real>() -> Matmul<'a, T> {
    Matmul::default().precision(Precision::Ieee)
}

impl<T: Real> Model<T> {
    pub fn new(cx: &Context, shape: Shape, seed: u64) -> Result<Self> {
        let angles = rows::rotary_tables(cx, shape.context, shape.head(), 10_000.0)?;
        Ok(Model { cx: cx.clone(), shape, parameters: Parameters::random(cx, shape, seed)?, angles })
    }

    /// The norm of rows with its weight.
    pub fn norm(&self, x: &Tensor<T, 2>, scale: Scale) -> Result<Tensor<T, 2>> {
        rows::rms_norm(&self.cx, x, &Norm::default().weight(self.parameters.scale(scale)?))
    }

    /// `x w^T`. A matrix is stored as `[outputs, inputs]`; its transpose is a view.
    pub fn linear(&self, x: &Tensor<T, 2>, layer: usize, matrix: Matrix) -> Result<Tensor<T, 2>> {
        product().run(&self.cx, x, self.parameters.matrix(layer, matrix)?.transpose(0, 1)?)
    }

    /// `x w^T + residual`, in one pass.
    pub fn linear_added(
        &self,
        x: &Tensor<T, 2>,
        layer: usize,
        matrix: Matrix,
        residual: &Tensor<T, 2>,
    ) -> Result<Tensor<T, 2>> {
        let weight = self.parameters.matrix(layer, matrix)?.transpose(0, 1)?;
        product().residual(residual)?.run(&self.cx, x, weight)
    }

    /// Rotates queries or keys by their positions, in place: those of `options`, or from 0 on in each sequence.
    pub fn rotate(&self, x: &mut Tensor<T, 2>, batch: usize, options: &Rotary<'_>) -> Result<()> {
        let tokens = x.shape()[0] / batch;
        let x = x.view_mut().reshape([batch, tokens, self.shape.heads, self.shape.head()])?;
        rows::rotary_in_place(&self.cx, x, &self.angles.0, &self.angles.1, options)
    }

    /// Rows `[batch * tokens, width]` as attention wants them: `[batch, heads, tokens, head]`, the same memory.
    pub fn heads<'a>(&self, x: &'a Tensor<T, 2>, batch: usize) -> Result<TensorView<'a, T, 4>> {
        let tokens = x.shape()[0] / batch;
        x.view().reshape([batch, tokens, self.shape.heads, self.shape.head()])?.permute([0, 2, 1, 3])
    }

    /// The same, to write.
    pub fn heads_mut<'a>(&self, x: &'a mut Tensor<T, 2>, batch: usize) -> Result<TensorViewMut<'a, T, 4>> {
        let tokens = x.shape()[0] / batch;
        x.view_mut().reshape([batch, tokens, self.shape.heads, self.shape.head()])?.permute([0, 2, 1, 3])
    }

    /// The first numbers of tokens.
    pub fn embed(&self, ids: &Tensor<i32, 1>) -> Result<Tensor<T, 2>> {
        rows::embedding(&self.cx, self.parameters.embedding()?, ids)
    }

    /// Logits of rows, `[rows, vocabulary]`.
    pub fn logits(&self, normed: &Tensor<T, 2>) -> Result<Tensor<T, 2>> {
        product().run(&self.cx, normed, self.parameters.embedding()?.transpose(0, 1)?)
    }

    /// The second half of a layer: its result, and what the backward pass needs.
    fn rest(&self, layer: usize, x: Tensor<T, 2>) -> Result<(Tensor<T, 2>, Rest<T>)> {
        let normed = self.norm(&x, Scale::Hidden(layer))?;
        let gate = self.linear(&normed, layer, Matrix::Gate)?;
        let up = self.linear(&normed, layer, Matrix::Up)?;
        let hidden = rows::swiglu(&self.cx, &gate, &up)?;
        let out = self.linear_added(&hidden, layer, Matrix::Down, &x)?;
        Ok((out, Rest { x, normed, gate, up, hidden }))
    }

    /// The result of the second half of a layer, where nothing is kept.
    pub fn after_attention(&self, layer: usize, x: Tensor<T, 2>) -> Result<Tensor<T, 2>> {
        Ok(self.rest(layer, x)?.0)
    }

    /// A layer over whole sequences.
    fn layer(&self, layer: usize, x: Tensor<T, 2>, batch: usize) -> Result<(Tensor<T, 2>, Layer<T>)> {
        let normed = self.norm(&x, Scale::Attention(layer))?;
        let mut queries = self.linear(&normed, layer, Matrix::Query)?;
        let mut keys = self.linear(&normed, layer, Matrix::Key)?;
        let values = self.linear(&normed, layer, Matrix::Value)?;
        self.rotate(&mut queries, batch, &Rotary::default())?;
        self.rotate(&mut keys, batch, &Rotary::default())?;

        let (device, tokens) = (self.cx.device(), x.shape()[0] / batch);
        let mut mixed = Tensor::zeros(device, x.shape())?;
        let mut lse = Tensor::zeros(device, [batch, self.shape.heads, tokens])?;
        let of = |x| self.heads(x, batch);
        let (q, k, v) = (of(&queries)?, of(&keys)?, of(&values)?);
        let out = self.heads_mut(&mut mixed, batch)?;
        attention::forward_into(&self.cx, q, k, v, None, &Attention::default().causal(), out, Some(lse.view_mut()))?;

        let sum = self.linear_added(&mixed, layer, Matrix::Output, &x)?;
        let (out, rest) = self.rest(layer, sum)?;
        Ok((out, Layer { x, normed, queries, keys, values, mixed, lse, rest }))
    }

    /// `batch` sequences of tokens, one after the other.
    pub fn forward(&self, ids: &Tensor<i32, 1>, batch: usize) -> Result<Kept<T>> {
        let mut x = self.embed(ids)?;
        let mut layers = Vec::with_capacity(self.shape.layers);
        for layer in 0..self.shape.layers {
            let (out, kept) = self.layer(layer, x, batch)?;
            layers.push(kept);
            x = out;
        }
        let normed = self.norm(&x, Scale::Last)?;
        Ok(Kept { batch, layers, x, normed })
    }

    /// The logits of `batch` sequences.
    pub fn predict(&self, ids: &Tensor<i32, 1>, batch: usize) -> Result<Tensor<T, 2>> {
        self.logits(&self.forward(ids, batch)?.normed)
    }

    /// The mean loss, and its gradients into `gradients`. `order` lists the places of `ids` in the order of the ids, as
    /// [`rows::positions_in_order`] does.
    pub fn backward(
        &self,
        kept: Kept<T>,
        ids: &Tensor<i32, 1>,
        order: &Tensor<i32, 1>,
        targets: &Tensor<i32, 1>,
        gradients: &mut Parameters<T>,
    ) -> Result<Tensor<f32, 1>> {
        let (cx, device) = (&self.cx, self.cx.device());
        let Kept { batch, layers, x, normed } = kept;
        let mut loss = Tensor::zeros(device, [1])?;
        let mut dnormed = Tensor::zeros(device, normed.shape())?;
        let mut logits = Tensor::zeros(device, [normed.shape()[0], self.shape.vocabulary])?;
        let out = LinearCrossEntropyMut {
            loss: loss.view_mut(),
            gradients: Some((dnormed.view_mut(), gradients.embedding_mut()?)),
            logits: logits.view_mut(),
        };
        let options = CrossEntropy::default();
        rows::linear_cross_entropy_into(cx, &normed, self.parameters.embedding()?, targets, options, out)?;

        let norm = Norm::default().weight(self.parameters.scale(Scale::Last)?);
        let of_norm = rows::rms_norm_backward(cx, &x, &dnormed, &norm)?;
        keep_scale(cx, of_norm.dweight, gradients, Scale::Last)?;
        let mut dx = of_norm.dx;
        for (layer, kept) in layers.into_iter().enumerate().rev() {
            let dsum = self.rest_backward(layer, &kept.rest, &dx, gradients)?;
            dx = self.attention_backward(layer, &kept, &dsum, batch, gradients)?;
        }
        // The table's gradient as that of logits is there already: this adds to it.
        rows::embedding_backward_ordered(cx, &dx, ids, order, gradients.embedding_mut()?)?;
        Ok(loss)
    }

    /// The gradient of a product's left side: `dy w`, added to `before`.
    fn back(
        &self,
        dy: &Tensor<T, 2>,
        layer: usize,
        matrix: Matrix,
        before: Option<&Tensor<T, 2>>,
    ) -> Result<Tensor<T, 2>> {
        let product = product();
        let product = match before {
            Some(before) => product.residual(before)?,
            None => product,
        };
        product.run(&self.cx, dy, self.parameters.matrix(layer, matrix)?)
    }

    /// The gradient of a matrix, `dy^T x`: a product with few results and long sums, which several programs share.
    fn keep_matrix(&self, dy: &Tensor<T, 2>, x: &Tensor<T, 2>, out: TensorViewMut<'_, T, 2>) -> Result<()> {
        let (product, dy) = (product(), dy.view().transpose(0, 1)?);
        let mut sums = Tensor::zeros(self.cx.device(), [product.workspace(&self.cx, dy, x)?])?;
        product.run_into_with(&self.cx, dy, x, out, &mut sums)
    }

    /// Backwards through the second half of a layer.
    fn rest_backward(
        &self,
        layer: usize,
        rest: &Rest<T>,
        dy: &Tensor<T, 2>,
        gradients: &mut Parameters<T>,
    ) -> Result<Tensor<T, 2>> {
        let dhidden = self.back(dy, layer, Matrix::Down, None)?;
        self.keep_matrix(dy, &rest.hidden, gradients.matrix_mut(layer, Matrix::Down)?)?;
        let (dgate, dup) = rows::swiglu_backward(&self.cx, &rest.gate, &rest.up, &dhidden)?;
        self.keep_matrix(&dgate, &rest.normed, gradients.matrix_mut(layer, Matrix::Gate)?)?;
        self.keep_matrix(&dup, &rest.normed, gradients.matrix_mut(layer, Matrix::Up)?)?;
        let dnormed = self.back(&dgate, layer, Matrix::Gate, None)?;
        let dnormed = self.back(&dup, layer, Matrix::Up, Some(&dnormed))?;
        self.norm_backward(&rest.x, &dnormed, dy, gradients, Scale::Hidden(layer))
    }

    /// Backwards through the first half of a layer.
    fn attention_backward(
        &self,
        layer: usize,
        kept: &Layer<T>,
        dy: &Tensor<T, 2>,
        batch: usize,
        gradients: &mut Parameters<T>,
    ) -> Result<Tensor<T, 2>> {
        let (cx, device, shape) = (&self.cx, self.cx.device(), &self.shape);
        let dmixed = self.back(dy, layer, Matrix::Output, None)?;
        self.keep_matrix(dy, &kept.mixed, gradients.matrix_mut(layer, Matrix::Output)?)?;

        let tokens = dy.shape()[0] / batch;
        let mut workspace = Tensor::zeros(device, [2, batch, shape.heads, tokens])?;
        let of = |x| self.heads(x, batch);
        let saved = Saved {
            q: of(&kept.queries)?,
            k: of(&kept.keys)?,
            v: of(&kept.values)?,
            bias: None,
            out: of(&kept.mixed)?,
            lse: kept.lse.view(),
            dout: of(&dmixed)?,
            dlse: None,
        };
        let zeros = || Tensor::<T, 2>::zeros(device, dy.shape());
        let (mut dq, mut dk, mut dv) = (zeros()?, zeros()?, zeros()?);
        let (to_q, to_k) = (self.heads_mut(&mut dq, batch)?, self.heads_mut(&mut dk, batch)?);
        let to_v = self.heads_mut(&mut dv, batch)?;
        attention::backward_into(cx, saved, &Attention::default().causal(), &mut workspace, to_q, to_k, to_v)?;
        self.rotate(&mut dq, batch, &Rotary::default().backward())?;
        self.rotate(&mut dk, batch, &Rotary::default().backward())?;

        for (gradient, matrix) in [(&dq, Matrix::Query), (&dk, Matrix::Key), (&dv, Matrix::Value)] {
            self.keep_matrix(gradient, &kept.normed, gradients.matrix_mut(layer, matrix)?)?;
        }
        let dnormed = self.back(&dq, layer, Matrix::Query, None)?;
        let dnormed = self.back(&dk, layer, Matrix::Key, Some(&dnormed))?;
        let dnormed = self.back(&dv, layer, Matrix::Value, Some(&dnormed))?;
        self.norm_backward(&kept.x, &dnormed, dy, gradients, Scale::Attention(layer))
    }

    /// Backwards through a norm whose input also goes past it: `dsum` is what comes from there.
    fn norm_backward(
        &self,
        x: &Tensor<T, 2>,
        dnormed: &Tensor<T, 2>,
        dsum: &Tensor<T, 2>,
        gradients: &mut Parameters<T>,
        scale: Scale,
    ) -> Result<Tensor<T, 2>> {
        let norm = Norm::default().weight(self.parameters.scale(scale)?);
        let of_norm = rows::add_rms_norm_backward(&self.cx, x, dnormed, dsum, &norm)?;
        keep_scale(&self.cx, of_norm.dweight, gradients, scale)?;
        Ok(of_norm.dx)
    }
}

/// Puts the gradient of a norm's weight where the others are.
fn keep_scale<T: Real>(
    cx: &Context,
    gradient: Option<Tensor<T, 1>>,
    gradients: &mut Parameters<T>,
    scale: Scale,
) -> Result<()> {
    match gradient {
        Some(gradient) => general::copy_into(cx, &gradient, gradients.scale_mut(scale)?),
        None => Ok(()),
    }
}
