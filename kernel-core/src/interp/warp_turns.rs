//! Turns of the two halves of a warp group, of which one waits while the other has its turn.
//!
//! A group is one thread here, and does for both halves at once what they do one after the other. So it keeps what the half
//! that waits has not done yet: from where its turn begins until the other's has ended, it arrives at no barrier. A slot that
//! is free only if both have arrived is not free before that, and a wait for it in the turn is found to be a deadlock.

use super::executor::{Executor, Flow};
use super::fault::FaultKind;
use super::registers::Pc;

/// An arrival of those who wait for their turn: the barrier, by position.
pub(super) type Late = usize;

impl Executor<'_> {
    /// A half has its turn, for which the other waits.
    pub(super) fn turn_begin(&mut self, pc: Pc) -> Flow {
        match &mut self.turn_of_group() {
            Some(_) => self.no_turn(pc, "a turn begins in a turn, which nobody has ended"),
            none => {
                **none = Some(Vec::new());
                Flow::Next
            }
        }
    }

    /// The other half has had its turn, too.
    pub(super) fn turn_end(&mut self, pc: Pc) -> Flow {
        match self.turn_of_group().take() {
            Some(late) => {
                late.into_iter().for_each(|position| self.arrived(position, 0));
                Flow::Next
            }
            None => self.no_turn(pc, "a turn ends that has not begun"),
        }
    }

    /// Whether an arrival has to wait until the turn ends; remembers it.
    pub(super) fn arrives_late(&mut self, position: Late) -> bool {
        let turn = self.turn_of_group();
        if let Some(late) = turn {
            late.push(position);
        }
        turn.is_some()
    }

    /// All threads of the group meet: none may be waiting for its turn.
    pub(super) fn all_come(&mut self, pc: Pc) -> Flow {
        match self.turn_of_group() {
            Some(_) => self.no_turn(pc, "threads meet in a turn, for which half of them wait"),
            None => Flow::Next,
        }
    }

    /// The group has ended at `pc`: nobody waits for its turn any more.
    pub(super) fn last_turn(&mut self, pc: Pc) {
        if self.turn_of_group().is_some() {
            self.no_turn(pc, "a warp group ends in a turn, for which half of it waits");
        }
    }

    fn turn_of_group(&mut self) -> &mut Option<Vec<Late>> {
        &mut self.gpu.queues[self.gpu.current].turn
    }

    fn no_turn(&mut self, pc: Pc, message: &str) -> Flow {
        self.stop(pc, FaultKind::Turn { message: message.to_string() })
    }
}
