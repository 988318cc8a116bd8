//! Where an LLVM may be, in the order tried.
//!
//! 1. `TILEWRIGHT_LLVM`, a file or a folder. When set it is the only place: whoever names an LLVM
//!    wants that one or an error, not a silent other one.
//! 2. The toolchain that built this crate, whose path the build script recorded.
//! 3. The toolchain of the `rustc` on the path when the program runs.
//! 4. LLVM 22 or 23 as Linux distributions install it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Rejected, Rejection};

/// The `rustc --print sysroot` of the build, empty if the build script could not ask.
const BUILD_SYSROOT: &str = env!("TILEWRIGHT_BUILD_SYSROOT");

/// Names that distributions give to LLVM 22 and 23, for the dynamic linker to find.
const SYSTEM_NAMES: [&str; 6] =
    ["libLLVM.so.22.1", "libLLVM-22.so", "libLLVM-22.so.1", "libLLVM.so.23.1", "libLLVM-23.so", "libLLVM-23.so.1"];
/// Folders outside the dynamic linker's path where distributions put them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/lib/llvm-22/lib", "/usr/lib/llvm-23/lib"];

/// One file to try, or a place that had none.
pub(crate) type Candidate = Result<PathBuf, Rejected>;

/// The candidates when no setting names one. Lazy, because asking `rustc` starts a process, which
/// the first place nearly always makes needless.
pub(crate) fn candidates() -> impl Iterator<Item = Candidate> {
    let baked = std::iter::once_with(|| match BUILD_SYSROOT {
        "" => Vec::new(),
        sysroot => in_folder(&Path::new(sysroot).join("lib")),
    });
    let current = std::iter::once_with(|| match sysroot_of_rustc() {
        None => vec![Err(Rejected { path: PathBuf::from("rustc"), why: Rejection::NoSysroot })],
        Some(sysroot) if sysroot == Path::new(BUILD_SYSROOT) => Vec::new(),
        Some(sysroot) => in_folder(&sysroot.join("lib")),
    });
    let sysroots = baked.chain(current).flatten();
    let names = SYSTEM_NAMES.iter().map(|name| Ok(PathBuf::from(name)));
    let folders = SYSTEM_FOLDERS.iter().flat_map(|folder| in_folder(Path::new(folder)));
    sysroots.chain(names).chain(folders)
}

/// The candidates for a path that somebody named: the file itself, or what the folder holds.
pub(crate) fn named(path: &Path) -> Vec<Candidate> {
    if !path.is_dir() {
        return vec![Ok(path.to_path_buf())];
    }
    let own = libraries(path);
    let found = if own.is_empty() { libraries(&path.join("lib")) } else { own };
    if found.is_empty() {
        return vec![Err(Rejected { path: path.to_path_buf(), why: Rejection::EmptyFolder })];
    }
    found.into_iter().map(Ok).collect()
}

/// The candidates in a folder that should hold an LLVM.
fn in_folder(folder: &Path) -> Vec<Candidate> {
    let found = libraries(folder);
    if found.is_empty() {
        let why = if folder.is_dir() { Rejection::EmptyFolder } else { Rejection::Missing };
        return vec![Err(Rejected { path: folder.to_path_buf(), why })];
    }
    found.into_iter().map(Ok).collect()
}

/// The files called `libLLVM*` in a folder, sorted so that every run tries them alike. Versioned
/// names (`libLLVM.so.22.1-rust-...`) come last in byte order but first here: the others are
/// mostly linker scripts or links to them.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.file_name().is_some_and(is_llvm_name)).collect();
    found.sort();
    found.reverse();
    found
}

/// Whether a file name is that of an LLVM shared library.
fn is_llvm_name(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with("libLLVM.so") || (name.starts_with("libLLVM-") && name.contains(".so"))
}

/// Asks the `rustc` on the path where its toolchain is; `None` if there is none.
fn sysroot_of_rustc() -> Option<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        // rustup's `rustc` would otherwise download a toolchain that a project file asks for.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let sysroot = sysroot.trim_end();
    (output.status.success() && !sysroot.is_empty()).then(|| PathBuf::from(sysroot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_names_are_told_from_their_neighbours() {
        for name in ["libLLVM.so.22.1-rust-1.95.0-stable", "libLLVM-22.so", "libLLVM-23.so.1"] {
            assert!(is_llvm_name(OsStr::new(name)), "{name}");
        }
        for name in ["libLLVMSupport.a", "libLLVM-22.a", "librustc_driver-1.so", "LLVM.so"] {
            assert!(!is_llvm_name(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_versioned_library_comes_before_the_linker_script() {
        let folder = Path::new(BUILD_SYSROOT).join("lib");
        let found = libraries(&folder);
        let first = found.first().expect("the toolchain has an LLVM");
        let magic = std::fs::read(first).expect("readable");
        assert_eq!(&magic[..4], b"\x7fELF", "{}", first.display());
    }

    #[test]
    fn a_folder_without_llvm_is_a_rejection() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let expected = Rejected { path: folder.to_path_buf(), why: Rejection::EmptyFolder };
        assert_eq!(named(folder), [Err(expected)]);
    }
}
