//! Tensor descriptors: a buffer seen as a tensor of one to five dimensions.
//!
//! [`TensorDesc`] and [`TensorDescMut`] are what a launch passes for parameters of these names. A
//! kernel reads and writes blocks of the tensor by coordinates; what lies outside the tensor reads
//! as zero (or NaN) and is not written. All elements are proved to lie inside the buffer when the
//! descriptor is made, so kernels need no checks.
//!
//! ```
//! use kernel_runtime::{Device, TensorDesc, TensorDescMut};
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::cpu();
//! let a = device.zeros::<f32>(6 * 8)?;
//! let a = TensorDesc::new(&a, [6, 7])?; // rows of 7 elements, one after the other
//! assert_eq!((a.shape(), a.strides()), ([6, 7], [7, 1]));
//!
//! let mut c = device.zeros::<f32>(6 * 8)?;
//! let c = TensorDescMut::with_strides(&mut c, [6, 7], [8, 1])?; // rows begin 8 elements apart
//! assert_eq!(c.strides(), [8, 1]);
//!
//! let x = device.zeros::<f32>(10)?;
//! assert!(TensorDesc::new(&x, [3, 4]).is_err(), "12 elements do not fit into 10");
//! # Ok(())
//! # }
//! ```
//!
//! # What the hardware asks for
//!
//! On GPUs from Hopper on, blocks are copied by the Tensor Memory Accelerator where it can: the
//! address of the first element and all strides but the innermost are multiples of 16 bytes, no
//! stride is zero or 2^40 bytes or more, no dimension is empty, and where blocks are stored the
//! innermost dimension is a multiple of 16 bytes too. A descriptor that breaks one of these rules is no
//! error: the launch runs a variant of the kernel that accesses memory under masks, as on older
//! GPUs. Rows that are padded to a multiple of 16 bytes are faster.

mod layout;
mod map;

use crate::dtype::{DType, ElementType, Float};
use crate::error::Result;
use crate::launch::{BufferArg, PtrArg, PtrMutArg};
pub use layout::MAX_RANK;
pub(crate) use layout::{Padding, TensorFacts, TensorLayout};
pub(crate) use map::{Encoded, Map, MapCache};
use std::fmt;
use std::sync::Arc;

/// A tensor of `RANK` dimensions in a buffer that kernels read: the argument of a parameter
/// `TensorDesc<T, { [..] }>`.
pub struct TensorDesc<'a, T: DType, const RANK: usize> {
    inner: Inner<'a>,
    elements: std::marker::PhantomData<&'a [T]>,
}

/// A tensor of `RANK` dimensions in a buffer that kernels read and write: the argument of a
/// parameter `TensorDescMut<T, { [..] }>`.
pub struct TensorDescMut<'a, T: DType, const RANK: usize> {
    inner: Inner<'a>,
    elements: std::marker::PhantomData<&'a mut [T]>,
}

/// A descriptor without its type.
pub(crate) struct Inner<'a> {
    pub(crate) buffer: BufferArg<'a>,
    pub(crate) layout: TensorLayout,
    /// See [`TensorLayout::keeps_order`].
    pub(crate) keeps_order: bool,
    /// What the driver has made of it.
    pub(crate) maps: Arc<MapCache>,
}

impl<'a> Inner<'a> {
    fn new(
        buffer: BufferArg<'a>,
        element: ElementType,
        shape: &[usize],
        strides: Option<&[usize]>,
        written: bool,
    ) -> Result<Self> {
        let layout = TensorLayout::new(element, buffer.len(), shape, strides)?;
        let keeps_order = layout.keeps_order(written);
        Ok(Inner { buffer, layout, keeps_order, maps: Arc::default() })
    }

    /// What code may know of the tensor.
    #[inline]
    pub(crate) fn facts(&self) -> TensorFacts {
        let facts = self.layout.facts();
        if self.keeps_order || self.maps.is_refused() {
            return TensorFacts { copies: false, ..facts };
        }
        facts
    }

    fn array<const RANK: usize>(values: &[u64]) -> [usize; RANK] {
        // They have been made of `usize`s.
        std::array::from_fn(|axis| values.get(axis).map_or(0, |value| *value as usize))
    }
}

