//! What can go wrong with the tool itself.

use std::path::Path;

/// Why no verdicts can be given.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{file}: {cause}")]
    File {
        /// Which.
        file: String,
        /// Why.
        cause: std::io::Error,
    },
    /// A list says too little, or what nobody understands.
    #[error("{file}: {cause}")]
    List {
        /// Which.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A fault is out of date.
    #[error("fault `{id}` no longer fits {file}, where this stands {count}; bring its text up to date:\n{text}")]
    Stale {
        /// The fault.
        id: String,
        /// The file that it changes.
        file: String,
        /// How often the text stands there.
        count: &'static str,
        /// The text.
        text: String,
    },
    /// Neither of two faults lies inside the other.
    #[error("faults `{first}` and `{second}` overlap: let one hold the other, or change other places")]
    Overlap {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// The workspace with its faults does not build.
    #[error("the workspace with its faults does not build (see above); `{folder}` holds the text")]
    Build {
        /// Where the copy is.
        folder: String,
    },
    /// A test binary that a list names does not exist.
    #[error("there is no test binary `{0}`: see the names in the lists")]
    NoTest(String),
    /// A test fails, or none runs, without any fault.
    #[error("`{test}` says nothing about faults: without any it {outcome}")]
    Baseline {
        /// The test.
        test: String,
        /// What happened.
        outcome: String,
    },
    /// Nothing to do.
    #[error("no fault has `{0}` in its name, file or class")]
    Nothing(String),
}

impl Error {
    /// An error of a file.
    pub fn file(file: &Path, cause: std::io::Error) -> Error {
        Error::File { file: file.display().to_string(), cause }
    }
}
