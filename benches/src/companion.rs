//! Contenders in a process beside the bench, which takes its turns in the same rounds: libraries that only another language
//! reaches. A GPU slows itself down under load, so times of two runs after each other do not compare.
//!
//! The process reads a request per line and answers each with a line:
//!
//! | request | answer |
//! |---|---|
//! | `prepare WORK SHAPE DTYPE` | `ready`, and for each contender, which it has run, a tab, its name, `=`, its configuration |
//! | `run NAME` | the milliseconds of one run after a flush of the L2 cache |
//!
//! An answer begins with `> `; `> failed` is followed by the reason. Its other lines are for people.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Failure;

/// The beginning of each answer.
const ANSWER: &str = "> ";

/// The process.
pub struct Companion {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Companion {
    /// Starts it: a program and its arguments, divided by spaces.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &str) -> Result<Companion, Failure> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or("the command of the process beside is empty")?;
        let mut command = Command::new(program);
        command.args(words);
        Companion::of(command)
    }

    fn of(mut command: Command) -> Result<Companion, Failure> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (requests, answers) = (process.stdin.take(), process.stdout.take());
        let answers = BufReader::new(answers.ok_or("the process beside has no output")?);
        Ok(Companion { process, requests, answers })
    }

    /// Its contenders for this work, with their configurations.
    ///
    /// # Errors
    /// If it ended, or fails.
    pub fn prepare(&mut self, work: &str, shape: &str, dtype: &str) -> Result<Vec<(String, String)>, Failure> {
        let answer = self.ask(&format!("prepare {work} {shape} {dtype}"))?;
        let mut parts = answer.split('\t');
        if parts.next() != Some("ready") {
            return Err(format!("the process beside says {answer:?} where it should be ready").into());
        }
        let contender = |part: &str| part.split_once('=').map(|(name, config)| (name.to_string(), config.to_string()));
        parts.map(|part| contender(part).ok_or_else(|| format!("{part:?} is no contender").into())).collect()
    }

    /// The milliseconds of one run of a contender.
    ///
    /// # Errors
    /// If it ended, or fails.
    pub fn run(&mut self, name: &str) -> Result<f64, Failure> {
        let answer = self.ask(&format!("run {name}"))?;
        answer.parse().map_err(|_| format!("the process beside says {answer:?} where a time should be").into())
    }

    fn ask(&mut self, request: &str) -> Result<String, Failure> {
        let to = self.requests.as_mut().ok_or("the process beside has no input")?;
        writeln!(to, "{request}")?;
        to.flush()?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(format!("the process beside ended at {request:?}").into());
            }
            let Some(answer) = line.trim_end().strip_prefix(ANSWER) else {
                print!("{line}");
                continue;
            };
            return match answer.strip_prefix("failed ") {
                Some(why) => Err(why.into()),
                None => Ok(answer.to_string()),
            };
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // Its requests end, and so it ends; one that does not is ended.
        drop(self.requests.take());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while std::time::Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that answers each request with the next of some lines, by the shell.
    fn scripted(lines: &[&str]) -> Companion {
        let script: String = lines.iter().map(|line| format!("read request; printf '{line}\\n'\n")).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        Companion::of(shell).unwrap()
    }

    #[test]
    fn contenders_and_times_are_read() {
        let mut beside = scripted(&["loading\\n> ready\\tcudnn=9.1\\tflash=two words", "> 1.25"]);
        let contenders = beside.prepare("attention", "2x64x64", "f16").unwrap();
        assert_eq!(contenders, [("cudnn", "9.1"), ("flash", "two words")].map(|(a, b)| (a.into(), b.into())));
        assert_eq!(beside.run("cudnn").unwrap(), 1.25);
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let mut beside = scripted(&["> failed no such shape", "> soon"]);
        assert_eq!(beside.prepare("attention", "1", "f16").unwrap_err().to_string(), "no such shape");
        assert!(beside.run("cudnn").unwrap_err().to_string().contains("\"soon\""));
        assert!(beside.run("cudnn").is_err(), "it has ended");
    }
}
