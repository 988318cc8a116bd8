//! Views: borrowed parts of buffers.
//!
//! [`View`] and [`ViewMut`] are to a [`Buffer`] what `&[T]` and `&mut [T]` are to a `Vec<T>`: the
//! borrow checker sees which parts may be written, and the length is known. Kernels take them
//! wherever they take buffers.
//!
//! ```
//! use kernel_runtime::Device;
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let mut buffer = Device::cpu().upload(&[1, 2, 3, 4])?;
//! let (mut left, right) = buffer.split_at_mut(2)?;
//! left.copy_from(&right.as_view())?;
//! assert_eq!(buffer.slice(1..3)?.to_vec()?, [4, 3]);
//! # Ok(())
//! # }
//! ```

use crate::borrowed::Memory;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use crate::graph::capture;
use crate::ledger::Touch;
use crate::report_slot::LaunchId;
use crate::storage::Address;
use crate::stream::Stream;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Bound, Range, RangeBounds};

/// Where the elements of a buffer or view are, for whoever launches a kernel on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBuffer {
    /// The first element.
    pub address: Address,
    /// The number of elements.
    pub len: usize,
    /// Their type.
    pub element: ElementType,
}

/// A shared part of a buffer.
pub struct View<'a, T: DType> {
    memory: Memory<'a>,
    start: usize,
    len: usize,
    elements: PhantomData<&'a [T]>,
}

/// An exclusive part of a buffer.
pub struct ViewMut<'a, T: DType> {
    /// Shared, because two halves of one buffer have the same; the ranges are disjoint.
    memory: Memory<'a>,
    start: usize,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

/// The elements that `range` names among `len`.
fn resolve(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len { Ok(start..end) } else { Err(Error::InvalidRange { start, end, len }) }
}

impl<'a, T: DType> View<'a, T> {
    #[inline]
    pub(crate) fn new(memory: Memory<'a>, len: usize) -> Self {
        View { memory, start: 0, len, elements: PhantomData }
    }

    /// Elements of somebody else, of which the first is at this multiple of their size.
    #[inline]
    pub(crate) fn borrowed(device: &'a Device, start: usize, len: usize) -> Self {
        View { memory: Memory::Borrowed(device), start, len, elements: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that the elements live on.
    pub fn device(&self) -> &'a Device {
        self.memory.device()
    }

    /// The memory, the first element in it and the number of elements.
    #[inline]
    pub(crate) fn into_parts(self) -> (Memory<'a>, usize, usize) {
        (self.memory, self.start, self.len)
    }

    fn byte_range(&self) -> Range<usize> {
        self.start * size_of::<T>()..(self.start + self.len) * size_of::<T>()
    }

    /// A part of the view.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRange`] if the range is not inside the view.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'a, T>> {
        let range = resolve(range, self.len)?;
        Ok(View { start: self.start + range.start, len: range.len(), ..*self })
    }

    /// The first `at` elements, and the others.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRange`] if the view has fewer than `at` elements.
    pub fn split_at(&self, at: usize) -> Result<(View<'a, T>, View<'a, T>)> {
        Ok((self.slice(..at)?, self.slice(at..)?))
    }

