//! What registers of PTX hold in a thread, as far as that follows from the thread's number.

use std::collections::BTreeMap;

/// The registers of a kernel, with the instructions that set them.
pub struct Registers<'a> {
    /// Per register, the instruction's name and its operands; `None` if several set it.
    set: BTreeMap<&'a str, Option<(&'a str, Vec<&'a str>)>>,
}

impl<'a> Registers<'a> {
    pub fn of(ptx: &'a str) -> Registers<'a> {
        let mut set = BTreeMap::new();
        for line in ptx.lines().filter_map(|line| line.trim().strip_suffix(';')) {
            let Some((name, operands)) = line.split_once(char::is_whitespace) else { continue };
            // Their first operand is the number of a barrier.
            if name.starts_with("bar.") {
                continue;
            }
            let mut operands = operands.split(',').map(str::trim);
            let Some(to) = operands.next().filter(|to| to.starts_with("%r") || to.starts_with("%p")) else { continue };
            let instruction = (name, operands.collect());
            set.entry(to).and_modify(|known| *known = None).or_insert(Some(instruction));
        }
        Registers { set }
    }

    /// The number that an operand is in a thread. What memory, parameters and loops say, where shared memory begins, and
    /// the results of instructions that are not known here count as zero.
    pub fn at(&self, operand: &str, thread: u32) -> u32 {
        if operand == "%tid.x" {
            return thread;
        }
        if !operand.starts_with('%') {
            return operand.parse::<i64>().map_or(0, |number| number as u32);
        }
        let Some(Some((name, operands))) = self.set.get(operand) else { return 0 };
        let number = |index: usize| self.at(operands[index], thread);
        let name: Vec<&str> = name.split('.').collect();
        match name.as_slice() {
            ["mov" | "cvt", ..] => number(0),
            ["add", ..] => number(0).wrapping_add(number(1)),
            ["sub", ..] => number(0).wrapping_sub(number(1)),
            ["mul", "lo", ..] => number(0).wrapping_mul(number(1)),
            ["and", ..] => number(0) & number(1),
            ["or", ..] => number(0) | number(1),
            ["xor", ..] => number(0) ^ number(1),
            ["shl", ..] => number(0) << number(1),
            ["shr", "u32" | "b32"] => number(0) >> number(1),
            ["bfe", "u32"] => number(0) >> number(1) & ((1 << number(2)) - 1),
            ["setp", "eq", ..] => u32::from(number(0) == number(1)),
            ["setp", "ne", ..] => u32::from(number(0) != number(1)),
            ["selp", ..] => number(if number(2) != 0 { 0 } else { 1 }),
            // From the first lane of the warp.
            ["shfl", "sync", "idx", ..] if operands[1] == "0" => self.at(operands[0], thread & !31),
            _ => 0,
        }
    }
}
