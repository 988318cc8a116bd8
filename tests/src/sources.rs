//! The sources of the workspace, for tests of what they must not contain.

use std::path::{Path, PathBuf};

/// The workspace's folder.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is around this package")
}

/// A source file.
pub struct SourceFile {
    /// From the workspace's folder, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl SourceFile {
    /// The lines of code with their numbers: without comments, and without the unit tests at the end.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.text.find("#[cfg(test)]\nmod ").unwrap_or(self.text.len());
        let lines = self.text[..tests].lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// The Rust files below these folders of the workspace, in order.
pub fn all(folders: &[&str]) -> Vec<SourceFile> {
    let mut found = Vec::new();
    for folder in folders {
        collect(&workspace().join(folder), &mut found);
    }
    found.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(workspace()).expect("it is in the workspace").to_string_lossy().replace('\\', "/");
        SourceFile { path, text }
    };
    found.into_iter().map(read).collect()
}

/// As [`all`], without tests.
pub fn of_libraries(folders: &[&str]) -> Vec<SourceFile> {
    let mut files = all(folders);
    files.retain(|file| !file.path.contains("/tests/") && !file.path.ends_with("/tests.rs"));
    files
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.to_string_lossy().starts_with('.') {
            collect(&path, found);
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
