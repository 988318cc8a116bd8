//! The dtypes that candle and Tilewright share.

use candle_core::DType;
use half::{bf16, f16};
use tilewright::ElementType;
use tilewright::prelude::F8E4M3;

/// A dtype of Tilewright that candle's tensors can have.
#[diagnostic::on_unimplemented(
    message = "candle has no tensors of `{Self}`",
    label = "not a dtype of candle's",
    note = "the dtypes that candle and Tilewright share are u8, u32, i16, i32, i64, f16, bf16, f32, f64 and F8E4M3"
)]
pub trait Element: tilewright::DType {
    /// candle's name of the dtype.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ident $dtype:ident;)*) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*

    /// Both names of each dtype.
    const NAMES: &[(DType, ElementType)] = &[$((DType::$dtype, <$rust as tilewright::DType>::ELEMENT)),*];
    };
}

elements! {
    u8 U8;
    u32 U32;
    i16 I16;
    i32 I32;
    i64 I64;
    f16 F16;
    bf16 BF16;
    f32 F32;
    f64 F64;
    F8E4M3 F8E4M3;
}

/// Tilewright's name of a dtype of candle's.
pub(crate) fn of_ours(dtype: DType) -> Option<ElementType> {
    NAMES.iter().find(|(own, _)| *own == dtype).map(|(_, ours)| *ours)
}

/// candle's name of a dtype.
pub(crate) fn of_candle(dtype: ElementType) -> Option<DType> {
    NAMES.iter().find(|(_, ours)| *ours == dtype).map(|(own, _)| *own)
}

/// Runs a block with `T` as the dtype of a tensor, one of those that are listed; the error of another dtype lists them.
///
/// ```
/// use tilewright_candle::prelude::*;
///
/// fn bytes(x: TensorRef<'_>) -> Result<usize> {
///     dispatch!(x => T in [f16, f32, f64] { Ok(size_of::<T>() * x.len()) })
/// }
/// # fn main() -> candle_core::Result<()> {
/// let x = Tensor::zeros((2, 3), candle_core::DType::F16, &candle_core::Device::Cpu)?;
/// let counted = std::cell::Cell::new(0);
/// tilewright_candle::call("bytes", [("x", &x)], |_| Ok([]), |[x], []| Ok(counted.set(bytes(x)?)))?;
/// assert_eq!(counted.get(), 12);
/// let x = x.to_dtype(candle_core::DType::U8)?;
/// let error = tilewright_candle::call("bytes", [("x", &x)], |_| Ok([]), |[x], []| bytes(x).map(drop)).unwrap_err();
/// assert!(error.to_string().starts_with("bytes: `x` is of u8; the dtypes that are accepted are f16, f32, f64"));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! dispatch {
    ($tensor:expr => $name:ident in [$($element:ty),+ $(,)?] $body:block) => {{
        let dtype = $tensor.dtype();
        $(
            if dtype == <$element as $crate::Element>::DTYPE {
                type $name = $element;
                $body
            } else
        )+
        {
            Err($tensor.wrong_dtype(&[$(<$element as $crate::Element>::DTYPE),+]))
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_size_and_the_name_of_candles() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.size_in_bytes(), size_of::<T>());
            assert_eq!(T::DTYPE.as_str(), T::ELEMENT.to_string());
        }
        check::<u8>();
        check::<u32>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
        check::<F8E4M3>();
    }
}
