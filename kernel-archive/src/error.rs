//! Why an archive cannot be used.

use crate::container::FORMAT;

/// What is wrong with an archive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Something else.
    #[error("this is no archive of compiled kernels")]
    NoArchive,
    /// An archive that another version of Tilewright has written.
    #[error("this archive has version {found} of the format, and this program reads version {FORMAT}; make it anew")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its checksums do not fit.
    #[error("this archive is damaged; make it anew")]
    Damaged,
}
