//! PTX as [`Code`]: what is written where, as far as factors of matrix products need it.

use std::collections::BTreeMap;

use super::flow::{Code, Guard, Register, Step, Write};

/// Instructions that write no register.
const WITHOUT_RESULT: &[&str] = &[
    "st",
    "bra",
    "bar",
    "barrier",
    "fence",
    "membar",
    "cp",
    "ret",
    "exit",
    "trap",
    "stmatrix",
    "setmaxnreg",
    "nanosleep",
    "prefetch",
    "red",
    "griddepcontrol",
    "discard",
];
/// Those that write their first operand.
const WITH_RESULT: &[&str] = &[
    "mov",
    "add",
    "sub",
    "mul",
    "mad",
    "fma",
    "div",
    "rem",
    "cvt",
    "cvta",
    "setp",
    "or",
    "and",
    "xor",
    "not",
    "shl",
    "shr",
    "shf",
    "selp",
    "slct",
    "ld",
    "ldu",
    "mma",
    "ldmatrix",
    "mbarrier",
    "wgmma",
    "shfl",
    "bfe",
    "bfi",
    "max",
    "min",
    "ex2",
    "lg2",
    "prmt",
    "rcp",
    "neg",
    "abs",
    "atom",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "lop3",
    "set",
    "popc",
    "clz",
    "brev",
    "bfind",
    "vote",
    "match",
    "redux",
    "elect",
    "activemask",
    "dp4a",
    "dp2a",
    "copysign",
];
/// Special registers whose names have no parts. Nothing writes them.
const SPECIAL: &[&str] = &["%nsmid", "%smid", "%laneid", "%warpid", "%clock", "%clock64", "%globaltimer"];

