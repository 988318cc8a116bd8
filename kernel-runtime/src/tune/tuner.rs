//! The search itself: limits, order, finals, what is kept.

use super::log::{self, Record, Subject};
use super::measure::{Failure, FailureKind, Measure};
use super::outcome::{Ended, Finalist, Outcome, Tried};
use super::plan::Plan;
use super::progress::{Observe, Progress, Silent};
use super::search::Search;
use super::settings::Settings;
use super::stats::{is_faster, is_fastest_faster, least_rounds, median};
use crate::error::{Error, Result};
use crate::launch::{Config, Constexprs};
use std::collections::{BTreeMap, VecDeque};

/// Runs of a configuration that may be the best.
const RUNS: usize = 7;

/// After how many runs one that is slower than the best by so much gets no more.
const CLEARLY_SLOWER: [(usize, f64); 2] = [(1, 2.0), (3, 1.15)];

/// An improvement worth waiting for.
const IMPROVES: f64 = 0.995;

/// How near to the best one must be for the final.
const NEAR: f64 = 1.10;

/// Rounds of the final.
const ROUNDS: usize = 21;

/// The share of the budget that is left for the final.
const FOR_FINAL: f64 = 0.12;

/// As fast as anything could be.
const AT_BOUND: f64 = 1.02;

/// A search over a plan, with whatever measures.
pub(super) struct Run<'r, C, M> {
    pub(super) plan: Plan<C>,
    pub(super) settings: &'r Settings,
    pub(super) measure: &'r mut M,
    pub(super) observe: &'r mut dyn Observe,
    /// What trials are about, if they are kept.
    pub(super) subject: Subject,
    pub(super) start: Option<Config<C>>,
    /// Configurations that are tried next, as a table says.
    pub(super) seeds: Vec<Config<C>>,
    pub(super) tried: Vec<Tried<C>>,
    /// Whether a configuration has run, whose results are those that others are compared with.
    pub(super) has_reference: bool,
    pub(super) warnings: Vec<String>,
}

