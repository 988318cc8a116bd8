//! Barriers with numbers, at which so many threads meet: some wait there, others arrive and go on.

use std::collections::BTreeMap;

use super::parse::Instruction;
use super::run::{Block, State};

/// Whether an instruction is a barrier that says how many threads come to it.
pub(super) fn counts_threads(instruction: &Instruction) -> bool {
    let is_barrier = matches!(instruction.name.as_str(), "bar" | "barrier");
    let is_of_a_warp = instruction.modifiers.iter().any(|modifier| modifier == "warp");
    is_barrier && !is_of_a_warp && instruction.operands.len() == if is_vote(instruction) { 4 } else { 2 }
}

/// Whether the threads that meet learn what any of them has found: a result first, and a predicate last.
fn is_vote(instruction: &Instruction) -> bool {
    let has = |name: &str| instruction.modifiers.iter().any(|modifier| modifier == name);
    assert!(!has("red") || has("or"), "votes of another kind: {}", instruction.text);
    has("red")
}

impl Block<'_> {
    /// A thread arrives at a barrier, and waits for nobody.
    pub(super) fn arrive(&mut self, thread: usize, instruction: &Instruction) {
        let [number, count] = [0, 1].map(|operand| self.value(thread, &instruction.operands[operand]));
        let arrived = self.arrivals.entry(number).or_default();
        *arrived += 1;
        assert!(*arrived < count, "nobody waits for {arrived} threads that have arrived: {}", instruction.text);
    }

    /// Lets the threads go on that wait at barriers to which all have come.
    pub(super) fn meet(&mut self) -> bool {
        let mut waiting: BTreeMap<u64, (u64, Vec<usize>)> = BTreeMap::new();
        for (thread, state) in self.threads.iter().enumerate() {
            let Some(instruction) = self.program.instructions.get(state.pc) else { continue };
            if state.state == State::Waiting && counts_threads(instruction) {
                let at = usize::from(is_vote(instruction));
                let [number, count] = [at, at + 1].map(|operand| self.value(thread, &instruction.operands[operand]));
                let (expected, threads) = waiting.entry(number).or_insert((count, Vec::new()));
                assert_eq!(*expected, count, "threads expect others in other numbers: {}", instruction.text);
                threads.push(thread);
            }
        }
        let mut progress = false;
        for (number, (count, threads)) in waiting {
            let all = self.arrivals.get(&number).copied().unwrap_or_default() + threads.len() as u64;
            assert!(all <= count, "{all} threads at barrier {number}, to which {count} come");
            if all == count {
                self.arrivals.remove(&number);
                self.count_votes(&threads);
                for thread in threads {
                    self.threads[thread].pc += 1;
                    self.threads[thread].state = State::Ready;
                }
                progress = true;
            }
        }
        progress
    }

    /// Tells threads that meet what any of them has found, where their barrier asks.
    fn count_votes(&mut self, threads: &[usize]) {
        let program = self.program;
        let at = |thread: usize| &program.instructions[self.threads[thread].pc];
        if !threads.iter().any(|&thread| is_vote(at(thread))) {
            return;
        }
        let found = threads.iter().any(|&thread| match at(thread).operands.as_slice() {
            [_, _, _, found] => self.value(thread, found) & 1 != 0,
            _ => panic!("threads vote at a barrier where others do not: {}", at(thread).text),
        });
        for &thread in threads {
            self.set(thread, &program.instructions[self.threads[thread].pc].operands[0], u64::from(found));
        }
    }
}
