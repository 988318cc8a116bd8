//! Configurations: the block sizes, warps and stages that a kernel runs with.
//!
//! The library chooses them by rules of its own. A [`Table`] says otherwise, by kernel, device, dtype and sizes:
//!
//! ```
//! use tilewright_kernels::Table;
//!
//! let table = Table::parse(
//!     r#"
//!     [[softmax]]
//!     device = "NVIDIA H100 80GB HBM3"
//!     dtype = "bf16"
//!     sizes = [8192, 4096]
//!     config = { block = 4096, num_warps = 8 }
//!     "#,
//! );
//! assert_eq!(table?.len(), 1);
//! # Ok::<(), tilewright::Error>(())
//! ```
//!
//! Sizes are those that the kernel's configuration documents, each rounded up to a power of two: one row serves all sizes
//! that round up to its own.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tilewright::{ElementType, Error, Result};

/// A set of named numbers that a kernel is launched with.
pub trait Config: Copy + std::fmt::Debug + 'static {
    /// The name of the kernel in tables.
    const KERNEL: &'static str;
    /// The names of the numbers.
    const FIELDS: &'static [&'static str];

    /// The numbers, in the order of their names.
    fn values(&self) -> Vec<usize>;

    /// A configuration of these numbers, which are as many as there are names.
    fn from_values(values: &[usize]) -> Self;
}

/// Declares the configuration of a kernel: a struct of `usize` fields, each documented, that tables can name.
macro_rules! config {
    (
        $(#[$meta:meta])*
        $kernel:literal: pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: usize),+ }

        impl $crate::config::Config for $name {
            const KERNEL: &'static str = $kernel;
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),+];

            fn values(&self) -> Vec<usize> {
                vec![$(self.$field),+]
            }

            fn from_values(values: &[usize]) -> Self {
                let mut values = values.iter().copied();
                $name { $($field: values.next().unwrap_or_default()),+ }
            }
        }
    };
}
pub(crate) use config;

/// Configurations by kernel, device, dtype and sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table {
    kernels: BTreeMap<String, Vec<Row>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    device: String,
    dtype: String,
    sizes: Vec<usize>,
    config: BTreeMap<String, usize>,
}

/// Sizes that share a configuration have the same bucket.
fn bucket(sizes: &[usize]) -> Vec<usize> {
    sizes.iter().map(|size| size.checked_next_power_of_two().unwrap_or(usize::MAX)).collect()
}

impl Table {
    /// A table without rows.
    pub fn new() -> Self {
        Table::default()
    }

    /// Reads a table in TOML.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] with the line that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text)
            .map_err(|error| invalid("the table", error.to_string(), "rows as `tilewright_kernels::config` shows them"))
    }

    /// The table in TOML, as [`Table::parse`] reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.kernels.values().map(Vec::len).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a configuration, or replaces that of the same device, dtype and bucket of sizes.
    pub fn insert<C: Config>(&mut self, device: &str, dtype: ElementType, sizes: &[usize], config: C) {
        let names = C::FIELDS.iter().map(|name| name.to_string());
        let row = Row {
            device: device.to_owned(),
            dtype: dtype.to_string(),
            sizes: bucket(sizes),
            config: names.zip(config.values()).collect(),
        };
        let rows = self.kernels.entry(C::KERNEL.to_owned()).or_default();
        rows.retain(|old| {
            (&old.device, &old.dtype, bucket(&old.sizes)) != (&row.device, &row.dtype, row.sizes.clone())
        });
        rows.push(row);
    }

    /// The configuration of these sizes, if the table has one.
    pub(crate) fn find<C: Config>(&self, device: &str, dtype: ElementType, sizes: &[usize]) -> Result<Option<C>> {
        let (dtype, wanted) = (dtype.to_string(), bucket(sizes));
        let rows = self.kernels.get(C::KERNEL).into_iter().flatten();
        let found = rows.rev().find(|row| row.device == device && row.dtype == dtype && bucket(&row.sizes) == wanted);
        found.map(Row::config).transpose()
    }
}

impl Row {
    fn config<C: Config>(&self) -> Result<C> {
        let expected = || format!("numbers for {}", C::FIELDS.join(", "));
        if let Some(name) = self.config.keys().find(|name| !C::FIELDS.contains(&name.as_str())) {
            return Err(invalid(C::KERNEL, name.clone(), expected()));
        }
        let value = |name: &&str| {
            self.config.get(*name).copied().ok_or_else(|| invalid(C::KERNEL, format!("no `{name}`"), expected()))
        };
        Ok(C::from_values(&C::FIELDS.iter().map(value).collect::<Result<Vec<_>>>()?))
    }
}

fn invalid(name: &str, value: String, expected: impl Into<Box<str>>) -> Error {
    Error::InvalidSetting {
        name: format!("the configuration of {name}").into(),
        value: value.into(),
        expected: expected.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    config! {
        /// For the tests.
        "sample": pub struct Sample {
            /// A block.
            pub block,
            /// Warps.
            pub num_warps,
        }
    }

    #[test]
    fn a_table_is_what_it_was_written_from() {
        let mut table = Table::new();
        table.insert("here", ElementType::F16, &[100, 64], Sample { block: 8, num_warps: 4 });
        table.insert("here", ElementType::F16, &[128, 64], Sample { block: 16, num_warps: 4 });
        table.insert("there", ElementType::F16, &[128, 64], Sample { block: 32, num_warps: 4 });
        assert_eq!(table.len(), 2, "100 and 128 share a bucket");
        let read = Table::parse(&table.to_toml()).unwrap();
        assert_eq!(read, table);
        let found = read.find::<Sample>("here", ElementType::F16, &[64, 33]).unwrap();
        assert_eq!(found, None);
        let found = read.find::<Sample>("here", ElementType::F16, &[65, 64]).unwrap();
        assert_eq!(found, Some(Sample { block: 16, num_warps: 4 }));
    }

    #[test]
    fn names_that_a_kernel_does_not_have_are_errors() {
        let row = |config: &str| {
            let text = format!("[[sample]]\ndevice = \"d\"\ndtype = \"f32\"\nsizes = [1]\nconfig = {{ {config} }}");
            Table::parse(&text).unwrap().find::<Sample>("d", ElementType::F32, &[1]).unwrap_err().to_string()
        };
        assert_eq!(
            row("block = 1, warps = 4"),
            "the configuration of sample is set to `warps`; expected numbers for block, num_warps"
        );
        assert_eq!(
            row("block = 1"),
            "the configuration of sample is set to `no `num_warps``; expected numbers for block, num_warps"
        );
        assert!(Table::parse("[[sample]]\nfoo = 1").is_err());
    }
}
