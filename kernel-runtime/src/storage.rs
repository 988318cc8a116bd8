//! The memory of a buffer: bytes somewhere, with the record of who uses them.
//!
//! Everything here counts in bytes and trusts its caller about ranges; `buffer` and `view` are
//! the typed, checked surface.

use crate::claimed_memory::Claim;
use crate::context::{self, Context};
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result};
use crate::freed_later;
use crate::gate::{self, Gate};
use crate::graph::capture;
use crate::ledger::{BufferId, Ledger, LogPosition, Touch, Use};
use crate::report_slot::LaunchId;
use crate::stream::Stream;
use crate::tracking::Tracking;
use crate::transfer;
use std::ops::Range;
use std::sync::Arc;

/// The smallest allocation in bytes. Buffers without elements have memory as well, so that their
/// addresses are valid and aligned like all others.
const SMALLEST: usize = 64;

/// The address of memory on the host or on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// Host memory, which the interpreter accesses through this pointer.
    Host(*mut u8),
    /// Memory of a GPU.
    Device(u64),
}

// SAFETY: an address is a value. Whoever dereferences it answers for that.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// The address as a number, for alignment and for kernel arguments.
    #[inline]
    pub fn get(self) -> u64 {
        match self {
            Address::Host(pointer) => pointer.addr() as u64,
            Address::Device(address) => address,
        }
    }

    #[inline]
    pub(crate) fn add(self, bytes: usize) -> Self {
        match self {
            Address::Host(pointer) => Address::Host(pointer.wrapping_add(bytes)),
            Address::Device(address) => Address::Device(address + bytes as u64),
        }
    }
}

/// Memory, freed when the last use is done. A buffer owns it alone, unless a graph uses it too, of ours or of somebody else.
///
/// The fields are in the order in which launches read them, so that they share a line of the cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Storage {
    address: Address,
    /// The size that counts for users.
    bytes: usize,
    gate: Gate,
    tracking: Tracking,
    device: Device,
    /// That memory of others is ours alone; `None` for our own.
    claim: Option<Claim>,
    /// The driver's number of the capture by somebody else in which it was allocated: each replay of that graph allocates it
    /// anew. Of memory that was taken over it is not known, so that graphs keep that.
    capture: Option<u64>,
}

/// How memory comes into the world. It is never uninitialised, as Rust means it, when safe code sees it.
pub(crate) enum Fill<'a> {
    /// All bytes zero.
    Zero,
    /// A copy of host memory of the same size.
    Copy(&'a [u8]),
    /// The caller initialises all of it before anybody reads it.
    Later,
    /// Any bytes, which must all be values of the elements' type. Memory of a GPU has some from the start, as Rust never
    /// sees it but through copies; memory of the host is allocated zeroed.
    Whatever,
}

/// What new host memory is filled with in builds with debug assertions if its contents must not matter: NaN of floats, so that
/// reading what was never written shows.
const UNWRITTEN: u8 = 0xff;

