//! The memory of a view: a buffer's, or somebody else's.
//!
//! Memory of somebody else is borrowed for as long as a view of it lives. Nobody frees it, claims it, tracks its uses or
//! waits for them: a launch on it costs what the launch costs. Whoever borrows it orders all uses, and keeps it until the
//! work that uses it is done.
//!
//! While a thread's launches are noted instead of made ([`shapes_of`](crate::launch::shapes_of)), it does not touch such memory:
//! there may be none.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::gate::{self, Gate};
use crate::graph::capture;
use crate::launch::are_noted;
use crate::ledger::Touch;
use crate::report_slot::LaunchId;
use crate::storage::{Address, Fill, Storage};
use crate::stream::Stream;
use crate::transfer;
use std::ops::Range;
use std::sync::Arc;

/// Where the elements of a view are.
#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    /// In a buffer: places count from its beginning.
    Own(&'a Arc<Storage>),
    /// In memory of somebody else, of this device's context, or of the host if that is the CPU: places are addresses. So a
    /// launch hands along no more than for a buffer.
    Borrowed(&'a Device),
}

/// An address of the memory that a device has.
#[inline]
fn at(device: &Device, address: usize) -> Address {
    match device.is_cuda() {
        true => Address::Device(address as u64),
        // Whoever lends memory of the host has exposed its address.
        false => Address::Host(std::ptr::with_exposed_provenance_mut(address)),
    }
}

/// As [`Storage::read`]; the errors are those of launches on the device's default stream.
unsafe fn read_borrowed(device: &Device, range: Range<usize>, to: *mut u8) -> Result<()> {
    capture::refuse("reading borrowed memory")?;
    if are_noted() {
        return Err(not_there("reading borrowed memory"));
    }
    let stream = device.default_stream();
    // SAFETY: promised by the caller, and by whoever borrowed the memory.
    unsafe { transfer::read(at(device, range.start), to, range.len(), stream, || ())? };
    stream.take_oldest_error().map_or(Ok(()), Err)
}

#[cold]
fn not_there(what: &str) -> Error {
    Error::Unsupported {
        what: format!("{what} while launches are noted").into(),
        reason: "what they would write is not written, and nobody may have the memory yet".into(),
    }
}

impl<'a> Memory<'a> {
    #[inline]
    pub(crate) fn device(&self) -> &'a Device {
        match self {
            Memory::Own(storage) => storage.device(),
            Memory::Borrowed(device) => device,
        }
    }

    /// The address of a place.
    #[inline]
    pub(crate) fn address(&self, place: usize) -> Address {
        match self {
            Memory::Own(storage) => storage.address(place),
            Memory::Borrowed(device) => at(device, place),
        }
    }

    /// The memory of a buffer.
    #[inline]
    pub(crate) fn own(&self) -> Option<&'a Arc<Storage>> {
        match self {
            Memory::Own(storage) => Some(storage),
            Memory::Borrowed(_) => None,
        }
    }

    /// The stream on which reading waits for nothing.
    pub(crate) fn home(&self) -> Stream {
        match self {
            Memory::Own(storage) => storage.home(),
            Memory::Borrowed(device) => device.default_stream().clone(),
        }
    }

    /// What to enter from ordering a use until it is given to a stream.
    #[inline]
    pub(crate) fn gate(&self) -> Option<&'a Gate> {
        self.own().map(|storage| storage.gate())
    }

    /// Whether nothing has to be done before the memory is used on the stream with this key, of the context with this
    /// number.
    #[inline]
    pub(crate) fn is_at_once(&self, stream_key: u64, context_number: u64) -> bool {
        match self {
            Memory::Own(storage) => storage.is_at_once(stream_key),
            Memory::Borrowed(device) => device.context_number() == context_number,
        }
    }

    /// Orders a read, which the caller gives to `stream` next.
    pub(crate) fn begin_read(&self, stream: &Stream) -> Result<()> {
        stream.check_context(self.device().context())?;
        self.begin_read_here(stream)
    }

    /// As `begin_read`, on a stream that has been checked.
    #[inline]
    pub(crate) fn begin_read_here(&self, stream: &Stream) -> Result<()> {
        self.own().map_or(Ok(()), |storage| storage.begin_read_here(stream))
    }

    /// Orders a write, which the caller gives to `stream` next.
    pub(crate) fn begin_write(&self, stream: &Stream) -> Result<()> {
        stream.check_context(self.device().context())?;
        self.begin_write_here(stream)
    }

    /// As `begin_write`, on a stream that has been checked.
    #[inline]
    pub(crate) fn begin_write_here(&self, stream: &Stream) -> Result<()> {
        self.own().map_or(Ok(()), |storage| storage.begin_write_here(stream))
    }

    /// An error where a launch by hand, which is made even where others are noted, would find nothing.
    pub(crate) fn check_there(&self) -> Result<()> {
        match self {
            Memory::Borrowed(_) if are_noted() => Err(not_there("a launch by hand over borrowed memory")),
            Memory::Borrowed(_) | Memory::Own(_) => Ok(()),
        }
    }

    /// The caller gives a use of the memory to `stream` next. Says whether somebody else captures that, which it asks for
    /// buffers only: their memory is kept for the replays.
    fn keep_for_replays(&self, stream: &Stream) -> Result<bool> {
        self.own().map_or(Ok(false), |storage| storage.keep_for_replays(stream))
    }

    /// Notes a use of a part by a launch that is made by hand.
    pub(crate) fn note_by_hand(
        &self,
        stream: &Stream,
        launch: LaunchId,
        range: Range<usize>,
        touch: Touch,
    ) -> Result<()> {
        stream.note_thread();
        if let Memory::Own(storage) = self
            && !storage.keep_for_replays(stream)?
        {
            storage.note_by_hand(stream, launch, range, touch);
        }
        Ok(())
    }

    /// Reads bytes to `to`, after the work that writes them; gives the oldest error that concerns them.
    ///
    /// # Safety
    ///
    /// As for [`Storage::read`].
    pub(crate) unsafe fn read(&self, range: Range<usize>, to: *mut u8) -> Result<()> {
        match self {
            // SAFETY: promised by the caller.
            Memory::Own(storage) => unsafe { storage.read(range, to) },
            // SAFETY: promised by the caller.
            Memory::Borrowed(device) => unsafe { read_borrowed(device, range, to) },
        }
    }

    /// Overwrites bytes from `start` on with `source`, which has left host memory on return. The caller has exclusive
    /// access to them, also below.
    pub(crate) fn write(&self, start: usize, source: &[u8]) -> Result<()> {
        match self {
            Memory::Own(storage) => storage.write(start, source),
            Memory::Borrowed(device) => {
                capture::refuse("writing borrowed memory")?;
                if are_noted() {
                    return Ok(());
                }
                // SAFETY: the range is inside the memory, which whoever borrowed it vouches for.
                unsafe { transfer::write(at(device, start), source, device.default_stream()) }
            }
        }
    }

    /// The host sets these bytes next, in several steps.
    pub(crate) fn begin_set(&self, range: &Range<usize>) -> Result<()> {
        self.own().map_or(Ok(()), |storage| storage.begin_set(range))
    }

    /// Copies bytes from other memory of the same device. Both ranges are inside their memory.
    pub(crate) fn copy_from(&self, start: usize, source: Memory<'_>, range: Range<usize>) -> Result<()> {
        let (target, source) = match (self, source) {
            (Memory::Own(target), Memory::Own(source)) => return target.copy_from(start, source, range),
            (target, source) => (target, source),
        };
        if target.device() != source.device() {
            return Err(Error::WrongDevice {
                argument: "".into(),
                actual: source.device().to_string().into(),
                expected: target.device().to_string().into(),
            });
        }
        if are_noted() {
            return Ok(());
        }
        if let Memory::Own(target) = target {
            return target.copy_from_borrowed(start, source.address(range.start), range.len());
        }
        capture::refuse("copying to borrowed memory")?;
        let _entered = gate::enter(source.gate());
        let stream = target.home();
        source.begin_read(&stream)?;
        source.keep_for_replays(&stream)?;
        // SAFETY: both ranges are inside memory of this context. The source is ordered above, if it is a buffer's; else
        // whoever borrowed it vouches for it, as for the target.
        unsafe { transfer::copy(target.address(start), source.address(range.start), range.len(), &stream) }
    }

    /// Fills `count` elements of `size` bytes with `pattern`. `size` is 1, 2 or 4.
    pub(crate) fn fill(&self, start: usize, size: usize, pattern: u32, count: usize) -> Result<()> {
        match self {
            Memory::Own(storage) => storage.fill(start, size, pattern, count),
            Memory::Borrowed(device) => {
                capture::refuse("filling borrowed memory")?;
                if are_noted() {
                    return Ok(());
                }
                // SAFETY: the elements are inside the memory, which whoever borrowed it vouches for.
                unsafe { transfer::fill(at(device, start), size, pattern, count, device.default_stream()) }
            }
        }
    }

    /// A copy of bytes in memory of their own.
    pub(crate) fn copy(&self, range: Range<usize>) -> Result<Arc<Storage>> {
        let fill = if self.own().is_none() && are_noted() { Fill::Zero } else { Fill::Later };
        let storage = Arc::new(Storage::new(self.device(), &self.home(), range.len(), 1, fill)?);
        match self {
            Memory::Own(source) => storage.copy_from(0, source, range)?,
            Memory::Borrowed(_) if are_noted() => {}
            Memory::Borrowed(source) => storage.copy_from_borrowed(0, at(source, range.start), range.len())?,
        }
        Ok(storage)
    }
}
