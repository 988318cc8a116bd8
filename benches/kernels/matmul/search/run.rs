//! The tuner itself, against the file of all times.

use super::file::{self, Times};
use super::{Operands, PersistentConsts, Sizes, space};
use std::path::Path;
use std::time::Duration;
use tilewright::prelude::*;
use tilewright::tune::{Bar, Outcome, Tuner};
use tilewright_bench::{Failure, report};

/// Tunes at each of the sizes, and says how far what wins is from the best of the file, by the file's times.
pub fn all(device: &Device, sizes: &[Sizes], path: &Path, budget: f64) -> Result<(), Failure> {
    let all = file::read(path)?;
    let mut operands = Operands::new(device, sizes)?;
    let mut lines = String::from("sizes,candidates,trials,seconds,ended,ms,of the best,config\n");
    for &of in sizes {
        let processors = device.multiprocessor_count();
        let tuner = Tuner::new(space()).sizes(&of).budget(Duration::from_secs_f64(budget)).observe(Bar::default());
        let outcome: Outcome<PersistentConsts> =
            tuner.run(device, |config, trial| operands.call(of, config, processors, |call| trial.launch(call)))?;
        let known = all.get(&(of, file::name(&outcome.best))).filter(|times| !times.runs.is_empty());
        let ratio = known.zip(file::best(&all, of)).map_or(f64::NAN, |(times, best)| Times::median(times) / best);
        let (name, kept) = (of.map(|size| size.to_string()).join("x"), outcome.plan.kept.len());
        let (trials, seconds, ended) = (outcome.tried.len(), outcome.time.as_secs_f64(), outcome.ended);
        print!("{name}: {ended:?} after {seconds:.1} s, {ratio:.3} of the best of {kept}\n{}", outcome.chart());
        let (ms, best) = (outcome.ms, file::name(&outcome.best));
        lines += &format!("{name},{kept},{trials},{seconds:.1},{ended:?},{ms:.5},{ratio:.4},{best}\n");
        outcome.draw_search(report::folder().join(format!("search_{name}.svg")))?;
        report::write("search_runs.csv", &lines)?;
    }
    Ok(())
}
