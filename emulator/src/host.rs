//! Kernels with the buffers of the interpreter as arguments.

use kernel_codegen::{AbiParam, Compiled};
use kernel_core::interp::{HostBuffer, HostTensor};
use kernel_core::ir::{Bound, DType, Func, ParamId, ParamKind};
use kernel_core::num::{F8E4M3, F8E5M2};

use crate::code::Launch;
use crate::global::Memory;

/// Runs a compiled kernel in the emulator; returns the buffers and the report record.
pub fn emulate(
    kernel: &Bound,
    compiled: &Compiled,
    buffers: &[HostBuffer],
    scalars: &[i32],
    grid: u32,
    seed: u64,
) -> (Vec<HostBuffer>, Vec<u8>) {
    emulate_with_tensors(kernel, compiled, &Given { buffers, tensors: &[], scalars }, grid, seed)
}

/// The arguments of a launch.
pub struct Given<'a> {
    /// The memory of buffers and tensors, in the order of the parameters.
    pub buffers: &'a [HostBuffer],
    /// How descriptors see theirs.
    pub tensors: &'a [HostTensor],
    /// The scalars.
    pub scalars: &'a [i32],
}

/// As [`emulate`], of a kernel with descriptors.
pub fn emulate_with_tensors(
    kernel: &Bound,
    compiled: &Compiled,
    given: &Given<'_>,
    grid: u32,
    seed: u64,
) -> (Vec<HostBuffer>, Vec<u8>) {
    emulate_func(kernel.func(), compiled, given, grid, seed)
}

/// Runs one program of a placed kernel without scalars.
pub fn emulate_placed(func: &Func, compiled: &Compiled, buffers: &[HostBuffer], seed: u64) -> Vec<HostBuffer> {
    emulate_func(func, compiled, &Given { buffers, tensors: &[], scalars: &[] }, 1, seed).0
}

fn emulate_func(
    func: &Func,
    compiled: &Compiled,
    &Given { buffers, tensors, scalars }: &Given<'_>,
    grid: u32,
    seed: u64,
) -> (Vec<HostBuffer>, Vec<u8>) {
    let mut memory = Memory::default();
    let addresses: Vec<u64> = buffers.iter().map(|buffer| memory.add(bytes(buffer))).collect();
    let record = memory.add(vec![0; 64]);
    let number = |wanted: ParamId, is: fn(&ParamKind) -> bool| {
        func.params[..wanted.index()].iter().filter(|param| is(&param.kind)).count()
    };
    let is_buffer = |kind: &ParamKind| matches!(kind, ParamKind::Ptr { .. } | ParamKind::Desc { .. });
    let is_tensor = |kind: &ParamKind| matches!(kind, ParamKind::Desc { .. });
    let is_scalar = |kind: &ParamKind| matches!(kind, ParamKind::Scalar(_));
    let scalar = |id: ParamId| scalars[number(id, is_scalar)] as u32 as u64;
    let made = |id: ParamId| {
        let param = compiled.placed.func().param(id);
        let bytes = param.kind.dt().and_then(|dt| dt.known()).map_or(1, DType::bytes);
        param.recipe.as_ref().map(|recipe| (recipe.base, recipe.evaluate(scalar), i64::from(bytes)))
    };
    let params = compiled.abi.iter().map(|param| match param {
        AbiParam::Buffer(id) if let Some((base, made, bytes)) = made(*id) => {
            addresses[number(base, is_buffer)].wrapping_add_signed(made.offset * bytes)
        }
        AbiParam::Shape(id, axis) if let Some((_, made, _)) = made(*id) => made.sizes[usize::from(*axis)] as u64,
        AbiParam::Stride(id, axis) if let Some((_, made, _)) = made(*id) => made.strides[usize::from(*axis)] as u64,
        AbiParam::Buffer(id) => addresses[number(*id, is_buffer)],
        AbiParam::Scalar(id, _) => scalars[number(*id, is_scalar)] as u32 as u64,
        AbiParam::Length(id) => buffers[number(*id, is_buffer)].len() as u64,
        AbiParam::Shape(id, axis) => tensors[number(*id, is_tensor)].shape[usize::from(*axis)],
        AbiParam::Stride(id, axis) => tensors[number(*id, is_tensor)].strides[usize::from(*axis)],
        AbiParam::TensorMap(_) => panic!("the emulator has no tensor copies"),
        AbiParam::ReportSlot => record,
    });
    let launch = Launch { compiled, params: params.collect(), grid: [grid, 1, 1], seed };
    launch.run(&mut memory);
    let found =
        buffers.iter().zip(&addresses).map(|(buffer, &address)| from_bytes(buffer.dtype(), memory.bytes(address)));
    (found.collect(), memory.bytes(record).to_vec())
}

macro_rules! by_type {
    ($($variant:ident: $ty:ty, |$x:ident| $number:expr;)*) => {
        /// The bytes of a buffer's elements, lowest first.
        pub fn bytes(buffer: &HostBuffer) -> Vec<u8> {
            match buffer.dtype() {
                DType::Bool => buffer.as_slice::<bool>().unwrap().iter().map(|&x| u8::from(x)).collect(),
                $(DType::$variant => buffer.as_slice::<$ty>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect(),)*
            }
        }

        /// A buffer of that dtype with these bytes.
        pub fn from_bytes(dtype: DType, bytes: &[u8]) -> HostBuffer {
            match dtype {
                DType::Bool => HostBuffer::from(bytes.iter().map(|&x| x != 0).collect::<Vec<bool>>()),
                $(DType::$variant => HostBuffer::from(
                    bytes.chunks(size_of::<$ty>()).map(|x| <$ty>::from_le_bytes(x.try_into().unwrap())).collect::<Vec<_>>(),
                ),)*
            }
        }

        /// The elements of a buffer as floats; those of 64-bit integers are rounded.
        pub fn numbers(buffer: &HostBuffer) -> Vec<f64> {
            match buffer.dtype() {
                DType::Bool => buffer.as_slice::<bool>().unwrap().iter().map(|&x| f64::from(u8::from(x))).collect(),
                $(DType::$variant => buffer.as_slice::<$ty>().unwrap().iter().map(|&$x| $number).collect(),)*
            }
        }
    };
}
by_type! {
    I8: i8, |x| f64::from(x);
    I16: i16, |x| f64::from(x);
    I32: i32, |x| f64::from(x);
    I64: i64, |x| x as f64;
    U8: u8, |x| f64::from(x);
    U16: u16, |x| f64::from(x);
    U32: u32, |x| f64::from(x);
    U64: u64, |x| x as f64;
    F16: half::f16, |x| x.to_f64();
    BF16: half::bf16, |x| x.to_f64();
    F8E4M3: F8E4M3, |x| x.to_f64();
    F8E5M2: F8E5M2, |x| x.to_f64();
    F32: f32, |x| f64::from(x);
    F64: f64, |x| x;
}
