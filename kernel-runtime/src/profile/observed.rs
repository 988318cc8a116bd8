//! Launches and code as those see them who look on: a profiler that takes ranges, and a profile of this program.

use super::session::Session;
use super::{CodeRun, Place, nvtx};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::watchers::{self, Watcher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static SESSION: Mutex<Option<Arc<Session>>> = Mutex::new(None);
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// A launch, as those see it who look on.
pub(crate) struct Launched {
    pub(crate) kernel: &'static str,
    pub(crate) place: Place,
    pub(crate) grid: [i64; 3],
}

/// Code that was loaded, as those want to know it who look on.
pub(crate) trait Code: Send + Sync {
    /// What the hardware is given for it.
    fn run(&self) -> CodeRun;

    /// What tells variants apart.
    fn variant(&self) -> usize;

    /// Loads it once more, as it was loaded before, and drops that.
    fn load_again(&self, device: &Device) -> Result<()>;

    /// The file as rustc names it, and what stands in that line, by the name that code gives the file.
    fn source_line(&self, file: &str, line: u32) -> Option<(&'static str, &'static str)>;
}

/// A kernel whose code was loaded.
struct Loaded {
    entry: Box<str>,
    kernel: &'static str,
    place: Place,
    code: Arc<dyn Code>,
}

/// Launches with those looking on who want to.
pub(crate) fn around(launched: Launched, stream: &Stream, launch: impl FnOnce() -> Result<()>) -> Result<()> {
    let _range = ask().then(|| nvtx::push(launched.kernel)).flatten();
    match session() {
        Some(session) => session.around(launched, stream, launch),
        None => launch(),
    }
}

/// Whether there is a profiler. From the first call on that is known.
pub(super) fn ask() -> bool {
    if watchers::is_there(Watcher::MaybeProfiler) {
        if nvtx::is_there() {
            watchers::come(Watcher::Profiler);
        }
        watchers::go(Watcher::MaybeProfiler);
    }
    watchers::is_there(Watcher::Profiler)
}

/// The profile that is being made.
pub(super) fn session() -> Option<Arc<Session>> {
    if watchers::is_there(Watcher::Profile) { lock(&SESSION).clone() } else { None }
}

/// Begins a profile and lets it look on. It has ended when what is returned is dropped; then another one may begin.
///
/// # Errors
/// If another one does; those of beginning.
pub(super) fn look_on(begin: impl FnOnce() -> Result<Session>) -> Result<Looking> {
    let mut place = lock(&SESSION);
    if place.is_some() {
        return Err(Error::Unsupported {
            what: "a profile while another one is made".into(),
            reason: "there is one at a time in a process; the other has the kernels of both".into(),
        });
    }
    let session = Arc::new(begin()?);
    *place = Some(session.clone());
    watchers::come(Watcher::Profile);
    Ok(Looking { session })
}

/// The profile that is being made.
pub(super) struct Looking {
    pub(super) session: Arc<Session>,
}

impl Looking {
    /// It has seen what there is to see.
    pub(super) fn looks_away(&self) {
        watchers::go(Watcher::Profile);
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.looks_away();
        // Launches of other threads may still have the session. What CUPTI does for it ends before the next one begins.
        self.session.end();
        *lock(&SESSION) = None;
    }
}

/// Remembers whose code has this entry: on a GPU, kernels are known by the names of their entries. A variant that is loaded
/// into several contexts is one, unless it is other code there.
#[cold]
pub(crate) fn note_loaded(entry: &str, kernel: &'static str, place: Place, code: Arc<dyn Code>) {
    let mut loaded = lock(&LOADED);
    let is_known = |known: &Loaded| {
        (&*known.entry, known.place) == (entry, place)
            && known.code.variant() == code.variant()
            && known.code.run() == code.run()
    };
    if loaded.iter().any(is_known) {
        return;
    }
    loaded.push(Loaded { entry: entry.into(), kernel, place, code });
}

/// The kernel whose code has this entry, with its place; without, if several kernels have a name.
pub(super) fn kernel_of(entry: &str) -> Option<(&'static str, Option<Place>)> {
    let loaded = lock(&LOADED);
    let mut found = loaded.iter().filter(|known| *known.entry == *entry);
    let first = found.next()?;
    let is_only = found.all(|other| other.place == first.place);
    Some((first.kernel, is_only.then_some(first.place)))
}

/// All code that has this entry.
pub(super) fn code_of(entry: &str) -> Vec<Arc<dyn Code>> {
    lock(&LOADED).iter().filter(|known| *known.entry == *entry).map(|known| known.code.clone()).collect()
}

/// The file as rustc names it, and what stands in that line of it, of code with that entry.
pub(super) fn source_line(entry: &str, file: &str, line: u32) -> Option<(&'static str, &'static str)> {
    code_of(entry).iter().find_map(|code| code.source_line(file, line))
}

/// What the hardware is given for a kernel, if that is the same for all variants of it that were loaded.
pub(super) fn run_of(kernel: &str, place: Place) -> Option<CodeRun> {
    let loaded = lock(&LOADED);
    let mut found = loaded.iter().filter(|known| known.kernel == kernel && known.place == place);
    let run = found.next()?.code.run();
    found.all(|other| other.code.run() == run).then_some(run)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
