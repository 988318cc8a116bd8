//! The code of the hardware as [`Code`], from what `nvdisasm -c` prints.
//!
//! ```text
//! .L_x_1:
//!         /*0140*/    HGMMA.64x16x16.F32 R24, R40, gdesc[UR8], RZ, !UPT, gsb0 ;
//!         /*0160*/    @P0 BRA `(.L_x_0) ;
//! ```
//!
//! An instruction has a general register as result if its first operand is one, or the second behind a predicate; how
//! many registers follow from its name. Names that are not listed here are refused: what they write is not known.

use std::collections::BTreeMap;

use super::flow::{Code, Guard, Register, Step, Write};

/// The number of the first word of the stack, beyond those of registers.
const STACK: Register = 1 << 16;

/// Instructions without a result in general registers. Those of the uniform registers begin with `U`, and have none either.
const WITHOUT_RESULT: &[&str] = &[
    "ACQBULK",
    "ARRIVES",
    "BAR",
    "BMOV",
    "BPT",
    "BRA",
    "BREAK",
    "BSSY",
    "BSYNC",
    "CALL",
    "CGAERRBAR",
    "CCTL",
    "CCTLL",
    "DEPBAR",
    "DSETP",
    "ELECT",
    "ENDCOLLECTIVE",
    "ERRBAR",
    "EXIT",
    "FCHK",
    "FENCE",
    "FSETP",
    "HSETP2",
    "ISETP",
    "KILL",
    "LDGDEPBAR",
    "LDGSTS",
    "MEMBAR",
    "NANOSLEEP",
    "NOP",
    "PLOP3",
    "PREEXIT",
    "PSETP",
    "R2P",
    "R2UR",
    "R2B",
    "RED",
    "REDG",
    "RET",
    "S2UR",
    "ST",
    "STG",
    "STL",
    "STS",
    "STSM",
    "VOTEU",
    "WARPGROUP",
    "WARPSYNC",
    "YIELD",
    "REDUX",
    "LDCU",
    "RPCMOV",
];
/// Instructions with one, of as many registers as [`width`] says.
const WITH_RESULT: &[&str] = &[
    "ATOM",
    "ATOMG",
    "ATOMS",
    "BREV",
    "CS2R",
    "DADD",
    "DFMA",
    "DMMA",
    "DMUL",
    "F2F",
    "F2FP",
    "F2I",
    "FADD",
    "FFMA",
    "FLO",
    "FMNMX",
    "FMUL",
    "FRND",
    "FSEL",
    "FSET",
    "FSWZADD",
    "HADD2",
    "HFMA2",
    "HGMMA",
    "HMMA",
    "HMNMX2",
    "HMUL2",
    "HSET2",
    "I2F",
    "I2FP",
    "I2I",
    "IABS",
    "IADD3",
    "IDP",
    "IGMMA",
    "IMAD",
    "IMMA",
    "IMNMX",
    "LD",
    "LDC",
    "LDG",
    "LDL",
    "LDS",
    "LDSM",
    "LEA",
    "LEPC",
    "LOP3",
    "MATCH",
    "MOV",
    "MOVM",
    "MUFU",
    "P2R",
    "POPC",
    "PRMT",
    "QGMMA",
    "QMMA",
    "S2R",
    "SEL",
    "SGXT",
    "SHF",
    "SHFL",
    "SYNCS",
    "VABSDIFF",
    "VIADD",
    "VIADDMNMX",
    "VIMNMX",
    "VIMNMX3",
    "VOTE",
    "BMSK",
    "B2R",
    "HADD2_32",
];

/// Reads a disassembled kernel.
///
/// # Errors
/// If it contains an instruction that is not known here, or jumps to nowhere.
pub fn read(listing: &str) -> Result<Code, String> {
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines: Vec<&str> = Vec::new();
    for line in listing.lines().map(str::trim) {
        let instruction = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/"));
        let is_number = |text: &str| text.len() >= 4 && text.chars().all(|c| c.is_ascii_hexdigit());
        match instruction {
            Some((offset, text)) if is_number(offset) && text.contains(';') => {
                // Remarks stand in brackets with stars.
                lines.push(text.split(';').next().and_then(|text| text.split("(*").next()).unwrap_or_default().trim());
            }
            Some(_) => {}
            None => {
                if let Some(label) = line.strip_suffix(':') {
                    labels.insert(label, lines.len());
                }
            }
        }
    }
    let mut steps = lines.iter().enumerate().map(|(at, text)| step(at, text)).collect::<Result<Vec<Step>, String>>()?;
    jumps(&mut steps, &labels)?;
    let count = steps.len();
    steps.iter_mut().for_each(|step| step.next.retain(|&next| next < count));
    Ok(Code { steps })
}

