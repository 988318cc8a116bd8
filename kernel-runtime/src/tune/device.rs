//! Measuring on a device.

use super::compilers::Compilers;
use super::measure::{Clock, Failure, FailureKind, Measure};
use super::plan::Plan;
use crate::bench::nvml;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::{CallShape, Config, Constexprs, Given, Outputs, Preview, Step, Trial};
use std::time::{Duration, Instant};

/// How long compiling one configuration may take.
const COMPILING: Duration = Duration::from_secs(30);

/// How long a launch may take on the CPU, until one has worked; after that so many times the slowest that has.
const FIRST_LAUNCH: Duration = Duration::from_secs(30);
const SLOWER: u32 = 10;

/// Errors of one launch that may be left to be taken.
const ERRORS: usize = 64;

/// Runs configurations as a closure says.
pub(super) struct OnDevice<'d, C, W> {
    device: &'d Device,
    work: W,
    outputs: Outputs,
    flush: Option<Buffer<u8>>,
    /// What is known of configurations by their numbers in the plan.
    known: Vec<(Config<C>, Option<Preview>, Option<CallShape>)>,
    compilers: Option<Compilers>,
    nvml: Option<nvml::Nvml>,
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
            nvml: None,
            limit: FIRST_LAUNCH,
            start: Instant::now(),
        }
    }

    /// The launch of a configuration, if it is one.
    pub(super) fn shape(&mut self, config: &Config<C>) -> Result<Option<CallShape>> {
        Ok(self.trial(Step::Shape, config, None)?.shape)
    }

    /// Gets ready to measure what is planned.
    ///
    /// # Errors
    /// If there is no memory for emptying caches.
    pub(super) fn prepare(&mut self, plan: &Plan<C>, threads: usize) -> Result<()> {
        let known = plan.kept.iter().map(|one| (one.config, one.preview.clone(), one.shape.clone()));
        self.known = known.collect();
        if self.device.is_cuda() {
            self.flush = Some(crate::bench::flush_buffer(self.device)?);
            self.nvml = nvml::Nvml::of(self.device).ok();
            self.compilers = self.device.target().map(|target| Compilers::new(target, threads));
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
        self.known.iter().position(|(known, ..)| known == config)
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
        (self.work)(config, &mut trial)?;
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
        let preview = self.number(config).and_then(|number| self.known[number].1.clone());
        let result = self.trial(step, config, preview.as_ref());
        if result.is_err() {
            let _ = (0..ERRORS).find(|_| self.device.synchronize().is_ok());
        }
        result.map_err(|error| Failure::from(&error))
    }
}

impl<C: Constexprs, W: FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>> Measure<C> for OnDevice<'_, C, W> {
    fn begin(&mut self, config: &Config<C>) {
        let Some(number) = self.number(config) else { return };
        if let (Some(compilers), Some(shape)) = (&self.compilers, &self.known[number].2) {
            compilers.begin(number, shape.clone());
        }
    }

    fn check(&mut self, config: &Config<C>) -> Result<(), Failure> {
        if let (Some(compilers), Some(number)) = (&self.compilers, self.number(config))
            && self.known[number].2.is_some()
        {
            compilers.wait(number, COMPILING)?;
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
