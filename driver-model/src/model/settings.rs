//! What the model is to be like: a file beside the library, under the name that it was opened by.

use crate::client::{SETTINGS_FILE, Settings};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder in which the library was found, which need not be the one that it was built into.
pub(crate) fn folder() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address may be asked about; the result has a place.
    let known = unsafe { libc::dladdr(folder as fn() -> Option<PathBuf> as *const libc::c_void, &mut info) };
    if known == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name ends in zero and lives as long as the library, which we are in.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).parent()?.to_path_buf())
}

/// The settings that stand in the folder, or the usual ones.
pub(crate) fn read(folder: Option<&Path>) -> Settings {
    let text = folder.and_then(|folder| std::fs::read_to_string(folder.join(SETTINGS_FILE)).ok());
    text.map_or_else(Settings::default, |text| Settings::parse(&text))
}
