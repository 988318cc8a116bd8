//! Line information changes no code: with it, the snapshots are the same, and so is what ptxas makes of the PTX.
//!
//! Whether there is line information is a variable that a process reads once, so this runs the test program once more.

use std::borrow::Cow;
use std::process::Command;

use super::kernels::{self, Source};
use tilewright::Target;
use tilewright_tests::assembler;
use tilewright_tests::lines::without_lines;

const VARIABLE: &str = "TILEWRIGHT_LINE_INFO";

/// Whether kernels are compiled with line information in this process.
fn is_on() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The PTX that snapshots are of, which has none.
pub fn code(ptx: &str) -> Cow<'_, str> {
    if is_on() { without_lines(ptx).into() } else { ptx.into() }
}

/// How many kernels there are for one whose code of the hardware is compared: ptxas takes longer than all else.
const OF: u64 = 4;

/// Of the kernels of examples and guides, whose loops, products and copies are of all kinds. Other snapshots are compared by
/// running their tests with the variable.
#[test]
fn line_information_changes_no_instruction() {
    if !is_on() {
        return again("lines::line_information_changes_no_instruction");
    }
    let wanted: &kernels::Wanted = &|_, target| target == Target::sm_90a();
    let mut assembled = 0;
    for source in [Source::Examples, Source::Guide] {
        super::check_kernels(source, wanted, &mut |code| {
            let plain = without_lines(&code.ptx);
            assert_ne!(plain, code.ptx, "{} has no lines", code.name);
            if kernels::hash(code.name.as_bytes()).is_multiple_of(OF) {
                let [lined, plain] = [code.ptx.as_str(), plain.as_str()].map(|ptx| sass(ptx, code.target));
                assert!(lined == plain, "{}: line information changes the code", code.name);
                assembled += 1;
            }
        });
    }
    assert!(assembled > 5, "{assembled} kernels");
}

/// Runs a test of this program with line information.
fn again(test: &str) {
    let program = std::env::current_exe().expect("the test program has a path");
    let output = Command::new(program).args(["--exact", test]).env(VARIABLE, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "with {VARIABLE}=1:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok. 1 passed"), "{text}");
}

/// What the hardware would run, where ptxas and nvdisasm are installed.
fn sass(ptx: &str, target: Target) -> Option<String> {
    let (_, cubin) = assembler::assemble_to(ptx, target.name())?;
    assembler::disassemble(&cubin)
}
