//! Tuning: which configuration of a kernel is fastest on a device, for some sizes.
//!
//! ```text
//! let space = MatmulConsts::space().BM([64, 128]).BN([64, 128, 256]).BK([32, 64]).num_warps([4, 8]);
//! let outcome = Tuner::new(space).sizes(&[m, n, k]).table("tuned/matmul.toml").run(&device, |config, trial| {
//!     trial.launch(config.call(&a, &b, &mut c, m, n, k).grid_with(|t| (m.div_ceil(t.BM), n.div_ceil(t.BN))))
//! })?;
//! println!("{}: {} ms", outcome.best, outcome.ms);
//!
//! // Elsewhere, without measuring anything:
//! let tuned = Table::parse(include_str!("../tuned/matmul.toml"))?.of("matmul", device.name(), "f16")?;
//! matmul::<_, 64, 64, 32>(&a, &b, &mut c, m, n, k).tuned(&tuned, &[m, n, k]).grid_with(..).launch(&device)?;
//! ```
//!
//! # How it is built
//!
//! | module | what it is |
//! |---|---|
//! | `space` | [`Space`]: values for constexprs and options, conditions; what `AddConsts::space()` is around |
//! | `plan` | [`Plan`]: what is left after binding and placing each candidate, ranked by a cost model; why others are out |
//! | `search` | what to try next: a Gaussian process over what the cost model gets wrong |
//! | `measure` | [`Measure`]: what a search needs of whoever runs configurations |
//! | `device`, `compilers` | the same on a device, with compilers on all cores |
//! | `tuner`, `settings` | the search: limits, patience, finals |
//! | `outcome`, `progress`, `plot` | what came out and why, for people |
//! | `table`, `rows` | what is kept: winners by sizes, and what they say of where to begin |
//! | `log`, `file` | what is kept: every trial |
//! | `stats`, `random` | medians and noise; the same numbers for the same seed |
//!
//! **Types.** The struct that `#[kernel]` makes has a method for each constexpr, with its type, so that an axis that does not
//! exist does not compile. Inside, a configuration is a list of numbers with names, as tables hold it; the one way back
//! ([`Constexprs::from_values`](crate::launch::Constexprs)) checks count, range and `bool`. What a table names and the kernel
//! no longer has is an error, never a default.
//!
//! **Nothing is taken from the borrow checker.** The user's closure makes a call with its own borrows and hands it to a
//! [`Trial`], inside which everything happens that touches buffers: keeping, putting back, launching,
//! comparing. No reference to a buffer outlives the call. Other threads get a
//! [`CallShape`], which has facts about arguments and none of them.
//!
//! **Work of several launches** runs once for each candidate while its launches are noted instead of made
//! ([`shapes_of`](crate::launch::shapes_of)): what they take is added up, and all are compiled ahead.
//!
//! **Before anything is compiled** each candidate is bound (assertions at compile time, shapes) and placed (shared memory,
//! registers, instructions) on all cores, without LLVM. What cannot run, would spill, or becomes the same code as another is
//! out, with the reason. The rest is ranked by what the placed IR does. The model only orders: no candidate is out because
//! of it.
//!
//! **A candidate cannot harm the others.** Its outputs begin as they were before tuning, and afterwards hold what they held
//! then: a kernel that adds to its output, or works in place, is tuned like any other. A kernel that reads what it writes
//! gets it back before each timed run too. Results are compared with those of the first configuration that works, which is
//! that of [`Space::starting_at`] if there is one; where a log has trials already, one that worked then runs before any new
//! one. Whatever goes wrong (a refusal, an access out of bounds, other results,
//! a panic of the compiler or of the closure, a limit of time) is that candidate's result, and its errors are taken from the
//! streams. Errors that were there before tuning are given back before it begins. Two things are beyond that. Where a kernel
//! without checks breaks the driver's context, no process gets it back: the search ends with the best so far, a warning,
//! and [`Ended::Lost`]. And nothing can stop a kernel that runs on a GPU: one that never ends hangs the search, as it would
//! hang whoever launches it. On the CPU it is stopped.
//!
//! **Times** are those between events on the call's stream, with caches emptied before, so that the driver has the launch
//! before the GPU gets to it. Candidates that are clearly slower get fewer runs. The best run against each other in turns;
//! the configuration to start at stays unless another is faster beyond noise.
//!
//! **The same seed and the same times give the same search**: candidates are proposed and measured in one order, however
//! long compiling takes.
//!
//! **Streams and graphs.** Tuning inside a capture is refused. A launch with `.tuned(..)` only replaces numbers, so it may be
//! captured, and is the same launch as one with these numbers written out.
//!
//! **No launch measures anything.** Tables are filled by a [`Tuner`], in a program of the user's; `.tuned(..)` looks into
//! them.

mod compilers;
mod device;
mod file;
mod log;
mod measure;
mod outcome;
mod plan;
mod plot;
mod progress;
mod random;
mod rows;
mod search;
mod settings;
mod space;
pub mod stats;
mod table;
#[cfg(test)]
mod tests;
mod tuner;