/// The predicate that a name stands for, and whether it is negated. Uniform ones have other numbers.
fn predicate(name: &str) -> Option<(Register, bool)> {
    let plain = name.trim_start_matches('!');
    let (uniform, number) = match plain.strip_prefix("UP") {
        Some(number) => (8, number),
        None => (0, plain.strip_prefix('P')?),
    };
    let number: Register = number.parse().ok()?;
    Some((uniform + number, !name.starts_with('!')))
}

/// The general register at the start of an operand.
fn register(operand: &str) -> Option<Register> {
    let digits = operand.strip_prefix('R')?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// An instruction, without what it may jump to.
fn step(at: usize, text: &str) -> Result<Step, String> {
    let (guard, rest) = match text.strip_prefix('@') {
        Some(guarded) => {
            let (name, rest) = guarded.split_once(char::is_whitespace).ok_or(text)?;
            let guard = match predicate(name) {
                Some((register, value)) => Guard::If(register, value),
                // PT or UPT: always, or never.
                None => Guard::If(Register::MAX, !name.starts_with('!')),
            };
            (guard, rest.trim())
        }
        None => (Guard::Always, text),
    };
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
    let name = opcode.split('.').next().unwrap_or_default();
    let predicates = operands.iter().filter_map(|operand| predicate(operand)).map(|(number, _)| number).collect();
    let result = operands.iter().take(2).find(|operand| !is_predicate(operand));
    let first = result.and_then(|operand| register(operand));
    let writes = if let Some(moved) = spilled(opcode, name, &operands) {
        moved
    } else if WITH_RESULT.contains(&name) {
        let width = width(opcode, name).ok_or_else(|| format!("a width that is not known here: `{text}`"))?;
        let numbers = first.map_or(0..0, |first| first..first + width);
        let source = source(opcode, name, &operands).filter(|_| width == 1);
        numbers.map(|register| Write { register, copied_from: source.into_iter().collect() }).collect()
    } else if WITHOUT_RESULT.contains(&name) || name.starts_with('U') {
        Vec::new()
    } else {
        return Err(format!("an instruction of the hardware that is not known here: `{text}`"));
    };
    let factors =
        factors(opcode, name, &operands).ok_or_else(|| format!("a product that is not known here: `{text}`"))?;
    let ends = matches!(name, "EXIT" | "BRA" | "RET" | "CALL") && guard == Guard::Always && !is_conditional(&operands);
    let next = if ends { vec![] } else { vec![at + 1] };
    Ok(Step { text: text.to_string(), guard, writes, predicates, factors, next })
}

/// The register that an instruction does nothing but copy.
fn source(opcode: &str, name: &str, operands: &[&str]) -> Option<Register> {
    match name {
        "MOV" => register(operands.get(1)?),
        // The last register is added to a product of zeros.
        "IMAD" if opcode.starts_with("IMAD.MOV") => register(operands.last()?),
        _ => None,
    }
}

/// What is written by an instruction that brings registers to the stack, or back: places on it count as registers.
fn spilled(opcode: &str, name: &str, operands: &[&str]) -> Option<Vec<Write>> {
    let (address, value) = match (name, operands) {
        ("STL", &[address, value]) => (address, value),
        ("LDL", &[value, address]) => (address, value),
        _ => return None,
    };
    let (address, first) = (stack_place(address)?, register(value));
    let write = |offset: Register| {
        let place = STACK + address / 4 + offset;
        match first {
            Some(first) if name == "LDL" => Write { register: first + offset, copied_from: vec![place] },
            // RZ is no register: what it stores is zero.
            first => Write { register: place, copied_from: first.map(|first| first + offset).into_iter().collect() },
        }
    };
    Some((0..width(opcode, "LDL")?).map(write).collect())
}

/// The offset of an address on the stack, to which `R1` points; `None` for one that is computed.
fn stack_place(address: &str) -> Option<Register> {
    let inside = address.strip_prefix("[R1")?.strip_suffix(']')?;
    match inside.strip_prefix("+0x") {
        Some(offset) => Register::from_str_radix(offset, 16).ok(),
        None => inside.is_empty().then_some(0),
    }
}

fn is_predicate(operand: &str) -> bool {
    let plain = operand.trim_start_matches('!');
    predicate(plain).is_some() || plain == "PT" || plain == "UPT"
}

/// Whether a jump has a condition among its operands.
fn is_conditional(operands: &[&str]) -> bool {
    operands.first().is_some_and(|operand| is_predicate(operand)) || operands.len() > 1
}

/// How many registers an instruction with a result writes.
fn width(opcode: &str, name: &str) -> Option<Register> {
    let has = |part: &str| opcode.split('.').skip(1).any(|own| own == part);
    Some(match name {
        "HGMMA" | "QGMMA" | "IGMMA" => {
            let columns: Register = opcode.split('.').nth(1)?.split('x').nth(1)?.parse().ok()?;
            // The first type is that of the sums.
            if opcode.split('.').nth(2)? == "F16" { columns / 4 } else { columns / 2 }
        }
        "HMMA" if opcode.split('.').nth(2)? == "F16" => 2,
        "HMMA" | "QMMA" => 4,
        "IMMA" if has("8816") || has("8832") => 2,
        "IMMA" => 4,
        "DMMA" if has("884") => 4,
        "DMMA" => 8,
        "LD" | "LDC" | "LDG" | "LDL" | "LDS" | "ATOM" | "ATOMG" | "ATOMS" if has("128") => 4,
        "LD" | "LDC" | "LDG" | "LDL" | "LDS" | "ATOM" | "ATOMG" | "ATOMS" if has("64") => 2,
        "LDSM" if has("4") => 4,
        "LDSM" if has("2") => 2,
        "CS2R" => 2 - Register::from(has("32")),
        "DADD" | "DFMA" | "DMUL" | "LEPC" => 2,
        "F2F" | "I2F" | "FRND" if has("F64") => 2,
        "F2I" if has("S64") || has("U64") => 2,
        "IMAD" if has("WIDE") => 2,
        _ => 1,
    })
}

/// The registers in which a product finds its factors.
fn factors(opcode: &str, name: &str, operands: &[&str]) -> Option<Vec<Register>> {
    let part = |number: usize| opcode.split('.').nth(number);
    let (left, right) = match (name, part(1).unwrap_or_default()) {
        ("HGMMA" | "QGMMA" | "IGMMA", _) => (4, 0),
        ("HMMA", "1688") if opcode.ends_with("TF32") => (4, 2),
        ("HMMA", "16816") | ("IMMA", "16832") | ("QMMA", "16832") => (4, 2),
        ("HMMA", "1688") | ("IMMA", "16816") | ("HMMA", "1684") | ("QMMA", "16816") => (2, 1),
        ("IMMA", "8816") => (1, 1),
        ("DMMA", "884") => (2, 2),
        ("DMMA", "1684") => (4, 2),
        ("DMMA", "1688") => (8, 4),
        ("DMMA", "16816") => (16, 8),
        ("HMMA" | "IMMA" | "QMMA" | "DMMA", _) => return None,
        _ => (0, 0),
    };
    let of = |place: usize, count: Register| {
        let first = operands.get(place).and_then(|operand| register(operand));
        first.map_or(0..0, |first| first..first + count)
    };
    Some(of(1, left).chain(of(2, right)).collect())
}

/// Adds what jumps, calls and returns go to. A call is followed by its function, whose returns go behind all its calls.
fn jumps(steps: &mut [Step], labels: &BTreeMap<&str, usize>) -> Result<(), String> {
    let mut calls: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, step) in steps.iter_mut().enumerate() {
        let text = &step.text;
        let name = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default();
        if !matches!(name, "BRA" | "CALL") {
            continue;
        }
        let target = text.split_once("`(").and_then(|(_, rest)| rest.split_once(')')).map(|(label, _)| label);
        let target = target.and_then(|label| labels.get(label)).copied();
        let target = target.ok_or_else(|| format!("a jump to nowhere: `{text}`"))?;
        let is_call = name == "CALL";
        step.next.push(target);
        if is_call {
            calls.entry(target).or_default().push(at + 1);
        }
    }
    for (function, behind) in calls {
        for end in returns(steps, function) {
            steps[end].next.extend(&behind);
        }
    }
    Ok(())
}

/// The returns that are reached from the start of a function.
fn returns(steps: &[Step], function: usize) -> Vec<usize> {
    let (mut seen, mut work, mut found) = (vec![false; steps.len()], vec![function], Vec::new());
    while let Some(at) = work.pop() {
        if at >= steps.len() || std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let is_return = steps[at].text.split_whitespace().any(|word| word.starts_with("RET."));
        if is_return {
            found.push(at);
        }
        work.extend(&steps[at].next);
    }
    found
}
