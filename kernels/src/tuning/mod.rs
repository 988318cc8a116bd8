//! Which configurations of the library's kernels are fastest on a device.
//!
//! A function asks its [`Context`] how its kernels shall run. [`Context::asked`] says what it asked, and [`tune()`] measures what
//! else it could be told, with the [tuner](tilewright::tune) of kernels: candidates are pruned and ranked before anything is
//! compiled, and compared with what the library would have chosen.
//!
//! ```
//! use std::time::Duration;
//! use tilewright::prelude::*;
//! use tilewright_kernels::tuning::{self, Effort};
//! use tilewright_kernels::{Context, Table, Tensor, rows};
//!
//! # fn main() -> Result<(), Error> {
//! let cx = Context::new(&Device::best()?);
//! let x = Tensor::upload(cx.device(), &[1.0f32; 96], [2, 48])?;
//! let softmax = |cx: &Context| rows::softmax(cx, &x).map(drop);
//!
//! let (result, asked) = cx.asked(softmax);
//! result?;
//! assert_eq!((asked[0].kernel, asked[0].dtype.as_str()), ("softmax", "f32"));
//! let effort = Effort::default().budget(Duration::from_secs(2)).trials(3);
//! let found = tuning::tune(&cx, &asked[0], &effort, softmax, &mut ())?;
//! println!("{found}");
//!
//! // Where it is better than what the library chooses, a row of a table, for contexts of one's own or a file.
//! let table: Table = found.table;
//! let cx = cx.with_table(table);
//! # Ok(())
//! # }
//! ```
//!
//! The library's own table is made so, by `cargo bench -p tilewright-bench --bench kernels -- --tune`.

mod spaces;
mod visit;

use crate::config::{Config, Key};
use crate::{Context, Table};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tilewright::launch::{self, Placement};
use tilewright::tune::{self, Ended, Observe, Outcome, Stop, Tuner};
use tilewright::{Error, Result, Target};
pub(crate) use visit::Tunable;
use visit::Visit;

/// What a function asked of its context: how a kernel shall run.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The kernel, as tables call it.
    pub kernel: &'static str,
    /// The dtype, and behind it which function, where several share a configuration: `bf16`, `bf16, gradient`.
    pub dtype: String,
    /// The sizes, as the kernel's configuration documents them.
    pub sizes: Vec<usize>,
    /// What it was told: numbers by name.
    pub config: BTreeMap<String, i64>,
}

impl Asked {
    pub(crate) fn of<C: Config>(key: Key, sizes: &[usize], config: C) -> Asked {
        let names = C::NAMES.iter().map(|name| name.to_string());
        Asked {
            kernel: C::KERNEL,
            dtype: key.to_string(),
            sizes: key.sizes(sizes),
            config: names.zip(config.values().as_ref().iter().copied()).collect(),
        }
    }
}

/// How much may be tried, where trials are kept, and who is told.
#[derive(Debug, Clone, Default)]
pub struct Effort {
    budget: Option<Duration>,
    trials: Option<usize>,
    log: Option<PathBuf>,
    stop: Stop,
    seed: u64,
}

impl Effort {
    /// How long it may take; a minute if nothing is said.
    pub fn budget(self, budget: Duration) -> Self {
        Effort { budget: Some(budget), ..self }
    }

    /// The most configurations that are tried.
    pub fn trials(self, trials: usize) -> Self {
        Effort { trials: Some(trials), ..self }
    }

    /// Keeps every trial in this file, and takes those that it has.
    pub fn log(self, path: impl Into<PathBuf>) -> Self {
        Effort { log: Some(path.into()), ..self }
    }

    /// Ends where somebody asks for it: the best so far wins.
    pub fn stop(self, stop: &Stop) -> Self {
        Effort { stop: stop.clone(), ..self }
    }

    /// Where chance begins.
    pub fn seed(self, seed: u64) -> Self {
        Effort { seed, ..self }
    }
}

/// What tuning found for one thing that was asked.
#[derive(Debug, Clone)]
pub struct Found {
    /// What was tuned.
    pub asked: Asked,
    /// The fastest configuration, by name.
    pub best: BTreeMap<String, i64>,
    /// Its median time in the final, in milliseconds.
    pub ms: f64,
    /// The median time in the same final of what the function was told before.
    pub before_ms: f64,
    /// Configurations of the space that could be tried: the others need more than the device has.
    pub kept: usize,
    /// Configurations that were tried.
    pub tried: usize,
    /// Why those of them that do not work do not, one reason each.
    pub failed: Vec<String>,
    /// Why the search ended.
    pub ended: Ended,
    /// How long it took.
    pub time: Duration,
    /// One row, where the fastest is another configuration than before, and faster beyond noise; else none.
    pub table: Table,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { asked, before_ms, ms, tried, kept, .. } = self;
        write!(f, "{} {} {:?}: {before_ms:.4} ms, ", asked.kernel, asked.dtype, asked.sizes)?;
        if self.table.is_empty() {
            write!(f, "nothing faster in {tried} of {kept} configurations")
        } else {
            let numbers: Vec<String> = self.best.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            write!(f, "tuned {ms:.4} ms ({tried} of {kept} tried): {}", numbers.join(", "))
        }
    }
}

/// What a function computes, so that configurations that compute something else do not win. `()` looks at nothing.
pub trait Results {
    /// Overwrites what the last call has left.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn forget(&mut self) -> Result<()>;

    /// Looks at what a call has left.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for a person.
    fn verify(&mut self) -> std::result::Result<(), String>;
}