pub use log::{Record, Subject, read as read_log};
pub use measure::{Clock, Failure, FailureKind, Measure};
pub use outcome::{Ended, Finalist, Outcome, Tried};
pub use plan::{Plan, Planned, Pruned};
#[cfg(feature = "tune")]
pub use progress::Bar;
pub use progress::{Observe, Progress, Silent};
pub use settings::{Settings, Stop};
pub use space::{Axis, Candidate, Space, Values};
pub use table::{Row, Table, Tuned, bucket};
pub use tuner::search;

use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::graph::capture;
use crate::launch::{CallShape, Config, Constexprs, Target, Trial, compiler_name};
use device::OnDevice;
use rows::Rows;
use std::path::PathBuf;
use std::time::Duration;
use tuner::Run;

/// Finds the fastest configuration of a space.
#[must_use = "a tuner does nothing until `run`"]
#[derive(Debug)]
pub struct Tuner<C> {
    space: Space<C>,
    settings: Settings,
    observe: Box<dyn Observe>,
    name: Option<String>,
    dtype: Option<String>,
    sizes: Vec<usize>,
    table: Option<PathBuf>,
    tolerance: Option<f64>,
    target: Option<Target>,
    processors: Option<usize>,
}

impl<C: Constexprs> Tuner<C> {
    /// A tuner with the usual limits: a minute, spaces of up to 64 configurations as a whole.
    pub fn new(space: impl Into<Space<C>>) -> Self {
        Tuner {
            space: space.into(),
            settings: Settings::default(),
            observe: Box::new(Silent),
            name: None,
            dtype: None,
            sizes: Vec::new(),
            table: None,
            tolerance: None,
            target: None,
            processors: None,
        }
    }

    /// What is tuned for: numbers by which a table tells launches apart, such as rows, columns and the length of sums.
    pub fn sizes(mut self, sizes: &[usize]) -> Self {
        self.sizes = sizes.to_vec();
        self
    }

