//! Launches on behalf of a tuner.

use super::call::{Call, HasGrid, UnsafeCall};
use super::configured::LaunchOptions;
use super::invocation::Invocation;
use super::noted::shapes_of;
use super::outputs::Outputs;
use super::shape::{CallShape, Preview};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::graph::capture;
use crate::stream::Stream;
use std::time::Duration;

/// What a tuner wants of the next launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// To know it.
    Shape,
    /// Its results.
    Check,
    /// Its time.
    Time,
    /// The buffers as they were before the first launch.
    Restore,
}

/// What a launch gave.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// At [`Step::Shape`]: the launches, where they are known.
    pub(crate) shapes: Vec<CallShape>,
    /// At [`Step::Time`], in milliseconds.
    pub(crate) ms: Option<f64>,
    /// At [`Step::Check`]: what is wrong with the results.
    pub(crate) wrong: Option<String>,
    /// Whether anything was launched, or would have been.
    pub(crate) launched: bool,
}

/// One run of a candidate, which a tuner asks for: the closure that it is given prepares a call and hands it to
/// [`Trial::launch`].
///
/// Options of the candidate are set by the trial. What the call writes is kept before the first launch and put back before
/// every later one that could tell the difference, and after tuning: kernels that work in place or add to their output are
/// tuned like others.
pub struct Trial<'t> {
    pub(crate) device: &'t Device,
    pub(crate) step: Step,
    pub(crate) options: LaunchOptions,
    /// How long a launch may take where that can be limited.
    pub(crate) limit: Duration,
    pub(crate) outputs: &'t mut Outputs,
    /// What is overwritten to empty the caches.
    pub(crate) flush: Option<&'t mut Buffer<u8>>,
    /// What is known of the candidate.
    pub(crate) preview: Option<&'t Preview>,
    pub(crate) given: Given,
}

impl Trial<'_> {
    /// The device that is tuned for.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// Launches the call as the tuner wants it, once in each trial.
    ///
    /// # Errors
    ///
    /// Those of [`Call::launch`], and errors while it ran. Give them to the tuner, with `?`: they are why the candidate fails.
    pub fn launch<C, G: HasGrid>(&mut self, call: Call<'_, C, G>) -> Result<()> {
        let (mut call, grid) = call.options(self.options).into_parts();
        self.launched(&mut call, grid)
    }

    /// As [`Trial::launch`], of a kernel that checks nothing.
    ///
    /// # Safety
    ///
    /// As for [`UnsafeCall::launch`], with every configuration.
    ///
    /// # Errors
    ///
    /// As for [`Trial::launch`].
    pub unsafe fn launch_unchecked<C, G: HasGrid>(&mut self, call: UnsafeCall<'_, C, G>) -> Result<()> {
        let (mut call, grid) = call.options(self.options).into_parts();
        self.launched(&mut call, grid)
    }

    /// Runs work that is more than one launch, on `stream`. Its launches are looked at before any of them is made, as
    /// [`shapes_of`] does, so that candidates are pruned, ranked and compiled ahead as for one launch; buffers are neither put
    /// back nor compared: `work` sees to that, or [`Trial::run_checked`].
    ///
    /// # Errors
    ///
    /// Those of the work, and errors of launches while they ran.
    pub fn run(&mut self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.run_checked(stream, || Ok(()), work, || Ok(()))
    }

    /// As [`Trial::run`]; `check` looks at the results, when the launches have ended, and says what is wrong with them.
    /// `prepare` comes before work that is checked, to overwrite what another candidate has left. Both are asked once for each
    /// candidate, outside of what is timed.
    ///
    /// # Errors
    ///
    /// As for [`Trial::run`].
    pub fn run_checked(
        &mut self,
        stream: &Stream,
        prepare: impl FnOnce() -> Result<()>,
        work: impl FnOnce() -> Result<()>,
        check: impl FnOnce() -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.once()?;
        match self.step {
            Step::Restore => Ok(()),
            Step::Shape => {
                // Work that cannot do without its launches is looked at when it runs.
                self.given.shapes = shapes_of(work).unwrap_or_default();
                Ok(())
            }
            Step::Check => {
                prepare()?;
                work()?;
                stream.synchronize()?;
                self.given.wrong = check().err();
                Ok(())
            }
            Step::Time => self.timed(stream, |_| work()),
        }
    }

    fn once(&mut self) -> Result<()> {
        capture::refuse("tuning a kernel")?;
        if std::mem::replace(&mut self.given.launched, true) {
            return Err(Error::Tuning {
                what: "a trial launches once".into(),
                reason: "work of several launches is tuned with `Trial::run`".into(),
            });
        }
        Ok(())
    }

    fn launched(&mut self, call: &mut Invocation<'_>, grid: [i64; 3]) -> Result<()> {
        self.once()?;
        if !self.device.is_cuda() {
            call.time_limit = call.time_limit.or(Some(self.limit));
        }
        let stream = call.stream.unwrap_or_else(|| self.device.default_stream()).clone();
        match self.step {
            Step::Shape => {
                let shape = CallShape::of(call, grid)?.on_processors(self.device.multiprocessor_count());
                self.given.shapes = vec![shape];
                Ok(())
            }
            Step::Restore => self.outputs.restore(&call.args),
            Step::Check => {
                self.outputs.begin(&call.args)?;
                call.start(grid, self.device)?;
                stream.synchronize()?;
                self.given.wrong = self.outputs.compare(&call.args)?;
                Ok(())
            }
            Step::Time => {
                if self.depends_on_outputs(call) {
                    self.outputs.restore(&call.args)?;
                }
                self.timed(&stream, |device| call.start(grid, device))
            }
        }
    }

    /// Whether the kernel reads what it writes. Of a kernel that was not looked at, nobody knows.
    fn depends_on_outputs(&self, call: &Invocation<'_>) -> bool {
        let mut written = call.args.iter().enumerate().filter(|(_, arg)| arg.written().is_some());
        written.any(|(index, _)| self.preview.is_none_or(|preview| preview.loads_from(index)))
    }

    /// The time between events around a launch, with cold caches. On a GPU the launch is given to the driver while the
    /// caches are emptied, so that what it takes the host to do so is not measured.
    fn timed(&mut self, stream: &Stream, launch: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
        if let Some(flush) = &mut self.flush {
            flush.fill(0)?;
            let emptied: Event = self.device.default_stream().record()?;
            stream.wait(&emptied)?;
        }
        let start = stream.record()?;
        launch(self.device)?;
        let end = stream.record()?;
        end.synchronize()?;
        self.given.ms = Some(start.elapsed_ms(&end)?);
        Ok(())
    }
}
