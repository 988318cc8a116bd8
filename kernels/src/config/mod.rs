//! Configurations: the block sizes, warps and stages that a kernel runs with.
//!
//! The library has a table of what was measured, `tuned/kernels.toml`, and chooses by rules where that says nothing. A
//! [`Table`] of one's own says otherwise, by kernel, device, dtype and sizes:
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
//! that round up to its own. Behind the dtype may stand which of several functions is meant that share a configuration, such as
//! `bf16, gradient`; in a table of one's own a row without it serves them all. Tables are those of [`tilewright::tune`], which
//! also fills them: [`tuning`](crate::tuning).

use rows::Rows;
use std::fmt;
use std::sync::Arc;
use tilewright::launch::{Constexprs, LaunchOptions};
use tilewright::{ElementType, Error, Result, tune};

mod own;
mod rows;

pub(crate) use own::of_device;
pub use own::own_table;

/// A set of named numbers that a kernel is launched with: constexprs and options in one.
pub trait Config: Constexprs {
    /// The name of the kernel in tables.
    const KERNEL: &'static str;

    /// The fields of which 0 means something; of others it is refused.
    const MAY_BE_ZERO: &'static [&'static str] = &[];
}

/// Declares the configuration of a kernel: a struct of `usize` fields, each documented, that tables can name. `or 0` stands
/// behind a field of which 0 means something.
macro_rules! config {
    (
        $(#[$meta:meta])*
        $kernel:literal: pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident $(or $zero:literal)?),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: usize),+ }

        impl tilewright::launch::Constexprs for $name {
            type Values = [i64; [$(stringify!($field)),+].len()];

            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            fn values(self) -> Self::Values {
                [$(i64::try_from(self.$field).unwrap_or(i64::MAX)),+]
            }

            fn from_values(values: &[i64]) -> Option<Self> {
                let mut values = values.iter().map(|&value| usize::try_from(value).ok());
                let config = $name { $($field: values.next()??),+ };
                values.next().is_none().then_some(config)
            }
        }

        impl $crate::config::Config for $name {
            const KERNEL: &'static str = $kernel;
            const MAY_BE_ZERO: &'static [&'static str] = &[$($((stringify!($field), $zero).0,)?)+];
        }
    };
}
pub(crate) use config;

/// Refuses blocks of nothing, by which nothing can be divided. Launches look at their options themselves.
///
/// # Errors
/// [`Error::InvalidSetting`] with the field.
pub(crate) fn refuse_zeros<C: Config>(config: C) -> Result<C> {
    let means_nothing = |name: &str| !C::MAY_BE_ZERO.contains(&name) && !LaunchOptions::NAMES.contains(&name);
    let values = config.values();
    let mut named = C::NAMES.iter().zip(values.as_ref());
    match named.find(|(name, value)| **value == 0 && means_nothing(name)) {
        None => Ok(config),
        Some((name, _)) => Err(Error::InvalidSetting {
            name: format!("{name} of {}", C::KERNEL).into(),
            value: "0".into(),
            expected: "at least 1".into(),
        }),
    }
}

/// What a configuration is for besides sizes: a dtype, and which function, where several share a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    dtype: ElementType,
    of: &'static str,
    /// More sizes, behind those of the configuration.
    more: [Option<usize>; 2],
}

impl Key {
    /// Of one of several functions; the empty name is that of none in particular.
    pub(crate) fn of(dtype: ElementType, of: &'static str) -> Self {
        Key { dtype, of, more: [None; 2] }
    }

    /// What the rule looks at besides the sizes that tables name. Rows of the library's own table name it too.
    pub(crate) fn and(self, more: [Option<usize>; 2]) -> Self {
        Key { more, ..self }
    }

    /// The sizes with those that were added.
    pub(crate) fn sizes(self, sizes: &[usize]) -> Vec<usize> {
        sizes.iter().copied().chain(self.more.into_iter().flatten()).collect()
    }
}

impl From<ElementType> for Key {
    fn from(dtype: ElementType) -> Self {
        Key::of(dtype, "")
    }
}

/// `bf16`, `bf16, gradient`
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            "" => write!(f, "{}", self.dtype),
            of => write!(f, "{}, {of}", self.dtype),
        }
    }
}

