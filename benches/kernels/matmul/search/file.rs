//! The file of all times: a line for each size and configuration.

use super::{PersistentConsts, Sizes};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use tilewright::launch::Config;
use tilewright_bench::Failure;

/// The names of the columns.
pub const HEADER: &str = "sizes,config,compile_ms,runs\n";

/// What is known of a configuration at some sizes.
#[derive(Clone, Debug)]
pub struct Times {
    /// How long compiling and loading took, if this process did.
    pub compile_ms: f64,
    /// Runs in milliseconds; none of what does not work.
    pub runs: Vec<f64>,
}

/// Everything that a file has, by sizes and configuration.
pub type All = HashMap<(Sizes, String), Times>;

/// `4096x4096x4096`
pub fn sizes(text: &str) -> Result<Sizes, Failure> {
    let numbers: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    let numbers = numbers.map_err(|why| format!("{text}: {why}"))?;
    Sizes::try_from(numbers).map_err(|_| format!("{text} are no three sizes").into())
}

/// A configuration as one column.
pub fn name(config: &Config<PersistentConsts>) -> String {
    config.to_string().replace(',', "")
}

/// A line.
pub fn line([m, n, k]: Sizes, config: &Config<PersistentConsts>, Times { compile_ms, runs }: &Times) -> String {
    let mut text = format!("{m}x{n}x{k},{},{compile_ms:.2},", name(config));
    for (index, ms) in runs.iter().enumerate() {
        let _ = write!(text, "{}{ms:.5}", if index > 0 { ";" } else { "" });
    }
    text + "\n"
}

/// Reads a file; one that does not exist has nothing. A line that an end of time cut short is passed over.
pub fn read(path: &Path) -> Result<All, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(why) => return Err(format!("{}: {why}", path.display()).into()),
    };
    let mut all = All::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let [of, config, compile_ms, runs] = columns[..] else { continue };
        let runs: Result<Vec<f64>, _> = runs.split(';').filter(|run| !run.is_empty()).map(str::parse).collect();
        let (Ok(of), Ok(compile_ms), Ok(runs)) = (sizes(of), compile_ms.parse(), runs) else { continue };
        all.insert((of, config.to_string()), Times { compile_ms, runs });
    }
    Ok(all)
}

/// The best time of some sizes, by medians.
pub fn best(all: &All, of: Sizes) -> Option<f64> {
    let medians = all.iter().filter(|((sizes, _), times)| *sizes == of && !times.runs.is_empty());
    medians.map(|(_, times)| times.median()).reduce(f64::min)
}

impl Times {
    /// The median of the runs.
    pub fn median(&self) -> f64 {
        tilewright::tune::stats::median(&mut self.runs.clone())
    }
}
