//! Upper halves of words whose 8-bit floats NVIDIA's assembler converts wrongly.
//!
//! ```text
//! mov.b32 %r1, 0;                                      ptxas, where it finds that %p never holds:
//! @%p ld.global.b32 %r1, [%rd1];
//! mov.b32 {_, %rs1}, %r1;
//! cvt.rn.f16x2.e4m3x2 %r2, %rs1;                       F2FP.F16.E4M3.UNPACK_B R2, 0x8: 2^-6, not 0
//! ```
//!
//! The instruction of the machine takes either half of a register. Where ptxas 13.0 to 13.5 puts a number, or memory of constants,
//! in the place of that register, it takes one that has nothing to do with either half. It does so for numbers that it finds late, as
//! those of loads that never happen, and of the first iteration of a loop.
//!
//! A half that is shifted down is a register of its own, and costs an instruction. What is loaded and nothing else cannot become a
//! number, and stays as it is. LLVM makes halves of much that is written otherwise, and so this is about PTX, as ptxas reads it.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::negations::reach;

const CONVERSIONS: [&str; 2] = ["cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e5m2x2"];

/// The PTX, with upper halves that are converted shifted down where their words may be known.
pub(crate) fn keep(ptx: String) -> String {
    if !CONVERSIONS.iter().any(|conversion| ptx.contains(conversion)) {
        return ptx;
    }
    let (converted, origins) = (converted(&ptx), Origins::of(&ptx));
    let mut kept = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        kept.push_str(line);
        if let Some((half, word)) = upper_half(line).filter(|(half, _)| converted.contains(half))
            && !origins.are_loads(word)
        {
            let _ = writeln!(kept, "\t{{ .reg .b32 %low; shr.u32 %low, {word}, 16; cvt.u16.u32 {half}, %low; }}");
        }
    }
    kept
}

/// An instruction without its predicate: the mnemonic, and the operands.
fn instruction(line: &str) -> Option<(&str, &str)> {
    let mut text = line.trim().strip_suffix(';')?;
    if let Some(guarded) = text.strip_prefix('@') {
        text = guarded.split_once(char::is_whitespace)?.1.trim_start();
    }
    let (mnemonic, operands) = text.split_once(char::is_whitespace)?;
    (!mnemonic.starts_with(['.', '{'])).then_some((mnemonic, operands.trim()))
}

/// The operands of an instruction, vectors as one.
fn operands(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = text.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    split.map(str::trim).collect()
}

/// The parts of a vector, or the one register.
fn parts(operand: &str) -> impl Iterator<Item = &str> {
    operand.trim_matches(['{', '}']).split(',').map(str::trim)
}

/// What a line takes the upper half of, and where it goes.
fn upper_half(line: &str) -> Option<(&str, &str)> {
    let ("mov.b32", text) = instruction(line)? else { return None };
    let [halves, word] = operands(text)[..] else { return None };
    let (_, half) = halves.strip_prefix('{')?.strip_suffix('}')?.split_once(',')?;
    Some((half.trim(), word))
}

/// The registers of 16 bits that are converted, as they are or by moves and choices.
fn converted(ptx: &str) -> HashSet<&str> {
    let mut found = HashSet::new();
    let mut ways = Vec::new();
    for (mnemonic, text) in ptx.lines().filter_map(instruction) {
        match (mnemonic, &operands(text)[..]) {
            (_, [_, from]) if CONVERSIONS.contains(&mnemonic) => {
                found.insert(*from);
            }
            ("mov.b16" | "mov.u16" | "selp.b16" | "selp.u16", [to, from @ ..]) => ways.push((*to, from.to_vec())),
            _ => {}
        }
    }
    reach(&mut found, &ways);
    found
}

/// Where the words of registers come from.
struct Origins<'a> {
    /// The registers that each is made of by moves and choices alone, and is not otherwise but by loads.
    moved: HashMap<&'a str, Vec<&'a str>>,
    /// Those that something else makes.
    others: HashSet<&'a str>,
}

