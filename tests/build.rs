//! Lists the `.tile` file tests of `kernel-core` with their texts, so that the test program needs no files: GPU machines
//! get the program alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel-core/tests/filetests");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut list = String::from("&[\n");
    for folder in entries(&root) {
        for file in entries(&folder).into_iter().filter(|path| path.extension().is_some_and(|e| e == "tile")) {
            let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            let _ = writeln!(list, "    ({name:?}, include_str!({:?})),", file.display().to_string());
        }
    }
    list.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").unwrap_or_else(|| panic!("cargo sets OUT_DIR"));
    let path = Path::new(&out).join("tile_files.rs");
    std::fs::write(&path, list).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// What is in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
