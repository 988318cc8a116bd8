//! Tensors of frameworks, borrowed for one call.
//!
//! [`TensorRef`] and [`TensorMut`] are what operators take. They know dtype, shape and strides only when the operator is
//! called; [`TensorRef::flat`] and its kind give views with a type, which kernels take.

use crate::error::{Error, Result};
use tilewright::{DType, Device, ElementType, View, ViewMut};
#[cfg(feature = "kernels")]
use tilewright_kernels::{TensorView, TensorViewMut};

// Shapes of frameworks are arrays of `i64`, read as `usize`.
const _: () = assert!(size_of::<usize>() == size_of::<i64>(), "tilewright-ffi needs 64-bit addresses");

/// Where a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu,
    /// The CUDA device with this index.
    Cuda(u32),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Cpu => f.write_str("cpu"),
            Place::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// From here on there is no memory, on the host and on GPUs: both have addresses of less than 57 bits.
pub(crate) const NOWHERE: u64 = 1 << 60;

/// A tensor as a framework describes it. Whoever makes one vouches that the memory and the arrays live for `'a`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawTensor<'a> {
    /// The first element.
    pub address: u64,
    pub dtype: ElementType,
    pub place: Place,
    /// The sizes, none negative, the product of which is `len`.
    pub shape: &'a [usize],
    /// The strides in elements, as many as sizes. `None` for row-major order without gaps.
    pub strides: Option<&'a [i64]>,
    pub len: usize,
}

impl<'a> RawTensor<'a> {
    /// The sizes of a framework, and how many elements they make. `None` if one is negative or they are too many.
    pub fn sizes(sizes: &'a [i64]) -> Option<(&'a [usize], usize)> {
        let mut len = 1usize;
        for size in sizes {
            len = len.checked_mul(usize::try_from(*size).ok()?)?;
        }
        // SAFETY: `usize` has the size and alignment of `i64`, and no size is negative.
        let shape = unsafe { std::slice::from_raw_parts(sizes.as_ptr().cast::<usize>(), sizes.len()) };
        Some((shape, len))
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let Some(strides) = self.strides else { return true };
        let mut expected = 1;
        for (size, stride) in self.shape.iter().zip(strides).rev() {
            if *size != 1 {
                if *stride != expected {
                    return self.len == 0;
                }
                expected *= *size as i64;
            }
        }
        true
    }

    /// The stride of a dimension, in elements. Those of a tensor without elements mean nothing: it has them as if it were
    /// contiguous.
    fn stride(&self, axis: usize) -> i64 {
        match self.strides {
            Some(strides) if self.len > 0 => strides[axis],
            _ => self.shape[axis + 1..].iter().map(|size| size.max(&1)).product::<usize>() as i64,
        }
    }

    /// How many elements there are from the first to the last in memory. `None` where one lies before the first, or further
    /// away than memory reaches.
    pub fn span(&self) -> Option<usize> {
        let most = isize::MAX as usize / self.dtype.size();
        self.reach().filter(|elements| *elements <= most)
    }

    fn reach(&self) -> Option<usize> {
        let Some(strides) = self.strides else { return Some(self.len) };
        if self.len == 0 {
            return Some(0);
        }
        let mut last = 0usize;
        for (size, stride) in self.shape.iter().zip(strides) {
            if *size > 1 {
                last = last.checked_add((size - 1).checked_mul(usize::try_from(*stride).ok()?)?)?;
            }
        }
        last.checked_add(1)
    }
}

/// A tensor that an operator reads.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    name: &'static str,
    raw: RawTensor<'a>,
    device: &'a Device,
}

/// A tensor that an operator writes: an output, or one that is changed in place. No other tensor of the call shares memory
/// with it.
#[derive(Debug)]
pub struct TensorMut<'a> {
    name: &'static str,
    raw: RawTensor<'a>,
    device: &'a Device,
}