impl<'a> Origins<'a> {
    fn of(ptx: &'a str) -> Self {
        let mut origins = Origins { moved: HashMap::new(), others: HashSet::new() };
        for line in ptx.lines() {
            let Some((mnemonic, text)) = instruction(line) else {
                // Whatever several instructions in one line do.
                let is_name = |c: char| c.is_alphanumeric() || "%_$".contains(c);
                origins.others.extend(line.split(|c| !is_name(c)).filter(|name| name.starts_with("%r")));
                continue;
            };
            let all = operands(text);
            let (Some(to), from) = (all.first(), &all[1..]) else { continue };
            let loads = mnemonic.starts_with("ld.global")
                || mnemonic.starts_with("ld.shared")
                || mnemonic.starts_with("ldmatrix");
            for register in parts(to) {
                match mnemonic {
                    _ if loads || register.starts_with('[') => {}
                    "mov.b32" | "mov.u32" => origins.moved.entry(register).or_default().extend(from),
                    "selp.b32" | "selp.u32" => {
                        origins.moved.entry(register).or_default().extend(&from[..from.len().min(2)])
                    }
                    _ => {
                        origins.others.insert(register);
                    }
                }
            }
        }
        origins
    }

    /// Whether all that a word can be is loaded.
    fn are_loads(&self, word: &'a str) -> bool {
        let (mut work, mut seen) = (vec![word], HashSet::new());
        while let Some(register) = work.pop() {
            // Numbers are no registers.
            if !register.starts_with("%r") || self.others.contains(register) {
                return false;
            }
            if seen.insert(register) {
                work.extend(self.moved.get(register).into_iter().flatten());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::keep;

    /// How many halves are shifted down.
    fn shifted(body: &str) -> usize {
        let ptx = format!(".visible .entry k()\n{{\n{body}\nret;\n}}\n");
        let kept = keep(ptx.clone());
        let is_new = |line: &str| line.contains("shr.u32 %low, %r1, 16; cvt.u16.u32 %rs1, %low;");
        let others: String = kept.split_inclusive('\n').filter(|line| !is_new(line)).collect();
        assert_eq!(others, ptx, "nothing else changes");
        kept.lines().filter(|line| is_new(line)).count()
    }

    const CONVERTED: &str = "\tmov.b32 \t{_, %rs1}, %r1;\n\tcvt.rn.f16x2.e4m3x2 %r2, %rs1;";

    #[test]
    fn halves_of_words_that_may_be_known_are_shifted() {
        for word in [
            "\tmov.b32 %r1, 0;\n\t@%p1 ld.global.nc.b32 %r1, [%rd1];",
            "\tmov.b32 %r5, 1077952576;\n\tmov.b32 %r1, %r5;\n\t@%p1 ld.global.nc.v2.b32 {%r3, %r1}, [%rd1];",
            "\tselp.b32 \t%r1, %r3, 7, %p1;\n\tld.global.b32 %r3, [%rd1];",
            "\tld.const.b32 \t%r1, [%rd1];",
            "\tadd.s32 \t%r1, %r3, %r4;",
            "\tld.global.b32 %r1, [%rd1];\n\t{ .reg .b32 %low; mov.b32 %low, 5; mov.b32 %r1, %low; }",
        ] {
            assert_eq!(shifted(&format!("{word}\n{CONVERTED}")), 1, "{word}");
            let both = CONVERTED.replace("{_, %rs1}", "{%rs2, %rs1}").replace("e4m3x2", "e5m2x2");
            assert_eq!(shifted(&format!("{word}\n{both}")), 1, "{word}");
        }
        let moved = CONVERTED.replace(";\n", ";\n\tmov.b16 \t%rs3, %rs1;\n").replace("%r2, %rs1", "%r2, %rs3");
        assert_eq!(shifted(&format!("\tmov.b32 %r1, 7;\n{moved}")), 1, "a half that is moved");
    }

    #[test]
    fn halves_of_what_is_loaded_stay() {
        for word in [
            "\tld.global.nc.v2.b32 {%r3, %r1}, [%rd1];",
            "\t@%p1 ld.shared.b32 %r1, [%r9];",
            "\tldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3, %r1}, [%r9];",
            "\tld.global.b32 %r1, [%rd1];\n\tmov.b32 \t%r3, %r1;\n\tselp.b32 \t%r1, %r3, %r1, %p1;",
        ] {
            assert_eq!(shifted(&format!("{word}\n{CONVERTED}")), 0, "{word}");
        }
    }

    #[test]
    fn all_else_stays() {
        let known = "\tmov.b32 %r1, 0;";
        assert_eq!(shifted(&format!("{known}\n{}", CONVERTED.replace("e4m3x2", "bf16x2"))), 0);
        assert_eq!(shifted(&format!("{known}\n{}", CONVERTED.replace("{_, %rs1}", "{%rs1, _}"))), 0, "the lower half");
        assert_eq!(shifted(&format!("{known}\n{}", CONVERTED.replace("%r2, %rs1", "%r2, %rs2"))), 0);
    }
}
