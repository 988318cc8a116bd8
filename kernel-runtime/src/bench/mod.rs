//! How long things take on a device.
//!
//! ```
//! use kernel_runtime::{Device, bench::Bench};
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::best()?;
//! let (x, mut y) = (device.zeros::<f32>(1 << 16)?, device.zeros::<f32>(1 << 16)?);
//! let measured = Bench::new(&device)?.rounds(11).run("copy", || y.copy_from(&x))?;
//! println!("{measured}, {:.0} GB/s", measured.gbps((2 * x.len() * 4) as f64));
//! # Ok(())
//! # }
//! ```
//!
//! Times are those between events on the device's default stream; on the CPU, of the host's clock. Before each run the caches
//! are emptied, which on a GPU also gives the host time to hand the work to the driver before the GPU gets to it: what is
//! measured is the GPU's time. [`Bench::graph`] instead replays launches from a graph, for work that takes the GPU less time
//! than it takes the host to launch. Several contenders run in turns, round by round and every other round backwards, so that
//! clocks and temperature are the same for all, and are compared by rounds. A [`Report`] has what was measured at several
//! sizes as a table, as CSV, and as a picture.

#[cfg(feature = "tune")]
mod chart;
pub mod nvml;
mod report;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::graph::{Graph, capture};
use crate::tune::stats::is_faster;
pub use crate::tune::stats::{median, quantile};
#[cfg(feature = "tune")]
pub use chart::{Chart, Colour, Line, draw};
use cudarc::driver::{result as cu, sys};
pub use report::{Rate, Report, Row};
use std::fmt;

/// Bytes that are written between runs: more than five times the second-level cache of an H100.
const FLUSH_BYTES: usize = 256 << 20;

/// Rounds without being told.
const ROUNDS: usize = 21;

/// What is overwritten to empty the caches of a GPU.
pub(crate) fn flush_buffer(device: &Device) -> Result<Buffer<u8>> {
    device.zeros(FLUSH_BYTES)
}

/// Measures work on a device.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    flush: Option<Buffer<u8>>,
    rounds: usize,
    /// How often a graph has the work; `None` if the work is done anew each time.
    in_graph: Option<usize>,
}

/// Work with its name, for [`Bench::compare`].
pub type Contender<'c> = (&'c str, &'c mut dyn FnMut() -> Result<()>);

impl Bench {
    /// With cold caches on a GPU, and 21 rounds.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]: emptying the caches takes 256 MiB.
    pub fn new(device: &Device) -> Result<Bench> {
        let flush = if device.is_cuda() { Some(flush_buffer(device)?) } else { None };
        Ok(Bench { device: device.clone(), flush, rounds: ROUNDS, in_graph: None })
    }

    /// So many rounds, at least one.
    pub fn rounds(mut self, rounds: usize) -> Bench {
        self.rounds = rounds.max(1);
        self
    }

    /// With caches as the run before leaves them. Short launches then include what it takes the host to launch them.
    pub fn warm(mut self) -> Bench {
        self.flush = None;
        self
    }

    /// Captures the work so many times in a row, and replays that in each round; times are those of one of them. The host takes
    /// no part in it, so that launches of a few microseconds are measured as they run one behind the other. Unless caches are
    /// left [`warm`](Bench::warm) anyway, the first of them finds caches empty and the others what it has left.
    ///
    /// Work is then launches on the device's default stream alone: see [`Device::capture`].
    pub fn graph(mut self, times: usize) -> Bench {
        self.in_graph = Some(times.max(1));
        self
    }

    /// The times of one piece of work, after a first run that is not counted.
    ///
    /// # Errors
    ///
    /// Those of the work, and of launches in it while they run; with [`Bench::graph`], [`Error::Unsupported`] if it does
    /// something else than launching.
    pub fn run(&mut self, name: &str, mut work: impl FnMut() -> Result<()>) -> Result<Measured> {
        let mut all = self.compare(&mut [(name, &mut work)])?;
        Ok(all.remove(0))
    }

