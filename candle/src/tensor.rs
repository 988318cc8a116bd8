//! candle's tensors, as kernels and the library's functions take them.

use crate::Element;
use crate::call::Here;
use crate::element;
use crate::memory::{cpu, cuda};
use candle_core::{DType, Shape, Storage};
use std::fmt;
use tilewright::{Device, Error, Result, TensorDesc, View, ViewMut};
use tilewright_ffi::native;
use tilewright_kernels::{Context, TensorView, TensorViewMut};

/// A tensor of candle's to read, borrowed for one op.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    place: Place<'a>,
}

/// A tensor of candle's to write, borrowed for one op. What an op makes is in row-major order without gaps; whatever it held
/// before, the op writes all of it. A tensor that is changed in place may have strides, no two elements of it share memory.
pub struct TensorMut<'a> {
    place: Place<'a>,
}

/// Where the elements of a tensor are.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// What the op calls the tensor.
    pub(crate) name: &'static str,
    pub(crate) here: Here<'a>,
    pub(crate) dtype: DType,
    pub(crate) dims: &'a [usize],
    /// In elements, one per dimension.
    pub(crate) strides: &'a [usize],
    /// Of the first element.
    pub(crate) address: u64,
    /// Elements from the first to the last, with what lies between.
    pub(crate) span: usize,
}

/// What an op makes: a dtype and a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl Spec {
    /// A tensor of this dtype and shape.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Spec { dtype, shape: shape.into() }
    }
}

/// A tensor of the dtype and the shape of `x`.
pub fn like(x: TensorRef<'_>) -> Spec {
    Spec { dtype: x.place.dtype, shape: Shape::from(x.place.dims) }
}

/// A tensor of candle's of one of the library's, which [`device`](crate::device()) has made for the same device of candle's.
///
/// On a GPU its memory becomes candle's, once all work on it is done: the host waits. On the CPU the elements are copied. An op that
/// writes into candle's own memory ([`call`](crate::call())) does neither.
///
/// ```
/// use candle_core::Device;
///
/// # fn main() -> candle_core::Result<()> {
/// let device = Device::cuda_if_available(0)?;
/// let ours = tilewright_candle::device(&device)?;
/// let x = tilewright_kernels::Tensor::upload(&ours, &[1f32, 2.0, 3.0, 4.0], [2, 2]).map_err(candle_core::Error::wrap)?;
/// let x = tilewright_candle::into_candle(x, &device)?;
/// assert_eq!((x + 1.0)?.to_vec2::<f32>()?, [[2.0, 3.0], [4.0, 5.0]]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the tensor is on another device; that of a launch that made it; if a graph uses its memory.
pub fn into_candle<T: Element, const R: usize>(
    tensor: tilewright_kernels::Tensor<T, R>,
    device: &candle_core::Device,
) -> candle_core::Result<candle_core::Tensor> {
    let (shape, there) = (Shape::from(tensor.shape().as_slice()), crate::device(device)?);
    let buffer = tensor.into_buffer();
    if *buffer.device() != there {
        candle_core::bail!(
            "the tensor is on {}, not on {there}; make it on `tilewright_candle::device`",
            buffer.device()
        );
    }
    if shape.elem_count() == 0 {
        return candle_core::Tensor::zeros(shape, T::DTYPE, device);
    }
    let storage = match device {
        candle_core::Device::Cuda(device) => {
            // What went wrong is told here, or nobody would be.
            buffer.device().synchronize().map_err(candle_core::Error::wrap)?;
            Storage::Cuda(cuda::adopt(buffer, device)?)
        }
        _ => Storage::Cpu(cpu::copied(&buffer.to_vec().map_err(candle_core::Error::wrap)?)?),
    };
    Ok(crate::op::tensor((storage, shape)))
}

/// The error of a tensor that does not fit.
pub(crate) fn invalid(name: &str, problem: impl Into<Box<str>>, hint: impl Into<Box<str>>) -> Error {
    Error::InvalidTensor { tensor: format!("`{name}`").into(), problem: problem.into(), hint: hint.into() }
}

/// Checks that a tensor has the shape of another, where functions see only rows of both.
pub(crate) fn same_shape(name: &str, dims: &[usize], other: TensorRef<'_>) -> Result<()> {
    if dims == other.dims() {
        return Ok(());
    }
    let hint = format!("the shape that is accepted is that of `{}`, {:?}", other.name(), other.dims());
    Err(invalid(name, format!("has the shape {dims:?}"), hint))
}