impl Results for () {
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Finds the fastest configuration of what a function asked. `work` calls the function, on the stream of the context that it is
/// given, as often as the tuner likes; `results` are looked at after a first call in each configuration.
///
/// # Errors
///
/// [`Error::Tuning`] for a kernel that the library does not have, and if no configuration works; errors of earlier launches.
pub fn tune(
    cx: &Context,
    asked: &Asked,
    effort: &Effort,
    work: impl FnMut(&Context) -> Result<()>,
    results: &mut impl Results,
) -> Result<Found> {
    tune_observed(cx, asked, effort, tune::Silent, work, results)
}

/// As [`tune()`], telling somebody how it goes, such as a [`tilewright::tune::Bar`].
///
/// # Errors
///
/// Those of [`tune()`].
pub fn tune_observed(
    cx: &Context,
    asked: &Asked,
    effort: &Effort,
    observe: impl Observe + 'static,
    work: impl FnMut(&Context) -> Result<()>,
    results: &mut impl Results,
) -> Result<Found> {
    visit::visit(asked.kernel, Search { cx, asked, effort, observe, work, results })?
}

/// A search over the space of a configuration that is not known yet.
struct Search<'s, O, W, R> {
    cx: &'s Context,
    asked: &'s Asked,
    effort: &'s Effort,
    observe: O,
    work: W,
    results: &'s mut R,
}

impl<O, W, R> Visit for Search<'_, O, W, R>
where
    O: Observe + 'static,
    W: FnMut(&Context) -> Result<()>,
    R: Results,
{
    type Out = Result<Found>;

    fn visit<C: Tunable>(self) -> Result<Found> {
        let Search { cx, asked, effort, observe, mut work, results } = self;
        let before = asked.config::<C>()?;
        let space = C::space(asked).starting_at(before);
        let mut tuner = Tuner::new(space).name(C::KERNEL).dtype(&asked.dtype).sizes(&asked.sizes);
        tuner = tuner.stop(&effort.stop).seed(effort.seed).observe(observe);
        tuner = effort.budget.into_iter().fold(tuner, Tuner::budget);
        tuner = effort.trials.into_iter().fold(tuner, Tuner::trials);
        tuner = effort.log.iter().fold(tuner, |tuner, path| tuner.log(path));
        let outcome = tuner.run(cx.device(), |config, trial| {
            let cx = cx.clone().with_config(config.consts);
            let results = RefCell::new(&mut *results);
            let (forget, verify) = (|| results.borrow_mut().forget(), || results.borrow_mut().verify());
            trial.run_checked(cx.stream(), forget, || work(&cx), verify)
        })?;
        Ok(Found::of(asked, &before, cx.device().name(), &outcome))
    }
}

impl Found {
    fn of<C: Config>(asked: &Asked, before: &launch::Config<C>, device: &str, outcome: &Outcome<C>) -> Found {
        let time_of = |config: &launch::Config<C>| {
            let finalist = outcome.finalists.iter().find(|finalist| finalist.config == *config);
            finalist.map_or(f64::NAN, |finalist| finalist.ms)
        };
        let mut table = tune::Table::new();
        // A configuration to start at stays the winner unless another is faster beyond noise.
        if outcome.best != *before {
            table.insert(asked.kernel, device, &asked.dtype, &asked.sizes, &outcome.best);
        }
        let names = C::NAMES.iter().map(|name| name.to_string());
        let failed = outcome.tried.iter().filter_map(|tried| tried.result.as_ref().err());
        Found {
            asked: asked.clone(),
            best: names.zip(outcome.best.consts.values().as_ref().iter().copied()).collect(),
            ms: outcome.ms,
            before_ms: time_of(before),
            kept: outcome.plan.kept.len(),
            tried: outcome.tried.len(),
            failed: failed.map(ToString::to_string).collect(),
            ended: outcome.ended,
            time: outcome.time,
            table: table.into(),
        }
    }
}

impl Asked {
    /// What was told, with its type.
    fn config<C: Config>(&self) -> Result<launch::Config<C>> {
        launch::Config::from_named(&self.config).ok_or_else(|| Error::Tuning {
            what: format!("`{}` was told {:?}", self.kernel, self.config).into(),
            reason: format!("its numbers are {}", C::NAMES.join(", ")).into(),
        })
    }
}

/// A context in which a kernel runs as a row of a table says, whatever the sizes.
///
/// # Errors
///
/// [`Error::Tuning`] for a kernel that the library does not have, and for a row that names what the kernel does not have, or
/// lacks what it has.
pub fn with_row(cx: &Context, kernel: &str, row: &tune::Row) -> Result<Context> {
    struct With<'w>(&'w Context, &'w tune::Row);

    impl Visit for With<'_> {
        type Out = Result<Context>;

        fn visit<C: Tunable>(self) -> Result<Context> {
            Ok(self.0.clone().with_config(self.1.to_config::<C>(C::KERNEL)?.consts))
        }
    }

    visit::visit(kernel, With(cx, row))?
}

/// What the launches of `work` take of a GPU: they are bound and placed for a target, and none is made. For tests of tables, on
/// machines without a GPU: the context of `work` may be one of the CPU.
///
/// # Errors
///
/// Those of the work; [`Error::Compile`], [`Error::Resources`] and others for what can no longer be compiled, and
/// [`Error::Tuning`] where no program fits a multiprocessor.
pub fn placed(target: Target, work: impl FnOnce() -> Result<()>) -> Result<Vec<Placement>> {
    let place = |shape: launch::CallShape| {
        let placed = shape.preview(Some(target))?.placement;
        let fits = placed.clone().filter(|placement| placement.programs > 0);
        fits.ok_or_else(|| Error::Tuning {
            what: format!("no program of `{}` fits a multiprocessor", shape.kernel()).into(),
            reason: format!("{placed:?} on {target:?}").into(),
        })
    };
    launch::shapes_of(work)?.into_iter().map(place).collect()
}
