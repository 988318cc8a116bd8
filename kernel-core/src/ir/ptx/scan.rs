//! Reads the text of inline PTX: statements, blocks, and what each statement names.
//!
//! This is no assembler. It sees to what an assembler cannot know, that the text stays inside its place, and finds most of
//! what would otherwise only fail when the driver compiles the kernel.

use std::collections::BTreeSet;

use super::PtxError;

type Result<T> = std::result::Result<T, PtxError>;

/// Instructions that compute results from their operands and touch nothing else, by the part in front of the first dot.
const IN_REGISTERS: &[&str] = &[
    "abs",
    "add",
    "addc",
    "and",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cvt",
    "div",
    "dp2a",
    "dp4a",
    "ex2",
    "fma",
    "fns",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "max",
    "min",
    "mov",
    "mul",
    "mul24",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "rem",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setp",
    "shf",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "sub",
    "subc",
    "szext",
    "tanh",
    "testp",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "xor",
];

/// A token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'t> {
    /// An opcode, a name, a number or a directive.
    Word(&'t str),
    /// `$2`
    Operand(usize),
    /// Anything else.
    Punct(char),
}

/// What a text is made of.
#[derive(Default, Debug)]
pub(super) struct Scan {
    /// The operands that are named.
    used: BTreeSet<usize>,
    /// Those that an instruction may write: its first operand.
    written: BTreeSet<usize>,
    /// What first reaches beyond registers.
    pub(super) beyond: Option<String>,
}

/// Names that a block declares: all that begin so and go on with a number below that, or one name.
struct Declared<'t> {
    name: &'t str,
    count: Option<usize>,
}

impl Declared<'_> {
    fn is(&self, name: &str) -> bool {
        match self.count {
            None => self.name == name,
            Some(count) => {
                let number = name.strip_prefix(self.name).and_then(|rest| rest.parse::<usize>().ok());
                number.is_some_and(|number| number < count)
            }
        }
    }
}

impl Scan {
    /// Reads a text.
    pub(super) fn of(text: &str) -> Result<Scan> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens: &tokens, blocks: Vec::new(), declared: Vec::new(), scan: Scan::default() };
        reader.statements()?;
        let no_instruction = !tokens.iter().any(|token| matches!(token, Token::Word(_)));
        if no_instruction {
            return Err(PtxError::new("there is no instruction in the text", "write one: `\"neg.f32 $0, $1;\"`"));
        }
        Ok(reader.scan)
    }

    pub(super) fn check_operands(&self, results: usize, arguments: usize) -> Result<()> {
        let all = results + arguments;
        let order = "operands are the registers of the results, then those of the arguments";
        if let Some(last) = self.used.last().filter(|&&last| last >= all) {
            let message = match all {
                1 => format!("the text names `${last}`, but its only operand is `$0`"),
                _ => format!("the text names `${last}`, but its operands are `$0` to `${}`", all - 1),
            };
            return Err(PtxError::new(message, order));
        }
        // Of other instructions it is not known what they write.
        let given = if self.beyond.is_none() { &self.written } else { &self.used };
        if let Some(missing) = (0..results).find(|result| !given.contains(result)) {
            return Err(PtxError::new(format!("nothing in the text writes the result `${missing}`"), order));
        }
        if let Some(argument) = self.written.iter().find(|&&written| written >= results) {
            let help = "compute in a register of the text's own: `{ .reg .b32 t; mov.b32 t, $1; .. }`";
            return Err(PtxError::new(format!("the text writes `${argument}`, which is an argument"), help));
        }
        Ok(())
    }
}

/// Splits a text in tokens, without comments.
fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    if let Some(odd) =
        text.chars().find(|c| !c.is_ascii() || (c.is_ascii_control() && !matches!(c, '\n' | '\t' | '\r')))
    {
        return Err(PtxError::new(format!("PTX is ASCII, and {odd:?} is not"), "remove it"));
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'%');
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let span = |accept: &dyn Fn(u8) -> bool| rest.bytes().position(|byte| !accept(byte)).unwrap_or(rest.len());
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map(|end| end + 2);
            at += end.ok_or_else(|| PtxError::new("a comment does not end", "end it with `*/`"))?;
        } else if bytes[at] == b'$' {
            let digits = rest[1..].bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len() - 1);
            let number = rest[1..=digits].parse::<usize>().ok();
            let number =
                number.ok_or_else(|| PtxError::new("`$` without a number", "operands are `$0`, `$1` and so on"))?;
            tokens.push(Token::Operand(number));
            at += 1 + digits;
        } else if is_word(bytes[at]) {
            let mut end = span(&is_word);
            // `.shared::cta`
            while rest[end..].starts_with("::") {
                let more = &rest[end + 2..];
                end += 2 + more.bytes().position(|byte| !is_word(byte)).unwrap_or(more.len());
            }
            tokens.push(Token::Word(&rest[..end]));
            at += end;
        } else if bytes[at].is_ascii_whitespace() {
            at += 1;
        } else {
            if matches!(bytes[at], b'"' | b'\'' | b'\\' | b'#' | b'`') {
                let message = format!("`{}` does not stand in an instruction", char::from(bytes[at]));
                return Err(PtxError::new(message, "write instructions as PTX has them"));
            }
            tokens.push(Token::Punct(char::from(bytes[at])));
            at += 1;
        }
    }
    Ok(tokens)
}

struct Reader<'s, 't> {
    tokens: &'s [Token<'t>],
    /// How many names were declared where each open block began.
    blocks: Vec<usize>,
    declared: Vec<Declared<'t>>,
    scan: Scan,
}

