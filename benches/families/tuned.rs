//! Tuning instead of a contest: `--tune`.
//!
//! What a work asks of the library is searched, for `--budget SECONDS` each, beginning with what the library's rules say. What
//! is faster beyond noise, in other runs too, goes into a table, `--table FILE`; every trial into a file beside it, so that a
//! second run goes on where the first one stopped. Then a contest shows how the rules and the table compare, in turns.

use crate::families::frame::{Call, Row};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tilewright::Error;
use tilewright::bench::Bench;
use tilewright::tune::{Observe, Progress};
use tilewright_bench::data::Verify;
use tilewright_bench::{Contender, Contest, Failure, How, Stage, record, report};
use tilewright_kernels::tuning::{self, Asked, Effort, Results};
use tilewright_kernels::{Context, Table};

/// What the command line says about tuning.
pub struct Job {
    budget: Duration,
    table: PathBuf,
}

impl Job {
    /// If it says anything.
    pub fn asked() -> Option<Job> {
        let seconds = report::argument("--budget").and_then(|seconds| seconds.parse().ok()).unwrap_or(60.0);
        let table = report::argument("--table").unwrap_or_else(|| "kernels/tuned/kernels.toml".to_string());
        let job = || Job { budget: Duration::from_secs_f64(seconds), table: table.into() };
        report::flag("--tune").then(job)
    }

    /// Tunes what a work asks for, keeps what is better, and compares.
    ///
    /// # Errors
    /// If the device fails, or a file cannot be written. A search that finds nothing that works is printed.
    pub fn row(&self, stage: &mut Stage, row: Row, outputs: Vec<&dyn Verify>, call: &Call<'_>) -> Result<(), Failure> {
        let Row { work, shape, dtype, bytes, flops } = row;
        if !stage.wants_shape(&shape) {
            return Ok(());
        }
        let rules = Context::new(&stage.device()).by_rules();
        let (first, asked) = rules.asked(|cx| call(cx));
        first?;
        let mut table = Table::new();
        for asked in distinct(asked) {
            println!(
                "tuning {work} {shape}: {} {} {:?} from {:?}",
                asked.kernel, asked.dtype, asked.sizes, asked.config
            );
            match self.search(&rules.clone().with_table(table.clone()), &asked, call, &outputs) {
                Ok(found) => table.extend(&found),
                Err(error) => println!("FAILED {work} {shape}: {error}"),
            }
            for output in &outputs {
                output.poison()?;
            }
        }
        if table.is_empty() {
            return Ok(());
        }
        let by_table = rules.clone().with_table(table.clone());
        if is_confirmed(stage, [&rules, &by_table], call)? {
            table.as_tune().merge_into(&self.table)?;
        } else {
            println!("not kept: other runs do not say so");
        }
        let contender = |name: &'static str, cx: Context| {
            let (mut contender, call) = (Contender { name, configs: Vec::new() }, call.clone());
            contender.config(name.to_string(), move |how| match how {
                How::Launch(_) => call(&cx),
                How::Compile(..) | How::Inspect(..) => Ok(()),
            });
            contender
        };
        let contenders = vec![contender(record::DEFAULT, rules), contender(record::TUNED, by_table)];
        stage.hold(Contest { work, shape, dtype, bytes, flops, outputs, contenders })
    }

    fn search(&self, cx: &Context, asked: &Asked, call: &Call<'_>, outputs: &[&dyn Verify]) -> Result<Table, Error> {
        let effort = Effort::default().budget(self.budget).log(self.table.with_extension("trials.jsonl"));
        let work = |cx: &Context| call(cx).map_err(as_error);
        let found = tuning::tune_observed(cx, asked, &effort, Lines::default(), work, &mut Outputs(outputs))?;
        println!("{found}; {:?} after {:.1} s, {} failed", found.ended, found.time.as_secs_f64(), found.failed.len());
        found.failed.iter().collect::<BTreeSet<_>>().into_iter().take(3).for_each(|why| println!("  {why}"));
        Ok(found.table)
    }
}

/// Rounds that decide whether a table is kept.
const ROUNDS: usize = 31;

/// Whether the second context is faster than the first beyond noise, in runs that had no part in choosing it: the best of many
/// is in part the luckiest.
fn is_confirmed(stage: &Stage, contexts: [&Context; 2], call: &Call<'_>) -> Result<bool, Failure> {
    let [mut rules, mut table] = contexts.map(|cx| move || call(cx).map_err(as_error));
    let mut bench = Bench::new(&stage.device())?.rounds(ROUNDS);
    let measured = bench.compare(&mut [("rules", &mut rules), ("table", &mut table)])?;
    Ok(measured[1].is_faster_than(&measured[0]))
}

/// What was asked, once each, and with one configuration.
fn distinct(asked: Vec<Asked>) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for one in asked {
        if !all.iter().any(|known| (known.kernel, &known.dtype, &known.sizes) == (one.kernel, &one.dtype, &one.sizes)) {
            all.push(one);
        }
    }
    all
}

/// A line now and then: whoever waits for this process takes silence for its end.
#[derive(Debug, Default)]
struct Lines(Option<Instant>);

impl Lines {
    const EVERY: Duration = Duration::from_secs(5);
}

impl Observe for Lines {
    fn progress(&mut self, progress: &Progress) {
        if self.0.get_or_insert_with(Instant::now).elapsed() >= Self::EVERY {
            println!("  {}", progress.line());
            self.0 = Some(Instant::now());
        }
    }

    fn finished(&mut self, _: &Progress) {}
}

/// What a work writes.
struct Outputs<'o>(&'o [&'o dyn Verify]);

impl Results for Outputs<'_> {
    fn forget(&mut self) -> Result<(), Error> {
        self.0.iter().try_for_each(|output| output.poison().map_err(as_error))
    }

    fn verify(&mut self) -> Result<(), String> {
        self.0.iter().try_for_each(|output| output.verify().map_err(|why| why.to_string()))
    }
}

/// A failure as an error of the library, which it mostly is.
fn as_error(failure: Failure) -> Error {
    match failure.downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => Error::Tuning { what: "a call failed".into(), reason: other.to_string().into() },
    }
}