/// A tensor that an op cannot do without.
pub(crate) fn given(tensor: Option<TensorRef<'_>>) -> Result<TensorRef<'_>> {
    tensor.ok_or_else(|| invalid("a tensor", "is missing", "only those that are optional may be"))
}

/// The strides of row-major order without gaps. Those of more dimensions than most have are on the heap.
pub(crate) enum RowMajor {
    Few([usize; 8], usize),
    Many(Vec<usize>),
}

impl RowMajor {
    pub(crate) fn of(dims: &[usize]) -> Self {
        let mut few = [0; 8];
        let mut many = Vec::new();
        let strides = match few.get_mut(..dims.len()) {
            Some(few) => few,
            None => {
                many.resize(dims.len(), 0);
                &mut many[..]
            }
        };
        let mut step = 1;
        for (stride, size) in strides.iter_mut().zip(dims).rev() {
            *stride = step;
            step *= size;
        }
        if many.is_empty() { RowMajor::Few(few, dims.len()) } else { RowMajor::Many(many) }
    }

    pub(crate) fn strides(&self) -> &[usize] {
        match self {
            RowMajor::Few(strides, rank) => &strides[..*rank],
            RowMajor::Many(strides) => strides,
        }
    }
}

impl Place<'_> {
    /// Whether the elements lie in row-major order without gaps.
    fn is_contiguous(&self) -> bool {
        let mut step = 1;
        // As candle has it: the stride of one element means nothing.
        self.dims.iter().zip(self.strides).rev().all(|(&size, &stride)| {
            let fits = size <= 1 || stride == step;
            step *= size;
            fits
        })
    }

    fn check_dtype<T: Element>(&self) -> Result<()> {
        if self.dtype == T::DTYPE { Ok(()) } else { Err(self.wrong_dtype(&[T::DTYPE])) }
    }

    fn wrong_dtype(&self, accepted: &[DType]) -> Error {
        let hint = match accepted {
            [one] => format!("the dtype that is accepted is {}", one.as_str()),
            many => {
                let names: Vec<_> = many.iter().map(DType::as_str).collect();
                format!("the dtypes that are accepted are {}", names.join(", "))
            }
        };
        invalid(self.name, format!("is of {}", self.dtype.as_str()), hint)
    }

    fn array<const R: usize>(&self) -> Result<([usize; R], [usize; R])> {
        let (shape, strides) = (self.dims, self.strides);
        match (shape.try_into(), strides.try_into()) {
            (Ok(shape), Ok(strides)) => Ok((shape, strides)),
            _ => {
                let problem = format!("has the shape {shape:?}, {} dimensions", shape.len());
                Err(invalid(self.name, problem, format!("the rank that is accepted is {R}")))
            }
        }
    }

    fn check_contiguous(&self) -> Result<()> {
        if self.is_contiguous() {
            return Ok(());
        }
        let problem = format!("has the shape {:?} and strides {:?}: it is not contiguous", self.dims, self.strides);
        Err(invalid(self.name, problem, "call `contiguous` first"))
    }

    /// Rows of the last dimension: how many, their length, and from the beginning of one to the next.
    fn rows(&self) -> Result<([usize; 2], [usize; 2])> {
        let (shape, strides) = (self.dims, self.strides);
        let Some((&columns, outer)) = shape.split_last() else {
            return Err(invalid(self.name, "has no dimensions", "one or more are accepted"));
        };
        let gap = |problem: &str| {
            let problem = format!("has the shape {shape:?} and strides {strides:?}: {problem}");
            invalid(self.name, problem, "call `contiguous` first")
        };
        if columns > 1 && strides[outer.len()] != 1 {
            return Err(gap("its last dimension is not contiguous"));
        }
        let rows: usize = outer.iter().product();
        // From the last of the outer dimensions to the first, each steps over all of the one behind it.
        let mut run: Option<(usize, usize)> = None;
        for (&size, &stride) in outer.iter().zip(strides).rev().filter(|(size, _)| **size != 1) {
            match run {
                Some((first, reach)) if rows == 0 || stride == reach => run = Some((first, reach * size)),
                Some(_) => return Err(gap("its rows do not follow each other at one distance")),
                None => run = Some((stride, stride * size)),
            }
        }
        Ok(([rows, columns], [run.map_or(columns, |(stride, _)| stride), 1]))
    }
}

