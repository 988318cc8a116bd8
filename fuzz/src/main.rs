//! Random kernels, run in every way there is and compared. See the crate's documentation, and `--help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tilewright_fuzz::campaign::totals::{Finding, Totals};
use tilewright_fuzz::campaign::worker::{self, Outcome};
use tilewright_fuzz::campaign::{self, Campaign, Mode, Settings};
use tilewright_fuzz::case::Case;
use tilewright_fuzz::generate::features::Feature;
use tilewright_fuzz::generate::generate;
use tilewright_fuzz::oracle::{Agreement, Ways, check, check_launch, quiet_panics};
use tilewright_fuzz::reduce::reduce;

const HELP: &str = "\
Random kernels, run in every way there is and compared.

  tilewright-fuzz --seeds 0..1000000 [--workers N] [--log FILE] [--emulate-every N]
      Runs seeds. A log that is there already is gone on with.
  tilewright-fuzz --gpu --seeds 0..100000
      Launches them on the first GPU instead of running them after every pass. Ends with 2 if there is none.
  tilewright-fuzz --gpu --alone --seeds 0..1000
      In this process, for tools that watch one: `compute-sanitizer --tool racecheck tilewright-fuzz ..`.
  tilewright-fuzz --show SEED
      Prints the kernel of a seed.
  tilewright-fuzz --replay FILE..
      Runs cases from files.
  tilewright-fuzz --reduce SEED|FILE [--out FILE]
      Makes a small case of one that differs, of what a launch does with --gpu.

  --mode MODE         `passes` (the default), `gpu` (as --gpu), or `cpu`: launches of the runtime on the CPU
  --with FEATURE      only kernels that have it, by its name in the summary; the others are left out
  --workers N         processes (default: one per core)
  --log FILE          blocks that are done, and findings; `--resume` is the same
  --emulate-every N   each N-th seed goes through LLVM and the emulator (default 50; 0: none)
  --patience S        seconds after which a seed counts as one that hangs (default 60)
  --tries N           candidates that reducing may try (default 20000)
";

/// What to do.
enum Task {
    Help,
    Campaign,
    Worker,
    Show(u64),
    Replay(Vec<PathBuf>),
    Reduce(String),
}

struct Arguments {
    task: Task,
    settings: Settings,
    out: Option<PathBuf>,
    tries: usize,
    alone: bool,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::*;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        seeds: 0..0,
        mode: Mode::Passes,
        workers,
        log: None,
        emulate_every: 50,
        patience: Duration::from_secs(60),
        with: None,
    };
    let mut found = Arguments { task: Task::Help, settings, out: None, tries: 20_000, alone: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seeds") => {
                let text = parser.value()?.string()?;
                let range = text.split_once("..").ok_or("seeds are `FIRST..END`")?;
                found.settings.seeds =
                    range.0.parse().map_err(|_| "not a seed")?..range.1.parse().map_err(|_| "not a seed")?;
                found.task = Task::Campaign;
            }
            Long("workers") => found.settings.workers = parser.value()?.parse()?,
            Long("log" | "resume") => found.settings.log = Some(parser.value()?.into()),
            Long("emulate-every") => found.settings.emulate_every = parser.value()?.parse()?,
            Long("patience") => found.settings.patience = Duration::from_secs(parser.value()?.parse()?),
            Long("with") => {
                let feature = Feature::named(&parser.value()?.string()?);
                found.settings.with = Some(feature.ok_or("features are those of the summary, such as `persistent`")?);
            }
            Long("gpu") => found.settings.mode = Mode::Gpu,
            Long("mode") => {
                found.settings.mode =
                    Mode::from_name(&parser.value()?.string()?).ok_or("modes are passes, gpu, cpu")?;
            }
            Long("alone") => found.alone = true,
            Long("tries") => found.tries = parser.value()?.parse()?,
            Long("out") => found.out = Some(parser.value()?.into()),
            Long("worker") => found.task = Task::Worker,
            Long("show") => found.task = Task::Show(parser.value()?.parse()?),
            Long("reduce") => found.task = Task::Reduce(parser.value()?.string()?),
            Long("replay") => found.task = Task::Replay(parser.values()?.map(PathBuf::from).collect()),
            Long("help") | Short('h') => found.task = Task::Help,
            other => return Err(other.unexpected()),
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    // Each process is one thread: programs of a launch run one after the other, and cores are for workers.
    if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(1).build_global() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    let done = arguments().map_err(|error| error.to_string()).and_then(|arguments| run(&arguments));
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    match &arguments.task {
        Task::Help => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Task::Worker => worker::serve(&arguments.settings).map(|()| ExitCode::SUCCESS).map_err(|e| e.to_string()),
        Task::Campaign => run_campaign(&arguments.settings, arguments.alone),
        Task::Show(seed) => {
            print!("{}", generate(*seed).0.text());
            Ok(ExitCode::SUCCESS)
        }
        Task::Replay(files) => replay(files, arguments.settings.mode),
        Task::Reduce(what) => reduced(what, arguments),
    }
}

