//! Linear layers with quantised weights.

use super::linear::projected_columns;
use super::matmul;
use crate::lock::Named;
use crate::prelude::*;
use crate::tensor::given;
use crate::{Element, Op, apply, call_with};
use candle_core::{DType as CandleDType, Module};
use tilewright_kernels::products::quantised::{self as library, Int4, Int8, Nf4, Packing};
use tilewright_kernels::{Context, Tensor as Scratch, TensorView, TensorViewMut};

/// Quantised weights of a linear layer, which stand for a matrix `[k, n]`: `k` is what the layer is given, `n` what it gives.
#[derive(Debug, Clone)]
pub enum Weights {
    /// `number * scale`, with a scale for each column.
    Int8 {
        /// `[k, n]` of u8, the bits of an i8 each: candle has no such dtype. Any strides.
        numbers: Tensor,
        /// `[n]` of f32.
        scales: Tensor,
    },
    /// `(number - zero) * scale`, with a zero and a scale for each `group` rows of a column, as AWQ and GPTQ pack them.
    Int4 {
        /// `[k, n / 8]` of [`Packing::Awq`], `[k / 8, n]` of [`Packing::Gptq`], of u32 or i32.
        words: Tensor,
        /// `[ceil(k / group), n]` of f16 or bf16, which what the layer is given is of too.
        scales: Tensor,
        /// `[ceil(k / group), n / 8]` of u32 or i32. Without them each is 8.
        zeros: Option<Tensor>,
        /// A multiple of 16, or at least `k`.
        group: usize,
        /// How words are packed.
        packing: Packing,
    },
    /// One of 16 numbers times the largest magnitude of a block of 64 neighbours along `k` (Dettmers et al., "QLoRA", 2023).
    Nf4 {
        /// `[n, k / 2]` of u8, two neighbours along `k` each, the first in the upper half.
        bytes: Tensor,
        /// `[n, k / 64]` of f32.
        largest: Tensor,
    },
}

/// A linear layer with quantised weights.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use tilewright_candle::products::QuantisedLinear;
///
/// # fn main() -> candle_core::Result<()> {
/// let weight = Tensor::ones((8, 64), DType::F16, &Device::Cpu)?; // 64 numbers in, 8 out
/// let layer = QuantisedLinear::int8(&weight)?;
/// let y = layer.forward(&Tensor::ones((1, 64), DType::F16, &Device::Cpu)?)?;
/// assert_eq!(y.to_dtype(DType::F32)?.to_vec2::<f32>()?, [[64.0; 8]]);
/// # Ok(())
/// # }
/// ```
///
/// What it is given is `[.., k]` of f16 or bf16, and what it gives `[.., n]` of the same dtype. Weights of 4 bits are unpacked,
/// scaled and rounded to that dtype; those of 8 bits are exact, and their scale multiplies sums. Sums are in f32. What the layer is
/// given may require a gradient; the weights have none.
#[derive(Debug, Clone)]
pub struct QuantisedLinear {
    weights: Weights,
}

impl QuantisedLinear {
    /// A layer of weights that are quantised already.
    pub fn new(weights: Weights) -> Self {
        QuantisedLinear { weights }
    }

    /// Weights `[n, k]` of f16, bf16, f32 or f64 in 8 bits, with a scale for each row: `max(|w|) / 127`.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of a tensor that requires a gradient; those of launches.
    pub fn int8(weight: &Tensor) -> candle_core::Result<Self> {
        let [numbers, scales] = quantise_int8(weight)?;
        Ok(Self::new(Weights::Int8 { numbers, scales }))
    }

    /// Weights `[n, k]` of f16 or bf16 in 4 bits, with a zero and a scale for each `group` neighbours along `k`: a power of two
    /// from 16 to 256. `n` is a multiple of 8, and `k` of [`Packing::Gptq`] too.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of a tensor that requires a gradient; those of launches.
    pub fn int4(weight: &Tensor, group: usize, packing: Packing) -> candle_core::Result<Self> {
        let [words, scales, zeros] = quantise_int4(weight, group, packing)?;
        Ok(Self::new(Weights::Int4 { words, scales, zeros: Some(zeros), group, packing }))
    }