macro_rules! descriptors {
    ($(
        $name:ident, $arg:ident, $method:ident, $written:literal, $borrow:literal;
    )*) => {$(
        impl<'a, T: DType, const RANK: usize> $name<'a, T, RANK> {
            #[doc = concat!("A row-major tensor without gaps, from the first element of a `", $borrow, "` or view on.")]
            ///
            /// # Errors
            ///
            /// [`Error::InvalidTensor`](crate::Error::InvalidTensor) if the elements do not fit
            /// into the buffer, a dimension has more than 2^31 - 1 elements, or there are not one
            /// to five dimensions.
            pub fn new(buffer: impl $arg<'a, T>, shape: [usize; RANK]) -> Result<Self> {
                let inner = Inner::new(buffer.$method().into(), T::ELEMENT, &shape, None, $written)?;
                Ok($name { inner, elements: std::marker::PhantomData })
            }

            /// A tensor whose neighbours along a dimension are that many elements apart. The
            /// innermost stride is 1, and strides of dimensions of one element do not matter.
            ///
            /// # Errors
            ///
            #[doc = concat!("As for [`", stringify!($name), "::new`], and if the innermost stride is not 1.")]
            pub fn with_strides(
                buffer: impl $arg<'a, T>,
                shape: [usize; RANK],
                strides: [usize; RANK],
            ) -> Result<Self> {
                let inner = Inner::new(buffer.$method().into(), T::ELEMENT, &shape, Some(&strides), $written)?;
                Ok($name { inner, elements: std::marker::PhantomData })
            }

            /// The elements along each dimension.
            pub fn shape(&self) -> [usize; RANK] {
                Inner::array(self.inner.layout.shape())
            }

            /// How far neighbours along each dimension are apart, in elements.
            pub fn strides(&self) -> [usize; RANK] {
                Inner::array(self.inner.layout.strides())
            }

            /// Whether elements outside the tensor read as NaN.
            pub fn pads_with_nan(&self) -> bool {
                self.inner.layout.padding() == Padding::Nan
            }
        }

        impl<T: Float, const RANK: usize> $name<'_, T, RANK> {
            /// The same tensor, of which elements outside read as NaN instead of zero.
            pub fn with_nan_padding(mut self) -> Self {
                self.inner.layout.pad_with_nan();
                // What the driver was told is no longer so.
                self.inner.maps = Arc::default();
                self
            }
        }

        impl<T: DType, const RANK: usize> fmt::Debug for $name<'_, T, RANK> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("dtype", &T::ELEMENT)
                    .field("shape", &self.shape())
                    .field("strides", &self.strides())
                    .field("pads_with_nan", &self.pads_with_nan())
                    .finish()
            }
        }
    )*};
}

descriptors! {
    TensorDesc, PtrArg, into_arg, false, "&Buffer";
    TensorDescMut, PtrMutArg, into_arg_mut, true, "&mut Buffer";
}

/// What may be passed for a `TensorDesc<T, { [..] }>` parameter whose blocks have `RANK`
/// dimensions: `&TensorDesc`, or `&TensorDescMut` of a tensor that the kernel only reads.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a descriptor of a tensor of `{T}` with {RANK} dimensions",
    label = "expected `&TensorDesc<{T}, {RANK}>`",
    note = "make one of a buffer: `&TensorDesc::new(&buffer, [rows, columns])?`"
)]
pub trait DescArg<'a, T: DType, const RANK: usize> {
    /// The descriptor behind it.
    fn into_desc(self) -> DescRef<'a>;
}

/// What may be passed for a `TensorDescMut<T, { [..] }>` parameter whose blocks have `RANK`
/// dimensions: `&mut TensorDescMut`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a descriptor of a tensor of `{T}` with {RANK} dimensions that is written",
    label = "expected `&mut TensorDescMut<{T}, {RANK}>`",
    note = "make one of a buffer: `&mut TensorDescMut::new(&mut buffer, [rows, columns])?`"
)]
pub trait DescMutArg<'a, T: DType, const RANK: usize> {
    /// The descriptor behind it.
    fn into_desc_mut(self) -> DescRefMut<'a>;
}

/// A borrowed descriptor without its type. Made by the implementations of [`DescArg`].
#[derive(Clone, Copy)]
pub struct DescRef<'a>(pub(crate) &'a Inner<'a>);

