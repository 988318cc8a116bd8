//! The arguments of a launch: typed at the surface, plain data behind it.
//!
//! `#[kernel]` gives a launcher parameters of type `impl PtrArg<'a, T>` and `impl PtrMutArg<'a, T>`.
//! So `rustc` checks the dtype, that what is written is borrowed exclusively, and that nothing is
//! freed before the launch has taken it.
//!
//! The borrow checker excludes that two arguments alias, if one of them is written. Memory of
//! another library can be in two buffers only through an `unsafe` call of that library, whose
//! contract then forbids writing it through one while the other is in use.

use super::spec::ParamSpec;
use crate::buffer::Buffer;
use crate::dtype::{DType, ElementType};
use crate::error::Result;
use crate::gate::{self, Entered};
use crate::graph::recording::Recording;
use crate::record::LaunchId;
use crate::storage::{Address, Storage};
use crate::stream::Stream;
use crate::tensor::{DescRef, DescRefMut, Inner, TensorLayout};
use crate::view::{View, ViewMut};
use kernel_core::ir::{DType as CoreDType, Literal};
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
    storage: &'a Arc<Storage>,
    /// Where it starts in the storage, in bytes.
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
        let (storage, start, len) = view.into_parts();
        BufferArg { storage, start: start * size_of::<T>(), len, element: T::ELEMENT }
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the first element is.
    #[cfg(feature = "jit")]
    #[inline]
    pub(crate) fn address(&self) -> Address {
        self.storage.address(self.start)
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

/// What may be passed for a scalar parameter: a value of any dtype.
pub trait Scalar: DType {
    /// The value as plain data.
    fn value(self) -> ScalarValue;
}

impl<T: DType> Scalar for T {
    #[inline]
    fn value(self) -> ScalarValue {
        let size = size_of::<T>();
        let mut bytes = [0; size_of::<u64>()];
        let low = if cfg!(target_endian = "little") { 0..size } else { bytes.len() - size..bytes.len() };
        bytes[low].copy_from_slice(crate::view::as_bytes(std::slice::from_ref(&self)));
        ScalarValue { bits: u64::from_ne_bytes(bytes), element: T::ELEMENT }
    }
}

/// A scalar argument without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScalarValue {
    /// The value in the low bits; the others are zero.
    pub(super) bits: u64,
    pub(super) element: ElementType,
}

impl ScalarValue {
    /// The value of an integer or truth value; `None` for floats.
    #[inline]
    pub(super) fn as_int(self) -> Option<i128> {
        match self.element {
            ElementType::I8 => Some(i128::from(self.bits as i8)),
            ElementType::I16 => Some(i128::from(self.bits as i16)),
            ElementType::I32 => Some(i128::from(self.bits as i32)),
            ElementType::I64 => Some(i128::from(self.bits as i64)),
            ElementType::Bool | ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => {
                Some(i128::from(self.bits))
            }
            ElementType::F8E4M3
            | ElementType::F8E5M2
            | ElementType::F16
            | ElementType::BF16
            | ElementType::F32
            | ElementType::F64 => None,
        }
    }

    /// Whether it is an integer or a truth value.
    #[inline]
    fn is_int(self) -> bool {
        match self.element {
            ElementType::F8E4M3
            | ElementType::F8E5M2
            | ElementType::F16
            | ElementType::BF16
            | ElementType::F32
            | ElementType::F64 => false,
            ElementType::Bool
            | ElementType::I8
            | ElementType::I16
            | ElementType::I32
            | ElementType::I64
            | ElementType::U8
            | ElementType::U16
            | ElementType::U32
            | ElementType::U64 => true,
        }
    }

    /// The value as a constant of the tile IR.
    pub(super) fn literal(self) -> Literal {
        let bits = self.bits;
        match self.element {
            ElementType::Bool => Literal::Bool(bits != 0),
            ElementType::F16 => Literal::float(half::f16::from_bits(bits as u16).to_f64()),
            ElementType::F8E4M3 | ElementType::F8E5M2 => kernel_core::num::from_bits(bits, core_dtype(self.element)),
            ElementType::BF16 => Literal::float(half::bf16::from_bits(bits as u16).to_f64()),
            ElementType::F32 => Literal::float(f32::from_bits(bits as u32).into()),
            ElementType::F64 => Literal::Float(bits),
            ElementType::I8
            | ElementType::I16
            | ElementType::I32
            | ElementType::I64
            | ElementType::U8
            | ElementType::U16
            | ElementType::U32
            | ElementType::U64 => Literal::Int(self.as_int().unwrap_or(0)),
        }
    }
}

