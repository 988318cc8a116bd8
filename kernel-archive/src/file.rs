//! Files that other processes read and write at the same time.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the names of unfinished files end in.
pub const UNFINISHED: &str = "unfinished";

/// Writes a file anew, as a whole: whoever opens it gets the old bytes or the new ones, and if this fails, or the process
/// is killed, the old ones stay.
///
/// The bytes are not forced to the disk. After a loss of power the file may be empty or cut off, which its checksums show.
///
/// # Errors
/// Those of the file system: the folder cannot be written, or the disk is full.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = unfinished_name(path);
    // New, so that a link which somebody has put there is not followed.
    let written = OpenOptions::new().write(true).create_new(true).open(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.flush()
    });
    let renamed = written.and_then(|()| fs::rename(&unfinished, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    renamed
}

/// A name beside the file's that nobody else uses, in whatever process, on whatever machine.
fn unfinished_name(path: &Path) -> PathBuf {
    let random = RandomState::new().build_hasher().finish();
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{random:016x}.{UNFINISHED}", std::process::id()));
    path.with_file_name(name)
}

/// Changes a file, one process after the other: `change` gets its bytes, none if there is no such file, and gives the new
/// ones. `None` leaves it as it is.
///
/// # Errors
/// Those of the file system, and that of `change`.
pub fn update<E: From<io::Error>>(
    path: &Path,
    change: impl FnOnce(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
) -> Result<(), E> {
    let mut lock = path.as_os_str().to_os_string();
    lock.push(".lock");
    // It stays: who removed it would take it from those that wait for it.
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(PathBuf::from(lock))?;
    File::lock(&lock)?;
    let old = match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    match change(old.as_deref())? {
        Some(new) => Ok(replace(path, &new)?),
        None => Ok(()),
    }
    // The lock ends with its file, or with the process.
}
