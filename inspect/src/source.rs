//! The source of a kernel, where its files are found: an archive names them, and does not have them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kernel_core::ir::{Files, Func};

use crate::lines::{Line, Place};

/// Lines around those that a kernel names. What is farther away belongs to something else.
const AROUND: u32 = 3;

/// Where to look for files whose names are relative.
#[derive(Clone, Debug, Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// The folder that was named, if any; then the current one, and those around it.
    pub fn new(named: Option<&Path>) -> Roots {
        let here = std::env::current_dir().unwrap_or_default();
        Roots(named.into_iter().chain(here.ancestors()).map(Path::to_path_buf).collect())
    }

    /// No folder at all.
    pub fn none() -> Roots {
        Roots::default()
    }

    fn read(&self, name: &str) -> Option<String> {
        self.0.iter().find_map(|root| std::fs::read_to_string(root.join(name)).ok())
    }
}

/// The lines of the source that a kernel is made of, file by file.
pub struct Source {
    /// The lines, under the name of their file.
    pub files: Vec<(String, Vec<Line>)>,
    /// The files that were not found.
    pub missing: Vec<String>,
}

/// The source of a bound kernel: of each file the lines that its operations name, and some around them.
pub fn source(func: &Func, roots: &Roots) -> Source {
    let mut source = Source { files: Vec::new(), missing: Vec::new() };
    for (file, name) in names(&func.files).enumerate() {
        let named = lines_of(func, file);
        if named.is_empty() {
            continue;
        }
        match roots.read(name) {
            Some(text) => source.files.push((name.to_string(), excerpt(&text, file, &named))),
            None => source.missing.push(name.to_string()),
        }
    }
    source
}

fn names(files: &Files) -> impl Iterator<Item = &str> {
    [files.own()].into_iter().chain(files.others().iter().map(String::as_str))
}

/// The lines of a file that the kernel names.
fn lines_of(func: &Func, file: usize) -> BTreeSet<u32> {
    let params = func.params.iter().map(|param| param.span);
    let operations = func.ops.iter().map(|operation| operation.span);
    let calls = func.files.calls().iter().copied();
    let all = params.chain(operations).chain(calls);
    all.filter(|span| span.line > 0 && span.file.index() == file).map(|span| span.line).collect()
}

/// These lines with those around them, and a mark where others are left out.
fn excerpt(text: &str, file: usize, named: &BTreeSet<u32>) -> Vec<Line> {
    let is_near = |line: u32| named.range(line.saturating_sub(AROUND)..=line + AROUND).next().is_some();
    let mut lines: Vec<Line> = Vec::new();
    for (text, line) in text.lines().zip(1u32..) {
        if is_near(line) {
            lines.push(Line { text: text.to_string(), places: vec![Place { file, line }] });
        } else if lines.last().is_some_and(|last| !last.places.is_empty()) {
            lines.push(Line::plain("..."));
        }
    }
    if lines.last().is_some_and(|last| last.places.is_empty()) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_around_what_is_named() {
        let text: String = (1..=100).map(|line| format!("line {line}\n")).collect();
        let lines = excerpt(&text, 2, &BTreeSet::from([20, 22, 80]));
        let numbers: Vec<u32> = lines.iter().map(|line| line.places.first().map_or(0, |at| at.line)).collect();
        let expected: Vec<u32> = (17..=25).chain([0]).chain(77..=83).collect();
        assert_eq!(numbers, expected);
        assert_eq!((lines[0].text.as_str(), lines[0].places[0].file), ("line 17", 2));
        // Of a file that has become shorter, there is what there is.
        assert!(excerpt("one\n", 0, &BTreeSet::from([50])).is_empty());
    }
}
