//! The stage on which contests are held.

mod rounds;

use std::rc::Rc;
use std::time::{Duration, Instant};

use tilewright::bench::Bench;
use tilewright::prelude::*;

use crate::companion::Companion;
use crate::cubin::{Argument, Cubin, Entry};
use crate::element::Element;
use crate::look::Look;
use crate::record::{self, Record};
use crate::shape::{Matrix, Variant, Vector};
use crate::{Contender, Contest, Failure, How, Launch, Outcome, cubin, report, without_compiler};

/// How often everything runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs that choose a contender's configurations for its own semifinal.
    pub tries: usize,
    /// Rounds of a semifinal: configurations within a few percent of each other need more runs to be told apart.
    pub semifinal: usize,
    /// Rounds of the final comparison, at least.
    pub rounds: usize,
    /// Rounds of comparisons whose runs are short: the shorter a run, the more its time varies.
    pub short_rounds: usize,
    /// How long a contest may take, but for the configuration that runs and the fewest rounds of its final.
    pub limit: Duration,
}

impl Effort {
    /// For figures that stand on their own.
    pub const FULL: Effort =
        Effort { tries: 5, semifinal: 21, rounds: 21, short_rounds: 63, limit: Duration::from_secs(3600) };
    /// For many contests in little time.
    pub const BRIEF: Effort =
        Effort { tries: 3, semifinal: 7, rounds: 11, short_rounds: 31, limit: Duration::from_secs(4) };
}

/// A kernel of a peer, and what launches it; several configurations may share one.
pub type Peer<'a> = (Entry, Rc<dyn Fn() -> Result<(), Failure> + 'a>);

/// What is done with the configurations of a contest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Checked at small sizes.
    Check,
    /// Checked and timed at full sizes.
    Time,
    /// Compiled for full sizes, and the PTX handed on.
    Look(Look),
}

/// Where results go, and what rates are counted in.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The file of results.
    pub results: &'static str,
    /// The file of attempts.
    pub attempts: &'static str,
    /// The unit of rates: a contest's `bytes` over its time in milliseconds, divided by a million.
    pub unit: &'static str,
    /// The folder of Triton's kernels inside that of all.
    pub cubins: &'static str,
    /// How often everything runs.
    pub effort: Effort,
    /// Whether results are [records](record) rather than outcomes.
    pub records: bool,
}

/// The page of kernels that memory limits.
const BANDWIDTH: Page = Page {
    results: "bandwidth.csv",
    attempts: "attempts.csv",
    unit: "GB/s",
    cubins: "",
    effort: Effort::FULL,
    records: false,
};

/// Everything that contests share: the device, the peers, and what came out so far.
pub struct Stage {
    device: Device,
    mode: Mode,
    only: Vec<String>,
    /// What the shapes to do contain: `+1`, `4096x`.
    shapes: Vec<String>,
    /// Measures, where that is wanted.
    bench: Option<Bench>,
    entries: Vec<Entry>,
    beside: Option<Companion>,
    started: Instant,
    machine: String,
    outcomes: Vec<Outcome>,
    /// Every configuration's time when it was tried, as lines of a CSV file.
    attempts: String,
    failures: Vec<String>,
    page: Page,
}

impl Stage {
    /// Prepares a stage; `only` are the names of the works to do, `shapes` parts of the names of the shapes, all if
    /// empty.
    ///
    /// # Errors
    /// If there is no memory for flushing the cache.
    pub fn new(device: &Device, mode: Mode, only: Vec<String>, shapes: Vec<String>) -> Result<Stage, Failure> {
        Stage::of(BANDWIDTH, device, mode, only, shapes)
    }

    /// The same, for another page.
    ///
    /// # Errors
    /// As [`Stage::new`].
    pub fn of(
        page: Page,
        device: &Device,
        mode: Mode,
        only: Vec<String>,
        shapes: Vec<String>,
    ) -> Result<Stage, Failure> {
        let bench = if mode == Mode::Time { Some(Bench::new(device)?) } else { None };
        let folder = report::cubins().join(page.cubins);
        let entries = if device.is_cuda() { cubin::index(&folder) } else { Vec::new() };
        let (started, machine) = (Instant::now(), report::machine());
        let (device, outcomes, failures) = (device.clone(), Vec::new(), Vec::new());
        let (beside, attempts) = (None, String::from("work,shape,dtype,contender,config,ms\n"));
        Ok(Stage {
            device,
            mode,
            only,
            shapes,
            bench,
            entries,
            beside,
            started,
            machine,
            outcomes,
            attempts,
            failures,
            page,
        })
    }

    /// With a process beside, whose contenders take part in all finals.
    pub fn beside(mut self, companion: Option<Companion>) -> Stage {
        self.beside = companion;
        self
    }

