//! Counters and samples on a GPU, of kernels of which it is known what they do. Elsewhere they are errors that say why.

use tilewright::prelude::*;
use tilewright::profile::{self, COUNTERS, LineSamples, Profile, Samples};
use tilewright_tests::devices;

use super::profiles::turn;

/// The line before the kernel.
const ADD: u32 = line!();
#[kernel]
fn add<const BLOCK: usize>(a: Ptr<f32>, b: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let sum = load(a + i, mask = i < n) + load(b + i, mask = i < n);
    store(out + i, sum, mask = i < n);
}

/// The line before the function.
const SQUARED: u32 = line!();
#[device]
fn squared<const N: usize>(x: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    x * x
}

/// The line before the kernel.
const NORM: u32 = line!();
#[kernel]
fn normalise<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let column = arange(0, BLOCK);
    let row = load(x + program_id(0) * BLOCK + column);
    let scale = rsqrt(sum(squared(row), axis = 0) / 8192.0);
    store(out + program_id(0) * BLOCK + column, row * scale);
}

/// The line before the kernel.
const PRODUCT: u32 = line!();
#[kernel]
fn product<const BM: usize, const BN: usize, const BK: usize>(
    a: TensorDesc<f16, { [BM, BK] }>,
    b: TensorDesc<f16, { [BK, BN] }>,
    c: TensorDescMut<f16, { [BM, BN] }>,
    k: i32,
) {
    let (i, j) = (program_id(0) * BM, program_id(1) * BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
    }
    c.store([i, j], acc as f16);
}

/// What errors say where the driver lets nobody count, CUPTI or what it needs is not installed, or is too old.
const MISSING: [&str; 5] =
    ["ERR_NVGPUCTRPERM", "cannot open shared object file", "LD_LIBRARY_PATH", "is too old", "undefined symbol"];

/// The first GPU, if there is one on which this may be done.
fn gpu(may: impl FnOnce(&Device) -> Result<((), Profile), Error>) -> Option<Device> {
    let device = devices::gpu()?.clone();
    match may(&device) {
        Ok(_) => Some(device),
        Err(why) if MISSING.iter().any(|missing| why.to_string().contains(missing)) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn gpu_that_counts() -> Option<Device> {
    gpu(|device| profile::counters(device, COUNTERS, || Ok(())))
}

fn gpu_that_samples() -> Option<Device> {
    gpu(|device| profile::samples(device, || Ok(())))
}

fn launch_add(device: &Device, (a, b, out): (&Buffer<f32>, &Buffer<f32>, &mut Buffer<f32>)) -> Result<(), Error> {
    let n = a.len();
    add::<1024>(a, b, out, n as i32).grid(n.div_ceil(1024)).line_info(true).launch(device)
}

/// The median of a counter of a kernel.
fn counter(profile: &Profile, kernel: &str, name: &str) -> f64 {
    let index = profile.counters.iter().position(|counted| counted == name).expect("it was counted");
    profile.rows().iter().find(|row| row.name == kernel).expect("it ran").counters[index]
}

const READ: &str = "fbpa__dram_read_bytes.sum";
const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";

#[test]
fn an_add_reads_its_inputs_from_memory_once() {
    let _turn = turn();
    let Some(device) = gpu_that_counts() else { return };
    // More than a cache holds.
    let n = 64 << 20;
    let (a, b) = (device.full(n, 1.0f32).expect("it fits"), device.full(n, 2.0f32).expect("it fits"));
    let mut out = device.zeros::<f32>(n).expect("it fits");
    let work = || (0..3).try_for_each(|_| launch_add(&device, (&a, &b, &mut out)));
    let ((), profile) = profile::counters(&device, COUNTERS, work).expect("it counts");
    println!("{profile}");
    let (read, bytes) = (counter(&profile, "add", READ), (2 * n * 4) as f64);
    assert!((read / bytes - 1.0).abs() < 0.03, "{read} of {bytes} bytes");
    assert_eq!(counter(&profile, "add", TENSOR), 0.0);
    assert_eq!(profile.kernels.len(), 3, "each launch once");
    assert_eq!(out.to_vec().expect("it was computed"), vec![3.0; n]);
    // Two reads and a write: neither faster than memory can be, nor thirty times slower.
    let seconds = profile.rows()[0].median_ns() as f64 / 1e9;
    let rate = (3 * n * 4) as f64 / seconds;
    assert!((1e11..1e13).contains(&rate), "{rate} bytes a second");
}

#[test]
fn products_keep_the_matrix_units_busy() {
    let _turn = turn();
    let Some(device) = gpu_that_counts() else { return };
    let size = 2048;
    let (a, b) = (device.zeros::<f16>(size * size), device.zeros::<f16>(size * size));
    let (a, b, mut c) = (a.expect("it fits"), b.expect("it fits"), device.zeros::<f16>(size * size).expect("it fits"));
    let names = [TENSOR, "sm__inst_executed_pipe_tensor.sum"];
    let work = || launch_product(&device, size, (&a, &b, &mut c));
    let ((), profile) = profile::counters(&device, &names, work).expect("it counts");
    println!("{profile}");
    assert!(counter(&profile, "product", names[1]) > 0.0 && counter(&profile, "product", TENSOR) > 10.0, "{profile}");
}

fn launch_product(
    device: &Device,
    size: usize,
    (a, b, c): (&Buffer<f16>, &Buffer<f16>, &mut Buffer<f16>),
) -> Result<(), Error> {
    let (a, b) = (TensorDesc::new(a.slice(..)?, [size, size])?, TensorDesc::new(b.slice(..)?, [size, size])?);
    let mut c = TensorDescMut::new(c.slice_mut(..)?, [size, size])?;
    product::<128, 128, 64>(&a, &b, &mut c, size as i32)
        .grid([size / 128, size / 128])
        .num_warps(4)
        .num_stages(4)
        .line_info(true)
        .launch(device)
}

#[test]
fn a_counter_that_there_is_not_is_named_and_nothing_runs() {
    let _turn = turn();
    let Some(device) = gpu_that_counts() else { return };
    let never = || -> Result<(), Error> { panic!("nothing runs") };
    let error = profile::counters(&device, &[READ, "bytes_that_nobody_counts.sum"], never).unwrap_err().to_string();
    assert!(error.contains("does not count `bytes_that_nobody_counts.sum`;"), "{error}");
}

#[test]
fn launches_that_fail_and_those_of_no_program_are_not_counted() {
    let _turn = turn();
    let Some(device) = gpu_that_counts() else { return };
    let (a, b) = (device.zeros::<f32>(4096).expect("it fits"), device.zeros::<f32>(4096).expect("it fits"));
    let mut out = device.zeros::<f32>(4096).expect("it fits");
    let ((), profile) = profile::counters(&device, &[READ], || {
        add::<1024>(&a, &b, &mut out, 4096).grid(0).launch(&device)?;
        add::<1024>(&a, &b, &mut out, 4096).grid(4).launch(&device)
    })
    .expect("it counts");
    assert_eq!(profile.kernels.len(), 1, "{profile}");
    let short = device.zeros::<f32>(16).expect("it fits");
    let failed =
        profile::counters(&device, &[READ], || add::<1024>(&short, &b, &mut out, 4096).grid(4).launch(&device));
    assert!(failed.is_err(), "the error of the launch comes out");
    assert!(profile::counters(&device, &[READ], || Ok(())).is_ok(), "the profile before has ended");
}

fn samples(device: &Device, mut work: impl FnMut() -> Result<(), Error>) -> Samples {
    work().expect("it runs");
    let ((), profile) = profile::samples(device, || (0..50).try_for_each(|_| work())).expect("it samples");
    println!("{profile}");
    assert!(!profile.kernels.is_empty(), "times are there too");
    profile.samples.expect("there are samples")
}

fn of<'s>(samples: &'s Samples, kernel: &str) -> Vec<&'s LineSamples> {
    let lines: Vec<&LineSamples> = samples.lines.iter().filter(|line| line.kernel == kernel).collect();
    assert!(lines.iter().map(|line| line.samples).sum::<u64>() > 100, "{samples}");
    for line in &lines {
        assert_eq!(line.file, file!(), "{line:?}");
    }
    lines
}