    /// Weights `[n, k]` of f16, bf16, f32 or f64 as NF4; `k` is a multiple of 64.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of weights with gaps, of a tensor that requires a gradient; those of launches.
    pub fn nf4(weight: &Tensor) -> candle_core::Result<Self> {
        let [bytes, largest] = quantise_nf4(weight)?;
        Ok(Self::new(Weights::Nf4 { bytes, largest }))
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The matrix `[n, k]` that the weights stand for, of f16 or bf16; of 8 bits and NF4 also of f32.
    ///
    /// # Errors
    ///
    /// Of other dtypes; those of launches.
    pub fn dequantise(&self, dtype: CandleDType) -> candle_core::Result<Tensor> {
        let shape = |refs: [Option<TensorRef<'_>>; 3]| match &self.weights {
            Weights::Int8 { .. } => given(refs[0])?.shape::<2>(),
            Weights::Int4 { packing, .. } => given(refs[0])?.shape().map(|[rows, columns]| match packing {
                Packing::Awq => [rows, 8 * columns],
                Packing::Gptq => [8 * rows, columns],
            }),
            Weights::Nf4 { .. } => given(refs[0])?.shape().map(|[n, halves]| [n, 2 * halves]),
        };
        let outputs = |refs: [Option<TensorRef<'_>>; 3]| shape(refs).map(|[a, b]| [Spec::new(dtype, (a, b))]);
        let [matrix] = call_with("dequantise", self.weights.tensors(), outputs, |refs, [out]| {
            let cx = given(refs[0])?.context();
            match &self.weights {
                Weights::Int4 { group, packing, .. } => dispatch!(out => F in [f16, bf16] {
                    library::dequantise_int4_into(cx, &int4::<F>(refs, *group, *packing)?, out.view_mut::<F, 2>()?)
                }),
                Weights::Int8 { .. } => dispatch!(out => F in [f16, bf16, f32] {
                    library::dequantise_int8_into(cx, &int8(refs)?, out.view_mut::<F, 2>()?)
                }),
                Weights::Nf4 { .. } => dispatch!(out => F in [f16, bf16, f32] {
                    library::dequantise_nf4_into(cx, &nf4(refs)?, out.view_mut::<F, 2>()?)
                }),
            }
        })?;
        if matches!(self.weights, Weights::Nf4 { .. }) { Ok(matrix) } else { matrix.t() }
    }
}

impl Module for QuantisedLinear {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        apply(Product { layer: self.clone() }, [x])
    }
}

impl Weights {
    /// The tensors that they are made of.
    fn tensors(&self) -> [Option<Named<'_>>; 3] {
        match self {
            Weights::Int8 { numbers, scales } => [Some(("numbers", numbers)), Some(("scales", scales)), None],
            Weights::Int4 { words, scales, zeros, .. } => {
                let zeros = zeros.as_ref().map(|zeros| ("zeros", zeros));
                [Some(("words", words)), Some(("scales", scales)), zeros]
            }
            Weights::Nf4 { bytes, largest } => [Some(("bytes", bytes)), Some(("largest", largest)), None],
        }
    }

    /// What the layer is given, and what it gives.
    fn sizes(&self) -> candle_core::Result<[usize; 2]> {
        let two = |tensor: &Tensor| tensor.dims2();
        Ok(match self {
            Weights::Int8 { numbers, .. } => two(numbers)?.into(),
            Weights::Int4 { words, packing, .. } => match (two(words)?, packing) {
                ((k, words), Packing::Awq) => [k, 8 * words],
                ((words, n), Packing::Gptq) => [8 * words, n],
            },
            Weights::Nf4 { bytes, .. } => two(bytes).map(|(n, halves)| [2 * halves, n])?,
        })
    }
}

/// The product of a layer, of which what is given alone is an input: weights have no gradient.
struct Product {
    layer: QuantisedLinear,
}

impl Op<1, 1> for Product {
    const NAME: &'static str = "QuantisedLinear";
    const INPUTS: [&'static str; 1] = ["x"];

    fn outputs(&self, [x]: [TensorRef<'_>; 1]) -> Result<[Spec; 1]> {
        let sizes = self.layer.weights.sizes().map_err(|error| x.invalid("has no weights", error.to_string()))?;
        Ok([projected_columns(x, "the weights", sizes)?])
    }

    fn forward(&self, [x]: [TensorRef<'_>; 1], [y]: [TensorMut<'_>; 1]) -> Result<()> {
        let weights = &self.layer.weights;
        crate::call::also(Self::NAME, x, weights.tensors(), |refs| {
            dispatch!(x => F in [f16, bf16] {
                let (cx, x, y) = (x.context(), x.rows::<F>()?, y.rows_mut::<F>()?);
                match weights {
                    Weights::Int8 { .. } => multiply(cx, x, &int8(refs)?, y),
                    Weights::Int4 { group, packing, .. } => multiply(cx, x, &int4::<F>(refs, *group, *packing)?, y),
                    Weights::Nf4 { .. } => multiply(cx, x, &nf4(refs)?, y),
                }
            })
        })
    }

    fn backward(&self, [x]: [&Tensor; 1], _: [&Tensor; 1], dy: &Tensor) -> candle_core::Result<[Option<Tensor>; 1]> {
        let weight = self.layer.dequantise(x.dtype())?;
        // Whatever the rank, also of a single row.
        let (n, _) = weight.dims2()?;
        let rows = dy.reshape((dy.dims().iter().rev().skip(1).product::<usize>(), n))?;
        Ok([Some(matmul(&rows.detach(), &weight)?.reshape(x.shape())?)])
    }
}

fn multiply<F: Float, W: library::Weights<F>>(
    cx: &Context,
    x: TensorView<'_, F, 2>,
    weights: &W,
    y: TensorViewMut<'_, F, 2>,
) -> Result<()> {
    let mut room = Scratch::<f32, 1>::empty(cx.device(), [library::workspace(cx, x, weights)?])?;
    library::matmul_into(cx, x, weights, y, &mut room)
}

fn int8<'a>(refs: [Option<TensorRef<'a>>; 3]) -> Result<Int8<'a>> {
    Int8::new(given(refs[0])?.view_as::<i8, 2>()?, given(refs[1])?.view::<f32, 1>()?)
}

