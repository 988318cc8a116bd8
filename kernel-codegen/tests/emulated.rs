//! Generated code does what the interpreter does: the PTX runs on the CPU, thread by thread in random orders.

mod support;

use kernel_codegen::{AbiParam, Checks, Options, Target, compile};
use kernel_core::interp::{HostBuffer, HostScalar, run_kernel, run_placed};
use kernel_core::ir::{BoundFunc, DType, ParamKind};
use support::emulator::{Launch, Memory};

/// How results are compared.
#[derive(Clone, Copy)]
enum Agreement {
    /// Bit for bit.
    Exact,
    /// f32 and f16 within this relative error: where the GPU's approximations, or the order of a sum, have a say.
    Within(f64),
}

/// Runs a kernel in the interpreter, placed in the interpreter, and as PTX with several numbers of warps and orders of
/// threads, and compares the buffers.
fn agrees(text: &str, buffers: &[HostBuffer], scalars: &[i32], grid: u32, agreement: Agreement) {
    let kernel = support::kernel(text);
    let mut expected = buffers.to_vec();
    let fault = run_kernel(&kernel, &mut expected, &host(scalars), [grid, 1, 1]).err();
    for num_warps in [1, 2, 4, 8] {
        let options = Options { num_warps, ..Options::default() };
        let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap_or_else(|error| panic!("{error}"));
        let mut placed = buffers.to_vec();
        let placed_fault = run_placed(&compiled.placed, &mut placed, &host(scalars), [grid, 1, 1]).err();
        assert_eq!(fault.is_some(), placed_fault.is_some(), "{fault:?} {placed_fault:?}");
        for (want, got) in expected.iter().zip(&placed) {
            compare(want, got, agreement, "placed");
        }
        for seed in 1..4 {
            let (found, record) = emulate(&kernel, &compiled, buffers, scalars, grid, seed);
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

fn emulate(
    kernel: &BoundFunc,
    compiled: &kernel_codegen::Compiled,
    buffers: &[HostBuffer],
    scalars: &[i32],
    grid: u32,
    seed: u64,
) -> (Vec<HostBuffer>, Vec<u8>) {
    let mut memory = Memory::default();
    let addresses: Vec<u64> = buffers.iter().map(|buffer| memory.add(bytes(buffer))).collect();
    let record = memory.add(vec![0; 64]);
    let func = kernel.func();
    let number = |wanted: kernel_core::ir::ParamId, is: fn(&ParamKind) -> bool| {
        func.params[..wanted.index()].iter().filter(|param| is(&param.kind)).count()
    };
    let is_buffer = |kind: &ParamKind| matches!(kind, ParamKind::Ptr { .. });
    let is_scalar = |kind: &ParamKind| matches!(kind, ParamKind::Scalar(_));
    let params = compiled.abi.iter().map(|param| match param {
        AbiParam::Buffer(id) => addresses[number(*id, is_buffer)],
        AbiParam::Scalar(id, _) => scalars[number(*id, is_scalar)] as u32 as u64,
        AbiParam::Length(id) => buffers[number(*id, is_buffer)].len() as u64,
        AbiParam::ReportSlot => record,
        AbiParam::Scratch => 0,
    });
    let launch = Launch { compiled, params: params.collect(), grid: [grid, 1, 1], seed };
    launch.run(&mut memory);
    let found = buffers.iter().zip(&addresses).map(|(buffer, &address)| from_bytes(buffer.dtype(), memory.bytes(address)));
    (found.collect(), memory.bytes(record).to_vec())
}

macro_rules! by_type {
    ($($variant:ident: $ty:ty),*) => {
        fn bytes(buffer: &HostBuffer) -> Vec<u8> {
            match buffer.dtype() {
                $(DType::$variant => buffer.as_slice::<$ty>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect(),)*
                other => panic!("no buffers of {other} here"),
            }
        }

        fn from_bytes(dtype: DType, bytes: &[u8]) -> HostBuffer {
            match dtype {
                $(DType::$variant => HostBuffer::from(
                    bytes.chunks(size_of::<$ty>()).map(|x| <$ty>::from_le_bytes(x.try_into().unwrap())).collect::<Vec<_>>(),
                ),)*
                other => panic!("no buffers of {other} here"),
            }
        }
    };
}
by_type!(I32: i32, I64: i64, U8: u8, F16: half::f16, F32: f32, F64: f64);

fn compare(want: &HostBuffer, got: &HostBuffer, agreement: Agreement, what: &str) {
    let (want_bytes, got_bytes) = (bytes(want), bytes(got));
    let tolerance = match agreement {
        Agreement::Exact => return assert!(want_bytes == got_bytes, "{what}\n{}", differences(want, got)),
        Agreement::Within(tolerance) => tolerance,
    };
    for (index, (w, g)) in numbers(want).into_iter().zip(numbers(got)).enumerate() {
        let close = w == g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= tolerance * w.abs().max(1e-6);
        assert!(close, "element {index}: {w} expected, {g} found; {what}");
    }
}

fn numbers(buffer: &HostBuffer) -> Vec<f64> {
    match buffer.dtype() {
        DType::F32 => buffer.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        DType::F16 => buffer.as_slice::<half::f16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::I32 => buffer.as_slice::<i32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        other => panic!("no numbers of {other} here"),
    }
}

fn differences(want: &HostBuffer, got: &HostBuffer) -> String {
    let pairs = numbers(want).into_iter().zip(numbers(got)).enumerate();
    let wrong: Vec<String> = pairs.filter(|(_, (w, g))| w.to_bits() != g.to_bits()).map(|(i, (w, g))| format!("[{i}] {w} expected, {g} found")).collect();
    format!("{} differ, first {:?}", wrong.len(), &wrong[..wrong.len().min(8)])
}

/// Numbers that look random.
fn noise(len: usize, salt: u32) -> impl Iterator<Item = i32> {
    (0..len as u32).map(move |i| (i.wrapping_add(salt).wrapping_mul(2_654_435_769) >> 7) as i32 % 1000)
}

fn floats(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).map(|x| x as f32 / 64.0 - 4.0).collect::<Vec<f32>>().into()
}

fn ints(len: usize, salt: u32) -> HostBuffer {
    noise(len, salt).collect::<Vec<i32>>().into()
}

fn zeros(len: usize) -> HostBuffer {
    vec![0f32; len].into()
}

#[test]
fn add() {
    let buffers = [floats(2000, 1), floats(2000, 2), zeros(2000)];
    agrees(include_str!("kernels/add.tile"), &buffers, &[1984], 2, Agreement::Exact);
}

#[test]
fn softmax_of_a_row() {
    let text = include_str!("kernels/softmax.tile");
    agrees(text, &[floats(8192, 3), zeros(8192)], &[4096, 4000], 2, Agreement::Within(2e-5));
}

#[test]
fn softmax_of_several_rows() {
    let halves: Vec<half::f16> = noise(16 * 256, 4).map(|x| half::f16::from_f32(x as f32 / 128.0)).collect();
    let out = vec![half::f16::ZERO; 16 * 256];
    let scalars = [256, 240];
    agrees(include_str!("kernels/rows.tile"), &[halves.into(), out.into()], &scalars, 2, Agreement::Within(2e-3));
}

#[test]
fn transpose() {
    agrees(include_str!("kernels/transpose.tile"), &[floats(4096, 5), zeros(4096)], &[64], 1, Agreement::Exact);
}

#[test]
fn argmax_breaks_ties_the_same_way_in_every_thread() {
    let values: Vec<f32> = noise(4096, 6).map(|x| (x % 7) as f32).collect();
    agrees(include_str!("kernels/argmax.tile"), &[values.into(), vec![0i32; 4].into()], &[], 4, Agreement::Exact);
}

#[test]
fn gather_within_bounds() {
    let buffers = [floats(1024, 7), ints(2048, 8), zeros(2048)];
    agrees(include_str!("kernels/gather.tile"), &buffers, &[2000], 4, Agreement::Exact);
}

#[test]
fn gather_out_of_bounds_is_reported_and_the_other_lanes_go_on() {
    let mut index: Vec<i32> = noise(1024, 9).collect();
    (index[77], index[600]) = (-5, i32::MAX);
    let buffers = [floats(1008, 10), index.into(), zeros(1024)];
    agrees(include_str!("kernels/gather.tile"), &buffers, &[1024], 2, Agreement::Exact);
}

#[test]
fn sums_in_a_loop_with_atomics_and_a_condition() {
    let positive: Vec<f32> = noise(4 * 2048, 11).map(|x| x as f32).collect();
    let buffers = [positive.into(), zeros(4), vec![0i32; 1].into()];
    agrees(include_str!("kernels/rowsum.tile"), &buffers, &[2048], 4, Agreement::Exact);
}

#[test]
fn a_failed_assert_ends_the_program_and_is_reported() {
    let negative: Vec<f32> = noise(2 * 1024, 12).map(|x| -x as f32).collect();
    let buffers = [negative.into(), zeros(2), vec![0i32; 1].into()];
    agrees(include_str!("kernels/rowsum.tile"), &buffers, &[1024], 2, Agreement::Exact);
}

#[test]
fn scans_forwards_and_backwards() {
    agrees(include_str!("kernels/scan.tile"), &[ints(2048, 13), vec![0i32; 2048].into()], &[], 1, Agreement::Exact);
}

#[test]
fn a_row_is_added_to_all_rows_and_columns_are_summed() {
    let quarters: Vec<f32> = noise(4096, 14).map(|x| x as f32 / 4.0).collect();
    let buffers = [quarters.into(), floats(64, 15), zeros(4096), zeros(64)];
    agrees(include_str!("kernels/bias.tile"), &buffers, &[], 1, Agreement::Exact);
}

#[test]
fn memory_operations_happen_in_program_order() {
    agrees(include_str!("kernels/inplace.tile"), &[ints(1024, 16)], &[], 1, Agreement::Exact);
}

#[test]
fn control_may_depend_on_memory() {
    let buffers = [vec![5i32].into(), ints(256, 17)];
    agrees(include_str!("kernels/steer.tile"), &buffers, &[], 1, Agreement::Exact);
}

#[test]
fn every_access_can_be_checked() {
    let kernel = support::kernel(include_str!("kernels/add.tile"));
    let options = Options { checks: Checks::EveryAccess, ..Options::default() };
    let compiled = compile(&kernel, &Target::sm_90a(), &options).unwrap();
    // Vectors stay whole, because the lengths are multiples of 16.
    assert_eq!(support::count(&compiled.ptx, "ld.global.nc.v4.b32"), 4, "{}", compiled.ptx);
    let buffers = [floats(2048, 1), floats(1024, 2), zeros(2048)];
    let (found, record) = emulate(&kernel, &compiled, &buffers, &[2048], 2, 1);
    assert_eq!(record[0], 1);
    let site = &compiled.sites[record[4] as usize];
    assert_eq!(site.kind, kernel_codegen::SiteKind::Bounds { param: kernel_core::ir::ParamId::new(1), store: false });
    // The lanes inside the bounds were added.
    let (x, sums) = (buffers[0].as_slice::<f32>().unwrap(), found[2].as_slice::<f32>().unwrap());
    assert_eq!(sums[2000], x[2000]);
}
