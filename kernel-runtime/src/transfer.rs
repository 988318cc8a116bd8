//! Bytes that are copied and filled, on the host or in a stream. Who uses the memory besides, and when, is the business of
//! `storage` and `borrowed`.

use crate::context::Context;
use crate::driver;
use crate::error::{Error, Result};
use crate::storage::Address;
use crate::stream::Stream;

/// Reads bytes to `to`. On a GPU it waits for the stream, before which it lets `before_waiting` run.
///
/// # Safety
///
/// Both ranges of `bytes` bytes are alive, and nobody else uses them.
pub(crate) unsafe fn read(
    from: Address,
    to: *mut u8,
    bytes: usize,
    stream: &Stream,
    before_waiting: impl FnOnce(),
) -> Result<()> {
    match (from, stream.cuda_stream()) {
        (Address::Device(from), Some(cudarc)) => {
            refuse_in_capture("reading memory of a GPU", stream)?;
            stream.bind_for_work()?;
            // SAFETY: promised by the caller; the wait below ends the copy.
            unsafe { driver::copy_to_host(to, from, bytes, cudarc.cu_stream())? };
            before_waiting();
            stream.finish()
        }
        (Address::Host(from), _) => {
            // SAFETY: promised by the caller.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            Ok(())
        }
        (Address::Device(_), None) => Err(mismatch(stream)),
    }
}

/// Overwrites bytes with those of the host, which have left its memory on return.
///
/// # Safety
///
/// As many bytes as `from` has are alive at `to`, in the order of the stream, and nobody else uses them.
pub(crate) unsafe fn write(to: Address, from: &[u8], stream: &Stream) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    match (to, &**stream.context(), stream.cuda_stream()) {
        (Address::Device(to), Context::Cuda(memory), Some(cudarc)) => {
            refuse_in_capture("copying from the host", stream)?;
            stream.bind_for_work()?;
            // SAFETY: promised by the caller.
            unsafe { memory.copy_from_host(to, from.as_ptr(), from.len(), cudarc) }
        }
        (Address::Host(to), Context::Cpu | Context::Cuda(_), _) => {
            // SAFETY: as above; the source is borrowed from elsewhere.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
            Ok(())
        }
        (Address::Device(_), Context::Cpu | Context::Cuda(_), _) => Err(mismatch(stream)),
    }
}

/// Copies bytes within the memory of a device.
///
/// # Safety
///
/// Both ranges of `bytes` bytes are alive, in the order of the stream, and do not overlap; nobody else uses them.
pub(crate) unsafe fn copy(to: Address, from: Address, bytes: usize, stream: &Stream) -> Result<()> {
    match (to, from, stream.cuda_stream()) {
        (_, _, _) if bytes == 0 => Ok(()),
        (Address::Device(to), Address::Device(from), Some(cudarc)) => {
            stream.bind_for_work()?;
            // SAFETY: promised by the caller.
            unsafe { driver::copy_within(to, from, bytes, cudarc.cu_stream()) }
        }
        (Address::Host(to), Address::Host(from), _) => {
            // SAFETY: promised by the caller.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            Ok(())
        }
        (Address::Host(_) | Address::Device(_), Address::Host(_) | Address::Device(_), _) => Err(mismatch(stream)),
    }
}

/// Fills `count` elements of `size` bytes with the low bytes of `pattern`. `size` is 1, 2 or 4.
///
/// # Safety
///
/// The elements are alive, in the order of the stream, and aligned; nobody else uses them.
pub(crate) unsafe fn fill(to: Address, size: usize, pattern: u32, count: usize, stream: &Stream) -> Result<()> {
    match (to, stream.cuda_stream()) {
        (_, _) if count == 0 => Ok(()),
        (Address::Device(address), Some(cudarc)) => {
            stream.bind_for_work()?;
            // SAFETY: promised by the caller.
            unsafe { driver::fill(address, size, pattern, count, cudarc.cu_stream()) }
        }
        (Address::Host(to), _) => {
            let bytes = pattern.to_ne_bytes();
            // The low bytes come first on little-endian machines, last on others.
            let low = if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[4 - size..] };
            for index in 0..count {
                // SAFETY: promised by the caller.
                unsafe { to.add(index * size).copy_from_nonoverlapping(low.as_ptr(), size) };
            }
            Ok(())
        }
        (Address::Device(_), None) => Err(mismatch(stream)),
    }
}

/// An error if somebody else captures the stream: a copy would be made at each replay, to or from memory of the host that has
/// long been another's.
fn refuse_in_capture(what: &str, stream: &Stream) -> Result<()> {
    if !stream.is_captured()? {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!("{what} on a stream that is being captured").into(),
        reason: "each replay would use the host's memory again, which is not kept for it; copy before the capture or after it"
            .into(),
    })
}

/// Memory of a GPU with a stream of another device. Streams are checked before memory is used on them.
pub(crate) fn mismatch(stream: &Stream) -> Error {
    Error::WrongDevice {
        argument: "".into(),
        actual: "another device".into(),
        expected: stream.context().label().into(),
    }
}
