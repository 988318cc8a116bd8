//! Which kernels take how long, and what NVIDIA's tools show of them.
//!
//! # How long
//!
//! [`profile()`](crate::profile()) runs a closure, and says which kernels of it took how long:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright::profile;
//!
//! #[kernel]
//! pub fn scale<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, factor: f32) {
//!     let i = program_id(0) * BLOCK + arange(0, BLOCK);
//!     store(out + i, load(x + i) * factor);
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let device = Device::best()?;
//!     let (x, mut out) = (device.full(4096, 1.0f32)?, device.zeros::<f32>(4096)?);
//!     let ((), profile) = profile(&device, || {
//!         let _range = profile::range("three times");
//!         for _ in 0..3 {
//!             scale::<1024>(&x, &mut out, 2.0).grid(4).launch(&device)?;
//!         }
//!         Ok(())
//!     })?;
//!     println!("{profile}");
//!     assert_eq!(profile.rows()[0].times_ns.len(), 3);
//!     profile.save_trace(std::env::temp_dir().join("trace.json"))
//! }
//! ```
//!
//! `cargo run --release --example 10_profiling` prints this on an H100:
//!
//! ```text
//! cuda:0, NVIDIA H100 80GB HBM3: 6.325 ms, of which kernels ran 0.906 ms
//! times of kernels by CUPTI (API 130001)
//! kernel                                  runs  total us     %  median us  least   most   grid  threads  regs  shared
//! bias_gelu  examples/10_profiling.rs:31     5    453.32  50.1      90.98  88.74  91.52  32768      128    32       0
//! softmax  examples/10_profiling.rs:39       5    452.40  49.9      90.43  89.92  91.04   8192      256    40      64
//! ```
//!
//! The times are the GPU's own where CUPTI is installed: with a CUDA toolkit, or as the Python package
//! `nvidia-cuda-cupti`, whose folder `LD_LIBRARY_PATH` is to name. They are of all kernels in the
//! device's context, of other libraries too. The first profile of a process has a few milliseconds of CUPTI's in its
//! first line. Without CUPTI times are those between events around each launch of a kernel of this library, which are about
//! three microseconds longer, and on the CPU those of the host's clock. The second line says which.
//!
//! [`Profile::save_trace`](crate::profile::Profile::save_trace) writes a trace that <https://ui.perfetto.dev> and
//! `chrome://tracing` open, with a row for each stream and each thread's ranges;
//! [`Profile::save_csv`](crate::profile::Profile::save_csv) has a line for each run. A profile says how long kernels took. To
//! know how long one takes, with the caches cold and against others, ask [`bench`](crate::bench).
//!
//! # How long, and how fast
//!
//! [`Bench`](crate::bench::Bench) runs pieces of work in turns, with caches emptied before each run, and gives medians,
//! quantiles and rates. Launches of a few microseconds are replayed from a graph, `.graph(20)`, so that the host takes no part.
//! A [`Report`](crate::bench::Report) has what was measured at several sizes: as a table, as CSV, and as a picture.
//!
//! ```
//! use tilewright::bench::{Bench, Rate, Report};
//! use tilewright::prelude::*;
//!
//! /// out[i] = x[i] * by
//! #[kernel]
//! pub fn scale<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, by: T, n: i32) {
//!     let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
//!     store(out + offsets, load(x + offsets, mask = offsets < n) * by, mask = offsets < n);
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let device = Device::best()?;
//!     let mut bench = Bench::new(&device)?.rounds(5).graph(4);
//!     let mut report = Report::new("Scaling", "elements", Rate::Bytes);
//!     for n in [1 << 10, 1 << 12] {
//!         let (x, mut small, mut large) = (device.zeros::<f32>(n)?, device.zeros::<f32>(n)?, device.zeros::<f32>(n)?);
//!         let mut by_256 = || scale::<_, 256>(&x, &mut small, 2.0, n as i32).grid(n.div_ceil(256)).launch(&device);
//!         let mut by_1024 = || scale::<_, 1024>(&x, &mut large, 2.0, n as i32).grid(n.div_ceil(1024)).launch(&device);
//!         let measured = bench.compare(&mut [("256", &mut by_256), ("1024", &mut by_1024)])?;
//!         report.row(n as f64, (2 * n * 4) as f64, measured);
//!     }
//!     print!("{report}");
//!     assert_eq!(report.csv().lines().count(), 1 + 4);
//!     # /*
//!     std::fs::write("scaling.csv", report.csv())?;
//!     report.draw("scaling.svg")?;
//!     # */
//!     Ok(())
//! }
//! ```
//!
//! # Which line
//!
//! With `.line_info(true)` on a call or a request, or `TILEWRIGHT_LINE_INFO=1` for a whole program, the code of a kernel says
//! which lines of the source its instructions are from, through `#[device]` functions that were inlined. Then
//! `compute-sanitizer` names the line of a store of an `unsafe` kernel that goes wrong:
//!
//! ```text
//! $ TILEWRIGHT_LINE_INFO=1 compute-sanitizer target/release/examples/10_profiling wrong
//! ========= Invalid __global__ write of size 4 bytes
//! =========     at fill_at+0xa0 in 10_profiling.rs:55
//! =========     by thread (0,0,0) in block (0,0,0)
//! ```
//!
//! and Nsight Compute (`ncu --set source`) shows samples by line; `cuda-gdb` reads the same table. They look for the file where
//! it was compiled; names are absolute where the program finds the file around itself or the current folder. The instructions of the hardware are the same with line information and without (the test
//! `line_information_changes_no_instruction`). It is off unless asked for, because code that names lines is compiled anew
//! when lines move, which other code is not; cache and archives keep both apart.
//!
//! # Ranges
//!
//! Under a profiler that takes ranges by NVTX, such as `nsys profile`, each launch is a range named after its kernel, and
//! [`profile::range`](crate::profile::range) names others. Without a profiler a launch looks at one byte to know that
//! there is none.
//!
//! # What the hardware did
//!
//! [`profile::counters`](crate::profile::counters()) also says how many bytes went through the GPU's memory, how busy memory,
//! multiprocessors and matrix units were, and what else the hardware counts:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright::profile;
//!
//! #[kernel]
//! pub fn scale<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, factor: f32) {
//!     let i = program_id(0) * BLOCK + arange(0, BLOCK);
//!     store(out + i, load(x + i) * factor);
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let device = Device::best()?;
//!     let (x, mut out) = (device.full(4096, 1.0f32)?, device.zeros::<f32>(4096)?);
//!     let mut work = || scale::<1024>(&x, &mut out, 2.0).grid(4).launch(&device);
//!     match profile::counters(&device, profile::COUNTERS, &mut work) {
//!         Ok(((), profile)) => println!("{profile}"),
//!         Err(why) => println!("{why}"),   // on the CPU, for one
//!     }
//!     match profile::samples(&device, &mut work) {
//!         Ok(((), profile)) => println!("{profile}"),
//!         Err(why) => println!("{why}"),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `cargo run --release --example 10_profiling -- counters` prints this on an H100:
//!
//! ```text
//! cuda:0, NVIDIA H100 80GB HBM3: 803.639 ms, of which kernels ran 0.544 ms
//! counters by CUPTI (API 130001): kernels ran alone, 8 times each; times are those of a run alone
//! kernel                                  runs  total us     %  median us  least   most   grid  threads  regs  shared
//! softmax  examples/10_profiling.rs:39       3    272.10  50.1      90.62  90.34  91.14   8192      256    40      64
//! bias_gelu  examples/10_profiling.rs:31     3    271.52  49.9      90.56  90.37  90.59  32768      128    32       0
//!
//! kernel                                  read MB  written MB  memory %  L2 hits %  SM %  tensor %  warps %  bank conflicts
//! softmax  examples/10_profiling.rs:39     134.23      131.03      87.4       52.0  18.4       0.3     68.8           20510
//! bias_gelu  examples/10_profiling.rs:31   134.28      131.90      87.7       51.8  34.2       0.6     83.6               0
//! ```
//!
//! Other counters have the names of Nsight Compute (`ncu --query-metrics`), and are given instead of
//! [`COUNTERS`](crate::profile::COUNTERS). A GPU counts a few things at once, so CUPTI runs each kernel again until all is
//! counted, with memory as it was before; kernels run one after the other meanwhile. Caches keep what the run before has left,
//! and the clocks are those of the moment: times of a profile without counters are the ones to compare.
//!
//! [`profile::samples`](crate::profile::samples) says on which lines of the source programs were while they ran, and what
//! they waited for. The code must say which lines it is from, by `.line_info(true)` or `TILEWRIGHT_LINE_INFO=1`:
//!
//! ```text
//! $ cargo run --release --example 10_profiling -- lines
//! where programs were, by 2275744 samples
//! bias_gelu  examples/10_profiling.rs:31: 1144926 samples
//!    %  samples  line                                                                                 waits for
//! 74.4   852315    33  let sum = load(x + i, mask = i < n) + load(bias + i % columns, mask = i < n);  89 % global or local memory
//! 12.7   145510    34  store(out + i, gelu(sum), mask = i < n);                                       88 % its stores, to end
//!  6.4    73521    26  0.5 * x * (1.0 + tanh(inner))                                                  23 % a fixed latency
//!  4.3    49037    32  let i = program_id(0) * BLOCK + arange(0, BLOCK);                              97 % shared memory or special units
//!  1.5    17161    30  (the kernel's arguments)                                                       86 % the queue to shared memory and special units
//!  0.6     7382    25  let inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);                   20 % a fixed latency
//! softmax  examples/10_profiling.rs:39: 1130818 samples
//!    %  samples  line                                                                                               waits for
//! 72.1   815837    43  let numerator = exp(row - max(row, axis = 0));                                               65 % global or local memory
//! 19.8   224298    44  store(out + start + column, numerator / sum(numerator, axis = 0), mask = column < columns);  51 % its stores, to end
//!  4.8    54344    40  let column = arange(0, BLOCK);                                                               96 % shared memory or special units
//!  2.3    26362    42  let row = load(x + start + column, mask = column < columns, other = f32::NEG_INFINITY);      36 % the queue to shared memory and special units
//!  0.7     8453    38  (the kernel's arguments)                                                                     88 % the queue to shared memory and special units
//!  0.1     1524    41  let start = program_id(0) as i64 * columns as i64;                                           39 % a fixed latency
//! ```
//!
//! A wait is counted where the value is needed, not where it is loaded. Lines of functions that were inlined are the
//! function's own. [`Samples`](crate::profile::Samples) has all lines with all reasons, and as CSV. CUPTI begins anew for
//! samples: no other thread may use CUDA while they begin.
//!
//! Both need CUPTI of CUDA 12.6 or later. It is found as for times; CUPTI looks for `libnvperf_host.so` itself, which lies
//! beside it, so that `LD_LIBRARY_PATH` is to name their folder unless it is the toolkit's. Where the driver lets only
//! administrators count (`RmProfilingAdminOnly` in `/proc/driver/nvidia/params`), both are errors that say so, as without CUPTI
//! and on the CPU. Under Nsight Compute or another profiler CUPTI is taken: times are those by events then, and counters are
//! that profiler's, which shows lines of a program that runs with `TILEWRIGHT_LINE_INFO=1` too.
