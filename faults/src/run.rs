//! Runs a test binary with a fault, until a test fails, all pass, or the time is up.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::list::TestSpec;
use crate::workspace::Binary;

/// Memory that a test may map, in KiB: a fault that allocates for ever ends itself and not its machine.
const MEMORY_KIB: u64 = 24 << 20;

/// What became of a test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many tests passed, and none failed.
    Passed(usize),
    /// This test failed; the binary was ended then.
    Failed(String),
    /// It ended in another way: an abort, a fault of the processor.
    Crashed(String),
    /// It went on beyond its limit.
    Hung,
}

impl Outcome {
    /// What a person reads.
    pub fn describe(&self) -> String {
        match self {
            Outcome::Passed(count) => format!("passes {count} tests"),
            Outcome::Failed(test) => test.clone(),
            Outcome::Crashed(how) => format!("crash: {how}"),
            Outcome::Hung => "time limit".to_string(),
        }
    }
}

/// The folder of the libraries that unit tests of procedural macros load.
pub fn libraries() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// Runs a test binary. `fault` is the number of a switch, 0 for none.
///
/// # Errors
///
/// If it cannot be started.
pub fn run(binary: &Binary, test: &TestSpec, fault: u32, limit: Duration, libraries: &Path) -> Result<Outcome, Error> {
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).arg(&binary.executable).args(&test.arguments).args(["--test-threads", "2"]);
    command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
    command.env("LD_LIBRARY_PATH", libraries).env("RUST_BACKTRACE", "0").env_remove("TILEWRIGHT_FAULT");
    // Code without the fault is not taken for code with it.
    command.env("TILEWRIGHT_CACHE", "off");
    if fault != 0 {
        command.env("TILEWRIGHT_FAULT", fault.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| Error::file(&binary.executable, error))?;
    let lines = lines(&mut child);
    let (end, mut passed) = (Instant::now() + limit, 0);
    let outcome = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) {
                Some((_, "ok")) => passed += 1,
                Some((name, "FAILED")) => break Outcome::Failed(name.to_string()),
                Some(_) | None => {}
            },
            Err(mpsc::RecvTimeoutError::Timeout) => break Outcome::Hung,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let status = child.wait().map_err(|error| Error::file(&binary.executable, error))?;
                return Ok(if status.success() {
                    Outcome::Passed(passed)
                } else {
                    Outcome::Crashed(status.to_string())
                });
            }
        }
    };
    // A binary that has just ended by itself needs no end.
    let _ = child.kill();
    child.wait().map_err(|error| Error::file(&binary.executable, error))?;
    Ok(outcome)
}

/// What a binary prints, line by line.
fn lines(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell script in the place of a test binary.
    fn outcome(script: &str, limit: Duration) -> Outcome {
        let spec =
            TestSpec { package: String::new(), target: String::new(), arguments: vec!["-c".into(), script.into()] };
        let binary = Binary { executable: "/bin/sh".into(), folder: std::env::temp_dir() };
        run(&binary, &spec, 7, limit, Path::new("/")).expect("a shell")
    }

    #[test]
    fn the_first_test_that_fails_ends_the_run() {
        let started = Instant::now();
        let script = "echo 'test a::b ... ok'; echo 'test c ... FAILED'; sleep 60";
        assert_eq!(outcome(script, Duration::from_secs(30)), Outcome::Failed("c".into()));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn passes_crashes_and_hangs_are_told_apart() {
        let long = Duration::from_secs(30);
        assert_eq!(outcome("echo 'test a ... ok'; test $TILEWRIGHT_FAULT = 7", long), Outcome::Passed(1));
        assert!(matches!(outcome("kill -SEGV $$", long), Outcome::Crashed(how) if how.contains("signal")));
        assert_eq!(outcome("exec sleep 60", Duration::from_millis(300)), Outcome::Hung);
    }
}
