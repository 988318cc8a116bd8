//! Planted faults: small mutations of the compiler and the runtime, each run against the tests that ought to see it.
//!
//! ```text
//! cargo run -p tilewright-faults                          all faults
//! cargo run -p tilewright-faults -- --only membar         those with that in their name, file or class
//! cargo run -p tilewright-faults -- --open                those that survived, or have no verdict yet
//! cargo run -p tilewright-faults -- --open --quick 5      the same, with tests that take no more than 5 s
//! cargo run -p tilewright-faults -- --list                what is in the lists, and the verdicts so far
//! ```
//!
//! The faults are data (`faults/lists`, see [`list`]). All of them go into one copy of the workspace under
//! `target/faults`, each behind a switch that an environment variable turns on ([`plant`]), so that the test binaries are
//! built once, and a verdict costs no more than the tests. The workspace itself knows nothing of switches.
//! Each test is first run without a fault, where it has to pass. A fault is caught by the first test that fails, that
//! crashes, or that takes much longer than without it. Verdicts are kept in `faults/results/verdicts.csv`.
//!
//! The exit status says whether all faults were caught.

mod error;
mod list;
mod plant;
mod run;
mod verdict;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, Command};

use error::Error;
use list::{Fault, TestSpec};
use run::Outcome;
use verdict::{Verdict, Verdicts};
use workspace::{Binaries, Binary, Workspace};

/// How long a test may take at all, before its time without a fault is known.
const LONGEST: Duration = Duration::from_secs(1200);

fn main() -> ExitCode {
    let arguments = Command::new("tilewright-faults")
        .about("Plants faults, and runs the tests that ought to see them")
        .arg(Arg::new("only").long("only").value_name("TEXT").help("Faults with this in their name, file or class"))
        .arg(Arg::new("open").long("open").action(ArgAction::SetTrue).help("Faults that survived, or have no verdict"))
        .arg(
            Arg::new("quick")
                .long("quick")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64))
                .help("Only tests that take no longer; faults that they do not see get no verdict"),
        )
        .arg(Arg::new("list").long("list").action(ArgAction::SetTrue).help("Run nothing: what is in the lists"))
        .arg(Arg::new("build").long("build").action(ArgAction::SetTrue).help("Plant and build, and run nothing"))
        .arg(
            Arg::new("jobs")
                .long("jobs")
                .value_name("N")
                .default_value("1")
                .value_parser(clap::value_parser!(usize))
                .help("Faults at a time; each test runs in two threads"),
        )
        .get_matches();
    let options = Options {
        only: arguments.get_one::<String>("only").cloned(),
        open: arguments.get_flag("open"),
        quick: arguments.get_one::<u64>("quick").copied().map(Duration::from_secs),
        list: arguments.get_flag("list"),
        build: arguments.get_flag("build"),
        jobs: arguments.get_one::<usize>("jobs").copied().unwrap_or(1).max(1),
    };
    match work(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

struct Options {
    only: Option<String>,
    open: bool,
    quick: Option<Duration>,
    list: bool,
    build: bool,
    jobs: usize,
}

/// Does what was asked for; whether nothing survived.
fn work(options: &Options) -> Result<bool, Error> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.parent().unwrap_or(package);
    let faults = list::read(&package.join("lists"))?;
    let results = package.join("results/verdicts.csv");
    let mut verdicts = verdict::load(&results)?;
    let chosen: Vec<&Fault> = faults.iter().filter(|fault| options.chooses(fault, &verdicts)).collect();
    if let (true, Some(only)) = (chosen.is_empty(), &options.only) {
        return Err(Error::Nothing(only.clone()));
    }
    if !options.list && !chosen.is_empty() {
        let workspace = Workspace::new(root);
        workspace.plant(&faults)?;
        let tests: BTreeSet<&TestSpec> = chosen.iter().flat_map(|fault| &fault.tests).collect();
        let started = Instant::now();
        let binaries = workspace.build(&tests)?;
        eprintln!("built in {:.0} s", started.elapsed().as_secs_f64());
        if options.build {
            return Ok(true);
        }
        let libraries = run::libraries().unwrap_or_default();
        let mut bench = Bench { binaries, libraries, quick: options.quick, baselines: BTreeMap::new() };
        let silent = bench.measure(&tests)?;
        bench
            .judge(&chosen, options.jobs, &mut verdicts, &mut |verdicts| verdict::save(&results, &faults, verdicts))?;
        if let Some(error) = silent {
            return Err(error);
        }
    }
    verdict::save(&results, &faults, &verdicts)?;
    print!("{}", verdict::summary(&faults, &verdicts));
    let survives = |fault: &Fault| {
        fault.equivalent.is_none() && verdicts.get(&fault.id).is_some_and(|verdict| verdict.seen_by.is_none())
    };
    Ok(!faults.iter().any(survives))
}

