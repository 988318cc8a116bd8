//! Tensor maps: descriptors as the hardware reads them, encoded by the driver on the host.
//!
//! Encoding takes about a microsecond, so a descriptor keeps the first maps that were made of it: a
//! second launch with the same blocks finds its map there.

use super::Inner;
use super::layout::{MAX_RANK, Padding};
use crate::context::Context;
use crate::driver::wrap;
use crate::dtype::ElementType;
use crate::error::Result;
use crate::storage::Address;
use cudarc::driver::{DriverError, sys};
use kernel_core::backend::nvidia::{MapSwizzle, TensorMap};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The driver's function.
const ENCODE: &str = "cuTensorMapEncodeTiled";

/// Maps that a descriptor keeps. A launch with blocks of yet another kind encodes its own.
const KEPT: usize = 2;

/// The maps of a descriptor.
#[derive(Default)]
pub(crate) struct MapCache {
    kept: [OnceLock<Box<Encoded>>; KEPT],
    /// The driver has refused to encode one.
    refused: AtomicBool,
}

impl MapCache {
    /// Whether the driver has refused to encode a map.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A map for a launch.
pub(crate) enum Map<'t> {
    /// The descriptor keeps it.
    Kept(&'t Encoded),
    /// The launch keeps it.
    New(Box<Encoded>),
    /// The driver refuses the tensor: copies are for others.
    Refused,
}

/// A map, and the blocks that it is for.
pub(crate) struct Encoded {
    map: sys::CUtensorMap,
    blocks: TensorMap,
}

impl Encoded {
    /// The map's bytes, as a launch passes them.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(&self.map).cast_mut().cast()
    }
}

impl Inner<'_> {
    /// The map for these blocks: one that is kept, or a new one.
    ///
    /// # Errors
    /// If the driver fails for another reason than the tensor.
    #[inline]
    pub(crate) fn map(&self, blocks: &TensorMap) -> Result<Map<'_>> {
        for kept in &self.maps.kept {
            match kept.get() {
                Some(encoded) if encoded.blocks.is_like(blocks) => return Ok(Map::Kept(encoded)),
                Some(_) => {}
                None => return self.new_map(blocks, Some(kept)),
            }
        }
        self.new_map(blocks, None)
    }

    #[cold]
    fn new_map<'t>(&'t self, blocks: &TensorMap, place: Option<&'t OnceLock<Box<Encoded>>>) -> Result<Map<'t>> {
        // The driver encodes for the context that is current, and refuses where there is none.
        if let Context::Cuda(memory) = &**self.buffer.device().context() {
            memory.bind()?;
        }
        let encoded = match self.encode(blocks) {
            Ok(encoded) => Box::new(encoded),
            Err(error) if is_about_the_tensor(error) => {
                let error = wrap(ENCODE)(error);
                log::debug!("a tensor of shape {:?} is not copied in hardware: {error}", self.layout.shape());
                self.maps.refused.store(true, Ordering::Relaxed);
                return Ok(Map::Refused);
            }
            Err(error) => return Err(wrap(ENCODE)(error)),
        };
        let Some(place) = place else { return Ok(Map::New(encoded)) };
        Ok(match place.set(encoded) {
            Ok(()) => place.get().map_or(Map::Refused, |kept| Map::Kept(kept)),
            // Somebody else was faster, perhaps with blocks of another kind.
            Err(encoded) => Map::New(encoded),
        })
    }

    fn encode(&self, blocks: &TensorMap) -> std::result::Result<Encoded, DriverError> {
        let layout = &self.layout;
        let bytes = layout.element().size() as u64;
        let rank = layout.shape().len();
        // The driver wants the innermost dimension first, and strides in bytes.
        let mut dims = [1u64; MAX_RANK];
        let mut strides = [0u64; MAX_RANK];
        let mut boxes = [1u32; MAX_RANK];
        let steps = [1u32; MAX_RANK];
        for axis in 0..rank {
            dims[axis] = layout.shape()[rank - 1 - axis];
            boxes[axis] = u32::from(blocks.shape()[rank - 1 - axis]);
        }
        for axis in 1..rank {
            strides[axis - 1] = layout.strides()[rank - 1 - axis].saturating_mul(bytes);
        }
        let address = match self.buffer.address() {
            Address::Device(address) => address,
            Address::Host(pointer) => pointer.addr() as u64,
        };
        let fill = match layout.padding() {
            Padding::Zero => sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            Padding::Nan => sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
        };
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the arrays have as many entries as the rank, or more; the map is written only.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                data_type(layout.element()),
                rank as u32,
                address as *mut c_void,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle(blocks.swizzle),
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                fill,
            )
        }
        .result()?;
        Ok(Encoded { map, blocks: *blocks })
    }
}

/// Whether the driver refuses what it was to encode, rather than to work at all.
fn is_about_the_tensor(error: DriverError) -> bool {
    use sys::CUresult as Code;
    matches!(error.0, Code::CUDA_ERROR_INVALID_VALUE | Code::CUDA_ERROR_NOT_SUPPORTED)
}

fn swizzle(swizzle: MapSwizzle) -> sys::CUtensorMapSwizzle {
    match swizzle {
        MapSwizzle::None => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        MapSwizzle::Bytes32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        MapSwizzle::Bytes64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        MapSwizzle::Bytes128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

/// The driver's name for a dtype. What it has no name for is copied as bits.
fn data_type(element: ElementType) -> sys::CUtensorMapDataType {
    use sys::CUtensorMapDataType as Type;
    match element {
        ElementType::Bool | ElementType::I8 | ElementType::U8 | ElementType::F8E4M3 | ElementType::F8E5M2 => {
            Type::CU_TENSOR_MAP_DATA_TYPE_UINT8
        }
        ElementType::I16 | ElementType::U16 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        ElementType::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        ElementType::U32 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        ElementType::I64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        ElementType::U64 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        ElementType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        ElementType::BF16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        ElementType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        ElementType::F64 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    }
}
