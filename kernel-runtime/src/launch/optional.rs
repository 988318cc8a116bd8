//! Arguments that need not be there.
//!
//! Whether there is one is part of the key of a variant: the code of a launch without it has neither the parameter nor
//! what the kernel does with it. `Option<&Buffer<T>>` is the only `Option` that implements these traits, so that a
//! plain `None` has a type as soon as the dtype is known from the kernel or from another argument; where it is not,
//! `None::<&Buffer<f32>>` says it. A view is passed as it is.

use super::args::{BufferArg, BufferArgMut, PtrArg, PtrMutArg};
use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::tensor::{DescArg, DescMutArg, DescRef, DescRefMut, TensorDesc, TensorDescMut};
use crate::view::{View, ViewMut};

/// What may be passed for an `Option<Ptr<T>>` parameter: `None`, `Some(&Buffer<T>)` or a view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for an `Option<Ptr<{T}>>` parameter",
    label = "expected `None`, `Some(&Buffer<{T}>)`, `View<{T}>`, `&View<{T}>` or `&ViewMut<{T}>`",
    note = "a view is passed without `Some`, an `Option` of one as `launch::MaybeView::from(view)`"
)]
pub trait OptionalPtrArg<'a, T: DType> {
    /// The buffer behind it, if there is one.
    fn into_optional(self) -> Option<BufferArg<'a>>;
}

/// What may be passed for an `Option<PtrMut<T>>` parameter: `None`, `Some(&mut Buffer<T>)` or an exclusive view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for an `Option<PtrMut<{T}>>` parameter",
    label = "expected `None`, `Some(&mut Buffer<{T}>)`, `ViewMut<{T}>` or `&mut ViewMut<{T}>`",
    note = "a view is passed without `Some`, an `Option` of one as `launch::MaybeViewMut::from(view)`"
)]
pub trait OptionalPtrMutArg<'a, T: DType> {
    /// The buffer behind it, if there is one.
    fn into_optional_mut(self) -> Option<BufferArgMut<'a>>;
}

impl<'a, T: DType> OptionalPtrArg<'a, T> for Option<&'a Buffer<T>> {
    #[inline]
    fn into_optional(self) -> Option<BufferArg<'a>> {
        self.map(PtrArg::into_arg)
    }
}

impl<'a, T: DType> OptionalPtrMutArg<'a, T> for Option<&'a mut Buffer<T>> {
    #[inline]
    fn into_optional_mut(self) -> Option<BufferArgMut<'a>> {
        self.map(PtrMutArg::into_arg_mut)
    }
}

/// What may be passed for an `Option<TensorDesc<T, { [..] }>>` parameter: `None` or `Some(&TensorDesc)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for an optional descriptor of a tensor of `{T}` with {RANK} dimensions",
    label = "expected `None` or `Some(&TensorDesc<{T}, {RANK}>)`"
)]
pub trait OptionalDescArg<'a, T: DType, const RANK: usize> {
    /// The descriptor behind it, if there is one.
    fn into_optional_desc(self) -> Option<DescRef<'a>>;
}

/// What may be passed for an `Option<TensorDescMut<T, { [..] }>>` parameter: `None` or `Some(&mut TensorDescMut)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for an optional descriptor of a tensor of `{T}` with {RANK} dimensions that is written",
    label = "expected `None` or `Some(&mut TensorDescMut<{T}, {RANK}>)`"
)]
pub trait OptionalDescMutArg<'a, T: DType, const RANK: usize> {
    /// The descriptor behind it, if there is one.
    fn into_optional_desc_mut(self) -> Option<DescRefMut<'a>>;
}

impl<'a, 'b, T: DType, const RANK: usize> OptionalDescArg<'a, T, RANK> for Option<&'a TensorDesc<'b, T, RANK>> {
    #[inline]
    fn into_optional_desc(self) -> Option<DescRef<'a>> {
        self.map(DescArg::into_desc)
    }
}

impl<'a, 'b, T: DType, const RANK: usize> OptionalDescMutArg<'a, T, RANK>
    for Option<&'a mut TensorDescMut<'b, T, RANK>>
{
    #[inline]
    fn into_optional_desc_mut(self) -> Option<DescRefMut<'a>> {
        self.map(DescMutArg::into_desc_mut)
    }
}

