//! The library's operators in PyTorch and JAX, and the examples, from the package that the generator writes.
//!
//! `scripts/install-frameworks` installs them into `.frameworks`; `TILEWRIGHT_PYTHON` names another Python that has PyTorch
//! and JAX. Where there is none, these tests say that they skip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tilewright_ffi::package::Package;

/// The folder of this package, with its tests and examples.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Python of the frameworks, and where its stand-ins for CUDA's libraries are.
fn python() -> Option<(PathBuf, Option<PathBuf>)> {
    if let Some(python) = std::env::var_os("TILEWRIGHT_PYTHON") {
        return Some((python.into(), None));
    }
    let folder = here().ancestors().nth(2).expect("the folder of the workspace").join(".frameworks");
    folder.join("installed").exists().then(|| (folder.join("venv/bin/python"), Some(folder.join("cuda"))))
}

/// The folder that has the package in it.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        // Uses the crate, so that its library is built.
        let _ = tilewright_ops::softmax;
        let test = std::env::current_exe().expect("the path of the test");
        let library = test.with_file_name("libtilewright_ops.so");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        let package = Package::of_library(&library).unwrap_or_else(|error| panic!("{error}"));
        package.write(&folder).unwrap_or_else(|error| panic!("{error}"));
        folder
    })
}

/// Runs a program, which ends well and prints `expected`.
fn run(program: &str, arguments: &[&str], expected: &str) {
    let path = here().join(program);
    let folder = path.parent().expect("a folder");
    call(folder, |command| command.arg(&path).args(arguments), expected);
}

/// The folder where programs run, and leave what they write.
fn written() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Calls Python, with the modules of a folder, which ends well and prints `expected`.
fn call(modules: &Path, given: impl FnOnce(&mut Command) -> &mut Command, expected: &str) {
    let Some((python, stand_ins)) = python() else {
        eprintln!("skipped: run scripts/install-frameworks, or name a Python that has them in TILEWRIGHT_PYTHON");
        return;
    };
    // What runs tests is that of `tilewright-ffi`.
    let harness = here().with_file_name("tests").join("python");
    let paths = std::env::join_paths([package(), modules, &harness]).expect("paths without colons");
    let mut command = Command::new(python);
    given(&mut command).current_dir(written());
    command.env("PYTHONPATH", paths).env("PYTHONDONTWRITEBYTECODE", "1").env("RUST_BACKTRACE", "0");
    // glibc fills fresh memory, so that elements that nobody wrote are no numbers that one could expect.
    command.env("MALLOC_PERTURB_", "1");
    if let Some(stand_ins) = stand_ins {
        let earlier = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = std::iter::once(stand_ins).chain(std::env::split_paths(&earlier));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(all).expect("paths without colons"));
    }
    let output = command.output().expect("Python runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains(expected), "{text}");
    eprintln!("{text}");
}

/// Runs an example that draws a picture, and reads that as XML, with so many elements of a shape. One by the same name is among the
/// results.
fn run_with_picture(program: &str, arguments: &[&str], expected: &str, (picture, shape, count): (&str, &str, usize)) {
    let _ = std::fs::remove_file(written().join(picture));
    run(program, arguments, expected);
    let read = format!(
        "import sys, xml.etree.ElementTree as tree; root = tree.parse(sys.argv[1]).getroot(); \
         name = '{{http://www.w3.org/2000/svg}}'; assert root.tag == name + 'svg', root.tag; \
         print(len(root.findall(name + '{shape}')), 'of {shape}')"
    );
    call(here(), |command| command.args(["-c", &read, picture]), &format!("{count} of {shape}"));
    assert!(here().join("results").join(picture).exists(), "{picture} is no picture of the results");
}

#[test]
fn operators_work_in_pytorch() {
    run("tests/python/test_torch.py", &[], " passed, 0 failed");
}

#[test]
fn operators_work_in_jax() {
    run("tests/python/test_jax.py", &[], " passed, 0 failed");
}

#[test]
fn indices_outside_of_what_is_written_are_errors_and_write_nothing() {
    run("tests/python/test_outside.py", &[], " passed, 0 failed");
}

#[test]
fn operators_work_through_tvm_ffi_and_are_counted_in_xla() {
    run("tests/python/test_doors.py", &[], " passed, 0 failed");
}

#[test]
fn a_transformer_block_learns_as_with_pytorch_alone() {
    // A curve for each way to train.
    let picture = ("loss.svg", "polyline", 4);
    run_with_picture("examples/torch_block.py", &["--size", "small"], "the curves are equal within noise", picture);
}

#[test]
fn examples_in_jax_agree_with_jax() {
    // The background, and for each of 12 functions its difference and two times.
    run_with_picture("examples/jax_transforms.py", &[], "all agree", ("transforms.svg", "rect", 1 + 12 * 3));
}

#[test]
fn the_short_examples_run() {
    for file in ["first_torch.py", "first_jax.py"] {
        run(&format!("examples/{file}"), &[], "equal");
    }
}