impl Options {
    fn chooses(&self, fault: &Fault, verdicts: &Verdicts) -> bool {
        let named =
            |text: &String| [&fault.id, &fault.file, &fault.class].iter().any(|part| part.contains(text.as_str()));
        let open =
            verdicts.get(&fault.id).is_none_or(|verdict| verdict.seen_by.is_none() && fault.equivalent.is_none());
        self.only.as_ref().is_none_or(named) && (!self.open || open)
    }
}

/// The test binaries, and how long they take.
struct Bench {
    binaries: Binaries,
    libraries: PathBuf,
    /// Tests that take longer are left out.
    quick: Option<Duration>,
    /// Seconds without a fault, of the tests that take part.
    baselines: BTreeMap<TestSpec, f64>,
}

impl Bench {
    /// Runs each test without a fault; returns what is wrong with the last that says nothing, which are left out.
    fn measure(&mut self, tests: &BTreeSet<&TestSpec>) -> Result<Option<Error>, Error> {
        let mut silent = None;
        for &test in tests {
            let started = Instant::now();
            let outcome = run::run(self.binary(test)?, test, 0, self.quick.unwrap_or(LONGEST), &self.libraries)?;
            let seconds = started.elapsed().as_secs_f64();
            match outcome {
                Outcome::Passed(count) if count > 0 => {
                    eprintln!("without a fault, {seconds:.1} s  {test}: {}", outcome.describe());
                    self.baselines.insert(test.clone(), seconds);
                }
                Outcome::Hung if self.quick.is_some() => eprintln!("left out, as it takes longer: {test}"),
                Outcome::Passed(_) | Outcome::Failed(_) | Outcome::Crashed(_) | Outcome::Hung => {
                    silent = Some(Error::Baseline { test: test.to_string(), outcome: outcome.describe() });
                    eprintln!("says nothing, as without a fault it {}: {test}", outcome.describe());
                }
            }
        }
        Ok(silent)
    }

    /// Gives each fault its verdict.
    fn judge(
        &self,
        chosen: &[&Fault],
        jobs: usize,
        verdicts: &mut Verdicts,
        save: &mut (dyn FnMut(&Verdicts) -> Result<(), Error> + Send),
    ) -> Result<(), Error> {
        let queue = Mutex::new(chosen.iter().enumerate());
        let shared = Mutex::new((verdicts, save));
        let worker = || -> Result<(), Error> {
            loop {
                let next = queue.lock().expect("no worker panics").next();
                let Some((index, fault)) = next else { return Ok(()) };
                let verdict = self.verdict(fault)?;
                let seen_by = match &verdict.seen_by {
                    Some(test) => test,
                    None if self.quick.is_some() => "not seen by quick tests",
                    None => "SURVIVED",
                };
                eprintln!("[{}/{}] {:6.1} s  {}: {seen_by}", index + 1, chosen.len(), verdict.seconds, fault.id);
                if verdict.seen_by.is_none() && self.quick.is_some() {
                    continue;
                }
                let mut guard = shared.lock().expect("no worker panics");
                let (verdicts, save) = &mut *guard;
                verdicts.insert(fault.id.clone(), verdict);
                save(verdicts)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })
    }

    /// Runs a fault's tests until one sees it.
    fn verdict(&self, fault: &Fault) -> Result<Verdict, Error> {
        let (own, others) = fault.tests.split_at(fault.own_tests);
        let timed = |tests: &[TestSpec]| -> Vec<(f64, TestSpec)> {
            tests.iter().filter_map(|test| Some((*self.baselines.get(test)?, test.clone()))).collect()
        };
        let (mut tests, mut others) = (timed(own), timed(others));
        others.sort_by(|a, b| a.0.total_cmp(&b.0));
        tests.append(&mut others);
        let started = Instant::now();
        let mut seen_by = None;
        for (seconds, test) in &tests {
            let limit = Duration::from_secs_f64(60.0 + 6.0 * seconds);
            let outcome = run::run(self.binary(test)?, test, fault.switch(), limit, &self.libraries)?;
            if !matches!(outcome, Outcome::Passed(_)) {
                seen_by = Some(format!("{} {}: {}", test.package, test.target, outcome.describe()));
                break;
            }
        }
        Ok(Verdict { seen_by, seconds: started.elapsed().as_secs_f64() })
    }

    fn binary(&self, test: &TestSpec) -> Result<&Binary, Error> {
        let name = (test.package.clone(), test.target.clone());
        self.binaries.get(&name).ok_or_else(|| Error::NoTest(test.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_still_fits_the_workspace() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let faults = list::read(&package.join("lists")).expect("the lists are read");
        let mut by_file: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
        for fault in &faults {
            by_file.entry(&fault.file).or_default().push(fault);
        }
        for (file, faults) in by_file {
            let path = package.join("..").join(file);
            let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
            plant::plant(&source, &faults).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
