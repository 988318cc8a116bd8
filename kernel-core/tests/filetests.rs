//! `.tile` file tests: tile IR as text with what should become of it. `filetests/src/lib.rs` says how they are written.

use std::path::Path;

use tilewright_filetests::{Failure, interpret};

fn run_folder(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests").join(name);
    tilewright_filetests::run_folder(&folder, |case| {
        let output = case.run_stages()?;
        for line in &case.runs {
            interpret(&output, line).map_err(Failure::Test)?;
        }
        Ok(output)
    });
}

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
