//! The search finds what is good, soon, and always the same.

use super::super::search::Search;
use super::*;
use crate::tune::{Ended, Stop};

/// Tiles as a GPU likes them: a product of some size, waves, cliffs where shared memory ends.
fn product(m: usize, n: usize) -> impl Fn(&Config<Tiles>) -> f64 {
    move |config| {
        let Tiles { bm, bn, bk, swap } = config.consts;
        let (warps, stages) = (config.options.num_warps.unwrap_or(4) as f64, config.options.num_stages.unwrap_or(3));
        let programs = (m.div_ceil(bm) * n.div_ceil(bn)) as f64;
        let waves = (programs / 132.0).ceil();
        let area = (bm * bn) as f64;
        let compute = area * 4096.0 / (1024.0 * (warps / 4.0).min(2.0) * if area < 8192.0 { 0.6 } else { 1.0 });
        let loads = ((bm + bn) * 4096) as f64 / 48.0 * if swap { 1.1 } else { 1.0 };
        let shared = (bm + bn) * bk as usize * 2 * stages as usize;
        let crowded = if shared > 160 * 1024 { 1.5 } else { 1.0 };
        let spills = if area / (warps * 32.0) > 300.0 { 1.8 } else { 1.0 };
        let steps = 4096.0 / f64::from(bk) * 60.0 / f64::from(stages);
        waves * (compute.max(loads) + 0.2 * loads + steps) * crowded * spills / 1e6
    }
}

