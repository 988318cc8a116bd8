//! Promises are kept: a hint gives its operand, and a broken one ends the program.

use super::executor::{Executor, Flow};
use super::fault::FaultKind;
use super::instructions::Hint;
use super::lanes::Bits;
use super::registers::Pc;
use crate::ir::HintKind;

impl Executor<'_> {
    pub(super) fn hint(&mut self, pc: Pc, hint: &Hint) -> Flow {
        if !self.keeps(hint) {
            return self.stop(pc, FaultKind::Assert { message: hint.message.to_string() });
        }
        self.copy_value(hint.a, hint.out);
        Flow::Next
    }

    /// Whether the operand is as promised.
    fn keeps(&mut self, hint: &Hint) -> bool {
        let info = self.info(hint.a);
        let (dtype, bytes) = (info.lane.dtype(), info.lane.bytes());
        let size = info.dims.get(hint.axis).copied().unwrap_or(1);
        // Elements from one to the next along the axis.
        let stride: usize = info.dims.iter().skip(hint.axis + 1).product();
        let count: usize = info.dims.iter().product();
        let data = self.dense(hint.a);
        let element = |index: usize| {
            let mut bits = Bits::ZERO;
            // SAFETY: `dense` returns `count` elements of `bytes` bytes each, at most eight.
            unsafe { std::ptr::copy_nonoverlapping(data.add(index * bytes), bits.as_mut_ptr(), bytes) };
            bits.to_int(dtype)
        };
        let holds = |index: usize| {
            let first = ((index / stride) % size).is_multiple_of(hint.n);
            match hint.kind {
                HintKind::Holds => element(index) != 0,
                HintKind::Contiguous if first => element(index) % hint.multiple as i128 == 0,
                HintKind::Constant if first => true,
                HintKind::Constant => element(index) == element(index - stride),
                HintKind::Contiguous => {
                    let step = element(index) - element(index - stride);
                    // Modulo the width, as sums wrap.
                    step.rem_euclid(1 << dtype.bits()) == 1
                }
            }
        };
        (0..count).all(holds)
    }
}
