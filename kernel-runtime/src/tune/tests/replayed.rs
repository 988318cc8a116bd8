//! Whole searches, with their patience, their final and the noise of single runs, on what an H100 took.
//!
//! `recorded_runs.csv` has the single runs of which `recorded.csv` has the medians, in units of 10 ns: five of most
//! configurations, fewer of those that are far slower than the best. A run of a configuration here is one of these, drawn by
//! chance, so that the same configuration takes another time each time, as it does on a GPU.

use super::super::random::Random;
use super::super::stats::median;
use super::recorded::{Row, rows};
use super::*;
use crate::launch::Preview;
use crate::tune::{Ended, Planned};
use std::collections::HashMap;

const RUNS: &str = include_str!("recorded_runs.csv");

/// Units of a recorded run in a millisecond.
const PER_MS: f64 = 1e5;

/// The constexprs of the product: `BM BN BK GROUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Product([i64; 4]);

impl Constexprs for Product {
    type Values = [i64; 4];

    const NAMES: &'static [&'static str] = &["BM", "BN", "BK", "GROUP"];

    fn values(self) -> [i64; 4] {
        self.0
    }

    fn from_values(values: &[i64]) -> Option<Self> {
        Some(Product(values.try_into().ok()?))
    }
}

/// The numbers of a configuration as the recording has them.
fn numbers(config: &Config<Product>) -> Vec<i64> {
    let options = [config.options.num_warps, config.options.num_stages].map(|number| number.unwrap_or(0).into());
    config.consts.0.into_iter().chain(options).collect()
}

/// The runs of each configuration in milliseconds, by size.
fn runs() -> HashMap<Vec<i64>, Vec<Vec<f64>>> {
    let row = |line: &str| {
        let mut columns = line.split(',');
        let numbers = columns.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        let times = |column: &str| column.split(' ').map(|time| time.parse::<f64>().unwrap() / PER_MS).collect();
        (numbers, columns.map(times).collect())
    };
    RUNS.lines().skip(1).map(row).collect()
}

/// What was recorded as a plan: the configurations that chance drew, in the order of the cost model.
fn plan(rows: &[Row], size: usize) -> Plan<Product> {
    let cycles: HashMap<Vec<i64>, f64> = rows.iter().map(|(numbers, times)| (numbers.clone(), times[size].0)).collect();
    let axis = |axis: usize| {
        let mut values: Vec<i64> = rows.iter().map(|(numbers, _)| numbers[axis]).collect();
        values.sort();
        values.dedup();
        values
    };
    let option = |at: usize| axis(at).into_iter().map(|value| value as u32);
    let space = (0..4).fold(Space::new(), |space, at| space.constexpr(at, axis(at)));
    let known = cycles.clone();
    let space = space.num_warps(option(4)).num_stages(option(5));
    let space = space.where_(move |config| known.contains_key(&numbers(config)));
    let mut plan = Plan::of(&space).expect("a space");
    for planned in &mut plan.kept {
        planned.preview = Some(Preview::of_cycles(cycles[&numbers(&planned.config)]));
    }
    let predicted = |planned: &Planned<Product>| planned.placement().map_or(0.0, |placement| placement.cycles);
    plan.kept.sort_by(|a, b| predicted(a).total_cmp(&predicted(b)));
    plan
}

/// Draws runs by chance.
struct Replayed<'r> {
    runs: &'r HashMap<Vec<i64>, Vec<Vec<f64>>>,
    size: usize,
    random: Random,
}

impl Measure<Product> for Replayed<'_> {
    fn check(&mut self, _: &Config<Product>) -> Result<(), Failure> {
        Ok(())
    }

    fn time(&mut self, config: &Config<Product>) -> Result<f64, Failure> {
        let runs = &self.runs[&numbers(config)][self.size];
        Ok(runs[self.random.below(runs.len())])
    }

    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// How much slower than the best of all the winner of a search is, and how many trials it took. Both are told by the medians
/// of what was recorded, as the search does not know them.
fn outcome(rows: &[Row], size: usize, settings: &Settings) -> (f64, usize) {
    let runs = runs();
    let true_time = |numbers: &Vec<i64>| median(&mut runs[numbers][size].clone());
    let best = rows.iter().map(|(numbers, _)| true_time(numbers)).fold(f64::INFINITY, f64::min);
    let mut measure = Replayed { runs: &runs, size, random: Random::new(settings.seed + 100) };
    let found = search(plan(rows, size), settings, subject(&[size]), None, &mut measure).expect("a winner");
    assert_eq!(found.ended, Ended::Patience);
    (true_time(&numbers(&found.best)) / best, found.tried.len())
}

#[test]
fn whole_searches_end_within_two_percent_of_the_best() {
    let (sizes, rows) = rows();
    let mut all = Vec::new();
    for (size, name) in sizes.iter().enumerate() {
        for seed in 0..4 {
            // One configuration is proposed at a time, or as many as sixteen cores compile.
            let settings = Settings { seed, ahead: if seed % 2 == 0 { 1 } else { 16 }, ..Settings::default() };
            let (ratio, trials) = outcome(&rows, size, &settings);
            println!("{name}, seed {seed}: {ratio:.4} after {trials} trials");
            assert!(ratio <= 1.02, "{name}, seed {seed}: {ratio:.4} after {trials} trials");
            all.push(trials);
        }
    }
    all.sort();
    assert!(all[all.len() / 2] < rows.len() / 2, "patience ends them early: {all:?}");
}
