//! The same source gives the same PTX, byte for byte, in every process.

use std::process::Command;

use super::kernels;

/// Prints all PTX. Run on its own in fresh processes by the test below.
#[test]
fn prints_all_ptx() {
    for kernels::Sample { name, safe, unchecked, .. } in kernels::all() {
        println!("// begin {name}\n{safe}\n{unchecked}\n// end {name}");
    }
}

fn in_a_fresh_process() -> String {
    let program = std::env::current_exe().expect("a test has an executable");
    let arguments = ["--exact", "determinism::prints_all_ptx", "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).output().expect("the test's executable runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The harness prints how long the tests took after the last kernel.
    let (begin, end) = (text.find("// begin"), text.rfind("// end"));
    match (begin, end) {
        (Some(begin), Some(end)) => text[begin..end].to_string(),
        (None, _) | (_, None) => panic!("no PTX in\n{text}"),
    }
}

#[test]
fn ptx_is_the_same_in_every_process() {
    let (first, second) = (in_a_fresh_process(), in_a_fresh_process());
    assert!(first.contains(".visible .entry"), "{first}");
    let differ = first.lines().zip(second.lines()).find(|(a, b)| a != b);
    assert!(differ.is_none() && first.len() == second.len(), "{differ:?}");
}
