//! What a launch costs the host, and what a replayed graph costs, against the driver's own calls, cudarc and Triton.
//!
//! ```text
//! cargo bench -p tilewright-bench --bench launch                     # writes results/launch.csv
//! cargo bench -p tilewright-bench --bench launch -- --python python3 # with Triton, in a process of its own
//! ```
//!
//! The kernel is one program on two short vectors, so the GPU is done before the host has made the next launch.
//! Launches are timed in batches, all contenders in turn, and the stream is empty before each batch. A graph is timed
//! from its replay until the GPU has run it.

use std::ffi::{CString, c_void};
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, sys};
use tilewright::prelude::*;
use tilewright::tune::Tuned;
use tilewright_bench::{Failure, median, report};

/// Elements of the vectors, and of the tile.
const N: usize = 128;
/// Launches per batch: fewer than the driver queues before it makes the host wait.
const BATCH: usize = 400;
/// Batches per contender.
const ROUNDS: usize = 101;
/// Launches in a graph.
const NODES: usize = 1000;
/// Replays per timing of a graph.
const REPLAYS: usize = 4;
/// Buckets of sizes in the table by which launches are configured.
const BUCKETS: usize = 16;
/// Triton's side. It must be a file for Triton to find its kernel's source.
const SCRIPT: &str = include_str!("peers/launch.py");

/// `out = x * scale + y`
#[kernel]
pub fn axpy<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32, scale: f32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) * scale + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// The same without checks.
#[kernel]
pub unsafe fn axpy_unchecked<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32, scale: f32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) * scale + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}

/// A kernel that can fail, so that each launch has a record: the elements are chosen by data.
#[kernel]
pub fn gather<const BLOCK: usize>(x: Ptr<f32>, indices: Ptr<i32>, out: PtrMut<f32>, n: i32, scale: f32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let chosen = load(indices + offsets, mask = mask);
    store(out + offsets, load(x + chosen, mask = mask) * scale, mask = mask);
}

/// The code of a kernel, loaded by the driver without the runtime, and the values of its parameters.
struct Raw {
    function: sys::CUfunction,
    threads: u32,
    values: [u64; 5],
}

impl Raw {
    fn load(ptx: &str, threads: u32, values: [u64; 5]) -> Result<Raw, Failure> {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (image, entry) = (CString::new(ptx)?, CString::new(entry(ptx)?)?);
        // SAFETY: the texts end in zero, a context is current. The module is never unloaded.
        unsafe {
            sys::cuModuleLoadData(&mut module, image.as_ptr().cast()).result()?;
            sys::cuModuleGetFunction(&mut function, module, entry.as_ptr()).result()?;
        }
        Ok(Raw { function, threads, values })
    }

    /// As many launches, whose parameters are packed once.
    ///
    /// # Safety
    /// The values are those of the function's parameters, its buffers are not in use, and the stream is alive.
    unsafe fn launch(&mut self, stream: sys::CUstream, launches: usize) -> Result<(), Failure> {
        let mut pointers = self.values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        let (params, extra) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        for _ in 0..launches {
            // SAFETY: promised by the caller.
            unsafe {
                sys::cuLaunchKernel(self.function, 1, 1, 1, self.threads, 1, 1, 0, black_box(stream), params, extra)
            }
            .result()?;
        }
        Ok(())
    }
}

impl Raw {
    /// As [`Raw::launch`], by the newer call.
    ///
    /// # Safety
    /// As for [`Raw::launch`].
    unsafe fn launch_ex(&mut self, stream: sys::CUstream, launches: usize) -> Result<(), Failure> {
        let mut pointers = self.values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        for _ in 0..launches {
            let config = sys::CUlaunchConfig {
                gridDimX: 1,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: self.threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: black_box(stream),
                attrs: std::ptr::null_mut(),
                numAttrs: 0,
            };
            // SAFETY: promised by the caller.
            unsafe { sys::cuLaunchKernelEx(&config, self.function, pointers.as_mut_ptr(), std::ptr::null_mut()) }
                .result()?;
        }
        Ok(())
    }
}

/// The name of the kernel in PTX.
fn entry(ptx: &str) -> Result<&str, Failure> {
    let rest = ptx.split(".entry ").nth(1).ok_or("the PTX has no entry")?;
    Ok(rest.split(['(', '\n', ' ']).next().unwrap_or(rest))
}

