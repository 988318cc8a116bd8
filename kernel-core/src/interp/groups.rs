//! Warp groups as coroutines of one program: each runs until it has to wait at a barrier, or its turn ends.
//!
//! When all groups wait and nothing has moved, that is a [deadlock](super::FaultKind::Deadlock). When the turn of a group
//! ends, the others have theirs before the program lets other programs run; where each group goes on is parked until then.

use super::executor::{Executor, Exit, Flow};
use super::gpu_state::{Parked, Queue, Running};
use super::registers::Pc;
use super::turn::Pause;

/// What came of a turn of each group.
enum Round {
    /// All have ended.
    Done,
    /// Some have to go on.
    Again,
    /// A turn ended there.
    Paused(Pc),
    /// The program has ended.
    Exit(Exit),
}

impl Executor<'_> {
    /// Runs warp groups in turns until all have ended, or the program lets others run.
    pub(super) fn warp_groups(&mut self, pc: Pc, entries: &[Pc], exit: Pc) -> Flow {
        let mut running = match self.gpu.parked.pop_if(|parked| parked.at == pc) {
            Some(parked) => parked.running,
            None => self.begin_groups(entries),
        };
        loop {
            match self.run_groups(&mut running) {
                Round::Again => {}
                Round::Done => break,
                Round::Exit(exit) => return Flow::Exit(exit),
                Round::Paused(at) => {
                    self.gpu.current = running.around;
                    self.gpu.parked.push(Parked { at: pc, running });
                    self.turn.pause = Pause { at, next: pc };
                    return Flow::Exit(Exit::Paused);
                }
            }
        }
        self.gpu.current = running.around;
        self.all_meet();
        for mut queue in self.gpu.queues.split_off(running.first_queue) {
            self.gpu.orphans.append(&mut queue.flights.stores);
        }
        Flow::Goto(exit)
    }

    fn begin_groups(&mut self, entries: &[Pc]) -> Running {
        let (around, first_queue) = (self.gpu.current, self.gpu.queues.len());
        self.all_meet();
        self.gpu.queues.extend(entries.iter().map(|_| Queue::default()));
        Running { groups: entries.iter().copied().map(Some).collect(), first_queue, around }
    }

    /// Runs each group until it waits, ends or has had its turn.
    fn run_groups(&mut self, running: &mut Running) -> Round {
        let (mut progress, mut waiting, mut paused) = (false, None, None);
        for (i, group) in running.groups.iter_mut().enumerate() {
            let Some(at) = *group else { continue };
            self.gpu.current = running.first_queue + i;
            self.turn.refill();
            match self.exec(at) {
                Exit::RegionEnd => {
                    (*group, progress) = (None, true);
                    self.last_turn(at);
                }
                Exit::Blocked { at, moved } => {
                    *group = Some(at);
                    progress |= moved;
                    waiting.get_or_insert(at);
                }
                Exit::Paused => {
                    *group = Some(self.turn.pause.next);
                    paused.get_or_insert(self.turn.pause.at);
                }
                stopped @ (Exit::Returned | Exit::Stopped) => return Round::Exit(stopped),
            }
        }
        match (paused, waiting) {
            (Some(at), _) => Round::Paused(at),
            (None, None) => Round::Done,
            (None, Some(_)) if progress => Round::Again,
            (None, Some(at)) => {
                self.deadlock(at);
                Round::Exit(Exit::Stopped)
            }
        }
    }
}
