//! Looks into archives of compiled kernels.
//!
//! ```text
//! cargo run -p tilewright-inspect -- kernels.twa                      lists the variants
//! cargo run -p tilewright-inspect -- kernels.twa 3                    shows what a variant is, and its report
//! cargo run -p tilewright-inspect -- kernels.twa 3 ptx                shows a stage of it
//! cargo run -p tilewright-inspect -- kernels.twa 3 sass               shows its machine code
//! cargo run -p tilewright-inspect -- kernels.twa 3 passes             shows what each pass changes
//! cargo run -p tilewright-inspect -- kernels.twa 3 layouts            draws which thread holds which element
//! cargo run -p tilewright-inspect -- kernels.twa 3 shared             shows accesses to shared memory, with bank conflicts
//! cargo run -p tilewright-inspect -- kernels.twa 3 lines              counts what each line of the source becomes
//! cargo run -p tilewright-inspect -- kernels.twa 3 line:9             shows what line 9 becomes in each stage
//! cargo run -p tilewright-inspect -- diff old.twa new.twa             compares the variants of two archives
//! cargo run -p tilewright-inspect -- diff old.twa 3 new.twa 4         compares two variants, each stage
//! cargo run -p tilewright-inspect -- diff old.twa 3 new.twa 4 sass    compares a stage of them
//! cargo run -p tilewright-inspect -- kernels.twa --html kernels.html  writes one page with all of it
//! ```
//!
//! An archive holds the bound tile IR, the PTX and the report of each variant. The stages between are made again, by the
//! compiler of this program; where that gives other PTX than the archive holds, it is said. So are the lines of the source
//! that everything is from: the kernel is compiled once more with line information, which changes no instruction.
//!
//! Machine code is the archive's where it has some, else what NVIDIA's assembler makes of the PTX, and it is shown by
//! NVIDIA's disassembler. Both are found as everywhere: `TILEWRIGHT_PTXAS` names the assembler, beside which the disassembler
//! is looked for, then the path and the CUDA toolkit. Where one is missing, that is said in a line, and the rest is shown.
//!
//! The source is read from the files that the archive names, from the current folder or one around it; `--source FOLDER`
//! names another.
//!
//! | module | what it is |
//! |---|---|
//! | [`stages`] | every stage of a variant, as text |
//! | [`lines`] | which lines of the source each line of a stage is from |
//! | [`source`] | the lines of the source |
//! | [`machine`] | machine code |
//! | [`layouts`] | layouts as pictures |
//! | [`panes`] | all of that together |
//! | [`terminal`] | lists, stages and differences as lines |
//! | [`page`] | the same as HTML |

pub mod layouts;
pub mod lines;
pub mod machine;
pub mod page;
pub mod panes;
pub mod source;
pub mod stages;
pub mod terminal;

use std::path::Path;

use kernel_archive::{ArchiveError, Entry, Machine, Reader};

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
    /// A file of the cache that has machine code.
    #[error("{path}: this is machine code for GPUs of {}.{}, by {maker}; the PTX that it was made of is in another file", capability / 10, capability % 10)]
    MachineCode {
        /// The file.
        path: String,
        /// The compute capability that runs it: 90 for 9.0.
        capability: u32,
        /// Who has made it.
        maker: String,
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
    /// There is no machine code, or nothing to show it.
    #[error("there is no machine code to show: {reason}")]
    NoMachineCode {
        /// Why not.
        reason: String,
    },
    /// What stands behind `diff` is neither two archives nor a variant of each.
    #[error(
        "`diff` takes two files, `inspect diff OLD NEW`, or a variant of each, `inspect diff OLD NUMBER NEW NUMBER [STAGE]`"
    )]
    NotTwo,
    /// Nothing is from that line.
    #[error("nothing is from line {line} of the source; `lines` has those that something is from")]
    NoLine {
        /// The line that was asked for.
        line: String,
    },
}

/// Reads an archive. Variants come in the order of their names, so that those of a kernel stand together.
///
/// # Errors
/// If the file cannot be read, or is no archive.
pub fn read(path: &Path) -> Result<Vec<Entry>, InspectError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| InspectError::File { path: name(), error })?;
    let machine = || Machine::decode(Reader::new(&bytes).ok()?.entry(0).ok()?).ok();
    let mut entries = kernel_archive::read(&bytes).map_err(|error| match machine() {
        Some(Machine { head, .. }) => {
            InspectError::MachineCode { path: name(), capability: head.capability, maker: head.maker }
        }
        None => InspectError::Archive { path: name(), error },
    })?;
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
