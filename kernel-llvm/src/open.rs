//! Opens one candidate and finds out whether it is an LLVM that serves, before any of it is used.

use std::error::Error as _;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Rejection, Version};

/// The first bytes of every shared library on Linux.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// Major versions whose C API has every function that LLVM 22.1 has, with the same signature.
const MAJORS: [u32; 2] = [22, 23];

/// A library that passed all checks.
pub(crate) struct Opened {
    library: Library,
    pub(crate) version: Version,
}

impl Opened {
    /// The address of an exported function. The library stays loaded for ever once this was asked:
    /// see [`Opened::keep`].
    pub(crate) fn address_of(&self, name: &CString) -> Option<*mut ()> {
        // SAFETY: the symbol is only taken as an address here; what calls it knows its signature.
        let symbol = unsafe { self.library.get::<*mut ()>(name.to_bytes_with_nul()) }.ok()?;
        let address = symbol.into_raw().cast();
        (!std::ptr::eq(address, std::ptr::null_mut())).then_some(address)
    }

    /// Keeps the library mapped until the process ends: addresses of it are in the table, and LLVM
    /// registers handlers that must not dangle.
    pub(crate) fn keep(self) {
        std::mem::forget(self.library);
    }
}

/// Opens `path` and checks that it is an LLVM 22 or 23 with the NVPTX target.
///
/// Another LLVM stays mapped: unloading one whose initialisers ran is riskier than leaving it.
pub(crate) fn open(path: &Path) -> Result<Opened, Rejection> {
    // A bare name is looked up by the dynamic linker, so there is no file to look into first.
    if path.components().count() > 1 {
        require_elf(path)?;
    }
    // SAFETY: opening runs the library's initialisers. An ELF file that the user, the Rust
    // toolchain or the system offers under LLVM's name is trusted with that, as with linking it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| Rejection::Refused(reason(&error)))?;
    let Some(version) = version_of(&library) else {
        // SAFETY: the symbol is only looked for.
        let is_llvm = unsafe { library.get::<*mut ()>(b"LLVMContextCreate\0") }.is_ok();
        if !is_llvm {
            return Err(Rejection::NotLlvm("LLVMContextCreate"));
        }
        std::mem::forget(library);
        return Err(Rejection::TooOld);
    };
    let opened = Opened { library, version };
    let why = if !MAJORS.contains(&version.0) {
        Rejection::Version(version)
    } else if opened.address_of(&c"LLVMInitializeNVPTXTarget".to_owned()).is_none() {
        Rejection::NoNvptx(version)
    } else {
        return Ok(opened);
    };
    opened.keep();
    Err(why)
}

/// Checks that `path` begins like a shared library, which gives a better message than the dynamic
/// linker does, and passes over linker scripts called `libLLVM-22.so`.
fn require_elf(path: &Path) -> Result<(), Rejection> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Rejection::Missing,
        ErrorKind::UnexpectedEof => Rejection::NotElf,
        _ => Rejection::Unreadable(error.to_string()),
    };
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).map_err(unreadable)?;
    if magic == ELF_MAGIC { Ok(()) } else { Err(Rejection::NotElf) }
}

/// What the dynamic linker said, which is the source of an error that says only that it failed.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// The version that a library gives, `None` if it is no LLVM or one before LLVM 16.
fn version_of(library: &Library) -> Option<Version> {
    type GetVersion = unsafe extern "C" fn(*mut u32, *mut u32, *mut u32);
    // SAFETY: LLVM 16 and later export this function with this signature; no earlier one has it.
    let get_version = unsafe { library.get::<GetVersion>(b"LLVMGetVersion\0") }.ok()?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the three pointers are valid for writes during the call.
    unsafe { get_version(&mut major, &mut minor, &mut patch) };
    Some((major, minor, patch))
}
