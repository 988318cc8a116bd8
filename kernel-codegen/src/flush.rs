//! `.ftz` where f32 is computed, and nowhere else.
//!
//! ```text
//! mul.rn.ftz.f16x2 %r3, %r1, %r2;  becomes  mul.rn.f16x2 %r3, %r1, %r2;
//! neg.ftz.f32      %r2, %r1;       becomes  neg.f32      %r2, %r1;
//! cvt.ftz.f32.bf16 %r2, %rs1;      becomes  cvt.f32.bf16 %r2, %rs1;
//! ```
//!
//! A function of LLVM that flushes f32 flushes f16 with it, where its target computes in f16. A sign it changes by an
//! instruction that flushes, or in the bits, whichever is at hand. Kernels that flush keep what is subnormal in f16, and
//! signs are changed in bits: what flushes then does not depend on what is near. A bf16 is the upper half of an f32: without
//! `.ftz` ptxas shifts it there, with it it converts by an instruction (`F2F`) of the unit that has exponentials, a quarter as
//! fast. What computes with the f32 flushes it.

/// The PTX of a kernel that flushes, with `.ftz` on arithmetic and comparisons of f32 alone.
pub(crate) fn of_f32_alone(ptx: &str) -> String {
    ptx.split_inclusive('\n')
        .map(|line| if keeps(line) { line.replacen(".ftz", "", 1) } else { line.to_string() })
        .collect()
}

/// Whether the instruction of a line is none of f32's arithmetic.
fn keeps(line: &str) -> bool {
    let Some(mnemonic) = line.split_ascii_whitespace().find(|word| word.contains(".ftz")) else { return false };
    let is_sign = mnemonic.starts_with("neg.") || mnemonic.starts_with("abs.");
    let is_half = [".f16", ".f16x2", ".bf16", ".bf16x2"].iter().any(|ty| mnemonic.ends_with(ty));
    let is_shift = mnemonic == "cvt.ftz.f32.bf16";
    is_sign || is_shift || is_half && !mnemonic.starts_with("cvt.")
}

#[cfg(test)]
mod tests {
    use super::of_f32_alone;

    #[test]
    fn only_arithmetic_of_f32_flushes() {
        for (before, after) in [
            ("\tmul.rn.ftz.f16x2 \t%r3, %r1, %r2;\n", "\tmul.rn.f16x2 \t%r3, %r1, %r2;\n"),
            ("\tsetp.lt.ftz.f16 \t%p1, %rs1, %rs2;\n", "\tsetp.lt.f16 \t%p1, %rs1, %rs2;\n"),
            ("\tneg.ftz.f32 \t%r2, %r1;\n", "\tneg.f32 \t%r2, %r1;\n"),
            ("\t@%p1 abs.ftz.f32 \t%r2, %r1;\n", "\t@%p1 abs.f32 \t%r2, %r1;\n"),
            ("\tfma.rn.ftz.f32 \t%r2, %r1, %r1, %r1;\n", "\tfma.rn.ftz.f32 \t%r2, %r1, %r1, %r1;\n"),
            ("\tcvt.ftz.f32.f16 \t%r2, %rs1;\n", "\tcvt.ftz.f32.f16 \t%r2, %rs1;\n"),
            ("\tcvt.ftz.f32.bf16 \t%r2, %rs1;\n", "\tcvt.f32.bf16 \t%r2, %rs1;\n"),
        ] {
            assert_eq!(of_f32_alone(before), after);
        }
    }
}
