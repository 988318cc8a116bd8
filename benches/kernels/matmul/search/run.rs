//! The tuner itself, against the file of all times.

use super::file::{self, All, Times};
use super::{Operands, PersistentConsts, Sizes, space};
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use tilewright::bench::{Bench, Contender, Measured};
use tilewright::launch::Config;
use tilewright::prelude::*;
use tilewright::tune::{Bar, Outcome, Tuner};
use tilewright_bench::{Failure, report};

/// How many of the fastest of the file the winner runs against: by single medians, which of them is fastest is chance.
const FASTEST: usize = 3;

/// Rounds of that.
const ROUNDS: usize = 31;

/// Tunes at each of the sizes, and says how far what wins is from the best of the file.
pub fn all(device: &Device, sizes: &[Sizes], path: &Path, budget: f64) -> Result<(), Failure> {
    let all = file::read(path)?;
    let mut operands = Operands::new(device, sizes)?;
    let mut lines = String::from("sizes,candidates,trials,seconds,ended,ms,of the best,config\n");
    for &of in sizes {
        let processors = device.multiprocessor_count();
        let tuner = Tuner::new(space()).sizes(&of).budget(Duration::from_secs_f64(budget)).observe(Bar::default());
        let outcome: Outcome<PersistentConsts> =
            tuner.run(device, |config, trial| operands.call(of, config, processors, |call| trial.launch(call)))?;
        let ratio = against_fastest(device, &mut operands, of, &outcome, &all)?;
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

/// How much longer the winner takes than the fastest of the file, in turns with them; at least 1.
fn against_fastest(
    device: &Device,
    operands: &mut Operands,
    of: Sizes,
    outcome: &Outcome<PersistentConsts>,
    all: &All,
) -> Result<f64, Failure> {
    let known = |config: &Config<PersistentConsts>| all.get(&(of, file::name(config))).map(Times::median);
    let kept = outcome.plan.kept.iter().map(|planned| planned.config).filter(|config| *config != outcome.best);
    let mut fastest: Vec<(f64, Config<PersistentConsts>)> =
        kept.filter_map(|config| Some((known(&config).filter(|ms| ms.is_finite())?, config))).collect();
    fastest.sort_by(|a, b| a.0.total_cmp(&b.0));
    let configs = fastest.iter().take(FASTEST).map(|(_, config)| *config);
    let (operands, processors) = (RefCell::new(operands), device.multiprocessor_count());
    let launch = |config: Config<PersistentConsts>| {
        let operands = &operands;
        move || operands.borrow_mut().call(of, &config, processors, |call| call.launch(device))
    };
    let mut launches: Vec<_> = [outcome.best].into_iter().chain(configs).map(launch).collect();
    let mut contenders: Vec<Contender<'_>> =
        launches.iter_mut().map(|launch| ("", launch as &mut dyn FnMut() -> Result<(), Error>)).collect();
    let measured = Bench::new(device)?.rounds(ROUNDS).compare(&mut contenders)?;
    let ratio = |other: &Measured| other.speedup_over(&measured[0]);
    Ok(measured.iter().map(ratio).fold(1.0, f64::max))
}