/// What both kinds of tensors have.
macro_rules! common {
    ($name:ident) => {
        impl<'a> $name<'a> {
            pub(crate) fn new(place: Place<'a>) -> Self {
                $name { place }
            }

            /// What the op calls the tensor, for messages.
            pub fn name(&self) -> &'static str {
                self.place.name
            }

            /// The dtype of the elements.
            pub fn dtype(&self) -> DType {
                self.place.dtype
            }

            /// The size of each dimension.
            pub fn dims(&self) -> &'a [usize] {
                self.place.dims
            }

            /// The stride of each dimension, in elements.
            pub fn strides(&self) -> &'a [usize] {
                self.place.strides
            }

            /// The shape, of a known rank.
            ///
            /// # Errors
            ///
            /// If the tensor has another rank.
            pub fn shape<const R: usize>(&self) -> Result<[usize; R]> {
                Ok(self.place.array()?.0)
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                self.place.dims.iter().product()
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether the elements lie in row-major order without gaps.
            pub fn is_contiguous(&self) -> bool {
                self.place.is_contiguous()
            }

            /// The device that holds the elements: launches go there.
            pub fn device(&self) -> &'a Device {
                self.place.here.cx.device()
            }

            /// The same for the functions of the library.
            pub fn context(&self) -> &'a Context {
                self.place.here.cx
            }

            /// As operators of `tilewright-ffi` take it.
            pub(crate) fn argument(&self) -> Result<native::Tensor<'a>> {
                let Place { name, here, dtype, dims, strides, address, .. } = self.place;
                let dtype = element::of_ours(dtype).ok_or_else(|| {
                    invalid(name, format!("is of {}", dtype.as_str()), "such tensors are not accepted")
                })?;
                // SAFETY: as in `elements`; `place` has seen that all elements are in the memory.
                Ok(unsafe { native::Tensor::new(here.cx.device(), address, dtype, dims, strides) })
            }

            /// The error of a tensor whose dtype is none of these.
            pub fn wrong_dtype(&self, accepted: &[DType]) -> Error {
                self.place.wrong_dtype(accepted)
            }

            /// The error that says what is wrong with this tensor, and what would be right.
            pub fn invalid(&self, problem: impl Into<Box<str>>, hint: impl Into<Box<str>>) -> Error {
                invalid(self.place.name, problem, hint)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Place { name, dtype, dims: shape, strides, .. } = &self.place;
                write!(
                    f,
                    concat!(stringify!($name), "({} {}, {:?}, strides {:?})"),
                    name,
                    dtype.as_str(),
                    shape,
                    strides
                )
            }
        }
    };
}

common!(TensorRef);
common!(TensorMut);

