//! Layouts in the text form: `register [0, 1] [0, 2], lane [1, 0] -> dim0 2, dim1 4`.
//!
//! Per input dimension come its bases, each with a coordinate per output dimension; then the outputs' sizes.

use super::ParseError;
use super::lexer::{Lexer, Token};
use crate::layout::{LayoutDim, LinearLayout};

/// Appends a layout.
pub(super) fn print(out: &mut String, layout: &LinearLayout) {
    for (i, (dim, _)) in layout.ins().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        out.push_str(&dim.to_string());
        for basis in layout.bases(dim) {
            out.push_str(&format!(" {basis:?}"));
        }
    }
    if layout.ins().next().is_some() {
        out.push(' ');
    }
    out.push_str("->");
    for (i, (dim, size)) in layout.outs().enumerate() {
        out.push_str(if i > 0 { ", " } else { " " });
        out.push_str(&format!("{dim} {size}"));
    }
}

/// Reads a layout.
pub(super) fn parse(lexer: &mut Lexer<'_>) -> Result<LinearLayout, ParseError> {
    let at = lexer.position();
    let mut ins = Vec::new();
    while lexer.peek() != Token::Arrow {
        let dim = parse_dim(lexer)?;
        let mut bases = Vec::new();
        while lexer.peek() == Token::Punct(b'[') {
            bases.push(parse_basis(lexer)?);
        }
        ins.push((dim, bases));
        if !lexer.eat(b',') {
            break;
        }
    }
    if lexer.peek() != Token::Arrow {
        return Err(lexer.expected("`->`"));
    }
    lexer.next();
    let mut outs = Vec::new();
    while let Token::Ident(_) = lexer.peek() {
        // The kernel's operations follow the last layout; `return` is no dimension.
        let mut ahead = *lexer;
        ahead.next();
        if !matches!(ahead.peek(), Token::Number(_)) {
            break;
        }
        let dim = parse_dim(lexer)?;
        outs.push((dim, lexer.unsigned(u64::from(u32::MAX))? as u32));
        if !lexer.eat(b',') {
            break;
        }
    }
    LinearLayout::from_bases(&ins, &outs).map_err(|e| lexer.error_at(at, e.to_string()))
}

fn parse_basis(lexer: &mut Lexer<'_>) -> Result<Vec<u32>, ParseError> {
    lexer.expect(b'[')?;
    let mut basis = Vec::new();
    while lexer.peek() != Token::Punct(b']') {
        basis.push(lexer.unsigned(u64::from(u32::MAX))? as u32);
        if !lexer.eat(b',') {
            break;
        }
    }
    lexer.expect(b']')?;
    Ok(basis)
}

fn parse_dim(lexer: &mut Lexer<'_>) -> Result<LayoutDim, ParseError> {
    let named = [
        LayoutDim::Register,
        LayoutDim::Lane,
        LayoutDim::Warp,
        LayoutDim::Block,
        LayoutDim::Offset,
        LayoutDim::Vector,
        LayoutDim::Bank,
        LayoutDim::Segment,
        LayoutDim::Reps,
    ];
    let dim = match lexer.peek() {
        Token::Ident(word) => match word.strip_prefix("dim") {
            Some(axis) => axis.parse().ok().map(LayoutDim::Axis),
            None => named.into_iter().find(|d| d.to_string() == word),
        },
        _ => None,
    };
    let dim = dim.ok_or_else(|| lexer.expected("a dimension of a layout"))?;
    lexer.next();
    Ok(dim)
}
