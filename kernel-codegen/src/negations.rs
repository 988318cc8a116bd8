//! Negations that NVIDIA's assembler loses.
//!
//! ```text
//! neg.s32 %r5, %r1;                                VIMNMX3 R0, R0, R1, R2     the negation of R1 is gone
//! max.s32 %r8, %r4, %r5;        ptxas makes
//! max.s32 %r9, %r8, %r2;
//! ```
//!
//! Hopper has an instruction for the largest or smallest of three integers. ptxas 13.0 takes a negation as part of its
//! second operand, where the instruction has none to give: signed integers of 16 and 32 bits, `min` and `max`,
//! whatever way the negation is written (from 0, times -1). What it cannot see through, it does not take along: the two
//! halves of a word, or a word that is extended and cut again. Neither is an instruction of the machine for 32 bits.
//!
//! LLVM makes negations and limits of much that is written otherwise, and so this is about PTX, as ptxas reads it.

use std::collections::HashSet;
use std::fmt::Write;

const LIMITS: [&str; 4] = ["max.s32", "min.s32", "max.s16", "min.s16"];

/// The PTX, with negations that limits of signed integers use kept apart from these.
pub(crate) fn keep(ptx: String) -> String {
    if !LIMITS.iter().any(|limit| ptx.contains(limit)) {
        return ptx;
    }
    let used = limited(&ptx);
    if used.is_empty() {
        return ptx;
    }
    let mut kept = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        kept.push_str(line);
        if let Some((bits, register)) = negated(line).filter(|(_, register)| used.contains(register)) {
            let _ = writeln!(kept, "{}", opaque(bits, register));
        }
    }
    kept
}

/// Registers that reach an operand of `min` or `max`, as they are or by moves and choices.
fn limited(ptx: &str) -> HashSet<&str> {
    let mut used: HashSet<&str> = HashSet::new();
    let mut ways: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in ptx.lines() {
        let Some((mnemonic, operands)) = instruction(line) else { continue };
        match mnemonic {
            _ if LIMITS.contains(&mnemonic) => used.extend(&operands[1..]),
            "mov.b32" | "mov.u32" | "mov.b16" | "mov.u16" | "selp.b32" | "selp.b16" => {
                ways.push((operands[0], operands[1..].to_vec()));
            }
            _ => {}
        }
    }
    reach(&mut used, &ways);
    used
}

/// Adds the registers that reach those that are there, each of which is made of some others.
pub(crate) fn reach<'a>(found: &mut HashSet<&'a str>, ways: &[(&'a str, Vec<&'a str>)]) {
    loop {
        let before = found.len();
        for (to, from) in ways {
            if found.contains(to) {
                found.extend(from);
            }
        }
        if found.len() == before {
            return;
        }
    }
}

/// The mnemonic of an instruction without a predicate, and its operands.
fn instruction(line: &str) -> Option<(&str, Vec<&str>)> {
    let (mnemonic, operands) = line.trim().strip_suffix(';')?.split_once(char::is_whitespace)?;
    let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
    (!mnemonic.starts_with(['@', '.', '{']) && operands.len() > 1).then_some((mnemonic, operands))
}

/// The register that a line negates into, and its bits.
fn negated(line: &str) -> Option<(u32, &str)> {
    let (mnemonic, operands) = instruction(line)?;
    let (operation, ty) = mnemonic.rsplit_once('.')?;
    let bits = match ty {
        "s32" | "u32" | "b32" => 32,
        "s16" | "u16" | "b16" => 16,
        _ => return None,
    };
    let negates = matches!(
        (operation, operands.as_slice()),
        ("neg", [_, _]) | ("sub", [_, "0", _]) | ("mul.lo", [_, _, "-1"]) | ("mad.lo", [_, _, "-1", "0"])
    );
    negates.then_some((bits, operands[0]))
}

/// The same number, in a way that ptxas does not see through.
fn opaque(bits: u32, register: &str) -> String {
    match bits {
        16 => format!("\t{{ .reg .b32 %word; cvt.s32.s16 %word, {register}; cvt.u16.u32 {register}, %word; }}"),
        _ => format!(
            "\t{{ .reg .b16 %low, %high; mov.b32 {{%low, %high}}, {register}; mov.b32 {register}, {{%low, %high}}; }}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::keep;

    fn guards(body: &str) -> usize {
        let ptx = format!(".visible .entry k()\n{{\n{body}\nret;\n}}\n");
        let kept = keep(ptx.clone());
        let others: String = kept.split_inclusive('\n').filter(|line| !line.contains("{ .reg")).collect();
        assert_eq!(others, ptx, "nothing else changes");
        kept.matches("{ .reg").count()
    }

    #[test]
    fn negations_in_limits_are_kept() {
        for negation in [
            "neg.s32 \t%r2, %r1;",
            "sub.s32 \t%r2, 0, %r1;",
            "mul.lo.s32 \t%r2, %r1, -1;",
            "mad.lo.s32 \t%r2, %r1, -1, 0;",
        ] {
            assert_eq!(guards(&format!("\t{negation}\n\tmax.s32 \t%r4, %r3, %r2;")), 1, "{negation}");
        }
        assert_eq!(guards("\tneg.s16 \t%rs2, %rs1;\n\tmin.s16 \t%rs4, %rs3, %rs2;"), 1);
        assert_eq!(guards("\tneg.s32 \t%r2, %r1;\n\tmin.s32 \t%r4, %r2, %r3;"), 1, "the first operand");
    }

    /// A word as its halves, a half as a word.
    #[test]
    fn registers_are_kept_as_wide_as_they_are() {
        let kept = keep("\tneg.s16 \t%rs2, %rs1;\n\tmin.s16 \t%rs4, %rs3, %rs2;\n".to_string());
        assert!(kept.contains("cvt.s32.s16 %word, %rs2; cvt.u16.u32 %rs2, %word;"), "{kept}");
        let kept = keep("\tneg.s32 \t%r2, %r1;\n\tmin.s32 \t%r4, %r3, %r2;\n".to_string());
        assert!(kept.contains("mov.b32 {%low, %high}, %r2; mov.b32 %r2, {%low, %high};"), "{kept}");
    }

    #[test]
    fn negations_that_come_by_moves_are_kept() {
        let body = "\tneg.s32 \t%r2, %r1;\n\tmov.b32 \t%r5, %r2;\n\tselp.b32 \t%r6, %r7, %r5, %p1;\n\
                    \tmin.s32 \t%r4, %r6, %r3;";
        assert_eq!(guards(body), 1);
        let chosen_last = body.replace("%r7, %r5, %p1", "%r5, %r7, %p1");
        assert_eq!(guards(&chosen_last), 1);
    }

    #[test]
    fn all_else_stays() {
        assert_eq!(guards("\tneg.s32 \t%r2, %r1;\n\tadd.s32 \t%r4, %r3, %r2;"), 0);
        assert_eq!(guards("\tneg.s32 \t%r2, %r1;\n\tmax.s32 \t%r4, %r3, %r1;"), 0);
        assert_eq!(guards("\tneg.s64 \t%rd2, %rd1;\n\tmax.s64 \t%rd4, %rd3, %rd2;"), 0);
        assert_eq!(guards("\tsub.s32 \t%r2, 1, %r1;\n\tmax.s32 \t%r4, %r3, %r2;"), 0);
    }
}
