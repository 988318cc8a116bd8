//! Loops, and what interrupts a program: the end of its turn, and the launch's limit of time.
//!
//! Instructions without end pass the end of a loop again and again, so a program is interrupted there and nowhere
//! else. Two things are counted:
//!
//! - **Iterations of loops that may wait** for other programs. Only a `while` that reads memory which others may write can
//!   wait: every `for` ends by itself, and what a loop computes from its own values does not depend on others. After
//!   as many iterations as the [`Turn`] has, the program lets others run; it goes on where it was, as all that it has are
//!   a position and its registers.
//! - **Time**, if the launch has a limit: loops of every kind look at the clock, about once in a millisecond.
//!
//! Kernels without such loops never let others run, and launches without a limit never look at the clock.

use std::time::{Duration, Instant};

use super::fault::FaultKind;
use super::registers::Pc;

/// The state of a running `for`.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LoopState {
    pub index: i128,
    pub step: i128,
    /// Iterations after this one.
    pub left: i128,
}

/// When a launch has to have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub at: Instant,
    /// How long the launch may take, for messages.
    pub limit: Duration,
}

impl Deadline {
    /// The deadline of a launch that begins now; none if that time cannot be told.
    pub(super) fn after(limit: Duration) -> Option<Deadline> {
        Some(Deadline { at: Instant::now().checked_add(limit)?, limit })
    }

    pub(super) fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }

    pub(super) fn fault(self) -> FaultKind {
        FaultKind::TimeLimit { limit: self.limit }
    }
}

/// Looks at the time once in some iterations, so that iterations of a few instructions do not pay for it.
#[derive(Debug)]
struct Clock {
    deadline: Instant,
    /// When it was looked at.
    last: Instant,
    /// Iterations until it is looked at again.
    left: u32,
    /// Iterations between two looks.
    stride: u32,
}

impl Clock {
    /// The time between two looks that it aims at.
    const PERIOD: Duration = Duration::from_millis(1);
    /// At most so many iterations pass without a look: a look takes some 30 ns, an iteration rarely less than 100 ns.
    const MAX_STRIDE: u32 = 64;

    fn new(deadline: Deadline) -> Clock {
        Clock { deadline: deadline.at, last: Instant::now(), left: 1, stride: 1 }
    }

    /// Counts an iteration; says whether the deadline is known to have passed.
    #[cold]
    fn has_passed(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        let now = Instant::now();
        let took = now - self.last;
        if took < Self::PERIOD / 2 {
            self.stride = (self.stride * 2).min(Self::MAX_STRIDE);
        } else if took > Self::PERIOD {
            self.stride = (self.stride / 2).max(1);
        }
        (self.last, self.left) = (now, self.stride);
        now >= self.deadline
    }
}

/// How long a program may run before others do, and what it has done so far.
#[derive(Debug)]
pub(super) struct Turn {
    /// Iterations in loops that may wait, of each warp group.
    length: u32,
    /// Those that are left.
    left: u32,
    /// Whether the program has changed memory that others can see: it does more than wait.
    pub changed: bool,
    /// Where the turn ended, if iterations ended it.
    pub pause: Pause,
    clock: Option<Clock>,
}

/// Where a program goes on in its next turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// The end of the loop in which its turn ended.
    pub at: Pc,
    pub next: Pc,
}

impl Turn {
    /// A turn of at least one iteration.
    pub(super) fn new(length: u32, deadline: Option<Deadline>) -> Turn {
        let length = length.max(1);
        let pause = Pause { at: Pc::UNPATCHED, next: Pc::UNPATCHED };
        Turn { length, left: length, changed: false, pause, clock: deadline.map(Clock::new) }
    }

    /// Lets the next warp group have as many iterations.
    pub(super) fn refill(&mut self) {
        self.left = self.length;
    }

    /// Counts an iteration of a loop that may wait; says whether it was the last of this turn.
    pub(super) fn ends(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Whether the launch has a limit of time, and it has passed.
    #[inline(always)]
    pub(super) fn is_late(&mut self) -> bool {
        self.clock.as_mut().is_some_and(Clock::has_passed)
    }

    /// As many iterations as the turn had at its beginning.
    pub(super) fn length(&self) -> u32 {
        self.length
    }
}
