//! What lies behind the driver's functions.

mod action;
mod allocate;
mod capture;
mod code;
mod event;
mod graph;
mod launch;
mod memory;
mod settings;
mod shadow;
mod stream;
mod trace;
mod work;

pub(crate) use action::{Action, End, HostFunction, KernelWork, UserObject};
pub(crate) use capture::{CaptureInfo, Mode, exchange_mode};
pub(crate) use code::{Function, Refusal, machine_code, ptx_of};
pub(crate) use graph::LeftMemory;
pub(crate) use launch::Grid;
pub(crate) use memory::Kind;
pub(crate) use trace::Note;

use crate::client::{Schedule, Settings};
use cudarc::driver::sys::CUresult as Code;
use memory::Space;
use std::any::Any;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use trace::Trace;
use work::{Point, Work};

/// What a function of the driver gives: nothing, or the code of an error.
pub(crate) type Outcome = Result<(), Code>;

/// The driver.
pub(crate) struct Model {
    pub(crate) settings: Settings,
    pub(crate) trace: Trace,
    pub(crate) space: Space,
    work: Work,
    random: Random,
    pub(crate) is_initialised: bool,
    /// The error after which nothing works any more.
    broken: Option<Code>,
    /// How often each device's context is retained.
    pub(crate) retained: HashMap<usize, usize>,
    /// What pools keep, by device.
    pub(crate) pool_threshold: HashMap<usize, u64>,
    streams: HashMap<usize, stream::Stream>,
    /// What streams that are gone were given last, by context.
    orphans: Vec<(usize, Arc<Point>)>,
    per_thread: HashMap<(ThreadId, usize), usize>,
    events: HashMap<usize, event::Event>,
    functions: HashMap<usize, Arc<Function>>,
    modules: HashMap<usize, Vec<usize>>,
    graphs: HashMap<usize, graph::Graph>,
    execs: HashMap<usize, graph::Exec>,
    /// Those that whoever has made them still holds, and how many references.
    objects: HashMap<usize, (Arc<UserObject>, u32)>,
    captures: HashMap<usize, capture::Capture>,
    pub(crate) links: HashMap<usize, Vec<u8>>,
    pub(crate) link_texts: HashMap<usize, String>,
    /// Handles that have been.
    gone: HashSet<usize>,
    last_handle: usize,
}

/// Pseudo-random numbers: xorshift64*, <https://doi.org/10.18637/jss.v008.i14>.
pub(crate) struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 33) as usize) % limit.max(1)
    }
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is inside a function of the driver.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The context that is current on this thread, or zero.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

pub(crate) fn set_current(context: usize) {
    CURRENT.set(context);
}

/// What a panic says, instead of the panic.
pub(crate) fn quietly<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let was = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(was);
    result.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
}

/// The one driver of the process.
pub(crate) fn model() -> MutexGuard<'static, Model> {
    static MODEL: OnceLock<Mutex<Model>> = OnceLock::new();
    let model = MODEL.get_or_init(|| {
        let folder = settings::folder();
        let settings = settings::read(folder.as_deref());
        Mutex::new(Model::new(settings, Trace::new(folder)))
    });
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a function needs before it can do anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing.
    Nothing,
    /// `cuInit`.
    Driver,
    /// A context that is current.
    Context,
}

/// Makes a call of a function of the driver.
pub(crate) fn gate(function: &'static str, needs: Needs, run: impl FnOnce(&mut Model, &mut Note) -> Outcome) -> Code {
    if INSIDE.replace(true) {
        // A function of the host in a stream must not call the driver.
        return Code::CUDA_ERROR_NOT_PERMITTED;
    }
    let mut model = model();
    let mut note = Note::of_call(model.trace.next());
    let result = match model.allows(needs) {
        Ok(()) => match catch_unwind(AssertUnwindSafe(|| run(&mut model, &mut note))) {
            Ok(result) => result,
            Err(panic) => {
                model.violate(&format!("the model fails in {function}: {}", message(&*panic)));
                Err(Code::CUDA_ERROR_UNKNOWN)
            }
        },
        Err(code) => Err(code),
    };
    let code = result.err().unwrap_or(Code::CUDA_SUCCESS);
    model.trace.push(function, &note, code as u32);
    drop(model);
    INSIDE.set(false);
    code
}

