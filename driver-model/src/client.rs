//! What tests use: processes that have the model for a driver, and what they have called.

use std::ffi::{CString, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Beside the library: what it is to be like, what was wrong, how often functions were called.
pub(crate) const SETTINGS_FILE: &str = "model-settings";
pub(crate) const VIOLATIONS_FILE: &str = "model-violations";
pub(crate) const COUNTS_FILE: &str = "model-counts";

/// Says to a process that it has the model, so that one which does not find it fails rather than to start others.
const CHILD_VARIABLE: &str = "TILEWRIGHT_DRIVER_MODEL";
/// Says where the library is to those who do not have it beside them.
const LIBRARY_VARIABLE: &str = "TILEWRIGHT_DRIVER_MODEL_LIBRARY";
/// What this crate is built into.
const LIBRARY: &str = "libtilewright_driver_model.so";
/// The names under which programs open the driver.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];
/// Gives lines to a function, of the calls or of the violations, which are then forgotten.
pub(crate) type Lines = unsafe extern "C" fn(which: u32, from: usize, line: Take, to: *mut c_void);
pub(crate) type Take = unsafe extern "C" fn(to: *mut c_void, text: *const u8, len: usize);
/// [`Lines`] of what.
pub(crate) const CALLS: u32 = 0;
pub(crate) const VIOLATIONS: u32 = 1;

/// When things are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// When somebody waits for them.
    Late,
    /// At random times, in random orders.
    Random,
    /// As soon as they may be, like on a GPU that is much faster than the host.
    AtOnce,
}

/// What the driver and its GPU are like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The compute capability. Code for 8.0 is what the emulator knows best.
    pub capability: (u32, u32),
    /// Decides all that is random.
    pub seed: u64,
    /// When things are done.
    pub schedule: Schedule,
    /// Bytes of the GPU's memory.
    pub memory: u64,
    /// How many GPUs there are.
    pub devices: u32,
    /// Whether allocation can be ordered by streams.
    pub pools: bool,
    /// Whether the GPU reads and writes pageable memory of the host in place, after the call that asks for it.
    pub reads_pageable: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            capability: (8, 0),
            seed: 1,
            schedule: Schedule::Random,
            memory: 2 << 30,
            devices: 1,
            pools: true,
            reads_pageable: false,
        }
    }
}

impl Settings {
    /// With another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Settings { seed, ..self }
    }

    /// With another schedule.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Self {
        Settings { schedule, ..self }
    }

    /// `80` for 8.0.
    #[cfg(feature = "model")]
    pub(crate) fn capability_number(&self) -> u32 {
        10 * self.capability.0 + self.capability.1
    }

    fn print(&self) -> String {
        let mut text = String::new();
        let Settings { capability: (major, minor), seed, schedule, memory, devices, pools, reads_pageable } = self;
        let schedule = *schedule as u32;
        let (pools, pageable) = (u32::from(*pools), u32::from(*reads_pageable));
        let _ = write!(text, "{major} {minor} {seed} {schedule} {memory} {devices} {pools} {pageable}");
        text
    }

    /// What [`Settings::print`] has written.
    #[cfg(any(feature = "model", test))]
    pub(crate) fn parse(text: &str) -> Settings {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [major, minor, seed, schedule, memory, devices, pools, pageable] = numbers[..] else {
            panic!("the settings of the model are damaged: {text}");
        };
        let schedules = [Schedule::Late, Schedule::Random, Schedule::AtOnce];
        Settings {
            capability: (major as u32, minor as u32),
            seed,
            schedule: schedules[schedule as usize],
            memory,
            devices: devices as u32,
            pools: pools != 0,
            reads_pageable: pageable != 0,
        }
    }
}

/// A folder in which the driver is the model. Removed when it drops.
struct Folder(PathBuf);

