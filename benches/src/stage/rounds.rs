//! The rounds of a contest that is timed: attempts of every configuration, a semifinal of each contender's best, and a final in
//! which all contenders run in turns.

use std::time::Instant;

use super::Stage;
use crate::record::{self, Record};
use crate::{Contest, Failure, How, Launch, Outcome, median, report};

/// The longest run that is short, in milliseconds.
const SHORT_MS: f64 = 0.06;
/// How many of a contender's configurations get into its own semifinal.
const SEMIFINALISTS: usize = 3;
/// The fewest rounds of a final that its limit of time cuts short.
const FEWEST_ROUNDS: usize = 9;

/// A contender in its best configuration, and its times so far.
struct Finalist<'a> {
    name: String,
    config: String,
    run: Run<'a>,
    times: Vec<f64>,
}

/// How a finalist runs.
enum Run<'a> {
    /// In this process.
    Here(Launch<'a>),
    /// In the process beside.
    Beside,
}

impl Stage {
    fn run_once(&mut self, launch: &mut Launch<'_>) -> Result<f64, Failure> {
        let bench = self.bench.as_mut().ok_or("this stage does not measure")?;
        let run = bench.once(|| -> Result<(), Failure> { launch(&How::Launch(&self.device)) })?;
        Ok(run.ms()?)
    }

    /// Checks a configuration and says how long it takes, in milliseconds.
    fn attempt(&mut self, contest: &Contest<'_>, launch: &mut Launch<'_>) -> Result<f64, Failure> {
        self.check(contest, launch)?;
        self.run_once(launch)?;
        let times: Result<Vec<f64>, Failure> = (0..self.page.effort.tries).map(|_| self.run_once(launch)).collect();
        Ok(median(&mut times?))
    }

