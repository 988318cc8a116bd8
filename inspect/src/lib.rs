//! Looks into archives of compiled kernels.
//!
//! ```text
//! cargo run -p tilewright-inspect -- kernels.twa                      lists the variants
//! cargo run -p tilewright-inspect -- kernels.twa 3                    shows what a variant is, and its report
//! cargo run -p tilewright-inspect -- kernels.twa 3 ptx                shows a stage of it
//! cargo run -p tilewright-inspect -- kernels.twa 3 passes             shows what each pass changes
//! cargo run -p tilewright-inspect -- diff old.twa 3 new.twa 4 ptx     compares a stage of two variants
//! cargo run -p tilewright-inspect -- kernels.twa --html kernels.html  writes one page with all of it
//! ```
//!
//! An archive holds the bound tile IR, the PTX and the report of each variant. The stages between are made again, by the
//! compiler of this program; where that gives other PTX than the archive holds, it is said.
//!
//! | module | what it is |
//! |---|---|
//! | [`stages`] | every stage of a variant, as text |
//! | [`terminal`] | lists, stages and differences as lines |
//! | [`page`] | the same as HTML |

pub mod page;
pub mod stages;
pub mod terminal;

use std::path::Path;

use kernel_archive::{ArchiveError, Entry};

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// A file is no archive that can be read.
    #[error("{path}: {error}")]
    Archive {
        /// The file.
        path: String,
        /// What is wrong with it.
        error: ArchiveError,
    },
    /// There is no such variant.
    #[error("there is no variant {number}: the archive has {count}, from 1")]
    NoVariant {
        /// The number that was asked for.
        number: String,
        /// How many there are.
        count: usize,
    },
    /// There is no such stage.
    #[error("there is no stage `{stage}`; there are {}", known.join(", "))]
    NoStage {
        /// The name that was asked for.
        stage: String,
        /// The stages of the variant.
        known: Vec<String>,
    },
}

/// Reads an archive. Variants come in the order of their names, so that those of a kernel stand together.
///
/// # Errors
/// If the file cannot be read, or is no archive.
pub fn read(path: &Path) -> Result<Vec<Entry>, InspectError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| InspectError::File { path: name(), error })?;
    let entries = kernel_archive::read(&bytes).map_err(|error| InspectError::Archive { path: name(), error });
    let mut entries = entries?;
    entries.sort_by_cached_key(|entry| entry.head.identity.to_string());
    Ok(entries)
}

/// The variant with that number, from 1.
///
/// # Errors
/// If there is none.
pub fn variant<'e>(entries: &'e [Entry], number: &str) -> Result<&'e Entry, InspectError> {
    let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let no_variant = || InspectError::NoVariant { number: number.to_string(), count: entries.len() };
    index.and_then(|index| entries.get(index)).ok_or_else(no_variant)
}
