//! The kernel's source lines, which the runtime shows below an error.
//!
//! Only tokens and their positions are known, so lines are rebuilt from them; inside the body's braces the source
//! text is known as it is, comments included.

use std::collections::{BTreeMap, BTreeSet};

use kernel_core::ir::Func;
use proc_macro2::{Group, Span, TokenStream, TokenTree};

use crate::device::bundle::Functions;

/// Line numbers and texts.
pub type Lines = Vec<(u32, String)>;

/// The files of a kernel with those of their lines that the IR mentions: its own first, which has no name here.
pub fn collect(func: &Func, signature: &TokenStream, body: &Group, functions: &Functions) -> Vec<(String, Lines)> {
    let mut files: Vec<BTreeMap<usize, String>> = vec![BTreeMap::new(); func.files.others().len() + 1];
    add(&mut files[0], signature, body);
    for function in functions.all() {
        // Of a function in the kernel's own file the name is not listed.
        let file = func.files.find(&function.ident().span().file()).unwrap_or_default();
        if let Some(lines) = files.get_mut(file.index()) {
            add(lines, &function.tokens, &function.braces);
        }
    }
    let names = std::iter::once(String::new()).chain(func.files.others().iter().cloned());
    let spans = || func.ops.iter().map(|op| op.span).chain(func.params.iter().map(|p| p.span));
    let pick = |(index, (name, lines)): (usize, (String, BTreeMap<usize, String>))| {
        let wanted: BTreeSet<u32> =
            spans().filter(|span| span.file.index() == index && span.line > 0).map(|span| span.line).collect();
        let known = |line: u32| lines.get(&(line as usize)).map(|text| (line, text.trim_end().to_string()));
        (name, wanted.into_iter().filter_map(known).collect())
    };
    names.zip(files).enumerate().map(pick).collect()
}

/// The lines of a function.
fn add(lines: &mut BTreeMap<usize, String>, signature: &TokenStream, body: &Group) {
    rebuild(signature.clone(), lines);
    match body.span().source_text() {
        Some(text) => {
            let start = body.span().start();
            for (line, text) in (start.line..).zip(text.lines()) {
                if line == start.line {
                    place(lines, line, start.column, text);
                } else {
                    lines.insert(line, text.to_string());
                }
            }
        }
        None => rebuild(TokenStream::from(TokenTree::from(body.clone())), lines),
    }
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