/// Says that an input is the output: what a launch passes for a parameter `#[in_place(out)] x: Ptr<T>` whose elements
/// are those of `out`.
///
/// The borrow checker lets no buffer be passed as `&x` and `&mut x`, and rightly: code that is compiled for an input that
/// nobody writes may load it late, twice, or through a cache that does not see stores. With `InPlace` the launch borrows
/// the buffer once, exclusively, as `out`, and runs code in which `x` *is* `out`: binding puts the one pointer for the
/// other, so that every pass sees loads and stores of one buffer and keeps their order. A launch with a buffer of its own
/// for `x` runs the code that it would run without the attribute. Which of the two is part of the key of the variant.
///
/// A kernel computes the same both ways if each program reads, before it writes them, only elements that no other
/// program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InPlace;

/// What may be passed for a parameter `#[in_place(out)] x: Ptr<T>`: what may be passed for a `Ptr<T>`, or [`InPlace`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a `Ptr<{T}>` parameter",
    label = "expected `InPlace` or a buffer of `{T}`: `&Buffer<{T}>`, `View<{T}>`, `&View<{T}>` or `&ViewMut<{T}>`",
    note = "`InPlace` says that the buffer is that of the parameter which the kernel names"
)]
pub trait InPlaceArg<'a, T: DType> {
    /// The buffer behind it, if it has its own.
    fn into_arg_or_none(self) -> Option<BufferArg<'a>>;
}

impl<'a, T: DType> InPlaceArg<'a, T> for InPlace {
    #[inline]
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        None
    }
}

/// A view or nothing, for a parameter `Option<Ptr<T>>` where only the running program knows which.
///
/// `Some(view)` itself cannot be passed, because then the dtype of a bare `None` could not be inferred.
///
/// ```
/// use kernel_runtime::launch::MaybeView;
/// use kernel_runtime::{Device, View};
///
/// # fn main() -> kernel_runtime::Result<()> {
/// let bias = Device::cpu().upload(&[1.0f32])?;
/// let given: Option<View<f32>> = Some(bias.as_view());
/// let argument = MaybeView::from(given); // goes to a launch like `None` or `Some(&buffer)`
/// # let _ = argument;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct MaybeView<'a, T: DType>(Option<View<'a, T>>);

/// A view that is written or nothing, for a parameter `Option<PtrMut<T>>` where only the running program knows which.
#[derive(Debug)]
pub struct MaybeViewMut<'a, T: DType>(Option<ViewMut<'a, T>>);

impl<'a, T: DType> From<Option<View<'a, T>>> for MaybeView<'a, T> {
    fn from(view: Option<View<'a, T>>) -> Self {
        MaybeView(view)
    }
}

impl<'a, T: DType> From<Option<ViewMut<'a, T>>> for MaybeViewMut<'a, T> {
    fn from(view: Option<ViewMut<'a, T>>) -> Self {
        MaybeViewMut(view)
    }
}

impl<'a, T: DType> OptionalPtrArg<'a, T> for MaybeView<'a, T> {
    #[inline]
    fn into_optional(self) -> Option<BufferArg<'a>> {
        self.0.map(PtrArg::into_arg)
    }
}

impl<'a, T: DType> OptionalPtrMutArg<'a, T> for MaybeViewMut<'a, T> {
    #[inline]
    fn into_optional_mut(self) -> Option<BufferArgMut<'a>> {
        self.0.map(PtrMutArg::into_arg_mut)
    }
}

// Written out rather than by a macro, which compilers would show in errors about arguments.

impl<'a, T: DType> OptionalPtrArg<'a, T> for View<'a, T> {
    #[inline]
    fn into_optional(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> OptionalPtrArg<'a, T> for &View<'a, T> {
    #[inline]
    fn into_optional(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> OptionalPtrArg<'a, T> for &'a ViewMut<'_, T> {
    #[inline]
    fn into_optional(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> OptionalPtrMutArg<'a, T> for ViewMut<'a, T> {
    #[inline]
    fn into_optional_mut(self) -> Option<BufferArgMut<'a>> {
        Some(self.into_arg_mut())
    }
}

impl<'a, T: DType> OptionalPtrMutArg<'a, T> for &'a mut ViewMut<'_, T> {
    #[inline]
    fn into_optional_mut(self) -> Option<BufferArgMut<'a>> {
        Some(self.into_arg_mut())
    }
}

impl<'a, T: DType> InPlaceArg<'a, T> for &'a Buffer<T> {
    #[inline]
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> InPlaceArg<'a, T> for View<'a, T> {
    #[inline]
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> InPlaceArg<'a, T> for &View<'a, T> {
    #[inline]
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}

impl<'a, T: DType> InPlaceArg<'a, T> for &'a ViewMut<'_, T> {
    #[inline]
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        Some(self.into_arg())
    }
}
