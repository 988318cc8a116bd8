//! Memory of the host.

use super::Elements;
use crate::Element;
use candle_core::{CpuStorage, DType, Result, WithDType};

/// A match over the storages of dtypes that kernels know; others are refused.
macro_rules! each {
    ($storage:expr, $elements:ident => $body:expr) => {
        match $storage {
            CpuStorage::U8($elements) => $body,
            CpuStorage::U32($elements) => $body,
            CpuStorage::I16($elements) => $body,
            CpuStorage::I32($elements) => $body,
            CpuStorage::I64($elements) => $body,
            CpuStorage::BF16($elements) => $body,
            CpuStorage::F16($elements) => $body,
            CpuStorage::F32($elements) => $body,
            CpuStorage::F64($elements) => $body,
            CpuStorage::F8E4M3($elements) => $body,
            CpuStorage::F6E2M3(_) | CpuStorage::F6E3M2(_) | CpuStorage::F4(_) | CpuStorage::F8E8M0(_) => {
                candle_core::bail!("tensors of 4 and 6 bits and of f8e8m0 are not accepted")
            }
        }
    };
}

pub(crate) fn read(storage: &CpuStorage) -> Result<Elements<'_>> {
    let (address, len, dtype) =
        each!(storage, elements => (elements.as_ptr() as u64, elements.len(), dtype_of(elements)));
    Ok(Elements { address, len, dtype, _guard: None })
}

pub(crate) fn write(storage: &mut CpuStorage) -> Result<Elements<'_>> {
    let (address, len, dtype) =
        each!(storage, elements => (elements.as_mut_ptr() as u64, elements.len(), dtype_of(elements)));
    Ok(Elements { address, len, dtype, _guard: None })
}

fn dtype_of<T: WithDType>(_: &[T]) -> DType {
    T::DTYPE
}

pub(crate) fn allocate(dtype: DType, len: usize) -> Result<CpuStorage> {
    fn zeros<T: WithDType>(len: usize) -> Vec<T> {
        vec![T::zero(); len]
    }
    Ok(match dtype {
        DType::U8 => CpuStorage::U8(zeros(len)),
        DType::U32 => CpuStorage::U32(zeros(len)),
        DType::I16 => CpuStorage::I16(zeros(len)),
        DType::I32 => CpuStorage::I32(zeros(len)),
        DType::I64 => CpuStorage::I64(zeros(len)),
        DType::BF16 => CpuStorage::BF16(zeros(len)),
        DType::F16 => CpuStorage::F16(zeros(len)),
        DType::F32 => CpuStorage::F32(zeros(len)),
        DType::F64 => CpuStorage::F64(zeros(len)),
        DType::F8E4M3 => CpuStorage::F8E4M3(zeros(len)),
        other => candle_core::bail!("results of {} are not accepted", other.as_str()),
    })
}

/// A copy of elements.
pub(crate) fn copied<T: Element>(elements: &[T]) -> Result<CpuStorage> {
    let mut storage = allocate(T::DTYPE, elements.len())?;
    let to = write(&mut storage)?.address as *mut u8;
    // SAFETY: there are as many elements of the same size, whose bits are values of both types.
    unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr().cast::<u8>(), to, size_of_val(elements)) };
    Ok(storage)
}
