//! How attributes of operations are written and read.
//!
//! The op table generates the calls: [`AttrPrinter::attr`] and [`AttrParser::attr`] once per attribute, in the
//! table's order. Attributes come in braces, `{axis = 1}`, with three rules that keep the text short:
//! one named `value` stands bare behind the mnemonic (`const 1`), one that has its usual value is left out, and so
//! is one that repeats the type of the result (`cast %3` with a result of type `f16` casts to `f16`).

use std::fmt;

use super::lexer::{Lexer, Token, write_name, write_string};
use super::{dims, types};
use crate::ir::{
    AtomicOp, BinaryOp, CacheModifier, CmpOp, ConstId, CounterKind, Dim, DotInstruction, DotPrecision, Dt,
    EvictionPolicy, FactorFormat, FenceKind, Func, GroupPart, GroupRole, HintKind, InlinePtx, LimitKind, Literal,
    MemOrder, MemScope, ScaledFactors, StoreMode, Ty, UnaryOp, Unroll,
};
use crate::math::FloatIntFn;

/// Text that is not tile IR: where and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A type that can be an attribute.
pub trait Attr: Sized + PartialEq {
    /// Appends the value.
    fn print(&self, printer: &mut AttrPrinter<'_>);

    /// Reads a value.
    ///
    /// # Errors
    /// If the text there is not one.
    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Self, ParseError>;

    /// The value that the attribute of that name has where it is not written; `result` is the type of the
    /// operation's first result.
    fn implied(name: &str, result: Option<&Ty>) -> Option<Self> {
        let _ = (name, result);
        None
    }
}

/// Writes attributes.
pub struct AttrPrinter<'a> {
    /// The text so far.
    pub out: &'a mut String,
    /// The kernel, for the names of its constexprs and dtype parameters.
    pub func: &'a Func,
    result: Option<&'a Ty>,
    open: bool,
}

impl<'a> AttrPrinter<'a> {
    pub(super) fn new(out: &'a mut String, func: &'a Func, result: Option<&'a Ty>) -> AttrPrinter<'a> {
        AttrPrinter { out, func, result, open: false }
    }

    /// Appends `name = value`, unless that is implied.
    pub fn attr<T: Attr>(&mut self, name: &str, value: &T) {
        if name == "value" {
            self.out.push(' ');
            value.print(self);
            return;
        }
        if T::implied(name, self.result).is_some_and(|implied| implied == *value) {
            return;
        }
        self.out.push_str(if self.open { ", " } else { " {" });
        self.open = true;
        self.out.push_str(name);
        self.out.push_str(" = ");
        value.print(self);
    }

    pub(super) fn finish(self) {
        if self.open {
            self.out.push('}');
        }
    }
}

/// Reads attributes.
pub struct AttrParser<'p, 't> {
    pub(super) lexer: &'p mut Lexer<'t>,
    pub(super) func: &'p Func,
    result: Option<&'p Ty>,
    open: bool,
}

impl<'p, 't> AttrParser<'p, 't> {
    pub(super) fn new(lexer: &'p mut Lexer<'t>, func: &'p Func, result: Option<&'p Ty>) -> AttrParser<'p, 't> {
        let mut ahead = *lexer;
        // A brace may also open a region; attributes start with `name =`.
        let open = ahead.eat(b'{') && matches!(ahead.next(), Token::Ident(_)) && ahead.peek() == Token::Punct(b'=');
        if open {
            lexer.next();
        }
        AttrParser { lexer, func, result, open }
    }

    /// Reads `name = value`, or takes what is implied if it is not there.
    ///
    /// # Errors
    /// If the text there is something else.
    pub fn attr<T: Attr>(&mut self, name: &str) -> Result<T, ParseError> {
        if name == "value" {
            return T::parse(self);
        }
        if self.open && self.lexer.eat_word(name) {
            self.lexer.expect(b'=')?;
            let value = T::parse(self)?;
            self.lexer.eat(b',');
            return Ok(value);
        }
        T::implied(name, self.result).ok_or_else(|| self.lexer.expected(&format!("attribute `{name}`")))
    }