fn int4<'a, F: Element + Float>(
    refs: [Option<TensorRef<'a>>; 3],
    group: usize,
    packing: Packing,
) -> Result<Int4<'a, F>> {
    let zeros = refs[2].map(|zeros| zeros.indices()).transpose()?;
    Int4::new(given(refs[0])?.indices()?, given(refs[1])?.view::<F, 2>()?, zeros, group, packing)
}

fn nf4<'a>(refs: [Option<TensorRef<'a>>; 3]) -> Result<Nf4<'a>> {
    Nf4::new(given(refs[0])?.view::<u8, 2>()?, given(refs[1])?.view::<f32, 2>()?)
}

candle_op! {
    fn quantise_int8(weight) -> (
        numbers: weight.shape().map(|[n, k]| Spec::new(CandleDType::U8, (k, n)))?,
        scales: weight.shape().map(|[n, _]| Spec::new(CandleDType::F32, n))?,
    ) {
        dispatch!(weight => F in [f16, bf16, f32, f64] {
            let w = weight.view::<F, 2>()?.transpose(0, 1)?;
            library::quantise_int8_into(weight.context(), w, numbers.view_as_mut::<i8, 2>()?, scales.view_mut()?)
        })
    }
}

candle_op! {
    fn quantise_int4(weight; group: usize, packing: Packing) -> (
        words: weight.shape().map(|[n, k]| match packing {
            Packing::Awq => Spec::new(CandleDType::I32, (k, n.div_ceil(8))),
            Packing::Gptq => Spec::new(CandleDType::I32, (k.div_ceil(8), n)),
        })?,
        scales: weight.shape().map(|[n, k]| Spec::new(weight.dtype(), (k.div_ceil(group.max(1)), n)))?,
        zeros: weight.shape().map(|[n, k]| Spec::new(CandleDType::I32, (k.div_ceil(group.max(1)), n.div_ceil(8))))?,
    ) {
        dispatch!(weight => F in [f16, bf16] {
            let (cx, w) = (weight.context(), weight.view::<F, 2>()?.transpose(0, 1)?);
            let (words, scales, zeros) = (words.view_mut()?, scales.view_mut()?, zeros.view_mut()?);
            library::quantise_int4_into(cx, w, group, packing, words, scales, zeros)
        })
    }
}

candle_op! {
    fn quantise_nf4(weight) -> (
        bytes: weight.shape().map(|[n, k]| Spec::new(CandleDType::U8, (n, k.div_ceil(2))))?,
        largest: weight.shape().map(|[n, k]| Spec::new(CandleDType::F32, (n, k.div_ceil(64))))?,
    ) {
        dispatch!(weight => F in [f16, bf16, f32, f64] {
            library::quantise_nf4_into(weight.context(), weight.view::<F, 2>()?, bytes.view_mut()?, largest.view_mut()?)
        })
    }
}
