//! The vendor's shared libraries, opened where a machine has them.

use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::report;

/// Lists the libraries that lie in `python3`'s packages, one per line.
const LIST: &str = "import glob, sys
for folder in sys.path:
    for inside in ('nvidia/*/lib', 'torch/lib'):
        for file in sorted(glob.glob(f'{folder}/{inside}/' + sys.argv[1] + '.so*')):
            print(file)";

/// The paths and names under which a library may be, best first: the folder `--cublas DIR` on the command line, the
/// packages of `python3`, then the system's own folders.
fn candidates(name: &str) -> Vec<String> {
    let versions = [".so.13", ".so.12", ".so"];
    let mut all = Vec::new();
    if let Some(folder) = report::argument("--cublas") {
        all.extend(versions.map(|v| format!("{folder}/{name}{v}")));
    }
    if let Ok(found) = Command::new("python3").args(["-c", LIST, name]).output() {
        all.extend(String::from_utf8_lossy(&found.stdout).lines().map(str::to_string));
    }
    all.extend(versions.map(|v| format!("{name}{v}")));
    all
}

/// Opens a library, so that those opened later find its symbols, and says where it was.
///
/// # Errors
/// If it is nowhere, with what was tried.
pub fn open(name: &str) -> Result<(Library, String), String> {
    let candidates = candidates(name);
    for candidate in &candidates {
        if let Ok(library) = open_file(candidate) {
            return Ok((library, candidate.clone()));
        }
    }
    Err(format!("{name} is in none of {}; --cublas DIR names its folder", candidates.join(", ")))
}

/// Opens one file.
///
/// # Errors
/// If the loader refuses it.
pub fn open_file(file: &str) -> Result<Library, String> {
    // SAFETY: the vendor's libraries are made to be loaded; they start no thread that outlives them, and this program
    // never unloads them.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| e.to_string())
}

/// A function of a library.
///
/// # Errors
/// If it has none of this name.
///
/// # Safety
/// `F` must be the function's type, and the library must stay loaded.
pub unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|f| *f).map_err(|e| e.to_string())
}
