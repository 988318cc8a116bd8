//! Holds contests of products.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tilewright::bench::nvml::{self, Nvml, Sample};
use tilewright::prelude::*;

use super::check::{Contest, wait};
use super::data::{Data, Kind, Reference};
use super::outcome::{self, Outcome};
use super::peers::Peers;
use super::{Contender, Factor, Launch, Operands, Product};
use crate::look::Look;
use crate::stage::Mode;
use crate::{Failure, How, median, report, without_compiler};

/// A configuration that takes this much longer than the best so far is not tried again.
const HOPELESS: f64 = 1.5;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Effort {
    /// Rounds of the final comparison.
    rounds: usize,
    /// Runs that choose a configuration.
    tries: usize,
}

const FULL: Effort = Effort { rounds: 21, tries: 5 };
const QUICK: Effort = Effort { rounds: 9, tries: 2 };

/// Which results are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// All products against all peers.
    Products,
    /// The steps from a naive kernel to the fastest.
    Ladder,
}

impl Page {
    /// What its files' names begin with.
    fn stem(self) -> &'static str {
        match self {
            Page::Products => "matmul",
            Page::Ladder => "ladder",
        }
    }
}

/// Everything that contests share.
pub struct Bench {
    page: Page,
    device: Device,
    mode: Mode,
    only: Vec<String>,
    /// Parts of `CONTENDER CONFIGURATION` that are left out.
    skip: Vec<String>,
    effort: Effort,
    seed: u64,
    /// Measures, where that is wanted.
    measure: Option<tilewright::bench::Bench>,
    peers: Option<Peers>,
    nvml: Option<Nvml>,
    started: Instant,
    machine: String,
    outcomes: Vec<Outcome>,
    /// Every configuration's time when it was tried, as lines of a CSV file.
    attempts: String,
    /// Every run of the final comparisons, likewise.
    rounds: String,
    failures: Vec<String>,
}

/// The best configuration of a contender.
struct Finalist<'a, T: Factor> {
    name: &'static str,
    config: String,
    launch: Launch<'a, T>,
    moves: Option<f64>,
    /// The largest error seen, relative to the bound.
    error: f64,
    times: Vec<f64>,
    samples: Vec<Sample>,
}