/// The commit that was built, where there is a repository.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or("unknown".to_string(), |text| String::from_utf8_lossy(&text).trim().to_string())
}

/// All seeds, one after the other in this process.
fn run_alone(settings: &Settings) -> Result<Campaign, String> {
    quiet_panics();
    let start = std::time::Instant::now();
    let device = worker::device(settings.mode)?;
    let mut totals = Totals::default();
    for seed in settings.seeds.clone() {
        let (features, outcome) = worker::run_seed(seed, settings, device.as_ref());
        if outcome != Outcome::LeftOut {
            totals.add(features);
        }
        match outcome {
            Outcome::Agrees | Outcome::LeftOut => {}
            Outcome::Refused(why) => *totals.refused.entry(why).or_default() += 1,
            Outcome::Differs(what) => {
                eprintln!("seed {seed}: {what}");
                totals.findings.insert(Finding { seed, what });
            }
        }
    }
    Ok(Campaign { totals, time: start.elapsed() })
}

fn run_campaign(settings: &Settings, alone: bool) -> Result<ExitCode, String> {
    let campaign = if alone { run_alone(settings)? } else { campaign::run(settings)? };
    let totals = &campaign.totals;
    print!("{}", totals.summary());
    println!(
        "{} seeds ({}..{}) by {}, {} findings, {:.1} s, {} workers, every {}th emulated, commit {}",
        totals.seeds,
        settings.seeds.start,
        settings.seeds.end,
        settings.mode.name(),
        totals.findings.len(),
        campaign.time.as_secs_f64(),
        settings.workers,
        settings.emulate_every,
        commit()
    );
    Ok(if totals.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> Result<Case, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Case::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn replay(files: &[PathBuf], mode: Mode) -> Result<ExitCode, String> {
    quiet_panics();
    let device = worker::device(mode)?;
    let mut code = ExitCode::SUCCESS;
    for path in files {
        let case = read(path)?;
        let agreement = match &device {
            Some(device) => check_launch(&case, device),
            None => check(&case, Ways { emulate: true, roughly: false }),
        };
        match agreement {
            Ok(Agreement::Full) => println!("{}: agrees", path.display()),
            Ok(Agreement::Refused(why)) => println!("{}: refused: {why}", path.display()),
            Err(difference) => {
                println!("{}: {}: {}", path.display(), difference.stage, difference.what);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn reduced(what: &str, arguments: &Arguments) -> Result<ExitCode, String> {
    quiet_panics();
    let case = match what.parse::<u64>() {
        Ok(seed) => generate(seed).0,
        Err(_) => read(Path::new(what))?,
    };
    let device = worker::device(arguments.settings.mode)?;
    let small = reduce(&case, device.as_ref(), arguments.tries).ok_or("all ways agree: nothing to reduce")?;
    let text = format!("; {}: {}\n{}", small.difference.stage, small.difference.what, small.case.text());
    match &arguments.out {
        Some(path) => std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?,
        None => print!("{text}"),
    }
    eprintln!("{} candidates tried", small.tried);
    Ok(ExitCode::SUCCESS)
}
