//! Memory of GPUs.

use super::Elements;
use crate::Element;
use candle_core::backend::BackendDevice;
use candle_core::cuda_backend::cudarc::driver::sys::CUstreamCaptureStatus;
use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use candle_core::cuda_backend::{CudaStorage, CudaStorageSlice, WrapErr};
use candle_core::{CudaDevice, DType, DeviceLocation, Error, Result};
use std::sync::Arc;
use tilewright::Buffer;
use tilewright_kernels::Context;

pub(crate) type Guard<'a> = SyncOnDrop<'a>;
pub(crate) type Stream = Arc<CudaStream>;

/// What tells streams apart on a thread: the driver's names of the context and of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(usize, usize);

impl Name {
    /// That of no stream.
    pub(crate) const CPU: Name = Name(0, 0);
}

pub(crate) fn name(stream: &Stream) -> Name {
    Name(stream.context().cu_ctx().addr(), stream.cu_stream().addr())
}

pub(crate) fn stream(device: &CudaDevice) -> Stream {
    device.cuda_stream()
}

pub(crate) fn location(device: &CudaDevice) -> DeviceLocation {
    device.location()
}

/// Tilewright's device for the same context and stream.
pub(crate) fn device(stream: &Stream) -> Result<tilewright::Device> {
    tilewright::Device::of_cudarc(stream).map_err(Error::wrap)
}

/// Whether the context is for a stream that nobody else has any more. Default streams stay: others of cudarc stand for the same.
pub(crate) fn is_gone(context: &Context) -> bool {
    const LAST_DEFAULT: usize = 2;
    let stream = context.stream().cudarc();
    stream.is_some_and(|stream| Arc::strong_count(stream) == 1 && stream.cu_stream().addr() > LAST_DEFAULT)
}

/// Refuses a stream that is being captured while cudarc marks uses of memory with events. It would have the graph wait for
/// events that were recorded outside, which spoils the capture.
pub(crate) fn check_capture(stream: &CudaStream) -> Result<()> {
    if !stream.context().is_managing_stream_synchronization()
        || stream.capture_status().w()? != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    {
        return Ok(());
    }
    candle_core::bail!(
        "the stream is being captured, and candle marks uses of memory with events that a graph cannot wait for; call \
         `disable_event_tracking` of the `CudaDevice` before its first tensor is made, or capture the stream of \
         `Device::new_cuda`, which needs none while its context has no other streams"
    )
}

/// A match over the slices of dtypes that kernels know; others are refused.
macro_rules! each {
    ($slice:expr, $elements:ident, $dtype:ident => $body:expr) => {
        each!(@ $slice, $elements, $dtype => $body; U8, U32, I16, I32, I64, BF16, F16, F32, F64, F8E4M3)
    };
    (@ $slice:expr, $elements:ident, $dtype:ident => $body:expr; $($name:ident),+) => {
        match $slice {
            $(CudaStorageSlice::$name($elements) => {
                let $dtype = DType::$name;
                $body
            })+
            CudaStorageSlice::F6E2M3(_)
            | CudaStorageSlice::F6E3M2(_)
            | CudaStorageSlice::F4(_)
            | CudaStorageSlice::F8E8M0(_) => {
                candle_core::bail!("tensors of 4 and 6 bits and of f8e8m0 are not accepted")
            }
        }
    };
}

/// The stream waits for what writes the memory, if that is on another stream.
pub(crate) fn read<'a>(storage: &'a CudaStorage, stream: &'a CudaStream) -> Result<Elements<'a>> {
    each!(&storage.slice, slice, dtype => {
        let (address, guard) = slice.device_ptr(stream);
        Ok(Elements { address, len: slice.len(), dtype, _guard: Some(guard) })
    })
}

/// The stream waits for what uses the memory, if that is on another stream.
pub(crate) fn write<'a>(storage: &'a mut CudaStorage, stream: &'a CudaStream) -> Result<Elements<'a>> {
    each!(&mut storage.slice, slice, dtype => {
        let len = slice.len();
        let (address, guard) = slice.device_ptr_mut(stream);
        Ok(Elements { address, len, dtype, _guard: Some(guard) })
    })
}

/// The memory of a buffer, once all work on it is done, as candle's.
pub(crate) fn adopt<T: Element>(buffer: Buffer<T>, device: &CudaDevice) -> Result<CudaStorage> {
    let (stream, len) = (device.cuda_stream(), buffer.len());
    let address = buffer.into_cudarc().map_err(Error::wrap)?.leak();
    macro_rules! adopted {
        ($($name:ident),+) => {
            match T::DTYPE {
                // SAFETY: cudarc has given the allocation away, of as many elements of this size, whose bits are values of the
                // dtype; nothing uses it any more. It was made as those are that cudarc frees.
                $(DType::$name => CudaStorageSlice::$name(unsafe { stream.upgrade_device_ptr(address, len) }),)+
                other => candle_core::bail!("tensors of {} are not accepted", other.as_str()),
            }
        };
    }
    let slice = adopted!(U8, U32, I16, I32, I64, BF16, F16, F32, F64, F8E4M3);
    Ok(CudaStorage { slice, device: device.clone() })
}

pub(crate) fn allocate(device: &CudaDevice, dtype: DType, len: usize) -> Result<CudaStorage> {
    macro_rules! allocated {
        ($($name:ident),+) => {
            match dtype {
                // SAFETY: every pattern of bits is a value of these dtypes, and the op writes all elements before candle
                // reads them.
                $(DType::$name => CudaStorageSlice::$name(unsafe { device.alloc(len)? }),)+
                other => candle_core::bail!("results of {} are not accepted", other.as_str()),
            }
        };
    }
    let slice = allocated!(U8, U32, I16, I32, I64, BF16, F16, F32, F64, F8E4M3);
    Ok(CudaStorage { slice, device: device.clone() })
}
