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
use std::sync::{Arc, Mutex, OnceLock};
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
        // Whatever is chosen, all are built: other packages would have dependencies with other features.
        let tests: BTreeSet<&TestSpec> = faults.iter().flat_map(|fault| &fault.tests).collect();
        let started = Instant::now();
        let binaries = workspace.build(&tests)?;
        eprintln!("built in {:.0} s", started.elapsed().as_secs_f64());
        if options.build {
            return Ok(true);
        }
        let bench = Bench::new(binaries, options.quick);
        bench
            .judge(&chosen, options.jobs, &mut verdicts, &mut |verdicts| verdict::save(&results, &faults, verdicts))?;
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

/// What a test says without a fault.
#[derive(Clone, Copy)]
enum Baseline {
    /// It passes, in so many seconds.
    Passes(f64),
    /// It takes longer than asked for.
    Long,
    /// It fails: it says nothing.
    Silent,
}

/// The test binaries, and how long they take.
struct Bench {
    binaries: Binaries,
    libraries: PathBuf,
    /// Tests that take longer are left out.
    quick: Option<Duration>,
    /// What tests say without a fault, found out when they are first asked.
    baselines: Mutex<BTreeMap<TestSpec, Arc<OnceLock<Baseline>>>>,
    /// A test that says nothing.
    silent: Mutex<Option<Error>>,
}

impl Bench {
    fn new(binaries: Binaries, quick: Option<Duration>) -> Bench {
        let libraries = run::libraries().unwrap_or_default();
        Bench { binaries, libraries, quick, baselines: Mutex::default(), silent: Mutex::default() }
    }

    /// Runs a test without a fault, once; gives the seconds that it takes, if it takes part.
    fn baseline(&self, test: &TestSpec) -> Result<Option<f64>, Error> {
        let binary = self.binary(test)?;
        let known = self.baselines.lock().expect("no worker panics").entry(test.clone()).or_default().clone();
        let baseline = known.get_or_init(|| {
            let started = Instant::now();
            let outcome = run::run(binary, test, 0, self.quick.unwrap_or(LONGEST), &self.libraries);
            let seconds = started.elapsed().as_secs_f64();
            let problem = match outcome {
                Ok(Outcome::Passed(count)) if count > 0 => {
                    eprintln!("without a fault, {seconds:.1} s  {test}: passes {count} tests");
                    return Baseline::Passes(seconds);
                }
                Ok(Outcome::Hung) if self.quick.is_some() => {
                    eprintln!("left out, as it takes longer: {test}");
                    return Baseline::Long;
                }
                Ok(outcome) => Error::Baseline { test: test.to_string(), outcome: outcome.describe() },
                Err(error) => error,
            };
            eprintln!("{problem}");
            *self.silent.lock().expect("no worker panics") = Some(problem);
            Baseline::Silent
        });
        Ok(match *baseline {
            Baseline::Passes(seconds) => Some(seconds),
            Baseline::Long | Baseline::Silent => None,
        })
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
        })?;
        self.silent.lock().expect("no worker panics").take().map_or(Ok(()), Err)
    }

    /// Runs a fault's tests until one sees it: its own in their order, then the others, the quickest first.
    fn verdict(&self, fault: &Fault) -> Result<Verdict, Error> {
        let (own, others) = fault.tests.split_at(fault.own_tests);
        let mut verdict = Verdict { seen_by: None, seconds: 0.0 };
        for test in own {
            if let (Some(seconds), None) = (self.baseline(test)?, &verdict.seen_by) {
                self.ask(fault, test, seconds, &mut verdict)?;
            }
        }
        if verdict.seen_by.is_some() {
            return Ok(verdict);
        }
        let mut timed = Vec::new();
        for test in others {
            timed.extend(self.baseline(test)?.map(|seconds| (seconds, test)));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (seconds, test) in timed {
            if verdict.seen_by.is_none() {
                self.ask(fault, test, seconds, &mut verdict)?;
            }
        }
        Ok(verdict)
    }

    /// Runs a test with a fault. `seconds` is what it takes without.
    fn ask(&self, fault: &Fault, test: &TestSpec, seconds: f64, verdict: &mut Verdict) -> Result<(), Error> {
        let (started, limit) = (Instant::now(), Duration::from_secs_f64(60.0 + 6.0 * seconds));
        let outcome = run::run(self.binary(test)?, test, fault.switch(), limit, &self.libraries)?;
        if !matches!(outcome, Outcome::Passed(_)) {
            verdict.seen_by = Some(format!("{} {}: {}", test.package, test.target, outcome.describe()));
        }
        verdict.seconds += started.elapsed().as_secs_f64();
        Ok(())
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
        let mut wrong = Vec::new();
        for (file, faults) in by_file {
            let path = package.join("..").join(file);
            let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
            let parses = |faults: &[&Fault]| match plant::plant(&source, faults) {
                Ok(planted) => syn::parse_file(&planted).is_ok(),
                Err(error) => panic!("{error}"),
            };
            // What a `let` names would be known inside the switch alone.
            let binds = |fault: &Fault| fault.from.starts_with("let ") && fault.from.matches(';').count() == 1;
            wrong.extend(faults.iter().filter(|fault| !parses(&[fault]) || binds(fault)).map(|fault| fault.id.clone()));
            assert!(!wrong.is_empty() || parses(&faults), "{file} with its faults is no Rust");
        }
        assert!(wrong.is_empty(), "no expressions or statements are replaced by {wrong:?}");
    }
}