macro_rules! common {
    ($tensor:ident) => {
        impl<'a> $tensor<'a> {
            pub(crate) fn new(name: &'static str, raw: RawTensor<'a>, device: &'a Device) -> Self {
                $tensor { name, raw, device }
            }

            /// The name of the parameter.
            pub fn name(&self) -> &'static str {
                self.name
            }

            /// The device and stream that the call is for.
            pub fn device(&self) -> &'a Device {
                self.device
            }

            /// The dtype of the elements.
            pub fn dtype(&self) -> ElementType {
                self.raw.dtype
            }

            /// The size of each dimension.
            pub fn shape(&self) -> &'a [usize] {
                self.raw.shape
            }

            /// The number of dimensions.
            pub fn rank(&self) -> usize {
                self.raw.shape.len()
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                self.raw.len
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.raw.len == 0
            }

            /// Whether the elements lie in row-major order without gaps.
            pub fn is_contiguous(&self) -> bool {
                self.raw.is_contiguous()
            }

            /// The sizes of a tensor of `R` dimensions.
            ///
            /// # Errors
            ///
            /// [`Error::Argument`] if it has another number of dimensions.
            pub fn dims<const R: usize>(&self) -> Result<[usize; R]> {
                self.raw.shape.try_into().map_err(|_| {
                    let given = format_args!("has {} dimensions", self.rank()).to_string();
                    Error::argument(self.name, given, format_args!("{R} dimensions"))
                })
            }

            /// The strides, in elements, of a tensor of `R` dimensions: how far neighbours along each are apart in
            /// `elements`.
            ///
            /// # Errors
            ///
            /// [`Error::Argument`] if it has another number of dimensions, or a negative stride.
            pub fn strides<const R: usize>(&self) -> Result<[usize; R]> {
                self.dims::<R>()?;
                let mut strides = [0; R];
                for (axis, stride) in strides.iter_mut().enumerate() {
                    *stride = usize::try_from(self.raw.stride(axis)).map_err(|_| self.has_negative_strides())?;
                }
                Ok(strides)
            }

            /// The rows along the last dimension: how many there are, and the elements of one. A tensor without dimensions
            /// is one row of one element.
            pub fn rows(&self) -> (usize, usize) {
                match self.raw.shape.split_last() {
                    Some((columns, others)) => (others.iter().product(), *columns),
                    None => (1, 1),
                }
            }

            fn check_dtype<T: DType>(&self) -> Result<()> {
                if self.raw.dtype == T::ELEMENT {
                    return Ok(());
                }
                Err(Error::dtype(self.name, self.raw.dtype, &[T::ELEMENT]))
            }

            fn check_contiguous(&self) -> Result<()> {
                if self.raw.is_contiguous() {
                    return Ok(());
                }
                let given =
                    format!("has shape {:?} with strides {:?}", self.raw.shape, self.raw.strides.unwrap_or(&[]));
                let accepted = "a contiguous tensor (copy it with `.contiguous()`)";
                Err(Error::argument(self.name, given, accepted))
            }

            #[cold]
            fn has_negative_strides(&self) -> Error {
                let given = format!("has strides {:?}", self.raw.strides.unwrap_or(&[]));
                Error::argument(self.name, given, "strides that are not negative and stay inside memory (copy it)")
            }

            fn span(&self) -> Result<usize> {
                self.raw.span().ok_or_else(|| self.has_negative_strides())
            }

            fn check_aligned<T: DType>(&self) -> Result<()> {
                if (self.raw.address as usize).is_multiple_of(align_of::<T>()) {
                    return Ok(());
                }
                let given = format_args!("begins at the address {:#x}", self.raw.address).to_string();
                let accepted = format_args!("a multiple of {} bytes (copy it)", align_of::<T>()).to_string();
                Err(Error::argument(self.name, given, accepted))
            }

            fn check_host(&self) -> Result<()> {
                match self.raw.place {
                    Place::Cpu if self.raw.address >= NOWHERE => Err(Error::argument(
                        self.name,
                        "has no memory yet, as only its scratch memory is asked for",
                        "a call that does not read it on the host",
                    )),
                    Place::Cpu => Ok(()),
                    place => Err(Error::argument(self.name, format_args!("is on {place}"), "a tensor on the CPU")),
                }
            }
        }
    };
}

