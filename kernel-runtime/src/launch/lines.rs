//! What line information says of a kernel's sources.

use super::definition::KernelSource;
use kernel_core::ir::Span;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The name of a source file as tools find it: rustc's own name is relative to the folder of the workspace, of which a
/// program knows nothing. It is found if it is around the program, as `target` is in it, or around the current folder; otherwise the name stays, and tools are told where to look.
pub(super) fn path(name: &str) -> String {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    below(name, FOLDERS.get_or_init(folders))
}

fn folders() -> Vec<PathBuf> {
    std::env::current_exe().into_iter().chain(std::env::current_dir()).collect()
}

/// The name below the first of these folders, or of those around them, that has such a file.
fn below(name: &str, folders: &[PathBuf]) -> String {
    let path = Path::new(name);
    if path.is_absolute() {
        return name.to_string();
    }
    let around = folders.iter().flat_map(|folder| folder.ancestors());
    let found = around.map(|folder| folder.join(path)).find(|path| path.is_file());
    found.map_or_else(|| name.to_string(), |path| path.to_string_lossy().into_owned())
}

/// The name of the function that is called there, as the source has it; empty if the source is not known.
pub(super) fn called(source: &KernelSource, call: Span) -> String {
    let file = source.files.get(call.file.index());
    let line = file.and_then(|file| file.lines.iter().find(|(number, _)| *number == call.line));
    let (from, len) = (call.column.saturating_sub(1) as usize, usize::from(call.len));
    let text: String = line.map_or_else(String::new, |(_, text)| text.chars().skip(from).take(len).collect());
    text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect()
}

#[cfg(test)]
mod tests {
    use super::super::definition::SourceFile;
    use super::*;

    #[test]
    fn files_are_found_below_folders_around() {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let inside = package.join("src/launch");
        let own = below("kernel-runtime/src/launch/lines.rs", &[PathBuf::from("/nowhere/at/all"), inside]);
        assert_eq!(Path::new(&own), package.parent().unwrap().join("kernel-runtime/src/launch/lines.rs"));
        assert_eq!(below("no/such/file.rs", &[package]), "no/such/file.rs");
        assert_eq!(below("/src/add.rs", &[]), "/src/add.rs");
    }

    #[test]
    fn functions_are_called_what_the_source_calls_them() {
        const LINES: &[(u32, &str)] = &[(7, "    let y = half(x) + m::half(x);")];
        const FILES: &[SourceFile] = &[SourceFile { name: "k.rs", lines: LINES }];
        let source = KernelSource {
            name: "k",
            module: "",
            files: FILES,
            ir: "",
            num_warps: None,
            num_stages: None,
            max_registers: None,
        };
        assert_eq!(called(&source, Span::new(7, 13, 4)), "half");
        assert_eq!(called(&source, Span::new(7, 23, 10)), "m::half");
        assert_eq!((called(&source, Span::new(8, 1, 4)), called(&source, Span::new(7, 90, 4))), ("".into(), "".into()));
    }
}
