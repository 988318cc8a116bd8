//! Regions that compute single elements: on all of them at once, or, where they have loops, on one after the other.

use std::ptr;

use super::executor::{Executor, Exit, Flow};
use super::instructions::Map;
use super::lanes::Bits;

impl Executor<'_> {
    pub(super) fn map(&mut self, map: &Map) -> Flow {
        let inputs: Vec<*const u8> = map.inputs.iter().map(|&input| self.dense(input)).collect();
        let done = if map.vectorised { self.map_at_once(map, &inputs) } else { self.map_in_turn(map, &inputs) };
        match done {
            Ok(()) => {
                map.outputs.iter().for_each(|&output| self.set_dense(output));
                Flow::Goto(map.code.end)
            }
            Err(exit) => Flow::Exit(exit),
        }
    }

    fn map_at_once(&mut self, map: &Map, inputs: &[*const u8]) -> Result<(), Exit> {
        for reg in map.code.regs.clone() {
            self.regs[reg as usize].n = map.n;
        }
        for (&reg, &data) in map.code.left.iter().zip(inputs) {
            self.set_data(reg, data, false);
        }
        self.run_region(&map.code)?;
        for (&reg, &output) in map.code.yields.iter().zip(&map.outputs) {
            let (from, to, bytes) = (self.dense(reg), self.reg(output).home, self.info(output).lane.bytes());
            // SAFETY: the region computed `n` elements, and the result has room for them, in a place of its own.
            unsafe { ptr::copy(from, to, map.n * bytes) };
        }
        Ok(())
    }

    fn map_in_turn(&mut self, map: &Map, inputs: &[*const u8]) -> Result<(), Exit> {
        for at in 0..map.n {
            for ((&reg, &data), &input) in map.code.left.iter().zip(inputs).zip(&map.inputs) {
                let (mut bits, bytes) = (Bits::ZERO, self.info(input).lane.bytes());
                // SAFETY: each input has `n` elements of that size, which is eight bytes at most.
                unsafe { ptr::copy_nonoverlapping(data.add(at * bytes), bits.as_mut_ptr(), bytes) };
                self.set_splat(reg, bits);
            }
            self.run_region(&map.code)?;
            for (&reg, &output) in map.code.yields.iter().zip(&map.outputs) {
                let (bits, to, bytes) = (self.scalar(reg), self.reg(output).home, self.info(output).lane.bytes());
                // SAFETY: each result has room for `n` elements of that size.
                unsafe { ptr::copy_nonoverlapping(bits.as_ptr(), to.add(at * bytes), bytes) };
            }
        }
        Ok(())
    }
}