/// The tile IR's name for a dtype.
pub(super) fn core_dtype(element: ElementType) -> CoreDType {
    match element {
        ElementType::Bool => CoreDType::Bool,
        ElementType::I8 => CoreDType::I8,
        ElementType::I16 => CoreDType::I16,
        ElementType::I32 => CoreDType::I32,
        ElementType::I64 => CoreDType::I64,
        ElementType::U8 => CoreDType::U8,
        ElementType::U16 => CoreDType::U16,
        ElementType::U32 => CoreDType::U32,
        ElementType::U64 => CoreDType::U64,
        ElementType::F16 => CoreDType::F16,
        ElementType::BF16 => CoreDType::BF16,
        ElementType::F8E4M3 => CoreDType::F8E4M3,
        ElementType::F8E5M2 => CoreDType::F8E5M2,
        ElementType::F32 => CoreDType::F32,
        ElementType::F64 => CoreDType::F64,
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
}

impl ArgKind {
    /// Whether the launch may write the memory of the argument.
    #[inline]
    pub(super) fn is_written(self) -> bool {
        match self {
            ArgKind::PtrMut | ArgKind::DescMut => true,
            ArgKind::Ptr | ArgKind::Desc | ArgKind::Scalar | ArgKind::Const => false,
        }
    }
}

/// One argument, in the order of the kernel's parameters. What launches need of all kinds is in the
/// same fields, so that they need not tell them apart.
pub(super) struct Arg<'a> {
    /// The bits of a scalar, or the address of the first element.
    bits: u64,
    /// What conditions on a launch may speak of: the elements of a buffer, the bits of an integer.
    fact: u64,
    /// The memory of a buffer.
    storage: Option<&'a Arc<Storage>>,
    /// The descriptor of a tensor.
    tensor: Option<&'a Inner<'a>>,
    /// Where a buffer starts in it, in bytes.
    start: usize,
    /// What the key of a variant says of it.
    #[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "the interpreter's variants know less"))]
    unit: u16,
    kind: ArgKind,
    element: ElementType,
}

impl<'a> Arg<'a> {
    #[inline]
    pub(super) fn ptr(buffer: BufferArg<'a>) -> Self {
        Self::buffer(ArgKind::Ptr, buffer, None)
    }

    #[inline]
    pub(super) fn ptr_mut(BufferArgMut(buffer): BufferArgMut<'a>) -> Self {
        Self::buffer(ArgKind::PtrMut, buffer, None)
    }

    #[inline]
    pub(super) fn desc(DescRef(tensor): DescRef<'a>) -> Self {
        Self::buffer(ArgKind::Desc, tensor.buffer, Some(tensor))
    }

    #[inline]
    pub(super) fn desc_mut(DescRefMut(tensor): DescRefMut<'a>) -> Self {
        Self::buffer(ArgKind::DescMut, tensor.buffer, Some(tensor))
    }

    #[inline]
    fn buffer(
        kind: ArgKind,
        BufferArg { storage, start, len, element }: BufferArg<'a>,
        tensor: Option<&'a Inner<'a>>,
    ) -> Self {
        let bits = storage.address(start).get();
        Arg { bits, fact: len as u64, storage: Some(storage), tensor, start, unit: 0, kind, element }.with_unit()
    }

    #[inline]
    pub(super) fn scalar(value: ScalarValue) -> Self {
        Self::value(ArgKind::Scalar, value)
    }

    #[inline]
    pub(super) fn constant(value: ScalarValue) -> Self {
        Self::value(ArgKind::Const, value)
    }

    #[inline]
    fn value(kind: ArgKind, value: ScalarValue) -> Self {
        let fact = if value.is_int() && kind == ArgKind::Scalar { value.bits } else { 0 };
        let ScalarValue { bits, element } = value;
        Arg { bits, fact, storage: None, tensor: None, start: 0, unit: 0, kind, element }.with_unit()
    }

    #[inline]
    fn with_unit(mut self) -> Self {
        self.unit = ParamSpec::of(&self).unit();
        self
    }

