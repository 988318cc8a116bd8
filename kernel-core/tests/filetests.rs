//! `.tile` file tests: tile IR as text with what should become of it. `tests/runner/mod.rs` says how they are written.

mod runner;

use runner::run_folder;

#[test]
fn text() {
    run_folder("text");
}

#[test]
fn verifier() {
    run_folder("verify");
}

#[test]
fn binding() {
    run_folder("bind");
}

#[test]
fn running() {
    run_folder("run");
}

#[test]
fn passes() {
    run_folder("passes");
}
