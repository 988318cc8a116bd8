//! Scratch memory of a call: the buffer behind its results, and XLA's allocator where that is too small.

use super::api::{self, Api, CallFrame};
use crate::error::{Error, Result};
use crate::scratch::{Block, Memory};
use std::cell::Cell;
use std::ptr;
use tilewright::Device;

/// Where pieces of a buffer begin, from its beginning.
const ALIGNMENT: usize = 256;

/// Pieces of memory one behind the other.
#[derive(Default)]
pub(super) struct Pieces(Cell<usize>);

impl Pieces {
    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.0.get()
    }

    /// How many they would have with one of `bytes` more.
    fn with(&self, bytes: usize) -> Option<usize> {
        self.bytes().checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?)
    }

    /// Where the next piece begins, if it ends within `room`.
    pub fn next(&self, bytes: usize, room: usize) -> Option<usize> {
        let (start, end) = (self.bytes(), self.with(bytes)?);
        (end <= room).then(|| {
            self.0.set(end);
            start
        })
    }
}

/// The handle of a piece of the call's own buffer. Blocks of allocators have others, as none is empty.
const OF_ROOM: u64 = 0;

/// The buffer that a call has for scratch memory, and an allocator for what does not fit there.
pub(super) struct Room<'a, M> {
    pub address: u64,
    pub bytes: usize,
    pub pieces: Pieces,
    pub beyond: M,
    pub device: &'a Device,
}

impl<M> Room<'_, M> {
    #[cold]
    fn too_little(&self, bytes: usize) -> Error {
        let (needed, room) = (self.pieces.with(bytes).unwrap_or(usize::MAX), self.bytes);
        format!(
            "takes at least {needed} bytes of scratch memory, but {room} were laid out when the call was traced, and XLA records it \
             into a command buffer, where it can have no more; accepted: a call that is traced with the GPU that runs it, or \
             XLA_FLAGS=--xla_gpu_enable_command_buffer="
        )
        .into()
    }
}

impl<M: Memory> Memory for Room<'_, M> {
    fn take(&self, bytes: usize) -> Result<Block> {
        if let Some(start) = self.pieces.next(bytes, self.bytes) {
            return Ok(Block { address: self.address + start as u64, handle: OF_ROOM });
        }
        // What an allocator takes back is free for others, but a command buffer uses it again at each replay.
        if self.device.is_captured()? {
            return Err(self.too_little(bytes));
        }
        self.beyond.take(bytes)
    }

    fn give_back(&self, block: Block) {
        if block.handle != OF_ROOM {
            self.beyond.give_back(block);
        }
    }
}

/// Memory of XLA's allocator.
pub(super) struct XlaMemory<'a> {
    pub api: &'a Api,
    pub frame: &'a CallFrame,
}

/// The largest alignment that XLA lets one ask for. What it allocates on GPUs has a larger one.
const ALLOCATED: usize = 16;

impl Memory for XlaMemory<'_> {
    fn take(&self, bytes: usize) -> Result<Block> {
        let mut arguments = api::Allocate::new(self.frame.context, bytes, ALLOCATED, ptr::null_mut());
        // SAFETY: the context is that of the call.
        let error = unsafe { (self.api.allocate)(&mut arguments) };
        if error.is_null() {
            return Ok(Block { address: arguments.data as u64, handle: bytes as u64 });
        }
        // SAFETY: the error is owned.
        unsafe { (self.api.destroy_error)(&mut api::DestroyError::new(error)) };
        Err(format!("XLA could not allocate {bytes} bytes of scratch memory").into())
    }

    fn give_back(&self, block: Block) {
        let bytes = block.handle as usize;
        let mut arguments = api::Free::new(self.frame.context, bytes, block.address as *mut _);
        // SAFETY: the memory is of this context, and given back once.
        let error = unsafe { (self.api.free)(&mut arguments) };
        if !error.is_null() {
            // SAFETY: the error is owned.
            unsafe { (self.api.destroy_error)(&mut api::DestroyError::new(error)) };
        }
    }
}
