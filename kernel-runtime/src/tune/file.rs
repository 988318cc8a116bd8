//! Files that several processes may write: tables, which are replaced, and logs, which grow.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What went wrong, with the reason of whoever noticed.
pub(super) fn tuning_error(what: impl Into<Box<str>>, why: impl Display) -> Error {
    Error::Tuning { what: what.into(), reason: why.to_string().trim_end().into() }
}

/// The text of a file, if there is one.
///
/// # Errors
/// [`Error::Tuning`] with what the file system says.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(tuning_error(format!("{} cannot be read", path.display()), error)),
    }
}

/// Replaces a file by what `change` makes of its text. Processes that do this at the same time take turns, and nobody
/// reads half of the file.
///
/// # Errors
/// [`Error::Tuning`] with what the file system says; those of `change`.
pub(super) fn replace(path: &Path, change: impl FnOnce(Option<String>) -> Result<String>) -> Result<()> {
    let refused = |error: std::io::Error| tuning_error(format!("{} cannot be written", path.display()), error);
    let _turn = turn(path).map_err(refused)?;
    let text = change(read(path)?)?;
    // In the same folder, so that renaming is one step.
    let new = beside(path, &format!(".{}.new", std::process::id()));
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(refused)
}

/// Appends lines to a file in one piece. Where its last line has no end, as a process that was killed leaves it, they begin
/// with one: what is half stays alone.
///
/// # Errors
/// [`Error::Tuning`] with what the file system says.
pub(super) fn append(path: &Path, lines: &str) -> Result<()> {
    let append = || {
        let _turn = turn(path)?;
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let end = if last == [b'\n'] { "" } else { "\n" };
        file.write_all(format!("{end}{lines}").as_bytes())
    };
    append().map_err(|error| tuning_error(format!("{} cannot be written", path.display()), error))
}

/// Waits until no other process writes the file. The lock lies beside it, as the file itself is replaced, and ends with its
/// owner, however that ends.
fn turn(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(beside(path, ".lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}
