//! Loading: what succeeds, what fails and with which words.
//!
//! Loading happens once per process, so each case that needs a fresh one runs this test binary again
//! as a child, with one of the `child_` tests chosen by name and told by a variable to do its part.
#![cfg(not(feature = "link-llvm"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kernel_llvm::{LoadError, Rejection, check, load};

/// Set in children only.
const CHILD: &str = "TILEWRIGHT_LOAD_TEST_CHILD";

/// Runs the test `name` of this binary alone, as a child, with `TILEWRIGHT_LLVM` as given.
fn child(name: &str, llvm: Option<&Path>) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this test binary has a path"));
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env_remove("TILEWRIGHT_LLVM");
    if let Some(path) = llvm {
        command.env("TILEWRIGHT_LLVM", path);
    }
    command.output().expect("this test binary runs")
}

/// Whether this process is a child that is to do its part.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder for one test's files.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Compiles `source` to a shared library called `file` in a folder of its own.
fn shared_library(name: &str, file: &str, source: &str) -> PathBuf {
    let folder = folder(name);
    let (input, output) = (folder.join("source.rs"), folder.join(file));
    std::fs::write(&input, source).expect("the target folder is writable");
    let status = Command::new("rustc")
        .args(["--crate-type", "cdylib", "--edition", "2024", "-C", "panic=abort", "-o"])
        .args([&output, &input])
        .status()
        .expect("rustc runs");
    assert!(status.success(), "the test's own library compiles");
    output
}

/// A shared library that says it is LLVM `major`, and exports nothing else.
fn fake_llvm(name: &str, major: u32) -> PathBuf {
    let source = format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"C\" fn LLVMGetVersion(a: *mut u32, b: *mut u32, c: *mut u32) \
         {{ unsafe {{ *a = {major}; *b = 1; *c = 7; }} }}"
    );
    shared_library(name, "libLLVM.so.fake", &source)
}

fn why(path: &Path) -> Rejection {
    match check(path) {
        Err(LoadError::File { path: named, why }) => {
            assert_eq!(named, path);
            why
        }
        other => panic!("{} gave {other:?}", path.display()),
    }
}

#[test]
fn the_toolchains_llvm_loads_once_for_all_threads() {
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(load)).collect();
    let first = load().expect("the toolchain has an LLVM");
    for thread in threads {
        let other = thread.join().expect("no panic").expect("the same result");
        assert!(std::ptr::eq(first, other));
    }
    assert!(matches!(first.version(), (22 | 23, _, _)));
    assert!(first.path().is_absolute() || first.path().components().count() == 1);
    assert!(first.load_time() > std::time::Duration::ZERO);
    assert!(first.missing_functions().len() < 60, "{:?}", first.missing_functions());
    assert!(!first.missing_functions().contains(&"LLVMBuildAdd"));
}

#[test]
fn check_accepts_the_loaded_library_and_its_folders() {
    let llvm = load().expect("the toolchain has an LLVM");
    assert_eq!(check(llvm.path()), Ok(llvm.version()));
    let lib = llvm.path().parent().expect("the library lies in a folder");
    assert_eq!(check(lib), Ok(llvm.version()));
    let sysroot = lib.parent().expect("the library lies in the toolchain's lib");
    assert_eq!(check(sysroot), Ok(llvm.version()));
}

#[test]
fn files_that_are_no_llvm_are_errors() {
    assert_eq!(why(Path::new("/no/such/libLLVM.so")), Rejection::Missing);

    let script = folder("script").join("libLLVM-22.so");
    std::fs::write(&script, "INPUT(libLLVM.so.22.1)").expect("the target folder is writable");
    assert_eq!(why(&script), Rejection::NotElf);
    std::fs::write(&script, "").expect("the target folder is writable");
    assert_eq!(why(&script), Rejection::NotElf);
    std::fs::write(&script, b"\x7fELF and nothing more").expect("the target folder is writable");
    let Rejection::Refused(reason) = why(&script) else { panic!("the dynamic linker refuses it") };
    assert!(reason.contains("libLLVM-22.so"), "the linker's own words: {reason}");

    let empty = folder("empty");
    assert_eq!(why(&empty), Rejection::EmptyFolder);

    let other = shared_library("other", "libother.so", "");
    assert_eq!(why(&other), Rejection::NotLlvm("LLVMContextCreate"));
}