/// Threads per program, as the PTX says.
fn threads(ptx: &str) -> Result<u32, Failure> {
    let directive = [".reqntid ", ".maxntid "].iter().find_map(|d| ptx.split(d).nth(1)).ok_or("no thread count")?;
    let digits: String = directive.trim_start().chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

/// The driver's graph of the same launches, by capture of a stream.
struct RawGraph {
    exec: sys::CUgraphExec,
    stream: sys::CUstream,
}

impl RawGraph {
    fn capture(raw: &mut Raw, stream: sys::CUstream) -> Result<RawGraph, Failure> {
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and idle; the values are those of the function.
        unsafe {
            sys::cuStreamBeginCapture_v2(stream, mode).result()?;
            raw.launch(stream, NODES)?;
            sys::cuStreamEndCapture(stream, &mut graph).result()?;
            sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result()?;
            sys::cuGraphUpload(exec, stream).result()?;
        }
        Ok(RawGraph { exec, stream })
    }

    fn replay(&self) -> Result<(), Failure> {
        // SAFETY: both are alive, and the graph's buffers too.
        Ok(unsafe { sys::cuGraphLaunch(self.exec, self.stream) }.result()?)
    }
}

/// What cudarc's launcher is given.
struct Cudarc {
    stream: Arc<CudaStream>,
    function: CudaFunction,
    threads: u32,
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
    out: CudaSlice<f32>,
}

impl Cudarc {
    fn new(ctx: &Arc<CudaContext>, stream: &Arc<CudaStream>, ptx: &str) -> Result<Cudarc, Failure> {
        let module = ctx.load_module(cudarc::nvrtc::Ptx::from_src(ptx))?;
        let buffer = || stream.alloc_zeros(N);
        let function = module.load_function(entry(ptx)?)?;
        Ok(Cudarc {
            stream: stream.clone(),
            function,
            threads: threads(ptx)?,
            x: buffer()?,
            y: buffer()?,
            out: buffer()?,
        })
    }

    fn launch(&mut self, n: i32, scale: f32) -> Result<(), Failure> {
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (self.threads, 1, 1), shared_mem_bytes: 0 };
        let mut builder = self.stream.launch_builder(&self.function);
        builder.arg(&self.x).arg(&self.y).arg(&mut self.out).arg(&n).arg(&scale);
        // SAFETY: the arguments are those of the function; the mask keeps accesses inside.
        unsafe { builder.launch(config)? };
        Ok(())
    }
}

/// Somebody who is timed.
struct Contender<'a> {
    name: String,
    /// Does its work so often.
    work: Box<dyn FnMut(usize) -> Result<(), Failure> + 'a>,
    /// Nanoseconds for doing it once, by round.
    times: Vec<f64>,
}

impl<'a> Contender<'a> {
    fn new(name: &str, work: impl FnMut(usize) -> Result<(), Failure> + 'a) -> Self {
        Contender { name: name.to_string(), work: Box::new(work), times: Vec::new() }
    }

    /// One that does its work by a call.
    fn each(name: &str, mut work: impl FnMut() -> Result<(), Failure> + 'a) -> Self {
        Contender::new(name, move |times| (0..times).try_for_each(|_| work()))
    }
}

/// What ends a timing.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// The host has made the calls.
    Called,
    /// The GPU has done the work.
    Done,
}

/// Times all contenders in turn, beginning with another one in each round.
fn race(
    device: &Device,
    stream: &CudaStream,
    contenders: &mut [Contender<'_>],
    count: usize,
    until: Until,
) -> Result<(), Failure> {
    for round in 0..=ROUNDS {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let contender = &mut contenders[index];
            let start = Instant::now();
            (contender.work)(count)?;
            let called = start.elapsed();
            // It is on one of them.
            device.synchronize()?;
            stream.synchronize()?;
            let time = if until == Until::Called { called } else { start.elapsed() };
            // The first round warms up.
            if round > 0 {
                contender.times.push(time.as_secs_f64() * 1e9 / count as f64);
            }
        }
    }
    Ok(())
}

/// Rows of results: what was timed, who, nanoseconds, and the median of the ratios to the first in the same round.
fn rows(out: &mut String, what: &str, contenders: Vec<Contender<'_>>) {
    let Some(first) = contenders.first().map(|contender| contender.times.clone()) else { return };
    for mut contender in contenders {
        let mut ratios: Vec<f64> = contender.times.iter().zip(&first).map(|(time, first)| time / first).collect();
        let (time, ratio) = (median(&mut contender.times), median(&mut ratios));
        let _ = writeln!(out, "{what},{},{time:.1},{ratio:.4}", contender.name);
    }
}

