//! A folder of archives, one for each variant, that any number of processes read and fill.
//!
//! There are no locks. A file appears under its name when all of it is written, and is never changed; two processes that
//! write the same variant at the same time write the same, and the later one replaces the earlier one's. Whatever is
//! wrong with a file, it is a miss. So processes may be killed at any time.
//!
//! What was used longest ago is removed when the folder is larger than its limit: a use sets the time of the file, at most
//! once in [`TOUCH_EVERY`], so that most uses write nothing. Clocks may be wrong: they decide what is removed first, and
//! nothing else.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::container::{self, Key, Reader};
use crate::file::{self, UNFINISHED};

/// How old the time of a file's last use may be.
pub const TOUCH_EVERY: Duration = Duration::from_secs(3600);

/// Unfinished files that are older were left by processes that are gone.
const UNFINISHED_FOR: Duration = Duration::from_secs(3600);

/// A process looks at the size of the folder when it writes its first variant, and then whenever it has written so many.
const LOOK_EVERY: u32 = 64;

/// A larger file is not read: it is nothing that was written here.
const MOST_BYTES: u64 = 256 << 20;

/// What files are called.
const EXTENSION: &str = "twa";

/// A folder of compiled variants.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// In bytes.
    limit: u64,
    written: AtomicU32,
}

impl Cache {
    /// Opens a folder, and makes it if there is none. It will hold about `limit` bytes.
    ///
    /// # Errors
    /// If there is no such folder and it cannot be made, or others than this user and root may write it: what is in it is
    /// run.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Cache> {
        create(folder)?;
        refuse_shared(folder)?;
        Ok(Cache { folder: folder.to_path_buf(), limit, written: AtomicU32::new(0) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a variant.
    pub fn path(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}.{EXTENSION}"))
    }

    /// The bytes that were kept under that key; `None` if there are none, or they are not what was written.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let mut file = File::open(self.path(key)).ok()?;
        let about = file.metadata().ok().filter(|about| about.is_file() && about.len() <= MOST_BYTES)?;
        let mut bytes = Vec::with_capacity(about.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        let entry = Reader::new(&bytes).ok()?.get(key).ok()??.to_vec();
        let now = SystemTime::now();
        // A time in the future is as wrong as one of long ago.
        let is_old = about.modified().is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age < TOUCH_EVERY));
        if !is_old {
            // Where this is not allowed, the file is removed earlier than it might be.
            let _ = File::options().append(true).open(self.path(key)).and_then(|file| file.set_modified(now));
        }
        Some(entry)
    }

    /// Keeps bytes under that key.
    ///
    /// # Errors
    /// Those of the file system. What was kept before stays.
    pub fn put(&self, key: Key, entry: &[u8]) -> io::Result<()> {
        let bytes = container::write(&[(key, entry)]);
        if bytes.len() as u64 > self.limit.min(MOST_BYTES) {
            return Ok(());
        }
        let path = self.path(key);
        match file::replace(&path, &bytes) {
            // Somebody has removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(&self.folder)?;
                file::replace(&path, &bytes)?;
            }
            written => written?,
        }
        if self.written.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            self.shrink()?;
        }
        Ok(())
    }

    /// Removes what was used longest ago if there is more than the limit, until four fifths of it are left; and unfinished
    /// files of processes that are gone.
    ///
    /// # Errors
    /// If the folder cannot be read. Files that cannot be removed, or that others have removed, are passed over.
    pub fn shrink(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let (mut files, mut total) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let Ok(about) = entry.metadata() else { continue };
            let (path, used) = (entry.path(), about.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                Some(EXTENSION) if about.is_file() => {
                    total += about.len();
                    files.push((used, about.len(), path));
                }
                Some(UNFINISHED) if now.duration_since(used).is_ok_and(|age| age > UNFINISHED_FOR) => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        if total <= self.limit {
            return Ok(());
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.limit / 5 * 4 {
                break;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
        }
        Ok(())
    }
}

/// Makes a folder that its owner alone may use.
fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Refuses a folder into which others may put code.
#[cfg(unix)]
fn refuse_shared(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(folder)?;
    match shared(about.uid(), rustix::process::geteuid().as_raw(), about.mode()) {
        None => Ok(()),
        Some(problem) => Err(io::Error::new(io::ErrorKind::PermissionDenied, problem)),
    }
}

/// Who else may write a folder of this owner, as a process of this user sees it. Root can put code anywhere.
#[cfg(unix)]
fn shared(owner: u32, user: u32, mode: u32) -> Option<&'static str> {
    const ROOT: u32 = 0;
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;
    if owner != user && owner != ROOT {
        Some("it belongs to another user, and what is in it is run; choose a folder of your own")
    } else if mode & OTHERS_WRITE != 0 {
        Some("everybody may write it, and what is in it is run; take that right away, or choose another folder")
    } else if mode & GROUP_WRITES != 0 {
        Some("its group may write it, and what is in it is run; take that right away, or choose another folder")
    } else {
        None
    }
}

/// Folders of users are their own on other systems.
#[cfg(not(unix))]
fn refuse_shared(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::shared;

    #[test]
    fn folders_are_those_of_the_user_or_of_root() {
        let problem = |owner, user, mode| shared(owner, user, mode).map(|problem| problem.split(',').next());
        for (owner, user) in [(1000, 1000), (0, 1000), (0, 0)] {
            assert_eq!(problem(owner, user, 0o40700), None);
            assert_eq!(problem(owner, user, 0o40755), None);
            assert_eq!(problem(owner, user, 0o40770), Some(Some("its group may write it")));
            assert_eq!(problem(owner, user, 0o41777), Some(Some("everybody may write it")));
        }
        for (owner, user) in [(1001, 1000), (1000, 0)] {
            assert_eq!(problem(owner, user, 0o40700), Some(Some("it belongs to another user")));
        }
    }
}