impl Folder {
    fn new(settings: &Settings) -> Folder {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tilewright-driver-model-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let library = library();
        for name in NAMES {
            std::os::unix::fs::symlink(&library, path.join(name)).expect("a link to the model");
        }
        std::fs::write(path.join(SETTINGS_FILE), settings.print()).expect("the settings");
        Folder(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The library that is the model: what `TILEWRIGHT_DRIVER_MODEL_LIBRARY` names, else beside the test or a folder above. Without
/// the feature `model` what is there is not it.
pub fn find_library() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        return Some(PathBuf::from(path)).filter(|path| path.exists());
    }
    if !cfg!(feature = "model") {
        return None;
    }
    let test = std::env::current_exe().ok()?;
    let folders = test.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join(LIBRARY)).find(|path| path.exists())
}

/// As [`find_library`].
///
/// # Panics
///
/// If it is nowhere.
pub fn library() -> PathBuf {
    find_library()
        .unwrap_or_else(|| panic!("{LIBRARY} is not beside the test, and {LIBRARY_VARIABLE} does not name it"))
}

/// A process that had the model for a driver, and has ended.
pub struct Run {
    output: Output,
    /// What it has done whose outcome no driver promises, with the calls before each.
    pub violations: String,
    counts: String,
}

impl Run {
    /// What it wrote, to both ends.
    pub fn text(&self) -> String {
        let ends = [&self.output.stdout, &self.output.stderr];
        ends.map(|end| String::from_utf8_lossy(end).into_owned()).concat()
    }

    /// Whether it ended well.
    pub fn is_success(&self) -> bool {
        self.output.status.success()
    }

    /// How often it has called a function of the driver.
    pub fn count(&self, function: &str) -> u64 {
        let mut lines = self.counts.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == function).map_or(0, |(_, count)| count.parse().expect("a number"))
    }

    /// Panics unless it has called a function of the driver more than so many times.
    #[track_caller]
    pub fn called(&self, function: &str, times: u64) -> &Self {
        let count = self.count(function);
        assert!(count > times, "{count} calls of {function}");
        self
    }

    /// Panics, with all that is known, unless the process ended well and without violations.
    #[track_caller]
    pub fn check(&self) -> &Self {
        assert!(self.violations.is_empty(), "violations:\n{}\n{}", self.violations, self.text());
        assert!(self.is_success(), "{}\n{}", self.output.status, self.text());
        self
    }
}

/// Runs a program with the model for its driver. Compiled kernels are kept in a folder that is removed.
///
/// # Panics
///
/// If the program cannot be started.
pub fn run(program: &Path, arguments: &[&str], settings: &Settings) -> Run {
    let folder = Folder::new(settings);
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = std::iter::once(folder.0.clone()).chain(std::env::split_paths(&before));
    let paths = std::env::join_paths(paths.filter(|path| !path.as_os_str().is_empty())).expect("paths");
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", paths).env(CHILD_VARIABLE, "1");
    command.env("TILEWRIGHT_CACHE", folder.0.join("cache")).env_remove("TILEWRIGHT_DEVICE");
    // The model keeps no compiled code, whatever a driver of this machine has kept.
    command.env("CUDA_CACHE_DISABLE", "1");
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    Run { output, violations: folder.read(VIOLATIONS_FILE), counts: folder.read(COUNTS_FILE) }
}

/// Whether this process has the model. If not, runs the test of this name, in this program, in a process that has it,
/// and panics if it fails or does what no driver promises.
///
/// # Panics
///
/// As said, and if a process that should have the model has not.
pub fn in_model(test: &str, settings: &Settings) -> bool {
    if std::env::var_os(CHILD_VARIABLE).is_some() {
        assert!(model().is_some(), "{} is not the model of the driver", NAMES[0]);
        return true;
    }
    let program = std::env::current_exe().expect("a test knows where it is");
    let run = run(&program, &["--exact", test, "--nocapture"], settings);
    assert!(run.check().text().contains("1 passed"), "there is no test `{test}`:\n{}", run.text());
    false
}

