//! Contests in a process of their own. A kernel that faults ends the use of a device by its process, and one that never ends
//! blocks it: neither may cost what comes after it. The process says which work begins; if it dies or is silent for too long,
//! another one goes on with the next work.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::Failure;

/// The line with which a process begins a work, before its name.
pub const BEGIN: &str = "begin ";

/// What a process that does the works is told on its command line, before `--works` and their names.
pub const CHILD: &str = "--child";

/// The exit code of a process that says what stopped it.
pub const STOPPED: i32 = 3;

/// Does the works in processes of a program with these arguments and [`CHILD`]. Returns those that were lost, or had not begun
/// when the time was over.
///
/// # Errors
/// If no process can be started, or one ends before its first work.
pub fn all(
    program: &Path,
    works: &[&str],
    arguments: &[String],
    silence: Duration,
    time: Duration,
) -> Result<Vec<String>, Failure> {
    let (started, mut next, mut lost) = (Instant::now(), 0, Vec::new());
    while next < works.len() {
        let process = Process { program, works: &works[next..], arguments, silence, end: started + time };
        let Some((work, why)) = process.run()? else { return Ok(lost) };
        println!("LOST {work}: {why}");
        let at = works.iter().position(|name| *name == work).ok_or("a work began that is none")?;
        if why == Lost::Late {
            lost.extend(works[at..].iter().map(|name| name.to_string()));
            return Ok(lost);
        }
        next = at + 1;
        lost.push(work);
    }
    Ok(lost)
}

/// Why a work was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    /// Its process ended.
    Died,
    /// Its process said nothing for too long.
    Silent,
    /// The time was over.
    Late,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Lost::Died => "its process ended",
            Lost::Silent => "its process said nothing for too long",
            Lost::Late => "the time was over",
        })
    }
}

/// A process that does works.
struct Process<'a> {
    program: &'a Path,
    works: &'a [&'a str],
    arguments: &'a [String],
    silence: Duration,
    /// No work begins after it.
    end: Instant,
}

impl Process<'_> {
    /// Runs it to its end, and gives the work that it did not do.
    fn run(&self) -> Result<Option<(String, Lost)>, Failure> {
        let mut child = Command::new(self.program)
            .args(self.arguments)
            .args([CHILD, "--works", &self.works.join(",")])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("a process has no output")?;
        let (lines, received) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let (mut current, mut heard) = (self.works[0].to_string(), Instant::now());
        let stopped = loop {
            match received.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    heard = Instant::now();
                    match line.strip_prefix(BEGIN) {
                        Some(work) => current = work.to_string(),
                        None => println!("{line}"),
                    }
                    if line.starts_with(BEGIN) && Instant::now() > self.end {
                        break Some(Lost::Late);
                    }
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > self.silence => break Some(Lost::Silent),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        if let Some(why) = stopped {
            child.kill()?;
            child.wait()?;
            return Ok(Some((current, why)));
        }
        Ok(if child.wait()?.success() { None } else { Some((current, Lost::Died)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What does the works that follow `--works`: one of them dies, one says nothing.
    const SCRIPT: &str = "for work in $(echo $3 | tr , ' '); do echo \"begin $work\"; \
                          case $work in dies) exit 1;; silent) sleep 20;; slow) sleep 1;; esac; done";

    fn lost(works: &[&str], seconds: u64) -> Vec<String> {
        let arguments = ["-c", SCRIPT, "sh"].map(str::to_string);
        let (silence, time) = (Duration::from_secs(2), Duration::from_secs(seconds));
        all(Path::new("/bin/sh"), works, &arguments, silence, time).unwrap()
    }

    #[test]
    fn a_work_that_dies_or_is_silent_costs_itself_alone() {
        assert_eq!(lost(&["a", "dies", "b", "silent", "c"], 60), ["dies", "silent"]);
    }

    #[test]
    fn nothing_begins_when_the_time_is_over() {
        assert_eq!(lost(&["slow", "b", "c"], 0), ["slow", "b", "c"]);
        assert_eq!(lost(&["a", "b"], 60), [""; 0]);
    }
}