impl Model {
    fn new(settings: Settings, trace: Trace) -> Self {
        Model {
            space: Space::new(settings.memory),
            random: Random::new(settings.seed),
            settings,
            trace,
            work: Work::new(),
            is_initialised: false,
            broken: None,
            retained: HashMap::new(),
            pool_threshold: HashMap::new(),
            streams: HashMap::new(),
            orphans: Vec::new(),
            per_thread: HashMap::new(),
            events: HashMap::new(),
            functions: HashMap::new(),
            modules: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            objects: HashMap::new(),
            captures: HashMap::new(),
            links: HashMap::new(),
            link_texts: HashMap::new(),
            gone: HashSet::new(),
            last_handle: 0x4000_0000,
        }
    }

    fn allows(&self, needs: Needs) -> Outcome {
        match needs {
            Needs::Nothing => Ok(()),
            _ if !self.is_initialised => Err(Code::CUDA_ERROR_NOT_INITIALIZED),
            Needs::Driver => Ok(()),
            Needs::Context if current() == 0 => Err(Code::CUDA_ERROR_INVALID_CONTEXT),
            Needs::Context => self.broken.map_or(Ok(()), Err),
        }
    }

    /// Notes that something was done whose outcome no driver promises.
    pub(crate) fn violate(&mut self, what: &str) {
        self.trace.violate(what);
    }

    /// Refuses what was called with a handle that means nothing, which is undefined where the handle has meant something.
    fn no_handle(&mut self, what: &str, handle: usize) -> Code {
        if self.gone.contains(&handle) {
            self.violate(&format!("{what} {handle:#x} is used after it was destroyed"));
        }
        Code::CUDA_ERROR_INVALID_HANDLE
    }

    pub(crate) fn new_handle(&mut self) -> usize {
        self.last_handle += 0x40;
        self.last_handle
    }

    /// Does one operation that is ready.
    fn perform(&mut self, id: u64) {
        let Some((point, action)) = self.work.take(id) else { return };
        let seed = self.random.next();
        if self.broken.is_none()
            && let Err(what) = action.run(&point, &mut self.space, seed)
        {
            self.violate(&what);
            let is_kernel = matches!(action, Action::Kernel(_));
            self.broken = is_kernel.then_some(Code::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        // One says as much as all.
        if let Some(race) = self.space.take_races().first() {
            self.violate(race);
        }
        self.work.complete(&point);
    }

    /// Does some of what can be done, as time goes by.
    fn let_time_pass(&mut self) {
        while self.settings.schedule == Schedule::Random && self.random.below(4) == 0 {
            let ready = self.work.ready();
            let chosen = self.random.below(ready.len());
            let Some(id) = ready.get(chosen) else { return };
            self.perform(*id);
        }
        if self.settings.schedule == Schedule::AtOnce {
            while let Some(id) = self.work.first_ready() {
                self.perform(id);
            }
        }
    }

    /// Does what leads to a point.
    fn reach(&mut self, point: &Point) -> Outcome {
        while !point.is_done() {
            self.step_to(point);
        }
        self.work.host_saw(point);
        self.broken.map_or(Ok(()), Err)
    }

    /// Does one operation of those that lead to a point, or, by chance, another.
    fn step_to(&mut self, point: &Point) {
        let leading = self.work.leading_to(point);
        let is_random = self.settings.schedule == Schedule::Random;
        let mut left = leading.len();
        while left > 0 && !point.is_done() {
            let stray = is_random && self.random.below(4) == 0;
            let ready: Vec<u64> = self.work.ready().into_iter().filter(|id| stray || leading.contains(id)).collect();
            let chosen = if is_random { self.random.below(ready.len()) } else { 0 };
            let Some(id) = ready.get(chosen) else { return };
            left -= usize::from(leading.contains(id));
            self.perform(*id);
        }
    }

    /// Whether a point has been reached, for somebody who only looks. Who looks often enough finds that it has.
    fn has_reached(&mut self, point: &Point) -> Result<bool, Code> {
        if !point.is_done() && self.random.below(2) == 0 {
            let leading = self.work.leading_to(point);
            if let Some(id) = self.work.ready().into_iter().find(|id| leading.contains(id)) {
                self.perform(id);
            }
        }
        if point.is_done() {
            self.work.host_saw(point);
        }
        self.broken.map_or(Ok(point.is_done()), Err)
    }
}
