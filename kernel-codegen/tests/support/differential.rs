//! Kernels in the interpreter against their PTX in the emulator.

use kernel_codegen::{AbiParam, Compiled, Options, Target, compile};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor, run_ordered, run_with_tensors};
use kernel_core::ir::{BoundFunc, DType, Func, ParamKind};
use kernel_core::num::{F8E4M3, F8E5M2};

use super::emulator::{Launch, Memory};

/// How results are compared.
#[derive(Clone, Copy, Debug)]
pub enum Agreement {
    /// Bit for bit.
    Exact,
    /// f32 and f16 within this relative error: where the GPU's approximations, or the order of a sum, have a say.
    Within(f64),
}

/// Runs a kernel in the interpreter, placed in the interpreter, and as PTX with several numbers of warps and orders of
/// threads, and compares the buffers.
pub fn agrees(kernel: &BoundFunc, buffers: &[HostBuffer], scalars: &[i32], grid: u32, agreement: Agreement) {
    agrees_with_tensors(kernel, buffers, &[], scalars, grid, agreement);
}

/// As [`agrees`], of a kernel with descriptors: each takes the next buffer, seen as the next of `tensors`.
pub fn agrees_with_tensors(
    kernel: &BoundFunc,
    buffers: &[HostBuffer],
    tensors: &[HostTensor],
    scalars: &[i32],
    grid: u32,
    agreement: Agreement,
) {
    agrees_in_warps(&[1, 2, 4, 8], kernel, &Given { buffers, tensors, scalars }, grid, agreement);
}

/// As [`agrees_with_tensors`], with these numbers of warps.
pub fn agrees_in_warps(warps: &[u32], kernel: &BoundFunc, given: &Given<'_>, grid: u32, agreement: Agreement) {
    let Given { buffers, tensors, scalars } = *given;
    let mut expected = buffers.to_vec();
    let fault = run_with_tensors(kernel, &mut expected, tensors, &host(scalars), [grid, 1, 1]).err();
    for &num_warps in warps {
        let options = Options { num_warps, ..Options::default() };
        let compiled = compile(kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
        let mut placed = buffers.to_vec();
        let scalars_there = host(scalars);
        let placed_fault = run_ordered(&compiled.placed, &mut placed, tensors, &scalars_there, [grid, 1, 1]).err();
        assert_eq!(fault.is_some(), placed_fault.is_some(), "{fault:?} {placed_fault:?}");
        for (want, got) in expected.iter().zip(&placed) {
            compare(want, got, agreement, "placed");
        }
        for seed in 1..4 {
            let (found, record) = emulate_with_tensors(kernel, &compiled, given, grid, seed);
            for (index, (want, got)) in expected.iter().zip(&found).enumerate() {
                compare(want, got, agreement, &format!("buffer {index}, {num_warps} warps\n{}", compiled.report));
            }
            assert_eq!(record[0] != 0, fault.is_some(), "a report where the interpreter has {fault:?}");
        }
    }
}

fn host(scalars: &[i32]) -> Vec<HostScalar> {
    scalars.iter().map(|&scalar| scalar.into()).collect()
}

/// Runs a compiled kernel in the emulator; returns the buffers and the report record.
pub fn emulate(
    kernel: &BoundFunc,
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
    pub buffers: &'a [HostBuffer],
    pub tensors: &'a [HostTensor],
    pub scalars: &'a [i32],
}

/// As [`emulate`], of a kernel with descriptors.
pub fn emulate_with_tensors(
    kernel: &BoundFunc,
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
    let number = |wanted: kernel_core::ir::ParamId, is: fn(&ParamKind) -> bool| {
        func.params[..wanted.index()].iter().filter(|param| is(&param.kind)).count()
    };
    let is_buffer = |kind: &ParamKind| matches!(kind, ParamKind::Ptr { .. } | ParamKind::Desc { .. });
    let is_tensor = |kind: &ParamKind| matches!(kind, ParamKind::Desc { .. });
    let is_scalar = |kind: &ParamKind| matches!(kind, ParamKind::Scalar(_));
    let params = compiled.abi.iter().map(|param| match param {
        AbiParam::Buffer(id) => addresses[number(*id, is_buffer)],
        AbiParam::Scalar(id, _) => scalars[number(*id, is_scalar)] as u32 as u64,
        AbiParam::Length(id) => buffers[number(*id, is_buffer)].len() as u64,
        AbiParam::Shape(id, axis) => tensors[number(*id, is_tensor)].shape[usize::from(*axis)],
        AbiParam::Stride(id, axis) => tensors[number(*id, is_tensor)].strides[usize::from(*axis)],
        AbiParam::TensorMap(_) => panic!("the emulator has no tensor copies"),
        AbiParam::ReportSlot => record,
        AbiParam::Scratch => 0,
    });
    let launch = Launch { compiled, params: params.collect(), grid: [grid, 1, 1], seed };
    launch.run(&mut memory);
    let found =
        buffers.iter().zip(&addresses).map(|(buffer, &address)| from_bytes(buffer.dtype(), memory.bytes(address)));
    (found.collect(), memory.bytes(record).to_vec())
}

macro_rules! by_type {
    ($($variant:ident: $ty:ty, |$x:ident| $number:expr;)*) => {
        fn bytes(buffer: &HostBuffer) -> Vec<u8> {
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

        fn numbers(buffer: &HostBuffer) -> Vec<f64> {
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

/// Panics where two buffers do not agree.
pub fn compare(want: &HostBuffer, got: &HostBuffer, agreement: Agreement, what: &str) {
    let tolerance = match agreement {
        Agreement::Exact if want.dtype().is_float() => 0.0,
        Agreement::Exact => return assert!(bytes(want) == bytes(got), "{what}\n{}", differences(want, got)),
        Agreement::Within(tolerance) => tolerance,
    };
    for (index, (w, g)) in numbers(want).into_iter().zip(numbers(got)).enumerate() {
        // NaNs have many bit patterns.
        let close = w == g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= tolerance * w.abs().max(1e-6);
        assert!(close, "element {index}: {w} expected, {g} found; {what}");
    }
}

fn differences(want: &HostBuffer, got: &HostBuffer) -> String {
    let pairs = numbers(want).into_iter().zip(numbers(got)).enumerate();
    let wrong: Vec<String> = pairs
        .filter(|(_, (w, g))| w.to_bits() != g.to_bits())
        .map(|(i, (w, g))| format!("[{i}] {w} expected, {g} found"))
        .collect();
    format!("{} differ, first {:?}", wrong.len(), &wrong[..wrong.len().min(8)])
}

/// Numbers that look random.
pub fn noise(len: usize, salt: u32) -> impl Iterator<Item = i32> {
    (0..len as u32).map(move |i| (i.wrapping_add(salt).wrapping_mul(2_654_435_769) >> 7) as i32 % 1000)
}

pub fn floats(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).map(|x| x as f32 / 64.0 - 4.0).collect::<Vec<f32>>().into()
}

pub fn ints(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).collect::<Vec<i32>>().into()
}

pub fn zeros(len: usize) -> HostBuffer {
    vec![0f32; len].into()
}
