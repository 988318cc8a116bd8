//! The arguments of a launch: typed at the surface, plain data behind it.
//!
//! `#[kernel]` gives a launcher parameters of type `impl PtrArg<'a, T>` and `impl PtrMutArg<'a, T>`.
//! So `rustc` checks the dtype, that what is written is borrowed exclusively, and that nothing is
//! freed before the launch has taken it.
//!
//! The borrow checker excludes that two arguments alias, if one of them is written. Memory of
//! another library can be in two buffers only through an `unsafe` call of that library, whose
//! contract then forbids writing it through one while the other is in use.

use super::key::Digest;
use super::scalar::ScalarValue;
use super::spec::{ParamSpec, buffer_unit, scalar_unit};
use crate::borrowed::Memory;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use crate::gate::{self, Entered};
use crate::graph::capture::Recording;
use crate::ledger::{Ledger, LogPosition, Touch, Use};
use crate::storage::{Address, Storage};
use crate::stream::Stream;
use crate::tensor::{DescRef, DescRefMut, Inner, TensorFacts, TensorLayout};
use crate::view::{View, ViewMut};
use std::ops::Range;
use std::sync::Arc;

/// What may be passed for a `Ptr<T>` parameter: `&Buffer<T>` or a view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a `Ptr<{T}>` parameter",
    label = "expected a buffer of `{T}`: `&Buffer<{T}>`, `View<{T}>`, `&View<{T}>` or `&ViewMut<{T}>`",
    note = "`Ptr` parameters take shared borrows of buffers whose dtype is the parameter's"
)]
pub trait PtrArg<'a, T: DType> {
    /// The buffer behind it.
    fn into_arg(self) -> BufferArg<'a>;
}

/// What may be passed for a `PtrMut<T>` parameter: `&mut Buffer<T>` or an exclusive view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a `PtrMut<{T}>` parameter",
    label = "expected an exclusive buffer of `{T}`: `&mut Buffer<{T}>`, `ViewMut<{T}>` or `&mut ViewMut<{T}>`",
    note = "`PtrMut` parameters take `&mut Buffer<_>`, because the kernel writes to them"
)]
pub trait PtrMutArg<'a, T: DType> {
    /// The buffer behind it.
    fn into_arg_mut(self) -> BufferArgMut<'a>;
}

/// A borrowed buffer without its type. Made by the implementations of [`PtrArg`].
#[derive(Clone, Copy)]
pub struct BufferArg<'a> {
    memory: Memory<'a>,
    /// Where it starts in the memory, in bytes.
    start: usize,
    /// Elements.
    len: usize,
    element: ElementType,
}

/// An exclusively borrowed buffer without its type. Made by the implementations of [`PtrMutArg`].
pub struct BufferArgMut<'a>(BufferArg<'a>);

impl<'a> BufferArg<'a> {
    #[inline]
    fn new<T: DType>(view: View<'a, T>) -> Self {
        let (memory, start, len) = view.into_parts();
        BufferArg { memory, start: start * size_of::<T>(), len, element: T::ELEMENT }
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the first element is.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        self.memory.address(self.start)
    }

    /// The device whose memory it is.
    pub(crate) fn device(&self) -> &'a Device {
        self.memory.device()
    }
}

impl BufferArg<'_> {
    /// What lies behind that many elements, if there are as many.
    pub(crate) fn from(self, offset: usize) -> Option<Self> {
        let len = self.len.checked_sub(offset)?;
        Some(BufferArg { start: self.start + offset * self.element.size(), len, ..self })
    }
}

impl<'a> From<BufferArgMut<'a>> for BufferArg<'a> {
    #[inline]
    fn from(BufferArgMut(buffer): BufferArgMut<'a>) -> Self {
        buffer
    }
}

impl<'a, T: DType> PtrArg<'a, T> for &'a Buffer<T> {
    #[inline]
    fn into_arg(self) -> BufferArg<'a> {
        BufferArg::new(self.as_view())
    }
}

impl<'a, T: DType> PtrArg<'a, T> for View<'a, T> {
    #[inline]
    fn into_arg(self) -> BufferArg<'a> {
        BufferArg::new(self)
    }
}

impl<'a, T: DType> PtrArg<'a, T> for &View<'a, T> {
    #[inline]
    fn into_arg(self) -> BufferArg<'a> {
        BufferArg::new(*self)
    }
}

