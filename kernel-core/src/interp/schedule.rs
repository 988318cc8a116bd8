//! Which program runs when, and on which thread.
//!
//! Each thread takes programs from the grid, in order, and runs one after the other on one executor. That is all for
//! kernels whose programs do not wait for each other.
//!
//! Where a loop may wait ([`Code::waits`](super::code::Code::waits)), a program runs for a [turn](super::turn). If it
//! has not ended then, it is put aside with its executor, which is its registers and tiles, and the thread goes on with
//! others:
//!
//! ```text
//! take the next programs from the grid, and give each its first turn
//! give each program put aside a turn, until a sweep over them ends none
//! ```
//!
//! A sweep is finite and each one that does not lead to new programs ends one, so every program gets turn after turn,
//! whatever the others do: progress is fair with any number of programs and threads. Programs stay with the thread that
//! began them, which needs no lock, and a launch that waits for nothing outside of it ends.
//!
//! What it costs is governed by three choices:
//!
//! - **Lengths of turns.** The first is long: most waits are over within it. Later ones are short for programs that
//!   have only looked at memory, as those wait, and grow for programs that have changed some, as those work.
//! - **How many programs are put aside.** Each keeps its tiles. As long as those put aside work, few are added;
//!   where all wait, who they wait for may be anywhere in the grid, so their number doubles with every sweep, and the
//!   sweeps to the end of the grid cost as much as twice the last one.
//! - **Order.** Sweeps go up and down the grid in turns, so a chain of programs each of which waits for its neighbour is
//!   done after two, in whichever direction it goes.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::ir::Span;

use super::executor::{Executor, Launch};
use super::fault::{Fault, FaultKind};
use super::registers::Pc;
use super::turn::Pause;

/// At most so many programs are taken from the grid at a time.
const MAX_CHUNK: u64 = 256;
/// Iterations in loops that may wait, of a program's first turn: some 20 us of waiting.
const FIRST_TURN: u32 = 256;
/// Iterations of a later turn, if the program did nothing but wait in the last one.
const WAITING_TURN: u32 = 16;
/// At most so many iterations has a turn of a program that works.
const LONGEST_TURN: u32 = 4096;
/// While programs put aside work, one is added for so many of them.
const WORKING_PER_NEW: u64 = 8;

/// Runs a grid of so many programs on the threads of the current rayon pool; returns its first fault.
pub(super) fn run_grid(launch: &Launch<'_>, total: u64) -> Result<(), Fault> {
    let threads = (rayon::current_num_threads() as u64).min(total);
    let chunk = match launch.code.waits {
        // In order, as a program rather waits for those before it.
        true => 1,
        false => (total / (threads.max(1) * 16)).clamp(1, MAX_CHUNK),
    };
    let grid = Grid {
        launch,
        total,
        chunk,
        next: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        first: Mutex::new(None),
    };
    match threads {
        0 => {}
        // A single program is not worth waking a thread for.
        1 => grid.work(),
        _ => (0..threads).into_par_iter().for_each(|_| grid.work()),
    }
    let first = grid.first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    first.map_or(Ok(()), |(_, _, fault)| Err(fault))
}

/// What a fault means for the launch: of several, it returns one of the first kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// The launch could not be run.
    Unsupported,
    /// A program went wrong. If others then wait for what it would have done, this is the cause.
    Program,
    /// A program had not ended in time.
    Late,
    /// A program had not begun in time.
    NotBegun,
}

/// The grid of a launch, which threads share.
struct Grid<'l> {
    launch: &'l Launch<'l>,
    /// Programs.
    total: u64,
    /// Programs that are taken at a time.
    chunk: u64,
    /// The first program that nobody has taken.
    next: AtomicU64,
    /// A thread has given the launch up.
    stopped: AtomicBool,
    /// The first fault so far, with its program's linear index.
    first: Mutex<Option<(Rank, u64, Fault)>>,
}

