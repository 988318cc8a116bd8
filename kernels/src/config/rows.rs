//! What a table says of one device, as calls ask for it: in a tenth of a microsecond.

use super::{Config, Key, Serves};
use std::any::Any;
use std::collections::HashMap;
use std::sync::OnceLock;
use tilewright::{Result, launch, tune};

/// The rows of a device.
#[derive(Debug, Default)]
pub(crate) struct Rows(HashMap<String, Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    dtype: String,
    bucket: Vec<usize>,
    row: tune::Row,
    /// The configuration, once it was asked for: a `Result<launch::Config<C>>` of its kernel's `C`.
    typed: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Rows {
    pub(super) fn of(table: &tune::Table, device: &str) -> Rows {
        let entry = |row: &tune::Row| Entry {
            dtype: row.dtype.clone(),
            bucket: tune::bucket(&row.sizes),
            row: row.clone(),
            typed: OnceLock::new(),
        };
        let mut all = HashMap::new();
        for kernel in table.kernels() {
            let rows = table.rows(kernel).iter().filter(|row| row.device == device);
            // Of two rows for the same, the last one counts.
            let entries: Vec<Entry> = rows.rev().map(entry).collect();
            if !entries.is_empty() {
                all.insert(kernel.to_string(), entries);
            }
        }
        Rows(all)
    }

    /// The configuration for a key and sizes, if there is one.
    pub(crate) fn find<C: Config>(&self, key: Key, sizes: &[usize], serves: Serves) -> Result<Option<C>> {
        let Some(entries) = self.0.get(C::KERNEL) else { return Ok(None) };
        // Most calls end here, without making texts.
        if !entries.iter().any(|entry| entry.bucket.iter().zip(sizes).all(in_bucket)) {
            return Ok(None);
        }
        let row = |sizes: &[usize], dtype: &str| {
            entries.iter().find(|entry| entry.dtype == dtype && entry.is_for(sizes)).map(Entry::config)
        };
        let exact = row(&key.sizes(sizes), &key.to_string());
        let found = match serves {
            Serves::Exactly => exact,
            Serves::Plainly => {
                exact.or_else(|| row(sizes, &key.to_string())).or_else(|| row(sizes, &key.dtype.to_string()))
            }
        };
        found.transpose()
    }
}

/// Whether a size rounds up to a bucket's.
fn in_bucket((bucket, size): (&usize, &usize)) -> bool {
    size.checked_next_power_of_two().unwrap_or(usize::MAX) == *bucket
}

impl Entry {
    fn is_for(&self, sizes: &[usize]) -> bool {
        sizes.len() == self.bucket.len() && self.bucket.iter().zip(sizes).all(in_bucket)
    }

    fn config<C: Config>(&self) -> Result<C> {
        let read = || self.row.to_config::<C>(C::KERNEL);
        let typed = self.typed.get_or_init(|| Box::new(read()));
        let known = typed.downcast_ref::<Result<launch::Config<C>>>();
        known.map_or_else(read, Clone::clone).map(|config| config.consts)
    }
}