/// Configurations by kernel, device, dtype and sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table(tune::Table);

impl Table {
    /// A table without rows.
    pub fn new() -> Self {
        Table::default()
    }

    /// Reads a table in TOML.
    ///
    /// # Errors
    ///
    /// [`tilewright::Error::Tuning`] with the line that is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        tune::Table::parse(text).map(Table)
    }

    /// The table in TOML, as [`Table::parse`] reads it.
    pub fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a configuration, or replaces that of the same device, dtype and bucket of sizes.
    pub fn insert<C: Config>(&mut self, device: &str, dtype: ElementType, sizes: &[usize], config: C) {
        self.0.insert::<C>(C::KERNEL, device, &dtype.to_string(), sizes, &config.into());
    }

    /// Adds the rows of another table, which replace those for the same.
    pub fn extend(&mut self, other: &Table) {
        self.0.extend(&other.0);
    }

    /// The same table, as the tuner has them.
    pub fn as_tune(&self) -> &tune::Table {
        &self.0
    }

    /// What it says of a device, ready to be asked.
    pub(crate) fn rows_of(&self, device: &str) -> Arc<Rows> {
        Arc::new(Rows::of(&self.0, device))
    }
}

impl From<tune::Table> for Table {
    fn from(table: tune::Table) -> Self {
        Table(table)
    }
}

/// Which rows serve a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Those of the key alone, with all its sizes.
    Exactly,
    /// Also those of the dtype that name no function, and no more sizes than the configuration documents.
    Plainly,
}

pub(crate) use rows::Rows as DeviceRows;

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

    fn find(table: &Table, key: Key, sizes: &[usize], serves: Serves) -> Result<Option<Sample>> {
        table.rows_of("here").find(key, sizes, serves)
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
        let f16 = Key::from(ElementType::F16);
        assert_eq!(find(&read, f16, &[64, 33], Serves::Exactly), Ok(None));
        let found = find(&read, f16, &[65, 64], Serves::Exactly).unwrap();
        assert_eq!(found, Some(Sample { block: 16, num_warps: 4 }));
        assert_eq!(find(&read, f16, &[65], Serves::Exactly), Ok(None), "other sizes altogether");
        assert_eq!(find(&read, ElementType::BF16.into(), &[65, 64], Serves::Plainly), Ok(None));
    }

    #[test]
    fn rows_of_a_function_serve_it_alone_and_rows_without_one_serve_all_that_have_none() {
        let row = |dtype: &str, block: usize| {
            format!(
                "[[sample]]\ndevice = \"here\"\ndtype = \"{dtype}\"\nsizes = [64]\nconfig = {{ block = {block}, num_warps = 1 }}\n"
            )
        };
        let table = Table::parse(&(row("f16, gradient", 8) + &row("f16", 4))).unwrap();
        let block =
            |of, serves| find(&table, Key::of(ElementType::F16, of), &[64], serves).unwrap().map(|config| config.block);
        assert_eq!((block("gradient", Serves::Exactly), block("gradient", Serves::Plainly)), (Some(8), Some(8)));
        assert_eq!((block("", Serves::Exactly), block("other", Serves::Exactly)), (Some(4), None));
        assert_eq!(block("other", Serves::Plainly), Some(4));
    }

    #[test]
    fn names_that_a_kernel_does_not_have_are_errors() {
        let row = |config: &str| {
            let text = format!("[[sample]]\ndevice = \"here\"\ndtype = \"f32\"\nsizes = [1]\nconfig = {{ {config} }}");
            let table = Table::parse(&text).unwrap();
            find(&table, ElementType::F32.into(), &[1], Serves::Exactly).unwrap_err().to_string()
        };
        let has = "its kernel has block, num_warps, num_stages, max_registers";
        assert_eq!(row("block = 1, warps = 4"), format!("tuning: a row of `sample` for [1] names `warps`; {has}"));
        assert_eq!(row("block = 1"), format!("tuning: a row of `sample` for [1] has no `num_warps`; {has}"));
        assert!(row("block = -1, num_warps = 4").contains("a value that does not fit"));
        assert!(Table::parse("[[sample]]\nfoo = 1").is_err());
    }
}
