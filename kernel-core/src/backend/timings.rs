//! How long the stages of a compilation take.

use std::fmt;
use std::time::{Duration, Instant};

/// The stages of a compilation in the order in which they ran, with the time of each.
///
/// Prints as `parse 0.1 ms, bind 0.2 ms, total 0.3 ms`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timings {
    stages: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// The stages by name.
    pub fn stages(&self) -> &[(&'static str, Duration)] {
        &self.stages
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        self.stages.iter().map(|(_, time)| *time).sum()
    }

    /// Runs a stage and notes its time.
    pub fn stage<R>(&mut self, name: &'static str, run: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = run();
        self.push(name, start.elapsed());
        result
    }

    /// Notes the time of a stage.
    pub fn push(&mut self, name: &'static str, time: Duration) {
        self.stages.push((name, time));
    }

    /// Notes the stages of another part of the compilation.
    pub fn append(&mut self, other: Timings) {
        self.stages.extend(other.stages);
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        for (name, time) in &self.stages {
            write!(f, "{name} {:.1} ms, ", milliseconds(*time))?;
        }
        write!(f, "total {:.1} ms", milliseconds(self.total()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up() {
        let mut timings = Timings::default();
        timings.push("a", Duration::from_micros(1500));
        timings.push("b", Duration::from_millis(2));
        assert_eq!(timings.to_string(), "a 1.5 ms, b 2.0 ms, total 3.5 ms");
        assert_eq!(timings.stage("c", || 7), 7);
        assert_eq!(timings.stages().len(), 3);
        timings.append(timings.clone());
        assert_eq!(timings.stages().len(), 6);
    }
}
