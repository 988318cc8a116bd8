//! The parameters of a compiled kernel.

use crate::ir::{DType, MAX_TENSOR_RANK, ParamId};

/// One parameter of the compiled kernel, in the order of the launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AbiParam {
    /// The address of a buffer (u64).
    Buffer(ParamId),
    /// A scalar, by value; `bool` is one byte, 0 or 1.
    Scalar(ParamId, DType),
    /// The length of a buffer in elements (i64).
    Length(ParamId),
    /// The address (u64) of the launch's report record, as the GPU sees it.
    ReportSlot,
    /// A tensor as the hardware's tensor copies read it: 128 bytes, aligned to 64.
    TensorMap(TensorMap),
    /// The elements of a tensor along a dimension (i64), the outermost being 0.
    Shape(ParamId, u8),
    /// How far neighbours along a dimension of a tensor are apart (i64), in elements.
    Stride(ParamId, u8),
}

/// How shared memory holds a copied box: units of 16 bytes in each line of so many bytes are swapped by the number of
/// the line, so that accesses along columns meet no bank twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MapSwizzle {
    /// As it is.
    None,
    /// Lines of 32 bytes.
    Bytes32,
    /// Lines of 64 bytes.
    Bytes64,
    /// Lines of 128 bytes.
    Bytes128,
}

/// Which boxes of a tensor the kernel copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "WrittenMap", try_from = "WrittenMap"))]
pub struct TensorMap {
    /// The tensor.
    pub param: ParamId,
    rank: u8,
    /// The elements of a box, outermost dimension first.
    shape: [u16; MAX_TENSOR_RANK],
    /// How shared memory holds it.
    pub swizzle: MapSwizzle,
}

impl TensorMap {
    /// Boxes of 1 to 5 dimensions with up to 256 elements each; `None` if they are others.
    pub fn new(param: ParamId, shape: &[i64], swizzle: MapSwizzle) -> Option<TensorMap> {
        let mut sizes = [1; MAX_TENSOR_RANK];
        if shape.is_empty() || shape.len() > MAX_TENSOR_RANK {
            return None;
        }
        for (to, size) in sizes.iter_mut().zip(shape) {
            *to = u16::try_from(*size).ok().filter(|size| (1..=256).contains(size))?;
        }
        Some(TensorMap { param, rank: shape.len() as u8, shape: sizes, swizzle })
    }

    /// The elements of a box along each dimension, outermost first.
    pub fn shape(&self) -> &[u16] {
        &self.shape[..usize::from(self.rank)]
    }

    /// Whether these are the same boxes, of whatever tensor.
    pub fn is_like(&self, other: &TensorMap) -> bool {
        self.rank == other.rank && self.shape == other.shape && self.swizzle == other.swizzle
    }
}

/// A [`TensorMap`] as it is written down: what is read must be one.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct WrittenMap {
    param: ParamId,
    shape: Vec<i64>,
    swizzle: MapSwizzle,
}

#[cfg(feature = "serde")]
impl From<TensorMap> for WrittenMap {
    fn from(map: TensorMap) -> WrittenMap {
        let shape = map.shape().iter().map(|&size| size.into()).collect();
        WrittenMap { param: map.param, shape, swizzle: map.swizzle }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<WrittenMap> for TensorMap {
    type Error = &'static str;

    fn try_from(written: WrittenMap) -> Result<TensorMap, &'static str> {
        TensorMap::new(written.param, &written.shape, written.swizzle).ok_or("boxes that no tensor map has")
    }
}
