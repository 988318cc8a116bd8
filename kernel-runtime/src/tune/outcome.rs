//! What tuning found.

use super::measure::{Clock, Failure};
use super::plan::{Plan, Pruned};
use super::space::Axis;
use crate::launch::{Config, Constexprs};
use std::time::Duration;

/// A configuration that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried<C> {
    /// The configuration.
    pub config: Config<C>,
    /// Its place in the plan.
    pub planned: usize,
    /// The median of its runs in milliseconds, or why it is out.
    pub result: Result<f64, Failure>,
    /// The runs; none where the log knew it.
    pub runs: usize,
    /// When, since tuning began.
    pub at: Duration,
    /// The clock behind its last run.
    pub clock: Option<Clock>,
}

/// A configuration of the final comparison, in which all run in turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Finalist<C> {
    /// The configuration.
    pub config: Config<C>,
    /// Its times in milliseconds, by round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub ms: f64,
    /// Whether the winner is faster beyond noise.
    pub is_beaten: bool,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Everything was tried.
    Exhausted,
    /// Nothing better was found for long.
    Patience,
    /// The time was over.
    Budget,
    /// The best is as fast as anything could be.
    Bound,
    /// Somebody asked for the best so far.
    Stopped,
    /// The device answers no more: nothing else can run in this process. What won is the best so far, or the configuration
    /// to start at, as there was no final.
    Lost,
}

/// What tuning found.
#[derive(Clone, Debug)]
pub struct Outcome<C> {
    /// The winner.
    pub best: Config<C>,
    /// Its median time in milliseconds.
    pub ms: f64,
    /// The winner and those that were compared with it, the fastest first.
    pub finalists: Vec<Finalist<C>>,
    /// Everything that was tried, in order.
    pub tried: Vec<Tried<C>>,
    /// What was left to try, and what was not.
    pub plan: Plan<C>,
    /// Why the search ended.
    pub ended: Ended,
    /// The least time that the work can take, in milliseconds, if that was said.
    pub bound: Option<f64>,
    /// How long it took.
    pub time: Duration,
    /// What could not be written, such as a log on a disk that is read-only, which rows of the table say nothing any more,
    /// and that the device was lost.
    pub warnings: Vec<String>,
}

impl<C: Constexprs> Outcome<C> {
    /// What became of a configuration, and why.
    pub fn explain(&self, config: &Config<C>) -> String {
        if *config == self.best {
            return format!("{config}: the winner, {:.4} ms", self.ms);
        }
        if let Some(finalist) = self.finalists.iter().find(|finalist| finalist.config == *config) {
            let slower = (finalist.ms / self.ms - 1.0) * 100.0;
            let verdict = if finalist.is_beaten { "beaten in the final" } else { "as fast as the winner within noise" };
            return format!("{config}: {verdict}, {:.4} ms, {slower:+.1} %", finalist.ms);
        }
        if let Some(tried) = self.tried.iter().find(|tried| tried.config == *config) {
            return match &tried.result {
                Ok(ms) => {
                    format!(
                        "{config}: slower, {ms:.4} ms, {:.2} times the winner{}",
                        ms / self.ms,
                        self.resources(config)
                    )
                }
                Err(failure) => format!("{config}: {failure}"),
            };
        }
        if let Some((_, pruned)) = self.plan.pruned.iter().find(|(other, _)| other == config) {
            return format!("{config}: not tried, {pruned}");
        }
        match self.plan.kept.iter().position(|planned| planned.config == *config) {
            Some(rank) => {
                let of = self.plan.kept.len();
                format!("{config}: not tried, place {} of {of} by the cost model{}", rank + 1, self.resources(config))
            }
            None => format!("{config}: not in the space"),
        }
    }

    /// What a configuration takes, as an end of a sentence.
    fn resources(&self, config: &Config<C>) -> String {
        let placement =
            self.plan.kept.iter().find(|planned| planned.config == *config).and_then(|found| found.placement());
        placement.map_or_else(String::new, |placement| {
            format!(
                " ({} bytes of shared memory, {} registers alive, {} programs per multiprocessor, {:.0} cycles expected)",
                placement.shared_bytes, placement.registers, placement.programs, placement.cycles
            )
        })
    }

    /// How many were pruned, by reason; those that do not meet the space's conditions first.
    pub fn pruned(&self) -> Vec<(&'static str, usize)> {
        let mut counts = vec![("conditions", self.plan.unmet)];
        for (_, pruned) in &self.plan.pruned {
            let name = match pruned {
                Pruned::Refused(failure) => failure.kind.name(),
                Pruned::Registers { .. } => "spills",
                Pruned::Occupancy => "no room",
                Pruned::SameCode(_) => "same code",
            };
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        counts.retain(|(_, count)| *count > 0);
        counts
    }

    /// For each value of an axis the best time with it.
    pub fn by_axis(&self, axis: &Axis) -> Vec<(Option<i64>, f64)> {
        let Some(index) = self.plan.axes.iter().position(|other| other == axis) else { return Vec::new() };
        let mut best: Vec<(Option<i64>, f64)> = Vec::new();
        for value in &axis.values {
            let with = self.tried.iter().filter(|tried| tried.config.values().nth(index) == Some(*value));
            let least = with.filter_map(|tried| tried.result.as_ref().ok()).copied().reduce(f64::min);
            best.extend(least.map(|ms| (*value, ms)));
        }
        best
    }
}
