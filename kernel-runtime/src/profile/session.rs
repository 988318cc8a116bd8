//! A profile that is being made: what it notes while the work runs, and the runs of kernels that follow from that.

use super::cupti::activity::{Collecting, Record};
use super::cupti::ranges::Counting;
use super::cupti::sampling::Sampling;
use super::lines::Origin;
use super::observed::{self, Launched};
use super::{KernelRun, Looked, RangeRun, Samples, Source, counters};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::graph::capture;
use crate::stream::Stream;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a profile with samples has no times by CUPTI, which gives `CUPTI_ERROR_NOT_COMPATIBLE`.
const SAMPLES: &str = "it takes samples";

/// What is known while the work runs.
pub(super) struct Session {
    device: Device,
    began: Instant,
    how: How,
    launches: Mutex<Vec<Noted>>,
    ranges: Mutex<Vec<RangeRun>>,
    /// Samples that are being taken.
    sampling: Mutex<Option<Sampling>>,
}

/// How kernels are timed.
enum How {
    /// By CUPTI, which is to finish at the end.
    Cupti(Mutex<Option<Collecting>>),
    /// By CUPTI, which counts one launch at a time. Times are counters, too, at these places.
    Counters { counting: Mutex<Option<Counting>>, version: u32, passes: usize, times: Vec<usize> },
    /// By events around each launch, since this one.
    Events { base: Event, why: String },
    /// By the host's clock, as launches have run when they return.
    Clock,
}

/// A launch with its time.
struct Noted {
    launched: Launched,
    stream: u32,
    time: Time,
}

enum Time {
    Events(Event, Event),
    Clock(Instant, Instant),
    /// From when on, and what was counted, first of all nanoseconds.
    Counted(Instant, Vec<f64>),
}

impl Session {
    /// Begins a profile of a device, which has nothing to do.
    pub(super) fn begin(device: &Device, look: Looked<'_>) -> Result<Session> {
        let refused = |why: String| Error::Unsupported { what: look.what().into(), reason: why.into() };
        let no_gpu = || refused(format!("{device} has none: kernels run in an interpreter there"));
        let mut sampling = None;
        let how = match (device.cuda_context(), look) {
            (None, Looked::Times) => How::Clock,
            (None, Looked::Counters(_) | Looked::Samples) => return Err(no_gpu()),
            (Some(context), Looked::Counters(names)) => {
                device.default_stream().bind()?;
                let counting = Counting::begin(context.cu_ctx(), context.ordinal(), &counters::with_time(names));
                let counting = counting.map_err(refused)?;
                let (version, passes) = (counting.version(), counting.passes());
                let times = counters::places_of_time(names);
                How::Counters { counting: Mutex::new(Some(counting)), version, passes, times }
            }
            (Some(context), Looked::Samples) => {
                device.default_stream().bind()?;
                sampling = Some(Sampling::begin(context.cu_ctx()).map_err(refused)?);
                How::Events { base: device.default_stream().record()?, why: SAMPLES.to_string() }
            }
            (Some(context), Looked::Times) => match Collecting::begin(context.cu_ctx()) {
                Ok(collecting) => How::Cupti(Mutex::new(Some(collecting))),
                Err(why) => How::Events { base: device.default_stream().record()?, why },
            },
        };
        let (launches, ranges, sampling) = (Mutex::default(), Mutex::default(), Mutex::new(sampling));
        Ok(Session { device: device.clone(), began: Instant::now(), how, launches, ranges, sampling })
    }

    /// Notes a launch.
    pub(super) fn around(
        &self,
        launched: Launched,
        stream: &Stream,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_ours = stream.is_in(self.device.context()) && !capture::is_active() && !stream.is_captured()?;
        let time = match &self.how {
            How::Events { .. } if is_ours => {
                let start = stream.record()?;
                launch()?;
                Time::Events(start, stream.record()?)
            }
            How::Clock if is_ours => {
                let start = Instant::now();
                launch()?;
                Time::Clock(start, Instant::now())
            }
            How::Counters { counting, .. } if is_ours => match self.count(&launched, counting, launch)? {
                Some(time) => time,
                None => return Ok(()),
            },
            How::Cupti(_) | How::Counters { .. } | How::Events { .. } | How::Clock => return launch(),
        };
        // Launches of no program do nothing.
        if !launched.grid.contains(&0) {
            let stream = u32::try_from(stream.id()).unwrap_or(u32::MAX);
            lock(&self.launches).push(Noted { launched, stream, time });
        }
        Ok(())
    }

