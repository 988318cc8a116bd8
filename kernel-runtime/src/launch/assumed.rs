//! What is assumed of arguments where a kernel is compiled without: `AddConsts { .. }.request::<f32>().assume(..)`.
//!
//! Each parameter has what its kind of argument can be known for. Defaults are what an ordinary launch has: memory as it
//! is allocated, and sizes that are multiples of 16.

use super::spec::{ParamSpec, assumed_buffer, assumed_scalar, assumed_tensor};
use crate::dtype::ElementType;

/// What the code may know of the address of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Alignment {
    /// It is a multiple of 16 bytes, the widest access of a thread, as where an allocation begins.
    #[default]
    Bytes16,
    /// Of 8 bytes.
    Bytes8,
    /// Of 4 bytes.
    Bytes4,
    /// Of 2 bytes.
    Bytes2,
    /// Of the size of an element, as everywhere in a buffer.
    Element,
}

/// What the code may know of a length, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AssumedLength {
    /// A multiple of 16.
    #[default]
    MultipleOf16,
    /// A multiple of 8.
    MultipleOf8,
    /// Any number.
    Unknown,
}

/// What the code may know of a buffer, the argument for a `Ptr<T>` or `PtrMut<T>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AssumedBuffer {
    /// Of its address.
    pub alignment: Alignment,
    /// Of its length, which matters where accesses are checked by the kernel.
    pub len: AssumedLength,
}

impl AssumedBuffer {
    /// Nothing is known: a view that begins and ends anywhere.
    pub const UNKNOWN: AssumedBuffer = AssumedBuffer { alignment: Alignment::Element, len: AssumedLength::Unknown };
}

/// What the code may know of an integer. Of floats and of `bool` it never knows anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AssumedScalar {
    /// A multiple of 16.
    #[default]
    MultipleOf16,
    /// A multiple of 8.
    MultipleOf8,
    /// 1, as the innermost stride of most tensors.
    One,
    /// Any other number.
    Unknown,
}

/// What the code may know of a tensor, the argument for a `TensorDesc` or `TensorDescMut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AssumedTensor {
    /// Its address, its strides and its rows are multiples of 16 bytes, so that the hardware can copy blocks.
    #[default]
    Aligned,
    /// It lies anywhere.
    Unknown,
}

/// What is assumed of the argument of one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Assumed {
    /// Of a buffer.
    OfBuffer(AssumedBuffer),
    /// Of a scalar.
    OfScalar(AssumedScalar),
    /// Of a tensor.
    OfTensor(AssumedTensor),
}

impl From<AssumedBuffer> for Assumed {
    fn from(buffer: AssumedBuffer) -> Assumed {
        Assumed::OfBuffer(buffer)
    }
}

impl From<AssumedScalar> for Assumed {
    fn from(scalar: AssumedScalar) -> Assumed {
        Assumed::OfScalar(scalar)
    }
}

impl From<AssumedTensor> for Assumed {
    fn from(tensor: AssumedTensor) -> Assumed {
        Assumed::OfTensor(tensor)
    }
}

/// What is assumed of all arguments of a kernel: the struct that `#[kernel]` makes, with a field for each parameter that
/// is given at the launch, `AddAssumed { n: AssumedScalar::Unknown, ..Default::default() }`.
pub trait Assumes: Default {
    /// In the order of the parameters, without those whose values are part of the code.
    fn of_params(&self) -> Vec<Assumed>;
}

/// A kernel without parameters.
impl Assumes for () {
    fn of_params(&self) -> Vec<Assumed> {
        Vec::new()
    }
}

impl AssumedBuffer {
    pub(super) fn spec(self, element: ElementType, mutable: bool) -> ParamSpec {
        let least = element.size() as u32;
        let bytes = match self.alignment {
            Alignment::Bytes16 => 16,
            Alignment::Bytes8 => 8,
            Alignment::Bytes4 => 4,
            Alignment::Bytes2 => 2,
            Alignment::Element => 1,
        };
        let len_divisor = match self.len {
            AssumedLength::MultipleOf16 => 16,
            AssumedLength::MultipleOf8 => 8,
            AssumedLength::Unknown => 1,
        };
        match assumed_buffer(element, mutable) {
            ParamSpec::Buffer { element, mutable, .. } => {
                ParamSpec::Buffer { element, mutable, alignment: bytes.max(least), len_divisor }
            }
            other => other,
        }
    }
}

impl AssumedScalar {
    pub(super) fn spec(self, element: ElementType) -> ParamSpec {
        let (divisor, one) = match self {
            AssumedScalar::MultipleOf16 => return assumed_scalar(element),
            AssumedScalar::MultipleOf8 => (8, false),
            AssumedScalar::One => (1, true),
            AssumedScalar::Unknown => (1, false),
        };
        let is_int = element.is_int();
        ParamSpec::Scalar { element, divisor: if is_int { divisor } else { 1 }, one: one && is_int }
    }
}

impl AssumedTensor {
    pub(super) fn spec(self, element: ElementType, mutable: bool, rank: usize) -> ParamSpec {
        let aligned = assumed_tensor(element, mutable, rank);
        match self {
            AssumedTensor::Aligned => aligned,
            AssumedTensor::Unknown => aligned.without_facts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scalar::Scalar;
    use super::super::spec::ParamSpec;
    use super::*;

    /// What can be assumed is what a launch can be compiled for.
    #[test]
    fn what_is_assumed_is_what_arguments_give() {
        let scalar = |value: i32| ParamSpec::scalar(value.value());
        let assumed = |assumed: AssumedScalar| assumed.spec(ElementType::I32);
        for (value, as_if) in [
            (48, AssumedScalar::MultipleOf16),
            (24, AssumedScalar::MultipleOf8),
            (1, AssumedScalar::One),
            (7, AssumedScalar::Unknown),
        ] {
            assert_eq!(assumed(as_if), scalar(value), "{value}");
            assert_eq!(as_if.spec(ElementType::F32), ParamSpec::scalar(0.5f32.value()), "{as_if:?} of a float");
        }
        for (address, alignment) in
            [(16, Alignment::Bytes16), (8, Alignment::Bytes8), (4, Alignment::Bytes4), (4, Alignment::Element)]
        {
            for (length, len) in
                [(32, AssumedLength::MultipleOf16), (24, AssumedLength::MultipleOf8), (7, AssumedLength::Unknown)]
            {
                let real = ParamSpec::buffer(ElementType::F32, true, address, length);
                assert_eq!(AssumedBuffer { alignment, len }.spec(ElementType::F32, true), real);
            }
        }
        let bytes2 = AssumedBuffer { alignment: Alignment::Bytes2, ..AssumedBuffer::default() };
        assert_eq!(bytes2.spec(ElementType::F16, false), ParamSpec::buffer(ElementType::F16, false, 2, 16));
        assert_eq!(
            AssumedBuffer::UNKNOWN.spec(ElementType::F64, false),
            ParamSpec::buffer(ElementType::F64, false, 8, 7),
            "a buffer of doubles lies at multiples of 8 bytes"
        );
    }
}
