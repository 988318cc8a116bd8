//! Memory for intermediate results, which is the framework's.

use crate::error::Result;
use std::cell::RefCell;
use tilewright::{DType, Device, ViewMut};

/// Memory that an operator needs while it runs, beside its outputs: `scratch: &Scratch<'_>`.
///
/// It is the framework's, so that what the framework counts and reuses is right, and goes back to it after the call. Launches of
/// the call may use it, as the framework reuses it on the same stream only.
///
/// **PyTorch** and what speaks TVM-FFI give it from their allocators. What a call takes that `torch.cuda.graph` captures belongs to
/// the graph, whose replays use it again. Who captures by the driver's own calls keeps PyTorch's allocator from giving the memory to
/// others.
///
/// **XLA** lays it out with all other buffers of a program, before anything runs: the package asks how much a call takes while JAX
/// traces it. For that the function runs with tensors that have a shape and no memory, and what it launches is noted instead of made
/// ([`shapes_of`](tilewright::launch::shapes_of)). So a function takes scratch memory by what is known then: shapes, dtypes, attributes
/// and the device. Where it reads a tensor on the host, or fails, or JAX knows no shapes or has no GPU, nothing is known; XLA's
/// allocator gives the memory at the call then, and XLA does not record the call into a command buffer. The [guide](crate::guide) says
/// more.
pub struct Scratch<'a> {
    device: &'a Device,
    memory: &'a dyn Memory,
    taken: RefCell<Vec<Block>>,
}

/// Where a framework's memory comes from.
pub(crate) trait Memory {
    /// At least `bytes` bytes, aligned to 16 and where possible to 256, of unspecified values.
    fn take(&self, bytes: usize) -> Result<Block>;

    /// Takes a block back.
    fn give_back(&self, block: Block);

    /// Makes values of what is there, in memory of the host.
    fn clear(&self, block: Block, bytes: usize) {
        // SAFETY: the block has as many bytes, and nobody else knows it yet.
        unsafe { std::ptr::write_bytes(block.address as *mut u8, 0, bytes) };
    }
}

/// A piece of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub address: u64,
    /// What the framework knows it by.
    pub handle: u64,
}

impl<'a> Scratch<'a> {
    pub(crate) fn new(device: &'a Device, memory: &'a dyn Memory) -> Self {
        Scratch { device, memory, taken: RefCell::default() }
    }

    /// A piece of `len` elements of whatever values.
    ///
    /// # Errors
    ///
    /// That of the framework's allocator.
    pub fn take<T: DType>(&self, len: usize) -> Result<ViewMut<'_, T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or("more scratch memory is asked for than can be counted")?;
        let block = self.memory.take(bytes.max(1))?;
        self.taken.borrow_mut().push(block);
        if !self.device.is_cuda() {
            // Rust code that reads it must find values. On a GPU whatever bytes are values, and `bool` is made one when read.
            self.memory.clear(block, bytes);
        }
        // SAFETY: the block is this call's until the scratch memory drops, which the view does not outlive; each is handed
        // out once.
        Ok(unsafe { self.device.borrow_mut(block.address, len) }?)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        for block in self.taken.get_mut().drain(..) {
            self.memory.give_back(block);
        }
    }
}