    pub(super) fn finish(self) -> Result<(), ParseError> {
        if self.open && !self.lexer.eat(b'}') {
            return Err(self.lexer.expected("`}` after the operation's attributes"));
        }
        Ok(())
    }
}

macro_rules! unsigned_attr {
    ($($ty:ty),*) => {$(
        impl Attr for $ty {
            fn print(&self, printer: &mut AttrPrinter<'_>) {
                printer.out.push_str(&self.to_string());
            }

            fn parse(parser: &mut AttrParser<'_, '_>) -> Result<$ty, ParseError> {
                parser.lexer.unsigned(u64::from(<$ty>::MAX)).map(|value| value as $ty)
            }

            fn implied(name: &str, _result: Option<&Ty>) -> Option<$ty> {
                (name == "stages").then_some(0)
            }
        }
    )*};
}

unsigned_attr!(u8, u32);

impl Attr for bool {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        printer.out.push_str(if *self { "true" } else { "false" });
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<bool, ParseError> {
        let value = match parser.lexer.peek() {
            Token::Ident("true") => true,
            Token::Ident("false") => false,
            _ => return Err(parser.lexer.expected("`true` or `false`")),
        };
        parser.lexer.next();
        Ok(value)
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<bool> {
        Some(false)
    }
}

impl Attr for String {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        write_string(printer.out, self);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<String, ParseError> {
        let Token::Str(raw) = parser.lexer.peek() else { return Err(parser.lexer.expected("a quoted string")) };
        let value = parser.lexer.unescape(raw)?;
        parser.lexer.next();
        Ok(value)
    }
}

impl Attr for Dim {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        dims::print(printer.out, printer.func, self);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Dim, ParseError> {
        dims::parse(parser.lexer, parser.func)
    }

    fn implied(name: &str, _result: Option<&Ty>) -> Option<Dim> {
        matches!(name, "n" | "multiple").then_some(Dim::Const(1))
    }
}

/// What is not there is left out.
impl Attr for Option<Dim> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        let Some(dim) = self else { return };
        dims::print(printer.out, printer.func, dim);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Option<Dim>, ParseError> {
        dims::parse(parser.lexer, parser.func).map(Some)
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<Option<Dim>> {
        Some(None)
    }
}

impl Attr for Vec<Dim> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        dims::print_shape(printer.out, printer.func, self);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Vec<Dim>, ParseError> {
        dims::parse_shape(parser.lexer, parser.func)
    }

    fn implied(name: &str, result: Option<&Ty>) -> Option<Vec<Dim>> {
        result.filter(|_| name == "shape").map(|ty| ty.shape.clone())
    }
}

impl Attr for Vec<u8> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        print_list(self, printer);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Vec<u8>, ParseError> {
        parse_list(parser)
    }

    fn implied(name: &str, _result: Option<&Ty>) -> Option<Vec<u8>> {
        (name == "parts").then(Vec::new)
    }
}

impl Attr for Vec<GroupRole> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        print_list(self, printer);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Vec<GroupRole>, ParseError> {
        parse_list(parser)
    }
}

/// `[1, 2]`
fn print_list<T: Attr>(list: &[T], printer: &mut AttrPrinter<'_>) {
    printer.out.push('[');
    for (i, item) in list.iter().enumerate() {
        printer.out.push_str(if i > 0 { ", " } else { "" });
        item.print(printer);
    }
    printer.out.push(']');
}

fn parse_list<T: Attr>(parser: &mut AttrParser<'_, '_>) -> Result<Vec<T>, ParseError> {
    parser.lexer.expect(b'[')?;
    let mut list = Vec::new();
    while parser.lexer.peek() != Token::Punct(b']') {
        list.push(T::parse(parser)?);
        if !parser.lexer.eat(b',') {
            break;
        }
    }
    parser.lexer.expect(b']')?;
    Ok(list)
}

impl Attr for Dt {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        types::print_dt(printer.out, printer.func, *self);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Dt, ParseError> {
        types::parse_dt(parser.lexer, parser.func)
    }

