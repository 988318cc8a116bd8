//! Ranges for profilers, by NVTX: a profiler is a library that the program loads, here one that writes down what it is told.
//!
//! Which one it is a program asks once, so this runs the test program once more.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright::prelude::*;
use tilewright::profile;

/// NVTX's variable for the library of a profiler.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// The library, by NVTX's header: its table of callbacks, and the ids of two of them.
const PROFILER: &str = r#"
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[repr(C)]
struct Callbacks {
    size: usize,
    table: extern "C" fn(c_uint, *mut *mut *mut *mut c_void, *mut c_uint) -> c_int,
}

extern "C" fn push(text: *const c_char) -> c_int {
    println!("push {}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    0
}

extern "C" fn pop() -> c_int {
    println!("pop");
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(tables: extern "C" fn(c_uint) -> *const Callbacks) -> c_int {
    let callbacks = unsafe { &*tables(1) };
    let (mut table, mut size) = (std::ptr::null_mut(), 0);
    assert_eq!(callbacks.size, size_of::<Callbacks>());
    assert_eq!((callbacks.table)(1, &mut table, &mut size), 1);
    assert_eq!(size, 16);
    unsafe {
        assert!((*table).is_null() && (*table.add(16)).is_null(), "ids count from 1");
        **table.add(9) = push as *mut c_void;
        **table.add(11) = pop as *mut c_void;
    }
    1
}
"#;

#[kernel]
fn one<const BLOCK: usize>(out: PtrMut<f32>) {
    store(out + arange(0, BLOCK), 1.0);
}

/// Compiles the library; `None`, and a word about it, where there is no rustc.
fn profiler(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("profiler.rs"), folder.join("libprofiler.so"));
    std::fs::write(&source, PROFILER).expect("the folder is there");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(&rustc);
    let output = match command.args(["--edition=2024", "--crate-type=cdylib", "-o"]).args([&library, &source]).output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: there is no {} to compile a profiler with", rustc.display());
            return None;
        }
        Err(error) => panic!("{}: {error}", rustc.display()),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

#[test]
fn profilers_see_launches_and_ranges() {
    if std::env::var_os(VARIABLE).is_some() {
        return launch();
    }
    let folder = std::env::temp_dir().join(format!("tilewright-ranges-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room");
    let program = std::env::current_exe().expect("the test program has a path");
    let run = |library: &Path| {
        let test = ["--exact", "--nocapture", "ranges::profilers_see_launches_and_ranges"];
        let output = Command::new(&program).args(test).env(VARIABLE, library).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text.lines().filter(|line| line.contains("push") || line.contains("pop")).collect::<Vec<_>>().join(", ")
    };
    if let Some(profiler) = profiler(&folder) {
        assert_eq!(run(&profiler), "push step, push one, pop, pop, push one, pop");
    }
    assert_eq!(run(&folder.join("no such library")), "", "a profiler that cannot be loaded is none");
    let _ = std::fs::remove_dir_all(&folder);
}

fn launch() {
    let device = Device::cpu();
    let mut out = device.zeros::<f32>(64).expect("it fits");
    let range = profile::range("step");
    one::<64>(&mut out).grid(1).launch(&device).expect("it runs");
    drop(range);
    one::<64>(&mut out).grid(1).launch(&device).expect("it runs");
}
