//! Where candle keeps elements: the addresses of storages, and storages for results.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;

use crate::device;
use crate::tensor::Spec;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaDevice, CudaStorage, DType, DeviceLocation, Result, Storage};
use std::borrow::Cow;
use tilewright_kernels::Context;

/// The memory of a tensor that is read.
#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    Cpu(&'a CpuStorage),
    Cuda(&'a CudaStorage),
}

/// The memory of a tensor that is written.
pub(crate) enum MemoryMut<'a> {
    Cpu(&'a mut CpuStorage),
    Cuda(&'a mut CudaStorage),
}

/// What stays until a launch is with the driver: cudarc's mark that its stream uses the memory.
pub(crate) type Guard<'a> = Option<cuda::Guard<'a>>;

/// Elements in memory.
pub(crate) struct Elements<'a> {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) dtype: DType,
    /// Held, not read.
    pub(crate) _guard: Guard<'a>,
}

/// Where an op runs. candle's device is many counted references, of which no call needs one of its own, but for a tensor that is
/// changed.
pub(crate) enum Home<'a> {
    Cpu,
    Cuda(Cow<'a, CudaDevice>, cuda::Stream),
}

impl<'a> Home<'a> {
    fn of_cuda(device: Cow<'a, CudaDevice>) -> Self {
        let stream = cuda::stream(&device);
        Home::Cuda(device, stream)
    }

    /// Refuses what cannot be captured into a graph, if it would be.
    pub(crate) fn check_capture(&self) -> Result<()> {
        match self {
            Home::Cpu => Ok(()),
            Home::Cuda(_, stream) => cuda::check_capture(stream),
        }
    }

    /// The context of the library's functions there.
    pub(crate) fn context(&self) -> Result<Context> {
        match self {
            Home::Cpu => device::on_cpu(),
            Home::Cuda(_, stream) => device::on_gpu(stream),
        }
    }

    pub(crate) fn location(&self) -> DeviceLocation {
        match self {
            Home::Cpu => DeviceLocation::Cpu,
            Home::Cuda(device, _) => cuda::location(device),
        }
    }

    /// Memory for a result, of whatever elements.
    pub(crate) fn allocate(&self, spec: &Spec) -> Result<Storage> {
        let len = spec.shape.elem_count();
        match self {
            Home::Cpu => Ok(Storage::Cpu(cpu::allocate(spec.dtype, len)?)),
            Home::Cuda(device, _) => Ok(Storage::Cuda(cuda::allocate(device, spec.dtype, len)?)),
        }
    }

    pub(crate) fn read<'m>(&'m self, memory: Memory<'m>) -> Result<Elements<'m>> {
        match (memory, self) {
            (Memory::Cpu(storage), _) => cpu::read(storage),
            (Memory::Cuda(storage), Home::Cuda(_, stream)) => cuda::read(storage, stream),
            (Memory::Cuda(_), Home::Cpu) => Err(apart()),
        }
    }

    pub(crate) fn write<'m>(&'m self, memory: MemoryMut<'m>) -> Result<Elements<'m>> {
        match (memory, self) {
            (MemoryMut::Cpu(storage), _) => cpu::write(storage),
            (MemoryMut::Cuda(storage), Home::Cuda(_, stream)) => cuda::write(storage, stream),
            (MemoryMut::Cuda(_), Home::Cpu) => Err(apart()),
        }
    }
}

/// What a caller that has compared devices does not see.
fn apart() -> candle_core::Error {
    candle_core::Error::Msg("memory of a GPU in an op on the CPU".into())
}

impl<'a> Memory<'a> {
    pub(crate) fn home(self) -> Home<'a> {
        match self {
            Memory::Cpu(_) => Home::Cpu,
            Memory::Cuda(storage) => Home::of_cuda(Cow::Borrowed(storage.device())),
        }
    }

    pub(crate) fn location(&self) -> DeviceLocation {
        match self {
            Memory::Cpu(_) => DeviceLocation::Cpu,
            Memory::Cuda(storage) => cuda::location(storage.device()),
        }
    }
}

impl MemoryMut<'_> {
    /// Of a tensor that is written meanwhile.
    pub(crate) fn home(&self) -> Home<'static> {
        match self {
            MemoryMut::Cpu(_) => Home::Cpu,
            MemoryMut::Cuda(storage) => Home::of_cuda(Cow::Owned(storage.device().clone())),
        }
    }

    pub(crate) fn as_memory(&self) -> Memory<'_> {
        match self {
            MemoryMut::Cpu(storage) => Memory::Cpu(storage),
            MemoryMut::Cuda(storage) => Memory::Cuda(storage),
        }
    }
}

impl<'a> TryFrom<&'a mut Storage> for MemoryMut<'a> {
    type Error = candle_core::Error;

    fn try_from(storage: &'a mut Storage) -> Result<Self> {
        match storage {
            Storage::Cpu(storage) => Ok(MemoryMut::Cpu(storage)),
            Storage::Cuda(storage) => Ok(MemoryMut::Cuda(storage)),
            Storage::Metal(_) => Err(candle_core::Error::Msg("Tilewright does not run on Metal".into())),
        }
    }
}
