//! A process may end while its threads compile.

use std::process::Command;
use std::thread;
use std::time::Duration;
use tilewright::launch::Target;
use tilewright::prelude::*;

#[kernel]
fn product<const B: usize>(a: Ptr<f16>, b: Ptr<f16>, c: PtrMut<f32>) {
    let (i, j) = (arange(0, B).expand_dims(1) * B, arange(0, B).expand_dims(0));
    store(c + (i + j), dot(load(a + (i + j)), load(b + (i + j))));
}

/// Runs alone, in the processes of the test below: ends while others compile, some of whom have done so before.
#[test]
fn ends_while_threads_compile() {
    let Ok(delay) = std::env::var("TILEWRIGHT_TEST_END_AFTER") else { return };
    let compile = || ProductConsts { B: 64 }.request().options(Default::default()).compile(Target::sm_90a()).map(drop);
    compile().expect("a kernel that compiles");
    for _ in 0..4 {
        thread::spawn(move || while compile().is_ok() {});
    }
    thread::sleep(Duration::from_millis(delay.parse().expect("a number")));
    std::process::exit(0);
}

#[test]
fn a_process_ends_well_while_its_threads_compile() {
    let program = std::env::current_exe().expect("a test has an executable");
    for delay in 0..12 {
        let arguments = ["--exact", "end::ends_while_threads_compile", "--nocapture"];
        let mut command = Command::new(&program);
        let ended = command.args(arguments).env("TILEWRIGHT_TEST_END_AFTER", (7 * delay).to_string()).output();
        let ended = ended.expect("the test's executable runs");
        assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    }
}
