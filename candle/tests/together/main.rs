//! candle beside PyTorch and JAX in one process, with one library of operators: on the CPU, by Python.
//!
//! `scripts/install-frameworks` installs them into `.frameworks`; without them the test says that it is skipped.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;
use tilewright_ffi::package::Package;

#[test]
fn one_library_serves_all_in_one_process() {
    // Uses the crate, so that its library is built.
    let _ = tilewright_ffi_example::silu;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let frameworks = here.parent().expect("the repository").join(".frameworks");
    if !frameworks.join("installed").exists() {
        println!("skipped: run scripts/install-frameworks");
        return;
    }
    let test = std::env::current_exe().expect("the path of the test");
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    let library = Package::of_library(&test.with_file_name("libtilewright_ffi_example.so"));
    library.and_then(|library| library.write(&package)).unwrap_or_else(|error| panic!("{error}"));
    let built = test.ancestors().nth(2).expect("the folder of the build").join("examples/libtogether.so");
    assert!(
        built.exists(),
        "`cargo test` builds {} with the examples; so does `cargo build --example together`",
        built.display()
    );
    let mut python = Command::new(frameworks.join("venv/bin/python"));
    python.arg(here.join("tests/together/together.py")).arg(built).env("PYTHONPATH", &package);
    let output = python.env("LD_LIBRARY_PATH", frameworks.join("cuda")).output().expect("Python runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("all agree"), "{text}");
}