impl Storage {
    /// Allocates memory for `len` elements of `size` bytes, on `stream` of `device`.
    pub(crate) fn new(device: &Device, stream: &Stream, len: usize, size: usize, fill: Fill<'_>) -> Result<Self> {
        capture::refuse("allocating a buffer")?;
        let context = device.context();
        // Beyond half of the address space nothing can be allocated, and rounding up would wrap.
        let bytes = len.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize - SMALLEST);
        let bytes = bytes.ok_or_else(|| context.size_overflow())?;
        let capture = capture_of_allocation(context, stream)?;
        let address = match (&**context, stream.cuda_stream()) {
            (Context::Cuda(memory), Some(cudarc)) => {
                stream.free_gone_graphs();
                freed_later::free();
                Address::Device(memory.alloc(bytes.max(SMALLEST), cudarc)?)
            }
            (Context::Cpu | Context::Cuda(_), _) => Address::Host(context::host_alloc(bytes.max(SMALLEST))?),
        };
        // From here on `drop` frees the memory if something fails.
        let mut storage = Self::own(device, stream, address, bytes);
        storage.capture = capture;
        match fill {
            Fill::Zero => storage.zero_new(stream)?,
            Fill::Copy(source) => {
                debug_assert_eq!(source.len(), bytes);
                storage.write_unordered(0, source, stream)?;
            }
            Fill::Later => {}
            Fill::Whatever => storage.mark_unwritten(),
        }
        Ok(storage)
    }

    /// Takes over memory that was allocated on `stream`, and that `claim` covers.
    ///
    /// # Safety
    ///
    /// `address` is an allocation of the device, of at least `bytes` bytes, that the context's
    /// `free` accepts; nobody else frees it.
    pub(crate) unsafe fn adopt(device: &Device, stream: &Stream, address: u64, bytes: usize, claim: Claim) -> Self {
        let mut storage = Self::own(device, stream, Address::Device(address), bytes);
        storage.claim = Some(claim);
        storage
    }

    fn own(device: &Device, stream: &Stream, address: Address, bytes: usize) -> Self {
        let (tracking, gate) = (Tracking::new(stream), Gate::default());
        Storage { device: device.clone(), address, bytes, tracking, gate, claim: None, capture: None }
    }

    /// Gives the memory away, after all work that uses it.
    pub(crate) fn release(self) -> Result<(Stream, Address)> {
        let stream = self.tracking.finish()?;
        stream.finish()?;
        self.tracking.renew(self.ledger());
        let this = std::mem::ManuallyDrop::new(self);
        let address = this.address;
        // SAFETY: `this` is never dropped nor used again, and each field that owns something is
        // read out of it once.
        unsafe {
            drop((std::ptr::read(&this.device), std::ptr::read(&this.tracking), std::ptr::read(&this.gate)));
            drop(std::ptr::read(&this.claim));
        }
        Ok((stream, address))
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// What to enter from ordering a use until it is given to a stream.
    #[inline]
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    #[inline]
    pub(crate) fn address(&self, offset: usize) -> Address {
        self.address.add(offset)
    }

    /// The stream on which reading waits for nothing.
    pub(crate) fn home(&self) -> Stream {
        self.tracking.home()
    }

    #[inline]
    pub(crate) fn begin_read(&self, stream: &Stream) -> Result<()> {
        stream.check_context(self.device.context())?;
        self.begin_read_here(stream)
    }

    /// As `begin_read`, on a stream that has been checked.
    #[inline]
    pub(crate) fn begin_read_here(&self, stream: &Stream) -> Result<()> {
        self.tracking.begin_read(stream)
    }

    #[inline]
    pub(crate) fn begin_write(&self, stream: &Stream) -> Result<()> {
        stream.check_context(self.device.context())?;
        self.begin_write_here(stream)
    }

    /// As `begin_write`, on a stream that has been checked.
    #[inline]
    pub(crate) fn begin_write_here(&self, stream: &Stream) -> Result<()> {
        self.tracking.begin_write(stream)
    }

    /// Whether all uses so far were on the stream with this key, and nobody needs to enter the gate. Then there is
    /// nothing to begin. The stream is one of the memory's context: streams are checked before they are noted.
    #[inline]
    pub(crate) fn is_at_once(&self, stream_key: u64) -> bool {
        self.tracking.is_sole(stream_key) && !self.gate.is_shut()
    }

    /// How the ledger names the contents.
    pub(crate) fn contents(&self) -> BufferId {
        self.tracking.contents()
    }

    /// A use of the buffer as the ledger takes it.
    #[inline]
    pub(crate) fn used(&self, range: Range<usize>, touch: Touch) -> Use {
        Use::new(self.tracking.contents(), range, touch)
    }

    /// Whether the contents may depend on a launch that has failed, or may yet prove to have.
    #[inline]
    pub(crate) fn is_suspect(&self, ledger: &Ledger) -> bool {
        self.tracking.is_suspect(ledger)
    }

    /// The operation at this place of the ledger writes so many bytes of the buffer.
    #[inline]
    pub(crate) fn set_suspect(&self, place: LogPosition, bytes: usize) {
        self.tracking.set_suspect(place, bytes == self.bytes);
    }

    /// Whether it was allocated in the capture with this number.
    pub(crate) fn is_of_capture(&self, number: u64) -> bool {
        self.capture == Some(number)
    }

    /// The caller gives a use of the memory to `stream` next. If somebody else captures that, which it says, the graph keeps
    /// the memory: a replay may come when the buffer has dropped.
    pub(crate) fn keep_for_replays(self: &Arc<Self>, stream: &Stream) -> Result<bool> {
        match stream.foreign_capture()? {
            Some(capture) => capture.keep([self]).map(|()| true),
            None => Ok(false),
        }
    }

    fn ledger(&self) -> &'static Ledger {
        self.device.context().ledger()
    }

    /// Notes a use of a part by a launch that is made by hand.
    pub(crate) fn note_by_hand(&self, stream: &Stream, launch: LaunchId, range: Range<usize>, touch: Touch) {
        let bytes = range.len();
        let place = self.ledger().lock().add_by_hand(stream.id(), launch, self.used(range, touch));
        if touch.writes() {
            self.set_suspect(place, bytes);
        }
    }

    /// The host sets these bytes. If they are all, the contents depend on nothing that was there before.
    fn set_by_host(&self, range: &Range<usize>) {
        if range.len() == self.bytes {
            self.tracking.renew(self.ledger());
        }
    }

    /// The host sets these bytes next, in several steps.
    pub(crate) fn begin_set(&self, range: &Range<usize>) -> Result<()> {
        capture::refuse("filling a buffer")?;
        let _entered = gate::enter([&self.gate]);
        self.set_by_host(range);
        Ok(())
    }

    /// Bytes from `start` on become a copy of other memory, and depend on what that depends on.
    fn inherit(&self, start: usize, source: &Storage, range: Range<usize>) {
        let ledger = self.ledger();
        let target = start..start + range.len();
        let is_suspect = source.is_suspect(ledger);
        if !std::ptr::eq(self, source) {
            self.set_by_host(&target);
        }
        if is_suspect {
            let bytes = range.len();
            let (from, to) = (source.used(range, Touch::Read), self.used(target, Touch::Write));
            let place = ledger.lock().append_copy(from, to);
            self.set_suspect(place, bytes);
        }
    }

    /// Overwrites bytes from `start` on with those of memory that somebody else owns. What these depend on is not known.
    pub(crate) fn copy_from_borrowed(self: &Arc<Self>, start: usize, source: Address, bytes: usize) -> Result<()> {
        capture::refuse("copying a buffer")?;
        let _entered = gate::enter([&self.gate]);
        let stream = self.home();
        self.begin_write(&stream)?;
        let is_captured = self.keep_for_replays(&stream)?;
        // SAFETY: the target is inside the memory, and ordered; whoever borrowed the source vouches for it.
        unsafe { transfer::copy(self.address(start), source, bytes, &stream)? };
        // What is captured has not run: what the buffer holds is as it was.
        if !is_captured {
            self.set_by_host(&(start..start + bytes));
        }
        Ok(())
    }

    fn zero_new(&self, stream: &Stream) -> Result<()> {
        match (self.address, stream.cuda_stream()) {
            (Address::Device(address), Some(cudarc)) => {
                stream.bind_for_work()?;
                // SAFETY: the memory is ours, was allocated on this stream and has this size.
                unsafe { driver::fill(address, 1, 0, self.bytes.max(1), cudarc.cu_stream()) }
            }
            // Host memory is allocated zeroed.
            (Address::Device(_) | Address::Host(_), _) => Ok(()),
        }
    }

    /// Lets reads of new memory that nothing has written show, where debug assertions are on.
    fn mark_unwritten(&self) {
        if let (true, Address::Host(address)) = (cfg!(debug_assertions), self.address) {
            // SAFETY: the memory is ours and has this size.
            unsafe { address.write_bytes(UNWRITTEN, self.bytes) };
        }
    }

    /// Reads bytes to `to` and gives the oldest error among the launches that they depend on.
    ///
    /// # Safety
    ///
    /// `range` is inside the memory and `to` is writable for its length.
    pub(crate) unsafe fn read(&self, range: Range<usize>, to: *mut u8) -> Result<()> {
        capture::refuse("reading a buffer")?;
        let entered = gate::enter([&self.gate]);
        let stream = self.home();
        self.begin_read(&stream)?;
        // SAFETY: promised by the caller; nobody writes while `self` is borrowed, and a graph waits until the copy is given to
        // the stream.
        unsafe { transfer::read(self.address(range.start), to, range.len(), &stream, || drop(entered))? };
        if self.is_suspect(self.ledger())
            && let Some(error) = self.ledger().take_error(self.tracking.contents(), &range)
        {
            return Err(error);
        }
        Ok(())
    }

    /// Overwrites bytes from `start` on with `source`, which has left host memory on return. The
    /// caller has exclusive access to them.
    pub(crate) fn write(&self, start: usize, source: &[u8]) -> Result<()> {
        capture::refuse("writing a buffer")?;
        let _entered = gate::enter([&self.gate]);
        let stream = self.home();
        self.begin_write(&stream)?;
        self.write_unordered(start, source, &stream)?;
        self.set_by_host(&(start..start + source.len()));
        Ok(())
    }

    fn write_unordered(&self, start: usize, source: &[u8], stream: &Stream) -> Result<()> {
        debug_assert!(start + source.len() <= self.bytes);
        // SAFETY: the range is inside the memory, which earlier work leaves in peace.
        unsafe { transfer::write(self.address(start), source, stream) }
    }

    /// Copies bytes from other memory of the same device. The caller has exclusive access to the
    /// target range, and both ranges are inside their memory.
    pub(crate) fn copy_from(self: &Arc<Self>, start: usize, source: &Arc<Self>, range: Range<usize>) -> Result<()> {
        capture::refuse("copying a buffer")?;
        let _entered = gate::enter([&self.gate, &source.gate]);
        let stream = self.home();
        source.begin_read(&stream)?;
        self.begin_write(&stream)?;
        if range.is_empty() {
            return Ok(());
        }
        let is_captured = self.keep_for_replays(&stream)? && source.keep_for_replays(&stream)?;
        // SAFETY: both ranges are inside memory of this context, ordered by the calls above; exclusive access to the target
        // means that they do not overlap.
        unsafe { transfer::copy(self.address(start), source.address(range.start), range.len(), &stream)? };
        if !is_captured {
            self.inherit(start, source, range);
        }
        Ok(())
    }

    /// Fills `count` elements of `size` bytes with `pattern`. `size` is 1, 2 or 4.
    pub(crate) fn fill(self: &Arc<Self>, start: usize, size: usize, pattern: u32, count: usize) -> Result<()> {
        capture::refuse("filling a buffer")?;
        let _entered = gate::enter([&self.gate]);
        let stream = self.home();
        self.begin_write(&stream)?;
        let is_captured = self.keep_for_replays(&stream)?;
        // SAFETY: the range is inside the memory; allocations and elements are aligned.
        unsafe { transfer::fill(self.address(start), size, pattern, count, &stream)? };
        if !is_captured {
            self.set_by_host(&(start..start + size * count));
        }
        Ok(())
    }

    fn free(&mut self) -> Result<()> {
        match (self.address, &**self.device.context()) {
            (Address::Host(pointer), _) => {
                // SAFETY: the pointer came from `host_alloc` with this size, and the CPU has
                // finished everything that it was given.
                unsafe { context::host_free(pointer, self.bytes.max(SMALLEST)) };
                Ok(())
            }
            (Address::Device(address), Context::Cuda(memory)) => {
                let home = self.home();
                let tracking = std::mem::replace(&mut self.tracking, Tracking::new(&home));
                // SAFETY: the address is an allocation of this context, of which nobody knows any more.
                unsafe { freed_later::free_now_or_later(memory, address, tracking, self.capture) }
            }
            (Address::Device(_), Context::Cpu) => Err(transfer::mismatch(&self.home())),
        }
    }
}

/// The capture by somebody else in which memory would be allocated on the stream, if there is one.
fn capture_of_allocation(context: &Context, stream: &Stream) -> Result<Option<u64>> {
    let number = stream.foreign_capture()?.map(|capture| capture.number());
    match context {
        Context::Cuda(memory) if number.is_some() && !memory.stream_ordered => Err(Error::Unsupported {
            what: "allocating a buffer on a stream that is being captured".into(),
            reason:
                "this GPU does not allocate in the order of streams, so that the graph would not know of the memory; \
                     allocate it before the capture"
                    .into(),
        }),
        Context::Cuda(_) | Context::Cpu => Ok(number),
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // Before the memory is freed: whoever is given it next may wrap it.
        self.claim = None;
        self.tracking.renew(self.ledger());
        if let Err(error) = self.free() {
            // Memory that cannot be freed safely stays allocated. At the end of the process the
            // driver may be gone before us, which is no news to anybody.
            log::debug!("{} bytes on {} stay allocated: {error}", self.bytes, self.device);
        }
    }
}