    /// The times of several pieces of work, which run in turns.
    ///
    /// # Errors
    ///
    /// As for [`Bench::run`], of whichever fails first.
    pub fn compare(&mut self, contenders: &mut [Contender<'_>]) -> Result<Vec<Measured>> {
        capture::refuse("measuring")?;
        for (_, work) in contenders.iter_mut() {
            work()?;
        }
        self.device.synchronize()?;
        let graphs = self.captured(contenders)?;
        let repeated = self.in_graph.unwrap_or(1) as f64;
        let mut times = vec![Vec::with_capacity(self.rounds); contenders.len()];
        for round in 0..self.rounds {
            for turn in 0..contenders.len() {
                let turn = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
                let once = match graphs.get(turn) {
                    Some(graph) => self.once(|| graph.replay())?,
                    None => self.once(&mut *contenders[turn].1)?,
                };
                times[turn].push(once.ms()? / repeated);
            }
        }
        self.device.synchronize()?;
        let measured = |((name, _), times): (&Contender<'_>, Vec<f64>)| Measured { name: name.to_string(), times };
        Ok(contenders.iter().zip(times).map(measured).collect())
    }

    /// The graphs to replay, if that is how work is measured.
    fn captured(&self, contenders: &mut [Contender<'_>]) -> Result<Vec<Graph>> {
        let Some(times) = self.in_graph else { return Ok(Vec::new()) };
        let captured = |(name, work): &mut Contender<'_>| {
            let graph = self.device.capture(|| (0..times).try_for_each(|_| work()))?;
            if !graph.is_empty() {
                return Ok(graph);
            }
            Err(Error::Unsupported {
                what: format!("measuring `{name}` by a graph").into(),
                reason: "it launches nothing on the device's default stream; leave out `.graph(..)`".into(),
            })
        };
        contenders.iter_mut().map(captured).collect()
    }

    /// Gives the device one run to do, for benchmarks that choose what runs next themselves. On a GPU it may not have
    /// ended, nor begun.
    ///
    /// # Errors
    ///
    /// Those of the work; of a [`capture`](crate::Stream::capture), in which nothing can be measured.
    pub fn once<E: From<Error>>(&mut self, work: impl FnOnce() -> Result<(), E>) -> Result<Once, E> {
        if let Some(flush) = &mut self.flush {
            flush.fill(0)?;
        }
        let stream = self.device.default_stream();
        let start = stream.record()?;
        work()?;
        Ok(Once { start, end: stream.record()? })
    }
}

/// One run, from [`Bench::once`].
#[derive(Debug)]
pub struct Once {
    start: Event,
    end: Event,
}

impl Once {
    /// Where it ends.
    pub fn end(&self) -> &Event {
        &self.end
    }

    /// How long it took, in milliseconds, after waiting for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn ms(&self) -> Result<f64> {
        self.end.synchronize()?;
        self.start.elapsed_ms(&self.end)
    }
}

/// The times of some work.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What it is called.
    pub name: String,
    /// In milliseconds, by round.
    pub times: Vec<f64>,
}

impl Measured {
    /// The median in milliseconds.
    pub fn ms(&self) -> f64 {
        median(&mut self.times.clone())
    }

    /// A quantile in milliseconds: at 0.2 and 0.8, what most runs lie between.
    pub fn quantile(&self, at: f64) -> f64 {
        quantile(&mut self.times.clone(), at)
    }

    /// Gigabytes per second, of work that moves so many bytes.
    pub fn gbps(&self, bytes: f64) -> f64 {
        bytes / self.ms() / 1e6
    }

    /// Teraflops, of work with so many operations.
    pub fn tflops(&self, flops: f64) -> f64 {
        flops / self.ms() / 1e9
    }

    /// How many times faster this is than another that ran in the same rounds: the median of the rounds' ratios.
    pub fn speedup_over(&self, other: &Measured) -> f64 {
        let mut ratios: Vec<f64> = self.times.iter().zip(&other.times).map(|(own, other)| other / own).collect();
        median(&mut ratios)
    }

