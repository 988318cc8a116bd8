//! Loading, once per process, and what has to happen before anything else may use LLVM.

use std::sync::OnceLock;
use std::time::Instant;

use inkwell::targets::{InitializationConfig, Target};

use crate::error::LoadError;
use crate::handle::Llvm;
use crate::{machine, options};

/// Loads LLVM, on the first call; later calls, from any thread, return the same LLVM or the same
/// error.
///
/// The first usable LLVM 22 or 23 of these is taken: the one that `TILEWRIGHT_LLVM` names (a file, or
/// a folder that holds one; when set, nothing else is tried), that of the Rust toolchain that built
/// the program, that of the toolchain whose `rustc` is on the path, a system library.
///
/// Under the same once, the NVPTX target is registered and LLVM's process-wide options are set and
/// verified, so no machine can exist with other ones.
///
/// # Errors
///
/// [`LoadError`] with every place that was looked at, what was wrong with it, and what to do.
///
/// # Example
///
/// ```
/// let llvm = kernel_llvm::load()?;
/// assert!(matches!(llvm.version(), (22 | 23, _, _)));
/// # Ok::<(), kernel_llvm::LoadError>(())
/// ```
pub fn load() -> Result<&'static Llvm, LoadError> {
    LLVM.get_or_init(load_now).as_ref().map_err(Clone::clone)
}

static LLVM: OnceLock<Result<Llvm, LoadError>> = OnceLock::new();

/// What [`load`] does the first time.
fn load_now() -> Result<Llvm, LoadError> {
    let start = Instant::now();
    let mut llvm = source::find()?;
    Target::initialize_nvptx(&InitializationConfig::default());
    options::set();
    machine::require_short_pointers(&llvm)?;
    llvm.load_time = start.elapsed();
    Ok(llvm)
}

/// What tells the LLVM that [`load`] takes from others, found without loading it: as long as it says the same, the same
/// kernels give the same code. `None` where that cannot be said without loading: no file is where one is looked for first,
/// or that file turned out to be unusable, and another one has been loaded.
///
/// It costs a look into a folder.
pub fn fingerprint() -> Option<String> {
    source::fingerprint()
}

#[cfg(not(feature = "link-llvm"))]
mod source {
    //! LLVM comes from a file.

    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use crate::error::{LoadError, Rejected, Rejection, Version};
    use crate::handle::Llvm;
    use crate::open::{Opened, open};
    use crate::search::Candidate;
    use crate::{fatal, search, settings, trampolines};

    /// Opens the first usable candidate and points the trampolines at it.
    pub(super) fn find() -> Result<Llvm, LoadError> {
        let (path, opened) = match settings::llvm() {
            Some(path) => first_usable(search::named(&path))
                .map_err(|looked| LoadError::Setting { path, why: first_reason(looked) })?,
            None => first_usable(search::candidates()).map_err(|looked| LoadError::NotFound { looked })?,
        };
        let version = opened.version;
        // SAFETY: `open` accepts only versions whose C functions have the signatures that
        // `llvm-sys` declares, and `keep` below leaves the library mapped until the process ends.
        let missing = unsafe { trampolines::fill(|name| opened.address_of(name)) };
        opened.keep();
        fatal::install();
        Ok(Llvm { version, path, missing, load_time: Duration::ZERO })
    }

    /// Name, size and time of the file that is opened first. Toolchains that differ have files with different names
    /// (`libLLVM.so.22.1-rust-1.95.0-stable`), and a new nightly has a new file.
    pub(super) fn fingerprint() -> Option<String> {
        let first = |candidates: &mut dyn Iterator<Item = Candidate>| candidates.next()?.ok();
        let path = match settings::llvm() {
            Some(path) => first(&mut search::named(&path).into_iter())?,
            None => first(&mut search::candidates())?,
        };
        if super::LLVM.get().is_some_and(|loaded| loaded.as_ref().is_ok_and(|llvm| llvm.path != path)) {
            return None;
        }
        let about = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        let changed = about.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{} of {} bytes at {}", path.file_name()?.display(), about.len(), changed.as_nanos()))
    }

    /// Finds out whether `path` is an LLVM that [`load`](crate::load) would accept, and its version,
    /// without using it: nothing else in the process changes.
    ///
    /// # Errors
    ///
    /// [`LoadError::File`] with what is wrong.
    pub fn check(path: &Path) -> Result<(u32, u32, u32), LoadError> {
        first_usable(search::named(path))
            .map(|(_, opened)| version_and_keep(opened))
            .map_err(|looked| LoadError::File { path: path.to_path_buf(), why: first_reason(looked) })
    }

    fn version_and_keep(opened: Opened) -> Version {
        let version = opened.version;
        opened.keep();
        version
    }

    /// The first candidate that opens, or all of them with what was wrong.
    fn first_usable(candidates: impl IntoIterator<Item = Candidate>) -> Result<(PathBuf, Opened), Vec<Rejected>> {
        let mut looked = Vec::new();
        for candidate in candidates {
            match candidate {
                Ok(path) => match open(&path) {
                    Ok(opened) => return Ok((path, opened)),
                    Err(why) => looked.push(Rejected { path, why }),
                },
                Err(rejected) => looked.push(rejected),
            }
        }
        Err(looked)
    }

    /// The most telling of the reasons for a path that somebody named. A folder may give several:
    /// the library itself first, linker scripts and links to it after.
    fn first_reason(looked: Vec<Rejected>) -> Rejection {
        looked.into_iter().next().map_or(Rejection::Missing, |rejected| rejected.why)
    }
}

#[cfg(feature = "link-llvm")]
mod source {
    //! LLVM was linked when the program was built.

    use std::path::PathBuf;
    use std::time::Duration;

    use crate::error::{LoadError, Rejection};
    use crate::handle::Llvm;

    /// The version; a program that is linked anew with another LLVM of the same version is taken for the same.
    pub(super) fn fingerprint() -> Option<String> {
        let (major, minor, patch) = inkwell::support::get_llvm_version();
        Some(format!("linked LLVM {major}.{minor}.{patch}"))
    }

    /// Asks the linked LLVM for its version.
    pub(super) fn find() -> Result<Llvm, LoadError> {
        let version = inkwell::support::get_llvm_version();
        if !matches!(version.0, 22 | 23) {
            let (path, why) = (PathBuf::from("(linked)"), Rejection::Version(version));
            return Err(LoadError::File { path, why });
        }
        let (path, missing) = (PathBuf::new(), Vec::new());
        Ok(Llvm { version, path, missing, load_time: Duration::ZERO })
    }
}

#[cfg(not(feature = "link-llvm"))]
pub use source::check;
