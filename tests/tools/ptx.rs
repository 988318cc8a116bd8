//! Writes the PTX of every kernel of the examples, benchmarks and tests, and tables of what ptxas makes of it.
//!
//! ```text
//! cargo run -p tilewright-tests --example ptx -- dump DIR [--only PART,..] [--target TARGET,..] [--all]
//! cargo run -p tilewright-tests --example ptx -- table DIR [--jobs N] [--diff OLD.csv] > NEW.csv
//! cargo run -p tilewright-tests --example ptx -- factors DIR [--jobs N]
//! ```
//!
//! `dump` writes the kernels that have snapshots to files in a folder for each target; `--only` those whose names
//! contain a part, `--all` every configuration of the benchmarks for every target, thousands of them.
//!
//! `table` assembles all `.ptx` files below a folder, of whatever origin, each for the target that it names, and
//! prints a line of CSV for each: how it is launched and for how many programs it asks ptxas to make room, registers,
//! bytes of spills, instructions of the hardware, and performance warnings (`C75xx`). With `--diff` only lines that
//! are not in the older table, each after the older line, which begins with `-`.
//!
//! `factors` assembles the same files, and compares what their matrix instructions multiply with what the PTX says
//! ([`tilewright_tests::factors`]). It names the files that differ, and says how many were looked at.

#[path = "../suites/snapshots/kernels/mod.rs"]
mod kernels;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernels::Source;
use tilewright::Target;
use tilewright_tests::assembler::assemble;
use tilewright_tests::factors::{Checked, check_sass};

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "usage: ptx dump DIR [--only PART,..] [--target TARGET,..] [--all]\n       \
                     ptx table DIR [--jobs N] [--diff OLD.csv]\n       \
                     ptx factors DIR [--jobs N]";

/// What the command line says.
struct Arguments {
    options: BTreeMap<String, String>,
    words: Vec<String>,
}

