//! The invariants of `ARCHITECTURE.md` name the tests that hold them.

use tilewright_tests::sources::{self, workspace};

/// The invariants, each with all of its lines.
fn invariants() -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("the document");
    let (_, section) = text.split_once("## Invariants").expect("it has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split("\n- **Invariant:** ").skip(1).map(str::to_string).collect()
}

/// The tests that a text names as `` `file.rs: name_of_the_test` ``: the file's path may lack its beginning.
fn named(text: &str) -> Vec<(&str, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs: ")).collect()
}

#[test]
fn every_invariant_names_a_test_that_exists() {
    let invariants = invariants();
    assert!(invariants.len() > 20, "only {} invariants", invariants.len());
    let files = sources::all(&["."]);
    let mut wrong = Vec::new();
    for invariant in &invariants {
        let tests = named(invariant);
        if tests.is_empty() {
            wrong.push(format!("no test is named: {invariant}"));
        }
        for (file, test) in tests {
            let path = format!("{}.rs", file.trim_start_matches("./"));
            let is_there = |source: &sources::SourceFile| {
                let ends = source.path == path || source.path.ends_with(&format!("/{path}"));
                ends && [format!("fn {test}("), format!("    {test}: ")].iter().any(|name| source.text.contains(name))
            };
            if !files.iter().any(is_there) {
                wrong.push(format!("there is no test {test} in {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
