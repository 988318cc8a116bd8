//! Tensors: buffers with a shape.
//!
//! [`Tensor`] owns its memory, [`TensorView`] and [`TensorViewMut`] borrow it. Every function of the library takes
//! `impl Into<TensorView<..>>` for what it reads and `impl Into<TensorViewMut<..>>` for what it writes, so that `&x`,
//! `&mut x` and views all fit. A view has a size and a stride, in elements, for each dimension: taking a part, another
//! order of dimensions or another shape copies nothing.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::Tensor;
//!
//! # fn main() -> Result<(), Error> {
//! let x = Tensor::upload(&Device::cpu(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
//! let columns = x.view().permute([1, 0])?; // 3 x 2, the same memory
//! assert_eq!((columns.shape(), columns.strides()), ([3, 2], [1, 3]));
//! let last = columns.narrow(0, 2..3)?;
//! assert_eq!(last.to_vec()?, [3.0, 6.0]);
//! # Ok(())
//! # }
//! ```

pub(crate) mod layout;

use layout::Layout;
use std::fmt;
use std::ops::Range;
use tilewright::{Buffer, DType, Device, Result, View, ViewMut};

// For links in the documentation.
#[allow(unused_imports)]
use tilewright::Error;

/// A tensor of `R` dimensions that owns its elements, in row-major order without gaps.
pub struct Tensor<T: DType, const R: usize> {
    buffer: Buffer<T>,
    shape: [usize; R],
}

/// A tensor of `R` dimensions to read, in borrowed memory.
#[derive(Clone, Copy)]
pub struct TensorView<'a, T: DType, const R: usize> {
    /// From the first element to the last: exactly what the layout spans.
    view: View<'a, T>,
    layout: Layout<R>,
}

/// A tensor of `R` dimensions to read and write, in borrowed memory. No two elements share memory.
pub struct TensorViewMut<'a, T: DType, const R: usize> {
    view: ViewMut<'a, T>,
    layout: Layout<R>,
}

impl<T: DType, const R: usize> Tensor<T, R> {
    /// A tensor of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], also if the shape has more elements than can be counted.
    pub fn zeros(device: &Device, shape: [usize; R]) -> Result<Self> {
        let elements = Layout::packed(shape).elements().unwrap_or(usize::MAX);
        Ok(Tensor { buffer: device.zeros(elements)?, shape })
    }

    /// A tensor of whatever elements, for what is written from end to end: see [`Device::empty`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], also if the shape has more elements than can be counted.
    pub fn empty(device: &Device, shape: [usize; R]) -> Result<Self> {
        let elements = Layout::packed(shape).elements().unwrap_or(usize::MAX);
        Ok(Tensor { buffer: device.empty(elements)?, shape })
    }

    /// A tensor of these elements, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the shape has another number of elements, [`Error::OutOfMemory`].
    pub fn upload(device: &Device, elements: &[T], shape: [usize; R]) -> Result<Self> {
        Self::from_buffer(device.upload(elements)?, shape)
    }

    /// A buffer as a tensor of this shape.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the shape has another number of elements than the buffer.
    pub fn from_buffer(buffer: Buffer<T>, shape: [usize; R]) -> Result<Self> {
        let layout = Layout::packed(shape);
        if layout.elements() == Some(buffer.len()) {
            return Ok(Tensor { buffer, shape });
        }
        let problem = format!("does not have the {} elements of the buffer", buffer.len());
        Err(layout.invalid(problem, "give a shape with as many elements, or a view with `TensorView::new`"))
    }

    /// The size of each dimension.
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The device that holds the elements.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The elements, to read.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// The elements, to write.
    pub fn buffer_mut(&mut self) -> &mut Buffer<T> {
        &mut self.buffer
    }

    /// The elements without their shape.
    pub fn into_buffer(self) -> Buffer<T> {
        self.buffer
    }

    /// The tensor, to read.
    pub fn view(&self) -> TensorView<'_, T, R> {
        TensorView { view: self.buffer.as_view(), layout: Layout::packed(self.shape) }
    }

    /// The tensor, to read and write.
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T, R> {
        TensorViewMut { view: self.buffer.as_view_mut(), layout: Layout::packed(self.shape) }
    }

    /// The elements, in row-major order, after the work that writes them.
    ///
    /// # Errors
    ///
    /// Those of launches that the elements depend on, [`Error::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.buffer.to_vec()
    }
}

