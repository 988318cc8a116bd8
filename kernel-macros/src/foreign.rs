//! Forms of other languages that Rust's grammar refuses, and what they are here.
//!
//! The parser stops at one token and says what it expected. What was meant is seen in the tokens around that one:
//!
//! ```text
//! i < n & i > 0      comparisons cannot be chained: write `(i < n) & (i > 0)`
//! a and b            write `a & b`
//! rm[.., None]       write `[(.., None)]`
//! a @ b              write `dot(a, b)`
//! ```

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

use crate::help::Help;
use crate::source_range::SourceRange;

/// A token, or the punctuation of one operator.
struct Lexeme {
    text: String,
    place: SourceRange,
    /// The delimiter, if it is a group.
    group: Option<Delimiter>,
}

/// One level of brackets, and which of its lexemes is at fault.
struct Level {
    lexemes: Vec<Lexeme>,
    at: usize,
    /// The brackets around it.
    around: Option<(Delimiter, SourceRange)>,
}

/// What to write instead of what stands at `fault`, where the parser has stopped.
pub fn help(tokens: TokenStream, fault: Span) -> Option<Help> {
    let Level { lexemes, at, around } = find(tokens, fault, None)?;
    let lexeme = &lexemes[at];
    let before = at.checked_sub(1).map(|i| lexemes[i].text.as_str());
    match lexeme.text.as_str() {
        "where" => Some("write `select(condition, a, b)`".into()),
        "if" => Some("write `if condition { a } else { b }`, or of tiles `select(condition, a, b)`".into()),
        "mut" if before == Some(":") => Some("write it in front of the name: `mut a: Ptr<f32>`".into()),
        "@" => Some("a matrix product is written `dot(a, b)`".into()),
        "and" | "or" => joined(&lexemes, at),
        "," | ":" if matches!(around, Some((Delimiter::Bracket, _))) => index(&lexemes, around?.1),
        ":" if is_named_argument(&lexemes, at, around) => {
            let name = &lexemes[at - 1].text;
            Some(Help::write(lexeme.place, " =").said(format!("an argument is named with `=`: write `{name} = ..`")))
        }
        ":" => Some("a block is written in braces: `{ .. }`".into()),
        "<" | "<=" | ">" | ">=" | "==" | "!=" => comparisons(&lexemes, at),
        _ if before == Some("elif") => Some(Help::write(lexemes[at - 1].place, "else if")),
        _ if before == Some("not") => negation(&lexemes, at - 1),
        _ => None,
    }
}

/// `load(x, mask: i < n)`
fn is_named_argument(lexemes: &[Lexeme], at: usize, around: Option<(Delimiter, SourceRange)>) -> bool {
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let first = match at {
        0 => return false,
        1 => true,
        _ => lexemes[at - 2].text == ",",
    };
    first && is_name(&lexemes[at - 1].text) && matches!(around, Some((Delimiter::Parenthesis, _)))
}

/// The level of brackets with the token at `fault`. Nesting is bounded, as `guard` has refused what is deeper.
fn find(tokens: TokenStream, fault: Span, around: Option<(Delimiter, SourceRange)>) -> Option<Level> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let position = |span: Span| (span.start().line, span.start().column);
    for tree in &trees {
        if let TokenTree::Group(group) = tree {
            let place = SourceRange::at(group.span());
            if let Some(level) = find(group.stream(), fault, Some((group.delimiter(), place))) {
                return Some(level);
            }
        }
    }
    let lexemes = lexemes(trees);
    let at = lexemes.iter().position(|l| l.group.is_none() && position(l.place.start) == position(fault))?;
    Some(Level { lexemes, at, around })
}