    #[inline]
    pub(super) fn kind(&self) -> ArgKind {
        self.kind
    }

    #[inline]
    pub(super) fn element(&self) -> ElementType {
        self.element
    }

    #[cfg(feature = "jit")]
    #[inline]
    pub(super) fn unit(&self) -> u16 {
        self.unit
    }

    /// The bits of a scalar, or the address of the first element, whose use needs [`Arg::prepare`].
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// What conditions on a launch may speak of: the elements of a buffer, the bits of an integer.
    #[inline]
    pub(super) fn fact(&self) -> u64 {
        self.fact
    }

    /// The value of a scalar or constant.
    #[cfg(feature = "jit")]
    #[inline]
    pub(super) fn as_value(&self) -> Option<ScalarValue> {
        match self.kind {
            ArgKind::Scalar | ArgKind::Const => Some(ScalarValue { bits: self.bits, element: self.element }),
            ArgKind::Ptr | ArgKind::PtrMut | ArgKind::Desc | ArgKind::DescMut => None,
        }
    }

    /// Learns again what the key says of it.
    #[cfg(feature = "jit")]
    #[cold]
    pub(super) fn refresh(&mut self) {
        self.unit = ParamSpec::of(self).unit();
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
        self.storage.map(|storage| (storage.address(self.start), self.len()))
    }

    #[inline]
    fn len(&self) -> usize {
        self.fact as usize
    }

    /// The bytes of a buffer in its memory.
    #[inline]
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.len() * self.element.size()
    }

    /// Whether it can be used on `stream`.
    #[inline]
    pub(super) fn check_device(&self, stream: &Stream) -> Result<()> {
        match self.storage {
            Some(storage) => stream.check_context(storage.device().context()),
            None => Ok(()),
        }
    }

    /// Orders the use of a buffer, which the caller gives to `stream` next as part of `launch`. It
    /// has been checked with [`Arg::check_device`].
    #[inline]
    pub(super) fn prepare(&self, stream: &Stream, launch: LaunchId) -> Result<()> {
        match self.storage {
            Some(storage) if self.kind.is_written() => storage.begin_write_here(stream, self.range(), launch),
            Some(storage) => storage.begin_read_here(stream),
            None => Ok(()),
        }
    }

    /// Notes the use of a buffer by the launch that is recorded next.
    pub(super) fn note(&self, recording: &mut Recording) {
        if let Some(storage) = self.storage {
            recording.add_use(storage, self.kind.is_written().then(|| self.range()));
        }
    }
}

/// Enters the gates of all buffers, from before [`Arg::prepare`] until the launch is in the stream.
#[inline]
pub(super) fn enter<'e>(args: &'e [Arg<'_>]) -> Entered<'e> {
    let mut gates = args.iter().filter_map(|arg| Some(arg.storage?.gate()));
    if gates.any(|gate| gate.is_shut()) { enter_shut(args) } else { Entered::new() }
}

#[cold]
fn enter_shut<'e>(args: &'e [Arg<'_>]) -> Entered<'e> {
    gate::enter(args.iter().filter_map(|arg| Some(arg.storage?.gate())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn scalars_keep_their_values() {
        assert_eq!((-2i8).value().as_int(), Some(-2));
        assert_eq!((-2i8).value().bits, 0xfe, "the other bits are zero");
        assert_eq!(i64::MIN.value().as_int(), Some(i128::from(i64::MIN)));
        assert_eq!(u64::MAX.value().as_int(), Some(i128::from(u64::MAX)));
        assert_eq!(true.value().literal(), Literal::Bool(true));
        assert_eq!((-7i32).value().literal(), Literal::Int(-7));
        assert_eq!(0.1f32.value().literal(), Literal::float(f64::from(0.1f32)));
        assert_eq!(0.1f64.value().literal(), Literal::float(0.1));
        assert_eq!(f16::from_f32(0.5).value().literal(), Literal::float(0.5));
        assert_eq!(bf16::from_f32(-3.0).value().literal(), Literal::float(-3.0));
        assert_eq!(1.0f32.value().as_int(), None);
    }

    #[test]
    fn dtypes_have_one_name_on_both_sides() {
        for element in ElementType::ALL {
            assert_eq!(core_dtype(element).name(), element.name());
            assert_eq!(core_dtype(element).bytes() as usize, element.size());
        }
    }
}
