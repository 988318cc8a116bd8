//! What the processes of a storm do, and what is seen to afterwards.

#[path = "../../../kernel-runtime/src/tune/random.rs"]
mod random;

use kernel_archive::{Cache, Key, Reader};
use random::Random;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// About half of all entries fit, so that some are always removed.
const LIMIT: u64 = 2 << 20;
const KEYS: u64 = 128;

/// Of so many that were started last one is killed.
const YOUNG: usize = 8;

/// How many processes run at once, and for how long.
pub struct Storm {
    pub processes: usize,
    pub time: Duration,
}

/// What has happened.
#[derive(Default)]
pub struct Outcome {
    started: usize,
    killed: usize,
    hits: u64,
    written: u64,
    wrong: Vec<String>,
    files: usize,
    bytes: u64,
    unfinished: usize,
}

impl Outcome {
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty() && self.hits > 0 && self.written > 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { started, killed, hits, written, files, bytes, unfinished, .. } = self;
        writeln!(f, "processes: {started}, of them killed: {killed}")?;
        writeln!(f, "entries of those that ended by themselves: {hits} read, {written} written")?;
        writeln!(f, "left: {files} files, {bytes} bytes, {unfinished} unfinished files of killed processes")?;
        write!(f, "wrong: {}", self.wrong.len())?;
        self.wrong.iter().take(10).try_for_each(|wrong| write!(f, "\n  {wrong}"))
    }
}

fn key(number: u64) -> Key {
    let mut random = Random::new(number);
    let words = [(); 4].map(|()| random.next().to_le_bytes());
    Key(std::array::from_fn(|index| words[index / 8][index % 8]))
}

/// What is kept under a key: up to 64 KiB that nothing else is.
fn entry(number: u64) -> Vec<u8> {
    let mut random = Random::new(!number);
    let words = random.below(8 << 10);
    (0..words).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Reads and fills the cache until a third of a second is over, then says how often.
pub fn child(folder: &Path, seed: u64) -> ExitCode {
    let Ok(cache) = Cache::open(folder, LIMIT) else {
        eprintln!("the folder cannot be opened");
        return ExitCode::FAILURE;
    };
    let (mut random, start, mut hits, mut written) = (Random::new(seed), Instant::now(), 0, 0);
    while start.elapsed() < Duration::from_millis(300) {
        let number = random.next() % KEYS;
        match cache.get(key(number)) {
            Some(found) if found == entry(number) => hits += 1,
            Some(_) => {
                eprintln!("entry {number} is another one's");
                return ExitCode::FAILURE;
            }
            None => match cache.put(key(number), &entry(number)) {
                Ok(()) => written += 1,
                Err(error) => {
                    eprintln!("entry {number} cannot be written: {error}");
                    return ExitCode::FAILURE;
                }
            },
        }
        // As a user might.
        if random.next().is_multiple_of(512) {
            let _ = std::fs::remove_file(cache.path(key(random.next() % KEYS)));
        }
    }
    println!("{hits} {written}");
    ExitCode::SUCCESS
}

/// Lets processes come and go, and looks at what they leave.
pub fn storm(storm: &Storm, folder: &Path, child: &dyn Fn(u64) -> Command) -> Outcome {
    let (mut outcome, mut running) = (Outcome::default(), Vec::<Child>::new());
    let mut random = Random::new(7);
    let start = Instant::now();
    while start.elapsed() < storm.time {
        while running.len() < storm.processes {
            let mut command = child(random.next());
            match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
                Ok(process) => running.push(process),
                Err(error) => outcome.wrong.push(format!("a process cannot be started: {error}")),
            }
            outcome.started += 1;
            // A third is killed wherever it is: one of the youngest, which has not ended yet.
            if random.next().is_multiple_of(3) && !running.is_empty() {
                std::thread::sleep(Duration::from_micros(random.next() % 2000));
                let young = running.len().min(YOUNG);
                let mut process = running.swap_remove(running.len() - 1 - random.below(young));
                if process.try_wait().ok().flatten().is_some() {
                    finish(process, &mut outcome);
                } else {
                    let _ = process.kill();
                    let _ = process.wait();
                    outcome.killed += 1;
                }
            }
        }
        let (ended, others) = running.into_iter().partition(|_| random.next().is_multiple_of(2));
        running = others;
        let ended: Vec<Child> = ended;
        ended.into_iter().for_each(|process| finish(process, &mut outcome));
    }
    running.into_iter().for_each(|process| finish(process, &mut outcome));
    look(folder, &mut outcome);
    outcome
}

fn finish(mut process: Child, outcome: &mut Outcome) {
    let mut said = [String::new(), String::new()];
    let status = process.wait();
    if let Some(stream) = &mut process.stdout {
        let _ = stream.read_to_string(&mut said[0]);
    }
    if let Some(stream) = &mut process.stderr {
        let _ = stream.read_to_string(&mut said[1]);
    }
    if !status.is_ok_and(|status| status.success()) {
        outcome.wrong.push(said[1].trim().to_string());
    }
    // A test prints more than that.
    let counts = said[0].lines().find_map(|line| {
        let (hits, written) = line.split_once(' ')?;
        Some((hits.parse::<u64>().ok()?, written.parse::<u64>().ok()?))
    });
    if let Some((hits, written)) = counts {
        outcome.hits += hits;
        outcome.written += written;
    }
}

/// Every file is whole, the folder can be used, and is made small again.
fn look(folder: &Path, outcome: &mut Outcome) {
    let cache = match Cache::open(folder, LIMIT) {
        Ok(cache) => cache,
        Err(error) => return outcome.wrong.push(format!("the folder cannot be opened: {error}")),
    };
    let names: Vec<(String, Key)> = (0..KEYS).map(|number| (format!("{}.twa", key(number)), key(number))).collect();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        match names.iter().find(|(known, _)| *known == name) {
            Some((_, key)) => {
                let bytes = std::fs::read(file.path()).unwrap_or_default();
                let whole = Reader::new(&bytes).is_ok_and(|reader| reader.get(*key).is_ok_and(|entry| entry.is_some()));
                if !whole {
                    outcome.wrong.push(format!("{name} is damaged"));
                }
            }
            None if name.ends_with(".unfinished") => {
                outcome.unfinished += 1;
                let long_ago = SystemTime::now() - Duration::from_secs(7200);
                let _ =
                    std::fs::File::options().append(true).open(file.path()).and_then(|it| it.set_modified(long_ago));
            }
            None => outcome.wrong.push(format!("{name} is no file of the cache")),
        }
    }
    for number in 0..KEYS {
        if cache.put(key(number), &entry(number)).is_err() || cache.get(key(number)) != Some(entry(number)) {
            outcome.wrong.push(format!("entry {number} cannot be kept any more"));
        }
    }
    let _ = cache.shrink();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        outcome.files += 1;
        outcome.bytes += file.metadata().map_or(0, |about| about.len());
        if file.file_name().to_string_lossy().ends_with(".unfinished") {
            outcome.wrong.push("an unfinished file of long ago is still there".to_string());
        }
    }
    if outcome.bytes > LIMIT {
        outcome.wrong.push(format!("{} bytes are more than {LIMIT}", outcome.bytes));
    }
}
