//! A layout as code: the parts that depend on the thread, and constants per register.

use super::linear::{extract, field};
use super::{LayoutDim, LinearLayout};

/// A value that is the XOR of one contribution per set bit of the thread's lane, warp and block.
///
/// ```text
/// bases lane [4, 8, 16, 1, 2]:  value = (lane & 7) << 2 ^ (lane & 24) >> 3
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LinearForm {
    /// Per input dimension, the contribution of each of its bits.
    pub bases: Vec<(LayoutDim, Vec<u32>)>,
}

/// One term of a [`LinearForm`]: some bits of one input, moved together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftTerm {
    /// The input.
    pub input: LayoutDim,
    /// The bits of the input that take part.
    pub mask: u32,
    /// How far the bits move to the left; negative to the right.
    pub shift: i32,
}

impl ShiftTerm {
    /// The term's value where its input is `value`.
    pub fn evaluate(&self, value: u32) -> u32 {
        let bits = value & self.mask;
        if self.shift >= 0 { bits << self.shift } else { bits >> -self.shift }
    }
}

impl LinearForm {
    /// The form's value at a point; inputs that are not named are zero.
    pub fn evaluate(&self, point: &[(LayoutDim, u32)]) -> u32 {
        let mut sum = 0;
        for (dim, bases) in &self.bases {
            let value = point.iter().find(|(name, _)| name == dim).map_or(0, |&(_, value)| value);
            let bits = bases.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1);
            sum ^= bits.fold(0, |sum, (_, base)| sum ^ base);
        }
        sum
    }

    /// The bits that the form can set.
    pub fn mask(&self) -> u32 {
        self.bases.iter().flat_map(|(_, bases)| bases).fold(0, |mask, base| mask | base)
    }

    /// Whether the form is zero everywhere.
    pub fn is_zero(&self) -> bool {
        self.mask() == 0
    }

    /// The form as the XOR of the fewest masked shifts that move each bit on its own diagonal.
    ///
    /// Terms that set no bit in common may be added or OR-ed instead.
    pub fn terms(&self) -> Vec<ShiftTerm> {
        let mut terms: Vec<ShiftTerm> = Vec::new();
        for (input, bases) in &self.bases {
            for (bit, &base) in bases.iter().enumerate() {
                for target in (0..32).filter(|target| base >> target & 1 == 1) {
                    let shift = target - bit as i32;
                    match terms.iter_mut().find(|term| term.input == *input && term.shift == shift) {
                        Some(term) => term.mask |= 1 << bit,
                        None => terms.push(ShiftTerm { input: *input, mask: 1 << bit, shift }),
                    }
                }
            }
        }
        terms
    }
}

/// One output coordinate of a layout, ready for code generation:
/// the coordinate of register `r` is `thread ^ registers[r]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinateForm {
    /// The part that depends on the thread: the same for all its registers.
    pub thread: LinearForm,
    /// A constant per register.
    pub registers: Vec<u32>,
}

impl CoordinateForm {
    /// Whether the constants share no bits with the thread's part, so that they may be added.
    pub fn is_additive(&self) -> bool {
        let mask = self.thread.mask();
        self.registers.iter().all(|constant| constant & mask == 0)
    }
}

impl LinearLayout {
    /// The coordinate along `out` as a form over (lane, warp, block) and a constant per register.
    pub fn coordinate_form(&self, out: LayoutDim) -> CoordinateForm {
        let range = field(&self.outs, out);
        let count = 1u64 << self.in_bits(LayoutDim::Register);
        let start = field(&self.ins, LayoutDim::Register).start;
        let constant = |register: u64| extract(self.apply_flat(register << start), &range) as u32;
        let threads = self.ins.iter().filter(|(dim, _)| *dim != LayoutDim::Register);
        CoordinateForm {
            thread: LinearForm { bases: threads.map(|&(dim, _)| (dim, self.bases_along(dim, out))).collect() },
            registers: (0..count).map(constant).collect(),
        }
    }
}