    /// The best of a contender's configurations, by interleaved runs of those that were fastest at the first try.
    fn semifinal<'a>(
        &mut self,
        mut known: Vec<(f64, String, Launch<'a>)>,
    ) -> Result<Option<(String, Launch<'a>)>, Failure> {
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        known.truncate(SEMIFINALISTS);
        if known.len() == 1 {
            return Ok(known.pop().map(|(_, config, launch)| (config, launch)));
        }
        let mut times = vec![Vec::new(); known.len()];
        for _ in 0..self.page.effort.semifinal {
            for ((_, _, launch), times) in known.iter_mut().zip(&mut times) {
                times.push(self.run_once(launch)?);
            }
        }
        let ranked =
            known.into_iter().zip(times).map(|((_, config, launch), mut times)| (median(&mut times), config, launch));
        Ok(ranked.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, config, launch)| (config, launch)))
    }

    /// Runs the contenders in turns, every other round in the opposite order; more rounds where runs are short.
    fn final_rounds(&mut self, finalists: &mut [Finalist<'_>], started: Instant) -> Result<(), Failure> {
        let effort = self.page.effort;
        for round in 0..effort.short_rounds {
            let short = |finalist: &Finalist<'_>| median(&mut finalist.times.clone()) <= SHORT_MS;
            if round >= effort.rounds && !finalists.iter().all(short) {
                break;
            }
            if round >= FEWEST_ROUNDS && started.elapsed() > effort.limit {
                break;
            }
            for turn in 0..finalists.len() {
                let turn = if round % 2 == 0 { turn } else { finalists.len() - 1 - turn };
                let finalist = &mut finalists[turn];
                let ms = match (&mut finalist.run, &mut self.beside) {
                    (Run::Here(launch), _) => self.run_once(launch)?,
                    (Run::Beside, Some(beside)) => beside.run(&finalist.name)?,
                    (Run::Beside, None) => return Err("a finalist of no process".into()),
                };
                finalist.times.push(ms);
            }
        }
        Ok(())
    }

    /// The contenders of the process beside.
    fn finalists_beside<'a>(&mut self, contest: &Contest<'_>) -> Result<Vec<Finalist<'a>>, Failure> {
        let Some(beside) = &mut self.beside else { return Ok(Vec::new()) };
        match beside.prepare(contest.work, &contest.shape, contest.dtype) {
            Err(why) => {
                self.fail(contest, "beside", "", why)?;
                Ok(Vec::new())
            }
            Ok(contenders) => Ok(contenders
                .into_iter()
                .map(|(name, config)| Finalist { name, config, run: Run::Beside, times: Vec::new() })
                .collect()),
        }
    }

    /// Times a contest.
    ///
    /// # Errors
    /// If the device fails, or a file cannot be written.
    pub(super) fn time(&mut self, mut contest: Contest<'_>) -> Result<(), Failure> {
        let (started, limit) = (Instant::now(), self.page.effort.limit);
        let mut finalists: Vec<Finalist<'_>> = Vec::new();
        for contender in std::mem::take(&mut contest.contenders) {
            let mut known: Vec<(f64, String, Launch<'_>)> = Vec::new();
            for (config, mut launch) in contender.configs {
                if !known.is_empty() && started.elapsed() > limit {
                    println!("no time for {} {} {config}", contest.work, contender.name);
                    continue;
                }
                let attempt = self.attempt(&contest, &mut launch);
                if let Ok(ms) = attempt {
                    let (work, shape, dtype, name) = (contest.work, &contest.shape, contest.dtype, contender.name);
                    self.attempts += &format!("{work},{shape},{dtype},{name},{config},{ms:.5}\n");
                }
                match attempt {
                    Err(why) => self.fail(&contest, contender.name, &config, why)?,
                    Ok(ms) => known.push((ms, config, launch)),
                }
            }
            if let Some((config, launch)) = self.semifinal(known)? {
                let (name, run) = (contender.name.to_string(), Run::Here(launch));
                finalists.push(Finalist { name, config, run, times: Vec::new() });
            }
        }
        finalists.extend(self.finalists_beside(&contest)?);
        self.final_rounds(&mut finalists, started)?;
        self.device.synchronize()?;
        self.keep(&contest, finalists)
    }

    /// Keeps what the finalists of a contest reached.
    fn keep(&mut self, contest: &Contest<'_>, finalists: Vec<Finalist<'_>>) -> Result<(), Failure> {
        let Some(first) = finalists.first().map(|finalist| finalist.times.clone()) else { return Ok(()) };
        let mut rows = Vec::new();
        for Finalist { name, config, mut times, .. } in finalists {
            let mut ratios: Vec<f64> = times.iter().zip(&first).map(|(t, f)| f / t).collect();
            let ms = median(&mut times);
            rows.push(Outcome {
                work: contest.work.to_string(),
                shape: contest.shape.clone(),
                dtype: contest.dtype.to_string(),
                contender: name,
                config,
                ms,
                gbps: contest.bytes / ms / 1e6,
                ratio: median(&mut ratios),
            });
        }
        print!("{:6.1} s\n{}", self.started.elapsed().as_secs_f64(), report::lines(self.page.unit, &rows));
        // After each row, so that a run that is cut short leaves what it has.
        if self.page.records {
            let records: Vec<Record> = rows.iter().map(|row| self.record(contest, row)).collect();
            return record::append(&report::folder().join(self.page.results), &records);
        }
        self.outcomes.extend(rows);
        report::write(self.page.results, &report::csv(&self.machine, self.page.unit, &self.outcomes))?;
        Ok(())
    }

    fn record(&self, contest: &Contest<'_>, row: &Outcome) -> Record {
        let Outcome { work, shape, dtype, contender, config, ms, ratio, .. } = row.clone();
        let (bytes, flops, device) = (contest.bytes, contest.flops, self.device.name().to_string());
        Record { work, shape, dtype, contender, config, ms, bytes, flops, ratio, device, note: String::new() }
    }
}
