//! The parent, which starts children and adds up, and the child, which runs cases.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Options;
use crate::judge::{Verdict, judge};
use crate::kernels::{self, Kernel};
use crate::mutate::{Flat, Random, change, flatten, nest};

/// The stack of rustc's main thread.
const STACK: usize = 8 << 20;
/// Cases of one child.
const CHUNK: u64 = 20_000;
/// A child that stays at one case that long hangs.
const HANG: Duration = Duration::from_secs(60);

/// What children have found.
#[derive(Default)]
struct Sums {
    cases: u64,
    accepted: u64,
    late: u64,
    slowest: (u64, u64),
    findings: u64,
}

/// Runs all cases in children; `Ok(false)` if something was found.
pub fn parent(options: &Options) -> Result<bool, String> {
    let start = Instant::now();
    let end = options.seed + options.cases;
    let mut sums = Sums::default();
    let workers: Vec<_> = (0..options.jobs)
        .map(|job| {
            let options = options.clone();
            let share = |job: u64| options.seed + options.cases * job / options.jobs;
            let (from, to) = (share(job), if job + 1 == options.jobs { end } else { share(job + 1) });
            std::thread::spawn(move || range(&options, from, to, start))
        })
        .collect();
    for worker in workers {
        let one = worker.join().map_err(|_| "a worker panicked".to_string())??;
        sums.cases += one.cases;
        sums.accepted += one.accepted;
        sums.late += one.late;
        sums.findings += one.findings;
        sums.slowest = sums.slowest.max(one.slowest);
    }
    let Sums { cases, accepted, late, slowest: (millis, seed), findings } = sums;
    println!(
        "cases {}..{end}: {cases} expanded in {:.0} s, {accepted} accepted and sound, {late} refused late, slowest \
         {millis} ms (case {seed}), {findings} findings",
        options.seed,
        start.elapsed().as_secs_f64(),
    );
    Ok(findings == 0)
}

/// The cases of a range, one child after the other.
fn range(options: &Options, from: u64, to: u64, start: Instant) -> Result<Sums, String> {
    let trace = std::env::temp_dir().join(format!("mutate_tokens_{}_{from}", std::process::id()));
    let mut sums = Sums::default();
    let mut at = from;
    while at < to {
        let cases = CHUNK.min(to - at);
        std::fs::write(&trace, at.to_le_bytes()).map_err(|e| format!("{}: {e}", trace.display()))?;
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["--seed", &at.to_string(), "--cases", &cases.to_string()]).arg("--trace").arg(&trace);
        command.args(options.show.then_some("--show")).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let lines = output.map(|output| BufReader::new(output).lines().map_while(Result::ok));
            lines.into_iter().flatten().fold(Sums::default(), read)
        });
        let end = wait(&mut child, &trace)?;
        let one = reader.join().map_err(|_| "a reader panicked".to_string())?;
        sums.accepted += one.accepted;
        sums.late += one.late;
        sums.findings += one.findings;
        sums.slowest = sums.slowest.max(one.slowest);
        let next = match end {
            None => at + cases,
            Some(how) => {
                let seed = traced(&trace)?;
                println!("finding: case {seed}: {how}");
                sums.findings += 1;
                seed + 1
            }
        };
        sums.cases += next - at;
        at = next;
        println!("{} s: up to case {at} of {to}, {} findings", start.elapsed().as_secs(), sums.findings);
    }
    let _ = std::fs::remove_file(&trace);
    Ok(sums)
}

/// Adds a line of a child's report.
fn read(mut sums: Sums, line: String) -> Sums {
    let words: Vec<u64> = line.split(' ').skip(1).map_while(|word| word.parse().ok()).collect();
    match (line.split(' ').next(), words.as_slice()) {
        (Some("sum"), [accepted, late, millis, seed]) => {
            sums.accepted += accepted;
            sums.late += late;
            sums.slowest = sums.slowest.max((*millis, *seed));
        }
        _ => {
            sums.findings += u64::from(line.starts_with("finding"));
            println!("{line}");
        }
    }
    sums
}

/// Waits for a child; what became of it, if it did not end well.
fn wait(child: &mut Child, trace: &Path) -> Result<Option<String>, String> {
    let (mut seen, mut since) = (traced(trace)?, Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok((!status.success()).then(|| format!("the process ended: {status}")));
        }
        std::thread::sleep(Duration::from_millis(20));
        let now = traced(trace)?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > HANG {
            child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
            return Ok(Some(format!("it did not end within {HANG:?}")));
        }
    }
}

/// The case that a child is at.
fn traced(trace: &Path) -> Result<u64, String> {
    let bytes = std::fs::read(trace).map_err(|e| format!("{}: {e}", trace.display()))?;
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| "the trace is damaged".to_string())
}

/// Runs cases on a stack of rustc's size.
pub fn child(options: &Options, trace: &Path) -> Result<(), String> {
    std::panic::set_hook(Box::new(crate::judge::note_panic));
    let (options, trace) = (options.clone(), trace.to_path_buf());
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || cases(&options, &trace));
    thread.map_err(|e| e.to_string())?.join().map_err(|_| "the thread of cases panicked".to_string())?
}

fn cases(options: &Options, trace: &Path) -> Result<(), String> {
    let trace = File::options().write(true).open(trace).map_err(|e| e.to_string())?;
    // Spans belong to the thread that has read the sources.
    let kernels = kernels::all();
    let flat: Vec<Vec<Flat>> = kernels.iter().map(|kernel| flatten(kernel.item.clone())).collect();
    if flat.is_empty() {
        return Err("no kernels were found".to_string());
    }
    let mut out = std::io::stdout().lock();
    let (mut accepted, mut late, mut slowest) = (0u64, 0u64, (Duration::ZERO, 0u64));
    for seed in options.seed..options.seed + options.cases {
        trace.write_all_at(&seed.to_le_bytes(), 0).map_err(|e| e.to_string())?;
        let kernel = mutant(seed, &kernels, &flat);
        let verdict = judge(&kernel);
        accepted += u64::from(verdict.accepted);
        late += u64::from(verdict.late);
        slowest = slowest.max((verdict.time, seed));
        report(&mut out, seed, &kernel, &verdict, options.show).map_err(|e| e.to_string())?;
    }
    writeln!(out, "sum {accepted} {late} {} {}", slowest.0.as_millis(), slowest.1).map_err(|e| e.to_string())
}

/// The kernel of a case.
fn mutant(seed: u64, kernels: &[Kernel], flat: &[Vec<Flat>]) -> Kernel {
    let mut random = Random::new(seed);
    let which = random.next(flat.len());
    let mut tokens = flat[which].clone();
    for _ in 0..1 + random.next(4) {
        let pool = &flat[random.next(flat.len())];
        change(&mut tokens, pool, &mut random);
    }
    let mut attr = flatten(kernels[which].attr.clone());
    if random.next(20) == 0 {
        let pool = &flat[random.next(flat.len())];
        change(&mut attr, pool, &mut random);
    }
    Kernel { attr: nest(attr), item: nest(tokens) }
}

fn report(out: &mut impl Write, seed: u64, kernel: &Kernel, verdict: &Verdict, show: bool) -> std::io::Result<()> {
    if let Some(finding) = &verdict.finding {
        writeln!(out, "finding: case {seed}: {}", finding.replace('\n', " / "))?;
    }
    if show {
        writeln!(out, "#[kernel({})]\n{}\n{}", kernel.attr, kernel.item, verdict.messages.join("\n"))?;
    }
    Ok(())
}
