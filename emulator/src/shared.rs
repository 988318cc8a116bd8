//! Atomic operations on shared memory.

use super::parse::Instruction;
use super::run::Block;

impl Block<'_> {
    /// An addition to a word.
    pub(super) fn update_shared(&mut self, thread: usize, instruction: &Instruction) {
        assert!(instruction.modifiers.ends_with(&["add".into(), "u32".into()]), "{}", instruction.text);
        let operands = &instruction.operands;
        let (at, by) = (self.value(thread, &operands[1]) as usize, self.value(thread, &operands[2]));
        let place = &mut self.shared[at..at + 4];
        let old = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        place.copy_from_slice(&old.wrapping_add(by as u32).to_le_bytes());
        self.set(thread, &operands[0], u64::from(old));
    }
}
