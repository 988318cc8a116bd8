//! The kernel's source lines, which the runtime shows below an error.
//!
//! Only tokens and their positions are known, so lines are rebuilt from them; inside the body's braces the source
//! text is known as it is, comments included.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::ir::Func;
use proc_macro2::{Group, Span, TokenStream, TokenTree};

/// Line numbers and texts, of those lines that the IR mentions.
pub fn collect(func: &Func, signature: &TokenStream, body: &Group) -> Vec<(u32, String)> {
    let mut wanted: BTreeSet<u32> = func.ops.iter().map(|op| op.span.line).collect();
    wanted.extend(func.params.iter().map(|p| p.span.line));
    wanted.remove(&0);
    let mut lines = BTreeMap::new();
    rebuild(signature.clone(), &mut lines);
    match body.span().source_text() {
        Some(text) => {
            let start = body.span().start();
            for (line, text) in (start.line..).zip(text.lines()) {
                if line == start.line {
                    place(&mut lines, line, start.column, text);
                } else {
                    lines.insert(line, text.to_string());
                }
            }
        }
        None => rebuild(TokenStream::from(TokenTree::from(body.clone())), &mut lines),
    }
    let known = |line: u32| lines.get(&(line as usize)).map(|text| (line, text.trim_end().to_string()));
    wanted.into_iter().filter_map(known).collect()
}

/// Puts each token at its place.
fn rebuild(tokens: TokenStream, lines: &mut BTreeMap<usize, String>) {
    let mut stack = vec![tokens.into_iter()];
    while let Some(tokens) = stack.last_mut() {
        match tokens.next() {
            Some(TokenTree::Group(group)) => {
                token(lines, group.span_open());
                token(lines, group.span_close());
                stack.push(group.stream().into_iter());
            }
            Some(tree) => token(lines, tree.span()),
            None => {
                stack.pop();
            }
        }
    }
}

fn token(lines: &mut BTreeMap<usize, String>, span: Span) {
    let start = span.start();
    if let Some(text) = span.source_text()
        && !text.contains('\n')
        && text.len() < 200
        && start.line > 0
        && start.column < 400
    {
        place(lines, start.line, start.column, &text);
    }
}

/// Writes `text` into a line from a column on.
fn place(lines: &mut BTreeMap<usize, String>, line: usize, column: usize, text: &str) {
    let line = lines.entry(line).or_default();
    let mut chars: Vec<char> = line.chars().collect();
    let end = column + text.chars().count();
    if chars.len() < end {
        chars.resize(end, ' ');
    }
    for (slot, c) in chars[column..end].iter_mut().zip(text.chars()) {
        *slot = c;
    }
    *line = chars.into_iter().collect();
}
