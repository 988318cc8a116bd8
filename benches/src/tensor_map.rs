//! Tensor descriptors as the host encodes them for another compiler's kernels.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
    cuTensorMapEncodeTiled,
};

use crate::argument::{Argument, TensorMap};

/// What a compiled kernel says of one of its descriptors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoding {
    swizzle: CUtensorMapSwizzle,
    element: CUtensorMapDataType,
    /// Elements along each dimension that one copy moves, the innermost last.
    block: Vec<u32>,
}

/// A row-major matrix in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Its first element.
    pub address: u64,
    /// Its rows.
    pub rows: usize,
    /// Its columns, which are also the elements from one row to the next.
    pub columns: usize,
    /// Bytes of an element.
    pub size: usize,
}

impl Encoding {
    /// Reads `swizzle/element type/block`, the driver's numbers, as `peers/compile_matmul.py` writes them.
    pub fn parse(text: &str) -> Option<Encoding> {
        let mut parts = text.split('/');
        let swizzle = match parts.next()? {
            "0" => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            "1" => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            "2" => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            "3" => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            _ => return None,
        };
        let element = match parts.next()? {
            "0" => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            "6" => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            "7" => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            "9" => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            _ => return None,
        };
        let block = parts.next()?.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<u32>>>()?;
        (block.len() == 2 && parts.next().is_none()).then_some(Encoding { swizzle, element, block })
    }

    /// The arguments that Triton's kernels take for a descriptor of a matrix: the descriptor, the sizes, the strides.
    ///
    /// # Errors
    /// If the driver refuses the matrix: its address or its rows are not at multiples of 16 bytes, for instance.
    pub fn arguments(&self, matrix: Matrix) -> Result<[Argument; 5], String> {
        let Matrix { address, rows, columns, size } = matrix;
        // The driver counts dimensions from the innermost.
        let (sizes, strides) = ([columns as u64, rows as u64], [(columns * size) as u64]);
        let block: Vec<u32> = self.block.iter().rev().copied().collect();
        let steps = [1u32, 1];
        let mut map = TensorMap { opaque: [0; 16] };
        // SAFETY: the arrays have as many elements as the rank says, one fewer for the strides; `map` is aligned by
        // its type. The address is stored and not followed.
        let result = unsafe {
            cuTensorMapEncodeTiled(
                &mut map,
                self.element,
                sizes.len() as u32,
                address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                block.as_ptr(),
                steps.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                self.swizzle,
                // As Triton's launcher has it.
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        result.result().map_err(|e| format!("a descriptor of {matrix:?} in blocks of {:?}: {e}", self.block))?;
        let (rows, stride) = (rows as i32, columns as i64);
        Ok([
            Argument::Map(map),
            Argument::I32(rows),
            Argument::I32(columns as i32),
            Argument::I64(stride),
            Argument::I64(1),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_read_and_nothing_else() {
        let read = Encoding::parse("3/6/128x64").map(|e| (e.swizzle as u32, e.element as u32, e.block));
        assert_eq!(read, Some((3, 6, vec![128, 64])));
        for wrong in ["", "3/6", "3/6/128", "4/6/128x64", "3/6/128xy", "3/6/128x64/1"] {
            assert_eq!(Encoding::parse(wrong), None, "{wrong}");
        }
    }
}