impl Arguments {
    fn read() -> Result<Arguments, Failure> {
        let (mut options, mut words) = (BTreeMap::new(), Vec::new());
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--all" => drop(options.insert(argument, String::new())),
                "--only" | "--target" | "--jobs" | "--diff" => {
                    let value = arguments.next().ok_or_else(|| format!("{argument} needs a value\n{USAGE}"))?;
                    options.insert(argument, value);
                }
                option if option.starts_with("--") => return Err(format!("there is no {option}\n{USAGE}").into()),
                _ => words.push(argument),
            }
        }
        Ok(Arguments { options, words })
    }

    /// The parts of an option's value, none if it is not given.
    fn list(&self, option: &str) -> Vec<String> {
        self.options.get(option).map(|list| list.split(',').map(str::to_string).collect()).unwrap_or_default()
    }

    /// How many files to work on at a time.
    fn jobs(&self) -> Result<usize, Failure> {
        match self.options.get("--jobs") {
            Some(jobs) => jobs.parse().map_err(|why| format!("--jobs {jobs}: {why}").into()),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

fn main() -> ExitCode {
    let run = || -> Result<(), Failure> {
        let arguments = Arguments::read()?;
        let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
        match words[..] {
            ["dump", folder] => dump(Path::new(folder), &arguments),
            ["table", folder] => table(Path::new(folder), &arguments),
            ["factors", folder] => factors(Path::new(folder), &arguments),
            _ => Err(USAGE.into()),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles the kernels and writes their PTX.
fn dump(folder: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let (only, targets) = (arguments.list("--only"), arguments.list("--target"));
    let all = arguments.options.contains_key("--all");
    for target in &targets {
        if !Target::all().iter().any(|known| known.name() == target) {
            let known = Target::all().map(Target::name).join(", ");
            return Err(format!("{target} is no target; these are: {known}").into());
        }
    }
    let wanted = move |name: &str, target: Target| {
        (all || kernels::representative(name, target))
            && (only.is_empty() || only.iter().any(|part| name.contains(part.as_str())))
            && (targets.is_empty() || targets.iter().any(|wanted| target.name() == wanted))
    };
    let wanted: &'static kernels::Wanted = Box::leak(Box::new(wanted));
    let (mut count, mut failure) = (0, None);
    for source in Source::ALL {
        kernels::each(source, wanted, &mut |code| {
            let name = format!("{}.ptx", code.name.replace('/', "__"));
            let folder = folder.join(code.target.name());
            let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(name), &code.ptx));
            failure = failure.take().or(written.err());
            count += 1;
        });
    }
    eprintln!("{count} files");
    failure.map_or(Ok(()), |why| Err(why.into()))
}

/// Assembles files and prints a table.
fn table(folder: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let old = match arguments.options.get("--diff") {
        Some(path) => Some(std::fs::read_to_string(path).map_err(|why| format!("{path}: {why}"))?),
        None => None,
    };
    let rows: Vec<String> = for_all(folder, arguments.jobs()?, row)?.into_values().collect::<Result<_, _>>()?;
    println!("{HEADER}");
    let key = |row: &str| row.splitn(3, ',').take(2).collect::<Vec<_>>().join(",");
    let before: Option<BTreeMap<String, &str>> =
        old.as_ref().map(|old| old.lines().map(|row| (key(row), row)).collect());
    for row in rows {
        match before.as_ref().map(|before| before.get(&key(&row))) {
            Some(Some(old)) if **old == row => {}
            Some(Some(old)) => println!("-{old}\n{row}"),
            Some(None) | None => println!("{row}"),
        }
    }
    Ok(())
}

/// The PTX files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    Ok(())
}

/// What `work` makes of the PTX files below a folder, several at a time, by file.
fn for_all<T: Send>(
    folder: &Path,
    jobs: usize,
    work: impl Fn(&Path, &Path) -> Result<T, Failure> + Sync,
) -> Result<BTreeMap<PathBuf, Result<T, String>>, Failure> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = work(file, folder).map_err(|why| format!("{}: {why}", file.display()));
                    found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(file.clone(), one);
                }
            });
        }
    });
    Ok(found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Compares the factors of products in files with what ptxas makes of them.
fn factors(folder: &Path, arguments: &Arguments) -> Result<(), Failure> {
    let found = for_all(folder, arguments.jobs()?, |file, _| {
        let ptx = std::fs::read_to_string(file)?;
        Ok(check_sass(&ptx, &target(&ptx))?)
    })?;
    let files = found.len();
    let (mut looked_at, mut all, mut differ) = (0, Checked { products: 0, carried: 0 }, 0);
    for one in found.into_values() {
        match one {
            Ok(None) => {}
            Ok(Some(checked)) => {
                looked_at += 1;
                (all.products, all.carried) = (all.products + checked.products, all.carried + checked.carried);
            }
            Err(why) => {
                println!("{why}");
                differ += 1;
            }
        }
    }
    println!(
        "{} of {files} files have products with factors in registers in loops: {} such products, {} registers that loops \
         carry; {differ} differ from their PTX",
        looked_at + differ,
        all.products,
        all.carried,
    );
    match (looked_at, differ) {
        (0, 0) => Err("there is nothing to look at, or no ptxas: `scripts/install-ptxas` fetches it".into()),
        (_, 0) => Ok(()),
        _ => Err("ptxas gave registers of factors away".into()),
    }
}

/// What a kernel's PTX says after the name of a directive.
fn directive(ptx: &str, name: &str) -> String {
    let line = ptx.lines().map(str::trim).find(|line| line.split_whitespace().next() == Some(name));
    line.map(|line| line[name.len()..].trim().to_string()).unwrap_or_default()
}

/// The target that a kernel's PTX names.
fn target(ptx: &str) -> String {
    directive(ptx, ".target").split(',').next().unwrap_or_default().to_string()
}

const HEADER: &str = "kernel,target,threads,min_programs,max_registers,registers,spill_stores,spill_loads,\
                      instructions,warnings";

/// A line of the table.
fn row(file: &Path, folder: &Path) -> Result<String, Failure> {
    let ptx = std::fs::read_to_string(file)?;
    let directive = |name: &str| directive(&ptx, name);
    let target = target(&ptx);
    let assembled = assemble(&ptx, &target).ok_or("there is no ptxas: `scripts/install-ptxas` fetches it")?;
    let before = |what: &str| {
        let end = assembled.log.find(what)?;
        assembled.log[..end].rsplit([' ', ',', '\n']).find(|word| !word.is_empty()).map(str::to_string)
    };
    let mut warnings: Vec<&str> =
        assembled.log.match_indices("(C75").filter_map(|(at, _)| assembled.log.get(at + 1..at + 6)).collect();
    warnings.dedup();
    let name = file.strip_prefix(folder).unwrap_or(file).with_extension("").display().to_string();
    Ok([
        name.replace(',', ";"),
        target,
        directive(".reqntid").replace(',', "x"),
        directive(".minnctapersm"),
        directive(".maxnreg"),
        assembled.registers.to_string(),
        assembled.spills.to_string(),
        before(" bytes spill loads").unwrap_or_default(),
        assembled.instructions.to_string(),
        warnings.join(" "),
    ]
    .join(","))
}