common!(TensorRef);
common!(TensorMut);

impl<'a> TensorRef<'a> {
    /// All elements, in row-major order.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the dtype is another than `T`, or the tensor is not contiguous.
    pub fn flat<T: DType>(&self) -> Result<View<'a, T>> {
        self.check_contiguous()?;
        self.elements()
    }

    /// The elements from the first to the last, with what lies between them.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the dtype is another than `T`, or a stride is negative.
    pub fn elements<T: DType>(&self) -> Result<View<'a, T>> {
        self.check_dtype::<T>()?;
        let len = self.span()?;
        // SAFETY: the framework keeps the memory while the call lasts, and runs what uses it later on the device's stream.
        Ok(unsafe { self.device.borrow(self.raw.address, len) }?)
    }

    /// A tensor of `tilewright-kernels`.
    ///
    /// # Errors
    ///
    /// As for [`TensorRef::elements`] and [`TensorRef::dims`].
    #[cfg(feature = "kernels")]
    pub fn view<T: DType, const R: usize>(&self) -> Result<TensorView<'a, T, R>> {
        Ok(TensorView::with_strides(self.elements::<T>()?, self.dims()?, self.strides()?)?)
    }

    /// The elements of a tensor on the CPU, in row-major order, for code that is no kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the tensor is on a GPU, of another dtype than `T`, or not contiguous.
    pub fn slice<T: DType + NotBool>(&self) -> Result<&'a [T]> {
        self.check_host()?;
        self.check_dtype::<T>()?;
        self.check_contiguous()?;
        if self.raw.len == 0 {
            return Ok(&[]);
        }
        self.check_aligned::<T>()?;
        // SAFETY: the framework keeps the memory while the call lasts, nobody writes to it meanwhile, and every pattern of
        // bytes is a value of `T`.
        Ok(unsafe { std::slice::from_raw_parts(self.raw.address as *const T, self.raw.len) })
    }
}

impl<'a> TensorMut<'a> {
    /// The same tensor, to read.
    pub fn as_ref(&self) -> TensorRef<'_> {
        TensorRef { name: self.name, raw: self.raw, device: self.device }
    }

    /// The same tensor, for a shorter time.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        TensorMut { name: self.name, raw: self.raw, device: self.device }
    }

    /// All elements, in row-major order.
    ///
    /// # Errors
    ///
    /// As for [`TensorRef::flat`].
    pub fn flat_mut<T: DType>(self) -> Result<ViewMut<'a, T>> {
        self.check_contiguous()?;
        self.elements_mut()
    }

    /// The elements from the first to the last, with what lies between them.
    ///
    /// # Errors
    ///
    /// As for [`TensorRef::elements`].
    pub fn elements_mut<T: DType>(self) -> Result<ViewMut<'a, T>> {
        self.check_dtype::<T>()?;
        let len = self.span()?;
        // SAFETY: as in `TensorRef::elements`, and no other tensor of the call shares the memory.
        Ok(unsafe { self.device.borrow_mut(self.raw.address, len) }?)
    }

    /// A tensor of `tilewright-kernels`.
    ///
    /// # Errors
    ///
    /// As for [`TensorRef::view`].
    #[cfg(feature = "kernels")]
    pub fn view_mut<T: DType, const R: usize>(self) -> Result<TensorViewMut<'a, T, R>> {
        let (shape, strides) = (self.dims()?, self.strides()?);
        Ok(TensorViewMut::with_strides(self.elements_mut::<T>()?, shape, strides)?)
    }

    /// The elements of a tensor on the CPU, in row-major order, for code that is no kernel.
    ///
    /// # Errors
    ///
    /// As for [`TensorRef::slice`].
    pub fn slice_mut<T: DType + NotBool>(self) -> Result<&'a mut [T]> {
        self.check_host()?;
        self.check_dtype::<T>()?;
        self.check_contiguous()?;
        if self.raw.len == 0 {
            return Ok(&mut []);
        }
        self.check_aligned::<T>()?;
        // SAFETY: as in `TensorRef::slice`, and no other tensor of the call shares the memory.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.raw.address as *mut T, self.raw.len) })
    }
}

