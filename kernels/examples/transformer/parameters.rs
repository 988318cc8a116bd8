//! The parameters of the model: where each lies in one buffer, so that the optimiser takes all in one launch.

use tilewright::prelude::*;
use tilewright::{DType, Result};
use tilewright_kernels::training::{Pack, Packed};
use tilewright_kernels::{Context, Tensor, TensorView, TensorViewMut, general};

use crate::random::Random;

/// A float that the model computes in, and that the host can make.
pub trait Real: general::Real {
    fn of(value: f64) -> Self;
}

impl Real for bf16 {
    fn of(value: f64) -> Self {
        bf16::from_f64(value)
    }
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Different tokens.
    pub vocabulary: usize,
    /// Numbers of a token between layers.
    pub width: usize,
    /// Heads of attention, of `width / heads` numbers each.
    pub heads: usize,
    pub layers: usize,
    /// Numbers of a token inside a layer's second half.
    pub hidden: usize,
    /// Tokens that the model sees at most.
    pub context: usize,
}

/// The matrices of a layer, each `[outputs, inputs]`, in the order in which they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    Query,
    Key,
    Value,
    Output,
    Gate,
    Up,
    Down,
}

impl Matrix {
    pub const ALL: [Matrix; 7] =
        [Matrix::Query, Matrix::Key, Matrix::Value, Matrix::Output, Matrix::Gate, Matrix::Up, Matrix::Down];
}

/// Weights of norms: two of each layer, and that before the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Attention(usize),
    Hidden(usize),
    Last,
}

impl Shape {
    /// Numbers of a head.
    pub fn head(&self) -> usize {
        self.width / self.heads
    }

    pub fn matrix(&self, matrix: Matrix) -> [usize; 2] {
        match matrix {
            Matrix::Query | Matrix::Key | Matrix::Value | Matrix::Output => [self.width, self.width],
            Matrix::Gate | Matrix::Up => [self.hidden, self.width],
            Matrix::Down => [self.width, self.hidden],
        }
    }

    /// Where they all lie: the embedding, the matrices of each layer, the weights of norms.
    fn pack(&self) -> Pack {
        let matrices = Matrix::ALL.map(|matrix| self.matrix(matrix).iter().product::<usize>());
        let mut lens = vec![self.vocabulary * self.width];
        lens.extend(matrices.repeat(self.layers));
        lens.extend(vec![self.width; 2 * self.layers + 1]);
        Pack::new(&lens)
    }

    pub fn place(&self, layer: usize, matrix: Matrix) -> usize {
        1 + layer * Matrix::ALL.len() + matrix as usize
    }

    pub fn scale_place(&self, scale: Scale) -> usize {
        1 + self.layers * Matrix::ALL.len()
            + match scale {
                Scale::Attention(layer) => 2 * layer,
                Scale::Hidden(layer) => 2 * layer + 1,
                Scale::Last => 2 * self.layers,
            }
    }
}

/// A number for each parameter: the parameters themselves, their gradients, what an optimiser remembers of them.
pub struct Parameters<T: DType> {
    pub shape: Shape,
    pub packed: Packed<T>,
}

impl<T: DType> Parameters<T> {
    pub fn zeros(cx: &Context, shape: Shape) -> Result<Self> {
        Ok(Parameters { shape, packed: shape.pack().zeros(cx)? })
    }

    /// Tokens as numbers, `[vocabulary, width]`, and numbers as tokens.
    pub fn embedding(&self) -> Result<TensorView<'_, T, 2>> {
        self.packed.tensor(0, [self.shape.vocabulary, self.shape.width])
    }

    pub fn embedding_mut(&mut self) -> Result<TensorViewMut<'_, T, 2>> {
        self.packed.tensor_mut(0, [self.shape.vocabulary, self.shape.width])
    }

    pub fn matrix(&self, layer: usize, matrix: Matrix) -> Result<TensorView<'_, T, 2>> {
        self.packed.tensor(self.shape.place(layer, matrix), self.shape.matrix(matrix))
    }

    pub fn matrix_mut(&mut self, layer: usize, matrix: Matrix) -> Result<TensorViewMut<'_, T, 2>> {
        self.packed.tensor_mut(self.shape.place(layer, matrix), self.shape.matrix(matrix))
    }

    pub fn scale(&self, scale: Scale) -> Result<TensorView<'_, T, 1>> {
        self.packed.tensor(self.shape.scale_place(scale), [self.shape.width])
    }

    pub fn scale_mut(&mut self, scale: Scale) -> Result<TensorViewMut<'_, T, 1>> {
        self.packed.tensor_mut(self.shape.scale_place(scale), [self.shape.width])
    }

    /// What AdamW takes of each: matrices shrink by `decay`, weights of norms do not.
    pub fn decays(&self, cx: &Context, decay: f32) -> Result<Tensor<f32, 1>> {
        let pack = self.packed.pack();
        let matrices = self.shape.scale_place(Scale::Attention(0));
        let decays: Vec<f32> = (0..pack.tensors()).map(|at| if at < matrices { decay } else { 0.0 }).collect();
        pack.per_tensor(cx, &decays)
    }
}

impl<T: Real> Parameters<T> {
    /// Random matrices, and ones as weights of norms; the same for every dtype, but for rounding.
    ///
    /// Matrices whose results are added to what flows between layers begin smaller, so that the sum over all layers has
    /// the variance of one (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
    pub fn random(cx: &Context, shape: Shape, seed: u64) -> Result<Self> {
        let mut all = Self::zeros(cx, shape)?;
        let mut random = Random::new(seed);
        let mut normal =
            |len: usize, deviation: f64| -> Vec<T> { (0..len).map(|_| T::of(deviation * random.normal())).collect() };
        let table = normal(shape.vocabulary * shape.width, 0.5 / (shape.width as f64).sqrt());
        all.embedding_mut()?.elements().copy_from_slice(&table)?;
        for layer in 0..shape.layers {
            for matrix in Matrix::ALL {
                let [outputs, inputs] = shape.matrix(matrix);
                let added = matches!(matrix, Matrix::Output | Matrix::Down);
                let share = if added { 2.0 * shape.layers as f64 } else { 1.0 };
                let values = normal(outputs * inputs, (1.0 / (share * inputs as f64)).sqrt());
                all.matrix_mut(layer, matrix)?.elements().copy_from_slice(&values)?;
            }
        }
        let ones = vec![T::of(1.0); shape.width];
        let of_layers = (0..shape.layers).flat_map(|layer| [Scale::Attention(layer), Scale::Hidden(layer)]);
        for scale in of_layers.chain([Scale::Last]) {
            all.scale_mut(scale)?.elements().copy_from_slice(&ones)?;
        }
        Ok(all)
    }
}
