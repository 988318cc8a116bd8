//! Measuring on a device.

use super::compilers::Compilers;
use super::measure::{Clock, Failure, FailureKind, Measure, said};
use super::plan::Plan;
use super::settings::Settings;
use crate::bench::nvml;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::{CallShape, Config, Constexprs, Given, Outputs, Preview, Step, Trial};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How long compiling one configuration may take, and which share of the budget: one that compilers are slow at must not take
/// the time of all others.
const COMPILING: Duration = Duration::from_secs(30);
const COMPILING_SHARE: u32 = 4;

/// How long a launch may take on the CPU, until one has worked; after that so many times the slowest that has.
const FIRST_LAUNCH: Duration = Duration::from_secs(30);
const SLOWER: u32 = 10;

/// Errors of one launch that may be left to be taken.
const ERRORS: usize = 64;

/// What is known of a configuration before it runs.
struct Known<C> {
    config: Config<C>,
    preview: Option<Preview>,
    shapes: Vec<CallShape>,
    /// The numbers of its launches with the compilers.
    jobs: Range<usize>,
}

/// Runs configurations as a closure says.
pub(super) struct OnDevice<'d, C, W> {
    device: &'d Device,
    work: W,
    outputs: Outputs,
    flush: Option<Buffer<u8>>,
    /// What is known of configurations by their numbers in the plan.
    known: Vec<Known<C>>,
    compilers: Option<Compilers>,
    /// Launches that were given to them.
    compiled: usize,
    nvml: Option<nvml::Nvml>,
    compiling: Duration,
    limit: Duration,
    start: Instant,
}

impl<'d, C: Constexprs, W: FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>> OnDevice<'d, C, W> {
    pub(super) fn new(device: &'d Device, work: W, tolerance: Option<f64>) -> Self {
        let outputs = Outputs::new(tolerance);
        OnDevice {
            device,
            work,
            outputs,
            flush: None,
            known: Vec::new(),
            compilers: None,
            compiled: 0,
            nvml: None,
            compiling: COMPILING,
            limit: FIRST_LAUNCH,
            start: Instant::now(),
        }
    }

    /// The launches of a configuration, where they are known.
    pub(super) fn shapes(&mut self, config: &Config<C>) -> Result<Vec<CallShape>> {
        Ok(self.trial(Step::Shape, config, None)?.shapes)
    }

    /// Gets ready to measure what is planned.
    ///
    /// # Errors
    /// If there is no memory for emptying caches.
    pub(super) fn prepare(&mut self, plan: &Plan<C>, settings: &Settings) -> Result<()> {
        let share = settings.budget.map_or(COMPILING, |budget| budget / COMPILING_SHARE);
        self.compiling = share.min(COMPILING);
        let known = plan.kept.iter().map(|one| Known {
            config: one.config,
            preview: one.preview.clone(),
            shapes: one.shapes.clone(),
            jobs: 0..0,
        });
        self.known = known.collect();
        if self.device.is_cuda() {
            self.flush = Some(crate::bench::flush_buffer(self.device)?);
            self.nvml = nvml::Nvml::of(self.device).ok();
            self.compilers = Compilers::new(self.device, settings.ahead);
        }
        Ok(())
    }

    /// The buffers as they were before tuning. Of work that is more than a launch, nothing is known.
    ///
    /// # Errors
    /// Those of copying.
    pub(super) fn restore(&mut self, config: &Config<C>) -> Result<()> {
        self.trial(Step::Restore, config, None).map(drop)
    }

    fn number(&self, config: &Config<C>) -> Option<usize> {
        self.known.iter().position(|known| known.config == *config)
    }

    fn trial(&mut self, step: Step, config: &Config<C>, preview: Option<&Preview>) -> Result<Given> {
        let mut trial = Trial {
            device: self.device,
            step,
            options: config.options,
            limit: self.limit,
            outputs: &mut self.outputs,
            flush: self.flush.as_mut(),
            preview,
            given: Given::default(),
        };
        // Whatever the closure's own code does wrong for a configuration is that one's result.
        let worked = catch_unwind(AssertUnwindSafe(|| (self.work)(config, &mut trial)));
        worked.unwrap_or_else(|panic| {
            Err(Error::Tuning { what: "the closure of a tuner panicked".into(), reason: said(&*panic).into() })
        })?;
        if trial.given.launched {
            return Ok(trial.given);
        }
        Err(Error::Tuning {
            what: "the closure of a tuner launches nothing".into(),
            reason: "give the call to `trial.launch(..)`".into(),
        })
    }

    /// As `trial`; errors that the launch leaves behind are nobody else's.
    fn tried(&mut self, step: Step, config: &Config<C>) -> Result<Given, Failure> {
        let preview = self.number(config).and_then(|number| self.known[number].preview.clone());
        self.trial(step, config, preview.as_ref()).map_err(|error| {
            let failure = Failure::from(&error);
            // After some errors of the driver nothing works in this process any more.
            let answers = (0..ERRORS).any(|_| self.device.synchronize().is_ok());
            if answers { failure } else { Failure { kind: FailureKind::Lost, ..failure } }
        })
    }
}

impl<C: Constexprs, W: FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>> Measure<C> for OnDevice<'_, C, W> {
    fn begin(&mut self, config: &Config<C>) {
        let Some(number) = self.number(config) else { return };
        let (Some(compilers), known) = (&self.compilers, &mut self.known[number]) else { return };
        known.jobs = self.compiled..self.compiled + known.shapes.len();
        self.compiled = known.jobs.end;
        for (job, shape) in known.jobs.clone().zip(&known.shapes) {
            compilers.begin(job, shape.clone());
        }
    }

    fn check(&mut self, config: &Config<C>) -> Result<(), Failure> {
        if let (Some(compilers), Some(number)) = (&self.compilers, self.number(config)) {
            for job in self.known[number].jobs.clone() {
                // Until one has worked there is nothing to be kept instead.
                let patience = if self.limit == FIRST_LAUNCH { COMPILING } else { self.compiling };
                compilers.wait(job, patience)?;
            }
        }
        let start = Instant::now();
        let given = self.tried(Step::Check, config)?;
        let slowest = (start.elapsed() * SLOWER).max(Duration::from_secs(1));
        self.limit = if self.limit == FIRST_LAUNCH { slowest } else { self.limit.max(slowest).min(FIRST_LAUNCH) };
        given.wrong.map_or(Ok(()), |wrong| Err(Failure::new(FailureKind::Wrong, wrong)))
    }

    fn time(&mut self, config: &Config<C>) -> Result<f64, Failure> {
        let given = self.tried(Step::Time, config)?;
        given.ms.ok_or_else(|| Failure::new(FailureKind::Other, "nothing was timed"))
    }

    fn elapsed(&mut self) -> Duration {
        self.start.elapsed()
    }

    fn clock(&mut self) -> Option<Clock> {
        let sample = self.nvml.as_ref()?.sample();
        Some(Clock { mhz: sample.clock, held_back: nvml::reasons(sample.reasons) })
    }
}
