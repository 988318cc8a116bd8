//! The page that lists the rows with their results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tilewright_tests::sources::workspace;

use crate::runner::Row;

const PAGE: &str = "src/guide/conformance.md";
const FUNCTIONS: &str = include_str!("functions.csv");
const GPU: &str = include_str!("gpu.csv");
/// The language page, which names all operations.
const LANGUAGE: &str = include_str!("../../../kernel-macros/src/language.md");

/// Compares the page with what it must say, or writes it.
pub fn check(rows: &[Row]) -> bool {
    let unknown = unknown_operations();
    if !unknown.is_empty() {
        eprintln!("functions.csv names operations that are not on the language page: {unknown:?}");
        return false;
    }
    let (text, path) = (write(rows), workspace().join(PAGE));
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return true;
    }
    let same = std::fs::read_to_string(&path).is_ok_and(|there| there == text);
    if !same {
        eprintln!("{PAGE} is not what this suite writes: run it with TILEWRIGHT_BLESS=1");
    }
    same
}

/// The operations of `functions.csv` that the language page does not have.
fn unknown_operations() -> Vec<&'static str> {
    let words = |code: &'static str| code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let named: BTreeSet<&str> = code_of(LANGUAGE).flat_map(words).collect();
    let ours = FUNCTIONS.lines().skip(1).filter_map(|line| line.split(';').nth(1));
    ours.flat_map(code_of).flat_map(calls).filter(|name| !named.contains(name)).collect()
}

/// What stands between backticks.
fn code_of(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names in `name(..)`, `name::<T>(..)` and `name!(..)`.
fn calls(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices('(').filter_map(|(at, _)| {
        let before = code[..at].trim_end_matches('!');
        let before =
            if before.ends_with('>') { before.rsplit_once("::<").map_or("", |(name, _)| name) } else { before };
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        Some(&before[start..]).filter(|name| !name.is_empty())
    })
}

fn write(rows: &[Row]) -> String {
    let mut out = String::from(HEAD);
    let recorded = recorded();
    let gpu = GPU.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("a GPU");
    let _ = writeln!(out, "| row | Triton's test | cases | CPU | {gpu} | remarks |\n|---|---|--:|---|---|---|");
    let mut total = 0;
    for row in rows {
        let (own, (other, place)) = (row.cases.len(), row.elsewhere.unwrap_or((0, "")));
        total += own + other;
        let on_gpu = match recorded.get(row.id) {
            Some((cases, 0)) if *cases == own => "passes".to_string(),
            Some((cases, failed)) => format!("{} of {own}", cases - failed),
            None if own == 0 => "passes".to_string(),
            None => "not run".to_string(),
        };
        let kept = if other > 0 { format!("{other} of them in {place}") } else { String::new() };
        let both = !kept.is_empty() && !row.remarks.is_empty();
        let remarks = format!("{}{}{kept}", row.remarks, if both { "; " } else { "" });
        let _ = writeln!(out, "| {} | {} | {} | passes | {on_gpu} | {remarks} |", row.id, row.upstream, own + other);
    }
    let _ = writeln!(out, "\n{total} cases.\n");
    out.push_str(FUNCTIONS_HEAD);
    for line in FUNCTIONS.lines().skip(1) {
        let mut parts = line.splitn(3, ';').map(str::trim);
        let (theirs, ours, remark) = (parts.next(), parts.next(), parts.next());
        let cell = |text: Option<&str>| text.unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(out, "| {} | {} | {} |", cell(theirs), cell(ours), cell(remark));
    }
    out
}

/// Per row, its cases on the GPU and how many failed there.
fn recorded() -> BTreeMap<&'static str, (usize, usize)> {
    let line = |line: &'static str| {
        let mut parts = line.split(',');
        let (row, cases, failed) = (parts.next()?, parts.next()?, parts.next()?);
        Some((row, (cases.parse().ok()?, failed.parse().ok()?)))
    };
    GPU.lines().filter_map(line).collect()
}

const HEAD: &str = "Triton's own tests of its language, and what becomes of them here.

Each row is a test of Triton's repository (`python/test/unit`), written anew in Rust with as many parameters, and run on
the CPU and on a GPU. `tests/suites/conformance` holds them; this page is generated from it.

# Tests

";

const FUNCTIONS_HEAD: &str = "# Functions

What is called in Triton, and what is written here. `x`, `y` and `z` are tiles.

| Triton | here | remarks |
|---|---|---|
";