    /// Whether it is faster beyond noise.
    pub fn is_faster_than(&self, other: &Measured) -> bool {
        is_faster(&self.times, &other.times)
    }
}

/// `copy: 0.0123 ms (0.0122 to 0.0125)`
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measured { name, .. } = self;
        write!(f, "{name}: {:.4} ms ({:.4} to {:.4})", self.ms(), self.quantile(0.2), self.quantile(0.8))
    }
}

/// What limits work: operations and bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Operations per second.
    pub flops: f64,
    /// Bytes per second between memory and the device.
    pub bytes: f64,
}

impl Roofline {
    /// Of a device whose rates are known.
    pub fn new(flops: f64, bytes: f64) -> Roofline {
        Roofline { flops, bytes }
    }

    /// What the driver says of a GPU's memory, with a rate of operations that it does not say; `None` on the CPU.
    pub fn of(device: &Device, flops: f64) -> Option<Roofline> {
        use sys::CUdevice_attribute_enum as Attribute;
        let ctx = device.cuda_context()?;
        // SAFETY: the device belongs to a live context.
        let ask = |attribute| unsafe { cu::device::get_attribute(ctx.cu_device(), attribute) }.ok().map(f64::from);
        let khz = ask(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bits = ask(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        // Twice per cycle.
        let bytes = 2.0 * khz * 1e3 * bits / 8.0;
        (bytes > 0.0).then_some(Roofline { flops, bytes })
    }

    /// The least time, in milliseconds, of work with so many operations that moves so many bytes.
    pub fn bound_ms(&self, flops: f64, bytes: f64) -> f64 {
        (flops / self.flops).max(bytes / self.bytes) * 1e3
    }

    /// Whether operations limit the work, rather than bytes.
    pub fn is_compute_bound(&self, flops: f64, bytes: f64) -> bool {
        flops / self.flops > bytes / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_run_in_turns() {
        let device = Device::cpu();
        let order = std::cell::RefCell::new(String::new());
        let noted = |name| -> Result<()> {
            order.borrow_mut().push(name);
            Ok(())
        };
        let (mut a, mut b) = (|| noted('a'), || noted('b'));
        let mut bench = Bench::new(&device).unwrap().rounds(3);
        let measured = bench.compare(&mut [("a", &mut a), ("b", &mut b)]).unwrap();
        assert_eq!(*order.borrow(), "ababbaab", "a first run each, then rounds to and fro");
        assert_eq!(measured.iter().map(|one| one.times.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(measured[1].name, "b");
    }

    #[test]
    fn work_that_a_graph_cannot_have_is_refused() {
        let device = Device::cpu();
        let bench = || Bench::new(&device).unwrap().graph(3);
        let error = bench().run("nothing", || Ok(())).unwrap_err().to_string();
        assert!(error.contains("`nothing`") && error.contains("launches nothing"), "{error}");
        let mut buffer = device.zeros::<f32>(4).unwrap();
        assert!(matches!(bench().run("copy", || buffer.fill(0.0)), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn rates_follow_from_the_median() {
        let (fast, slow) = (vec![1.0, 1.0, 9.0], vec![2.0, 2.0, 18.0]);
        let [fast, slow] = [fast, slow].map(|times| Measured { name: String::new(), times });
        assert_eq!((fast.ms(), fast.gbps(3e6), fast.tflops(5e9)), (1.0, 3.0, 5.0));
        assert_eq!(fast.speedup_over(&slow), 2.0);
        let roof = Roofline::new(1e15, 3e12);
        assert_eq!(roof.bound_ms(1e12, 1e6), 1.0);
        assert!(roof.is_compute_bound(1e12, 1e6) && !roof.is_compute_bound(1e6, 1e12));
    }

    #[test]
    fn errors_of_the_work_are_given() {
        let device = Device::cpu();
        let mut buffer = device.zeros::<f32>(4).unwrap();
        let result = Bench::new(&device).unwrap().run("bad", || buffer.copy_from_slice(&[0.0; 3]));
        assert!(result.is_err());
    }
}
