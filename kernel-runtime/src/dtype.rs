//! The element types of buffers, and the bounds that kernels put on their type parameters.
//!
//! `DType` is everything a buffer can hold; [`Num`], [`Int`], [`Float`] and [`Signed`] narrow it.
//! The traits are sealed: what a kernel can compute with is fixed by the tile IR.
//!
//! ```
//! use kernel_runtime::dtype::{DType, ElementType};
//!
//! assert_eq!(f32::ELEMENT, ElementType::F32);
//! assert_eq!(ElementType::F32.size(), 4);
//! assert_eq!(ElementType::BF16.to_string(), "bf16");
//! ```

use half::{bf16, f16};
pub use kernel_core::ir::DType as ElementType;
pub use kernel_core::num::{F8E4M3, F8E5M2};
use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// A type that a buffer can hold and a kernel can compute with.
///
/// # Safety
///
/// The type is plain data: no padding, no pointers, its size and alignment are
/// `Self::ELEMENT.size()`, all zeros is a value, and every pattern of bytes is a value after
/// `Self::normalise`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type that a kernel can compute with",
    label = "not a dtype",
    note = "the dtypes are bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, \
            f32 and f64; \
            for `usize` and `isize` use `i32`, `i64` or `u32`"
)]
pub unsafe trait DType: sealed::Sealed + Copy + Send + Sync + fmt::Debug + PartialEq + 'static {
    /// The type as a value.
    const ELEMENT: ElementType;

    /// Makes every element of `storage` a valid value of this type. Only `bool` has bytes that
    /// are not values: a kernel that reinterprets memory may have left other bytes than 0 and 1.
    #[doc(hidden)]
    fn normalise(_storage: &mut [std::mem::MaybeUninit<Self>]) {}
}

/// A number: an integer or a float, but not `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number",
    label = "not an integer or a float",
    note = "the numbers are i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64"
)]
pub trait Num: DType {}

/// An integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer",
    label = "not an integer",
    note = "the integers are i8, i16, i32, i64, u8, u16, u32 and u64"
)]
pub trait Int: Num {}

/// A floating-point number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float",
    label = "not a float",
    note = "the floats are f8e4m3, f8e5m2, f16, bf16, f32 and f64"
)]
pub trait Float: Num {}

/// A number with a sign: a signed integer or a float.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no sign",
    label = "not a signed integer or a float",
    note = "the signed numbers are i8, i16, i32, i64, f8e4m3, f8e5m2, f16, bf16, f32 and f64"
)]
pub trait Signed: Num {}

macro_rules! dtypes {
    ($($rust:ident $element:ident: $($bound:ident)*;)*) => {$(
        impl sealed::Sealed for $rust {}
        // SAFETY: a primitive number or a transparent wrapper of one: every pattern of bytes is
        // a value, there is no padding, and the test below holds size and alignment.
        unsafe impl DType for $rust {
            const ELEMENT: ElementType = ElementType::$element;
        }
        $(impl $bound for $rust {})*
    )*};
}

dtypes! {
    i8 I8: Num Int Signed;
    i16 I16: Num Int Signed;
    i32 I32: Num Int Signed;
    i64 I64: Num Int Signed;
    u8 U8: Num Int;
    u16 U16: Num Int;
    u32 U32: Num Int;
    u64 U64: Num Int;
    F8E4M3 F8E4M3: Num Float Signed;
    F8E5M2 F8E5M2: Num Float Signed;
    f16 F16: Num Float Signed;
    bf16 BF16: Num Float Signed;
    f32 F32: Num Float Signed;
    f64 F64: Num Float Signed;
}

impl sealed::Sealed for bool {}
// SAFETY: one byte without padding; zero is `false`; `normalise` turns every other byte than 0
// into 1.
unsafe impl DType for bool {
    const ELEMENT: ElementType = ElementType::Bool;

    fn normalise(storage: &mut [std::mem::MaybeUninit<Self>]) {
        for element in storage {
            let byte: *mut u8 = element.as_mut_ptr().cast();
            // SAFETY: the pointer comes from a reference to one byte, which the caller has
            // filled; it is read as `u8`, of which every pattern is a value.
            unsafe { byte.write(u8::from(byte.read() != 0)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    fn check_layout<T: DType>() {
        assert_eq!(size_of::<T>(), T::ELEMENT.size(), "{}", T::ELEMENT);
        assert_eq!(align_of::<T>(), T::ELEMENT.size(), "{}", T::ELEMENT);
        assert!(std::any::type_name::<T>().to_lowercase().ends_with(T::ELEMENT.name()));
    }

    #[test]
    fn sizes_and_names_are_those_of_rust() {
        check_layout::<bool>();
        check_layout::<i8>();
        check_layout::<i16>();
        check_layout::<i32>();
        check_layout::<i64>();
        check_layout::<u8>();
        check_layout::<u16>();
        check_layout::<u32>();
        check_layout::<u64>();
        check_layout::<F8E4M3>();
        check_layout::<F8E5M2>();
        check_layout::<f16>();
        check_layout::<bf16>();
        check_layout::<f32>();
        check_layout::<f64>();
    }

    #[test]
    fn bytes_that_are_no_bool_become_true() {
        let mut storage = [0u8, 1, 2, 255].map(|byte| {
            let mut element = MaybeUninit::<bool>::uninit();
            // SAFETY: the pointer is to one byte of our own.
            unsafe { element.as_mut_ptr().cast::<u8>().write(byte) };
            element
        });
        bool::normalise(&mut storage);
        // SAFETY: `normalise` has made every element 0 or 1.
        assert_eq!(storage.map(|b| unsafe { b.assume_init() }), [false, true, true, true]);
    }
}
