//! Snapshots of generated code: the hash of the PTX of every kernel of the examples, benchmarks and tests.
//!
//! `ptx.txt` has a line for each kernel and target: its name, the target, the hash of its PTX and how many instructions
//! that has. Whoever changes the code of kernels sees here of which; who changes it of none, as when code is moved,
//! sees that too. After a change that is meant to be,
//!
//! ```text
//! TILEWRIGHT_BLESS=1 cargo test -p tilewright-tests --test snapshots
//! ```
//!
//! writes the file anew; the commit says what changed in the code, and why. The example `ptx` of this package writes the
//! PTX itself, and tables of registers and spills to compare.
//!
//! A source of kernels is a test, so that sources are compiled at the same time. Files are of one version of LLVM, as
//! another emits other code: where another is in use, the snapshots are skipped, which is said.

mod factors;
mod kernels;
mod lines;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use kernels::Source;
use tilewright_tests::assembler::ptx_instructions;

/// The snapshots as they were when this was compiled, so that a machine with a GPU needs the program alone.
const SNAPSHOTS: &str = include_str!("ptx.txt");

/// How to accept what changed.
const BLESS: &str = "TILEWRIGHT_BLESS=1 cargo test -p tilewright-tests --test snapshots";

/// What a file begins with: the version of LLVM.
const VERSION: &str = "# LLVM ";

/// Hash and instructions, by name and target.
type Snapshots = BTreeMap<String, String>;

/// Reads a file of snapshots; only those of a source, if one is given.
fn read(text: &str, source: Option<Source>) -> Snapshots {
    let prefix = source.map(|source| format!("{}/", source.name())).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.starts_with(&prefix));
    let entry = |line: &str| {
        let at = line.match_indices(' ').nth(1).map(|(at, _)| at);
        let (kernel, code) = line.split_at(at.unwrap_or_else(|| panic!("no snapshot: {line}")));
        (kernel.to_string(), code.trim().to_string())
    };
    lines.map(entry).collect()
}

/// The version of LLVM, as files have it.
fn version() -> String {
    let llvm = kernel_llvm::load().unwrap_or_else(|error| panic!("{error}"));
    let (major, minor, patch) = llvm.version();
    format!("{VERSION}{major}.{minor}.{patch}")
}

/// What the kernels of a source are compiled to now, at each of which somebody may look.
fn compiled(source: Source, wanted: &'static kernels::Wanted, look: &mut dyn FnMut(&kernels::Code)) -> Snapshots {
    let mut found = Snapshots::new();
    kernels::each(source, wanted, &mut |code| {
        look(&code);
        let kernel = format!("{} {}", code.name, code.target.name());
        let ptx = lines::code(&code.ptx);
        let line = format!("{:016x} {}", kernels::hash(ptx.as_bytes()), ptx_instructions(&ptx));
        // Benchmarks have sizes that make no difference for a kernel, nor for its name.
        let before = found.insert(kernel.clone(), line.clone());
        assert!(before.is_none_or(|before| before == line), "two kernels are called {kernel}");
    });
    assert!(!found.is_empty(), "{} has no kernels", source.name());
    found
}

/// What differs, a line for each kernel.
fn differences(expected: &Snapshots, found: &Snapshots) -> String {
    let mut text = String::new();
    let instructions = |code: &str| code.split(' ').next_back().unwrap_or_default().to_string();
    for (kernel, code) in found {
        let _ = match expected.get(kernel) {
            Some(before) if before == code => Ok(()),
            Some(before) => {
                writeln!(text, "  {kernel}: {} -> {} instructions", instructions(before), instructions(code))
            }
            None => writeln!(text, "  {kernel}: is new, {} instructions", instructions(code)),
        };
    }
    for kernel in expected.keys().filter(|kernel| !found.contains_key(*kernel)) {
        let _ = writeln!(text, "  {kernel}: is gone");
    }
    text
}

/// Replaces the snapshots of a source in the file.
fn bless(source: Source, found: Snapshots) {
    static FILE: Mutex<()> = Mutex::new(());
    let _guard = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/snapshots/ptx.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut all = read(&text, None);
    let prefix = format!("{}/", source.name());
    all.retain(|kernel, _| !kernel.starts_with(&prefix));
    all.extend(found);
    let mut text = format!("{}\n# Written by {BLESS}\n", version());
    for (kernel, code) in &all {
        let _ = writeln!(text, "{kernel} {code}");
    }
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Whether the snapshots are of another LLVM than the one that is in use here, which is said.
fn are_of_another_llvm() -> bool {
    let of = SNAPSHOTS.lines().find(|line| line.starts_with(VERSION)).unwrap_or_default();
    let other = of != version();
    if other {
        eprintln!("skipped: the snapshots are of {of}, here is {}", version());
    }
    other
}

/// Compares the kernels of a source with their snapshots, or accepts them.
fn check(source: Source) {
    let blessing = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    if !blessing && are_of_another_llvm() {
        return;
    }
    let found = compiled(source, &kernels::representative, &mut |_| {});
    if blessing {
        return bless(source, found);
    }
    compare(&read(SNAPSHOTS, Some(source)), &found);
}

/// Compares some kernels of a source with their snapshots, and lets somebody look at each.
fn check_kernels(source: Source, wanted: &'static kernels::Wanted, look: &mut dyn FnMut(&kernels::Code)) {
    if are_of_another_llvm() {
        return;
    }
    let found = compiled(source, wanted, look);
    let mut expected = read(SNAPSHOTS, Some(source));
    expected.retain(|kernel, _| found.contains_key(kernel));
    compare(&expected, &found);
}

fn compare(expected: &Snapshots, found: &Snapshots) {
    let text = differences(expected, found);
    let count = text.lines().count();
    assert!(
        text.is_empty(),
        "the PTX of {count} kernels changed:\n{text}If that is meant, accept it by\n  {BLESS}\nand say in the commit \
         what changed and why. `cargo run -p tilewright-tests --example ptx` writes the PTX to compare."
    );
}

macro_rules! sources {
    ($($test:ident: $source:ident;)*) => {
        $(
            #[test]
            fn $test() {
                check(Source::$source);
            }
        )*

        #[test]
        fn every_source_is_checked() {
            assert_eq!(Source::ALL, [$(Source::$source),*]);
        }
    };
}

sources! {
    examples: Examples;
    bandwidth: Bandwidth;
    products: Products;
    guide: Guide;
    file_tests: Files;
    kernels_of_the_code_generator: Kernels;
    suites: Suites;
}

#[test]
fn differences_name_kernels_and_instructions() {
    let before = read("# x\na/b sm_80 0f 12\na/c sm_80 1f 3\na/d sm_80 1f 3\n", None);
    let after = read("a/b sm_80 0e 13\na/c sm_80 1f 3\na/e sm_90 1f 7\n", None);
    let expected = "  a/b sm_80: 12 -> 13 instructions\n  a/e sm_90: is new, 7 instructions\n  a/d sm_80: is gone\n";
    assert_eq!(differences(&before, &after), expected);
    assert_eq!(differences(&before, &before), "");
    assert_eq!(read("guide/x sm_80 1 2\nexample/y sm_80 1 2\n", Some(Source::Guide)).len(), 1);
}