/// A dtype of which every pattern of bytes is a value: all but `bool`, which frameworks store as bytes.
pub trait NotBool {}

impl<T: tilewright::Num> NotBool for T {}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<'a>(shape: &'a [usize], strides: Option<&'a [i64]>) -> RawTensor<'a> {
        let len = shape.iter().product();
        RawTensor { address: 0, dtype: ElementType::F32, place: Place::Cpu, shape, strides, len }
    }

    #[test]
    fn row_major_order_without_gaps_is_contiguous() {
        let contiguous = |shape, strides| tensor(shape, Some(strides)).is_contiguous();
        assert!(contiguous(&[2, 3], &[3, 1]));
        assert!(contiguous(&[], &[]));
        assert!(!contiguous(&[3, 2], &[1, 3]), "transposed");
        assert!(!contiguous(&[2, 3], &[4, 1]), "with gaps");
        assert!(!contiguous(&[2, 3], &[0, 1]), "repeated");
        assert!(contiguous(&[2, 1, 3], &[3, 77, 1]), "the stride of one element means nothing");
        assert!(contiguous(&[0, 3], &[9, 9]), "nothing lies anywhere");
        assert!(tensor(&[2, 3], None).is_contiguous());
    }

    #[test]
    fn spans_reach_from_the_first_to_the_last_element() {
        let span = |shape, strides| tensor(shape, Some(strides)).span();
        assert_eq!(span(&[2, 3], &[3, 1]), Some(6));
        assert_eq!(span(&[3, 2], &[1, 3]), Some(6));
        assert_eq!(span(&[2, 3], &[10, 2]), Some(15));
        assert_eq!(span(&[4, 3], &[0, 1]), Some(3));
        assert_eq!(span(&[4, 0], &[1, 1]), Some(0));
        assert_eq!(span(&[], &[]), Some(1));
        assert_eq!(span(&[3], &[-1]), None);
        assert_eq!(span(&[1], &[-1]), Some(1));
        assert_eq!(span(&[3], &[i64::MAX]), None, "more than can be counted");
    }

    #[test]
    fn strides_follow_from_the_shape_where_none_are_given() {
        let device = Device::cpu();
        let x = TensorRef::new("x", tensor(&[2, 3, 4], None), &device);
        assert_eq!(x.strides::<3>().expect("three dimensions"), [12, 4, 1]);
        assert_eq!(x.rows(), (6, 4));
        let error = x.dims::<2>().expect_err("three dimensions");
        assert_eq!(error.to_string(), "`x` has 3 dimensions; accepted: 2 dimensions");
    }

    #[test]
    fn slices_begin_where_their_elements_may() {
        let (device, memory) = (Device::cpu(), [0.0f32; 3]);
        let at = |address| RawTensor { address, ..tensor(&[2], None) };
        let address = memory.as_ptr() as u64;
        for (address, is_aligned) in [(address, true), (address + 1, false), (address + 2, false), (address + 4, true)]
        {
            let (x, y) = (TensorRef::new("x", at(address), &device), TensorMut::new("x", at(address), &device));
            for slice in [x.slice::<f32>().map(|slice| slice.len()), y.slice_mut::<f32>().map(|slice| slice.len())] {
                let expected =
                    format!("`x` begins at the address {address:#x}; accepted: a multiple of 4 bytes (copy it)");
                match slice {
                    Ok(len) => assert!(is_aligned && len == 2),
                    Err(error) => assert_eq!((error.to_string(), is_aligned), (expected, false)),
                }
            }
        }
    }

    #[test]
    fn sizes_that_are_no_sizes_are_refused() {
        assert_eq!(RawTensor::sizes(&[2, 3]), Some(([2, 3].as_slice(), 6)));
        assert_eq!(RawTensor::sizes(&[2, -3]), None);
        assert_eq!(RawTensor::sizes(&[i64::MAX, 3]), None);
    }
}
