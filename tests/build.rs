//! Lists the `.tile` file tests of `kernel-core`, and the `.tile` kernels of the code generator's tests, with their texts,
//! so that the test programs need no files: GPU machines get the programs alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel-core/tests/filetests");
    list("tile_files.rs", &root, entries(&root).iter().flat_map(|folder| entries(folder)));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel-codegen/tests/kernels");
    list("kernel_files.rs", &root, entries(&root).into_iter());
}

/// Writes names and texts of `.tile` files below `root` as a slice.
fn list(to: &str, root: &Path, files: impl Iterator<Item = PathBuf>) {
    println!("cargo::rerun-if-changed={}", root.display());
    let mut list = String::from("&[\n");
    for file in files.filter(|path| path.extension().is_some_and(|e| e == "tile")) {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let _ = writeln!(list, "    ({name:?}, include_str!({:?})),", file.display().to_string());
    }
    list.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").unwrap_or_else(|| panic!("cargo sets OUT_DIR"));
    let path = Path::new(&out).join(to);
    std::fs::write(&path, list).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// What is in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
