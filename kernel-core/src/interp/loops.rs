//! Loops: where a program goes on, and where its [`Turn`](super::turn::Turn) may end.

use super::executor::{Executor, Exit, Flow};
use super::instructions::ForBounds;
use super::registers::{LoopId, Pc, RegId};
use super::turn::{LoopState, Pause};

impl Executor<'_> {
    pub(super) fn for_begin(&mut self, state: LoopId, bounds: &ForBounds, index: RegId, exit: Pc) -> Flow {
        let dtype = self.info(index).lane.dtype();
        let value = |reg| self.scalar(reg).to_int(dtype);
        let (lo, hi, step) = (value(bounds.lo), value(bounds.hi), value(bounds.step));
        if step <= 0 || lo >= hi {
            return Flow::Goto(exit);
        }
        let left = (hi - lo - 1) / step;
        let (first, step) = if bounds.reverse { (lo + left * step, -step) } else { (lo, step) };
        self.loops[state.0 as usize] = LoopState { index: first, step, left };
        self.set_int(index, first);
        Flow::Next
    }

    pub(super) fn for_next(&mut self, pc: Pc, state: LoopId, index: RegId, body: Pc) -> Flow {
        if self.turn.is_late() {
            return self.stop_late(pc);
        }
        let state = &mut self.loops[state.0 as usize];
        if state.left == 0 {
            return Flow::Next;
        }
        state.left -= 1;
        state.index += state.step;
        let value = state.index;
        self.set_int(index, value);
        Flow::Goto(body)
    }

    /// The end of a `while`'s body, which goes back to its condition.
    pub(super) fn again(&mut self, pc: Pc, to: Pc, waits: bool) -> Flow {
        if self.turn.is_late() {
            return self.stop_late(pc);
        }
        if waits && self.turn.ends() {
            self.turn.pause = Pause { at: pc, next: to };
            return Flow::Exit(Exit::Paused);
        }
        Flow::Goto(to)
    }

    #[cold]
    fn stop_late(&mut self, pc: Pc) -> Flow {
        match self.launch.deadline {
            Some(deadline) => self.stop(pc, deadline.fault()),
            // A clock comes of a deadline.
            None => Flow::Exit(Exit::Stopped),
        }
    }
}
