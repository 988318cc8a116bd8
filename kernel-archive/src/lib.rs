//! Compiled kernels in files.
//!
//! Internal to [Tilewright](https://docs.rs/tilewright): only the crate `tilewright` is public API. This one may change
//! in any release.
//!
//! | module | what it is |
//! |---|---|
//! | [`container`] | the bytes of an archive: an index and entries, with checksums |
//! | [`entry`] | a compiled variant as it is written down |
//! | [`machine`] | its machine code, beside its PTX |
//! | [`identity`] | what tells variants apart, and which serve which launches |
//! | [`places`] | kernels without their places in the source, for keys that stay when lines move |
//! | [`file`](mod@file) | files that are replaced as a whole, or merged by several processes |
//! | [`cache`] | a folder of archives with a limit of size, shared by processes |
//!
//! Nothing here compiles, launches, or knows a driver: compiled code comes in, and goes out.
//!
//! Files are read into memory rather than mapped. A process that reads a mapped file which somebody truncates is killed, and
//! not all who write a file are ours, which replace it as a whole: `cp` writes into the file that is there. What is read of
//! a cache are tens of kilobytes, for which reading is cheaper, too: opening, reading and closing a file of 48 KiB takes
//! 4 microseconds on the machine that builds this, mapping it 9; at 3 MiB they are 97 and 70. An archive that a program
//! embeds is mapped with the program.

pub mod cache;
pub mod container;
pub mod entry;
mod error;
pub mod file;
pub mod identity;
pub mod machine;
pub mod places;

pub use cache::Cache;
pub use container::{FORMAT, Key, Reader};
pub use entry::{Code, Entry, Head, Made, Maker, Site, Texts};
pub use error::ArchiveError;
pub use identity::{Identity, Options, Param};
pub use machine::{Machine, MachineHead};
pub use places::Places;

/// The bytes of an archive of these variants; of several that are the same variant, the last is kept.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let encoded: Vec<(Key, Vec<u8>)> =
        entries.iter().map(|entry| (entry.head.identity.key(""), entry::encode(entry))).collect();
    let borrowed: Vec<(Key, &[u8])> = encoded.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
    container::write(&borrowed)
}

/// The variants of an archive.
///
/// # Errors
/// If it is none, or damaged.
pub fn read(file: &[u8]) -> Result<Vec<Entry>, ArchiveError> {
    let reader = Reader::new(file)?;
    (0..reader.len()).map(|index| entry::decode(reader.entry(index)?)).collect()
}
