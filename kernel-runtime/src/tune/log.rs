//! Every trial, one line of JSON each, in a file beside the table: what was measured once need not be measured again.
//!
//! A trial counts again only where all is as it was: the kernel's code, device, dtypes, sizes, the compiler and
//! the driver. What was measured otherwise says what to try first.

use super::file;
use super::measure::{Clock, Failure};
use crate::error::Result;
use crate::launch::{Config, Constexprs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What a trial is about, apart from its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The kernel, or whatever the table calls the work.
    pub kernel: String,
    /// A hash of the tile IR of the kernels that are launched.
    pub code: String,
    /// The compiler with its version, and on a GPU the driver.
    pub version: String,
    /// The device's name.
    pub device: String,
    /// The dtypes.
    pub dtype: String,
    /// The sizes, as they were and not rounded.
    pub sizes: Vec<usize>,
}

impl Subject {
    /// Whether it is the same but for the code.
    pub(crate) fn is_of(&self, other: &Subject) -> bool {
        let Subject { kernel, code: _, version, device, dtype, sizes } = self;
        (kernel, version, device) == (&other.kernel, &other.version, &other.device)
            && (dtype, sizes) == (&other.dtype, &other.sizes)
    }

    /// How much a trial of another subject says about this one: nothing of another kernel, and the less the further sizes
    /// are apart; another device counts as a factor of 16.
    pub(crate) fn distance(&self, other: &Subject) -> Option<f64> {
        if self.kernel != other.kernel || self.dtype != other.dtype || self.sizes.len() != other.sizes.len() {
            return None;
        }
        const OTHER_DEVICE: f64 = 4.0;
        let doublings = |(a, b): (&usize, &usize)| ((*a.max(&1) as f64) / (*b.max(&1) as f64)).log2().abs();
        let sizes: f64 = self.sizes.iter().zip(&other.sizes).map(doublings).sum();
        Some(sizes + if self.device == other.device { 0.0 } else { OTHER_DEVICE })
    }
}

/// What came out for a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was tuned.
    #[serde(flatten)]
    pub subject: Subject,
    /// Constexprs and options by name.
    pub config: BTreeMap<String, i64>,
    /// The median of its runs, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// Why it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The runs.
    #[serde(default)]
    pub runs: usize,
    /// The clock behind the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
}

impl Record {
    /// Its configuration, if the kernel still has one like it.
    pub(crate) fn to_config<C: Constexprs>(&self) -> Option<Config<C>> {
        Config::from_named(&self.config)
    }
}

/// The names and values of a configuration.
pub(crate) fn named<C: Constexprs>(config: &Config<C>) -> BTreeMap<String, i64> {
    let said = Config::<C>::names().zip(config.values());
    said.filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// All trials of a file; of one that does not exist, none. Lines that are none, as an interrupted write leaves them, are
/// passed over.
///
/// # Errors
/// [`crate::Error::Tuning`] if the file cannot be read.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Record>> {
    let text = file::read(path.as_ref())?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Adds a trial to a file.
///
/// # Errors
/// [`crate::Error::Tuning`] if the file system refuses.
pub(crate) fn append(path: &Path, record: &Record) -> Result<()> {
    let mut line = serde_json::to_string(record).unwrap_or_default();
    line.push('\n');
    file::append(path, &line)
}
