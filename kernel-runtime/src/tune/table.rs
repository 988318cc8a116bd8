//! Tables of configurations: TOML files in the user's repository, by kernel, device, dtype and sizes.
//!
//! ```toml
//! [[matmul]]
//! device = "NVIDIA H100 80GB HBM3"
//! dtype = "f16"
//! sizes = [4096, 4096, 4096]
//! config = { BM = 128, BN = 256, BK = 64, num_warps = 8, num_stages = 4 }
//! ```
//!
//! Each size is rounded up to a power of two: one row serves all sizes that round up to its own. A file has the form of the
//! tables of `tilewright-kernels`.

use super::file::{self, tuning_error};
use crate::error::{Error, Result};
use crate::launch::{Config, Constexprs};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Sizes of a launch that a table tells apart.
const MOST_SIZES: usize = 8;

/// How far, in doublings of all sizes together, a row may be from a launch that it serves where no row is exact.
const NEAREST: u32 = 2;

/// Rows of configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table {
    kernels: BTreeMap<String, Vec<Row>>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name of the device, as [`Device::name`](crate::Device::name) gives it.
    pub device: String,
    /// The dtypes: `f16`, or `f16, f32` of several; empty for a kernel without dtype parameters.
    pub dtype: String,
    /// The sizes, rounded up to powers of two.
    pub sizes: Vec<usize>,
    /// Constexprs and options by name.
    pub config: BTreeMap<String, i64>,
}

/// Each size rounded up to a power of two.
pub fn bucket(sizes: &[usize]) -> Vec<usize> {
    sizes.iter().map(|size| size.checked_next_power_of_two().unwrap_or(usize::MAX)).collect()
}

/// A bucket as one number: how often each size was doubled, a byte each. `None` of too many sizes.
#[inline]
fn key(sizes: &[usize]) -> Option<u64> {
    if sizes.len() > MOST_SIZES {
        return None;
    }
    // A leading one keeps lists of different lengths apart; of eight sizes, none is left out that a table can hold.
    let doublings = |size: &usize| u64::from(usize::BITS - size.saturating_sub(1).leading_zeros());
    Some(sizes.iter().fold(sizes.len() as u64, |key, size| key << 7 | doublings(size)))
}

impl Table {
    /// A table without rows.
    pub fn new() -> Self {
        Table::default()
    }

    /// Reads a table in TOML, as from `include_str!("../tuned/matmul.toml")`.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] with the line that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| tuning_error("a table cannot be read", error))
    }

    /// Reads a file; one that does not exist is a table without rows.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] for what cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match file::read(path)? {
            Some(text) => {
                toml::from_str(&text).map_err(|error| tuning_error(format!("{} cannot be read", path.display()), error))
            }
            None => Ok(Table::new()),
        }
    }

    /// The table in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Adds the rows to a file. Rows of the file for other kernels, devices, dtypes and sizes stay, and those that another
    /// process writes at the same time; the file is replaced as a whole, so that nobody reads half of it.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] if the file system refuses.
    pub fn merge_into(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        file::replace(path, |text| {
            let mut all = match text {
                Some(text) => toml::from_str(&text)
                    .map_err(|error| tuning_error(format!("{} cannot be read", path.display()), error))?,
                None => Table::new(),
            };
            all.extend(self);
            Ok(all.to_toml())
        })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.kernels.values().map(Vec::len).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kernels, or whatever else has rows.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// The names of all devices that have rows.
    pub fn devices(&self) -> BTreeSet<&str> {
        self.kernels.values().flatten().map(|row| row.device.as_str()).collect()
    }

    /// The rows of a kernel.
    pub fn rows(&self, kernel: &str) -> &[Row] {
        self.kernels.get(kernel).map_or(&[], Vec::as_slice)
    }

    /// Adds a configuration, or replaces that of the same device, dtypes and bucket of sizes.
    pub fn insert<C: Constexprs>(
        &mut self,
        kernel: &str,
        device: &str,
        dtype: &str,
        sizes: &[usize],
        config: &Config<C>,
    ) {
        let said = Config::<C>::names().zip(config.values());
        let config = said.filter_map(|(name, value)| Some((name.to_string(), value?))).collect();
        let row = Row { device: device.to_string(), dtype: dtype.to_string(), sizes: bucket(sizes), config };
        self.insert_row(kernel, row);
    }

    /// Adds the rows of another table, which replace those for the same.
    pub fn extend(&mut self, other: &Table) {
        for (kernel, rows) in &other.kernels {
            rows.iter().for_each(|row| self.insert_row(kernel, row.clone()));
        }
    }

    fn insert_row(&mut self, kernel: &str, row: Row) {
        let rows = self.kernels.entry(kernel.to_string()).or_default();
        let same = |old: &&mut Row| {
            (&old.device, &old.dtype, bucket(&old.sizes)) == (&row.device, &row.dtype, bucket(&row.sizes))
        };
        match rows.iter_mut().find(same) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
    }

    /// The configurations of the kernel `C` for a device and dtypes, ready to be asked at launches. There are none where the
    /// table has no rows for these: a slip of the pen in the kernel's name is no error, as a table may have yet to be filled.
    /// [`Table::kernels`] and [`Tuned::iter`] say what there is.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] for rows that name what the kernel does not have, or lack what it has.
    pub fn of<C: Constexprs>(&self, kernel: &str, device: &str, dtype: &str) -> Result<Tuned<C>> {
        let mut tuned = Tuned::new();
        for row in self.rows(kernel).iter().filter(|row| row.device == device && row.dtype == dtype) {
            tuned.insert(&row.sizes, row.to_config(kernel)?);
        }
        Ok(tuned)
    }
}