#[test]
fn samples_are_on_the_lines_of_kernels() {
    let _turn = turn();
    let Some(device) = gpu_that_samples() else { return };
    let n = 16 << 20;
    let (a, b) = (device.full(n, 1.0f32).expect("it fits"), device.full(n, 2.0f32).expect("it fits"));
    let mut out = device.zeros::<f32>(n).expect("it fits");
    let found = samples(&device, || launch_add(&device, (&a, &b, &mut out)));
    let lines = of(&found, "add");
    assert!(lines.iter().all(|line| (ADD + 1..=ADD + 6).contains(&line.line)), "{found}");
    // What waits for memory is the sum.
    assert_eq!(lines[0].line, ADD + 4, "{found}");
    assert_eq!(lines[0].main_stall().map(|(name, _)| name), Some("long_scoreboard"), "{found}");
    assert!(lines[0].text.starts_with("let sum = load(a + i"), "{found}");

    let (x, mut out) =
        (device.full(8192 * 4096, 0.5f32).expect("it fits"), device.zeros::<f32>(8192 * 4096).expect("it fits"));
    let found = samples(&device, || normalise::<8192>(&x, &mut out).grid(4096).line_info(true).launch(&device));
    let (lines, inside) =
        (of(&found, "normalise"), |line: u32, first: u32, len| (first + 1..=first + len).contains(&line));
    assert!(lines.iter().all(|at| inside(at.line, NORM, 7) || inside(at.line, SQUARED, 4)), "{found}");
    assert!(lines.iter().any(|at| inside(at.line, SQUARED, 4)), "a line of the function that was inlined: {found}");

    let size = 4096;
    let (a, b) = (device.zeros::<f16>(size * size), device.zeros::<f16>(size * size));
    let (a, b, mut c) = (a.expect("it fits"), b.expect("it fits"), device.zeros::<f16>(size * size).expect("it fits"));
    let found = samples(&device, || launch_product(&device, size, (&a, &b, &mut c)));
    assert!(of(&found, "product").iter().all(|at| inside(at.line, PRODUCT, 14)), "{found}");
}

/// Code that does not say which lines it is from has its samples all the same.
#[test]
fn samples_of_code_without_lines_are_those_of_its_kernel() {
    let _turn = turn();
    let Some(device) = gpu_that_samples() else { return };
    let x = device.full(1024 * 65536, 0.5f32).expect("it fits");
    let mut out = device.zeros::<f32>(1024 * 65536).expect("it fits");
    let found = samples(&device, || normalise::<1024>(&x, &mut out).grid(65536).line_info(false).launch(&device));
    let lines: Vec<_> = found.lines.iter().filter(|line| line.kernel == "normalise").collect();
    assert!(lines.len() == 1 && lines[0].line == 0 && lines[0].samples > 100, "{found}");
}

#[test]
fn the_cpu_counts_nothing_and_says_so() {
    let _turn = turn();
    let device = Device::cpu();
    for error in [
        profile::counters(&device, COUNTERS, || Ok(())).unwrap_err(),
        profile::samples(&device, || Ok(())).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("interpreter"), "{error}");
    }
    assert!(tilewright::profile(&device, || Ok(())).is_ok(), "the next profile can be made");
}