    fn implied(_name: &str, result: Option<&Ty>) -> Option<Dt> {
        result.and_then(Ty::dt)
    }
}

/// The bits of the NaN that is written without a payload.
const PLAIN_NAN: u64 = 0x7ff8_0000_0000_0000;

impl Attr for Literal {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        let text = match *self {
            Literal::Bool(value) => value.to_string(),
            Literal::Int(value) => value.to_string(),
            Literal::Float(PLAIN_NAN) => "nan".to_string(),
            Literal::Float(bits) if f64::from_bits(bits).is_nan() => format!("nan({bits:#x})"),
            // The shortest decimal that reads back as the same f64; it always has a point or an exponent.
            Literal::Float(bits) => format!("{:?}", f64::from_bits(bits)),
        };
        printer.out.push_str(&text);
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Literal, ParseError> {
        let lexer = &mut *parser.lexer;
        let negative = lexer.eat(b'-');
        let sign = if negative { -1.0 } else { 1.0 };
        let literal = match lexer.peek() {
            Token::Ident("true") if !negative => Literal::Bool(true),
            Token::Ident("false") if !negative => Literal::Bool(false),
            Token::Ident("inf") => Literal::float(sign * f64::INFINITY),
            Token::Ident("nan") if !negative => return nan(lexer),
            Token::Number(text) => number(text, negative).ok_or_else(|| lexer.expected("a number in range"))?,
            _ => return Err(lexer.expected("a constant")),
        };
        lexer.next();
        Ok(literal)
    }
}

/// `nan`, or `nan(0x..)` with all 64 bits.
fn nan(lexer: &mut Lexer<'_>) -> Result<Literal, ParseError> {
    lexer.next();
    if !lexer.eat(b'(') {
        return Ok(Literal::Float(PLAIN_NAN));
    }
    let bits = match lexer.peek() {
        Token::Number(text) => text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()),
        _ => None,
    };
    let bits = bits.filter(|&b| f64::from_bits(b).is_nan()).ok_or_else(|| lexer.expected("the bits of a NaN"))?;
    lexer.next();
    lexer.expect(b')')?;
    Ok(Literal::Float(bits))
}

fn number(text: &str, negative: bool) -> Option<Literal> {
    if text.contains(['.', 'e']) && !text.starts_with("0x") {
        let magnitude: f64 = text.parse().ok()?;
        return Some(Literal::float(if negative { -magnitude } else { magnitude }));
    }
    let magnitude = match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    let value = if negative { 0i128.checked_sub_unsigned(magnitude)? } else { i128::try_from(magnitude).ok()? };
    Some(Literal::Int(value))
}

/// What is not chosen yet is left out of the text.
impl Attr for Option<DotInstruction> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        let Some(instruction) = self else { return };
        printer.out.push_str(instruction.name());
        match instruction {
            DotInstruction::Fma | DotInstruction::Mma => {}
            DotInstruction::Wgmma { columns } => printer.out.push_str(&format!("({columns})")),
        }
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Option<DotInstruction>, ParseError> {
        let instruction = match parser.lexer.peek() {
            Token::Ident("fma") => DotInstruction::Fma,
            Token::Ident("mma") => DotInstruction::Mma,
            Token::Ident("wgmma") => {
                parser.lexer.next();
                parser.lexer.expect(b'(')?;
                let columns = u32::parse(parser)?;
                parser.lexer.expect(b')')?;
                return Ok(Some(DotInstruction::Wgmma { columns }));
            }
            _ => return Err(parser.lexer.expected("one of fma, mma, wgmma(COLUMNS)")),
        };
        parser.lexer.next();
        Ok(Some(instruction))
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<Option<DotInstruction>> {
        Some(None)
    }
}