/// Reads the PTX of a kernel.
///
/// # Errors
/// If it contains an instruction that is not known here.
pub fn read(ptx: &str) -> Result<Code, String> {
    let body = ptx.find('{').map_or("", |start| &ptx[start..]);
    let mut reader = Reader::default();
    for line in body.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        reader.line(line)?;
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    numbers: BTreeMap<String, Register>,
    /// Blocks in braces: their numbers, and the names that are declared in them.
    scopes: Vec<(usize, Vec<String>)>,
    opened: usize,
    labels: BTreeMap<String, usize>,
    /// Jumps, and the labels that they name, as seen from where they stand, innermost first.
    jumps: Vec<(usize, Vec<String>)>,
    steps: Vec<Step>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut rest = line;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('{') {
                self.scopes.push((self.opened, Vec::new()));
                self.opened += 1;
                rest = inside.trim_start();
            } else if let Some(outside) = rest.strip_prefix('}') {
                self.scopes.pop();
                rest = outside.trim_start();
            } else if let Some((label, behind)) = rest.split_once(':').filter(|(label, _)| is_name(label)) {
                let label = self.local(label, self.scopes.len());
                self.labels.insert(label, self.steps.len());
                rest = behind.trim_start();
            } else {
                let (statement, behind) = rest.split_once(';').unwrap_or((rest, ""));
                self.statement(statement.trim())?;
                rest = behind.trim_start();
            }
        }
        Ok(())
    }

    /// A name in the innermost of so many scopes.
    fn local(&self, name: &str, depth: usize) -> String {
        let scope = depth.checked_sub(1).and_then(|at| self.scopes.get(at)).map_or(0, |(number, _)| *number);
        if scope == 0 { name.to_string() } else { format!("{name}#{scope}") }
    }

    fn statement(&mut self, text: &str) -> Result<(), String> {
        if let Some(declared) = text.strip_prefix(".reg") {
            let names = declared.split_whitespace().skip(1).collect::<String>();
            let names = names.split(',').map(str::to_string);
            if let Some((_, known)) = self.scopes.last_mut() {
                known.extend(names);
            }
            return Ok(());
        }
        if text.is_empty() || text.starts_with('.') {
            return Ok(());
        }
        let (guard, rest) = match text.strip_prefix('@') {
            Some(guarded) => {
                let (name, rest) = guarded.split_once(char::is_whitespace).ok_or(text)?;
                let register = self.register(name.trim_start_matches('!'));
                (Guard::If(register, !name.starts_with('!')), rest.trim())
            }
            None => (Guard::Always, text),
        };
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operands = split(operands);
        let name = opcode.split('.').next().unwrap_or_default();
        let at = self.steps.len();
        let mut step =
            Step { text: text.to_string(), guard, writes: vec![], predicates: vec![], factors: vec![], next: vec![] };
        for word in operands.iter().flat_map(|operand| names_in(operand)) {
            step.predicates.push(self.register(word));
        }
        let is_asynchronous = opcode.starts_with("wgmma.mma_async");
        if WITH_RESULT.contains(&name) || is_asynchronous {
            step.writes = self.writes(opcode, &operands);
        } else if !WITHOUT_RESULT.contains(&name) && name != "wgmma" {
            return Err(format!("an instruction of PTX that is not known here: `{text}`"));
        }
        let factors: Vec<&String> = match () {
            () if is_asynchronous => operands.iter().skip(1).take(1).filter(|a| a.starts_with('{')).collect(),
            () if opcode.starts_with("mma.sync") => operands.iter().skip(1).take(2).collect(),
            () => Vec::new(),
        };
        step.factors = factors.into_iter().flat_map(|operand| names_in(operand)).map(|n| self.register(n)).collect();
        if name == "bra" {
            let target = operands.first().ok_or(text)?;
            let seen = (0..=self.scopes.len()).rev().map(|depth| self.local(target, depth)).collect();
            self.jumps.push((at, seen));
        }
        let ends = matches!(name, "ret" | "exit" | "trap" | "bra") && guard == Guard::Always;
        step.next.extend((!ends).then_some(at + 1));
        self.steps.push(step);
        Ok(())
    }

    /// What an instruction with a result writes: its first operand, unless that is an address.
    fn writes(&mut self, opcode: &str, operands: &[String]) -> Vec<Write> {
        let sources = match opcode.split('.').next() {
            Some("mov") => operands.len(),
            Some("selp" | "prmt") => 2,
            // Between integers the bits stay; floats are rounded.
            Some("cvt") if !opcode.contains('f') => 1,
            _ => 0,
        };
        let sources = operands.iter().skip(1).take(sources).flat_map(|operand| names_in(operand));
        let copied_from: Vec<Register> = sources.map(|name| self.register(name)).collect();
        let written = operands.iter().take(1).filter(|first| !first.starts_with('['));
        let written = written.flat_map(|first| names_in(first));
        written.map(|name| Write { register: self.register(name), copied_from: copied_from.clone() }).collect()
    }

    /// The number of a register, of the innermost scope that declares it.
    fn register(&mut self, name: &str) -> Register {
        let declared = self.scopes.iter().rev().find(|(_, names)| names.iter().any(|known| known == name));
        let scope = declared.map_or(0, |(number, _)| *number);
        let name = if scope == 0 { name.to_string() } else { format!("{name}#{scope}") };
        let fresh = self.numbers.len() as Register;
        *self.numbers.entry(name).or_insert(fresh)
    }

    fn finish(mut self) -> Result<Code, String> {
        for (at, names) in std::mem::take(&mut self.jumps) {
            let target = names.iter().find_map(|name| self.labels.get(name));
            let target = *target.ok_or_else(|| format!("a jump to nowhere: `{}`", self.steps[at].text))?;
            self.steps[at].next.push(target);
        }
        let count = self.steps.len();
        self.steps.iter_mut().for_each(|step| step.next.retain(|&next| next < count));
        Ok(Code { steps: self.steps })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_$".contains(c))
}

/// The registers that an operand names; `over` is the one name without a sign in front of it.
fn names_in(operand: &str) -> Vec<&str> {
    let words = operand.split(|c: char| !(c.is_alphanumeric() || "%_$.".contains(c)));
    let is_register = |word: &str| word.starts_with('%') && !word.contains('.') && !SPECIAL.contains(&word);
    words.filter(|word| is_register(word) || *word == "over").collect()
}

/// Splits at commas outside of braces and brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.iter().map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
}
