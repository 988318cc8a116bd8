//! What a campaign has run so far, and the log that it can go on from.
//!
//! The log has a line per block of seeds and one per finding:
//!
//! ```text
//! block 0 500 refused 3 features 201,95,..
//! finding 123 codegen membar, ordered: ..
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::generate::features::{Feature, Features};

/// A seed whose ways do not agree.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// Where, and what is different.
    pub what: String,
}

/// What blocks of seeds amount to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds whose kernel the code generator refuses, by its reason.
    pub refused: BTreeMap<String, u64>,
    /// Seeds with each feature, in the order of [`Feature::ALL`].
    pub features: Vec<u64>,
    /// What differs.
    pub findings: BTreeSet<Finding>,
}

impl Totals {
    /// Adds a seed.
    pub fn add(&mut self, features: Features) {
        self.seeds += 1;
        self.features.resize(Feature::ALL.len(), 0);
        for (count, (feature, _)) in self.features.iter_mut().zip(Feature::ALL) {
            *count += u64::from(features.contains(*feature));
        }
    }

    /// Adds another range's.
    pub fn join(&mut self, other: &Totals) {
        self.seeds += other.seeds;
        self.features.resize(Feature::ALL.len(), 0);
        self.features.iter_mut().zip(&other.features).for_each(|(own, other)| *own += other);
        for (why, count) in &other.refused {
            *self.refused.entry(why.clone()).or_default() += count;
        }
        self.findings.extend(other.findings.iter().cloned());
    }

    /// The lines of the log for a block.
    pub fn lines(&self, start: u64, end: u64) -> String {
        let features: Vec<String> = self.features.iter().map(u64::to_string).collect();
        let mut text = format!("block {start} {end} features {}\n", features.join(","));
        for (why, count) in &self.refused {
            let _infallible = writeln!(text, "refused {count} {why}");
        }
        for finding in &self.findings {
            let _infallible = writeln!(text, "finding {} {}", finding.seed, finding.what);
        }
        text
    }

    /// What a log says: the blocks that are done, and their totals.
    ///
    /// # Errors
    /// The line that is none of a log.
    pub fn read(log: &str) -> Result<(BTreeMap<u64, u64>, Totals), String> {
        let (mut blocks, mut totals) = (BTreeMap::new(), Totals::default());
        totals.features.resize(Feature::ALL.len(), 0);
        for line in log.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let wrong = || format!("not a line of a log: `{line}`");
            let (kind, rest) = line.split_once(' ').ok_or_else(wrong)?;
            let (first, rest) = rest.split_once(' ').ok_or_else(wrong)?;
            let number: u64 = first.parse().map_err(|_| wrong())?;
            match kind {
                "block" => {
                    let (end, features) = rest.split_once(" features ").ok_or_else(wrong)?;
                    let end: u64 = end.parse().map_err(|_| wrong())?;
                    let counts = features.split(',').filter(|count| !count.is_empty()).map(str::parse::<u64>);
                    let counts = counts.collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
                    totals.features.iter_mut().zip(counts).for_each(|(own, count)| *own += count);
                    totals.seeds += end - number;
                    blocks.insert(number, end);
                }
                "refused" => *totals.refused.entry(rest.to_string()).or_default() += number,
                "finding" => drop(totals.findings.insert(Finding { seed: number, what: rest.to_string() })),
                _ => return Err(wrong()),
            }
        }
        Ok((blocks, totals))
    }

    /// A table for a person to read.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let share = |count: u64| 100.0 * count as f64 / self.seeds.max(1) as f64;
        for ((_, name), &count) in Feature::ALL.iter().zip(&self.features) {
            let _infallible = writeln!(text, "  {name:<34} {count:>9} {:>5.1} %", share(count));
        }
        for (why, count) in &self.refused {
            let _infallible = writeln!(text, "  refused: {why}: {count} ({:.2} %)", share(*count));
        }
        for finding in &self.findings {
            let _infallible = writeln!(text, "  seed {}: {}", finding.seed, finding.what);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_reads_back_as_its_totals() {
        let mut totals = Totals::default();
        let mut features = Features::default();
        features.add(Feature::Scan);
        totals.add(features);
        totals.add(Features::default());
        totals.refused.insert("bytes of shared memory".to_string(), 1);
        totals.findings.insert(Finding { seed: 1, what: "core dce: gone".to_string() });
        let (blocks, read) = Totals::read(&format!("# a comment\n{}", totals.lines(0, 2))).expect("a log");
        assert_eq!(blocks, BTreeMap::from([(0, 2)]));
        assert_eq!(read, totals);
        assert!(Totals::read("nonsense").is_err());
    }
}
