//! Symbolic dimensions in the text form: `BLOCK`, `2 * M * N - 1`, `(M / 4)`, `min(M, N)`, `(1 << M)`.
//!
//! Any expression over constexprs with `+ - * / %`, parentheses, in them `<<`, `min` and `max` is read; what is printed is the
//! normal form, and reading that gives the same normal form.

use super::ParseError;
use super::lexer::{Lexer, Token, write_name};
use crate::ir::{ConstId, Dim, DimError, Func};

/// How deep parentheses may nest: twice what the front end takes, because a printed quotient has two pairs.
const MAX_DEPTH: u32 = 300;

/// Appends a dimension.
pub(super) fn print(out: &mut String, func: &Func, dim: &Dim) {
    let name = |id: ConstId| {
        let mut name = String::new();
        match func.const_params.get(id.index()) {
            Some(param) => write_name(&mut name, &param.name, &[]),
            None => name.push_str(&format!("?{}", id.index())),
        }
        name
    };
    out.push_str(&dim.display(&name).to_string());
}

/// Appends `[M, N]`.
pub(super) fn print_shape(out: &mut String, func: &Func, shape: &[Dim]) {
    out.push('[');
    for (i, dim) in shape.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        print(out, func, dim);
    }
    out.push(']');
}

/// Reads `[M, N]`.
pub(super) fn parse_shape(lexer: &mut Lexer<'_>, func: &Func) -> Result<Vec<Dim>, ParseError> {
    lexer.expect(b'[')?;
    let mut shape = Vec::new();
    while lexer.peek() != Token::Punct(b']') {
        shape.push(parse(lexer, func)?);
        if !lexer.eat(b',') {
            break;
        }
    }
    lexer.expect(b']')?;
    Ok(shape)
}

/// Reads a dimension.
pub(super) fn parse(lexer: &mut Lexer<'_>, func: &Func) -> Result<Dim, ParseError> {
    DimParser { lexer, func, depth: 0 }.sum()
}

struct DimParser<'p, 't> {
    lexer: &'p mut Lexer<'t>,
    func: &'p Func,
    depth: u32,
}

impl DimParser<'_, '_> {
    fn value(&self, at: usize, dim: Result<Dim, DimError>) -> Result<Dim, ParseError> {
        dim.map_err(|e| self.lexer.error_at(at, e.to_string()))
    }

    fn sum(&mut self) -> Result<Dim, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.lexer.error(format!("a dimension nests more than {MAX_DEPTH} deep")));
        }
        let mut sum = self.product()?;
        loop {
            let at = self.lexer.position();
            sum = if self.lexer.eat(b'+') {
                let term = self.product()?;
                self.value(at, sum.add(&term))?
            } else if self.lexer.eat(b'-') {
                // The sign belongs to the term's number, so that the smallest i64 can be read.
                let term = self.product_of(true)?;
                self.value(at, sum.add(&term))?
            } else {
                self.depth -= 1;
                return Ok(sum);
            };
        }
    }

    fn product(&mut self) -> Result<Dim, ParseError> {
        let negative = self.lexer.eat(b'-');
        self.product_of(negative)
    }

    fn product_of(&mut self, negative: bool) -> Result<Dim, ParseError> {
        let mut product = self.factor(negative)?;
        loop {
            let at = self.lexer.position();
            product = if self.lexer.eat(b'*') {
                let factor = self.factor(false)?;
                self.value(at, product.mul(&factor))?
            } else if self.lexer.eat(b'/') {
                let factor = self.factor(false)?;
                self.value(at, product.div(&factor))?
            } else if self.lexer.eat(b'%') {
                let factor = self.factor(false)?;
                self.value(at, product.rem(&factor))?
            } else {
                return Ok(product);
            };
        }
    }

    fn factor(&mut self, negative: bool) -> Result<Dim, ParseError> {
        let at = self.lexer.position();
        let token = self.lexer.peek();
        let dim = match token {
            Token::Number(digits) => {
                let magnitude = digits.parse::<u64>().ok();
                let value =
                    magnitude.and_then(|m| if negative { 0i64.checked_sub_unsigned(m) } else { i64::try_from(m).ok() });
                let Some(value) = value else { return Err(self.lexer.expected("an integer of 64 bits")) };
                self.lexer.next();
                return Ok(Dim::Const(value));
            }
            Token::Punct(b'(') => {
                self.lexer.next();
                let mut inner = self.sum()?;
                let at = self.lexer.position();
                if self.lexer.eat(b'<') {
                    self.lexer.expect(b'<')?;
                    let count = self.sum()?;
                    inner = self.value(at, inner.shl(&count))?;
                }
                self.lexer.expect(b')')?;
                inner
            }
            Token::Ident(word @ ("min" | "max")) if self.call_follows() => self.extreme(word == "min")?,
            Token::Ident(_) | Token::Str(_) => self.constexpr()?,
            _ => return Err(self.lexer.expected("a dimension")),
        };
        if negative { self.value(at, dim.neg()) } else { Ok(dim) }
    }

    fn call_follows(&self) -> bool {
        let mut ahead = *self.lexer;
        ahead.next();
        ahead.peek() == Token::Punct(b'(')
    }

    fn extreme(&mut self, smaller: bool) -> Result<Dim, ParseError> {
        let at = self.lexer.position();
        self.lexer.next();
        self.lexer.expect(b'(')?;
        let a = self.sum()?;
        self.lexer.expect(b',')?;
        let b = self.sum()?;
        self.lexer.expect(b')')?;
        self.value(at, if smaller { a.min_with(&b) } else { a.max_with(&b) })
    }

    fn constexpr(&mut self) -> Result<Dim, ParseError> {
        let at = self.lexer.position();
        let name = self.lexer.name("a constexpr")?;
        match self.func.const_params.iter().position(|p| p.name == name) {
            Some(index) => Ok(Dim::param(ConstId::new(index as u32))),
            None => Err(self.lexer.error_at(at, format!("no constexpr is named `{name}`"))),
        }
    }
}