impl<'a, T: DType> PtrArg<'a, T> for &'a ViewMut<'_, T> {
    #[inline]
    fn into_arg(self) -> BufferArg<'a> {
        BufferArg::new(self.as_view())
    }
}

impl<'a, T: DType> PtrMutArg<'a, T> for &'a mut Buffer<T> {
    #[inline]
    fn into_arg_mut(self) -> BufferArgMut<'a> {
        self.as_view_mut().into_arg_mut()
    }
}

impl<'a, T: DType> PtrMutArg<'a, T> for ViewMut<'a, T> {
    #[inline]
    fn into_arg_mut(self) -> BufferArgMut<'a> {
        BufferArgMut(BufferArg::new(View::from(self)))
    }
}

impl<'a, T: DType> PtrMutArg<'a, T> for &'a mut ViewMut<'_, T> {
    #[inline]
    fn into_arg_mut(self) -> BufferArgMut<'a> {
        self.reborrow().into_arg_mut()
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgKind {
    /// A shared buffer.
    Ptr,
    /// An exclusive buffer.
    PtrMut,
    /// A value that the code is given.
    Scalar,
    /// A value that is folded into the code.
    Const,
    /// A tensor in a shared buffer.
    Desc,
    /// A tensor in an exclusive buffer.
    DescMut,
    /// Nothing.
    Omitted,
}

impl ArgKind {
    /// Whether the launch may write the memory of the argument.
    #[inline]
    pub(super) fn is_written(self) -> bool {
        match self {
            ArgKind::PtrMut | ArgKind::DescMut => true,
            ArgKind::Ptr | ArgKind::Desc | ArgKind::Scalar | ArgKind::Const | ArgKind::Omitted => false,
        }
    }
}

/// One argument, in the order of the kernel's parameters. What launches need of all kinds is in the
/// same fields, so that they need not tell them apart.
#[derive(Clone, Copy)]
pub(super) struct Arg<'a> {
    /// The bits of a scalar, or the address of the first element. Then what conditions on a launch
    /// may speak of: the elements of a buffer, the bits of an integer. Code takes parameters from here.
    words: [u64; 2],
    /// Where a buffer is.
    memory: Option<Memory<'a>>,
    /// The descriptor of a tensor.
    tensor: Option<&'a Inner<'a>>,
    /// Where a buffer starts in it, in bytes.
    start: usize,
    /// What the key of a variant says of it.
    unit: u16,
    kind: ArgKind,
    element: ElementType,
}

impl<'a> Arg<'a> {
    #[inline(always)]
    pub(super) fn ptr(buffer: BufferArg<'a>) -> Self {
        Self::buffer(ArgKind::Ptr, buffer)
    }

    #[inline(always)]
    pub(super) fn ptr_mut(BufferArgMut(buffer): BufferArgMut<'a>) -> Self {
        Self::buffer(ArgKind::PtrMut, buffer)
    }

    pub(super) fn desc(DescRef(tensor): DescRef<'a>) -> Self {
        Self::tensor(ArgKind::Desc, tensor)
    }

    pub(super) fn desc_mut(DescRefMut(tensor): DescRefMut<'a>) -> Self {
        Self::tensor(ArgKind::DescMut, tensor)
    }

    /// A tensor that the kernel makes. No key says anything of it.
    pub(super) fn made(tensor: &'a Inner<'a>, writes: bool) -> Self {
        let kind = if writes { ArgKind::DescMut } else { ArgKind::Desc };
        Arg { kind, tensor: Some(tensor), ..Self::buffer(ArgKind::Ptr, tensor.buffer) }
    }

    fn tensor(kind: ArgKind, tensor: &'a Inner<'a>) -> Self {
        let mut arg = Arg { kind, tensor: Some(tensor), ..Self::buffer(ArgKind::Ptr, tensor.buffer) };
        arg.unit = arg.spec().unit();
        arg
    }

    #[inline(always)]
    fn buffer(kind: ArgKind, BufferArg { memory, start, len, element }: BufferArg<'a>) -> Self {
        let (address, len) = (memory.address(start).get(), len as u64);
        let unit = buffer_unit(element, kind.is_written(), address, len);
        Arg { words: [address, len], memory: Some(memory), tensor: None, start, unit, kind, element }
    }