/// Runs all tests of this program again, in a process that has the model, but those with `on_the_model` in their names, which
/// do this; one after another, so that a seed means the same each time. Panics if one fails or is skipped for want of a GPU, or if the process does what no driver promises.
///
/// # Panics
///
/// As said.
pub fn run_again(settings: &Settings) -> Run {
    let program = std::env::current_exe().expect("a test knows where it is");
    let run = run(&program, &["--skip", "on_the_model", "--nocapture", "--test-threads=1"], settings);
    let text = run.check().text();
    assert!(!text.contains("no CUDA device"), "a test does not find the model:\n{text}");
    run
}

/// A call of a function of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its name in the library, such as `cuMemcpyHtoDAsync_v2`.
    pub function: String,
    /// What it gave: 0 is success.
    pub code: u32,
    /// What it was about: `stream`, `bytes` and the like.
    details: Vec<(String, u64)>,
}

impl Call {
    /// A number that the call is about: the handle `stream`, the size in `bytes`, the address `to` or `from`.
    pub fn detail(&self, name: &str) -> Option<u64> {
        self.details.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Reads `FUNCTION=CODE NAME=VALUE ..`.
    fn parse(line: &str) -> Call {
        let mut words = line.split(' ').filter_map(|word| word.split_once('='));
        let (function, code) = words.next().expect("a function and its result");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let details = words.filter_map(|(name, value)| Some((name.to_string(), number(value)?))).collect();
        Call { function: function.to_string(), code: code.parse().expect("a code"), details }
    }
}

/// Whether the driver of this process is the model.
pub fn is_the_driver() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some() && model().is_some()
}

/// The model that this process has.
fn model() -> Option<libloading::Symbol<'static, Lines>> {
    use std::sync::OnceLock;
    static LIBRARY: OnceLock<Option<libloading::Library>> = OnceLock::new();
    let name = CString::from(c"tilewright_driver_model_lines");
    // SAFETY: neither the driver nor the model does anything when it is loaded.
    let library = LIBRARY.get_or_init(|| unsafe { libloading::Library::new(NAMES[0]) }.ok()).as_ref()?;
    // SAFETY: only the model has a function of that name, which has this type.
    unsafe { library.get::<Lines>(name.as_bytes_with_nul()) }.ok()
}

fn lines(which: u32) -> Vec<String> {
    unsafe extern "C" fn take(to: *mut c_void, text: *const u8, len: usize) {
        // SAFETY: `to` is what is given below, the text is as long as the model says.
        let (to, text) = unsafe { (&mut *to.cast::<Vec<String>>(), std::slice::from_raw_parts(text, len)) };
        to.push(String::from_utf8_lossy(text).into_owned());
    }
    let mut found = Vec::new();
    let lines = model().expect("this process has the model of the driver");
    // SAFETY: the function calls `take` with what it is given, before it returns.
    unsafe { lines(which, 0, take, (&raw mut found).cast()) };
    found
}

/// All calls that this process has made.
///
/// # Panics
///
/// If the process does not have the model.
pub fn trace() -> Vec<Call> {
    lines(CALLS).iter().map(|line| Call::parse(line)).collect()
}

/// What this process has done whose outcome no driver promises. What is taken is forgiven.
///
/// # Panics
///
/// If the process does not have the model.
pub fn take_violations() -> Vec<String> {
    lines(VIOLATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let settings = Settings { capability: (9, 0), pools: false, schedule: Schedule::AtOnce, ..Settings::default() };
        for settings in [Settings::default().seed(u64::MAX), settings] {
            assert_eq!(Settings::parse(&settings.print()), settings);
        }
    }

    #[test]
    fn calls_are_read_as_they_were_written() {
        let call = Call::parse("cuMemAllocAsync=0 stream=0x40 bytes=12 name=add");
        assert_eq!((call.function.as_str(), call.code), ("cuMemAllocAsync", 0));
        assert_eq!((call.detail("stream"), call.detail("bytes"), call.detail("name")), (Some(64), Some(12), None));
    }
}