impl Bench {
    /// Prepares everything; `only` are parts of the names of the rows to do, all if empty.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(device: &Device, mode: Mode, only: Vec<String>, page: Page) -> Result<Bench, Failure> {
        let timed = mode == Mode::Time;
        let effort = if std::env::args().any(|a| a == "--quick") { QUICK } else { FULL };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let seed = match report::argument("--seed") {
            Some(text) => text.parse().map_err(|e| format!("--seed {text}: {e}"))?,
            None => now,
        };
        println!("seed {seed}");
        let nvml =
            if timed { Nvml::of(device).map_err(|why| println!("clocks are unknown: {why}")).ok() } else { None };
        Ok(Bench {
            page,
            device: device.clone(),
            only,
            skip: report::argument("--skip").map(|o| o.split(',').map(str::to_string).collect()).unwrap_or_default(),
            effort,
            seed,
            measure: if timed { Some(tilewright::bench::Bench::new(device)?) } else { None },
            peers: if timed { Peers::open(device)? } else { None },
            nvml,
            started: Instant::now(),
            machine: if timed { report::machine() } else { String::new() },
            outcomes: Vec::new(),
            attempts: String::from("group,shape,dtype,contender,config,ms,error relative to the bound\n"),
            rounds: String::from("group,shape,dtype,contender,round,ms,SM MHz,throttle reasons\n"),
            failures: Vec::new(),
            mode,
        })
    }

    /// The device of all buffers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many programs run at the same time: the H100's multiprocessors if only code is looked at.
    pub fn processors(&self) -> usize {
        if self.device.is_cuda() { self.device.multiprocessor_count() } else { 132 }
    }

    /// What is done with configurations.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// What went wrong.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Holds the contests of some products that are asked for. `ours` are the contenders that no peer is.
    ///
    /// # Errors
    /// If the device fails, or a file cannot be written. What goes wrong in a configuration is noted.
    pub fn hold_all<'a, T: Factor>(
        &mut self,
        products: &[Product],
        ours: impl Fn(&Product) -> Result<Vec<Contender<'a, T>>, Failure>,
    ) -> Result<(), Failure> {
        let name = |p: &Product| format!("{} {} {p}", T::NAME, p.group.name());
        let wanted = |p: &&Product| self.only.is_empty() || self.only.iter().any(|o| name(p).contains(o.as_str()));
        let products: Vec<Product> = products.iter().filter(wanted).copied().collect();
        if products.is_empty() {
            return Ok(());
        }
        if let Mode::Look(look) = self.mode.clone() {
            return products.iter().try_for_each(|p| self.look(p, ours(p)?, &look));
        }
        self.seed = self.seed.wrapping_add(1);
        let data = Data::<T>::random(&self.device, self.seed, &products)?;
        for product in products {
            // Others first: what the first one writes is what all are compared with everywhere.
            let mut contenders = Vec::new();
            if let Some(peers) = &mut self.peers {
                contenders.extend(peers.contenders(&product)?);
            }
            contenders.extend(ours(&product)?);
            self.hold(product, &data, contenders)?;
        }
        Ok(())
    }

    fn look<T: Factor>(
        &mut self,
        product: &Product,
        contenders: Vec<Contender<'_, T>>,
        look: &Look,
    ) -> Result<(), Failure> {
        let name = |contender: &str, config: &str| format!("{} {product} {contender} {config}", T::NAME);
        let wanted = |c: &Contender<'_, T>| c.configs.iter().any(|(config, _)| look.wants(&name(c.name, config)));
        if !contenders.iter().any(wanted) {
            return Ok(());
        }
        let [a, b, c] = product.lens();
        let (a, b) = (self.device.zeros::<T>(a)?, self.device.zeros::<T>(b)?);
        let mut c = self.device.zeros::<T::Result>(c)?;
        for contender in contenders {
            for (config, mut launch) in contender.configs {
                let mut operands = Operands { a: a.as_view(), b: b.as_view(), c: c.as_view_mut() };
                let name = name(contender.name, &config);
                if let Err(why) = look.at(&name, |how| launch(how, &mut operands))
                    && !too_large(&why)
                {
                    self.fail::<T>(product, contender.name, &config, why)?;
                }
            }
        }
        Ok(())
    }

    /// Notes what went wrong. If nothing can be compiled, one failure says so for all.
    fn fail<T: Factor>(
        &mut self,
        product: &Product,
        contender: &str,
        config: &str,
        why: Failure,
    ) -> Result<(), Failure> {
        if without_compiler(&why) {
            return Err(why);
        }
        let what = format!("{product} {}, {contender} {config}: {why}", T::NAME);
        println!("FAILED {what}");
        self.failures.push(what);
        Ok(())
    }

    fn hold<T: Factor>(
        &mut self,
        product: Product,
        data: &Data<T>,
        contenders: Vec<Contender<'_, T>>,
    ) -> Result<(), Failure> {
        let references = Kind::ALL.map(|kind| Reference::of(data.pair(kind), &product));
        let out = RefCell::new(self.device.zeros(product.lens()[2])?);
        let mut contest = Contest { product, data, references, out, first: [None, None] };
        let mut finalists = Vec::new();
        if self.mode == Mode::Time {
            println!("{} {} {product}, {:.1} s", T::NAME, product.group.name(), self.started.elapsed().as_secs_f64());
        }
        for contender in contenders {
            finalists.extend(self.choose(&mut contest, contender)?);
        }
        if self.mode == Mode::Time {
            self.compare(&contest, finalists)
        } else {
            println!("checked {product} {}", T::NAME);
            Ok(())
        }
    }

    /// Checks every configuration of a contender and, if it is about time, chooses one.
    fn choose<'a, T: Factor>(
        &mut self,
        contest: &mut Contest<'_, T>,
        contender: Contender<'a, T>,
    ) -> Result<Option<Finalist<'a, T>>, Failure> {
        let Contender { name, configs, moves, exact } = contender;
        let (count, mut best): (usize, Option<(f64, Finalist<'a, T>)>) = (configs.len(), None);
        for (config, mut launch) in configs {
            if self.skip.iter().any(|part| format!("{name} {config}").contains(part.as_str())) {
                continue;
            }
            let what = format!("{} {}, {name} {config}", T::NAME, contest.product);
            let checked =
                if moves.is_none() { contest.check(&self.device, &mut launch, exact, &what) } else { Ok(0.0) };
            let error = match checked {
                Ok(error) => error,
                Err(why) if too_large(&why) => {
                    println!("  {name} {config} does not fit: {why}");
                    continue;
                }
                Err(why) => {
                    self.fail::<T>(&contest.product, name, &config, why)?;
                    continue;
                }
            };
            if self.mode != Mode::Time {
                continue;
            }
            let limit = best.as_ref().map_or(f64::INFINITY, |(ms, _)| ms * HOPELESS);
            let ms = self.attempt(contest, &mut launch, limit)?;
            let (group, product) = (contest.product.group.name(), &contest.product);
            let _ = writeln!(self.attempts, "{group},{product},{},{name},{config},{ms:.5},{error:.4}", T::NAME);
            if best.as_ref().is_none_or(|(least, _)| ms < *least) {
                let (times, samples) = (Vec::new(), Vec::new());
                best = Some((ms, Finalist { name, config, launch, moves, error, times, samples }));
            }
        }
        let Some((ms, finalist)) = best else { return Ok(None) };
        let rate = contest.product.flops() / ms / 1e9;
        let rate = if moves.is_some() { String::new() } else { format!("{rate:7.1} TFLOP/s, ") };
        println!("  {name:<22} {ms:>9.4} ms, {rate}best of {count}: {}", finalist.config);
        Ok(Some(finalist))
    }

    /// How long a configuration takes, in milliseconds.
    fn attempt<T: Factor>(
        &mut self,
        contest: &Contest<'_, T>,
        launch: &mut Launch<'_, T>,
        limit: f64,
    ) -> Result<f64, Failure> {
        let (warm, _) = self.run(contest, launch)?;
        if warm > limit * HOPELESS {
            return Ok(warm);
        }
        let mut times = Vec::new();
        while times.len() < self.effort.tries && times.iter().all(|ms| *ms <= limit) {
            times.push(self.run(contest, launch)?.0);
        }
        Ok(median(&mut times))
    }

    /// Runs a configuration once on normal numbers, with a cold cache.
    fn run<T: Factor>(
        &mut self,
        contest: &Contest<'_, T>,
        launch: &mut Launch<'_, T>,
    ) -> Result<(f64, Sample), Failure> {
        let [a, b] = contest.data.pair(Kind::Normal).views(&contest.product)?;
        let mut out = contest.out.borrow_mut();
        let mut operands = Operands { a, b, c: out.as_view_mut() };
        let measure = self.measure.as_mut().ok_or("nothing is measured in this mode")?;
        let run = measure.once(|| -> Result<(), Failure> { launch(&How::Launch(&self.device), &mut operands) })?;
        // While it runs: at its end the clock would be another.
        let sample = self.nvml.as_ref().map(Nvml::sample).unwrap_or_default();
        wait(run.end(), "a configuration that was right before")?;
        Ok((run.ms()?, sample))
    }

    /// Runs the best of all in turns, each round beginning with another.
    fn compare<T: Factor>(
        &mut self,
        contest: &Contest<'_, T>,
        mut finalists: Vec<Finalist<'_, T>>,
    ) -> Result<(), Failure> {
        for round in 0..self.effort.rounds {
            for at in 0..finalists.len() {
                let which = (round + at) % finalists.len();
                let finalist = &mut finalists[which];
                let (ms, sample) = self.run(contest, &mut finalist.launch)?;
                let (group, product, name) = (contest.product.group.name(), &contest.product, finalist.name);
                let (clock, reasons) = (sample.clock, nvml::reasons(sample.reasons));
                let _ = writeln!(self.rounds, "{group},{product},{},{name},{round},{ms:.5},{clock},{reasons}", T::NAME);
                finalist.times.push(ms);
                finalist.samples.push(sample);
            }
        }
        self.device.synchronize()?;
        let rows = outcomes(&contest.product, &finalists);
        print!("{}", outcome::lines(&rows));
        self.outcomes.extend(rows);
        // After each row, so that a run that is cut short leaves what it has.
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let library = report::without_folders(self.peers.as_ref().and_then(Peers::origin).unwrap_or("no cuBLAS"));
        let Effort { rounds, .. } = self.effort;
        let note = format!("{}; {library}; {rounds} rounds; arguments: {}", self.machine, report::arguments());
        let stem = self.page.stem();
        report::write(&format!("{stem}_attempts.csv"), &self.attempts)?;
        report::write(&format!("{stem}_rounds.csv"), &self.rounds)?;
        Ok(report::write(&format!("{stem}.csv"), &outcome::csv(&note, &self.outcomes))?)
    }

    /// Writes what was measured, with a table and pictures, and says which targets are met or what the table is. If
    /// nothing was, earlier results stay as they are.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn finish(&mut self) -> Result<(), Failure> {
        if self.outcomes.is_empty() {
            return Ok(());
        }
        self.machine = format!("before: {}; after: {}", self.machine, report::machine());
        self.write()?;
        let page = match self.page {
            Page::Products => super::plot::page(&report::folder())?,
            Page::Ladder => super::ladder::page(&report::folder())?,
        };
        println!("{page}");
        println!("{:.1} s", self.started.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Whether a configuration asks for more than the device has: which ones do depends on how the compiler uses shared
/// memory, and none of them is wrong.
fn too_large(why: &Failure) -> bool {
    matches!(why.downcast_ref::<Error>(), Some(Error::Resources { .. }))
}

/// Triton's form of the same name as one of ours.
fn same_form(name: &str) -> Option<String> {
    name.strip_prefix("tilewright ").map(|form| format!("triton {form}"))
}

/// The medians of all, and of their ratios within rounds.
fn outcomes<T: Factor>(product: &Product, finalists: &[Finalist<'_, T>]) -> Vec<Outcome> {
    let bytes = |f: &Finalist<'_, T>| f.moves.unwrap_or_else(|| product.bytes::<T>());
    let best = |prefix: &str| {
        let of = finalists.iter().filter(|f| f.name.starts_with(prefix));
        of.min_by(|x, y| median(&mut x.times.clone()).total_cmp(&median(&mut y.times.clone())))
    };
    let (triton, cublas, read) = (best("triton"), finalists.iter().find(|f| f.name == "cublas"), best("read"));
    finalists
        .iter()
        .map(|f| {
            let against = |other: Option<&Finalist<'_, T>>, scale: f64| {
                let ratio = |(t, o): (&f64, &f64)| o / t * scale;
                other.map_or(f64::NAN, |o| median(&mut f.times.iter().zip(&o.times).map(ratio).collect::<Vec<_>>()))
            };
            let ms = median(&mut f.times.clone());
            let mut clocks: Vec<f64> = f.samples.iter().map(|s| f64::from(s.clock)).collect();
            Outcome {
                group: product.group.name().to_string(),
                shape: product.to_string(),
                dtype: T::NAME.to_string(),
                contender: f.name.to_string(),
                config: f.config.clone(),
                ms,
                tflops: if f.moves.is_some() { 0.0 } else { product.flops() / ms / 1e9 },
                gbps: bytes(f) / ms / 1e6,
                to_triton: against(triton, 1.0),
                to_same: against(same_form(f.name).and_then(|name| finalists.iter().find(|f| f.name == name)), 1.0),
                to_cublas: against(cublas, 1.0),
                to_read: against(read, read.map_or(f64::NAN, |r| bytes(f) / bytes(r))),
                clock: median(&mut clocks),
                reasons: nvml::reasons(f.samples.iter().fold(0, |all, s| all | s.reasons)),
                error: f.error,
            }
        })
        .collect()
}