impl<'t> Reader<'_, 't> {
    fn next(&mut self) -> Option<Token<'t>> {
        let (&first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn eat(&mut self, punct: char) -> bool {
        let there = self.tokens.first() == Some(&Token::Punct(punct));
        if there {
            self.tokens = &self.tokens[1..];
        }
        there
    }

    fn statements(&mut self) -> Result<()> {
        while let Some(token) = self.next() {
            match token {
                Token::Punct('{') => self.blocks.push(self.declared.len()),
                Token::Punct('}') => match self.blocks.pop() {
                    Some(before) => self.declared.truncate(before),
                    None => return Err(PtxError::new("a `}` without its `{`", "remove it")),
                },
                Token::Punct(';') => {}
                Token::Punct('@') => self.guard()?,
                Token::Word(directive) if directive.starts_with('.') => self.directive(directive)?,
                Token::Word(label) if self.eat(':') => self.label(label)?,
                Token::Word(opcode) => self.instruction(opcode)?,
                Token::Operand(number) => {
                    return Err(PtxError::new(
                        format!("`${number}` stands where an instruction begins"),
                        "write an opcode",
                    ));
                }
                Token::Punct(other) => {
                    let message = format!("`{other}` stands where an instruction begins");
                    return Err(PtxError::new(message, "write instructions as PTX has them"));
                }
            }
        }
        match self.blocks.is_empty() {
            true => Ok(()),
            false => Err(PtxError::new("a `{` without its `}`", "close the block at the end of the text")),
        }
    }

    /// `@p` or `@!p`
    fn guard(&mut self) -> Result<()> {
        self.eat('!');
        match self.next() {
            Some(Token::Word(name)) => {
                self.name(name);
                Ok(())
            }
            _ => Err(PtxError::new("`@` without the name of a predicate", "write `@p` in front of an instruction")),
        }
    }

    /// `.reg .b32 a, b, t<4>;`
    fn directive(&mut self, directive: &str) -> Result<()> {
        if directive != ".reg" {
            let help = "a text declares registers alone, with `.reg`";
            return Err(PtxError::new(format!("the directive `{directive}` does not stand inside instructions"), help));
        }
        if self.blocks.is_empty() {
            let help = "write `{ .reg ..; .. }`: the text may come several times in one kernel";
            return Err(PtxError::new("`.reg` outside of a block", help));
        }
        let unfinished = || PtxError::new("a `.reg` that does not end", "write `.reg .b32 t;`");
        loop {
            match self.next().ok_or_else(unfinished)? {
                Token::Word(kind) if kind.starts_with('.') => {}
                Token::Word(name) => {
                    let mut count = None;
                    if self.eat('<') {
                        let Some(Token::Word(number)) = self.next() else { return Err(unfinished()) };
                        count = Some(number.parse().map_err(|_| unfinished())?);
                        if !self.eat('>') {
                            return Err(unfinished());
                        }
                    }
                    self.declared.push(Declared { name, count });
                }
                Token::Punct(',') => {}
                Token::Punct(';') => return Ok(()),
                Token::Punct(_) | Token::Operand(_) => return Err(unfinished()),
            }
        }
    }

    /// A label: control flow.
    fn label(&mut self, label: &'t str) -> Result<()> {
        if self.blocks.is_empty() {
            let help = "wrap the text in `{` and `}`: it may come several times in one kernel";
            return Err(PtxError::new(format!("the label `{label}` stands outside of a block"), help));
        }
        self.reaches(format!("the label `{label}`"));
        Ok(())
    }

    fn instruction(&mut self, opcode: &str) -> Result<()> {
        let base = opcode.split('.').next().unwrap_or_default();
        let known = IN_REGISTERS.contains(&base);
        if !known {
            self.reaches(format!("`{opcode}`"));
        }
        let (mut open, mut destination) = (Vec::new(), true);
        loop {
            let Some(token) = self.next() else {
                return Err(PtxError::new(
                    format!("`{opcode}` does not end with `;`"),
                    "end each instruction with `;`",
                ));
            };
            match token {
                Token::Punct(';') if open.is_empty() => return Ok(()),
                Token::Punct(';') => return Err(unbalanced(opcode)),
                Token::Punct(',') if open.is_empty() => destination = false,
                Token::Punct('{') => open.push('}'),
                Token::Punct('[') => open.push(']'),
                Token::Punct('(') => open.push(')'),
                Token::Punct(close @ ('}' | ']' | ')')) => {
                    if open.pop() != Some(close) {
                        return Err(unbalanced(opcode));
                    }
                }
                Token::Punct(_) => {}
                Token::Operand(number) => {
                    self.scan.used.insert(number);
                    if known && destination {
                        self.scan.written.insert(number);
                    }
                }
                Token::Word(name) => self.name(name),
            }
        }
    }

    /// A name among operands: of a register of the text's own, else of something around it.
    fn name(&mut self, name: &str) {
        let is_number = name.starts_with(|c: char| c.is_ascii_digit());
        // `.x` selects an element of a vector.
        let base = if name.starts_with('%') { name } else { name.split('.').next().unwrap_or_default() };
        let own = self.declared.iter().any(|declared| declared.is(base));
        if !is_number && !own && !matches!(name, "_" | "WARP_SZ") && !base.is_empty() {
            self.reaches(format!("`{name}`"));
        }
    }

    fn reaches(&mut self, what: String) {
        self.scan.beyond.get_or_insert(what);
    }
}

fn unbalanced(opcode: &str) -> PtxError {
    PtxError::new(format!("brackets of `{opcode}` do not match"), "close each `{`, `[` and `(` before the `;`")
}
