//! Global memory, as threads see it.

/// Distance of the buffers' addresses: far more than any is long.
const STRIDE: u64 = 1 << 40;

/// What a thread does to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// It reads all of it.
    Load,
    /// It writes all of it.
    Store,
    /// It reads and writes in one step.
    Update,
}

/// Memory that all programs share.
pub trait Global {
    /// The bytes at an address. Panics, quoting the instruction, where a thread must not do this.
    fn at(&mut self, address: u64, len: usize, touch: Touch, text: &str) -> &mut [u8];
}

/// Global memory: buffers at addresses of their own. Accesses outside panic.
#[derive(Default)]
pub struct Memory {
    buffers: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds a buffer and returns its address.
    pub fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.buffers.push(bytes);
        STRIDE * self.buffers.len() as u64
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, address: u64) -> &[u8] {
        &self.buffers[(address / STRIDE - 1) as usize]
    }
}

impl Global for Memory {
    fn at(&mut self, address: u64, len: usize, _: Touch, text: &str) -> &mut [u8] {
        let (buffer, offset) = ((address / STRIDE).wrapping_sub(1) as usize, (address % STRIDE) as usize);
        assert!(address.is_multiple_of(len as u64), "address {address:x} is not aligned to {len} bytes: {text}");
        let buffer = self.buffers.get_mut(buffer).unwrap_or_else(|| panic!("wild address {address:x}: {text}"));
        let size = buffer.len();
        buffer.get_mut(offset..offset + len).unwrap_or_else(|| panic!("offset {offset} of {size} bytes: {text}"))
    }
}