    #[inline(always)]
    pub(super) fn scalar(value: ScalarValue) -> Self {
        let ScalarValue { bits, element } = value;
        let fact = if value.is_int() { bits } else { 0 };
        Self::value([bits, fact], ArgKind::Scalar, element, scalar_unit(element, bits))
    }

    #[inline]
    pub(super) fn constant(value: ScalarValue) -> Self {
        let ScalarValue { bits, element } = value;
        Self::value([bits, 0], ArgKind::Const, element, ParamSpec::Const(value).unit())
    }

    /// No argument for a parameter of this dtype.
    #[inline]
    pub(super) fn omitted(element: ElementType) -> Self {
        Self::value([0; 2], ArgKind::Omitted, element, ParamSpec::Omitted(element).unit())
    }

    #[inline(always)]
    fn value(words: [u64; 2], kind: ArgKind, element: ElementType, unit: u16) -> Self {
        Arg { words, memory: None, tensor: None, start: 0, unit, kind, element }
    }

    #[inline]
    pub(super) fn kind(&self) -> ArgKind {
        self.kind
    }

    #[inline]
    pub(super) fn unit(&self) -> u16 {
        self.unit
    }

    /// What the GPU's code generator may know of it.
    pub(super) fn spec(&self) -> ParamSpec {
        let Arg { element, words: [bits, fact], .. } = *self;
        match self.kind {
            ArgKind::Scalar => ParamSpec::scalar(ScalarValue { bits, element }),
            ArgKind::Const => ParamSpec::Const(ScalarValue { bits, element }),
            ArgKind::Omitted => ParamSpec::Omitted(element),
            ArgKind::Ptr | ArgKind::PtrMut => ParamSpec::buffer(element, self.kind.is_written(), bits, fact),
            ArgKind::Desc | ArgKind::DescMut => {
                let facts = self.as_desc().map_or(TensorFacts::NOTHING, Inner::facts);
                ParamSpec::tensor(element, self.kind.is_written(), bits, facts)
            }
        }
    }

    /// The value of a constant, which is part of the key.
    #[inline]
    pub(super) fn key_value(&self) -> Option<u64> {
        (self.kind == ArgKind::Const).then_some(self.bits())
    }

    /// Mixes what the key says of it into the key's digest.
    #[inline(always)]
    pub(super) fn mix_into(&self, digest: Digest) -> Digest {
        let digest = digest.with(self.unit.into());
        self.key_value().map_or(digest, |value| digest.with(value))
    }