    /// The device of all buffers.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Whether a work is asked for.
    pub fn wants(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == work)
    }

    /// Whether a shape is asked for.
    pub fn wants_shape(&self, shape: &str) -> bool {
        self.shapes.is_empty() || self.shapes.iter().any(|part| shape.contains(part))
    }

    /// Writes what was measured, under a line with the state of the machine before and after.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn finish(&mut self) -> Result<(), Failure> {
        let (after, arguments) = (report::machine(), report::arguments());
        self.machine = format!("before: {}; after: {after}; arguments: {arguments}", self.machine);
        println!("{}", self.machine);
        if self.page.records {
            return Ok(());
        }
        report::write(self.page.attempts, &self.attempts)?;
        Ok(report::write(self.page.results, &report::csv(&self.machine, self.page.unit, &self.outcomes))?)
    }

    /// The machine, before anything ran.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Whether contests are timed.
    pub fn is_timed(&self) -> bool {
        self.mode == Mode::Time
    }

    /// Notes that a whole work could not be done.
    ///
    /// # Errors
    /// If a file cannot be written, or the device can do nothing more.
    pub fn lost(&mut self, work: &str, why: &str) -> Result<(), Failure> {
        println!("FAILED {work}: {why}");
        self.failures.push(format!("{work}: {why}"));
        let texts = [work, "", "", record::DEFAULT, ""].map(str::to_string);
        self.note(texts, (f64::NAN, f64::NAN), why)?;
        Ok(self.device.synchronize()?)
    }

    /// Records that something went wrong.
    fn note(
        &self,
        [work, shape, dtype, contender, config]: [String; 5],
        (bytes, flops): (f64, f64),
        why: &str,
    ) -> Result<(), Failure> {
        if !self.page.records || self.mode != Mode::Time {
            return Ok(());
        }
        let (device, note) = (self.device.name().to_string(), why.chars().take(200).collect());
        let (ms, ratio) = (f64::NAN, f64::NAN);
        let record = Record { work, shape, dtype, contender, config, ms, bytes, flops, ratio, device, note };
        record::append(&report::folder().join(self.page.results), &[record])
    }

    /// What went wrong.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The matrices whose rows a kernel of this dtype works on. At full size: the shapes of the published
    /// baselines, rows that no vector divides, rows wider than a block of 16,384, an address off by one element.
    pub fn matrices<T: Element>(&self) -> Vec<Matrix> {
        let mut all: Vec<Matrix> =
            [(4096, 1024), (8192, 4096), (8192, 8192), (4096, 16384)].map(|(r, c)| Matrix::new(r, c)).into();
        if T::NAME != "f32" {
            all.extend([Matrix::new(16384, 1000), Matrix::new(8192, 5000)]);
        }
        all.extend([
            Matrix::new(4096, 12289),
            Matrix::new(4096, 50257),
            Matrix { rows: 8192, columns: 4096, start: 1 },
        ]);
        let small = vec![Matrix::new(5, 64), Matrix::new(3, 100), Matrix { rows: 2, columns: 130, start: 1 }];
        self.sized(all, small)
    }

    /// The size of a contest that is timed, or of a check.
    pub fn either<S>(&self, full: S, small: S) -> S {
        if self.is_timed() { full } else { small }
    }

    /// The given matrices, or those of a check; when only code is wanted, with few rows.
    pub fn sized(&self, full: Vec<Matrix>, small: Vec<Matrix>) -> Vec<Matrix> {
        match &self.mode {
            Mode::Check => small,
            Mode::Time => full,
            Mode::Look(_) => full.into_iter().map(|m| Matrix { rows: 16, ..m }).collect(),
        }
    }

    /// The vectors that an elementwise kernel works on: long, no multiple of 16, at an address off by one element.
    pub fn vectors(&self, full: Vec<usize>) -> Vec<Vector> {
        let longest = full.iter().copied().max().unwrap_or(0);
        let odd = [Vector::new(longest - 13), Vector { len: longest, start: 1 }];
        match &self.mode {
            Mode::Check => vec![Vector::new(4096), Vector::new(1000), Vector { len: 4096, start: 1 }],
            Mode::Time => full.into_iter().map(Vector::new).chain(odd).collect(),
            Mode::Look(_) => {
                vec![Vector::new(1 << 16), Vector::new((1 << 16) - 13), Vector { len: 1 << 16, start: 1 }]
            }
        }
    }

    /// Triton's kernels of that name: those for which `grid` gives one, ready to launch with `arguments`.
    ///
    /// # Errors
    /// If the driver refuses a kernel.
    pub fn peers<'a>(
        &self,
        (work, dtype, variant): (&str, &str, Variant),
        arguments: Vec<Argument>,
        grid: impl Fn(&Entry) -> Option<[usize; 3]>,
    ) -> Result<Vec<Peer<'a>>, Failure> {
        self.peers_of((work, dtype, variant), |entry| Ok(grid(entry).map(|grid| (arguments.clone(), grid))))
    }

    /// The same, where arguments depend on the kernel, as descriptors do.
    ///
    /// # Errors
    /// If the driver refuses a kernel, or those of `call`.
    pub fn peers_of<'a>(
        &self,
        (work, dtype, variant): (&str, &str, Variant),
        call: impl Fn(&Entry) -> Result<Option<(Vec<Argument>, [usize; 3])>, Failure>,
    ) -> Result<Vec<Peer<'a>>, Failure> {
        let mut all: Vec<Peer<'a>> = Vec::new();
        for entry in self.entries.iter().filter(|e| e.is(work, dtype, variant)) {
            let Some((arguments, grid)) = call(entry)? else { continue };
            let grid = grid.map(|g| g as u32);
            let stream = self.device.default_stream();
            stream.bind()?;
            let Some(stream) = stream.cudarc().cloned() else { continue };
            let kernel = Cubin::load(entry)?;
            // SAFETY: the arguments are those of the kernel, whose masks keep it inside the buffers.
            let launch = move || unsafe { kernel.launch(&stream, grid, &arguments, 0) }.map_err(Failure::from);
            all.push((entry.clone(), Rc::new(launch)));
        }
        Ok(all)
    }

    /// Triton as a contender whose configurations are single kernels.
    ///
    /// # Errors
    /// If the driver refuses a kernel.
    pub fn triton<'a>(
        &self,
        which: (&str, &str, Variant),
        arguments: Vec<Argument>,
        grid: impl Fn(&Entry) -> Option<[usize; 3]>,
    ) -> Result<Contender<'a>, Failure> {
        let mut contender = Contender { name: "triton", configs: Vec::new() };
        for (entry, launch) in self.peers(which, arguments, grid)? {
            contender.config(entry.config, move |_| launch());
        }
        Ok(contender)
    }

    /// Holds a contest, as the mode says. What goes wrong in a configuration is noted and leaves the others be.
    ///
    /// # Errors
    /// If the device fails, or a file cannot be written.
    pub fn hold(&mut self, contest: Contest<'_>) -> Result<(), Failure> {
        if !self.wants_shape(&contest.shape) {
            return Ok(());
        }
        match self.mode.clone() {
            Mode::Check => self.check_all(contest),
            Mode::Time => self.time(contest),
            Mode::Look(look) => self.look(contest, &look),
        }
    }

    /// Notes what went wrong. If nothing can be compiled, one failure says so for all.
    fn fail(&mut self, contest: &Contest<'_>, contender: &str, config: &str, why: Failure) -> Result<(), Failure> {
        if without_compiler(&why) {
            return Err(why);
        }
        let (work, shape, dtype) = (contest.work, &contest.shape, contest.dtype);
        let what = format!("{work} {shape} {dtype}, {contender} {config}: {why}");
        println!("FAILED {what}");
        self.failures.push(what);
        let texts = [work, shape, dtype, contender, config].map(str::to_string);
        self.note(texts, (contest.bytes, contest.flops), &why.to_string())?;
        // What a faulting kernel leaves behind is an error of everything that follows.
        Ok(self.device.synchronize()?)
    }

    /// Runs a configuration once on poisoned outputs and compares them.
    fn check(&self, contest: &Contest<'_>, launch: &mut Launch<'_>) -> Result<(), Failure> {
        for output in &contest.outputs {
            output.poison()?;
        }
        launch(&How::Launch(&self.device))?;
        for output in &contest.outputs {
            output.verify()?;
        }
        Ok(())
    }

    fn check_all(&mut self, mut contest: Contest<'_>) -> Result<(), Failure> {
        for contender in std::mem::take(&mut contest.contenders) {
            for (config, mut launch) in contender.configs {
                if let Err(why) = self.check(&contest, &mut launch) {
                    self.fail(&contest, contender.name, &config, why)?;
                }
            }
        }
        println!("checked {} {} {}", contest.work, contest.shape, contest.dtype);
        Ok(())
    }

    fn look(&mut self, mut contest: Contest<'_>, look: &Look) -> Result<(), Failure> {
        for contender in std::mem::take(&mut contest.contenders) {
            for (config, mut launch) in contender.configs.into_iter().filter(|_| contender.name != "triton") {
                let size = contest.shape.rsplit('x').next().unwrap_or_default();
                let name = format!("{} {size} {} {} {config}", contest.work, contest.dtype, contender.name);
                if let Err(why) = look.at(&name, |how| launch(how)) {
                    self.fail(&contest, contender.name, &config, why)?;
                }
            }
        }
        Ok(())
    }
}
