//! PTX text as a list of instructions.

use std::collections::HashMap;

/// An operand.
#[derive(Clone, Debug)]
pub enum Operand {
    Register(usize),
    /// Bits of a number.
    Number(u64),
    /// `[base + offset]`: a register, or none for a symbol at 0.
    Address(Option<usize>, i64),
    /// `[name + offset]` of a kernel parameter, by position, from one of its bytes on.
    Param(usize, u32),
    /// `{a, b, ..}`
    Vector(Vec<Operand>),
    /// A special register.
    Special(String),
    /// A label.
    Label(String),
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// A predicate register, and whether it must be true.
    pub guard: Option<(usize, bool)>,
    /// `ld`, `add`, ..
    pub name: String,
    /// `global`, `v4`, `b32`, ..
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
    pub text: String,
}

/// A kernel.
pub struct Program {
    pub instructions: Vec<Instruction>,
    pub labels: HashMap<String, usize>,
    pub registers: usize,
}

/// Parses the one kernel of a module.
pub fn parse(ptx: &str, entry: &str) -> Program {
    let text: String = ptx.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let start = text.find(".visible .entry").expect("a kernel");
    let body = start + text[start..].find("\n{").expect("a body") + 2;
    let end = text.rfind('}').expect("the end of the body");
    let mut parser = Parser { registers: HashMap::new(), entry: entry.to_string(), block: 0 };
    let (mut instructions, mut labels) = (Vec::new(), HashMap::new());
    for statement in text[body..end].split(';') {
        let mut rest = statement.trim();
        // Blocks in braces have labels of their own, and no more than one.
        loop {
            if let Some(after) = rest.strip_prefix('{').or_else(|| rest.strip_prefix('}')) {
                parser.block += 1;
                rest = after.trim();
            } else if let Some(after) = rest.strip_prefix("again:") {
                labels.insert(parser.own_label(), instructions.len());
                rest = after.trim();
            } else if let Some((label, after)) = rest.split_once(':').filter(|(label, _)| label.starts_with("$L")) {
                labels.insert(label.to_string(), instructions.len());
                rest = after.trim();
            } else {
                break;
            }
        }
        if let Some(after) = rest.strip_prefix(".pragma") {
            assert!(after.contains("nounroll"), "{rest}");
            continue;
        }
        if !rest.is_empty() && !rest.starts_with(".reg") {
            instructions.push(parser.instruction(rest));
        }
    }
    Program { instructions, labels, registers: parser.registers.len() }
}

struct Parser {
    registers: HashMap<String, usize>,
    entry: String,
    /// How many braces there were.
    block: usize,
}

impl Parser {
    /// The label of the block in braces.
    fn own_label(&self) -> String {
        format!("again of {}", self.block)
    }

    fn register(&mut self, name: &str) -> usize {
        let next = self.registers.len();
        *self.registers.entry(name.to_string()).or_insert(next)
    }

    fn instruction(&mut self, text: &str) -> Instruction {
        let (guard, rest) = match text.strip_prefix('@') {
            Some(guarded) => {
                let (name, rest) = guarded.split_once(char::is_whitespace).expect("an instruction behind its guard");
                let wanted = !name.starts_with('!');
                (Some((self.register(name.trim_start_matches('!')), wanted)), rest.trim())
            }
            None => (None, text),
        };
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let opcode = opcode.replace("::", "_");
        let mut parts = opcode.split('.').map(str::to_string);
        let name = parts.next().expect("a name");
        let operands = split(operands).iter().map(|operand| self.operand(operand)).collect();
        Instruction { guard, name, modifiers: parts.collect(), operands, text: text.to_string() }
    }

    fn operand(&mut self, text: &str) -> Operand {
        let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        if let Some(list) = inside('{', '}') {
            return Operand::Vector(split(list).iter().map(|operand| self.operand(operand)).collect());
        }
        if let Some(address) = inside('[', ']') {
            let (base, offset) = match address.split_once('+') {
                Some((base, offset)) => (base.trim(), offset.trim().parse().expect("an offset")),
                None => (address.trim(), 0),
            };
            if let Some(number) = base.strip_prefix(&format!("{}_param_", self.entry)) {
                let byte = u32::try_from(offset).expect("a byte of the parameter");
                return Operand::Param(number.parse().expect("a parameter's number"), byte);
            }
            let register = base.starts_with('%').then(|| self.register(base));
            assert!(register.is_some() || base == "shared_memory", "{text}");
            return Operand::Address(register, offset);
        }
        match text {
            _ if ["%tid", "%ctaid", "%nctaid", "%nsmid", "%smid", "%clock64", "%globaltimer"]
                .iter()
                .any(|name| text.starts_with(name)) =>
            {
                Operand::Special(text.to_string())
            }
            "again" => Operand::Label(self.own_label()),
            // Those of blocks in braces have names of their own.
            _ if text.starts_with('%') || ["_", "over", "low", "high"].contains(&text) => {
                Operand::Register(self.register(text))
            }
            _ if text.starts_with("$L") => Operand::Label(text.to_string()),
            "shared_memory" => Operand::Number(0),
            _ => Operand::Number(number(text)),
        }
    }
}

fn number(text: &str) -> u64 {
    if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0d")) {
        return u64::from_str_radix(bits, 16).expect("a float's bits");
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex.trim_end_matches('U'), 16).unwrap_or_else(|_| panic!("`{text}` is no number"));
    }
    text.parse::<i128>().unwrap_or_else(|_| panic!("`{text}` is no number")) as u64
}

/// Splits at commas outside braces.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            // `shfl` names its two results `a|b`.
            ',' | '|' if depth == 0 => {
                parts.push(std::mem::take(&mut part).trim().to_string());
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    if !part.trim().is_empty() {
        parts.push(part.trim().to_string());
    }
    parts
}