/// An exclusively borrowed descriptor without its type. Made by the implementations of
/// [`DescMutArg`].
pub struct DescRefMut<'a>(pub(crate) &'a Inner<'a>);

impl<'a, T: DType, const RANK: usize> DescArg<'a, T, RANK> for &'a TensorDesc<'_, T, RANK> {
    #[inline]
    fn into_desc(self) -> DescRef<'a> {
        DescRef(&self.inner)
    }
}

impl<'a, T: DType, const RANK: usize> DescArg<'a, T, RANK> for &'a TensorDescMut<'_, T, RANK> {
    #[inline]
    fn into_desc(self) -> DescRef<'a> {
        DescRef(&self.inner)
    }
}

impl<'a, T: DType, const RANK: usize> DescMutArg<'a, T, RANK> for &'a mut TensorDescMut<'_, T, RANK> {
    #[inline]
    fn into_desc_mut(self) -> DescRefMut<'a> {
        DescRefMut(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::error::Error;

    fn refusal(shape: [usize; 2], strides: [usize; 2]) -> String {
        let buffer = Device::cpu().zeros::<f32>(100).expect("memory");
        match TensorDesc::with_strides(&buffer, shape, strides) {
            Err(error @ Error::InvalidTensor { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_element_lies_in_the_buffer() -> Result<()> {
        let buffer = Device::cpu().zeros::<f32>(100)?;
        for (shape, strides) in [([10, 10], [10, 1]), ([9, 11], [11, 1]), ([50, 10], [1, 1]), ([2, 10], [90, 1])] {
            let tensor = TensorDesc::with_strides(&buffer, shape, strides)?;
            assert_eq!((tensor.shape(), tensor.strides()), (shape, strides));
        }
        for (shape, strides) in [([10, 10], [11, 1]), ([11, 10], [10, 1]), ([2, 10], [91, 1]), ([1, 101], [1, 1])] {
            assert!(TensorDesc::with_strides(&buffer, shape, strides).is_err(), "{shape:?} {strides:?}");
        }
        Ok(())
    }

    #[test]
    fn empty_tensors_fit_everywhere() -> Result<()> {
        let buffer = Device::cpu().zeros::<f32>(0)?;
        assert_eq!(TensorDesc::new(&buffer, [0, 1000])?.shape(), [0, 1000]);
        assert!(TensorDesc::new(&buffer, [1]).is_err());
        Ok(())
    }

    #[test]
    fn refusals_name_the_value_the_limit_and_what_works() {
        assert_eq!(
            refusal([11, 10], [10, 1]),
            "a tensor of shape [11, 10] and strides [10, 1] needs 110 elements, its buffer has 100; \
             the outermost dimension can have at most 10"
        );
        assert_eq!(
            refusal([10, 10], [10, 2]),
            "a tensor of shape [10, 10] and strides [10, 2] has an innermost stride of 2, it must be 1; \
             order the dimensions so that neighbours along the last one are adjacent"
        );
        assert_eq!(
            refusal([1 << 32, 1], [0, 1]),
            "a tensor of shape [4294967296, 1] and strides [0, 1] has 4294967296 elements along dimension 0, at most \
             2147483647 can be addressed; split the dimension"
        );
        let overflowing = refusal([usize::MAX >> 34, 2], [usize::MAX, 1]);
        assert!(overflowing.contains("more elements than can be counted"), "{overflowing}");
    }

    #[test]
    fn ranks_are_one_to_five() -> Result<()> {
        let buffer = Device::cpu().zeros::<f32>(100)?;
        TensorDesc::new(&buffer, [1, 2, 3, 4, 4])?;
        let error = TensorDesc::new(&buffer, [1; 6]).expect_err("six dimensions").to_string();
        assert!(error.contains("has 6 dimensions, 1 to 5 are possible"), "{error}");
        Ok(())
    }

    #[test]
    fn padding_is_zero_unless_asked_for() -> Result<()> {
        let mut buffer = Device::cpu().zeros::<f32>(100)?;
        assert!(!TensorDesc::new(&buffer, [10])?.pads_with_nan());
        assert!(TensorDescMut::new(&mut buffer, [10])?.with_nan_padding().pads_with_nan());
        Ok(())
    }
}
