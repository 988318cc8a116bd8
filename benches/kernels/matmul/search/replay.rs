//! The search on recorded times, without a GPU. `landscape.csv` has what it needs to run elsewhere: for each configuration
//! the cycles of the cost model and the median time at each of the sizes.

use super::file::{self, All, Times};
use super::{Operands, PersistentConsts, Sizes, plan};
use std::path::Path;
use std::time::Duration;
use tilewright::launch::Config;
use tilewright::prelude::*;
use tilewright::tune::stats::{median, quantile};
use tilewright::tune::{Failure as Out, FailureKind, Measure, Outcome, Plan, Settings, Subject, search};
use tilewright_bench::{Failure, report};

/// Cores that compile while one measures.
const CORES: usize = 16;
/// Writing over the caches before each run, and what the host does about it.
const AROUND_RUN: Duration = Duration::from_micros(150);
/// Keeping outputs, and comparing them.
const CHECKING: Duration = Duration::from_millis(12);

/// A device whose times are in a file.
struct Recorded<'r> {
    all: &'r All,
    sizes: Sizes,
    now: Duration,
    /// How often each configuration was run: it gets another of the recorded times each time.
    turn: usize,
}

impl Recorded<'_> {
    fn times(&self, config: &Config<PersistentConsts>) -> Result<&Times, Out> {
        let times = self.all.get(&(self.sizes, file::name(config))).filter(|times| !times.runs.is_empty());
        times.ok_or_else(|| Out::new(FailureKind::Other, "does not work, or was not recorded"))
    }
}

impl Measure<PersistentConsts> for Recorded<'_> {
    /// The driver compiles one at a time; what comes before it has been done meanwhile, by the other cores.
    fn check(&mut self, config: &Config<PersistentConsts>) -> Result<(), Out> {
        let known = self.all.iter().find(|((_, name), times)| *name == file::name(config) && times.compile_ms > LOADED);
        self.now += Duration::from_secs_f64(known.map_or(0.1, |(_, times)| times.compile_ms / 1e3));
        let ms = self.times(config)?.median();
        self.now += CHECKING + Duration::from_secs_f64(ms / 1e3);
        Ok(())
    }

    fn time(&mut self, config: &Config<PersistentConsts>) -> Result<f64, Out> {
        let turn = self.turn;
        self.turn += 1;
        let times = self.times(config)?;
        let ms = times.runs[turn % times.runs.len()];
        self.now += AROUND_RUN + Duration::from_secs_f64(ms / 1e3);
        Ok(ms)
    }

    fn elapsed(&mut self) -> Duration {
        self.now
    }
}

/// A first launch that took longer has compiled something.
const LOADED: f64 = 15.0;

/// What one search reached.
struct Reached {
    /// The median of what won, over the best there is.
    ratio: f64,
    trials: usize,
    /// Trials until something within 2 % of the best was found.
    good: Option<usize>,
    seconds: f64,
}

fn once(plan: &Plan<PersistentConsts>, all: &All, sizes: Sizes, seed: u64) -> Result<Reached, Failure> {
    let mut settings = Settings::default();
    (settings.seed, settings.ahead) = (seed, CORES);
    settings.patience =
        report::argument("--patience").and_then(|trials| trials.parse().ok()).unwrap_or(settings.patience);
    let mut measure = Recorded { all, sizes, now: plan.time / 4, turn: seed as usize };
    let words = ["persistent", "", "", "", "f16"].map(str::to_string);
    let [kernel, code, version, device, dtype] = words;
    let subject = Subject { kernel, code, version, device, dtype, sizes: sizes.to_vec() };
    let outcome: Outcome<PersistentConsts> = search(plan.clone(), &settings, subject, None, &mut measure)?;
    let best = file::best(all, sizes).ok_or("nothing is recorded")?;
    let of = |config: &Config<PersistentConsts>| measure.times(config).map_or(f64::NAN, Times::median);
    let good = outcome.tried.iter().position(|tried| of(&tried.config) <= best * 1.02);
    Ok(Reached {
        ratio: of(&outcome.best) / best,
        trials: outcome.tried.len(),
        good: good.map(|at| at + 1),
        seconds: outcome.time.as_secs_f64(),
    })
}

/// Lets the search run at all sizes with as many seeds, and prints what it reached; `search.csv` has every run.
pub fn all(sizes: &[Sizes], path: &Path, seeds: u64) -> Result<(), Failure> {
    let (all, device) = (file::read(path)?, Device::cpu());
    let mut operands = Operands::new(&device, sizes)?;
    let mut lines = String::from("sizes,candidates,seed,of the best,trials,trials to 2 %,seconds\n");
    println!(
        "{:>18} {:>10} {:>8} {:>8} {:>8} {:>12} {:>8}",
        "", "candidates", "median", "worst", "trials", "to 2 %", "seconds"
    );
    let mut plans = Vec::new();
    for &of in sizes {
        let mut plan = plan(&device, &mut operands, of)?;
        // What time cut off is as if it were not in the space.
        plan.kept.retain(|planned| all.contains_key(&(of, file::name(&planned.config))));
        let works = plan.kept.iter().filter(|one| !all[&(of, file::name(&one.config))].runs.is_empty()).count();
        let reached: Result<Vec<Reached>, Failure> = (0..seeds).map(|seed| once(&plan, &all, of, seed)).collect();
        let reached = reached?;
        let column = |of: fn(&Reached) -> f64| -> Vec<f64> { reached.iter().map(of).collect() };
        let name = of.map(|size| size.to_string()).join("x");
        for (seed, one) in reached.iter().enumerate() {
            let good = one.good.map_or_else(String::new, |good| good.to_string());
            lines += &format!("{name},{works},{seed},{:.4},{},{good},{:.1}\n", one.ratio, one.trials, one.seconds);
        }
        println!(
            "{name:>18} {works:>10} {:>8.3} {:>8.3} {:>8.0} {:>12.0} {:>8.1}",
            median(&mut column(|one| one.ratio)),
            quantile(&mut column(|one| one.ratio), 1.0),
            median(&mut column(|one| one.trials as f64)),
            quantile(&mut column(|one| one.good.map_or(f64::INFINITY, |good| good as f64)), 1.0),
            median(&mut column(|one| one.seconds)),
        );
        plans.push((of, plan));
    }
    report::write("search.csv", &lines)?;
    Ok(report::write("landscape.csv", &landscape(&plans, &all))?)
}

/// A line for each configuration that works at all sizes: its numbers, then cycles and milliseconds at each.
fn landscape(plans: &[(Sizes, Plan<PersistentConsts>)], all: &All) -> String {
    let names: Vec<String> = plans.iter().map(|(of, _)| of.map(|size| size.to_string()).join("x")).collect();
    let mut text = format!("config,{}\n", names.join(","));
    let Some((_, first)) = plans.first() else { return text };
    for planned in &first.kept {
        let at = |(of, plan): &(Sizes, Plan<PersistentConsts>)| {
            let here = plan.kept.iter().find(|one| one.config == planned.config)?;
            let times = all.get(&(*of, file::name(&here.config))).filter(|times| !times.runs.is_empty())?;
            Some(format!("{:.0} {:.5}", here.placement()?.cycles, times.median()))
        };
        let columns: Option<Vec<String>> = plans.iter().map(at).collect();
        let Some(columns) = columns else { continue };
        let numbers: Vec<String> = planned.config.values().flatten().map(|value| value.to_string()).collect();
        text += &format!("{},{}\n", numbers.join(" "), columns.join(","));
    }
    text
}
