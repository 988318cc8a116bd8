//! In place of [`cuda`](super::cuda) where candle is built without it: nothing has memory there.

use super::Elements;
use crate::Element;
use candle_core::{CudaDevice, CudaStorage, DType, DeviceLocation, Error, Result};
use tilewright::Buffer;
use tilewright_kernels::Context;

/// No guard exists.
pub(crate) enum Guard<'a> {
    #[allow(dead_code)]
    Never(std::convert::Infallible, std::marker::PhantomData<&'a ()>),
}

/// No stream exists either, nor a device that it would be asked of.
#[derive(Clone)]
pub(crate) struct Stream;

/// What tells streams apart. All run on the CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Cpu,
    Never,
}

impl Name {
    pub(crate) const CPU: Name = Name::Cpu;
}

pub(crate) fn name(_: &Stream) -> Name {
    Name::Never
}

pub(crate) fn stream(_: &CudaDevice) -> Stream {
    Stream
}

pub(crate) fn location(_: &CudaDevice) -> DeviceLocation {
    DeviceLocation::Cuda { gpu_id: 0 }
}

pub(crate) fn device(_: &Stream) -> Result<tilewright::Device> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(crate) fn is_gone(_: &Context) -> bool {
    false
}

pub(crate) fn check_capture(_: &Stream) -> Result<()> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(crate) fn read<'a>(_: &'a CudaStorage, _: &'a Stream) -> Result<Elements<'a>> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(crate) fn write<'a>(_: &'a mut CudaStorage, _: &'a Stream) -> Result<Elements<'a>> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(crate) fn adopt<T: Element>(_: Buffer<T>, _: &CudaDevice) -> Result<CudaStorage> {
    Err(Error::NotCompiledWithCudaSupport)
}

pub(crate) fn allocate(_: &CudaDevice, _: DType, _: usize) -> Result<CudaStorage> {
    Err(Error::NotCompiledWithCudaSupport)
}
