//! Measures every configuration.

use super::file::{self, Times};
use super::{Operands, PersistentConsts, Sizes, plan};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use tilewright::bench::Bench;
use tilewright::launch::{AheadCompiler, CallShape, Config, shapes_of};
use tilewright::prelude::*;
use tilewright_bench::{Failure, report};

/// Runs of a configuration, the first of which counts too: caches are emptied before each.
const RUNS: usize = 5;
/// One that is slower than the best by so much gets one run.
const FAR: f64 = 2.5;

/// What is to be measured: a configuration, with the sizes that it is left for.
type Job = (Config<PersistentConsts>, Vec<Sizes>);

/// Measures all configurations at all sizes that the file does not have, until the time is over.
pub fn all(device: &Device, sizes: &[Sizes], path: &Path, seconds: f64) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut operands = Operands::new(device, sizes)?;
    let known = file::read(path)?;
    let mut jobs: Vec<Job> = Vec::new();
    for &of in sizes {
        let plan = plan(device, &mut operands, of)?;
        println!("{of:?}: {} configurations, {} pruned, {:.2?}", plan.kept.len(), plan.pruned.len(), plan.time);
        for planned in plan.kept.iter().filter(|one| !known.contains_key(&(of, file::name(&one.config)))) {
            match jobs.iter_mut().find(|(config, _)| *config == planned.config) {
                Some((_, sizes)) => sizes.push(of),
                None => jobs.push((planned.config, vec![of])),
            }
        }
    }
    shuffle(&mut jobs);
    if !device.is_cuda() {
        println!("no CUDA device: nothing is timed");
        return Ok(());
    }
    let mut out = OpenOptions::new().create(true).append(true).open(path)?;
    if known.is_empty() {
        write!(out, "{}", file::HEADER)?;
    }
    println!("{}", report::machine());
    let mut shapes = Vec::new();
    let processors = device.multiprocessor_count();
    for (config, sizes) in &jobs {
        // Of sizes of which the same is known the code is the same, and compiled once.
        let mut launch = |&of: &Sizes| operands.call(of, config, processors, |call| call.launch(device));
        shapes.push(shapes_of(|| sizes.iter().try_for_each(&mut launch))?);
    }
    let (queue, compiler) = (Mutex::new(shapes.into_iter()), AheadCompiler::of(device));
    println!("machine code is made {}", if compiler.assembles() { "by ptxas processes" } else { "by the driver" });
    thread::scope(|scope| -> Result<(), Failure> {
        // One thread measures, and gives launches to the driver.
        for _ in 1..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| compile(&compiler, &queue, until));
        }
        measure(device, &mut operands, &jobs, &mut out, until)
    })?;
    println!("{}", report::machine());
    Ok(())
}

/// Compiles what is left, in order, before it is measured. What does not compile says so when it is launched.
fn compile(compiler: &AheadCompiler, queue: &Mutex<impl Iterator<Item = Vec<CallShape>>>, until: Instant) {
    while Instant::now() < until {
        let next = queue.lock().ok().and_then(|mut queue| queue.next());
        let Some(shapes) = next else { return };
        for shape in shapes {
            let _ = compiler.compile(&shape);
        }
    }
}

fn measure(
    device: &Device,
    operands: &mut Operands,
    jobs: &[Job],
    out: &mut impl Write,
    until: Instant,
) -> Result<(), Failure> {
    let mut bench = Bench::new(device)?;
    let mut best: Vec<(Sizes, f64)> = Vec::new();
    for (number, (config, sizes)) in jobs.iter().enumerate() {
        for &of in sizes {
            if Instant::now() >= until {
                println!("{number} of {} configurations", jobs.len());
                return Ok(());
            }
            let fastest = best.iter().find(|(known, _)| *known == of).map_or(f64::INFINITY, |(_, ms)| *ms);
            let times = timed(device, operands, (of, config), &mut bench, fastest);
            if let Some(ms) = times.runs.iter().copied().reduce(f64::min).filter(|ms| *ms < fastest) {
                best.retain(|(known, _)| *known != of);
                best.push((of, ms));
            }
            out.write_all(file::line(of, config, &times).as_bytes())?;
        }
    }
    println!("all {} configurations", jobs.len());
    Ok(())
}

/// A first launch, and runs with cold caches; nothing of what does not work.
fn timed(
    device: &Device,
    operands: &mut Operands,
    (of, config): (Sizes, &Config<PersistentConsts>),
    bench: &mut Bench,
    fastest: f64,
) -> Times {
    let processors = device.multiprocessor_count();
    let start = Instant::now();
    let mut launch = || operands.call(of, config, processors, |call| call.launch(device));
    let first = launch().and_then(|()| device.synchronize());
    let mut times = Times { compile_ms: start.elapsed().as_secs_f64() * 1e3, runs: Vec::new() };
    if first.is_err() {
        return times;
    }
    while times.runs.len() < RUNS {
        match bench.once(&mut launch).and_then(|run| run.ms()) {
            Ok(ms) => times.runs.push(ms),
            Err(_) => return Times { runs: Vec::new(), ..times },
        }
        if times.median() > fastest * FAR {
            break;
        }
    }
    times
}

/// The same order in every run.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}
