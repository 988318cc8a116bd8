//! Scratch memory where a framework has none to give: on the CPU, and through TVM-FFI where nobody has set an allocator. That of a
//! captured call belongs to the graph.

use crate::error::Result;
use crate::scratch::{Block, Memory};
use std::cell::RefCell;
use tilewright::{Buffer, Device};

/// Memory of the runtime, in the order of the device's stream.
pub(crate) struct RuntimeMemory<'a> {
    device: &'a Device,
    /// Each goes back when the call is over, behind its launches on the stream.
    buffers: RefCell<Vec<Buffer<u8>>>,
}

impl<'a> RuntimeMemory<'a> {
    pub fn new(device: &'a Device) -> Self {
        RuntimeMemory { device, buffers: RefCell::default() }
    }
}

impl Memory for RuntimeMemory<'_> {
    fn take(&self, bytes: usize) -> Result<Block> {
        if let Some(address) = self.device.captured_scratch(bytes)? {
            return Ok(Block { address, handle: 0 });
        }
        let buffer = self.device.empty::<u8>(bytes)?;
        let address = buffer.as_view().raw().address.get();
        self.buffers.borrow_mut().push(buffer);
        Ok(Block { address, handle: 0 })
    }

    fn give_back(&self, _block: Block) {}
}
