//! Reads a kernel from text.

mod header;

use std::collections::HashMap;

use super::attr::AttrParser;
use super::lexer::{Lexer, Token};
use super::{ParseError, layouts, types};
use crate::ir::{
    BankId, BinaryOp, CallId, CmpOp, ControlOp, CreateOp, Def, DescOp, DotOp, ElementwiseOp, FileId, FloatFlags, Func,
    GpuOp, LayoutId, Level, MemoryOp, Op, OpId, Operation, RegionId, Safety, ShapeOp, SharedRange, Span, Subnormals,
    TileOp, Ty, UnaryOp, ValueId,
};
use crate::layout::SyncScope;
use crate::math::FloatIntFn;

type Result<T> = std::result::Result<T, ParseError>;

/// How deep regions may nest; more than any source that the front end takes.
pub const MAX_REGIONS: u32 = 200;

/// Reads a kernel. What is read is well-formed as an arena, but only [`crate::verify`] says whether it is a kernel.
///
/// # Errors
/// If the text is not in the text form; the error names the line and the column.
pub fn parse(text: &str) -> Result<Func> {
    Parser::new(text, false).kernel()
}

/// Reads a kernel that somebody wrote as text: operations and parameters without a place in a source get the place
/// in this text, so that messages point there.
///
/// # Errors
/// If the text is not in the text form.
pub fn parse_located(text: &str) -> Result<Func> {
    Parser::new(text, true).kernel()
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    func: Func,
    /// Values by their names in the text. Only looked up, never iterated over.
    values: HashMap<&'t str, ValueId>,
    depth: u32,
    /// Whether places in the text stand in for places in a source.
    located: bool,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, located: bool) -> Parser<'t> {
        let func = Func::new("", "", Safety::Safe);
        Parser { lexer: Lexer::new(text), func, values: HashMap::new(), depth: 0, located }
    }

    fn kernel(mut self) -> Result<Func> {
        self.word("kernel")?;
        self.func.name = self.lexer.name("the kernel's name")?;
        let Token::Str(raw) = self.lexer.peek() else { return Err(self.lexer.expected("the source file in quotes")) };
        self.func.files.set_own(&self.lexer.unescape(raw)?);
        self.lexer.next();
        self.func.safety = match self.lexer.peek() {
            Token::Ident("safe") => Safety::Safe,
            Token::Ident("unsafe") => Safety::Unsafe,
            _ => return Err(self.lexer.expected("`safe` or `unsafe`")),
        };
        self.lexer.next();
        if self.lexer.eat_word("flush") {
            self.func.subnormals = Subnormals::Flushed;
        }
        self.func.level = match self.lexer.peek() {
            Token::Ident("generic") => Level::Generic,
            Token::Ident("bound") => Level::Bound,
            Token::Ident("placed") => Level::Placed,
            _ => return Err(self.lexer.expected("`generic`, `bound` or `placed`")),
        };
        self.lexer.next();
        self.lexer.expect(b'{')?;
        self.header()?;
        let body = self.func.body;
        self.operations(body)?;
        if self.lexer.peek() != Token::End {
            return Err(self.lexer.expected("the end of the text"));
        }
        Ok(self.func)
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if self.lexer.eat_word(word) { Ok(()) } else { Err(self.lexer.expected(&format!("`{word}`"))) }
    }

    fn layout(&mut self) -> Result<()> {
        self.lexer.next();
        self.lexer.expect(b'#')?;
        let at = self.lexer.position();
        let index = self.lexer.unsigned(u64::from(u32::MAX))?;
        if index != self.func.layouts.len() as u64 {
            let next = self.func.layouts.len();
            return Err(self.lexer.error_at(at, format!("layouts are numbered in order; the next is {next}")));
        }
        self.lexer.expect(b'=')?;
        let layout = layouts::parse(&mut self.lexer)?;
        self.func.layouts.push(layout);
        Ok(())
    }

    /// The place in the source; `at` is where the thing starts in this text.
    fn span(&mut self, at: usize) -> Result<Span> {
        if !self.lexer.eat(b'@') {
            return Ok(if self.located { self.lexer.span_at(at) } else { Span::UNKNOWN });
        }
        let call = match self.lexer.peek() {
            Token::Ident(word) if word.starts_with('c') => {
                let at = self.lexer.position();
                let number = self.call_number()?;
                let known = self.func.files.calls().len();
                let id = u32::try_from(number).ok().filter(|&id| id as usize <= known).map(CallId::new);
                let id = id.ok_or_else(|| self.lexer.error_at(at, format!("there is no call c{number}")))?;
                self.lexer.expect(b':')?;
                id
            }
            _ => CallId::NONE,
        };
        let file = match self.lexer.peek() {
            Token::Ident(_) => {
                let at = self.lexer.position();
                let number = self.file_number()?;
                let id = u16::try_from(number).map(FileId::new).ok().filter(|&id| self.func.files.get(id).is_some());
                let id = id.ok_or_else(|| self.lexer.error_at(at, format!("there is no file f{number}")))?;
                self.lexer.expect(b':')?;
                id
            }
            _ => FileId::OWN,
        };
        let max = u64::from(u32::MAX);
        let line = self.lexer.unsigned(max)? as u32;
        self.lexer.expect(b':')?;
        let column = self.lexer.unsigned(max)? as u32;
        self.lexer.expect(b'+')?;
        let len = self.lexer.unsigned(u16::MAX.into())? as u16;
        Ok(Span { line, column, len, file, call })
    }

    fn value_name(&mut self) -> Result<&'t str> {
        let Token::Value(name) = self.lexer.peek() else { return Err(self.lexer.expected("a value (`%name`)")) };
        self.lexer.next();
        Ok(name)
    }

    fn define(&mut self, at: usize, name: &'t str, value: ValueId) -> Result<()> {
        match self.values.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(self.lexer.error_at(at, format!("`%{name}` is defined twice"))),
        }
    }

    /// `%a: f32, %b: i32[N] #0`
    fn typed(&mut self) -> Result<Vec<Typed<'t>>> {
        let mut list = Vec::new();
        while let Token::Value(_) = self.lexer.peek() {
            let at = self.lexer.position();
            let name = self.value_name()?;
            self.lexer.expect(b':')?;
            let ty = types::parse(&mut self.lexer, &self.func)?;
            let layout = self.layout_ref()?;
            let bank = self.bank()?;
            list.push(Typed { at, name, ty, layout, bank });
            if !self.lexer.eat(b',') {
                break;
            }
        }
        Ok(list)
    }

    fn layout_ref(&mut self) -> Result<Option<LayoutId>> {
        if !self.lexer.eat(b'#') {
            return Ok(None);
        }
        let at = self.lexer.position();
        let index = self.lexer.unsigned(u64::from(u32::MAX))?;
        if index as usize >= self.func.layouts.len() {
            return Err(self.lexer.error_at(at, "there is no such layout"));
        }
        Ok(Some(LayoutId::new(index as u32)))
    }

    /// `bank 0`
    fn bank(&mut self) -> Result<Option<BankId>> {
        match self.lexer.eat_word("bank") {
            true => Ok(Some(BankId::new(self.lexer.unsigned(u64::from(u32::MAX))? as u32))),
            false => Ok(None),
        }
    }

    /// The operations of a region up to its closing brace.
    fn operations(&mut self, region: RegionId) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_REGIONS {
            return Err(self.lexer.error(format!("regions nest more than {MAX_REGIONS} deep")));
        }
        while !self.lexer.eat(b'}') {
            let op = self.operation()?;
            self.func.regions[region.index()].ops.push(op);
        }
        self.depth -= 1;
        Ok(())
    }

    fn operation(&mut self) -> Result<OpId> {
        let results = self.typed()?;
        if !results.is_empty() {
            self.lexer.expect(b'=')?;
        }
        let at = self.lexer.position();
        let Token::Ident(mnemonic) = self.lexer.peek() else { return Err(self.lexer.expected("an operation")) };
        self.lexer.next();
        let contract = self.lexer.eat_word("contract");
        let operands = self.operands()?;
        let op = self.op(at, mnemonic, results.first().map(|r| &r.ty))?;
        let shared = self.shared()?;
        let span = self.span(at)?;
        let id = OpId::new(self.func.ops.len() as u32);
        let flags = FloatFlags { contract };
        let operation = Operation { op, operands, results: Vec::new(), regions: Vec::new(), flags, shared, span };
        self.func.ops.push(operation);
        for (index, result) in (0u32..).zip(results) {
            let value = self.func.new_value(result.ty, Def::Result(id, index));
            self.func.values[value.index()].layout = result.layout;
            self.func.values[value.index()].bank = result.bank;
            self.define(result.at, result.name, value)?;
            self.func.ops[id.index()].results.push(value);
        }
        self.regions(id)?;
        Ok(id)
    }

    /// ` in shared [0..512], barrier [0..64]`, if it is there.
    fn shared(&mut self) -> Result<Vec<SharedRange>> {
        let mut ranges = Vec::new();
        if !self.lexer.eat_word("in") {
            return Ok(ranges);
        }
        if !self.lexer.eat_word("shared") {
            return Err(self.lexer.expected("`shared`"));
        }
        loop {
            let meets = self.lexer.eat_word("barrier");
            let scope = if self.lexer.eat_word("warp") { SyncScope::Warp } else { SyncScope::Block };
            self.lexer.expect(b'[')?;
            let start = self.number()?;
            self.lexer.expect(b'.')?;
            self.lexer.expect(b'.')?;
            let end = self.number()?;
            self.lexer.expect(b']')?;
            let passes = if self.lexer.eat_word("x") { self.number()? } else { 1 };
            ranges.push(SharedRange { start, end, scope, passes, meets });
            if !self.lexer.eat(b',') {
                return Ok(ranges);
            }
        }
    }

    fn number(&mut self) -> Result<u32> {
        self.lexer.unsigned(u64::from(u32::MAX)).map(|number| number as u32)
    }

    fn operands(&mut self) -> Result<Vec<ValueId>> {
        let mut operands = Vec::new();
        while let Token::Value(name) = self.lexer.peek() {
            let mut ahead = self.lexer;
            ahead.next();
            if operands.is_empty() && ahead.peek() == Token::Punct(b':') {
                // Not an operand, but the first result of the operation that follows.
                break;
            }
            let Some(&value) = self.values.get(name) else {
                return Err(self.lexer.error(format!("`%{name}` is not defined")));
            };
            self.lexer.next();
            operands.push(value);
            if !self.lexer.eat(b',') {
                break;
            }
        }
        Ok(operands)
    }

    fn op(&mut self, at: usize, mnemonic: &str, result: Option<&Ty>) -> Result<Op> {
        if let Some(op) = UnaryOp::from_name(mnemonic) {
            return Ok(Op::unary(op));
        }
        if let Some(op) = BinaryOp::from_name(mnemonic) {
            return Ok(Op::binary(op));
        }
        if let Some(op) = FloatIntFn::from_name(mnemonic) {
            return Ok(ElementwiseOp::FloatInt { op }.into());
        }
        if let Some(op) = mnemonic.strip_prefix("cmp.").and_then(CmpOp::from_name) {
            return Ok(Op::compare(op));
        }
        let mut attrs = AttrParser::new(&mut self.lexer, &self.func, result);
        let op = CreateOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Create));
        let op = op.or_else(|| ElementwiseOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Elementwise)));
        let op = op.or_else(|| ShapeOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Shape)));
        let op = op.or_else(|| TileOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Tile)));
        let op = op.or_else(|| MemoryOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Memory)));
        let op = op.or_else(|| DotOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Dot)));
        let op = op.or_else(|| DescOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Desc)));
        let op = op.or_else(|| ControlOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Control)));
        let op = op.or_else(|| GpuOp::parse(mnemonic, &mut attrs).map(|r| r.map(Op::Gpu)));
        match op {
            Some(op) => {
                let op = op?;
                attrs.finish()?;
                Ok(op)
            }
            None => Err(self.lexer.error_at(at, format!("there is no operation `{mnemonic}`"))),
        }
    }

    /// Regions one after another, with `else`, `do` or `with` between them.
    fn regions(&mut self, id: OpId) -> Result<()> {
        while matches!(self.lexer.peek(), Token::Punct(b'{' | b'(')) {
            let args = if self.lexer.eat(b'(') {
                let args = self.typed()?;
                self.lexer.expect(b')')?;
                args
            } else {
                Vec::new()
            };
            self.lexer.expect(b'{')?;
            let region = self.func.new_region([]);
            for arg in args {
                let value = self.func.add_region_arg(region, arg.ty);
                self.func.values[value.index()].layout = arg.layout;
                self.func.values[value.index()].bank = arg.bank;
                self.define(arg.at, arg.name, value)?;
            }
            self.func.ops[id.index()].regions.push(region);
            self.operations(region)?;
            if !["else", "do", "with"].into_iter().any(|word| self.lexer.eat_word(word)) {
                break;
            }
        }
        Ok(())
    }
}

/// A value with its type as it is declared in the text.
struct Typed<'t> {
    at: usize,
    name: &'t str,
    ty: Ty,
    layout: Option<LayoutId>,
    bank: Option<BankId>,
}
