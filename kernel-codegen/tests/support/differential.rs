//! Kernels in the interpreter against their PTX in the emulator.

use kernel_codegen::{Options, Target, compile};
use kernel_core::interp::{HostBuffer, HostScalar, HostTensor, run_ordered, run_with_tensors};
use kernel_core::ir::Bound;
#[allow(unused_imports, reason = "each test file uses a part")]
pub use tilewright_emulator::{Given, emulate, emulate_placed, emulate_with_tensors, from_bytes};
use tilewright_emulator::{bytes, numbers};

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
pub fn agrees(kernel: &Bound, buffers: &[HostBuffer], scalars: &[i32], grid: u32, agreement: Agreement) {
    agrees_with_tensors(kernel, buffers, &[], scalars, grid, agreement);
}

/// As [`agrees`], of a kernel with descriptors: each takes the next buffer, seen as the next of `tensors`.
pub fn agrees_with_tensors(
    kernel: &Bound,
    buffers: &[HostBuffer],
    tensors: &[HostTensor],
    scalars: &[i32],
    grid: u32,
    agreement: Agreement,
) {
    agrees_in_warps(&[1, 2, 4, 8], kernel, &Given { buffers, tensors, scalars }, grid, agreement);
}

/// As [`agrees_with_tensors`], with these numbers of warps.
pub fn agrees_in_warps(warps: &[u32], kernel: &Bound, given: &Given<'_>, grid: u32, agreement: Agreement) {
    agrees_with_options(warps, &Options::default(), kernel, given, grid, agreement);
}

/// As [`agrees_in_warps`], with options whose number of warps does not count.
pub fn agrees_with_options(
    warps: &[u32],
    options: &Options,
    kernel: &Bound,
    given: &Given<'_>,
    grid: u32,
    agreement: Agreement,
) {
    let Given { buffers, tensors, scalars } = *given;
    let mut expected = buffers.to_vec();
    let fault = run_with_tensors(kernel, &mut expected, tensors, &host(scalars), [grid, 1, 1]).err();
    for &num_warps in warps {
        let options = Options { num_warps, ..options.clone() };
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
                compare(want, got, agreement, &format!("buffer {index}, {num_warps} warps\n{}", compiled.report()));
            }
            assert_eq!(record[0] != 0, fault.is_some(), "a report where the interpreter has {fault:?}");
        }
    }
}

fn host(scalars: &[i32]) -> Vec<HostScalar> {
    scalars.iter().map(|&scalar| scalar.into()).collect()
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
