//! A look at the tokens before anything recursive sees them.
//!
//! The parser, rustc and the checks all recurse over the syntax tree, so deep nesting would overflow the stack
//! of the compiler. This pass keeps its own stack and refuses nesting over [`MAX_NESTING`] and chains of more than
//! [`MAX_CHAIN`] operators.

use proc_macro2::{Delimiter, Ident, Punct, Spacing, TokenStream, TokenTree, token_stream};

use crate::error::{Checked, Errors};
use crate::source_range::SourceRange;

/// Levels of brackets, and of prefix operators and keywords, one inside the other.
pub const MAX_NESTING: usize = 128;
/// Operators, method calls and casts in one expression.
pub const MAX_CHAIN: usize = 1000;

/// What has been seen of one level of brackets.
struct Level {
    tokens: std::iter::Peekable<token_stream::IntoIter>,
    /// Operators since the last `;` or `,`.
    chain: usize,
    /// Tokens since then that nest to the right: prefix operators, assignments, keywords.
    nested: usize,
    /// Whether the last token could end an operand.
    after_operand: bool,
    /// Nesting to the right of the levels outside.
    outer: usize,
    /// The characters of the operator that is being read.
    operator: String,
    /// Whether the last token was an `else`, and how many `else if`s there were.
    after_else: bool,
    else_ifs: usize,
}

impl Level {
    fn new(tokens: TokenStream, outer: usize) -> Level {
        Level {
            tokens: tokens.into_iter().peekable(),
            chain: 0,
            nested: 0,
            after_operand: false,
            outer,
            operator: String::new(),
            after_else: false,
            else_ifs: 0,
        }
    }

    fn reset(&mut self) {
        (self.chain, self.nested, self.after_operand) = (0, 0, false);
        (self.after_else, self.else_ifs) = (false, 0);
    }

    /// Counts a keyword that opens an expression. An `else if` is one level deeper, not two.
    fn keyword(&mut self, ident: &Ident) {
        let chained = self.after_else && ident == "if";
        self.after_else = ident == "else";
        self.chain += 1;
        self.nested += usize::from(!chained);
        self.else_ifs += usize::from(chained);
        self.after_operand = false;
    }

    /// Counts one character of an operator.
    fn punct(&mut self, punct: &Punct) {
        let starts = self.operator.is_empty();
        self.operator.push(punct.as_char());
        // `- - x` nests: each operator is an operand of the one before.
        self.nested += usize::from(starts && !self.after_operand);
        if punct.spacing() == Spacing::Joint && matches!(self.tokens.peek(), Some(TokenTree::Punct(_))) {
            return;
        }
        let comparison = matches!(self.operator.as_str(), "==" | "!=" | "<=" | ">=");
        // Assignments and negations glued to another operator nest too.
        let glued = self.operator.chars().count().saturating_sub(2);
        self.nested += usize::from(self.operator.contains('=') && !comparison) + glued;
        self.chain += 1;
        self.after_operand = self.operator == "?";
        self.operator.clear();
    }
}

/// Refuses tokens that nest too deeply.
pub fn check(tokens: TokenStream, errors: &mut Errors) -> Checked<()> {
    let mut stack = vec![Level::new(tokens, 0)];
    while let Some(level) = stack.last_mut() {
        let Some(token) = level.tokens.next() else {
            stack.pop();
            continue;
        };
        let place = SourceRange::at(token.span());
        match token {
            TokenTree::Group(group) => {
                level.after_operand = true;
                let outer = level.outer + level.nested + 1;
                let ends_statement = group.delimiter() == Delimiter::Brace && !continues(level.tokens.peek());
                if ends_statement {
                    level.reset();
                }
                if outer > MAX_NESTING {
                    return Err(too_deep(place, &stack, errors));
                }
                stack.push(Level::new(group.stream(), outer));
                continue;
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' | ',' => level.reset(),
                _ => level.punct(&punct),
            },
            TokenTree::Ident(ident) if is_keyword(&ident.to_string()) => level.keyword(&ident),
            TokenTree::Ident(_) | TokenTree::Literal(_) => level.after_operand = true,
        }
        if level.outer + level.nested > MAX_NESTING {
            return Err(too_deep(place, &stack, errors));
        }
        if level.chain > MAX_CHAIN {
            let message = format!("this expression has more than {MAX_CHAIN} operators");
            return Err(errors.report_help(place, message, "name parts of it with `let`"));
        }
    }
    Ok(())
}

fn too_deep(place: SourceRange, stack: &[Level], errors: &mut Errors) -> crate::error::Reported {
    // A chain nests, though a reader does not see it.
    if stack.iter().any(|level| level.else_ifs > MAX_NESTING / 2) {
        let help = "put a part of it in front: `let x = if .. { .. } else { .. };`";
        return errors.report_help(place, "this chain of `else if`s is too long", help);
    }
    let message = format!("this is nested more than {MAX_NESTING} levels deep");
    errors.report_help(place, message, "name inner parts with `let`")
}

/// Whether a block is followed by something that belongs to the same statement.
fn continues(next: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Punct(_)) => true,
        Some(TokenTree::Ident(ident)) => ident == "else" || ident == "as",
        Some(TokenTree::Group(_) | TokenTree::Literal(_)) | None => false,
    }
}

/// Keywords that open an expression around what follows.
fn is_keyword(ident: &str) -> bool {
    matches!(
        ident,
        "if" | "else"
            | "match"
            | "while"
            | "for"
            | "in"
            | "return"
            | "break"
            | "yield"
            | "move"
            | "let"
            | "dyn"
            | "impl"
            | "mut"
            | "ref"
            | "box"
            | "as"
            | "raw"
            | "do"
            | "become"
            | "unsafe"
            | "async"
            | "const"
            | "static"
            | "fn"
            | "where"
    )
}