impl<'a> TensorRef<'a> {
    /// Where the op runs.
    pub(crate) fn here(&self) -> Here<'a> {
        self.place.here
    }

    /// The elements in row-major order, as kernels take them.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or not contiguous.
    pub fn flat<T: Element>(&self) -> Result<View<'a, T>> {
        self.place.check_dtype::<T>()?;
        self.place.check_contiguous()?;
        self.elements()
    }

    /// A tensor of the library with this shape and these strides.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or rank.
    pub fn view<T: Element, const R: usize>(&self) -> Result<TensorView<'a, T, R>> {
        self.place.check_dtype::<T>()?;
        self.reinterpreted()
    }

    /// The same, with the elements' bits as numbers of another type of the same size: candle has no 8-bit integers with a
    /// sign, and mostly no 32-bit ones.
    ///
    /// # Errors
    ///
    /// If the elements have another size, or the tensor another rank.
    pub fn view_as<T: tilewright::DType, const R: usize>(&self) -> Result<TensorView<'a, T, R>> {
        if self.place.dtype.size_in_bytes() != size_of::<T>() {
            let hint = format!("elements of {} bytes are accepted", size_of::<T>());
            return Err(self.invalid(format!("is of {}", self.place.dtype.as_str()), hint));
        }
        self.reinterpreted()
    }

    /// Indices, as `i32`: of that dtype or u32.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or rank.
    pub fn indices<const R: usize>(&self) -> Result<TensorView<'a, i32, R>> {
        match self.place.dtype {
            DType::I32 | DType::U32 => self.reinterpreted(),
            _ => Err(self.wrong_dtype(&[DType::U32, DType::I32])),
        }
    }

    /// All dimensions but the last as one: a tensor of any rank for functions that work on rows.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype, or has no dimensions; if rows have gaps, or do not follow each other at one distance.
    pub fn rows<T: Element>(&self) -> Result<TensorView<'a, T, 2>> {
        self.place.check_dtype::<T>()?;
        let (shape, strides) = self.place.rows()?;
        TensorView::with_strides(self.elements()?, shape, strides)
    }

    /// A tensor descriptor with this shape and these strides, for kernels that read blocks.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or rank, or its last dimension is not contiguous.
    pub fn descriptor<T: Element, const R: usize>(&self) -> Result<TensorDesc<'a, T, R>> {
        self.place.check_dtype::<T>()?;
        let (shape, strides) = self.place.array::<R>()?;
        TensorDesc::with_strides(self.elements()?, shape, strides)
    }

    fn reinterpreted<T: tilewright::DType, const R: usize>(&self) -> Result<TensorView<'a, T, R>> {
        let (shape, strides) = self.place.array::<R>()?;
        TensorView::with_strides(self.elements()?, shape, strides)
    }

    /// The elements from the first to the last. `T` has the size of the tensor's dtype.
    fn elements<T: tilewright::DType>(&self) -> Result<View<'a, T>> {
        // SAFETY: the op holds candle's lock and cudarc's guard for as long as `'a`, so that the memory stays, and all
        // that writes it before or after is ordered around the stream of this device. Every pattern of bits is a value of the
        // dtypes that candle has, and the caller checks the size.
        unsafe { self.place.here.cx.device().borrow(self.place.address, self.place.span) }
    }
}

impl<'a> TensorMut<'a> {
    /// The same tensor for a shorter time.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        TensorMut { place: self.place }
    }

    /// The elements in row-major order, as kernels take them.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or not contiguous.
    pub fn flat_mut<T: Element>(self) -> Result<ViewMut<'a, T>> {
        self.place.check_dtype::<T>()?;
        self.place.check_contiguous()?;
        self.elements()
    }

    /// A tensor of the library with this shape and these strides.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype or rank.
    pub fn view_mut<T: Element, const R: usize>(self) -> Result<TensorViewMut<'a, T, R>> {
        self.place.check_dtype::<T>()?;
        self.view_as_mut()
    }

    /// The same, with the elements' bits as numbers of another type of the same size.
    ///
    /// # Errors
    ///
    /// If the elements have another size, or the tensor another rank.
    pub fn view_as_mut<T: tilewright::DType, const R: usize>(self) -> Result<TensorViewMut<'a, T, R>> {
        if self.place.dtype.size_in_bytes() != size_of::<T>() {
            let hint = format!("elements of {} bytes are accepted", size_of::<T>());
            return Err(self.invalid(format!("is of {}", self.place.dtype.as_str()), hint));
        }
        let (shape, strides) = self.place.array::<R>()?;
        TensorViewMut::with_strides(self.elements()?, shape, strides)
    }

    /// All dimensions but the last as one: a tensor of any rank for functions that work on rows.
    ///
    /// # Errors
    ///
    /// If the tensor is of another dtype, or has no dimensions; if rows have gaps, or do not follow each other at one distance.
    pub fn rows_mut<T: Element>(self) -> Result<TensorViewMut<'a, T, 2>> {
        self.place.check_dtype::<T>()?;
        let (shape, strides) = self.place.rows()?;
        TensorViewMut::with_strides(self.elements()?, shape, strides)
    }

    /// The elements from the first to the last. `T` has the size of the tensor's dtype.
    fn elements<T: tilewright::DType>(self) -> Result<ViewMut<'a, T>> {
        // SAFETY: the op holds candle's lock and cudarc's guard for as long as `'a`, so that the memory stays, nobody else
        // uses it, and all uses before or after are ordered around the stream of this device. This tensor is not cloned, so
        // that there is one such view at a time. The caller checks the size of elements.
        unsafe { self.place.here.cx.device().borrow_mut(self.place.address, self.place.span) }
    }
}
