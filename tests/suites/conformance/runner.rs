//! Rows, cases, and how they are run.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tilewright::Device;
use tilewright_tests::devices::gpu;

/// Why a case failed.
#[derive(Debug)]
pub struct Failure(pub String);

impl<T: Display> From<T> for Failure {
    fn from(reason: T) -> Failure {
        Failure(reason.to_string())
    }
}

/// What a case ends with.
pub type Outcome = Result<(), Failure>;

/// What a case does.
#[derive(Clone)]
enum Kind {
    /// Runs on a device.
    Device(Arc<dyn Fn(&Device) -> Outcome + Send + Sync>),
    /// Looks at what the compiler makes, and runs nowhere.
    Host(Arc<dyn Fn() -> Outcome + Send + Sync>),
}

/// One choice of a row's parameters.
#[derive(Clone)]
pub struct Case {
    name: String,
    kind: Kind,
}

/// One of Triton's tests.
#[derive(Clone)]
pub struct Row {
    /// Its number: `C01`.
    pub id: &'static str,
    /// The names of Triton's tests.
    pub upstream: &'static str,
    /// What differs here, and why; may be empty.
    pub remarks: &'static str,
    /// Its cases.
    pub cases: Vec<Case>,
    /// Cases that are kept elsewhere: how many, and where.
    pub elsewhere: Option<(usize, &'static str)>,
}

impl Row {
    /// A row without cases.
    pub fn new(id: &'static str, upstream: &'static str) -> Row {
        Row { id, upstream, remarks: "", cases: Vec::new(), elsewhere: None }
    }

    /// Says what differs from Triton.
    pub fn remarks(mut self, remarks: &'static str) -> Row {
        self.remarks = remarks;
        self
    }

    /// Says that other tests hold cases too.
    pub fn elsewhere(mut self, count: usize, place: &'static str) -> Row {
        self.elsewhere = Some((count, place));
        self
    }

    /// Adds a case that runs on each device.
    pub fn case(&mut self, name: impl Into<String>, run: impl Fn(&Device) -> Outcome + Send + Sync + 'static) {
        self.cases.push(Case { name: name.into(), kind: Kind::Device(Arc::new(run)) });
    }

    /// Adds a case about what the compiler makes.
    pub fn host(&mut self, name: impl Into<String>, run: impl Fn() -> Outcome + Send + Sync + 'static) {
        self.cases.push(Case { name: name.into(), kind: Kind::Host(Arc::new(run)) });
    }
}

/// What the command line says.
pub struct Options {
    /// Only rows and cases whose names contain this.
    pub filter: Option<String>,
    /// Where results go: a line per row.
    pub results: Option<String>,
    /// Of the cases only those that leave this remainder when they are counted by that number: the compiler of the driver
    /// works on one kernel at a time in a process, so that a row of many kernels is run by several.
    pub part: Option<(usize, usize)>,
}

impl Options {
    /// Reads arguments. Those of the usual test harness are passed over.
    pub fn read(mut args: impl Iterator<Item = String>) -> Options {
        let mut options = Options { filter: None, results: None, part: None };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--results" => options.results = args.next(),
                "--part" => options.part = Some(part(&args.next().unwrap_or_default())),
                "--test-threads" | "--skip" | "--format" => drop(args.next()),
                _ if arg.starts_with('-') => {}
                _ => options.filter = Some(arg),
            }
        }
        options
    }

    fn takes(&self, row: &Row, case: &Case) -> bool {
        let full = || format!("{} {} {}", row.id, row.upstream, case.name);
        self.filter.as_ref().is_none_or(|filter| full().contains(filter.as_str()))
    }
}

/// The third of eight parts from `3/8`.
fn part(text: &str) -> (usize, usize) {
    let numbers = text.split_once('/').and_then(|(at, of)| Some((at.parse().ok()?, of.parse().ok()?)));
    numbers
        .filter(|(at, of)| (1..=*of).contains(at))
        .map(|(at, of)| (at - 1, of))
        .unwrap_or_else(|| panic!("--part takes a part and their number, as in 3/8, not `{text}`"))
}

thread_local! {
    /// What the panic of a case said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the cases on all cores, on the CPU and on the GPU if there is one. Returns whether all passed.
pub fn run(rows: &[Row], options: &Options) -> bool {
    std::panic::set_hook(Box::new(|info| PANIC.set(info.to_string())));
    let selected: Vec<(usize, &Case)> = rows
        .iter()
        .enumerate()
        .flat_map(|(index, row)| {
            row.cases.iter().filter(|case| options.takes(row, case)).map(move |case| (index, case))
        })
        .enumerate()
        .filter(|(number, _)| options.part.is_none_or(|(at, of)| number % of == at))
        .map(|(_, case)| case)
        .collect();
    let start = Instant::now();
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let devices = devices();
                while let Some((row, case)) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for failure in attempt(case, &devices) {
                        let name = format!("{} {}: {failure}", rows[*row].id, case.name);
                        eprintln!("{name}");
                        failures.lock().unwrap_or_else(|e| e.into_inner()).push(*row);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
    let wrong = |index: usize| failures.iter().filter(|row| **row == index).count();
    let mut lines = String::from("row,cases,failed\n");
    for (index, row) in rows.iter().enumerate() {
        let cases = selected.iter().filter(|(row, _)| *row == index).count();
        if cases > 0 {
            println!("{} {:60} {cases:6} cases, {} failed", row.id, row.upstream, wrong(index));
            lines.push_str(&format!("{},{cases},{}\n", row.id, wrong(index)));
        }
    }
    if let Some(path) = &options.results {
        std::fs::write(path, lines).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let (count, seconds) = (selected.len(), start.elapsed().as_secs_f64());
    let devices = if gpu().is_some() { "the CPU and the GPU" } else { "the CPU" };
    println!("{count} cases on {devices} in {seconds:.1} s, {} failed", failures.len());
    failures.is_empty()
}

/// The devices of a thread.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    if gpu().is_some() {
        devices.extend(Device::cuda(0).ok());
    }
    devices
}

/// Why a case failed, per device.
fn attempt(case: &Case, devices: &[Device]) -> Vec<String> {
    match &case.kind {
        Kind::Host(run) => guarded(|| run()).err().into_iter().collect(),
        Kind::Device(run) => {
            let on = |device: &Device| guarded(|| run(device)).err().map(|why| format!("on {device}: {why}"));
            devices.iter().filter_map(on).collect()
        }
    }
}

fn guarded(run: impl FnOnce() -> Outcome) -> Result<(), String> {
    let caught: Result<Outcome, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(run));
    match caught {
        Ok(outcome) => outcome.map_err(|failure| failure.0),
        Err(_) => Err(PANIC.take()),
    }
}