/// What is not there is left out of the text.
impl Attr for Option<ConstId> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        let Some(id) = *self else { return };
        dims::print(printer.out, printer.func, &Dim::param(id));
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Option<ConstId>, ParseError> {
        let name = parser.lexer.name("a constexpr's name")?;
        let index = parser.func.const_params.iter().position(|param| param.name == name);
        let index = index.ok_or_else(|| parser.lexer.expected("the name of a constexpr"))?;
        Ok(Some(ConstId::new(index as u32)))
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<Option<ConstId>> {
        Some(None)
    }
}

/// `pure("neg.f32 $0, $1;", 1)` or `ordered(..)`: the text and how many elements it takes. What is not there is left out.
impl Attr for Option<InlinePtx> {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        let Some(ptx) = self else { return };
        printer.out.push_str(if ptx.pure { "pure(" } else { "ordered(" });
        write_string(printer.out, &ptx.text);
        printer.out.push_str(&format!(", {})", ptx.pack));
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Option<InlinePtx>, ParseError> {
        let pure = match parser.lexer.peek() {
            Token::Ident("pure") => true,
            Token::Ident("ordered") => false,
            _ => return Err(parser.lexer.expected("one of pure(TEXT, PACK), ordered(TEXT, PACK)")),
        };
        parser.lexer.next();
        parser.lexer.expect(b'(')?;
        let text = String::parse(parser)?;
        parser.lexer.expect(b',')?;
        let pack = u8::parse(parser)?;
        parser.lexer.expect(b')')?;
        Ok(Some(InlinePtx { text, pack, pure }))
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<Option<InlinePtx>> {
        Some(None)
    }
}

/// A word, or the number of copies.
impl Attr for Unroll {
    fn print(&self, printer: &mut AttrPrinter<'_>) {
        match self {
            Unroll::Auto => printer.out.push_str("auto"),
            Unroll::Full => printer.out.push_str("full"),
            Unroll::Never => printer.out.push_str("never"),
            Unroll::By(factor) => printer.out.push_str(&factor.to_string()),
        }
    }

    fn parse(parser: &mut AttrParser<'_, '_>) -> Result<Unroll, ParseError> {
        let unroll = match parser.lexer.peek() {
            Token::Ident("auto") => Unroll::Auto,
            Token::Ident("full") => Unroll::Full,
            Token::Ident("never") => Unroll::Never,
            Token::Ident(_) => return Err(parser.lexer.expected("one of auto, full, never, or a number")),
            _ => return u8::parse(parser).map(Unroll::By),
        };
        parser.lexer.next();
        Ok(unroll)
    }

    fn implied(_name: &str, _result: Option<&Ty>) -> Option<Unroll> {
        Some(Unroll::Auto)
    }
}

/// Names as attributes; the one behind `=` is left out of the text.
macro_rules! name_attrs {
    ($($Enum:ident $(= $usual:ident)?;)*) => {$(
        impl Attr for $Enum {
            fn print(&self, printer: &mut AttrPrinter<'_>) {
                write_name(printer.out, self.name(), &[]);
            }

            fn parse(parser: &mut AttrParser<'_, '_>) -> Result<$Enum, ParseError> {
                let value = match parser.lexer.peek() {
                    Token::Ident(word) => $Enum::from_name(word),
                    _ => None,
                };
                let Some(value) = value else {
                    let names: Vec<&str> = $Enum::ALL.iter().map(|v| v.name()).collect();
                    return Err(parser.lexer.expected(&format!("one of {}", names.join(", "))));
                };
                parser.lexer.next();
                Ok(value)
            }

            $(fn implied(_name: &str, _result: Option<&Ty>) -> Option<$Enum> {
                Some($Enum::$usual)
            })?
        }
    )*};
}

name_attrs! {
    HintKind;
    LimitKind;
    CounterKind;
    UnaryOp;
    BinaryOp;
    FloatIntFn;
    CmpOp;
    CacheModifier = Default;
    EvictionPolicy = Normal;
    AtomicOp;
    DotPrecision = Tf32;
    FactorFormat = Own;
    ScaledFactors = Both;
    StoreMode = Store;
    MemOrder;
    MemScope;
    FenceKind;
    GroupPart = Whole;
    GroupRole;
}