fn lexemes(trees: Vec<TokenTree>) -> Vec<Lexeme> {
    const PAIRS: [&str; 9] = ["==", "!=", "<=", ">=", "&&", "||", "<<", ">>", ".."];
    let mut out: Vec<Lexeme> = Vec::new();
    let mut joint = false;
    for tree in trees {
        let place = SourceRange::at(tree.span());
        let mut lexeme = Lexeme { text: String::new(), place, group: None };
        match &tree {
            TokenTree::Group(group) => {
                let source = group.span().source_text();
                lexeme.text = source.unwrap_or_else(|| tree.to_string());
                lexeme.group = Some(group.delimiter());
            }
            TokenTree::Punct(punct) => {
                let glued = out.last().filter(|_| joint).map(|last| format!("{}{}", last.text, punct.as_char()));
                joint = punct.spacing() == Spacing::Joint;
                if let (Some(glued), Some(last)) = (glued.filter(|g| PAIRS.contains(&g.as_str())), out.last_mut()) {
                    (last.text, last.place.end) = (glued, place.end);
                    continue;
                }
                lexeme.text = punct.as_char().to_string();
                out.push(lexeme);
                continue;
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => lexeme.text = tree.to_string(),
        }
        joint = false;
        out.push(lexeme);
    }
    out
}

/// The expression around a lexeme: up to what no operator of a condition goes beyond.
fn expression(lexemes: &[Lexeme], at: usize) -> (usize, usize) {
    let ends = |l: &Lexeme| matches!(l.text.as_str(), ";" | "," | "&&" | "||") || l.group == Some(Delimiter::Brace);
    let begins = |l: &Lexeme| ends(l) || matches!(l.text.as_str(), "=" | "if" | "while" | "return" | "else" | "let");
    let start = lexemes[..at].iter().rposition(begins).map_or(0, |i| i + 1);
    let end = lexemes[at..].iter().position(ends).map_or(lexemes.len(), |i| at + i);
    (start, end)
}

/// Lexemes as they are written, with their spaces.
fn text(lexemes: &[Lexeme]) -> String {
    let mut out = String::new();
    for (i, lexeme) in lexemes.iter().enumerate() {
        if i > 0 {
            let (end, start) = (lexemes[i - 1].place.end.end(), lexeme.place.start.start());
            out.push_str(if end.line == start.line && end.column == start.column { "" } else { " " });
        }
        out.push_str(&lexeme.text);
    }
    out
}

fn place(lexemes: &[Lexeme]) -> Option<SourceRange> {
    Some(SourceRange::between(lexemes.first()?.place.start, lexemes.last()?.place.end))
}

fn is_comparison(lexeme: &Lexeme) -> bool {
    matches!(lexeme.text.as_str(), "<" | "<=" | ">" | ">=" | "==" | "!=")
}

/// A part of a condition, in parentheses if it compares; `2 < r < n` in two.
fn part(lexemes: &[Lexeme]) -> Option<String> {
    let signs: Vec<usize> = (0..lexemes.len()).filter(|&i| is_comparison(&lexemes[i])).collect();
    let mut operands: Vec<String> = Vec::new();
    let mut start = 0;
    for end in signs.iter().copied().chain([lexemes.len()]) {
        operands.push(text(lexemes.get(start..end).filter(|operand| !operand.is_empty())?));
        start = end + 1;
    }
    let pairs = operands.windows(2).zip(&signs);
    let pairs: Vec<String> =
        pairs.map(|(pair, &sign)| format!("({} {} {})", pair[0], lexemes[sign].text, pair[1])).collect();
    Some(if pairs.is_empty() { operands.concat() } else { pairs.join(" & ") })
}

/// Parts of a condition with `&`, `|`, `and` or `or` between them.
fn condition(lexemes: &[Lexeme]) -> Option<Help> {
    let mut code = String::new();
    let mut start = 0;
    for (i, lexeme) in lexemes.iter().enumerate() {
        let joint = match lexeme.text.as_str() {
            "and" => "&",
            "or" => "|",
            "&" | "|" | "^" => lexeme.text.as_str(),
            _ => continue,
        };
        code.push_str(&format!("{} {joint} ", part(&lexemes[start..i])?));
        start = i + 1;
    }
    code.push_str(&part(&lexemes[start..])?);
    Some(Help::write(place(lexemes)?, code))
}

/// `i < n & i > 0`, `2 < r < n`
fn comparisons(lexemes: &[Lexeme], at: usize) -> Option<Help> {
    let (start, end) = expression(lexemes, at);
    let lexemes = &lexemes[start..end];
    if lexemes.iter().filter(|lexeme| is_comparison(lexeme)).count() < 2 {
        return None;
    }
    // A part that compares nothing may belong to the bits of its neighbour, as in `n & 1 == 0 & m > 3`.
    let mut parts = lexemes.split(|lexeme| matches!(lexeme.text.as_str(), "&" | "|" | "^"));
    if parts.any(|part| !part.iter().any(is_comparison)) {
        return Some("put each comparison in parentheses: `(a < b) & (c < d)`".into());
    }
    condition(lexemes)
}

/// `a and b`
fn joined(lexemes: &[Lexeme], at: usize) -> Option<Help> {
    let (start, end) = expression(lexemes, at);
    condition(&lexemes[start..end])
}

/// `not a`
fn negation(lexemes: &[Lexeme], at: usize) -> Option<Help> {
    let (_, end) = expression(lexemes, at);
    let rest = lexemes.get(at + 1..end)?;
    let code = match rest {
        [one] => format!("!{}", one.text),
        many => format!("!({})", text(many)),
    };
    Some(Help::write(place(&lexemes[at..end])?, code))
}

/// `x[:, None]`, `x[.., None]`: the parts of an index are a tuple.
fn index(lexemes: &[Lexeme], brackets: SourceRange) -> Option<Help> {
    let known = |l: &Lexeme| matches!(l.text.as_str(), ":" | "," | ".." | "None" | "np" | "." | "newaxis");
    if !lexemes.iter().all(known) {
        return Some("to insert an axis write `x[(.., None)]`; single elements are loaded: `load(x + i)`".into());
    }
    let parts = lexemes.split(|l| l.text == ",").filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts
        .map(|part| if part.iter().any(|l| matches!(l.text.as_str(), ":" | "..")) { ".." } else { "None" })
        .collect();
    let code = format!("[({})]", parts.join(", "));
    Some(Help::write(brackets, code.clone()).said(format!("write `x{code}`")))
}
