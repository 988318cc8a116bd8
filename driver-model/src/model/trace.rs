//! What was called, and what was wrong.

use crate::client::{COUNTS_FILE, VIOLATIONS_FILE};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Calls before a violation that are shown with it.
const SHOWN: usize = 24;

/// A call that is being made.
pub(crate) struct Note {
    pub(crate) number: u64,
    details: String,
}

impl Note {
    pub(crate) fn of_call(number: u64) -> Self {
        Note { number, details: String::new() }
    }

    /// A number that belongs to the call.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        let _ = write!(self.details, " {name}={value}");
    }

    /// An address or a handle.
    pub(crate) fn handle(&mut self, name: &str, value: u64) {
        let _ = write!(self.details, " {name}={value:#x}");
    }

    /// The stream that the call is about.
    pub(crate) fn stream(&mut self, stream: usize) {
        self.handle("stream", stream as u64);
    }

    /// How many bytes it is about.
    pub(crate) fn bytes(&mut self, bytes: usize) {
        self.number("bytes", bytes as u64);
    }

    /// A name, without blanks.
    pub(crate) fn name(&mut self, name: &str, value: &str) {
        let _ = write!(self.details, " {name}={value}");
    }
}

/// All calls, as lines: `FUNCTION=CODE NAME=VALUE ..`.
pub(crate) struct Trace {
    folder: Option<PathBuf>,
    lines: Vec<String>,
    violations: Vec<String>,
}

impl Trace {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Trace { folder, lines: Vec::new(), violations: Vec::new() }
    }

    /// The number of the call that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.lines.len() as u64
    }

    pub(crate) fn push(&mut self, function: &str, note: &Note, code: u32) {
        self.lines.push(format!("{function}={code}{}", note.details));
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The violations so far, which are then forgotten.
    pub(crate) fn take_violations(&mut self) -> Vec<String> {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.join(VIOLATIONS_FILE));
        }
        std::mem::take(&mut self.violations)
    }

    /// Notes that something was done whose outcome no driver promises.
    pub(crate) fn violate(&mut self, what: &str) {
        let from = self.lines.len().saturating_sub(SHOWN);
        let calls = self.lines.iter().enumerate().skip(from).map(|(number, line)| format!("\n  {number}: {line}"));
        let text = format!("{what}; the calls before it were{}", calls.collect::<String>());
        if let Some(folder) = &self.folder
            && let Ok(mut file) = std::fs::File::options().create(true).append(true).open(folder.join(VIOLATIONS_FILE))
        {
            let _ = writeln!(file, "{text}\n");
        }
        self.violations.push(text);
    }

    /// Leaves behind how often each function was called.
    pub(crate) fn leave_counts(&self) {
        let Some(folder) = &self.folder else { return };
        let mut counts = std::collections::BTreeMap::<&str, u64>::new();
        for line in &self.lines {
            *counts.entry(line.split('=').next().unwrap_or_default()).or_default() += 1;
        }
        let text: String = counts.iter().map(|(function, count)| format!("{function} {count}\n")).collect();
        let _ = std::fs::write(folder.join(COUNTS_FILE), text);
    }
}
