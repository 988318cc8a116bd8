//! The faults, which are data: one TOML file per area in `faults/lists`.
//!
//! ```toml
//! file = "kernel-codegen/src/passes/placed/membar/access.rs"   # of the faults that name none
//! tests = ["tilewright-codegen lib membar", "tilewright-codegen placed"]
//!
//! [[fault]]
//! id = "membar-wait-ends-one-more"
//! class = "wait"
//! what = "a wait ends one group more than it does"
//! from = "age >= pending"
//! to = "age + 1 >= *pending"
//! ```
//!
//! `from` is an expression, or statements that end in `;` or `}`, and stands in the file once; where it stands more
//! often, `within` is a longer text that stands once and holds it once. A fault that changes nothing that anybody can
//! see says why in `equivalent`; it is planted and run all the same, but does not count.
//!
//! Tests are written as package, test binary (`lib` for the unit tests) and arguments of the test harness. A fault's
//! own come first, then those of its file, the quickest first.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// One mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name, unique among all.
    pub id: String,
    /// The file that it changes, from the root of the workspace.
    pub file: String,
    /// What kind of mistake it is.
    pub class: String,
    /// What goes wrong, in words.
    pub what: String,
    /// The text that it replaces.
    pub from: String,
    /// What stands there instead; nothing for statements that are left out.
    pub to: String,
    /// A text that stands once in the file and holds `from` once, if `from` stands more often.
    pub within: Option<String>,
    /// The tests that ought to see it.
    pub tests: Vec<TestSpec>,
    /// How many of `tests` are its own, and come first.
    pub own_tests: usize,
    /// Why nobody can see it, if so.
    pub equivalent: Option<String>,
}

impl Fault {
    /// The number of its switch: the same whatever else is in the lists, so that a longer list rebuilds little.
    pub fn switch(&self) -> u32 {
        // FNV-1a of 32 bits. Zero is no fault.
        let hash =
            self.id.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        hash.max(1)
    }

    /// Whether it is an expression, rather than statements.
    pub fn is_expression(&self) -> bool {
        !self.from.trim_end().ends_with([';', '}'])
    }
}

/// A test binary, and which of its tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestSpec {
    /// The package.
    pub package: String,
    /// The test binary; `lib` for the unit tests.
    pub target: String,
    /// Arguments of the harness: filters, `--skip`.
    pub arguments: Vec<String>,
}

impl TestSpec {
    fn parse(text: &str) -> Option<TestSpec> {
        let mut words = text.split_whitespace().map(str::to_string);
        Some(TestSpec { package: words.next()?, target: words.next()?, arguments: words.collect() })
    }
}

impl fmt::Display for TestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.target)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    file: Option<String>,
    #[serde(default)]
    tests: Vec<String>,
    fault: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    file: Option<String>,
    class: String,
    what: String,
    from: String,
    to: String,
    within: Option<String>,
    #[serde(default)]
    tests: Vec<String>,
    equivalent: Option<String>,
}

/// The faults of all lists in a folder, in the order of the files' names.
///
/// # Errors
///
/// If a list cannot be read, an entry says too little, or two faults have one name or one switch.
pub fn read(folder: &Path) -> Result<Vec<Fault>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::file(folder, error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut faults = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| Error::file(&path, error))?;
        let list = parse(&text).map_err(|cause| Error::List { file: path.display().to_string(), cause })?;
        faults.extend(list);
    }
    let (mut names, mut switches) = (BTreeSet::new(), BTreeSet::new());
    for fault in &faults {
        if !names.insert(&fault.id) || !switches.insert(fault.switch()) {
            let cause = format!("two faults are called `{}`, or share its switch: give one another name", fault.id);
            return Err(Error::List { file: folder.display().to_string(), cause });
        }
    }
    Ok(faults)
}

/// The faults of one list.
fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let list: ListFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let specs = |id: &str, texts: &[String]| -> Result<Vec<TestSpec>, String> {
        let spec = |text: &String| {
            TestSpec::parse(text).ok_or_else(|| format!("fault `{id}`: `{text}` names no package and test binary"))
        };
        texts.iter().map(spec).collect()
    };
    list.fault
        .iter()
        .map(|entry| {
            let file = entry.file.as_ref().or(list.file.as_ref());
            let file = file.ok_or_else(|| format!("fault `{}` names no file", entry.id))?.clone();
            let mut tests = specs(&entry.id, &entry.tests)?;
            let own_tests = tests.len();
            for spec in specs(&entry.id, &list.tests)? {
                if !tests.contains(&spec) {
                    tests.push(spec);
                }
            }
            if tests.is_empty() {
                return Err(format!("fault `{}` names no test that ought to see it", entry.id));
            }
            Ok(Fault {
                id: entry.id.clone(),
                file,
                class: entry.class.clone(),
                what: entry.what.clone(),
                from: entry.from.trim().to_string(),
                to: entry.to.trim().to_string(),
                within: entry.within.clone(),
                tests,
                own_tests,
                equivalent: entry.equivalent.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        file = "a/src/lib.rs"
        tests = ["a lib", "a run deep"]
        [[fault]]
        id = "one"
        class = "wait"
        what = "waits too early"
        from = "wait(n)"
        to = "wait(n + 1)"
        tests = ["a run deep", "b lib"]
    "#;

    #[test]
    fn own_tests_come_first_and_none_twice() {
        let faults = parse(LIST).expect("a list");
        let tests: Vec<String> = faults[0].tests.iter().map(TestSpec::to_string).collect();
        assert_eq!(tests, ["a run deep", "b lib", "a lib"]);
        assert_eq!(faults[0].own_tests, 2);
        assert_eq!(faults[0].file, "a/src/lib.rs");
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = parse(&LIST.replace("file = \"a/src/lib.rs\"", "")).expect_err("no file");
        assert_eq!(error, "fault `one` names no file");
        let error = parse(&LIST.replace("\"b lib\"", "\"b\"")).expect_err("no binary");
        assert_eq!(error, "fault `one`: `b` names no package and test binary");
        assert!(parse(&LIST.replace("class", "clas")).expect_err("a typo").contains("unknown field `clas`"));
    }
}