    /// The bits of a scalar, or the address of the first element, whose use needs [`Arg::prepare`].
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.words[0]
    }

    /// What conditions on a launch may speak of: the elements of a buffer, the bits of an integer.
    #[inline]
    pub(super) fn fact(&self) -> u64 {
        self.words[1]
    }

    /// Where code finds [`Arg::bits`] and [`Arg::fact`].
    #[inline]
    pub(super) fn words(&self) -> &[u64; 2] {
        &self.words
    }

    /// The value of a scalar or constant.
    #[inline]
    pub(super) fn as_value(&self) -> Option<ScalarValue> {
        match self.kind {
            ArgKind::Scalar | ArgKind::Const => Some(ScalarValue { bits: self.bits(), element: self.element }),
            ArgKind::Ptr | ArgKind::PtrMut | ArgKind::Desc | ArgKind::DescMut | ArgKind::Omitted => None,
        }
    }

    /// Learns again what the key says of it.
    #[cold]
    pub(super) fn refresh(&mut self) {
        self.unit = self.spec().unit();
    }

    /// The descriptor of a tensor.
    #[inline]
    pub(super) fn as_desc(&self) -> Option<&'a Inner<'a>> {
        self.tensor
    }

    /// Where the elements of a tensor are.
    #[inline]
    pub(super) fn as_tensor(&self) -> Option<&'a TensorLayout> {
        self.tensor.map(|tensor| &tensor.layout)
    }

    /// Where a buffer is, and how many elements it has.
    #[inline]
    pub(super) fn as_buffer(&self) -> Option<(Address, usize)> {
        self.memory.map(|memory| (memory.address(self.start), self.len()))
    }

    /// A buffer as it was passed.
    pub(super) fn buffer_arg(&self) -> Option<BufferArg<'a>> {
        let (memory, start, len) = (self.memory?, self.start, self.len());
        Some(BufferArg { memory, start, len, element: self.element })
    }

    #[inline]
    fn len(&self) -> usize {
        self.fact() as usize
    }

    /// The bytes of a buffer in its memory.
    #[inline]
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.len() * self.element.size()
    }

    /// The bytes of a buffer; none of a scalar.
    pub(super) fn bytes(&self) -> usize {
        if self.memory.is_some() { self.range().len() } else { 0 }
    }

    /// The memory of a buffer that the launch writes, and which of its bytes.
    pub(super) fn written(&self) -> Option<(Memory<'a>, Range<usize>, ElementType)> {
        self.memory.filter(|_| self.kind.is_written()).map(|memory| (memory, self.range(), self.element))
    }

    /// Whether it can be used on `stream`.
    #[inline]
    pub(super) fn check_device(&self, stream: &Stream) -> Result<()> {
        match self.memory {
            Some(memory) => stream.check_context(memory.device().context()),
            None => Ok(()),
        }
    }

    /// Orders the use of a buffer, which the caller gives to `stream` next. It has been checked with
    /// [`Arg::check_device`].
    #[inline]
    pub(super) fn prepare(&self, stream: &Stream) -> Result<()> {
        match self.memory {
            Some(memory) if self.kind.is_written() => memory.begin_write_here(stream),
            Some(memory) => memory.begin_read_here(stream),
            None => Ok(()),
        }
    }

    /// Whether neither [`Arg::prepare`] nor the check of the device has anything to do: all uses of the buffer so far
    /// were on the stream with this key, and no graph uses it; or it is memory of somebody else in this context.
    #[inline]
    pub(super) fn is_at_once(&self, stream_key: u64, context_number: u64) -> bool {
        self.memory.is_none_or(|memory| memory.is_at_once(stream_key, context_number))
    }

    /// The use of a buffer as the ledger takes it; `loads` says whether the kernel loads from it.
    #[inline]
    pub(super) fn used(&self, loads: bool) -> Option<Use> {
        Some(self.own()?.used(self.range(), Touch::of(loads, self.kind.is_written())?))
    }

    /// Whether what the buffer holds may depend on a launch that has failed, or may yet prove to have.
    #[inline]
    pub(super) fn is_suspect(&self, ledger: &Ledger) -> bool {
        self.own().is_some_and(|storage| storage.is_suspect(ledger))
    }

    /// The operation at this place of the ledger writes the buffer, if any does.
    #[inline]
    pub(super) fn set_suspect(&self, place: LogPosition) {
        if let Some(storage) = self.own()
            && self.kind.is_written()
        {
            storage.set_suspect(place, self.range().len());
        }
    }

    /// Whether it is a buffer that is ours.
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.own().is_some()
    }

    /// The memory of a buffer that is ours.
    #[inline]
    pub(super) fn own(&self) -> Option<&'a Arc<Storage>> {
        self.memory.and_then(|memory| memory.own())
    }

    /// Notes the use of a buffer by the launch that is recorded next, and whether that loads from it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for memory of somebody else, which a graph cannot keep.
    pub(super) fn note(&self, recording: &mut Recording, loads: bool) -> Result<()> {
        match self.memory {
            Some(Memory::Own(storage)) => {
                recording.add_use(storage, self.range(), loads, self.kind.is_written());
                Ok(())
            }
            Some(Memory::Borrowed(_)) => Err(Error::Unsupported {
                what: "recording a launch on borrowed memory".into(),
                reason: "a graph keeps the memory of its launches, and this belongs to somebody else; copy it to a buffer, or \
                         let its owner capture the stream"
                    .into(),
            }),
            None => Ok(()),
        }
    }
}

/// Enters the gates of all buffers, from before [`Arg::prepare`] until the launch is in the stream.
#[inline]
pub(super) fn enter<'e>(args: &'e [Arg<'_>]) -> Entered<'e> {
    let mut gates = args.iter().filter_map(|arg| arg.memory?.gate());
    if gates.any(|gate| gate.is_shut()) { enter_shut(args) } else { Entered::new() }
}

#[cold]
fn enter_shut<'e>(args: &'e [Arg<'_>]) -> Entered<'e> {
    gate::enter(args.iter().filter_map(|arg| arg.memory?.gate()))
}
