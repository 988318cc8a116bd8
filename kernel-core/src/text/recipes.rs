//! How the host finds a tensor that the kernel makes:
//! `made 0 a offsets [] sizes [0, 1] strides [1, 2] steps [i32 arg m, i32 arg k, i64 const 1]`.

use super::ParseError;
use super::lexer::{Lexer, Token};
use super::types;
use crate::ir::recipe::{From, MAX_STEPS, Step};
use crate::ir::{BinaryOp, CmpOp, DType, Func, Recipe, UnaryOp};

type Result<T> = std::result::Result<T, ParseError>;

/// Appends a recipe.
pub(super) fn print(out: &mut String, func: &Func, recipe: &Recipe) {
    out.push_str(&format!(" made {} ", recipe.slot));
    types::print_param(out, func, recipe.base);
    for (word, list) in [("offsets", &recipe.offsets), ("sizes", &recipe.sizes), ("strides", &recipe.strides)] {
        let numbers: Vec<String> = list.iter().map(u16::to_string).collect();
        out.push_str(&format!(" {word} [{}]", numbers.join(", ")));
    }
    out.push_str(" steps [");
    for (index, step) in recipe.steps.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        out.push_str(step.dtype.name());
        out.push(' ');
        match step.from {
            From::Const(value) if value < 0 => out.push_str(&format!("const_neg {}", value.unsigned_abs())),
            From::Const(value) => out.push_str(&format!("const {value}")),
            From::Arg(param) => {
                out.push_str("arg ");
                types::print_param(out, func, param);
            }
            From::Unary(op, _) => out.push_str(op.name()),
            From::Binary(op, ..) => out.push_str(op.name()),
            From::Compare(op, ..) => out.push_str(&format!("cmp.{}", op.name())),
            From::Select(..) => out.push_str("select"),
            From::Cast(_) => out.push_str("cast"),
        }
        for operand in step.from.operands() {
            out.push_str(&format!(" {operand}"));
        }
    }
    out.push(']');
}

/// Reads a recipe, behind `made`.
pub(super) fn parse(lexer: &mut Lexer<'_>, func: &Func) -> Result<Recipe> {
    let slot = number(lexer)?;
    let base = types::parse_param(lexer, func)?;
    let offsets = numbers(lexer, "offsets")?;
    let sizes = numbers(lexer, "sizes")?;
    let strides = numbers(lexer, "strides")?;
    word(lexer, "steps")?;
    lexer.expect(b'[')?;
    let mut steps = Vec::new();
    while !lexer.eat(b']') {
        if !steps.is_empty() {
            lexer.expect(b',')?;
        }
        if steps.len() == MAX_STEPS {
            return Err(lexer.error(format!("a recipe has up to {MAX_STEPS} steps")));
        }
        steps.push(step(lexer, func)?);
    }
    Ok(Recipe { slot, base, offsets, sizes, strides, steps })
}

fn word(lexer: &mut Lexer<'_>, word: &str) -> Result<()> {
    if lexer.eat_word(word) { Ok(()) } else { Err(lexer.expected(&format!("`{word}`"))) }
}

/// `sizes [0, 1]`
fn numbers(lexer: &mut Lexer<'_>, name: &str) -> Result<Vec<u16>> {
    word(lexer, name)?;
    lexer.expect(b'[')?;
    let mut list = Vec::new();
    while !lexer.eat(b']') {
        if !list.is_empty() {
            lexer.expect(b',')?;
        }
        list.push(number(lexer)?);
    }
    Ok(list)
}

fn number(lexer: &mut Lexer<'_>) -> Result<u16> {
    Ok(lexer.unsigned(u16::MAX.into())? as u16)
}

fn step(lexer: &mut Lexer<'_>, func: &Func) -> Result<Step> {
    let dtype = match lexer.peek() {
        Token::Ident(word) => DType::from_name(word),
        _ => None,
    };
    let dtype = dtype.ok_or_else(|| lexer.expected("a dtype"))?;
    lexer.next();
    let Token::Ident(name) = lexer.peek() else { return Err(lexer.expected("a step of a recipe")) };
    let at = lexer.position();
    lexer.next();
    let from = match name {
        "const" => From::Const(lexer.unsigned(u64::MAX)?.into()),
        "const_neg" => From::Const(-i128::from(lexer.unsigned(u64::MAX)?)),
        "arg" => From::Arg(types::parse_param(lexer, func)?),
        "select" => From::Select(number(lexer)?, number(lexer)?, number(lexer)?),
        "cast" => From::Cast(number(lexer)?),
        name => {
            if let Some(op) = UnaryOp::from_name(name) {
                From::Unary(op, number(lexer)?)
            } else if let Some(op) = BinaryOp::from_name(name) {
                From::Binary(op, number(lexer)?, number(lexer)?)
            } else if let Some(op) = name.strip_prefix("cmp.").and_then(CmpOp::from_name) {
                From::Compare(op, number(lexer)?, number(lexer)?)
            } else {
                return Err(lexer.error_at(at, format!("recipes have no step `{name}`")));
            }
        }
    };
    Ok(Step { dtype, from })
}
