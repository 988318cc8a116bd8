//! Arguments of another compiler's kernels.

use cudarc::driver::sys::CUtensorMap;

/// A descriptor: 128 opaque bytes that the driver wrote.
pub type TensorMap = CUtensorMap;

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A device address.
    Address(u64),
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A tensor descriptor.
    Map(TensorMap),
}
