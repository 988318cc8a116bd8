//! The operators of `ffi/example` in the frameworks themselves, from the package that the generator writes.
//!
//! `scripts/install-frameworks` installs them into `.frameworks`; `TILEWRIGHT_PYTHON` names another Python that has PyTorch,
//! JAX and TVM-FFI. Where there is none, these tests say that they skip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tilewright_ffi::package::Package;

fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the workspace");
    folder.to_path_buf()
}

/// The library of operators, which cargo has built beside the test.
fn library() -> PathBuf {
    // Uses the crate, so that it is built.
    let _ = tilewright_ffi_example::silu;
    let test = std::env::current_exe().expect("the path of the test");
    test.with_file_name("libtilewright_ffi_example.so")
}

/// The Python of the frameworks, and where its stand-ins for CUDA's libraries are.
fn python() -> Option<(PathBuf, Option<PathBuf>)> {
    if let Some(python) = std::env::var_os("TILEWRIGHT_PYTHON") {
        return Some((python.into(), None));
    }
    let folder = workspace().join(".frameworks");
    folder.join("installed").exists().then(|| (folder.join("venv/bin/python"), Some(folder.join("cuda"))))
}

/// The folder that has the package in it.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        let package = Package::of_library(&library()).unwrap_or_else(|error| panic!("{error}"));
        package.write(&folder).unwrap_or_else(|error| panic!("{error}"));
        folder
    })
}

/// A command that runs Python with these folders of packages, or `None` with a message.
fn command(packages: &[&Path]) -> Option<Command> {
    let Some((python, stand_ins)) = python() else {
        eprintln!("skipped: run scripts/install-frameworks, or name a Python that has them in TILEWRIGHT_PYTHON");
        return None;
    };
    let mut command = Command::new(python);
    let paths = std::env::join_paths(packages).expect("paths without colons");
    command.env("PYTHONPATH", paths).env("PYTHONDONTWRITEBYTECODE", "1").env("RUST_BACKTRACE", "0");
    // glibc fills fresh memory, so that elements that nobody wrote are no numbers that one could expect.
    command.env("MALLOC_PERTURB_", "1");
    if let Some(stand_ins) = stand_ins {
        let earlier = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = std::iter::once(stand_ins).chain(std::env::split_paths(&earlier));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(all).expect("paths without colons"));
    }
    Some(command)
}

fn check(command: Option<Command>) -> Option<String> {
    let output = command?.output().expect("Python runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    Some(text)
}

/// Runs a file of `tests/python`, all of whose tests pass.
fn run(file: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    let command = command(&[package(), &scripts]).map(|mut command| {
        command.arg(scripts.join(file));
        command
    });
    if let Some(text) = check(command) {
        assert!(text.contains(" passed, 0 failed"), "{text}");
        eprintln!("{text}");
    }
}

#[test]
fn operators_work_in_pytorch() {
    run("test_torch.py");
}

#[test]
fn operators_work_in_jax() {
    run("test_jax.py");
}

#[test]
fn operators_work_through_tvm_ffi() {
    run("test_tvm_ffi.py");
}

#[test]
fn operators_work_in_all_frameworks_of_one_process() {
    run("test_together.py");
}

#[test]
fn wheels_install_and_import() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = Package::of_library(&library()).unwrap_or_else(|error| panic!("{error}"));
    let wheel = package.write_wheel(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    let site = folder.path().join("site");
    let install = command(&[]).map(|mut command| {
        command.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"]).arg(&site).arg(&wheel);
        command
    });
    check(install);
    let program = "import tw_example; from importlib.metadata import version; \
                   print(version('tw_example') == tw_example.__version__); tw_example.synchronize()";
    let import = command(&[&site]).map(|mut command| {
        command.args(["-c", program]);
        command
    });
    if let Some(text) = check(import) {
        assert_eq!(text.trim(), "True");
    }
}

#[test]
fn a_library_without_operators_is_refused() {
    let error = Package::of_library(Path::new("/nowhere/libnothing.so")).err().expect("there is no such file");
    assert!(error.to_string().starts_with("/nowhere/libnothing.so: "), "{error}");
    let text = tempfile::NamedTempFile::new().expect("a file");
    let error = Package::of_library(text.path()).err().expect("an empty file is no library");
    assert!(error.to_string().contains(&*text.path().to_string_lossy()), "{error}");
}