#[test]
fn other_versions_and_llvms_without_the_target_are_errors() {
    let source = "#[unsafe(no_mangle)] pub extern \"C\" fn LLVMContextCreate() {}";
    let ancient = shared_library("ancient", "libLLVM-15.so", source);
    assert_eq!(why(&ancient), Rejection::TooOld);
    assert_eq!(why(&fake_llvm("old", 21)), Rejection::Version((21, 1, 7)));
    assert_eq!(why(&fake_llvm("new", 24)), Rejection::Version((24, 1, 7)));
    assert_eq!(why(&fake_llvm("targetless", 23)), Rejection::NoNvptx((23, 1, 7)));
}

#[test]
fn child_prints_what_load_returns() {
    if is_child() {
        let first = load();
        assert_eq!(first.is_err(), load().is_err(), "the result stays");
        match first {
            Ok(llvm) => println!("loaded {}", llvm.path().display()),
            Err(error) => println!("refused {error}"),
        }
    }
}

#[test]
fn the_setting_names_the_only_place() {
    const NAME: &str = "child_prints_what_load_returns";
    let llvm = load().expect("the toolchain has an LLVM");
    for path in [llvm.path(), llvm.path().parent().expect("a folder")] {
        let output = text(&child(NAME, Some(path)).stdout);
        assert!(output.contains(&format!("loaded {}", llvm.path().display())), "{output}");
    }
    let output = text(&child(NAME, Some(Path::new("/no/such/file"))).stdout);
    let expected = "refused TILEWRIGHT_LLVM is set to `/no/such/file`, which cannot be used: it does \
                    not exist\nSet TILEWRIGHT_LLVM to a libLLVM 22 or 23";
    assert!(output.contains(expected), "{output}");
    let output = text(&child(NAME, Some(&fake_llvm("setting", 15))).stdout);
    assert!(output.contains("it is LLVM 15.1.7, and only 22 and 23 are known to work"), "{output}");
}

#[test]
fn child_calls_llvm_before_load() {
    if is_child() {
        let _ = kernel_llvm::inkwell::context::Context::create();
    }
}

#[test]
fn child_calls_a_function_that_llvm_lacks() {
    if is_child() {
        let llvm = load().expect("the toolchain has an LLVM");
        assert!(llvm.missing_functions().contains(&"LLVM_InitializeAllTargets"));
        // SAFETY: the function takes nothing and returns nothing.
        unsafe { kernel_llvm::llvm_sys::target::LLVM_InitializeAllTargets() };
    }
}

#[test]
fn empty_slots_say_which_function_and_abort() {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    let early = child("child_calls_llvm_before_load", None);
    assert_eq!(early.status.signal(), Some(SIGABRT), "{}", text(&early.stderr));
    let message = text(&early.stderr);
    assert!(message.contains("LLVMContextCreate was called before LLVM was loaded"), "{message}");

    let missing = child("child_calls_a_function_that_llvm_lacks", None);
    assert_eq!(missing.status.signal(), Some(SIGABRT), "{}", text(&missing.stderr));
    let message = text(&missing.stderr);
    let expected = "LLVM_InitializeAllTargets was called, but the loaded LLVM does not export it";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_message_lists_every_place_and_what_to_do() {
    let rejected = |path: &str, why| kernel_llvm::Rejected { path: path.into(), why };
    let error = LoadError::NotFound {
        looked: vec![
            rejected("/a/lib", Rejection::EmptyFolder),
            rejected("libLLVM-22.so", Rejection::Refused("no such file".to_string())),
        ],
    };
    let message = error.to_string();
    for part in [
        "- `/a/lib`: no libLLVM is in that folder or in its `lib`\n",
        "- `libLLVM-22.so`: the dynamic linker refused it (no such file)\n",
        "rustup toolchain install 1.95.0",
        "set TILEWRIGHT_LLVM to a libLLVM 22 or 23",
    ] {
        assert!(message.contains(part), "{message}");
    }
}
