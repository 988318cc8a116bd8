//! Which kernels took how long, in a part of a program.
//!
//! ```
//! use kernel_runtime::{Device, profile};
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::best()?;
//! let (sum, profile) = profile(&device, || {
//!     let _range = profile::range("first step");
//!     // launches
//!     Ok(1 + 1)
//! })?;
//! println!("{profile}");                                  // a table
//! let (csv, trace) = (profile.csv(), profile.trace());    // a line for each launch; for https://ui.perfetto.dev
//! # assert_eq!((sum, profile.kernels.len()), (2, 0));
//! # Ok(())
//! # }
//! ```
//!
//! Where CUPTI is installed, which comes with CUDA toolkits and as the Python package `nvidia-cuda-cupti`, it gives the
//! times of the kernels themselves, of whatever library, with what the hardware was given. Otherwise, times are those
//! between events around each launch of a kernel of this library, which is about three microseconds more; the
//! events keep launches from overlapping. On the CPU they are the host's. [`Profile::source`] says which.
//!
//! [`counters()`] says what the hardware did meanwhile, and [`samples`] which lines of the source programs were on, and what
//! they waited for. Both need CUPTI of CUDA 12.6 or later, and privileges where the driver's `RmProfilingAdminOnly` is set;
//! otherwise they are errors that say what is missing.
//!
//! Profilers that take ranges see one around each launch, named after its kernel, and those of [`range`].

mod counters;
mod cupti;
mod lines;
mod nvtx;
pub(crate) mod observed;
mod session;
mod table;
mod trace;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::capture;
use session::Session;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Instant;

pub use counters::COUNTERS;
pub use lines::{LineSamples, Samples};
pub use table::Row;

/// Which kernels ran, and how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name of the device.
    pub device: String,
    /// How kernels were timed.
    pub source: Source,
    /// How long the work took the host, until the device was done, in nanoseconds.
    pub wall_ns: u64,
    /// The kernels, in the order in which they began.
    pub kernels: Vec<KernelRun>,
    /// What [`range`] named, in the order in which it began.
    pub ranges: Vec<RangeRun>,
    /// What was counted, by name.
    pub counters: Vec<String>,
    /// Where programs were, if samples were taken.
    pub samples: Option<Samples>,
}

/// How kernels were timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// By CUPTI: the GPU's own times.
    Cupti {
        /// The version of its interface.
        version: u32,
    },
    /// By CUPTI, which counts one kernel at a time: the hardware's own times, of a kernel that runs alone.
    Counters {
        /// The version of its interface.
        version: u32,
        /// How often each kernel ran, to be counted.
        passes: usize,
    },
    /// By events around each launch.
    Events {
        /// Why not by CUPTI.
        why: String,
    },
    /// By the host's clock, on the CPU.
    Clock,
}

/// A kernel that has run once.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRun {
    /// The kernel's name; of kernels of others, that of their entry.
    pub name: String,
    /// Where it stands in the source, if that is known.
    pub place: Option<Place>,
    /// When it began and ended, in nanoseconds since the profile began.
    pub start_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// A number for the stream.
    pub stream: u32,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// What the hardware was given, if that is known.
    pub code: Option<CodeRun>,
    /// The numbers of [`Profile::counters`]; empty if nothing was counted.
    pub counters: Vec<f64>,
}

/// What the hardware is given for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeRun {
    /// Threads per program.
    pub threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Shared memory per program.
    pub shared_bytes: u32,
    /// Local memory per thread: registers that were spilled, mostly.
    pub local_bytes: u32,
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as rustc names it.
    pub file: &'static str,
    /// The line; 0 if it is not known.
    pub line: u32,
}

/// A range of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRun {
    /// Its name.
    pub name: String,
    /// A number for the thread.
    pub thread: u64,
    /// When it began and ended, in nanoseconds since the profile began.
    pub start_ns: u64,
    /// The end.
    pub end_ns: u64,
}

/// Runs some work, and says which kernels of it took how long on a device. Gives what the work gives, and the profile.
///
/// The device is synchronised before and after. One profile is made at a time.
///
/// # Errors
///
/// Those of the work, and of launches in it or before; [`Error::Unsupported`] inside another profile or a
/// [`capture`](crate::Stream::capture).
pub fn profile<R>(device: &Device, work: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    look(device, Looked::Times, work)
}

/// As [`profile`], and counts what the hardware does for each launch of a kernel of this library: [`COUNTERS`], or others by
/// the names that Nsight Compute has for them.
///
/// Each kernel runs alone, and as often as it takes to count everything, which [`Source::Counters`] says; before each run
/// CUPTI gives memory back what was in it, which takes as long as there is much. Caches keep what the run before has left in
/// them, and clocks are not held. A kernel that waits for another one, or for the host, never ends when it runs alone.
/// Launches that a graph replays are not counted.
///
/// # Errors
///
/// Those of [`profile`]; [`Error::Unsupported`] where nothing can be counted: on the CPU, without CUPTI of CUDA 12.6 or
/// later, without the privileges, beside another profiler, and for a counter that the GPU does not have. Nothing has run
/// then. CUPTI may also fail in a launch, which then gives that error.
pub fn counters<R>(device: &Device, names: &[&str], work: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    look(device, Looked::Counters(names), work)
}