    /// Copies the elements to the host, after the work that writes them.
    ///
    /// # Errors
    ///
    /// The oldest error among the launches that the elements depend on, if nobody has taken it:
    /// those that wrote them since the host last set the whole buffer, those that wrote what these
    /// read, and so on. A launch that overwrites them later hides no error. Each error is given once, so after one
    /// the elements can be read as the launches left them. [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = Vec::new();
        elements.try_reserve_exact(self.len).map_err(|_| Error::OutOfMemory {
            device: "the host".into(),
            requested: (self.len * size_of::<T>()) as u64,
            free: None,
            total: None,
        })?;
        let target = &mut elements.spare_capacity_mut()[..self.len];
        self.read(target)?;
        T::normalise(target);
        // SAFETY: `read` has filled the first `len` elements, `normalise` has made them valid.
        unsafe { elements.set_len(self.len) };
        Ok(elements)
    }

    /// Copies the elements to `target`, after the work that writes them.
    ///
    /// # Errors
    ///
    /// As for [`View::to_vec`], and [`Error::LengthMismatch`]. After an error, `target` holds
    /// unspecified values.
    pub fn read_into(&self, target: &mut [T]) -> Result<()> {
        check_len("reading a buffer into a slice", self.len, target.len())?;
        let len = target.len();
        // SAFETY: the same elements, which are initialised and stay so: whatever a read leaves in
        // them, `normalise` makes values of it before the borrow ends.
        let target = unsafe { std::slice::from_raw_parts_mut(target.as_mut_ptr().cast::<MaybeUninit<T>>(), len) };
        let result = self.read(target);
        T::normalise(target);
        result
    }

    /// Reads as many bytes as `target` has, which is as many as the view. They are not normalised.
    fn read(&self, target: &mut [MaybeUninit<T>]) -> Result<()> {
        debug_assert_eq!(target.len(), self.len);
        // SAFETY: the range is inside the memory, and the target has its size.
        unsafe { self.memory.read(self.byte_range(), target.as_mut_ptr().cast()) }
    }

    /// Copies the elements to a new buffer on the same device. Does not wait, so whoever reads the copy is told the
    /// errors that a reader of these elements would be told.
    pub fn copy(&self) -> Result<Buffer<T>> {
        Ok(Buffer::from_storage(self.memory.copy(self.byte_range())?, self.len))
    }

    /// Copies the elements to a new buffer on `device`; between devices they go through the host, with the errors
    /// of [`View::to_vec`].
    pub fn to_device(&self, device: &Device) -> Result<Buffer<T>> {
        if device == self.device() { self.copy() } else { device.upload(&self.to_vec()?) }
    }

    /// Where the elements are. Using the address needs [`View::prepare_read`].
    pub fn raw(&self) -> RawBuffer {
        let address = self.memory.address(self.start * size_of::<T>());
        RawBuffer { address, len: self.len, element: T::ELEMENT }
    }

    /// Orders a read that the caller gives to `stream` next as part of `launch`, while it still borrows the view,
    /// after the work that writes the elements. Whoever reads what the launch writes is told the errors that the
    /// elements depend on. If a [`Graph`](crate::Graph) uses the buffer, it must not be replayed by
    /// another thread until the read is given to the stream; nor must another part of the buffer, from
    /// [`ViewMut::split_at_mut`], be used by another thread.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is of another device.
    pub fn prepare_read(&self, stream: &Stream, launch: LaunchId) -> Result<RawBuffer> {
        capture::refuse("a launch by hand")?;
        self.memory.check_there()?;
        self.memory.begin_read(stream)?;
        self.memory.note_by_hand(stream, launch, self.byte_range(), Touch::Read)?;
        Ok(self.raw())
    }
}

impl<'a, T: DType> ViewMut<'a, T> {
    #[inline]
    pub(crate) fn new(memory: Memory<'a>, len: usize) -> Self {
        ViewMut { memory, start: 0, len, elements: PhantomData }
    }

    /// Elements of somebody else, of which the first is at this multiple of their size.
    #[inline]
    pub(crate) fn borrowed(device: &'a Device, start: usize, len: usize) -> Self {
        ViewMut { memory: Memory::Borrowed(device), start, len, elements: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that the elements live on.
    pub fn device(&self) -> &'a Device {
        self.memory.device()
    }

    /// The same elements, shared.
    #[inline]
    pub fn as_view(&self) -> View<'_, T> {
        View { memory: self.memory, start: self.start, len: self.len, elements: PhantomData }
    }

