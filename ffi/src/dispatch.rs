//! From the dtype of a tensor, known when an operator is called, to a type.

/// Runs code with a type in place of a tensor's dtype, one of a list.
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_ffi::prelude::*;
///
/// fn bytes(x: TensorRef<'_>) -> Result<usize> {
///     dispatch!(x.dtype() => T in [f32, f16, bf16] { Ok(x.len() * size_of::<T>()) })
/// }
/// ```
///
/// The code is compiled once for each type. Its value is a `Result`; a dtype that the list lacks is an error that names the
/// tensor and the list.
#[macro_export]
macro_rules! dispatch {
    ($tensor:ident.dtype() => $name:ident in [$($of:ty),+ $(,)?] $body:block) => {
        match $tensor.dtype() {
            $(dtype if dtype == <$of as $crate::DType>::ELEMENT => {
                #[allow(dead_code, reason = "the code may not need the type")]
                type $name = $of;
                $body
            })+
            other => ::core::result::Result::Err(::core::convert::From::from($crate::Error::dtype(
                $tensor.name(),
                other,
                &[$(<$of as $crate::DType>::ELEMENT),+],
            ))),
        }
    };
}