/// What Triton's side prints, run by that Python.
fn triton(python: &str) -> Result<String, Failure> {
    let file = std::env::temp_dir().join(format!("tilewright-bench-launch-{}.py", std::process::id()));
    std::fs::write(&file, SCRIPT)?;
    let output = Command::new(python).arg(&file).args([BATCH, ROUNDS].map(|n| n.to_string())).output();
    std::fs::remove_file(&file)?;
    let output = output.map_err(|error| format!("{python} does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Triton's rows, if a Python to run it was named.
fn triton_rows(out: &mut String, driver: f64) {
    let Some(python) = report::argument("--python") else { return };
    let printed = triton(&python).unwrap_or_else(|error| {
        eprintln!("Triton was not timed: {error}");
        String::new()
    });
    for line in printed.lines() {
        if let Some((name, Ok(time))) = line.split_once(',').map(|(name, time)| (name, time.parse::<f64>())) {
            let _ = writeln!(out, "launch,{name},{time:.1},{:.4}", time / driver);
        }
    }
}

/// The buffers of one contender.
struct Vectors {
    x: Buffer<f32>,
    y: Buffer<f32>,
    out: Buffer<f32>,
}

impl Vectors {
    fn new(device: &Device) -> Result<Vectors, Error> {
        Ok(Vectors { x: device.full(N, 1.0)?, y: device.full(N, 2.0)?, out: device.zeros(N)? })
    }

    fn raw_values(&self, n: i32, scale: f32) -> [u64; 5] {
        let address = |buffer: &Buffer<f32>| buffer.raw().address.get();
        [address(&self.x), address(&self.y), address(&self.out), u64::from(n as u32), u64::from(scale.to_bits())]
    }

    /// That the kernel has run.
    fn check(&self) -> Result<(), Failure> {
        let out = self.out.to_vec()?;
        if out.iter().all(|value| *value == 5.0) { Ok(()) } else { Err(format!("wrong results: {out:?}").into()) }
    }
}

/// The code of [`axpy`] that a launch on these vectors runs.
fn raw(device: &Device, vectors: &mut Vectors, n: i32, scale: f32) -> Result<(Raw, String), Failure> {
    let target = device.target().ok_or("this GPU is too old")?;
    let compiled = axpy::<N>(&vectors.x, &vectors.y, &mut vectors.out, n, scale).grid(1).compile(target)?;
    let ptx = compiled.ptx().to_string();
    device.default_stream().bind()?;
    let raw = Raw::load(&ptx, threads(&ptx)?, vectors.raw_values(n, scale))?;
    device.synchronize()?;
    Ok((raw, ptx))
}

/// A table in which the vectors' length is one of many, with what a launch without it would have.
fn table() -> Tuned<AxpyConsts> {
    let mut tuned = Tuned::new();
    (0..BUCKETS).for_each(|bucket| tuned.insert(&[N << bucket], AxpyConsts { BLOCK: N }.into()));
    tuned
}

/// What one launch costs the host.
fn launches(device: &Device, ctx: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Result<String, Failure> {
    let (n, scale) = (N as i32, 3.0f32);
    let (mut vectors, mut safe, mut unchecked) = (Vectors::new(device)?, Vectors::new(device)?, Vectors::new(device)?);
    let (indices, mut chosen) = (device.zeros::<i32>(N)?, device.zeros::<f32>(N)?);
    let (tuned, mut looked) = (table(), Vectors::new(device)?);
    let mut newer = Vectors::new(device)?;
    let (mut halves, beside) = (device.zeros::<f32>(2 * N)?, Vectors::new(device)?);
    let (mut half, _other) = halves.split_at_mut(N)?;
    let (mut raw_ex, _) = raw(device, &mut newer, n, scale)?;
    let (mut raw, ptx) = raw(device, &mut vectors, n, scale)?;
    let mut cudarc = Cudarc::new(ctx, stream, &ptx)?;
    let cu_stream = stream.cu_stream();
    let x = device.full(N, 1.0f32)?;
    let mut contenders = vec![
        // SAFETY: the values are those of the function; only this contender uses the buffers.
        Contender::new("driver", |launches| unsafe { raw.launch(cu_stream, launches) }),
        Contender::each("tilewright safe", || {
            Ok(axpy::<N>(black_box(&safe.x), &safe.y, &mut safe.out, n, scale).grid(1).launch(device)?)
        }),
        Contender::each("tilewright safe by a table", || {
            let call = axpy::<N>(black_box(&looked.x), &looked.y, &mut looked.out, n, scale);
            Ok(call.tuned(&tuned, black_box(&[N])).grid(1).launch(device)?)
        }),
        Contender::each("tilewright unsafe", || {
            let call = axpy_unchecked::<N>(black_box(&unchecked.x), &unchecked.y, &mut unchecked.out, n, scale);
            // SAFETY: the mask keeps every access inside the buffers of `n` elements.
            unsafe { call.grid(1).launch(device)? };
            Ok(())
        }),
        Contender::each("tilewright safe with record", || {
            Ok(gather::<N>(black_box(&x), &indices, &mut chosen, n, scale).grid(1).launch(device)?)
        }),
        Contender::each("tilewright safe into a part of a split buffer", || {
            Ok(axpy::<N>(black_box(&beside.x), &beside.y, half.reborrow(), n, scale).grid(1).launch(device)?)
        }),
        Contender::each("cudarc", || cudarc.launch(n, scale)),
        // SAFETY: as for the first.
        Contender::new("driver by cuLaunchKernelEx", |launches| unsafe { raw_ex.launch_ex(cu_stream, launches) }),
    ];
    race(device, stream, &mut contenders, BATCH, Until::Called)?;
    let driver = median(&mut contenders[0].times.clone());
    let mut out = String::new();
    rows(&mut out, "launch", contenders);
    triton_rows(&mut out, driver);
    print!("{out}");
    [&vectors, &safe, &looked, &unchecked, &newer].into_iter().try_for_each(Vectors::check)?;
    Ok(out)
}

/// What a graph of many launches costs, until the GPU has run it.
fn graphs(device: &Device, stream: &Arc<CudaStream>) -> Result<String, Failure> {
    let (n, scale) = (N as i32, 3.0f32);
    // The same memory for both: with other addresses launches that follow each other take up to 2 % longer.
    let mut vectors = Vectors::new(device)?;
    let (mut raw, _) = raw(device, &mut vectors, n, scale)?;
    let driver = RawGraph::capture(&mut raw, stream.cu_stream())?;
    let Vectors { x, y, out } = &mut vectors;
    let graph = device
        .capture(|| (0..NODES).try_for_each(|_| axpy::<N>(&*x, &*y, &mut *out, n, scale).grid(1).launch(device)))?;
    let (x, indices, mut chosen) = (device.full(N, 1.0f32)?, device.zeros::<i32>(N)?, device.zeros::<f32>(N)?);
    let with_records = device.capture(|| {
        (0..NODES).try_for_each(|_| gather::<N>(&x, &indices, &mut chosen, n, scale).grid(1).launch(device))
    })?;
    let mut contenders = vec![
        Contender::each("driver", || driver.replay()),
        Contender::each("tilewright", || Ok(graph.replay()?)),
        Contender::each("tilewright with records", || Ok(with_records.replay()?)),
    ];
    race(device, stream, &mut contenders, REPLAYS, Until::Done)?;
    let mut out = String::new();
    rows(&mut out, &format!("graph of {NODES} launches"), contenders);
    let mut contenders =
        vec![Contender::each("driver", || driver.replay()), Contender::each("tilewright", || Ok(graph.replay()?))];
    race(device, stream, &mut contenders, 1, Until::Called)?;
    rows(&mut out, &format!("host's time of a graph of {NODES} launches"), contenders);
    print!("{out}");
    vectors.check()?;
    Ok(out)
}

fn main() -> Result<(), Failure> {
    let device = Device::best()?;
    let Some(ctx) = device.cuda_context() else {
        println!("skipped: launches are timed on a CUDA device");
        return Ok(());
    };
    // Launches on a stream of ours ask whether somebody captures it where its handle was handed out.
    let stream = &ctx.new_stream()?;
    let mut results = format!("# {}\nwhat,contender,nanoseconds,time relative to the row's first\n", report::machine());
    print!("{results}");
    results += &launches(&device, ctx, stream)?;
    results += &graphs(&device, stream)?;
    report::write("launch.csv", &results)?;
    Ok(())
}
