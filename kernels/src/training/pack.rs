//! Tensors of one dtype in one buffer.

use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::prelude::*;

/// Where tensors lie in a buffer: one after another, each from a multiple of [`Pack::ALIGNMENT`] elements on, so that a
/// program of an optimiser works on one tensor only. What lies between them stays zero.
///
/// One layout serves parameters, gradients and moments of any dtypes.
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::Context;
/// use tilewright_kernels::training::Pack;
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::cpu());
/// let pack = Pack::new(&[6, 1000]);
/// let mut parameters = pack.zeros::<bf16>(&cx)?;
/// let weight = parameters.tensor_mut(0, [2, 3])?;
/// assert_eq!(weight.shape(), [2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// The first element of each tensor, and the number of its elements.
    tensors: Vec<(usize, usize)>,
    /// Elements of the buffer.
    len: usize,
}

impl Pack {
    /// Elements, of which every tensor begins at a multiple.
    pub const ALIGNMENT: usize = 1024;

    /// The layout of tensors with these numbers of elements.
    pub fn new(lens: &[usize]) -> Self {
        let mut start = 0usize;
        let mut tensors = Vec::with_capacity(lens.len());
        for &len in lens {
            tensors.push((start, len));
            start = start.saturating_add(len).saturating_add(Self::ALIGNMENT - 1) / Self::ALIGNMENT * Self::ALIGNMENT;
        }
        Pack { tensors, len: start }
    }

    /// The number of tensors.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The number of elements of the buffer, with those between tensors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A buffer of this layout, of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn zeros<T: DType>(&self, cx: &Context) -> Result<Packed<T>> {
        Ok(Packed { buffer: cx.device().zeros(self.len)?, pack: self.clone() })
    }

    /// A number for each tensor, as an optimiser reads it: for each [`Pack::ALIGNMENT`] elements, that of their tensor.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if there is another number of values than of tensors, [`Error::OutOfMemory`].
    pub fn per_tensor(&self, cx: &Context, values: &[f32]) -> Result<Tensor<f32, 1>> {
        if values.len() != self.tensors.len() {
            let problem = format!("has {} numbers", values.len());
            let hint = format!("give one for each of the {} tensors", self.tensors.len());
            return Err(crate::check::invalid("values", problem, hint));
        }
        let blocks = |&(_, len): &(usize, usize)| len.div_ceil(Self::ALIGNMENT);
        let table: Vec<f32> =
            self.tensors.iter().zip(values).flat_map(|(tensor, &value)| vec![value; blocks(tensor)]).collect();
        Tensor::upload(cx.device(), &table, [table.len()])
    }

    fn range(&self, index: usize) -> Result<std::ops::Range<usize>> {
        let Some(&(start, len)) = self.tensors.get(index) else {
            let problem = format!("does not exist: the pack has {}", self.tensors.len());
            let hint = "give the number of one of its tensors";
            return Err(crate::check::invalid(&format!("tensor {index}"), problem, hint));
        };
        Ok(start..start + len)
    }
}

/// A buffer that holds the tensors of a [`Pack`].
#[derive(Debug)]
pub struct Packed<T: DType> {
    buffer: Buffer<T>,
    pack: Pack,
}

impl<T: DType> Packed<T> {
    /// The layout.
    pub fn pack(&self) -> &Pack {
        &self.pack
    }

    /// All elements as one tensor, those between tensors too: what optimisers and norms take.
    ///
    /// # Errors
    ///
    /// None: the shape is that of the buffer.
    pub fn all(&self) -> Result<TensorView<'_, T, 1>> {
        TensorView::new(&self.buffer, [self.buffer.len()])
    }

    /// The same, to write. What lies between tensors should stay zero, as norms count it.
    ///
    /// # Errors
    ///
    /// None: the shape is that of the buffer.
    pub fn all_mut(&mut self) -> Result<TensorViewMut<'_, T, 1>> {
        let len = self.buffer.len();
        TensorViewMut::new(&mut self.buffer, [len])
    }

    /// A tensor.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if there is none of that number, or it has another number of elements than the shape.
    pub fn tensor<const R: usize>(&self, index: usize, shape: [usize; R]) -> Result<TensorView<'_, T, R>> {
        let range = self.pack.range(index)?;
        let len = range.len();
        TensorView::new(self.buffer.slice(range)?, [len])?.reshape(shape)
    }

    /// A tensor, to write.
    ///
    /// # Errors
    ///
    /// As [`Packed::tensor`].
    pub fn tensor_mut<const R: usize>(&mut self, index: usize, shape: [usize; R]) -> Result<TensorViewMut<'_, T, R>> {
        let range = self.pack.range(index)?;
        let len = range.len();
        TensorViewMut::new(self.buffer.slice_mut(range)?, [len])?.reshape(shape)
    }
}