impl<'a, T: DType, const R: usize> TensorView<'a, T, R> {
    /// The first elements of a buffer or view, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the buffer is too short.
    pub fn new(elements: impl Into<View<'a, T>>, shape: [usize; R]) -> Result<Self> {
        Self::of(elements.into(), Layout::packed(shape))
    }

    /// The same, with a stride in elements for each dimension. A stride of 0 repeats what it steps over.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if an element would lie outside the buffer.
    pub fn with_strides(elements: impl Into<View<'a, T>>, shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        Self::of(elements.into(), Layout { shape, strides })
    }

    fn of(view: View<'a, T>, layout: Layout<R>) -> Result<Self> {
        layout.check(view.len())?;
        let span = layout.span().unwrap_or(0);
        Ok(TensorView { view: view.slice(..span)?, layout })
    }

    /// The elements from the first to the last, with what lies between.
    pub fn elements(&self) -> View<'a, T> {
        self.view
    }

    /// The same tensor with `size` elements in dimension `axis`, where it has one: all are that one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the dimension does not exist or has another size than 1.
    pub fn broadcast(&self, axis: usize, size: usize) -> Result<Self> {
        self.layout.check_axis(axis)?;
        let mut layout = self.layout;
        if layout.shape[axis] != 1 {
            return Err(layout.invalid(
                format!("has {} elements in dimension {axis}", layout.shape[axis]),
                "only a dimension of size 1 can be repeated",
            ));
        }
        (layout.shape[axis], layout.strides[axis]) = (size, 0);
        Self::of(self.view, layout)
    }

    /// Copies the elements to the host, in row-major order, after the work that writes them.
    ///
    /// # Errors
    ///
    /// Those of launches that the elements depend on, [`Error::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let all = self.view.to_vec()?;
        if self.layout.is_packed() {
            return Ok(all);
        }
        Ok(offsets(&self.layout).map(|at| all[at]).collect())
    }
}

/// The offset of each element, in row-major order.
fn offsets<const R: usize>(layout: &Layout<R>) -> impl Iterator<Item = usize> + use<R> {
    let layout = *layout;
    (0..layout.elements().unwrap_or(0)).map(move |mut index| {
        let mut offset = 0;
        for axis in (0..R).rev() {
            offset += index % layout.shape[axis] * layout.strides[axis];
            index /= layout.shape[axis];
        }
        offset
    })
}

impl<'a, T: DType, const R: usize> TensorViewMut<'a, T, R> {
    /// The first elements of a buffer or view, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the buffer is too short.
    pub fn new(elements: impl Into<ViewMut<'a, T>>, shape: [usize; R]) -> Result<Self> {
        Self::of(elements.into(), Layout::packed(shape))
    }

    /// The same, with a stride in elements for each dimension.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if an element would lie outside the buffer, or if elements may share memory.
    pub fn with_strides(elements: impl Into<ViewMut<'a, T>>, shape: [usize; R], strides: [usize; R]) -> Result<Self> {
        Self::of(elements.into(), Layout { shape, strides })
    }

    fn of(view: ViewMut<'a, T>, layout: Layout<R>) -> Result<Self> {
        layout.check(view.len())?;
        if !layout.is_injective() {
            return Err(layout.invalid(
                "may keep two elements in one place",
                "what is written needs strides that step over all that smaller ones reach",
            ));
        }
        let span = layout.span().unwrap_or(0);
        Ok(TensorViewMut { view: view.slice_mut(..span)?, layout })
    }

    /// The same tensor, to read.
    pub fn as_view(&self) -> TensorView<'_, T, R> {
        TensorView { view: self.view.as_view(), layout: self.layout }
    }

    /// The same tensor for a shorter time.
    pub fn reborrow(&mut self) -> TensorViewMut<'_, T, R> {
        TensorViewMut { view: self.view.reborrow(), layout: self.layout }
    }

    /// The elements from the first to the last, with what lies between.
    pub fn elements(self) -> ViewMut<'a, T> {
        self.view
    }

    /// The elements from the first to the last, for a shorter time.
    pub fn elements_mut(&mut self) -> ViewMut<'_, T> {
        self.view.reborrow()
    }
}