/// The same with noise that nothing explains: up to a tenth, by the configuration.
fn rough(config: &Config<Tiles>, smooth: f64) -> f64 {
    let mut mixed = config.values().fold(7u64, |hash, value| {
        (hash ^ value.unwrap_or(0) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    mixed ^= mixed >> 31;
    smooth * (1.0 + (mixed % 1000) as f64 / 1e4)
}

const SIZES: [(usize, usize); 4] = [(4096, 4096), (1024, 1024), (128, 16384), (3000, 5000)];

fn candidates(space: &Space<Tiles>) -> Vec<Config<Tiles>> {
    space.candidates().unwrap().0.into_iter().map(|candidate| candidate.config).collect()
}

/// The trial of a search at which it first is within 2 % of the best there is.
fn trials_to_good(
    predicted: impl Fn(&Config<Tiles>) -> Option<f64>,
    cost: impl Fn(&Config<Tiles>) -> f64,
    seed: u64,
) -> usize {
    let (candidates, _) = tiles().candidates().unwrap();
    let best = candidates.iter().map(|one| cost(&one.config)).fold(f64::INFINITY, f64::min);
    let predicted: Vec<Option<f64>> = candidates.iter().map(|one| predicted(&one.config)).collect();
    let places = candidates.iter().map(|one| one.place.clone()).collect();
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| predicted[*a].unwrap_or(0.0).total_cmp(&predicted[*b].unwrap_or(0.0)));
    order.truncate(8);
    let mut search = Search::new(places, &predicted, order, seed);
    let mut trials = 0;
    while let Some(next) = search.propose() {
        trials += 1;
        let ms = cost(&candidates[next].config);
        if ms <= best * 1.02 {
            break;
        }
        search.observe(next, Some(ms));
    }
    trials
}

/// A fifth of the configurations, at the most, and far fewer on the whole.
#[test]
fn the_search_finds_two_percent_in_a_fifth_of_the_trials() {
    let all = candidates(&tiles()).len();
    let mut trials = Vec::new();
    for (m, n) in SIZES {
        let cost = product(m, n);
        for seed in 0..2 {
            let blind = trials_to_good(|_| None, &cost, seed);
            let rough = trials_to_good(|_| None, |config| rough(config, cost(config)), seed);
            // A cost model that knows half of it.
            let guided = trials_to_good(|config| Some(rough_guess(config, cost(config))), &cost, seed);
            assert!(blind.max(rough).max(guided) < all / 5, "{m} x {n}: {blind}, {rough}, {guided} of {all}");
            trials.extend([blind, rough, guided]);
        }
    }
    trials.sort();
    let median = trials[trials.len() / 2];
    assert!(median < all / 20, "half of the searches take more than {median} of {all}: {trials:?}");
}

fn rough_guess(config: &Config<Tiles>, cost: f64) -> f64 {
    rough(config, cost.powf(0.6))
}

#[test]
fn the_same_seed_gives_the_same_search() {
    let cost = product(1024, 1024);
    let tried = |seed| {
        let settings = Settings { seed, patience: 30, ahead: 4, ..Settings::default() };
        let outcome = run(&tiles(), &settings, |config| Ok(cost(config))).unwrap();
        outcome.tried.iter().map(|tried| tried.planned).collect::<Vec<_>>()
    };
    assert_eq!(tried(1), tried(1));
    assert_ne!(tried(1), tried(2), "chance is used");
}

#[test]
fn small_spaces_are_tried_as_a_whole_and_large_ones_end_with_patience() {
    let cost = product(1024, 1024);
    let small = tiles().where_(|config| config.bm == 128 && config.bk == 64);
    let settings = Settings { budget: None, ..Settings::default() };
    let outcome = run(&small, &settings, |config| Ok(cost(config))).unwrap();
    assert_eq!((outcome.tried.len(), outcome.ended), (64, Ended::Exhausted));
    let best = candidates(&small).iter().map(&cost).fold(f64::INFINITY, f64::min);
    assert_eq!(cost(&outcome.best), best);
    let outcome = run(&tiles(), &settings, |config| Ok(cost(config))).unwrap();
    assert_eq!(outcome.ended, Ended::Patience);
    assert!(outcome.tried.len() < 256, "{}", outcome.tried.len());
}

#[test]
fn budgets_trials_bounds_and_somebody_end_a_search_with_the_best_so_far() {
    let cost = product(1024, 1024);
    let settings = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings { budget: None, patience: usize::MAX, ahead: 1, ..Settings::default() };
        change(&mut settings);
        run(&tiles(), &settings, |config| Ok(cost(config))).unwrap()
    };
    // A trial takes 0.1 s and some runs.
    let outcome = settings(&|settings| settings.budget = Some(Duration::from_secs(5)));
    assert_eq!(outcome.ended, Ended::Budget);
    assert!(outcome.time <= Duration::from_millis(5200) && outcome.tried.len() > 30, "{outcome:?}");
    let outcome = settings(&|settings| settings.trials = 12);
    assert_eq!((outcome.ended, outcome.tried.len()), (Ended::Budget, 12));
    let best = candidates(&tiles()).iter().map(&cost).fold(f64::INFINITY, f64::min);
    let outcome = settings(&|settings| settings.bound = Some(best));
    assert_eq!(outcome.ended, Ended::Bound);
    assert!(outcome.ms <= best * 1.02);
    let stop = Stop::default();
    let mut calls = 0;
    let stopped = Settings { stop: stop.clone(), ..Settings::default() };
    let outcome = run(&tiles(), &stopped, |config| {
        calls += 1;
        if calls == 20 {
            stop.stop();
        }
        Ok(cost(config))
    });
    assert_eq!(outcome.unwrap().ended, Ended::Stopped);
}

/// Asked in the search, the best runs against the configuration to start at; asked in the final, that ends.
#[test]
fn who_asks_to_stop_need_not_wait_for_the_final() {
    let start = Tiles { bm: 64, bn: 64, bk: 32, swap: false }.into();
    // Each is checked and timed.
    let runs_of_search = 6 * (1 + 7);
    for (asked, rounds, finalists) in [(20, 4, 2), (runs_of_search + 2, 1, 6)] {
        let (stop, mut runs) = (Stop::default(), 0);
        let settings = Settings { stop: stop.clone(), trials: 6, ahead: 1, ..Settings::default() };
        let outcome = run(&tiles().starting_at(start), &settings, |config| {
            runs += 1;
            if runs == asked {
                stop.stop();
            }
            // All are near enough for the final.
            Ok(if *config == start { 1.05 } else { 1.0 + config.consts.bm as f64 * 1e-5 })
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.best == start, rounds == 1, "one round says nothing");
        assert_eq!(outcome.finalists.len(), finalists);
        assert!(outcome.finalists.iter().all(|one| one.rounds.len() == rounds), "{outcome:?}");
    }
}

#[test]
fn failures_are_data() {
    let cost = product(1024, 1024);
    let space = tiles().where_(|config| config.bn <= 64 && config.bk <= 32);
    let outcome = run(&space, &Settings::default(), |config| match config.bm {
        32 => Err(wrong("1 instead of 2")),
        _ => Ok(cost(config)),
    });
    let outcome = outcome.unwrap();
    assert_ne!(outcome.best.bm, 32);
    let failed = outcome.tried.iter().find(|tried| tried.result.is_err()).unwrap();
    assert_eq!(failed.config.bm, 32);
    assert!(outcome.explain(&failed.config).ends_with("computes something else: 1 instead of 2"));
    let error = run(&space, &Settings::default(), |_| Err(wrong("1 instead of 2"))).unwrap_err().to_string();
    assert!(error.starts_with("tuning: none of 160 configurations of `tiles` works; "), "{error}");
    assert!(error.ends_with("times: computes something else: 1 instead of 2"), "{error}");
    let nothing = tiles().where_(|_| false);
    let error = run(&nothing, &Settings::default(), |config| Ok(cost(config))).unwrap_err().to_string();
    assert!(error.ends_with("none of 1280 combinations meets the conditions of the space"), "{error}");
}

/// A failure in the final, which a first run did not show.
#[test]
fn what_fails_in_the_final_does_not_win() {
    let cost = product(1024, 1024);
    let space = tiles().where_(|config| config.bm == 128 && config.bk == 64);
    let best = run(&space, &Settings::default(), |config| Ok(cost(config))).unwrap().best;
    let mut runs = 0;
    let outcome = run(&space, &Settings::default(), |config| {
        runs += usize::from(*config == best);
        if *config == best && runs > 9 { Err(wrong("tired")) } else { Ok(cost(config)) }
    });
    assert_ne!(outcome.unwrap().best, best);
}

#[test]
fn the_configuration_to_start_at_stays_unless_another_is_faster_beyond_noise() {
    let start: Config<Tiles> = Tiles { bm: 64, bn: 64, bk: 32, swap: false }.into();
    let space = tiles().where_(|config| config.bm >= 64 && config.bn <= 64 && config.bk == 32).starting_at(start);
    let mut turn = 0u32;
    // All are the same, but for the noise of each run.
    let outcome = run(&space, &Settings::default(), |_| {
        turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Ok(1.0 + f64::from(turn >> 16) / 65536.0 * 0.05)
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.best, start);
    assert!(outcome.explain(&start).contains("the winner"));
    let outcome = run(&space, &Settings::default(), |config| Ok(if config.bm == 256 { 0.9 } else { 1.0 })).unwrap();
    assert_eq!(outcome.best.bm, 256);
    assert!(outcome.finalists.iter().any(|one| one.config == start && one.is_beaten), "it is in the final");
}

/// Nothing is made ready that is not tried soon, and everything before it is checked.
#[test]
fn configurations_are_made_ready_ahead() {
    let cost = product(1024, 1024);
    let mut measure = Synthetic::new(|config: &Config<Tiles>| Ok(cost(config)));
    let settings = Settings { trials: 20, ahead: 4, ..Settings::default() };
    let outcome = search(Plan::of(&tiles()).unwrap(), &settings, subject(&[1]), None, &mut measure).unwrap();
    assert_eq!((outcome.tried.len(), measure.checks), (20, 20));
    assert_eq!(measure.begun.len(), 24);
    let tried: Vec<String> = outcome.tried.iter().map(|tried| tried.config.to_string()).collect();
    assert_eq!(measure.begun[..20], tried);
}

/// Nothing runs on a device whose context is broken.
#[test]
fn a_lost_device_ends_the_search_with_the_best_so_far() {
    let lost = || Failure::new(FailureKind::Lost, "the driver says so");
    let start: Config<Tiles> = tiles().candidates().unwrap().0[700].config;
    for (left, is_final) in [(4 + 3 * 7, false), (6 * 7 + 3, true)] {
        for space in [tiles(), tiles().starting_at(start)] {
            let settings = Settings { trials: 6, ahead: 1, ..Settings::default() };
            let mut runs = 0;
            let mut first = true;
            let outcome = run(&space, &settings, |config| {
                runs += 1;
                // The first is the slowest by a little.
                let ms = if std::mem::take(&mut first) { 1.05 } else { 1.0 + config.consts.bm as f64 * 1e-5 };
                if runs > left + 6 { Err(lost()) } else { Ok(ms) }
            });
            let outcome = outcome.unwrap();
            assert_eq!(outcome.ended, Ended::Lost);
            assert_eq!(outcome.tried.iter().any(|tried| tried.result.is_err()), !is_final);
            let [warning] = &outcome.warnings[..] else { panic!("{:?}", outcome.warnings) };
            assert!(warning.starts_with("loses the device: the driver says so; this is the best so far"), "{warning}");
            assert!(outcome.finalists.iter().all(|finalist| finalist.rounds.len() == 1));
            match space.start() {
                Some(start) => assert_eq!(outcome.best, *start, "without a final the one to start at stays"),
                None => assert!(
                    outcome
                        .tried
                        .iter()
                        .all(|tried| tried.result.as_ref().is_ok_and(|ms| *ms >= outcome.ms) || tried.result.is_err())
                ),
            }
        }
    }
    let nothing = run(&tiles(), &Settings::default(), |_| Err(lost()));
    assert!(nothing.unwrap_err().to_string().contains("1 times: loses the device"));
}
