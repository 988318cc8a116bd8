//! Additions to global memory whose old values nobody asks for.

use super::arithmetic::compute;
use super::global::{Global, Touch};
use super::parse::{Instruction, Operand};
use super::run::{Block, little};

impl Block<'_> {
    /// `red.add` of a vector: its words are `f32`, or pairs of 16-bit floats.
    pub(super) fn add_vector(&mut self, thread: usize, instruction: &Instruction, memory: &mut dyn Global) {
        let kind = instruction.modifiers.last().expect("a type");
        let (lane, bytes) = match kind.strip_suffix("x2") {
            Some(lane) => (lane, 2),
            None => (kind.as_str(), 4),
        };
        let is_addition = instruction.modifiers.iter().any(|modifier| modifier == "add");
        assert!(is_addition && ["f32", "f16", "bf16"].contains(&lane), "{}", instruction.text);
        let mut addition = instruction.clone();
        addition.name = "add".to_string();
        *addition.modifiers.last_mut().expect("a type") = lane.to_string();
        let words = match &instruction.operands[1] {
            Operand::Vector(words) => words.clone(),
            word => vec![word.clone()],
        };
        let address = self.value(thread, &instruction.operands[0]);
        let place = memory.at(address, 4 * words.len(), Touch::Update, &instruction.text);
        for (place, word) in place.chunks_mut(4).zip(&words) {
            let added = (self.value(thread, word) as u32).to_le_bytes();
            for (place, added) in place.chunks_mut(bytes).zip(added.chunks(bytes)) {
                let sum = compute(&addition, &[little(place), little(added)]).expect("an addition");
                place.copy_from_slice(&sum.to_le_bytes()[..bytes]);
            }
        }
    }
}