/// What both kinds of views have. `$self` is taken by value where the borrow moves on.
macro_rules! common {
    ($name:ident, $slice:ident, $($by:tt)*) => {
        impl<'a, T: DType, const R: usize> $name<'a, T, R> {
            /// The size of each dimension.
            pub fn shape(&self) -> [usize; R] {
                self.layout.shape
            }

            /// The stride of each dimension, in elements.
            pub fn strides(&self) -> [usize; R] {
                self.layout.strides
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                self.layout.elements().unwrap_or(0)
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether the elements lie in row-major order without gaps.
            pub fn is_contiguous(&self) -> bool {
                self.layout.is_packed()
            }

            /// The device that holds the elements.
            pub fn device(&self) -> &'a Device {
                self.view.device()
            }

            pub(crate) fn layout(&self) -> Layout<R> {
                self.layout
            }

            /// The dimensions in another order: dimension `i` of the result is dimension `order[i]` of this.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`] if `order` does not name each dimension once.
            pub fn permute($($by)* self, order: [usize; R]) -> Result<Self> {
                Ok($name { layout: self.layout.permuted(order)?, view: self.view })
            }

            /// Two dimensions exchanged.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`] if there is no such dimension.
            pub fn transpose($($by)* self, a: usize, b: usize) -> Result<Self> {
                self.layout.check_axis(a)?;
                self.layout.check_axis(b)?;
                let mut layout = self.layout;
                layout.shape.swap(a, b);
                layout.strides.swap(a, b);
                Ok($name { layout, view: self.view })
            }

            /// The same elements under another shape, in row-major order of both.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`] if the number of elements differs, or if no strides say it.
            pub fn reshape<const S: usize>($($by)* self, shape: [usize; S]) -> Result<$name<'a, T, S>> {
                Ok($name { layout: self.layout.reshaped(shape)?, view: self.view })
            }

            /// The part with these indices in dimension `axis`.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`] if the dimension does not exist or does not have these indices.
            pub fn narrow($($by)* self, axis: usize, range: Range<usize>) -> Result<Self> {
                self.layout.check_axis(axis)?;
                let (mut layout, size) = (self.layout, self.layout.shape[axis]);
                if range.start > range.end || range.end > size {
                    return Err(layout.invalid(
                        format!("has {size} elements in dimension {axis}, not the range {range:?}"),
                        format!("give a range inside 0..{size}"),
                    ));
                }
                let first = range.start * layout.strides[axis];
                layout.shape[axis] = range.len();
                let span = layout.span().unwrap_or(0);
                // An empty part may begin behind the last element.
                let first = if span == 0 { 0 } else { first };
                Ok($name { view: self.view.$slice(first..first + span)?, layout })
            }

            /// The part with index `index` in dimension `axis`, without that dimension: `S` is `R - 1`.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`] if the dimension does not exist or does not have this index.
            pub fn select<const S: usize>($($by)* self, axis: usize, index: usize) -> Result<$name<'a, T, S>> {
                const { assert!(S + 1 == R, "selecting an index removes one dimension") }
                let one = self.narrow(axis, index..index.saturating_add(1))?;
                let others = |at: usize| at + usize::from(at >= axis);
                let layout = Layout {
                    shape: std::array::from_fn(|at| one.layout.shape[others(at)]),
                    strides: std::array::from_fn(|at| one.layout.strides[others(at)]),
                };
                Ok($name { view: one.view, layout })
            }
        }

        impl<T: DType, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Layout { shape, strides } = self.layout;
                write!(f, concat!(stringify!($name), "<{}>({:?}, strides {:?})"), T::ELEMENT, shape, strides)
            }
        }
    };
}

common!(TensorView, slice, &);
common!(TensorViewMut, slice_mut,);

impl<T: DType, const R: usize> fmt::Debug for Tensor<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>({:?})", T::ELEMENT, self.shape)
    }
}

impl<'a, T: DType, const R: usize> From<&'a Tensor<T, R>> for TensorView<'a, T, R> {
    fn from(tensor: &'a Tensor<T, R>) -> Self {
        tensor.view()
    }
}

impl<'a, T: DType, const R: usize> From<&TensorView<'a, T, R>> for TensorView<'a, T, R> {
    fn from(view: &TensorView<'a, T, R>) -> Self {
        *view
    }
}

impl<'a, T: DType, const R: usize> From<&'a TensorViewMut<'_, T, R>> for TensorView<'a, T, R> {
    fn from(view: &'a TensorViewMut<'_, T, R>) -> Self {
        view.as_view()
    }
}

impl<'a, T: DType, const R: usize> From<&'a mut Tensor<T, R>> for TensorViewMut<'a, T, R> {
    fn from(tensor: &'a mut Tensor<T, R>) -> Self {
        tensor.view_mut()
    }
}

impl<'a, T: DType, const R: usize> From<&'a mut TensorViewMut<'_, T, R>> for TensorViewMut<'a, T, R> {
    fn from(view: &'a mut TensorViewMut<'_, T, R>) -> Self {
        view.reborrow()
    }
}