    /// Launches, and counts what the kernel does; nothing if it did not run.
    fn count(
        &self,
        launched: &Launched,
        counting: &Mutex<Option<Counting>>,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<Option<Time>> {
        let mut counting = lock(counting);
        let Some(counting) = counting.as_mut() else { return launch().map(|()| None) };
        // CUPTI counts in the context that is current.
        self.device.default_stream().bind()?;
        let start = Instant::now();
        let (result, counted) = counting.count(launch);
        result?;
        let counted = counted.map_err(|why| Error::Unsupported {
            what: format!("counting what kernel `{}` does", launched.kernel).into(),
            reason: why.into(),
        })?;
        Ok(counted.map(|counted| Time::Counted(start, counted)))
    }

    /// The samples, if some were taken. The device has nothing more to do.
    pub(super) fn samples(&self) -> Result<Option<Samples>> {
        let Some(sampling) = lock(&self.sampling).take() else { return Ok(None) };
        let refused = |why: String| Error::Unsupported { what: Looked::Samples.what().into(), reason: why.into() };
        let (sampled, modules) = sampling.finish().map_err(refused)?;
        if sampled.is_full {
            log::warn!("samples are missing in the profile: the hardware had no room for all");
        }
        let sampled_code: BTreeSet<_> = sampled.instructions.keys().map(|at| (at.crc, &at.entry)).collect();
        for (crc, entry) in sampled_code {
            for code in observed::code_of(entry) {
                if modules.has(crc) {
                    break;
                }
                if let Err(why) = code.load_again(&self.device) {
                    log::warn!("code of `{entry}` cannot be loaded again: {why}");
                }
            }
            if !modules.has(crc) && observed::kernel_of(entry).is_some() {
                log::warn!("samples of `{entry}` have no lines: its code was not found again");
            }
        }
        let origin = |crc, entry: &str, pc| match modules.line(crc, entry, pc) {
            Some(line) => Origin::Line(line.file, line.line),
            None if modules.has(crc) => Origin::NoLine,
            None => Origin::NoCode,
        };
        Ok(Some(Samples::of(sampled, origin)))
    }

    /// Notes a range of the host.
    pub(super) fn range(&self, name: String, thread: u64, start: Instant) {
        let ns = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as u64;
        let (start_ns, end_ns) = (ns(start), ns(Instant::now()));
        lock(&self.ranges).push(RangeRun { name, thread, start_ns, end_ns });
    }

    /// How kernels were timed, and those that ran, in the order in which they began. The device has nothing more to do.
    pub(super) fn finish(&self) -> Result<(Source, Vec<KernelRun>, Vec<RangeRun>)> {
        let mut ranges = std::mem::take(&mut *lock(&self.ranges));
        ranges.sort_by_key(|range| (range.start_ns, u64::MAX - range.end_ns));
        let (source, mut kernels) = match &self.how {
            How::Cupti(collecting) => match lock(collecting).take() {
                Some(collecting) => {
                    let (version, began) = (collecting.version(), collecting.began);
                    let run = |record: Record| run_of_record(record, began);
                    (Source::Cupti { version }, collecting.finish().into_iter().map(run).collect())
                }
                None => (Source::Cupti { version: 0 }, Vec::new()),
            },
            How::Counters { counting, version, passes, .. } => {
                // A launch of another thread may still be counted.
                drop(lock(counting).take());
                let runs = self.runs(None)?;
                (Source::Counters { version: *version, passes: *passes }, runs)
            }
            How::Events { base, why } => (Source::Events { why: why.clone() }, self.runs(Some(base))?),
            How::Clock => (Source::Clock, self.runs(None)?),
        };
        kernels.sort_by_key(|run: &KernelRun| (run.start_ns, run.end_ns));
        Ok((source, kernels, ranges))
    }

    /// Ends what CUPTI still does for the profile.
    pub(super) fn end(&self) {
        drop(lock(&self.sampling).take());
        match &self.how {
            How::Cupti(collecting) => drop(lock(collecting).take()),
            How::Counters { counting, .. } => drop(lock(counting).take()),
            How::Events { .. } | How::Clock => {}
        }
    }

    fn runs(&self, base: Option<&Event>) -> Result<Vec<KernelRun>> {
        let noted = std::mem::take(&mut *lock(&self.launches));
        noted.into_iter().map(|noted| self.run_of_launch(noted, base)).collect()
    }

    fn run_of_launch(&self, noted: Noted, base: Option<&Event>) -> Result<KernelRun> {
        let Noted { launched, stream, time } = noted;
        let (place, mut code, mut counters) = (Some(launched.place), None, Vec::new());
        let (start_ns, end_ns) = match (time, base) {
            (Time::Events(start, end), Some(base)) => {
                let ns = |event: &Event| base.elapsed_ms(event).map(|ms| (ms.max(0.0) * 1e6) as u64);
                (ns(&start)?, ns(&end)?)
            }
            (Time::Events(..), None) => (0, 0),
            (Time::Clock(start, end), _) => {
                let ns = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as u64;
                (ns(start), ns(end))
            }
            (Time::Counted(start, mut counted), _) => {
                let start = start.saturating_duration_since(self.began).as_nanos() as u64;
                let ns = if counted.is_empty() { 0.0 } else { counted.remove(0) };
                code = observed::run_of(launched.kernel, launched.place);
                counters = counted;
                if let How::Counters { times, .. } = &self.how {
                    times.iter().for_each(|place| counters.insert(*place, ns));
                }
                (start, start + ns.max(0.0) as u64)
            }
        };
        let grid = launched.grid.map(|size| u32::try_from(size).unwrap_or(0));
        Ok(KernelRun { name: launched.kernel.into(), place, start_ns, end_ns, stream, grid, code, counters })
    }
}

/// A run as CUPTI has recorded it. Kernels that others have loaded into the context have no place.
fn run_of_record(record: Record, began: u64) -> KernelRun {
    let known = observed::kernel_of(&record.entry);
    let (name, place) = match known {
        Some((name, place)) => (name.into(), place),
        None => (record.entry.clone(), None),
    };
    let ns = |at: u64| at.saturating_sub(began);
    let code = super::CodeRun {
        threads: record.threads,
        registers: record.registers,
        shared_bytes: record.shared_bytes,
        local_bytes: record.local_bytes,
    };
    KernelRun {
        name,
        place,
        start_ns: ns(record.start),
        end_ns: ns(record.end),
        stream: record.stream,
        grid: record.grid,
        code: Some(code),
        counters: Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
