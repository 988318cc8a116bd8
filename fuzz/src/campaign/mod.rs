//! Ranges of seeds, by processes that are watched: progress, a log to go on from, and a summary.

pub mod totals;
pub mod worker;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::generate::features::{Feature, Features};
use totals::{Finding, Totals};

/// Seeds that a worker takes at a time.
const BLOCK: u64 = 250;

/// How a seed's kernel is run, beside the interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In every way that needs no GPU.
    Passes,
    /// Launched on the first GPU.
    Gpu,
    /// Launched on the CPU, through the runtime.
    Cpu,
}

impl Mode {
    /// Its name as an argument.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Passes => "passes",
            Mode::Gpu => "gpu",
            Mode::Cpu => "cpu",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::Passes, Mode::Gpu, Mode::Cpu].into_iter().find(|mode| mode.name() == name)
    }
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seeds.
    pub seeds: Range<u64>,
    /// How.
    pub mode: Mode,
    /// Processes.
    pub workers: usize,
    /// The log: what it has is not run again.
    pub log: Option<PathBuf>,
    /// Each so-many-th seed goes through LLVM and the emulator; 0: none.
    pub emulate_every: u64,
    /// A seed that takes longer counts as one that hangs.
    pub patience: Duration,
    /// What kernels must have; others are left out.
    pub with: Option<Feature>,
}

/// A finished campaign.
pub struct Campaign {
    /// What all blocks amount to, those of the log too.
    pub totals: Totals,
    /// How long this run took.
    pub time: Duration,
}

/// What the threads that watch workers share.
struct Shared<'s> {
    settings: &'s Settings,
    blocks: Mutex<Vec<Range<u64>>>,
    totals: Mutex<Totals>,
    log: Mutex<Option<std::fs::File>>,
    progress: ProgressBar,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a campaign.
///
/// # Errors
/// If there is no device to launch on, the log cannot be read or written, or no worker can be started.
pub fn run(settings: &Settings) -> Result<Campaign, String> {
    // Without one each worker would end at once, and each seed would count as what has killed it.
    worker::device(settings.mode)?;
    let start = Instant::now();
    let (done, totals) = match &settings.log {
        Some(path) if path.exists() => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Totals::read(&text)?
        }
        Some(_) | None => (BTreeMap::new(), Totals::default()),
    };
    let log = match &settings.log {
        Some(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            Some(opened.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    let mut blocks: Vec<Range<u64>> = Vec::new();
    let mut at = settings.seeds.start;
    while at < settings.seeds.end {
        let end = (at + BLOCK).min(settings.seeds.end);
        match done.get(&at) {
            Some(&known) if known > at => at = known,
            Some(_) | None => {
                blocks.push(at..end);
                at = end;
            }
        }
    }
    blocks.reverse();
    let progress = ProgressBar::new(settings.seeds.end - settings.seeds.start);
    let style = "{elapsed_precise} [{bar:40}] {pos}/{len} {per_sec} {msg}, {eta} left";
    progress.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    progress.set_position(totals.seeds);
    let (blocks, totals, log) = (Mutex::new(blocks), Mutex::new(totals), Mutex::new(log));
    let shared = Shared { settings, blocks, totals, log, progress };
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.workers.max(1)).map(|_| scope.spawn(|| watch(&shared))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    shared.progress.finish();
    Ok(Campaign { totals: lock(&shared.totals).clone(), time: start.elapsed() })
}

/// A worker with the lines that it writes.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(settings: &Settings) -> Result<Worker, String> {
        let text = |error: std::io::Error| format!("a worker cannot be started: {error}");
        let program = std::env::current_exe().map_err(text)?;
        let mut child = Command::new(program)
            .arg("--worker")
            .args(["--emulate-every", &settings.emulate_every.to_string(), "--mode", settings.mode.name()])
            .args(settings.with.iter().flat_map(|feature| ["--with", feature.name()]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(text)?;
        let output = child.stdout.take().ok_or("a worker without output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, lines })
    }

    fn ask(&mut self, block: &Range<u64>) -> std::io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{} {}", block.start, block.end)?;
        input.flush()
    }

    fn end(mut self) {
        // Either has ended already, or is to.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Gives blocks to a worker, and starts another where one has died.
fn watch(shared: &Shared<'_>) -> Result<(), String> {
    let mut worker = Worker::start(shared.settings)?;
    loop {
        let Some(block) = lock(&shared.blocks).pop() else {
            worker.end();
            return Ok(());
        };
        let mut totals = Totals::default();
        let mut at = block.start;
        while at < block.end {
            let died = match worker.ask(&(at..block.end)) {
                Ok(()) => follow(shared, &worker, &mut totals, &mut at),
                Err(error) => Some(format!("the worker is gone: {error}")),
            };
            if let Some(what) = died {
                found(shared, &mut totals, at, what);
                totals.add(Features::default());
                worker.end();
                worker = Worker::start(shared.settings)?;
                at += 1;
            }
        }
        if let Some(log) = lock(&shared.log).as_mut() {
            let written = log.write_all(totals.lines(block.start, block.end).as_bytes()).and_then(|()| log.flush());
            written.map_err(|error| format!("the log: {error}"))?;
        }
        lock(&shared.totals).join(&totals);
    }
}

fn found(shared: &Shared<'_>, totals: &mut Totals, seed: u64, what: String) {
    shared.progress.suspend(|| eprintln!("seed {seed}: {what}"));
    totals.findings.insert(Finding { seed, what });
}

/// Reads what a worker says of its block. `at` follows the seed that it runs; what killed it, if something did.
fn follow(shared: &Shared<'_>, worker: &Worker, totals: &mut Totals, at: &mut u64) -> Option<String> {
    loop {
        let line = match worker.lines.recv_timeout(shared.settings.patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Some(format!("hangs: nothing after {} s", shared.settings.patience.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => return Some("the worker died".to_string()),
        };
        let (kind, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let (first, what) = rest.split_once(' ').unwrap_or((rest, ""));
        let features = Features::from_bits(u64::from_str_radix(first, 16).unwrap_or(0));
        match kind {
            "seed" => *at = first.parse().unwrap_or(*at),
            "end" => {
                // All seeds of the block are done.
                *at = u64::MAX;
                return None;
            }
            "agrees" => totals.add(features),
            "left" => {}
            "refused" => {
                totals.add(features);
                *totals.refused.entry(what.to_string()).or_default() += 1;
            }
            "differs" => {
                totals.add(features);
                found(shared, totals, *at, what.to_string());
            }
            _ => return Some(format!("a worker says `{line}`")),
        }
        if kind != "seed" {
            shared.progress.inc(1);
            let count = lock(&shared.totals).findings.len() + totals.findings.len();
            shared.progress.set_message(format!("{count} findings"));
        }
    }
}