impl<C: Constexprs, M: Measure<C>> Run<'_, C, M> {
    /// Searches, compares the best, and says what came out.
    pub(super) fn run(mut self) -> Result<Outcome<C>> {
        let records = self.records();
        let known = self.known(&records);
        let mut search = self.search(&records);
        self.report(false);
        let ended = self.try_all(&mut search, known);
        let (finalists, ended) = self.compare(ended);
        self.report(true);
        let Some(winner) = finalists.first() else { return Err(self.nothing_works()) };
        Ok(Outcome {
            best: winner.config,
            ms: winner.ms,
            finalists,
            tried: self.tried,
            ended,
            bound: self.settings.bound,
            time: self.measure.elapsed(),
            warnings: self.warnings,
            plan: self.plan,
        })
    }

    /// What the log has.
    fn records(&mut self) -> Vec<Record> {
        let Some(path) = &self.settings.log else { return Vec::new() };
        log::read(path).unwrap_or_else(|error| {
            self.warnings.push(error.to_string());
            Vec::new()
        })
    }

    /// The trials that count again, by the number in the plan. Failures of the machine rather than of the configuration
    /// are tried again.
    fn known(&self, records: &[Record]) -> BTreeMap<usize, Result<f64, Failure>> {
        let mut known = BTreeMap::new();
        for record in records.iter().filter(|record| record.subject.is_of(&self.subject)) {
            let at = record.to_config::<C>().and_then(|config| self.position(&config));
            let (Some(at), Some(ms)) = (at, record.ms) else { continue };
            if record.subject.code == self.code(at) {
                known.insert(at, Ok(ms));
            }
        }
        known
    }

    /// A hash of the kernels of a configuration.
    fn code(&self, planned: usize) -> String {
        self.plan.kept[planned].code().unwrap_or_else(|| self.subject.code.clone())
    }

    fn position(&self, config: &Config<C>) -> Option<usize> {
        self.plan.kept.iter().position(|planned| planned.config == *config)
    }

    /// A search that begins with what is likely to be good: the configuration to start at, the rows of a table, the best of
    /// the nearest subjects of the log, and the first of the cost model.
    fn search(&self, records: &[Record]) -> Search {
        let kept = &self.plan.kept;
        let said = self.start.iter().chain(&self.seeds);
        let mut seeds: Vec<usize> = said.filter_map(|config| self.position(config)).collect();
        seeds.extend(self.nearest(records));
        seeds.extend(0..kept.len().min(FIRST));
        let places = kept.iter().map(|planned| planned.place.clone()).collect();
        let predicted: Vec<Option<f64>> =
            kept.iter().map(|planned| planned.placement().map(|placement| placement.cycles)).collect();
        let search = Search::new(places, &predicted, seeds, self.settings.seed);
        if kept.len() <= self.settings.exhaustive { search.exhaustive() } else { search }
    }

    /// The best configurations of the subjects that are nearest, one each.
    fn nearest(&self, records: &[Record]) -> Vec<usize> {
        let mut subjects: Vec<(f64, &Subject, f64, usize)> = Vec::new();
        for record in records {
            let (Some(ms), Some(distance)) = (record.ms, self.subject.distance(&record.subject)) else { continue };
            let Some(at) = record.to_config::<C>().and_then(|config| self.position(&config)) else { continue };
            match subjects.iter_mut().find(|(_, subject, ..)| subject.is_of(&record.subject)) {
                Some((.., best, place)) if ms < *best => (*best, *place) = (ms, at),
                Some(_) => {}
                None => subjects.push((distance, &record.subject, ms, at)),
            }
        }
        subjects.sort_by(|a, b| a.0.total_cmp(&b.0));
        subjects.into_iter().take(FROM_LOG).map(|(.., at)| at).collect()
    }

    /// Tries configurations until there is a reason to stop. As many are made ready ahead as the settings say.
    fn try_all(&mut self, search: &mut Search, mut known: BTreeMap<usize, Result<f64, Failure>>) -> Ended {
        let exhaustive = self.plan.kept.len() <= self.settings.exhaustive;
        let mut ahead: VecDeque<usize> = VecDeque::new();
        let mut since = 0;
        loop {
            while ahead.len() < self.settings.ahead.max(1) {
                let Some(next) = search.propose() else { break };
                if !known.contains_key(&next) {
                    self.measure.begin(&self.plan.kept[next].config);
                }
                ahead.push_back(next);
            }
            if let Some(ended) = self.ended(since, exhaustive) {
                return ended;
            }
            let Some(next) = ahead.pop_front() else { return Ended::Exhausted };
            let before = self.best();
            let tried = match known.remove(&next) {
                Some(result) => self.tried_before(next, result),
                None => {
                    if let Err(lost) = self.refer(next, &mut known) {
                        self.warn_of_loss(&lost);
                        return Ended::Lost;
                    }
                    self.attempt(next)
                }
            };
            search.observe(next, tried.result.as_ref().ok().copied());
            let improves = |ms: &f64| before.is_none_or(|best| *ms < best * IMPROVES);
            since = if tried.result.as_ref().is_ok_and(improves) { 0 } else { since + 1 };
            let lost = tried.result.as_ref().err().filter(|failure| failure.kind == FailureKind::Lost).cloned();
            self.tried.push(tried);
            self.report(false);
            if let Some(failure) = lost {
                self.warn_of_loss(&failure);
                return Ended::Lost;
            }
        }
    }

    fn ended(&mut self, since: usize, exhaustive: bool) -> Option<Ended> {
        let Settings { budget, patience, bound, trials, .. } = *self.settings;
        if self.settings.stop.is_asked() {
            return Some(Ended::Stopped);
        }
        let enough = |bound: f64| self.best().is_some_and(|best| best <= bound * AT_BOUND);
        if bound.is_some_and(enough) {
            return Some(Ended::Bound);
        }
        let for_search = budget.map(|budget| budget.mul_f64(1.0 - FOR_FINAL));
        let late = for_search.is_some_and(|budget| self.measure.elapsed() >= budget);
        // Something is tried, however little time there is.
        if (late && !self.tried.is_empty()) || self.tried.len() >= trials {
            return Some(Ended::Budget);
        }
        (!exhaustive && since >= patience && self.best().is_some()).then_some(Ended::Patience)
    }

    /// The best time so far.
    fn best(&self) -> Option<f64> {
        self.tried.iter().filter_map(|tried| tried.result.as_ref().ok()).copied().reduce(f64::min)
    }

    fn tried_before(&mut self, planned: usize, result: Result<f64, Failure>) -> Tried<C> {
        let config = self.plan.kept[planned].config;
        Tried { config, planned, result, runs: 0, at: self.measure.elapsed(), clock: None }
    }

    /// Has results to compare others with before a new configuration is tried: those of the configuration to start at, else
    /// of the first that the log knows to work. What does not work any more is out.
    ///
    /// # Errors
    /// The device is lost.
    fn refer(&mut self, new: usize, known: &mut BTreeMap<usize, Result<f64, Failure>>) -> Result<(), Failure> {
        let start = self.start.and_then(|start| self.position(&start));
        if self.has_reference || start == Some(new) {
            return Ok(());
        }
        let tried = self.tried.iter().filter(|tried| tried.result.is_ok()).map(|tried| tried.planned);
        let works = |at: &usize| known.get(at).is_some_and(Result::is_ok);
        let mut candidates: Vec<usize> = tried.chain(known.keys().copied().filter(works)).collect();
        candidates.sort_by_key(|at| Some(*at) != start);
        for at in candidates {
            let config = self.plan.kept[at].config;
            let Err(failure) = self.check(&config) else { return Ok(()) };
            if failure.kind == FailureKind::Lost {
                return Err(failure);
            }
            match self.tried.iter_mut().find(|tried| tried.planned == at) {
                Some(tried) => tried.result = Err(failure),
                None => drop(known.insert(at, Err(failure))),
            }
        }
        Ok(())
    }

    /// Runs a configuration once; the first that works has the results that others are compared with.
    fn check(&mut self, config: &Config<C>) -> Result<(), Failure> {
        self.measure.check(config)?;
        self.has_reference = true;
        Ok(())
    }

    /// Checks and times a configuration, and notes what came out.
    fn attempt(&mut self, planned: usize) -> Tried<C> {
        let config = self.plan.kept[planned].config;
        let mut times = Vec::new();
        let result = self.timed(&config, &mut times);
        let (at, clock) = (self.measure.elapsed(), self.measure.clock());
        let tried = Tried { config, planned, result, runs: times.len(), at, clock };
        self.keep(&tried);
        tried
    }

    fn timed(&mut self, config: &Config<C>, times: &mut Vec<f64>) -> Result<f64, Failure> {
        self.check(config)?;
        let best = self.best().unwrap_or(f64::INFINITY);
        while times.len() < RUNS {
            times.push(self.measure.time(config)?);
            let far =
                |(runs, factor): &(usize, f64)| times.len() == *runs && median(&mut times.clone()) > best * factor;
            if CLEARLY_SLOWER.iter().any(far) || self.settings.stop.is_asked() {
                break;
            }
        }
        Ok(median(&mut times.clone()))
    }

    fn keep(&mut self, tried: &Tried<C>) {
        let Some(path) = &self.settings.log else { return };
        let record = Record {
            subject: Subject { code: self.code(tried.planned), ..self.subject.clone() },
            config: log::named(&tried.config),
            ms: tried.result.as_ref().ok().copied(),
            failure: tried.result.as_ref().err().cloned(),
            runs: tried.runs,
            clock: tried.clock.clone(),
        };
        if let Err(error) = log::append(path, &record) {
            self.warn(error.to_string());
        }
    }

    /// Notes what went wrong once, however often it does.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn warn_of_loss(&mut self, failure: &Failure) {
        self.warn(format!("{failure}; this is the best so far, without a final, and outputs are not as they were"));
    }

    /// The best of all, and the configuration to start at, in turns. The first is the winner. Without a device there are no
    /// turns: the times of the search are all that there is, and the configuration to start at stays. Who has been asked to
    /// stop compares the best alone.
    fn compare(&mut self, ended: Ended) -> (Vec<Finalist<C>>, Ended) {
        let Some(best) = self.best() else { return (Vec::new(), ended) };
        let mut near: Vec<(f64, Config<C>)> = self
            .tried
            .iter()
            .filter_map(|tried| {
                tried.result.as_ref().ok().filter(|ms| **ms <= best * NEAR).map(|ms| (*ms, tried.config))
            })
            .collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        let finalists = if self.settings.stop.is_asked() { 1 } else { self.settings.finalists.max(1) };
        near.truncate(finalists);
        let time =
            |config: Config<C>| self.tried.iter().find(|tried| tried.config == config)?.result.as_ref().ok().copied();
        if let Some((start, ms)) = self.start.and_then(|start| Some((start, time(start)?)))
            && !near.iter().any(|(_, config)| *config == start)
        {
            near.push((ms, start));
        }
        let configs: Vec<Config<C>> = near.iter().map(|(_, config)| *config).collect();
        let rounds = if configs.len() > 1 && ended != Ended::Lost { self.rounds(&configs) } else { None };
        let ended = if rounds.is_none() && configs.len() > 1 { Ended::Lost } else { ended };
        let rounds = rounds.unwrap_or_else(|| near.iter().map(|(ms, _)| vec![*ms]).collect());
        (self.ranked(&configs, rounds), ended)
    }

    /// Times by configuration and round; nothing of one that fails now, or that the log alone knew and that does not work.
    /// `None` where the device is lost.
    fn rounds(&mut self, configs: &[Config<C>]) -> Option<Vec<Vec<f64>>> {
        let mut rounds = vec![Vec::new(); configs.len()];
        let mut out = vec![false; configs.len()];
        // The configuration to start at comes first: without another reference, its results are right.
        let mut order: Vec<usize> = (0..configs.len()).collect();
        order.sort_by_key(|at| self.start != Some(configs[*at]));
        for at in order {
            let unseen = self.tried.iter().any(|tried| tried.config == configs[at] && tried.runs == 0);
            out[at] = unseen && self.fails(|run| run.check(&configs[at]))?;
        }
        // In fewer rounds the configuration to start at could not be beaten.
        let least = least_rounds(configs.len() - 1);
        let was_asked = self.settings.stop.is_asked();
        for round in 0..ROUNDS {
            let late = self.settings.budget.is_some_and(|budget| self.measure.elapsed() >= budget);
            let is_over = match self.settings.stop.is_asked() {
                true if !was_asked => round > 0,
                is_asked => round >= least && (late || is_asked),
            };
            if is_over {
                break;
            }
            for turn in 0..configs.len() {
                let turn = if round % 2 == 0 { turn } else { configs.len() - 1 - turn };
                if out[turn] {
                    continue;
                }
                out[turn] = self.fails(|run| run.measure.time(&configs[turn]).map(|ms| rounds[turn].push(ms)))?;
            }
        }
        for (times, out) in rounds.iter_mut().zip(out) {
            if out {
                times.clear();
            }
        }
        Some(rounds)
    }

    /// Whether a configuration of the final fails; `None` where the device is lost.
    fn fails(&mut self, run: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Option<bool> {
        match run(self) {
            Ok(()) => Some(false),
            Err(failure) if failure.kind == FailureKind::Lost => {
                self.warn_of_loss(&failure);
                None
            }
            Err(_) => Some(true),
        }
    }

    /// The finalists, the winner first: the fastest, unless the configuration to start at is as fast within noise.
    fn ranked(&self, configs: &[Config<C>], rounds: Vec<Vec<f64>>) -> Vec<Finalist<C>> {
        let finalist = |(config, rounds): (&Config<C>, Vec<f64>)| Finalist {
            config: *config,
            ms: median(&mut rounds.clone()),
            rounds,
            is_beaten: false,
        };
        let mut all: Vec<Finalist<C>> =
            configs.iter().zip(rounds).map(finalist).filter(|one| !one.rounds.is_empty()).collect();
        all.sort_by(|a, b| a.ms.total_cmp(&b.ms));
        let start = self.start.and_then(|start| all.iter().position(|one| one.config == start));
        if let Some(start) = start
            && start > 0
            && !is_fastest_faster(&all[0].rounds, all.len() - 1, &all[start].rounds)
        {
            let start = all.remove(start);
            all.insert(0, start);
        }
        if let Some((winner, others)) = all.split_first_mut() {
            for other in others {
                other.is_beaten = is_faster(&winner.rounds, &other.rounds);
            }
        }
        all
    }

    fn report(&mut self, last: bool) {
        let elapsed = self.measure.elapsed();
        let best = self.tried.iter().filter_map(|tried| Some((tried.config, *tried.result.as_ref().ok()?)));
        let best = best.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(config, ms)| (config.to_string(), ms));
        let progress = Progress {
            name: self.subject.kernel.clone(),
            kept: self.plan.kept.len(),
            pruned: self.plan.pruned.len() + self.plan.unmet,
            tried: self.tried.len(),
            failed: self.tried.iter().filter(|tried| tried.result.is_err()).count(),
            best,
            bound: self.settings.bound,
            elapsed,
            left: self.settings.budget.map(|budget| budget.saturating_sub(elapsed)),
        };
        if last { self.observe.finished(&progress) } else { self.observe.progress(&progress) }
    }

    /// Why there is no winner: the most frequent reasons.
    fn nothing_works(&self) -> Error {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let failed = self.tried.iter().filter_map(|tried| tried.result.as_ref().err().map(ToString::to_string));
        for reason in failed.chain(self.plan.pruned.iter().map(|(_, pruned)| pruned.to_string())) {
            *reasons.entry(reason).or_default() += 1;
        }
        let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let shown: Vec<String> =
            reasons.iter().take(SHOWN).map(|(reason, count)| format!("{count} times: {reason}")).collect();
        let all = self.plan.kept.len() + self.plan.pruned.len();
        let reason = match (shown.is_empty(), self.plan.unmet) {
            (false, _) => shown.join("\n"),
            (true, 0) => "it was stopped before one was tried".to_string(),
            (true, unmet) => format!("none of {unmet} combinations meets the conditions of the space"),
        };
        Error::Tuning {
            what: format!("none of {all} configurations of `{}` works", self.subject.kernel).into(),
            reason: reason.into(),
        }
    }
}

/// The first of the cost model that are tried whatever the others are.
const FIRST: usize = 8;

/// Seeds from other subjects.
const FROM_LOG: usize = 4;

/// Reasons in an error.
const SHOWN: usize = 3;

/// Searches a plan with anything that measures, for tests and for machines of one's own. The settings' log is kept under
/// this subject.
///
/// # Errors
///
/// [`Error::Tuning`] if no configuration works.
pub fn search<C: Constexprs, M: Measure<C>>(
    plan: Plan<C>,
    settings: &Settings,
    subject: Subject,
    start: Option<Config<C>>,
    measure: &mut M,
) -> Result<Outcome<C>> {
    let (observe, seeds, tried, warnings) = (&mut Silent, Vec::new(), Vec::new(), Vec::new());
    let has_reference = false;
    Run { plan, settings, measure, observe, subject, start, seeds, tried, has_reference, warnings }.run()
}
