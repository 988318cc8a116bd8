//! Random delays.
//!
//! All lanes of a warp sleep equally long, so that they stay together for what warps do together. Half of the delays
//! are none: warps then meet both those that hurry and those that lag.

use kernel_llvm::AsmEffects;

use super::Lower;

impl Lower<'_, '_> {
    /// A delay: a hash of the seed, of the warp's number and of the clock, which differs from iteration to iteration
    /// of a loop.
    pub(super) fn delay(&self, seed: u32, longest: u32) {
        let assembly = format!(
            "{{\n\t.reg .b32 mixed, time;\n\
             \tmov.u32 mixed, %tid.x;\n\tshr.u32 mixed, mixed, 5;\n\
             \tmov.u32 time, %clock;\n\txor.b32 time, time, {seed};\n\
             \tmad.lo.u32 time, mixed, 0x9e3779b1, time;\n\tmul.lo.u32 time, time, 0x85ebca6b;\n\
             \tshr.u32 mixed, time, 13;\n\txor.b32 time, time, mixed;\n\tmul.lo.u32 time, time, 0xc2b2ae35;\n\
             \tshr.u32 mixed, time, 16;\n\txor.b32 time, time, mixed;\n\
             \tshr.s32 mixed, time, 31;\n\tand.b32 time, time, mixed;\n\tand.b32 time, time, {longest};\n\
             \tnanosleep.u32 time;\n}}"
        );
        self.ir.asm(&[], &assembly, "", &[], AsmEffects::ConvergentMemory);
    }
}