    /// The same elements, for a shorter time.
    #[inline]
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { memory: self.memory, start: self.start, len: self.len, elements: PhantomData }
    }

    /// A part of the view.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRange`] if the range is not inside the view.
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<ViewMut<'a, T>> {
        let range = resolve(range, self.len)?;
        Ok(ViewMut { start: self.start + range.start, len: range.len(), ..self })
    }

    /// The first `at` elements, and the others. Two threads may use the parts, on two streams. Each use of the buffer
    /// takes a lock from then on, until it is given to its stream.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidRange`] if the view has fewer than `at` elements.
    pub fn split_at_mut(self, at: usize) -> Result<(ViewMut<'a, T>, ViewMut<'a, T>)> {
        resolve(..at, self.len)?;
        // The record of uses is one for both parts.
        if let Some(gate) = self.memory.gate() {
            gate.shut();
        }
        let right = ViewMut { start: self.start + at, len: self.len - at, ..self };
        Ok((ViewMut { len: at, ..self }, right))
    }

    /// As [`View::to_vec`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_view().to_vec()
    }

    /// Overwrites the elements with those of `source`, which may change as soon as this returns. A buffer all of
    /// whose elements are set like this depends on no launch any more.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`]; [`Error::Driver`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        check_len("copying a slice into a buffer", self.len, source.len())?;
        self.memory.write(self.start * size_of::<T>(), as_bytes(source))
    }

    /// Overwrites the elements with those of another buffer of the same device, with the errors that they depend on.
    /// Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`]; [`Error::WrongDevice`]; [`Error::Driver`].
    pub fn copy_from(&mut self, source: &View<'_, T>) -> Result<()> {
        check_len("copying a buffer into a buffer", self.len, source.len)?;
        self.memory.copy_from(self.start * size_of::<T>(), source.memory, source.byte_range())
    }

    /// Overwrites every element with `value`. Does not wait.
    pub fn fill(&mut self, value: T) -> Result<()> {
        let start = self.start * size_of::<T>();
        let value = [value];
        match *as_bytes(&value) {
            [a] => self.memory.fill(start, 1, a.into(), self.len),
            [a, b] => self.memory.fill(start, 2, u16::from_ne_bytes([a, b]).into(), self.len),
            [a, b, c, d] => self.memory.fill(start, 4, u32::from_ne_bytes([a, b, c, d]), self.len),
            // No device fills with eight bytes, unless both halves are the same.
            [a, b, c, d, ref rest @ ..] if *rest == [a, b, c, d] => {
                self.memory.fill(start, 4, u32::from_ne_bytes([a, b, c, d]), self.len * 2)
            }
            _ => self.fill_by_doubling(value[0]),
        }
    }

    /// Fills with a few elements from the host, then with copies of what is filled already.
    fn fill_by_doubling(&mut self, value: T) -> Result<()> {
        const FIRST: usize = 4096;
        let size = size_of::<T>();
        let start = self.start * size;
        let first = vec![value; self.len.min(FIRST)];
        self.memory.begin_set(&self.as_view().byte_range())?;
        self.memory.write(start, as_bytes(&first))?;
        let mut filled = first.len();
        while filled < self.len {
            let count = filled.min(self.len - filled);
            self.memory.copy_from(start + filled * size, self.memory, start..start + count * size)?;
            filled += count;
        }
        Ok(())
    }

    /// Where the elements are. Using the address needs [`ViewMut::prepare_write`].
    pub fn raw(&self) -> RawBuffer {
        self.as_view().raw()
    }

    /// Orders a write that the caller gives to `stream` next as part of `launch`, while it still
    /// borrows the view, after all other uses. Readers are told the launch's error; the launch may read the elements
    /// too. If a [`Graph`](crate::Graph) uses the buffer, it must not be replayed by another thread until the write is
    /// given to the stream; nor must another part of the buffer, from [`ViewMut::split_at_mut`], be used by another thread.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is of another device.
    pub fn prepare_write(&mut self, stream: &Stream, launch: LaunchId) -> Result<RawBuffer> {
        capture::refuse("a launch by hand")?;
        self.memory.check_there()?;
        self.memory.begin_write(stream)?;
        self.memory.note_by_hand(stream, launch, self.as_view().byte_range(), Touch::Update)?;
        Ok(self.raw())
    }
}

fn check_len(what: &str, expected: usize, actual: usize) -> Result<()> {
    if expected == actual {
        return Ok(());
    }
    Err(Error::LengthMismatch { what: what.into(), expected, actual })
}

/// The bytes of elements.
pub(crate) fn as_bytes<T: DType>(elements: &[T]) -> &[u8] {
    // SAFETY: a dtype is plain data without padding, so all its bytes are initialised.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

impl<T: DType> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: DType> Copy for View<'_, T> {}

impl<'a, T: DType> From<&'a Buffer<T>> for View<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.as_view()
    }
}

impl<'a, T: DType> From<&View<'a, T>> for View<'a, T> {
    fn from(view: &View<'a, T>) -> Self {
        *view
    }
}

impl<'a, T: DType> From<&'a ViewMut<'_, T>> for View<'a, T> {
    fn from(view: &'a ViewMut<'_, T>) -> Self {
        view.as_view()
    }
}

impl<'a, T: DType> From<ViewMut<'a, T>> for View<'a, T> {
    #[inline]
    fn from(view: ViewMut<'a, T>) -> Self {
        View { memory: view.memory, start: view.start, len: view.len, elements: PhantomData }
    }
}

impl<'a, T: DType> From<&'a mut Buffer<T>> for ViewMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.as_view_mut()
    }
}

impl<'a, T: DType> From<&'a mut ViewMut<'_, T>> for ViewMut<'a, T> {
    fn from(view: &'a mut ViewMut<'_, T>) -> Self {
        view.reborrow()
    }
}

impl<T: DType> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View<{}>({} elements on {})", T::ELEMENT, self.len, self.device())
    }
}

impl<T: DType> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut<{}>({} elements on {})", T::ELEMENT, self.len, self.device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use std::sync::mpsc;
    use std::time::Duration;

    /// The parts have one record of uses, in which a use replaces those that are on their way to another stream.
    #[test]
    fn parts_are_used_one_after_the_other() -> Result<()> {
        let mut buffer = Device::cpu().zeros::<i32>(8)?;
        let (left, mut right) = buffer.split_at_mut(4)?;
        let on_the_way = gate::enter(left.memory.gate());
        assert_eq!(on_the_way.len(), 1);
        std::thread::scope(|scope| {
            let (sender, filled) = mpsc::channel();
            scope.spawn(move || sender.send(right.fill(3)).expect("somebody listens"));
            assert!(filled.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
            drop(on_the_way);
            filled.recv().expect("the thread does not panic")
        })?;
        assert_eq!(buffer.to_vec()?, [0, 0, 0, 0, 3, 3, 3, 3]);
        Ok(())
    }
}
