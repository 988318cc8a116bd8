//! How long a configuration takes: on a device, or by a function that tests give.

use crate::error::Error;
use crate::launch::Config;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::time::Duration;

/// What measures configurations. The search, its limits and what is kept do not know how.
pub trait Measure<C> {
    /// Begins to make a configuration ready, if that can go on beside measuring. It is checked later, in the order in which
    /// configurations come here.
    fn begin(&mut self, config: &Config<C>) {
        let _ = config;
    }

    /// Runs a configuration once, to see whether it works and computes what the others do.
    ///
    /// # Errors
    ///
    /// Why it does not.
    fn check(&mut self, config: &Config<C>) -> Result<(), Failure>;

    /// Runs a configuration that works once more, and gives the time in milliseconds.
    ///
    /// # Errors
    ///
    /// What went wrong.
    fn time(&mut self, config: &Config<C>) -> Result<f64, Failure>;

    /// The time since measuring began, for budgets.
    fn elapsed(&mut self) -> Duration;

    /// The clock of the multiprocessors in MHz and what holds it back, where that is known.
    fn clock(&mut self) -> Option<Clock> {
        None
    }
}

/// The state of a GPU's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// MHz of the multiprocessors.
    pub mhz: u32,
    /// What holds it back: `none`, or names joined by `+`.
    pub held_back: String,
}

/// Why a configuration is out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The reason, for a person.
    pub reason: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The kernel does not compile for these constexprs: an assertion at compile time, a shape that is no power of two.
    Compile,
    /// It takes more shared memory, registers or threads than there are.
    Resources,
    /// It ran and reported an error: an access out of bounds, a failed assertion.
    Run,
    /// It did not end in time, or took too long to compile.
    Time,
    /// Its results are others than those of the first configuration.
    Wrong,
    /// The device answers no more, as after an access to memory that is not there: what comes after fails too.
    Lost,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Compile => "does not compile",
            FailureKind::Resources => "takes too much",
            FailureKind::Run => "fails",
            FailureKind::Time => "takes too long",
            FailureKind::Wrong => "computes something else",
            FailureKind::Lost => "loses the device",
            FailureKind::Other => "does not work",
        }
    }
}

impl Failure {
    /// A failure with its reason.
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Failure {
        Failure { kind, reason: reason.into() }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let kind = match error {
            Error::Compile(_) | Error::InvalidSetting { .. } | Error::InvalidGrid { .. } => FailureKind::Compile,
            Error::Resources { .. } | Error::OutOfMemory { .. } => FailureKind::Resources,
            Error::OutOfBounds { .. } | Error::AssertFailed { .. } => FailureKind::Run,
            Error::TimeLimit { .. } => FailureKind::Time,
            _ => FailureKind::Other,
        };
        Failure::new(kind, error.to_string())
    }
}

/// What a panic says.
pub(super) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it says nothing")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.reason)
    }
}