/// As [`profile`], and takes samples of which instructions programs are at, and what they wait for, which
/// [`Profile::samples`] has by lines of the source.
///
/// Lines are known of code that was compiled with line information: `.line_info(true)`, or `TILEWRIGHT_LINE_INFO=1`. Other
/// code has its samples without. A line in a `#[device]` function is the function's own. Kernels run as they do otherwise;
/// their times are those between events, as CUPTI does not time kernels while it takes samples.
///
/// CUPTI begins anew for it, so that it knows all code that is loaded (`cuptiFinalize`): records that others in the process
/// collect by CUPTI end there. Another profiler that subscribes to CUPTI is an error instead. No other thread may use CUDA
/// while this begins, on whatever device: the process may crash in a call of the driver that CUPTI leaves meanwhile.
/// Where the hardware has no room for all samples, [`Samples::is_full`] says so.
///
/// # Errors
///
/// Those of [`profile`]; [`Error::Unsupported`] where no samples can be taken: on the CPU, without CUPTI of CUDA 12.6 or
/// later, without the privileges, and beside another profiler. Nothing has run then.
pub fn samples<R>(device: &Device, work: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    look(device, Looked::Samples, work)
}

/// What a profile looks at.
#[derive(Clone, Copy)]
enum Looked<'n> {
    Times,
    Counters(&'n [&'n str]),
    Samples,
}

impl Looked<'_> {
    /// What it is called in errors.
    fn what(self) -> &'static str {
        match self {
            Looked::Times => "a profile",
            Looked::Counters(_) => "a profile with counters",
            Looked::Samples => "a profile with samples",
        }
    }
}

fn look<R>(device: &Device, look: Looked<'_>, work: impl FnOnce() -> Result<R>) -> Result<(R, Profile)> {
    capture::refuse("making a profile")?;
    device.synchronize()?;
    let looking = observed::look_on(|| Session::begin(device, look))?;
    let start = Instant::now();
    let result = work()?;
    device.synchronize()?;
    let wall_ns = start.elapsed().as_nanos() as u64;
    looking.looks_away();
    let samples = looking.session.samples()?;
    let (source, kernels, ranges) = looking.session.finish()?;
    drop(looking);
    let counters = match look {
        Looked::Counters(names) => names.iter().map(|name| name.to_string()).collect(),
        Looked::Times | Looked::Samples => Vec::new(),
    };
    // The CPU is called what it is.
    let device = if device.is_cuda() { format!("{device}, {}", device.name()) } else { device.to_string() };
    Ok((result, Profile { device, source, wall_ns, kernels, ranges, counters, samples }))
}

/// A range of the host, until it is dropped.
#[must_use = "a range ends when it is dropped"]
pub struct Range {
    name: String,
    start: Instant,
    _pushed: Option<nvtx::Pushed>,
    /// Ranges are ended by the thread that began them.
    stays: PhantomData<*const ()>,
}

/// Names what this thread does from here on until the range is dropped, for profilers (NVTX) and in traces.
pub fn range(name: &str) -> Range {
    let pushed = observed::ask().then(|| nvtx::push(name)).flatten();
    Range { name: name.to_string(), start: Instant::now(), _pushed: pushed, stays: PhantomData }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(session) = observed::session() {
            session.range(std::mem::take(&mut self.name), trace::thread_number(), self.start);
        }
    }
}

impl Profile {
    /// As [`range`].
    pub fn range(name: &str) -> Range {
        range(name)
    }

    /// How long kernels ran, in nanoseconds, counted once where several ran at once.
    pub fn busy_ns(&self) -> u64 {
        let (mut busy, mut until) = (0, 0);
        for run in &self.kernels {
            busy += run.end_ns.saturating_sub(run.start_ns.max(until));
            until = until.max(run.end_ns);
        }
        busy
    }

    /// Writes [`Profile::trace`] to a file.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with what the file system says.
    pub fn save_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        save(path.as_ref(), &self.trace())
    }

    /// Writes [`Profile::csv`] to a file.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with what the file system says.
    pub fn save_csv(&self, path: impl AsRef<Path>) -> Result<()> {
        save(path.as_ref(), &self.csv())
    }
}

impl KernelRun {
    /// How long it ran, in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a library's loader says, with what the system told it.
fn explained(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::Unsupported {
        what: format!("writing {}", path.display()).into(),
        reason: error.to_string().into(),
    })
}

/// `src/add.rs:3`
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line == 0 { f.write_str(self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

#[cfg(test)]
mod tests;