impl Grid<'_> {
    /// Takes programs; `None` if there are no more.
    fn take(&self, count: u64) -> Option<Range<u64>> {
        let start = self.next.fetch_add(count, Ordering::Relaxed);
        (start < self.total).then(|| start..self.total.min(start + count))
    }

    fn program_id(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [index % x, index / x % y, index / x / y].map(|i| i as u32)
    }

    fn report(&self, rank: Rank, index: u64, fault: Fault) {
        let mut first = self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.as_ref().is_none_or(|&(other, earlier, _)| (rank, index) < (other, earlier)) {
            *first = Some((rank, index, fault));
        }
    }

    /// Reports how a program ended.
    fn ended(&self, index: u64, fault: Option<Fault>) {
        if let Some(fault) = fault {
            let rank = match &fault.kind {
                FaultKind::TimeLimit { .. } => Rank::Late,
                FaultKind::OutOfBounds { .. }
                | FaultKind::Assert { .. }
                | FaultKind::SharedOutOfBounds { .. }
                | FaultKind::Deadlock { .. }
                | FaultKind::Turn { .. }
                | FaultKind::Race { .. } => Rank::Program,
                FaultKind::InvalidLaunch { .. } | FaultKind::Unsupported { .. } => Rank::Unsupported,
            };
            self.report(rank, index, fault);
        }
    }

    /// Reports that a program is stopped at `at` by the limit of time, unless something else stops the launch.
    fn late(&self, rank: Rank, index: u64, at: Pc) {
        if let Some(deadline) = self.launch.deadline.filter(|_| !self.stopped.load(Ordering::Relaxed)) {
            let span = self.launch.code.spans.get(at.index()).copied().unwrap_or(Span::UNKNOWN);
            self.report(rank, index, Fault::new(deadline.fault(), span, self.program_id(index)));
        }
    }

    /// An executor for one more program of a thread on which so many wait. Without memory for it the launch is given up.
    fn executor(&self, waiting: usize) -> Option<Executor<'_>> {
        let executor = Executor::new(self.launch);
        if executor.is_none() {
            let bytes = self.launch.code.arena_bytes;
            let message = match waiting {
                0 => format!("no memory for the kernel's tiles: {bytes} bytes per thread"),
                _ => {
                    format!("no memory for the kernel's tiles: {bytes} bytes for each of {waiting} programs that wait")
                }
            };
            let fault = Fault::of_launch(FaultKind::Unsupported { message });
            self.report(Rank::Unsupported, 0, fault);
            self.stopped.store(true, Ordering::Relaxed);
        }
        executor
    }

    /// Whether nothing has to run any more.
    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.launch.deadline.is_some_and(|deadline| deadline.has_passed())
    }

    /// What one thread does.
    fn work(&self) {
        if let Some(executor) = self.executor(0) {
            Worker { grid: self, executor, waiting: Vec::new(), spare: Vec::new(), downwards: false }.run();
        }
    }
}

/// A program put aside.
struct Waiting<'g> {
    /// Its linear index.
    index: u64,
    executor: Box<Executor<'g>>,
    pause: Pause,
}

impl Waiting<'_> {
    /// Gives the program a turn; says whether it has ended.
    fn run_turn(&mut self, grid: &Grid<'_>) -> bool {
        let last = &self.executor.turn;
        let iterations = if last.changed { last.length().saturating_mul(2).min(LONGEST_TURN) } else { WAITING_TURN };
        match self.executor.run_turn(self.pause.next, iterations) {
            Some(pause) => {
                self.pause = pause;
                false
            }
            None => {
                grid.ended(self.index, self.executor.fault.take());
                true
            }
        }
    }
}

/// One thread's share of a launch.
struct Worker<'g> {
    grid: &'g Grid<'g>,
    /// What programs run on, until one is put aside.
    executor: Executor<'g>,
    /// The programs put aside.
    waiting: Vec<Waiting<'g>>,
    /// Machines of programs that ended after they had been put aside.
    spare: Vec<Executor<'g>>,
    /// Whether the next sweep goes down the grid.
    downwards: bool,
}

impl Worker<'_> {
    /// Runs programs until none is left, or the launch is over.
    fn run(&mut self) {
        let mut count = self.grid.chunk;
        while let Some(indices) = self.grid.take(count) {
            for index in indices {
                if self.grid.is_over() {
                    self.grid.late(Rank::NotBegun, index, Pc(0));
                    return self.give_up();
                }
                if !self.begin(index) {
                    return self.give_up();
                }
            }
            let mut working = false;
            while !self.waiting.is_empty() {
                let ended = self.sweep();
                working = self.waiting.iter().any(|program| program.executor.turn.changed);
                if self.grid.is_over() {
                    return self.give_up();
                }
                if !ended {
                    break;
                }
            }
            count = self.count(working);
        }
        while !self.waiting.is_empty() {
            let ended = self.sweep();
            if self.grid.is_over() {
                return self.give_up();
            }
            if !ended {
                // Programs of other threads have to do something.
                std::thread::yield_now();
            }
        }
    }

    /// How many programs begin next.
    fn count(&self, working: bool) -> u64 {
        match self.waiting.len() as u64 {
            0 => self.grid.chunk,
            waiting if working => (waiting / WORKING_PER_NEW).max(1),
            waiting => waiting,
        }
    }

    /// Gives a program its first turn. False if there was no memory for going on.
    fn begin(&mut self, index: u64) -> bool {
        self.executor.begin(self.grid.program_id(index));
        let Some(pause) = self.executor.run_turn(Pc(0), FIRST_TURN) else {
            self.grid.ended(index, self.executor.fault.take());
            return true;
        };
        let Some(next) = self.spare.pop().or_else(|| self.grid.executor(self.waiting.len() + 1)) else { return false };
        let executor = Box::new(std::mem::replace(&mut self.executor, next));
        self.waiting.push(Waiting { index, executor, pause });
        true
    }

    /// Gives each program put aside a turn, or as many as there is time for; says whether any has ended.
    fn sweep(&mut self) -> bool {
        self.waiting.sort_unstable_by_key(|program| program.index);
        if self.downwards {
            self.waiting.reverse();
        }
        self.downwards = !self.downwards;
        let (grid, before) = (self.grid, self.waiting.len());
        let ended = self.waiting.extract_if(.., |program| !grid.is_over() && program.run_turn(grid));
        self.spare.extend(ended.map(|program| *program.executor));
        self.waiting.len() < before
    }

    /// Stops the programs put aside.
    fn give_up(&mut self) {
        for program in self.waiting.drain(..) {
            match program.executor.fault {
                Some(fault) => self.grid.ended(program.index, Some(fault)),
                None => self.grid.late(Rank::Late, program.index, program.pause.at),
            }
        }
    }
}
