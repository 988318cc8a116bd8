//! Runs the case files: in each, cases are separated by `====`, and in a case the source from the result by `----`.

use std::fs;
use std::path::{Path, PathBuf};

use super::support::{body, expand, follow};

/// The signature around cases that are statements only.
const SIGNATURE: &str = "fn k<T: Num, F: Float, I: Int, const M: usize, const N: usize, const FLAG: bool>\
(x: Ptr<f32>, t: Ptr<T>, h: Ptr<f16>, out: PtrMut<f32>, ints: PtrMut<i32>, n: i32, s: f32, eps: Const<f32>) {";

/// The kernel that a case is about: itself, or its statements in [`SIGNATURE`], from the second line on.
fn kernel(source: &str) -> String {
    if source.contains("fn k") || source.contains("struct K") {
        return source.to_string();
    }
    format!("{SIGNATURE}\n{source}\n}}")
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.sort();
    files
}

/// The kernels of all cases of a folder.
pub fn sources(folder: &str) -> Vec<String> {
    let text = |file: PathBuf| fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let source = |case: &str| kernel(case.split_once("\n----\n").map_or(case, |(source, _)| source).trim());
    files(folder).into_iter().flat_map(|file| text(file).split("\n====\n").map(source).collect::<Vec<_>>()).collect()
}

/// Compares the results of all cases of a folder with those in the files, or writes them.
fn check(folder: &str, run: impl Fn(&str) -> String) {
    let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files(folder) {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut blessed = Vec::new();
        for case in text.split("\n====\n") {
            let (source, expected) = case.split_once("\n----\n").unwrap_or((case, ""));
            let (source, expected) = (source.trim(), expected.trim());
            let result = run(&kernel(source));
            let result = result.trim();
            if result != expected {
                wrong.push(format!("{}\n{source}\n--- expected\n{expected}\n--- found\n{result}\n", file.display()));
            }
            blessed.push(format!("{source}\n----\n{result}"));
        }
        if bless {
            let text = format!("{}\n", blessed.join("\n====\n"));
            fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    }
    assert!(bless || wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn kernels_are_lowered() {
    // The signature is the same in most cases and is left out of the results.
    check("lowering", |source| {
        let text = body(source);
        let lines = text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        let signature = |l: &&str| ["param ", "dtype ", "const "].iter().any(|start| l.starts_with(start));
        let mut lines: Vec<&str> = lines.filter(|l| !source.starts_with(SIGNATURE) || !signature(l)).collect();
        // `kernel .. {` and the closing brace.
        lines.truncate(lines.len().saturating_sub(1));
        lines.drain(..lines.len().min(1));
        lines.join("\n")
    });
}

#[test]
fn mistakes_have_messages() {
    check("messages", |source| {
        let (_, messages) = expand("", source);
        assert!(!messages.is_empty(), "no mistake was found in\n{source}");
        messages.join("\n")
    });
}

/// Rounds in which the hints of a kernel are followed until it is accepted, or nothing is left to follow.
const ROUNDS: usize = 4;

#[test]
fn hints_are_right_when_they_are_followed() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for file in files("messages") {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for case in text.split("\n====\n") {
            let source = kernel(case.split_once("\n----\n").map_or(case, |(source, _)| source).trim());
            let (first, mut next) = follow(&source);
            let mut way = vec![source];
            let mut last = first.clone();
            while let Some(kernel) = next {
                way.push(kernel.clone());
                (last, next) = follow(&kernel);
                if way.len() > ROUNDS {
                    break;
                }
            }
            // What is left was there before, or is hidden by it: a hint brings no mistake of its own.
            let new: Vec<&String> = last.iter().filter(|message| !first.contains(message)).collect();
            if way.len() > ROUNDS || !new.is_empty() {
                let way: Vec<&str> = way.iter().map(|kernel| kernel.trim_start_matches(SIGNATURE)).collect();
                wrong.push(format!("{}\nends with {}", way.join("\n--- followed\n"), last.join("\n")));
            }
            followed += usize::from(way.len() > 1);
        }
    }
    assert!(wrong.is_empty(), "hints that lead nowhere:\n{}", wrong.join("\n====\n"));
    assert!(followed > 120, "only {followed} cases have hints that can be followed");
}

#[test]
fn messages_name_nothing_internal() {
    for file in files("messages") {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for word in ["Dim", "Poly", "VTy", "DtRef", "NodeId", "kernel_core", "syn::", "Known(", "Param("] {
            assert!(!text.contains(word), "`{word}` in {}", file.display());
        }
    }
}