impl Row {
    /// The configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] with the name that the kernel does not have, or that the row lacks.
    pub fn to_config<C: Constexprs>(&self, kernel: &str) -> Result<Config<C>> {
        let wrong = |what: String| Error::Tuning {
            what: format!("a row of `{kernel}` for {:?} {what}", self.sizes).into(),
            reason: format!("its kernel has {}", Config::<C>::own_names().collect::<Vec<_>>().join(", ")).into(),
        };
        if let Some(name) = self.config.keys().find(|name| !Config::<C>::own_names().any(|known| known == *name)) {
            return Err(wrong(format!("names `{name}`")));
        }
        if let Some(name) = C::NAMES.iter().find(|name| !self.config.contains_key(**name)) {
            return Err(wrong(format!("has no `{name}`")));
        }
        Config::from_named(&self.config).ok_or_else(|| wrong("has a value that does not fit".to_string()))
    }
}

/// The configurations of one kernel on one device, for launches: `.tuned(&tuned, &[m, n, k])`.
///
/// Asked for sizes, it gives the row of their bucket; else that of the nearest bucket, up to a factor of four over all sizes;
/// else what its heuristic says; else nothing, and the launch stays as it is.
#[derive(Clone)]
pub struct Tuned<C> {
    exact: FxHashMap<u64, Config<C>>,
    rows: Vec<(Vec<u32>, Config<C>)>,
    heuristic: Option<Heuristic<C>>,
}

type Heuristic<C> = Arc<dyn Fn(&[usize]) -> Option<Config<C>> + Send + Sync>;

impl<C: Constexprs> Default for Tuned<C> {
    fn default() -> Self {
        Tuned::new()
    }
}

impl<C: Constexprs> Tuned<C> {
    /// Without rows.
    pub fn new() -> Self {
        Tuned { exact: FxHashMap::default(), rows: Vec::new(), heuristic: None }
    }

    /// A rule instead of a table, or for sizes that the table does not have: configurations that need no tuning.
    pub fn heuristic(rule: impl Fn(&[usize]) -> Option<Config<C>> + Send + Sync + 'static) -> Self {
        Tuned::new().or(rule)
    }

    /// The same, with a rule for sizes that no row serves.
    pub fn or(mut self, rule: impl Fn(&[usize]) -> Option<Config<C>> + Send + Sync + 'static) -> Self {
        self.heuristic = Some(Arc::new(rule));
        self
    }

    /// Adds a configuration for a bucket of sizes.
    pub fn insert(&mut self, sizes: &[usize], config: Config<C>) {
        if let Some(key) = key(sizes) {
            self.exact.insert(key, config);
        }
        self.rows.push((doublings(sizes), config));
    }

    /// The configuration for these sizes: of a row for sizes that round up to the same powers of two, or for near ones, which
    /// may be smaller. A kernel that is not right for all sizes looks at it before it launches, and gives it to the call with
    /// `configured`.
    #[inline]
    pub fn get(&self, sizes: &[usize]) -> Option<Config<C>> {
        match key(sizes).and_then(|key| self.exact.get(&key)) {
            Some(config) => Some(*config),
            None => self.other(sizes),
        }
    }

    /// That of a near bucket, or of the heuristic.
    #[cold]
    fn other(&self, sizes: &[usize]) -> Option<Config<C>> {
        let wanted = doublings(sizes);
        let near = self.rows.iter().filter(|(row, _)| row.len() == wanted.len()).map(|(row, config)| {
            let apart: u32 = row.iter().zip(&wanted).map(|(a, b)| a.abs_diff(*b)).sum();
            (apart, config)
        });
        // Of several that are equally near, the last one that was added.
        let near = near.filter(|(apart, _)| *apart <= NEAREST).reduce(|a, b| if b.0 <= a.0 { b } else { a });
        near.map(|(_, config)| *config).or_else(|| self.heuristic.as_ref()?(sizes))
    }

    /// Every configuration with its sizes.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<usize>, &Config<C>)> {
        let sizes =
            |row: &[u32]| row.iter().map(|&doublings| 1usize.checked_shl(doublings).unwrap_or(usize::MAX)).collect();
        self.rows.iter().map(move |(row, config)| (sizes(row), config))
    }

    /// Asks of every row whether it still works, for a test of the user's repository:
    ///
    /// ```text
    /// tuned.verify(|config, _| config.request::<f16>().options(config.options).place(Target::sm_90a()).map(drop))
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] with all rows that do not, and why.
    pub fn verify(&self, mut works: impl FnMut(&Config<C>, &[usize]) -> Result<()>) -> Result<()> {
        let mut broken = Vec::new();
        for (sizes, config) in self.iter() {
            if let Err(error) = works(config, &sizes) {
                broken.push(format!("{sizes:?} ({config}): {error}"));
            }
        }
        if broken.is_empty() {
            return Ok(());
        }
        Err(Error::Tuning {
            what: format!("{} of {} rows no longer compile", broken.len(), self.rows.len()).into(),
            reason: broken.join("\n").into(),
        })
    }
}

fn doublings(sizes: &[usize]) -> Vec<u32> {
    sizes.iter().map(|size| usize::BITS - size.saturating_sub(1).leading_zeros()).collect()
}

impl<C: fmt::Debug> fmt::Debug for Tuned<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = if self.heuristic.is_some() { " and a rule" } else { "" };
        write!(f, "Tuned({} rows{rule})", self.rows.len())
    }
}