    /// What tables and logs call the work, instead of the kernel's name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_string());
        self
    }

    /// What tables and logs say of dtypes, instead of those of the call: needed where the work is more than a launch.
    pub fn dtype(mut self, dtype: &str) -> Self {
        self.dtype = Some(dtype.to_string());
        self
    }

    /// How long it may take, but for the least that there is to do: [`Settings::budget`].
    pub fn budget(mut self, budget: Duration) -> Self {
        self.settings.budget = Some(budget);
        self
    }

    /// The most trials.
    pub fn trials(mut self, trials: usize) -> Self {
        self.settings.trials = trials;
        self
    }

    /// Tries spaces of up to so many configurations as a whole.
    pub fn exhaustive_up_to(mut self, configurations: usize) -> Self {
        self.settings.exhaustive = configurations;
        self
    }

    /// Ends after so many trials without an improvement.
    pub fn patience(mut self, trials: usize) -> Self {
        self.settings.patience = trials;
        self
    }

    /// How many run against each other at the end.
    pub fn finalists(mut self, finalists: usize) -> Self {
        self.settings.finalists = finalists;
        self
    }

    /// Where chance begins: the same seed and the same times give the same search.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// The least time that the work can take, in milliseconds. A search that comes within 2 % of it ends.
    pub fn bound_ms(mut self, bound: f64) -> Self {
        self.settings.bound = Some(bound);
        self
    }

    /// How far outputs may differ from those of the first configuration, as a share of their largest magnitude. Without it
    /// half of the digits of the dtype must agree, and integers wholly.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// Keeps the winner in this table. Its row for these sizes is tried first, and stays unless another configuration is
    /// faster beyond noise; with [`Space::starting_at`], that one is what stays. Up to four rows of near sizes and of other
    /// devices are tried next. Unless there is a log already, every trial is kept beside it: `tuned/matmul.toml` and
    /// `tuned/matmul.trials.jsonl`. Files that processes take turns by lie there too: `tuned/.matmul.toml.lock`.
    pub fn table(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.settings.log.get_or_insert_with(|| path.with_extension("trials.jsonl"));
        self.table = Some(path);
        self
    }

    /// Keeps every trial in this file, and takes those that it has.
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.log = Some(path.into());
        self
    }

    /// Ends where somebody asks for it.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.settings.stop = stop.clone();
        self
    }

    /// Ctrl-C ends the search, and the best so far wins. A second one ends the program as usual. The process has one handler of
    /// the signal; where it has another already, that stays.
    #[cfg(feature = "tune")]
    pub fn stop_on_ctrl_c(self) -> Self {
        let stop = self.settings.stop.clone();
        let handler = move || {
            if stop.is_asked() {
                // As a shell says of a program that the signal ended: 128 and its number.
                const INTERRUPTED: i32 = 130;
                std::process::exit(INTERRUPTED);
            }
            stop.stop();
        };
        if let Err(error) = ctrlc::try_set_handler(handler) {
            ::log::warn!("Ctrl-C does not stop tuning: {error}");
        }
        self
    }

    /// Tells somebody how it goes, such as a [`Bar`].
    pub fn observe(mut self, observe: impl Observe + 'static) -> Self {
        self.observe = Box::new(observe);
        self
    }

    /// Plans for this target instead of the device's: to look at plans for a GPU without one.
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Plans for a GPU with so many multiprocessors, with [`Tuner::target`].
    pub fn multiprocessors(mut self, count: usize) -> Self {
        self.processors = Some(count);
        self
    }

    /// What would be tried, and why the rest would not. Launches nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`](crate::Error::Tuning) for the space.
    pub fn plan(&self, device: &Device, work: impl FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>) -> Result<Plan<C>> {
        capture::refuse("tuning a kernel")?;
        let mut measure = OnDevice::new(device, work, self.tolerance);
        self.planned(device, &mut measure)
    }

    fn planned<W: FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>>(
        &self,
        device: &Device,
        measure: &mut OnDevice<'_, C, W>,
    ) -> Result<Plan<C>> {
        Plan::looked_at(&self.space, self.target_on(device), |config| self.shapes(measure, config))
    }

    fn target_on(&self, device: &Device) -> Option<Target> {
        self.target.or_else(|| device.target())
    }

    fn shapes<W: FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>>(
        &self,
        measure: &mut OnDevice<'_, C, W>,
        config: &Config<C>,
    ) -> Result<Vec<CallShape>> {
        let on = |shape: CallShape| match self.processors {
            Some(count) => shape.on_processors(count),
            None => shape,
        };
        Ok(measure.shapes(config)?.into_iter().map(on).collect())
    }

    /// Tunes on a device. `work` makes the call of a configuration and hands it to [`Trial::launch`]; what it writes is as
    /// before when this returns.
    ///
    /// # Errors
    ///
    /// Errors of earlier launches that nobody has taken; [`Error::Tuning`](crate::Error::Tuning) if no configuration works,
    /// with the reasons, or if the table cannot be read or written. A log that cannot be written is a warning of the outcome.
    pub fn run(
        mut self,
        device: &Device,
        work: impl FnMut(&Config<C>, &mut Trial<'_>) -> Result<()>,
    ) -> Result<Outcome<C>> {
        capture::refuse("tuning a kernel")?;
        device.synchronize()?;
        let table = self.table.as_ref().map_or_else(|| Ok(Table::new()), Table::read)?;
        let mut measure = OnDevice::new(device, work, self.tolerance);
        let mut plan = self.planned(device, &mut measure)?;
        let subject = self.subject(device, &plan);
        let mut rows = Rows::of(&table, &subject);
        // What the winner would replace is tried, and stays unless it is beaten.
        let own = rows.own.and_then(|row| {
            let target = self.target_on(device);
            let own = plan.include(&self.space, row, target, |config| self.shapes(&mut measure, config));
            let ignored = |why| rows.warning = Some(format!("the row of the table, {row}, is not tried: {why}"));
            own.map_err(ignored).ok()
        });
        measure.prepare(&plan, &self.settings)?;
        let any = plan.kept.first().map(|planned| planned.config);
        let (path, sizes) = (self.table.take(), subject.clone());
        let run = Run {
            plan,
            settings: &self.settings,
            measure: &mut measure,
            observe: &mut *self.observe,
            subject,
            start: self.space.start().copied().or(own),
            seeds: own.into_iter().chain(rows.near).collect(),
            tried: Vec::new(),
            has_reference: false,
            warnings: rows.warning.into_iter().collect(),
        };
        let outcome = run.run();
        let restored = any.map_or(Ok(()), |any| measure.restore(&any));
        let outcome = outcome?;
        // Of a lost device nothing can be put back, which is among the warnings.
        if outcome.ended != Ended::Lost {
            restored?;
        }
        if let Some(path) = path {
            let mut row = Table::new();
            row.insert(&sizes.kernel, &sizes.device, &sizes.dtype, &sizes.sizes, &outcome.best);
            row.merge_into(path)?;
        }
        Ok(outcome)
    }

    /// What trials are about.
    fn subject(&self, device: &Device, plan: &Plan<C>) -> Subject {
        let shape = plan.kept.iter().find_map(|planned| planned.shapes.first());
        let kernel = C::of_kernel();
        let named = || kernel.map_or_else(String::new, |kernel| kernel.name().to_string());
        Subject {
            kernel: self.name.clone().unwrap_or_else(named),
            code: plan::code(kernel.map(|kernel| kernel.source().ir)),
            version: version(device),
            device: device.name().to_string(),
            dtype: self.dtype.clone().or_else(|| shape.map(|shape| shape.dtypes())).unwrap_or_default(),
            sizes: self.sizes.clone(),
        }
    }
}

/// What makes code of kernels, or runs them on the CPU; on a GPU, the driver too, whose compiler is the last one.
fn version(device: &Device) -> String {
    let compiler = compiler_name();
    match device.is_cuda().then(driver::load) {
        Some(Ok(driver)) => format!("{compiler}, {}", driver.name()),
        _ => compiler.to_string(),
    }
}
